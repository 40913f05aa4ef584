//! A JUNGFRAU detector: charge integration with three gains per pixel. Everything that it does is known exactly.
//!
//! Figures: gains and pedestals as a real module at PSI has them; 83 electrons of noise at 10 microseconds, 200 at 840;
//! 3.6 eV make one electron in silicon, so a 12.4 keV photon makes about 3500 (Leonarski et al. 2020).

use crate::rng::Rng;
use crate::scene::{self, MODULE_COLUMNS, MODULE_PIXELS, MODULE_ROWS, ModelError, PITCH_MM, Scene, SceneModel, Spot};

/// Gain bits of stage 0, 1 and 2.
const STAGE_BITS: [u16; 3] = [0x0000, 0x4000, 0xC000];
/// Highest ADC value.
const ADC_MAX: f32 = 16383.0;
/// Energy of one electron-hole pair in silicon, keV.
const PAIR_KEV: f64 = 3.6e-3;
/// Typical gains in ADU/keV and pedestals in ADU, with their relative and absolute spread over the pixels.
const GAIN: [(f64, f64); 3] = [(41.0, 0.025), (-1.439, 0.02), (-0.1145, 0.02)];
const PEDESTAL: [(f64, f64); 3] = [(3000.0, 250.0), (15000.0, 120.0), (15000.0, 120.0)];
/// Noise of the two low gains in ADU; below a quarter of the Poisson noise wherever they are used.
const NOISE_LOW_GAIN_ADU: [f32; 2] = [4.0, 3.0];
/// ADC value above which G0 gives way to G1, and below which G1 gives way to G2, with their spread over the pixels.
const SWITCH_G0: (f64, f64) = (15_600.0, 150.0);
const SWITCH_G1: (f64, f64) = (1_500.0, 150.0);
/// A noisy pixel has this many times the noise.
const NOISY_FACTOR: f32 = 40.0;
/// HG0 has this many times the gain of G0, this many times its noise in ADU, and its pedestals lie this far from those
/// of G0.
const HIGH_GAIN: f64 = 2.4;
const HIGH_GAIN_NOISE: f32 = 1.7;
const HIGH_GAIN_PEDESTAL_ADU: f32 = -180.0;
/// Spread of the pedestals over the storage cells, as a whole and by pixel.
const CELL_SPREAD_ADU: f64 = 30.0;
/// Charge sharing draws each photon's place up to this many photons in a pixel; above, the mean share is exact enough.
const SHARING_DRAWS_MAX: u32 = 16;

/// How the pedestals drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriftShape {
    /// Towards its limit, with the time constant `drift_images`.
    #[default]
    Exponential,
    /// Evenly, until the limit is reached at image `drift_images`.
    Linear,
}

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct JungfrauModel {
    /// Geometry, beam and sample; also the seed.
    pub scene: SceneModel,
    /// Exposure of one image in microseconds; decides the noise.
    pub exposure_us: f64,
    /// The pedestals of G0 rise by up to this many ADU (at most 100), as leakage current does: those of G1 and G2 move
    /// by the same charge ...
    pub drift_adu: f64,
    /// ... within this many images ...
    pub drift_images: f64,
    /// ... in this way.
    pub drift_shape: DriftShape,
    /// Storage cells that take turns from image to image, 1 to 16; each has pedestals of its own.
    pub storage_cells: u8,
    /// Dead pixels per million: their word is always 0.
    pub dead_ppm: f64,
    /// Noisy pixels per million.
    pub noisy_ppm: f64,
    /// Standard deviation of the charge cloud in micrometres; 0 keeps all charge of a photon in its pixel, 8 to 10 is
    /// realistic.
    pub charge_cloud_um: f64,
}

impl JungfrauModel {
    /// Defaults for this many modules: 12.4 keV, 840 microseconds, no drift, 100 dead and 50 noisy pixels per million,
    /// no charge sharing.
    pub fn for_modules(modules: usize) -> Self {
        Self {
            scene: SceneModel::for_modules(modules),
            exposure_us: 840.0,
            drift_adu: 0.0,
            drift_images: 1000.0,
            drift_shape: DriftShape::Exponential,
            storage_cells: 1,
            dead_ppm: 100.0,
            noisy_ppm: 50.0,
            charge_cloud_um: 0.0,
        }
    }
}

