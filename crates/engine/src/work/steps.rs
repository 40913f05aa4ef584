//! Decides what becomes of the frames of a batch, alike for every kind of worker.

use super::batch::BATCH_FRAMES;
use super::fill::Frame;
use super::recipes::Recipes;
use konkordia_core::image::TileRecord;
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::plan::Plan;
use konkordia_core::selection::{FrameSeen, FrameUse, ImageFrames, Selector};
use konkordia_kernels::constants::{CELLS, PixelConstants};
use konkordia_memory::ring;
use konkordia_wire::formats::PacketFormat;

/// What becomes of one frame of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub frame: Frame,
    pub becomes: FrameUse,
    /// For the last frame of an image: the image is to be packed.
    pub packs: bool,
    /// All packets of the frame came.
    pub is_complete: bool,
}

/// The frames of a worker, in their order.
pub(crate) struct Schedule<'a> {
    recipes: &'a Recipes,
    selector: Selector,
    image: ImageFrames,
    /// Images that are decided.
    pub images_end: u64,
    /// The next batch.
    pub steps: Vec<Step>,
}

impl<'a> Schedule<'a> {
    pub fn new(recipes: &'a Recipes) -> Self {
        Self {
            recipes,
            selector: Selector::new(recipes.plan.processing.selection),
            image: ImageFrames::default(),
            images_end: 0,
            steps: Vec::with_capacity(BATCH_FRAMES as usize),
        }
    }

    /// Decides what becomes of the next frames, up to the first whose image finds no room.
    pub fn select(&mut self, worker: &mut ring::Worker, ready: u64) {
        self.steps.clear();
        let plan = &self.recipes.plan;
        let (first, expected) = (worker.next(), plan.packets_per_image() as u32);
        for number in first..first + ready {
            let records = (0..plan.streams()).filter_map(|tile| worker.tile(number, tile)).map(|(record, _)| record);
            let FrameSeen { placed, flags } = seen(plan, records);
            let mut selector = self.selector;
            let becomes = selector.next(flags);
            let mut packs = false;
            if let FrameUse::Keep { image, first, last } = becomes {
                if last && !worker.has_room(image) {
                    return;
                }
                self.image.add(first, ImageStatus::of(placed, expected, MissingPolicy::Keep));
                packs = last && self.image.status(plan.missing).has_pixels();
                self.images_end = if last { image + 1 } else { self.images_end };
            }
            self.selector = selector;
            let set = flags.and_then(|word| set_of(self.recipes, word));
            let frame = Frame { number, set, is_present: placed > 0 };
            self.steps.push(Step { frame, becomes, packs, is_complete: placed == expected });
        }
    }
}

/// What the records of a frame's tiles say of it.
pub(crate) fn seen<'a>(plan: &Plan, records: impl Iterator<Item = &'a TileRecord>) -> FrameSeen {
    FrameSeen::of(records, PacketFormat::of(plan.geometry.format()).description().flags)
}

/// The set of constants of a frame, by its storage cell (docs/protocols.md 1.4: bits 8 to 11 of DAQ info, the word of
/// flags of a JUNGFRAU).
pub(crate) fn set_of(recipes: &Recipes, daq_info: u32) -> Option<usize> {
    match &recipes.constants {
        PixelConstants::Jungfrau(calibration) => calibration.set_of_cell[(daq_info >> 8) as usize % CELLS],
        _ => None,
    }
}
