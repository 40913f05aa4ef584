//! STINS. Its messages do not name their series, so the key is always 0; they are numbered over the life of the sender.

use super::super::event::{Decoder, Event, ImagePart, Read, SeriesKey};
use super::options::DecoderOptions;
use super::parts::{of_part, slices};
use super::{dectris_v1, facts, files, maxiv};
use bytes::{BufMut, Bytes, BytesMut};
use konkordia_core::array::Array;
use konkordia_core::experiment::Metadata;
use konkordia_core::image::Channel;
use konkordia_core::ports::Message;
use konkordia_core::series::SeriesStart;
use konkordia_wire::stins::{self, Enclosed, Header};
use konkordia_wire::stream::{Bounds, Pixels, Refusal};
use serde_json::Value;
use std::sync::Arc;

const PIXELS: usize = 1;

pub struct Stins {
    bounds: Bounds,
    options: DecoderOptions,
    no_name: Arc<str>,
}

impl Stins {
    pub fn new(bounds: Bounds, options: DecoderOptions) -> Self {
        Self { bounds, options, no_name: "".into() }
    }

    fn part(&self, message: &Message, number: u64, discard: bool, array: Array) -> Event {
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
    fn enclosed(&self, message: &Message) -> Result<Option<Read>, Refusal> {
        let Some(image) = Enclosed::parse(&slices(message), &self.bounds)? else { return Ok(None) };
        let (array, _) = files::cbf_pixels(&message.parts[PIXELS], &self.bounds).map_err(of_part(PIXELS))?;
        if let Some(said) = image.shape.filter(|said| *said != array.shape) {
            let (said, is) = (said.dimensions(), array.shape.dimensions());
            return Err(Refusal::new(PIXELS, format!("the message says {said:?}, but the CBF file is an image of {is:?}")));
        }
        let event = self.part(message, image.frame, image.discard, array);
        Ok(Some(Read { message_number: Some(image.msg_number), event }))
    }
}

impl Decoder for Stins {
    fn read(&mut self, message: &Message) -> Result<Read, Refusal> {
        if self.options.pixels_are_cbf
            && let Some(read) = self.enclosed(message)?
        {
            return Ok(read);
        }
        let read = stins::Message::parse_piece(&slices(message), &self.bounds, self.options.pieces)?;
        let message_number = Some(read.msg_number());
        let event = match read {
            stins::Message::Header(header) => Event::Start(SeriesKey::default(), Box::new(start(header))),
            stins::Message::Image(image) => {
                let one = image.pieces.first().ok_or_else(|| Refusal::new(PIXELS, "an image has no pixels"))?;
                let pieces = message.parts[PIXELS..].iter().zip(&image.pieces).map(|(part, piece)| with_header(part, piece));
                let array =
                    Array { shape: image.shape, element: one.element(), packing: one.packing(), pieces: pieces.collect() };
                self.part(message, image.frame, image.discard, array)
            }
            stins::Message::SeriesEnd { .. } => Event::End(SeriesKey::default()),
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
