//! Images of a simulated crystal whose intensities are known: counts of a background that falls and rises with the
//! resolution, and of reflections that are each recorded whole, on several images, at places of one resolution.
//!
//! Everything follows from the seed; an image does not depend on those that were made before it.

use konkordia_core::pixel::Pixel;
use konkordia_sim::rng::Rng;
use std::f64::consts::TAU;

/// Rows and columns of the images for which [`SPOTS`] is meant.
const EDGE: f64 = 1024.0;
/// Reflections on an image of that size.
const SPOTS: f64 = 600.0;
/// How often a reflection is recorded: from, to.
const MULTIPLICITY: [u64; 2] = [4, 8];
/// Lowest and highest resolution, ångström; the highest is where the circle touches the edge of the image.
const RESOLUTION_ANGSTROM: [f64; 2] = [20.0, 1.7];
const WAVELENGTH_ANGSTROM: f64 = 1.0;
/// Mean photons of a reflection at zero angle, and how it falls: exp(-B s^2 / 2).
const PHOTONS: f64 = 6000.0;
const B_FACTOR_ANGSTROM2: f64 = 30.0;
/// Photons of a spot lie around its centre with this standard deviation.
const SPOT_SIGMA_PX: f64 = 0.9;
/// Each record of a reflection has a scale of its own, with this standard deviation, as beam and crystal bring it.
/// It keeps strong reflections from agreeing better than in real data.
const SCALE_SIGMA: f64 = 0.02;
/// Two spots are at least so far apart in rows or in columns, so that no box has photons of another spot.
pub const APART_PX: f64 = 11.0;
/// No pixel further from a spot, in rows or columns, is used to integrate it; so far inside of the edge all spots lie.
pub const REACH_PX: i64 = 6;
/// Attempts to find room for a spot before it is left out.
const PLACES_TRIED: usize = 100;

/// Purposes of random numbers.
const REFLECTIONS: u64 = 1;
const PLACES: u64 = 2;
const COUNTS: u64 = 3;

/// What a reflection is in truth.
#[derive(Clone, Copy, Debug)]
pub struct Reflection {
    /// 1/d in 1/ångström.
    pub inverse_d: f64,
    /// Photons.
    pub photons: f64,
}

/// A reflection on an image.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// Number of the reflection.
    pub reflection: usize,
    /// Column of the centre; the middle of the first pixel is 0.5.
    pub x: f64,
    /// Row of the centre.
    pub y: f64,
    /// Expected photons of this record.
    pub photons: f64,
}

/// The crystal and all that will be recorded of it.
pub struct Crystal {
    /// Rows and columns of an image.
    pub edge: usize,
    /// All reflections.
    pub reflections: Vec<Reflection>,
    /// The spots of each image.
    pub images: Vec<Vec<Spot>>,
    /// Expected photons of the background of each pixel.
    background: Vec<f64>,
    seed: u64,
}

