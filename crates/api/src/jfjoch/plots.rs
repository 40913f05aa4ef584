//! Results of the images of the newest run, for plots and as a list.

use crate::adapters::port::Port;
use crate::http::extract::{NoQuery, Query};
use crate::http::problem::Problem;
use axum::Json;
use axum::extract::State;
use konkordia_acquire::handle::{Detector, ResultPlot};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Plots of the broker, and the results that they show.
const PLOTS: [(&str, &str); 7] = [
    ("bkg_estimate", "background"),
    ("spot_count", "spots"),
    ("spot_count_ice", "spots_on_ice"),
    ("indexing_rate", "is_indexed"),
    ("res_estimation", "resolution_angstrom"),
    ("saturated_pixels", "saturated_pixels"),
    ("max_pixel_value", "max_value"),
];
/// Fields of an image in `/result/scan`, the results that they have, and whether they are whole numbers.
const SCAN: [(&str, &str, bool); 12] = [
    ("nx", "raster_column", true),
    ("ny", "raster_row", true),
    ("angle", "angle_deg", false),
    ("bkg", "background", false),
    ("spots", "spots", true),
    ("spots_ice", "spots_on_ice", true),
    ("index", "is_indexed", true),
    ("res", "resolution_angstrom", false),
    ("xfel_pulseid", "pulse_id", true),
    ("pixel_sum", "sum_value", true),
    ("max", "max_value", true),
    ("sat", "saturated_pixels", true),
];

const MISSING: &str = "missing_pixels";

/// Which plot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotQuery {
    #[serde(rename = "type")]
    name: String,
    /// Taken, but without effect: bins have 1, 2, 4, ... images, as the length of the run needs it.
    #[serde(rename = "binning")]
    _binning: Option<i64>,
    fill: Option<f64>,
    #[serde(rename = "experimental_coord")]
    _experimental_coord: Option<bool>,
    #[serde(rename = "azint_unit")]
    _azint_unit: Option<String>,
}

/// `/preview/plot`: the mean of a result in bins of images against the number of the first image of each bin. The type
/// is a plot of the broker or the name of one of our results.
pub async fn plot(State(port): State<Arc<Port>>, Query(query): Query<PlotQuery>) -> Result<Json<Value>, Problem> {
    let asked = query.name.as_str();
    let name = PLOTS.iter().find(|(known, _)| *known == asked).map_or(asked, |(_, ours)| *ours);
    let found = port.detector.results(Some(name)).ok_or_else(|| unknown(&port, asked))?;
    let meaning = found.results.iter().find(|result| result.name == name);
    let title = meaning.map_or(name.to_owned(), |result| match result.unit.as_str() {
        "" => result.name.clone(),
        unit => format!("{} / {unit}", result.name),
    });
    let y: Vec<Option<f64>> = found.mean.iter().map(|mean| mean.or(query.fill)).collect();
    Ok(Json(json!({ "title": title, "unit_x": "image_number", "plot": [{ "title": name, "x": found.first_image, "y": y }] })))
}

fn unknown(port: &Port, asked: &str) -> Problem {
    let known: Vec<String> =
        port.detector.results(None).map_or_else(Vec::new, |plot| plot.results.into_iter().map(|one| one.name).collect());
    let brokers = PLOTS.iter().filter(|(_, ours)| known.iter().any(|name| name == ours)).map(|(theirs, _)| (*theirs).to_owned());
    let all: Vec<String> = brokers.chain(known.iter().cloned()).collect();
    let hint = if all.is_empty() { "ask again when a run has images".into() } else { format!("there are {}", all.join(", ")) };
    Problem::new("bad_query", format!("type: the images of the newest run have no result for {asked:?}"), hint)
}

