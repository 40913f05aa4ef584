//! The constants that conversion takes.

/// Calibration of a run of pixels, one value per pixel and gain stage, in the pixel order of the raw words.
#[derive(Clone, Copy, Debug)]
pub struct Constants<'a> {
    /// Pedestals of G0, G1 and G2 in ADU; NaN = not usable in this stage.
    pub pedestal: [&'a [f32]; 3],
    /// Photons per ADU in G0, G1 and G2 (negative in G1 and G2); NaN = not usable in this stage.
    pub factor: [&'a [f32]; 3],
}

impl<'a> Constants<'a> {
    /// The constants of the pixels `first .. first + count`.
    pub fn slice(&self, first: usize, count: usize) -> Self {
        let cut = |planes: [&'a [f32]; 3]| planes.map(|plane| &plane[first..first + count]);
        Self { pedestal: cut(self.pedestal), factor: cut(self.factor) }
    }

    pub(super) fn check(&self, pixels: usize) {
        for plane in self.pedestal.iter().chain(&self.factor) {
            assert_eq!(plane.len(), pixels, "one constant per pixel and stage");
        }
    }
}
