//! What reaches the detector, before any electronics: geometry of the modules, background, rings, spots; in photons per
//! pixel.
//!
//! A module is 512 x 1024 raw pixels made of 2 x 4 chips of 256 x 256. The pixels at inner chip borders are twice as
//! wide, so an assembled module covers 514 x 1030 pixel pitches; gaps between assembled modules are 36 pitches
//! vertically and 8 horizontally (PSI's installations). All positions here are in those assembled pitches; module m
//! stands at column m / rows_of_modules of the grid, modules filling a grid column from the top first.

use crate::normal::normal_cdf;
use crate::rng::Rng;
use thiserror::Error;

/// Raw rows of a module.
pub const MODULE_ROWS: usize = 512;
/// Raw columns of a module.
pub const MODULE_COLUMNS: usize = 1024;
/// Raw pixels of a module.
pub const MODULE_PIXELS: usize = MODULE_ROWS * MODULE_COLUMNS;
/// Rows and columns of a chip.
pub const CHIP: usize = 256;
const FULL_ROWS: usize = 514;
const FULL_COLUMNS: usize = 1030;
const GAP_ROWS: usize = 36;
const GAP_COLUMNS: usize = 8;
/// Pixel pitch in millimetres.
pub const PITCH_MM: f64 = 0.075;
/// Energy times wavelength, keV ångström.
const HC: f64 = 12.398_42;
/// Ice rings: spacing in ångström and strength relative to the first (hexagonal ice).
const ICE: [(f64, f64); 6] = [(3.897, 1.0), (3.669, 0.6), (3.441, 0.75), (2.671, 0.3), (2.249, 0.45), (2.072, 0.3)];

/// A model that cannot be built.
#[derive(Debug, Error, PartialEq)]
#[error("the simulated detector cannot be built: {field} is {value}, but must be {expected}; change it in the model")]
pub struct ModelError {
    /// Field of the model.
    pub field: &'static str,
    /// What it was.
    pub value: String,
    /// What it must be.
    pub expected: &'static str,
}

pub(crate) fn require(ok: bool, field: &'static str, value: impl ToString, expected: &'static str) -> Result<(), ModelError> {
    if ok { Ok(()) } else { Err(ModelError { field, value: value.to_string(), expected }) }
}

/// How the crystal diffracts.
#[derive(Clone, Debug, PartialEq)]
pub struct Crystal {
    /// Mean photons of a fully recorded reflection at zero angle.
    pub spot_photons: f64,
    /// Wilson B factor in square ångström.
    pub b_factor: f64,
    /// Mosaic spread (standard deviation) in degrees.
    pub mosaicity_deg: f64,
    /// Rotation during one image in degrees about the detector's horizontal axis; 0 gives stills of one orientation.
    pub oscillation_deg: f64,
    /// Standard deviation of a spot on the detector in pixels.
    pub spot_sigma_px: f64,
    /// Highest resolution computed, ångström.
    pub resolution_angstrom: f64,
}

impl Default for Crystal {
    fn default() -> Self {
        Self {
            spot_photons: 12_000.0,
            b_factor: 20.0,
            mosaicity_deg: 0.1,
            oscillation_deg: 0.2,
            spot_sigma_px: 0.9,
            resolution_angstrom: 1.9,
        }
    }
}

/// The experiment: detector size and place, beam, sample.
#[derive(Clone, Debug, PartialEq)]
pub struct SceneModel {
    /// Modules of 512 x 1024 pixels.
    pub modules: usize,
    /// Modules stacked in one column of the grid; divides `modules`.
    pub modules_down: usize,
    /// Photon energy in keV.
    pub energy_kev: f64,
    /// Distance from sample to detector in millimetres.
    pub distance_mm: f64,
    /// Beam centre (x, y) in assembled pixels.
    pub beam_px: (f64, f64),
    /// Radius of the shadow of the beam stop in millimetres.
    pub beam_stop_mm: f64,
    /// Scale of air scatter and solvent; 1 gives about 1.5 photons per pixel on average.
    pub background: f64,
    /// Height of the strongest ice ring in photons per pixel, 0 for none.
    pub ice: f64,
    /// The crystal, or none for background only.
    pub crystal: Option<Crystal>,
    /// Everything random follows from this.
    pub seed: u64,
}

