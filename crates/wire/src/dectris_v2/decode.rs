//! The decoder of DECTRIS Stream V2 and of the superset of it that Jungfraujoch sends: further kinds of messages are
//! not used, further keys become metadata.

use super::{Image, Message, Seconds, Start, kind_of};
use crate::cbor::Item;
use crate::message::{DecoderSetup, Event, ImagePart, MessageDecoder, Read, SeriesKey, shared, slices, unnumbered};
use crate::shared::names::Names;
use crate::shared::tables::{table, table_warning};
use crate::shared::{facts, maxiv};
use crate::stream::{Bounds, Pixels, Refusal};
use bytes::Bytes;
use konkordia_core::array::{Array, Element};
use konkordia_core::experiment::Metadata;
use konkordia_core::image::{Channel, ImageTimes};
use konkordia_core::ports;
use konkordia_core::series::{ChannelStart, SeriesStart};
use serde_json::{Map, Value};

/// Kinds of messages that only Jungfraujoch sends.
const OTHER_KINDS: [&str; 2] = ["calibration", "metadata"];
/// Keys of the start that are no metadata.
const TABLES: [&str; 3] = ["type", "pixel_mask", "flatfield"];

/// The decoder.
pub struct Decoder {
    bounds: Bounds,
    is_maxiv: bool,
    names: Names,
}

impl Decoder {
    /// A decoder of one upstream.
    pub fn new(DecoderSetup { bounds, options, .. }: DecoderSetup) -> Self {
        Self { bounds, is_maxiv: options.is_maxiv, names: Names::default() }
    }

    fn part(&mut self, part: &Bytes, image: &Image) -> Result<ImagePart, Refusal> {
        let names = &mut self.names;
        let channels = image.channels.iter().map(|(name, pixels)| Channel { name: names.get(name), array: shared(part, pixels) });
        Ok(ImagePart {
            series: SeriesKey(image.series.id),
            number: image.image_id,
            channels: channels.collect(),
            store: true,
            is_partial: false,
            times: times(image),
            header_json: about(image, &self.bounds)?,
            start: None,
        })
    }
}

impl MessageDecoder for Decoder {
    fn read(&mut self, message: &ports::Message) -> Result<Read, Refusal> {
        if let [part] = &message.parts[..]
            && kind_of(part).is_some_and(|kind| OTHER_KINDS.contains(&kind))
        {
            return Ok(unnumbered(Event::Other));
        }
        let read = Message::parse(&slices(message), &self.bounds)?;
        let key = SeriesKey(read.series().id);
        // There is one part, or it would have been refused.
        let part = &message.parts[0];
        Ok(unnumbered(match read {
            Message::Start(said) => {
                let start = start(part, &said, &self.bounds, self.is_maxiv).map_err(|why| Refusal::new(0, why))?;
                Event::Start(key, Box::new(start))
            }
            Message::Image(image) => Event::Part(Box::new(self.part(part, &image)?)),
            Message::End(_) => Event::End(key),
        }))
    }
}

fn times(image: &Image) -> Option<ImageTimes> {
    let ns = |seconds: Option<Seconds>| seconds.map(Seconds::to_ns);
    let (start, stop, real) = (ns(image.start_time), ns(image.stop_time), ns(image.real_time));
    // Two of the three times give the third.
    let start_ns = start.or_else(|| Some(stop?.saturating_sub(real?)))?;
    let stop_ns = stop.or_else(|| Some(start_ns.saturating_add(real?)))?;
    Some(ImageTimes { start_ns, stop_ns, real_ns: real.unwrap_or(stop_ns.saturating_sub(start_ns)) })
}

/// Further data of an image as a JSON object; empty if there is none.
fn about(image: &Image, bounds: &Bounds) -> Result<Bytes, Refusal> {
    let mut about = Map::new();
    if let Some(date) = image.series_date {
        about.insert("series_date".into(), date.into());
    }
    if let Some(item) = &image.user_data {
        let said = match item.text_in_bytes() {
            Some(text) => text.into(),
            None => item.json(&[], bounds.text_bytes_max).map_err(|why| Refusal::new(0, format!("'user_data': {why}")))?,
        };
        about.insert("user_data".into(), said);
    }
    Ok(if about.is_empty() { Bytes::new() } else { Value::Object(about).to_string().into() })
}

