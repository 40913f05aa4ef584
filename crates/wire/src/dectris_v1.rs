//! DECTRIS Stream V1 ("legacy"): multipart messages of JSON and bytes over ZeroMQ PUSH, port 9999. Source: a capture of
//! an EIGER 1M, ADEiger and odin (docs/protocols.md 3.1).
//!
//! Facts relied on: the first part names the kind (`htype`). A header has 1, 2 or 8 parts, depending on
//! `header_detail`, an image has 4, an end 1. A header and an image may have one more part, the appendix, which is any
//! text. Shapes are \[fast, slow\]. The encoding is `[bsN][[-]lz4]` and `<` for little-endian; with `bsN` the bytes are
//! those of HDF5's filter 32008, without it `lz4` is one bare block. `hash` is the MD5 of part 2. `frame` counts from 0
//! in the series, through all triggers. Unknown keys are skipped.

use crate::message::{DecoderSetup, Event, ImagePart, MessageDecoder, Read, SeriesKey, shared, slices, unnumbered};
use crate::shared::tables::{table, table_warning};
use crate::shared::{facts, maxiv};
use crate::stream::{Bounds, Element, Packing, Pixels, Refusal, Shape, json, part_count, quoted, text};
use bytes::Bytes;
use konkordia_core::experiment::Metadata;
use konkordia_core::image::{Channel, ImageTimes};
use konkordia_core::ports;
use konkordia_core::series::{ChannelStart, SeriesStart};
use md5::{Digest, Md5};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Values of `htype`.
mod htype {
    pub const HEADER: &str = "dheader-1.0";
    pub const FLAT_FIELD: &str = "dflatfield-1.0";
    /// What the EIGER simulator of tickit-devices writes instead.
    pub const FLAT_FIELD_OF_SIMULATOR: &str = "flatfield-1.0";
    pub const PIXEL_MASK: &str = "dpixelmask-1.0";
    pub const COUNT_RATE: &str = "dcountrate_table-1.0";
    pub const IMAGE: &str = "dimage-1.0";
    pub const IMAGE_DATA: &str = "dimage_d-1.0";
    pub const IMAGE_TIMES: &str = "dconfig-1.0";
    pub const SERIES_END: &str = "dseries_end-1.0";
}

/// Parts of the messages, without appendix, from 0.
mod part {
    pub const KIND: usize = 0;
    pub const CONFIG: usize = 1;
    pub const FLAT_FIELD: usize = 2;
    pub const FLAT_FIELD_BYTES: usize = 3;
    pub const PIXEL_MASK: usize = 4;
    pub const PIXEL_MASK_BYTES: usize = 5;
    pub const COUNT_RATE: usize = 6;
    pub const IMAGE_DATA: usize = 1;
    pub const IMAGE_BYTES: usize = 2;
    pub const IMAGE_TIMES: usize = 3;
    pub const IMAGE_APPENDIX: usize = 4;
}

/// One checked message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// A series begins.
    Header(Header<'a>),
    /// One image of it.
    Image(Image<'a>),
    /// It has ended.
    SeriesEnd {
        /// Number of the series.
        series: u64,
    },
}

/// What the detector says at the beginning of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Header<'a> {
    /// Number of the series.
    pub series: u64,
    /// As many details as the detector is set to send.
    pub detail: Detail<'a>,
    /// Text of the user, often JSON.
    pub appendix: Option<&'a [u8]>,
}

/// The setting `header_detail`.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail<'a> {
    /// Nothing.
    None,
    /// The configuration of the detector, named as in its REST interface.
    Basic(Map<String, Value>),
    /// Also its tables.
    All(Map<String, Value>, Box<Tables<'a>>),
}

/// The tables of a header, none of them packed. Images can be received without them, so a table that cannot be read is
/// `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables<'a> {
    /// Factor of each pixel, float32, rows x columns.
    pub flat_field: Option<Pixels<'a>>,
    /// Why a pixel is not usable, uint32, rows x columns; 0 = the pixel is good.
    pub pixel_mask: Option<Pixels<'a>>,
    /// Measured and true count rate, float32, n x 2.
    pub count_rate: Option<Pixels<'a>>,
    /// Tables that cannot be read, by the names of their kinds, and why, as a text for the user.
    pub not_read: Vec<(&'static str, String)>,
}

