//! The pedestals that follow the drift, and what decides how they move.

/// G0 pedestals that follow the drift, and what decides which words may move them. One value per pixel, in the order of
/// the raw words.
#[derive(Debug)]
pub struct Tracker<'a> {
    /// Pedestals of G0 in ADU; they take the place of `Constants::pedestal[0]`. NaN = not usable, stays so.
    pub pedestal: &'a mut [f32],
    /// Largest distance in ADU from which a word moves its pedestal, usually a few times the noise; NaN or negative =
    /// never moves. Must not be infinite where the pedestal is.
    pub gate: &'a [f32],
    /// Fraction of the distance by which the pedestal moves: 1 / frames of the window; above 0, at most 1.
    pub weight: f32,
}

impl Tracker<'_> {
    /// The pixels `first .. first + count`.
    pub fn slice(&mut self, first: usize, count: usize) -> Tracker<'_> {
        let pixels = first..first + count;
        Tracker { pedestal: &mut self.pedestal[pixels.clone()], gate: &self.gate[pixels], weight: self.weight }
    }

    pub(super) fn check(&self, pixels: usize) {
        assert!(self.pedestal.len() == pixels && self.gate.len() == pixels, "one pedestal and one gate per pixel");
        assert!(self.weight > 0.0 && self.weight <= 1.0, "the weight is 1 / frames of the window");
    }
}

/// A [`Tracker`] as pointers, for the SIMD paths.
#[cfg(target_arch = "x86_64")]
pub(super) struct Drift {
    pub pedestal: *mut f32,
    pub gate: *const f32,
    pub weight: f32,
}

#[cfg(target_arch = "x86_64")]
impl Drift {
    pub fn of(tracker: &mut Tracker<'_>) -> Self {
        Self { pedestal: tracker.pedestal.as_mut_ptr(), gate: tracker.gate.as_ptr(), weight: tracker.weight }
    }
}
