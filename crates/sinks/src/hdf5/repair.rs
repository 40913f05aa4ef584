//! Completes what a killed writer left behind, and what became of its files since: rebuilds data files from their journals, rescues what can be
//! read of damaged ones, and writes the master anew from what the data files hold. A data file that is not there keeps its link and its place:
//! it may come back. Running it twice changes nothing the second time.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5::File;

use super::channels;
use super::checksum;
use super::columns::{Columns, ImageStatus};
use super::constant::MissingChunk;
use super::datafile::{COLUMNS, Closed, DESCRIPTION, DataFile, STACK, remove};
use super::error::{Context, Error, ErrorKind};
use super::journal::{self, NO_CHUNK, Replay};
use super::low;
use super::master::{self, State};
use super::names::{data_file_name, existing, journal_path, master_file_name, parse};
use super::names::{pedestal_file_name, reserve_path, temporary_path};
use super::nexus::{read_number, read_text, read_texts};
use super::old_master::OldMaster;
use super::pedestals::Snapshots;
use super::rescue::{self, Damaged, chunk_at};
use super::spec::{FileSpec, LedgerRecord, StreamRecord};
use super::xds::readable_mask;

/// What [`repair`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// The master file, written anew or found right.
    pub master: PathBuf,
    /// Data files rebuilt from their journals.
    pub rebuilt: Vec<PathBuf>,
    /// Data files that were damaged, written anew with what could be read of them; each as it was stands beside it.
    pub rescued: Vec<PathBuf>,
    /// Whether the master was written anew.
    pub master_written: bool,
    /// Positions in the run now.
    pub images: u64,
    /// Images that cannot be read now, and what to do about it.
    pub missing: Vec<MissingImages>,
    /// Everything else that a person should know, one sentence each.
    pub notes: Vec<String>,
}

impl RepairReport {
    /// Images that cannot be read now.
    pub fn images_missing(&self) -> u64 {
        self.missing.iter().map(|missing| missing.images).sum()
    }
}

/// Images that a run had and that cannot be read now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingImages {
    /// How many.
    pub images: u64,
    /// Which, by position in the run; empty if only their number is known.
    pub ranges: Vec<Range<u64>>,
    /// Why.
    pub why: String,
    /// What to do.
    pub fix: String,
}

/// Repairs the run that `path` (master or data file, existing or not) belongs to.
///
/// # Errors
/// [`ErrorKind::InUse`] while its writer lives; [`ErrorKind::NotFound`] when there is nothing of this run; [`ErrorKind::Damaged`] when
/// no file says what the run is; I/O errors, after which everything is as before or one step further.
pub fn repair(path: &Path) -> Result<RepairReport, Error> {
    let doing = "repair the run";
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(".journal").unwrap_or(name);
    let Some((prefix, _)) = parse(name) else {
        let cause = "the name is neither PREFIX_master.h5 nor PREFIX_data_000001.h5";
        return Err(Error::new(ErrorKind::Invalid, doing, path, cause).with_hint("name a file written by this program"));
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let files = existing(directory, prefix).context(doing, directory)?;
    let master = directory.join(master_file_name(prefix));
    if files.is_empty() && !master.exists() {
        return Err(Error::new(ErrorKind::NotFound, doing, path, "no file of this run exists").with_hint("correct the path"));
    }
    for (_, data, _, has_journal) in &files {
        if *has_journal {
            journal::refuse_if_alive(&journal_path(data))?;
        }
    }
    let old = OldMaster::read(&master);
    let (rebuilt, rescued, gone, lost, notes) = Default::default();
    Run { directory, prefix, master, old, rebuilt, rescued, gone, lost, notes }.repair(&files)
}

struct Run<'a> {
    directory: &'a Path,
    prefix: &'a str,
    master: PathBuf,
    /// The master before.
    old: Option<OldMaster>,
    rebuilt: Vec<PathBuf>,
    rescued: Vec<PathBuf>,
    /// Images in data files that are not there or cannot be read.
    gone: Vec<MissingImages>,
    /// Images that were damaged and left out of a data file that was written anew.
    lost: Vec<MissingImages>,
    notes: Vec<String>,
}

