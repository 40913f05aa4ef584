//! The work on one image, and what must come of it.

use super::image::Image;
use crate::bench::args::AnalysisWork;
use konkordia_analysis::analyser::{Analyser, Results, SpotMethod, SpotTask, Tasks};
use konkordia_analysis::azimuthal::{self, Integrator, Profile, Splitting, Summed};
use konkordia_analysis::dispersion::{self, Dispersion};
use konkordia_analysis::peakfinder8::{self, Peakfinder8, crystfel_radius_px};
use konkordia_analysis::plane::Plane;
use konkordia_analysis::regions::{Region, RegionValues, Shape};
use konkordia_analysis::sparse::{SparseImage, count_above};
use konkordia_analysis::spot::SpotList;
use konkordia_core::pixel::PixelType;
use konkordia_kernels::Isa;
use std::hint::black_box;

/// Pixels above this value are counted and taken into sparse images.
pub const LEVEL: f32 = 10.0;
/// Spots of an image that are kept.
const SPOTS_MAX: usize = 2000;
/// Times that peakfinder8 reads an image of floats: five for the statistics, one to mark what stands out.
const FLOAT_PASSES: f64 = 6.0;
/// Bytes of tables for each pixel: whether it is usable, its ring, its bin, its normalisation, its shares of two bins.
const USABLE_BYTES: f64 = 1.0;
const RING_BYTES: f64 = 2.0;
const BIN_BYTES: f64 = 2.0;
const WEIGHT_BYTES: f64 = 4.0;
const SHARE_BYTES: f64 = 8.0;
/// Marks of what stands out are one bit for each pixel, written and read.
const MARK_BYTES: f64 = 0.25;

/// What is made once for all pixel types, and the results of the work that was done last.
pub struct Tools {
    usable: Vec<bool>,
    columns: usize,
    peakfinder8: Peakfinder8,
    dispersion: Dispersion,
    spots: SpotList,
    /// Without splitting, and with; each without variances, and with.
    integrators: [(Integrator, Profile); 4],
    shapes: Vec<Shape>,
    regions: Vec<Region>,
    region_values: Vec<RegionValues>,
    analyser: Analyser,
    results: Results,
}

impl Tools {
    /// For an image.
    ///
    /// # Errors
    /// The image or its geometry cannot be analysed, in words.
    pub fn new(image: &Image) -> Result<Self, String> {
        let ([rows, columns], usable) = (image.shape, &image.usable);
        let [x0, y0] = image.geometry.beam_center_px().ok_or("the beam does not meet the detector")?;
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (column as f64, row as f64)));
        let radius_px: Vec<f32> = places.map(|(x, y)| crystfel_radius_px(x - x0, y - y0)).collect();
        let whole = [peakfinder8::Panel::whole(rows, columns)];
        let settings = peakfinder8::Settings::default();
        let shapes = shapes([x0, y0], [rows, columns]);
        let named = |shape: &Shape| (format!("{shape:?}"), *shape);
        let regions: Vec<Region> = shapes.iter().map(|shape| Region::new("", shape, columns, usable)).collect();
        let spots = SpotTask::new(SpotMethod::Peakfinder8(settings), SPOTS_MAX);
        let tasks = Tasks {
            spots: Some(spots),
            azimuthal: Some(profile_settings(0)),
            regions: shapes.iter().map(named).collect(),
            level: Some(LEVEL),
            ..Tasks::default()
        };
        let (analyser, _) = Analyser::new(&tasks, Some(&image.geometry), usable, image.shape)?;
        let integrator = |n: usize| {
            let integrator = Integrator::new(&image.geometry, profile_settings(n), usable)?;
            let profile = integrator.profile();
            Ok::<_, String>((integrator, profile))
        };
        Ok(Self {
            usable: usable.clone(),
            columns,
            peakfinder8: Peakfinder8::new(settings, &radius_px, usable, rows, columns, &whole)?,
            dispersion: Dispersion::new(dispersion::Settings::default(), usable, rows, columns)?,
            spots: SpotList::new(SPOTS_MAX),
            integrators: [integrator(0)?, integrator(1)?, integrator(2)?, integrator(3)?],
            region_values: vec![RegionValues::default(); regions.len()],
            shapes,
            regions,
            results: analyser.results(),
            analyser,
        })
    }

    /// Part of the pixels that are usable.
    pub fn usable_share(&self) -> f64 {
        self.usable.iter().filter(|usable| **usable).count() as f64 / self.usable.len() as f64
    }

    /// Forgets all results.
    fn forget(&mut self) {
        self.spots.clear();
        self.integrators.iter_mut().for_each(|(integrator, profile)| *profile = integrator.profile());
        self.region_values.fill(RegionValues::default());
        self.results = self.analyser.results();
    }

    /// Spots that the last method found.
    pub fn spots_found(&self) -> u64 {
        self.spots.found
    }

    /// Pixels of all regions.
    fn region_pixels(&self) -> usize {
        self.regions.iter().map(Region::pixels).sum()
    }
}

