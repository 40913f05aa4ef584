//! Makes frames of the images of the ring.

use super::frame::{Found, Made, Wanted};
use super::messages::{Name, Which};
use crate::http::images;
use crate::http::problem::Problem;
use crate::http::render;
use crate::http::state::Shared;
use konkordia_acquire::handle::{Detector, RingImage};
use konkordia_analysis::geometry::Geometry;
use konkordia_core::results::ResultKind;
use konkordia_core::results::analysis::IS_HIT;
use konkordia_kernels::lz4;
use konkordia_picture::frame::{Coding, Format, Frame, Region, frame};
use konkordia_picture::image::Pixels;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Run and number of the image that is asked for now; `None` if it is not there. `newest` is the newest one.
pub fn choose(detector: &dyn Detector, which: Which, newest: (u64, u64)) -> Option<(u64, u64)> {
    let ring = detector.images();
    match which {
        Which::Named(Name::Latest) => Some(newest),
        Which::Number(number) => ring.numbers().0.contains(&number).then_some((newest.0, number)),
        Which::Named(Name::Hit) => {
            let is_hit = |number: &u64| {
                let found = ring.get(Some(*number), Instant::now());
                let is_hit = |result: (&ResultKind, &[u64])| result.0.name == IS_HIT.name && result.1 == [1];
                found.is_some_and(|found| found.planes.image().results.iter().any(is_hit))
            };
            ring.numbers().0.into_iter().rev().find(is_hit).map(|number| (newest.0, number))
        }
    }
}

/// Makes a frame on a thread where that may take a while.
///
/// # Errors
/// The image is gone, has no such channel or no pixels, or the service has too much to do.
pub async fn make(shared: &Shared, detector: &Arc<dyn Detector>, wanted: &Wanted) -> Found {
    let made = async {
        let found = detector
            .images()
            .get(Some(wanted.image.1), Instant::now())
            .ok_or_else(|| images::none(&**detector, Some(wanted.image.1)))?;
        let image = found.planes.image();
        let memory = images::memory(shared, (image.packed_bytes(), image.unpacked_bytes())).await?;
        let turn = images::turn(&shared.decoders, 1).await?;
        let (wanted, name) = (wanted.clone(), detector.name().to_owned());
        let made = tokio::task::spawn_blocking(move || {
            let _held = (memory, turn);
            of_image(&found, &wanted, name)
        });
        made.await.map_err(|_| Problem::bug("the service made a mistake with this image"))?
    };
    made.await.map(Arc::new).map_err(Arc::new)
}

fn of_image(found: &RingImage, wanted: &Wanted, detector: String) -> Result<Made, Problem> {
    let image = found.planes.image();
    let channel = render::channel(image, wanted.channel.as_deref())?;
    let plane = found.planes.plane(channel).map_err(Problem::bad_pixels)?;
    let (rows, columns) = plane.size();
    let pixels = Pixels { element: plane.element, columns, bytes: plane.bytes };
    let frame = frame(pixels, wanted.region, wanted.pixels_max);
    let geometry = Geometry::of_run([rows, columns], &plane.start.facts).ok();
    let mut packed = vec![0; lz4::bound(frame.bytes.len())];
    let packed_bytes = lz4::Encoder::new().compress(&frame.bytes, &mut packed);
    packed.truncate(packed_bytes);
    let is_packed = packed_bytes < frame.bytes.len();
    let names: Vec<&str> = image.channels.iter().map(|channel| &*channel.name).collect();
    let facts = json!({
        "detector": detector,
        "run": wanted.image.0,
        "image": image.number,
        "status": format!("{:?}", image.status).to_lowercase(),
        "channel": names[channel],
        "channels": names,
        "dtype": plane.element.name(),
        "rows": rows,
        "columns": columns,
        "packing": if is_packed { "lz4" } else { "none" },
        "bytes": frame.bytes.len(),
        "geometry": geometry.map(|geometry| json!({
            "origin_mm": geometry.origin_mm(),
            "fast_mm": geometry.fast_mm(),
            "slow_mm": geometry.slow_mm(),
            "wavelength_angstrom": geometry.wavelength_angstrom(),
        })),
        "results": image.results.to_json(),
    });
    let Value::Object(mut header) = facts else { return Err(Problem::bug("the facts of a frame are no object")) };
    header.extend(facts_of(&frame));
    let pixels = if is_packed { packed } else { frame.bytes };
    Ok(Made { header, pixels: pixels.into() })
}

fn facts_of(frame: &Frame) -> Map<String, Value> {
    let Region { column, row, columns, rows } = frame.region;
    let format = match frame.format {
        Format::Code16 => "code16",
        Format::Int32 => "int32",
        Format::Float32 => "float32",
    };
    let coding = match frame.coding {
        Coding::Count => "count",
        Coding::Float => "float",
    };
    let levels = frame.levels.map(|(low, high)| [low, high]);
    let fields = [
        ("region", json!([column, row, columns, rows])),
        ("bin", json!(frame.bin)),
        ("frame_rows", json!(frame.rows)),
        ("frame_columns", json!(frame.columns)),
        ("format", json!(format)),
        ("coding", json!(coding)),
        ("levels", json!(levels)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
