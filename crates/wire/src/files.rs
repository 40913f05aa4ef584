//! Files of one image each: CBF, TIFF or EDF by how they begin, whatever their names end in. A message is the name and
//! the content. The last group of digits in the name is the number of the image, and the rest of the name is the
//! series: another rest, or the first number again, begins another series. The first number of a series is position 0.

use crate::message::{DecoderSetup, Event, ImagePart, MessageDecoder, Read, SeriesKey, unnumbered};
use crate::shared::byte_order::whole;
use crate::shared::facts;
use crate::stream::{Bounds, Refusal};
use crate::{cbf, edf, tiff};
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing};
use konkordia_core::experiment::{Experiment, Goniometer, Metadata};
use konkordia_core::image::Channel;
use konkordia_core::ports::{Message, PixelUnpacker};
use konkordia_core::series::{ChannelStart, SeriesStart};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

const NAME: usize = 0;
const CONTENT: usize = 1;
/// Bytes of a name, at most; that of file systems is 255.
const NAME_BYTES_MAX: usize = 1024;
/// The name of a series of files whose names are numbers.
const NAMELESS: &str = "images";

/// The decoder.
pub struct Decoder {
    bounds: Bounds,
    unpacker: Box<dyn PixelUnpacker>,
    no_name: Arc<str>,
    series: u64,
    open: Option<Open>,
}

struct Open {
    /// What stands in front of the number, and behind it.
    rest: (String, String),
    first: u64,
    start: Arc<SeriesStart>,
}

/// An image of a file, and what its header says.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The pixels, not packed, little-endian.
    pub array: Array,
    /// Its metadata, key by key.
    pub said: Map<String, Value>,
    /// Those of them that are facts of the measurement.
    pub facts: Metadata,
    /// Threshold of the detector.
    pub threshold_ev: Option<f64>,
    /// Numbers below zero mark pixels that are of no use.
    pub is_marked: bool,
}

impl Decoder {
    /// A decoder of one folder.
    pub fn new(DecoderSetup { bounds, unpacker, .. }: DecoderSetup) -> Self {
        Self { bounds, unpacker, no_name: "".into(), series: 0, open: None }
    }

    /// The number of the image in its series, and the start of that series.
    fn place(&mut self, name: &Name, file: &File) -> Result<(u64, Arc<SeriesStart>), Refusal> {
        if let Some(open) = &self.open
            && (open.rest.0.as_str(), open.rest.1.as_str()) == (name.before, name.after)
            && name.number != open.first
        {
            let number = name.number.checked_sub(open.first).ok_or_else(|| {
                let first = open.first;
                Refusal::new(NAME, format!("number {} comes before {first}, with which the series began", name.number))
            })?;
            return Ok((number, Arc::clone(&open.start)));
        }
        self.series += 1;
        let start = Arc::new(start(self.series, name, file));
        let rest = (name.before.to_owned(), name.after.to_owned());
        self.open = Some(Open { rest, first: name.number, start: Arc::clone(&start) });
        Ok((0, start))
    }
}

impl MessageDecoder for Decoder {
    fn read(&mut self, message: &Message) -> Result<Read, Refusal> {
        let [name, content] = &message.parts[..] else {
            let came = message.parts.len();
            return Err(Refusal::new(came.min(2), format!("a file has a name and a content, but {came} parts came")));
        };
        let text = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
        let text =
            text.ok_or_else(|| Refusal::new(NAME, format!("invalid file name: not UTF-8, or over {NAME_BYTES_MAX} bytes")))?;
        let name = Name::read(text)?;
        let mut file = read(content, &self.bounds, &mut *self.unpacker)?;
        let (number, start) = self.place(&name, &file)?;
        file.said.insert("file".into(), text.into());
        Ok(unnumbered(Event::Part(Box::new(ImagePart {
            series: SeriesKey(self.series),
            number,
            channels: vec![Channel { name: Arc::clone(&self.no_name), array: file.array }],
            store: true,
            is_partial: false,
            times: None,
            header_json: Value::Object(file.said).to_string().into(),
            start: Some(start),
        }))))
    }
}

/// A file name, taken apart at the last group of digits.
#[derive(Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// What stands in front of the number.
    pub before: &'a str,
    /// The number; 0 if there is none.
    pub number: u64,
    /// What stands behind it, without the ending.
    pub after: &'a str,
}

