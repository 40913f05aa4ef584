//! The body of `/start` as a request of ours, with our names and units.

use crate::http::problem::Problem;
use konkordia_acquire::handle::ArmRequest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What clients send as `max_spot_count` without being asked.
const SPOTS_USUAL: u64 = 250;

/// `DatasetSettings` of the broker, as far as it changes a run.
#[derive(Debug, Default, Deserialize)]
pub struct DatasetSettings {
    beam_x_pxl: f64,
    beam_y_pxl: f64,
    detector_distance_mm: f64,
    #[serde(rename = "incident_energy_keV")]
    incident_energy_kev: f64,
    images_per_trigger: Option<u64>,
    ntrigger: Option<u64>,
    image_time_us: Option<u64>,
    file_prefix: Option<String>,
    images_per_file: Option<u64>,
    space_group_number: Option<u64>,
    sample_name: Option<String>,
    compression: Option<String>,
    total_flux: Option<f64>,
    transmission: Option<f64>,
    goniometer: Option<RotationAxis>,
    unit_cell: Option<UnitCell>,
    data_reduction_factor_serialmx: Option<f64>,
    pixel_value_low_threshold: Option<u64>,
    poisson_compression: Option<u64>,
    write_nxmx_hdf5_master: Option<bool>,
    polarization_factor: Option<f64>,
    #[serde(rename = "sample_temperature_K")]
    sample_temperature_k: Option<f64>,
    poni_rot1_rad: Option<f64>,
    poni_rot2_rad: Option<f64>,
    poni_rot3_rad: Option<f64>,
    tokens: Option<Vec<String>>,
    #[serde(rename = "async_start")]
    _async_start: Option<bool>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct RotationAxis {
    name: Option<String>,
    step: f64,
    start: Option<f64>,
    vector: [f64; 3],
    helical_step_um: Option<[f64; 3]>,
    screening_wedge_deg: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct UnitCell {
    a: f64,
    b: f64,
    c: f64,
    alpha: f64,
    beta: f64,
    gamma: f64,
}

impl DatasetSettings {
    /// Reads the body.
    ///
    /// # Errors
    /// It is not such an object; says which field is wrong.
    pub fn read(body: &Value) -> Result<Self, Problem> {
        serde_json::from_value(body.clone()).map_err(|why| {
            let hint = "send DatasetSettings with beam_x_pxl, beam_y_pxl, detector_distance_mm and incident_energy_keV";
            let field = wrong_field(body).map_or(String::new(), |name| format!(" {name}:"));
            Problem::new("bad_body", format!("the dataset settings are wrong:{field} {why}"), hint)
        })
    }

    /// The same as a request of ours, and the names of what was said and is not kept. `configured` is the configuration
    /// of the detector.
    ///
    /// # Errors
    /// Something is asked for that would change the pixels or the files, and that cannot be set for one run.
    pub fn request(self, configured: &Value) -> Result<(ArmRequest, Vec<String>), Problem> {
        self.refuse(configured)?;
        let images = self.images_per_trigger.unwrap_or(1).checked_mul(self.ntrigger.unwrap_or(1));
        let images = images.filter(|images| *images > 0).ok_or_else(|| {
            let hint = "send images_per_trigger and ntrigger from 1 on";
            Problem::new("bad_request", "images_per_trigger times ntrigger is no number of images", hint)
        })?;
        let not_kept = self.others.iter().filter(|(name, value)| !is_usual(name, value)).map(|(name, _)| name.clone());
        let mut not_kept: Vec<String> = not_kept.collect();
        not_kept.sort();
        let prefix = self.file_prefix.clone().filter(|prefix| !prefix.is_empty());
        let write = Some(prefix.is_some());
        let frames = configured["frames_per_image"].as_f64().unwrap_or(1.0);
        Ok((
            ArmRequest { images: Some(images), prefix, write, metadata: self.metadata(frames)?, ..ArmRequest::default() },
            not_kept,
        ))
    }

    /// `frames` are the frames of the detector that an image is made of.
    fn metadata(self, frames: f64) -> Result<Map<String, Value>, Problem> {
        let mut all = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                all.insert(name.into(), value);
            }
        };
        set("beam_center_x_px", Some(json!(self.beam_x_pxl)));
        set("beam_center_y_px", Some(json!(self.beam_y_pxl)));
        set("detector_distance_mm", Some(json!(self.detector_distance_mm)));
        set("energy_kev", Some(json!(self.incident_energy_kev)));
        set("frame_time_us", self.image_time_us.filter(|time| *time > 0).map(|time| json!(time)));
        set("sample_name", self.sample_name.filter(|name| !name.is_empty()).map(Value::from));
        set("space_group", self.space_group_number.map(|number| json!(number.to_string())));
        set("total_flux_ph_per_s", self.total_flux.map(Value::from));
        set("attenuator_transmission", self.transmission.map(Value::from));
        // From (horizontal - vertical) / (horizontal + vertical) to horizontal / (horizontal + vertical).
        set("polarization_fraction", self.polarization_factor.map(|factor| json!(f64::midpoint(1.0, factor))));
        set("sample_temperature_k", self.sample_temperature_k.map(Value::from));
        let cell = self.unit_cell.map(|cell| json!([cell.a, cell.b, cell.c, cell.alpha, cell.beta, cell.gamma]));
        set("unit_cell", cell);
        if let Some(axis) = self.goniometer {
            let name = axis.name.as_deref().unwrap_or("omega").to_owned();
            if !["omega", "kappa", "chi", "phi"].contains(&name.as_str()) {
                let detail = format!("goniometer: the files have no axis {name:?}");
                return Err(Problem::new("bad_request", detail, "the axes are omega, kappa, chi and phi"));
            }
            set(&format!("{name}_start_deg"), Some(json!(axis.start.unwrap_or(0.0))));
            set(&format!("{name}_increment_deg"), Some(json!(axis.step / frames)));
            set(&format!("{name}_vector"), Some(json!(axis.vector)));
        }
        Ok(all)
    }

