//! The image that is analysed: of the synthetic detector, or the first one of a file; with its mask and geometry.

use konkordia_analysis::geometry::Geometry;
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_input::images::Images;
use konkordia_sim::jungfrau::{JungfrauModel, SyntheticJungfrau};
use konkordia_sim::rng::Rng;
use konkordia_sim::scene::{CHIP, MODULE_COLUMNS, MODULE_ROWS, PITCH_MM, Scene};
use std::path::{Path, PathBuf};

/// Modules of the synthetic image: 2164 x 2068 pixels.
pub const MODULES: usize = 8;
/// Height of the strongest ring of ice, photons per pixel.
const ICE_PHOTONS: f64 = 4.0;
/// The random numbers of the photons follow from this.
const SEED: u64 = 2026;
/// Pixels between two chips of a module.
const CHIP_GAP: usize = 2;

/// An image.
pub struct Image {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Values row by row, rounded to whole numbers; NaN where there is no measurement.
    pub values: Vec<f64>,
    /// Which pixels count.
    pub usable: Vec<bool>,
    /// Where the detector is.
    pub geometry: Geometry,
    /// Where the image comes from, for the output.
    pub source: String,
}

impl Image {
    /// An image of the synthetic detector: background, rings of ice, and spots of a crystal, with Poisson noise. The
    /// gaps between modules are masked.
    ///
    /// # Errors
    /// The model is refused; this is a bug.
    pub fn synthetic(modules: usize) -> Result<Self, Failure> {
        let bug = |why: String| Failure::new(Exit::Bug, "the synthetic image cannot be made", why, "report this");
        let mut model = JungfrauModel::for_modules(modules);
        model.scene.ice = ICE_PHOTONS;
        let detector = SyntheticJungfrau::new(&model).map_err(|why| bug(why.to_string()))?;
        let scene = detector.scene();
        let (columns, rows) = scene.assembled();
        let (x_px, y_px) = model.scene.beam_px;
        let metadata = Metadata {
            energy_kev: Some(model.scene.energy_kev),
            detector_distance_m: Some(model.scene.distance_mm / 1000.0),
            beam_center_x_px: Some(x_px),
            beam_center_y_px: Some(y_px),
            pixel_size_m: Some([PITCH_MM / 1000.0; 2]),
            ..Metadata::default()
        };
        let geometry = Geometry::of_run([rows, columns], &metadata).map_err(bug)?;
        let (mut values, mut usable) = (vec![f64::NAN; rows * columns], vec![false; rows * columns]);
        let (spots, mut rng) = (detector.spots(0), Rng::new(SEED));
        for module in 0..modules {
            let means = detector.expected_photons(module, &spots);
            place(scene, module, columns, &means, |at, mean| {
                values[at] = f64::from(rng.poisson(mean));
                usable[at] = true;
            });
        }
        Ok(Self { shape: [rows, columns], values, usable, geometry, source: "synthetic".into() })
    }

    /// The first image of a file.
    ///
    /// # Errors
    /// The file cannot be read, or its first image or its geometry is not known.
    pub fn of_file(path: &Path) -> Result<Self, Failure> {
        let refused = |why: &str| {
            let what = format!("{} cannot be measured with", path.display());
            Failure::new(Exit::Usage, what, why, "give a file with images and their geometry")
        };
        let images = Images::open(&[PathBuf::from(path)], None)?;
        let bytes = images.read(0)?.ok_or_else(|| refused("its first image was never written"))?;
        let facts = images.facts;
        let geometry = facts.geometry.map_err(|why| refused(&why))?;
        let values = values(&bytes, facts.pixel, facts.valid).map_err(|why| refused(&why))?;
        let source = format!("the first image of {}", path.display());
        Ok(Self { shape: facts.shape, values, usable: facts.usable, geometry, source })
    }
}

/// Gives each pixel of a module its place in the image and its mean. Pixels at the borders of chips cover two places,
/// which share their photons.
fn place(scene: &Scene, module: usize, columns: usize, means: &[f32], mut give: impl FnMut(usize, f64)) {
    let (x0, y0) = scene.module_origin(module);
    let (across, down) = (places(MODULE_COLUMNS), places(MODULE_ROWS));
    for (row, (raw_row, height)) in down.iter().enumerate() {
        for (column, (raw_column, width)) in across.iter().enumerate() {
            let mean = f64::from(means[raw_row * MODULE_COLUMNS + raw_column]) / (width * height);
            give((y0 + row) * columns + x0 + column, mean);
        }
    }
}

/// Which raw row or column covers each place of a module, and how many places that one covers.
fn places(raw: usize) -> Vec<(usize, f64)> {
    let of_raw = |at: usize| {
        let inside = at % CHIP;
        let is_wide = (inside == 0 && at > 0) || (inside == CHIP - 1 && at + 1 < raw);
        std::iter::repeat_n((at, if is_wide { CHIP_GAP as f64 } else { 1.0 }), if is_wide { CHIP_GAP } else { 1 })
    };
    (0..raw).flat_map(of_raw).collect()
}

/// Little-endian pixels as whole numbers, NaN where the value is no measurement.
fn values(bytes: &[u8], pixel: PixelType, (low, high): (f64, f64)) -> Result<Vec<f64>, String> {
    macro_rules! as_type {
        ($($name:ident: $number:ty),*) => {
            match pixel {
                $(PixelType::$name => {
                    bytes.as_chunks().0.iter().map(|number| f64::from(<$number>::from_le_bytes(*number))).collect()
                })*
                other => return Err(format!("pixels of type {other} cannot be analysed")),
            }
        };
    }
    let mut values: Vec<f64> = as_type!(Int8: i8, Uint8: u8, Int16: i16, Uint16: u16, Int32: i32, Uint32: u32, Float32: f32);
    for value in &mut values {
        *value = if (low..=high).contains(value) { value.round() } else { f64::NAN };
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_covers_all_of_its_places() {
        for (raw, all) in [(MODULE_COLUMNS, 1030), (MODULE_ROWS, 514)] {
            let places = places(raw);
            assert_eq!(places.len(), all);
            assert!((places.iter().map(|(_, width)| 1.0 / width).sum::<f64>() - raw as f64).abs() < 1e-9);
        }
    }

    #[test]
    fn the_synthetic_image_has_photons_everywhere_but_in_gaps() {
        let image = Image::synthetic(1).unwrap();
        assert_eq!((image.shape, image.values.len()), ([514, 1030], 514 * 1030));
        assert!(image.usable.iter().all(|usable| *usable) && image.values.iter().all(|value| *value >= 0.0));
        assert!(image.values.iter().copied().fold(0.0, f64::max) > 50.0);
    }

    #[test]
    fn what_is_no_measurement_is_nan() {
        let bytes: Vec<u8> = [-2i32, -1, 0, 7, 100].iter().flat_map(|value| value.to_le_bytes()).collect();
        let read = values(&bytes, PixelType::Int32, (0.0, 50.0)).unwrap();
        assert!(read[0].is_nan() && read[1].is_nan() && read[4].is_nan() && read[2..4] == [0.0, 7.0]);
        assert!(values(&bytes, PixelType::Float64, (0.0, 50.0)).is_err());
    }
}