impl Run<'_> {
    fn repair(mut self, files: &[(u64, PathBuf, bool, bool)]) -> Result<RepairReport, Error> {
        for rest in [temporary_path(&self.master), reserve_path(self.directory, self.prefix)] {
            if rest.exists() {
                remove(&rest)?;
            }
        }
        let mut described = None;
        for (_, data, has_data, has_journal) in files {
            if *has_journal {
                described = self.rebuild(data, *has_data)?.or(described);
            }
        }
        let mut spec = self.describe(files, described)?;
        spec.directory = self.directory.to_owned();
        spec.prefix = self.prefix.to_owned();
        spec.pixel_mask = match self.mask(spec.pixels()) {
            Some(mask) => mask,
            None => {
                self.notes.push("the pixel mask is in none of the files; the new master masks no pixel".into());
                vec![0; spec.pixels()]
            }
        };
        channels::take_back(&mut spec, &[&self.master, &self.directory.join(data_file_name(self.prefix, 1))]);
        let columns = Columns::new(&spec);
        let closed = self.closed(files, &spec, &columns)?;
        self.snapshots(&mut spec);
        self.publish(&spec, &columns, &closed)
    }

    /// Writes the master anew if it does not say what the data files do.
    fn publish(mut self, spec: &FileSpec, columns: &Columns, closed: &[Closed]) -> Result<RepairReport, Error> {
        let ipf = u64::from(spec.images_per_file);
        let images = closed.last().map_or(0, |last| (last.number - 1) * ipf + last.images);
        let old = self.old.take();
        let is_untouched = self.rebuilt.is_empty() && self.rescued.is_empty();
        let right = is_untouched && old.as_ref().is_some_and(|old| old.is_right(closed, images, spec));
        let lost_now: u64 = self.lost.iter().map(|lost| lost.images).sum();
        // With those of earlier repairs; whole copies may have been brought back since.
        let not_rescued = old.as_ref().and_then(|old| old.not_rescued(closed, ipf)).unwrap_or(lost_now);
        if !right {
            let kept =
                old.and_then(|old| old.ledger).filter(|ledger| self.rebuilt.is_empty() && !ledger.ended.starts_with(KILLED));
            let (mut ledger, mut state) = match kept {
                Some(mut ledger) => {
                    let gone = closed.iter().filter(|file| !file.readable).map(|file| file.images).sum::<u64>();
                    ledger.totals.retain(|(name, _)| name != FILE_MISSING);
                    ledger.totals.extend((gone > 0).then(|| (FILE_MISSING.into(), gone)));
                    (ledger, State::Closed)
                }
                None => (ledger_of_columns(closed, spec, images), State::Repaired),
            };
            ledger.totals.retain(|(name, _)| name != NOT_RESCUED);
            if not_rescued > 0 {
                ledger.totals.push((NOT_RESCUED.into(), not_rescued));
                state = State::Repaired;
            }
            master::publish(spec, columns, closed, Some(&ledger), state)?;
        }
        if not_rescued > lost_now {
            let why = "an earlier repair could not read them; they read as missing".into();
            let fix = "bring back whole copies of the data files that were damaged, and run repair again".into();
            self.lost.push(MissingImages { images: not_rescued - lost_now, ranges: Vec::new(), why, fix });
        }
        let Self { master, rebuilt, rescued, gone, lost, notes, .. } = self;
        let missing = [gone, lost].concat();
        Ok(RepairReport { master, rebuilt, rescued, master_written: !right, images, missing, notes })
    }

    /// Snapshots of the pedestals are linked if their file can be read. Each was flushed, so that a kill takes at most the last.
    fn snapshots(&mut self, spec: &mut FileSpec) {
        if !spec.pedestal_snapshots {
            return;
        }
        let path = self.directory.join(pedestal_file_name(self.prefix));
        if let Err(error) = Snapshots::read(&path) {
            spec.pedestal_snapshots = false;
            self.notes.push(format!("{} cannot be read and is not linked: {}", path.display(), error.cause));
        }
    }

    /// Rebuilds one data file from its journal; returns the run description when the journal has one.
    fn rebuild(&mut self, data: &Path, has_data: bool) -> Result<Option<FileSpec>, Error> {
        let doing = "rebuild the data file";
        let journal = journal_path(data);
        let replay = journal::replay(&journal)?;
        let Some(replay) = replay.as_ref().filter(|replay| !replay.entries.is_empty()) else {
            return self.without_records(data, has_data, replay.is_some()).map(|()| None);
        };
        let damaged = |cause: String| Error::new(ErrorKind::Damaged, doing, &journal, cause).with_hint("keep both files and ask");
        let mut spec = FileSpec::from_text(&replay.text).map_err(damaged)?;
        spec.directory = self.directory.to_owned();
        if !has_data {
            // Its journal waits for it.
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
        let made = DataFile::create_hdf5(&spec, &columns, replay.number, replay.first, part.clone(), None)
            .and_then(|file| self.copy(replay, &spec, &columns, data, file))
            .and_then(|lost| {
                std::fs::File::open(&part).and_then(|file| file.sync_all()).context(doing, &part)?;
                let kept = if lost.is_empty() { None } else { Some(rescue::keep(data)?) };
                std::fs::rename(&part, data).context(doing, data)?;
                remove(&journal)?;
                self.lose(&lost, data, kept.as_deref());
                Ok(())
            });
        if made.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        made?;
        self.rebuilt.push(data.to_owned());
        Ok(Some(spec))
    }

    /// A data file of which no journal says anything: as a rule it was opened and got no image.
    fn without_records(&mut self, data: &Path, has_data: bool, is_journal: bool) -> Result<(), Error> {
        let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let images = low::open_file(data).and_then(|file| Ok(file.dataset(STACK)?.shape().first().copied().unwrap_or(0)));
        // A journal without an image says that there is none; what is no journal says nothing.
        let may_hold_images = has_data && images.map_or(!is_journal, |images| images > 0);
        if may_hold_images {
            self.notes.push(format!("the journal of {name} holds no image, though the file does: taken as it is"));
        } else {
            if has_data {
                remove(data)?;
            }
            self.notes.push(format!("{name} was opened and got no image: removed"));
        }
        remove(&journal_path(data))
    }

    /// Copies every journaled chunk from the raw bytes of the old file; the metadata of libhdf5 in it is not trusted. Gives the images of which
    /// the bytes are not those that were written.
    fn copy(
        &mut self,
        replay: &Replay,
        spec: &FileSpec,
        columns: &Columns,
        data: &Path,
        mut file: DataFile,
    ) -> Result<Vec<u64>, Error> {
        let old = std::fs::File::open(data).context("rebuild the data file", data)?;
        let mut lost = Vec::new();
        for entry in &replay.entries {
            let local = entry.image.wrapping_sub(replay.first);
            let fits = local >= file.images() && local < u64::from(spec.images_per_file);
            // Journals of earlier versions have no checksums.
            let is_row = |row: &[u8]| row.len() == columns.row_bytes || row.len() + checksum::BYTES == columns.row_bytes;
            let Some((places, row)) = entry.parts(spec.pieces()).filter(|(_, row)| fits && is_row(row)) else {
                self.notes.push(format!("image {}: its record in the journal contradicts the others; left out", entry.image));
                continue;
            };
            let has_sum = row.len() == columns.row_bytes;
            let mut row = row.to_vec();
            row.resize(columns.row_bytes, 0);
            if places.iter().all(|(offset, _)| *offset == NO_CHUNK) {
                file.write(local, &[], &row)?;
                continue;
            }
            let chunks: Option<Vec<Vec<u8>>> = places.iter().map(|place| chunk_at(&old, *place, spec)).collect();
            let chunks = chunks.unwrap_or_default();
            let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let sum = checksum::of(parts.iter().copied());
            if parts.is_empty() || (has_sum && columns.checksum(&row) != sum) {
                lost.push(entry.image);
                file.write(local, &[], &vec![0; columns.row_bytes])?;
                continue;
            }
            columns.set_checksum(&mut row, sum);
            file.write(local, &parts, &row)?;
        }
        if let Some(missing) = &mut MissingChunk::of(spec) {
            file.fill_lost(missing);
        }
        file.flush()?;
        file.close()?;
        Ok(lost)
    }

    /// Notes images that were left out of a data file when it was written anew.
    fn lose(&mut self, lost: &[u64], data: &Path, kept: Option<&Path>) {
        if lost.is_empty() {
            return;
        }
        let place = kept.map_or(String::new(), |kept| format!("; the file as it was is {}", kept.display()));
        let why = format!("their bytes in {} are not those that were written{place}", data.display());
        let fix = format!("bring back a whole copy of {}, and run repair again", data.display());
        self.lost.push(MissingImages { images: lost.len() as u64, ranges: ranges(lost), why, fix });
    }

    fn describe(&self, files: &[(u64, PathBuf, bool, bool)], described: Option<FileSpec>) -> Result<FileSpec, Error> {
        if let Some(spec) = described {
            return Ok(spec);
        }
        let candidates = std::iter::once(&self.master).chain(files.iter().map(|(_, data, ..)| data));
        let text = |path: &PathBuf| low::open_file(path).ok().and_then(|file| read_text(&file, DESCRIPTION));
        let mut specs = candidates.filter_map(text).filter_map(|text| FileSpec::from_text(&text).ok());
        specs.next().ok_or_else(|| {
            let cause = "neither the master nor a data file holds the description of a run";
            Error::new(ErrorKind::Damaged, "repair the run", &self.master, cause).with_hint("recover one file from a copy")
        })
    }

    fn mask(&self, pixels: usize) -> Option<Vec<u32>> {
        self.mask_of(&self.directory.join(data_file_name(self.prefix, 1)), pixels)
    }

    fn mask_of(&self, data: &Path, pixels: usize) -> Option<Vec<u32>> {
        let read = |path: &Path, name: &str| {
            let mask = low::open_file(path).ok()?.dataset(name).ok()?.read_raw::<u32>().ok()?;
            (mask.len() == pixels).then_some(mask)
        };
        let readable = |mut mask: Vec<u32>| {
            readable_mask(&mut mask);
            mask
        };
        let found = read(&self.master, "/entry/instrument/detector/pixel_mask");
        found.or_else(|| read(data, "/entry/konkordia/pixel_mask")).map(readable)
    }

    /// The data files of the run: those that are there, rescued where they are damaged, and the places of those that are not.
    fn closed(&mut self, files: &[(u64, PathBuf, bool, bool)], spec: &FileSpec, columns: &Columns) -> Result<Vec<Closed>, Error> {
        let ipf = u64::from(spec.images_per_file);
        let known = self.old.as_ref().map_or(0, |old| old.images);
        let known_files = known.div_ceil(ipf).min(FILES_MAX);
        let there = files.iter().filter(|(_, path, ..)| path.exists() || journal_path(path).exists()).map(|file| file.0);
        let mut last = known_files;
        for number in there.filter(|number| *number > 0) {
            if number - last.min(number) > FILES_MAX {
                self.notes.push(format!("{} is far behind the others; not linked", data_file_name(self.prefix, number)));
            } else {
                last = last.max(number);
            }
        }
        let mut closed = Vec::new();
        for number in 1..=last {
            // Every data file but the last is full.
            let images =
                if number < last { Some(ipf) } else { known.checked_sub((number - 1) * ipf).filter(|n| (1..=ipf).contains(n)) };
            closed.extend(self.data_file(number, images, spec, columns)?);
        }
        Ok(closed)
    }

    /// Looks at data file `number`, into which so many images belong, if that is known. `None` if nothing is known of it.
    fn data_file(
        &mut self,
        number: u64,
        images: Option<u64>,
        spec: &FileSpec,
        columns: &Columns,
    ) -> Result<Option<Closed>, Error> {
        let path = self.directory.join(data_file_name(self.prefix, number));
        let shown = path.display().to_string();
        let whole = format!("bring back a whole copy of {shown}");
        let (why, fix) = match look(&path, spec) {
            Look::Whole(images) => return Ok(Some(Closed { number, path, images, readable: true })),
            Look::Gone if !journal_path(&path).exists() && images.is_none() => return Ok(None),
            Look::Gone => (format!("{shown} is not there"), format!("bring the file back to {shown}")),
            Look::Empty => (format!("{shown} is empty (0 bytes)"), whole),
            Look::Foreign(why) => (format!("{shown} {why}"), format!("{whole}; this file belongs elsewhere")),
            Look::Damaged(why) => {
                let damaged = Damaged { path: &path, number, images, spec, columns, master: &self.master };
                if let Some(rescued) = damaged.rescue()? {
                    self.rescued.push(path.clone());
                    self.lose(&rescued.lost, &path, Some(&rescued.kept));
                    if rescued.lost.is_empty() {
                        self.notes.push(format!("{shown} as it was is {}", rescued.kept.display()));
                    }
                    return Ok(Some(rescued.closed));
                }
                (format!("{shown} is damaged, and no image in it can be read ({why})"), whole)
            }
        };
        let first = (number - 1) * u64::from(spec.images_per_file);
        let range = images.map(|images| first..first + images);
        self.gone.push(MissingImages { images: images.unwrap_or(0), ranges: range.into_iter().collect(), why, fix });
        Ok(images.map(|images| Closed { number, path, images, readable: false }))
    }
}

