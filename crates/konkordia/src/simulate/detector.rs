//! The simulated detector: the packetiser of any detector, and the synthetic JUNGFRAU.

use konkordia_core::failure::{Exit, Failure};
use konkordia_sim::jungfrau::{JungfrauModel, SyntheticJungfrau};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};

/// The detector that was asked for cannot be simulated.
pub fn wrong(why: &str) -> Failure {
    Failure::new(Exit::Usage, "this detector cannot be simulated", why, "`konkordia help simulate` lists the options")
}

/// The packetiser of a detector.
pub fn packetiser(
    kind: DetectorKind,
    modules: u32,
    modules_down: usize,
    first_frame: u64,
    rate_hz: f64,
) -> Result<Packetiser, Failure> {
    let mut model = PacketModel::new(kind, modules as usize);
    model.modules_down = modules_down;
    model.first_frame_number = first_frame;
    if rate_hz > 0.0 {
        model.period_ns = (1e9 / rate_hz) as u64;
        model.exposure_ns = model.exposure_ns.min(model.period_ns);
    }
    Packetiser::new(&model).map_err(|e| wrong(&e.to_string()))
}

/// The synthetic JUNGFRAU of this many modules; always the same one, so that its calibration fits.
pub fn jungfrau(modules: u32) -> Result<SyntheticJungfrau, Failure> {
    SyntheticJungfrau::new(&JungfrauModel::for_modules(modules as usize)).map_err(|e| wrong(&e.to_string()))
}
