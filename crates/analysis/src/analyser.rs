//! Everything that is asked of an image, one image after the other: spots with their resolution, the powder profile,
//! regions, and pixels above a level. What cannot be done without a geometry is left out, and said once.

use crate::azimuthal::{self, Integrator, Profile};
use crate::beam::BeamRing;
use crate::dispersion::{self, Dispersion};
use crate::geometry::Geometry;
use crate::model::ModelTask;
use crate::peakfinder8::{self, Peakfinder8};
use crate::plane::Plane;
use crate::regions::{Region, RegionValues, Shape};
use crate::resolution;
use crate::salt;
use crate::sparse::{Overflow, SparsePixels, count_above};
use crate::spot::SpotList;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::{PIXEL_RESULTS, ResultKind};
use konkordia_kernels::Isa;
use konkordia_kernels::azimuthal::Summed;
use konkordia_kernels::stats::{self, PixelStats, Wide};

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// Bragg spots.
    pub spots: Option<SpotTask>,
    /// The powder profile, or the cake.
    pub azimuthal: Option<azimuthal::Settings>,
    /// Ends, on the axis of the cake, of the one ring from which the shift of the beam is taken ([`crate::beam`]).
    pub beam_ring: Option<[f64; 2]>,
    /// Regions and their names.
    pub regions: Vec<(String, Shape)>,
    /// Pixels above this value are counted: a whole number, 0 to 2^24.
    pub level: Option<f32>,
    /// Most of these pixels of an image that are kept, and what becomes of an image with more; `None`: they are only
    /// counted.
    pub keep_above: Option<(usize, Overflow)>,
    /// The results of the pixels ([`konkordia_core::results::pixel_results`]) are made too, of these kinds; `None`: who
    /// has made the image has made them.
    pub of_pixels: Option<&'static [ResultKind; PIXEL_RESULTS]>,
    /// A model of the user gives each image a score.
    pub model: Option<ModelTask>,
    /// An image is a hit if this rule holds, instead of by its spots.
    pub hit_rule: Option<String>,
    /// An image is rejected if this rule holds.
    pub veto_rule: Option<String>,
}

impl Tasks {
    /// Unit of the bins of the profile; `None` if none is asked for.
    pub fn profile_unit(&self) -> Option<&'static str> {
        self.azimuthal.as_ref().map(|settings| settings.radial.unit())
    }
}

/// How spots are found.
#[derive(Clone, Debug)]
pub struct SpotTask {
    /// The method and its settings.
    pub method: SpotMethod,
    /// Spots of an image that are kept.
    pub spots_max: usize,
    /// Finest and coarsest resolution, angstrom: pixels beyond are not used.
    pub d_angstrom: [f64; 2],
    /// An image with so many spots beside the rings of ice is a hit.
    pub hit_spots_min: u64,
    /// When an image shows salt.
    pub salt: salt::Settings,
    /// When an image shows ice.
    pub ice: resolution::IceSettings,
}

impl SpotTask {
    /// This method for all resolutions, with the usual settings for what follows from the spots.
    pub fn new(method: SpotMethod, spots_max: usize) -> Self {
        let (salt, ice) = (salt::Settings::default(), resolution::IceSettings::default());
        Self { method, spots_max, d_angstrom: [0.0, f64::INFINITY], hit_spots_min: 15, salt, ice }
    }
}

/// The method that finds spots.
#[derive(Clone, Debug)]
pub enum SpotMethod {
    /// As CrystFEL means it. It needs a geometry.
    Peakfinder8(peakfinder8::Settings),
    /// The threshold of DIALS.
    Dispersion(dispersion::Settings),
}

impl SpotMethod {
    /// It finds nothing without a geometry.
    pub fn needs_geometry(&self) -> bool {
        matches!(self, Self::Peakfinder8(_))
    }
}

enum Finder {
    Peakfinder8(Box<Peakfinder8>),
    Dispersion(Box<Dispersion>),
}

