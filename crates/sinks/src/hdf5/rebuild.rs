//! Rebuilds the data file that a killed writer left, from the journal beside it. If the journal was cut or has damaged
//! records, what it lacks is searched for in the data file.

use konkordia_core::output::temporary_path;
use std::path::{Path, PathBuf};

use super::channels;
use super::checksum;
use super::columns::Columns;
use super::constant::{LostBudget, MissingChunk};
use super::datafile::{DataFile, JOURNAL_CRC32, remove};
use super::error::{Context, Error, ErrorKind};
use super::journal::{self, Entry, NO_CHUNK, Replay};
use super::low;
use super::names::journal_path;
use super::paths::{OWN, STACK};
use super::repair::{MissingImages, Run, ranges};
use super::rescue::{self, Damaged, Image, Remains, chunk_at};
use super::spec::FileSpec;

const DOING: &str = "rebuild the data file";

/// The result for the images of a journal and its data file.
#[derive(Default)]
struct Copied {
    with_pixels: u64,
    /// Images, by position in the run, that had pixels and have none now.
    lost: Vec<u64>,
    /// Number of lost images whose position is not known.
    uncertain: u64,
    /// Images that are lacking in the journal and were found in the data file.
    found: u64,
    /// Those of them for which no checksum is left.
    unverified: u64,
    notes: Vec<String>,
}

/// The journal, its data file, and the specification to read them.
struct Source<'a> {
    replay: &'a Replay,
    spec: &'a FileSpec,
    columns: &'a Columns,
    old: std::fs::File,
    /// Searched only if the journal is not complete.
    remains: Option<Remains<'a>>,
}

