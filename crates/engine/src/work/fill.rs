//! Fills a block of the output image with the converted pixels of one frame.
//!
//! A *plain* block is made of runs that lie side by side in a tile too: they are converted where they are. The words of
//! any other block (turned modules, split pixels, common mode) are first gathered in output order, then converted as a
//! whole.

use super::common_mode::Offsets;
use super::place::Tiles;
use super::recipes::Recipes;
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::geometry::Segment;
use konkordia_core::image::TileRecord;
use konkordia_core::plan::Recipe;
use konkordia_kernels::constants::{CellConstants, PixelConstants};
use konkordia_kernels::convert::fixed::jungfrau_fixed;
use konkordia_kernels::convert::tracking::{Tracker, jungfrau_track_only, jungfrau_tracking};
use konkordia_kernels::convert::{self, Constants, OutputPixel};
use konkordia_kernels::unpack;

/// Stands for a word whose packet did not come.
const NO_WORD: u16 = 0xFFFF;

/// A frame that a worker processes.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    /// Position in the run.
    pub number: u64,
    /// Its set of constants, by its storage cell; `None` = the cell has none, or no packet said which cell it was.
    pub set: Option<usize>,
    /// True if a packet of it came.
    pub is_present: bool,
}

/// Tracked pedestals of the pixels of a block, and whether this frame moves them.
pub(crate) struct Followed<'a> {
    pub pedestal: &'a mut [f32],
    pub moves: bool,
}

/// The tile that a segment was last found in; neighbouring segments mostly share it.
type Tile<'a> = Option<(&'a TileRecord, &'a [u8])>;

/// Fills blocks for one worker; its buffers are allocated at arm.
pub(crate) struct Filler<'a> {
    recipes: &'a Recipes,
    words: Vec<u16>,
    pedestal: Vec<f32>,
    offsets: Option<Offsets>,
}

impl<'a> Filler<'a> {
    pub fn new(recipes: &'a Recipes) -> Self {
        let pixels = recipes.gather.block_pixels();
        let offsets = recipes.common_mode.as_ref().map(|tables| Offsets::new(tables, &recipes.plan.geometry));
        Self { recipes, words: vec![NO_WORD; pixels], pedestal: vec![0.0; pixels], offsets }
    }

    /// Fills the pixels of a block with those of a frame. Split pixels get the value of the whole pixel.
    pub fn fill<Q: OutputPixel>(
        &mut self,
        tiles: &impl Tiles,
        frame: Frame,
        block: usize,
        followed: Option<Followed<'_>>,
        out: &mut [Q],
    ) {
        match Stage::new(self.recipes, frame, block) {
            Some(stage) if self.recipes.gather.is_plain(block) && self.offsets.is_none() => {
                stage.fill_plain(tiles, frame.number, block, followed, out);
            }
            Some(stage) => self.fill_gathered(tiles, frame.number, block, (&stage, followed), out),
            None if frame.is_present && matches!(self.recipes.constants, PixelConstants::Jungfrau(_)) => out.fill(Q::MASKED),
            // A frame without a packet has nothing to convert: all its pixels are missing, and gaps are masked.
            None => self.recipes.fill_unconverted(tiles, frame.number, block, out),
        }
    }

    /// Updates the pedestals from the words of a frame, without making an image.
    pub fn track(&mut self, tiles: &impl Tiles, frame: Frame, block: usize, pedestal: &mut [f32]) {
        let Some(stage) = Stage::new(self.recipes, frame, block) else { return };
        if self.recipes.gather.is_plain(block) {
            for_each_segment(self.recipes, tiles, frame.number, block, |segment, tile| {
                if let Some((_, bytes)) = tile {
                    let at = segment.in_block();
                    let raw = &words_of(bytes)[segment.tile_pixel as usize..][..at.len()];
                    jungfrau_track_only(self.recipes.isa, raw, &mut stage.tracker(at.start, &mut pedestal[at]));
                }
            });
        } else {
            self.gather(tiles, frame.number, block, &stage);
            let words = &self.words[..pedestal.len()];
            jungfrau_track_only(self.recipes.isa, words, &mut stage.tracker(0, pedestal));
        }
    }