impl SceneModel {
    /// A plausible experiment at 12.4 keV with this many modules: beam in the centre, 1.9 ångström in the corners.
    pub fn for_modules(modules: usize) -> Self {
        let ideal = (modules.max(1) as f64 / 2.0).sqrt();
        let across = (1..=modules.max(1))
            .filter(|n| modules.is_multiple_of(*n))
            .min_by(|a, b| (*a as f64 - ideal).abs().total_cmp(&(*b as f64 - ideal).abs()))
            .unwrap_or(1);
        let modules_down = (modules / across).max(1);
        let (width, height) = assembled_size(across, modules_down);
        let (x, y) = (width as f64 / 2.0, height as f64 / 2.0);
        let energy_kev = 12.4;
        let two_theta = 2.0 * (HC / energy_kev / (2.0 * 1.9)).asin();
        Self {
            modules,
            modules_down,
            energy_kev,
            distance_mm: (x.hypot(y) * PITCH_MM / two_theta.tan()).round(),
            // Off the module gaps, as installations do it.
            beam_px: (x + 13.3, y + 41.7),
            beam_stop_mm: 2.0,
            background: 1.0,
            ice: 0.0,
            crystal: Some(Crystal::default()),
            seed: 1,
        }
    }
}

/// Columns and rows of the assembled detector.
fn assembled_size(across: usize, down: usize) -> (usize, usize) {
    (across * (FULL_COLUMNS + GAP_COLUMNS) - GAP_COLUMNS, down * (FULL_ROWS + GAP_ROWS) - GAP_ROWS)
}

/// A reflection on the detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spot {
    /// Miller indices.
    pub hkl: [i16; 3],
    /// Assembled column of the centre; the middle of the first pixel is 0.5.
    pub x: f64,
    /// Assembled row of the centre.
    pub y: f64,
    /// Expected photons of the whole spot.
    pub photons: f64,
    /// Standard deviation in pixels.
    pub sigma_px: f64,
}

/// The static part of the scene.
pub struct Scene {
    model: SceneModel,
}

impl Scene {
    /// Checks the model.
    pub fn new(model: &SceneModel) -> Result<Self, ModelError> {
        let (modules, down) = (model.modules, model.modules_down);
        require((1..=256).contains(&modules), "modules", modules, "1 to 256")?;
        require(down > 0 && modules.is_multiple_of(down), "modules_down", down, "a divisor of the number of modules")?;
        require(model.energy_kev > 0.0 && model.energy_kev < 1000.0, "energy_kev", model.energy_kev, "above 0 and below 1000")?;
        require(model.distance_mm > 0.0, "distance_mm", model.distance_mm, "positive")?;
        require(
            model.background >= 0.0 && model.ice >= 0.0,
            "background or ice",
            model.background.min(model.ice),
            "not negative",
        )?;
        if let Some(crystal) = &model.crystal {
            require(crystal.resolution_angstrom >= 0.8, "resolution_angstrom", crystal.resolution_angstrom, "0.8 or more")?;
            require(crystal.spot_sigma_px > 0.0, "spot_sigma_px", crystal.spot_sigma_px, "positive")?;
            require(crystal.mosaicity_deg >= 0.0, "mosaicity_deg", crystal.mosaicity_deg, "not negative")?;
        }
        Ok(Self { model: model.clone() })
    }

    /// The model this was made from.
    pub fn model(&self) -> &SceneModel {
        &self.model
    }

    /// Wavelength in ångström.
    pub fn wavelength_angstrom(&self) -> f64 {
        HC / self.model.energy_kev
    }

    /// Assembled (columns, rows) of the detector.
    pub fn assembled(&self) -> (usize, usize) {
        assembled_size(self.model.modules / self.model.modules_down, self.model.modules_down)
    }

    /// Assembled (column, row) of the first pixel of a module.
    pub fn module_origin(&self, module: usize) -> (usize, usize) {
        let (column, row) = (module / self.model.modules_down, module % self.model.modules_down);
        (column * (FULL_COLUMNS + GAP_COLUMNS), row * (FULL_ROWS + GAP_ROWS))
    }

