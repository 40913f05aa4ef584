//! The last images, in the formats that people and programs read.

use super::extract::{DetectorQuery, Query, Segment};
use super::files;
use super::problem::Problem;
use super::render::{self, Format, Rendered, Selection};
use super::stacks::{self, StackName, StackRequest, Stacked};
use super::state::Shared;
use super::turns;
use super::unseen::Seen;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::{Detector, ImageRing, RingImage};
use konkordia_core::image::CommittedImage;
use konkordia_core::results::ResultKind;
use konkordia_core::results::analysis::{IS_ANALYSED, STORED_SPOTS};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{IntoParams, ToSchema};

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
#[derive(Debug, Default, Deserialize, IntoParams)]
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
    /// A finished file, whose images are given instead of the last ones: of `/api/v1/files`, or below the output folder
    /// of the detector, from which relative paths count.
    #[param(example = "lyso/run03_master.h5")]
    file: Option<String>,
    /// Longest side of a PNG in pixels.
    #[param(minimum = 16, maximum = 8192, default = 1024, example = 1024)]
    max_size: Option<u32>,
    /// The sum or the maximum of the image and those before it, pixel by pixel, as `npy`, `tiff` or `png`: whole
    /// numbers of 64 bits, or floats.
    #[param(inline, example = "sum")]
    stack: Option<StackName>,
    /// How many images the stack has, if so many are there.
    #[param(minimum = 2, maximum = 100, example = 10)]
    images: Option<usize>,
    /// With `latest` and `next`: number of the image that was seen last. The answer is one that was not seen.
    #[param(example = 7)]
    after: Option<u64>,
    /// The run that the image seen last is of: any image of another run was not seen.
    #[param(example = 3)]
    run: Option<u64>,
    /// Longest time to wait for an image that was not seen, in seconds; at most 600. The wait ends when the run does.
    #[param(minimum = 0, maximum = 600, default = 0, example = 10)]
    wait_s: Option<f64>,
    /// The header `X-Konkordia-Facts` has, as JSON in ASCII, what `json` has, without lists and what the sender says.
    #[param(default = false, example = true)]
    facts: Option<bool>,
}

/// Which image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Latest,
    Next,
    Number(u64),
}

impl Which {
    fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    fn of(text: &str) -> Result<Self, Problem> {
        let wrong =
            || Problem::new("bad_path", format!("{text:?} is no number of an image"), "ask for a number, `latest` or `next`");
        match text {
            "latest" => Ok(Self::Latest),
            "next" => Ok(Self::Next),
            text => text.parse().map(Self::Number).map_err(|_| wrong()),
        }
    }
}

impl ImageQuery {
    /// What the client has seen, if it asks for an image that it has not.
    fn seen(&self, which: Which) -> Result<Option<Seen>, Problem> {
        let wrong =
            |detail: &str| Problem::new("bad_query", detail, "for example images/next?format=npy&after=7&run=3&wait_s=10");
        let seen = Seen::of(self.after, self.run, self.wait_s)?;
        match (which, &seen) {
            (Which::Number(_), Some(_)) => Err(wrong("after, run, wait_s: they go with `latest` and `next`")),
            (Which::Next, None) => Err(wrong("after: it is not said after which image the next one is")),
            (_, Some(_)) if self.file.is_some() => Err(wrong("after, run, wait_s: nobody waits for images of a finished file")),
            _ => Ok(seen),
        }
    }

    fn format(&self) -> Format {
        self.format.unwrap_or(Format::Png)
    }

    fn size(&self) -> Result<u32, Problem> {
        let size = self.max_size.unwrap_or(1024);
        let wrong = || Problem::new("bad_query", format!("max_size: {size} is not between 16 and 8192"), "");
        if (16..=8192).contains(&size) { Ok(size) } else { Err(wrong()) }
    }

    fn stack(&self) -> Result<Option<StackRequest>, Problem> {
        let wrong = |detail: String| Problem::new("bad_query", detail, "for example stack=sum&images=10&format=npy");
        match (self.stack, self.images) {
            (None, None) => Ok(None),
            (Some(_), _) if !matches!(self.format(), Format::Npy | Format::Tiff | Format::Png) => {
                Err(wrong("stack: it comes as npy, tiff or png".into()))
            }
            (Some(by), Some(images)) => {
                let request = StackRequest { by, images };
                request.mistake().map_or(Ok(Some(request)), |mistake| Err(wrong(format!("images: {mistake}"))))
            }
            (Some(_), None) => Err(wrong("images: it is not said how many images the stack has".into())),
            (None, Some(_)) => Err(wrong("images: without stack it is not said how they are put together".into())),
        }
    }
}

