//! An import of files that are all there.

use super::account::Account;
use super::one::{Made, One, write};
use super::request::{Done, Form, Request, bytes_of, form_of, mapped, start};
use crate::files::{Opened, Series, Unpack};
use crate::mapping::{Images, Mapped, Mapping};
use crate::parallel::Progress;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::series::Ended;
use konkordia_repack::pipeline;
use konkordia_sinks::hdf5::{FileSpec, Writer, master_path};
use konkordia_wire::files;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// An import whose input was understood.
pub struct Import {
    pub(super) request: Request,
    pub(super) series: Series,
    pub(super) form: Form,
    mapped: Mapped,
    spec: FileSpec,
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

fn images(series: &Series) -> Result<Images, Failure> {
    let name = |file: u32| series.files[file as usize].file_name().unwrap_or_default().to_string_lossy().into_owned();
    let list = series.items.iter().map(|item| (item.position, item.position + series.first_number, name(item.file)));
    Ok(Images { list: list.collect(), positions: series.positions })
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