impl JungfrauModel {
    /// What the pedestals of G0 have risen by at an image, in ADU.
    pub fn drift_adu(&self, image: u64) -> f64 {
        let turn = image as f64 / self.drift_images;
        self.drift_adu
            * match self.drift_shape {
                DriftShape::Exponential => 1.0 - (-turn).exp(),
                DriftShape::Linear => turn.min(1.0),
            }
    }
}

/// Noise in electrons RMS at an exposure: linear in the exposure between the two published points, and beyond them.
pub fn noise_electrons(exposure_us: f64) -> f64 {
    83.0 + (exposure_us - 10.0) * (200.0 - 83.0) / 830.0
}

/// What is wrong with a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKind {
    /// Always word 0.
    Dead,
    /// Forty times the noise.
    Noisy,
}

/// A pixel that does not measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPixel {
    /// Index into the raw image (module, row, column; row-major).
    pub pixel: usize,
    /// Fault.
    pub kind: BadKind,
}

/// One simulated image with its truth.
#[derive(Clone, Debug, PartialEq)]
pub struct JungfrauImage {
    /// Raw words, (modules, 512, 1024) row-major.
    pub raw: Vec<u16>,
    /// Photons absorbed in each pixel, same shape. A border pixel holds what its double area absorbed.
    pub photons: Vec<u32>,
}

/// The detector. All methods take `&self` and are pure functions of the model and their arguments, so modules may run
/// in parallel.
pub struct SyntheticJungfrau {
    model: JungfrauModel,
    scene: Scene,
    lattice: Option<crate::lattice::Lattice>,
    /// Three stages, each (modules, 512, 1024).
    pedestals: Vec<f32>,
    gains: Vec<f32>,
    switch_g0: Vec<u16>,
    switch_g1: Vec<u16>,
    background: Vec<f32>,
    /// What the pedestals of G0 in each storage cell differ by: (cells, modules, 512, 1024); empty with one cell.
    cell_offsets: Vec<f32>,
    bad: Vec<BadPixel>,
}

impl SyntheticJungfrau {
    /// Draws the pixels' constants and computes everything that does not change from image to image.
    ///
    /// # Errors
    /// [`ModelError`] names the field that cannot be.
    pub fn new(model: &JungfrauModel) -> Result<Self, ModelError> {
        scene::require(model.exposure_us > 0.0, "exposure_us", model.exposure_us, "positive")?;
        scene::require((0.0..=100.0).contains(&model.drift_adu), "drift_adu", model.drift_adu, "0 to 100")?;
        scene::require(model.drift_images > 0.0, "drift_images", model.drift_images, "positive")?;
        scene::require(model.dead_ppm >= 0.0 && model.noisy_ppm >= 0.0, "dead_ppm or noisy_ppm", "negative", "not negative")?;
        scene::require((0.0..=20.0).contains(&model.charge_cloud_um), "charge_cloud_um", model.charge_cloud_um, "0 to 20")?;
        let cells = model.storage_cells;
        scene::require((1..=16).contains(&cells), "storage_cells", cells, "1 to 16")?;
        let scene = Scene::new(&model.scene)?;
        let lattice = model.scene.crystal.as_ref().map(|c| crate::lattice::Lattice::new(c, model.scene.seed));
        let modules = model.scene.modules;
        let pixels = modules * MODULE_PIXELS;
        let mut detector = Self {
            model: model.clone(),
            lattice,
            pedestals: vec![0.0; 3 * pixels],
            gains: vec![0.0; 3 * pixels],
            switch_g0: vec![0; pixels],
            switch_g1: vec![0; pixels],
            background: (0..modules).flat_map(|m| scene.background(m)).collect(),
            cell_offsets: Vec::new(),
            bad: Vec::new(),
            scene,
        };
        (0..modules).for_each(|module| detector.draw_constants(module));
        detector.draw_cells();
        Ok(detector)
    }