/// `/result/scan`: the results of every image of the newest run, as long as each of them is kept.
pub async fn scan(State(port): State<Arc<Port>>, Query(NoQuery {}): Query<NoQuery>) -> Result<Json<Value>, Problem> {
    let status = port.detector.status();
    let all = port.detector.results(None).map_or_else(Vec::new, |plot| plot.results);
    if all.is_empty() {
        return Err(Problem::new("no_result", "there are no results", "ask again when a run has images"));
    }
    let (missing, pixels) = missing(&*port.detector, status.file.as_deref())?;
    let mut images: Vec<Map<String, Value>> = (missing.first_image.iter().zip(&missing.mean))
        .map(|(number, mean)| {
            // Clients need it. An image without a number is lost.
            let efficiency = mean.map_or(0.0, |mean| (1.0 - mean / pixels as f64).max(0.0));
            Map::from_iter([("number".to_owned(), json!(number)), ("efficiency".to_owned(), json!(efficiency))])
        })
        .collect();
    for (field, name, is_whole) in SCAN.into_iter().filter(|(_, name, _)| all.iter().any(|known| known.name == *name)) {
        let plot = single(&*port.detector, name, status.file.as_deref())?;
        // More images may have come since.
        for ((image, mean), without) in images.iter_mut().zip(&plot.mean).zip(&plot.without) {
            if let Some(value) = mean.filter(|_| *without == 0) {
                image.insert(field.into(), if is_whole { json!(value.round() as i64) } else { json!(value) });
            }
        }
    }
    let prefix = status.file.as_ref().map(|file| file.strip_suffix("_master.h5").unwrap_or(file));
    Ok(Json(super::state::without_nulls(json!({ "file_prefix": prefix, "images": images }))))
}

/// The pixels of each image whose packets did not arrive, and how many pixels an image has packets of.
fn missing(detector: &dyn Detector, file: Option<&str>) -> Result<(ResultPlot, u64), Problem> {
    let tiles = detector.shapes().modules(None).modules.into_iter().flat_map(|module| module.tiles);
    let pixels: u64 = tiles.map(|tile| tile.rows * tile.columns).sum();
    let is_counted = detector.results(None).is_some_and(|plot| plot.results.iter().any(|one| one.name == MISSING));
    if pixels == 0 || !is_counted {
        let detail = "which share of each image arrived is not known for a detector that sends whole images, and clients need it";
        return Err(Problem::new("no_result", detail, "/preview/plot has the results"));
    }
    Ok((single(detector, MISSING, file)?, pixels))
}

/// A result of each image by itself.
fn single(detector: &dyn Detector, name: &str, file: Option<&str>) -> Result<ResultPlot, Problem> {
    let plot = detector.results(Some(name)).ok_or_else(|| Problem::new("no_result", "a new run has begun", "ask again"))?;
    if plot.bin_images > 1 {
        let detail = format!("of so long a run only means of {} images each are kept", plot.bin_images);
        let hint = file.map_or("ask /preview/plot".into(), |file| {
            format!("{file} has the results of each image; /preview/plot has the means")
        });
        return Err(Problem::new("no_result", detail, hint));
    }
    Ok(plot)
}

/// `/xfel/pulse_id`: -1 for an image whose pulse is not known.
pub async fn pulses(State(port): State<Arc<Port>>, Query(NoQuery {}): Query<NoQuery>) -> Result<Json<Value>, Problem> {
    let none = || {
        Problem::new("no_result", "the images have no pulse", "[image_metadata] of the configuration says where pulses come from")
    };
    let known = port.detector.results(None).is_some_and(|plot| plot.results.iter().any(|one| one.name == "pulse_id"));
    if !known {
        return Err(none());
    }
    let plot = single(&*port.detector, "pulse_id", port.detector.status().file.as_deref())?;
    let count = plot.first_image.last().map_or(0, |last| last + 1);
    let mut all = vec![-1i64; usize::try_from(count).unwrap_or_default()];
    for (number, mean) in plot.first_image.iter().zip(&plot.mean) {
        // Our results have 0 for a pulse that is not known.
        if let (Some(place), Some(pulse)) = (all.get_mut(*number as usize), mean.filter(|pulse| *pulse > 0.0)) {
            *place = pulse as i64;
        }
    }
    Ok(Json(json!(all)))
}

/// `/xfel/event_code`.
pub async fn event_codes() -> Problem {
    Problem::new("no_result", "the images have no event codes", "")
}
