//! `[part]`: this host receives a part of the image.

use super::diagnostics::Diagnostics;
use super::read::Document;
use super::shared_keys;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::output::PartOfImage;

/// Reads the table for images of this geometry; `None` without it, or if it is wrong, which is reported.
pub(super) fn read(document: &Document, d: &mut Diagnostics, geometry: &ImageGeometry) -> Option<PartOfImage> {
    let t = document.table("part");
    t.span.as_ref()?;
    let required = |d: &mut Diagnostics, name| {
        let value = t.integer(name).and_then(|value| u32::try_from(value).ok());
        if value.is_none() {
            shared_keys::required(document, d, "part", name);
        }
        value
    };
    let given = ["number", "of", "image_rows", "image_columns"].map(|name| required(d, name));
    let [Some(number), Some(of), Some(image_rows), Some(image_columns)] = given else { return None };
    let [row, column] = ["row", "column"].map(|name| t.integer(name).unwrap_or(0) as u32);
    let part = PartOfImage { number, of, row, column, image_rows, image_columns };
    if let Some(problem) = part.problem(geometry.rows(), geometry.columns()) {
        let fix = "write number and of, and where the image of this configuration lies in the whole image";
        d.add(t.span.clone(), "[part] does not fit the image of this configuration", problem, fix);
        return None;
    }
    let output = document.table("output");
    if output.has("spool_directory") {
        let why = "the master of the whole image is made where the files of all parts are";
        d.add(output.span("spool_directory"), "output.spool_directory: not with [part]", why, "remove one of them");
        return None;
    }
    Some(part)
}