    fn fill_gathered<Q: OutputPixel>(
        &mut self,
        tiles: &impl Tiles,
        frame: u64,
        block: usize,
        (stage, followed): (&Stage<'_>, Option<Followed<'_>>),
        out: &mut [Q],
    ) {
        self.gather(tiles, frame, block, stage);
        let (words, length) = (&self.words[..out.len()], out.len());
        if self.offsets.is_some() {
            let mut constants = stage.constants(0, length);
            constants.pedestal[0] = &self.pedestal[..length];
            convert::jungfrau(self.recipes.isa, words, &constants, out);
            stage.saturate(words, out);
        } else {
            stage.convert(words, 0, followed, out);
        }
        for_each_segment(self.recipes, tiles, frame, block, |segment, tile| {
            if tile.is_none() {
                out[segment.in_block()].fill(self.recipes.absent(segment));
            }
        });
    }

    /// Brings the words of a block into output order and, with common mode, their pedestals of this frame.
    fn gather(&mut self, tiles: &impl Tiles, frame: u64, block: usize, stage: &Stage<'_>) {
        let Self { recipes, words, pedestal, offsets } = self;
        for_each_segment(recipes, tiles, frame, block, |segment, tile| {
            let at = segment.in_block();
            take_words(segment, tile.map(|(_, bytes)| words_of(bytes)), &mut words[at.clone()]);
            let Some((record, bytes)) = tile else { return };
            let source = words_of(bytes);
            if let (Some(offsets), Some(tables), Some(number)) = (offsets.as_mut(), &recipes.common_mode, segment.tile) {
                let own = &stage.calibration.sets[stage.set].pedestal[0][stage.first + at.start..][..at.len()];
                for ((pedestal, own), pixel) in pedestal[at].iter_mut().zip(own).zip(segment.tile_pixels()) {
                    *pedestal = own + offsets.of(tables, stage.set, frame, (usize::from(number), record, source), pixel);
                }
            }
        });
    }
}

/// Brings the words of a block into output order. Those of gaps, and of packets that did not come, are no words.
pub(crate) fn gather_words(recipes: &Recipes, tiles: &impl Tiles, frame: u64, block: usize, words: &mut [u16]) {
    for_each_segment(recipes, tiles, frame, block, |segment, tile| {
        take_words(segment, tile.map(|(_, bytes)| words_of(bytes)), &mut words[segment.in_block()]);
    });
}

/// Takes the words of a segment from its tile.
fn take_words(segment: &Segment, tile: Option<&[u16]>, words: &mut [u16]) {
    let Some(source) = tile else { return words.fill(NO_WORD) };
    if segment.step == 1 {
        words.copy_from_slice(&source[segment.tile_pixel as usize..][..words.len()]);
    } else {
        words.iter_mut().zip(segment.tile_pixels()).for_each(|(word, pixel)| *word = source[pixel]);
    }
}

fn words_of(bytes: &[u8]) -> &[u16] {
    bytemuck::cast_slice(bytes)
}

