//! What the receiver of MAX IV reports about a series of the DECTRIS streams: a few keys of the detector and what the
//! user asks for. Source: streaming-receiver (docs/protocols.md 4).

use konkordia_core::geometry::{Orientation, Quarter};
use konkordia_core::series::SeriesStart;
use serde_json::{Map, Value, json};

/// Keys of the header of Stream V1.
const V1: [&str; 11] = [
    "count_time",
    "countrate_correction_applied",
    "countrate_correction_count_cutoff",
    "photon_energy",
    "threshold_energy",
    "flatfield_correction_applied",
    "virtual_pixel_correction_applied",
    "pixel_mask_applied",
    "nimages",
    "ntrigger",
    "trigger_mode",
];
/// Keys of the start of Stream V2.
const V2: [&str; 6] = [
    "count_time",
    "countrate_correction_enabled",
    "flatfield_enabled",
    "virtual_pixel_interpolation_enabled",
    "pixel_mask_enabled",
    "number_of_images",
];
/// The exposure time: its key in each image, and in the header of STINS.
pub const EXPOSURE: [&str; 2] = ["exposure_time", "exptime"];

/// Reduces a start of Stream V1 to what the receiver of MAX IV reports, and takes from its appendix the turn that is to
/// be made.
pub fn of_v1(start: &mut SeriesStart, appendix: Option<&Value>) {
    let rotate = appendix.and_then(|said| said.get("rotate")).cloned().unwrap_or_else(|| json!(0));
    let mut metadata = chosen(&start.metadata, &V1);
    if let Some(exposure) = metadata.get("count_time") {
        start.image_extra.insert(EXPOSURE[0].into(), exposure.clone());
    }
    match quarter_turns(&rotate) {
        Some(turn) => start.turn = turn,
        None => start
            .warnings
            .push(format!("the header asks to rotate by {rotate}, not a whole number of quarter turns: images are not turned")),
    }
    metadata.insert("rotate".into(), rotate);
    start.metadata = metadata;
    needs_name(start);
}

/// Reduces a start of Stream V2 to what the receiver of MAX IV reports: the thresholds stand beside the other keys.
pub fn of_v2(start: &mut SeriesStart) {
    let mut metadata = chosen(&start.metadata, &V2);
    if let Some(Value::Object(thresholds)) = start.metadata.get("threshold_energy") {
        metadata.extend(thresholds.clone());
    }
    start.metadata = metadata;
    needs_name(start);
}

/// Warns if no file is named: here only the user's data can name it.
fn needs_name(start: &mut SeriesStart) {
    if start.filename.is_none() {
        let why = "the user data has no 'filename' (header_appendix as JSON, {\"filename\": ...}); images are not stored";
        start.warnings.push(format!("the header of the series names no file: {why}"));
    }
}

fn chosen(all: &Map<String, Value>, keys: &[&str]) -> Map<String, Value> {
    let found = keys.iter().filter_map(|key| Some(((*key).to_owned(), all.get(*key)?.clone())));
    found.collect()
}

/// Anticlockwise quarter turns, as numpy's rot90 counts them.
fn quarter_turns(said: &Value) -> Option<Orientation> {
    let turns = match said {
        Value::Bool(is_turned) => i64::from(*is_turned),
        Value::Null => 0,
        other => other.as_i64()?,
    };
    let clockwise_deg = (360 - 90 * turns.rem_euclid(4)) % 360;
    Some(Orientation::new(false, false, Quarter::from_deg(clockwise_deg as u32)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_against_the_clock() {
        let turned = |deg| Some(Orientation::new(false, false, Quarter::from_deg(deg).unwrap()));
        for (said, wanted) in [
            (json!(0), turned(0)),
            (json!(1), turned(270)),
            (json!(2), turned(180)),
            (json!(-1), turned(90)),
            (json!(5), turned(270)),
            (json!(false), turned(0)),
            (json!("1"), None),
            (json!(0.5), None),
        ] {
            assert_eq!(quarter_turns(&said), wanted, "{said}");
        }
    }
}
