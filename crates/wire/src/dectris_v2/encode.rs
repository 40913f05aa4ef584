//! The encoder of DECTRIS Stream V2. Receivers need type, size and channels of the images in the start message. Where
//! these were not announced, it is sent with the first image. Pixels are copied once, behind their header.

use super::{Axis, Image, Message, Seconds, Series, Start};
use crate::cbor::{Item, item_of};
use crate::stream::Pixels;
use crate::unpacker::{ArrayUnpacker, flat};
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::experiment::{KEV_ANGSTROM, Metadata};
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{MessageEncoder, Parts, PixelUnpacker};
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{ChannelStart, SeriesEnd, SeriesStart};
use serde_json::{Map, Value};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Packings that receivers of DECTRIS' streams know.
const PACKINGS: &[Packing] = Protocol::DectrisV2.packings();
/// Channels without a name, and planes, are called this and a number from 1.
const CHANNEL: &str = "threshold_";
/// Bytes that most messages have besides those of their pixels.
const HEAD_BYTES: usize = 4096;
const NS_PER_S: u64 = 1_000_000_000;

/// The encoder for one consumer.
pub struct Encoder {
    series: u64,
    unique_id: String,
    arm_date: Option<String>,
    /// A start that still has to be sent.
    pending: Option<SeriesStart>,
    unpacker: ArrayUnpacker,
}

impl Encoder {
    /// An encoder for one consumer.
    pub fn new(unpacker: Box<dyn PixelUnpacker>) -> Self {
        let unpacker = ArrayUnpacker::new(unpacker);
        Self { series: 0, unique_id: String::new(), arm_date: None, pending: None, unpacker }
    }

    fn series(&self) -> Series<'_> {
        Series { id: self.series, unique_id: &self.unique_id }
    }

    /// Channels of an image by name: those of the series, or the pieces of an array with more than two dimensions.
    fn channels(&mut self, image: &CommittedImage) -> Result<Vec<(Arc<str>, Array)>, String> {
        let mut all = Vec::with_capacity(image.channels.len());
        for (n, channel) in image.channels.iter().enumerate() {
            let array = self.unpacker.whole_bytes(&channel.array)?;
            let is_alone = image.channels.len() == 1;
            if let Some(planes) = is_alone.then(|| planes(&array)).flatten() {
                for (n, plane) in planes.iter().enumerate() {
                    all.push((number_name(n), self.unpacker.one_piece(plane, PACKINGS)?));
                }
                continue;
            }
            let array = Array { shape: flat(array.shape), ..self.unpacker.one_piece(&array, PACKINGS)? };
            let name = if channel.name.is_empty() { number_name(n) } else { Arc::clone(&channel.name) };
            all.push((name, array));
        }
        Ok(all)
    }

    fn start_message(&self, start: &SeriesStart, seen: &[(Arc<str>, Array)]) -> Result<Parts, String> {
        start_of(self.series(), start, seen).map(|bytes| vec![bytes.into()])
    }

    fn image_message(&self, image: &CommittedImage, channels: &[(Arc<str>, Array)]) -> Result<Parts, String> {
        let came: Map<String, Value> = serde_json::from_slice(&image.header_json).unwrap_or_default();
        // `user_data` as it came in this protocol, else everything that came with the image, else its results.
        let user = came.get("user_data").map(item_of);
        let is_ours = came.keys().all(|key| key == "user_data" || key == "series_date");
        let user = user.or_else(|| (!is_ours).then(|| item_of(&Value::Object(came.clone()))));
        let results = || Some(image.results.to_json()).filter(|results| !results.is_empty());
        let user = user.or_else(|| Some(item_of(&Value::Object(results()?))));
        let seconds = |ns: Option<u64>| ns.and_then(|ns| Seconds::new(ns, NS_PER_S));
        let pixels = channels.iter().map(|(name, array)| Ok((&**name, pixels(array)?))).collect::<Result<Vec<_>, String>>()?;
        let message = Image {
            series: self.series(),
            image_id: image.number,
            real_time: seconds(image.times.map(|times| times.real_ns)),
            series_date: came.get("series_date").and_then(Value::as_str).or(self.arm_date.as_deref()),
            start_time: seconds(image.times.map(|times| times.start_ns)),
            stop_time: seconds(image.times.map(|times| times.stop_ns)),
            user_data: user.as_deref().and_then(|bytes| Item::new_checked(bytes).ok()),
            channels: pixels,
        };
        let bytes: usize = channels.iter().map(|(_, array)| array.packed_bytes() as usize).sum();
        build(&Message::Image(message), HEAD_BYTES + bytes)
    }
}

