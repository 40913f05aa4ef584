//! A crystal: the reciprocal lattice of tetragonal lysozyme with invented structure factors, and which reflections an
//! image sees.

use crate::normal::normal_cdf;
use crate::rng::{Rng, mix};
use crate::scene::{Crystal, Scene, Spot};

/// Cell of tetragonal lysozyme in ångström (a = b, c), space group P43212.
const CELL_A: f64 = 79.1;
const CELL_C: f64 = 37.9;

type Vector = [f64; 3];

/// One point of the reciprocal lattice in the frame of the laboratory at rotation 0.
struct Reflection {
    hkl: [i16; 3],
    /// Reciprocal vector in 1/ångström; z along the beam, x and y as columns and rows of the detector.
    q: Vector,
    /// Integrated intensity in photons when the reflection is fully recorded.
    photons: f64,
}

/// The crystal in its random orientation.
pub(crate) struct Lattice {
    crystal: Crystal,
    reflections: Vec<Reflection>,
}

impl Lattice {
    /// All reflections to the resolution limit, in an orientation drawn from the seed.
    pub(crate) fn new(crystal: &Crystal, seed: u64) -> Self {
        let orientation = random_rotation(&mut Rng::keyed(seed, &[0x6f72_6965]));
        let s_max = 1.0 / crystal.resolution_angstrom;
        let (h_max, l_max) = ((CELL_A * s_max) as i16, (CELL_C * s_max) as i16);
        let mut reflections = Vec::new();
        for h in -h_max..=h_max {
            for k in -h_max..=h_max {
                for l in -l_max..=l_max {
                    let q = [f64::from(h) / CELL_A, f64::from(k) / CELL_A, f64::from(l) / CELL_C];
                    let s = norm(q);
                    if s > s_max || is_absent(h, k, l) {
                        continue;
                    }
                    let photons = crystal.spot_photons * wilson(h, k, l, seed) * (-0.5 * crystal.b_factor * s * s).exp();
                    reflections.push(Reflection { hkl: [h, k, l], q: apply(&orientation, q), photons });
                }
            }
        }
        Self { crystal: crystal.clone(), reflections }
    }

    /// Reflections that image number `image` records, with their place and expected photons; weak tails are left out.
    pub(crate) fn spots(&self, image: u64, scene: &Scene) -> Vec<Spot> {
        let wave_number = 1.0 / scene.wavelength_angstrom();
        let step = self.crystal.oscillation_deg.to_radians();
        let start = step * image as f64;
        let mosaic = self.crystal.mosaicity_deg.to_radians();
        let (turn0, turn1) = (start.sin_cos(), (start + step).sin_cos());
        let mut spots = Vec::new();
        for reflection in &self.reflections {
            let (q0, q1) = (turn(reflection.q, turn0), turn(reflection.q, turn1));
            // Mosaic blocks and the spread of the beam (2e-4 of the wave number) smear the distance from the Ewald
            // sphere.
            let sigma = mosaic * norm(q0) + 2e-4 * wave_number;
            let (e0, e1) = (excitation(q0, wave_number), excitation(q1, wave_number));
            if (e0 > 4.0 * sigma && e1 > 4.0 * sigma) || (e0 < -4.0 * sigma && e1 < -4.0 * sigma) {
                continue;
            }
            let partiality = if step == 0.0 {
                (-0.5 * (e0 / sigma).powi(2)).exp()
            } else {
                (normal_cdf(e1 / sigma) - normal_cdf(e0 / sigma)).abs()
            };
            let photons = reflection.photons * partiality;
            if photons < 0.05 {
                continue;
            }
            let t = if e0 == e1 { 0.5 } else { (e0 / (e0 - e1)).clamp(0.0, 1.0) };
            let s: Vector = std::array::from_fn(|i| q0[i] + t * (q1[i] - q0[i]) + if i == 2 { wave_number } else { 0.0 });
            if let Some((x, y)) = scene.detector_point(s) {
                spots.push(Spot { hkl: reflection.hkl, x, y, photons, sigma_px: self.crystal.spot_sigma_px });
            }
        }
        spots
    }
}

/// Systematic absences of P43212 and the origin.
fn is_absent(h: i16, k: i16, l: i16) -> bool {
    match (h, k, l) {
        (0, 0, l) => l % 4 != 0 || l == 0,
        (h, 0, 0) | (0, h, 0) => h % 2 != 0,
        _ => false,
    }
}

