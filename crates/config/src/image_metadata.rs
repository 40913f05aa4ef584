//! `[image_metadata]`: what is known of each image beside its pixels.

use super::diagnostics::Diagnostics;
use super::read::Document;
use konkordia_core::image_metadata::Raster;
use konkordia_core::results::{ResultKind, metadata};

/// The checked keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageMetadataKeys {
    /// Each image has the angle of the axis that turns.
    pub angle: bool,
    /// The raster that is scanned.
    pub raster: Option<Raster>,
    /// What packets or messages say.
    pub said: Vec<Said>,
}

/// A number that packets or messages say of each image.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// What it is.
    pub kind: ResultKind,
    /// Where it is said: the name of a column of the packet format, or a JSON pointer into what the sender says.
    pub place: String,
    /// Factor to the unit of `kind`.
    pub factor: f64,
}

/// Keys that say where a number is: name, what it is, and the factor.
const SAID: [(&str, ResultKind, f64); 7] = [
    ("pulse_id", metadata::PULSE, 1.0),
    ("energy_kev", metadata::ENERGY, 1.0),
    ("energy_ev", metadata::ENERGY, 1e-3),
    ("sample_x_um", metadata::SAMPLE_X, 1.0),
    ("sample_x_mm", metadata::SAMPLE_X, 1e3),
    ("sample_y_um", metadata::SAMPLE_Y, 1.0),
    ("sample_y_mm", metadata::SAMPLE_Y, 1e3),
];

/// Reads the table. `is_stream`: images come as messages, and not as packets.
pub(super) fn read(document: &Document, d: &mut Diagnostics, is_stream: bool) -> ImageMetadataKeys {
    let t = document.table("image_metadata");
    let columns = t.integer("raster_columns");
    let raster = columns.map(|n| Raster { columns: n as u64, is_snake: t.flag("raster_is_snake").unwrap_or(false) });
    if raster.is_none() && t.flag("raster_is_snake").is_some() {
        let what = "image_metadata.raster_is_snake without raster_columns";
        d.add(t.span("raster_is_snake"), what, "the length of a row is not known", "add raster_columns = IMAGES_OF_A_ROW");
    }
    let mut said: Vec<Said> = Vec::new();
    for (key, kind, factor) in SAID {
        let Some(place) = t.text(key) else { continue };
        let problem = match (is_stream, place.starts_with('/')) {
            (true, false) => Some((
                "is no JSON pointer",
                "give the place in what the sender says of an image, for example \"/user_data/pulse\"",
            )),
            (false, true) => Some((
                "is no name of a column",
                "packets hold no JSON; give the name of one of their columns, for example \"bunch_id\"",
            )),
            _ if said.iter().any(|other| other.kind == kind) => {
                Some(("is a second place of the same number", "keep one of both keys"))
            }
            _ => None,
        };
        match problem {
            Some((why, fix)) => d.add(t.span(key), format!("image_metadata.{key}: \"{place}\" {why}"), "", fix),
            None => said.push(Said { kind, place: place.to_owned(), factor }),
        }
    }
    ImageMetadataKeys { angle: t.flag("angle").unwrap_or(false), raster, said }
}
