//! The calibration that the runs of a detector use: numbers of its modules, and maps.

use super::extract::{DetectorQuery, Query};
use super::images;
use super::live::frames::packed;
use super::problem::Problem;
use super::render::npy_file;
use super::state::Shared;
use super::turns;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use konkordia_acquire::handle::{
    CalibrationMap, CalibrationProblem, CalibrationReport, Detector, MapRequest, MapValues, NotShown, Quantity, UsedCalibration,
};
use konkordia_core::array::Element;
use konkordia_core::pixel::Pixel;
use konkordia_picture::frame::{Region, frame, mean_frame};
use konkordia_picture::image::Pixels;
use konkordia_picture::{HeatMap, heat_map, marked_map};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{IntoParams, ToSchema};

/// The calibration that the next run uses, or why there is none.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NextCalibration {
    /// Detector.
    detector: String,
    /// What it is like; null if there is none.
    calibration: Option<CalibrationReport>,
    /// Why there is none, and what to do about it; null if there is one.
    none: Option<CalibrationProblem>,
}

/// What the calibration of the next run is like, module by module, or why there is none.
#[utoipa::path(get, path = "/api/v1/calibration", tag = "data", params(DetectorQuery), responses((status = 200, description = "Of the next run", body = NextCalibration)))]
pub async fn calibration(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<DetectorQuery>,
) -> Result<Json<NextCalibration>, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    let found = match detector.calibration() {
        None => Err(none(&*detector)),
        Some(used) => {
            let report = |used: &UsedCalibration| match used.report() {
                Err(NotShown::Missing(failure)) => Ok(Err(CalibrationProblem::from(&failure))),
                found => found.map(Ok).map_err(problem),
            };
            looked(&shared, used, report).await?.0
        }
    };
    let (calibration, none) = found.map_or_else(|none| (None, Some(none)), |report| (Some(report), None));
    Ok(Json(NextCalibration { detector: detector.name().into(), calibration, none }))
}

/// What a map shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum QuantityName {
    Pedestal,
    Noise,
    Gain,
    Mask,
}

/// How a map comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum MapFormat {
    Frame,
    Npy,
    Png,
}

/// Which map, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MapQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "jungfrau")]
    detector: Option<String>,
    /// What it shows; `pedestal` if left out.
    #[param(inline, example = "noise")]
    quantity: Option<QuantityName>,
    /// Gain stage by its gain bits: 0 (G0, or HG0 if the detector is set to high gain), 1 or 2.
    #[param(minimum = 0, maximum = 2, default = 0, example = 0)]
    stage: Option<u8>,
    /// Storage cell; the first one that has pedestals if left out.
    #[param(minimum = 0, maximum = 15, example = 3)]
    cell: Option<u8>,
    /// The difference to the previous calibration.
    #[param(default = false, example = false)]
    minus_previous: Option<bool>,
    /// How it is to come; `png` if left out.
    #[param(inline, example = "npy")]
    format: Option<MapFormat>,
    /// The part that is wanted, as `column,row,columns,rows` in pixels of the image; default: all.
    #[param(example = "0,0,1024,512")]
    region: Option<String>,
    /// `frame`: most values.
    #[param(minimum = 4096, maximum = 4_194_304, default = 1_048_576, example = 1_048_576)]
    pixels_max: Option<usize>,
}

impl MapQuery {
    fn request(&self) -> Result<MapRequest, Problem> {
        let stage = self.stage.unwrap_or(0);
        if stage > 2 {
            return Err(Problem::new("bad_query", format!("stage: {stage} is not 0, 1 or 2"), ""));
        }
        let quantity = match self.quantity.unwrap_or(QuantityName::Pedestal) {
            QuantityName::Pedestal => Quantity::Pedestal,
            QuantityName::Noise => Quantity::Noise,
            QuantityName::Gain => Quantity::Gain,
            QuantityName::Mask => Quantity::Mask,
        };
        let minus_previous = self.minus_previous.unwrap_or(false);
        Ok(MapRequest { quantity, stage: stage.into(), cell: self.cell, minus_previous })
    }

