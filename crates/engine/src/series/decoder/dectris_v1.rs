//! DECTRIS Stream V1. An image has one channel without a name, for which the tables of the header hold.

use super::super::event::{Decoder, Event, ImagePart, Read, SeriesKey};
use super::parts::{shared, slices, unnumbered};
use super::tables::{table, table_warning};
use super::{facts, maxiv};
use bytes::Bytes;
use konkordia_core::array::Element;
use konkordia_core::experiment::Metadata;
use konkordia_core::image::{Channel, ImageTimes};
use konkordia_core::ports::Message;
use konkordia_core::series::{ChannelStart, SeriesStart};
use konkordia_wire::dectris_v1::{self, Header, Image};
use konkordia_wire::stream::{Bounds, Pixels, Refusal};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Numbers of the parts that are shared, from 0.
mod part {
    pub const FLAT_FIELD: usize = 3;
    pub const PIXEL_MASK: usize = 5;
    pub const IMAGE: usize = 2;
    pub const IMAGE_APPENDIX: usize = 4;
}

pub struct DectrisV1 {
    bounds: Bounds,
    is_maxiv: bool,
    no_name: Arc<str>,
}

impl DectrisV1 {
    pub fn new(bounds: Bounds, is_maxiv: bool) -> Self {
        Self { bounds, is_maxiv, no_name: "".into() }
    }

    fn part(&self, message: &Message, image: &Image) -> ImagePart {
        let array = shared(&message.parts[part::IMAGE], &image.pixels);
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

impl Decoder for DectrisV1 {
    fn read(&mut self, message: &Message) -> Result<Read, Refusal> {
        let read = dectris_v1::Message::parse(&slices(message), &self.bounds)?;
        let key = SeriesKey(read.series());
        Ok(unnumbered(match read {
            dectris_v1::Message::Header(header) => {
                Event::Start(key, Box::new(start(message, &header, &self.bounds, self.is_maxiv)))
            }
            dectris_v1::Message::Image(image) => Event::Part(Box::new(self.part(message, &image))),
            dectris_v1::Message::SeriesEnd { .. } => Event::End(key),
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

fn start(message: &Message, header: &Header, bounds: &Bounds, is_maxiv: bool) -> SeriesStart {
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
        channel.flat_field = shared(part::FLAT_FIELD, &tables.flat_field, Element::Float32, "flat field");
        channel.pixel_mask = shared(part::PIXEL_MASK, &tables.pixel_mask, Element::Uint32, "pixel mask");
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

pub(super) fn facts_of(config: &Map<String, Value>) -> Metadata {
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
