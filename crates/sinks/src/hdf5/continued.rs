//! Continues a run whose writer was killed, and keeps every image that it had written: those of its finished data
//! files, as [`Writer::resume`] does, and those of the data files that have a journal, which names their images: the
//! one that was growing, and those before it that were full but not known to be on the disk.
//!
//! These data files and their journals are put aside under hidden names, the last one first, and their images are
//! written again. Only when the new files are on the disk are the old ones removed, the journals first. So whenever
//! this is interrupted, the images are in one of the two: a journal that was put aside means that they may not be in
//! the new file yet, and that nothing else is in that file and those behind it.

use std::path::{Path, PathBuf};

use super::columns::Columns;
use super::datafile::remove;
use super::error::{Context, Error, ErrorKind};
use super::journal::{self, NO_CHUNK, Replay, refuse_if_alive};
use super::names::{data_file_name, existing, journal_path};
use super::rescue::chunk_at;
use super::spec::FileSpec;
use super::writer::Writer;

const DOING: &str = "continue the run";

/// What a continued run has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Continued {
    /// Positions in the files: the next image has this number, or a higher one.
    pub positions: u64,
    /// Images with pixels among them.
    pub images_with_pixels: u64,
    /// Bytes of their chunks.
    pub chunk_bytes: u64,
}

/// A data file that was put aside.
struct Aside {
    /// The data file at its place.
    place: PathBuf,
    data: PathBuf,
    journal: PathBuf,
}

impl Aside {
    fn of(place: PathBuf) -> Self {
        let hidden = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!(".{name}.continued"))
        };
        Self { data: hidden(&place), journal: hidden(&journal_path(&place)), place }
    }

    fn exists(&self) -> bool {
        self.data.exists() || self.journal.exists()
    }
}

impl Writer {
    /// Continues a run of the same specification that was interrupted at any point before [`Writer::finish`], with all
    /// images that were written. Without any file of this prefix it is the same as [`Writer::create`].
    ///
    /// # Errors
    /// As [`Writer::resume`]. [`ErrorKind::Exists`] if the files of the run are closed: nothing can be added to them.
    /// [`ErrorKind::Damaged`] if an image cannot be read again; its file then stays under a hidden name.
    pub fn continue_whole(spec: FileSpec) -> Result<(Self, Continued), Error> {
        // The prefix may come from another host: it must not lead out of the folder.
        spec.validate()?;
        let directory = spec.directory.clone();
        let asides = put_aside(&spec)?;
        let (mut writer, _) = Self::resume(spec)?;
        for (aside, replay) in &asides {
            writer.write_again(aside, replay)?;
        }
        if !asides.is_empty() {
            writer.flush()?;
            writer.sync_current()?;
            asides.iter().map(|(aside, _)| &aside.place).filter(|place| place.exists()).try_for_each(|place| sync(place))?;
            asides.iter().try_for_each(|(aside, _)| remove(&aside.journal))?;
            // If a journal came back after a power cut, what follows would be taken for what is written again.
            sync(&directory)?;
            asides.iter().try_for_each(|(aside, _)| remove(&aside.data))?;
        }
        let continued = Continued {
            positions: writer.next_index(),
            images_with_pixels: writer.images_with_pixels(),
            chunk_bytes: writer.chunk_bytes(),
        };
        Ok((writer, continued))
    }

    fn write_again(&mut self, aside: &Aside, replay: &Replay) -> Result<(), Error> {
        let file = std::fs::File::open(&aside.data).context(DOING, &aside.data)?;
        let pieces = self.spec().pieces();
        for entry in &replay.entries {
            let damaged = || {
                let cause = format!("image {} of the interrupted run cannot be read", entry.image);
                let hint =
                    "remove the dot and `.continued` from the names of this file and its journal, and use `konkordia repair`";
                Error::new(ErrorKind::Damaged, DOING, &aside.data, cause).with_hint(hint)
            };
            let (places, row) = entry.parts(pieces).ok_or_else(damaged)?;
            let places = places.into_iter().filter(|(offset, _)| *offset != NO_CHUNK);
            let chunks = places.map(|place| chunk_at(&file, place, self.spec()).ok_or_else(damaged));
            let chunks = chunks.collect::<Result<Vec<_>, _>>()?;
            self.put_row(entry.image, &chunks.iter().map(Vec::as_slice).collect::<Vec<_>>(), row)?;
        }
        Ok(())
    }
}

