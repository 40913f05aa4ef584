//! How two calibrations of a detector differ.

use crate::reasons::{REASONS, median};
use konkordia_core::percentile::percentiles;
use konkordia_sinks::hdf5::calibration::{GainStage, StagePedestal};
use serde_json::{Value, json};

/// How one module differs in one cell and stage, over the pixels that are good in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Module, from 0.
    pub module: usize,
    /// Storage cell.
    pub cell: u8,
    /// Gain stage.
    pub stage: GainStage,
    /// Median shift of the pedestals, after minus before, in ADU.
    pub shift_adu: f32,
    /// Spread of the shifts in ADU: half of the distance from the 16th to the 84th percentile.
    pub spread_adu: f32,
    /// Median RMS before and after, in ADU.
    pub rms_adu: [f32; 2],
    /// Pixels that are masked only after, and only before.
    pub masked: [u64; 2],
    /// Reasons of those that are masked only after.
    pub reasons: Vec<(&'static str, u64)>,
}

/// How the planes of one module differ.
pub fn change((cell, stage): (u8, GainStage), module: usize, before: &StagePedestal, after: &StagePedestal) -> Change {
    let pixels = 0..before.mask.len();
    let good: Vec<usize> = pixels.clone().filter(|p| before.mask[*p] == 0 && after.mask[*p] == 0).collect();
    let shifts: Vec<f32> = good.iter().map(|p| after.mean_adu[*p] - before.mean_adu[*p]).collect();
    let (low, high) = percentiles(&shifts, 0.16, 0.84).unwrap_or_default();
    let rms = |planes: &StagePedestal| median(good.iter().map(|p| planes.rms_adu[*p]), 1).unwrap_or(f32::NAN);
    let newly: Vec<u32> = pixels.clone().filter(|p| before.mask[*p] == 0).map(|p| after.mask[p]).collect();
    let count = |bit: u32| newly.iter().filter(|m| **m & bit != 0).count() as u64;
    Change {
        module,
        cell,
        stage,
        shift_adu: median(shifts.iter().copied(), 1).unwrap_or(f32::NAN),
        spread_adu: (high - low) / 2.0,
        rms_adu: [rms(before), rms(after)],
        masked: [
            newly.iter().filter(|m| **m != 0).count() as u64,
            pixels.filter(|p| before.mask[*p] != 0 && after.mask[*p] == 0).count() as u64,
        ],
        reasons: REASONS.iter().map(|(bit, name, _)| (*name, count(*bit))).filter(|(_, n)| *n > 0).collect(),
    }
}

impl Change {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let reasons: serde_json::Map<String, Value> =
            self.reasons.iter().map(|(name, n)| ((*name).to_string(), json!(n))).collect();
        json!({
            "module": self.module, "cell": self.cell, "stage": self.stage.name(), "median_shift_adu": self.shift_adu,
            "spread_adu": self.spread_adu, "median_rms_before_adu": self.rms_adu[0], "median_rms_after_adu": self.rms_adu[1],
            "newly_masked": self.masked[0], "no_longer_masked": self.masked[1], "newly_masked_reasons": reasons,
        })
    }
}
