//! The stages that make images of the words of a JUNGFRAU, and that compress images.

use super::image::{About, Image, packed_mask};
use super::read::{run_text, valid};
use super::work::{Made, Work};
use konkordia_acquire::convert::{Request, of_frames};
use konkordia_acquire::frame_images::FrameImages;
use konkordia_acquire::image_writer::pack;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_graph::file::Stage;

/// Makes images of words, as `konkordia convert` does.
pub struct Convert {
    name: String,
    request: Request,
    /// For frames that are described so, from the first frame on.
    frames: Option<Frames>,
}

/// What makes images of frames.
struct Frames {
    images: FrameImages,
    configuration: String,
    about: About,
    mask: Vec<u8>,
    words: Vec<u16>,
    pixels: Vec<u8>,
}

impl Convert {
    /// The work of a stage.
    pub fn new(stage: &Stage) -> Self {
        let request = Request {
            calibration: Some(stage.calibration.clone().into()),
            energy_kev: stage.energy_kev,
            dtype: stage.dtype.clone(),
            geometry: stage.geometry.clone(),
            config: stage.config.clone().map(Into::into),
            ..Request::default()
        };
        Self { name: stage.name.clone(), request, frames: None }
    }

    fn open(&self, image: &Image<'_>) -> Result<Frames, Failure> {
        let wrong = |why: String| {
            let fix = "put the stage behind one with kind = \"files\" that reads raw frames of a JUNGFRAU";
            Failure::new(Exit::Configuration, format!("stage '{}' cannot convert these images", self.name), why, fix)
        };
        let words = image.about.words.as_ref().ok_or_else(|| wrong("they are not the words of a JUNGFRAU".into()))?;
        let facts = image.about.file().map_err(wrong)?.metadata;
        let (images, file) = of_frames(&self.request, &words.configuration, &facts, words.taken.as_ref())?;
        images.check(&words.module_ids, words.daq_info)?;
        let (shape, pixel) = (images.shape(), images.pixel());
        let range = pixel.valid_range(file.underload, file.saturation);
        let about = About { run: run_text(&file, shape), valid: valid(range), ..About::default() };
        let mask = packed_mask(images.mask())?;
        let (words, pixels) = (vec![0; images.frame_words()], vec![0; shape[0] * shape[1] * pixel.bytes()]);
        let configuration = image.about.words.as_ref().map(|words| words.configuration.clone()).unwrap_or_default();
        Ok(Frames { images, configuration, about, mask, words, pixels })
    }
}

impl Work for Convert {
    fn image(&mut self, id: u64, image: &[u8]) -> Result<Made, Failure> {
        let image = match Image::decode(image) {
            Ok(image) => image,
            Err(why) => return Ok(Made::Failed(why)),
        };
        let frames = match self.frames.take() {
            Some(frames) => self.frames.insert(frames),
            None => {
                let frames = self.open(&image)?;
                self.frames.insert(frames)
            }
        };
        let words = image.about.words.as_ref().filter(|words| words.configuration == frames.configuration);
        let Some(words) = words.filter(|_| image.pixels.len() == 2 * frames.words.len()) else {
            return Ok(Made::Failed("its words are not those of the detector of the images before".into()));
        };
        // The bytes of a message need not lie where words may.
        bytemuck::cast_slice_mut(&mut frames.words).copy_from_slice(image.pixels);
        frames.images.convert(&frames.words, (words.daq_info >> 8 & 15) as u8, id, &mut frames.pixels);
        let about = About { partial: image.about.partial, ..frames.about.clone() };
        let (shape, pixel) = (frames.images.shape(), frames.images.pixel());
        let made = Image { shape, pixel, pixels: &frames.pixels, about, numbers: Vec::new(), mask: &frames.mask };
        Ok(Made::Image(made.encode()))
    }
}

/// Compresses images, so that the stage that writes has less to do.
pub struct Compress(Compression);

impl Compress {
    /// The work of a stage.
    pub fn new(stage: &Stage) -> Self {
        Self(stage.packing().unwrap_or(Compression::BSLZ4))
    }
}

impl Work for Compress {
    fn image(&mut self, _: u64, image: &[u8]) -> Result<Made, Failure> {
        let mut image = match Image::decode(image) {
            Ok(image) if image.about.packing.is_none() => image,
            Ok(_) => return Ok(Made::Failed("its pixels are packed".into())),
            Err(why) => return Ok(Made::Failed(why)),
        };
        let chunk = pack(self.0, image.pixel, image.pixels)?;
        image.about.packing = Some((self.0.text(), None));
        Ok(Made::Image(Image { pixels: &chunk, ..image }.encode()))
    }
}