/// Acentric Wilson intensity of mean 1, equal for the 16 equivalents of 4/mmm because the hash sees the canonical
/// indices.
fn wilson(h: i16, k: i16, l: i16, seed: u64) -> f64 {
    let (a, b, c) = (h.unsigned_abs().max(k.unsigned_abs()), h.unsigned_abs().min(k.unsigned_abs()), l.unsigned_abs());
    let hash = mix(seed ^ mix(u64::from(a) << 32 | u64::from(b) << 16 | u64::from(c)));
    let uniform = ((hash >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -uniform.ln()
}

/// Signed distance of the rotated lattice point from the Ewald sphere, 1/ångström.
fn excitation(q: Vector, wave_number: f64) -> f64 {
    norm([q[0], q[1], q[2] + wave_number]) - wave_number
}

/// Rotation about x by the angle whose (sine, cosine) is given.
fn turn(q: Vector, (sin, cos): (f64, f64)) -> Vector {
    [q[0], cos * q[1] - sin * q[2], sin * q[1] + cos * q[2]]
}

fn norm(v: Vector) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn apply(matrix: &[Vector; 3], v: Vector) -> Vector {
    matrix.map(|row| row.iter().zip(v).map(|(m, x)| m * x).sum())
}

/// Uniform random rotation from a random unit quaternion.
fn random_rotation(rng: &mut Rng) -> [Vector; 3] {
    let mut q: [f64; 4] = std::array::from_fn(|_| rng.normal());
    let length = q.iter().map(|x| x * x).sum::<f64>().sqrt();
    q.iter_mut().for_each(|x| *x /= length);
    let [w, x, y, z] = q;
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
        [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::SceneModel;

    fn scene() -> Scene {
        Scene::new(&SceneModel::for_modules(8)).expect("default scene")
    }

    #[test]
    fn symmetry_and_absences() {
        assert_eq!(wilson(3, -5, 7, 1), wilson(5, 3, -7, 1));
        assert_ne!(wilson(3, 5, 7, 1), wilson(3, 5, 6, 1));
        assert!(is_absent(0, 0, 2) && !is_absent(0, 0, 4) && is_absent(3, 0, 0) && is_absent(0, 5, 0) && !is_absent(3, 1, 0));
        let mean = (0..200).flat_map(|h| (0..h).map(move |k| wilson(h, k, 3, 9))).sum::<f64>() / 19_900.0;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn spots_lie_on_the_ewald_sphere_at_the_bragg_angle() {
        let scene = scene();
        let lattice = Lattice::new(&Crystal::default(), 5);
        let spots = lattice.spots(3, &scene);
        assert!((100..3000).contains(&spots.len()), "{}", spots.len());
        for spot in &spots {
            let [h, k, l] = spot.hkl.map(f64::from);
            let s = ((h * h + k * k) / (CELL_A * CELL_A) + l * l / (CELL_C * CELL_C)).sqrt();
            let measured = scene.inverse_resolution(spot.x, spot.y);
            // A partly recorded reflection sits off the sphere by a few mosaic widths.
            assert!((measured - s).abs() < 0.01 * s + 1e-3, "{:?}: {measured} against {s}", spot.hkl);
        }
    }

    #[test]
    fn mosaicity_spreads_a_reflection_over_more_images() {
        let scene = scene();
        let count = |mosaicity_deg| Lattice::new(&Crystal { mosaicity_deg, ..Crystal::default() }, 5).spots(3, &scene).len();
        assert!(count(0.4) > 2 * count(0.05), "{} and {}", count(0.4), count(0.05));
        // Stills see the reflections near the sphere only.
        let still = Crystal { oscillation_deg: 0.0, ..Crystal::default() };
        let lattice = Lattice::new(&still, 5);
        assert_eq!(lattice.spots(0, &scene), lattice.spots(9, &scene));
        assert!(lattice.spots(0, &scene).len() < count(0.1));
    }

    #[test]
    fn a_reflection_is_recorded_once_when_the_crystal_turns_through_it() {
        let scene = scene();
        let lattice = Lattice::new(&Crystal::default(), 5);
        let mut sums = std::collections::HashMap::<[i16; 3], f64>::new();
        (0..60).flat_map(|image| lattice.spots(image, &scene)).for_each(|s| *sums.entry(s.hkl).or_default() += s.photons);
        let spots = lattice.spots(30, &scene);
        let mut checked = 0;
        for spot in spots.iter().filter(|s| s.photons > 5.0) {
            let full = lattice.reflections.iter().find(|r| r.hkl == spot.hkl).expect("listed").photons;
            let ratio = sums[&spot.hkl] / full;
            // Near the rotation axis a reflection takes more than the 30 images on each side.
            checked += usize::from((0.97..1.03).contains(&ratio));
        }
        assert!(checked * 10 > spots.iter().filter(|s| s.photons > 5.0).count() * 8, "only {checked} complete");
    }
}
