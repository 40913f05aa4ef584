//! DECTRIS Stream V2: messages of one part, CBOR, over ZeroMQ PUSH, port 31001. Source: captures of an EIGER 1M and a
//! three-channel EIGER2 500K, and DECTRIS' description (docs/protocols.md 3.2).
//!
//! Facts relied on: a message is the self-description D9 D9 F7 (not required) and one map with texts as keys, of which
//! `type` names its kind. Pixels are maps of channel to array; shapes are \[slow, fast\]. "bslz4" and "lz4" are the
//! chunks of HDF5's filters 32008 and 32004. `image_id` counts from 0 in the series. Times are fractions of seconds
//! since `series_date`. A key that firmware of 2022 omits is not required, unknown keys are skipped, and null means
//! absent. If a key comes twice, the last one counts; but a `type` that is the first key of the map counts in any case.
//!
//! [`decode`] has the meaning of messages, [`encode`] the messages of images: one file would be too long.

pub mod decode;
pub mod encode;

use crate::cbor::{self, Item, SELF_DESCRIBED, Writer, Written, wrong};
use crate::stream::{Bounds, Element, Pixels, Refusal, quoted};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};

/// One checked message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// A series begins.
    Start(Box<Start<'a>>),
    /// One image of it, of one or several channels.
    Image(Image<'a>),
    /// It has ended.
    End(Series<'a>),
}

/// The series that a message belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Series<'a> {
    /// Its number.
    pub id: u64,
    /// Its name, unlike that of any other series.
    pub unique_id: &'a str,
}

/// What the detector says at the beginning of a series; what it did not say is `None` or empty. Tables come only with
/// `header_detail` "all".
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Start<'a> {
    pub series: Series<'a>,
    /// When it was armed, ISO 8601 with offset.
    pub arm_date: Option<&'a str>,
    /// Beam centre in pixels.
    pub beam_center_x: Option<f64>,
    pub beam_center_y: Option<f64>,
    /// Names of the channels in the order in which they come.
    pub channels: Vec<&'a str>,
    pub count_time_s: Option<f64>,
    pub countrate_correction_enabled: Option<bool>,
    pub countrate_correction_table: Option<Pixels<'a>>,
    pub detector_description: Option<&'a str>,
    pub detector_serial_number: Option<&'a str>,
    pub detector_translation_m: Option<[f64; 3]>,
    /// Factor of each pixel, by channel.
    pub flat_field: Vec<(&'a str, Pixels<'a>)>,
    pub flat_field_enabled: Option<bool>,
    pub frame_time_s: Option<f64>,
    pub goniometer: Vec<Axis<'a>>,
    pub image_element: Option<Element>,
    /// Columns.
    pub image_size_x: Option<u64>,
    /// Rows.
    pub image_size_y: Option<u64>,
    pub incident_energy_ev: Option<f64>,
    pub incident_wavelength_angstrom: Option<f64>,
    pub number_of_images: Option<u64>,
    /// Why a pixel is not usable (0 = the pixel is good), by channel.
    pub pixel_mask: Vec<(&'a str, Pixels<'a>)>,
    pub pixel_mask_enabled: Option<bool>,
    pub pixel_size_x_m: Option<f64>,
    pub pixel_size_y_m: Option<f64>,
    pub saturation_value: Option<u64>,
    pub sensor_material: Option<&'a str>,
    pub sensor_thickness_m: Option<f64>,
    /// Keys of tables that are not arrays (simulators send texts there). They cannot be read; the images are good
    /// without them.
    pub tables_not_read: Vec<&'static str>,
    /// In eV by channel, also for channels that are off.
    pub threshold_energy_ev: Vec<(&'a str, f64)>,
    /// Whatever the user gave, often a text that is JSON.
    pub user_data: Option<Item<'a>>,
    pub virtual_pixel_interpolation_enabled: Option<bool>,
}

/// One axis of the goniometer, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Axis<'a> {
    pub name: &'a str,
    pub increment: f64,
    pub start: f64,
}

/// A fraction of seconds; the denominator is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds {
    numerator: u64,
    denominator: u64,
}