/// More data files than this in a row that are not there are no gap of a run.
const FILES_MAX: u64 = 100_000;
/// How the ledger of a run that was killed says that it ended.
pub(crate) const KILLED: &str = "killed";
/// Total of the ledger: images that the run had and that repair could not read.
pub(crate) const NOT_RESCUED: &str = "images_not_rescued";

/// Total of the ledger: images in data files that were not there, or could not be read, when the master was written.
pub(crate) const FILE_MISSING: &str = "images_file_missing";

/// What is found in the place of a data file.
enum Look {
    /// Readable, with so many images.
    Whole(u64),
    Gone,
    Empty,
    /// Of another run.
    Foreign(String),
    Damaged(String),
}

fn look(path: &Path, spec: &FileSpec) -> Look {
    match std::fs::metadata(path) {
        Err(_) => return Look::Gone,
        Ok(facts) if facts.len() == 0 => return Look::Empty,
        Ok(_) => {}
    }
    let open = || -> hdf5::Result<(Vec<usize>, hdf5::Dataset, Vec<u8>)> {
        let file = low::open_file(path)?;
        let stack = file.dataset(STACK)?;
        Ok((stack.shape(), stack, file.dataset(&format!("{COLUMNS}/status"))?.read_raw::<u8>()?))
    };
    let (shape, stack, status) = match open() {
        Ok(opened) => opened,
        Err(error) => return Look::Damaged(Error::hdf5("open the data file", path, error).cause),
    };
    let images = shape.first().copied().unwrap_or(0);
    if shape.get(1..) != Some(&spec.image_shape()) || images == 0 || images > spec.images_per_file as usize {
        return Look::Foreign(format!("holds {shape:?}, not images of this run"));
    }
    if status.len() != images {
        return Look::Damaged(format!("{} rows of columns for {images} images", status.len()));
    }
    // What the index does not find is no image, however whole its bytes are.
    let has_pixels = |n: &usize| ImageStatus::from_u8(status[*n]).is_some_and(ImageStatus::has_pixels);
    let starts = spec.chunk_starts();
    let bytes_at = |n: usize, start: &Vec<u64>| low::dataset_chunk_bytes(&stack, &[&[n as u64], &start[..]].concat());
    let is_found = |n: usize| starts.iter().all(|start| bytes_at(n, start).is_ok_and(|bytes| bytes > 0));
    match (0..images).filter(has_pixels).find(|n| !is_found(*n)) {
        Some(n) => Look::Damaged(format!("the chunk of its image {n} is not found")),
        None => Look::Whole(images as u64),
    }
}

