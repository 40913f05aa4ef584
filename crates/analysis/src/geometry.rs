//! Where each pixel lies in the laboratory, and what follows from it: scattering angle, q, d, azimuth, solid angle and
//! polarisation.
//!
//! The laboratory has the McStas frame, as NeXus has: z along the beam, y up, x to the left when looking along the
//! beam; the sample is at 0. Positions on the image are in pixels from the outer corner of the first pixel: x along the
//! fast axis, y along the slow axis, so the centre of the first pixel is (0.5, 0.5). Angles and corrections are those
//! of pyFAI (J. Kieffer and D. Karkoulis, J. Phys. Conf. Ser. 425 (2013) 202012).

use std::f64::consts::PI;

use konkordia_core::experiment::{Axis, KEV_ANGSTROM, Metadata, turned};

/// A vector in the laboratory.
pub type Vector = [f64; 3];

/// Directions of the rows and columns of an upright image: columns run to the right when looking along the beam, rows
/// run down.
const UPRIGHT: [Vector; 2] = [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]];

/// A flat detector and the beam.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// Length of the slow axis, pixels.
    pub rows: usize,
    /// Length of the fast axis, pixels.
    pub columns: usize,
    origin_mm: Vector,
    fast_mm: Vector,
    slow_mm: Vector,
    wavelength_angstrom: Option<f64>,
    /// Unit vector across the detector, away from the sample.
    normal: Vector,
    /// From the sample to the plane of the detector.
    normal_distance_mm: f64,
}

/// What a scattering angle is expressed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Radial {
    /// q = 4 pi sin(theta) / wavelength, 1/angstrom.
    #[default]
    Q,
    /// The scattering angle 2-theta, degrees.
    TwoTheta,
    /// d = 2 pi / q, angstrom; infinite in the direct beam.
    D,
}

impl Radial {
    /// Unit of its values.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Q => "1/angstrom",
            Self::TwoTheta => "deg",
            Self::D => "angstrom",
        }
    }
}

impl Geometry {
    /// A detector whose first pixel has its outer corner at `origin_mm`, with the steps from one column to the next
    /// (`fast_mm`) and from one row to the next (`slow_mm`), all in millimetres in the laboratory. Without a
    /// wavelength, only angles can be asked for.
    ///
    /// # Errors
    /// If a number is not finite, the two steps are parallel or zero, the sample lies in the plane of the detector, or
    /// the wavelength is not positive.
    pub fn new(
        [rows, columns]: [usize; 2],
        origin_mm: Vector,
        fast_mm: Vector,
        slow_mm: Vector,
        wavelength_angstrom: Option<f64>,
    ) -> Result<Self, String> {
        let all = [origin_mm, fast_mm, slow_mm];
        if !all.as_flattened().iter().all(|number| number.is_finite()) {
            return Err(format!("geometry of the detector: a position is not a number ({all:?} mm)"));
        }
        if let Some(bad) = wavelength_angstrom.filter(|length| !(*length > 0.0 && length.is_finite())) {
            return Err(format!("geometry of the detector: the wavelength is {bad} angstrom; it must be above 0"));
        }
        let across = cross(fast_mm, slow_mm);
        let area = length(across);
        if !area.is_normal() || area <= 1e-9 * length(fast_mm) * length(slow_mm) {
            return Err(format!(
                "geometry of the detector: the fast step {fast_mm:?} mm and the slow step {slow_mm:?} mm do not span a plane"
            ));
        }
        let normal = across.map(|component| component / area);
        let distance = dot(normal, origin_mm);
        if distance == 0.0 || !distance.is_finite() {
            return Err("geometry of the detector: the sample lies in its plane; check the distance and the tilts".into());
        }
        let normal = normal.map(|component| component * distance.signum());
        let normal_distance_mm = distance.abs();
        Ok(Self { rows, columns, origin_mm, fast_mm, slow_mm, wavelength_angstrom, normal, normal_distance_mm })
    }

