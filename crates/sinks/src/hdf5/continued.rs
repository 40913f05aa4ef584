//! Continues a run whose writer was killed, and keeps every image that it had written: those of its finished data
//! files, as [`Writer::resume`] does, and those of the data file that was growing, which its journal names.
//!
//! The growing data file and its journal are put aside under hidden names, and their images are written again. Only
//! when the new files are on the disk are the old ones removed, the journal first. So whenever this is interrupted, the
//! images are in one of the two: a journal that was put aside means that they may not be in the new file yet.

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

/// A growing data file that was put aside.
struct Aside {
    data: PathBuf,
    journal: PathBuf,
}

impl Aside {
    fn of(path: &Path) -> Self {
        let hidden = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!(".{name}.continued"))
        };
        Self { data: hidden(path), journal: hidden(&journal_path(path)) }
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
        let growing = put_aside(&spec)?;
        let (mut writer, _) = Self::resume(spec)?;
        if let Some((aside, replay)) = growing {
            writer.write_again(&aside, &replay)?;
            writer.flush()?;
            writer.sync_current()?;
            drop(replay);
            remove(&aside.journal)?;
            remove(&aside.data)?;
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

/// Puts the data file that was growing aside, if there is one with images; also one that was put aside before.
fn put_aside(spec: &FileSpec) -> Result<Option<(Aside, Replay)>, Error> {
    let files = existing(&spec.directory, &spec.prefix).context(DOING, &spec.directory)?;
    for (_, data, _, has_journal) in &files {
        if *has_journal {
            refuse_if_alive(&journal_path(data))?;
        }
    }
    refuse_if_closed(spec, &files)?;
    let Some((number, data, has_data, _)) = files.iter().rev().find(|(.., has_journal)| *has_journal) else {
        // All finished: what was put aside before has been written again.
        let next = spec.directory.join(data_file_name(&spec.prefix, files.len() as u64 + 1));
        return take_up(spec, Aside::of(&next));
    };
    let (aside, journal) = (Aside::of(data), journal_path(data));
    if aside.journal.exists() {
        return take_up(spec, aside);
    }
    if aside.data.exists() && *has_data {
        // Everything in it was written again.
        remove(&aside.data)?;
    } else if aside.data.exists() {
        // Killed between the two renames below.
        std::fs::rename(&journal, &aside.journal).context(DOING, &journal)?;
        return take_up(spec, aside);
    }
    let Some(replay) = journal::replay(&journal)?.filter(|replay| *has_data && !replay.entries.is_empty()) else {
        return Ok(None);
    };
    check(spec, &replay, *number, &journal)?;
    // The data file first: beside a journal that is put aside lies its data file.
    std::fs::rename(data, &aside.data).context(DOING, data)?;
    std::fs::rename(&journal, &aside.journal).context(DOING, &journal)?;
    Ok(Some((aside, replay)))
}

/// Takes up what was put aside by one who was interrupted.
fn take_up(spec: &FileSpec, aside: Aside) -> Result<Option<(Aside, Replay)>, Error> {
    if !aside.journal.exists() {
        return Ok(None);
    }
    let Some(replay) = journal::replay(&aside.journal)? else { return Ok(None) };
    check(spec, &replay, replay.number, &aside.journal)?;
    Ok(Some((aside, replay)))
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
