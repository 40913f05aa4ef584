//! `[control]`: what drives the detector itself, a driver or single programs.

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use konkordia_core::protocol::Protocol;
use konkordia_core::tile::DetectorKind;
use serde_json::{Map, Value};
use std::time::Duration;

/// Drivers that come with the Python package: word in the configuration, and module.
const OF_THE_PACKAGE: [(&str, &str); 2] = [("slsdet", "konkordia.control.slsdet"), ("simplon", "konkordia.control.simplon")];

/// Programs with their arguments; empty = none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSettings {
    /// Last step of arm.
    pub on_arm: Vec<String>,
    /// At start.
    pub on_start: Vec<String>,
    /// At trigger.
    pub on_trigger: Vec<String>,
    /// After stop and cancel.
    pub on_stop: Vec<String>,
    /// Before the dark frames of each gain stage, and once more at the end of them.
    pub on_stage: Vec<String>,
    /// Time limit of each program.
    pub timeout: Duration,
    /// The program that drives the detector, if one does.
    pub driver: Option<DriverSettings>,
}

/// The driver of a detector: a program that is called for each action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverSettings {
    /// What people call it: the word in the configuration, or the program.
    pub name: String,
    /// Program and arguments; the action comes behind them.
    pub program: Vec<String>,
    /// `[control.settings]`, which only the driver understands.
    pub settings: Map<String, Value>,
    /// A run ends at once if its sender announces something else than the driver has asked the detector for.
    pub refuses_mismatch: bool,
}

/// Reads `[control]` and `[control.settings]`.
pub(super) fn read(document: &Document, d: &mut Diagnostics) -> HookSettings {
    let t = document.table("control");
    HookSettings {
        on_arm: t.texts("on_arm"),
        on_start: t.texts("on_start"),
        on_trigger: t.texts("on_trigger"),
        on_stop: t.texts("on_stop"),
        on_stage: t.texts("on_stage"),
        timeout: Duration::from_secs_f64(t.number("timeout_s").unwrap_or(10.0)),
        driver: driver(t, document, d),
    }
}

fn driver(t: &Table, document: &Document, d: &mut Diagnostics) -> Option<DriverSettings> {
    let program = t.texts("driver");
    let Some(name) = program.first().filter(|name| !name.is_empty()).cloned() else {
        let fix = "add driver = \"slsdet\", \"simplon\", or [\"PROGRAM\", \"ARGUMENT\"]; or remove it";
        for key in ["driver", "python", "mismatch"].into_iter().filter(|key| t.has(key)) {
            let what = if key == "driver" {
                "control.driver names no program".into()
            } else {
                format!("control.{key} without a driver")
            };
            d.add(t.span(key), what, "it is for the program that drives the detector", fix);
        }
        if let Some((_, span)) = &document.driver_settings {
            d.add(Some(span.clone()), "[control.settings] without a driver", "they are the settings of the driver", fix);
        }
        return None;
    };
    let module = OF_THE_PACKAGE.iter().find(|(word, _)| *word == name && program.len() == 1).map(|(_, module)| *module);
    if module.is_none() && t.has("python") {
        let fix = "remove it; a program of your own is started as it stands in control.driver";
        d.add(t.span("python"), format!("control.python with the driver \"{name}\""), "it is for slsdet and simplon", fix);
    }
    let name = if module.is_some() { name } else { program.join(" ") };
    let python = t.text("python").unwrap_or("python3");
    let program = module.map_or(program, |module| [python, "-m", module].map(str::to_string).into());
    let settings = document.driver_settings.as_ref().map(|(settings, _)| settings.clone()).unwrap_or_default();
    Some(DriverSettings { name, program, settings, refuses_mismatch: t.text("mismatch") == Some("refuse") })
}

/// Reports a driver that is for other detectors. `kind` is that of a detector that sends packets, `protocol` that of a
/// stream.
pub(super) fn check(
    hooks: &HookSettings,
    kind: Option<DetectorKind>,
    protocol: Option<Protocol>,
    t: &Table,
    d: &mut Diagnostics,
) {
    let Some(driver) = &hooks.driver else { return };
    let (fits, drives) = match driver.name.as_str() {
        "slsdet" => (kind.is_some_and(DetectorKind::is_sls), "a JUNGFRAU or EIGER that sends packets"),
        "simplon" => (
            matches!(protocol, Some(Protocol::DectrisV1 | Protocol::DectrisV2)),
            "a DECTRIS detector: detector.type = \"stream\" with source.protocol = \"stream1\" or \"stream2\"",
        ),
        _ => (true, ""),
    };
    if !fits {
        let what = format!("control.driver: \"{}\" cannot drive this detector", driver.name);
        let fix = "correct detector.type or source.protocol, or name another driver";
        d.add(t.span("driver"), what, format!("it is for {drives}"), fix);
    }
    if t.has("mismatch") && kind.is_some() {
        let why = "packets announce nothing; what they show of the set-up is checked by detector.strict";
        d.add(t.span("mismatch"), "control.mismatch is for streams", why, "remove the line");
    }
}
