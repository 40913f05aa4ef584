//! A worker: turns the raw tiles of an image into packed strips of the output image, block by block while the block is in L1.

use crate::control::{Control, FailGuard};
use crate::run::PixelConstants;
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::geometry::{Gather, Segment};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Plan, Recipe};
use konkordia_core::ports::TileRecord;
use konkordia_kernels::codec::Packer;
use konkordia_kernels::convert::{self, OutputPixel};
use konkordia_kernels::fused::FusedScratch;
use konkordia_kernels::isa::Isa;
use konkordia_kernels::unpack::{self, Bits};
use konkordia_memory::ring;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Images of which a worker does one strip before it goes on to the next strip, so that the strip's constants stay in its cache.
const BATCH_IMAGES: u64 = 8;

/// What all workers share, computed at arm.
pub(crate) struct Recipes {
    pub plan: std::sync::Arc<Plan>,
    pub gather: Gather,
    pub constants: PixelConstants,
    pub isa: Isa,
    pub bits: Option<Bits>,
}

/// Works until the end of the run.
pub(crate) fn run(control: &Control, recipes: &Recipes, worker: ring::Worker) {
    match recipes.plan.pixel {
        PixelType::Int16 => Work::<i16>::new(recipes).run(control, worker),
        PixelType::Int32 => Work::<i32>::new(recipes).run(control, worker),
        PixelType::Uint16 => Work::<u16>::new(recipes).run(control, worker),
        PixelType::Uint32 => Work::<u32>::new(recipes).run(control, worker),
        PixelType::Float32 => Work::<f32>::new(recipes).run(control, worker),
    }
}

struct Work<'a, P> {
    recipes: &'a Recipes,
    scratch: FusedScratch,
    /// For everything but `none` and `bslz4`, which have paths of their own.
    packer: Option<Packer>,
    pixel: std::marker::PhantomData<P>,
}

/// The tile that a segment was last found in; neighbouring segments mostly share it.
type Tile<'a> = Option<(&'a TileRecord, &'a [u8])>;

impl<'a, P: OutputPixel> Work<'a, P> {
    fn new(recipes: &'a Recipes) -> Self {
        let plan = &recipes.plan;
        let blocks = if plan.compression.is_by_strip() { plan.blocks_per_strip() } else { 1 };
        let other = !matches!(plan.compression, Compression::None | Compression::Bslz4);
        let packer = other.then(|| Packer::new(plan.compression, recipes.isa, blocks * plan.compression.block_bytes()));
        Self { recipes, scratch: FusedScratch::new(), packer, pixel: std::marker::PhantomData }
    }

    fn run(mut self, control: &Control, mut worker: ring::Worker) {
        let _guard = FailGuard(control);
        while !control.has_failed() && worker.next() < control.end.load(Ordering::Acquire) {
            let ready = worker.wait(BATCH_IMAGES, Duration::from_millis(20));
            if ready == 0 {
                continue;
            }
            let images = worker.next()..worker.next() + ready;
            let wanted =
                images.clone().filter(|i| self.is_wanted(&worker, *i)).fold(0u64, |set, i| set | 1 << (i - images.start));
            for strip in worker.strips() {
                for image in images.clone().filter(|i| wanted >> (i - images.start) & 1 == 1) {
                    worker.pack(image, strip, |worker, out| self.pack_strip(worker, image, strip, out));
                }
            }
            worker.finish(ready);
        }
    }

    /// False for lost images and for those that the policy discards.
    fn is_wanted(&self, worker: &ring::Worker, image: u64) -> bool {
        let plan = &self.recipes.plan;
        if !worker.is_present(image) {
            return false;
        }
        if plan.missing == MissingPolicy::Keep {
            return true;
        }
        let placed = (0..plan.streams()).filter_map(|t| worker.tile(image, t)).map(|(r, _)| u32::from(r.packets)).sum();
        ImageStatus::of(placed, plan.packets_per_image() as u32, plan.missing) == ImageStatus::Complete
    }

