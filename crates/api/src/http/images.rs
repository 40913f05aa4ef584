//! The last images, in the formats that people and programs read.

use super::extract::{DetectorQuery, Query, Segment};
use super::problem::Problem;
use super::render::{self, Format, Rendered, Selection};
use super::state::Shared;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use konkordia_acquire::handle::{Detector, ImageRing, RingImage};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::{IntoParams, ToSchema};

/// Longest time that a request waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// Bytes handed to the connection at once.
const PIECE_BYTES: usize = 1 << 20;

/// Images that are there.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Numbers {
    /// Detector.
    pub detector: String,
    /// Run that they are of.
    pub run: u64,
    /// Numbers, oldest first.
    pub images: Vec<u64>,
}

/// Numbers of the images that can be had.
#[utoipa::path(get, path = "/api/v1/images", tag = "data", params(DetectorQuery), responses((status = 200, description = "Of the last images", body = Numbers, example = json!({"detector": "eiger", "run": 3, "images": [30509, 30510, 30511]}))))]
pub async fn numbers(State(shared): State<Arc<Shared>>, Query(query): Query<DetectorQuery>) -> Result<Json<Numbers>, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    let (images, run) = detector.images().numbers();
    let run = run.unwrap_or_else(|| detector.status().run);
    Ok(Json(Numbers { detector: detector.name().into(), run, images }))
}

/// Which image, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ImageQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// How it is to come; `png` if left out.
    #[param(inline, example = "png")]
    format: Option<Format>,
    /// Name or number (from 0) of the channel; default: the first. `cbor` and `json` have all unless one is named.
    #[param(example = "0")]
    channel: Option<String>,
    /// Longest side of a PNG in pixels.
    #[param(minimum = 16, maximum = 8192, default = 1024, example = 1024)]
    max_size: Option<u32>,
}

/// One image. `npy` and `tiff`: its numbers in their own type. `png`: a picture with a logarithmic scale (grey: no
/// number). `cbor`: the image message of DECTRIS Stream V2. `raw`: the bytes that a file would hold. `json`: what is
/// known of it, without pixels.
#[utoipa::path(get, path = "/api/v1/images/{image}", tag = "data",
    params(("image" = String, Path, description = "`latest`, or the number of the image", pattern = "^(latest|[0-9]{1,18})$", example = "latest"), ImageQuery),
    responses((status = 200, description = "The image", content(
        (Vec<u8> = "image/png"), (Vec<u8> = "image/tiff"), (Vec<u8> = "application/x-npy"), (Vec<u8> = "application/cbor"), (Vec<u8> = "application/octet-stream"),
        (ImageHeader = "application/json")),
        headers(("X-Konkordia-Image" = u64, description = "Its number"), ("X-Konkordia-Age-Ms" = u64, description = "Milliseconds since it came into the ring"),
            ("X-Konkordia-Run" = u64, description = "The run that the image is of"), ("X-Konkordia-Shape" = String, description = "`raw`: dimensions, slowest first, with commas"),
            ("X-Konkordia-Dtype" = String, description = "`raw`: type of a pixel as numpy writes it"),
            ("X-Konkordia-Compression" = String, description = "`raw`: none, lz4-block, lz4, bslz4, bszstd, zstd or gzip"),
            ("X-Konkordia-Piece-Bytes" = String, description = "`raw`: lengths of the pieces, each packed by itself, if there are several")))))]
