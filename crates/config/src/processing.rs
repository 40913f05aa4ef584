//! The keys that say which frames become images and what happens to their pixels: `[processing]`, `[frames]`,
//! `[tracking]`.

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Arithmetic, CommonMode, Negative, Processing, Recipe, TrackedFrames, Tracking};
use konkordia_core::selection::{Flag, Keep, Marked, Selection};

/// What one unit of the pixels in the file stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A number of photons.
    Photons(f64),
    /// An energy in keV.
    Kev(f64),
}

impl Step {
    /// The number of photons, or of keV.
    pub fn size(self) -> f64 {
        match self {
            Self::Photons(size) | Self::Kev(size) => size,
        }
    }

    /// One unit of the file in keV; `energy_kev` is the photon energy.
    pub fn kev(self, energy_kev: f64) -> f64 {
        match self {
            Self::Photons(size) => size * energy_kev,
            Self::Kev(size) => size,
        }
    }

    /// Name of the unit: photon or keV.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Photons(_) => "photon",
            Self::Kev(_) => "keV",
        }
    }
}

/// The values of these keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelOptions {
    /// For the engine. The offset of `negative` is 0 while `negative_offset_auto` is true, because it then follows from
    /// the calibration. `images_max` is not set yet.
    pub processing: Processing,
    /// Unit of the pixels in the file.
    pub step: Step,
    /// Distance from the pedestal within which a word counts as dark, in multiples of the noise of its pixel.
    pub gate_rms: f64,
    /// The offset against negative counts is computed from the noise.
    pub negative_offset_auto: bool,
}

/// Allowed roundings in photons (Leonarski et al. 2020, Table II).
const ROUNDINGS: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// Reads the keys. `recipe` and `pixel` are those of the run. `keep_rate_hz` also needs `[detector] frame_time_us`.
pub fn read(document: &Document, d: &mut Diagnostics, recipe: Recipe, pixel: PixelType) -> PixelOptions {
    let t = document.table("processing");
    let (negative, negative_offset_auto) = negative(t, d);
    let processing = Processing {
        selection: selection(document, d),
        tracking: tracking(document.table("tracking"), d),
        common_mode: match t.text("common_mode") {
            Some("row") => CommonMode::Row,
            Some("column") => CommonMode::Column,
            _ => CommonMode::None,
        },
        negative,
        arithmetic: if t.text("arithmetic") == Some("fixed") { Arithmetic::Fixed } else { Arithmetic::Float },
    };
    let options = PixelOptions {
        processing,
        step: step(t, d, pixel),
        gate_rms: document.table("tracking").number("gate_rms").unwrap_or(4.0),
        negative_offset_auto,
    };
    check(document, d, recipe, pixel, &options);
    options
}

fn step(t: &Table, d: &mut Diagnostics, pixel: PixelType) -> Step {
    let is_kev = t.text("unit") == Some("kev");
    let (own, other) = if is_kev { ("rounding_kev", "rounding_photons") } else { ("rounding_photons", "rounding_kev") };
    if t.has(other) {
        let what = format!("processing.{other} with unit = \"{}\"", if is_kev { "kev" } else { "photons" });
        d.add(t.span(other), what, "each unit has a rounding of its own", format!("write {own} = ..., or the other unit"));
    }
    let asked = t.number(own);
    if pixel == PixelType::Float32 && asked.is_some() {
        let fix = "remove the line, or choose an integer dtype";
        d.add(t.span(own), format!("processing.{own} with dtype = \"float32\""), "floating point pixels are not rounded", fix);
    }
    if is_kev {
        // The default is 1 keV for floating point pixels, and 0.1 keV for integers, because 1 keV is too coarse for
        // soft X-rays.
        return Step::Kev(asked.unwrap_or(if pixel == PixelType::Float32 { 1.0 } else { 0.1 }));
    }
    let size = asked.unwrap_or(1.0);
    if !ROUNDINGS.contains(&size) {
        let what = format!("processing.rounding_photons: {size} is not an allowed rounding");
        d.add(t.span(own), what, "roundings are powers of two, so that sums stay exact", "give 0.125, 0.25, 0.5, 1, 2, 4 or 8");
    }
    Step::Photons(size)
}