/// Puts the data files aside that have a journal, and finds those that were put aside before; in their order.
fn put_aside(spec: &FileSpec) -> Result<Vec<(Aside, Replay)>, Error> {
    let files = existing(&spec.directory, &spec.prefix).context(DOING, &spec.directory)?;
    for (_, data, _, has_journal) in &files {
        if *has_journal {
            refuse_if_alive(&journal_path(data))?;
        }
    }
    let aside_of = |number: u64| Aside::of(spec.directory.join(data_file_name(&spec.prefix, number)));
    let end = 1 + (1..).take_while(|n| files.iter().any(|file| file.0 == *n) || aside_of(*n).exists()).last().unwrap_or(0);
    let is_aside = |number: &u64| aside_of(*number).journal.exists();
    if !(1..end).any(|number| is_aside(&number)) {
        refuse_if_closed(spec, &files)?;
    }
    for (number, data, has_data, has_journal) in &files {
        let aside = aside_of(*number);
        match (aside.data.exists(), aside.journal.exists()) {
            // Everything in it was written again.
            (true, false) if *has_data => remove(&aside.data)?,
            // Killed between the two renames below.
            (true, false) if *has_journal => rename(&journal_path(data), &aside.journal)?,
            _ => {}
        }
    }
    if let Some(first) = (1..end).find(is_aside) {
        for (_, data, ..) in files.iter().filter(|file| file.0 >= first) {
            let journal = journal_path(data);
            // As the head of this file says; the data file first, because without a journal it counts as finished.
            [data, &journal].into_iter().filter(|path| path.exists()).try_for_each(|path| remove(path))?;
        }
    }
    for (number, data, ..) in files.iter().rev() {
        let (aside, journal) = (aside_of(*number), journal_path(data));
        if !data.exists() || !journal.exists() {
            continue;
        }
        let Some(replay) = journal::replay(&journal)?.filter(|replay| !replay.entries.is_empty()) else { continue };
        check(spec, &replay, *number, &journal)?;
        // The data file first: beside a journal that is put aside lies its data file.
        rename(data, &aside.data)?;
        rename(&journal, &aside.journal)?;
    }
    let mut found = Vec::new();
    for aside in (1..end).filter(is_aside).map(aside_of) {
        let Some(replay) = journal::replay(&aside.journal)? else { continue };
        check(spec, &replay, replay.number, &aside.journal)?;
        found.push((aside, replay));
    }
    Ok(found)
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::rename(from, to).context(DOING, from)
}

fn sync(path: &Path) -> Result<(), Error> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).context(DOING, path)
}

fn check(spec: &FileSpec, replay: &Replay, number: u64, journal: &Path) -> Result<(), Error> {
    let row = Columns::new(spec).row_bytes;
    let is_whole = |entry: &journal::Entry| entry.parts(spec.pieces()).is_some_and(|(_, bytes)| bytes.len() == row);
    if replay.text != spec.to_text() || replay.number != number || !replay.entries.iter().all(is_whole) {
        let cause = "it belongs to another run";
        let hint = "choose another prefix or folder, or move these files away";
        return Err(Error::new(ErrorKind::Invalid, DOING, journal, cause).with_hint(hint));
    }
    Ok(())
}

/// A data file that is closed before it is full is the last one of a run that is over. If all planned images are there,
/// the run can still be finished again.
fn refuse_if_closed(spec: &FileSpec, files: &[(u64, PathBuf, bool, bool)]) -> Result<(), Error> {
    let Some((number, data, true, false)) = files.last() else { return Ok(()) };
    let (images, full) = (super::reader::inspect(data)?.images, u64::from(spec.images_per_file));
    if images == full || spec.images_planned == Some((number - 1) * full + images) {
        return Ok(());
    }
    let cause = "the files of this run are closed, and nothing can be added to them";
    Err(Error::new(ErrorKind::Exists, DOING, data, cause).with_hint("choose another prefix or folder, or move these files away"))
}