    /// Where the ray along `s` meets the detector, in assembled pixels (the detector is normal to the beam and
    /// unbounded).
    pub(crate) fn detector_point(&self, s: [f64; 3]) -> Option<(f64, f64)> {
        if s[2] <= 0.0 {
            return None;
        }
        let scale = self.model.distance_mm / PITCH_MM / s[2];
        Some((self.model.beam_px.0 + scale * s[0], self.model.beam_px.1 + scale * s[1]))
    }

    /// 1/d in 1/ångström of a position in assembled pixels.
    pub fn inverse_resolution(&self, x: f64, y: f64) -> f64 {
        let radius_mm = (x - self.model.beam_px.0).hypot(y - self.model.beam_px.1) * PITCH_MM;
        2.0 * (0.5 * (radius_mm / self.model.distance_mm).atan()).sin() / self.wavelength_angstrom()
    }

    /// Expected background photons of one pixel pitch at a radius from the beam: air scatter, solvent and ice rings.
    fn background_at(&self, radius_mm: f64) -> f64 {
        let two_theta = (radius_mm / self.model.distance_mm).atan();
        let s = 2.0 * (0.5 * two_theta).sin() / self.wavelength_angstrom();
        let peak = |centre: f64, width: f64| (-0.5 * ((s - centre) / width).powi(2)).exp();
        let air = 6.0 * (-radius_mm / 12.0).exp() + 0.35;
        let solvent = 2.2 * peak(1.0 / 3.3, 0.055) + 0.5 * peak(1.0 / 2.1, 0.06);
        let ice: f64 = ICE.iter().map(|&(d, strength)| strength * peak(1.0 / d, 0.0011)).sum();
        let photons = self.model.background * (air + solvent) + self.model.ice * ice;
        let shadow = if radius_mm < self.model.beam_stop_mm { 0.03 } else { 1.0 };
        shadow * photons * two_theta.cos().powi(3)
    }

    /// Expected background photons of every raw pixel of a module (512 x 1024, row-major); border pixels gather their
    /// whole area.
    pub fn background(&self, module: usize) -> Vec<f32> {
        // The profile is tabulated in steps of a tenth of a pixel: the rings are many pixels wide.
        let (x0, y0) = self.module_origin(module);
        let corner = |x: f64, y: f64| (x - self.model.beam_px.0).hypot(y - self.model.beam_px.1);
        let (x1, y1) = ((x0 + FULL_COLUMNS) as f64, (y0 + FULL_ROWS) as f64);
        let (x0f, y0f) = (x0 as f64, y0 as f64);
        let far = corner(x0f, y0f).max(corner(x1, y0f)).max(corner(x0f, y1)).max(corner(x1, y1));
        let table: Vec<f64> = (0..=(far * 10.0) as usize + 1).map(|i| self.background_at(i as f64 * 0.1 * PITCH_MM)).collect();
        let mut plane = vec![0.0f32; MODULE_PIXELS];
        for y in 0..FULL_ROWS {
            for x in 0..FULL_COLUMNS {
                let radius = corner((x0 + x) as f64 + 0.5, (y0 + y) as f64 + 0.5);
                plane[raw_index(y) * MODULE_COLUMNS + raw_index(x)] += table[(radius * 10.0).round() as usize] as f32;
            }
        }
        plane
    }

    /// Adds the spots that touch a module to its plane of expected photons.
    pub fn add_spots(&self, module: usize, spots: &[Spot], plane: &mut [f32]) {
        let (x0, y0) = self.module_origin(module);
        for spot in spots {
            let reach = 5.0 * spot.sigma_px + 1.0;
            let (cx, cy) = (spot.x - x0 as f64, spot.y - y0 as f64);
            if cx < -reach || cy < -reach || cx > FULL_COLUMNS as f64 + reach || cy > FULL_ROWS as f64 + reach {
                continue;
            }
            let span = |c: f64, end: usize| (c - reach).max(0.0) as usize..((c + reach).max(0.0).ceil() as usize).min(end);
            let share = |pixel: usize, c: f64| {
                let left = (pixel as f64 - c) / spot.sigma_px;
                normal_cdf(left + 1.0 / spot.sigma_px) - normal_cdf(left)
            };
            let columns: Vec<(usize, f64)> = span(cx, FULL_COLUMNS).map(|x| (raw_index(x), share(x, cx))).collect();
            for y in span(cy, FULL_ROWS) {
                let photons = spot.photons * share(y, cy);
                let row = raw_index(y) * MODULE_COLUMNS;
                for &(column, weight) in &columns {
                    plane[row + column] += (photons * weight) as f32;
                }
            }
        }
    }
}