impl<'a> Name<'a> {
    /// Takes a name apart.
    ///
    /// # Errors
    /// The number is too large.
    pub fn read(name: &'a str) -> Result<Self, Refusal> {
        let name = name.rsplit('/').next().unwrap_or(name);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let Some(last) = stem.rfind(|c: char| c.is_ascii_digit()) else {
            return Ok(Self { before: stem, number: 0, after: "" });
        };
        let first = stem[..last]
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |at| at + stem[at..].chars().next().map_or(1, char::len_utf8));
        let digits = &stem[first..=last];
        let number = digits.parse().map_err(|_| Refusal::new(NAME, format!("the number {digits} in its name is too large")))?;
        Ok(Self { before: &stem[..first], number, after: &stem[last + 1..] })
    }

    /// The name of its series.
    pub fn of_series(&self) -> String {
        let name = format!("{}{}", self.before.trim_end_matches(['_', '-', '.', ' ']), self.after);
        if name.is_empty() { NAMELESS.into() } else { name }
    }
}

/// The start of a series whose first image is this one.
pub fn start(series: u64, name: &Name, file: &File) -> SeriesStart {
    let mut metadata = file.said.clone();
    metadata.insert("first_number".into(), name.number.into());
    let [rows, columns] = file.array.shape.dimensions() else { return SeriesStart::default() };
    let pixel_mask = if file.is_marked { marked(&file.array) } else { None };
    let threshold = ChannelStart { threshold_energy_ev: file.threshold_ev, pixel_mask, ..ChannelStart::default() };
    SeriesStart {
        series,
        filename: Some(name.of_series()),
        image_size: Some([*rows, *columns]),
        element: Some(file.array.element),
        channels: vec![threshold],
        facts: file.facts.clone(),
        metadata,
        store: true,
        ..SeriesStart::default()
    }
}

/// The mask that a Pilatus writes into its pixels, taken from the first image: -1 between modules, -2 dead, -3 noisy.
/// One number per pixel; `None` where pixels cannot be below zero.
fn marked(array: &Array) -> Option<Array> {
    const GAP: u32 = 1;
    const DEAD: u32 = 1 << 1;
    const NOISY: u32 = 1 << 4;
    let why = |number: i32| match number {
        0.. => 0,
        -1 => GAP,
        -3 => NOISY,
        _ => DEAD,
    };
    let ([pixels], Packing::None) = (&array.pieces[..], array.packing) else { return None };
    let bits: Vec<u8> = match array.element {
        Element::Int8 => pixels.iter().flat_map(|byte| why((*byte).cast_signed().into()).to_le_bytes()).collect(),
        Element::Int16 => {
            pixels.as_chunks().0.iter().flat_map(|two| why(i16::from_le_bytes(*two).into()).to_le_bytes()).collect()
        }
        Element::Int32 => pixels.as_chunks().0.iter().flat_map(|four| why(i32::from_le_bytes(*four)).to_le_bytes()).collect(),
        _ => return None,
    };
    Some(Array { shape: array.shape, element: Element::Uint32, packing: Packing::None, pieces: vec![bits.into()] })
}

fn read(content: &Bytes, bounds: &Bounds, unpacker: &mut dyn PixelUnpacker) -> Result<File, Refusal> {
    let file = if content.starts_with(cbf::MAGIC) {
        read_cbf(content, bounds, unpacker)
    } else if tiff::MAGICS.iter().any(|magic| content.starts_with(magic)) {
        read_tiff(content, bounds)
    } else if content.starts_with(b"{") {
        read_edf(content, bounds)
    } else {
        Err(Refusal::new(CONTENT, "it is not a CBF, TIFF or EDF file (unknown first bytes)"))
    };
    file.map_err(|refusal| Refusal { part: CONTENT, ..refusal })
}

/// An image with what is known of its file format: the lines of the detector in a CBF file.
pub fn of_cbf(array: Array, contents: &str) -> File {
    of_pilatus(array, contents, Map::new())
}

fn read_cbf(content: &Bytes, bounds: &Bounds, unpacker: &mut dyn PixelUnpacker) -> Result<File, Refusal> {
    let (array, contents) = cbf_pixels(content, bounds, unpacker)?;
    Ok(of_cbf(array, &contents))
}

