//! Reads files that other programs wrote, to the extent that this program examines them: image stacks in the file
//! itself or in the files that it names, and the facts of NXmx.

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File};
use konkordia_core::experiment::KEV_ANGSTROM;
use konkordia_core::pixel::PixelType;

use super::bounded::zeros;
use super::check::{Finding, Severity};
use super::decode::Decode;
use super::detector_place::{self, DetectorPlace};
use super::error::{Error, ErrorKind};
use super::low;
use super::nexus::{read_attribute, read_number, read_texts};
use super::paths::DESCRIPTION;
use super::repack_losses::losses_of_files;
use super::spec::Compression;
use super::stacks::{StackLayout, Stacks};

const DETECTOR: &str = "/entry/instrument/detector";
/// Findings of one kind are listed up to this number.
const LISTED_MAX: usize = 10;

/// What such a file says of the experiment; `None` if it says nothing, or uses unknown units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OthersMetadata {
    /// Photon energy.
    pub energy_kev: Option<f64>,
    /// Sample to detector.
    pub detector_distance_m: Option<f64>,
    /// Column and row.
    pub beam_center_px: Option<(f64, f64)>,
    /// Along a row.
    pub pixel_size_m: Option<f64>,
    /// Highest value that counts as a measurement.
    pub saturation_value: Option<f64>,
    /// Lowest value that counts as a measurement.
    pub underload_value: Option<f64>,
    /// Images that its writer announced.
    pub images_announced: Option<u64>,
}

impl OthersMetadata {
    /// Lowest and highest value of a pixel of this type that is a measurement. It is as the file says, otherwise from 0
    /// up to but without the highest value of the type, with which detectors mark pixels without a measurement.
    pub fn valid_range(&self, dtype: PixelType) -> (f64, f64) {
        let highest = match dtype {
            PixelType::Uint8 => f64::from(u8::MAX),
            PixelType::Uint16 => f64::from(u16::MAX),
            PixelType::Uint32 => f64::from(u32::MAX),
            PixelType::Uint64 => u64::MAX as f64,
            _ => f64::INFINITY,
        };
        (self.underload_value.unwrap_or(0.0), self.saturation_value.unwrap_or(highest).min(highest.next_down()))
    }
}

/// One stack of images, and the position of its images among all.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The file that holds it.
    pub path: PathBuf,
    /// Shape, pixels, compression.
    pub layout: StackLayout,
    /// Number of its first image. Stacks of another shape than the first one have no number.
    pub first_image: Option<u64>,
    file: usize,
    stack: usize,
}

/// A file of another program with the files that it names.
pub struct OthersFile {
    path: PathBuf,
    files: Vec<Stacks>,
    stacks: Vec<Placed>,
    problems: Vec<(PathBuf, Error)>,
    metadata: OthersMetadata,
    detector_place: Result<DetectorPlace, String>,
}

/// Whether this program wrote the file; only then it holds more than [`OthersFile`] reads. `None` if it cannot be read.
pub fn is_ours(path: &Path) -> Option<bool> {
    low::open_file(path).ok().map(|file| file.link_exists(DESCRIPTION))
}