fn negative(t: &Table, d: &mut Diagnostics) -> (Negative, bool) {
    let offset = t.text("negative") == Some("offset");
    if !offset && t.has("negative_offset") {
        let fix = "add negative = \"offset\", or remove the line";
        d.add(t.span("negative_offset"), "processing.negative_offset without negative = \"offset\"", "", fix);
    }
    match t.text("negative") {
        Some("clamp") => (Negative::Clamp, false),
        Some("offset") => match t.integer("negative_offset") {
            Some(n) => (Negative::Offset(n as i32), false),
            None => (Negative::Offset(0), true),
        },
        _ => (Negative::Keep, false),
    }
}

fn flag(t: &Table, bit: &str, set: &str) -> Option<Flag> {
    t.integer(bit).map(|bit| Flag { mask: 1 << bit, set: t.flag(set).unwrap_or(true) })
}

fn selection(document: &Document, d: &mut Diagnostics) -> Selection {
    let t = document.table("frames");
    let mut only_one = |a: &str, b: &str| {
        if t.has(a) && t.has(b) {
            d.add(t.span(b), format!("both frames.{a} and frames.{b} are given"), "only one can be used", "remove one of them");
        }
    };
    only_one("dark_every", "dark_flag_bit");
    only_one("keep_every", "keep_flag_bit");
    only_one("keep_every", "keep_rate_hz");
    only_one("keep_rate_hz", "keep_flag_bit");
    let darks = match (t.integer("dark_every"), flag(t, "dark_flag_bit", "dark_flag_set")) {
        (Some(n), _) => Marked::Every(n as u64),
        (None, Some(flag)) => Marked::Flag(flag),
        _ => Marked::None,
    };
    let keep = match (t.integer("keep_every"), t.number("keep_rate_hz"), flag(t, "keep_flag_bit", "keep_flag_set")) {
        (Some(n), ..) => Keep::EveryNth(n as u64),
        (None, Some(rate_hz), _) => Keep::EveryNth(every_for(document, d, rate_hz)),
        (None, None, Some(flag)) => Keep::Flag(flag),
        _ => Keep::All,
    };
    Selection {
        warmup_frames: t.integer("warmup_frames").unwrap_or(0) as u64,
        warmup_is_dark: t.text("warmup") != Some("skip"),
        darks,
        keep,
        sum_frames: document.table("processing").integer("summation").unwrap_or(1) as u32,
        images_max: None,
    }
}

/// The n of "keep one of n frames" with which at most `rate_hz` frames per second are kept.
fn every_for(document: &Document, d: &mut Diagnostics, rate_hz: f64) -> u64 {
    let Some(frame_time_us) = document.table("detector").number("frame_time_us") else {
        let span = document.table("frames").span("keep_rate_hz");
        let fix = "add frame_time_us to [detector], or write keep_every = ...";
        d.add(span, "frames.keep_rate_hz without detector.frame_time_us", "the rate of the detector is not known", fix);
        return 1;
    };
    ((1e6 / frame_time_us / rate_hz).ceil() as u64).max(1)
}

fn tracking(t: &Table, d: &mut Diagnostics) -> Option<Tracking> {
    let frames = match t.text("frames") {
        Some("all") => TrackedFrames::All,
        Some("darks") => TrackedFrames::Darks,
        _ => {
            let others = ["window_frames", "gate_rms", "snapshot_images"];
            // `gate_rms` is allowed without tracking, because common mode uses it too.
            if let Some(key) = others.into_iter().filter(|k| *k != "gate_rms").find(|k| t.has(k)) {
                let fix = "add frames = \"all\" or frames = \"darks\" to [tracking]";
                d.add(t.span(key), format!("tracking.{key}, but nothing is tracked"), "", fix);
            }
            return None;
        }
    };
    let window_frames = t.integer("window_frames").unwrap_or(128) as u32;
    let snapshot_images = t.integer("snapshot_images").unwrap_or(1000) as u64;
    Some(Tracking { window_frames, frames, snapshot_images })
}