/// Results of one image. The memory is used again for the next one.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The spots; `None` if none were looked for.
    pub spots: Option<SpotResults>,
    /// The profile; `None` if none was made.
    pub profile: Option<Profile>,
    /// The true beam centre minus that of the geometry, x and y in pixels ([`crate::beam`]); NaN if it is not
    /// known; `None` if it is not asked for.
    pub beam_shift_px: Option<[f64; 2]>,
    /// Of each region, in their order.
    pub regions: Vec<RegionValues>,
    /// Usable pixels above the level.
    pub above: Option<u64>,
    /// These pixels, if they are kept.
    pub above_pixels: Option<SparsePixels>,
    /// The bits of the results of the pixels, if they are made.
    pub of_pixels: Option<[u64; PIXEL_RESULTS]>,
}

/// The spots of an image and what follows from them.
#[derive(Clone, Debug, Default)]
pub struct SpotResults {
    /// The spots.
    pub list: SpotList,
    /// Spacing of each spot that was kept, angstrom; NaN without a geometry or wavelength.
    pub d_angstrom: Vec<f64>,
    /// Whether each spot that was kept lies on a ring of ice.
    pub is_ice: Vec<bool>,
    /// Spots that were kept and lie on a ring of ice.
    pub on_ice: u64,
    /// Estimated resolution of the image ([`resolution::estimate`]) from the spots beside the rings of ice.
    pub resolution_angstrom: Option<f64>,
    /// Enough spots beside the rings of ice.
    pub is_hit: bool,
    /// The image shows salt ([`salt::Settings::hold`]). Never if not all spots were kept.
    pub shows_salt: bool,
    /// The image shows ice ([`resolution::IceSettings::hold`]).
    pub shows_ice: bool,
    /// Mean of the valid pixels beside the spots, as the method means it; `None` without such a pixel.
    pub background: Option<f64>,
    sorted: Vec<f64>,
}

/// Analyses images of one size.
pub struct Analyser {
    usable: Vec<bool>,
    finder: Option<(Finder, SpotTask)>,
    integrator: Option<Integrator>,
    beam_ring: Option<BeamRing>,
    regions: Vec<Region>,
    level: Option<f32>,
    keep_above: Option<(usize, Overflow)>,
    of_pixels: Option<&'static [ResultKind; PIXEL_RESULTS]>,
    geometry: Option<Geometry>,
}

impl Analyser {
    /// For images of `rows * columns` pixels, of which `usable` says which count. The second value says, in words, what
    /// is left out for want of a geometry.
    ///
    /// # Errors
    /// Settings that make no sense, in words.
    pub fn new(
        tasks: &Tasks,
        geometry: Option<&Geometry>,
        usable: &[bool],
        [rows, columns]: [usize; 2],
    ) -> Result<(Self, Vec<String>), String> {
        if rows.checked_mul(columns) != Some(usable.len()) || columns == 0 {
            return Err(format!("a mask of {} pixels for {rows} rows of {columns} pixels", usable.len()));
        }
        let mut left_out = Vec::new();
        let finder = match (&tasks.spots, geometry) {
            (Some(task), None) if task.method.needs_geometry() => {
                left_out.push("no spots are looked for: peakfinder8 needs the beam centre".into());
                None
            }
            (Some(task), geometry) => Some((finder(task, geometry, usable, [rows, columns], &mut left_out)?, task.clone())),
            (None, _) => None,
        };
        let integrator = match (&tasks.azimuthal, geometry) {
            (Some(settings), Some(geometry)) => Some(Integrator::new(geometry, settings.clone(), usable)?),
            (Some(_), None) => {
                left_out.push("no profile is made: it needs beam centre, distance and size of the pixels".into());
                None
            }
            (None, _) => None,
        };
        let beam_ring = match (tasks.beam_ring, &integrator, geometry) {
            (Some(ring), Some(integrator), Some(geometry)) => {
                Some(BeamRing::new(integrator.settings().radial, ring, &integrator.profile(), geometry)?)
            }
            _ => None,
        };
        let regions = tasks.regions.iter().map(|(name, shape)| Region::new(name, shape, columns, usable)).collect();
        let (usable, geometry) = (usable.to_vec(), geometry.cloned());
        let (level, keep_above) = (tasks.level, tasks.keep_above.filter(|_| tasks.level.is_some()));
        let of_pixels = tasks.of_pixels;
        Ok((Self { usable, finder, integrator, beam_ring, regions, level, keep_above, of_pixels, geometry }, left_out))
    }

