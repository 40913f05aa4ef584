//! What each image of a run or series gets beside its pixels, from the configuration and what is known of the
//! measurement.

use konkordia_config::image_metadata::{ImageMetadataKeys, Said};
use konkordia_core::experiment::Goniometer;
use konkordia_core::frame_header::FrameColumn;
use konkordia_core::image_metadata::{ImageMetadata, Origin};
use konkordia_core::results::metadata;

/// The values of each image. `columns` are those of the packet format; of a stream there are none, and what its sender
/// says is JSON.
///
/// # Errors
/// A place that the packets do not have, or no axis turns; in words.
pub fn of(keys: &ImageMetadataKeys, goniometer: &Goniometer, columns: Option<&[FrameColumn]>) -> Result<ImageMetadata, String> {
    let mut list = Vec::new();
    if keys.angle {
        let turning = goniometer.axes().into_iter().find(|(name, axis)| *name != "two_theta" && axis.increment() != 0.0);
        let (_, axis) =
            turning.ok_or("image_metadata.angle: no axis of the sample turns evenly from image to image; give [goniometer] omega_increment_deg, and let every n-th frame become an image")?;
        list.push((metadata::ANGLE, Origin::Axis(axis)));
    }
    if let Some(raster) = keys.raster {
        list.push((metadata::RASTER_COLUMN, Origin::RasterColumn(raster)));
        list.push((metadata::RASTER_ROW, Origin::RasterRow(raster)));
    }
    for Said { kind, place, factor } in &keys.said {
        let origin = match columns {
            None => Origin::Header(place.clone(), *factor),
            Some(columns) => {
                let column = columns.iter().find(|column| column.name == *place).ok_or_else(|| {
                    let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
                    format!("[image_metadata]: packets of this detector have no \"{place}\", only {}", names.join(", "))
                })?;
                Origin::Packet(column.value, *factor)
            }
        };
        list.push((*kind, origin));
    }
    Ok(ImageMetadata::new(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::experiment::Axis;
    use konkordia_core::image_metadata::Raster;
    use konkordia_core::sls_header::COLUMNS;

    #[test]
    fn what_is_asked_for_must_be_known() {
        let pulse = |place: &str| Said { kind: metadata::PULSE, place: place.into(), factor: 1.0 };
        let raster = Some(Raster { columns: 4, is_snake: false });
        let keys = ImageMetadataKeys { angle: true, raster, said: vec![pulse("bunch_id")] };
        let mut turned = Goniometer { phi: Axis::turning(1.0, 0.1), two_theta: Axis::turning(1.0, 2.0), ..Goniometer::default() };
        let names: Vec<&str> = of(&keys, &turned, Some(&COLUMNS)).unwrap().kinds().map(|kind| kind.name).collect();
        assert_eq!(names, ["angle_deg", "raster_column", "raster_row", "pulse_id"]);
        turned.phi = Axis::default();
        assert!(of(&keys, &turned, Some(&COLUMNS)).unwrap_err().contains("no axis of the sample turns evenly"));
        let keys = ImageMetadataKeys { said: vec![pulse("bunch")], ..ImageMetadataKeys::default() };
        let why = of(&keys, &turned, Some(&COLUMNS)).unwrap_err();
        assert!(why.contains("no \"bunch\", only timestamp, bunch_id"), "{why}");
        assert!(of(&ImageMetadataKeys::default(), &turned, None).unwrap().is_empty());
    }
}