/// Checks that need more than one key.
fn check(document: &Document, d: &mut Diagnostics, recipe: Recipe, pixel: PixelType, options: &PixelOptions) {
    let (t, processing) = (document.table("processing"), &options.processing);
    let mut refuse = |table: &str, key: &str, why: &str, fix: &str| {
        let table_of = document.table(table);
        let span = table_of.span(key).or_else(|| table_of.span.clone());
        d.add(span, format!("{table}.{key} cannot be used here"), why, fix);
    };
    if recipe != Recipe::JungfrauPhotons {
        let why = "it is only for JUNGFRAU words that are converted to photons or keV";
        for key in ["rounding_photons", "rounding_kev", "common_mode", "arithmetic"] {
            if t.has(key) {
                refuse("processing", key, why, "remove the line");
            }
        }
        if processing.tracking.is_some() {
            refuse("tracking", "frames", why, "remove [tracking]");
        }
    }
    if recipe == Recipe::Raw && processing.selection.sum_frames > 1 {
        refuse(
            "processing",
            "summation",
            "raw words of different gain cannot be added",
            "choose another dtype, or remove the line",
        );
    }
    if recipe == Recipe::Raw && processing.negative != Negative::Keep {
        refuse("processing", "negative", "raw words are written unchanged", "choose another dtype, or remove the line");
    }
    if let Err(why) = processing.check() {
        let key = if processing.arithmetic == Arithmetic::Fixed { "arithmetic" } else { "common_mode" };
        refuse("processing", key, why, "choose one of them");
    }
    if processing.arithmetic == Arithmetic::Fixed && pixel == PixelType::Float32 {
        refuse("processing", "arithmetic", "fixed-point arithmetic gives integers", "choose an integer dtype");
    }
    let has_darks = processing.selection.darks != Marked::None
        || processing.selection.warmup_is_dark && processing.selection.warmup_frames > 0;
    if processing.tracking.is_some_and(|t| t.frames == TrackedFrames::Darks) && !has_darks {
        let fix = "say in [frames] which frames are dark (warmup_frames, dark_every, dark_flag_bit), or track all frames";
        refuse("tracking", "frames", "there are no dark frames to follow", fix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Config;
    use std::path::Path;

    const HEAD: &str = "[detector]\ntype = \"jungfrau\"\nenergy_kev = 12.4\nframe_time_us = 1000\n[output]\ndirectory = \".\"\nprefix = \"a\"\n[calibration]\nkind = \"files\"\npedestal = \"p\"\ngain = \"g\"\n";

    fn parse(more: &str) -> Result<Config, String> {
        Config::parse(&format!("{HEAD}{more}"), Path::new("run.toml")).map_err(|d| d.to_string())
    }

    #[test]
    fn keys_become_options() {
        let config = parse("[processing]\nsummation = 5\nrounding_photons = 0.5\nnegative = \"offset\"\n[frames]\nwarmup_frames = 100\ndark_every = 10\nkeep_rate_hz = 300\n[tracking]\nframes = \"darks\"\n[run]\nimages = 7\n").unwrap();
        let p = &config.options.processing;
        assert_eq!(config.options.step, Step::Photons(0.5));
        assert!(config.options.negative_offset_auto);
        assert_eq!(config.pixel, PixelType::Int32, "a sum needs more room");
        assert_eq!((p.selection.sum_frames, p.selection.keep), (5, Keep::EveryNth(4)));
        let plan = crate::plan::plan(&config);
        assert_eq!((plan.images(), plan.frames), (Some(7), Some(100 + 137 + 15)));
        let config = parse("[processing]\nunit = \"kev\"\ndtype = \"float32\"\n").unwrap();
        assert_eq!(config.options.step, Step::Kev(1.0));
    }

    #[test]
    fn contradictions_are_explained() {
        let refused = |more: &str, what: &str| {
            let text = parse(more).map(|_| ()).unwrap_err();
            assert!(text.contains(what), "{more}: {text}");
        };
        refused("[processing]\nrounding_photons = 3\n", "not an allowed rounding");
        refused("[processing]\nrounding_kev = 0.1\n", "rounding_kev with unit = \"photons\"");
        refused("[processing]\ndtype = \"float32\"\nrounding_photons = 0.5\n", "not rounded");
        refused("[processing]\nnegative_offset = 3\n", "without negative");
        refused("[processing]\ndtype = \"raw\"\nsummation = 2\n", "cannot be added");
        refused("[processing]\ncommon_mode = \"row\"\n[tracking]\nframes = \"all\"\n", "correct the same drift");
        refused("[processing]\narithmetic = \"fixed\"\ndtype = \"float32\"\n", "gives integers");
        refused("[tracking]\nframes = \"darks\"\n", "no dark frames");
        refused("[tracking]\nwindow_frames = 10\n", "nothing is tracked");
        refused("[frames]\nkeep_every = 2\nkeep_flag_bit = 31\n", "only one can be used");
        refused("[processing]\nsummation = 2000\n", "summation");
    }
}
