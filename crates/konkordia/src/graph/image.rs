//! An image as the bytes that follow `Work`, and as a program of a user gets it: a head, the pixels, a text, the
//! numbers of its results, and the mask (docs/graph.md).

use konkordia_acquire::image_writer::pack;
use konkordia_core::failure::Failure;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Compression;
use konkordia_core::results;
use konkordia_kernels::codec::decompress;
use konkordia_kernels::{ElementSize, Isa};
use konkordia_sinks::hdf5::FileSpec;
use serde::{Deserialize, Serialize};

/// Bytes before the pixels: type, rows, columns, bytes of the pixels, bytes of the text, numbers.
pub const HEAD_BYTES: usize = 56;
/// Most bytes of the text.
const TEXT_BYTES_MAX: usize = 8 << 20;
/// Most results of an image, and the longest name of one.
const RESULTS_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;
/// How a mask is packed.
const MASK_PACKING: Compression = Compression::BSZSTD;

/// The words of a detector, of which no images were made yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Words {
    /// Configuration of the detector.
    pub configuration: String,
    /// Ids of the modules.
    pub module_ids: Vec<u16>,
    /// When they were taken.
    pub taken: Option<String>,
    /// Of the header of the frame.
    pub daq_info: u32,
}

/// What is known of an image beside its pixels: JSON. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Description of the run, as files of Konkordia have it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Lowest and highest value that is a measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<(Option<f64>, Option<f64>)>,
    /// Some of its pixels are missing.
    #[serde(skip_serializing_if = "is_false")]
    pub partial: bool,
    /// The words of a detector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<Words>,
    /// How the pixels are packed: name and level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing: Option<(String, Option<u8>)>,
    /// Results: name, type and count of their numbers, in the order of the numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<(String, String, usize)>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl About {
    /// How the pixels are packed.
    ///
    /// # Errors
    /// This version does not know it; in words.
    pub fn compression(&self) -> Result<Option<Compression>, String> {
        let Some((name, level)) = &self.packing else { return Ok(None) };
        let wrong = |_| format!("pixels packed as '{}' are not possible", name.escape_debug());
        Compression::parse(name, level.map(i64::from)).map(Some).map_err(wrong)
    }

    /// The description of the run; an empty one if there is none.
    ///
    /// # Errors
    /// It cannot be read; in words.
    pub fn file(&self) -> Result<FileSpec, String> {
        if self.run.is_empty() { Ok(FileSpec::default()) } else { FileSpec::from_text(&self.run) }
    }

    /// Numbers of the results.
    pub fn numbers(&self) -> usize {
        self.results.iter().fold(0, |all, (.., count)| all.saturating_add(*count))
    }

    fn check(&self) -> Result<(), String> {
        if self.results.len() > RESULTS_MAX || self.numbers() > results::RESULT_NUMBERS_MAX {
            return Err(format!("it has {} results, and {RESULTS_MAX} are possible", self.results.len()));
        }
        let is_name = |name: &str| {
            let plain = name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
            plain && (1..=NAME_BYTES_MAX).contains(&name.len())
        };
        let is_type = |kind: &str| ColumnType::from_name(kind).is_some_and(|kind| kind.bytes() == 8);
        match self.results.iter().find(|(name, kind, count)| !is_name(name) || !is_type(kind) || *count == 0) {
            Some((name, kind, _)) => Err(format!("'{}' of type {} cannot be a result", name.escape_debug(), kind.escape_debug())),
            None => Ok(()),
        }
    }
}

/// An image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image<'a> {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Type of the pixels.
    pub pixel: PixelType,
    /// The pixels, little endian, packed as [`About::packing`] says.
    pub pixels: &'a [u8],
    /// What is known of it.
    pub about: About,
    /// The bits of the numbers of its results.
    pub numbers: Vec<u64>,
    /// NXmx mask, packed; empty: no bit is set, or it is not known.
    pub mask: &'a [u8],
}

