//! The fields of NXmx that a mapping can fill, by their names in the file, and what happens to their values.

use super::units::Dimension;
use konkordia_core::experiment::{KEV_ANGSTROM, Metadata};
use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::{ResultKind, metadata};

/// What a field takes.
#[derive(Clone, Copy)]
pub enum Takes {
    /// One number for all images.
    Number(Dimension, fn(&mut Metadata, f64)),
    /// One text for all images.
    Text(fn(&mut Metadata, String)),
    /// One number for all images, or one for each.
    Both(Dimension, fn(&mut Metadata, f64), &'static ResultKind),
    /// One number for each image.
    Image(Dimension, &'static ResultKind),
    /// An angle for each image; in equal steps it is an axis that turns.
    Axis(&'static str),
    /// When the exposure of each image began.
    StartTime,
    /// How long each image was exposed; if all are alike, also the exposure of the series.
    Exposure,
    /// One number for each image, in a column of its own.
    Own(Dimension),
}

type List = &'static [(&'static str, Takes)];

/// All fields; `columns/NAME` is one more for each name.
pub const FIELDS: List = &[
    ("start_time", Takes::Text(|m, text| m.start_time = Some(text))),
    ("instrument/name", Takes::Text(|m, text| m.instrument_name = Some(text))),
    ("source/name", Takes::Text(|m, text| m.source_name = Some(text))),
    ("sample/name", Takes::Text(|m, text| m.sample_name = Some(text))),
    ("sample/space_group", Takes::Text(|m, text| m.experiment.space_group = Some(text))),
    ("sample/temperature", Takes::Number(Dimension::Temperature, |m, v| m.experiment.sample_temperature_k = Some(v))),
    ("sample/x", Takes::Image(Dimension::Micrometres, &metadata::SAMPLE_X)),
    ("sample/y", Takes::Image(Dimension::Micrometres, &metadata::SAMPLE_Y)),
    ("sample/transformations/omega", Takes::Axis("omega")),
    ("sample/transformations/kappa", Takes::Axis("kappa")),
    ("sample/transformations/chi", Takes::Axis("chi")),
    ("sample/transformations/phi", Takes::Axis("phi")),
    ("instrument/beam/incident_energy", Takes::Both(Dimension::Energy, |m, v| m.energy_kev = Some(v), &metadata::ENERGY)),
    ("instrument/beam/incident_wavelength", Takes::Number(Dimension::Wavelength, |m, v| m.energy_kev = Some(KEV_ANGSTROM / v))),
    ("instrument/beam/total_flux", Takes::Number(Dimension::Rate, |m, v| m.experiment.total_flux_ph_per_s = Some(v))),
    (
        "instrument/attenuator/attenuator_transmission",
        Takes::Number(Dimension::Number, |m, v| m.experiment.attenuator_transmission = Some(v)),
    ),
    ("instrument/detector/description", Takes::Text(|m, text| m.detector_description = Some(text))),
    ("instrument/detector/serial_number", Takes::Text(|m, text| m.detector_serial = Some(text))),
    ("instrument/detector/sensor_material", Takes::Text(|m, text| m.sensor_material = Some(text))),
    ("instrument/detector/gain_setting", Takes::Text(|m, text| m.experiment.gain_setting = Some(text))),
    ("instrument/detector/distance", Takes::Number(Dimension::Length, |m, v| m.detector_distance_m = Some(v))),
    ("instrument/detector/beam_center_x", Takes::Number(Dimension::Pixels, |m, v| m.beam_center_x_px = Some(v))),
    ("instrument/detector/beam_center_y", Takes::Number(Dimension::Pixels, |m, v| m.beam_center_y_px = Some(v))),
    (
        "instrument/detector/x_pixel_size",
        Takes::Number(Dimension::Length, |m, v| m.pixel_size_m = Some([v, m.pixel_size_m.map_or(v, |[_, y]| y)])),
    ),
    (
        "instrument/detector/y_pixel_size",
        Takes::Number(Dimension::Length, |m, v| m.pixel_size_m = Some([m.pixel_size_m.map_or(v, |[x, _]| x), v])),
    ),
    ("instrument/detector/sensor_thickness", Takes::Number(Dimension::Length, |m, v| m.sensor_thickness_m = Some(v))),
    ("instrument/detector/frame_time", Takes::Number(Dimension::Time, |m, v| m.frame_time_s = Some(v))),
    ("instrument/detector/count_time", Takes::Exposure),
    ("instrument/detector/start_time", Takes::StartTime),
    (
        "instrument/detector/detector_readout_time",
        Takes::Number(Dimension::Time, |m, v| m.experiment.detector_readout_time_s = Some(v)),
    ),
    (
        "instrument/detector/threshold_energy",
        Takes::Number(Dimension::Electronvolts, |m, v| m.experiment.threshold_energy_ev = Some(v)),
    ),
    (
        "instrument/detector/saturation_value",
        Takes::Number(Dimension::Number, |m, v| m.saturation_value = Some(v.max(0.0) as u64)),
    ),
    ("instrument/detector/underload_value", Takes::Number(Dimension::Number, |m, v| m.underload_value = Some(v as i64))),
    ("pulse_id", Takes::Image(Dimension::Number, &metadata::PULSE)),
];

/// A field that a mapping names.
#[derive(Clone)]
pub struct Field {
    /// Its name, without `/entry/` in front.
    pub name: String,
    /// What it takes.
    pub takes: Takes,
}

impl Field {
    /// The field of this name; `/entry/` in front may be left out.
    ///
    /// # Errors
    /// There is none; in words, with the one that is spelled most like it.
    pub fn find(name: &str) -> Result<Self, String> {
        let plain = name.trim_start_matches('/');
        let plain = plain.strip_prefix("entry/").unwrap_or(plain);
        if let Some(own) = plain.strip_prefix("columns/") {
            let is_name = !own.is_empty() && own.len() <= 64 && own.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let takes = Takes::Own(Dimension::Number);
            let wrong = || format!("'{own}' cannot be the name of a column: letters, digits and underscores");
            return is_name.then(|| Self { name: plain.to_owned(), takes }).ok_or_else(wrong);
        }
        if let Some((known, takes)) = FIELDS.iter().find(|(known, _)| *known == plain) {
            return Ok(Self { name: (*known).to_owned(), takes: *takes });
        }
        let last = plain.rsplit('/').next().unwrap_or(plain);
        let like = FIELDS.iter().map(|(known, _)| *known).find(|known| known.rsplit('/').next() == Some(last));
        let hint = like.map_or_else(
            || "docs/import.md lists them; columns/NAME takes any number".to_owned(),
            |like| format!("did you mean {like}?"),
        );
        Err(format!("there is no field '{name}'; {hint}"))
    }