    /// Room for the results of an image.
    pub fn results(&self) -> Results {
        let spots = self.finder.as_ref().map(|(_, task)| SpotResults {
            list: SpotList::new(task.spots_max),
            d_angstrom: Vec::with_capacity(task.spots_max),
            is_ice: Vec::with_capacity(task.spots_max),
            sorted: Vec::with_capacity(task.spots_max),
            ..SpotResults::default()
        });
        let profile = self.integrator.as_ref().map(Integrator::profile);
        let beam_shift_px = self.beam_ring.as_ref().map(|_| [f64::NAN; 2]);
        let above_pixels =
            self.keep_above.map(|(pixels_max, overflow)| SparsePixels::new(pixels_max.min(self.usable.len()), overflow));
        Results {
            spots,
            profile,
            beam_shift_px,
            regions: vec![RegionValues::default(); self.regions.len()],
            above: None,
            above_pixels,
            of_pixels: None,
        }
    }

    /// Centres of the radial bins of the profile, in [`Tasks::profile_unit`]; `None` if none is made.
    pub fn profile_axis(&self) -> Option<Vec<f64>> {
        self.integrator.as_ref().map(|integrator| integrator.profile().radial)
    }

    /// Centres of the azimuthal bins of the cake, degrees; `None` if none is made.
    pub fn cake_azimuth_deg(&self) -> Option<Vec<f64>> {
        let cake = self.integrator.as_ref().filter(|integrator| integrator.settings().azimuth_bins > 1);
        cake.map(|integrator| integrator.profile().azimuth_deg)
    }

    /// True if pixels above a level are counted.
    pub fn has_level(&self) -> bool {
        self.level.is_some()
    }

    /// The regions, in the order of their results.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Analyses an image, with results of [`Self::results`].
    ///
    /// # Errors
    /// The image has another size, in words.
    ///
    /// # Panics
    /// If the results are those of another analyser.
    pub fn analyse<P: Summed>(&mut self, isa: Isa, plane: &Plane<'_, P>, out: &mut Results) -> Result<(), String> {
        if plane.pixels.len() != self.usable.len() {
            let (is, should) = (plane.pixels.len(), self.usable.len());
            return Err(format!("the image has {is} pixels; the analysis was made for {should}"));
        }
        if let (Some((finder, task)), Some(spots)) = (&mut self.finder, &mut out.spots) {
            match finder {
                Finder::Peakfinder8(finder) => {
                    finder.find(isa, plane, &mut spots.list);
                    spots.background = finder.background();
                }
                Finder::Dispersion(finder) => {
                    finder.find(isa, plane, &mut spots.list);
                    spots.background = finder.background();
                }
            }
            spots.judge(self.geometry.as_ref(), task);
        }
        if let (Some(integrator), Some(profile)) = (&mut self.integrator, &mut out.profile) {
            integrator.integrate(isa, plane, profile)?;
            out.beam_shift_px = self.beam_ring.as_ref().map(|ring| ring.shift_px(profile).unwrap_or([f64::NAN; 2]));
        }
        for (region, values) in self.regions.iter().zip(&mut out.regions) {
            *values = region.look(isa, plane);
        }
        out.above = self.level.map(|level| {
            let level = P::from_photons(level);
            let Some(pixels) = &mut out.above_pixels else { return count_above(isa, plane, &self.usable, level) };
            pixels.take(isa, plane, &self.usable, level);
            pixels.found
        });
        out.of_pixels = self.of_pixels.map(|kinds| {
            let mut stats = PixelStats::<P::Wide>::default();
            stats::add_within(isa, plane.pixels, &self.usable, (plane.low, plane.high), &mut stats);
            bits(&stats, kinds)
        });
        Ok(())
    }
}