impl Crystal {
    /// With as many reflections as `images` images of `edge` x `edge` pixels record.
    pub fn new(images: usize, edge: usize, seed: u64) -> Self {
        let spots = (SPOTS * (edge as f64 / EDGE).powi(2)).round().max(1.0) as usize;
        let mut rng = Rng::keyed(seed, &[REFLECTIONS]);
        let (mut reflections, mut records) = (Vec::new(), Vec::new());
        while records.len() < spots * images {
            let times = MULTIPLICITY[0] + rng.below(MULTIPLICITY[1] - MULTIPLICITY[0] + 1);
            records.extend((0..times).map(|_| reflections.len()));
            reflections.push(reflection(&mut rng));
        }
        // The order in which the records come: each pair of records may be exchanged.
        for last in (1..records.len()).rev() {
            records.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let images = records.chunks(spots).take(images).enumerate();
        let images =
            images.map(|(image, records)| places(records, &reflections, edge, &mut Rng::keyed(seed, &[PLACES, image as u64])));
        let images = images.collect();
        let middle = edge as f64 / 2.0;
        let radius = |pixel: usize| ((pixel % edge) as f64 + 0.5 - middle).hypot((pixel / edge) as f64 + 0.5 - middle);
        let background = (0..edge * edge).map(|pixel| background(inverse_d(radius(pixel), edge))).collect();
        Self { edge, reflections, images, background, seed }
    }

    /// The counts of an image. Each photon of a spot falls into a pixel of its own choice, so the counts of all pixels
    /// are Poisson distributed.
    pub fn image(&self, image: usize) -> Vec<i16> {
        let mut rng = Rng::keyed(self.seed, &[COUNTS, image as u64]);
        let mut counts: Vec<u32> = self.background.iter().map(|mean| rng.poisson(*mean)).collect();
        for spot in &self.images[image] {
            for _ in 0..rng.poisson(spot.photons) {
                let at = [spot.y, spot.x].map(|centre| (centre + SPOT_SIGMA_PX * rng.normal()).floor());
                if at.iter().all(|place| (0.0..self.edge as f64).contains(place)) {
                    counts[at[0] as usize * self.edge + at[1] as usize] += 1;
                }
            }
        }
        counts.into_iter().map(|count| i16::try_from(count).unwrap_or(i16::MAX).min(<i16 as Pixel>::VALID_MAX)).collect()
    }
}

/// A reflection: points of the lattice fill the sphere evenly; intensities follow Wilson for structures without centre.
fn reflection(rng: &mut Rng) -> Reflection {
    let [low, high] = RESOLUTION_ANGSTROM.map(|d| d.powi(-3));
    let inverse_d = (low + rng.uniform() * (high - low)).cbrt();
    let wilson = -(1.0 - rng.uniform()).ln();
    Reflection { inverse_d, photons: PHOTONS * wilson * (-0.5 * B_FACTOR_ANGSTROM2 * inverse_d * inverse_d).exp() }
}

/// Places of the records of an image, at random angles around the beam.
fn places(records: &[usize], reflections: &[Reflection], edge: usize, rng: &mut Rng) -> Vec<Spot> {
    let mut spots: Vec<Spot> = Vec::new();
    for &reflection in records {
        let Reflection { inverse_d, photons } = reflections[reflection];
        let photons = photons * (1.0 + SCALE_SIGMA * rng.normal()).max(0.0);
        let radius = radius_px(inverse_d, edge);
        let place = (0..PLACES_TRIED).find_map(|_| {
            let (sine, cosine) = (TAU * rng.uniform()).sin_cos();
            let (x, y) = (edge as f64 / 2.0 + radius * cosine, edge as f64 / 2.0 + radius * sine);
            let is_free = |spot: &Spot| (spot.x - x).abs() >= APART_PX || (spot.y - y).abs() >= APART_PX;
            spots.iter().all(is_free).then_some((x, y))
        });
        if let Some((x, y)) = place {
            spots.push(Spot { reflection, x, y, photons });
        }
    }
    spots
}

/// Distance of the detector, in pixels. The highest resolution is a few pixels inside of the edge: boxes end there.
fn distance_px(edge: usize) -> f64 {
    let inside = (edge as f64 / 2.0 - REACH_PX as f64 - 1.0).max(1.0);
    inside / (2.0 * (0.5 * WAVELENGTH_ANGSTROM / RESOLUTION_ANGSTROM[1]).asin()).tan()
}

/// Distance from the beam at which reflections of this resolution lie.
fn radius_px(inverse_d: f64, edge: usize) -> f64 {
    distance_px(edge) * (2.0 * (0.5 * WAVELENGTH_ANGSTROM * inverse_d).asin()).tan()
}

fn inverse_d(radius_px: f64, edge: usize) -> f64 {
    2.0 * (0.5 * (radius_px / distance_px(edge)).atan()).sin() / WAVELENGTH_ANGSTROM
}

/// Expected photons of a pixel: scatter of air, which falls, and the two rings of the solvent.
fn background(inverse_d: f64) -> f64 {
    let ring = |centre: f64, width: f64| (-0.5 * ((inverse_d - centre) / width).powi(2)).exp();
    4.0 * (-inverse_d / 0.06).exp() + 0.35 + 2.2 * ring(0.30, 0.055) + 0.5 * ring(0.48, 0.06)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_images_and_another_one_others() {
        let [one, same, other] = [7, 7, 8].map(|seed| Crystal::new(3, 256, seed));
        assert_eq!(one.image(2), same.image(2));
        assert_ne!(one.image(2), other.image(2));
        assert_ne!(one.image(2), one.image(1));
    }

    #[test]
    fn radius_and_resolution_are_inverse() {
        for s in [0.05, 0.2, 1.0 / 1.7] {
            assert!((inverse_d(radius_px(s, 512), 512) - s).abs() < 1e-12);
        }
        assert!(radius_px(1.0 / 1.7, 512) < 256.0 - REACH_PX as f64);
    }

    #[test]
    fn reflections_are_recorded_several_times_at_their_resolution_and_apart() {
        let crystal = Crystal::new(8, 512, 1);
        let mut times = vec![0u64; crystal.reflections.len()];
        for spots in &crystal.images {
            for (number, spot) in spots.iter().enumerate() {
                times[spot.reflection] += 1;
                let radius = (spot.x - 256.0).hypot(spot.y - 256.0);
                assert!((inverse_d(radius, 512) - crystal.reflections[spot.reflection].inverse_d).abs() < 1e-9);
                let apart = |other: &Spot| (spot.x - other.x).abs() >= APART_PX || (spot.y - other.y).abs() >= APART_PX;
                assert!(spots[..number].iter().all(apart));
            }
        }
        let records: u64 = times.iter().sum();
        assert!(times.iter().all(|n| *n <= MULTIPLICITY[1]));
        assert!((4.5..7.0).contains(&(records as f64 / times.len() as f64)), "{records} of {}", times.len());
    }

    #[test]
    fn an_image_has_the_photons_that_are_expected() {
        let crystal = Crystal::new(2, 512, 3);
        let sum: f64 = crystal.image(1).iter().map(|count| f64::from(*count)).sum();
        let expected = crystal.background.iter().sum::<f64>() + crystal.images[1].iter().map(|spot| spot.photons).sum::<f64>();
        assert!((sum - expected).abs() < 6.0 * expected.sqrt(), "{sum} against {expected}");
    }
}
