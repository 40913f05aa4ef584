//! What is done to pixels besides conversion: pedestals that follow the drift, common mode, counts below zero,
//! arithmetic.

use crate::pixel::PixelType;
use crate::selection::Selection;

/// What is done with counts below zero (Leonarski et al. 2020: programs differ in what they accept).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Negative {
    /// They stay; in unsigned types they become 0.
    #[default]
    Keep,
    /// They become 0.
    Clamp,
    /// This number is added to every count. A count that is then still below zero stays (signed types) or becomes 0
    /// (unsigned types).
    Offset(i32),
}

/// Which frames move the tracked pedestals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackedFrames {
    /// Every frame, dark or not.
    All,
    /// Dark frames only ([`crate::selection::FrameUse::Dark`]).
    Darks,
}

/// Pedestals of G0 that follow the drift. A word in G0 that lies within the gate of its pixel, a number of ADU around
/// the pedestal, moves the pedestal by 1 / `window_frames` of its distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tracking {
    /// Window of the running mean, in frames; at least 1.
    pub window_frames: u32,
    /// Which frames count.
    pub frames: TrackedFrames,
    /// The pedestals are written after every `snapshot_images` images; 0 = never.
    pub snapshot_images: u64,
}

/// Offset common to the pixels of one row or column of a chip (256 pixels) in one frame, subtracted before conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommonMode {
    /// Not corrected.
    #[default]
    None,
    /// One offset for each row of a chip.
    Row,
    /// One offset for each column of a chip.
    Column,
}

/// How words become photons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Single precision.
    #[default]
    Float,
    /// Integers as in FPGA logic (docs/formats/fixed-point.md).
    Fixed,
}

/// Everything that a run does to frames and pixels besides its recipe. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Processing {
    /// Which frames become images.
    pub selection: Selection,
    /// Pedestals that follow the drift.
    pub tracking: Option<Tracking>,
    /// Common mode.
    pub common_mode: CommonMode,
    /// Counts below zero.
    pub negative: Negative,
    /// How words become photons.
    pub arithmetic: Arithmetic,
}

impl Processing {
    /// True if images of these pixels are added up in planes of their own before they are packed.
    pub fn has_sums(&self, pixel: PixelType) -> bool {
        let is_unsigned = matches!(pixel, PixelType::Uint16 | PixelType::Uint32);
        self.selection.sum_frames > 1 || is_unsigned && matches!(self.negative, Negative::Offset(_))
    }

    /// Checks that the options can be combined.
    ///
    /// # Errors
    /// Names the two options that contradict each other.
    pub fn check(&self) -> Result<(), &'static str> {
        let tracked = self.tracking.is_some();
        if tracked && self.common_mode != CommonMode::None {
            return Err("tracked pedestals and common mode cannot be combined: both correct the same drift");
        }
        if self.arithmetic == Arithmetic::Fixed && (tracked || self.common_mode != CommonMode::None) {
            return Err("fixed-point arithmetic cannot be combined with tracked pedestals or common mode");
        }
        Ok(())
    }
}
