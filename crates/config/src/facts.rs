//! Facts about the measurement, which become metadata of the file.

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use super::schema_experiment;
use konkordia_core::experiment::{Axis, Experiment, Goniometer, Metadata};

/// Metadata keys (facts about the measurement) of tables that also have other keys. All keys of `[goniometer]` and
/// `[experiment]` are metadata.
const FACTS: [(&str, &[&str]); 2] = [
    (
        "detector",
        &[
            "energy_kev",
            "detector_distance_mm",
            "beam_center_x_px",
            "beam_center_y_px",
            "pixel_size_um",
            "sensor_material",
            "sensor_thickness_um",
            "frame_time_us",
            "count_time_us",
            "description",
            "serial_number",
            "threshold_energy_kev",
            "gain_setting",
            "flatfield_applied",
            "countrate_correction_applied",
            "tilt_fast_deg",
            "tilt_slow_deg",
        ],
    ),
    ("output", &["sample_name", "beamline", "source_name"]),
];

/// Table and name of each key that [`facts`] reads, table by table.
pub(super) fn fact_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    let listed = FACTS.iter().flat_map(|(table, names)| names.iter().map(move |name| (*table, *name)));
    listed.chain(schema_experiment::KEYS.iter().map(|key| (key.table, key.name)))
}

/// True for a key that [`facts`] reads.
pub(super) fn is_fact(table: &str, name: &str) -> bool {
    fact_keys().any(|key| key == (table, name))
}

/// The metadata in the configuration.
pub(super) fn facts(document: &Document) -> Metadata {
    let (t, output) = (document.table("detector"), document.table("output"));
    let text = |t: &Table, key: &str| t.text(key).map(str::to_string);
    let scaled = |key: &str, factor: f64| t.number(key).map(|n| n * factor);
    Metadata {
        energy_kev: t.number("energy_kev"),
        detector_distance_m: scaled("detector_distance_mm", 1e-3),
        beam_center_x_px: t.number("beam_center_x_px"),
        beam_center_y_px: t.number("beam_center_y_px"),
        pixel_size_m: scaled("pixel_size_um", 1e-6).map(|edge| [edge; 2]),
        sensor_material: text(t, "sensor_material"),
        sensor_thickness_m: scaled("sensor_thickness_um", 1e-6),
        frame_time_s: scaled("frame_time_us", 1e-6),
        count_time_s: scaled("count_time_us", 1e-6),
        detector_description: text(t, "description"),
        detector_serial: text(t, "serial_number"),
        source_name: text(output, "source_name"),
        instrument_name: text(output, "beamline"),
        sample_name: text(output, "sample_name"),
        experiment: experiment(document),
        ..Metadata::default()
    }
}

/// Angles, beam, sample, and the corrections that the detector makes.
fn experiment(document: &Document) -> Experiment {
    let (t, e) = (document.table("detector"), document.table("experiment"));
    let text = |t: &Table, key: &str| t.text(key).map(str::to_string);
    Experiment {
        goniometer: goniometer(document.table("goniometer")),
        tilt_fast_deg: t.number("tilt_fast_deg"),
        tilt_slow_deg: t.number("tilt_slow_deg"),
        total_flux_ph_per_s: e.number("total_flux_ph_per_s"),
        attenuator_transmission: e.number("attenuator_transmission"),
        polarization_fraction: e.number("polarization_fraction"),
        sample_temperature_k: e.number("sample_temperature_k"),
        unit_cell: e.numbers("unit_cell"),
        space_group: text(e, "space_group"),
        flatfield_applied: t.flag("flatfield_applied"),
        countrate_correction_applied: t.flag("countrate_correction_applied"),
        gain_setting: text(t, "gain_setting"),
        threshold_energy_ev: t.number("threshold_energy_kev").map(|kev| kev * 1000.0),
        ..Experiment::default()
    }
}

fn goniometer(t: &Table) -> Goniometer {
    let axis = |name: &str| Axis {
        start_deg: t.number(&format!("{name}_start_deg")),
        increment_deg: t.number(&format!("{name}_increment_deg")),
        vector: t.numbers(&format!("{name}_vector")),
    };
    Goniometer { omega: axis("omega"), kappa: axis("kappa"), chi: axis("chi"), phi: axis("phi"), two_theta: axis("two_theta") }
}

/// Reports vectors of the goniometer that have no direction.
pub(super) fn check_vectors(document: &Document, d: &mut Diagnostics) {
    let t = document.table("goniometer");
    for name in Goniometer::NAMES.map(|name| format!("{name}_vector")) {
        if t.numbers::<3>(&name) == Some([0.0; 3]) {
            let what = format!("goniometer.{name}: [0, 0, 0] has no direction");
            d.add(t.span(&name), what, "", "give x, y, z in the McStas frame, for example [-1, 0, 0]");
        }
    }
}
