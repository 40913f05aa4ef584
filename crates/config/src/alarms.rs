//! `[alarms]`: what is watched while a run goes on.

use super::diagnostics::Diagnostics;
use super::model::{CalibrationKind, Config};
use super::read::{Document, Table};
use std::time::Duration;

/// The checked keys. An alarm whose limit is `None` is off.
#[derive(Clone, Debug, PartialEq)]
pub struct AlarmSettings {
    /// Time over which shares are taken.
    pub window: Duration,
    /// Share of the images that are lost or partial.
    pub loss_ratio: Option<f64>,
    /// Time without a hit.
    pub no_hits: Option<Duration>,
    /// The hit rate falls below this share of what it was.
    pub hit_drop_ratio: Option<f64>,
    /// Highest pixel value.
    pub value_max: Option<f64>,
    /// Saturated pixels of an image.
    pub saturated_max: Option<u64>,
    /// Pixels of an image with an illegal gain code, beyond those that are always unusable.
    pub invalid_max: Option<u64>,
    /// Share of the spots that lie on rings of ice.
    pub ice_ratio: Option<f64>,
    /// Share of the images that are not analysed.
    pub unanalysed_ratio: Option<f64>,
    /// Pixels from the true beam centre to that of the geometry.
    pub beam_shift_px: Option<f64>,
    /// Age of the pedestals.
    pub pedestal_age: Option<Duration>,
    /// ADU by which the tracked pedestals have moved since the run began.
    pub pedestal_drift_adu: Option<f64>,
    /// Program that is run when an alarm begins or ends.
    pub program: Vec<String>,
    /// Time limit of the program.
    pub timeout: Duration,
    /// ZeroMQ address at which each change is published.
    pub address: Option<String>,
}

impl AlarmSettings {
    /// Refuses alarms that could never be raised. `run` is the configuration of packets; `None`: a stream.
    pub(super) fn check(&self, run: Option<&Config>, is_analysed: bool, t: &Table, d: &mut Diagnostics) {
        let of_pixels = [
            ("value_max", self.value_max.is_some()),
            ("saturated_max", self.saturated_max.is_some()),
            ("invalid_max", self.invalid_max.is_some()),
        ];
        for (key, _) in of_pixels.into_iter().filter(|(_, is_on)| *is_on && run.is_none() && !is_analysed) {
            let why = "nothing looks at the pixels of images that come whole, unless they are analysed";
            d.add(t.span(key), format!("alarms.{key} without [analysis]"), why, "give [analysis] recipe, or remove the line");
        }
        let calibration = run.and_then(|run| run.calibration.as_ref());
        if self.pedestal_age.is_some() && !calibration.is_some_and(|files| files.kind == CalibrationKind::Konkordia) {
            let why = "only calibration files of `konkordia pedestal` say when pedestals were taken";
            let fix = "give [calibration] kind = \"konkordia\" with file, or remove the line";
            d.add(t.span("pedestal_age_hours"), "alarms.pedestal_age_hours without such a calibration", why, fix);
        }
        let tracking = run.and_then(|run| run.options.processing.tracking);
        if self.pedestal_drift_adu.is_some() && tracking.is_none_or(|tracking| tracking.snapshot_images == 0) {
            let why = "the alarm compares snapshots of pedestals that follow the drift";
            let fix = "give [tracking] frames and snapshot_images, or remove the line";
            d.add(t.span("pedestal_drift_adu"), "alarms.pedestal_drift_adu without [tracking]", why, fix);
        }
    }
}

/// Reads the table; `None` without one.
pub(super) fn read(document: &Document) -> Option<AlarmSettings> {
    let t = document.table("alarms");
    t.span.as_ref()?;
    let seconds = |key: &str, otherwise: f64| Duration::from_secs_f64(t.number(key).unwrap_or(otherwise));
    let count = |key: &str| t.integer(key).and_then(|n| u64::try_from(n).ok());
    Some(AlarmSettings {
        window: seconds("window_s", 10.0),
        loss_ratio: t.number("loss_ratio"),
        no_hits: t.number("no_hits_s").map(Duration::from_secs_f64),
        hit_drop_ratio: t.number("hit_drop_ratio"),
        value_max: t.number("value_max"),
        saturated_max: count("saturated_max"),
        invalid_max: count("invalid_max"),
        ice_ratio: t.number("ice_ratio"),
        unanalysed_ratio: t.number("unanalysed_ratio"),
        beam_shift_px: t.number("beam_shift_px"),
        pedestal_age: t.number("pedestal_age_hours").map(|hours| Duration::from_secs_f64(3600.0 * hours)),
        pedestal_drift_adu: t.number("pedestal_drift_adu"),
        program: t.texts("program"),
        timeout: seconds("timeout_s", 10.0),
        address: t.text("address").map(str::to_owned),
    })
}