    fn region(&self) -> Result<Option<Region>, Problem> {
        let Some(text) = &self.region else { return Ok(None) };
        let numbers: Option<Vec<usize>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some([column, row, columns, rows]) if *columns > 0 && *rows > 0 => {
                Ok(Some(Region { column: *column, row: *row, columns: *columns, rows: *rows }))
            }
            _ => {
                let hint = "give column,row,columns,rows in pixels of the image, for example 0,0,1024,512";
                Err(Problem::new("bad_query", format!("region: {text:?} is not four numbers"), hint))
            }
        }
    }

    fn pixels_max(&self) -> Result<usize, Problem> {
        let most = self.pixels_max.unwrap_or(1 << 20);
        if (4096..=4 << 20).contains(&most) {
            return Ok(most);
        }
        Err(Problem::new("bad_query", format!("pixels_max: {most} is not between 4096 and 4194304"), ""))
    }
}

/// A map of the calibration in the geometry of the images. Gaps and masked pixels have no number (NaN), those of a mask
/// the value 4294967294. `frame`: as the live connection has it. `npy`: the numbers. `png`: a picture with its scale.
#[utoipa::path(get, path = "/api/v1/calibration/map", tag = "data", params(MapQuery), responses((status = 200, description = "The map", content(
    (Vec<u8> = "image/png"), (Vec<u8> = "application/x-npy"), (Vec<u8> = "application/octet-stream")))))]
pub async fn map(State(shared): State<Arc<Shared>>, Query(query): Query<MapQuery>) -> Result<Response, Problem> {
    let began = Instant::now();
    let detector = shared.detector(query.detector.as_deref())?;
    let (request, region, pixels_max) = (query.request()?, query.region()?, query.pixels_max()?);
    let (format, name) = (query.format.unwrap_or(MapFormat::Png), detector.name().to_owned());
    let no_map = |CalibrationProblem { detail, hint }| Problem::new("no_calibration", detail, hint);
    let used = detector.calibration().ok_or_else(|| no_map(none(&*detector)))?;
    let made = looked(&shared, used, move |used| {
        let map = used.map(request).map_err(problem)?;
        let shown = Shown { map: &map, request, region: inside(&map, region)? };
        match format {
            MapFormat::Frame => shown.frame(&name, pixels_max, began),
            MapFormat::Npy => Ok(shown.npy()),
            MapFormat::Png => Ok(shown.png()),
        }
    });
    let (bytes, memory) = made.await?;
    let (media_type, ending) = match format {
        MapFormat::Frame => ("application/octet-stream", "frame"),
        MapFormat::Npy => ("application/x-npy", "npy"),
        MapFormat::Png => ("image/png", "png"),
    };
    let builder = Response::builder()
        .header(header::CONTENT_TYPE, media_type)
        .header(header::CONTENT_LENGTH, bytes.len())
        .header(header::CONTENT_DISPOSITION, format!("inline; filename=\"{}.{ending}\"", request.quantity.name()));
    let body = images::in_pieces(bytes, Some(memory));
    builder.body(body).map_err(|_| Problem::bug("the headers of the map do not fit"))
}

/// Looks at a calibration on a thread where that may take a while, when it is the turn of this request. Gives the
/// memory that is reserved for the answer.
async fn looked<T: Send + 'static>(
    shared: &Shared,
    used: Arc<UsedCalibration>,
    look: impl FnOnce(&UsedCalibration) -> Result<T, Problem> + Send + 'static,
) -> Result<(T, OwnedSemaphorePermit), Problem> {
    let memory = turns::memory(shared, (used.bytes() / 2, 0)).await?;
    let turn = turns::turn(&shared.calibrations, 1).await?;
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        look(&used)
    });
    let made = made.await.map_err(|_| Problem::bug("the service made a mistake with this calibration"))?;
    made.map(|made| (made, memory))
}

/// Why a detector has no calibration.
fn none(detector: &dyn Detector) -> CalibrationProblem {
    let name = detector.name();
    let (detail, hint) = if detector.status().kind == "stream" {
        let detail = format!("'{name}' has no calibration: it sends whole images, which its own software has corrected");
        (detail, "nothing: only a JUNGFRAU that sends packets needs one")
    } else {
        let hint = "for a JUNGFRAU: set [calibration] kind and file in its configuration, and restart the service";
        (format!("the configuration of '{name}' names no calibration"), hint)
    };
    CalibrationProblem { detail, hint: hint.into() }
}

