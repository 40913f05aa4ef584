//! The messages of a series in each protocol, as a detector writes them. Pixels are shared, not copied, where the
//! protocol has a message part for them.

use super::args::{DetailChoice, ProtocolChoice};
use bytes::Bytes;
use konkordia_core::array::{Element, Packing, Shape};
use konkordia_core::sls_header::SlsHeader;
use konkordia_wire::dectris_v1::{self, Detail, Tables, Times};
use konkordia_wire::dectris_v2::{self, Seconds, Series};
use konkordia_wire::stream::{Pixels, Refusal};
use konkordia_wire::{cbor, sls_json, stins};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Packets of each image according to the JSON of the slsReceiver.
const PACKETS: u32 = 128;
/// Detector type JUNGFRAU in the JSON of the slsReceiver.
const DETECTOR_TYPE: u8 = 3;

/// What does not change from image to image.
#[derive(Clone, Debug)]
pub struct Form {
    /// Protocol of the messages.
    pub protocol: ProtocolChoice,
    /// Shape of one image, or of one module.
    pub shape: Shape,
    /// Type of one pixel.
    pub element: Element,
    /// How the pixels are compressed.
    pub packing: Packing,
    /// Names of the channels; one for most protocols.
    pub channels: Vec<String>,
    /// How much information the header has.
    pub detail: DetailChoice,
    /// Images of a series.
    pub images: u64,
    /// Time between two images, ns.
    pub period_ns: u64,
    /// Number of the module that this upstream sends.
    pub module: u16,
    /// Number of modules.
    pub modules: u16,
}

/// The parts of a message.
pub type Parts = Vec<Bytes>;

impl Form {
    /// Rows and columns; a shape with one dimension is one row.
    fn rows_columns(&self) -> (u64, u64) {
        let columns = *self.shape.dimensions().last().unwrap_or(&1);
        (self.shape.elements() / columns, columns)
    }