/// The statistics as results of these kinds, whose values are integers or floats.
fn bits<W: Wide>(stats: &PixelStats<W>, kinds: &[ResultKind; PIXEL_RESULTS]) -> [u64; PIXEL_RESULTS] {
    let (min, max) = stats.range().unwrap_or_default();
    let values = [min, max, stats.sum].map(W::to_f64);
    let [min, max, sum] = match kinds[3].number {
        ColumnType::F64 => values.map(f64::to_bits),
        _ if W::IS_FLOAT => values.map(|value| (value as i64).cast_unsigned()),
        _ => [min, max, stats.sum].map(W::bits),
    };
    [stats.valid, stats.missing, stats.saturated, min, max, sum]
}

impl SpotResults {
    /// What follows from the list.
    fn judge(&mut self, geometry: Option<&Geometry>, task: &SpotTask) {
        // Places on the detector begin at the corner of the first pixel, those of spots at its centre.
        let spacing = |x: f64, y: f64| geometry.and_then(|g| g.d_angstrom(x + 0.5, y + 0.5)).unwrap_or(f64::NAN);
        self.d_angstrom.clear();
        self.d_angstrom.extend(self.list.spots.iter().map(|spot| spacing(spot.x_px, spot.y_px)));
        self.is_ice.clear();
        self.is_ice.extend(self.d_angstrom.iter().map(|d| resolution::is_ice(*d)));
        let beside_ice = || self.list.spots.iter().zip(&self.d_angstrom).zip(&self.is_ice).filter(|(_, is_ice)| !**is_ice);
        let snr_and_d = beside_ice().map(|((spot, d), _)| (spot.snr, *d));
        self.shows_salt = self.list.dropped() == 0 && task.salt.hold(snr_and_d, &mut self.sorted);
        self.sorted.clear();
        self.sorted.extend(beside_ice().map(|((_, d), _)| *d));
        self.on_ice = (self.d_angstrom.len() - self.sorted.len()) as u64;
        self.is_hit = self.list.found - self.on_ice >= task.hit_spots_min;
        self.shows_ice = task.ice.hold(self.on_ice, self.d_angstrom.len() as u64);
        self.resolution_angstrom = resolution::estimate(&mut self.sorted);
    }
}