/// One image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Image<'a> {
    /// Number of the series.
    pub series: u64,
    /// Number of the image in the series, from 0.
    pub frame: u64,
    /// The pixels, rows x columns, as they came.
    pub pixels: Pixels<'a>,
    /// When it was exposed.
    pub times: Times,
    /// Text of the user.
    pub appendix: Option<&'a [u8]>,
}

/// Times of an image by the detector's clock, since it was armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Length of the exposure.
    pub real_ns: u64,
    /// Its beginning.
    pub start_ns: u64,
    /// Its end.
    pub stop_ns: u64,
}

#[derive(Deserialize)]
struct First<'a> {
    #[serde(borrow)]
    htype: Cow<'a, str>,
    series: u64,
    header_detail: Option<Cow<'a, str>>,
    frame: Option<u64>,
}

#[derive(Deserialize)]
struct Described<'a> {
    #[serde(borrow)]
    htype: Cow<'a, str>,
    shape: Shape,
    #[serde(borrow, rename = "type")]
    element: Cow<'a, str>,
    encoding: Option<Cow<'a, str>>,
    size: Option<u64>,
}

#[derive(Deserialize)]
struct Timed<'a> {
    #[serde(borrow)]
    htype: Cow<'a, str>,
    real_time: u64,
    start_time: u64,
    stop_time: u64,
}

