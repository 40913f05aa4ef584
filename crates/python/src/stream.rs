//! Messages of streams, for Python: decoded as the service decodes them, in the memory in which they came.

use super::errors::value;
use super::lent_sys::lent;
use super::stream_pixels::{dtype, unpack};
use super::stream_start::StreamStart;
use konkordia_core::array::Array;
use konkordia_core::ports::Message;
use konkordia_core::protocol::Protocol;
use konkordia_core::results;
use konkordia_kernels::transform::Unpacker;
use konkordia_wire::message::{DecoderOptions, DecoderSetup, Event, ImagePart, MessageDecoder};
use konkordia_wire::protocols;
use konkordia_wire::stream::Bounds;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// Decodes the messages of one sender.
#[pyclass(frozen, module = "konkordia._native")]
pub struct StreamDecoder {
    decoder: Mutex<Box<dyn MessageDecoder>>,
}

/// An image in the memory of its message.
#[pyclass(frozen, module = "konkordia._native")]
pub struct StreamImage(ImagePart);

/// Kind, number of the message, series, start, image.
type Decoded = (&'static str, Option<u64>, u64, Option<StreamStart>, Option<StreamImage>);

/// The protocol of this name under `[source]`.
pub fn protocol(name: &str) -> PyResult<Protocol> {
    let known = Protocol::of_source(name).filter(|protocol| *protocol != Protocol::Files);
    known.ok_or_else(|| {
        let names = Protocol::SOURCE_NAMES.iter().filter(|name| **name != Protocol::Files.facts().source_name);
        let names: Vec<&str> = names.copied().collect();
        value(format!("there is no protocol {name:?}; there are: {}", names.join(", ")))
    })
}

fn parts(parts: &[Bound<'_, PyAny>]) -> PyResult<Message> {
    if parts.is_empty() {
        return Err(value("a message has at least one part"));
    }
    Ok(Message { parts: parts.iter().map(lent).collect::<PyResult<_>>()? })
}

/// The protocol that a message seems to have.
#[pyfunction]
pub fn protocol_of(message: Vec<Bound<'_, PyAny>>) -> PyResult<Option<&'static str>> {
    let message = parts(&message)?;
    let slices: Vec<&[u8]> = message.parts.iter().map(|part| &part[..]).collect();
    Ok(protocols::of_message(&slices).map(|protocol| protocol.facts().source_name))
}

/// True if a result of the service has this name.
#[pyfunction]
pub fn is_result(name: &str) -> bool {
    results::meaning(name).is_some()
}

#[pymethods]
impl StreamDecoder {
    #[new]
    fn new(protocol_name: &str, image_bytes_max: u64) -> PyResult<Self> {
        let bounds = Bounds { image_bytes_max, table_bytes_max: image_bytes_max, ..Bounds::default() };
        let setup = DecoderSetup { bounds, options: DecoderOptions::default(), unpacker: Box::new(Unpacker::new()) };
        Ok(Self { decoder: Mutex::new(protocols::decoder(protocol(protocol_name)?, setup)) })
    }

    /// What a message means; `ValueError` if it cannot be read.
    fn read(&self, message: Vec<Bound<'_, PyAny>>) -> PyResult<Decoded> {
        let message = parts(&message)?;
        let mut decoder = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
        let read = decoder.read(&message).map_err(|refusal| value(refusal.to_string()))?;
        let number = read.message_number;
        Ok(match read.event {
            Event::Start(key, start) => ("start", number, key.0, Some(StreamStart(Arc::from(start))), None),
            Event::Part(mut part) => {
                let start = part.start.take().map(StreamStart);
                ("image", number, part.series.0, start, Some(StreamImage(*part)))
            }
            Event::End(key) => ("end", number, key.0, None, None),
            Event::Other => ("other", number, 0, None, None),
        })
    }
}

#[pymethods]
impl StreamImage {
    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }

    #[getter]
    fn is_partial(&self) -> bool {
        self.0.is_partial
    }

    /// Begin, end and length of the exposure, ns since the start of the series.
    #[getter]
    fn times_ns(&self) -> Option<(u64, u64, u64)> {
        self.0.times.map(|times| (times.start_ns, times.stop_ns, times.real_ns))
    }

    /// What else the sender says, as JSON; empty if nothing.
    #[getter]
    fn about(&self) -> String {
        String::from_utf8_lossy(&self.0.header_json).into_owned()
    }

    #[getter]
    fn channel_names(&self) -> Vec<String> {
        self.0.channels.iter().map(|channel| channel.name.to_string()).collect()
    }

    /// Shape, type and packed bytes of a channel.
    fn described(&self, channel: usize) -> PyResult<(Vec<u64>, &'static str, u64)> {
        let array = self.array(channel)?;
        Ok((array.shape.dimensions().to_vec(), dtype(array), array.packed_bytes()))
    }

    /// Unpacks a channel into an array of its shape and type.
    fn unpack(&self, py: Python<'_>, channel: usize, out: &Bound<'_, PyAny>) -> PyResult<()> {
        unpack(py, self.array(channel)?, out)
    }
}

impl StreamImage {
    fn array(&self, channel: usize) -> PyResult<&Array> {
        let found = self.0.channels.get(channel).map(|channel| &channel.array);
        found.ok_or_else(|| value(format!("the image has {} channels", self.0.channels.len())))
    }
}