impl<'a> Image<'a> {
    /// The image as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let text = if self.about == About::default() { String::new() } else { json(&self.about) };
        let bytes = HEAD_BYTES + self.pixels.len() + text.len() + 8 * self.numbers.len() + self.mask.len();
        let mut out = Vec::with_capacity(bytes);
        out.extend(format!("{:<16}", self.pixel.name()).as_bytes());
        let [rows, columns] = self.shape;
        for number in [rows, columns, self.pixels.len(), text.len(), self.numbers.len()] {
            out.extend((number as u64).to_le_bytes());
        }
        out.extend(self.pixels);
        out.extend(text.as_bytes());
        self.numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        out.extend(self.mask);
        out
    }

    /// The image in these bytes.
    ///
    /// # Errors
    /// They are none, in words.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or("the bytes of an image are too few")?;
        let name = String::from_utf8_lossy(&head[..16]);
        let pixel = PixelType::ALL.into_iter().find(|pixel| pixel.name() == name.trim_end_matches([' ', '\0']));
        let pixel = pixel.ok_or_else(|| format!("pixels of type '{}' are not possible", name.trim_end().escape_debug()))?;
        let number = |nth: usize| head[16 + 8 * nth..24 + 8 * nth].try_into().map_or(u64::MAX, u64::from_le_bytes);
        let [rows, columns, pixel_bytes, text_bytes, numbers] = [0, 1, 2, 3, 4].map(number);
        let cut = |rest: &'a [u8], length: Option<u64>| {
            let length = length.and_then(|length| usize::try_from(length).ok());
            length.and_then(|length| rest.split_at_checked(length)).ok_or("the bytes of an image are too few")
        };
        let (pixels, rest) = cut(rest, Some(pixel_bytes))?;
        let (text, rest) = cut(rest, Some(text_bytes).filter(|length| *length <= TEXT_BYTES_MAX as u64))?;
        let (numbers, mask) = cut(rest, numbers.checked_mul(8))?;
        let numbers: Vec<u64> = numbers.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let about: About = match text {
            [] => About::default(),
            text => serde_json::from_slice(text).map_err(|error| format!("the text of an image cannot be read: {error}"))?,
        };
        about.check()?;
        if about.numbers() != numbers.len() {
            return Err(format!("its results have {} numbers, and {} came", about.numbers(), numbers.len()));
        }
        let expected = rows.checked_mul(columns).and_then(|pixels| pixels.checked_mul(pixel.bytes() as u64));
        let is_whole = if about.packing.is_none() { expected == Some(pixel_bytes) } else { expected.is_some_and(|n| n > 0) };
        if !is_whole || pixels.is_empty() {
            return Err(format!("an image of {rows} x {columns} {pixel} pixels cannot have {pixel_bytes} bytes"));
        }
        Ok(Self { shape: [rows as usize, columns as usize], pixel, pixels, about, numbers, mask })
    }

    /// Mask bits, row by row; `None` if there are none.
    ///
    /// # Errors
    /// They cannot be unpacked.
    pub fn mask(&self) -> Result<Option<Vec<u32>>, String> {
        if self.mask.is_empty() {
            return Ok(None);
        }
        let mut mask = vec![0_u32; self.shape[0] * self.shape[1]];
        let four = ElementSize::new(4).ok_or("a mask of four bytes (a bug)")?;
        decompress(MASK_PACKING, Isa::detect(), self.mask, four, bytemuck::cast_slice_mut(&mut mask))
            .map_err(|error| format!("its mask cannot be unpacked: {error}"))?;
        Ok(Some(mask))
    }

    /// What becomes of the answer of a program of a user to this image: what was known stays, results are added.
    ///
    /// # Errors
    /// It is no image, or packed; in words.
    pub fn with_answer(&self, answer: &[u8]) -> Result<Vec<u8>, String> {
        let made = Image::decode(answer)?;
        if made.about.packing.is_some() {
            return Err("its pixels are packed".into());
        }
        let (mut about, mut numbers) = (self.about.clone(), Vec::new());
        about.results.clear();
        let (same_shape, same_pixel) = (made.shape == self.shape, made.pixel == self.pixel);
        let is_same = same_shape && same_pixel;
        about.words = about.words.filter(|_| is_same);
        about.valid = about.valid.filter(|_| same_pixel);
        if !about.run.is_empty() && !is_same {
            about.run = changed(about.file()?, same_shape, same_pixel).to_text();
        }
        // Sums and the like of the pixels no longer hold; results of the answer take precedence.
        let kept = |name: &str| !results::is_of_pixels(name) && made.about.results.iter().all(|(own, ..)| own != name);
        let mut rest = &self.numbers[..];
        for (result, is_kept) in self.about.results.iter().map(|result| (result, kept(&result.0))) {
            let (own, after) = rest.split_at(result.2);
            rest = after;
            if is_kept {
                numbers.extend(own);
                about.results.push(result.clone());
            }
        }
        numbers.extend(&made.numbers);
        about.results.extend(made.about.results);
        about.check()?;
        let mask = if same_shape { self.mask } else { &[] };
        Ok(Image { about, numbers, mask, ..made }.encode())
    }
}

/// What holds of a run after a program of a user has given its images another shape or type.
fn changed(file: FileSpec, same_shape: bool, same_pixel: bool) -> FileSpec {
    let mut file = FileSpec { tiles: Vec::new(), ..file };
    if !same_shape {
        let facts = &mut file.metadata;
        (facts.beam_center_x_px, facts.beam_center_y_px, facts.pixel_size_m) = (None, None, None);
    }
    if !same_pixel {
        (file.underload, file.saturation, file.scale) = (None, None, None);
        (file.metadata.underload_value, file.metadata.saturation_value) = (None, None);
    }
    file
}