impl<'a> Message<'a> {
    /// Checks the parts of one message.
    ///
    /// # Errors
    /// The part that is wrong, and what is wrong with it: kind, number of parts, keys, sizes that disagree, sizes
    /// beyond `bounds`.
    pub fn parse(parts: &[&'a [u8]], bounds: &Bounds) -> Result<Self, Refusal> {
        let first: First = json(parts, part::KIND, bounds)?;
        match &*first.htype {
            htype::IMAGE => {
                let frame = first.frame.ok_or_else(|| Refusal::new(part::KIND, "it has no number 'frame'"))?;
                Ok(Self::Image(Image::parse(parts, bounds, first.series, frame)?))
            }
            htype::HEADER => Ok(Self::Header(Header::parse(parts, bounds, &first)?)),
            htype::SERIES_END => {
                part_count(parts, 1, 1, "the end of a series")?;
                Ok(Self::SeriesEnd { series: first.series })
            }
            other => Err(Refusal::new(
                part::KIND,
                format!(
                    "its 'htype' is {}; {}, {} and {} are known",
                    quoted(other),
                    htype::HEADER,
                    htype::IMAGE,
                    htype::SERIES_END
                ),
            )),
        }
    }

    /// Number of the series.
    pub fn series(&self) -> u64 {
        match self {
            Self::Header(header) => header.series,
            Self::Image(image) => image.series,
            Self::SeriesEnd { series } => *series,
        }
    }

    /// The parts of this message, as a detector sends them.
    ///
    /// # Errors
    /// A packing or a type of pixels that this format has no name for.
    pub fn build(&self) -> Result<Vec<Cow<'a, [u8]>>, Refusal> {
        match self {
            Self::Header(header) => Ok(header.build()),
            Self::Image(image) => image.build(),
            Self::SeriesEnd { series } => Ok(vec![words(format!(r#"{{"htype":"{}","series":{series}}}"#, htype::SERIES_END))]),
        }
    }
}

impl<'a> Header<'a> {
    fn parse(parts: &[&'a [u8]], bounds: &Bounds, first: &First) -> Result<Self, Refusal> {
        let said = first.header_detail.as_deref().ok_or_else(|| Refusal::new(part::KIND, "it has no text 'header_detail'"))?;
        let without_appendix = match said {
            "none" => 1,
            "basic" => 2,
            "all" => 8,
            _ => {
                return Err(Refusal::new(part::KIND, format!("its 'header_detail' is {}, not none, basic or all", quoted(said))));
            }
        };
        part_count(parts, without_appendix, without_appendix + 1, &format!("a header of detail '{said}'"))?;
        let detail = match said {
            "none" => Detail::None,
            "basic" => Detail::Basic(json(parts, part::CONFIG, bounds)?),
            _ => Detail::All(json(parts, part::CONFIG, bounds)?, Box::new(Tables::parse(parts, bounds))),
        };
        let appendix = parts.get(without_appendix).map(|_| text(parts, without_appendix, bounds)).transpose()?;
        Ok(Self { series: first.series, detail, appendix })
    }

    /// The configuration that the detector sent, if it did.
    pub fn config(&self) -> Option<&Map<String, Value>> {
        match &self.detail {
            Detail::None => None,
            Detail::Basic(config) | Detail::All(config, _) => Some(config),
        }
    }

    /// Its tables, if it sent them.
    pub fn tables(&self) -> Option<&Tables<'a>> {
        match &self.detail {
            Detail::All(_, tables) => Some(tables),
            _ => None,
        }
    }

    fn build(&self) -> Vec<Cow<'a, [u8]>> {
        let name = match &self.detail {
            Detail::None => "none",
            Detail::Basic(_) => "basic",
            Detail::All(..) => "all",
        };
        let first = format!(r#"{{"header_detail":"{name}","htype":"{}","series":{}}}"#, htype::HEADER, self.series);
        let mut parts = vec![words(first)];
        // Any map of JSON values can be written as JSON.
        parts.extend(self.config().map(|config| words(serde_json::to_string(config).unwrap_or_default())));
        if let Some(tables) = self.tables() {
            let kinds = [
                (htype::FLAT_FIELD, &tables.flat_field),
                (htype::PIXEL_MASK, &tables.pixel_mask),
                (htype::COUNT_RATE, &tables.count_rate),
            ];
            for (kind, table) in kinds {
                let Some(table) = table else {
                    parts.push(words(format!(r#"{{"htype":"{kind}","shape":[0,0],"type":"float32"}}"#)));
                    parts.push(Cow::Borrowed(&[]));
                    continue;
                };
                let (shape, element) = (shape_text(table), table.element().name());
                parts.push(words(format!(r#"{{"htype":"{kind}","shape":{shape},"type":"{element}"}}"#)));
                parts.push(Cow::Borrowed(table.data()));
            }
        }
        parts.extend(self.appendix.map(Cow::Borrowed));
        parts
    }
}

impl<'a> Tables<'a> {
    fn parse(parts: &[&'a [u8]], bounds: &Bounds) -> Self {
        let read = |at: usize, kind: &str| {
            let described: Described = json(parts, at, bounds)?;
            if (at, described.htype.as_ref()) != (part::FLAT_FIELD, htype::FLAT_FIELD_OF_SIMULATOR) {
                expect_kind(at, &described.htype, kind)?;
            }
            let element = element(at, &described.element)?;
            Pixels::new_checked(described.shape.reversed(), element, Packing::None, parts[at + 1], bounds.table_bytes_max)
                .map_err(|why| Refusal::new(at + 1, why))
        };
        let mut not_read = Vec::new();
        let mut table =
            |at: usize, kind: &'static str| read(at, kind).map_err(|refusal| not_read.push((kind, refusal.to_string()))).ok();
        Self {
            flat_field: table(part::FLAT_FIELD, htype::FLAT_FIELD),
            pixel_mask: table(part::PIXEL_MASK, htype::PIXEL_MASK),
            count_rate: table(part::COUNT_RATE, htype::COUNT_RATE),
            not_read,
        }
    }
}

impl<'a> Image<'a> {
    fn parse(parts: &[&'a [u8]], bounds: &Bounds, series: u64, frame: u64) -> Result<Self, Refusal> {
        part_count(parts, part::IMAGE_APPENDIX, part::IMAGE_APPENDIX + 1, "an image")?;
        let at = part::IMAGE_DATA;
        let described: Described = json(parts, at, bounds)?;
        expect_kind(at, &described.htype, htype::IMAGE_DATA)?;
        let element = element(at, &described.element)?;
        let encoding = described.encoding.ok_or_else(|| Refusal::new(at, "it has no text 'encoding'"))?;
        let packing = packing(&encoding, element).map_err(|why| Refusal::new(at, why))?;
        let data = parts[part::IMAGE_BYTES];
        if described.size != Some(data.len() as u64) {
            let said = described.size.map_or("no 'size'".into(), |size| format!("'size' {size}"));
            return Err(Refusal::new(at, format!("it announces {said}, but {} bytes follow", data.len())));
        }
        let pixels = Pixels::new_checked(described.shape.reversed(), element, packing, data, bounds.image_bytes_max);
        let timed: Timed = json(parts, part::IMAGE_TIMES, bounds)?;
        expect_kind(part::IMAGE_TIMES, &timed.htype, htype::IMAGE_TIMES)?;
        let times = Times { real_ns: timed.real_time, start_ns: timed.start_time, stop_ns: timed.stop_time };
        let appendix = parts.get(part::IMAGE_APPENDIX).map(|_| text(parts, part::IMAGE_APPENDIX, bounds)).transpose()?;
        let pixels = pixels.map_err(|why| Refusal::new(part::IMAGE_BYTES, why))?;
        Ok(Self { series, frame, pixels, times, appendix })
    }

    fn build(&self) -> Result<Vec<Cow<'a, [u8]>>, Refusal> {
        let (pixels, times) = (&self.pixels, &self.times);
        let encoding = match (pixels.packing(), pixels.element()) {
            (_, Element::Packed(_))
            | (Packing::Lz4 | Packing::BitshuffleZstd | Packing::Zstd | Packing::Gzip | Packing::Sz3 | Packing::Other, _) => {
                let is = format!("this format cannot carry {} with packing {:?}", pixels.element().name(), pixels.packing());
                return Err(Refusal::new(part::IMAGE_BYTES, is));
            }
            (Packing::None, _) => "<".to_owned(),
            (Packing::Lz4Block, _) => "lz4<".to_owned(),
            (Packing::BitshuffleLz4, element) => format!("bs{}-lz4<", element.bits()),
        };
        let described = format!(
            r#"{{"encoding":"{encoding}","htype":"{}","shape":{},"size":{},"type":"{}"}}"#,
            htype::IMAGE_DATA,
            shape_text(pixels),
            pixels.data().len(),
            pixels.element().name()
        );
        let hash: String = Md5::digest(described.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let first = format!(r#"{{"frame":{},"hash":"{hash}","htype":"{}","series":{}}}"#, self.frame, htype::IMAGE, self.series);
        let timed = format!(
            r#"{{"htype":"{}","real_time":{},"start_time":{},"stop_time":{}}}"#,
            htype::IMAGE_TIMES,
            times.real_ns,
            times.start_ns,
            times.stop_ns
        );
        let mut parts = vec![words(first), words(described), Cow::Borrowed(pixels.data()), words(timed)];
        parts.extend(self.appendix.map(Cow::Borrowed));
        Ok(parts)
    }
}

fn words(text: String) -> Cow<'static, [u8]> {
    Cow::Owned(text.into_bytes())
}

/// The shape as this format writes it, fastest first.
fn shape_text(pixels: &Pixels) -> String {
    format!("{:?}", pixels.shape().reversed().dimensions()).replace(' ', "")
}

fn expect_kind(part: usize, said: &str, wanted: &str) -> Result<(), Refusal> {
    if said == wanted {
        return Ok(());
    }
    Err(Refusal::new(part, format!("its 'htype' is {}, not '{wanted}'", quoted(said))))
}

fn element(part: usize, name: &str) -> Result<Element, Refusal> {
    let known = Element::from_name(name).filter(|element| !element.is_packed());
    known.ok_or_else(|| Refusal::new(part, format!("its 'type' {} is not a pixel type", quoted(name))))
}

fn packing(encoding: &str, element: Element) -> Result<Packing, String> {
    let said = quoted(encoding);
    if encoding.ends_with('>') {
        return Err(format!("its 'encoding' is {said}: big-endian pixels are not supported"));
    }
    let unknown = || format!("its 'encoding' is {said}; '<', 'lz4<' and 'bs8-lz4<' to 'bs64-lz4<' are known");
    let name = encoding.strip_suffix('<').ok_or_else(unknown)?;
    match name.strip_prefix("bs") {
        None if name.is_empty() => Ok(Packing::None),
        None if name == "lz4" => Ok(Packing::Lz4Block),
        None => Err(unknown()),
        Some(rest) => {
            let bits = rest.strip_suffix("lz4").map(|bits| bits.strip_suffix('-').unwrap_or(bits)).ok_or_else(unknown)?;
            if bits.parse() != Ok(element.bits()) {
                return Err(format!("its 'encoding' is {said}, but its type is {}", element.name()));
            }
            Ok(Packing::BitshuffleLz4)
        }
    }
}

/// The decoder. An image has one channel without a name, for which the tables of the header hold.
pub struct Decoder {
    bounds: Bounds,
    is_maxiv: bool,
    no_name: Arc<str>,
}

impl Decoder {
    /// A decoder of one upstream.
    pub fn new(DecoderSetup { bounds, options, .. }: DecoderSetup) -> Self {
        Self { bounds, is_maxiv: options.is_maxiv, no_name: "".into() }
    }

    fn part(&self, message: &ports::Message, image: &Image) -> ImagePart {
        let array = shared(&message.parts[part::IMAGE_BYTES], &image.pixels);
        let times = &image.times;
        ImagePart {
            series: SeriesKey(image.series),
            number: image.frame,
            channels: vec![Channel { name: Arc::clone(&self.no_name), array }],
            store: true,
            is_partial: false,
            times: Some(ImageTimes { start_ns: times.start_ns, stop_ns: times.stop_ns, real_ns: times.real_ns }),
            header_json: message.parts.get(part::IMAGE_APPENDIX).map(object).unwrap_or_default(),
            start: None,
        }
    }
}

impl MessageDecoder for Decoder {
    fn read(&mut self, message: &ports::Message) -> Result<Read, Refusal> {
        let read = Message::parse(&slices(message), &self.bounds)?;
        let key = SeriesKey(read.series());
        Ok(unnumbered(match read {
            Message::Header(header) => Event::Start(key, Box::new(start(message, &header, &self.bounds, self.is_maxiv))),
            Message::Image(image) => Event::Part(Box::new(self.part(message, &image))),
            Message::SeriesEnd { .. } => Event::End(key),
        }))
    }
}

/// The appendix of an image as a JSON object: itself, if it is one.
fn object(appendix: &Bytes) -> Bytes {
    if appendix.is_empty() || serde_json::from_slice::<Map<String, Value>>(appendix).is_ok() {
        return appendix.clone();
    }
    let said = serde_json::from_slice(appendix).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(appendix)));
    json!({ "image_appendix": said }).to_string().into()
}

fn start(message: &ports::Message, header: &Header, bounds: &Bounds, is_maxiv: bool) -> SeriesStart {
    let mut metadata = header.config().cloned().unwrap_or_default();
    let mut warnings = Vec::new();
    let mut channel =
        ChannelStart { threshold_energy_ev: facts::positive(&metadata, "threshold_energy"), ..ChannelStart::default() };
    let mut facts = facts_of(&metadata);
    let whole = |key: &str| metadata.get(key).and_then(Value::as_u64);
    let images_planned = whole("nimages").map(|images| images.saturating_mul(whole("ntrigger").unwrap_or(1)));
    let image_size = whole("y_pixels_in_detector").zip(whole("x_pixels_in_detector")).map(|(rows, columns)| [rows, columns]);
    let element = whole("bit_depth_image").and_then(facts::counts);
    if let Some(tables) = header.tables() {
        if !tables.not_read.is_empty() {
            metadata.insert("tables_not_read".into(), tables.not_read.iter().map(|(kind, _)| Value::from(*kind)).collect());
        }
        warnings.extend(tables.not_read.iter().map(|(kind, why)| table_warning(kind, why)));
        let mut shared = |at: usize, pixels: &Option<Pixels>, wanted, kind: &str| {
            let read = pixels.as_ref().map(|pixels| table(&message.parts[at], pixels, wanted))?;
            read.map_err(|why| warnings.push(table_warning(kind, &why))).ok()
        };
        channel.flat_field = shared(part::FLAT_FIELD_BYTES, &tables.flat_field, Element::Float32, "flat field");
        channel.pixel_mask = shared(part::PIXEL_MASK_BYTES, &tables.pixel_mask, Element::Uint32, "pixel mask");
        match tables.count_rate.as_ref().map(|table| list(table, bounds)) {
            Some(Ok(list)) => {
                metadata.insert("countrate_correction_table".into(), list);
            }
            Some(Err(why)) => warnings.push(table_warning("count rate", &why)),
            None => {}
        }
    }
    let appendix = header.appendix.map(|appendix| facts::user_value(Value::from(String::from_utf8_lossy(appendix))));
    let filename = appendix.as_ref().and_then(facts::filename);
    if let Some(said) = &appendix {
        if let Some(user) = said.as_object() {
            facts::enter(user, &mut facts);
        }
        metadata.insert("header_appendix".into(), said.clone());
    }
    let mut start = SeriesStart {
        series: header.series,
        filename,
        images_planned,
        image_size,
        element,
        channels: vec![channel],
        facts,
        metadata,
        warnings,
        store: true,
        ..SeriesStart::default()
    };
    if is_maxiv {
        maxiv::of_v1(&mut start, appendix.as_ref());
    }
    start
}

/// What a configuration of Stream V1 says of the measurement.
pub(crate) fn facts_of(config: &Map<String, Value>) -> Metadata {
    let positive = |key: &str| facts::positive(config, key);
    let whole = |key: &str| config.get(key).and_then(Value::as_u64);
    let mut facts = Metadata {
        energy_kev: positive("photon_energy")
            .map(|ev| ev / 1000.0)
            .or_else(|| positive("wavelength").and_then(facts::energy_kev)),
        detector_distance_m: positive("detector_distance"),
        beam_center_x_px: facts::number(config, "beam_center_x"),
        beam_center_y_px: facts::number(config, "beam_center_y"),
        pixel_size_m: positive("x_pixel_size").zip(positive("y_pixel_size")).map(|(x, y)| [x, y]),
        sensor_material: facts::text(config, "sensor_material"),
        sensor_thickness_m: positive("sensor_thickness"),
        frame_time_s: positive("frame_time"),
        count_time_s: positive("count_time"),
        bit_depth: whole("bit_depth_readout").and_then(|bits| u32::try_from(bits).ok()),
        underload_value: None,
        saturation_value: whole("countrate_correction_count_cutoff"),
        detector_description: facts::text(config, "description"),
        detector_serial: facts::text(config, "detector_number"),
        start_time: facts::text(config, "data_collection_date"),
        ..Metadata::default()
    };
    facts::enter(config, &mut facts);
    facts
}

/// A table of float32 in rows as JSON, or why it cannot be kept.
fn list(table: &Pixels, bounds: &Bounds) -> Result<Value, String> {
    let (element, bytes, bytes_max) = (table.element(), table.data().len(), bounds.text_bytes_max);
    if element != Element::Float32 {
        return Err(format!("a table of {} came where float32 is expected", element.name()));
    }
    if bytes > bytes_max {
        return Err(format!("it has {bytes} bytes, and at most {bytes_max} are kept"));
    }
    let columns = table.shape().dimensions().last().map_or(1, |columns| *columns as usize).max(1);
    let numbers: Vec<Value> =
        table.data().as_chunks().0.iter().map(|bytes| Value::from(f64::from(f32::from_le_bytes(*bytes)))).collect();
    Ok(numbers.chunks(columns).map(|row| Value::Array(row.to_vec())).collect())
}