    /// Refuses what would change the pixels, the files or who may see them, and is not set for one run here.
    fn refuse(&self, configured: &Value) -> Result<(), Problem> {
        let key = |name: &str| &configured[name];
        let axis = self.goniometer.as_ref();
        let is_turned =
            [self.poni_rot1_rad, self.poni_rot2_rad, self.poni_rot3_rad].into_iter().flatten().any(|turn| turn != 0.0);
        let packs_otherwise = self.compression.as_ref().filter(|wanted| *wanted != "bslz4" && key("compression") != *wanted);
        let checks: [(bool, &str, &str); 10] = [
            (packs_otherwise.is_some(), "compression", "set [output] compression in the configuration of the service"),
            (
                self.images_per_file.is_some_and(|images| key("images_per_file") != images),
                "images_per_file",
                "set [output] images_per_file in the configuration of the service",
            ),
            (
                self.data_reduction_factor_serialmx.is_some_and(|factor| factor != 1.0),
                "data_reduction_factor_serialmx",
                "[veto] in a recipe says which images are dropped",
            ),
            (self.pixel_value_low_threshold.is_some_and(|low| low > 0), "pixel_value_low_threshold", "leave it out"),
            (self.poisson_compression.is_some_and(|factor| factor > 0), "poisson_compression", "[travel] makes a lossy copy"),
            (self.write_nxmx_hdf5_master == Some(false), "write_nxmx_hdf5_master = false", "a master file is always written"),
            (is_turned, "poni_rot1_rad, poni_rot2_rad or poni_rot3_rad", "set detector.tilt_fast_deg and tilt_slow_deg"),
            (
                self.tokens.as_ref().is_some_and(|tokens| !tokens.is_empty()),
                "tokens",
                "tokens of the service ([service] tokens) say who may see its images, and hold for all of them",
            ),
            (axis.is_some_and(|axis| axis.helical_step_um.is_some()), "goniometer.helical_step_um", "leave it out"),
            (axis.is_some_and(|axis| axis.screening_wedge_deg.is_some()), "goniometer.screening_wedge_deg", "leave it out"),
        ];
        match checks.into_iter().find(|(is_asked, ..)| *is_asked) {
            None => Ok(()),
            Some((_, what, hint)) => {
                Err(Problem::new("bad_request", format!("{what} cannot be set for one run by this service"), hint))
            }
        }
    }
}

/// The field whose value is of the wrong type: the settings can be read with null in its place.
fn wrong_field(body: &Value) -> Option<&str> {
    let fields = body.as_object()?;
    let can_be_read = |name: &&String| {
        let mut without = fields.clone();
        without.insert((*name).clone(), Value::Null);
        serde_json::from_value::<DatasetSettings>(Value::Object(without)).is_ok()
    };
    fields.keys().filter(|name| name.len() <= 100).take(200).find(can_be_read).map(String::as_str)
}

