//! `[calibration]`: which files, of which kind.

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use konkordia_core::plan::Recipe;
use konkordia_core::tile::DetectorKind;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The program from which the files come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalibrationKind {
    /// float32 planes, and gains in any format.
    Files,
    /// A file of `konkordia pedestal`.
    Konkordia,
    /// A pedestal file and a gain file of jungfrau_utils.
    JungfrauUtils,
}

impl CalibrationKind {
    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Konkordia => "konkordia",
            Self::JungfrauUtils => "jungfrau_utils",
        }
    }
}

/// `[calibration]` of any kind but "none".
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationFiles {
    /// Kind of the files.
    pub kind: CalibrationKind,
    /// Pedestal planes, or the one file with pedestals; resolved.
    pub pedestal: Vec<PathBuf>,
    /// Gains, resolved; empty = those of the calibration file.
    pub gain: Vec<PathBuf>,
    /// RMS planes of G0 (HG0), resolved; empty = not known, or those of the calibration file.
    pub pedestal_rms: Vec<PathBuf>,
    /// The detector is set to high gain: HG0 instead of G0.
    pub high_gain: bool,
    /// Greatest age of the pedestals that a run may use.
    pub max_age_hours: Option<f64>,
    /// When the data were written, ISO 8601, for data from files; `None` = now. Not a key of the configuration.
    pub data_time: Option<String>,
}

impl CalibrationFiles {
    /// As JSON, with the keys of the configuration.
    pub fn to_json(&self) -> Value {
        let key = if self.kind == CalibrationKind::Konkordia { "file" } else { "pedestal" };
        json!({
            "kind": self.kind.name(), key: self.pedestal, "gain": self.gain, "pedestal_rms": self.pedestal_rms,
            "high_gain": self.high_gain, "max_age_hours": self.max_age_hours,
        })
    }
}

/// Required and optional keys of `[calibration]` for each kind.
fn keys_of(kind: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        "files" | "jungfrau_utils" => (&["pedestal", "gain"], &["high_gain", "pedestal_rms"]),
        "konkordia" => (&["file"], &["gain", "high_gain", "max_age_hours"]),
        _ => (&[], &[]),
    }
}

/// Checks the table against the detector and the recipe of the run.
pub fn read(
    document: &Document,
    d: &mut Diagnostics,
    resolve: &dyn Fn(&str) -> PathBuf,
    kind: Option<DetectorKind>,
    recipe: Option<Recipe>,
) -> Option<CalibrationFiles> {
    let t = document.table("calibration");
    let name = t.text("kind").unwrap_or("none");
    let span = t.span("kind").or_else(|| t.span.clone());
    let (must, may) = keys_of(name);
    refuse_others(t, d, name, must, may);
    let of = match name {
        "files" => CalibrationKind::Files,
        "konkordia" => CalibrationKind::Konkordia,
        "jungfrau_utils" => CalibrationKind::JungfrauUtils,
        _ => {
            if recipe == Some(Recipe::JungfrauPhotons) {
                let why = "photons = (ADC - pedestal) / (gain * energy) needs pedestals and gains";
                let fix = "give [calibration] kind = \"konkordia\" with file, or \"files\" or \"jungfrau_utils\" with pedestal and gain; or write the words unchanged with [processing] dtype = \"raw\"";
                d.add(span, "photons without calibration", why, fix);
            }
            return None;
        }
    };
    if kind == Some(DetectorKind::Eiger) {
        d.add(span, "calibration of an EIGER", "an EIGER counts photons itself", "remove [calibration]");
        return None;
    }
    for key in must.iter().copied() {
        if !t.has(key) && !d.found.iter().any(|f| f.what.starts_with(&format!("calibration.{key}:"))) {
            let doc = super::schema::find("calibration", key).map_or("", |k| k.doc);
            d.add(span.clone(), format!("[calibration] has no '{key}'"), "", format!("add {key} = [...] ({doc})"));
        }
    }
    let detector = document.table("detector");
    let wrong_energy = d.found.iter().any(|f| f.what.contains("energy"));
    let counts_photons = document.table("processing").text("unit") != Some("kev");
    if recipe == Some(Recipe::JungfrauPhotons) && counts_photons && !detector.has("energy_kev") && !wrong_energy {
        let why = "photons = (ADC - pedestal) / (gain * energy)";
        let fix = "add energy_kev = 12.4 (the photon energy in keV)";
        d.add(detector.span.clone(), "[detector] has no 'energy_kev'", why, fix);
    }
    let paths = |key| t.texts(key).iter().map(|p| resolve(p)).collect::<Vec<_>>();
    let pedestal = if of == CalibrationKind::Konkordia { paths("file") } else { paths("pedestal") };
    if of == CalibrationKind::JungfrauUtils && pedestal.len() > 1 {
        let what = "calibration.pedestal: jungfrau_utils has one pedestal file for all modules";
        d.add(t.span("pedestal"), what, "", "give one file");
    }
    Some(CalibrationFiles {
        kind: of,
        pedestal,
        gain: paths("gain"),
        pedestal_rms: paths("pedestal_rms"),
        high_gain: t.flag("high_gain").unwrap_or(false),
        max_age_hours: t.number("max_age_hours"),
        data_time: None,
    })
}

/// Reports keys that have no meaning with this kind.
fn refuse_others(t: &Table, d: &mut Diagnostics, name: &str, must: &[&str], may: &[&str]) {
    for key in super::schema::keys_of("calibration").map(|k| k.name).filter(|k| *k != "kind" && t.has(k)) {
        if must.contains(&key) || may.contains(&key) {
            continue;
        }
        let kinds = ["files", "konkordia", "jungfrau_utils"].into_iter().filter(|kind| {
            let (must, may) = keys_of(kind);
            must.contains(&key) || may.contains(&key)
        });
        let kinds: Vec<String> = kinds.map(|kind| format!("\"{kind}\"")).collect();
        let what = format!("calibration.{key} with kind = \"{name}\"");
        d.add(t.span(key), what, "", format!("remove it, or set kind = {}", kinds.join(" or ")));
    }
}
