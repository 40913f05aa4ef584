//! STINS. Messages are numbered over the life of the encoder; keys that came with an image go out with it. Several
//! channels form one array with the channels as its first dimension; each is a message part of its own, as with the
//! receivers of MAX IV.

use super::pixels::Unpacker;
use bytes::Bytes;
use konkordia_core::array::{Array, Packing, Shape};
use konkordia_core::image::CommittedImage;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::{MessageEncoder, Parts};
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_wire::stins::{Header, Message};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Keys that this encoder sets itself, whatever came with the image.
const OURS: [&str; 8] = ["htype", "msg_number", "frame", "shape", "type", "compression", "chunks", "discard"];

#[derive(Default)]
pub struct Stins {
    msg_number: u64,
    /// Keys of the series that go out with every image.
    extra: Map<String, Value>,
    unpacker: Unpacker,
}

impl Stins {
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
        match array.packing {
            Packing::None | Packing::BitshuffleLz4 => Ok(array.clone()),
            _ => self.unpacker.pieces(array),
        }
    }

    fn first_part(&self, msg_number: u64, image: &CommittedImage, array: &Array) -> Result<Bytes, String> {
        let compression = if array.packing == Packing::None { "none" } else { "bslz4" };
        let mut first = Map::new();
        let mut say = |key: &str, value: Value| first.insert(key.to_owned(), value);
        say("htype", "image".into());
        say("msg_number", msg_number.into());
        say("frame", image.frame.into());
        say("shape", array.shape.dimensions().into());
        say("type", array.element.name().into());
        say("compression", compression.into());
        if array.pieces.len() > 1 {
            let piece = array.piece_shape().ok_or("its pieces are not equal parts of it")?;
            say("chunks", piece.dimensions().into());
        }
        let came: Map<String, Value> = serde_json::from_slice(&image.header_json).unwrap_or_default();
        if !image.store || came.contains_key("discard") {
            say("discard", (!image.store).into());
        }
        if image.status == ImageStatus::Partial {
            say("partial", true.into());
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

impl MessageEncoder for Stins {
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
