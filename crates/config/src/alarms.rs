//! `[alarms]`: what is watched while a run goes on.

use super::read::Document;
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
    /// Program that is run when an alarm begins or ends.
    pub program: Vec<String>,
    /// Time limit of the program.
    pub timeout: Duration,
    /// ZeroMQ address at which each change is published.
    pub address: Option<String>,
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
        program: t.texts("program"),
        timeout: seconds("timeout_s", 10.0),
        address: t.text("address").map(str::to_owned),
    })
}