    /// The geometry that Konkordia knows of a run and writes into files: beam centre, distance, size of pixels, energy,
    /// the two tilts about the beam centre (first about the fast direction, then about the slow one), and the arm at
    /// the angle at which the run begins.
    ///
    /// # Errors
    /// If the distance, the beam centre or the size of pixels is not known, or as [`Self::new`].
    pub fn of_run(shape: [usize; 2], facts: &Metadata) -> Result<Self, String> {
        Self::of_run_turned(shape, facts, UPRIGHT)
    }

    /// As [`Self::of_run`], for an image whose columns and rows run in other directions (unit vectors).
    ///
    /// # Errors
    /// As [`Self::of_run`].
    pub fn of_run_turned(shape: [usize; 2], facts: &Metadata, [fast, slow]: [Vector; 2]) -> Result<Self, String> {
        let missing = |what: &str, key: &str| format!("geometry of the detector: {what} is not known; give {key}");
        let distance_mm = 1000.0 * facts.detector_distance_m.ok_or_else(|| missing("its distance", "detector_distance_mm"))?;
        let center = facts.beam_center_x_px.zip(facts.beam_center_y_px);
        let (x_px, y_px) = center.ok_or_else(|| missing("the beam centre", "beam_center_x_px and beam_center_y_px"))?;
        let [width, height] = facts.pixel_size_m.ok_or_else(|| missing("the size of its pixels", "pixel_size_um"))?;
        let wavelength = facts.energy_kev.map(|energy| KEV_ANGSTROM / energy);
        let e = &facts.experiment;
        let tilted = |vector: Vector| {
            let vector = turned(vector, fast, e.tilt_fast_deg.unwrap_or(0.0).to_radians());
            turned(vector, slow, e.tilt_slow_deg.unwrap_or(0.0).to_radians())
        };
        let swung = |vector: Vector| match arm(&e.goniometer.two_theta) {
            Some((axis, angle_deg)) => turned(vector, axis, angle_deg.to_radians()),
            None => vector,
        };
        let fast_mm = tilted(fast.map(|component| component * width * 1000.0));
        let slow_mm = tilted(slow.map(|component| component * height * 1000.0));
        let corner: Vector = std::array::from_fn(|axis| -x_px * fast_mm[axis] - y_px * slow_mm[axis]);
        let origin_mm = [corner[0], corner[1], corner[2] + distance_mm];
        Self::new(shape, swung(origin_mm), swung(fast_mm), swung(slow_mm), wavelength)
    }