impl MessageEncoder for Encoder {
    fn start(&mut self, start: &SeriesStart) -> Result<Vec<Parts>, String> {
        self.series = start.series;
        self.unique_id = unique_id(start);
        self.arm_date = start.facts.start_time.clone();
        self.pending = None;
        if start.element.is_none() || start.image_size.is_none() || start.channels.is_empty() {
            self.pending = Some(start.clone());
            return Ok(Vec::new());
        }
        Ok(vec![self.start_message(start, &[])?])
    }

    fn image(&mut self, image: &CommittedImage) -> Result<Vec<Parts>, String> {
        if image.channels.is_empty() {
            return Ok(Vec::new());
        }
        let channels = self.channels(image)?;
        let message = self.image_message(image, &channels)?;
        let mut messages = Vec::with_capacity(2);
        if let Some(start) = self.pending.take() {
            messages.push(self.start_message(&start, &channels)?);
        }
        messages.push(message);
        Ok(messages)
    }

    fn end(&mut self, _end: &SeriesEnd) -> Result<Vec<Parts>, String> {
        let mut messages = Vec::with_capacity(2);
        if let Some(start) = self.pending.take() {
            messages.push(self.start_message(&start, &[])?);
        }
        messages.push(build(&Message::End(self.series()), HEAD_BYTES)?);
        Ok(messages)
    }
}

/// The start message of a series by itself.
///
/// # Errors
/// Something in it does not fit the protocol; in words.
pub fn start(start: &SeriesStart) -> Result<Vec<u8>, String> {
    start_of(Series { id: start.series, unique_id: &unique_id(start) }, start, &[])
}

/// The start message. What `start` does not say is taken from the channels of the first image.
fn start_of(series: Series<'_>, start: &SeriesStart, seen: &[(Arc<str>, Array)]) -> Result<Vec<u8>, String> {
    let first = seen.first().map(|(_, array)| array);
    let names = match &start.channels[..] {
        [] => seen.iter().map(|(name, _)| name.to_string()).collect(),
        // If the image has another number of channels (planes, for example), it names them.
        channels if !seen.is_empty() && seen.len() != channels.len() => seen.iter().map(|(name, _)| name.to_string()).collect(),
        channels => channels.iter().enumerate().map(|(n, channel)| channel_name(n, channel)).collect::<Vec<String>>(),
    };
    let size = start.image_size.or_else(|| match first?.shape.dimensions() {
        [.., rows, columns] => Some([*rows, *columns]),
        [columns] => Some([1, *columns]),
        [] => None,
    });
    let user_data = user_data(start).map(|value| item_of(&value));
    let table = counts(start.metadata.get("countrate_correction_lookup_table"));
    let mut said = facts(&start.facts, &start.metadata);
    said.series = series;
    said.channels = names.iter().map(String::as_str).collect();
    said.image_element = first.map(|array| array.element).or(start.element).map(Element::unpacked);
    (said.image_size_y, said.image_size_x) = (size.map(|[rows, _]| rows), size.map(|[_, columns]| columns));
    said.number_of_images = start.images_planned;
    said.pixel_mask = tables(&start.channels, &names, |channel| channel.pixel_mask.as_ref())?;
    said.flat_field = tables(&start.channels, &names, |channel| channel.flat_field.as_ref())?;
    said.countrate_correction_table = table.as_deref().and_then(|bytes| {
        let shape = Shape::new(&[bytes.len() as u64 / 4])?;
        Pixels::new_checked(shape, Element::Uint32, Packing::None, bytes, u64::MAX).ok()
    });
    said.threshold_energy_ev = thresholds(start, &names);
    said.user_data = user_data.as_deref().and_then(|bytes| Item::new_checked(bytes).ok());
    bytes_of(&Message::Start(Box::new(said)), HEAD_BYTES)
}