/// One of the last images of a detector; without a number the newest.
///
/// # Errors
/// As of the path `images/{image}`.
pub async fn image_as(shared: &Arc<Shared>, detector: &str, number: Option<u64>, format: Format) -> Result<Response, Problem> {
    let which = number.map_or("latest".into(), |number| number.to_string());
    let query = ImageQuery { detector: Some(detector.into()), format: Some(format), ..ImageQuery::default() };
    image(State(Arc::clone(shared)), Segment(which), Query(query)).await
}

/// One of the last images, or one of a finished file (`file`). `npy` and `tiff`: its numbers in their own type. `png`:
/// a picture with a logarithmic scale (grey: no number). `cbor`: the image message of DECTRIS Stream V2. `raw`: the
/// bytes that a file would hold. `json`: what is known of it, without pixels. With `stack`, a sum or a maximum. With
/// `after`, `latest` is the newest image after that one and `next` the oldest one that is kept; who asks waits for it.
#[utoipa::path(get, path = "/api/v1/images/{image}", tag = "data",
    params(("image" = String, Path, description = "`latest`, `next` (after the one seen last), or the number of the image", pattern = "^(latest|next|[0-9]{1,18})$", example = "latest"), ImageQuery),
    responses((status = 200, description = "The image", content(
        (Vec<u8> = "image/png"), (Vec<u8> = "image/tiff"), (Vec<u8> = "application/x-npy"), (Vec<u8> = "application/cbor"), (Vec<u8> = "application/octet-stream"),
        (ImageHeader = "application/json")),
        headers(("X-Konkordia-Image" = u64, description = "Its number"), ("X-Konkordia-Age-Ms" = u64, description = "Milliseconds since it came into the ring; not of a file"),
            ("X-Konkordia-Run" = u64, description = "The run that the image is of; not of a file"), ("X-Konkordia-Shape" = String, description = "`raw`: dimensions, slowest first, with commas"),
            ("X-Konkordia-Dtype" = String, description = "`raw`: type of a pixel as numpy writes it"),
            ("X-Konkordia-Compression" = String, description = "`raw`: none, lz4-block, lz4, bslz4, bszstd, zstd or gzip"),
            ("X-Konkordia-Piece-Bytes" = String, description = "`raw`: lengths of the pieces, each packed by itself, if there are several"),
            ("X-Konkordia-Stack-Images" = u64, description = "`stack`: images that were put together"),
            ("X-Konkordia-Stack-First" = u64, description = "`stack`: number of the first of them"),
            ("X-Konkordia-Facts" = String, description = "`facts`: what is known of the image"))),
        (status = 204, description = "No image that was not seen came in time, or before the end of the run")))]