impl Seconds {
    /// `None` if the denominator is 0.
    pub fn new(numerator: u64, denominator: u64) -> Option<Self> {
        (denominator > 0).then_some(Self { numerator, denominator })
    }

    /// In nanoseconds, rounded down; at most `u64::MAX`.
    pub fn to_ns(self) -> u64 {
        let ns = u128::from(self.numerator) * 1_000_000_000 / u128::from(self.denominator);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image<'a> {
    /// The series that it belongs to.
    pub series: Series<'a>,
    /// Number of the image in the series, from 0.
    pub image_id: u64,
    /// Length of the exposure.
    pub real_time: Option<Seconds>,
    /// The moment from which the times count, ISO 8601 with offset.
    pub series_date: Option<&'a str>,
    /// Beginning of the exposure.
    pub start_time: Option<Seconds>,
    /// Its end.
    pub stop_time: Option<Seconds>,
    /// Whatever the user gave.
    pub user_data: Option<Item<'a>>,
    /// The pixels as they came, by channel, at least one, no name twice.
    pub channels: Vec<(&'a str, Pixels<'a>)>,
}

impl<'a> Message<'a> {
    /// Checks the parts of one message.
    ///
    /// # Errors
    /// What is wrong and under which key: no CBOR, bytes after the message, kind, missing keys, wrong types, sizes that
    /// disagree or are beyond `bounds`.
    pub fn parse(parts: &[&'a [u8]], bounds: &Bounds) -> Result<Self, Refusal> {
        let [bytes] = parts else {
            return Err(Refusal::new(parts.len().min(1), format!("a message has 1 part, but {} came", parts.len())));
        };
        Self::parse_part(bytes, bounds).map_err(|why| Refusal::new(0, why))
    }

    fn parse_part(bytes: &'a [u8], bounds: &Bounds) -> Result<Self, String> {
        let map = bytes.strip_prefix(&SELF_DESCRIBED).unwrap_or(bytes);
        let mut d = Decoder::new(map);
        let message = match kind(map)? {
            "start" => Self::Start(Box::new(Start::parse(&mut d, bounds)?)),
            "image" => Self::Image(Image::parse(&mut d, bounds)?),
            "end" => {
                let mut series = PartialSeries::default();
                cbor::entries(&mut d, |key, d| series.entry(key, d))?;
                Self::End(series.whole()?)
            }
            other => return Err(format!("its 'type' is {}; start, image and end are known", quoted(other))),
        };
        let rest = map.len() - d.position();
        if rest > 0 {
            return Err(format!("{rest} bytes follow the message"));
        }
        Ok(message)
    }

    /// The series that it belongs to.
    pub fn series(&self) -> Series<'a> {
        match self {
            Self::Start(start) => start.series,
            Self::Image(image) => image.series,
            Self::End(series) => *series,
        }
    }

    /// Writes the message into `out`, whose memory is reused.
    ///
    /// # Errors
    /// A packing or a type of pixels that this format has no name for.
    pub fn build(&self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let none = Vec::new();
        let (tables, list) = match self {
            Self::Start(start) => (start.flat_field.iter().chain(&start.pixel_mask), start.countrate_correction_table.as_ref()),
            Self::Image(image) => (image.channels.iter().chain(&none), None),
            Self::End(_) => (none.iter().chain(&none), None),
        };
        let mut all = tables.map(|(_, pixels)| pixels).chain(list);
        all.try_for_each(cbor::check_writable).map_err(|why| Refusal::new(0, why))?;
        out.clear();
        out.extend(SELF_DESCRIBED);
        let mut e = Encoder::new(out);
        let written = match self {
            Self::Start(start) => start.write(&mut e),
            Self::Image(image) => image.write(&mut e),
            Self::End(series) => e.map(3).and_then(|e| series.write(e, "end")),
        };
        written.map_err(|why| Refusal::new(0, why.to_string()))
    }
}

/// The kind of message that this part says it is, from any sender; `None` if it is not a message. Jungfraujoch sends
/// kinds that [`Message`] does not have.
pub fn kind_of(part: &[u8]) -> Option<&str> {
    kind(part.strip_prefix(&SELF_DESCRIBED).unwrap_or(part)).ok()
}

/// The value of `type`.
fn kind(map: &[u8]) -> Result<&str, String> {
    // All messages seen so far have it first; the other keys then need not be read twice.
    let mut d = Decoder::new(map);
    if d.map().is_ok() && d.str().is_ok_and(|key| key == "type") {
        return cbor::text(&mut d);
    }
    let mut kind = None;
    cbor::entries(&mut Decoder::new(map), |key, d| {
        if key == "type" {
            kind = Some(cbor::text(d)?);
        }
        Ok(key == "type")
    })?;
    kind.ok_or_else(|| "it has no text 'type'".to_owned())
}

/// The series as far as it was read.
#[derive(Default)]
struct PartialSeries<'a> {
    id: Option<u64>,
    unique_id: &'a str,
}