/// A ring about the beam, and the middle of the image.
fn shapes([x0, y0]: [f64; 2], [rows, columns]: [usize; 2]) -> Vec<Shape> {
    let (width, height) = (columns as f64, rows as f64);
    let middle = Shape::Box { x0_px: 0.25 * width, y0_px: 0.25 * height, x1_px: 0.5 * width - 1.0, y1_px: 0.5 * height - 1.0 };
    vec![Shape::Ring { x_px: x0 - 0.5, y_px: y0 - 0.5, inner_px: 0.1 * width, outer_px: 0.2 * width }, middle]
}

/// Settings of the integrators by their number.
fn profile_settings(number: usize) -> azimuthal::Settings {
    let splitting = if number < 2 { Splitting::None } else { Splitting::Full };
    azimuthal::Settings { splitting, variance: number % 2 == 1, ..azimuthal::Settings::default() }
}

/// Number of the integrator that a work uses.
fn integrator_of(work: AnalysisWork) -> usize {
    match work {
        AnalysisWork::AzimuthalVariance => 1,
        AnalysisWork::AzimuthalSplit => 2,
        AnalysisWork::AzimuthalSplitVariance => 3,
        _ => 0,
    }
}

/// The image with pixels of one type.
pub trait Pixels {
    /// The type.
    fn pixel(&self) -> PixelType;
    /// Does the work once; a small image in the cache is done as often as it takes for the pixels of the whole image.
    /// Returns the number of pixels that were done.
    fn run(&mut self, tools: &mut Tools, work: AnalysisWork, isa: Isa) -> usize;
    /// True if the work gives what naive code gives, or, where there is none, the same bits as the scalar code.
    fn verify(&mut self, tools: &mut Tools, work: AnalysisWork, isa: Isa) -> bool;
    /// Bytes that the work moves for each pixel that it does: of the image and of tables, each time it goes through
    /// them. Sums and lists that stay in the caches do not count.
    fn bytes_per_pixel(&self, tools: &Tools, work: AnalysisWork) -> f64;
    /// Part of the usable pixels that is above the level.
    fn share_above(&self, tools: &Tools) -> f64;
}

/// An image with pixels of one type, and its sparse images.
pub struct Typed<P> {
    pixels: Vec<P>,
    /// Pixels of the small image: the first rows, which fit into half of the second cache with their mask.
    near: usize,
    sparse: SparseImage<P>,
    near_sparse: SparseImage<P>,
    above: u64,
}

impl<P: Summed> Typed<P> {
    /// With a small image that takes at most `near_bytes`.
    pub fn new(image: &Image, near_bytes: usize) -> Self {
        let [rows, columns] = image.shape;
        let of = |value: &f64| if value.is_nan() { P::MASKED } else { P::from_whole(*value as i64) };
        let pixels: Vec<P> = image.values.iter().map(of).collect();
        let near_rows = (near_bytes / (columns * (size_of::<P>() + 1))).clamp(1, rows.max(1)).min(rows);
        let near = near_rows * columns;
        // Room for twice as many as there are.
        let room = |part: usize| 2 * naive_above(&pixels[..part], &image.usable[..part]).count();
        let (all_room, near_room) = (room(pixels.len()), room(near));
        let (sparse, near_sparse) = (SparseImage::new(rows, all_room), SparseImage::new(near_rows, near_room));
        Self { pixels, near, sparse, near_sparse, above: 0 }
    }

