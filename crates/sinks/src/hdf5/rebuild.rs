//! Rebuilds the data file that a killed writer left from the journal beside it. What the journal does not say any more, because it was cut or some
//! of its records are damaged, is looked for in the data file.

use std::path::{Path, PathBuf};

use super::channels;
use super::checksum;
use super::columns::Columns;
use super::constant::{LostBudget, MissingChunk};
use super::datafile::{DataFile, JOURNAL_CRC32, STACK, remove};
use super::error::{Context, Error, ErrorKind};
use super::journal::{self, Entry, NO_CHUNK, Replay};
use super::low;
use super::names::{journal_path, temporary_path};
use super::pedestals::OWN;
use super::repair::{MissingImages, Run, ranges};
use super::rescue::{self, Damaged, Image, Remains, chunk_at};
use super::spec::FileSpec;

const DOING: &str = "rebuild the data file";

/// What came of the images of a journal and its data file.
#[derive(Default)]
struct Copied {
    with_pixels: u64,
    /// Images, by position in the run, that had pixels and have none now.
    lost: Vec<u64>,
    /// Images of which it is not known which they are.
    uncertain: u64,
    /// Images that the journal does not say any more and the data file does.
    found: u64,
    /// Those of them of which no checksum is left.
    unverified: u64,
    notes: Vec<String>,
}

/// The journal, its data file, and what it takes to read them.
struct Source<'a> {
    replay: &'a Replay,
    spec: &'a FileSpec,
    columns: &'a Columns,
    old: std::fs::File,
    /// Looked for only where the journal does not say everything.
    remains: Option<Remains<'a>>,
}

impl Run<'_> {
    /// Rebuilds one data file from its journal; returns the run description when the journal has one.
    pub(super) fn rebuild(&mut self, data: &Path, has_data: bool) -> Result<Option<FileSpec>, Error> {
        let journal = journal_path(data);
        let replay = journal::replay(&journal)?;
        let Some(replay) = replay.as_ref().filter(|replay| !replay.entries.is_empty() || replay.bad_behind > 0) else {
            let is_empty = replay.map(|replay| replay.is_empty);
            return self.without_records(data, has_data, is_empty).map(|()| None);
        };
        let damaged = |cause: String| Error::new(ErrorKind::Damaged, DOING, &journal, cause).with_hint("keep both files and ask");
        let mut spec = FileSpec::from_text(&replay.text).map_err(damaged)?;
        spec.directory = self.directory.to_owned();
        if !has_data {
            // Its journal waits for it.
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

    /// Builds the file and puts it in the place of the old one, which is kept if something of it was lost or the journal did not say everything.
    /// False if nothing can be read: then both stay as they are and wait for a copy.
    fn replace(&mut self, replay: &Replay, spec: &FileSpec, columns: &Columns, data: &Path, part: &Path) -> Result<bool, Error> {
        let journal = journal_path(data);
        // Counts only if the file takes its place.
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
        self.tell(copied, data, kept.as_deref());
        Ok(true)
    }

    fn tell(&mut self, copied: Copied, data: &Path, kept: Option<&Path>) {
        self.notes.extend(copied.notes);
        self.lose(&copied.lost, data, kept);
        let Some(kept) = kept else { return };
        let (shown, kept_journal) = (data.display(), journal_path(kept));
        if let Some(lost) = self.lost.last_mut().filter(|_| !copied.lost.is_empty()) {
            lost.fix = with_journal(data, &kept_journal);
        }
        if copied.uncertain > 0 {
            let why = format!("their records in the journal of {shown} are damaged; the file as it was is {}", kept.display());
            self.lost.push(MissingImages {
                images: copied.uncertain,
                ranges: Vec::new(),
                why,
                fix: with_journal(data, &kept_journal),
            });
        }
        if copied.found > 0 {
            let n = copied.found;
            self.notes.push(format!(
                "the journal of {shown} is damaged; {n} image(s) that it does not say were found in the file itself"
            ));
        }
        self.note_unverified(copied.unverified, data);
        if copied.lost.is_empty() && copied.uncertain == 0 {
            self.notes.push(format!("{shown} as it was is {}, its journal {}", kept.display(), kept_journal.display()));
        }
    }

    /// A data file of which no journal says anything: as a rule it was opened and got no image. `is_empty` = the journal ends at its header; `None` = it
    /// has none.
    fn without_records(&mut self, data: &Path, has_data: bool, is_empty: Option<bool>) -> Result<(), Error> {
        let journal = journal_path(data);
        let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let has_bytes = std::fs::metadata(data).is_ok_and(|facts| facts.len() > 0);
        if has_data && !has_bytes {
            // A writer that is killed leaves none such: the disk did not get what was written. The file stays and says so.
            return if journal::has_records(&journal) { put_aside(&journal) } else { remove(&journal) };
        }
        if !has_data && is_empty.is_none() {
            // The same; its journal stays and says so.
            return Ok(());
        }
        let is_cut = is_empty.is_none();
        let is_empty = is_empty.unwrap_or(false);
        let images = low::open_file(data).and_then(|file| Ok(file.dataset(STACK)?.shape().first().copied().unwrap_or(0)));
        // A journal that ends at its header says that there is no image; what is no journal says nothing.
        let may_hold_images = has_data && images.map_or(!is_empty, |images| images > 0);
        if may_hold_images {
            self.notes.push(format!("the journal of {name} holds no image, though the file does: taken as it is"));
        } else {
            if has_data {
                remove(data)?;
            }
            if is_cut {
                let why = format!(
                    "neither {name} nor its journal holds one, and the disk did not get the beginning of the journal before a power cut"
                );
                let fix = "no file has them: compare with `images_durable` in the log of the run".into();
                self.lost.push(MissingImages { images: 0, ranges: Vec::new(), why, fix });
            } else {
                self.notes.push(format!("{name} was opened and got no image: removed"));
            }
        }
        if journal::has_records(&journal) { put_aside(&journal) } else { remove(&journal) }
    }

    /// Notes images that were left out of a data file when it was written anew.
    pub(super) fn lose(&mut self, lost: &[u64], data: &Path, kept: Option<&Path>) {
        if lost.is_empty() {
            return;
        }
        let place = kept.map_or(String::new(), |kept| format!("; the file as it was is {}", kept.display()));
        let why = format!("their bytes in {} are not those that were written{place}", data.display());
        let fix = format!("bring back a whole copy of {}, and run repair again", data.display());
        self.lost.push(MissingImages { images: lost.len() as u64, ranges: ranges(lost), why, fix });
    }

    pub(super) fn note_unverified(&mut self, images: u64, data: &Path) {
        if images > 0 {
            let shown = data.display();
            self.notes.push(format!(
                "{images} image(s) of {shown} were taken as they are: no checksum of them is left to compare with"
            ));
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

/// Whether the data file was rebuilt from this very journal.
fn is_made_of(data: &Path, journal_crc32: u32) -> bool {
    let mark = low::open_file(data).and_then(|file| file.group(OWN)?.attr(JOURNAL_CRC32)?.read_scalar::<u32>());
    mark.is_ok_and(|mark| mark == journal_crc32)
}

/// Takes a journal out of the way.
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

    /// Copies every journaled chunk from the raw bytes of the old file; the metadata of libhdf5 in it is trusted only where the journal fails.
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
                let note = format!("image {}: its record in the journal contradicts the others; left out", entry.image);
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

    /// Copies one image, after those that the `bad` records before it named. False if its record cannot be right.
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

    /// Images up to `end`, of which the journal says nothing but that it had so many records of them.
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
