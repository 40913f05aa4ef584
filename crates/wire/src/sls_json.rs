//! The stream of the slsReceiver: over ZeroMQ PUB, one socket per UDP port, JSON and the pixels of one frame of that
//! port. Source: slsDetectorPackage 9.2, `ZmqSocket` (docs/protocols.md 2); versions 4 and 5 of the JSON.
//!
//! Facts relied on: an image is two parts; the end of an acquisition is the JSON alone with `data` 0 and the rest 0 or
//! empty. `shape` is \[columns, rows\] of the port, `size` the bytes of part 2, which are packed for 4 and 12 bits.
//! `packetNumber` is the number of packets caught; pixels of other packets are 0xFF bytes. `acqIndex` is the frame
//! number, `frameIndex` counts from 0 in the acquisition. `flipRows` says that the reader must still reverse the rows.
//! Releases before 7.0 call detSpec1 to 4 bunchId, reserved, debug and roundRNumber. `addJsonHeader` and `rx_roi` may
//! be absent; the image is whole even if a region of interest is set. Unknown keys are skipped.

use crate::message::{DecoderSetup, Event, ImagePart, MessageDecoder, Read, SeriesKey, slices, unnumbered};
use crate::shared::facts;
use crate::sls_udp::detector_type;
use crate::stream::{Bounds, Refusal, json, part_count};
use crate::unpacker::{ArrayUnpacker, flat};
use bytes::Bytes;
use konkordia_core::array::{Array, Element, PackedBits, Packing, Shape};
use konkordia_core::experiment::Metadata;
use konkordia_core::image::{Channel, CommittedImage, ImageTimes};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::{self, MessageEncoder, Parts, PixelUnpacker};
use konkordia_core::protocol::Protocol;
use konkordia_core::results::ImageResults;
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::DetectorKind;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Versions of the JSON that are understood.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 4..=5;

/// One checked message.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all messages are images, and a box would be an allocation for each")]
pub enum Message<'a> {
    /// The frame of one port.
    Image(Image<'a>),
    /// The acquisition has ended on this port.
    End {
        /// Version of the JSON.
        version: u32,
    },
}

/// The frame of one port: as many bytes as rows, columns and bits ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Image<'a> {
    /// What the receiver says of it.
    pub header: Header<'a>,
    /// The pixels, row by row, little-endian; 4 and 12 bits packed as the detector sends them.
    pub data: &'a [u8],
}

/// What the receiver says of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Header<'a> {
    /// Version of the JSON, 4 or 5.
    pub version: u32,
    /// Bits of one pixel: 4, 8, 12, 16 or 32.
    pub bits: u32,
    /// Columns of the port, above 0.
    pub columns: u64,
    /// Rows of the port, above 0.
    pub rows: u64,
    /// Ports of the detector in x and y.
    pub ports: (u64, u64),
    /// Number of the acquisition in file names.
    pub file_index: u64,
    /// Number of the frame in the acquisition, from 0.
    pub frame_index: u64,
    /// How far the acquisition is, in percent.
    pub progress_percent: f64,
    /// Path and stem of the receiver's own files. Not trusted: check it before it is used as a path.
    pub file_name: Cow<'a, str>,
    /// Whether all packets came.
    pub complete: bool,
    /// Packets that came.
    pub packets_caught: u32,
    /// The fields of the first packet.
    pub frame: SlsHeader,
    /// GOTTHARD2: bunch; else 0.
    pub detector_specific_2: u16,
    /// EIGER: round robin; else 0.
    pub detector_specific_4: u16,
    /// Kind of the detector, see [`crate::sls_udp::detector_type`].
    pub detector_type: u8,
    /// Version of the packets' header.
    pub header_version: u8,
    /// The reader must reverse the rows.
    pub flip_rows: bool,
    /// The detector is a quad.
    pub quad: bool,
    /// What the user added.
    pub added: Map<String, Value>,
    /// Region of interest that the receiver's files are cut to: first and last column, first and last row; `None` for
    /// the whole.
    pub files_roi: Option<[i64; 4]>,
}

