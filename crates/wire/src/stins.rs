//! STINS, the messages from the receivers of MAX IV to their pipelines: multipart over ZeroMQ PUSH, with JSON in the
//! first part. Source: streaming-receiver and the models of dranspose (docs/protocols.md 4).
//!
//! Facts relied on: `htype` names the kind. `msg_number` counts all messages of a sender and is never reset. A header
//! may have a second part, metadata of any structure; an empty or absent `filename` means that no file is wanted.
//! `shape` is \[slow, fast\], `type` is numpy's name or "mono12p", `compression` is "none" or "bslz4". The latter is
//! the chunk of HDF5's filter 32008 with its 12 bytes; senders that pack with Python's bitshuffle omit these (see
//! [`Pixels::new_bare_or_checked`]). An image has one part of pixels, or several and `chunks`, the shape of each piece:
//! part i is the i-th piece along the first dimension. Senders may add any keys; they are passed on. Two detectors of
//! MAX IV differ: each sender of a Lambda describes the whole image and sends one piece of it
//! ([`Message::parse_piece`]), and the pixels of a Pilatus are a whole CBF file ([`Enclosed`]).

use crate::message::{DecoderOptions, DecoderSetup, Event, ImagePart, MessageDecoder, Read, SeriesKey, slices};
use crate::shared::{facts, maxiv};
use crate::stream::{Bounds, Element, Packing, Pixels, Refusal, Shape, json, part_count, quoted, text};
use crate::unpacker::ArrayUnpacker;
use crate::{dectris_v1, files};
use bytes::{BufMut, Bytes, BytesMut};
use konkordia_core::array::Array;
use konkordia_core::experiment::Metadata;
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::{self, MessageEncoder, Parts, PixelUnpacker};
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{SeriesEnd, SeriesStart};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Parts of the messages, from 0.
mod part {
    pub const FIRST: usize = 0;
    pub const METADATA: usize = 1;
    pub const PIXELS: usize = 1;
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
        /// Number of the message.
        msg_number: u64,
    },
}

/// The beginning of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Header<'a> {
    /// Number of the message.
    pub msg_number: u64,
    /// Path that the sender wants for the file. It is not trusted: check it before it is used as a path.
    pub filename: Option<Cow<'a, str>>,
    /// The other keys of the first part.
    pub extra: Map<String, Value>,
    /// The second part.
    pub metadata: Option<Map<String, Value>>,
}

/// One image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image<'a> {
    /// Number of the message.
    pub msg_number: u64,
    /// Number of the image in the series, from 0.
    pub frame: u64,
    /// Dimensions of the whole image.
    pub shape: Shape,
    /// The pixels as they came, in pieces along the first dimension; one piece is the whole image.
    pub pieces: Vec<Pixels<'a>>,
    /// The sender wants the image passed on, but not stored.
    pub discard: bool,
    /// The whole first part as it came, unknown keys included; empty for an image that was made here.
    pub first_part: &'a [u8],
}

#[derive(Deserialize)]
struct First<'a> {
    #[serde(borrow)]
    htype: Cow<'a, str>,
    msg_number: u64,
    frame: Option<u64>,
    shape: Option<Shape>,
    #[serde(rename = "type")]
    element: Option<Cow<'a, str>>,
    compression: Option<Cow<'a, str>>,
    chunks: Option<Shape>,
    discard: Option<bool>,
}