/// True for null, and for what clients send without being asked.
fn is_usual(name: &str, value: &Value) -> bool {
    match name {
        "spot_finding" if *value == json!(true) => true,
        "max_spot_count" if *value == json!(SPOTS_USUAL) => true,
        _ => value.is_null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: Value) -> Result<(ArmRequest, Vec<String>), Problem> {
        let mut body = json!({"beam_x_pxl": 512.5, "beam_y_pxl": 256, "detector_distance_mm": 75, "incident_energy_keV": 12.4,
            "images_per_trigger": 10, "ntrigger": 3, "file_prefix": "lyso/a", "sample_name": "", "compression": "bslz4",
            "data_reduction_factor_serialmx": 1.0, "write_nxmx_hdf5_master": true, "poni_rot1_rad": 0.0, "spot_finding": true,
            "max_spot_count": 250, "async_start": false});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        DatasetSettings::read(&body)?.request(&json!({"compression": "bszstd", "frames_per_image": 2}))
    }

    #[test]
    fn settings_become_a_request_with_our_names_and_units() {
        let (usual, not_kept) = request(json!({})).unwrap();
        assert_eq!((usual.images, usual.prefix.as_deref(), usual.write), (Some(30), Some("lyso/a"), Some(true)));
        let wanted =
            json!({"beam_center_x_px": 512.5, "beam_center_y_px": 256.0, "detector_distance_mm": 75.0, "energy_kev": 12.4});
        assert_eq!((Value::Object(usual.metadata), not_kept.len()), (wanted, 0));
        let cell = json!({"a": 79, "b": 79, "c": 38, "alpha": 90, "beta": 90, "gamma": 90});
        let axis = json!({"name": "phi", "step": 0.5, "start": 10, "vector": [0, 1, 0]});
        let (all, not_kept) = request(json!({"image_time_us": 1000, "unit_cell": cell, "goniometer": axis, "transmission": 0.5,
            "polarization_factor": 0.98, "space_group_number": 96, "total_flux": 1e12, "sample_name": "lysozyme",
            "sample_temperature_K": 100, "run_name": "x", "header_appendix": {"a": 1}, "image_appendix": null, "compression": "bszstd"}))
        .unwrap();
        assert_eq!(not_kept, ["header_appendix", "run_name"]);
        let said = |name: &str| all.metadata[name].clone();
        // The files say the turn from frame to frame, of which an image has two.
        assert_eq!((said("phi_increment_deg"), said("phi_start_deg")), (json!(0.25), json!(10.0)));
        assert_eq!((said("frame_time_us"), said("polarization_fraction")), (json!(1000), json!(0.99)));
        assert_eq!((said("space_group"), said("sample_name")), (json!("96"), json!("lysozyme")));
        assert_eq!(said("unit_cell"), json!([79.0, 79.0, 38.0, 90.0, 90.0, 90.0]));
        let (none, _) = request(json!({"file_prefix": ""})).unwrap();
        assert_eq!((none.prefix, none.write), (None, Some(false)));
    }

    #[test]
    fn what_would_change_pixels_or_files_is_refused_and_not_ignored() {
        for (change, part) in [
            (json!({"images_per_file": 5}), "images_per_file"),
            (json!({"compression": "none"}), "compression cannot be set for one run"),
            (json!({"poisson_compression": 2}), "poisson_compression"),
            (json!({"pixel_value_low_threshold": 1}), "pixel_value_low_threshold"),
            (json!({"data_reduction_factor_serialmx": 0.1}), "data_reduction_factor_serialmx"),
            (json!({"write_nxmx_hdf5_master": false}), "write_nxmx_hdf5_master"),
            (json!({"poni_rot2_rad": 0.1}), "poni_rot2_rad"),
            (json!({"tokens": ["secret"]}), "tokens"),
            (json!({"ntrigger": 0}), "no number of images"),
            (json!({"ntrigger": u64::MAX}), "no number of images"),
            (json!({"ntrigger": -1}), "ntrigger"),
            (json!({"beam_x_pxl": "left"}), "invalid type"),
            (json!({"goniometer": {"name": "mu", "step": 1, "vector": [1, 0, 0]}}), "no axis \"mu\""),
        ] {
            let problem = request(change).map(|_| ()).expect_err(part);
            let body = problem.body();
            let text = format!("{} {}", body.detail, body.hint.as_deref().unwrap_or_default());
            assert!(text.contains(part), "expected {part:?} in {text:?}");
        }
    }
}