/// Raw row or column that owns an assembled one: chips are 258 pitches apart, and of the two pitches between them the
/// first belongs to the chip before and the second to the chip after.
fn raw_index(position: usize) -> usize {
    let (chip, inside) = (position / (CHIP + 2), position % (CHIP + 2));
    if inside > CHIP { (chip + 1) * CHIP } else { chip * CHIP + inside.min(CHIP - 1) }
}

/// Poisson photons for a plane of means.
pub(crate) fn sample_photons(means: &[f32], rng: &mut Rng, photons: &mut [u32]) {
    for (count, &mean) in photons.iter_mut().zip(means) {
        *count = rng.poisson(f64::from(mean));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn border_pixels_own_two_pitches_and_all_others_one() {
        for (chips, length) in [(4usize, FULL_COLUMNS), (2, FULL_ROWS)] {
            let mut owned = vec![0; chips * CHIP];
            let mut last = 0;
            for position in 0..length {
                let raw = raw_index(position);
                assert!(raw == last || raw == last + 1, "{position}: {last} then {raw}");
                last = raw;
                owned[raw] += 1;
            }
            for (raw, &pitches) in owned.iter().enumerate() {
                let inner = (raw % CHIP == 0 && raw > 0) || (raw % CHIP == CHIP - 1 && raw + 1 < chips * CHIP);
                assert_eq!(pitches, if inner { 2 } else { 1 }, "raw {raw}");
            }
        }
    }

    #[test]
    fn a_spot_keeps_its_photons() {
        let mut model = SceneModel::for_modules(1);
        model.crystal = None;
        let scene = Scene::new(&model).expect("valid");
        for (x, y, whole) in [(100.4, 200.9, 1.0), (256.9, 257.2, 1.0), (0.0, 100.0, 0.5), (1030.0, 514.0, 0.25)] {
            let mut plane = vec![0.0; MODULE_PIXELS];
            scene.add_spots(0, &[Spot { hkl: [1, 2, 3], x, y, photons: 1000.0, sigma_px: 1.1 }], &mut plane);
            let sum: f32 = plane.iter().sum();
            assert!((sum - 1000.0 * whole).abs() < 0.01, "({x}, {y}): {sum}");
        }
    }

    #[test]
    fn ice_rings_stand_at_their_spacings() {
        let mut model = SceneModel::for_modules(1);
        (model.background, model.ice) = (0.0, 10.0);
        let scene = Scene::new(&model).expect("valid");
        for (d, strength) in ICE {
            let two_theta = 2.0 * (scene.wavelength_angstrom() / (2.0 * d)).asin();
            let radius = model.distance_mm * two_theta.tan();
            assert!((1.0 / scene.inverse_resolution(model.beam_px.0 + radius / PITCH_MM, model.beam_px.1) - d).abs() < 1e-9);
            let expected = 10.0 * strength * two_theta.cos().powi(3);
            assert!((scene.background_at(radius) - expected).abs() < 1e-6 * expected, "{d}");
            assert!(scene.background_at(radius + 2.0) < 0.2 * expected, "{d}");
        }
    }

    #[test]
    fn grid_of_modules() {
        let grid = |n| {
            let m = SceneModel::for_modules(n);
            (m.modules / m.modules_down, m.modules_down)
        };
        assert_eq!([1, 2, 8, 20, 32].map(grid), [(1, 1), (1, 2), (2, 4), (4, 5), (4, 8)]);
        let scene = Scene::new(&SceneModel::for_modules(8)).expect("valid");
        assert_eq!(scene.assembled(), (2068, 2164));
        assert_eq!(scene.module_origin(5), (1038, 550));
    }

    #[test]
    fn impossible_models_say_what_to_change() {
        let mut model = SceneModel::for_modules(8);
        model.modules_down = 3;
        let text = Scene::new(&model).err().expect("refused").to_string();
        assert!(text.contains("modules_down is 3") && text.contains("change it"), "{text}");
        model = SceneModel::for_modules(0);
        assert!(Scene::new(&model).is_err());
    }
}