    fn draw_constants(&mut self, module: usize) {
        let mut rng = Rng::keyed(self.model.scene.seed, &[0x6361_6c69, module as u64]);
        let pixels = self.pixels();
        let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
        for stage in 0..3 {
            // A module as a whole differs from its neighbours, and its pixels from each other.
            let module_shift = 0.5 * rng.normal();
            for pixel in range.clone() {
                let (gain, gain_spread) = GAIN[stage];
                let (pedestal, pedestal_spread) = PEDESTAL[stage];
                self.gains[stage * pixels + pixel] = (gain * (1.0 + gain_spread * spread(&mut rng))) as f32;
                self.pedestals[stage * pixels + pixel] = (pedestal + pedestal_spread * (module_shift + spread(&mut rng))) as f32;
            }
        }
        for pixel in range {
            self.switch_g0[pixel] = (SWITCH_G0.0 + SWITCH_G0.1 * spread(&mut rng)) as u16;
            self.switch_g1[pixel] = (SWITCH_G1.0 + SWITCH_G1.1 * spread(&mut rng)) as u16;
            let draw = rng.uniform() * 1e6;
            if draw < self.model.dead_ppm {
                self.bad.push(BadPixel { pixel, kind: BadKind::Dead });
            } else if draw < self.model.dead_ppm + self.model.noisy_ppm {
                self.bad.push(BadPixel { pixel, kind: BadKind::Noisy });
            }
        }
    }

    fn draw_cells(&mut self) {
        let cells = self.model.storage_cells;
        for cell in 0..if cells == 1 { 0 } else { cells } {
            let mut rng = Rng::keyed(self.model.scene.seed, &[0x6365_6c6c, u64::from(cell)]);
            let shift = CELL_SPREAD_ADU * spread(&mut rng);
            let pixels = self.pixels();
            self.cell_offsets.extend((0..pixels).map(|_| (shift + CELL_SPREAD_ADU * spread(&mut rng)) as f32));
        }
    }

    /// Storage cell of an image: they take turns; with one cell it is the one that the headers of [`crate::packet`]
    /// name.
    pub fn storage_cell(&self, image: u64) -> u8 {
        crate::packet::storage_cell(self.model.storage_cells, image)
    }

    fn cell_offset(&self, cell: u8, stage: usize, pixel: usize) -> f32 {
        // All stages sample the same charge of the cell's capacitor, so the low gains see less of it.
        let scale = [1.0, 0.1, 0.1, HIGH_GAIN as f32][stage];
        self.cell_offsets.get(usize::from(cell) * self.pixels() + pixel).map_or(0.0, |offset| offset * scale)
    }

    /// True pedestals in ADU of a stage (0, 1, 2, or 3 for HG0) in a storage cell before any drift: (modules, 512,
    /// 1024).
    ///
    /// # Panics
    /// When there is no such stage.
    pub fn pedestal_plane(&self, stage: usize, cell: u8) -> Vec<f32> {
        assert!(stage < 4, "stages are 0 to 2, and 3 for HG0");
        let pixels = self.pixels();
        let (plane, base) = if stage == 3 { (0, HIGH_GAIN_PEDESTAL_ADU) } else { (stage, 0.0) };
        let of = |pixel: usize| self.pedestals[plane * pixels + pixel] + base + self.cell_offset(cell, stage, pixel);
        (0..pixels).map(of).collect()
    }

    /// True gains of HG0 in ADU/keV: (modules, 512, 1024).
    pub fn high_gains(&self) -> Vec<f32> {
        self.gains[..self.pixels()].iter().map(|gain| gain * HIGH_GAIN as f32).collect()
    }

    /// The model this was made from.
    pub fn model(&self) -> &JungfrauModel {
        &self.model
    }

    /// Geometry and expected photons.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Pixels of the whole detector.
    pub fn pixels(&self) -> usize {
        self.model.scene.modules * MODULE_PIXELS
    }

    /// True pedestals in ADU before any drift: three planes (G0, G1, G2) of (modules, 512, 1024).
    pub fn pedestals(&self) -> &[f32] {
        &self.pedestals
    }

    /// True gains in ADU/keV: three planes (G0, G1, G2; the last two negative) of (modules, 512, 1024).
    pub fn gains(&self) -> &[f32] {
        &self.gains
    }

    /// Pixels that do not measure, by ascending pixel.
    pub fn bad_pixels(&self) -> &[BadPixel] {
        &self.bad
    }

    /// What the pedestals of G0 have risen by at an image, in ADU.
    pub fn drift_adu(&self, image: u64) -> f64 {
        self.model.drift_adu(image)
    }

    /// RMS noise of a good pixel in a stage (3 = HG0), in ADU (for the typical gain in G0).
    pub fn noise_adu(&self, stage: usize) -> f32 {
        match stage {
            0 => (noise_electrons(self.model.exposure_us) * PAIR_KEV * GAIN[0].0) as f32,
            3 => self.noise_adu(0) * HIGH_GAIN_NOISE,
            _ => NOISE_LOW_GAIN_ADU[stage - 1],
        }
    }