    fn pack_strip(&mut self, worker: &ring::Worker, image: u64, strip: usize, out: &mut [u8]) -> usize {
        let (plan, gather) = (&self.recipes.plan, &self.recipes.gather);
        let blocks = strip * plan.blocks_per_strip()..((strip + 1) * plan.blocks_per_strip()).min(gather.blocks());
        if let Some(packer) = &mut self.packer {
            return pack_others::<P>(self.recipes, packer, worker, image, blocks, out);
        }
        let mut at = 0;
        for block in blocks {
            let length = gather.block_length(block);
            match plan.compression {
                Compression::None => {
                    let bytes = length * size_of::<P>();
                    let pixels = bytemuck::cast_slice_mut(&mut out[at..at + bytes]);
                    self.recipes.fill_block::<P>(worker, image, block, pixels);
                    at += bytes;
                }
                _ => {
                    let pixels = &mut self.scratch.pixels_mut::<P>()[..length];
                    self.recipes.fill_block::<P>(worker, image, block, pixels);
                    at += self.scratch.pack_block::<P>(self.recipes.isa, length, &mut out[at..]);
                }
            }
        }
        at
    }
}

/// Packs a strip by the packer: block by block, or filled as a whole and packed as one.
fn pack_others<P: OutputPixel>(
    recipes: &Recipes,
    packer: &mut Packer,
    worker: &ring::Worker,
    image: u64,
    blocks: Range<usize>,
    out: &mut [u8],
) -> usize {
    let by_strip = recipes.plan.compression.is_by_strip();
    let (mut at, mut filled) = (0, 0);
    for block in blocks {
        let length = recipes.gather.block_length(block);
        recipes.fill_block::<P>(worker, image, block, &mut packer.pixels_mut::<P>()[filled..filled + length]);
        if by_strip {
            filled += length;
        } else {
            at += packer.pack::<P>(length, &mut out[at..]);
        }
    }
    if by_strip { packer.pack::<P>(filled, out) } else { at }
}

impl Recipes {
    /// Fills the pixels of one block of the output image.
    fn fill_block<P: OutputPixel>(&self, worker: &ring::Worker, image: u64, block: usize, pixels: &mut [P]) {
        let first_pixel = block * self.gather.block_pixels();
        let mut last: Option<(u16, Tile<'_>)> = None;
        for segment in self.gather.segments(block) {
            let at = segment.block_offset as usize;
            let part = &mut pixels[at..at + segment.length as usize];
            let Some(tile) = segment.tile else {
                part.fill(if self.plan.recipe == Recipe::Raw { P::MISSING } else { P::MASKED });
                continue;
            };
            let found = match last {
                Some((t, found)) if t == tile => found,
                _ => worker.tile(image, usize::from(tile)),
            };
            last = Some((tile, found));
            match found {
                Some((record, bytes)) if has_packets(&record.bitmap, segment) => {
                    self.convert::<P>(bytes, segment, first_pixel + at, part);
                }
                _ => part.fill(P::MISSING),
            }
        }
    }

    /// Converts one segment, all of whose packets arrived. `output` is its first pixel in the output image.
    fn convert<P: OutputPixel>(&self, tile: &[u8], segment: &Segment, output: usize, out: &mut [P]) {
        let first = segment.tile_pixel as usize;
        match (self.plan.recipe, self.bits, &self.constants) {
            (Recipe::JungfrauPhotons, None, PixelConstants::Jungfrau(planes)) => {
                let raw = &bytemuck::cast_slice::<u8, u16>(tile)[first..first + out.len()];
                convert::jungfrau(self.isa, raw, &planes.view().slice(output, out.len()), out);
            }
            (Recipe::Counts, Some(bits), PixelConstants::Mask(mask)) => {
                convert::counts(bits, tile, first, Some(&mask[output..output + out.len()]), out);
            }
            (Recipe::Raw, None, _) => {
                let bytes = size_of_val(out);
                bytemuck::cast_slice_mut(out).copy_from_slice(&tile[first * 2..][..bytes]);
            }
            (Recipe::Raw, Some(bits), _) if size_of::<P>() == 2 => {
                unpack::eiger::<u16>(bits, tile, first, bytemuck::cast_slice_mut(out));
            }
            (Recipe::Raw, Some(bits), _) => unpack::eiger::<u32>(bits, tile, first, bytemuck::cast_slice_mut(out)),
            _ => unreachable!("arm checked that recipe, detector and constants fit together"),
        }
    }
}

/// True if every packet that holds pixels of the segment arrived.
#[inline]
fn has_packets(bitmap: &PacketBitmap, segment: &Segment) -> bool {
    bitmap.has(segment.packet_first) && bitmap.has(segment.packet_last)
}