pub async fn image(
    State(shared): State<Arc<Shared>>,
    Segment(which): Segment,
    Query(query): Query<ImageQuery>,
) -> Result<Response, Problem> {
    let which = Which::of(&which)?;
    let (size, stack, format, with_facts) = (query.size()?, query.stack()?, query.format(), query.facts == Some(true));
    let seen = query.seen(which)?;
    let detector = shared.detector(query.detector.as_deref())?;
    let Some(which) = chosen(&shared, &detector, which, seen).await else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let (asked, file) = (Instant::now(), query.file);
    let ring = match &file {
        Some(path) => files::open(&shared, &detector, path).await?,
        None => detector.images(),
    };
    let from = Arc::new(Origin { detector, ring, number: which.number(), asked, file });
    // The newest image is chosen when it is the turn of this request: who waits then shares what another one unpacks.
    // Files are read where that may take a while.
    let is_chosen_now = from.file.is_none() && (from.number.is_some() || format == Format::Json || stack.is_some());
    let chosen = match stack {
        _ if is_chosen_now => Some(from.get()?),
        // How much memory a stack takes is known by its image.
        Some(_) => Some(read(&shared, &from).await?),
        None => None,
    };
    if let (Some(found), Format::Json) = (&chosen, format) {
        let facts = from.facts(found);
        let rendered = facts.rendered()?;
        return respond(&facts, (rendered, None), None, with_facts);
    }
    let bytes = match &chosen {
        Some(found) => {
            let image = found.planes.image();
            (image.packed_bytes(), image.unpacked_bytes().saturating_add(stack.map_or(0, |_| stacks::bytes(image))))
        }
        None => from.ring.newest_bytes().ok_or_else(|| from.none())?,
    };
    let memory = turns::memory(&shared, bytes).await?;
    let turn = turns::turn(&shared.decoders, 1).await?;
    let selection = Selection { format, channel: query.channel, size };
    let rendered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let found = chosen.map_or_else(|| from.get(), Ok)?;
        if found.planes.image().unpacked_bytes() > bytes.1 {
            return Err(Problem::new("busy", "the images have just become larger", "ask again").retry_after(1));
        }
        let facts = from.facts(&found);
        let rendered = match stack {
            Some(request) => {
                let (rendered, stacked) = stacks::render(request, &found.planes, &*from.ring, &selection)?;
                (rendered, Some(stacked))
            }
            None if format == Format::Json => (facts.rendered()?, None),
            None => (render::render(&found.planes, &selection)?, None),
        };
        Ok((facts, rendered))
    });
    let (facts, rendered) = rendered.await.map_err(|_| Problem::bug("the service made a mistake with this image"))??;
    respond(&facts, rendered, Some(memory), with_facts)
}

/// Which image is wanted, after a wait for one that was not seen if the client asks for it; `None` if there is none.
async fn chosen(shared: &Shared, detector: &Arc<dyn Detector>, which: Which, seen: Option<Seen>) -> Option<Which> {
    let Some(seen) = seen else { return Some(which) };
    let oldest = seen.wait(shared, detector).await?;
    Some(if which == Which::Next { Which::Number(oldest) } else { Which::Latest })
}

/// The image, read from its file where that may take a while.
async fn read(shared: &Shared, from: &Arc<Origin>) -> Result<RingImage, Problem> {
    let (looking, from) = (turns::turn(&shared.files.looks, 1).await?, Arc::clone(from));
    let found = tokio::task::spawn_blocking(move || {
        let _looking = looking;
        from.get()
    });
    found.await.map_err(|_| Problem::bug("the service made a mistake with this image"))?
}

/// Where an image comes from.
struct Origin {
    detector: Arc<dyn Detector>,
    ring: Arc<dyn ImageRing>,
    number: Option<u64>,
    asked: Instant,
    /// The file whose images those of `ring` are.
    file: Option<String>,
}

impl Origin {
    fn get(&self) -> Result<RingImage, Problem> {
        self.ring.get(self.number, self.asked).ok_or_else(|| self.none())
    }

    fn none(&self) -> Problem {
        match &self.file {
            Some(path) => files::none(&*self.ring, path, self.number),
            None => none(&*self.ring, self.number),
        }
    }

    fn facts(&self, found: &RingImage) -> ImageHeader {
        ImageHeader::new(&*self.detector, found, &*self.ring, self.file.as_deref())
    }
}

/// Says that an image is not there.
pub fn none(images: &dyn ImageRing, number: Option<u64>) -> Problem {
    let (numbers, _) = images.numbers();
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
    /// The run that the image is of; while a new run has no image yet, an earlier one. Null for an image of a file.
    pub run: Option<u64>,
    /// The file that was asked for; absent for one of the last images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
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
    /// When its series was armed or its first image began, ISO 8601; null if that is not known.
    pub series_start: Option<String>,
    /// Photon energy; null if it is not known.
    pub energy_kev: Option<f64>,
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
    /// Why the results do not say which spots the image has; null if they do.
    pub no_spots: Option<String>,
}

