//! What all workers of a run share: the plan, the constants, and what is made of them once.

use super::common_mode::Tables;
use konkordia_core::geometry::Gather;
use konkordia_core::plan::{Arithmetic, Plan};
use konkordia_kernels::constants::PixelConstants;
use konkordia_kernels::convert::fixed::FixedConstants;
use konkordia_kernels::isa::Isa;
use konkordia_kernels::unpack::Bits;
use std::ops::Range;
use std::sync::Arc;

/// What all workers share, computed at arm.
pub(crate) struct Recipes {
    pub plan: Arc<Plan>,
    pub gather: Gather,
    /// Blocks of each strip.
    strips: Vec<Range<usize>>,
    pub constants: PixelConstants,
    pub isa: Isa,
    pub bits: Option<Bits>,
    /// For each set of constants; empty unless the arithmetic is fixed-point.
    pub fixed: Vec<FixedConstants>,
    pub common_mode: Option<Tables>,
    /// Fraction of its distance from the pedestal by which a word moves the pedestal.
    pub weight: f32,
}

impl Recipes {
    pub fn new(plan: Arc<Plan>, gather: Gather, constants: PixelConstants, isa: Isa, bits: Option<Bits>) -> Self {
        let (mut fixed, mut common_mode) = (Vec::new(), None);
        if let PixelConstants::Jungfrau(calibration) = &constants {
            if plan.processing.arithmetic == Arithmetic::Fixed {
                fixed = calibration.sets.iter().map(|set| FixedConstants::quantise(&set.view())).collect();
            }
            common_mode = Tables::new(plan.processing.common_mode, &plan.geometry, calibration);
        }
        let weight = plan.processing.tracking.map_or(1.0, |t| 1.0 / t.window_frames as f32);
        let strips = plan.strips().collect();
        Self { plan, gather, strips, constants, isa, bits, fixed, common_mode, weight }
    }

    /// Blocks of a strip.
    pub fn blocks_of(&self, strip: usize) -> Range<usize> {
        self.strips[strip].clone()
    }

    /// Pixels of a strip in the image.
    pub fn pixels_of(&self, strip: usize) -> Range<usize> {
        self.gather.pixels_of(self.blocks_of(strip))
    }
}
