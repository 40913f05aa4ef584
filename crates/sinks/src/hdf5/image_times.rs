//! Writes `start_time` of the detector: the begin of each image in seconds, from the per-image columns.

use hdf5::{Dataset, Group, Result};

use super::bounded::ReadAll;
use super::columns::ImageStatus;
use super::datafile::Closed;
use super::low;
use super::nexus::attribute_text;
use super::spec::FileSpec;

/// The column with the clock: its name, and seconds per unit.
fn clock(spec: &FileSpec) -> (&'static str, f64) {
    if spec.series.is_some() { ("timestamp_ns", 1e-9) } else { ("timestamp", 1e-7) }
}

/// Begin of each image of one data file in units of its clock; `None` for an image, or a file, whose times are not
/// known.
fn ticks(file: &Closed, column: &str) -> Result<Option<Vec<Option<u64>>>> {
    let Some(open) = file.columns()? else { return Ok(None) };
    let read = |name: &str| open.dataset(name).ok();
    let (Some(status), Some(time)) = (
        read("status").and_then(|column| column.read_all::<u8>().ok()),
        read(column).and_then(|column| column.read_all::<u64>().ok()),
    ) else {
        return Ok(None);
    };
    let known = |(status, time): (&u8, &u64)| ImageStatus::from_u8(*status).filter(|s| s.has_pixels()).map(|_| *time);
    Ok(Some(status.iter().zip(&time).map(known).take(file.stored as usize).collect()))
}

/// Writes the times of all images, one data file at a time; writes nothing if the detector's clock stood still. The
/// zero of a run's clock is not known, so its times count from the first image. The times of a series count from a
/// date, if the sender gave one.
pub(crate) fn write(detector: &Group, spec: &FileSpec, files: &[&Closed], images: u64) -> Result<()> {
    let (column, seconds) = clock(spec);
    let ipf = u64::from(spec.images_per_file);
    let (mut field, mut first): (Option<Dataset>, Option<u64>) = (None, None);
    for file in files {
        let Some(times) = ticks(file, column)? else { continue };
        let known: Vec<u64> = times.iter().flatten().copied().collect();
        let is_moving = known.iter().any(|time| *time > 0) && (known.len() < 2 || known.iter().any(|time| *time != known[0]));
        match &field {
            None if known.is_empty() => continue,
            None if !is_moving => return Ok(()),
            _ => {}
        }
        let zero = if spec.series.is_some() { 0 } else { *first.get_or_insert(known.first().copied().unwrap_or(0)) };
        let values: Vec<f64> =
            times.iter().map(|time| time.map_or(f64::NAN, |time| (time as f64 - zero as f64) * seconds)).collect();
        let into = match &field {
            Some(field) => field,
            None => field.insert(create(detector, spec, images)?),
        };
        low::write_f64s(into, (file.number - 1) * ipf, &values)?;
    }
    Ok(())
}

fn create(detector: &Group, spec: &FileSpec, images: u64) -> Result<Dataset> {
    let field = detector.new_dataset::<f64>().fill_value(f64::NAN).shape(images as usize).create("start_time")?;
    attribute_text(&field, "units", "s")?;
    let series = spec.series.as_ref();
    if let Some(date) = series.and_then(|series| series.times_from.as_ref().or(spec.metadata.start_time.as_ref())) {
        attribute_text(&field, "start", date)?;
    }
    Ok(field)
}