/// Why the results of an image do not say which spots it has, in words; `None` if they do.
pub fn no_spots(image: &CommittedImage, ring: &dyn ImageRing) -> Option<String> {
    let result = |kind: ResultKind| image.results.iter().find(|(other, _)| other.name == kind.name).map(|(_, bits)| bits[0]);
    let why = match (result(IS_ANALYSED), result(STORED_SPOTS)) {
        (Some(1), Some(_)) => return None,
        _ if !image.status.has_pixels() => "the image has no pixels",
        (Some(1), None) => "the recipe of the analysis does not look for spots",
        (Some(_), _) => "the image was not analysed",
        (None, _) => ring.no_analysis(),
    };
    Some(why.into())
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
    fn new(detector: &dyn Detector, found: &RingImage, ring: &dyn ImageRing, file: Option<&str>) -> Self {
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
            run: if file.is_none() { found.run.or_else(|| Some(detector.status().run)) } else { None },
            file: file.map(Into::into),
            image: image.number,
            status: format!("{:?}", image.status).to_lowercase(),
            age_ms: ring.age(image.number).map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            missing_parts: image.packets.as_ref().map_or(image.missing_parts.into(), |packets| packets.missing_tiles()),
            store: image.store,
            series_start: found.facts().start_time.clone(),
            energy_kev: found.facts().energy_kev,
            channels: channels.collect(),
            start_ns: image.times.map(|times| times.start_ns),
            stop_ns: image.times.map(|times| times.stop_ns),
            real_ns: image.times.map(|times| times.real_ns),
            header: serde_json::from_slice(&image.header_json).unwrap_or(json!({})),
            results: image.results.to_json(),
            no_spots: no_spots(image, ring),
        }
    }

    fn rendered(&self) -> Result<Rendered, Problem> {
        let body = serde_json::to_vec(self).map_err(|_| Problem::bug("the facts of the image are no JSON"))?;
        Ok(Rendered::new("application/json", body))
    }

    /// As JSON in ASCII for a header of an answer: without what may be long (lists of results, what the sender says).
    fn in_ascii(&self) -> Result<String, Problem> {
        let bug = |_| Problem::bug("the facts of the image are no JSON");
        let mut facts = serde_json::to_value(self).map_err(bug)?;
        facts["header"].take();
        if let Some(results) = facts["results"].as_object_mut() {
            results.retain(|_, value| !value.is_array());
        }
        let text = serde_json::to_string(&facts).map_err(bug)?;
        let mut ascii = String::with_capacity(text.len());
        for character in text.chars() {
            if character.is_ascii() {
                ascii.push(character);
            } else {
                let escaped = character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
                ascii.push_str(&escaped);
            }
        }
        Ok(ascii)
    }
}

/// The answer. `memory` is given back when the last byte was sent or the client has disconnected.
fn respond(
    facts: &ImageHeader,
    (rendered, stacked): (Rendered, Option<Stacked>),
    memory: Option<OwnedSemaphorePermit>,
    with_facts: bool,
) -> Result<Response, Problem> {
    let mut builder = Response::builder()
        .header(header::CONTENT_TYPE, rendered.media_type)
        .header(header::CONTENT_LENGTH, rendered.bytes.len())
        .header("x-konkordia-image", facts.image);
    if let Some(run) = facts.run {
        builder = builder.header("x-konkordia-run", run);
    }
    if let Some(age_ms) = facts.age_ms {
        builder = builder.header("x-konkordia-age-ms", age_ms);
    }
    if let Some(ending) = rendered.ending {
        let name = match &stacked {
            Some(Stacked { by, first, .. }) => format!("{}_of_images_{first}-{}", by.name(), facts.image),
            None => format!("image_{}", facts.image),
        };
        builder = builder.header(header::CONTENT_DISPOSITION, format!("inline; filename=\"{name}.{ending}\""));
    }
    if let Some(Stacked { stack, first, .. }) = &stacked {
        builder = builder.header("x-konkordia-stack-images", stack.images()).header("x-konkordia-stack-first", *first);
    }
    if with_facts {
        builder = builder.header("x-konkordia-facts", facts.in_ascii()?);
    }
    for (name, value) in rendered.headers {
        let value = HeaderValue::from_str(&value).map_err(|_| Problem::bug("a header of the image has odd characters"))?;
        builder = builder.header(HeaderName::from_static(name), value);
    }
    builder.body(in_pieces(rendered.bytes, memory)).map_err(|_| Problem::bug("the headers of the image do not fit"))
}

/// The body of an answer. `memory` is given back when its last byte was sent or the client has disconnected.
pub fn in_pieces(bytes: Bytes, memory: Option<OwnedSemaphorePermit>) -> Body {
    Body::from_stream(Pieces { rest: bytes, _memory: memory })
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