fn build(message: &Message, bytes: usize) -> Result<Parts, String> {
    bytes_of(message, bytes).map(|bytes| vec![bytes.into()])
}

fn bytes_of(message: &Message, bytes: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(bytes);
    message.build(&mut out).map_err(|refusal| refusal.why)?;
    Ok(out)
}

fn number_name(n: usize) -> Arc<str> {
    format!("{CHANNEL}{}", n + 1).into()
}

fn channel_name(n: usize, channel: &ChannelStart) -> String {
    if channel.name.is_empty() { number_name(n).to_string() } else { channel.name.clone() }
}

/// The unique id of the series, or one computed from what is known of it: the same for every consumer, and another one
/// for another series.
fn unique_id(start: &SeriesStart) -> String {
    if !start.unique_id.is_empty() {
        return start.unique_id.clone();
    }
    let mut hasher = DefaultHasher::new();
    (start.series, &start.filename, start.images_planned, &start.facts.start_time).hash(&mut hasher);
    Value::Object(start.metadata.clone()).to_string().hash(&mut hasher);
    format!("{:010}-{:016x}", start.series, hasher.finish())
}

/// The pieces of an array of several planes, each as an array of its own; `None` if it is no such array.
fn planes(array: &Array) -> Option<Vec<Array>> {
    let [planes, rest @ ..] = array.shape.dimensions() else { return None };
    if rest.len() < 2 || *planes < 2 || *planes != array.pieces.len() as u64 {
        return None;
    }
    let shape = Shape::new(rest)?;
    let plane = |piece: &Bytes| Array { shape, element: array.element, packing: array.packing, pieces: vec![piece.clone()] };
    Some(array.pieces.iter().map(plane).collect())
}

fn pixels(array: &Array) -> Result<Pixels<'_>, String> {
    let [piece] = &array.pieces[..] else { return Err("its pixels are in several pieces".into()) };
    Pixels::new_checked(array.shape, array.element, array.packing, piece, u64::MAX)
}

fn tables<'a>(
    channels: &'a [ChannelStart],
    names: &'a [String],
    table: impl Fn(&'a ChannelStart) -> Option<&'a Array>,
) -> Result<Vec<(&'a str, Pixels<'a>)>, String> {
    let all = names.iter().zip(channels).filter_map(|(name, channel)| Some((name, table(channel)?)));
    all.map(|(name, array)| Ok((name.as_str(), pixels(array)?))).collect()
}

/// Thresholds as they came, also of channels that are off; else those of the channels.
fn thresholds<'a>(start: &'a SeriesStart, names: &'a [String]) -> Vec<(&'a str, f64)> {
    if let Some(all) = start.metadata.get("threshold_energy").and_then(Value::as_object) {
        return all.iter().filter_map(|(name, energy)| Some((name.as_str(), energy.as_f64()?))).collect();
    }
    let channels = names.iter().zip(&start.channels);
    channels.filter_map(|(name, channel)| Some((name.as_str(), channel.threshold_energy_ev?))).collect()
}

