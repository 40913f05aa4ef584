//! Goniometer angles of the images of a run in which not every frame becomes an image.

use konkordia_core::experiment::{Axis, Goniometer};
use konkordia_core::selection::{Keep, Marked, Selection};

/// Number of frames from the start of one image to the start of the next; `None` if it is not constant.
pub fn step(selection: &Selection) -> Option<u64> {
    let sum = u64::from(selection.sum_frames);
    match (selection.keep, selection.darks) {
        (Keep::All, Marked::None) => Some(sum),
        (Keep::EveryNth(n), Marked::None) => Some(n.saturating_mul(sum)),
        _ => None,
    }
}

/// The same movement with the increments of `frames` frames. With `None` the number of frames differs from image to
/// image, and rotating axes are left empty.
pub fn in_steps_of(mut goniometer: Goniometer, frames: Option<u64>) -> Goniometer {
    for name in Goniometer::NAMES {
        let Some(axis) = goniometer.axis_mut(name).filter(|axis| axis.increment() != 0.0) else { continue };
        *axis = match frames {
            Some(frames) => Axis { increment_deg: axis.increment_deg.map(|deg| deg * frames as f64), ..*axis },
            None => Axis::default(),
        };
    }
    goniometer
}

/// The same movement, started `steps` increments later.
pub fn later(mut goniometer: Goniometer, steps: i64) -> Goniometer {
    for name in Goniometer::NAMES {
        if let Some(axis) = goniometer.axis_mut(name).filter(|axis| axis.increment() != 0.0) {
            axis.start_deg = Some(axis.start() + axis.increment() * steps as f64);
        }
    }
    goniometer
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::selection::Flag;

    #[test]
    fn an_image_is_as_far_from_the_next_as_the_selection_says() {
        let every = |keep, sum_frames| Selection { keep, sum_frames, warmup_frames: 7, ..Selection::default() };
        assert_eq!(step(&every(Keep::All, 1)), Some(1));
        assert_eq!(step(&every(Keep::All, 5)), Some(5));
        assert_eq!(step(&every(Keep::EveryNth(10), 1)), Some(10));
        assert_eq!(step(&every(Keep::EveryNth(10), 5)), Some(50));
        assert_eq!(step(&every(Keep::Flag(Flag { mask: 1, set: true }), 1)), None);
        assert_eq!(step(&Selection { darks: Marked::Every(10), ..Selection::default() }), None);
    }

    #[test]
    fn axes_that_stand_still_stay_and_those_that_turn_follow() {
        let still = Axis { start_deg: Some(30.0), ..Axis::default() };
        let turning = Goniometer { omega: Axis::turning(10.0, 0.5), kappa: still, ..Goniometer::default() };
        let steps = in_steps_of(turning, Some(4));
        assert_eq!((steps.omega, steps.kappa), (Axis::turning(10.0, 2.0), still));
        let unknown = in_steps_of(turning, None);
        assert_eq!((unknown.omega, unknown.kappa), (Axis::default(), still));
        let part = later(steps, 3);
        assert_eq!((part.omega, part.kappa), (Axis::turning(16.0, 2.0), still));
        assert_eq!(later(steps, -1).omega, Axis::turning(8.0, 2.0));
    }
}