    /// Bits of the results of the work that was done last.
    fn outcome(&self, tools: &Tools, work: AnalysisWork) -> Vec<u64> {
        match work {
            AnalysisWork::Peakfinder8 | AnalysisWork::Dispersion => of_spots(&tools.spots),
            AnalysisWork::Above | AnalysisWork::AboveInCache => vec![self.above],
            AnalysisWork::Sparse => of_sparse(&self.sparse),
            AnalysisWork::SparseInCache => of_sparse(&self.near_sparse),
            AnalysisWork::Regions => tools.region_values.iter().flat_map(of_region).collect(),
            AnalysisWork::Everything => {
                let results = &tools.results;
                let mut all = results.spots.as_ref().map_or_else(Vec::new, |spots| of_spots(&spots.list));
                all.extend(results.profile.iter().flat_map(of_profile));
                all.extend(results.regions.iter().flat_map(of_region));
                all.extend(results.above);
                all
            }
            profile => of_profile(&tools.integrators[integrator_of(profile)].1),
        }
    }

    /// What must come of a work.
    fn expected(&mut self, tools: &mut Tools, work: AnalysisWork) -> Vec<u64> {
        let columns = tools.columns;
        match work {
            AnalysisWork::Above => vec![naive_above(&self.pixels, &tools.usable).count() as u64],
            AnalysisWork::AboveInCache => vec![naive_above(&self.pixels[..self.near], &tools.usable).count() as u64],
            AnalysisWork::Sparse => naive_sparse(&self.pixels, &tools.usable, columns),
            AnalysisWork::SparseInCache => naive_sparse(&self.pixels[..self.near], &tools.usable, columns),
            AnalysisWork::Regions => {
                tools.shapes.iter().flat_map(|shape| naive_region(&self.pixels, &tools.usable, columns, shape)).collect()
            }
            AnalysisWork::Everything => {
                let parts = [AnalysisWork::Peakfinder8, AnalysisWork::Azimuthal, AnalysisWork::Regions, AnalysisWork::Above];
                parts.into_iter().flat_map(|part| self.scalar(tools, part)).collect()
            }
            other => self.scalar(tools, other),
        }
    }

    fn scalar(&mut self, tools: &mut Tools, work: AnalysisWork) -> Vec<u64> {
        self.run(tools, work, Isa::Scalar);
        self.outcome(tools, work)
    }

    /// Does a work on the small image again and again.
    fn run_near(&mut self, tools: &Tools, work: AnalysisWork, isa: Isa) -> usize {
        let usable = &tools.usable[..self.near];
        let rounds = (self.pixels.len() / self.near).max(1);
        for _ in 0..rounds {
            let plane = black_box(Plane::own(&self.pixels[..self.near], tools.columns));
            if work == AnalysisWork::AboveInCache {
                self.above = count_above(isa, &plane, usable, P::from_photons(LEVEL));
            } else {
                self.near_sparse.take(isa, &plane, usable, P::from_photons(LEVEL));
            }
        }
        rounds * self.near
    }
}

impl<P: Summed> Pixels for Typed<P> {
    fn pixel(&self) -> PixelType {
        P::TYPE
    }

    fn run(&mut self, tools: &mut Tools, work: AnalysisWork, isa: Isa) -> usize {
        let plane = black_box(Plane::own(&self.pixels, tools.columns));
        match work {
            AnalysisWork::Peakfinder8 => tools.peakfinder8.find(isa, &plane, &mut tools.spots),
            AnalysisWork::Dispersion => tools.dispersion.find(isa, &plane, &mut tools.spots),
            AnalysisWork::Above => self.above = count_above(isa, &plane, &tools.usable, P::from_photons(LEVEL)),
            AnalysisWork::Sparse => self.sparse.take(isa, &plane, &tools.usable, P::from_photons(LEVEL)),
            AnalysisWork::AboveInCache | AnalysisWork::SparseInCache => return self.run_near(tools, work, isa),
            AnalysisWork::Regions => {
                for (region, values) in tools.regions.iter().zip(&mut tools.region_values) {
                    *values = region.look(isa, &plane);
                }
                return tools.region_pixels();
            }
            AnalysisWork::Everything => {
                tools.analyser.analyse(isa, &plane, &mut tools.results).expect("the image has the size of the analyser");
            }
            profile => {
                let (integrator, profile) = &mut tools.integrators[integrator_of(profile)];
                integrator.integrate(isa, &plane, profile).expect("the image has the size of the integrator");
            }
        }
        self.pixels.len()
    }

    fn verify(&mut self, tools: &mut Tools, work: AnalysisWork, isa: Isa) -> bool {
        let expected = self.expected(tools, work);
        // What the scalar code left may not be taken for a result.
        tools.forget();
        self.run(tools, work, isa);
        self.outcome(tools, work) == expected
    }