/// Numbers that grow, as ranges.
fn ranges(numbers: &[u64]) -> Vec<Range<u64>> {
    numbers.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[0] + run.len() as u64).collect()
}

/// The ledger stored in a master, if there is one.
pub(crate) fn read_ledger(file: &File) -> Option<LedgerRecord> {
    let ledger = file.group("/entry/konkordia/ledger").ok()?;
    let texts = |name: &str| read_texts(&ledger, name).unwrap_or_default();
    let names = texts("streams/name");
    let mut streams: Vec<StreamRecord> = names.into_iter().map(|name| StreamRecord { name, counters: Vec::new() }).collect();
    if let Ok(group) = ledger.group("streams") {
        for name in group.member_names().unwrap_or_default().into_iter().filter(|name| name != "name") {
            let values = group.dataset(&name).and_then(|d| d.read_raw::<u64>()).unwrap_or_default();
            for (stream, value) in streams.iter_mut().zip(values) {
                stream.counters.push((name.clone(), value));
            }
        }
    }
    Some(LedgerRecord {
        totals: super::reader::totals(file),
        streams,
        balances: texts("balances"),
        ended: read_text(&ledger, "ended")?,
        end_time: read_text(file, "/entry/end_time"),
        images_expected: read_number(&ledger, "images_expected_by_plan").unwrap_or(0.0) as u64,
    })
}