pub async fn image(
    State(shared): State<Arc<Shared>>,
    Segment(which): Segment,
    Query(query): Query<ImageQuery>,
) -> Result<Response, Problem> {
    let number = match which.as_str() {
        "latest" => None,
        text => Some(text.parse::<u64>().map_err(|_| {
            Problem::new("bad_path", format!("{text:?} is no number of an image"), "ask for a number or for `latest`")
        })?),
    };
    let size = query.max_size.unwrap_or(1024);
    if !(16..=8192).contains(&size) {
        return Err(Problem::new("bad_query", format!("max_size: {size} is not between 16 and 8192"), ""));
    }
    let detector = shared.detector(query.detector.as_deref())?;
    let (ring, asked, format) = (detector.images(), Instant::now(), query.format.unwrap_or(Format::Png));
    // The newest image is chosen when it is the turn of this request: who waits then shares what another one unpacks.
    let chosen = if number.is_some() || format == Format::Json {
        Some(ring.get(number, asked).ok_or_else(|| none(&*detector, number))?)
    } else {
        None
    };
    if let (Some(found), Format::Json) = (&chosen, format) {
        let facts = ImageHeader::new(&*detector, found, &*ring);
        let body = serde_json::to_vec(&facts).map_err(|_| Problem::bug("the facts of the image are no JSON"))?;
        return respond(&facts, Rendered::new("application/json", body), None);
    }
    let bytes = match &chosen {
        Some(found) => (found.planes.image().packed_bytes(), found.planes.image().unpacked_bytes()),
        None => ring.newest_bytes().ok_or_else(|| none(&*detector, number))?,
    };
    let memory = memory(&shared, bytes).await?;
    let turn = turn(&shared.decoders, 1).await?;
    let selection = Selection { format, channel: query.channel, size };
    let rendered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let found = chosen.or_else(|| ring.get(number, asked)).ok_or_else(|| none(&*detector, number))?;
        if found.planes.image().unpacked_bytes() > bytes.1 {
            return Err(Problem::new("busy", "the images have just become larger", "ask again").retry_after(1));
        }
        let facts = ImageHeader::new(&*detector, &found, &*ring);
        render::render(&found.planes, &selection).map(|rendered| (facts, rendered))
    });
    let (facts, rendered) = rendered.await.map_err(|_| Problem::bug("the service made a mistake with this image"))??;
    respond(&facts, rendered, Some(memory))
}

/// Says that an image is not there.
pub fn none(detector: &dyn Detector, number: Option<u64>) -> Problem {
    let (numbers, _) = detector.images().numbers();
    let detail = match (numbers.first(), numbers.last(), number) {
        (Some(first), Some(last), Some(number)) => format!("image {number} is not there; the last images are {first} to {last}"),
        (_, _, Some(number)) => format!("image {number} is not there; there is none yet"),
        _ => "there is no image yet".into(),
    };
    Problem::new("no_image", detail, "GET /api/v1/images lists the numbers of those that are there")
}

/// What is known of an image, without its pixels.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageHeader {
    /// Detector.
    pub detector: String,
    /// The run that the image is of; while a new run has no image yet, an earlier one.
    pub run: u64,
    /// Number, from 0.
    pub image: u64,
    /// `complete`, `partial`, `lost` or `discarded`.
    pub status: String,
    /// Milliseconds since it came into the ring.
    pub age_ms: Option<u64>,
    /// Parts that are missing, one bit for each upstream or UDP port, at most 128.
    pub missing_parts: u128,
    /// False if the sender wanted it passed on, but not stored.
    pub store: bool,
    /// Its channels.
    pub channels: Vec<ChannelHeader>,
    /// Beginning of the exposure in ns since the start of the series, by the clock of the detector.
    pub start_ns: Option<u64>,
    /// Its end.
    pub stop_ns: Option<u64>,
    /// Length of the exposure in ns.
    pub real_ns: Option<u64>,
    /// What else the sender says of it.
    #[schema(value_type = Object)]
    pub header: serde_json::Value,
    /// What was computed from its pixels, by name; empty if nothing was.
    #[schema(value_type = Object, example = json!({"valid_pixels": 524000, "missing_pixels": 0, "saturated_pixels": 3, "min_value": -2, "max_value": 8190, "sum_value": 1234567}))]
    pub results: serde_json::Map<String, serde_json::Value>,
}

/// One channel of an image.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ChannelHeader {
    /// Its name; empty if it has none.
    pub name: String,
    /// Dimensions, slowest first.
    pub shape: Vec<u64>,
    /// Type of a pixel as numpy writes it.
    pub dtype: String,
    /// `none`, `lz4-block`, `lz4`, `bslz4`, `bszstd`, `zstd` or `gzip`.
    pub compression: String,
    /// Bytes as they are packed.
    pub packed_bytes: u64,
}

