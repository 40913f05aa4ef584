//! The newest images, and the mask.

use crate::adapters::port::Port;
use crate::http::extract::{NoQuery, Query};
use crate::http::images::image_as;
use crate::http::problem::Problem;
use crate::http::render::Format;
use crate::http::shapes::newest_size;
use crate::http::turns;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::RingImage;
use konkordia_core::results::indexing::IS_INDEXED;
use konkordia_wire::dectris_v2::encode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Numbers with a meaning of their own.
const LATEST: i64 = -1;
const LATEST_INDEXED: i64 = -2;

/// Which image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdQuery {
    id: Option<i64>,
}

/// `/image_buffer/status`. Images are in the buffer only when they are complete and on their way to the file.
pub async fn buffer(State(port): State<Arc<Port>>) -> Json<Value> {
    Json(buffer_of(&port))
}

/// The same for the statistics.
pub fn buffer_of(port: &Port) -> Value {
    let (numbers, _) = port.detector.images().numbers();
    let slots = port.ring_images.max(numbers.len());
    json!({
        "min_image_number": numbers.first().unwrap_or(&0), "max_image_number": numbers.last().unwrap_or(&0), "image_numbers": numbers,
        "total_slots": slots, "available_slots": slots - numbers.len(), "in_preparation_slots": 0, "in_sending_slots": 0,
    })
}

/// `/image_buffer/image.tiff`: as `/api/v1/images` gives it.
pub async fn tiff(State(port): State<Arc<Port>>, Query(query): Query<IdQuery>) -> Result<Response, Problem> {
    image_as(&port.shared, port.detector.name(), number(&port, &query)?, Format::Tiff).await
}

/// `/image_buffer/image.cbor`: the image message of DECTRIS Stream V2, without what the broker adds to it.
pub async fn cbor(State(port): State<Arc<Port>>, Query(query): Query<IdQuery>) -> Result<Response, Problem> {
    image_as(&port.shared, port.detector.name(), number(&port, &query)?, Format::Cbor).await
}

/// The number of an image; `None` = the newest.
fn number(port: &Port, query: &IdQuery) -> Result<Option<u64>, Problem> {
    match query.id.unwrap_or(LATEST) {
        LATEST => Ok(None),
        LATEST_INDEXED => newest_indexed(port).map(Some),
        id => u64::try_from(id).map(Some).map_err(|_| {
            Problem::new("bad_query", format!("id: {id} is no image"), "-1 is the newest image, -2 the newest that was indexed")
        }),
    }
}

fn newest_indexed(port: &Port) -> Result<u64, Problem> {
    let ring = port.detector.images();
    let is_indexed = |number: &u64| {
        let found = ring.get(Some(*number), Instant::now());
        found.is_some_and(|found| {
            found.planes.image().results.iter().any(|(kind, bits)| kind.name == IS_INDEXED.name && bits[0] == 1)
        })
    };
    ring.numbers().0.into_iter().rev().find(is_indexed).ok_or_else(|| {
        let hint = "with [indexing] in the configuration images are indexed; id=-1 is the newest image";
        Problem::new("no_image", "none of the newest images was indexed", hint)
    })
}

/// `/image_buffer/start.cbor`: the start message of DECTRIS Stream V2 of the run of the newest image.
pub async fn start(State(port): State<Arc<Port>>, Query(NoQuery {}): Query<NoQuery>) -> Result<Response, Problem> {
    let Some(found) = port.detector.images().get(None, Instant::now()) else {
        return Err(Problem::new("no_image", "there is no image yet", "ask again when a run has images"));
    };
    let message = start_message(&found).map_err(|why| {
        Problem::new("bad_image", format!("the start does not fit Stream V2: {why}"), "the file of the run has the same facts")
    })?;
    Ok(([(header::CONTENT_TYPE, "application/cbor")], message).into_response())
}

/// What was announced, completed by what the configuration and the newest image say.
fn start_message(found: &RingImage) -> Result<Vec<u8>, String> {
    let mut start = (**found.planes.start()).clone();
    start.facts = found.facts().clone();
    if let Some(array) = found.planes.image().channels.first().map(|channel| &channel.array) {
        start.element.get_or_insert(array.element);
        if let [.., rows, columns] = array.shape.dimensions() {
            start.image_size.get_or_insert([*rows, *columns]);
        }
    }
    encode::start(&start)
}

/// `/config/mask`: the mask of the newest run, 4 bytes for each pixel, row by row, with the bits of NXmx.
pub async fn mask(State(port): State<Arc<Port>>, Query(NoQuery {}): Query<NoQuery>) -> Result<Response, Problem> {
    let turn = turns::turn(&port.shared.decoders, 1).await?;
    let detector = Arc::clone(&port.detector);
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let bits = detector.shapes().mask(newest_size(&*detector))?;
        Some(bits.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
    });
    let made = made.await.map_err(|_| Problem::bug("the service made a mistake with the mask"))?;
    let bytes = made.ok_or_else(|| {
        Problem::new("no_result", "the mask is not known before the first run", "ask again when a run was armed")
    })?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}