/// The unpacked image of a CBF file, and the header lines of the detector beside it.
///
/// # Errors
/// The file cannot be read or unpacked.
pub fn cbf_pixels<'a>(
    content: &'a Bytes,
    bounds: &Bounds,
    unpacker: &mut dyn PixelUnpacker,
) -> Result<(Array, Cow<'a, str>), Refusal> {
    let image = cbf::Image::parse(content, bounds)?;
    let data = match image.packing {
        cbf::Packing::None => content.slice_ref(image.data),
        cbf::Packing::ByteOffset => {
            // The length is limited by the bounds, and by the bytes that came: a pixel has one at least.
            let mut pixels = vec![0; image.shape.elements() as usize * size_of::<i32>()];
            let read = unpacker.byte_offset(image.data, &mut pixels).map_err(|why| Refusal::new(CONTENT, why))?;
            if read != image.data.len() {
                let more = image.data.len() - read;
                return Err(Refusal::new(CONTENT, format!("{more} bytes follow the last pixel of its byte-offset data")));
            }
            pixels.into()
        }
    };
    let array = Array { shape: image.shape, element: image.element, packing: Packing::None, pieces: vec![data] };
    Ok((array, image.contents))
}

fn read_tiff(content: &Bytes, bounds: &Bounds) -> Result<File, Refusal> {
    let image = tiff::Image::parse(content, bounds)?;
    let data = whole(content, &image.pieces, image.element, image.is_big_endian);
    let array = Array { shape: image.shape, element: image.element, packing: Packing::None, pieces: vec![data] };
    let texts: Vec<(&str, &str)> = image.texts.iter().map(|(name, text)| (*name, &**text)).collect();
    Ok(of_tiff(array, &texts))
}

/// An image with the texts of its page in a TIFF file.
pub fn of_tiff(array: Array, texts: &[(&str, &str)]) -> File {
    let text = |(name, text): &(&str, &str)| {
        let text = text.trim();
        (!text.is_empty()).then(|| ((*name).to_owned(), Value::from(text)))
    };
    let said: Map<String, Value> = texts.iter().filter_map(text).collect();
    let description = texts.iter().find(|(name, _)| *name == "description").map_or("", |(_, text)| text);
    of_pilatus(array, description, said)
}

fn read_edf(content: &Bytes, bounds: &Bounds) -> Result<File, Refusal> {
    let image = edf::Image::parse(content, bounds)?;
    let data = whole(content, &[image.data], image.element, image.is_big_endian);
    let array = Array { shape: image.shape, element: image.element, packing: Packing::None, pieces: vec![data] };
    Ok(of_edf(array, &image.header))
}

/// An image with its header in an EDF file.
pub fn of_edf(array: Array, header: &str) -> File {
    let said: Map<String, Value> = edf::items(header).map(|(key, value)| (key.to_owned(), value.into())).collect();
    let number = |name: &str| {
        let found = said.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| value.as_str()).and_then(facts::leading)
    };
    let positive = |name: &str| number(name).and_then(facts::above_0);
    let facts = Metadata {
        energy_kev: positive("WaveLength").and_then(|metres| facts::energy_kev(metres * 1e10)),
        detector_distance_m: positive("SampleDistance"),
        beam_center_x_px: number("Center_1"),
        beam_center_y_px: number("Center_2"),
        pixel_size_m: positive("PSize_1").zip(positive("PSize_2")).map(|(x, y)| [x, y]),
        count_time_s: positive("ExposureTime"),
        ..Metadata::default()
    };
    File { array, said, facts, threshold_ev: None, is_marked: false }
}