impl<'a> PartialSeries<'a> {
    fn entry(&mut self, key: &str, d: &mut Decoder<'a>) -> Result<bool, String> {
        match key {
            "series_id" => self.id = Some(cbor::unsigned(d)?),
            "series_unique_id" => self.unique_id = cbor::text(d)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn whole(&self) -> Result<Series<'a>, String> {
        let id = self.id.ok_or("it has no number 'series_id'")?;
        Ok(Series { id, unique_id: self.unique_id })
    }
}

impl Series<'_> {
    /// Writes the kind and the series, three entries.
    fn write(&self, e: &mut Writer, kind: &str) -> Written {
        e.str("type")?.str(kind)?.str("series_id")?.u64(self.id)?.str("series_unique_id")?.str(self.unique_id)?.ok()
    }
}

impl<'a> Image<'a> {
    fn parse(d: &mut Decoder<'a>, bounds: &Bounds) -> Result<Self, String> {
        let (mut image, mut series, mut id) = (Self::default(), PartialSeries::default(), None);
        cbor::entries(d, |key, d| {
            match key {
                "image_id" => id = Some(cbor::unsigned(d)?),
                "real_time" => image.real_time = Some(seconds(d)?),
                "start_time" => image.start_time = Some(seconds(d)?),
                "stop_time" => image.stop_time = Some(seconds(d)?),
                "series_date" => image.series_date = Some(cbor::date(d)?),
                "user_data" => image.user_data = Some(cbor::item(d)?),
                "data" => image.channels = channels(d, bounds, bounds.image_bytes_max, None)?,
                _ => return series.entry(key, d),
            }
            Ok(true)
        })?;
        image.series = series.whole()?;
        image.image_id = id.ok_or("it has no number 'image_id'")?;
        if image.channels.is_empty() {
            return Err("it has no pixels under 'data'".into());
        }
        Ok(image)
    }

    fn write(&self, e: &mut Writer) -> Written {
        let times = [("real_time", self.real_time), ("start_time", self.start_time), ("stop_time", self.stop_time)];
        let given = times.iter().filter(|(_, time)| time.is_some()).count();
        let entries = 5 + given + usize::from(self.series_date.is_some()) + usize::from(self.user_data.is_some());
        e.map(entries as u64)?;
        self.series.write(e, "image")?;
        e.str("image_id")?.u64(self.image_id)?;
        for (i, (name, time)) in times.into_iter().enumerate() {
            // The detector puts the date here.
            if let (1, Some(date)) = (i, self.series_date) {
                e.str("series_date")?;
                cbor::write_date(e, date)?;
            }
            if let Some(time) = time {
                e.str(name)?.array(2)?.u64(time.numerator)?.u64(time.denominator)?;
            }
        }
        if let Some(data) = self.user_data {
            e.str("user_data")?;
            e.writer_mut().extend(data.bytes());
        }
        e.str("data")?;
        write_channels(e, &self.channels)
    }
}

impl<'a> Start<'a> {
    fn parse(d: &mut Decoder<'a>, bounds: &Bounds) -> Result<Self, String> {
        let (mut start, mut series) = (Self::default(), PartialSeries::default());
        cbor::entries(d, |key, d| {
            Ok(start.number(key, d)? || start.setting(key, d)? || start.list(key, d, bounds)? || series.entry(key, d)?)
        })?;
        start.series = series.whole()?;
        Ok(start)
    }

