//! The description of how pixels were computed, stored in `/entry/konkordia/conversion`: names and values as text,
//! units in the names or values.
//!
//! NXmx has no fields for it (docs/formats.md, "Extension group").

use konkordia_config::Config;
use konkordia_config::plan::unit;
use konkordia_core::geometry::DoublePixels;
use konkordia_core::plan::{Arithmetic, CommonMode, Negative, Plan, Recipe, TrackedFrames};
use konkordia_core::selection::{Flag, Keep, Marked};
use konkordia_sinks::hdf5::Scale;

/// Step and offset of the stored numbers; `None` if they are whole units without an offset.
pub fn scale(config: &Config, plan: &Plan) -> Option<Scale> {
    (plan.recipe == Recipe::JungfrauPhotons).then_some(())?;
    let offset = if let Negative::Offset(offset) = plan.processing.negative { offset } else { 0 };
    Some(Scale { step: config.options.step.size(), offset: f64::from(offset) }).filter(|scale| !scale.is_trivial())
}

/// The lowest number that can occur in the file, if it is not the lowest of the type.
pub fn underload(plan: &Plan) -> Option<f64> {
    (plan.recipe == Recipe::JungfrauPhotons && plan.processing.negative == Negative::Clamp).then_some(0.0)
}

/// The processing settings of the run, as fixed at arm. A step that was not applied is listed too, as "none" or the
/// like. Settings of the conversion to photons appear only where it is done.
pub fn conversion(config: &Config, plan: &Plan) -> Vec<(String, String)> {
    let mut list = Vec::new();
    let mut put = |name: &str, value: String| list.push((name.to_string(), value));
    put("detector", plan.geometry.format().kind.name().into());
    put("formula", formula(plan).into());
    put("unit", unit(config).into());
    let (processing, selection) = (&plan.processing, &plan.processing.selection);
    if plan.recipe == Recipe::JungfrauPhotons {
        let float = plan.pixel == konkordia_core::pixel::PixelType::Float32;
        let half = if processing.arithmetic == Arithmetic::Fixed { "half up" } else { "half to even" };
        put(
            "rounding",
            if float {
                "none".into()
            } else {
                format!("{half}, to multiples of {} {}", config.options.step.size(), unit(config))
            },
        );
        put("energy_kev", config.metadata.energy_kev.map_or("not given".into(), |kev| kev.to_string()));
        put("arithmetic", if processing.arithmetic == Arithmetic::Fixed { "fixed point" } else { "single precision" }.into());
        put("common_mode", common_mode(processing.common_mode).into());
        match processing.tracking {
            None => put("pedestal_tracking", "none".into()),
            Some(t) => {
                let frames = if t.frames == TrackedFrames::All { "all frames" } else { "dark frames" };
                put("pedestal_tracking", format!("{frames}, words in G0 within the gate"));
                put("pedestal_tracking_window_frames", t.window_frames.to_string());
                put("pedestal_tracking_gate_rms", config.options.gate_rms.to_string());
                put("pedestal_snapshot_images", t.snapshot_images.to_string());
            }
        }
    }
    put("double_pixels", double_pixels(plan).into());
    if plan.geometry.format().is_partial() {
        put("rows_read", format!("{} of each module, around its middle", plan.geometry.format().module_rows()));
    }
    put("summation_frames", selection.sum_frames.to_string());
    put("warmup_frames", selection.warmup_frames.to_string());
    put("dark_frames", marked(selection.darks));
    put("kept_frames", kept(selection.keep));
    put(
        "negative",
        match processing.negative {
            Negative::Keep if matches!(plan.pixel.name(), "uint16" | "uint32") => "set to 0 by the type".into(),
            Negative::Keep => "kept".into(),
            Negative::Clamp => "set to 0".into(),
            Negative::Offset(offset) => format!("{offset} added to every pixel"),
        },
    );
    list
}

fn formula(plan: &Plan) -> &'static str {
    match plan.recipe {
        Recipe::JungfrauPhotons => "(ADC - pedestal) / gain, in the unit below",
        Recipe::Counts => "counts as read",
        Recipe::Raw => "words as read",
    }
}

fn common_mode(mode: CommonMode) -> &'static str {
    match mode {
        CommonMode::None => "none",
        CommonMode::Row => "mean of the dark words of each row of a chip",
        CommonMode::Column => "mean of the dark words of each column of a chip",
    }
}

fn double_pixels(plan: &Plan) -> &'static str {
    match plan.geometry.double_pixels() {
        DoublePixels::Keep => "kept: one image pixel holds the whole count",
        DoublePixels::Split => "split: 2 or 4 image pixels share the count",
        DoublePixels::Mask => "masked",
        DoublePixels::Gap => "kept, each beside a gap of two pixels between the chips",
    }
}

fn flag(flag: Flag) -> String {
    format!("bits 0x{:08X} of the DAQ info {}", flag.mask, if flag.set { "set" } else { "not set" })
}

fn marked(marked: Marked) -> String {
    match marked {
        Marked::None => "none".into(),
        Marked::Every(n) => format!("the last of every {n}"),
        Marked::Flag(f) => flag(f),
    }
}

fn kept(keep: Keep) -> String {
    match keep {
        Keep::All => "all".into(),
        Keep::EveryNth(n) => format!("the first of every {n}"),
        Keep::Flag(f) => flag(f),
    }
}