impl OthersFile {
    /// Opens a file and those that it names.
    ///
    /// # Errors
    /// If it cannot be read, or holds stacks with filters or chunks that this program does not know. Problems of the
    /// files that it names are reported by [`Self::findings`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let main = Stacks::open(path)?;
        let (metadata, detector_place) = (metadata(main.file()), detector_place::read(main.file(), DETECTOR));
        let (mut linked, mut problems, mut files) = (main.linked_files(), Vec::new(), vec![main]);
        let own = path.canonicalize().ok();
        linked.sort();
        linked.dedup();
        for name in linked {
            if name.canonicalize().ok().is_some_and(|name| Some(name) == own) {
                continue;
            }
            match Stacks::open(&name) {
                Ok(stacks) => files.push(stacks),
                Err(error) => problems.push((name, error)),
            }
        }
        let mut stacks: Vec<Placed> = Vec::new();
        let mut images = 0;
        for (n, file) in files.iter().enumerate() {
            for (stack, layout) in file.layouts().enumerate() {
                let shape = |l: &StackLayout| (l.rows, l.columns, l.element_bytes);
                let counts = stacks.first().is_none_or(|first| shape(&first.layout) == shape(layout));
                let first_image = counts.then_some(images);
                images += if counts { layout.images } else { 0 };
                stacks.push(Placed { path: file.path().to_owned(), layout: layout.clone(), first_image, file: n, stack });
            }
        }
        if stacks.is_empty() && problems.is_empty() {
            let error =
                Error::new(ErrorKind::Invalid, "read the file", path, "it holds no images and names no files with images");
            return Err(error.with_hint("give a master file, or a file with a stack of images (/entry/data/data)"));
        }
        Ok(Self { path: path.to_owned(), files, stacks, problems, metadata, detector_place })
    }

    /// All stacks: those of the file itself, then those of the files that it names, by name.
    pub fn stacks(&self) -> &[Placed] {
        &self.stacks
    }

    /// The stacks whose images are counted, with their data sets and files.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&Placed, &Dataset, &File)> {
        let counted = self.stacks.iter().filter(|placed| placed.first_image.is_some());
        counted.map(|placed| (placed, &self.files[placed.file].found[placed.stack].1, self.files[placed.file].file()))
    }

    /// Names of the channels of its images, as far as it says them.
    pub fn channel_names(&self) -> Vec<String> {
        self.files.first().and_then(|file| read_texts(file.file(), "/entry/data/channel")).unwrap_or_default()
    }

    /// What it says of the experiment.
    pub fn metadata(&self) -> &OthersMetadata {
        &self.metadata
    }

    /// Where its detector lies; or, in words, why the file does not say so.
    pub fn detector_place(&self) -> Result<&DetectorPlace, &str> {
        self.detector_place.as_ref().map_err(String::as_str)
    }

    /// The mask of the detector, row by row: 0 = the pixel counts. `None` if the file has none that can be read.
    pub fn pixel_mask(&self) -> Option<Vec<u32>> {
        let mask = self.files.first()?.file().dataset(&format!("{DETECTOR}/pixel_mask")).ok()?;
        let pixels = self.stacks.first().map(|stack| stack.layout.rows * stack.layout.columns)?;
        // The size first, so that a wrong one costs no memory.
        (mask.size() == pixels).then(|| mask.read_raw::<u32>().ok()).flatten()
    }

    /// How `konkordia repack` has changed pixels, last time first; empty if they are as they were written.
    pub fn losses(&self) -> Vec<String> {
        losses_of_files(self.files.iter().map(|one| one.file()))
    }

    /// Number of images, in stacks of the shape of the first one.
    pub fn images(&self) -> u64 {
        self.stacks.iter().filter(|s| s.first_image.is_some()).map(|s| s.layout.images).sum()
    }

    /// Files that it names but that cannot be read, with the reason.
    pub fn unreadable(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.problems.iter().map(|(path, error)| (path.as_path(), error.cause.as_str()))
    }

    /// The stack that holds an image, and the pixels of that image; `None` for an image without chunk.
    ///
    /// # Errors
    /// If there is no such image, or it cannot be read or decoded.
    pub fn image(&self, number: u64, decode: &Decode<'_>) -> Result<(&Placed, Option<Vec<u8>>), Error> {
        let of = |s: &&Placed| s.first_image.is_some_and(|first| (first..first + s.layout.images).contains(&number));
        let Some(placed) = self.stacks.iter().find(of) else {
            let cause = format!("it has {} images, counted from 0", self.images());
            return Err(Error::new(ErrorKind::Invalid, "read this image of", &self.path, cause).with_hint("give a lower number"));
        };
        let mut chunk = Vec::new();
        let pixels = self.pixels(placed, number - placed.first_image.unwrap_or(0), decode, &mut chunk)?;
        Ok((placed, pixels))
    }

    fn pixels(&self, at: &Placed, image: u64, decode: &Decode<'_>, chunk: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
        let Some(is_compressed) = self.files[at.file].read(at.stack, image, chunk)? else { return Ok(None) };
        let layout = &at.layout;
        if !is_compressed || layout.compression == Compression::None {
            let (bytes, wanted) = (chunk.len(), layout.image_bytes());
            let why =
                || Error::new(ErrorKind::Damaged, "read an image of", &at.path, format!("{bytes} bytes instead of {wanted}"));
            return if bytes == wanted { Ok(Some(std::mem::take(chunk))) } else { Err(why()) };
        }
        let too_large = || Error::new(ErrorKind::Damaged, "read an image of", &at.path, "it claims to be larger than any image");
        let mut pixels = zeros(layout.image_bytes()).ok_or_else(too_large)?;
        decode(layout.compression, chunk, layout.element_bytes, &mut pixels)
            .map_err(|why| Error::new(ErrorKind::Damaged, "decode an image of", &at.path, why))?;
        Ok(Some(pixels))
    }

    /// Reads and decodes every image, and reports what is missing or wrong; also returns the number of images that are
    /// absent.
    pub fn findings(&self, decode: Option<&Decode<'_>>) -> (Vec<Finding>, u64) {
        let (mut found, mut not_there) = (Vec::new(), 0);
        let mut add = |severity, what: String, place: String, fix: &str| {
            found.push(Finding { severity, what, place, fix: fix.into() });
        };
        for (path, error) in &self.problems {
            let what = if path.exists() { error.cause.clone() } else { "a file that this one links to is missing".into() };
            add(Severity::Error, what, path.display().to_string(), "bring the file back from the detector or a backup");
        }
        for placed in &self.stacks {
            let (mut chunk, mut absent, mut bad) = (Vec::new(), 0_u64, 0);
            let place = |image| format!("{} {} image {image}", placed.path.display(), placed.layout.name);
            for (decode, image) in decode.iter().flat_map(|decode| (0..placed.layout.images).map(move |image| (decode, image))) {
                match self.pixels(placed, image, decode, &mut chunk) {
                    Ok(Some(_)) => {}
                    Ok(None) => absent += 1,
                    Err(error) => {
                        bad += 1;
                        if bad <= LISTED_MAX {
                            let what = format!("the image cannot be decoded: {}", error.cause);
                            add(Severity::Error, what, place(image), "bring back a whole copy of the file");
                        }
                    }
                }
            }
            if bad > LISTED_MAX {
                let what = format!("{} more images cannot be decoded", bad - LISTED_MAX);
                add(Severity::Error, what, placed.path.display().to_string(), "bring back a whole copy of the file");
            }
            not_there += absent;
            if absent > 0 {
                let what = format!("{absent} of {} images were never written", placed.layout.images);
                let place = format!("{} {}", placed.path.display(), placed.layout.name);
                add(Severity::Warning, what, place, "readers show the fill value for them; do not use them");
            }
        }
        let few = self.metadata.images_announced.unwrap_or(0).saturating_sub(self.images());
        if few > 0 && self.problems.is_empty() {
            let what = format!("{few} of the announced images are missing; {} are present", self.images());
            add(Severity::Warning, what, self.path.display().to_string(), "the series ended early, or data files are missing");
        }
        let metadata = &self.metadata;
        let known = [
            ("photon energy", metadata.energy_kev.is_some()),
            ("detector distance", metadata.detector_distance_m.is_some()),
            ("beam centre", metadata.beam_center_px.is_some()),
            ("pixel size", metadata.pixel_size_m.is_some()),
        ];
        let unknown: Vec<&str> = known.iter().filter(|(_, is_known)| !is_known).map(|(name, _)| *name).collect();
        if !unknown.is_empty() {
            let what = format!("not known: {}", unknown.join(", "));
            add(Severity::Warning, what, self.path.display().to_string(), "give these values to the processing program");
        }
        (found, not_there + few)
    }
}