/// A mask for [`Image::mask`].
///
/// # Errors
/// It cannot be packed.
pub fn packed_mask(mask: &[u32]) -> Result<Vec<u8>, Failure> {
    if mask.iter().all(|bits| *bits == 0) {
        return Ok(Vec::new());
    }
    pack(MASK_PACKING, PixelType::Uint32, bytemuck::cast_slice(mask))
}

fn json(about: &About) -> String {
    // It has texts, numbers and lists only.
    serde_json::to_string(about).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(pixel: PixelType, pixels: &[u8]) -> Image<'_> {
        Image { shape: [2, 3], pixel, pixels, about: About::default(), numbers: Vec::new(), mask: &[] }
    }

    fn with_results<'a>(names: &[&str], pixels: &'a [u8]) -> Image<'a> {
        let results = names.iter().map(|name| ((*name).to_owned(), "float64".to_owned(), 1)).collect();
        let numbers = (0..names.len()).map(|n| (n as f64).to_bits()).collect();
        Image { about: About { results, ..About::default() }, numbers, ..plain(PixelType::Uint8, pixels) }
    }

    #[test]
    fn images_come_back_and_wrong_ones_are_refused() {
        for pixel in PixelType::ALL {
            let pixels = vec![7; 6 * pixel.bytes()];
            let image = plain(pixel, &pixels);
            let bytes = image.encode();
            assert_eq!(Image::decode(&bytes).unwrap(), image);
            for length in 0..bytes.len() {
                assert!(Image::decode(&bytes[..length]).is_err(), "{pixel} cut to {length}");
            }
        }
    }

    #[test]
    fn what_is_known_of_an_image_travels_with_it() {
        let mask = packed_mask(&[0, 1, 2, 0, 0, 5]).unwrap();
        let run = FileSpec { rows: 2, columns: 3, calibration_hash: "abc".into(), ..FileSpec::default() };
        let mut image = Image { mask: &mask, ..with_results(&["a", "b"], &[7; 6]) };
        image.about.run = run.to_text();
        image.about.valid = Some((Some(0.0), None));
        image.about.packing = Some(("bszstd".into(), Some(3)));
        let bytes = image.encode();
        let found = Image::decode(&bytes).unwrap();
        assert_eq!(found, image);
        assert_eq!(found.mask().unwrap().unwrap(), [0, 1, 2, 0, 0, 5]);
        assert_eq!(found.about.file().unwrap().calibration_hash, "abc");
        assert_eq!(found.about.compression(), Ok(Compression::BSZSTD.with_level(3)));
        assert!(packed_mask(&[0; 6]).unwrap().is_empty());
    }

    #[test]
    fn results_that_cannot_be_columns_are_refused() {
        for (name, why) in [("a/b", "cannot be a result"), ("", "cannot be a result")] {
            let bytes = with_results(&[name], &[7; 6]).encode();
            assert!(Image::decode(&bytes).unwrap_err().contains(why));
        }
        let mut image = with_results(&["a"], &[7; 6]);
        image.numbers.push(0);
        assert!(Image::decode(&image.encode()).unwrap_err().contains("1 numbers, and 2 came"));
    }

    #[test]
    fn an_answer_keeps_what_was_known_and_adds_its_results() {
        let mask = packed_mask(&[0, 1, 2, 0, 0, 5]).unwrap();
        let mut image = Image { mask: &mask, ..with_results(&["sum_value", "spots", "a"], &[7; 6]) };
        image.about.valid = Some((Some(0.0), Some(250.0)));
        let facts = konkordia_core::experiment::Metadata { beam_center_x_px: Some(1.5), ..Default::default() };
        image.about.run = FileSpec { rows: 2, columns: 3, metadata: facts, ..FileSpec::default() }.to_text();
        let answer = with_results(&["a", "c"], &[9; 6]).encode();
        let bytes = image.with_answer(&answer).unwrap();
        let made = Image::decode(&bytes).unwrap();
        let names: Vec<&str> = made.about.results.iter().map(|(name, ..)| &**name).collect();
        assert_eq!((names, &made.numbers), (vec!["spots", "a", "c"], &vec![1_f64.to_bits(), 0, 1_f64.to_bits()]));
        assert_eq!((made.pixels, made.mask, made.about.valid), (&[9; 6][..], &mask[..], image.about.valid));
        assert_eq!(made.about.file().unwrap().metadata.beam_center_x_px, Some(1.5));
        let small = Image { shape: [1, 2], ..plain(PixelType::Int32, &[0; 8]) }.encode();
        let bytes = image.with_answer(&small).unwrap();
        let made = Image::decode(&bytes).unwrap();
        assert_eq!((made.mask, made.about.valid), (&[][..], None));
        assert_eq!(made.about.file().unwrap().metadata.beam_center_x_px, None);
    }
}
