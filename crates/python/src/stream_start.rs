//! What is known of a series before its images, for Python.

use super::errors::value;
use super::geometry::Geometry;
use super::stream_pixels::{dtype, unpack};
use konkordia_analysis::geometry as of;
use konkordia_core::array::Array;
use konkordia_core::experiment::Metadata;
use konkordia_core::series::SeriesStart;
use pyo3::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The start of a series.
#[pyclass(frozen, module = "konkordia._native")]
pub struct StreamStart(pub Arc<SeriesStart>);

#[pymethods]
impl StreamStart {
    #[getter]
    fn series(&self) -> u64 {
        self.0.series
    }

    #[getter]
    fn unique_id(&self) -> &str {
        &self.0.unique_id
    }

    #[getter]
    fn filename(&self) -> Option<&str> {
        self.0.filename.as_deref()
    }

    #[getter]
    fn images_planned(&self) -> Option<u64> {
        self.0.images_planned
    }

    /// Rows and columns.
    #[getter]
    fn image_size(&self) -> Option<(u64, u64)> {
        self.0.image_size.map(|[rows, columns]| (rows, columns))
    }

    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.0.element.map(|element| element.unpacked().name())
    }

    /// Names and thresholds in eV.
    #[getter]
    fn channels(&self) -> Vec<(String, Option<f64>)> {
        self.0.channels.iter().map(|channel| (channel.name.clone(), channel.threshold_energy_ev)).collect()
    }

    /// Facts by name, with their units in the names, as JSON.
    #[getter]
    fn facts(&self) -> String {
        Value::Object(facts(&self.0.facts)).to_string()
    }

    /// Everything that the sender said, without tables, as JSON.
    #[getter]
    fn metadata(&self) -> String {
        let mut all = self.0.header_extra.clone();
        all.extend(self.0.metadata.clone());
        Value::Object(all).to_string()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.warnings.clone()
    }

    /// Where the pixels of images of this size lie, or why that is not known.
    fn geometry(&self, shape: [usize; 2]) -> (Option<Geometry>, Option<String>) {
        match of::Geometry::of_run(shape, &self.0.facts) {
            Ok(geometry) => (Some(Geometry(geometry)), None),
            Err(why) => (None, Some(why)),
        }
    }

    /// Shape and type of a table (`pixel_mask` or `flat_field`) of a channel; None if there is none.
    fn table(&self, channel: usize, name: &str) -> PyResult<Option<(Vec<u64>, &'static str)>> {
        Ok(self.array(channel, name)?.map(|array| (array.shape.dimensions().to_vec(), dtype(array))))
    }

    /// Unpacks this table into an array of its shape and type.
    fn unpack_table(&self, py: Python<'_>, channel: usize, name: &str, out: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = self.array(channel, name)?.ok_or_else(|| value(format!("there is no {name}")))?;
        unpack(py, array, out)
    }
}

impl StreamStart {
    fn array(&self, channel: usize, name: &str) -> PyResult<Option<&Array>> {
        let channel = self.0.channels.get(channel);
        Ok(match name {
            "pixel_mask" => channel.and_then(|channel| channel.pixel_mask.as_ref()),
            "flat_field" => channel.and_then(|channel| channel.flat_field.as_ref()),
            other => return Err(value(format!("there are no tables {other:?}"))),
        })
    }
}

/// What is known of the measurement; what is not known is left out.
fn facts(of: &Metadata) -> Map<String, Value> {
    let e = &of.experiment;
    let mut all = json!({
        "energy_kev": of.energy_kev,
        "distance_mm": of.detector_distance_m.map(|m| m * 1e3),
        "beam_center_px": of.beam_center_x_px.zip(of.beam_center_y_px).map(|(x, y)| [x, y]),
        "pixel_size_um": of.pixel_size_m.map(|both| both.map(|m| m * 1e6)),
        "sensor_material": of.sensor_material,
        "sensor_thickness_um": of.sensor_thickness_m.map(|m| m * 1e6),
        "frame_time_s": of.frame_time_s,
        "exposure_s": of.count_time_s,
        "bit_depth": of.bit_depth,
        "underload_value": of.underload_value,
        "saturation_value": of.saturation_value,
        "detector_description": of.detector_description,
        "detector_serial": of.detector_serial,
        "source_name": of.source_name,
        "instrument_name": of.instrument_name,
        "sample_name": of.sample_name,
        "start_time": of.start_time,
        "total_flux_ph_per_s": e.total_flux_ph_per_s,
        "attenuator_transmission": e.attenuator_transmission,
        "polarization_fraction": e.polarization_fraction,
        "sample_temperature_k": e.sample_temperature_k,
        "unit_cell": e.unit_cell,
        "space_group": e.space_group,
        "gain_setting": e.gain_setting,
        "threshold_energy_ev": e.threshold_energy_ev,
    });
    let mut all = std::mem::take(all.as_object_mut().expect("it is a map"));
    for (name, axis) in e.goniometer.axes().into_iter().filter(|(_, axis)| axis.is_given()) {
        all.insert(format!("{name}_start_deg"), axis.start_deg.into());
        all.insert(format!("{name}_increment_deg"), axis.increment_deg.into());
    }
    all.retain(|_, value| !value.is_null());
    all
}