    /// The reflections of an image, wherever they fall.
    pub fn spots(&self, image: u64) -> Vec<Spot> {
        self.lattice.as_ref().map_or_else(Vec::new, |lattice| lattice.spots(image, &self.scene))
    }

    /// Expected photons of every pixel of one module (512 x 1024).
    pub fn expected_photons(&self, module: usize, spots: &[Spot]) -> Vec<f32> {
        let mut means = self.background[module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS].to_vec();
        self.scene.add_spots(module, spots, &mut means);
        means
    }

    /// One image of all modules. Image numbers start at 0.
    pub fn image(&self, image: u64) -> JungfrauImage {
        let mut result = JungfrauImage { raw: vec![0; self.pixels()], photons: vec![0; self.pixels()] };
        let spots = self.spots(image);
        for module in 0..self.model.scene.modules {
            let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
            self.module_into(image, module, &spots, &mut result.raw[range.clone()], &mut result.photons[range]);
        }
        result
    }

    /// One module of one image into buffers of 512 x 1024; `spots` are those of [`Self::spots`] for this image.
    ///
    /// # Panics
    /// When a buffer has another length.
    pub fn module_into(&self, image: u64, module: usize, spots: &[Spot], raw: &mut [u16], photons: &mut [u32]) {
        assert!(raw.len() == MODULE_PIXELS && photons.len() == MODULE_PIXELS, "a module has 512 x 1024 pixels");
        let mut means = self.expected_photons(module, spots);
        let mut rng = Rng::keyed(self.model.scene.seed, &[0x7068_6f74, image, module as u64]);
        scene::sample_photons(&means, &mut rng, photons);
        if self.model.charge_cloud_um > 0.0 {
            share_charge(photons, self.model.charge_cloud_um / (1000.0 * PITCH_MM), &mut rng, &mut means);
        } else {
            means.iter_mut().zip(photons.iter()).for_each(|(charge, &n)| *charge = n as f32);
        }
        self.digitise(image, module, &means, raw);
    }

    /// Raw words (512 x 1024) for given charge in photons per pixel: noise, gain switching, saturation, bad pixels,
    /// drift.
    ///
    /// # Panics
    /// When a buffer has another length.
    pub fn digitise(&self, image: u64, module: usize, charge_photons: &[f32], raw: &mut [u16]) {
        assert!(raw.len() == MODULE_PIXELS && charge_photons.len() == MODULE_PIXELS, "a module has 512 x 1024 pixels");
        let mut rng = Rng::keyed(self.model.scene.seed, &[0x6164_6331, image, module as u64]);
        let drift = self.drift_adu(image) as f32;
        let energy = self.model.scene.energy_kev as f32;
        let noise = self.noise_adu(0);
        let (pixels, first) = (self.pixels(), module * MODULE_PIXELS);
        let plane = first..first + MODULE_PIXELS;
        let cell = self.storage_cell(image);
        let constants = self.pedestals[plane.clone()].iter().zip(&self.gains[plane.clone()]).zip(&self.switch_g0[plane]);
        for (i, ((word, &charge), ((&pedestal, &gain), &switch))) in raw.iter_mut().zip(charge_photons).zip(constants).enumerate()
        {
            let kev = charge * energy;
            let pedestal = pedestal + self.cell_offset(cell, 0, first + i);
            let adc = pedestal + drift + gain * kev + noise * rng.normal() as f32;
            *word = if adc <= f32::from(switch) {
                adc.round_ties_even().max(0.0) as u16
            } else {
                self.low_gain_word(first + i, pixels, kev, drift, cell, &mut rng)
            };
        }
        self.damage(module, charge_photons, drift, cell, &mut rng, raw);
    }

    /// The word of a pixel that has left G0.
    fn low_gain_word(&self, pixel: usize, pixels: usize, kev: f32, drift: f32, cell: u8, rng: &mut Rng) -> u16 {
        let mut adc = |stage: usize| {
            let at = stage * pixels + pixel;
            let pedestal = self.pedestals[at] + self.cell_offset(cell, stage, pixel) + drift * drift_share(stage);
            pedestal + self.gains[at] * kev + self.noise_adu(stage) * rng.normal() as f32
        };
        let g1 = adc(1);
        let (value, bits) = if g1 >= f32::from(self.switch_g1[pixel]) { (g1, STAGE_BITS[1]) } else { (adc(2), STAGE_BITS[2]) };
        // A G2 value at the lower end gives 0xC000, the word for saturated; the upper end stays below 0xFFFF, the word
        // for padding.
        value.round_ties_even().clamp(0.0, ADC_MAX - 1.0) as u16 | bits
    }