/// The facts that the protocol has keys for, taken from `facts` and from metadata under the same keys.
fn facts<'a>(facts: &'a Metadata, metadata: &'a Map<String, Value>) -> Start<'a> {
    let number = |key: &str| metadata.get(key).and_then(Value::as_f64);
    let flag = |key: &str, other: &str| metadata.get(key).or_else(|| metadata.get(other)).and_then(Value::as_bool);
    let translation = metadata.get("detector_translation").and_then(Value::as_array).and_then(|list| match &list[..] {
        [x, y, z] => Some([x.as_f64()?, y.as_f64()?, z.as_f64()?]),
        _ => None,
    });
    Start {
        arm_date: facts.start_time.as_deref(),
        beam_center_x: facts.beam_center_x_px,
        beam_center_y: facts.beam_center_y_px,
        count_time_s: facts.count_time_s,
        // The second names are those of Stream V1.
        countrate_correction_enabled: flag("countrate_correction_enabled", "countrate_correction_applied"),
        detector_description: facts.detector_description.as_deref(),
        detector_serial_number: facts.detector_serial.as_deref(),
        detector_translation_m: translation.or(facts.detector_distance_m.map(|distance| [0.0, 0.0, distance])),
        flat_field_enabled: flag("flatfield_enabled", "flatfield_correction_applied"),
        frame_time_s: facts.frame_time_s,
        goniometer: axes(facts, metadata),
        incident_energy_ev: number("incident_energy").or(facts.energy_kev.map(|kev| kev * 1000.0)),
        incident_wavelength_angstrom: number("incident_wavelength").or(facts.energy_kev.map(|kev| KEV_ANGSTROM / kev)),
        pixel_mask_enabled: flag("pixel_mask_enabled", "pixel_mask_applied"),
        pixel_size_x_m: facts.pixel_size_m.map(|[x, _]| x),
        pixel_size_y_m: facts.pixel_size_m.map(|[_, y]| y),
        saturation_value: facts.saturation_value,
        sensor_material: facts.sensor_material.as_deref(),
        sensor_thickness_m: facts.sensor_thickness_m,
        virtual_pixel_interpolation_enabled: flag("virtual_pixel_interpolation_enabled", "virtual_pixel_correction_applied"),
        ..Start::default()
    }
}

/// The known axes; for the others, what came under `goniometer` or under the names of Stream V1.
fn axes<'a>(facts: &Metadata, metadata: &'a Map<String, Value>) -> Vec<Axis<'a>> {
    let mut axes: Vec<Axis<'a>> = Vec::new();
    if let Some(all) = metadata.get("goniometer").and_then(Value::as_object) {
        let number = |axis: &Value, key: &str| axis.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        axes.extend(all.iter().map(|(name, axis)| Axis {
            name,
            increment: number(axis, "increment"),
            start: number(axis, "start"),
        }));
    } else {
        let number = |name: &str, what: &str| metadata.get(&format!("{name}_{what}")).and_then(Value::as_f64);
        let axis = |name: &'static str| {
            let (increment, start) = number(name, "increment").zip(number(name, "start"))?;
            Some(Axis { name, increment, start })
        };
        axes.extend(["chi", "kappa", "omega", "phi", "two_theta"].into_iter().filter_map(axis));
    }
    for (name, known) in facts.experiment.goniometer.axes().into_iter().filter(|(_, axis)| axis.is_given()) {
        let known = Axis { name, increment: known.increment(), start: known.start() };
        match axes.iter_mut().find(|axis| axis.name == name) {
            Some(axis) => *axis = known,
            None => axes.push(known),
        }
    }
    axes
}

/// What the user gave. If there is nothing and the series came in another protocol, the file name and all metadata, so
/// that nothing is lost. An object becomes a JSON text, which is what receivers look for.
fn user_data(start: &SeriesStart) -> Option<Value> {
    let is_cbor = start.metadata.contains_key("series_unique_id");
    let user = match start.metadata.get("user_data") {
        Some(user) => Some(user.clone()),
        None if is_cbor => None,
        None => {
            let mut all = start.metadata.clone();
            all.shift_remove("countrate_correction_table");
            if let Some(name) = &start.filename {
                all.insert("filename".into(), name.as_str().into());
            }
            (!all.is_empty()).then_some(Value::Object(all))
        }
    };
    user.map(|user| if user.is_object() { user.to_string().into() } else { user })
}

/// A list of 32-bit integers as bytes.
fn counts(list: Option<&Value>) -> Option<Vec<u8>> {
    let numbers = list?.as_array()?.iter().map(|number| number.as_u64().and_then(|number| u32::try_from(number).ok()));
    let bytes: Vec<u8> = numbers.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_le_bytes).collect();
    (!bytes.is_empty()).then_some(bytes)
}
