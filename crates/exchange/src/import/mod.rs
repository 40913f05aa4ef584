//! Images of files of other programs into a master and data files, as a series: in parallel, resumable, compared with the
//! originals if that is wanted.

mod account;
mod one;
mod verify;
mod watch;

pub use verify::Compared;
pub use watch::{Watch, WatchEnd};

use crate::files::{Opened, Order, RawForm, Reading, Series, Unpack};
use crate::mapping::{Images, Mapped, Mapping};
pub use crate::parallel::Progress;
use crate::parallel::all_processors;
use account::Account;
use konkordia_core::array::Element;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Compression;
use konkordia_core::series::{Ended, SeriesStart};
use konkordia_repack::pipeline;
use konkordia_sinks::hdf5::{FileReport, FileSpec, Overwrite, SeriesRecord, Writer, master_path, spec_of_series};
use konkordia_wire::files::{self, Name};
use one::{Made, One};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Failures that a report names one by one.
const NAMED_MAX: usize = 20;

/// What is to be imported, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// Files and folders.
    pub input: Vec<PathBuf>,
    /// Folder and first part of the file names.
    pub output: PathBuf,
    /// Take the files as plain pixels.
    pub raw: Option<RawForm>,
    /// How images find their positions; `None` = see [`Series::find`].
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
            compression: Compression::Bslz4,
            images_per_file: 1000,
            workers: None,
            overwrite: false,
            resume: false,
            skip_unreadable: false,
        }
    }
}

impl Request {
    fn reading(&self) -> Reading {
        Reading { raw: self.raw, ..Reading::default() }
    }

    fn workers(&self) -> usize {
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
    fn file_spec(
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
type Form = (Element, [u64; 2]);

/// An import whose input was understood.
pub struct Import {
    request: Request,
    series: Series,
    form: Form,
    mapped: Mapped,
    spec: FileSpec,
}

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
        match (self.stopped, self.lost) {
            (true, _) => Exit::Interrupted,
            (false, 0) => Exit::Complete,
            (false, _) => Exit::Incomplete,
        }
    }
}

impl Import {
    /// Finds the images, reads the first one, the mapping and the table, and checks what can be known. Nothing is
    /// written.
    ///
    /// # Errors
    /// The input cannot be read or does not belong together, or the mapping does not fit it.
    pub fn open(request: Request) -> Result<Self, Failure> {
        request.place()?;
        let mapping = request.mapping.as_deref().map(Mapping::load).transpose()?;
        let series = Series::find(&request.input, &request.reading(), request.order, request.skip_unreadable)?;
        let (first, name) = first(&series, &request)?;
        let form = form_of(&first);
        let images = images(&series)?;
        let mapped = mapped(&request, mapping.as_ref(), &images, &first.said)?;
        let start = start(&first, &name, series.first_number)?;
        let mut notes = vec![
            ("input".to_owned(), format!("{} files", series.kind)),
            ("input_files".into(), file_range(&series.files)),
            ("input_identity".into(), series.identity.clone()),
        ];
        notes.extend(mapping.iter().map(|mapping| ("mapping".to_owned(), mapping.text.clone())));
        let mut spec = request.file_spec(&start, &mapped, form, notes)?;
        spec.images_planned = Some(series.positions);
        Ok(Self { request, series, form, mapped, spec })
    }

    /// The images that were found.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// What the files will say.
    pub fn spec(&self) -> &FileSpec {
        &self.spec
    }

    /// The master that is made.
    pub fn master(&self) -> PathBuf {
        master_path(&self.spec.directory, &self.spec.prefix)
    }

    /// What a person should know of the mapping.
    pub fn notes(&self) -> &[(String, String)] {
        &self.mapped.notes
    }

    /// Bytes of the pixels of one image.
    pub fn image_bytes(&self) -> u64 {
        bytes_of(self.form)
    }