fn finder(
    task: &SpotTask,
    geometry: Option<&Geometry>,
    usable: &[bool],
    [rows, columns]: [usize; 2],
    left_out: &mut Vec<String>,
) -> Result<Finder, String> {
    let [finest, coarsest] = task.d_angstrom;
    let mut usable = usable.to_vec();
    if finest > 0.0 || coarsest < f64::INFINITY {
        match geometry.filter(|geometry| geometry.wavelength_angstrom().is_some()) {
            None => left_out.push("limits of resolution have no effect: they need a geometry and the energy".into()),
            Some(geometry) => {
                let spacings = geometry.map(|x, y| geometry.d_angstrom(x, y).unwrap_or(f64::NAN));
                let limits = finest..=coarsest;
                usable.iter_mut().zip(spacings).for_each(|(usable, d)| *usable &= limits.contains(&d));
            }
        }
    }
    Ok(match (&task.method, geometry) {
        (SpotMethod::Dispersion(settings), _) => {
            Finder::Dispersion(Box::new(Dispersion::new(settings.clone(), &usable, rows, columns)?))
        }
        (SpotMethod::Peakfinder8(settings), Some(geometry)) => {
            let [x0, y0] = geometry.beam_center_px().unwrap_or([f64::NAN; 2]);
            let pixels = (0..rows).flat_map(|row| (0..columns).map(move |column| (column as f64, row as f64)));
            let radius: Vec<f32> = pixels.map(|(x, y)| peakfinder8::crystfel_radius_px(x - x0, y - y0)).collect();
            let whole = [peakfinder8::Panel::whole(rows, columns)];
            Finder::Peakfinder8(Box::new(Peakfinder8::new(*settings, &radius, &usable, rows, columns, &whole)?))
        }
        (SpotMethod::Peakfinder8(_), None) => return Err("peakfinder8 needs a geometry".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: [usize; 2] = [64, 80];

    fn geometry() -> Geometry {
        Geometry::new(SIZE, [-3.0, -2.4, 100.0], [0.075, 0.0, 0.0], [0.0, 0.075, 0.0], Some(1.0)).unwrap()
    }

    fn tasks() -> Tasks {
        let spots = |method| SpotTask { hit_spots_min: 2, ..SpotTask::new(method, 100) };
        Tasks {
            spots: Some(spots(SpotMethod::Peakfinder8(peakfinder8::Settings::default()))),
            azimuthal: Some(azimuthal::Settings { bins: 20, ..azimuthal::Settings::default() }),
            regions: vec![("all".into(), Shape::Box { x0_px: 0.0, y0_px: 0.0, x1_px: 1e3, y1_px: 1e3 })],
            level: Some(50.0),
            keep_above: Some((10, Overflow::Truncate)),
            ..Tasks::default()
        }
    }

    /// Background of 5 and 6 with three spots of four pixels.
    fn image() -> Vec<u16> {
        let mut image: Vec<u16> = (0..SIZE[0] * SIZE[1]).map(|n| 5 + (n * 7919 % 13 % 2) as u16).collect();
        for (x, y) in [(20, 12), (50, 40), (70, 9)] {
            for at in [y * SIZE[1] + x, y * SIZE[1] + x + 1, (y + 1) * SIZE[1] + x, (y + 1) * SIZE[1] + x + 1] {
                image[at] = 400;
            }
        }
        image
    }

    #[test]
    fn everything_that_is_asked_is_answered() {
        let usable = vec![true; SIZE[0] * SIZE[1]];
        let pixels = image();
        let (mut analyser, left_out) = Analyser::new(&tasks(), Some(&geometry()), &usable, SIZE).unwrap();
        let mut results = analyser.results();
        for &isa in Isa::available() {
            analyser.analyse(isa, &Plane::own(&pixels, SIZE[1]), &mut results).unwrap();
            let spots = results.spots.as_ref().unwrap();
            assert_eq!((spots.list.found, spots.list.spots.len(), spots.d_angstrom.len()), (3, 3, 3), "{isa}");
            assert!(spots.is_hit && spots.resolution_angstrom.is_none() && spots.d_angstrom.iter().all(|d| *d > 1.0));
            assert!((spots.list.spots[1].x_px - 20.5).abs() < 1e-9 && (spots.list.spots[1].y_px - 12.5).abs() < 1e-9);
            assert_eq!((results.above, results.regions[0].pixels), (Some(12), pixels.len() as u64));
            let above = results.above_pixels.as_ref().unwrap();
            assert_eq!((above.indices.len(), above.indices[2], above.values[9]), (10, 10 * SIZE[1] as u32 + 70, 400.0));
            assert_eq!(results.profile.as_ref().unwrap().pixels.iter().sum::<f64>(), pixels.len() as f64);
        }
        assert!(left_out.is_empty());
        assert!(analyser.analyse(Isa::Scalar, &Plane::own(&pixels[..800], 80), &mut results).unwrap_err().contains("800 pixels"));
    }

    #[test]
    fn salt_and_ice_are_told_by_the_spots() {
        let usable = vec![true; SIZE[0] * SIZE[1]];
        // At 100 mm and 1 angstrom three pixels from the beam are 444 angstrom; at 2 mm they are 9 to 1.2 angstrom.
        let near = Geometry::new(SIZE, [-3.0, -2.4, 2.0], [0.075, 0.0, 0.0], [0.0, 0.075, 0.0], Some(1.0)).unwrap();
        let look = |geometry: Option<&Geometry>, method: SpotMethod, change: fn(&mut SpotTask)| {
            let mut task = SpotTask::new(method, 100);
            change(&mut task);
            let tasks = Tasks { spots: Some(task), ..Tasks::default() };
            let (mut analyser, _) = Analyser::new(&tasks, geometry, &usable, SIZE).unwrap();
            let mut results = analyser.results();
            analyser.analyse(Isa::detect(), &Plane::own(&image(), SIZE[1]), &mut results).unwrap();
            results.spots.unwrap()
        };
        let (peakfinder8, dispersion) = (
            || SpotMethod::Peakfinder8(peakfinder8::Settings::default()),
            || SpotMethod::Dispersion(dispersion::Settings::default()),
        );
        // Four pixels of 400 on 5.5 with a deviation of 0.5.
        for method in [peakfinder8(), dispersion()] {
            let salt = look(Some(&near), method.clone(), |_| {});
            assert!(
                salt.shows_salt
                    && salt.is_ice == [false, false, true]
                    && salt.on_ice == 1
                    && salt.d_angstrom.iter().all(|d| *d < 10.0),
                "{salt:?}"
            );
            assert!((salt.background.unwrap() - 5.5).abs() < 0.1, "{salt:?}");
            assert!(!look(Some(&geometry()), method.clone(), |_| {}).shows_salt, "reflections of 20 angstrom and more");
            assert!(!look(Some(&near), method.clone(), |task| task.salt.snr_min = 1e6).shows_salt);
            assert!(!look(Some(&near), method.clone(), |task| task.salt.spots_max = 1).shows_salt);
            assert!(!look(Some(&near), method, |task| task.spots_max = 2).shows_salt, "not all spots are known");
        }
        assert!(look(None, dispersion(), |_| {}).shows_salt, "without spacings the other conditions decide");
        let all_ice = |task: &mut SpotTask| task.ice = resolution::IceSettings { spots_min: 1, part_min: 0.3 };
        assert!(look(Some(&near), peakfinder8(), all_ice).shows_ice && !look(Some(&near), peakfinder8(), |_| {}).shows_ice);
    }

    #[test]
    fn without_a_geometry_the_rest_goes_on() {
        let usable = vec![true; SIZE[0] * SIZE[1]];
        let (mut analyser, left_out) = Analyser::new(&tasks(), None, &usable, SIZE).unwrap();
        let mut results = analyser.results();
        analyser.analyse(Isa::detect(), &Plane::own(&image(), SIZE[1]), &mut results).unwrap();
        assert_eq!((left_out.len(), results.spots.is_none(), results.profile.is_none()), (2, true, true));
        assert_eq!(results.above, Some(12));
    }

    #[test]
    fn limits_of_resolution_leave_spots_out() {
        let usable = vec![true; SIZE[0] * SIZE[1]];
        let mut tasks = tasks();
        let method = SpotMethod::Dispersion(dispersion::Settings::default());
        tasks.spots = Some(SpotTask { hit_spots_min: 4, ..SpotTask::new(method, 1) });
        let find = |tasks: &Tasks| {
            let (mut analyser, _) = Analyser::new(tasks, Some(&geometry()), &usable, SIZE).unwrap();
            let mut results = analyser.results();
            analyser.analyse(Isa::detect(), &Plane::own(&image(), SIZE[1]), &mut results).unwrap();
            results.spots.unwrap()
        };
        let all = find(&tasks);
        assert_eq!((all.list.found, all.list.dropped(), all.is_hit), (3, 2, false));
        tasks.spots.as_mut().unwrap().d_angstrom = [100.0, f64::INFINITY];
        let near = find(&tasks);
        assert!(near.list.found < 3 && near.d_angstrom.iter().all(|d| *d >= 99.0), "{near:?}");
    }
}