impl Run<'_> {
    /// Rebuilds one data file from its journal; returns the run description if the journal has one.
    pub(super) fn rebuild(&mut self, data: &Path, has_data: bool) -> Result<Option<FileSpec>, Error> {
        let journal = journal_path(data);
        let replay = journal::replay(&journal)?;
        let Some(replay) = replay.as_ref().filter(|replay| !replay.entries.is_empty() || replay.bad_behind > 0) else {
            let is_empty = replay.map(|replay| replay.is_empty);
            return self.without_records(data, has_data, is_empty).map(|()| None);
        };
        let damaged = |cause: String| {
            let hint = "keep both files and report the problem";
            Error::new(ErrorKind::Damaged, DOING, &journal, cause).with_hint(hint)
        };
        let mut spec = FileSpec::from_text(&replay.text).map_err(damaged)?;
        spec.directory = self.directory.to_owned();
        if !has_data {
            // The data file is absent; its journal stays and waits for it.
            return Ok(Some(spec));
        }
        if is_made_of(data, replay.crc32) {
            // A repair was interrupted before its last step.
            let was_damaged = rescue::kept_names(data).next().is_some_and(|name| name.exists());
            if was_damaged {
                put_aside(&journal)?
            } else {
                remove(&journal)?
            }
            return Ok(Some(spec));
        }
        spec.pixel_mask = self.mask_of(data, spec.pixels()).unwrap_or_else(|| vec![0; spec.pixels()]);
        channels::take_back(&mut spec, &[&self.master, data]);
        spec.validate()?;
        let columns = Columns::new(&spec);
        let part = temporary_path(data);
        if part.exists() {
            remove(&part)?;
        }
        let made = self.replace(replay, &spec, &columns, data, &part);
        if !matches!(made, Ok(true)) {
            let _ = std::fs::remove_file(&part);
        }
        if made? {
            self.rebuilt.push(data.to_owned());
        } else {
            let images = replay.entries.last().map_or(0, |entry| entry.image.wrapping_sub(replay.first).saturating_add(1));
            self.journaled.push((replay.number, images.min(u64::from(spec.images_per_file))));
        }
        Ok(Some(spec))
    }

    /// Builds the file and puts it in the place of the old one. The old one is kept if something of it was lost or the
    /// journal was not complete. False if nothing can be read: then both files stay as they are and wait for a copy.
    fn replace(&mut self, replay: &Replay, spec: &FileSpec, columns: &Columns, data: &Path, part: &Path) -> Result<bool, Error> {
        let journal = journal_path(data);
        // Takes effect only if the new file takes the place of the old one.
        let mut budget = self.lost_budget;
        let copied = {
            let source = Source::of(replay, spec, columns, data, &self.master)?;
            let file = DataFile::create_hdf5(spec, columns, replay.number, replay.first, part.to_owned(), None)?;
            file.mark(replay.crc32)?;
            source.copy(file, &mut budget)?
        };
        if copied.with_pixels == 0 && (!copied.lost.is_empty() || copied.uncertain > 0) {
            return Ok(false);
        }
        std::fs::File::open(part).and_then(|file| file.sync_all()).context(DOING, part)?;
        let is_whole = copied.lost.is_empty() && copied.uncertain == 0 && copied.found == 0 && replay.bad == 0;
        let kept = if is_whole {
            None
        } else {
            let kept = rescue::keep(data)?;
            let kept_journal = journal_path(&kept);
            std::fs::hard_link(&journal, &kept_journal)
                .or_else(|_| std::fs::copy(&journal, &kept_journal).map(drop))
                .context(DOING, &kept_journal)?;
            Some(kept)
        };
        std::fs::rename(part, data).context(DOING, data)?;
        self.lost_budget = budget;
        remove(&journal)?;
        self.report(copied, data, kept.as_deref());
        Ok(true)
    }

    fn report(&mut self, copied: Copied, data: &Path, kept: Option<&Path>) {
        self.notes.extend(copied.notes);
        self.lose(&copied.lost, data, kept);
        let Some(kept) = kept else { return };
        let (shown, kept_journal) = (data.display(), journal_path(kept));
        if let Some(lost) = self.lost.last_mut().filter(|_| !copied.lost.is_empty()) {
            lost.fix = with_journal(data, &kept_journal);
        }
        if copied.uncertain > 0 {
            let why = format!("their records in the journal of {shown} are damaged; the old file is kept as {}", kept.display());
            self.lost.push(MissingImages {
                images: copied.uncertain,
                ranges: Vec::new(),
                why,
                fix: with_journal(data, &kept_journal),
            });
        }
        if copied.found > 0 {
            let n = copied.found;
            self.notes
                .push(format!("the journal of {shown} is damaged; {n} image(s) not recorded in it were found in the data file"));
        }
        self.note_unverified(copied.unverified, data);
        if copied.lost.is_empty() && copied.uncertain == 0 {
            self.notes.push(format!("the old {shown} is kept as {}, its journal as {}", kept.display(), kept_journal.display()));
        }
    }

    /// Handles a data file whose journal has no record: usually it was created and got no image. `is_empty` = the
    /// journal ends at its header; `None` = it has no header.
    fn without_records(&mut self, data: &Path, has_data: bool, is_empty: Option<bool>) -> Result<(), Error> {
        let journal = journal_path(data);
        let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let has_bytes = std::fs::metadata(data).is_ok_and(|facts| facts.len() > 0);
        if has_data && !has_bytes {
            // A killed writer leaves no empty file: the data did not reach the disk. The file stays, as evidence of
            // this.
            return if journal::has_records(&journal) { put_aside(&journal) } else { remove(&journal) };
        }
        if !has_data && is_empty.is_none() {
            // The same; its journal stays, as evidence of this.
            return Ok(());
        }
        let images = low::open_file(data).and_then(|file| Ok(file.dataset(STACK)?.shape().first().copied().unwrap_or(0)));
        // A journal that ends at its header says that there is no image; a file that is not a journal says nothing.
        let may_hold_images = has_data && images.map_or(is_empty != Some(true), |images| images > 0);
        if may_hold_images {
            self.notes.push(format!("the journal of {name} has no records, but the file holds images; kept unchanged"));
        } else if is_empty.is_none() {
            // The same; both files stay, as evidence of this.
            return Ok(());
        } else {
            if has_data {
                remove(data)?;
            }
            self.notes.push(format!("{name} was created but received no image; removed"));
        }
        if journal::has_records(&journal) { put_aside(&journal) } else { remove(&journal) }
    }

    /// Records images that were left out of a data file when it was written again.
    pub(super) fn lose(&mut self, lost: &[u64], data: &Path, kept: Option<&Path>) {
        if lost.is_empty() {
            return;
        }
        let place = kept.map_or(String::new(), |kept| format!("; the old file is kept as {}", kept.display()));
        let why = format!("their bytes in {} are not those that were written{place}", data.display());
        let fix = format!("bring back a whole copy of {}, and run repair again", data.display());
        self.lost.push(MissingImages { images: lost.len() as u64, ranges: ranges(lost), why, fix });
    }

    pub(super) fn note_unverified(&mut self, images: u64, data: &Path) {
        if images > 0 {
            let shown = data.display();
            self.notes.push(format!("{images} image(s) of {shown} were kept without verification: their checksums are lost"));
        }
    }
}

fn with_journal(data: &Path, kept_journal: &Path) -> String {
    let (shown, kept) = (data.display(), kept_journal.display());
    format!(
        "bring back a whole copy of {shown}, rename {kept} to {} if the copy was not closed, and run repair again",
        journal_path(data).display()
    )
}

/// Whether the data file was rebuilt from exactly this journal.
fn is_made_of(data: &Path, journal_crc32: u32) -> bool {
    let mark = low::open_file(data).and_then(|file| file.group(OWN)?.attr(JOURNAL_CRC32)?.read_scalar::<u32>());
    mark.is_ok_and(|mark| mark == journal_crc32)
}

/// Renames a journal, so that it is no longer taken for one.
fn put_aside(journal: &Path) -> Result<(), Error> {
    let free: Option<PathBuf> = rescue::kept_names(journal).find(|name| !name.exists());
    let free = free.expect("names do not end");
    std::fs::rename(journal, &free).context("keep the journal", &free)
}