    fn bytes_per_pixel(&self, tools: &Tools, work: AnalysisWork) -> f64 {
        let (pixel, usable) = (size_of::<P>() as f64, tools.usable_share());
        let passes = if P::TYPE.is_float() { FLOAT_PASSES } else { 1.0 };
        let regions = tools.region_pixels() as f64 / self.pixels.len() as f64;
        match work {
            AnalysisWork::Peakfinder8 => passes * (pixel + RING_BYTES) + MARK_BYTES,
            AnalysisWork::Azimuthal | AnalysisWork::AzimuthalVariance => usable * (pixel + BIN_BYTES + WEIGHT_BYTES),
            AnalysisWork::AzimuthalSplit | AnalysisWork::AzimuthalSplitVariance => {
                usable * (pixel + BIN_BYTES + WEIGHT_BYTES + SHARE_BYTES)
            }
            AnalysisWork::Regions => pixel,
            AnalysisWork::Everything => {
                let parts = [AnalysisWork::Peakfinder8, AnalysisWork::Azimuthal, AnalysisWork::Above];
                regions * pixel + parts.iter().map(|part| self.bytes_per_pixel(tools, *part)).sum::<f64>()
            }
            AnalysisWork::Dispersion
            | AnalysisWork::Above
            | AnalysisWork::Sparse
            | AnalysisWork::AboveInCache
            | AnalysisWork::SparseInCache => pixel + USABLE_BYTES,
        }
    }

    fn share_above(&self, tools: &Tools) -> f64 {
        let usable = tools.usable.iter().filter(|usable| **usable).count();
        naive_above(&self.pixels, &tools.usable).count() as f64 / usable as f64
    }
}

/// Positions of the pixels above the level.
fn naive_above<P: Summed>(pixels: &[P], usable: &[bool]) -> impl Iterator<Item = usize> {
    let is_above = |pixel: &P| pixel.is_number() && pixel.to_f64() > f64::from(LEVEL);
    (0..).zip(pixels).zip(usable).filter(move |((_, pixel), usable)| **usable && is_above(pixel)).map(|((at, _), _)| at)
}

fn naive_sparse<P: Summed>(pixels: &[P], usable: &[bool], columns: usize) -> Vec<u64> {
    let places: Vec<usize> = naive_above(pixels, usable).collect();
    let mut all = vec![places.len() as u64];
    all.extend((0..=pixels.len() / columns).map(|row| places.partition_point(|at| *at < row * columns) as u64));
    all.extend(places.iter().map(|at| (at % columns) as u64));
    all.extend(places.iter().map(|at| pixels[*at].to_f64().to_bits()));
    all
}

fn of_sparse<P: Summed>(sparse: &SparseImage<P>) -> Vec<u64> {
    let mut all = vec![sparse.found];
    all.extend(sparse.row_starts.iter().chain(sparse.columns()).map(|number| u64::from(*number)));
    all.extend(sparse.values().iter().map(|value| value.to_f64().to_bits()));
    all
}

/// Number, sum and maximum of the pixels; sums are exact because the pixels are whole numbers.
fn naive_region<P: Summed>(pixels: &[P], usable: &[bool], columns: usize, shape: &Shape) -> [u64; 3] {
    let (mut count, mut sum, mut highest) = (0, 0.0, f64::NEG_INFINITY);
    for (at, (pixel, usable)) in pixels.iter().zip(usable).enumerate() {
        if *usable && pixel.is_number() && shape.has((at % columns) as f64, (at / columns) as f64) {
            count += 1;
            sum += pixel.to_f64();
            highest = highest.max(pixel.to_f64());
        }
    }
    [count, sum.to_bits(), highest.to_bits()]
}

fn of_region(values: &RegionValues) -> [u64; 3] {
    [values.pixels, values.sum.to_bits(), values.maximum.unwrap_or(f64::NEG_INFINITY).to_bits()]
}

fn of_spots(list: &SpotList) -> Vec<u64> {
    let mut all = vec![list.found];
    for spot in &list.spots {
        let numbers = [spot.x_px, spot.y_px, spot.intensity, spot.maximum, spot.background, spot.snr];
        all.extend(numbers.map(f64::to_bits));
        all.push(spot.pixels.into());
    }
    all
}

fn of_profile(profile: &Profile) -> Vec<u64> {
    let p = profile;
    let lists = [&p.intensity, &p.sum, &p.normalization, &p.pixels, &p.variance, &p.sigma];
    lists.into_iter().flatten().map(|number| number.to_bits()).collect()
}