fn start(part: &Bytes, said: &Start, bounds: &Bounds, is_maxiv: bool) -> Result<SeriesStart, String> {
    let everything = Item::new_checked(part)?.json(&TABLES, bounds.text_bytes_max)?;
    let mut metadata = match everything {
        Value::Object(map) => map,
        // It was parsed as a map before.
        _ => Map::new(),
    };
    if !said.tables_not_read.is_empty() {
        metadata.insert("tables_not_read".into(), said.tables_not_read.iter().map(|key| Value::from(*key)).collect());
    }
    let mut filename = None;
    if let Some(user) = metadata.get_mut("user_data") {
        let text = said.user_data.and_then(|item| item.text_in_bytes());
        *user = facts::user_value(text.map_or_else(|| user.take(), Value::from));
        filename = facts::filename(user);
    }
    let mut warnings: Vec<String> =
        said.tables_not_read.iter().map(|key| table_warning(key, "it is not a valid array")).collect();
    let channels = said.channels.iter().map(|name| channel(part, said, name, &mut warnings)).collect();
    let mut facts = facts_of(said, &metadata);
    if let Some(user) = metadata.get("user_data").and_then(Value::as_object) {
        facts::enter(user, &mut facts);
    }
    let mut start = SeriesStart {
        series: said.series.id,
        unique_id: said.series.unique_id.to_owned(),
        filename,
        images_planned: said.number_of_images,
        image_size: said.image_size_y.zip(said.image_size_x).map(|(rows, columns)| [rows, columns]),
        element: said.image_element,
        channels,
        facts,
        metadata,
        warnings,
        store: true,
        ..SeriesStart::default()
    };
    if is_maxiv {
        maxiv::of_v2(&mut start);
    }
    Ok(start)
}

fn channel(part: &Bytes, said: &Start, name: &str, warnings: &mut Vec<String>) -> ChannelStart {
    let mut of = |all: &[(&str, Pixels)], key: &str, wanted: Element| -> Option<Array> {
        let (_, pixels) = all.iter().find(|(of, _)| *of == name)?;
        table(part, pixels, wanted).map_err(|why| warnings.push(table_warning(&format!("{key} of {name}"), &why))).ok()
    };
    ChannelStart {
        name: name.to_owned(),
        threshold_energy_ev: said.threshold_energy_ev.iter().find(|(of, _)| *of == name).map(|(_, energy)| *energy),
        pixel_mask: of(&said.pixel_mask, "pixel_mask", Element::Uint32),
        flat_field: of(&said.flat_field, "flatfield", Element::Float32),
    }
}

fn facts_of(said: &Start, metadata: &Map<String, Value>) -> Metadata {
    let positive = |number: Option<f64>| number.and_then(facts::above_0);
    let energy_kev = positive(said.incident_energy_ev).map(|ev| ev / 1000.0);
    let mut facts = Metadata {
        energy_kev: energy_kev.or_else(|| said.incident_wavelength_angstrom.and_then(facts::energy_kev)),
        // Jungfraujoch has a key of its own for it.
        detector_distance_m: facts::positive(metadata, "detector_distance")
            .or_else(|| positive(said.detector_translation_m.map(|[_, _, z]| z))),
        beam_center_x_px: said.beam_center_x,
        beam_center_y_px: said.beam_center_y,
        pixel_size_m: positive(said.pixel_size_x_m).zip(positive(said.pixel_size_y_m)).map(|(x, y)| [x, y]),
        sensor_material: said.sensor_material.map(str::to_owned),
        sensor_thickness_m: positive(said.sensor_thickness_m),
        frame_time_s: positive(said.frame_time_s),
        count_time_s: positive(said.count_time_s),
        bit_depth: None,
        underload_value: None,
        saturation_value: said.saturation_value,
        detector_description: said.detector_description.map(str::to_owned),
        detector_serial: said.detector_serial_number.map(str::to_owned),
        start_time: said.arm_date.map(str::to_owned),
        ..Metadata::default()
    };
    for axis in &said.goniometer {
        if let Some(place) = facts.experiment.goniometer.axis_mut(axis.name) {
            *place = facts::axis(axis.start, axis.increment);
        }
    }
    // Jungfraujoch has more keys of its own for sample and beam.
    facts::enter(metadata, &mut facts);
    facts
}