impl<'a> Source<'a> {
    fn of(replay: &'a Replay, spec: &'a FileSpec, columns: &'a Columns, data: &'a Path, master: &'a Path) -> Result<Self, Error> {
        let old = std::fs::File::open(data).context(DOING, data)?;
        let last = replay.entries.last().map_or(0, |entry| entry.image.wrapping_sub(replay.first).saturating_add(1));
        let shape = low::open_file(data).and_then(|file| Ok(file.dataset(STACK)?.shape().first().copied().unwrap_or(0)));
        let is_complete = replay.bad == 0 && shape.is_ok_and(|images| images as u64 <= last);
        let damaged = Damaged { path: data, number: replay.number, images: None, spec, columns, master };
        let remains = if is_complete { None } else { Some(Remains::of(&damaged, None)?) };
        Ok(Self { replay, spec, columns, old, remains })
    }

    /// Copies every chunk that the journal names from the raw bytes of the old file. The metadata of libhdf5 in that
    /// file are trusted only where the journal fails.
    fn copy(&self, mut file: DataFile, budget: &mut LostBudget) -> Result<Copied, Error> {
        let mut copied = Copied::default();
        let mut bad = 0;
        for entry in &self.replay.entries {
            bad += entry.bad_before;
            let local = entry.image.wrapping_sub(self.replay.first);
            if local < file.images()
                || local >= u64::from(self.spec.images_per_file)
                || !self.put(entry, local, bad, &mut file, &mut copied)?
            {
                let note = format!("image {}: its journal record is inconsistent with the others and was skipped", entry.image);
                copied.notes.push(note);
                continue;
            }
            bad = 0;
        }
        bad += self.replay.bad_behind;
        let known = self.remains.as_ref().map_or(0, Remains::end).max(file.images() + bad);
        self.fill(known.min(u64::from(self.spec.images_per_file)), bad, &mut file, &mut copied)?;
        if let Some(missing) = &MissingChunk::of(self.spec) {
            file.fill_lost(missing, budget);
        }
        file.flush()?;
        file.close(None)?;
        Ok(copied)
    }

    /// Copies one image, after those named by the `bad` damaged records before it. False if its record cannot be right.
    fn put(&self, entry: &Entry, local: u64, bad: u64, file: &mut DataFile, copied: &mut Copied) -> Result<bool, Error> {
        let columns = self.columns;
        // Journals of earlier versions have no checksums.
        let is_row = |row: &[u8]| row.len() == columns.row_bytes || row.len() + checksum::BYTES == columns.row_bytes;
        let Some((places, row)) = entry.parts(self.spec.pieces()).filter(|(_, row)| is_row(row)) else { return Ok(false) };
        if bad > 0 {
            self.fill(local, bad, file, copied)?;
        }
        let has_sum = row.len() == columns.row_bytes;
        let mut row = row.to_vec();
        row.resize(columns.row_bytes, 0);
        if places.iter().all(|(offset, _)| *offset == NO_CHUNK) {
            return file.write(local, &[], &row).map(|()| true);
        }
        let chunks: Option<Vec<Vec<u8>>> = places.iter().map(|place| chunk_at(&self.old, *place, self.spec)).collect();
        let chunks = chunks.unwrap_or_default();
        let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let sum = checksum::of(parts.iter().copied());
        if parts.is_empty() || (has_sum && columns.checksum(&row) != sum) {
            copied.lost.push(entry.image);
            return file.write(local, &[], &vec![0; columns.row_bytes]).map(|()| true);
        }
        columns.set_checksum(&mut row, sum);
        copied.with_pixels += 1;
        file.write(local, &parts, &row).map(|()| true)
    }

    /// Fills in the images up to `end`; of them the journal only says that `bad` of its records, which are damaged,
    /// named some.
    fn fill(&self, end: u64, mut bad: u64, file: &mut DataFile, copied: &mut Copied) -> Result<(), Error> {
        let was_cut = bad == 0;
        let mut unknown = Vec::new();
        for local in file.images()..end {
            let image = self.remains.as_ref().map_or(Image::Unknown, |remains| remains.image(local));
            let is_known = !matches!(image, Image::Unknown);
            match image {
                Image::Pixels { chunks, row, is_verified } => {
                    let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
                    file.write(local, &parts, &row)?;
                    (copied.with_pixels, copied.found) = (copied.with_pixels + 1, copied.found + 1);
                    copied.unverified += u64::from(!is_verified);
                }
                Image::Without(row) => file.write(local, &[], &row)?,
                Image::Lost => {
                    copied.lost.push(self.replay.first + local);
                    file.write(local, &[], &vec![0; self.columns.row_bytes])?;
                }
                Image::Unknown => unknown.push(self.replay.first + local),
            }
            bad = bad.saturating_sub(u64::from(is_known));
        }
        file.extend(file.images().max(end))?;
        if was_cut || bad >= unknown.len() as u64 {
            copied.lost.extend(unknown);
        } else {
            copied.uncertain += bad;
        }
        Ok(())
    }
}