    /// The facts of a run of which [`Self::of_run`] makes this geometry.
    ///
    /// # Errors
    /// There are none: the beam does not meet the detector, or its rows are turned in its plane.
    pub fn facts(&self) -> Result<Metadata, String> {
        let center = self.beam_center_px().ok_or("the beam does not meet the detector")?;
        let (fast, slow) = (self.fast_mm, self.slow_mm);
        // The two turns of `of_run_turned`, undone: that about the slow direction leaves y.
        let about_slow = (-fast[2]).atan2(-fast[0]);
        let (sin, cos) = about_slow.sin_cos();
        let about_fast = (slow[2] * cos - slow[0] * sin).atan2(-slow[1]);
        let mut facts = Metadata {
            energy_kev: self.wavelength_angstrom.map(|length| KEV_ANGSTROM / length),
            detector_distance_m: Some(self.position_mm(center[0], center[1])[2] / 1000.0),
            beam_center_x_px: Some(center[0]),
            beam_center_y_px: Some(center[1]),
            pixel_size_m: Some([length(fast) / 1000.0, length(slow) / 1000.0]),
            ..Metadata::default()
        };
        // Rounding makes no tilt.
        let tilt = |radians: f64| Some(radians.to_degrees()).filter(|deg| deg.abs() > 1e-9);
        (facts.experiment.tilt_fast_deg, facts.experiment.tilt_slow_deg) = (tilt(about_fast), tilt(about_slow));
        let again = Self::of_run([self.rows, self.columns], &facts)?;
        let is_near = |a: Vector, b: Vector, limit: f64| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= limit);
        let corner = [self.columns as f64, self.rows as f64];
        let same =
            |[x, y]: [f64; 2]| is_near(self.position_mm(x, y), again.position_mm(x, y), 1e-6 * (1.0 + self.normal_distance_mm));
        if same([0.0, 0.0]) && same([corner[0], 0.0]) && same([0.0, corner[1]]) {
            return Ok(facts);
        }
        Err("its rows or columns are turned in the plane of the detector".into())
    }

    /// Outer corner of the first pixel, millimetres.
    pub fn origin_mm(&self) -> Vector {
        self.origin_mm
    }

    /// Step from one column to the next, millimetres.
    pub fn fast_mm(&self) -> Vector {
        self.fast_mm
    }

    /// Step from one row to the next, millimetres.
    pub fn slow_mm(&self) -> Vector {
        self.slow_mm
    }

    /// Wavelength, angstrom.
    pub fn wavelength_angstrom(&self) -> Option<f64> {
        self.wavelength_angstrom
    }

    /// Place of a point of the image in the laboratory, millimetres.
    pub fn position_mm(&self, x_px: f64, y_px: f64) -> Vector {
        std::array::from_fn(|axis| self.origin_mm[axis] + x_px * self.fast_mm[axis] + y_px * self.slow_mm[axis])
    }

    /// Where the direct beam meets the plane of the detector, x and y in pixels; it may lie outside of the image.
    /// `None` if the beam does not meet it.
    pub fn beam_center_px(&self) -> Option<[f64; 2]> {
        self.on_plane_px([0.0, 0.0, 1.0])
    }

    /// The point of the detector plane next to the sample, x and y in pixels.
    pub fn normal_point_px(&self) -> Option<[f64; 2]> {
        self.on_plane_px(self.normal)
    }

    /// Where light of this scattering angle and azimuth (as [`Self::azimuth_rad`]) meets the plane of the detector, x
    /// and y in pixels; `None` if it does not.
    pub fn on_detector_px(&self, two_theta_rad: f64, azimuth_rad: f64) -> Option<[f64; 2]> {
        let ((sin, cos), (up, right)) = (two_theta_rad.sin_cos(), azimuth_rad.sin_cos());
        self.on_plane_px([-sin * right, sin * up, cos])
    }

    /// Where a ray from the sample meets the plane of the detector.
    fn on_plane_px(&self, direction: Vector) -> Option<[f64; 2]> {
        let towards = dot(self.normal, direction);
        let along_mm = self.normal_distance_mm / towards;
        if !(along_mm > 0.0 && along_mm.is_finite()) {
            return None;
        }
        let from_origin: Vector = std::array::from_fn(|axis| along_mm * direction[axis] - self.origin_mm[axis]);
        // The steps need not be at right angles to each other.
        let (fast, slow) = (self.fast_mm, self.slow_mm);
        let (ff, fs, ss) = (dot(fast, fast), dot(fast, slow), dot(slow, slow));
        let (f, s) = (dot(fast, from_origin), dot(slow, from_origin));
        let determinant = ff * ss - fs * fs;
        Some([(f * ss - s * fs) / determinant, (s * ff - f * fs) / determinant])
    }

    /// Distance from the sample to the nearest point of the detector plane, millimetres.
    pub fn normal_distance_mm(&self) -> f64 {
        self.normal_distance_mm
    }

    /// Edges of a pixel, fast and slow, millimetres.
    pub fn pixel_size_mm(&self) -> [f64; 2] {
        [length(self.fast_mm), length(self.slow_mm)]
    }

    /// Radius on the plane of the detector from the beam centre, in pixels; `None` if the beam does not meet the plane.
    pub fn radius_px(&self, x_px: f64, y_px: f64) -> Option<f64> {
        self.beam_center_px().map(|[x, y]| (x_px - x).hypot(y_px - y))
    }

    /// Scattering angle, radians, 0 to pi.
    pub fn two_theta_rad(&self, x_px: f64, y_px: f64) -> f64 {
        two_theta(self.position_mm(x_px, y_px))
    }

    /// The scattering vector of a point of the image in the laboratory: direction of the scattered beam minus that of
    /// the beam, divided by the wavelength; 1/angstrom. Its length is q / (2 pi), so reciprocal cells have a* = 1 / a.
    /// `None` without a wavelength.
    pub fn scattering_vector(&self, x_px: f64, y_px: f64) -> Option<Vector> {
        let wavelength = self.wavelength_angstrom?;
        let position = self.position_mm(x_px, y_px);
        let distance = length(position);
        Some(std::array::from_fn(|axis| (position[axis] / distance - f64::from(u8::from(axis == 2))) / wavelength))
    }

    /// q, 1/angstrom; `None` without a wavelength.
    pub fn q_per_angstrom(&self, x_px: f64, y_px: f64) -> Option<f64> {
        Some(4.0 * PI / self.wavelength_angstrom? * (0.5 * self.two_theta_rad(x_px, y_px)).sin())
    }

    /// d, angstrom; infinite in the direct beam; `None` without a wavelength.
    pub fn d_angstrom(&self, x_px: f64, y_px: f64) -> Option<f64> {
        self.q_per_angstrom(x_px, y_px).map(|q| 2.0 * PI / q)
    }

    /// The scattering angle in one of its forms; NaN without a wavelength if it needs one.
    pub fn radial(&self, radial: Radial, x_px: f64, y_px: f64) -> f64 {
        match radial {
            Radial::TwoTheta => self.two_theta_rad(x_px, y_px).to_degrees(),
            Radial::Q => self.q_per_angstrom(x_px, y_px).unwrap_or(f64::NAN),
            Radial::D => self.d_angstrom(x_px, y_px).unwrap_or(f64::NAN),
        }
    }

    /// Angle about the beam, radians, -pi to pi: 0 to the right when looking along the beam, a quarter turn upwards
    /// (chi of pyFAI).
    pub fn azimuth_rad(&self, x_px: f64, y_px: f64) -> f64 {
        let [x, y, _] = self.position_mm(x_px, y_px);
        // 0 minus the number: no negative zero, which would turn the sign of pi.
        y.atan2(0.0 - x)
    }

    /// Solid angle of a pixel divided by that of a pixel at the nearest point of the detector: the cube of the cosine
    /// of the angle of incidence.
    pub fn solid_angle(&self, x_px: f64, y_px: f64) -> f64 {
        (self.normal_distance_mm / length(self.position_mm(x_px, y_px))).powi(3)
    }

    /// Share of the intensity that polarisation leaves: (1 + cos^2 2-theta - factor cos(2 azimuth) sin^2 2-theta) / 2.
    /// `factor` is 1 for a beam that is polarised horizontally, 0 if it is not polarised, -1 vertically.
    pub fn polarization(&self, x_px: f64, y_px: f64, factor: f64) -> f64 {
        let [x, y, z] = self.position_mm(x_px, y_px);
        let square = x * x + y * y + z * z;
        if square == 0.0 {
            return 1.0;
        }
        // cos(2 azimuth) sin^2 2-theta = (x^2 - y^2) / r^2
        0.5 * (1.0 + z * z / square - factor * (x * x - y * y) / square)
    }

    /// A quantity of the centres of all pixels, row by row: `of(x_px, y_px)`.
    pub fn map(&self, of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let pixels = (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (column, row)));
        pixels.map(|(column, row)| of(column as f64 + 0.5, row as f64 + 0.5)).collect()
    }
}