    fn damage(&self, module: usize, charge_photons: &[f32], drift: f32, cell: u8, rng: &mut Rng, raw: &mut [u16]) {
        let first = module * MODULE_PIXELS;
        let start = self.bad.partition_point(|b| b.pixel < first);
        for bad in self.bad[start..].iter().take_while(|b| b.pixel < first + MODULE_PIXELS) {
            raw[bad.pixel - first] = match bad.kind {
                BadKind::Dead => 0,
                BadKind::Noisy => {
                    let signal = self.gains[bad.pixel] * charge_photons[bad.pixel - first] * self.model.scene.energy_kev as f32;
                    let noise = NOISY_FACTOR * self.noise_adu(0) * rng.normal() as f32;
                    let pedestal = self.pedestals[bad.pixel] + self.cell_offset(cell, 0, bad.pixel);
                    (pedestal + drift + signal + noise).round_ties_even().clamp(0.0, ADC_MAX) as u16
                }
            };
        }
    }

    /// One module of a dark image with the gain forced to a stage (0, 1, 2, or 3 for HG0), as pedestals are taken.
    ///
    /// # Panics
    /// When `stage` is above 3 or the buffer is not 512 x 1024.
    pub fn dark_into(&self, image: u64, module: usize, stage: usize, raw: &mut [u16]) {
        assert!(stage < 4 && raw.len() == MODULE_PIXELS, "a module has 512 x 1024 pixels and four stages");
        let mut rng = Rng::keyed(self.model.scene.seed, &[0x6461_726b, image, module as u64, stage as u64]);
        let drift = self.drift_adu(image) as f32;
        let noise = self.noise_adu(stage);
        let (plane, bits, base) = if stage == 3 {
            (0, 0, HIGH_GAIN_PEDESTAL_ADU)
        } else {
            (stage, STAGE_BITS[stage], drift * (drift_share(stage) - 1.0))
        };
        let (cell, first) = (self.storage_cell(image), module * MODULE_PIXELS);
        let at = plane * self.pixels() + first;
        for (i, (word, pedestal)) in raw.iter_mut().zip(&self.pedestals[at..at + MODULE_PIXELS]).enumerate() {
            let offset = self.cell_offset(cell, stage, first + i) + base;
            let adc = pedestal + offset + drift + noise * rng.normal() as f32;
            *word = adc.round_ties_even().clamp(0.0, ADC_MAX - 1.0) as u16 | bits;
        }
        if bits == 0 {
            self.damage(module, &vec![0.0; MODULE_PIXELS], drift, cell, &mut rng, raw);
        }
    }

    /// Lets stray photons (one each in pixels of G0) fall on a dark image of a module: `mean` per pixel, as from a
    /// source nearby.
    ///
    /// # Panics
    /// When the buffer is not 512 x 1024.
    pub fn add_stray_photons(&self, image: u64, module: usize, mean: f64, raw: &mut [u16]) {
        assert!(raw.len() == MODULE_PIXELS, "a module has 512 x 1024 pixels");
        let mut rng = Rng::keyed(self.model.scene.seed, &[0x7374_7261, image, module as u64]);
        let photons = rng.poisson(mean * MODULE_PIXELS as f64);
        for _ in 0..photons {
            let pixel = rng.below(MODULE_PIXELS as u64) as usize;
            let charge = self.gains[module * MODULE_PIXELS + pixel] * self.model.scene.energy_kev as f32;
            if raw[pixel] >> 14 == 0 && raw[pixel] > 0 {
                raw[pixel] = (f32::from(raw[pixel]) + charge).round_ties_even().min(ADC_MAX) as u16;
            }
        }
    }