/// What the header lines of a Pilatus say of the experiment, as in `contents` of a CBF file. `date` is used if they
/// have none.
pub fn of_pilatus_lines(lines: &str, date: Option<&str>) -> Metadata {
    let items: Vec<(&str, &str)> = cbf::items(lines).collect();
    let text = |name: &str| items.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let positive = |name: &str| text(name).and_then(facts::leading).and_then(facts::above_0);
    let both = |name: &str, between: char| {
        let (first, second) = text(name)?.split_once(between)?;
        facts::leading(first).zip(facts::leading(second))
    };
    let (center, size) = (both("Beam_xy", ','), both("Pixel_size", 'x'));
    let (description, serial) = text("Detector").map_or((None, None), |text| match text.split_once(", S/N") {
        Some((description, serial)) => (Some(description.trim()), Some(serial.trim())),
        None => (Some(text), None),
    });
    let sensor = text("sensor");
    let material = |sensor: &str| match sensor.split_whitespace().next() {
        Some("Silicon") => "Si".to_owned(),
        other => other.unwrap_or_default().to_owned(),
    };
    let thickness = |sensor: &str| sensor.split_once("thickness").and_then(|(_, text)| facts::leading(text));
    Metadata {
        energy_kev: positive("Wavelength").and_then(facts::energy_kev),
        detector_distance_m: positive("Detector_distance"),
        beam_center_x_px: center.map(|(x, _)| x),
        beam_center_y_px: center.map(|(_, y)| y),
        pixel_size_m: size.filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| [x, y]),
        sensor_material: sensor.map(material),
        sensor_thickness_m: sensor.and_then(thickness).and_then(facts::above_0),
        frame_time_s: positive("Exposure_period"),
        count_time_s: positive("Exposure_time"),
        bit_depth: None,
        // Such lines come from a Pilatus, or from a program that writes as a Pilatus does.
        underload_value: (!items.is_empty()).then_some(0),
        saturation_value: positive("Count_cutoff").map(|counts| counts as u64),
        detector_description: description.filter(|text| !text.is_empty()).map(str::to_owned),
        detector_serial: serial.filter(|text| !text.is_empty()).map(str::to_owned),
        start_time: text("date").or(date).and_then(konkordia_core::moment::iso_8601),
        experiment: Experiment {
            goniometer: goniometer(&items),
            attenuator_transmission: fraction(text("Filter_transmission")),
            polarization_fraction: fraction(text("Polarization")),
            gain_setting: text("Gain_setting").filter(|text| !text.is_empty()).map(gain_setting),
            ..Experiment::default()
        },
        ..Metadata::default()
    }
}

/// A file with the header lines of a Pilatus, if it has any.
fn of_pilatus(array: Array, lines: &str, mut said: Map<String, Value>) -> File {
    let facts = of_pilatus_lines(lines, said.get("date").and_then(Value::as_str));
    let items: Vec<(&str, &str)> = cbf::items(lines).collect();
    let threshold = items.iter().find(|(key, _)| *key == "Threshold_setting");
    let threshold_ev = threshold.and_then(|(_, value)| facts::leading(value)).and_then(facts::above_0);
    let is_marked = !items.is_empty();
    for (key, value) in &items {
        said.insert((*key).to_owned(), (*value).into());
    }
    // The lines of the description are there one by one.
    if !items.is_empty() {
        said.shift_remove("description");
    }
    File { array, said, facts, threshold_ev, is_marked }
}

/// The number in front of a unit, if it is one of 0 to 1.
fn fraction(text: Option<&str>) -> Option<f64> {
    text.and_then(facts::leading).filter(|fraction| (0.0..=1.0).contains(fraction))
}

/// The gain setting of a Pilatus under its NeXus name, where it has one.
fn gain_setting(said: &str) -> String {
    match said.split_whitespace().next().unwrap_or_default().trim_end_matches(',') {
        "autog" => "auto".into(),
        "highg" => "high".into(),
        _ => said.into(),
    }
}