fn metadata(file: &File) -> OthersMetadata {
    let detector = |name: &str| read_number(file, &format!("{DETECTOR}/{name}"));
    let length = |name: &str| {
        let units = file.dataset(&format!("{DETECTOR}/{name}")).ok().and_then(|d| read_attribute(&d, "units"));
        let per_m = match units.as_deref() {
            None | Some("m" | "metre" | "meter") => 1.0,
            Some("mm") => 1e3,
            Some("um" | "micron" | "µm") => 1e6,
            Some(_) => return None,
        };
        detector(name).map(|value| value / per_m)
    };
    let beams = ["/entry/instrument/beam", "/entry/sample/beam"];
    let of_beam = |name: &str| beams.iter().find_map(|beam| read_number(file, &format!("{beam}/{name}")));
    let wavelength = of_beam("incident_wavelength").filter(|angstrom| *angstrom > 0.0);
    OthersMetadata {
        energy_kev: wavelength.map(|angstrom| KEV_ANGSTROM / angstrom).or_else(|| Some(of_beam("incident_energy")? / 1000.0)),
        detector_distance_m: length("detector_distance").or_else(|| length("distance")),
        beam_center_px: detector("beam_center_x").zip(detector("beam_center_y")),
        pixel_size_m: length("x_pixel_size"),
        saturation_value: detector("saturation_value"),
        underload_value: detector("underload_value"),
        images_announced: announced(file),
    }
}

/// Number of announced images, as DECTRIS detectors write it.
fn announced(file: &File) -> Option<u64> {
    let number = |name: &str| read_number(file, &format!("{DETECTOR}/detectorSpecific/{name}"));
    let product = number("nimages")? * number("ntrigger").unwrap_or(1.0);
    (0.0..1e15).contains(&product).then_some(product as u64)
}
