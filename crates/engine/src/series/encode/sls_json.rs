//! The stream of SLS receivers, version 5 of the JSON. Pixels are not packed; each channel is sent as a port of its
//! own, one above the other.

use super::pixels::{Unpacker, flat};
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing};
use konkordia_core::image::CommittedImage;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::{MessageEncoder, Parts};
use konkordia_core::results::ImageResults;
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_core::sls_header::SlsHeader;
use konkordia_wire::sls_json::{Header, Image, Message};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

const VERSION: u32 = 5;
const TICK_NS: u64 = 100;

#[derive(Default)]
pub struct SlsJson {
    file_index: u64,
    file_name: String,
    images_planned: Option<u64>,
    unpacker: Unpacker,
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

impl SlsJson {
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

impl MessageEncoder for SlsJson {
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
            match array.element {
                Element::Float32 | Element::Float64 | Element::Uint64 | Element::Int64 => {
                    let name = array.element.name();
                    return Err(format!("its pixels are {name}; the SLS stream has whole numbers of 8, 16 and 32 bits"));
                }
                _ => {}
            }
            let array = self.unpacker.one_piece(&array, &[Packing::None])?;
            messages.push(self.message(image, &came, (port, ports), &array)?);
        }
        Ok(messages)
    }

    fn end(&mut self, _end: &SeriesEnd) -> Result<Vec<Parts>, String> {
        let parts = Message::End { version: VERSION }.build();
        Ok(vec![parts.into_iter().map(|part| Bytes::from(part.into_owned())).collect()])
    }
}