/// The keys, in the order in which the receiver writes them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Keys<'a> {
    jsonversion: u32,
    bitmode: u32,
    #[serde(default)]
    file_index: u64,
    #[serde(default)]
    detshape: [u64; 2],
    #[serde(default)]
    shape: [u64; 2],
    #[serde(default)]
    size: u64,
    #[serde(default)]
    frame_index: u64,
    #[serde(default)]
    progress: f64,
    #[serde(borrow, default)]
    fname: Cow<'a, str>,
    data: u8,
    #[serde(default)]
    complete_image: u8,
    #[serde(default)]
    frame_number: u64,
    #[serde(default)]
    exp_length: u32,
    #[serde(default)]
    packet_number: u32,
    #[serde(default, alias = "bunchId")]
    det_spec1: u64,
    #[serde(default)]
    timestamp: u64,
    #[serde(default)]
    mod_id: u16,
    #[serde(default)]
    row: u16,
    #[serde(default)]
    column: u16,
    #[serde(default, alias = "reserved")]
    det_spec2: u16,
    #[serde(default, alias = "debug")]
    det_spec3: u32,
    #[serde(default, alias = "roundRNumber")]
    det_spec4: u16,
    #[serde(default)]
    det_type: u8,
    #[serde(default)]
    version: u8,
    #[serde(default)]
    flip_rows: u8,
    #[serde(default)]
    quad: u8,
    #[serde(default)]
    add_json_header: Map<String, Value>,
    #[serde(rename = "rx_roi")]
    rx_roi: Option<[i64; 4]>,
}

impl<'a> Message<'a> {
    /// Checks the parts of one message.
    ///
    /// # Errors
    /// The part that is wrong, and what is wrong with it: version, keys, number of parts, sizes that disagree or are
    /// beyond `bounds`.
    pub fn parse(parts: &[&'a [u8]], bounds: &Bounds) -> Result<Self, Refusal> {
        let keys: Keys = json(parts, 0, bounds)?;
        let wrong = |why: String| Refusal::new(0, why);
        if !VERSIONS.contains(&keys.jsonversion) {
            let (first, last) = (VERSIONS.start(), VERSIONS.end());
            return Err(wrong(format!("its 'jsonversion' is {}; {first} and {last} are known", keys.jsonversion)));
        }
        if keys.data == 0 {
            part_count(parts, 1, 1, "the end of an acquisition")?;
            return Ok(Self::End { version: keys.jsonversion });
        }
        part_count(parts, 2, 2, "an image")?;
        if ![4, 8, 12, 16, 32].contains(&keys.bitmode) {
            return Err(wrong(format!("its 'bitmode' is {}; 4, 8, 12, 16 and 32 are known", keys.bitmode)));
        }
        let [columns, rows] = keys.shape;
        let bits = columns.checked_mul(rows).and_then(|pixels| pixels.checked_mul(u64::from(keys.bitmode)));
        let bytes = bits.filter(|bits| *bits > 0 && bits % 8 == 0).map(|bits| bits / 8);
        let is = || format!("{columns} x {rows} pixels of {} bits", keys.bitmode);
        let bytes = bytes.ok_or_else(|| wrong(format!("{} cannot be an image of whole bytes", is())))?;
        if bytes > bounds.image_bytes_max {
            return Err(wrong(format!("{} are more than the {} bytes that are accepted", is(), bounds.image_bytes_max)));
        }
        if keys.size != bytes {
            return Err(wrong(format!("its 'size' is {}, but {} have {bytes} bytes", keys.size, is())));
        }
        let data = parts[1];
        if data.len() as u64 != bytes {
            return Err(Refusal::new(1, format!("{} have {bytes} bytes, but {} came", is(), data.len())));
        }
        Ok(Self::Image(Image { header: keys.into_header(), data }))
    }

    /// The parts of this message, with the names and the order of release 9.
    pub fn build(&self) -> Vec<Cow<'a, [u8]>> {
        match self {
            Self::End { version } => vec![Cow::Owned(end_header(*version).text(0))],
            Self::Image(image) => vec![Cow::Owned(image.header.text(image.data.len())), Cow::Borrowed(image.data)],
        }
    }
}

