//! Writes angles as NXmx has them: a chain of rotations under `/entry/sample/transformations` and
//! `/entry/instrument/detector/transformations`, with one angle for each image, and also in the older place that
//! DECTRIS uses. An angle follows the number of the image, so lost images have angles too.

use hdf5::{Dataset, Group, Result};
use konkordia_core::experiment::{Axis, Experiment};

use super::bounded::ReadAll;
use super::datafile::Closed;
use super::low;
use super::nexus::{attribute_text, group, number, text, transformation};
use super::spec::FileSpec;

const SAMPLE: &str = "/entry/sample/transformations";
pub(crate) const DETECTOR: &str = "/entry/instrument/detector/transformations";
/// Angles that are calculated and written at a time.
const BLOCK: u64 = 1 << 16;

/// Directions that apply if none was given, in the McStas frame. Omega and phi turn about the direction of the rows of
/// the image, as on most beamlines and as DIALS and XDS assume; chi turns about the beam; two-theta lifts the detector.
/// A kappa axis is inclined differently on each goniometer.
fn usual_vector(name: &str) -> Option<[f64; 3]> {
    match name {
        "omega" | "phi" | "two_theta" => Some([-1.0, 0.0, 0.0]),
        "chi" => Some([0.0, 0.0, 1.0]),
        _ => None,
    }
}

fn vector_of(name: &str, axis: &Axis) -> Option<[f64; 3]> {
    let [x, y, z] = axis.vector.or_else(|| usual_vector(name))?;
    let length = (x * x + y * y + z * z).sqrt();
    (length > 0.0 && length.is_finite()).then(|| [x / length, y / length, z / length])
}

/// Axes that were given but cannot be placed, because their direction is not known.
pub(crate) fn without_vector(e: &Experiment) -> Vec<&'static str> {
    let lost = |(name, axis): &(&'static str, Axis)| axis.is_turned() && vector_of(name, axis).is_none();
    e.goniometer.axes().into_iter().filter(lost).map(|(name, _)| name).collect()
}

/// Which frames of the detector each image has, counted from the first frame of the first image.
pub(crate) enum Frames {
    /// One after the other, one each.
    Plain,
    /// First frame and number of frames.
    Listed(Vec<(u64, u64)>),
}

impl Frames {
    /// The frames of a run, from the columns of its data files; `None` while the run goes on and they are not known.
    pub(crate) fn of(spec: &FileSpec, files: &[&Closed], images: u64, is_final: bool) -> hdf5::Result<Option<Self>> {
        let has_angles = spec.metadata.experiment.goniometer.axes().iter().any(|(_, axis)| axis.is_given());
        if !has_angles || !spec.extra_columns.iter().any(|column| column.name == "first_frame") {
            return Ok(Some(Self::Plain));
        }
        if !is_final {
            return Ok(None);
        }
        let ipf = u64::from(spec.images_per_file);
        let mut listed = vec![(0, 0); images as usize];
        for file in files {
            let Some(columns) = file.columns()? else { continue };
            let column = |name: &str| columns.dataset(name).ok()?.read_all::<u64>().ok();
            let (Some(first), Some(count)) = (column("first_frame"), column("frames")) else { continue };
            let place = listed.get_mut(((file.number - 1) * ipf) as usize..).unwrap_or_default();
            place.iter_mut().zip(first.into_iter().zip(count)).take(file.stored as usize).for_each(|(place, row)| *place = row);
        }
        Ok(Some(Self::Listed(complete(listed))))
    }

    /// Frames from the beginning of the first image to the beginning, and to the end, of this image.
    fn span(&self, image: u64) -> (f64, f64) {
        match self {
            Self::Plain => (image as f64, (image + 1) as f64),
            Self::Listed(list) => {
                let (first, count) = list.get(image as usize).copied().unwrap_or_default();
                (first as f64, (first + count) as f64)
            }
        }
    }
}

