//! Sample, beam and settings of the detector: their places in NXmx.

use hdf5::{Group, Result};
use konkordia_core::experiment::Experiment;

use super::nexus::{attribute_text, group, number, quantities, text};

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
