//! Sample, beam and settings of the detector: their text form in the run description.

use konkordia_core::experiment::{Axis, Experiment, Goniometer};

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
        pub(super) fn set(e: &mut Experiment, key: &str, value: &str) -> Result<bool, String> {
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

fn finite(value: &str) -> Result<f64, String> {
    value.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| "not a number".to_owned())
}

fn numbers<const N: usize>(value: &str) -> Result<[f64; N], String> {
    let all = value.split(' ').map(finite).collect::<Result<Vec<f64>, _>>()?;
    all.try_into().map_err(|_| format!("{N} numbers expected"))
}

fn set_axis(goniometer: &mut Goniometer, key: &str, value: &str) -> Result<bool, String> {
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