/// What can still be said of a run whose ledger died with its process: images by status.
fn ledger_of_columns(closed: &[Closed], spec: &FileSpec, images: u64) -> LedgerRecord {
    let mut by_status = [0u64; 4];
    for file in closed.iter().filter(|file| file.readable) {
        let status = low::open_file(&file.path).and_then(|f| f.dataset(&format!("{COLUMNS}/status"))?.read_raw::<u8>());
        status.unwrap_or_default().iter().filter(|&&s| s < 4).for_each(|&s| by_status[usize::from(s)] += 1);
    }
    let file_missing = closed.iter().filter(|file| !file.readable).map(|file| file.images).sum::<u64>();
    by_status[0] += images.saturating_sub(by_status.iter().sum::<u64>() + file_missing);
    let names = ["images_lost", "images_complete", "images_partial", "images_discarded"];
    let mut totals: Vec<(String, u64)> = names.iter().zip(by_status).map(|(name, n)| ((*name).to_owned(), n)).collect();
    totals.extend([(FILE_MISSING.into(), file_missing), ("images_in_files".into(), images)]);
    let sum = "images_in_files = images_lost + images_complete + images_partial + images_discarded + images_file_missing";
    LedgerRecord {
        totals,
        streams: Vec::new(),
        balances: vec![sum.into()],
        ended: format!("{KILLED}; repaired from the data files"),
        end_time: None,
        images_expected: spec.images_planned.unwrap_or(images),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[3, 4, 5, 9]), [3..6, 9..10]);
    }
}
