//! Messages that Python sends: encoded as the service encodes its own.

use super::errors::value;
use super::lent_sys::lent;
use super::stream::protocol;
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, CommittedImage, ImageTimes};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::{Message, MessageEncoder, Parts};
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{ChannelStart, Ended, SeriesEnd, SeriesLedger, SeriesStart};
use konkordia_kernels::transform::Unpacker;
use konkordia_wire::message::{DecoderOptions, DecoderSetup, Event};
use konkordia_wire::protocols;
use konkordia_wire::stream::Bounds;
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Parts up to this size are copied.
const COPIED_BYTES_MAX: usize = 4096;

/// A message as Python sends it.
type Sent = Vec<Py<PyAny>>;

/// Encodes the messages of one sender, whose images have one size and type.
#[pyclass(frozen, module = "konkordia._native")]
pub struct StreamEncoder {
    encoder: Mutex<Box<dyn MessageEncoder>>,
    shape: Shape,
    element: Element,
    packing: Packing,
    channels: Vec<Arc<str>>,
}

#[pymethods]
impl StreamEncoder {
    #[new]
    fn new(protocol_name: &str, shape: Vec<u64>, dtype: &str, channels: Vec<String>, packing: &str) -> PyResult<Self> {
        let protocol = protocol(protocol_name)?;
        let shape = Shape::new(&shape).ok_or_else(|| value(format!("there are no images of shape {shape:?}")))?;
        let element = Element::from_name(dtype).filter(|element| !element.is_packed());
        let element = element.ok_or_else(|| value(format!("there are no images of dtype {dtype}")))?;
        if let Some(carried) = protocol.refuses(element) {
            return Err(value(format!("{}; {dtype} is none", carried.why)));
        }
        let packing = Packing::from_name(packing).filter(|packing| protocol.packings().contains(packing));
        let names: Vec<&str> = protocol.packings().iter().map(|packing| packing.name()).collect();
        let packing = packing.ok_or_else(|| value(format!("images in {protocol_name} are packed by: {}", names.join(", "))))?;
        let encoder = protocols::encoder(protocol, Box::new(Unpacker::new()));
        let encoder = encoder.ok_or_else(|| {
            let names = Protocol::OUTGOING_NAMES.join(", ");
            value(format!("nothing is sent in {protocol_name}; there are: {names}"))
        })?;
        let channels = channels.into_iter().map(Arc::from).collect();
        Ok(Self { encoder: Mutex::new(encoder), shape, element, packing, channels })
    }

    /// The messages with which a series begins. `metadata` is the text of a JSON object.
    fn start(
        &self,
        py: Python<'_>,
        series: u64,
        filename: Option<&str>,
        images: Option<u64>,
        metadata: &str,
    ) -> PyResult<Vec<Sent>> {
        let mut start = start_of(filename, metadata)?;
        let name = |name: &Arc<str>| ChannelStart { name: name.to_string(), ..ChannelStart::default() };
        start.series = series;
        start.images_planned = images;
        start.element = Some(self.element);
        start.image_size = match self.shape.dimensions() {
            [.., rows, columns] => Some([*rows, *columns]),
            _ => None,
        };
        start.channels = self.channels.iter().map(name).collect();
        self.encoded(py, &[], |encoder| encoder.start(&start))
    }

    /// The messages of an image, whose channels are given packed; they are shared, and nobody may write them.
    fn image(
        &self,
        py: Python<'_>,
        number: u64,
        pixels: Vec<Bound<'_, PyAny>>,
        metadata: Option<&str>,
        times_ns: Option<(u64, u64, u64)>,
    ) -> PyResult<Vec<Sent>> {
        if pixels.len() != self.channels.len().max(1) {
            return Err(value(format!("an image has {} channels, not {}", self.channels.len().max(1), pixels.len())));
        }
        let given: Vec<Bytes> = pixels.iter().map(lent).collect::<PyResult<_>>()?;
        let name = |n: usize| self.channels.get(n).map_or_else(|| "".into(), Arc::clone);
        let channel = |(n, data): (usize, &Bytes)| {
            let array = Array { shape: self.shape, element: self.element, packing: self.packing, pieces: vec![data.clone()] };
            Channel { name: name(n), array }
        };
        let image = CommittedImage {
            status: ImageStatus::Complete,
            channels: given.iter().enumerate().map(channel).collect(),
            times: times_ns.map(|(start_ns, stop_ns, real_ns)| ImageTimes { start_ns, stop_ns, real_ns }),
            header_json: metadata.map_or_else(Bytes::new, |text| Bytes::copy_from_slice(text.as_bytes())),
            ..CommittedImage::lost(number)
        };
        let known: Vec<(Bytes, &Bound<'_, PyAny>)> = given.into_iter().zip(&pixels).collect();
        self.encoded(py, &known, |encoder| encoder.image(&image))
    }

    /// The messages with which a series ends.
    fn end(&self, py: Python<'_>) -> PyResult<Vec<Sent>> {
        let end = SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: SeriesLedger::default() };
        self.encoded(py, &[], |encoder| encoder.end(&end))
    }
}

impl StreamEncoder {
    /// Encodes without Python's lock. A part that is one of the `known` is given as the object that it came in.
    fn encoded(
        &self,
        py: Python<'_>,
        known: &[(Bytes, &Bound<'_, PyAny>)],
        encode: impl FnOnce(&mut dyn MessageEncoder) -> Result<Vec<Parts>, String> + Send,
    ) -> PyResult<Vec<Sent>> {
        let messages = py.detach(|| encode(&mut **self.encoder.lock().unwrap_or_else(PoisonError::into_inner)));
        let messages = messages.map_err(|why| value(format!("the image cannot be sent: {why}")))?;
        let place = |bytes: &Bytes| (bytes.as_ptr(), bytes.len());
        let part = |part: Bytes| match known.iter().find(|(given, _)| place(given) == place(&part)) {
            Some((_, object)) => (*object).clone().unbind(),
            None if part.len() <= COPIED_BYTES_MAX => PyBytes::new(py, &part).into_any().unbind(),
            None => Vec::from(part).into_pyarray(py).into_any().unbind(),
        };
        Ok(messages.into_iter().map(|message| message.into_iter().map(part).collect()).collect())
    }
}

/// The start of a series with what its metadata say, read as those of a STINS sender.
fn start_of(filename: Option<&str>, metadata: &str) -> PyResult<SeriesStart> {
    let map: Map<String, Value> = serde_json::from_str(metadata).map_err(|why| value(format!("metadata: {why}")))?;
    let first = json!({ "htype": "header", "msg_number": 0, "filename": filename.unwrap_or("") }).to_string();
    let mut parts = vec![Bytes::from(first)];
    if !map.is_empty() {
        parts.push(Bytes::copy_from_slice(metadata.as_bytes()));
    }
    let setup =
        DecoderSetup { bounds: Bounds::default(), options: DecoderOptions::default(), unpacker: Box::new(Unpacker::new()) };
    let read = protocols::decoder(Protocol::Stins, setup).read(&Message { parts });
    match read.map_err(|refusal| value(format!("metadata: {}", refusal.why)))?.event {
        Event::Start(_, start) => Ok(*start),
        _ => Err(value("the metadata are no start of a series")),
    }
}