    fn pixels<'a>(&self, bytes: &'a Bytes) -> Result<Pixels<'a>, Refusal> {
        Pixels::new_checked(self.shape, self.element, self.packing, bytes, u64::MAX).map_err(|why| Refusal::new(0, why))
    }

    /// The message at the beginning of series `series`; `None` where the protocol has none.
    ///
    /// # Errors
    /// The protocol cannot express it.
    pub fn start(&self, series: u64, msg_number: u64, filename: Option<&str>) -> Result<Option<Parts>, Refusal> {
        match self.protocol {
            ProtocolChoice::Stins => Ok(Some(self.stins_start(msg_number, filename)?)),
            ProtocolChoice::Stream1 => Ok(Some(self.stream1_start(series, filename)?)),
            ProtocolChoice::Stream2 => Ok(Some(self.stream2_start(series, filename)?)),
            ProtocolChoice::Sls => Ok(None),
        }
    }

    /// The message of image `frame` of a series, with its compressed channels.
    ///
    /// # Errors
    /// The protocol cannot express it.
    pub fn image(
        &self,
        series: u64,
        frame: u64,
        msg_number: u64,
        filename: Option<&str>,
        channels: &[Bytes],
    ) -> Result<Parts, Refusal> {
        let one = channels.first().ok_or_else(|| Refusal::new(0, "there is no channel"))?;
        let start_ns = frame * self.period_ns;
        match self.protocol {
            ProtocolChoice::Stins => {
                let pieces = vec![self.pixels(one)?];
                let image = stins::Image { msg_number, frame, shape: self.shape, pieces, discard: false, first_part: &[] };
                Ok(shared(stins::Message::Image(image).build()?, one))
            }
            ProtocolChoice::Stream1 => {
                let times = Times { real_ns: self.period_ns, start_ns, stop_ns: start_ns + self.period_ns };
                let image = dectris_v1::Image { series, frame, pixels: self.pixels(one)?, times, appendix: None };
                Ok(shared(dectris_v1::Message::Image(image).build()?, one))
            }
            ProtocolChoice::Stream2 => self.stream2_image(series, frame, channels),
            ProtocolChoice::Sls => {
                let header = self.sls_header(series, frame, filename.unwrap_or_default());
                Ok(shared(sls_json::Message::Image(sls_json::Image { header, data: one }).build(), one))
            }
        }
    }

    /// The message at the end of series `series`.
    ///
    /// # Errors
    /// The protocol cannot express it.
    pub fn end(&self, series: u64, msg_number: u64) -> Result<Parts, Refusal> {
        let none = Bytes::new();
        match self.protocol {
            ProtocolChoice::Stins => Ok(shared(stins::Message::SeriesEnd { msg_number }.build()?, &none)),
            ProtocolChoice::Stream1 => Ok(shared(dectris_v1::Message::SeriesEnd { series }.build()?, &none)),
            ProtocolChoice::Stream2 => {
                let mut out = Vec::new();
                let unique_id = self.unique_id(series);
                dectris_v2::Message::End(Series { id: series, unique_id: &unique_id }).build(&mut out)?;
                Ok(vec![out.into()])
            }
            ProtocolChoice::Sls => Ok(shared(sls_json::Message::End { version: 5 }.build(), &none)),
        }
    }

    fn stins_start(&self, msg_number: u64, filename: Option<&str>) -> Result<Parts, Refusal> {
        let metadata = self.settings();
        let metadata = (self.detail != DetailChoice::None).then_some(metadata);
        let header = stins::Header { msg_number, filename: filename.map(Cow::Borrowed), extra: Map::new(), metadata };
        Ok(shared(stins::Message::Header(header).build()?, &Bytes::new()))
    }

    /// Settings of the detector, named as in DECTRIS' REST interface.
    fn settings(&self) -> Map<String, Value> {
        let (rows, columns) = self.rows_columns();
        let frame_time_s = self.period_ns as f64 / 1e9;
        let all = json!({
            "description": "Konkordia stream generator", "detector_number": "K-0001", "software_version": env!("CARGO_PKG_VERSION"),
            "nimages": self.images, "ntrigger": 1, "trigger_mode": "ints", "count_time": frame_time_s, "frame_time": frame_time_s,
            "x_pixels_in_detector": columns, "y_pixels_in_detector": rows, "bit_depth_image": self.element.bits(),
            "bit_depth_readout": self.element.bits(), "photon_energy": 12400.0, "wavelength": 0.999_872, "detector_distance": 0.1,
            "beam_center_x": columns as f64 / 2.0, "beam_center_y": rows as f64 / 2.0, "x_pixel_size": 7.5e-5,
            "y_pixel_size": 7.5e-5, "sensor_material": "Si", "sensor_thickness": 4.5e-4,
        });
        match all {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn stream1_start(&self, series: u64, filename: Option<&str>) -> Result<Parts, Refusal> {
        let (rows, columns) = self.rows_columns();
        let pixels = (rows * columns) as usize;
        let plane = Shape::new(&[rows, columns]).ok_or_else(|| Refusal::new(0, "there is no such plane"))?;
        let ones: Vec<u8> = 1f32.to_le_bytes().repeat(pixels);
        let zeros = vec![0; 4 * pixels];
        let rates: Vec<u8> = [0f32, 0.0, 1e6, 1e6].iter().flat_map(|rate| rate.to_le_bytes()).collect();
        let table = |shape, element, bytes| {
            Pixels::new_checked(shape, element, Packing::None, bytes, u64::MAX).map_err(|why| Refusal::new(0, why))
        };
        let detail = match self.detail {
            DetailChoice::None => Detail::None,
            DetailChoice::Basic => Detail::Basic(self.settings()),
            DetailChoice::All => {
                let tables = Tables {
                    flat_field: Some(table(plane, Element::Float32, &ones)?),
                    pixel_mask: Some(table(plane, Element::Uint32, &zeros)?),
                    count_rate: Some(table(Shape::new(&[2, 2]).unwrap_or(plane), Element::Float32, &rates)?),
                    not_read: Vec::new(),
                };
                Detail::All(self.settings(), Box::new(tables))
            }
        };
        let appendix = filename.map(|name| json!({ "filename": name }).to_string());
        let appendix = appendix.as_deref().map(str::as_bytes);
        Ok(shared(dectris_v1::Message::Header(dectris_v1::Header { series, detail, appendix }).build()?, &Bytes::new()))
    }

    fn unique_id(&self, series: u64) -> String {
        format!("KONKORDIA-STREAM-{series:09}")
    }

    fn stream2_start(&self, series: u64, filename: Option<&str>) -> Result<Parts, Refusal> {
        let (rows, columns) = self.rows_columns();
        let unique_id = self.unique_id(series);
        let mut start = dectris_v2::Start { series: Series { id: series, unique_id: &unique_id }, ..Default::default() };
        start.channels = self.channels.iter().map(String::as_str).collect();
        let user_data = filename.map(|name| cbor::item_of(&json!({ "filename": name })));
        start.user_data = user_data.as_deref().and_then(|bytes| cbor::Item::new_checked(bytes).ok());
        let tables = (1f32.to_le_bytes().repeat((rows * columns) as usize), vec![0; 4 * (rows * columns) as usize]);
        if self.detail != DetailChoice::None {
            let frame_time_s = Some(self.period_ns as f64 / 1e9);
            (start.count_time_s, start.frame_time_s) = (frame_time_s, frame_time_s);
            (start.image_size_x, start.image_size_y) = (Some(columns), Some(rows));
            (start.beam_center_x, start.beam_center_y) = (Some(columns as f64 / 2.0), Some(rows as f64 / 2.0));
            (start.pixel_size_x_m, start.pixel_size_y_m) = (Some(7.5e-5), Some(7.5e-5));
            start.image_element = Some(self.element);
            start.number_of_images = Some(self.images);
            start.incident_energy_ev = Some(12400.0);
            start.detector_description = Some("Konkordia stream generator");
            start.detector_serial_number = Some("K-0001");
            start.arm_date = Some("2026-01-01T00:00:00.000000+00:00");
            (start.sensor_material, start.sensor_thickness_m) = (Some("Si"), Some(4.5e-4));
            start.threshold_energy_ev = start.channels.iter().zip(1..).map(|(name, n)| (*name, 3100.0 * f64::from(n))).collect();
        }
        if self.detail == DetailChoice::All {
            let plane = Shape::new(&[rows, columns]).ok_or_else(|| Refusal::new(0, "there is no such plane"))?;
            let table = |element, bytes| {
                Pixels::new_checked(plane, element, Packing::None, bytes, u64::MAX).map_err(|why| Refusal::new(0, why))
            };
            for channel in self.channels.iter().map(String::as_str) {
                start.flat_field.push((channel, table(Element::Float32, &tables.0)?));
                start.pixel_mask.push((channel, table(Element::Uint32, &tables.1)?));
            }
        }
        let mut out = Vec::new();
        dectris_v2::Message::Start(Box::new(start)).build(&mut out)?;
        Ok(vec![out.into()])
    }

    fn stream2_image(&self, series: u64, frame: u64, channels: &[Bytes]) -> Result<Parts, Refusal> {
        let unique_id = self.unique_id(series);
        let seconds = |ns: u64| Seconds::new(ns, 1_000_000_000);
        let start_ns = frame * self.period_ns;
        let pixels = self.channels.iter().zip(channels).map(|(name, bytes)| Ok((name.as_str(), self.pixels(bytes)?)));
        let image = dectris_v2::Image {
            series: Series { id: series, unique_id: &unique_id },
            image_id: frame,
            real_time: seconds(self.period_ns),
            start_time: seconds(start_ns),
            stop_time: seconds(start_ns + self.period_ns),
            channels: pixels.collect::<Result<_, Refusal>>()?,
            ..Default::default()
        };
        let bytes: usize = channels.iter().map(Bytes::len).sum();
        let mut out = Vec::with_capacity(bytes + 1024);
        dectris_v2::Message::Image(image).build(&mut out)?;
        Ok(vec![out.into()])
    }

    fn sls_header<'a>(&self, series: u64, frame: u64, file_name: &'a str) -> sls_json::Header<'a> {
        let (rows, columns) = self.rows_columns();
        let frame_header = SlsHeader {
            frame_number: frame + 1,
            timestamp_100ns: frame * self.period_ns / 100,
            bunch_id: 0,
            exposure_length: u32::try_from(self.period_ns / 100).unwrap_or(u32::MAX),
            daq_info: 0,
            module_id: self.module,
            row: self.module,
            column: 0,
        };
        sls_json::Header {
            version: 5,
            bits: self.element.bits(),
            columns,
            rows,
            ports: (1, u64::from(self.modules)),
            file_index: series,
            frame_index: frame,
            progress_percent: (frame + 1) as f64 * 100.0 / self.images as f64,
            file_name: Cow::Borrowed(file_name),
            complete: true,
            packets_caught: PACKETS,
            frame: frame_header,
            detector_specific_2: 0,
            detector_specific_4: 0,
            detector_type: DETECTOR_TYPE,
            header_version: 2,
            flip_rows: false,
            quad: false,
            added: Map::new(),
            files_roi: None,
        }
    }
}

/// The parts of a message. A part that is `pixels` shares its memory.
fn shared(parts: Vec<Cow<'_, [u8]>>, pixels: &Bytes) -> Parts {
    let part = |part: Cow<'_, [u8]>| match part {
        Cow::Owned(bytes) => Bytes::from(bytes),
        Cow::Borrowed(slice) if slice.as_ptr() == pixels.as_ptr() && slice.len() == pixels.len() => pixels.clone(),
        Cow::Borrowed(slice) => Bytes::copy_from_slice(slice),
    };
    parts.into_iter().map(part).collect()
}
