//! Sample, beam and settings of the detector: their text form in the run description, and their places in NXmx.

use hdf5::{Group, Result};
use konkordia_core::experiment::{Axis, Experiment, Goniometer};

use super::nexus::{attribute_text, group, number, quantities, text};

macro_rules! text_form {
    (numbers: $($number:ident)*; flags: $($flag:ident)*; texts: $($text:ident)*) => {
        /// Every fact that is known, as key and value.
        pub(super) fn each(e: &Experiment, mut put: impl FnMut(&str, String)) {
            // `{:?}` prints the shortest text that reads back to the same number.
            $(if let Some(value) = e.$number { put(stringify!($number), format!("{value:?}")); })*
            $(if let Some(value) = e.$flag { put(stringify!($flag), value.to_string()); })*
            $(if let Some(value) = &e.$text { put(stringify!($text), value.clone()); })*
            if let Some(cell) = e.unit_cell { put("unit_cell", list(&cell)); }
            for (name, axis) in e.goniometer.axes() {
                if let Some(value) = axis.start_deg { put(&format!("{name}_start_deg"), format!("{value:?}")); }
                if let Some(value) = axis.increment_deg { put(&format!("{name}_increment_deg"), format!("{value:?}")); }
                if let Some(vector) = axis.vector { put(&format!("{name}_vector"), list(&vector)); }
            }
        }

        /// Takes one line; false if its key is not one of an experiment.
        pub(super) fn set(e: &mut Experiment, key: &str, value: &str) -> std::result::Result<bool, String> {
            match key {
                $(stringify!($number) => e.$number = Some(finite(value)?),)*
                $(stringify!($flag) => e.$flag = Some(value == "true"),)*
                $(stringify!($text) => e.$text = Some(value.into()),)*
                "unit_cell" => e.unit_cell = Some(numbers(value)?),
                _ => return set_axis(&mut e.goniometer, key, value),
            }
            Ok(true)
        }
    };
}

text_form!(
    numbers: tilt_fast_deg tilt_slow_deg total_flux_ph_per_s attenuator_transmission polarization_fraction sample_temperature_k
        detector_readout_time_s threshold_energy_ev;
    flags: flatfield_applied countrate_correction_applied pixel_mask_applied virtual_pixel_interpolation_applied;
    texts: space_group gain_setting source_short_name instrument_short_name
);

fn list(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(" ")
}

fn finite(value: &str) -> std::result::Result<f64, String> {
    value.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| "not a number".to_owned())
}

fn numbers<const N: usize>(value: &str) -> std::result::Result<[f64; N], String> {
    let all = value.split(' ').map(finite).collect::<std::result::Result<Vec<f64>, _>>()?;
    all.try_into().map_err(|_| format!("{N} numbers expected"))
}

fn set_axis(goniometer: &mut Goniometer, key: &str, value: &str) -> std::result::Result<bool, String> {
    for name in Goniometer::NAMES {
        let Some(what) = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('_')) else { continue };
        let axis: &mut Axis = goniometer.axis_mut(name).expect("it is one of its names");
        match what {
            "start_deg" => axis.start_deg = Some(finite(value)?),
            "increment_deg" => axis.increment_deg = Some(finite(value)?),
            "vector" => axis.vector = Some(numbers(value)?),
            _ => continue,
        }
        return Ok(true);
    }
    Ok(false)
}

/// Writes the name of a source or instrument, with its short form if it has one.
pub(super) fn write_name(place: &Group, name: Option<&String>, short: Option<&String>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    text(place, "name", name)?;
    let field = place.dataset("name")?;
    short.map_or(Ok(()), |short| attribute_text(&field, "short_name", short))
}

/// Temperature and crystal.
pub(super) fn write_sample(sample: &Group, e: &Experiment) -> Result<()> {
    if let Some(kelvin) = e.sample_temperature_k {
        number(sample, "temperature", kelvin, "K")?;
    }
    if let Some([a, b, c, alpha, beta, gamma]) = e.unit_cell {
        quantities(sample, "unit_cell_abc", &[a, b, c], "angstrom")?;
        quantities(sample, "unit_cell_alphabetagamma", &[alpha, beta, gamma], "deg")?;
    }
    e.space_group.as_ref().map_or(Ok(()), |name| text(sample, "space_group", name))
}

/// Flux, polarisation and attenuator.
pub(super) fn write_beam(instrument: &Group, beam: &Group, e: &Experiment) -> Result<()> {
    if let Some(flux) = e.total_flux_ph_per_s {
        number(beam, "total_flux", flux, "Hz")?;
        attribute_text(beam, "flux", "total_flux")?;
    }
    if let Some(share) = e.polarization_fraction {
        // Stokes parameters: intensity, horizontal minus vertical, the two diagonals, circular. One row for all images.
        let stokes = beam.new_dataset::<f64>().shape((1, 4)).create("incident_polarization_stokes")?;
        stokes.write_raw(&[1.0, 2.0 * share - 1.0, 0.0, 0.0])?;
    }
    if let Some(share) = e.attenuator_transmission {
        number(&group(instrument, "attenuator", "NXattenuator")?, "attenuator_transmission", share, "")?;
    }
    Ok(())
}

/// Writes what the detector did to the counts.
pub(super) fn write_detector(detector: &Group, e: &Experiment) -> Result<()> {
    let flags = [
        ("flatfield_applied", e.flatfield_applied),
        ("countrate_correction_applied", e.countrate_correction_applied),
        ("virtual_pixel_interpolation_applied", e.virtual_pixel_interpolation_applied),
        ("pixel_mask_applied", Some(e.pixel_mask_applied.unwrap_or(false))),
    ];
    for (name, flag) in flags {
        if let Some(flag) = flag {
            number(detector, name, i8::from(flag), "")?;
        }
    }
    if let Some(gain) = &e.gain_setting {
        text(detector, "gain_setting", gain)?;
    }
    if let Some(seconds) = e.detector_readout_time_s {
        number(detector, "detector_readout_time", seconds, "s")?;
    }
    e.threshold_energy_ev.map_or(Ok(()), |threshold| number(detector, "threshold_energy", threshold, "eV"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_reads_back() {
        let mut goniometer = Goniometer { omega: Axis::turning(-5.5, 0.1), ..Goniometer::default() };
        goniometer.kappa = Axis { vector: Some([0.0, 0.6, -0.8]), ..Axis::turning(30.0, 0.0) };
        goniometer.two_theta.start_deg = Some(1e-3);
        let e = Experiment {
            goniometer,
            tilt_slow_deg: Some(0.25),
            unit_cell: Some([79.0, 79.0, 38.5, 90.0, 90.0, 120.0]),
            space_group: Some("P 43 21 2".into()),
            flatfield_applied: Some(false),
            threshold_energy_ev: Some(6400.0),
            ..Experiment::default()
        };
        let mut back = Experiment::default();
        each(&e, |key, value| assert!(set(&mut back, key, &value).unwrap(), "{key}"));
        assert_eq!(back, e);
        assert!(!set(&mut back, "energy_kev", "1").unwrap() && !set(&mut back, "omega_other", "1").unwrap());
        assert!(set(&mut back, "omega_start_deg", "NaN").is_err() && set(&mut back, "kappa_vector", "1 2").is_err());
    }
}
