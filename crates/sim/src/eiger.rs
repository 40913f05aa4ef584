//! An EIGER detector: photon counting, so the word is the number of photons up to the depth of the counter.
//!
//! A module is 512 x 1024 pixels read by four ports of 256 x 512: the upper and the lower half module, left and right.
//! In a half module data row 0 lies at the middle of the module, so ports of the upper half arrive upside down (found
//! in a real capture).

use crate::lattice::Lattice;
use crate::rng::Rng;
use crate::scene::{self, MODULE_COLUMNS, MODULE_PIXELS, MODULE_ROWS, ModelError, Scene, SceneModel, Spot};

/// Rows and columns of a port.
pub const PORT_ROWS: usize = 256;
/// Columns of a port.
pub const PORT_COLUMNS: usize = 512;

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct EigerModel {
    /// Geometry, beam and sample; also the seed.
    pub scene: SceneModel,
    /// Bits per pixel: 4, 8, 12, 16 or 32.
    pub bits: u8,
}

/// One simulated image with its truth.
#[derive(Clone, Debug, PartialEq)]
pub struct EigerImage {
    /// Counts of every port in the order and orientation of the wire, 256 x 512 each, clipped to the depth; four ports
    /// per module (upper left, upper right, lower left, lower right).
    pub ports: Vec<Vec<u32>>,
    /// Photons in the orientation of the module, (modules, 512, 1024), not clipped.
    pub photons: Vec<u32>,
}

/// The detector; a pure function of its model.
pub struct SyntheticEiger {
    model: EigerModel,
    scene: Scene,
    lattice: Option<Lattice>,
    background: Vec<f32>,
}

impl SyntheticEiger {
    /// Computes the static part.
    ///
    /// # Errors
    /// [`ModelError`] names the field that cannot be.
    pub fn new(model: &EigerModel) -> Result<Self, ModelError> {
        scene::require(matches!(model.bits, 4 | 8 | 12 | 16 | 32), "bits", model.bits, "4, 8, 12, 16 or 32")?;
        let scene = Scene::new(&model.scene)?;
        let lattice = model.scene.crystal.as_ref().map(|c| Lattice::new(c, model.scene.seed));
        let background = (0..model.scene.modules).flat_map(|m| scene.background(m)).collect();
        Ok(Self { model: model.clone(), scene, lattice, background })
    }

    /// Highest count of the depth.
    pub fn count_max(&self) -> u32 {
        u32::MAX >> (32 - u32::from(self.model.bits))
    }

    /// What it looks at.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The reflections on an image.
    pub fn spots(&self, image: u64) -> Vec<Spot> {
        self.lattice.as_ref().map_or_else(Vec::new, |lattice| lattice.spots(image, &self.scene))
    }

    /// One image of all modules.
    pub fn image(&self, image: u64) -> EigerImage {
        let spots = self.spots(image);
        let mut photons = vec![0u32; self.background.len()];
        for (module, counts) in photons.chunks_exact_mut(MODULE_PIXELS).enumerate() {
            let mut means = self.background[module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS].to_vec();
            self.scene.add_spots(module, &spots, &mut means);
            let mut rng = Rng::keyed(self.model.scene.seed, &[0x6569_6765, image, module as u64]);
            scene::sample_photons(&means, &mut rng, counts);
        }
        let ports = (0..4 * self.model.scene.modules).map(|port| self.port(port, &photons)).collect();
        EigerImage { ports, photons }
    }

    fn port(&self, port: usize, photons: &[u32]) -> Vec<u32> {
        let (module, half, side) = (port / 4, port / 2 % 2, port % 2);
        let mut counts = Vec::with_capacity(PORT_ROWS * PORT_COLUMNS);
        for row in 0..PORT_ROWS {
            let module_row = if half == 0 { MODULE_ROWS / 2 - 1 - row } else { MODULE_ROWS / 2 + row };
            let start = module * MODULE_PIXELS + module_row * MODULE_COLUMNS + side * PORT_COLUMNS;
            counts.extend(photons[start..start + PORT_COLUMNS].iter().map(|&n| n.min(self.count_max())));
        }
        counts
    }

    /// The bytes of a port as on the wire.
    pub fn port_bytes(&self, counts: &[u32]) -> Vec<u8> {
        pack(counts, self.model.bits)
    }
}

/// Packs counts: 4 bit two pixels per byte, high nibble first; 8, 16 and 32 bit little-endian; 12 bit three bytes per
/// two pixels, low byte first (docs/protocols.md 1.5). Counts beyond the depth lose their upper bits.
///
/// # Panics
/// When the depth does not exist, or the number of counts is odd at 4 or 12 bits.
pub fn pack(counts: &[u32], bits: u8) -> Vec<u8> {
    assert!(counts.len().is_multiple_of(2) || !matches!(bits, 4 | 12), "4 and 12 bits pack pairs of pixels");
    match bits {
        4 => counts.chunks_exact(2).map(|p| ((p[0] & 15) << 4 | (p[1] & 15)) as u8).collect(),
        8 => counts.iter().map(|&n| n as u8).collect(),
        12 => counts
            .chunks_exact(2)
            .flat_map(|p| [p[0] as u8, (p[0] >> 8 & 15 | (p[1] & 15) << 4) as u8, (p[1] >> 4) as u8])
            .collect(),
        16 => counts.iter().flat_map(|&n| (n as u16).to_le_bytes()).collect(),
        32 => counts.iter().flat_map(|n| n.to_le_bytes()).collect(),
        _ => panic!("EIGER has no {bits}-bit mode"),
    }
}