impl<'a> Keys<'a> {
    fn into_header(self) -> Header<'a> {
        Header {
            version: self.jsonversion,
            bits: self.bitmode,
            columns: self.shape[0],
            rows: self.shape[1],
            ports: (self.detshape[0], self.detshape[1]),
            file_index: self.file_index,
            frame_index: self.frame_index,
            progress_percent: self.progress,
            file_name: self.fname,
            complete: self.complete_image != 0,
            packets_caught: self.packet_number,
            frame: SlsHeader {
                frame_number: self.frame_number,
                timestamp_100ns: self.timestamp,
                bunch_id: self.det_spec1,
                exposure_length: self.exp_length,
                daq_info: self.det_spec3,
                module_id: self.mod_id,
                row: self.row,
                column: self.column,
            },
            detector_specific_2: self.det_spec2,
            detector_specific_4: self.det_spec4,
            detector_type: self.det_type,
            header_version: self.version,
            flip_rows: self.flip_rows != 0,
            quad: self.quad != 0,
            added: self.add_json_header,
            files_roi: self.rx_roi.filter(|roi| *roi != [-1; 4]),
        }
    }
}

/// What the receiver sends with the end: nothing but the version.
fn end_header(version: u32) -> Header<'static> {
    Header {
        version,
        bits: 0,
        columns: 0,
        rows: 0,
        ports: (0, 0),
        file_index: 0,
        frame_index: 0,
        progress_percent: 0.0,
        file_name: Cow::Borrowed(""),
        complete: false,
        packets_caught: 0,
        frame: SlsHeader::default(),
        detector_specific_2: 0,
        detector_specific_4: 0,
        detector_type: 0,
        header_version: 0,
        flip_rows: false,
        quad: false,
        added: Map::new(),
        files_roi: None,
    }
}

