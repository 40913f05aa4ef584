//! Facts that NXmx requires and that nobody may make up: what follows if one is not known, and where it can be given.

use super::spec::Metadata;

/// One fact.
pub(crate) struct Fact {
    /// In words.
    name: &'static str,
    /// Its fields below `/entry`; one of them is sufficient.
    pub(crate) paths: &'static [&'static str],
    /// Key of the configuration, with its table.
    key: &'static str,
    /// What programs do without it; empty if nothing changes.
    without: &'static str,
    is_known: fn(&Metadata) -> bool,
}

/// All of them; first those that programs need.
pub(crate) const FACTS: &[Fact] = &[
    Fact {
        name: "photon energy",
        paths: &["instrument/beam/incident_wavelength"],
        key: "[detector] energy_kev",
        without: "DIALS does not open the file",
        is_known: |m| m.energy_kev.is_some(),
    },
    Fact {
        name: "sensor material",
        paths: &["instrument/detector/sensor_material"],
        key: "[detector] sensor_material",
        without: "DIALS does not open the file",
        is_known: |m| m.sensor_material.is_some(),
    },
    Fact {
        name: "sensor thickness",
        paths: &["instrument/detector/sensor_thickness"],
        key: "[detector] sensor_thickness_um",
        without: "DIALS does not open the file",
        is_known: |m| m.sensor_thickness_m.is_some(),
    },
    Fact {
        name: "pixel size",
        paths: &["instrument/detector/x_pixel_size"],
        key: "[detector] pixel_size_um",
        without: "DIALS and durin (XDS) do not open the file, neggia reports 0",
        is_known: |m| m.pixel_size_m.is_some(),
    },
    Fact {
        name: "detector distance",
        paths: &["instrument/detector/distance"],
        key: "[detector] detector_distance_mm",
        without: "DIALS uses 0 m unless geometry.detector.distance is set",
        is_known: |m| m.detector_distance_m.is_some(),
    },
    Fact {
        name: "beam centre",
        paths: &["instrument/detector/beam_center_x"],
        key: "[detector] beam_center_x_px, beam_center_y_px",
        without: "DIALS uses the first pixel of the image instead",
        is_known: |m| m.beam_center_x_px.is_some() && m.beam_center_y_px.is_some(),
    },
    Fact {
        name: "sample name",
        paths: &["sample/name"],
        key: "[output] sample_name",
        without: "",
        is_known: |m| m.sample_name.is_some(),
    },
    Fact {
        name: "beamline",
        paths: &["instrument/name"],
        key: "[output] beamline",
        without: "",
        is_known: |m| m.instrument_name.is_some(),
    },
    Fact {
        name: "facility",
        paths: &["source/name"],
        key: "[output] source_name",
        without: "",
        is_known: |m| m.source_name.is_some(),
    },
    Fact { name: "start time", paths: &["start_time"], key: "", without: "", is_known: |m| m.start_time.is_some() },
    Fact {
        name: "end time",
        paths: &["end_time", "end_time_estimated"],
        key: "",
        without: "",
        // Known only at the end.
        is_known: |_| true,
    },
];

impl Fact {
    /// The finding for a file that lacks it.
    pub(crate) fn finding(&self) -> String {
        let without = if self.without.is_empty() { "NXmx asks for it" } else { self.without };
        format!("{} not known: {without}", self.name)
    }

    /// What to do about it.
    pub(crate) fn remedy(&self) -> String {
        match self.key {
            "" => "nothing to do: the value was not given, so the field was left out".into(),
            key => format!("set {key} for the next run; for this one, give the value to the processing program"),
        }
    }
}

/// What the files of a run with these facts will lack, as texts for users: first what programs need, then what NXmx
/// requires. Empty if everything is known.
pub fn notes(metadata: &Metadata) -> Vec<String> {
    let unknown = |needed: bool| FACTS.iter().filter(move |f| f.without.is_empty() != needed && !(f.is_known)(metadata));
    let mut notes: Vec<String> = unknown(true).map(|f| format!("{} not known: {} (set {})", f.name, f.without, f.key)).collect();
    let names: Vec<String> = unknown(false).filter(|f| !f.key.is_empty()).map(|f| format!("{} ({})", f.name, f.key)).collect();
    if !names.is_empty() {
        notes.push(format!("not known and left out of the file, though NXmx asks for it: {}", names.join(", ")));
    }
    for axis in super::goniometer::without_vector(&metadata.experiment) {
        notes.push(format!(
            "{axis} has no known direction: its angle is stored, but is not part of the geometry (set [goniometer] {axis}_vector)"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::experiment::Axis;

    #[test]
    fn what_is_not_known_is_named_with_its_key() {
        let all = Metadata {
            energy_kev: Some(12.4),
            sensor_material: Some("Si".into()),
            sensor_thickness_m: Some(320e-6),
            pixel_size_m: Some([75e-6; 2]),
            detector_distance_m: Some(0.2),
            beam_center_x_px: Some(1.0),
            beam_center_y_px: Some(1.0),
            sample_name: Some("a".into()),
            instrument_name: Some("b".into()),
            source_name: Some("c".into()),
            ..Metadata::default()
        };
        assert_eq!(notes(&all), Vec::<String>::new());
        let said = notes(&Metadata { detector_distance_m: None, sample_name: None, ..all.clone() });
        assert!(said[0].contains("detector_distance_mm") && said[0].contains("0 m"), "{said:?}");
        assert!(said.len() == 2 && said[1].contains("sample_name"), "{said:?}");
        let mut kappa = all;
        kappa.experiment.goniometer.kappa = Axis::turning(10.0, 0.0);
        assert!(notes(&kappa)[0].contains("kappa_vector"));
    }
}
