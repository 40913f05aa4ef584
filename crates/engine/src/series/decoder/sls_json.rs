//! The stream of SLS receivers: one message per UDP port and frame, without a start. The key of a series is its file
//! index + 1. End messages do not name their series, so they end that of the last image of this upstream.

use super::super::event::{Decoder, Event, ImagePart, Read, SeriesKey};
use super::facts;
use super::parts::{slices, unnumbered};
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, ImageTimes};
use konkordia_core::ports::Message;
use konkordia_core::series::SeriesStart;
use konkordia_core::tile::DetectorKind;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::pixels::mono12p;
use konkordia_wire::sls_json::{self, Header, Image};
use konkordia_wire::sls_udp::detector_type;
use konkordia_wire::stream::{Bounds, Refusal};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const PIXELS: usize = 1;
const TICK_NS: u64 = 100;

pub struct SlsJson {
    bounds: Bounds,
    isa: Isa,
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

impl SlsJson {
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, isa: Isa::detect(), no_name: "".into(), open: None, last: SeriesKey::default() }
    }

    fn part(&mut self, message: &Message, image: &Image) -> Result<ImagePart, Refusal> {
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

    fn array(&self, part: &Bytes, image: &Image) -> Result<Array, Refusal> {
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
                mono12p(self.isa, image.data, &mut pixels);
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

impl Decoder for SlsJson {
    fn read(&mut self, message: &Message) -> Result<Read, Refusal> {
        Ok(unnumbered(match sls_json::Message::parse(&slices(message), &self.bounds)? {
            sls_json::Message::Image(image) => Event::Part(Box::new(self.part(message, &image)?)),
            sls_json::Message::End { .. } => {
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
    let mut say = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
    say("jsonversion", header.version.into());
    say("fileIndex", header.file_index.into());
    say("fname", (&*header.file_name).into());
    say("bitmode", header.bits.into());
    say("detshape", json!([header.ports.0, header.ports.1]));
    say("detType", header.detector_type.into());
    say("flipRows", header.flip_rows.into());
    say("quad", header.quad.into());
    if !header.added.is_empty() {
        say("addJsonHeader", Value::Object(header.added.clone()));
    }
    if let Some(roi) = header.files_roi {
        say("rx_roi", json!(roi));
    }
    SeriesStart {
        series: header.file_index,
        filename: filename(header),
        image_size: whole.then_some([header.rows, header.columns]),
        element: facts::counts(bits.into()),
        facts: konkordia_core::experiment::Metadata { bit_depth: Some(header.bits), ..Default::default() },
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