/// Angles of a Pilatus header. `Start_angle` and `Angle_increment` are those of the axis that turns; the lines of the
/// single axes give the positions of the others. The axis that turns is the one with an increment of its own, else the
/// one that `Oscillation_axis` names, else omega, the usual name of a single axis. `Phi` alone, at the start angle, is
/// that single axis under its older name.
fn goniometer(items: &[(&str, &str)]) -> Goniometer {
    let text = |name: &str| items.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
    let number = |name: &str| text(name).and_then(facts::leading);
    let increment = |axis: &str| number(&format!("{axis}_increment")).unwrap_or(0.0);
    let (start, turn) = (number("Start_angle"), number("Angle_increment"));
    let axes = ["omega", "kappa", "chi", "phi"];
    let named = text("Oscillation_axis").unwrap_or_default().to_ascii_lowercase();
    let older_name = number("Omega").is_none() && number("Phi").is_some() && number("Phi") == start;
    let turning = axes.into_iter().find(|axis| increment(axis) != 0.0);
    let turning = turning.or_else(|| axes.into_iter().find(|axis| named.starts_with(axis)));
    let turning = turning.unwrap_or(if older_name { "phi" } else { "omega" });
    let mut all = Goniometer::default();
    for name in axes {
        let (own_start, own_turn) = (number(name).unwrap_or(0.0), increment(name));
        let is_turning = name == turning;
        let axis = facts::axis(
            start.filter(|_| is_turning).unwrap_or(own_start),
            turn.filter(|turn| is_turning && *turn != 0.0).unwrap_or(own_turn),
        );
        if let Some(place) = all.axis_mut(name) {
            *place = axis;
        }
    }
    all.two_theta = facts::axis(number("Detector_2theta").unwrap_or(0.0), 0.0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::experiment::Axis;

    fn angles(lines: &str) -> Goniometer {
        goniometer(&cbf::items(lines).collect::<Vec<_>>())
    }

    #[test]
    fn the_axis_that_turns_is_found_in_headers_of_all_kinds() {
        let plain = angles(
            "# Start_angle 10.0 deg.\n# Angle_increment 0.1000 deg.\n# Phi 0.0 deg.\n# Kappa 0.0 deg.\n# Detector_2theta 0.0 deg.",
        );
        assert_eq!(plain, Goniometer { omega: Axis::turning(10.0, 0.1), ..Goniometer::default() });
        let older = angles("# Start_angle 10.0 deg.\n# Angle_increment 0.1000 deg.\n# Phi 10.0 deg.\n# Oscillation_axis X.CW");
        assert_eq!(older, Goniometer { phi: Axis::turning(10.0, 0.1), ..Goniometer::default() });
        let named = angles(
            "# Start_angle 10.0 deg.\n# Angle_increment 0.1 deg.\n# Oscillation_axis OMEGA +\n# Omega 10.0 deg.\n# Chi 5.0 deg.\n# Detector_2theta 20.0 deg.",
        );
        let chi = Axis::turning(5.0, 0.0);
        let two_theta = Axis::turning(20.0, 0.0);
        assert_eq!(named, Goniometer { omega: Axis::turning(10.0, 0.1), chi, two_theta, ..Goniometer::default() });
        let own = angles(
            "# Start_angle 3.0 deg.\n# Angle_increment 0.5 deg.\n# Phi 3.0 deg.\n# Phi_increment 0.5 deg.\n# Omega 90.0 deg.\n# Omega_increment 0.0 deg.",
        );
        assert_eq!(own, Goniometer { omega: Axis::turning(90.0, 0.0), phi: Axis::turning(3.0, 0.5), ..Goniometer::default() });
        assert_eq!(angles("# Tau = 0 s"), Goniometer::default());
    }

    #[test]
    fn gain_settings_of_a_pilatus() {
        assert_eq!((&*gain_setting("autog (vrf = 1.000)"), &*gain_setting("mid gain")), ("auto", "mid gain"));
    }

    #[test]
    fn names_are_taken_apart_at_the_last_digits() {
        let read = |name| Name::read(name).map(|name| (name.before, name.number, name.after)).unwrap();
        assert_eq!(read("thau_3_2_00012.cbf"), ("thau_3_2_", 12, ""));
        assert_eq!(read("/ramdisk/a1/b2.tif"), ("b", 2, ""));
        assert_eq!(read("img_7_dark.edf"), ("img_", 7, "_dark"));
        assert_eq!(read("µ5"), ("µ", 5, ""));
        assert_eq!(read("0001.cbf"), ("", 1, ""));
        assert_eq!(read("none.tif"), ("none", 0, ""));
        assert!(Name::read("a99999999999999999999.cbf").unwrap_err().why.contains("too large"));
        let named = |name| Name::read(name).unwrap().of_series();
        assert_eq!(named("thau_3_2_00012.cbf"), "thau_3_2");
        assert_eq!(named("img_7_dark.edf"), "img_dark");
        assert_eq!(named("0001.cbf"), "images");
    }
}