/// Images of which nothing is known (at the end and never taken, or in a file that is gone) follow the previous one in
/// the usual step. All are counted from the first image.
fn complete(mut listed: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let known = |n: &usize| listed[*n].1 > 0;
    let mut two = (0..listed.len()).filter(known);
    let (step, count, begin) = match (two.next(), two.next()) {
        (Some(a), Some(b)) => {
            let step = (listed[b].0.saturating_sub(listed[a].0) / (b - a) as u64).max(1);
            (step, listed[a].1, listed[a].0.saturating_sub(a as u64 * step))
        }
        (Some(a), None) => (listed[a].1, listed[a].1, listed[a].0.saturating_sub(a as u64 * listed[a].1)),
        _ => (1, 1, 0),
    };
    let mut next = begin;
    for row in &mut listed {
        if row.1 == 0 {
            *row = (next, count);
        }
        next = row.0.saturating_add(step);
        row.0 = row.0.saturating_sub(begin);
    }
    listed
}

/// Writes the axes of the sample and its `depends_on`: "." if no angle is known, or there is no image yet.
pub(crate) fn write_sample(sample: &Group, e: &Experiment, frames: Option<&Frames>, images: u64) -> Result<()> {
    let axes = e.goniometer.axes().into_iter().filter(|(name, axis)| *name != "two_theta" && axis.is_given());
    let axes: Vec<(&str, Axis)> = axes.collect();
    let Some(frames) = frames.filter(|_| images > 0 && !axes.is_empty()) else {
        return text(sample, "depends_on", ".");
    };
    let moves = group(sample, "transformations", "NXtransformations")?;
    let old = group(sample, "goniometer", "NXcollection")?;
    let mut chain = ".".to_owned();
    for (name, axis) in axes {
        if let Some(vector) = vector_of(name, &axis) {
            let (turning, vector) = forwards(axis, vector);
            rotation(&moves, name, &turning, (vector, &chain), Some((frames, images)))?;
            chain = format!("{SAMPLE}/{name}");
            if turning == axis {
                old.link_hard(&chain, name)?;
                old.link_hard(&format!("{chain}_end"), &format!("{name}_end"))?;
            }
        }
        if !old.link_exists(name) {
            as_given(&old, name, &axis, frames, images)?;
        }
        number(&old, &format!("{name}_start"), axis.start(), "deg")?;
        number(&old, &format!("{name}_increment"), axis.increment(), "deg")?;
        let (begin, _) = frames.span(0);
        let (first_of_last, end) = frames.span(images - 1);
        let range = if images > 1 { (first_of_last - begin) / (images - 1) as f64 } else { end - begin };
        number(&old, &format!("{name}_range_average"), range * axis.increment(), "deg")?;
        number(&old, &format!("{name}_range_total"), (end - begin) * axis.increment(), "deg")?;
    }
    text(sample, "depends_on", &chain)
}

/// Reverses an axis that turns backwards: the same movement about the opposite direction. dxtbx does not open scans
/// with negative steps.
fn forwards(axis: Axis, [x, y, z]: [f64; 3]) -> (Axis, [f64; 3]) {
    if axis.increment() >= 0.0 {
        return (axis, [x, y, z]);
    }
    // 0 minus the number, to avoid a negative zero.
    let opposite = |number: Option<f64>| number.map(|number| 0.0 - number);
    let turned = Axis { start_deg: opposite(axis.start_deg), increment_deg: opposite(axis.increment_deg), ..axis };
    (turned, [0.0 - x, 0.0 - y, 0.0 - z])
}

/// Writes the angles of an axis as they were given, if the chain has other angles or none.
fn as_given(old: &Group, name: &str, axis: &Axis, frames: &Frames, images: u64) -> Result<()> {
    let angle = |frames: f64| axis.angle_deg(frames);
    let begin = angles(old, name, images, |image| angle(frames.span(image).0))?;
    attribute_text(&begin, "units", "deg")?;
    let end = angles(old, &format!("{name}_end"), images, |image| angle(frames.span(image).1))?;
    attribute_text(&end, "units", "deg")
}

/// Writes the arm of the detector, if its angle is known, and returns the end of the chain.
pub(crate) fn write_two_theta(moves: &Group, e: &Experiment, frames: Option<&Frames>, images: u64) -> Result<String> {
    let axis = e.goniometer.two_theta;
    let Some(vector) = vector_of("two_theta", &axis).filter(|_| axis.is_given()) else { return Ok(".".into()) };
    let per_image = frames.map(|frames| (frames, images)).filter(|(_, images)| axis.increment() != 0.0 && *images > 0);
    rotation(moves, "two_theta", &axis, (vector, "."), per_image)?;
    Ok(format!("{DETECTOR}/two_theta"))
}

