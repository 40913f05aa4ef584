//! What a synthetic detector sees, and the truth about it.

use super::feed::SYNTHETIC_IMAGES;
use clap::Args;
use konkordia_core::failure::Failure;
use konkordia_sim::scene::{Crystal, Scene, SceneModel, Spot};
use serde_json::{Value, json};
use std::path::PathBuf;

const HEADING: &str = "Synthetic detector";

/// What the synthetic detector sees.
#[derive(Clone, Debug, Args)]
pub struct SampleArgs {
    /// Mean photons of a fully recorded reflection; 0 = no crystal, so all images are empty
    #[arg(long, value_name = "PHOTONS", default_value_t = 12_000.0, help_heading = HEADING, conflicts_with = "raw")]
    pub spot_photons: f64,
    /// Scatter of air and solvent; 1 = about 1.5 photons per pixel
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, help_heading = HEADING, conflicts_with = "raw")]
    pub background: f64,
    /// Height of the strongest ring of ice, photons per pixel
    #[arg(long, value_name = "PHOTONS", default_value_t = 0.0, help_heading = HEADING, conflicts_with = "raw")]
    pub ice: f64,
    /// Different images that are made; they are sent in a loop
    #[arg(long, value_name = "N", default_value_t = SYNTHETIC_IMAGES, help_heading = HEADING, conflicts_with = "raw", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub distinct: u64,
    /// Write what reflections there are on these images (JSON): positions and expected photons
    #[arg(long, value_name = "FILE", help_heading = HEADING, conflicts_with = "raw")]
    pub write_spots: Option<PathBuf>,
}

impl SampleArgs {
    /// The scene of a detector of so many modules.
    pub fn scene(&self, modules: u32) -> SceneModel {
        let plain = SceneModel::for_modules(modules as usize);
        let crystal = (self.spot_photons != 0.0).then(|| Crystal { spot_photons: self.spot_photons, ..Crystal::default() });
        SceneModel { background: self.background, ice: self.ice, crystal, ..plain }
    }

    /// Writes the truth about `images` images, if it is asked for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, scene: &Scene, images: u64, spots: impl Fn(u64) -> Vec<Spot>) -> Result<(), Failure> {
        let Some(path) = &self.write_spots else { return Ok(()) };
        let (columns, rows) = scene.assembled();
        // Also those beside the detector whose edge falls on it.
        let touches =
            |at: f64, length: usize, spot: &Spot| (-5.0 * spot.sigma_px..length as f64 + 5.0 * spot.sigma_px).contains(&at);
        let is_on = |spot: &Spot| touches(spot.x, columns, spot) && touches(spot.y, rows, spot);
        // Pixel centres are whole numbers, as in the results of `konkordia analyse`.
        let told = |spot: Spot| json!([spot.x - 0.5, spot.y - 0.5, spot.photons]);
        let of_image = |image| spots(image).into_iter().filter(is_on).map(told).collect::<Value>();
        let text = json!({
            "what": "x_px, y_px and expected photons of each reflection, image by image; in pixels of the assembled detector, the centre of the first one is 0; also those up to 5 standard deviations beside it",
            "rows": rows,
            "columns": columns,
            "spot_sigma_px": scene.model().crystal.as_ref().map(|crystal| crystal.spot_sigma_px),
            "images": (0..images).map(of_image).collect::<Value>(),
        });
        std::fs::write(path, text.to_string()).map_err(|e| Failure::io("cannot write", path, &e))
    }
}
