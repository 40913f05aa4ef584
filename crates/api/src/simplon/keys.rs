//! The keys of all configurations: what each is of our detector, and its unit in SIMPLON.

use konkordia_acquire::handle::Detector;
use konkordia_core::array::Element;
use konkordia_core::experiment::Metadata;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// A key of a configuration.
pub struct Key {
    /// The part of the unit that has it.
    pub subsystem: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Unit of its value, if it has one.
    pub unit: &'static str,
    /// Where its value comes from, and what becomes of one that a client sets.
    pub source: Source,
}

/// Where the value of a key comes from.
pub enum Source {
    /// A number of the next run. `of` is its value as configured, in the unit of SIMPLON; times `factor` it is the
    /// metadata `fact`.
    Number {
        /// Name in an arm.
        fact: &'static str,
        /// From the unit of SIMPLON to that of the fact.
        factor: f64,
        /// As configured.
        of: fn(&Metadata) -> Option<f64>,
    },
    /// A text of the next run.
    Text {
        /// Name in an arm.
        fact: &'static str,
        /// As configured.
        of: fn(&Metadata) -> Option<String>,
    },
    /// Images or triggers of the next run. Where the configuration names no number it is 1, as in a new DECTRIS unit.
    Count(fn(&Value) -> Option<u64>),
    /// One of these words; the first one applies, or the second one if the configuration says so.
    Choice(&'static [&'static str], fn(&Value) -> bool),
    /// Start of the file names of the next run.
    NamePattern,
    /// The photon energy, as a wavelength.
    Wavelength,
    /// Another name of this key.
    Alias(&'static str),
    /// The configuration of the detector fixes it, with this type.
    Fixed(&'static str, fn(&dyn Detector) -> Option<Value>),
    /// As `Fixed`, but said to be writable with one allowed value (or none where the value is null), because clients
    /// refuse to work with a detector where it is not.
    OnlyValue(&'static str, fn(&dyn Detector) -> Value),
}

impl Key {
    /// A real DECTRIS unit has the wavelength, and does not list it.
    pub fn is_listed(&self) -> bool {
        !matches!(self.source, Source::Wavelength)
    }
}

/// What is known of a key.
#[derive(Debug, Default)]
pub struct Answer {
    /// Its value; null = not known or not set.
    pub value: Value,
    /// As SIMPLON names it.
    pub value_type: &'static str,
    /// Clients may set it.
    pub is_writable: bool,
    /// Empty = none.
    pub unit: &'static str,
    /// The lowest and the highest allowed value.
    pub range: Option<(Value, Value)>,
    /// All allowed values.
    pub allowed: Option<Vec<Value>>,
}

impl Answer {
    /// Something that cannot be set.
    pub fn read_only(value_type: &'static str, value: impl Into<Value>) -> Self {
        Self { value: value.into(), value_type, ..Self::default() }
    }

    /// With these allowed values.
    #[must_use]
    pub fn of(self, allowed: &[&str]) -> Self {
        Self { allowed: Some(allowed.iter().map(|word| json!(word)).collect()), ..self }
    }

    /// As SIMPLON writes it.
    pub fn into_json(self) -> Value {
        let mut all = Map::new();
        let mode = if self.is_writable { "rw" } else { "r" };
        all.insert("access_mode".into(), mode.into());
        all.insert("value".into(), self.value);
        all.insert("value_type".into(), self.value_type.into());
        if !self.unit.is_empty() {
            all.insert("unit".into(), self.unit.into());
        }
        if let Some((least, most)) = self.range {
            all.insert("min".into(), least);
            all.insert("max".into(), most);
        }
        if let Some(allowed) = self.allowed {
            all.insert("allowed_values".into(), allowed.into());
        }
        Value::Object(all)
    }
}

/// The key of this name.
pub fn find(subsystem: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.subsystem == subsystem && key.name == name)
}

const fn detector(name: &'static str, unit: &'static str, source: Source) -> Key {
    Key { subsystem: "detector", name, unit, source }
}

const fn number(
    name: &'static str,
    unit: &'static str,
    (fact, factor): (&'static str, f64),
    of: fn(&Metadata) -> Option<f64>,
) -> Key {
    detector(name, unit, Source::Number { fact, factor, of })
}

const fn angle(name: &'static str, fact: &'static str, of: fn(&Metadata) -> Option<f64>) -> Key {
    number(name, "degree", (fact, 1.0), of)
}

const fn text(name: &'static str, fact: &'static str, of: fn(&Metadata) -> Option<String>) -> Key {
    detector(name, "", Source::Text { fact, of })
}

const fn fixed(name: &'static str, unit: &'static str, kind: &'static str, of: fn(&dyn Detector) -> Option<Value>) -> Key {
    detector(name, unit, Source::Fixed(kind, of))
}

/// All keys, in the order in which `keys` lists them.
pub const KEYS: &[Key] = &[
    number("beam_center_x", "pixel", ("beam_center_x_px", 1.0), |m| m.beam_center_x_px),
    number("beam_center_y", "pixel", ("beam_center_y_px", 1.0), |m| m.beam_center_y_px),
    fixed("bit_depth_image", "bit", "uint", |d| element(d).map(|element| json!(element.bits()))),
    fixed("bit_depth_readout", "bit", "uint", |d| d.facts().bit_depth.map(Value::from)),
    angle("chi_increment", "chi_increment_deg", |m| m.experiment.goniometer.chi.increment_deg),
    angle("chi_start", "chi_start_deg", |m| m.experiment.goniometer.chi.start_deg),
    detector("compression", "", Source::OnlyValue("string", |d| d.configuration()["compression"].clone())),
    number("count_time", "s", ("count_time_us", 1e6), |m| m.count_time_s),
    fixed("countrate_correction_applied", "", "bool", |d| d.facts().experiment.countrate_correction_applied.map(Value::from)),
    fixed("description", "", "string", |d| d.facts().detector_description.map(Value::from)),
    number("detector_distance", "m", ("detector_distance_mm", 1e3), |m| m.detector_distance_m),
    fixed("detector_number", "", "string", |d| d.facts().detector_serial.map(Value::from)),
    fixed("flatfield_correction_applied", "", "bool", |d| d.facts().experiment.flatfield_applied.map(Value::from)),
    number("frame_time", "s", ("frame_time_us", 1e6), |m| m.frame_time_s),
    detector("incident_energy", "eV", Source::Alias("photon_energy")),
    text("instrument_name", "beamline", |m| m.instrument_name.clone()),
    angle("kappa_increment", "kappa_increment_deg", |m| m.experiment.goniometer.kappa.increment_deg),
    angle("kappa_start", "kappa_start_deg", |m| m.experiment.goniometer.kappa.start_deg),
    detector("nimages", "", Source::Count(|configuration| configuration["images"].as_u64())),
    detector("ntrigger", "", Source::Count(|_| None)),
    angle("omega_increment", "omega_increment_deg", |m| m.experiment.goniometer.omega.increment_deg),
    angle("omega_start", "omega_start_deg", |m| m.experiment.goniometer.omega.start_deg),
    angle("phi_increment", "phi_increment_deg", |m| m.experiment.goniometer.phi.increment_deg),
    angle("phi_start", "phi_start_deg", |m| m.experiment.goniometer.phi.start_deg),
    number("photon_energy", "eV", ("energy_kev", 1e-3), |m| m.energy_kev.map(|kev| kev * 1e3)),
    detector("roi_mode", "", Source::OnlyValue("string", |_| json!("disabled"))),
    text("sample_name", "sample_name", |m| m.sample_name.clone()),
    fixed("sensor_material", "", "string", |d| d.facts().sensor_material.map(Value::from)),
    fixed("sensor_thickness", "m", "float", |d| d.facts().sensor_thickness_m.map(tidy)),
    fixed("software_version", "", "string", |_| Some(json!(concat!("konkordia ", env!("CARGO_PKG_VERSION"))))),
    text("source_name", "source_name", |m| m.source_name.clone()),
    detector("threshold/1/energy", "eV", Source::Alias("threshold_energy")),
    number("threshold_energy", "eV", ("threshold_energy_kev", 1e-3), |m| m.experiment.threshold_energy_ev),
    number("total_flux", "ph/s", ("total_flux_ph_per_s", 1.0), |m| m.experiment.total_flux_ph_per_s),
    detector("trigger_mode", "", Source::Choice(&["ints", "exts", "exte"], |_| false)),
    angle("two_theta_increment", "two_theta_increment_deg", |m| m.experiment.goniometer.two_theta.increment_deg),
    angle("two_theta_start", "two_theta_start_deg", |m| m.experiment.goniometer.two_theta.start_deg),
    detector("wavelength", "angstrom", Source::Wavelength),
    fixed("x_pixel_size", "m", "float", |d| d.facts().pixel_size_m.map(|[x, _]| tidy(x))),
    fixed("x_pixels_in_detector", "", "uint", |d| size(d).map(|[_, columns]| json!(columns))),
    fixed("y_pixel_size", "m", "float", |d| d.facts().pixel_size_m.map(|[_, y]| tidy(y))),
    fixed("y_pixels_in_detector", "", "uint", |d| size(d).map(|[rows, _]| json!(rows))),
    Key { subsystem: "stream", name: "format", unit: "", source: Source::OnlyValue("string", stream_format) },
    Key { subsystem: "stream", name: "mode", unit: "", source: Source::OnlyValue("string", stream_mode) },
    Key { subsystem: "monitor", name: "discard_new", unit: "", source: Source::Fixed("bool", |_| Some(json!(false))) },
    Key { subsystem: "monitor", name: "mode", unit: "", source: Source::Choice(&["enabled", "disabled"], |_| false) },
    Key {
        subsystem: "filewriter",
        name: "compression_enabled",
        unit: "",
        source: Source::Fixed("bool", |d| d.configuration()["compression"].as_str().map(|name| json!(name != "none"))),
    },
    Key { subsystem: "filewriter", name: "image_nr_start", unit: "", source: Source::Fixed("uint", |_| Some(json!(1))) },
    Key {
        subsystem: "filewriter",
        name: "mode",
        unit: "",
        source: Source::Choice(&["enabled", "disabled"], |configuration| configuration["write"] == false),
    },
    Key { subsystem: "filewriter", name: "name_pattern", unit: "", source: Source::NamePattern },
    Key {
        subsystem: "filewriter",
        name: "nimages_per_file",
        unit: "",
        source: Source::Fixed("uint", |d| d.configuration()["images_per_file"].as_u64().map(Value::from)),
    },
];

/// A number without the last digits that a change of unit leaves.
pub fn tidy(value: f64) -> Value {
    format!("{value:.12e}").parse::<f64>().map_or(Value::Null, Value::from)
}

/// Type of the pixels: as configured, else that of the newest image.
fn element(detector: &dyn Detector) -> Option<Element> {
    let configured = detector.configuration()["dtype"].as_str().and_then(Element::from_name);
    let newest = || Some(detector.images().get(None, Instant::now())?.planes.image().channels.first()?.array.element);
    configured.or_else(newest)
}

/// Rows and columns of the image: as configured, else those of the newest image.
fn size(detector: &dyn Detector) -> Option<[u64; 2]> {
    let configuration = detector.configuration();
    if let (Some(rows), Some(columns)) = (configuration["image_rows"].as_u64(), configuration["image_columns"].as_u64()) {
        return Some([rows, columns]);
    }
    let newest = detector.images().get(None, Instant::now())?;
    match newest.planes.image().channels.first()?.array.shape.dimensions() {
        [.., rows, columns] => Some([*rows, *columns]),
        _ => None,
    }
}

/// Names of the consumers that get the stream of a DECTRIS detector.
pub fn dectris_streams(configuration: &Value) -> Vec<&str> {
    let all = configuration["streams_out"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|stream| stream["protocol"] == "stream2").filter_map(|stream| stream["name"].as_str()).collect()
}

fn stream_mode(detector: &dyn Detector) -> Value {
    json!(if dectris_streams(&detector.configuration()).is_empty() { "disabled" } else { "enabled" })
}

/// Null where nothing is sent in a format of DECTRIS.
fn stream_format(detector: &dyn Detector) -> Value {
    if dectris_streams(&detector.configuration()).is_empty() { Value::Null } else { json!("cbor") }
}
