//! Images of frames that lie in memory, without a run: the conversion of the workers, on the thread of the caller.

use super::fill::{Filler, Frame};
use super::place::Tiles;
use super::recipes::Recipes;
use super::steps::{seen, set_of};
use super::strips::finish;
use crate::plan_check::{check_constants, check_processing};
use konkordia_core::image::TileRecord;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Plan, Recipe};
use konkordia_kernels::constants::PixelConstants;
use konkordia_kernels::convert::OutputPixel;
use konkordia_kernels::finish::Signed;
use konkordia_kernels::isa::Isa;
use konkordia_kernels::unpack::Bits;
use std::sync::Arc;

/// Makes images of frames as a run with this plan does, before they are packed.
pub struct FrameConverter {
    recipes: Recipes,
}

/// The tiles of a frame, one per stream, each with its record if packets of it came. Words are aligned.
pub struct FrameTiles<'a>(pub Vec<Option<(TileRecord, &'a [u8])>>);

impl Tiles for FrameTiles<'_> {
    fn tile(&self, _: u64, tile: usize) -> Option<(&TileRecord, &[u8])> {
        self.0[tile].as_ref().map(|(record, bytes)| (record, *bytes))
    }
}

impl FrameConverter {
    /// For frames of the plan's detector.
    ///
    /// # Errors
    /// The constants do not fit the plan, or images depend on other frames: sums, tracked pedestals, selections.
    pub fn new(plan: Plan, constants: PixelConstants, isa: Isa) -> Result<Self, String> {
        check_processing(&plan)?;
        check_constants(&plan, &constants)?;
        if plan.has_sums() || plan.processing.tracking.is_some() || !plan.processing.selection.is_plain() {
            return Err("each image is made of one frame, and of nothing else".into());
        }
        let format = *plan.geometry.format();
        let gather = plan.geometry.gather(plan.block_pixels());
        let bits = if format.kind.counts_photons() { Bits::new(format.bits) } else { None };
        Ok(Self { recipes: Recipes::new(Arc::new(plan), gather, constants, isa, bits) })
    }

    /// Its plan.
    pub fn plan(&self) -> &Plan {
        &self.recipes.plan
    }

    /// Converts frames; the images, of which the first has the number `first`, lie one after the other in `out`.
    ///
    /// # Panics
    /// If `out` has not the bytes of so many images, or is not aligned; if a frame has other tiles than the plan.
    pub fn convert(&self, frames: &[FrameTiles<'_>], first: u64, out: &mut [u8]) {
        match self.plan().pixel {
            PixelType::Int16 => self.convert_to::<i16>(frames, first, out),
            PixelType::Int32 => self.convert_to::<i32>(frames, first, out),
            PixelType::Uint16 => self.convert_to::<u16>(frames, first, out),
            PixelType::Uint32 => self.convert_to::<u32>(frames, first, out),
            PixelType::Float32 => self.convert_to::<f32>(frames, first, out),
            other => unreachable!("no run converts to {other}: the configuration names the types that can be asked for"),
        }
    }

    /// Strip by strip, so that the constants of a strip are fetched once for all frames.
    fn convert_to<P: OutputPixel + Signed>(&self, frames: &[FrameTiles<'_>], first: u64, out: &mut [u8]) {
        let (recipes, pixels) = (&self.recipes, self.plan().geometry.pixels());
        let out: &mut [P] = bytemuck::cast_slice_mut(out);
        assert_eq!(out.len(), frames.len() * pixels, "room for one image of each frame");
        let mut filler = Filler::new(recipes);
        for blocks in self.plan().strips() {
            for ((image, tiles), out) in (first..).zip(frames).zip(out.chunks_exact_mut(pixels)) {
                let frame = self.frame(image, tiles);
                for block in blocks.clone() {
                    let pixels = &mut out[recipes.gather.pixels_of(block..block + 1)];
                    filler.fill(tiles, frame, block, None, pixels);
                    if recipes.plan.recipe != Recipe::Raw {
                        finish(recipes, block, image, pixels);
                    }
                }
            }
        }
    }

    /// What a worker would know of the frame.
    fn frame(&self, number: u64, frame: &FrameTiles<'_>) -> Frame {
        assert_eq!(frame.0.len(), self.plan().streams(), "one tile for each stream");
        let seen = seen(self.plan(), frame.0.iter().flatten().map(|(record, _)| record));
        let set = seen.flags.and_then(|word| set_of(&self.recipes, word));
        Frame { number, set, is_present: seen.placed > 0 }
    }
}
