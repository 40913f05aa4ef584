//! Whether processing and constants fit together, of runs and of frames without a run.

use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Arithmetic, CommonMode, Negative, Plan, Recipe};
use konkordia_core::selection::{Keep, Marked, SUM_FRAMES_MAX};
use konkordia_core::tile::DetectorKind;
use konkordia_kernels::constants::PixelConstants;

/// The constants are those of the plan.
pub(crate) fn check_constants(plan: &Plan, constants: &PixelConstants) -> Result<(), String> {
    let pixels = plan.geometry.pixels();
    let expect = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_string()) };
    let kind = plan.geometry.format().kind;
    match (plan.recipe, constants) {
        (Recipe::JungfrauPhotons, PixelConstants::Jungfrau(calibration)) => {
            expect(kind == DetectorKind::Jungfrau, "photons are for JUNGFRAU")?;
            expect(!calibration.sets.is_empty(), "at least one set of constants")?;
            expect(
                calibration.set_of_cell.iter().flatten().all(|set| *set < calibration.sets.len()),
                "a storage cell refers to a missing set of constants",
            )?;
            let planes = calibration.sets.iter().flat_map(|set| set.pedestal.iter().chain(&set.factor));
            expect(planes.chain(&calibration.gate_adu).all(|p| p.len() == pixels), "one constant per output pixel")?;
            let gated = plan.processing.tracking.is_some() || plan.processing.common_mode != CommonMode::None;
            let gates = calibration.gate_adu.len() == calibration.sets.len();
            expect(!gated || gates, "tracking and common mode need the noise of the pixels")?;
            let fixed = plan.processing.arithmetic == Arithmetic::Fixed;
            expect(!fixed || plan.pixel != PixelType::Float32, "fixed-point arithmetic gives integers")
        }
        (Recipe::Counts, PixelConstants::Mask(mask)) => {
            expect(kind.counts_photons(), "counts are for detectors that count photons")?;
            expect(mask.len() == pixels, "one mask byte per output pixel")
        }
        (Recipe::Raw, PixelConstants::None) => {
            let wide = plan.geometry.format().bits == 32;
            expect(
                plan.pixel == if wide { PixelType::Uint32 } else { PixelType::Uint16 },
                "raw words are uint16, or uint32 for 32 bit",
            )
        }
        _ => Err("the constants are not those of the recipe".into()),
    }
}

/// The steps of the processing fit together.
pub(crate) fn check_processing(plan: &Plan) -> Result<(), &'static str> {
    let expect = |ok: bool, what: &'static str| if ok { Ok(()) } else { Err(what) };
    let (processing, selection) = (&plan.processing, &plan.processing.selection);
    processing.check()?;
    expect((1..=SUM_FRAMES_MAX).contains(&selection.sum_frames), "1 to 1000 frames make an image")?;
    expect(!matches!(selection.darks, Marked::Every(0 | 1)), "at most every second frame is dark")?;
    expect(!matches!(selection.keep, Keep::EveryNth(0)), "the interval of kept frames must be at least 1")?;
    expect(processing.tracking.is_none_or(|t| t.window_frames > 0), "the tracking window must be at least one frame")?;
    let is_unchanged = selection.sum_frames == 1 && processing.negative == Negative::Keep;
    expect(plan.recipe != Recipe::Raw || is_unchanged, "raw words are neither added nor shifted")?;
    let has_pedestals = processing.tracking.is_some() || processing.common_mode != CommonMode::None;
    expect(plan.recipe == Recipe::JungfrauPhotons || !has_pedestals, "tracking and common mode are for photons")
}