/// Scattering angle towards a place in the laboratory, radians.
fn two_theta([x, y, z]: Vector) -> f64 {
    (x * x + y * y).sqrt().atan2(z)
}

/// Axis and angle of the arm, as they stand in the files: it lifts the detector if no direction was given.
fn arm(axis: &Axis) -> Option<(Vector, f64)> {
    let vector = axis.vector.unwrap_or([-1.0, 0.0, 0.0]);
    let size = length(vector);
    (axis.is_given() && size > 0.0 && size.is_finite()).then(|| (vector.map(|component| component / size), axis.start()))
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn length(a: Vector) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Metadata {
        Metadata {
            energy_kev: Some(12.4),
            detector_distance_m: Some(0.2),
            beam_center_x_px: Some(30.0),
            beam_center_y_px: Some(-12.5),
            pixel_size_m: Some([75e-6, 172e-6]),
            ..Metadata::default()
        }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()), "{a} instead of {b}");
    }

    #[test]
    fn facts_are_found_again() {
        let mut given = facts();
        for (fast, slow) in [(0.0, 0.0), (12.0, 0.0), (0.0, -30.0), (-7.5, 21.0)] {
            (given.experiment.tilt_fast_deg, given.experiment.tilt_slow_deg) = (Some(fast), Some(slow));
            let found = Geometry::of_run([20, 50], &given).unwrap().facts().unwrap();
            near(found.energy_kev.unwrap(), 12.4);
            near(found.detector_distance_m.unwrap(), 0.2);
            near(found.beam_center_x_px.unwrap(), 30.0);
            near(found.beam_center_y_px.unwrap(), -12.5);
            near(found.pixel_size_m.unwrap()[1], 172e-6);
            near(found.experiment.tilt_fast_deg.unwrap_or(0.0), fast);
            near(found.experiment.tilt_slow_deg.unwrap_or(0.0), slow);
        }
        let turned = Geometry::new([20, 50], [1.0, 1.0, 200.0], [0.0, 0.075, 0.0], [-0.075, 0.0, 0.0], None).unwrap();
        assert!(turned.facts().unwrap_err().contains("turned in the plane"));
        // Seen from behind, which is a half turn about its columns.
        let behind = Geometry::new([20, 50], [-1.0, 1.0, 200.0], [0.075, 0.0, 0.0], [0.0, -0.075, 0.0], None).unwrap();
        near(behind.facts().unwrap().experiment.tilt_slow_deg.unwrap().abs(), 180.0);
    }

    #[test]
    fn a_flat_detector_across_the_beam() {
        let g = Geometry::of_run([20, 50], &facts()).unwrap();
        let [x, y] = g.beam_center_px().unwrap();
        near(x, 30.0);
        near(y, -12.5);
        near(g.normal_distance_mm(), 200.0);
        // 10 pixels to the right of the beam, and 4 rows below it.
        let place = g.position_mm(40.0, -8.5);
        [-0.75, -0.688, 200.0].iter().zip(place).for_each(|(expected, got)| near(got, *expected));
        near(g.two_theta_rad(40.0, -8.5), (0.75f64.hypot(0.688) / 200.0).atan());
        near(g.azimuth_rad(40.0, -8.5), (-0.688f64).atan2(0.75));
        near(g.radius_px(40.0, -8.5).unwrap(), 10f64.hypot(4.0));
        let theta = 0.5 * g.two_theta_rad(40.0, -8.5);
        near(g.d_angstrom(40.0, -8.5).unwrap(), KEV_ANGSTROM / 12.4 / (2.0 * theta.sin()));
        near(g.solid_angle(40.0, -8.5), (2.0 * theta).cos().powi(3));
        assert_eq!(g.azimuth_rad(30.0, -12.5), 0.0);
        assert_eq!(g.d_angstrom(30.0, -12.5), Some(f64::INFINITY));
        assert_eq!(g.map(|x, _| x).len(), 1000);
    }

    #[test]
    fn polarisation_depends_on_the_azimuth() {
        let g = Geometry::of_run([4000, 4000], &facts()).unwrap();
        for (x, y) in [(30.0, 1000.0), (2000.0, -12.5), (700.25, 800.5)] {
            let (two_theta, azimuth) = (g.two_theta_rad(x, y), g.azimuth_rad(x, y));
            for factor in [-1.0, 0.0, 0.99] {
                let (cos2, sin2) = (two_theta.cos().powi(2), two_theta.sin().powi(2));
                near(g.polarization(x, y, factor), 0.5 * (1.0 + cos2 - factor * (2.0 * azimuth).cos() * sin2));
            }
        }
        near(g.polarization(2000.0, -12.5, 1.0), g.two_theta_rad(2000.0, -12.5).cos().powi(2));
        near(g.polarization(30.0, 1000.0, 1.0), 1.0);
    }

    #[test]
    fn tilts_turn_about_the_beam_centre_and_the_arm_about_the_sample() {
        let mut m = facts();
        m.experiment.tilt_fast_deg = Some(10.0);
        m.experiment.tilt_slow_deg = Some(-5.0);
        let g = Geometry::of_run([20, 50], &m).unwrap();
        let [x, y] = g.beam_center_px().unwrap();
        near(x, 30.0);
        near(y, -12.5);
        near(g.normal_distance_mm(), 200.0 * 10f64.to_radians().cos() * 5f64.to_radians().cos());
        let rings = [(1000.0, 0.0), (-1000.0, 0.0)].map(|(dx, dy)| g.two_theta_rad(30.0 + dx, -12.5 + dy));
        assert!((rings[0] - rings[1]).abs() > 0.01, "rings on a tilted detector are not circles: {rings:?}");
        // The arm lifts the detector by 30 degrees: what was in the beam is now 30 degrees above it.
        m.experiment.goniometer.two_theta = Axis::turning(30.0, 0.0);
        let g = Geometry::of_run([20, 50], &m).unwrap();
        near(g.two_theta_rad(30.0, -12.5).to_degrees(), 30.0);
        near(g.azimuth_rad(30.0, -12.5).to_degrees(), 90.0);
        m.experiment.goniometer.two_theta.start_deg = Some(180.0);
        let g = Geometry::of_run([20, 50], &m).unwrap();
        assert_eq!(g.beam_center_px(), None);
        assert_eq!(g.radius_px(0.0, 0.0), None);
    }

    #[test]
    fn what_is_not_known_is_named() {
        let no_center = Metadata { beam_center_y_px: None, ..facts() };
        let error = Geometry::of_run([2, 2], &no_center).unwrap_err();
        assert!(error.contains("beam_center_y_px"), "{error}");
        assert!(Geometry::of_run([2, 2], &Metadata::default()).unwrap_err().contains("detector_distance_mm"));
        let no_energy = Geometry::of_run([2, 2], &Metadata { energy_kev: None, ..facts() }).unwrap();
        assert_eq!(no_energy.q_per_angstrom(1.0, 1.0), None);
        assert!(no_energy.radial(Radial::D, 1.0, 1.0).is_nan() && no_energy.radial(Radial::TwoTheta, 1.0, 1.0) > 0.0);
    }

    #[test]
    fn geometries_that_cannot_be_are_refused() {
        let new = |origin, fast, slow, wavelength| Geometry::new([2, 2], origin, fast, slow, wavelength);
        let (fast, slow) = ([-0.1, 0.0, 0.0], [0.0, -0.1, 0.0]);
        assert!(new([0.0, 0.0, 100.0], fast, slow, Some(1.0)).is_ok());
        assert!(new([0.0, 0.0, 100.0], fast, fast, Some(1.0)).is_err());
        assert!(new([0.0, 0.0, 100.0], fast, [0.0; 3], None).is_err());
        assert!(new([0.0, 0.0, f64::NAN], fast, slow, None).is_err());
        assert!(new([0.0, 0.0, 0.0], fast, slow, None).is_err());
        for wavelength in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(new([0.0, 0.0, 100.0], fast, slow, Some(wavelength)).is_err());
        }
    }
}