/// Writes the tilts of the detector about the columns and rows of its image, which run in the directions
/// `[slow, fast]`, and returns the end of the chain.
pub(crate) fn write_tilts(moves: &Group, e: &Experiment, [slow, fast]: [[f64; 3]; 2], mut chain: String) -> Result<String> {
    let tilts = [("tilt_slow", e.tilt_slow_deg, slow), ("tilt_fast", e.tilt_fast_deg, fast)];
    for (name, angle, vector) in tilts {
        if let Some(angle) = angle {
            let axis = Axis { start_deg: Some(angle), ..Axis::default() };
            rotation(moves, name, &axis, (vector, &chain), None)?;
            chain = format!("{DETECTOR}/{name}");
        }
    }
    Ok(chain)
}

/// Writes one rotation: an angle for each of so many images, with its end, or one angle for all.
fn rotation(
    moves: &Group,
    name: &str,
    axis: &Axis,
    (vector, depends_on): ([f64; 3], &str),
    per_image: Option<(&Frames, u64)>,
) -> Result<()> {
    let Some((frames, images)) = per_image else {
        let field = moves.new_dataset::<f64>().shape(1).create(name)?;
        field.write_raw(&[axis.start()])?;
        return transformation(&field, "rotation", "deg", vector, [0.0; 3], depends_on);
    };
    let angle = |frames: f64| axis.angle_deg(frames);
    let begin = angles(moves, name, images, |image| angle(frames.span(image).0))?;
    transformation(&begin, "rotation", "deg", vector, [0.0; 3], depends_on)?;
    let end = angles(moves, &format!("{name}_end"), images, |image| angle(frames.span(image).1))?;
    attribute_text(&end, "units", "deg")?;
    let (begin, end) = frames.span(0);
    number(moves, &format!("{name}_increment_set"), (end - begin) * axis.increment(), "deg")
}

/// Writes one angle for each image; its memory does not grow with the run.
fn angles(parent: &Group, name: &str, images: u64, angle: impl Fn(u64) -> f64) -> Result<Dataset> {
    let field = parent.new_dataset::<f64>().shape(images as usize).create(name)?;
    for from in (0..images).step_by(BLOCK as usize) {
        let to = (from + BLOCK).min(images);
        let block: Vec<f64> = (from..to).map(&angle).collect();
        low::write_f64s(&field, from, &block)?;
    }
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_which_nothing_is_known_follow_the_usual_step() {
        assert_eq!(complete(vec![(3, 2), (5, 2), (0, 0), (9, 2), (0, 0)]), [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2)]);
        assert_eq!(complete(vec![(0, 0), (0, 0), (34, 5), (44, 5)]), [(0, 5), (10, 5), (20, 5), (30, 5)]);
        assert_eq!(complete(vec![(0, 0); 2]), [(0, 1), (1, 1)]);
    }

    #[test]
    fn an_axis_that_turns_backwards_is_the_opposite_axis_that_turns_forwards() {
        let axis = Axis::turning(10.0, -0.5);
        let (turned, vector) = forwards(axis, [-1.0, 0.0, 0.0]);
        assert_eq!((turned.start(), turned.increment(), vector), (-10.0, 0.5, [1.0, 0.0, 0.0]));
        assert_eq!(forwards(Axis::turning(10.0, 0.5), [0.0, 1.0, 0.0]).0, Axis::turning(10.0, 0.5));
    }

    #[test]
    fn only_axes_that_lie_somewhere_are_in_the_chain() {
        let mut e = Experiment::default();
        e.goniometer.kappa = Axis::turning(30.0, 0.0);
        assert_eq!(without_vector(&e), ["kappa"]);
        e.goniometer.kappa.vector = Some([0.0, 3.0, 4.0]);
        assert_eq!(vector_of("kappa", &e.goniometer.kappa), Some([0.0, 0.6, 0.8]));
        assert!(without_vector(&e).is_empty());
    }
}