/// Visits the segments of a block, each with its tile if all packets of the segment came.
fn for_each_segment(recipes: &Recipes, tiles: &impl Tiles, frame: u64, block: usize, mut visit: impl FnMut(&Segment, Tile<'_>)) {
    let mut last: Option<(u16, Tile<'_>)> = None;
    let leading_bytes = recipes.plan.geometry.format().leading_bytes as usize;
    for segment in recipes.gather.segments(block) {
        let Some(tile) = segment.tile else {
            visit(segment, None);
            continue;
        };
        let found = match last {
            Some((t, found)) if t == tile => found,
            // Segments count from the first pixel.
            _ => tiles.tile(frame, usize::from(tile)).map(|(record, bytes)| (record, &bytes[leading_bytes..])),
        };
        last = Some((tile, found));
        visit(segment, found.filter(|(record, _)| has_packets(&record.bitmap, segment)));
    }
}

/// True if every packet that holds pixels of the segment arrived.
#[inline]
fn has_packets(bitmap: &PacketBitmap, segment: &Segment) -> bool {
    bitmap.has(segment.packet_first) && bitmap.has(segment.packet_last)
}

/// Conversion of JUNGFRAU words of one block with one set of constants.
struct Stage<'a> {
    recipes: &'a Recipes,
    calibration: &'a CellConstants,
    set: usize,
    /// First pixel of the block in the image.
    first: usize,
}

impl<'a> Stage<'a> {
    /// For a block of a frame; `None` if there are no constants for it.
    fn new(recipes: &'a Recipes, frame: Frame, block: usize) -> Option<Self> {
        let PixelConstants::Jungfrau(calibration) = &recipes.constants else { return None };
        Some(Self { recipes, calibration, set: frame.set?, first: block * recipes.gather.block_pixels() })
    }

    fn constants(&self, at: usize, count: usize) -> Constants<'a> {
        self.calibration.sets[self.set].view().slice(self.first + at, count)
    }

    fn tracker<'t>(&self, at: usize, pedestal: &'t mut [f32]) -> Tracker<'t>
    where
        'a: 't,
    {
        let gate = &self.calibration.gate_adu[self.set][self.first + at..][..pedestal.len()];
        Tracker { pedestal, gate, weight: self.recipes.weight }
    }

    /// Converts words that lie at `at` in the block; `followed` holds their pedestals.
    fn convert<Q: OutputPixel>(&self, raw: &[u16], at: usize, followed: Option<Followed<'_>>, out: &mut [Q]) {
        let isa = self.recipes.isa;
        let mut constants = self.constants(at, raw.len());
        match (self.recipes.fixed.get(self.set), followed) {
            (Some(fixed), _) => jungfrau_fixed(raw, &fixed.view().slice(self.first + at, raw.len()), out),
            (None, Some(Followed { pedestal, moves: true })) => {
                jungfrau_tracking(isa, raw, &constants, &mut self.tracker(at, pedestal), out);
            }
            (None, Some(Followed { pedestal, moves: false })) => {
                constants.pedestal[0] = pedestal;
                convert::jungfrau(isa, raw, &constants, out);
            }
            (None, None) => convert::jungfrau(isa, raw, &constants, out),
        }
        self.saturate(raw, out);
    }

    /// The last step of every conversion.
    fn saturate<Q: OutputPixel>(&self, raw: &[u16], out: &mut [Q]) {
        if self.calibration.high_gain {
            convert::saturate_high_gain(raw, out);
        }
    }

    fn fill_plain<Q: OutputPixel>(
        &self,
        tiles: &impl Tiles,
        frame: u64,
        block: usize,
        mut followed: Option<Followed<'_>>,
        out: &mut [Q],
    ) {
        for_each_segment(self.recipes, tiles, frame, block, |segment, tile| {
            let at = segment.in_block();
            let part = &mut out[at.clone()];
            match tile {
                Some((_, bytes)) => {
                    let raw = &words_of(bytes)[segment.tile_pixel as usize..][..part.len()];
                    let followed = followed.as_mut().map(|f| Followed { pedestal: &mut f.pedestal[at.clone()], moves: f.moves });
                    self.convert(raw, at.start, followed, part);
                }
                None => part.fill(self.recipes.absent(segment)),
            }
        });
    }
}

impl Recipes {
    /// What stands where no word is: masked in gaps, missing where the packets did not come. Raw words have no other
    /// special value.
    fn absent<Q: OutputPixel>(&self, segment: &Segment) -> Q {
        if segment.tile.is_none() && self.plan.recipe != Recipe::Raw { Q::MASKED } else { Q::MISSING }
    }

    /// Fills a block with counts or with raw words.
    fn fill_unconverted<Q: OutputPixel>(&self, tiles: &impl Tiles, frame: u64, block: usize, out: &mut [Q]) {
        let first_pixel = block * self.gather.block_pixels();
        for_each_segment(self, tiles, frame, block, |segment, tile| {
            let at = segment.block_offset as usize;
            let part = &mut out[segment.in_block()];
            let Some((_, bytes)) = tile else { return part.fill(self.absent(segment)) };
            if segment.step == 1 {
                return self.unpack(bytes, segment.tile_pixel as usize, first_pixel + at, part);
            }
            for (k, pixel) in segment.tile_pixels().enumerate() {
                self.unpack(bytes, pixel, first_pixel + at + k, &mut part[k..=k]);
            }
        });
    }

    /// Unpacks pixels that lie side by side. `output` is the first of them in the output image.
    fn unpack<Q: OutputPixel>(&self, tile: &[u8], first: usize, output: usize, out: &mut [Q]) {
        match (self.plan.recipe, self.bits, &self.constants) {
            (Recipe::Counts, Some(bits), PixelConstants::Mask(mask)) => {
                convert::counts(bits, tile, first, Some(&mask[output..output + out.len()]), out);
            }
            (Recipe::Raw, None, _) => {
                let bytes = size_of_val(out);
                bytemuck::cast_slice_mut(out).copy_from_slice(&tile[first * 2..][..bytes]);
            }
            (Recipe::Raw, Some(bits), _) if size_of::<Q>() == 2 => {
                unpack::eiger::<u16>(bits, tile, first, bytemuck::cast_slice_mut(out));
            }
            (Recipe::Raw, Some(bits), _) => unpack::eiger::<u32>(bits, tile, first, bytemuck::cast_slice_mut(out)),
            _ => unreachable!("arm checked that recipe, detector and constants fit together"),
        }
    }
}
