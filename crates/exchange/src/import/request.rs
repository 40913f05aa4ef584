//! What is to be imported, what came of it, and what both kinds of import do alike.

use crate::ended::exit_of;
use crate::files::{Order, RawForm, Reading};
use crate::mapping::{Images, Mapped, Mapping};
use crate::parallel::all_processors;
use konkordia_core::array::Element;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_core::series::SeriesStart;
use konkordia_sinks::hdf5::{FileReport, FileSpec, Overwrite, spec_of_series};
use konkordia_wire::files::{self, Name};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Failures that a report names one by one.
pub const NAMED_MAX: usize = 20;

/// What is to be imported, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// Files and folders.
    pub input: Vec<PathBuf>,
    /// Folder and first part of the file names.
    pub output: PathBuf,
    /// Take the files as plain pixels.
    pub raw: Option<RawForm>,
    /// How images find their positions; `None` = see `Series::find`.
    pub order: Option<Order>,
    /// The mapping; `None` = only what the headers say under known keys.
    pub mapping: Option<PathBuf>,
    /// The table, if the mapping names none or another.
    pub table: Option<PathBuf>,
    /// Of the pixels, lossless.
    pub compression: Compression,
    /// Images per data file.
    pub images_per_file: u32,
    /// Threads that read and pack; `None` = one for each processor.
    pub workers: Option<usize>,
    /// Replace older files of this name.
    pub overwrite: bool,
    /// Continue an interrupted import.
    pub resume: bool,
    /// A file that cannot be read makes a lost image instead of an end.
    pub skip_unreadable: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            input: Vec::new(),
            output: PathBuf::new(),
            raw: None,
            order: None,
            mapping: None,
            table: None,
            compression: Compression::BSLZ4,
            images_per_file: 1000,
            workers: None,
            overwrite: false,
            resume: false,
            skip_unreadable: false,
        }
    }
}

impl Request {
    pub(super) fn reading(&self) -> Reading {
        Reading { raw: self.raw, ..Reading::default() }
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.unwrap_or_else(all_processors).max(1)
    }

    /// The folder, and the first part of the names; `run_master.h5` and `run` are the same.
    ///
    /// # Errors
    /// The output names no file.
    pub fn place(&self) -> Result<(PathBuf, String), Failure> {
        let name = self.output.file_name().and_then(|name| name.to_str()).filter(|_| !self.output.is_dir());
        let Some(name) = name else {
            let fix = format!("add a name: {}", self.output.join("run01").display());
            let why = "the first part of the file names is missing, or is not UTF-8";
            return Err(Failure::new(Exit::Usage, format!("{} names no file", self.output.display()), why, fix));
        };
        let prefix = name.strip_suffix("_master.h5").unwrap_or(name).to_owned();
        let folder = self.output.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok((folder.to_owned(), prefix))
    }

    /// The specification of the files: what the request says, what `start` says, what the mapping adds.
    pub(super) fn file_spec(
        &self,
        start: &SeriesStart,
        mapped: &Mapped,
        form: Form,
        extra: Vec<(String, String)>,
    ) -> Result<FileSpec, Failure> {
        let (directory, prefix) = self.place()?;
        let known = FileSpec {
            directory,
            prefix,
            images_per_file: self.images_per_file,
            overwrite: if self.overwrite { Overwrite::Replace } else { Overwrite::Refuse },
            compression: self.compression,
            ..FileSpec::default()
        };
        let mut spec = spec_of_series(&known, start, form);
        spec.metadata = mapped.metadata.clone().over(spec.metadata);
        spec.extra_columns = mapped.columns.clone();
        spec.conversion.extend(extra);
        spec.conversion.extend(mapped.notes.iter().map(|(name, text)| (format!("mapping_{name}"), text.clone())));
        if let Some(limit) = mapped.metadata.saturation_value.map(|limit| limit as f64) {
            spec.saturation = Some(spec.saturation.map_or(limit, |most| most.min(limit)));
        }
        if let Some(limit) = mapped.metadata.underload_value.map(|limit| limit as f64) {
            spec.underload = Some(spec.underload.map_or(limit, |least| least.max(limit)));
        }
        Ok(spec)
    }
}

/// Type and size of the images.
pub type Form = (Element, [u64; 2]);

/// The result of an import, whose files are closed.
#[derive(Debug)]
pub struct Done {
    /// What was written.
    pub file: FileReport,
    /// Images that were there before and were kept.
    pub images_kept: u64,
    /// Images with pixels, those kept too.
    pub complete: u64,
    /// Positions without pixels.
    pub lost: u64,
    /// Files that could not be read, the first ones of them.
    pub unreadable: Vec<Failure>,
    /// Bytes of the pixels, unpacked.
    pub pixel_bytes: u64,
    /// Bytes of the files that were read.
    pub source_bytes: u64,
    /// Headers that lacked a key of the mapping.
    pub lacking: u64,
    /// True if it was stopped before the end.
    pub stopped: bool,
}

impl Done {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        exit_of(self.stopped, self.lost)
    }
}

/// Type and size of an image.
pub fn form_of(file: &files::File) -> Form {
    let size = match *file.array.shape.dimensions() {
        [rows, columns] => [rows, columns],
        _ => [1, file.array.shape.elements()],
    };
    (file.array.element, size)
}

/// Bytes of the pixels of an image.
pub fn bytes_of((element, [rows, columns]): Form) -> u64 {
    rows * columns * u64::from(element.bits()) / 8
}

/// The start of the series: facts, mask and threshold of the first image.
pub fn start(first: &files::File, name: &str, first_number: u64) -> Result<Arc<SeriesStart>, Failure> {
    let plain = Name { before: name, number: first_number, after: "" };
    let name = Name::read(name).unwrap_or(plain);
    let mut start = files::start(1, &Name { number: first_number, ..name }, first);
    start.series = 0;
    Ok(Arc::new(start))
}

/// What the mapping of a request says of these images.
pub fn mapped(
    request: &Request,
    mapping: Option<&Mapping>,
    images: &Images,
    said: &Map<String, Value>,
) -> Result<Mapped, Failure> {
    match (&request.mapping, mapping) {
        (Some(path), Some(mapping)) => Mapped::new((path, mapping), request.table.as_deref(), images, said),
        _ if request.table.is_some() => {
            let why = "nothing says what its columns are";
            Err(Failure::new(Exit::Usage, "a table without a mapping", why, "add --mapping FILE.toml (docs/import.md)"))
        }
        _ => Ok(Mapped::default()),
    }
}