impl Header<'_> {
    /// The JSON of an image of `bytes` bytes; 0 for the end.
    fn text(&self, bytes: usize) -> Vec<u8> {
        let (frame, flag) = (&self.frame, u8::from);
        let [x_first, x_last, y_first, y_last] = self.files_roi.unwrap_or([-1; 4]);
        let added = if self.added.is_empty() { String::new() } else { format!(r#""addJsonHeader":{},"#, json_text(&self.added)) };
        let about_image = format!(
            r#""jsonversion":{},"bitmode":{},"fileIndex":{},"detshape":[{},{}],"shape":[{},{}],"size":{bytes},"acqIndex":{},"frameIndex":{},"progress":{},"fname":{},"data":{},"completeImage":{}"#,
            self.version,
            self.bits,
            self.file_index,
            self.ports.0,
            self.ports.1,
            self.columns,
            self.rows,
            frame.frame_number,
            self.frame_index,
            json_text(&self.progress_percent),
            json_text(&self.file_name),
            flag(bytes > 0),
            flag(self.complete),
        );
        let about_frame = format!(
            r#""frameNumber":{},"expLength":{},"packetNumber":{},"detSpec1":{},"timestamp":{},"modId":{},"row":{},"column":{},"detSpec2":{},"detSpec3":{},"detSpec4":{},"detType":{},"version":{}"#,
            frame.frame_number,
            frame.exposure_length,
            self.packets_caught,
            frame.bunch_id,
            frame.timestamp_100ns,
            frame.module_id,
            frame.row,
            frame.column,
            self.detector_specific_2,
            frame.daq_info,
            self.detector_specific_4,
            self.detector_type,
            self.header_version,
        );
        let (flip, quad) = (flag(self.flip_rows), flag(self.quad));
        let end = format!(r#""flipRows":{flip},"quad":{quad},{added}"rx_roi":[{x_first},{x_last},{y_first},{y_last}]"#);
        format!("{{{about_image},{about_frame},{end}}}\n").into_bytes()
    }
}

fn json_text(value: &impl serde::Serialize) -> String {
    // Texts, numbers and maps of JSON values can be written as JSON. NaN and infinity become null, which readers
    // refuse.
    serde_json::to_string(value).unwrap_or_default()
}

/// The part with the pixels.
const PIXELS: usize = 1;
const TICK_NS: u64 = 100;

/// The decoder. The stream has one message per UDP port and frame, and no start. The key of a series is its file index
/// + 1. End messages do not name their series, so they end that of the last image of this upstream.
pub struct Decoder {
    bounds: Bounds,
    unpacker: Box<dyn PixelUnpacker>,
    no_name: Arc<str>,
    /// What the last image said of its series.
    open: Option<Open>,
    last: SeriesKey,
}

struct Open {
    file_index: u64,
    file_name: String,
    size: [u64; 2],
    bits: u32,
    start: Arc<SeriesStart>,
}

impl Decoder {
    /// A decoder of one upstream.
    pub fn new(DecoderSetup { bounds, unpacker, .. }: DecoderSetup) -> Self {
        Self { bounds, unpacker, no_name: "".into(), open: None, last: SeriesKey::default() }
    }

    fn part(&mut self, message: &ports::Message, image: &Image) -> Result<ImagePart, Refusal> {
        let header = &image.header;
        let array = self.array(&message.parts[PIXELS], image)?;
        self.last = SeriesKey(header.file_index.saturating_add(1));
        Ok(ImagePart {
            series: self.last,
            number: header.frame_index,
            channels: vec![Channel { name: Arc::clone(&self.no_name), array }],
            store: true,
            is_partial: !header.complete,
            times: times(header),
            header_json: message.parts[0].clone(),
            start: Some(self.start(header)),
        })
    }

    fn array(&mut self, part: &Bytes, image: &Image) -> Result<Array, Refusal> {
        let header = &image.header;
        let wrong = |why: String| Refusal::new(PIXELS, why);
        let (element, bits) = match header.bits {
            4 | 8 => (Element::Uint8, 8),
            12 | 16 => (Element::Uint16, 16),
            _ => (Element::Uint32, 32),
        };
        let shape = Shape::new(&[header.rows, header.columns]).ok_or_else(|| wrong("an image has no pixels".into()))?;
        let bytes = shape.elements() * bits / 8;
        if bytes > self.bounds.image_bytes_max {
            let most = self.bounds.image_bytes_max;
            return Err(wrong(format!("unpacked it has {bytes} bytes; {most} are accepted")));
        }
        let data = match header.bits {
            4 => image.data.iter().flat_map(|two| [two >> 4, two & 15]).collect(),
            12 => {
                let mut pixels = vec![0; bytes as usize];
                self.unpacker.whole_bytes(PackedBits::Twelve, image.data, &mut pixels);
                pixels.into()
            }
            _ => part.clone(),
        };
        Ok(Array { shape, element, packing: Packing::None, pieces: vec![data] })
    }

    /// What is known of the series; made once for its images.
    fn start(&mut self, header: &Header) -> Arc<SeriesStart> {
        let (size, bits) = ([header.rows, header.columns], header.bits);
        let is_open = |open: &&Open| {
            (open.file_index, open.size, open.bits) == (header.file_index, size, bits) && open.file_name == header.file_name
        };
        if let Some(open) = self.open.as_ref().filter(is_open) {
            return Arc::clone(&open.start);
        }
        let start = Arc::new(start(header));
        let kept = Arc::clone(&start);
        let file_name = header.file_name.clone().into_owned();
        self.open = Some(Open { file_index: header.file_index, file_name, size, bits, start: kept });
        start
    }
}

impl MessageDecoder for Decoder {
    fn read(&mut self, message: &ports::Message) -> Result<Read, Refusal> {
        Ok(unnumbered(match Message::parse(&slices(message), &self.bounds)? {
            Message::Image(image) => Event::Part(Box::new(self.part(message, &image)?)),
            Message::End { .. } => {
                self.open = None;
                Event::End(self.last)
            }
        }))
    }
}

/// Times of an image. The header of EIGER has another number in place of the exposure.
fn times(header: &Header) -> Option<ImageTimes> {
    let frame = &header.frame;
    let is_eiger = header.detector_type == detector_type(DetectorKind::Eiger);
    let real_ns = if is_eiger { 0 } else { u64::from(frame.exposure_length) * TICK_NS };
    let start_ns = frame.timestamp_100ns.saturating_mul(TICK_NS);
    (start_ns > 0).then(|| ImageTimes { start_ns, stop_ns: start_ns.saturating_add(real_ns), real_ns })
}

fn start(header: &Header) -> SeriesStart {
    let whole = header.ports == (1, 1);
    let bits = if matches!(header.bits, 4 | 12) { header.bits + 4 } else { header.bits };
    let mut metadata = Map::new();
    let mut add = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
    add("jsonversion", header.version.into());
    add("fileIndex", header.file_index.into());
    add("fname", (&*header.file_name).into());
    add("bitmode", header.bits.into());
    add("detshape", json!([header.ports.0, header.ports.1]));
    add("detType", header.detector_type.into());
    add("flipRows", header.flip_rows.into());
    add("quad", header.quad.into());
    if !header.added.is_empty() {
        add("addJsonHeader", Value::Object(header.added.clone()));
    }
    if let Some(roi) = header.files_roi {
        add("rx_roi", json!(roi));
    }
    SeriesStart {
        series: header.file_index,
        filename: filename(header),
        image_size: whole.then_some([header.rows, header.columns]),
        element: facts::counts(bits.into()),
        facts: Metadata { bit_depth: Some(header.bits), ..Default::default() },
        metadata,
        store: true,
        ..SeriesStart::default()
    }
}

/// The stem of the receiver's own files, without its folders, and the number of the acquisition.
fn filename(header: &Header) -> Option<String> {
    let stem = header.file_name.rsplit('/').next().filter(|stem| !stem.is_empty())?;
    Some(format!("{stem}_{}", header.file_index))
}

/// The version that is sent.
const VERSION: u32 = 5;

/// The encoder for one consumer. Pixels are not packed; each channel is sent as a port of its own, one above the other.
pub struct Encoder {
    file_index: u64,
    file_name: String,
    images_planned: Option<u64>,
    unpacker: ArrayUnpacker,
}

/// The header of an image as an SLS receiver sent it.
struct Came(Map<String, Value>);

/// The entry of `addJsonHeader` that says that integers are signed; `bitmode` gives only their number of bits.
const SIGNED: &str = "dtype";

impl Came {
    /// From an SLS receiver, or from packets that were put together here.
    fn of(image: &CommittedImage) -> Self {
        let Some((packets, header)) = image.packets.as_ref().and_then(|packets| Some((packets, packets.header()?))) else {
            return Self(serde_json::from_slice(&image.header_json).unwrap_or_default());
        };
        if packets.detector_type == 0 {
            // Of packets of another format, the receiver's JSON has a place for their number and that of the frame.
            let value = json!({ "frameNumber": header.frame_number, "packetNumber": packets.caught() });
            return Self(value.as_object().cloned().unwrap_or_default());
        }
        let header = SlsHeader::from(header);
        let value = json!({
            "frameNumber": header.frame_number, "expLength": header.exposure_length, "packetNumber": packets.caught(),
            "detSpec1": header.bunch_id, "timestamp": header.timestamp_100ns, "modId": header.module_id, "row": header.row,
            "column": header.column, "detSpec3": header.daq_info, "detType": packets.detector_type,
            "version": packets.header_version,
        });
        Self(value.as_object().cloned().unwrap_or_default())
    }

    /// `addJsonHeader` as it came, with the results and the type of signed pixels.
    fn added(&self, element: Element, results: &ImageResults) -> Map<String, Value> {
        let mut added = self.0.get("addJsonHeader").and_then(Value::as_object).cloned().unwrap_or_default();
        // The SLS receiver has texts only.
        added.extend(results.to_json().into_iter().map(|(name, value)| (name, value.to_string().into())));
        if matches!(element, Element::Int8 | Element::Int16 | Element::Int32) {
            added.insert(SIGNED.into(), element.name().into());
        }
        added
    }

    fn whole(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    fn narrow<T: TryFrom<u64> + Default>(&self, key: &str) -> T {
        T::try_from(self.whole(key)).unwrap_or_default()
    }
}

impl Encoder {
    /// An encoder for one consumer.
    pub fn new(unpacker: Box<dyn PixelUnpacker>) -> Self {
        let unpacker = ArrayUnpacker::new(unpacker);
        Self { file_index: 0, file_name: String::new(), images_planned: None, unpacker }
    }

    fn message(
        &self,
        image: &CommittedImage,
        came: &Came,
        (port, ports): (usize, usize),
        array: &Array,
    ) -> Result<Parts, String> {
        let shape = flat(array.shape);
        let (rows, columns) = match shape.dimensions() {
            [columns] => (1, *columns),
            [rest @ .., columns] => (rest.iter().product(), *columns),
            [] => return Err("it has no pixels".into()),
        };
        let whole = array.pieces.first().ok_or("it has no pixels")?;
        let header = Header {
            version: VERSION,
            bits: array.element.bits(),
            columns,
            rows,
            ports: (1, ports as u64),
            file_index: self.file_index,
            frame_index: image.number,
            progress_percent: self.progress_percent(image.number),
            file_name: Cow::Borrowed(&self.file_name),
            complete: image.status == ImageStatus::Complete,
            packets_caught: came.narrow("packetNumber"),
            frame: frame(image, came, port, ports),
            detector_specific_2: came.narrow("detSpec2"),
            detector_specific_4: came.narrow("detSpec4"),
            detector_type: came.narrow("detType"),
            header_version: came.narrow("version"),
            flip_rows: came.whole("flipRows") != 0,
            quad: came.whole("quad") != 0,
            added: came.added(array.element, &image.results),
            files_roi: None,
        };
        let mut parts = Message::Image(Image { header, data: whole }).build();
        parts.truncate(1);
        let first = parts.pop().ok_or("a message has no parts")?;
        Ok(vec![Bytes::from(first.into_owned()), whole.clone()])
    }

    fn progress_percent(&self, number: u64) -> f64 {
        let planned = self.images_planned.filter(|images| *images > 0);
        planned.map_or(0.0, |images| (100.0 * (number + 1) as f64 / images as f64).min(100.0))
    }
}

fn frame(image: &CommittedImage, came: &Came, port: usize, ports: usize) -> SlsHeader {
    let times = image.times.unwrap_or_default();
    let is_frame = came.0.contains_key("frameNumber");
    SlsHeader {
        frame_number: if is_frame { came.whole("frameNumber") } else { image.number },
        timestamp_100ns: if is_frame { came.whole("timestamp") } else { times.start_ns / TICK_NS },
        bunch_id: came.whole("detSpec1"),
        exposure_length: if is_frame {
            came.narrow("expLength")
        } else {
            u32::try_from(times.real_ns / TICK_NS).unwrap_or(u32::MAX)
        },
        daq_info: came.narrow("detSpec3"),
        module_id: came.narrow("modId"),
        row: if ports > 1 { u16::try_from(port).unwrap_or(u16::MAX) } else { came.narrow("row") },
        column: came.narrow("column"),
    }
}

impl MessageEncoder for Encoder {
    fn start(&mut self, start: &SeriesStart) -> Result<Vec<Parts>, String> {
        self.file_index = start.series;
        self.file_name = start.filename.clone().unwrap_or_default();
        self.images_planned = start.images_planned;
        Ok(Vec::new())
    }

    fn image(&mut self, image: &CommittedImage) -> Result<Vec<Parts>, String> {
        let came = Came::of(image);
        let ports = image.channels.len();
        let mut messages = Vec::with_capacity(ports);
        for (port, channel) in image.channels.iter().enumerate() {
            let array = self.unpacker.whole_bytes(&channel.array)?;
            if let Some(carried) = Protocol::SlsJson.refuses(array.element) {
                return Err(format!("its pixels are {}; {}", array.element.name(), carried.why));
            }
            let array = self.unpacker.one_piece(&array, Protocol::SlsJson.packings())?;
            messages.push(self.message(image, &came, (port, ports), &array)?);
        }
        Ok(messages)
    }

    fn end(&mut self, _end: &SeriesEnd) -> Result<Vec<Parts>, String> {
        let parts = Message::End { version: VERSION }.build();
        Ok(vec![parts.into_iter().map(|part| Bytes::from(part.into_owned())).collect()])
    }
}