    /// Imports all images, or those that an interrupted import left. `stop` ends it behind the images that are being
    /// worked on; `show` is called after each image.
    ///
    /// # Errors
    /// A file cannot be read or does not fit the others, or the output cannot be written. Images up to there are in the
    /// files, which are closed and valid.
    pub fn run(&self, stop: &AtomicBool, show: &mut dyn FnMut(&Progress)) -> Result<Done, Failure> {
        let (mut writer, kept) = match self.request.resume {
            true => Writer::resume(self.spec.clone())?,
            false => (Writer::create(self.spec.clone())?, 0),
        };
        let mut account = Account::of_kept(&self.spec, kept)?;
        self.series.unreadable.iter().for_each(|failure| account.unreadable(failure.clone()));
        let mut items = self.series.items.iter().filter(|item| item.position >= kept);
        let left = self.series.items.iter().filter(|item| item.position >= kept).count() as u64;
        let mut progress = Progress::new(left);
        let began = std::time::Instant::now();
        let result = pipeline::run(
            self.request.workers(),
            || Ok(items.next().copied().filter(|_| !stop.load(Ordering::Acquire))),
            || One::new(self.form, self.request.compression),
            |one, item| {
                let made = one.make(&self.series.files[item.file as usize], item.nth, &self.request.reading(), self.form);
                match made {
                    Ok(made) => Ok((item.position, self.completed(item.position, made))),
                    Err(failure) if self.request.skip_unreadable && failure.exit == Exit::Configuration => {
                        Ok((item.position, Err(failure)))
                    }
                    Err(failure) => Err(failure),
                }
            },
            |(position, made)| {
                match made {
                    Ok(made) => {
                        account.enter(&made, bytes_of(self.form));
                        write(&mut writer, position, &made)?;
                    }
                    Err(failure) => account.unreadable(failure),
                }
                progress.add(bytes_of(self.form));
                writer.tick(began.elapsed().as_nanos() as u64)?;
                show(&progress);
                Ok(())
            },
        );
        let stopped = stop.load(Ordering::Acquire) && progress.images_done < left;
        let ended = match (&result, stopped) {
            (Ok(()), false) => Ended::Finished,
            (Ok(()), true) => Ended::Stopped,
            (Err(_), _) => Ended::Failed,
        };
        let positions = if ended == Ended::Finished { self.series.positions } else { writer.next_index() };
        let reason = result.as_ref().err().map_or_else(String::new, Failure::detail);
        let record = account.record((ended, reason), positions);
        let file = writer.finish(&record);
        result?;
        Ok(account.done(file?, kept, positions, stopped))
    }

    /// Adds what the mapping says of an image.
    fn completed(&self, position: u64, mut made: Made) -> Result<Made, Failure> {
        made.times = self.mapped.of_image(position, &made.said, &mut made.extra, &mut made.lacking);
        Ok(made)
    }
}

/// Writes an image; positions before it that were not written are lost.
fn write(writer: &mut Writer, position: u64, made: &Made) -> Result<(), Failure> {
    let pieces = [&made.chunk[..]];
    let record = SeriesRecord {
        index: position,
        status: ImageStatus::Complete,
        pieces: &pieces,
        times: made.times,
        parts_missing: 0,
        extra: &made.extra,
    };
    Ok(writer.write_series(&record)?)
}

/// The first image that can be read, and the name of its file.
fn first(series: &Series, request: &Request) -> Result<(files::File, String), Failure> {
    let mut unpack = Unpack::default();
    let mut last = None;
    for item in &series.items {
        let path = &series.files[item.file as usize];
        match Opened::open(path, &request.reading()).and_then(|opened| opened.read(item.nth, &mut unpack)) {
            Ok(file) => return Ok((file, path.file_name().unwrap_or_default().to_string_lossy().into_owned())),
            Err(failure) if request.skip_unreadable && failure.exit == Exit::Configuration => last = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    let none = || Failure::new(Exit::Configuration, "there are no images in the input", "", "name other files");
    Err(last.unwrap_or_else(none))
}

fn form_of(file: &files::File) -> Form {
    let size = match *file.array.shape.dimensions() {
        [rows, columns] => [rows, columns],
        _ => [1, file.array.shape.elements()],
    };
    (file.array.element, size)
}

fn bytes_of((element, [rows, columns]): Form) -> u64 {
    rows * columns * u64::from(element.bits()) / 8
}

/// The start of the series: facts, mask and threshold of the first image.
fn start(first: &files::File, name: &str, first_number: u64) -> Result<Arc<SeriesStart>, Failure> {
    let plain = Name { before: name, number: first_number, after: "" };
    let name = Name::read(name).unwrap_or(plain);
    let mut start = files::start(1, &Name { number: first_number, ..name }, first);
    start.series = 0;
    Ok(Arc::new(start))
}

fn images(series: &Series) -> Result<Images, Failure> {
    let name = |file: u32| series.files[file as usize].file_name().unwrap_or_default().to_string_lossy().into_owned();
    let list = series.items.iter().map(|item| (item.position, item.position + series.first_number, name(item.file)));
    Ok(Images { list: list.collect(), positions: series.positions })
}

fn mapped(request: &Request, mapping: Option<&Mapping>, images: &Images, said: &Map<String, Value>) -> Result<Mapped, Failure> {
    match (&request.mapping, mapping) {
        (Some(path), Some(mapping)) => Mapped::new((path, mapping), request.table.as_deref(), images, said),
        _ if request.table.is_some() => {
            let why = "nothing says what its columns are";
            Err(Failure::new(Exit::Usage, "a table without a mapping", why, "add --mapping FILE.toml (docs/import.md)"))
        }
        _ => Ok(Mapped::default()),
    }
}

/// The first and the last file, in words.
fn file_range(files: &[PathBuf]) -> String {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match files {
        [] => String::new(),
        [only] => name(only),
        [first, .., last] => format!("{} to {} ({} files)", name(first), name(last), files.len()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