impl<'a> Message<'a> {
    /// Checks the parts of one message.
    ///
    /// # Errors
    /// The part that is wrong, and what is wrong with it: kind, number of parts, keys, sizes that disagree or are
    /// beyond `bounds`.
    pub fn parse(parts: &[&'a [u8]], bounds: &Bounds) -> Result<Self, Refusal> {
        Self::parse_piece(parts, bounds, 1)
    }

    /// As [`Self::parse`], for a sender that sends one of the `pieces` pieces of every image. If one part of pixels
    /// came, and the shape is that of the whole image, with the number of pieces as the first of three or more
    /// dimensions, then the part is one piece, and the returned image is this piece alone.
    ///
    /// # Errors
    /// Those of [`Self::parse`].
    pub fn parse_piece(parts: &[&'a [u8]], bounds: &Bounds, pieces: u64) -> Result<Self, Refusal> {
        let first: First = json(parts, part::FIRST, bounds)?;
        match &*first.htype {
            "image" => Ok(Self::Image(Image::parse(parts, bounds, &first, pieces)?)),
            "header" => Ok(Self::Header(Header::parse(parts, bounds, first.msg_number)?)),
            "series_end" => {
                part_count(parts, 1, 1, "the end of a series")?;
                Ok(Self::SeriesEnd { msg_number: first.msg_number })
            }
            other => {
                let why = format!("its 'htype' is {}; header, image and series_end are known", quoted(other));
                Err(Refusal::new(part::FIRST, why))
            }
        }
    }

    /// Number of the message, by which receivers put them in order.
    pub fn msg_number(&self) -> u64 {
        match self {
            Self::Header(header) => header.msg_number,
            Self::Image(image) => image.msg_number,
            Self::SeriesEnd { msg_number } => *msg_number,
        }
    }

    /// The parts of this message; an image that came from elsewhere keeps its first part.
    ///
    /// # Errors
    /// A packing that this format has no name for.
    pub fn build(&self) -> Result<Vec<Cow<'a, [u8]>>, Refusal> {
        match self {
            Self::Header(header) => Ok(header.build()),
            Self::Image(image) => image.build(),
            Self::SeriesEnd { msg_number } => {
                Ok(vec![Cow::Owned(format!(r#"{{"htype":"series_end","msg_number":{msg_number}}}"#).into_bytes())])
            }
        }
    }
}

impl<'a> Header<'a> {
    fn parse(parts: &[&'a [u8]], bounds: &Bounds, msg_number: u64) -> Result<Self, Refusal> {
        part_count(parts, 1, 2, "a header")?;
        let mut extra: Map<String, Value> = json(parts, part::FIRST, bounds)?;
        let filename = match extra.shift_remove("filename") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name).filter(|name| !name.is_empty()).map(Cow::Owned),
            Some(_) => return Err(Refusal::new(part::FIRST, "its 'filename' is not a text")),
        };
        for known in ["htype", "msg_number"] {
            extra.shift_remove(known);
        }
        let metadata = parts.get(part::METADATA).map(|_| json(parts, part::METADATA, bounds)).transpose()?;
        Ok(Self { msg_number, filename, extra, metadata })
    }

    fn build(&self) -> Vec<Cow<'a, [u8]>> {
        let mut first = Map::new();
        first.insert("htype".into(), json!("header"));
        first.insert("msg_number".into(), json!(self.msg_number));
        // Models of this format require a text, so an empty one means no file.
        first.insert("filename".into(), json!(self.filename.as_deref().unwrap_or("")));
        for (key, value) in &self.extra {
            first.entry(key.as_str()).or_insert_with(|| value.clone());
        }
        let metadata = self.metadata.iter();
        std::iter::once(&first).chain(metadata).map(|map| Cow::Owned(object_text(map))).collect()
    }
}

impl<'a> Image<'a> {
    fn parse(parts: &[&'a [u8]], bounds: &Bounds, first: &First, pieces: u64) -> Result<Self, Refusal> {
        part_count(parts, 2, bounds.channels_max.saturating_add(1), "an image")?;
        let wrong = |why: String| Refusal::new(part::FIRST, why);
        let missing = |key: &str| wrong(format!("it has no '{key}'"));
        let said = first.shape.ok_or_else(|| missing("shape"))?;
        let shape = own_shape(said, pieces, parts.len() - 1).ok_or_else(|| wrong("its shape has no pixels".into()))?;
        let name = first.element.as_deref().ok_or_else(|| missing("type"))?;
        let element =
            Element::from_name(name).ok_or_else(|| wrong(format!("its 'type' {} is not a pixel type", quoted(name))))?;
        let packing = match first.compression.as_deref().ok_or_else(|| missing("compression"))? {
            "none" => Packing::None,
            "bslz4" => Packing::BitshuffleLz4,
            other => return Err(wrong(format!("its 'compression' is {}; none and bslz4 are known", quoted(other)))),
        };
        let data = &parts[part::PIXELS..];
        let piece = piece(shape, data.len()).map_err(wrong)?;
        check_chunks(first.chunks, piece, data.len()).map_err(wrong)?;
        let each = bounds.image_bytes_max / data.len() as u64;
        let pieces = data.iter().enumerate().map(|(i, data)| {
            let pixels = match packing {
                Packing::BitshuffleLz4 => Pixels::new_bare_or_checked(piece, element, data, each),
                _ => Pixels::new_checked(piece, element, packing, data, each),
            };
            pixels.map_err(|why| Refusal::new(part::PIXELS + i, why))
        });
        Ok(Self {
            msg_number: first.msg_number,
            frame: first.frame.ok_or_else(|| missing("frame"))?,
            shape,
            pieces: pieces.collect::<Result<_, _>>()?,
            discard: first.discard.unwrap_or(false),
            first_part: text(parts, part::FIRST, bounds)?,
        })
    }

    /// The first part with all its keys. It is parsed only here, because most images are passed on unchanged.
    pub fn extra(&self) -> Map<String, Value> {
        serde_json::from_slice(self.first_part).unwrap_or_default()
    }

    fn build(&self) -> Result<Vec<Cow<'a, [u8]>>, Refusal> {
        let first =
            if self.first_part.is_empty() { Cow::Owned(self.described()?.into_bytes()) } else { Cow::Borrowed(self.first_part) };
        Ok(std::iter::once(first).chain(self.pieces.iter().map(|piece| Cow::Borrowed(piece.data()))).collect())
    }

    fn described(&self) -> Result<String, Refusal> {
        let one = self.pieces.first().ok_or_else(|| Refusal::new(part::PIXELS, "an image has no pixels"))?;
        if let Some(i) =
            self.pieces.iter().position(|p| (p.shape(), p.element(), p.packing()) != (one.shape(), one.element(), one.packing()))
        {
            return Err(Refusal::new(part::PIXELS + i, "its shape, type or packing differs from the first piece"));
        }
        let each = piece(self.shape, self.pieces.len()).map_err(|why| Refusal::new(part::PIXELS, why))?;
        if each != one.shape() {
            let (is, whole) = (one.shape(), self.shape);
            let why = format!("pieces of shape {:?} do not make an image of shape {:?}", is.dimensions(), whole.dimensions());
            return Err(Refusal::new(part::PIXELS, why));
        }
        let compression = match one.packing() {
            Packing::None => "none",
            Packing::BitshuffleLz4 => "bslz4",
            other => return Err(Refusal::new(part::PIXELS, format!("this format cannot carry pixels with packing {other:?}"))),
        };
        let list = |shape: Shape| format!("{:?}", shape.dimensions()).replace(' ', "");
        let chunks = if self.pieces.len() > 1 { format!(r#","chunks":{}"#, list(one.shape())) } else { String::new() };
        let discard = if self.discard { r#","discard":true"# } else { "" };
        Ok(format!(
            r#"{{"htype":"image","msg_number":{},"frame":{},"shape":{},"type":"{}","compression":"{compression}"{chunks}{discard}}}"#,
            self.msg_number,
            self.frame,
            list(self.shape),
            one.element().name(),
        ))
    }
}

/// An image whose pixels are a whole file, as the senders of Pilatus detectors send it. The file itself is not looked
/// into.
#[derive(Clone, Debug, PartialEq)]
pub struct Enclosed<'a> {
    /// Number of the message.
    pub msg_number: u64,
    /// Number of the image in the series, from 0.
    pub frame: u64,
    /// What the sender says of the dimensions, if it does.
    pub shape: Option<Shape>,
    /// The sender wants the image passed on, but not stored.
    pub discard: bool,
    /// The file.
    pub file: &'a [u8],
}

impl<'a> Enclosed<'a> {
    /// Reads a message with an image; `None` for a message of another kind.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(parts: &[&'a [u8]], bounds: &Bounds) -> Result<Option<Self>, Refusal> {
        let first: First = json(parts, part::FIRST, bounds)?;
        if first.htype != "image" {
            return Ok(None);
        }
        part_count(parts, 2, 2, "an image that is a file")?;
        let frame = first.frame.ok_or_else(|| Refusal::new(part::FIRST, "it has no 'frame'"))?;
        let (msg_number, discard) = (first.msg_number, first.discard.unwrap_or(false));
        Ok(Some(Self { msg_number, frame, shape: first.shape, discard, file: parts[part::PIXELS] }))
    }
}

/// The shape of the `count` parts of a sender that sends one of `pieces` pieces and announces the shape `said`.
fn own_shape(said: Shape, pieces: u64, count: usize) -> Option<Shape> {
    match said.dimensions() {
        [first, rest @ ..] if pieces > 1 && *first == pieces && rest.len() >= 2 && count == 1 => {
            Shape::new(&[&[1], rest].concat())
        }
        _ => Some(said),
    }
}

/// The shape of each of `count` equal pieces along the first dimension.
fn piece(shape: Shape, count: usize) -> Result<Shape, String> {
    let mut dimensions = [0; Shape::DIMENSIONS_MAX];
    let dimensions = &mut dimensions[..shape.dimensions().len()];
    dimensions.copy_from_slice(shape.dimensions());
    let count = count as u64;
    let whole = dimensions[0] % count == 0;
    dimensions[0] /= count;
    let piece = Shape::new(dimensions).filter(|_| whole);
    piece.ok_or_else(|| format!("an image of shape {:?} cannot come in {count} equal parts", shape.dimensions()))
}

/// Checks the announced `chunks` against the parts that came. For a single part they are a hint for the file and may be
/// anything.
fn check_chunks(said: Option<Shape>, piece: Shape, count: usize) -> Result<(), String> {
    match said {
        None if count > 1 => Err(format!("{count} parts of pixels came, but it has no 'chunks'")),
        Some(said) if count > 1 && said != piece => {
            let (said, piece) = (said.dimensions(), piece.dimensions());
            Err(format!("its 'chunks' are {said:?}, but in {count} parts each has shape {piece:?}"))
        }
        _ => Ok(()),
    }
}

fn object_text(map: &Map<String, Value>) -> Vec<u8> {
    // Any map of JSON values can be written as JSON.
    serde_json::to_vec(map).unwrap_or_default()
}

/// The decoder. Messages do not name their series, so the key is always 0; they are numbered over the life of the
/// sender.
pub struct Decoder {
    bounds: Bounds,
    options: DecoderOptions,
    unpacker: Box<dyn PixelUnpacker>,
    no_name: Arc<str>,
}

impl Decoder {
    /// A decoder of one upstream.
    pub fn new(DecoderSetup { bounds, options, unpacker }: DecoderSetup) -> Self {
        Self { bounds, options, unpacker, no_name: "".into() }
    }

    fn part(&self, message: &ports::Message, number: u64, discard: bool, array: Array) -> Event {
        Event::Part(Box::new(ImagePart {
            series: SeriesKey::default(),
            number,
            channels: vec![Channel { name: Arc::clone(&self.no_name), array }],
            store: !discard,
            is_partial: false,
            times: None,
            header_json: message.parts[0].clone(),
            start: None,
        }))
    }

    /// The image of the CBF file in a message; `None` if the message is no image.
    fn enclosed(&mut self, message: &ports::Message) -> Result<Option<Read>, Refusal> {
        let Some(image) = Enclosed::parse(&slices(message), &self.bounds)? else { return Ok(None) };
        let (array, _) = files::cbf_pixels(&message.parts[part::PIXELS], &self.bounds, &mut *self.unpacker)
            .map_err(|refusal| Refusal { part: part::PIXELS, ..refusal })?;
        if let Some(said) = image.shape.filter(|said| *said != array.shape) {
            let (said, is) = (said.dimensions(), array.shape.dimensions());
            return Err(Refusal::new(part::PIXELS, format!("the message says {said:?}, but the CBF file is an image of {is:?}")));
        }
        let event = self.part(message, image.frame, image.discard, array);
        Ok(Some(Read { message_number: Some(image.msg_number), event }))
    }
}

impl MessageDecoder for Decoder {
    fn read(&mut self, message: &ports::Message) -> Result<Read, Refusal> {
        if self.options.pixels_are_cbf
            && let Some(read) = self.enclosed(message)?
        {
            return Ok(read);
        }
        let read = Message::parse_piece(&slices(message), &self.bounds, self.options.pieces)?;
        let message_number = Some(read.msg_number());
        let event = match read {
            Message::Header(header) => Event::Start(SeriesKey::default(), Box::new(start(header))),
            Message::Image(image) => {
                let one = image.pieces.first().ok_or_else(|| Refusal::new(part::PIXELS, "an image has no pixels"))?;
                let pieces =
                    message.parts[part::PIXELS..].iter().zip(&image.pieces).map(|(part, piece)| with_header(part, piece));
                let array =
                    Array { shape: image.shape, element: one.element(), packing: one.packing(), pieces: pieces.collect() };
                self.part(message, image.frame, image.discard, array)
            }
            Message::SeriesEnd { .. } => Event::End(SeriesKey::default()),
        };
        Ok(Read { message_number, event })
    }
}

/// The piece in the form that everything downstream expects; only a piece that lacks its header is copied.
fn with_header(part: &Bytes, piece: &Pixels) -> Bytes {
    let Some(header) = piece.lacking_header() else { return part.clone() };
    let mut whole = BytesMut::with_capacity(header.len() + part.len());
    whole.put_slice(&header);
    whole.put_slice(part);
    whole.freeze()
}

fn start(header: Header) -> SeriesStart {
    let metadata = header.metadata.unwrap_or_default();
    // `save_raw` also counts in the first part, for senders that have no second.
    let save_raw = metadata.get("save_raw").or_else(|| header.extra.get("save_raw"));
    let store = !matches!(save_raw, Some(Value::Bool(false))) && save_raw.and_then(Value::as_f64) != Some(0.0);
    // Pipelines of MAX IV pass on the metadata of an EIGER under the names of Stream V1; `exptime` is their own key.
    let said = dectris_v1::facts_of(&metadata);
    let facts = Metadata { count_time_s: facts::positive(&metadata, "exptime").or(said.count_time_s), ..said };
    let exposure = metadata.get(maxiv::EXPOSURE[1]).cloned();
    SeriesStart {
        filename: header.filename.map(Into::into),
        facts,
        image_extra: exposure.into_iter().map(|exposure| (maxiv::EXPOSURE[0].to_owned(), exposure)).collect(),
        metadata,
        header_extra: header.extra,
        store,
        ..SeriesStart::default()
    }
}

/// Keys that this encoder sets itself, whatever came with the image.
const OURS: [&str; 8] = ["htype", "msg_number", "frame", "shape", "type", "compression", "chunks", "discard"];

/// The encoder for one consumer. Messages are numbered over its life; keys that came with an image go out with it.
/// Several channels form one array with the channels as its first dimension; each is a message part of its own, as with
/// the receivers of MAX IV.
pub struct Encoder {
    msg_number: u64,
    /// Keys of the series that go out with every image.
    extra: Map<String, Value>,
    unpacker: ArrayUnpacker,
}

impl Encoder {
    /// An encoder for one consumer.
    pub fn new(unpacker: Box<dyn PixelUnpacker>) -> Self {
        Self { msg_number: 0, extra: Map::new(), unpacker: ArrayUnpacker::new(unpacker) }
    }

    fn next_number(&mut self) -> u64 {
        let number = self.msg_number;
        self.msg_number += 1;
        number
    }

    /// All channels as one array in a packing that STINS has a name for.
    fn array(&mut self, image: &CommittedImage) -> Result<Array, String> {
        if let [one] = &image.channels[..] {
            return self.nameable(&one.array);
        }
        let mut arrays = image.channels.iter().map(|channel| self.nameable(&channel.array)).collect::<Result<Vec<_>, _>>()?;
        if arrays.iter().any(|array| array.packing != arrays[0].packing || array.pieces.len() != 1) {
            arrays = arrays.iter().map(|array| self.unpacker.one_piece(array, &[Packing::None])).collect::<Result<_, _>>()?;
        }
        let (shape, element, packing) = (arrays[0].shape, arrays[0].element, arrays[0].packing);
        if arrays.iter().any(|array| (array.shape, array.element) != (shape, element)) {
            return Err("its channels differ in shape or type, and a message of STINS holds one array".into());
        }
        let stack = Shape::new(&[&[arrays.len() as u64], shape.dimensions()].concat());
        let shape =
            stack.ok_or_else(|| format!("{} channels of shape {:?} are not an array", arrays.len(), shape.dimensions()))?;
        Ok(Array { shape, element, packing, pieces: arrays.into_iter().flat_map(|array| array.pieces).collect() })
    }

    fn nameable(&mut self, array: &Array) -> Result<Array, String> {
        if Protocol::Stins.packings().contains(&array.packing) { Ok(array.clone()) } else { self.unpacker.pieces(array) }
    }

    fn first_part(&self, msg_number: u64, image: &CommittedImage, array: &Array) -> Result<Bytes, String> {
        let compression = if array.packing == Packing::None { "none" } else { "bslz4" };
        let mut first = Map::new();
        let mut add = |key: &str, value: Value| first.insert(key.to_owned(), value);
        add("htype", "image".into());
        add("msg_number", msg_number.into());
        add("frame", image.frame.into());
        add("shape", array.shape.dimensions().into());
        add("type", array.element.name().into());
        add("compression", compression.into());
        if array.pieces.len() > 1 {
            let piece = array.piece_shape().ok_or("its pieces are not equal parts of it")?;
            add("chunks", piece.dimensions().into());
        }
        let came: Map<String, Value> = serde_json::from_slice(&image.header_json).unwrap_or_default();
        if !image.store || came.contains_key("discard") {
            add("discard", (!image.store).into());
        }
        if image.status == ImageStatus::Partial {
            add("partial", true.into());
        }
        for (key, value) in came {
            if !OURS.contains(&key.as_str()) {
                first.entry(key).or_insert(value);
            }
        }
        for (key, value) in image.results.to_json() {
            first.entry(key).or_insert(value);
        }
        if let Some(times) = &image.times {
            // As Stream V1 names them.
            for (key, ns) in [("real_time", times.real_ns), ("start_time", times.start_ns), ("stop_time", times.stop_ns)] {
                first.entry(key).or_insert(ns.into());
            }
        }
        for (key, value) in self.extra.iter().filter(|(key, _)| !OURS.contains(&key.as_str())) {
            first.entry(key).or_insert_with(|| value.clone());
        }
        Ok(Value::Object(first).to_string().into())
    }
}

impl MessageEncoder for Encoder {
    fn start(&mut self, start: &SeriesStart) -> Result<Vec<Parts>, String> {
        self.extra.clone_from(&start.image_extra);
        let header = Header {
            msg_number: self.next_number(),
            filename: start.filename.as_deref().map(Cow::Borrowed),
            extra: start.header_extra.clone(),
            metadata: (!start.metadata.is_empty() || !start.store).then(|| {
                let mut metadata = start.metadata.clone();
                if !start.store {
                    metadata.insert("save_raw".into(), json!(false));
                }
                metadata
            }),
        };
        let parts = Message::Header(header).build().map_err(|refusal| refusal.to_string())?;
        Ok(vec![parts.into_iter().map(|part| Bytes::from(part.into_owned())).collect()])
    }

    fn image(&mut self, image: &CommittedImage) -> Result<Vec<Parts>, String> {
        if image.channels.is_empty() {
            return Ok(Vec::new());
        }
        let array = self.array(image)?;
        let first = self.first_part(self.msg_number, image, &array)?;
        // A number is used only for a message that is sent, because receivers wait for every number.
        self.next_number();
        Ok(vec![std::iter::once(first).chain(array.pieces).collect()])
    }

    fn end(&mut self, _end: &SeriesEnd) -> Result<Vec<Parts>, String> {
        let msg_number = self.next_number();
        let parts = Message::SeriesEnd { msg_number }.build().map_err(|refusal| refusal.to_string())?;
        Ok(vec![parts.into_iter().map(|part| Bytes::from(part.into_owned())).collect()])
    }
}
