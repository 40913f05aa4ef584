//! Compares the files of a conversion with a second one: the input is converted again, without vector instructions,
//! without compression and with one worker. Every image of the files is decoded and compared with that conversion,
//! pixel by pixel.

use super::kept;
use crate::run::arm::{self, RunInputs};
use crate::run::exit_of;
use konkordia_config::Config;
use konkordia_core::failure::Failure;
use konkordia_core::image::CommittedImage;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Plan};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::text;
use konkordia_engine::run::{Armed, RunFailure, RunOutcome};
use konkordia_kernels::codec::decode;
use konkordia_kernels::isa::Isa;
use konkordia_sinks::hdf5::{Reader, master_path};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What the comparison found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    /// Images compared.
    pub images: u64,
    /// Images with at least one pixel that differs.
    pub different_images: u64,
    /// Pixels that differ.
    pub different_pixels: u64,
    /// The first image that differs.
    pub first_different: Option<u64>,
    /// Largest difference that the compression may make; 0 if it is lossless.
    pub tolerance: f64,
    /// Time it took.
    pub seconds: f64,
}

impl Verified {
    /// For people.
    pub fn to_text(&self) -> String {
        let images = text::count(self.images);
        match self.first_different {
            None if self.tolerance > 0.0 => {
                format!("verified  {images} images decoded, every pixel within {} of a second conversion", self.tolerance)
            }
            None => format!("verified  {images} images decoded, every pixel equals a second conversion"),
            Some(first) => format!(
                "verified  NOT EQUAL: {} of {images} images differ from a second conversion in {} pixels, the first is image {first}; please report it",
                text::count(self.different_images),
                text::count(self.different_pixels)
            ),
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "images": self.images, "images_different": self.different_images, "pixels_different": self.different_pixels,
            "first_different": self.first_different, "tolerance": self.tolerance, "seconds": self.seconds,
        })
    }
}

/// A comparison that was begun.
pub struct Comparison {
    /// The plan of the second conversion.
    pub plan: Arc<Plan>,
    found: Arc<Mutex<Verified>>,
    began: Instant,
}

/// Arms the second conversion, whose images are compared with the files of the first.
pub fn begin(config: &Config, run_inputs: RunInputs, sources: Vec<Box<dyn Source>>) -> Result<(Armed, Comparison), Failure> {
    let began = Instant::now();
    let RunInputs { mut plan, loaded, .. } = run_inputs;
    let tolerance = match plan.compression {
        Compression::Sz3 { bound } => bound.value(),
        _ => 0.0,
    };
    plan.compression = Compression::None;
    (plan.workers, plan.gpu) = (1, None);
    plan.slots = plan.slots.min(16);
    plan.packed_slots = plan.packed_slots.min(16);
    plan.window_images = plan.window_images.min(plan.slots / 2);
    let plan = Arc::new(plan);
    let reader = Reader::open(&master_path(&config.directory, &config.prefix))?;
    let found = Arc::new(Mutex::new(Verified { tolerance, ..Verified::default() }));
    let compare =
        Compare { reader, found: Arc::clone(&found), expected: Vec::new(), pixel: plan.pixel, image_bytes: plan.image_bytes() };
    let armed = arm::arm_with(&plan, loaded, sources, (Box::new(compare), Vec::new()), Isa::Scalar, Box::new(|_| ()))?;
    Ok((armed, Comparison { plan, found, began }))
}

impl Comparison {
    /// What the comparison found, once the second conversion has ended.
    ///
    /// # Errors
    /// The files or the input could not be read, or the second conversion failed.
    pub fn close(self, outcome: &RunOutcome) -> Result<Verified, Failure> {
        match &outcome.failure {
            Some(RunFailure::Sink(error)) => return Err(error.clone().into()),
            Some(RunFailure::Source(_, error)) => return Err(kept::source_failure(error)),
            Some(RunFailure::NoThread(_) | RunFailure::Panicked(_)) => {
                if let (_, Some(failure)) = exit_of(outcome, false, false) {
                    return Err(failure);
                }
            }
            None => {}
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        found.seconds = self.began.elapsed().as_secs_f64();
        Ok(found)
    }
}

/// The sink of the second conversion: compares its images with those of the files.
struct Compare {
    reader: Reader,
    found: Arc<Mutex<Verified>>,
    expected: Vec<u8>,
    pixel: PixelType,
    image_bytes: usize,
}

impl Sink for Compare {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let read = self.reader.read_image(image.number, &decode).map_err(|e| SinkError {
            what: format!("cannot verify: cannot {}: {}", e.operation, e.path.display()),
            why: e.cause,
            fix: e.hint,
        })?;
        self.expected.clear();
        self.expected.extend_from_slice(image.chunk());
        if !image.status.has_pixels() {
            let missing = self.pixel.le_bytes(self.pixel.special().missing);
            self.expected.extend(missing.iter().cycle().take(self.image_bytes));
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let different = differences(&self.expected, &read, self.pixel, found.tolerance);
        found.images += 1;
        if different > 0 {
            found.different_images += 1;
            found.different_pixels += different;
            found.first_different.get_or_insert(image.number);
        }
        Ok(())
    }
}

/// Number of pixels whose values differ by more than the tolerance, which is 0 for lossless compression. An image of
/// another size differs in all pixels.
fn differences(expected: &[u8], found: &[u8], pixel: PixelType, tolerance: f64) -> u64 {
    let bytes = pixel.bytes();
    if expected.len() != found.len() {
        return (expected.len().max(found.len()) / bytes) as u64;
    }
    if expected == found {
        return 0;
    }
    let value = |b: &[u8]| match (pixel, b) {
        (PixelType::Int16, &[a, b]) => f64::from(i16::from_le_bytes([a, b])),
        (PixelType::Uint16, &[a, b]) => f64::from(u16::from_le_bytes([a, b])),
        (PixelType::Int32, &[a, b, c, d]) => f64::from(i32::from_le_bytes([a, b, c, d])),
        (PixelType::Uint32, &[a, b, c, d]) => f64::from(u32::from_le_bytes([a, b, c, d])),
        (PixelType::Float32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        _ => f64::NAN,
    };
    // A comparison with NaN is false, so a NaN with other bits counts as different.
    let within = |a: &[u8], b: &[u8]| (value(a) - value(b)).abs() <= tolerance;
    let differ = |(a, b): &(&[u8], &[u8])| a != b && !within(a, b);
    expected.chunks_exact(bytes).zip(found.chunks_exact(bytes)).filter(differ).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_in_pixels() {
        let words = |list: &[i16]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let count = |a: &[i16], b: &[i16], tolerance| differences(&words(a), &words(b), PixelType::Int16, tolerance);
        assert_eq!(count(&[1, 2, 3], &[1, 2, 3], 0.0), 0);
        assert_eq!(count(&[1, 2, 300], &[1, 3, 44], 0.0), 2);
        assert_eq!(count(&[1, 2, 300], &[1, 3, 44], 1.0), 1);
        assert_eq!(count(&[1, 2, 3], &[1, 2], 0.0), 3);
        let floats = |list: &[f32]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(differences(&floats(&[f32::NAN, 1.0]), &floats(&[f32::NAN, f32::NAN]), PixelType::Float32, 9.0), 1);
        let missing = |pixel: PixelType| pixel.le_bytes(pixel.special().missing);
        let mut bytes = missing(PixelType::Uint32);
        bytes.extend(missing(PixelType::Float32));
        assert_eq!(bytes.len(), 8);
    }
}