    /// The dimension of its numbers; `None` for texts.
    pub fn dimension(&self) -> Option<Dimension> {
        Some(match self.takes {
            Takes::Number(dimension, _) | Takes::Both(dimension, ..) | Takes::Image(dimension, _) | Takes::Own(dimension) => {
                dimension
            }
            Takes::Axis(_) => Dimension::Angle,
            Takes::StartTime | Takes::Exposure => Dimension::Time,
            Takes::Text(_) => return None,
        })
    }

    /// The type of its numbers in a column.
    pub fn column_type(&self) -> ColumnType {
        match self.takes {
            Takes::Both(_, _, kind) | Takes::Image(_, kind) => kind.number,
            _ => ColumnType::F64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_names() {
        assert_eq!(Field::find("/entry/sample/name").unwrap().name, "sample/name");
        assert_eq!(Field::find("columns/ring_current").unwrap().name, "columns/ring_current");
        let why = |name| Field::find(name).err().unwrap_or_default();
        assert!(why("detector/distance").contains("did you mean instrument/detector/distance?"));
        assert!(why("no/such").contains("docs/import.md"));
        assert!(why("columns/a b").contains("cannot be the name") && why("columns/").contains("cannot be the name"));
    }

    #[test]
    fn every_number_arrives_where_it_belongs() {
        let mut all = Metadata::default();
        for (_, takes) in FIELDS {
            match takes {
                Takes::Number(_, set) | Takes::Both(_, set, _) => set(&mut all, 2.0),
                Takes::Text(set) => set(&mut all, "a".into()),
                _ => {}
            }
        }
        assert_eq!((all.detector_distance_m, all.pixel_size_m, all.saturation_value), (Some(2.0), Some([2.0; 2]), Some(2)));
        assert!((all.energy_kev.unwrap() - KEV_ANGSTROM / 2.0).abs() < 1e-12);
        assert_eq!((all.sample_name.as_deref(), all.underload_value), (Some("a"), Some(2)));
    }
}