    /// Reads the quantities.
    fn number(&mut self, key: &str, d: &mut Decoder<'a>) -> Result<bool, String> {
        let place = match key {
            "beam_center_x" => &mut self.beam_center_x,
            "beam_center_y" => &mut self.beam_center_y,
            "count_time" => &mut self.count_time_s,
            "frame_time" => &mut self.frame_time_s,
            "incident_energy" => &mut self.incident_energy_ev,
            "incident_wavelength" => &mut self.incident_wavelength_angstrom,
            "pixel_size_x" => &mut self.pixel_size_x_m,
            "pixel_size_y" => &mut self.pixel_size_y_m,
            "sensor_thickness" => &mut self.sensor_thickness_m,
            _ => return Ok(false),
        };
        *place = Some(cbor::number(d)?);
        Ok(true)
    }

    /// Reads whole numbers, texts and flags.
    fn setting(&mut self, key: &str, d: &mut Decoder<'a>) -> Result<bool, String> {
        match key {
            "arm_date" => self.arm_date = Some(cbor::date(d)?),
            "countrate_correction_enabled" => self.countrate_correction_enabled = Some(d.bool().map_err(wrong)?),
            "detector_description" => self.detector_description = Some(cbor::text(d)?),
            "detector_serial_number" => self.detector_serial_number = Some(cbor::text(d)?),
            "flatfield_enabled" => self.flat_field_enabled = Some(d.bool().map_err(wrong)?),
            "image_dtype" => {
                let name = cbor::text(d)?;
                let element = Element::from_name(name).ok_or_else(|| format!("{} is not a pixel type", quoted(name)))?;
                self.image_element = Some(element);
            }
            "image_size_x" => self.image_size_x = Some(cbor::unsigned(d)?),
            "image_size_y" => self.image_size_y = Some(cbor::unsigned(d)?),
            "number_of_images" => self.number_of_images = Some(cbor::unsigned(d)?),
            "pixel_mask_enabled" => self.pixel_mask_enabled = Some(d.bool().map_err(wrong)?),
            "saturation_value" => self.saturation_value = Some(cbor::unsigned(d)?),
            "sensor_material" => self.sensor_material = Some(cbor::text(d)?),
            "virtual_pixel_interpolation_enabled" => {
                self.virtual_pixel_interpolation_enabled = Some(d.bool().map_err(wrong)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads lists, maps and tables.
    fn list(&mut self, key: &str, d: &mut Decoder<'a>, bounds: &Bounds) -> Result<bool, String> {
        match key {
            "channels" => {
                let count = cbor::array_length(d, bounds.channels_max)?;
                self.channels = (0..count).map(|_| cbor::text(d)).collect::<Result<_, _>>()?;
            }
            "countrate_correction_lookup_table" => {
                if d.datatype().map_err(wrong)? != Type::Tag {
                    self.tables_not_read.push("countrate_correction_lookup_table");
                    return Ok(false);
                }
                // Images can be received without it.
                let item = cbor::item(d)?;
                match cbor::pixels(&mut Decoder::new(item.bytes()), bounds.table_bytes_max) {
                    Ok(table) => self.countrate_correction_table = Some(table),
                    Err(_) => self.tables_not_read.push("countrate_correction_lookup_table"),
                }
            }
            "detector_translation" => {
                if cbor::array_length(d, 3)? != 3 {
                    return Err("a translation must have three numbers".into());
                }
                self.detector_translation_m = Some([cbor::number(d)?, cbor::number(d)?, cbor::number(d)?]);
            }
            "flatfield" => self.flat_field = tables(d, bounds, "flatfield", &mut self.tables_not_read)?,
            "pixel_mask" => self.pixel_mask = tables(d, bounds, "pixel_mask", &mut self.tables_not_read)?,
            "goniometer" => self.goniometer = axes(d, bounds)?,
            "threshold_energy" => {
                self.threshold_energy_ev.clear();
                cbor::entries(d, |name, d| {
                    room(self.threshold_energy_ev.len(), bounds)?;
                    self.threshold_energy_ev.push((name, cbor::number(d)?));
                    Ok(true)
                })?;
            }
            "user_data" => self.user_data = Some(cbor::item(d)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn write(&self, e: &mut Writer) -> Written {
        // Any key may be absent, so the length of the map is known last.
        let mut body = Vec::new();
        let mut counted = Counted { e: Encoder::new(&mut body), entries: 3 };
        self.series.write(&mut counted.e, "start")?;
        self.write_numbers(&mut counted)?;
        self.write_settings(&mut counted)?;
        self.write_lists(&mut counted)?;
        e.map(counted.entries)?;
        e.writer_mut().extend(body);
        Ok(())
    }

    fn write_numbers(&self, c: &mut Counted) -> Written {
        for (key, value) in [
            ("beam_center_x", self.beam_center_x),
            ("beam_center_y", self.beam_center_y),
            ("count_time", self.count_time_s),
            ("frame_time", self.frame_time_s),
            ("incident_energy", self.incident_energy_ev),
            ("incident_wavelength", self.incident_wavelength_angstrom),
            ("pixel_size_x", self.pixel_size_x_m),
            ("pixel_size_y", self.pixel_size_y_m),
            ("sensor_thickness", self.sensor_thickness_m),
        ] {
            c.entry(key, value, |e, value| cbor::write_number(e, value))?;
        }
        Ok(())
    }

    fn write_settings(&self, c: &mut Counted) -> Written {
        c.entry("arm_date", self.arm_date, cbor::write_date)?;
        for (key, value) in [
            ("detector_description", self.detector_description),
            ("detector_serial_number", self.detector_serial_number),
            ("image_dtype", self.image_element.map(Element::name)),
            ("sensor_material", self.sensor_material),
        ] {
            c.entry(key, value, |e, value| e.str(value)?.ok())?;
        }
        for (key, value) in [
            ("countrate_correction_enabled", self.countrate_correction_enabled),
            ("flatfield_enabled", self.flat_field_enabled),
            ("pixel_mask_enabled", self.pixel_mask_enabled),
            ("virtual_pixel_interpolation_enabled", self.virtual_pixel_interpolation_enabled),
        ] {
            c.entry(key, value, |e, value| e.bool(value)?.ok())?;
        }
        for (key, value) in [
            ("image_size_x", self.image_size_x),
            ("image_size_y", self.image_size_y),
            ("number_of_images", self.number_of_images),
            ("saturation_value", self.saturation_value),
        ] {
            c.entry(key, value, |e, value| e.u64(value)?.ok())?;
        }
        Ok(())
    }

    fn write_lists(&self, c: &mut Counted) -> Written {
        c.entry("channels", some(&self.channels), |e, names| {
            e.array(names.len() as u64)?;
            names.iter().try_for_each(|name| e.str(name)?.ok())
        })?;
        let table = self.countrate_correction_table.as_ref();
        c.entry("countrate_correction_lookup_table", table, |e, table| {
            cbor::write_pixels(e, table, table.shape().dimensions().len() == 1)
        })?;
        c.entry("detector_translation", self.detector_translation_m, |e, translation| {
            e.array(3)?;
            translation.iter().try_for_each(|metres| cbor::write_number(e, *metres))
        })?;
        c.entry("flatfield", some(&self.flat_field), |e, all| write_channels(e, all))?;
        c.entry("pixel_mask", some(&self.pixel_mask), |e, all| write_channels(e, all))?;
        c.entry("goniometer", some(&self.goniometer), |e, axes| {
            e.map(axes.len() as u64)?;
            axes.iter().try_for_each(|axis| {
                e.str(axis.name)?.map(2)?.str("increment")?;
                cbor::write_number(e, axis.increment)?;
                e.str("start")?;
                cbor::write_number(e, axis.start)
            })
        })?;
        c.entry("threshold_energy", some(&self.threshold_energy_ev), |e, all| {
            e.map(all.len() as u64)?;
            all.iter().try_for_each(|(name, energy)| {
                e.str(name)?;
                cbor::write_number(e, *energy)
            })
        })?;
        c.entry("user_data", self.user_data, |e, item| {
            e.writer_mut().extend(item.bytes());
            Ok(())
        })
    }
}

/// Entries of a map, counted as they are written.
struct Counted<'o> {
    e: Writer<'o>,
    entries: u64,
}

impl<'o> Counted<'o> {
    fn entry<T>(&mut self, key: &str, value: Option<T>, write: impl FnOnce(&mut Writer<'o>, T) -> Written) -> Written {
        let Some(value) = value else { return Ok(()) };
        self.entries += 1;
        self.e.str(key)?;
        write(&mut self.e, value)
    }
}

fn some<T>(list: &[T]) -> Option<&[T]> {
    (!list.is_empty()).then_some(list)
}

fn room(taken: usize, bounds: &Bounds) -> Result<(), String> {
    if taken < bounds.channels_max {
        return Ok(());
    }
    Err(format!("more than {} entries", bounds.channels_max))
}

fn seconds(d: &mut Decoder) -> Result<Seconds, String> {
    if cbor::array_length(d, 2)? != 2 {
        return Err("a time must be a numerator and a denominator".into());
    }
    Seconds::new(cbor::unsigned(d)?, cbor::unsigned(d)?).ok_or_else(|| "the denominator of a time is 0".into())
}

/// Reads arrays by channel. For pixels, `bytes_max` is the limit for all arrays together. For tables (`is_unreadable`
/// is given) it is the limit for each, and `is_unreadable` notes an item that is not an array.
fn channels<'a>(
    d: &mut Decoder<'a>,
    bounds: &Bounds,
    bytes_max: u64,
    mut is_unreadable: Option<&mut bool>,
) -> Result<Vec<(&'a str, Pixels<'a>)>, String> {
    let (mut all, mut left) = (Vec::new(), bytes_max);
    cbor::entries(d, |name, d| {
        room(all.len(), bounds)?;
        if all.iter().any(|(other, _)| *other == name) {
            return Err("the channel occurs twice".into());
        }
        match &mut is_unreadable {
            Some(is_unreadable) if d.datatype().map_err(wrong)? != Type::Tag => {
                **is_unreadable = true;
                return Ok(false);
            }
            Some(_) => all.push((name, cbor::pixels(d, left)?)),
            None => {
                let pixels = cbor::pixels(d, left)?;
                left -= pixels.unpacked_bytes();
                all.push((name, pixels));
            }
        }
        Ok(true)
    })?;
    Ok(all)
}

/// Reads tables by channel. Items that are not arrays are skipped, and the key is noted.
fn tables<'a>(
    d: &mut Decoder<'a>,
    bounds: &Bounds,
    key: &'static str,
    not_read: &mut Vec<&'static str>,
) -> Result<Vec<(&'a str, Pixels<'a>)>, String> {
    // Images can be received without them.
    let item = cbor::item(d)?;
    let mut is_unreadable = false;
    let mut inner = Decoder::new(item.bytes());
    let all = channels(&mut inner, bounds, bounds.table_bytes_max, Some(&mut is_unreadable));
    if is_unreadable || all.is_err() {
        not_read.push(key);
    }
    Ok(all.unwrap_or_default())
}

fn write_channels(e: &mut Writer, channels: &[(&str, Pixels)]) -> Written {
    e.map(channels.len() as u64)?;
    channels.iter().try_for_each(|(name, pixels)| {
        e.str(name)?;
        cbor::write_pixels(e, pixels, false)
    })
}

fn axes<'a>(d: &mut Decoder<'a>, bounds: &Bounds) -> Result<Vec<Axis<'a>>, String> {
    let mut all = Vec::new();
    cbor::entries(d, |name, d| {
        room(all.len(), bounds)?;
        let mut axis = Axis { name, increment: 0.0, start: 0.0 };
        cbor::entries(d, |key, d| {
            match key {
                "increment" => axis.increment = cbor::number(d)?,
                "start" => axis.start = cbor::number(d)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        all.push(axis);
        Ok(true)
    })?;
    Ok(all)
}