    /// Single photons that hit the junction of four pixels, every `pitch` rows and columns: each pixel of the 2 x 2
    /// group takes a quarter of the charge, so rounding to whole photons loses the photon. Fills `raw` and returns the
    /// top left pixels of the groups.
    ///
    /// # Panics
    /// When `pitch` is below 3 (the groups would touch) or the buffer is not 512 x 1024.
    pub fn junctions_into(&self, image: u64, module: usize, pitch: usize, raw: &mut [u16]) -> Vec<usize> {
        assert!(pitch >= 3, "groups of 2 x 2 need a pitch of 3 or more");
        let mut charge = vec![0.0f32; MODULE_PIXELS];
        let mut groups = Vec::new();
        for row in (0..MODULE_ROWS - 1).step_by(pitch) {
            for column in (0..MODULE_COLUMNS - 1).step_by(pitch) {
                let pixel = row * MODULE_COLUMNS + column;
                [0, 1, MODULE_COLUMNS, MODULE_COLUMNS + 1].iter().for_each(|step| charge[pixel + step] = 0.25);
                groups.push(pixel);
            }
        }
        self.digitise(image, module, &charge, raw);
        groups
    }

    /// The calibration as little-endian f32 planes without headers, by file name: three pedestal files of (modules,
    /// 512, 1024) in ADU and one of three gain planes in ADU/keV. With `mask_bad`, bad pixels have the G0 pedestal
    /// 16383 that marks a pixel as unusable.
    pub fn calibration_files(&self, mask_bad: bool) -> [(&'static str, Vec<u8>); 4] {
        let mut pedestals = self.pedestals.clone();
        if mask_bad {
            self.bad.iter().for_each(|b| pedestals[b.pixel] = ADC_MAX);
        }
        let pixels = self.pixels();
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        [
            ("pedestal_g0.f32", bytes(&pedestals[..pixels])),
            ("pedestal_g1.f32", bytes(&pedestals[pixels..2 * pixels])),
            ("pedestal_g2.f32", bytes(&pedestals[2 * pixels..])),
            ("gain_adu_per_kev.f32", bytes(&self.gains)),
        ]
    }
}

/// The part of G0's drift that a stage sees: the same charge through another gain.
fn drift_share(stage: usize) -> f32 {
    if stage == 0 { 1.0 } else { (GAIN[stage].0 / GAIN[0].0) as f32 }
}

/// Raw words as bytes on the wire: little-endian. Tile t of the stream layout is the t-th of equal parts of the result.
pub fn raw_bytes(raw: &[u16]) -> Vec<u8> {
    raw.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A normal variate kept within four standard deviations, so that no pixel has an impossible constant.
fn spread(rng: &mut Rng) -> f64 {
    rng.normal().clamp(-4.0, 4.0)
}

/// Spreads the charge of photons over the neighbours by a Gaussian cloud (`sigma` in pixels); border pixels count as
/// ordinary ones. Charge that would leave the module is lost, as at a sensor's edge.
fn share_charge(photons: &[u32], sigma: f64, rng: &mut Rng, charge: &mut [f32]) {
    charge.fill(0.0);
    // Share that crosses one edge, averaged over the pixel: the integral of the tail.
    let mean_tail = sigma / std::f64::consts::TAU.sqrt();
    for (pixel, &count) in photons.iter().enumerate() {
        if count > SHARING_DRAWS_MAX {
            let axis = [mean_tail, 1.0 - 2.0 * mean_tail, mean_tail];
            deposit(pixel, axis, axis, f64::from(count), charge);
            continue;
        }
        for _ in 0..count {
            let (x, y) = (rng.uniform(), rng.uniform());
            let near = |v: f64| v < 4.0 * sigma || v > 1.0 - 4.0 * sigma;
            if !near(x) && !near(y) {
                charge[pixel] += 1.0;
                continue;
            }
            let axis = |v: f64| {
                let (before, after) = (crate::normal::normal_cdf(-v / sigma), crate::normal::normal_cdf((v - 1.0) / sigma));
                [before, 1.0 - before - after, after]
            };
            deposit(pixel, axis(x), axis(y), 1.0, charge);
        }
    }
}

fn deposit(pixel: usize, across: [f64; 3], down: [f64; 3], photons: f64, charge: &mut [f32]) {
    let (row, column) = (pixel / MODULE_COLUMNS, pixel % MODULE_COLUMNS);
    for (dy, share_y) in down.into_iter().enumerate() {
        for (dx, share_x) in across.into_iter().enumerate() {
            let (y, x) = ((row + dy).wrapping_sub(1), (column + dx).wrapping_sub(1));
            if y < MODULE_ROWS && x < MODULE_COLUMNS {
                charge[y * MODULE_COLUMNS + x] += (photons * share_x * share_y) as f32;
            }
        }
    }
}