fn problem(not_shown: NotShown) -> Problem {
    let (code, failure) = match not_shown {
        NotShown::Missing(failure) => ("no_calibration", failure),
        NotShown::Broken(failure) => ("bad_file", failure),
    };
    Problem::new(code, failure.detail(), failure.fix)
}

/// The part of a map that is shown.
fn inside(map: &CalibrationMap, region: Option<Region>) -> Result<Region, Problem> {
    let Some(region) = region else { return Ok(Region { column: 0, row: 0, columns: map.columns, rows: map.rows }) };
    if region.column >= map.columns || region.row >= map.rows {
        let detail = format!("region: it begins outside of the image, which has {} x {} pixels", map.columns, map.rows);
        return Err(Problem::new("bad_query", detail, ""));
    }
    let (columns, rows) = (region.columns.min(map.columns - region.column), region.rows.min(map.rows - region.row));
    Ok(Region { columns, rows, ..region })
}

/// A part of a map on its way into an answer.
struct Shown<'a> {
    map: &'a CalibrationMap,
    request: MapRequest,
    region: Region,
}

impl Shown<'_> {
    fn element(&self) -> Element {
        match self.map.values {
            MapValues::Numbers(_) => Element::Float32,
            MapValues::Bits(_) => Element::Uint32,
        }
    }

    /// For people.
    fn title(&self) -> String {
        let what = format!("{} of {}", self.request.quantity.name(), self.map.stage.name().to_uppercase());
        let cell = self.map.cell.filter(|_| self.request.quantity != Quantity::Gain);
        let cell = cell.map_or(String::new(), |cell| format!(", cell {cell}"));
        let minus = if self.request.minus_previous { ", minus the previous" } else { "" };
        format!("{what}{cell}{minus}")
    }

    fn part<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let Region { column, row, columns, rows } = self.region;
        let lines = values.chunks_exact(self.map.columns).skip(row).take(rows);
        lines.flat_map(|line| &line[column..column + columns]).copied().collect()
    }

    fn frame(&self, detector: &str, pixels_max: usize, began: Instant) -> Result<Bytes, Problem> {
        let frame = match &self.map.values {
            MapValues::Numbers(values) => mean_frame(values, self.map.columns, self.region, pixels_max),
            MapValues::Bits(values) => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let pixels = Pixels { element: Element::Uint32, columns: self.map.columns, bytes: &bytes };
                frame(pixels, self.region, pixels_max)
            }
        };
        let name = self.request.quantity.name();
        let facts = json!({
            "detector": detector, "run": null, "file": null, "image": 0, "stack": null, "status": "complete",
            "channel": name, "channels": [name], "label": self.title(), "unit": self.request.quantity.unit(), "range": self.map.range,
            "dtype": self.element().name(), "rows": self.map.rows, "columns": self.map.columns, "geometry": null, "results": null,
        });
        Ok(packed(facts, frame, began)?.message(0, 0, None))
    }

    fn npy(&self) -> Bytes {
        let bytes: Vec<u8> = match &self.map.values {
            MapValues::Numbers(values) => self.part(values).into_iter().flat_map(f32::to_le_bytes).collect(),
            MapValues::Bits(values) => self.part(values).into_iter().flat_map(u32::to_le_bytes).collect(),
        };
        npy_file(self.element(), &[self.region.rows as u64, self.region.columns as u64], &bytes).into()
    }

    fn png(&self) -> Bytes {
        let (title, Region { columns, rows, .. }) = (self.title(), self.region);
        let picture = match &self.map.values {
            MapValues::Numbers(values) => {
                let (values, unit) = (self.part(values), self.request.quantity.unit());
                heat_map(&HeatMap { title: &title, unit, rows, columns, values: &values, range: None })
            }
            MapValues::Bits(values) => {
                let marked: Vec<bool> = self.part(values).into_iter().map(|bits| bits != 0 && bits != u32::MASKED).collect();
                let count = marked.iter().filter(|marked| **marked).count();
                marked_map(&format!("{title}: {count} pixels, drawn enlarged"), columns, &marked)
            }
        };
        picture.png().into()
    }
}
