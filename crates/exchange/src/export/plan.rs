//! What is to be exported, and what is known of it before anything is written.

use super::header::Header;
use crate::ended::exit_of;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_input::images::{Facts, Images};
use std::path::{Path, PathBuf};

/// Kind of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// miniCBF with byte offset, signed 32-bit.
    Cbf,
    /// TIFF, not packed; BigTIFF where it must be.
    Tiff,
    /// EDF.
    Edf,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cbf, Self::Tiff, Self::Edf];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cbf => "cbf",
            Self::Tiff => "tiff",
            Self::Edf => "edf",
        }
    }

    /// The end of the names of files.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Cbf => "cbf",
            Self::Tiff => "tif",
            Self::Edf => "edf",
        }
    }
}

/// What is to be exported, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// Master, data file, or HDF5 file of another program.
    pub input: PathBuf,
    /// Folder and first part of the names.
    pub output: PathBuf,
    /// Kind of the files.
    pub format: Format,
    /// Of images with several channels, the one to take; `None` = the first.
    pub channel: Option<String>,
    /// Only images with these numbers, from 0, both ends included.
    pub images: Option<(u64, u64)>,
    /// Number in the name of the file of image 0.
    pub first_number: u64,
    /// All images in one TIFF file.
    pub one_file: bool,
    /// BigTIFF in any case.
    pub big: bool,
    /// Files that are there are compared and kept; without it they are refused.
    pub resume: bool,
    /// Read each file back and compare every pixel.
    pub verify: bool,
    /// Threads; `None` = one for each processor.
    pub workers: Option<usize>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            input: PathBuf::new(),
            output: PathBuf::new(),
            format: Format::Cbf,
            channel: None,
            images: None,
            first_number: 1,
            one_file: false,
            big: false,
            resume: false,
            verify: false,
            workers: None,
        }
    }
}

/// An export whose input was opened.
pub struct Export {
    pub(super) request: Request,
    pub(super) facts: Facts,
    /// Numbers of the images, ascending.
    pub(super) numbers: Vec<u64>,
    pub(super) lost: u64,
    /// Numbers that say that a pixel is no measurement.
    pub(super) marks: Vec<f64>,
    pub(super) header: Header,
    prefix: String,
    folder: PathBuf,
}

/// The result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Images that were written.
    pub written: u64,
    /// Files that were there before, with the same pixels.
    pub kept: u64,
    /// Images without pixels, of which no file is made.
    pub lost: u64,
    /// Pixels that are no measurement, as they stand in the files.
    pub marked_pixels: u64,
    /// Bytes of the pixels.
    pub pixel_bytes: u64,
    /// Files that were read back and compared.
    pub compared: u64,
    /// It was stopped before the end.
    pub stopped: bool,
}

impl Done {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        exit_of(self.stopped, self.lost)
    }
}

fn usage(what: impl Into<String>, why: impl Into<String>, fix: &str) -> Failure {
    Failure::new(Exit::Usage, what, why, fix)
}

impl Export {
    /// Opens the input, and checks what can be known: types, names, files that are there. Nothing is written.
    ///
    /// # Errors
    /// The file cannot be read, its pixels do not fit the format, or files are in the way.
    pub fn open(request: Request) -> Result<Self, Failure> {
        let (folder, prefix) = place(&request)?;
        let images = Images::open(std::slice::from_ref(&request.input), request.channel.as_deref())?;
        let facts = images.facts.clone();
        if request.format == Format::Cbf && facts.pixel.is_float() {
            let why = format!("its pixels are {}, those of CBF files are whole numbers", facts.pixel);
            return Err(usage(
                format!("{} cannot become CBF files", request.input.display()),
                why,
                "choose --format tiff or edf",
            ));
        }
        if request.one_file && request.format != Format::Tiff {
            let why = format!("{} files have one image each", request.format.name());
            return Err(usage("--one-file goes with --format tiff", why, "leave --one-file out, or choose --format tiff"));
        }
        let (from, to) = request.images.unwrap_or((0, u64::MAX));
        let (first, last) = (from.min(facts.images), to.saturating_add(1).min(facts.images));
        if first >= last {
            let why = format!("it has images 0 to {}", facts.images.saturating_sub(1));
            return Err(usage(
                format!("{} has no image between {from} and {to}", request.input.display()),
                why,
                "correct --images",
            ));
        }
        let states = images.states().unwrap_or_default();
        let has_pixels = |image: &u64| states.get(*image as usize).is_none_or(|state| matches!(state, 1 | 2));
        let numbers: Vec<u64> = (first..last).filter(has_pixels).collect();
        let lost = last - first - numbers.len() as u64;
        let header = Header::new(&images, &prefix);
        let marks = marks(&images, facts.pixel);
        let export = Self { request, facts, numbers, lost, marks, header, prefix, folder };
        export.check_way()?;
        Ok(export)
    }

    /// What is known of the images.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Images that are to be written.
    pub fn images(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// The file of an image, or the one file of all.
    pub fn path(&self, image: u64) -> PathBuf {
        let suffix = self.request.format.suffix();
        if self.request.one_file {
            return self.folder.join(format!("{}.{suffix}", self.prefix));
        }
        let number = image.saturating_add(self.request.first_number);
        self.folder.join(format!("{}_{number:06}.{suffix}", self.prefix))
    }

    fn check_way(&self) -> Result<(), Failure> {
        if self.request.resume {
            return Ok(());
        }
        let there = self.numbers.iter().map(|image| self.path(*image)).find(|path| path.symlink_metadata().is_ok());
        there.map_or(Ok(()), |path| Err(exists(&path)))
    }

    /// Bytes of the pixels of an image.
    pub(super) fn image_bytes(&self) -> u64 {
        (self.facts.shape[0] * self.facts.shape[1] * self.facts.pixel.bytes()) as u64
    }
}

/// The failure for a file that is in the way.
pub fn exists(path: &Path) -> Failure {
    let why = "nothing is replaced";
    let fix = "give another name, move the file away, or give --resume to keep files that have the same pixels";
    Failure::new(Exit::State, format!("{} is there already", path.display()), why, fix)
}

/// Folder and first part of the names.
fn place(request: &Request) -> Result<(PathBuf, String), Failure> {
    let output = &request.output;
    let name = output.file_name().and_then(|name| name.to_str()).filter(|_| !output.is_dir());
    let name = name.ok_or_else(|| {
        let why = "the first part of the file names is missing, or is not UTF-8";
        usage(format!("{} names no file", output.display()), why, "add a name, for example out/run01")
    })?;
    let folder = output.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(Failure::io("cannot write into the folder", folder, &error));
    }
    let suffix = format!(".{}", request.format.suffix());
    Ok((folder.to_owned(), name.strip_suffix(&suffix).unwrap_or(name).to_owned()))
}

/// Numbers that say that a pixel is no measurement: those of our runs, of which images that came whole have only the
/// first; other programs mark pixels by the two highest numbers of a type without sign.
fn marks(images: &Images, pixel: PixelType) -> Vec<f64> {
    let special = pixel.special();
    match images.run() {
        Some(spec) if spec.has_only_missing() => vec![special.missing],
        Some(_) => vec![special.missing, special.masked, special.invalid],
        None if pixel.is_unsigned() => vec![special.missing, special.masked],
        None => Vec::new(),
    }
}
