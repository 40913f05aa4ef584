//! A calibration in module order, and its form in the order of the image.

use super::reasons::{DEAD, NO_GAIN, nxmx, usable_gain, usable_pedestal};
use konkordia_core::geometry::ImageGeometry;
use konkordia_kernels::constants::{CELLS, CellConstants, ConstantPlanes};
use konkordia_sinks::hdf5::calibration::GainStage;

/// Pedestals of one storage cell, or of all cells. Each plane has modules x 512 rows and 1024 columns, modules one
/// below the other (tile order).
pub struct CellPlanes {
    /// The storage cell (DAQ info bits 8 to 11); `None` = these planes are for all cells.
    pub cell: Option<u8>,
    /// Pedestals in ADU of G0 (HG0 with `high_gain`), G1 and G2, the stages of words with the gain bits 00, 01 and 11.
    /// NaN where there is none.
    pub pedestals: [Vec<f32>; 3],
    /// RMS in ADU of G0 (HG0); `None` if the source has none, NaN where it is not known.
    pub rms_g0: Option<Vec<f32>>,
    /// For each pixel, bit s is set if stage s is not usable. If the first stage is not, all three bits are set.
    pub unusable: Vec<u8>,
}

/// A calibration in module order, with every pixel judged.
pub struct Calibration {
    /// At least one entry. Several entries are in ascending order of their cells, and none of them is for all cells.
    pub cells: Vec<CellPlanes>,
    /// True if the first stage is HG0.
    pub high_gain: bool,
    /// Gains in ADU/keV of the three stages: G0 positive, G1 and G2 negative.
    pub gains: [Vec<f32>; 3],
    /// Bits of the NXmx pixel mask: a pixel is masked if its first stage is bad in any of the cells.
    pub mask: Vec<u32>,
    /// Why the first stage of a pixel is bad in any of the cells ([`REASONS`](super::reasons::REASONS)).
    pub reasons: Vec<u8>,
    /// "sha256:" and 64 hex digits, over pedestals, gains and masks. The RMS is included only for files of `konkordia
    /// pedestal`.
    pub hash: String,
    /// When the oldest pedestals of the first stage were taken, seconds since 1970; `None` if the source does not say.
    pub taken_s: Option<u64>,
    /// Summary for people.
    pub report: String,
    /// Module ids by module; empty if the source has none.
    pub module_ids: Vec<Option<u16>>,
}

/// Planes as read from a source, before they are judged.
pub(super) struct Source {
    pub(super) cell: Option<u8>,
    pub(super) pedestals: [Vec<f32>; 3],
    pub(super) rms_g0: Option<Vec<f32>>,
    /// Reason bits of each stage.
    pub(super) reasons: [Option<Vec<u32>>; 3],
}

impl Calibration {
    /// Output units per ADU of the three stages, for the entry `cells[cell]`. `step_kev` is the energy of one output
    /// unit (photons: the photon energy). NaN where a stage is not usable.
    ///
    /// # Panics
    /// When there is no such entry.
    pub fn factors(&self, cell: usize, step_kev: f32) -> [Vec<f32>; 3] {
        let unusable = &self.cells[cell].unusable;
        [0, 1, 2].map(|stage| {
            let of = |(gain, bad): (&f32, &u8)| if bad >> stage & 1 == 0 { 1.0 / (gain * step_kev) } else { f32::NAN };
            self.gains[stage].iter().zip(unusable).map(of).collect()
        })
    }

    /// Combines planes and gains, and judges every pixel.
    pub(super) fn new(sources: Vec<Source>, gains: [Vec<f32>; 3], high_gain: bool, hash: String) -> Self {
        let stages = [if high_gain { GainStage::Hg0 } else { GainStage::G0 }, GainStage::G1, GainStage::G2];
        let (mut mask, mut of_first) = (vec![0; gains[0].len()], vec![0u8; gains[0].len()]);
        let judge = |source: Source| {
            let mut unusable = vec![0u8; mask.len()];
            for (stage, gain_stage) in stages.into_iter().enumerate() {
                for (pixel, bad) in unusable.iter_mut().enumerate() {
                    // Gains are judged anew: when the file was made, it may have had other gains or none.
                    let mut reasons = source.reasons[stage].as_ref().map_or(0, |r| r[pixel]) & !NO_GAIN;
                    if reasons == 0 && !usable_pedestal(source.pedestals[stage][pixel]) {
                        reasons = DEAD;
                    }
                    if !usable_gain(gain_stage, gains[stage][pixel]) {
                        reasons |= NO_GAIN;
                    }
                    if reasons != 0 {
                        *bad |= if stage == 0 { 7 } else { 1 << stage };
                    }
                    if stage == 0 {
                        mask[pixel] |= nxmx(reasons);
                        // All reasons have one of the lowest bits.
                        of_first[pixel] |= reasons as u8;
                    }
                }
            }
            CellPlanes { cell: source.cell, pedestals: source.pedestals, rms_g0: source.rms_g0, unusable }
        };
        let cells = sources.into_iter().map(judge).collect();
        let (taken_s, report, module_ids) = (None, String::new(), Vec::new());
        Self { cells, high_gain, gains, mask, reasons: of_first, hash, taken_s, report, module_ids }
    }

    /// Number of pixels that are not masked but not usable in a stage.
    pub(super) fn unusable_in(&self, stage: u8) -> usize {
        let bad = |p: usize| self.mask[p] == 0 && self.cells.iter().any(|c| c.unusable[p] >> stage & 1 == 1);
        (0..self.mask.len()).filter(|p| bad(*p)).count()
    }

    /// The form for the engine: image order, one set of constants per entry of `cells`.
    pub(super) fn arrange(&self, geometry: &ImageGeometry, step_kev: f32) -> CellConstants {
        let sets = (0..self.cells.len()).map(|n| ConstantPlanes {
            pedestal: [0, 1, 2].map(|stage| arrange(geometry, &self.cells[n].pedestals[stage], f32::NAN)),
            factor: self.factors(n, step_kev).map(|plane| arrange(geometry, &plane, f32::NAN)),
        });
        let set_of = |cell: usize| self.cells.iter().position(|c| c.cell.is_none_or(|c| usize::from(c) == cell));
        CellConstants {
            sets: sets.collect(),
            set_of_cell: Box::new(std::array::from_fn::<_, CELLS, _>(set_of)),
            gate_adu: Vec::new(),
            high_gain: self.high_gain,
        }
    }
}

/// Arranges planes in module order as the image. Whatever the number of interfaces, tile t is the t-th of equal parts
/// of all planes. With partial readout, only the rows that are read are used.
pub(super) fn arrange<T: Copy>(geometry: &ImageGeometry, planes: &[T], gap: T) -> Vec<T> {
    let format = geometry.format();
    let whole = planes.chunks_exact(format.whole().pixels() as usize);
    let tiles: Vec<&[T]> = whole.enumerate().map(|(tile, plane)| &plane[format.pixels_read(tile)]).collect();
    geometry.arrange(&tiles, gap)
}
