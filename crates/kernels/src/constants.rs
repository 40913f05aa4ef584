//! The constants of all pixels of an image, as conversion takes them.

use crate::convert::Constants;

/// JUNGFRAU constants in output order, one value per output pixel and gain stage; NaN = not usable.
#[derive(Clone, Debug)]
pub struct ConstantPlanes {
    /// Pedestals of G0, G1, G2 in ADU.
    pub pedestal: [Vec<f32>; 3],
    /// Photons per ADU in G0, G1, G2.
    pub factor: [Vec<f32>; 3],
}

impl ConstantPlanes {
    /// The planes as the kernels take them.
    pub fn view(&self) -> Constants<'_> {
        Constants {
            pedestal: [&self.pedestal[0], &self.pedestal[1], &self.pedestal[2]],
            factor: [&self.factor[0], &self.factor[1], &self.factor[2]],
        }
    }
}

/// Storage cells of a JUNGFRAU.
pub const CELLS: usize = 16;

/// JUNGFRAU constants of all storage cells.
#[derive(Clone, Debug)]
pub struct CellConstants {
    /// Sets of constants, at least one.
    pub sets: Vec<ConstantPlanes>,
    /// The set of each storage cell; `None` = there is none, and all pixels of its frames are masked.
    pub set_of_cell: Box<[Option<usize>; CELLS]>,
    /// Distance from its pedestal within which a G0 word of a pixel counts as dark, in ADU and output order, for each
    /// set. Needed by tracking and common mode, else empty. NaN = never.
    pub gate_adu: Vec<Vec<f32>>,
    /// True if G0 is the high gain (HG0): a word at the end of the ADC is saturated.
    pub high_gain: bool,
}

impl From<ConstantPlanes> for CellConstants {
    /// The same constants for all storage cells, without gates, and not of the high gain.
    fn from(planes: ConstantPlanes) -> Self {
        Self { sets: vec![planes], set_of_cell: Box::new([Some(0); CELLS]), gate_adu: Vec::new(), high_gain: false }
    }
}

/// What conversion needs beside the plan.
#[derive(Clone, Debug)]
pub enum PixelConstants {
    /// For [`konkordia_core::plan::Recipe::JungfrauPhotons`].
    Jungfrau(CellConstants),
    /// For [`konkordia_core::plan::Recipe::Counts`]: one byte per output pixel, not 0 = masked.
    Mask(Vec<u8>),
    /// For [`konkordia_core::plan::Recipe::Raw`].
    None,
}