impl ImageHeader {
    fn new(detector: &dyn Detector, found: &RingImage, ring: &dyn ImageRing) -> Self {
        let image = found.planes.image();
        let channels = image.channels.iter().map(|channel| ChannelHeader {
            name: channel.name.to_string(),
            shape: channel.array.shape.dimensions().to_vec(),
            dtype: channel.array.element.name().into(),
            compression: channel.array.packing.name().into(),
            packed_bytes: channel.array.packed_bytes(),
        });
        Self {
            detector: detector.name().into(),
            run: found.run.unwrap_or_else(|| detector.status().run),
            image: image.number,
            status: format!("{:?}", image.status).to_lowercase(),
            age_ms: ring.age(image.number).map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            missing_parts: image.packets.as_ref().map_or(image.missing_parts.into(), |packets| packets.missing_tiles()),
            store: image.store,
            channels: channels.collect(),
            start_ns: image.times.map(|times| times.start_ns),
            stop_ns: image.times.map(|times| times.stop_ns),
            real_ns: image.times.map(|times| times.real_ns),
            header: serde_json::from_slice(&image.header_json).unwrap_or(json!({})),
            results: image.results.to_json(),
        }
    }
}

/// Waits until there is memory for the pixels of an image and for what is made of them: twice the sum of its packed and
/// its unpacked bytes.
///
/// # Errors
/// If there never is, or not soon.
pub async fn memory(shared: &Shared, (packed, unpacked): (u64, u64)) -> Result<OwnedSemaphorePermit, Problem> {
    let mib = (unpacked.saturating_add(packed) >> 19) + 1;
    let all = shared.settings.limits.image_memory_mib;
    let mib = u32::try_from(mib).ok().filter(|mib| *mib <= all).ok_or_else(|| {
        let detail = format!("giving this image takes {mib} MiB of memory, {all} MiB are allowed for all images together");
        Problem::new("bad_image", detail, "read the file instead")
    })?;
    turn(&shared.image_mib, mib).await
}

/// Waits for a permit.
///
/// # Errors
/// If it does not come soon.
pub async fn turn(semaphore: &Arc<Semaphore>, many: u32) -> Result<OwnedSemaphorePermit, Problem> {
    let waited = tokio::time::timeout(TURN, Arc::clone(semaphore).acquire_many_owned(many)).await;
    let busy =
        || Problem::new("busy", "too many images are asked for at once", "ask for fewer, or for smaller ones").retry_after(1);
    waited.map_err(|_| busy())?.map_err(|_| busy())
}

/// The answer. `memory` is given back when the last byte was sent or the client has disconnected.
fn respond(facts: &ImageHeader, rendered: Rendered, memory: Option<OwnedSemaphorePermit>) -> Result<Response, Problem> {
    let mut builder = Response::builder()
        .header(header::CONTENT_TYPE, rendered.media_type)
        .header(header::CONTENT_LENGTH, rendered.bytes.len())
        .header("x-konkordia-image", facts.image)
        .header("x-konkordia-run", facts.run);
    if let Some(age_ms) = facts.age_ms {
        builder = builder.header("x-konkordia-age-ms", age_ms);
    }
    if let Some(ending) = rendered.ending {
        let name = format!("inline; filename=\"image_{}.{ending}\"", facts.image);
        builder = builder.header(header::CONTENT_DISPOSITION, name);
    }
    for (name, value) in rendered.headers {
        let value = HeaderValue::from_str(&value).map_err(|_| Problem::bug("a header of the image has odd characters"))?;
        builder = builder.header(HeaderName::from_static(name), value);
    }
    let pieces = Pieces { rest: rendered.bytes, _memory: memory };
    builder.body(Body::from_stream(pieces)).map_err(|_| Problem::bug("the headers of the image do not fit"))
}

/// The bytes of an answer, one piece at a time, with the memory that is reserved for them.
struct Pieces {
    rest: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

impl tokio_stream::Stream for Pieces {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<Self::Item>> {
        let count = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(count);
        std::task::Poll::Ready((count > 0).then_some(Ok(piece)))
    }
}
