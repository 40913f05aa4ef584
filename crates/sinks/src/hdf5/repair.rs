//! Completes what a killed writer left behind, and corrects what happened to its files since: rebuilds data files from
//! their journals, rescues what can be read of damaged ones, and writes the master again from what the data files hold.
//! A data file that is absent keeps its link and its place, because it may come back. Running it a second time changes
//! nothing.

use konkordia_core::output::temporary_path;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::bounded::ReadAll;
use super::channels;
use super::columns::Columns;
use super::columns::ImageStatus;
use super::constant::LostBudget;
use super::datafile::{Closed, remove};
use super::error::{Context, Error, ErrorKind};
use super::journal;
use super::ledger::{FILE_MISSING, KILLED, MASK_MISSING, NOT_RECEIVED, NOT_RESCUED};
use super::look::{Look, look};
use super::low;
use super::master::{self, State};
use super::names::{data_file_name, existing, journal_path, master_path, parse};
use super::names::{pedestal_file_name, reserve_path};
use super::nexus::read_text;
use super::old_master::{OldMaster, status_of};
use super::paths::DESCRIPTION;
use super::paths::MASK;
use super::pedestals::Snapshots;
use super::rescue::{self, Damaged, Rescued};
use super::rows::Rows;
use super::spec::{FileSpec, LedgerRecord, PartOfImage};
use super::whole;
use super::xds::readable_mask;

/// What [`repair`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// The master file, written again or found right.
    pub master: PathBuf,
    /// Data files rebuilt from their journals.
    pub rebuilt: Vec<PathBuf>,
    /// Damaged data files, written again with what could be read of them; the file as it was is kept beside each.
    pub rescued: Vec<PathBuf>,
    /// Whether the master was written again.
    pub master_written: bool,
    /// Positions in the run now.
    pub images: u64,
    /// Images that cannot be read now, and what to do about it.
    pub missing: Vec<MissingImages>,
    /// The pixel mask of the run was found in no file: in the master no pixel is masked.
    pub mask_missing: bool,
    /// Everything else that a user should know, one sentence each.
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
/// [`ErrorKind::InUse`] while its writer lives; [`ErrorKind::NotFound`] if there is no file of this run;
/// [`ErrorKind::Damaged`] if no file says what the run is; I/O errors, after which everything is as before or one step
/// further.
pub fn repair(path: &Path) -> Result<RepairReport, Error> {
    repair_with(path, LostBudget::WHOLE)
}

fn repair_with(path: &Path, lost_budget: LostBudget) -> Result<RepairReport, Error> {
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
    let master = master_path(directory, prefix);
    let has_parts = files.is_empty() && part_master(directory, prefix).is_some();
    if files.is_empty() && !master.exists() && !has_parts {
        return Err(Error::new(ErrorKind::NotFound, doing, path, "no file of this run exists").with_hint("correct the path"));
    }
    for (_, data, _, has_journal) in &files {
        if *has_journal {
            journal::refuse_if_alive(&journal_path(data))?;
        }
    }
    let old = OldMaster::read(&master);
    if old.as_ref().map_or(has_parts, |old| files.is_empty() && old.is_of_parts()) {
        return repair_whole(directory, prefix, master);
    }
    let (rebuilt, rescued, gone, lost, mask_missing, differ, undecided, notes, journaled) = Default::default();
    let run = Run {
        directory,
        prefix,
        master,
        old,
        rebuilt,
        rescued,
        gone,
        lost,
        mask_missing,
        differ,
        undecided,
        notes,
        journaled,
        lost_budget,
    };
    run.repair(&files)
}

/// The master of some part of the whole image with this prefix.
fn part_master(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let masters =
        (1..=PartOfImage::PARTS_MAX).map(|number| master_path(directory, &format!("{prefix}{}", PartOfImage::suffix_of(number))));
    masters.into_iter().find(|part| part.exists())
}

/// Makes the master of a whole image again, of the files of its parts.
fn repair_whole(directory: &Path, prefix: &str, master: PathBuf) -> Result<RepairReport, Error> {
    let Some(part) = part_master(directory, prefix) else {
        let cause = format!("none of its parts is in {}", directory.display());
        return Err(Error::new(ErrorKind::NotFound, "repair the run", &master, cause).with_hint("bring back their files"));
    };
    let made = whole::compose(&part)?;
    let absent = made.absent.iter().map(|number| format!("part {number} is absent"));
    let open = made.open.iter().map(|number| {
        let part = master_path(directory, &format!("{prefix}{}", PartOfImage::suffix_of(*number)));
        format!("part {number} is not closed: if nothing writes it any more, `konkordia repair {}` closes it", part.display())
    });
    Ok(RepairReport {
        master,
        rebuilt: Vec::new(),
        rescued: Vec::new(),
        master_written: true,
        images: made.images,
        missing: Vec::new(),
        mask_missing: false,
        notes: made.notes.iter().cloned().chain(absent).chain(open).collect(),
    })
}

/// A run that is being repaired.
pub(super) struct Run<'a> {
    pub(super) directory: &'a Path,
    prefix: &'a str,
    pub(super) master: PathBuf,
    /// The previous master.
    old: Option<OldMaster>,
    pub(super) rebuilt: Vec<PathBuf>,
    rescued: Vec<PathBuf>,
    /// Images in data files that are absent or cannot be read.
    gone: Vec<MissingImages>,
    /// Images that were damaged and left out of a data file that was written again.
    pub(super) lost: Vec<MissingImages>,
    mask_missing: bool,
    /// Images whose rows in master and data file differ, and those of them for which nothing shows which row is right.
    differ: u64,
    undecided: u64,
    pub(super) notes: Vec<String>,
    /// For data files of which nothing can be read: number of the data file, and the images that its journal names.
    pub(super) journaled: Vec<(u64, u64)>,
    /// For the lost images of all data files that are written again.
    pub(super) lost_budget: LostBudget,
}

impl Run<'_> {
    fn repair(mut self, files: &[(u64, PathBuf, bool, bool)]) -> Result<RepairReport, Error> {
        // The data file that the writer was creating when it died.
        let next = self.directory.join(data_file_name(self.prefix, files.last().map_or(0, |(number, ..)| *number) + 1));
        let begun = [temporary_path(&next), temporary_path(&journal_path(&next))];
        let rests = [temporary_path(&self.master), reserve_path(self.directory, self.prefix)];
        for rest in rests.into_iter().chain(begun) {
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
        let mask = self.mask_of(&self.directory.join(data_file_name(self.prefix, 1)), spec.pixels());
        let has_bits = |mask: &Vec<u32>| mask.iter().any(|bits| *bits != 0);
        let was_missing = self.old.as_ref().is_some_and(|old| old.total(MASK_MISSING) > 0);
        self.mask_missing = !mask.as_ref().is_some_and(|mask| !was_missing || has_bits(mask));
        spec.pixel_mask = mask.unwrap_or_else(|| vec![0; spec.pixels()]);
        channels::take_back(&mut spec, &[&self.master, &self.directory.join(data_file_name(self.prefix, 1))]);
        let columns = Columns::new(&spec);
        let closed = self.closed(files, &spec, &columns)?;
        self.snapshots(&mut spec);
        self.publish(&spec, &columns, &closed)
    }

    /// Writes the master again if it does not agree with the data files.
    fn publish(mut self, spec: &FileSpec, columns: &Columns, closed: &[Closed]) -> Result<RepairReport, Error> {
        let ipf = u64::from(spec.images_per_file);
        let images = closed.last().map_or(0, |last| (last.number - 1) * ipf + last.images);
        let old = self.old.take();
        let was_cut = old.as_ref().is_some_and(OldMaster::was_cut);
        let is_untouched = self.rebuilt.is_empty() && self.rescued.is_empty() && self.differ == 0;
        let right = is_untouched && old.as_ref().is_some_and(|old| old.is_right(closed, images, spec));
        let lost_now: u64 = self.lost.iter().map(|lost| lost.images).sum();
        // Includes those of earlier repairs; whole copies may have been brought back since.
        let not_rescued = old.as_ref().and_then(|old| old.not_rescued(closed, ipf)).unwrap_or(lost_now);
        if !right {
            let kept =
                old.and_then(|old| old.ledger).filter(|ledger| self.rebuilt.is_empty() && !ledger.ended.starts_with(KILLED));
            let (mut ledger, mut state) = match kept {
                Some(mut ledger) => {
                    let gone = closed.iter().map(Closed::missing).sum::<u64>();
                    ledger.totals.retain(|(name, _)| name != FILE_MISSING);
                    ledger.totals.extend((gone > 0).then(|| (FILE_MISSING.into(), gone)));
                    (ledger, State::Closed)
                }
                None => (ledger_of_columns(closed, spec, images), State::Repaired),
            };
            ledger.totals.retain(|(name, _)| name != NOT_RESCUED && name != MASK_MISSING);
            ledger.totals.extend(self.mask_missing.then(|| (MASK_MISSING.into(), 1)));
            if not_rescued > 0 {
                ledger.totals.push((NOT_RESCUED.into(), not_rescued));
                state = State::Repaired;
            }
            if self.undecided > 0 {
                let (n, kept) = (self.undecided, rescue::keep(&self.master)?);
                let kept = kept.display();
                let what =
                    format!("the columns of {n} image(s) differ between master and data file; it is not known which are right");
                self.notes.push(format!("{what}: those of the data file were taken, the old master is kept as {kept}"));
            }
            master::publish(spec, columns, closed, Some(&ledger), state)?;
            self.compose(spec);
        }
        if was_cut {
            let why = "the machine was rebooted while this run was being written (a power cut?), or its files were written on another machine: images after the last one here, if there were any, did not reach the disk".into();
            let fix = "no file has them: compare with `images_durable` in the log of the run, or with the detector".into();
            self.gone.push(MissingImages { images: 0, ranges: Vec::new(), why, fix });
        }
        if not_rescued > lost_now {
            let why = "an earlier repair could not read them; they read as missing".into();
            let fix = "bring back whole copies of the data files that were damaged, and run repair again".into();
            self.lost.push(MissingImages { images: not_rescued - lost_now, ranges: Vec::new(), why, fix });
        }
        let Self { master, rebuilt, rescued, gone, lost, mask_missing, notes, .. } = self;
        let missing = [gone, lost].concat();
        Ok(RepairReport { master, rebuilt, rescued, master_written: !right, images, missing, mask_missing, notes })
    }

    /// Of a part of an image: the master of the whole image shows what is there now.
    fn compose(&mut self, spec: &FileSpec) {
        match spec.part.map(|_| whole::compose(&self.master)) {
            Some(Ok(whole)) => self.notes.push(format!("{} is made anew, with this part as it is now", whole.master.display())),
            Some(Err(error)) => self.notes.push(format!("the master of the whole image was not made: {error}")),
            None => {}
        }
    }

    /// Links the snapshots of the pedestals if their file can be read. Each snapshot was flushed, so a kill loses at
    /// most the last one.
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

    fn describe(&self, files: &[(u64, PathBuf, bool, bool)], described: Option<FileSpec>) -> Result<FileSpec, Error> {
        if let Some(spec) = described {
            return Ok(spec);
        }
        let candidates = std::iter::once(&self.master).chain(files.iter().map(|(_, data, ..)| data));
        let text = |path: &PathBuf| low::open_file(path).ok().and_then(|file| read_text(&file, DESCRIPTION));
        let texts: Vec<String> =
            candidates.filter_map(text).filter(|text| FileSpec::from_text(text).is_ok()).take(DESCRIPTIONS_MAX).collect();
        // A byte of one text may have been damaged: take the text that most files have; if it is one against one, that
        // of the master.
        let votes = |text: &String| texts.iter().filter(|other| *other == text).count();
        let most = texts.iter().map(votes).max();
        let mut specs = texts.iter().filter(|text| Some(votes(text)) == most).filter_map(|text| FileSpec::from_text(text).ok());
        specs.next().ok_or_else(|| {
            let cause = "neither the master nor a data file holds the description of a run";
            Error::new(ErrorKind::Damaged, "repair the run", &self.master, cause).with_hint("recover one file from a copy")
        })
    }

    /// The mask of the run, in the form for readers. A master that was made while the first data file was away holds
    /// zeros.
    pub(super) fn mask_of(&self, data: &Path, pixels: usize) -> Option<Vec<u32>> {
        let read = |path: &Path, name: &str| {
            let mask = low::open_file(path).ok()?.dataset(name).ok()?.read_all::<u32>().ok()?;
            (mask.len() == pixels).then_some(mask)
        };
        let is_used = |mask: &Vec<u32>| mask.iter().any(|bits| *bits != 0);
        let master = read(&self.master, MASK);
        let found = match master {
            Some(mask) if is_used(&mask) => Some(mask),
            master => read(data, "/entry/konkordia/pixel_mask").or(master),
        };
        found.map(|mut mask| {
            readable_mask(&mut mask);
            mask
        })
    }

    /// The data files of the run: those that are there, rescued if they are damaged, and the places of the absent ones.
    fn closed(&mut self, files: &[(u64, PathBuf, bool, bool)], spec: &FileSpec, columns: &Columns) -> Result<Vec<Closed>, Error> {
        let ipf = u64::from(spec.images_per_file);
        let known = self.old.as_ref().map_or(0, |old| old.images(ipf));
        let known_files = known.div_ceil(ipf).min(FILES_MAX);
        let there = files.iter().filter(|(_, path, ..)| path.exists() || journal_path(path).exists()).map(|file| file.0);
        let mut last = known_files;
        for number in there.filter(|number| *number > 0) {
            if number - last.min(number) > FILES_MAX {
                let name = data_file_name(self.prefix, number);
                self.notes.push(format!("{name} has a far higher number than the other data files; not linked"));
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

    /// Examines data file `number`, which should hold `images` images, if that is known. `None` if nothing is known of
    /// it.
    fn data_file(
        &mut self,
        number: u64,
        images: Option<u64>,
        spec: &FileSpec,
        columns: &Columns,
    ) -> Result<Option<Closed>, Error> {
        let path = self.directory.join(data_file_name(self.prefix, number));
        let first = (number - 1) * u64::from(spec.images_per_file);
        let shown = path.display().to_string();
        let whole = format!("bring back a whole copy of {shown}");
        let read = || Rows::of(&low::open_file(&self.master).ok()?, columns, first, u64::from(spec.images_per_file));
        let is_final = self.old.as_ref().is_some_and(OldMaster::is_final);
        let before = is_final.then(read).flatten().filter(Rows::is_complete);
        let journaled = self.journaled.iter().find(|(file, images)| *file == number && *images > 0).map(|file| file.1);
        let found = look(&path, spec, columns, before.as_ref());
        // A readable file without images keeps no place that only its journal knows.
        let placed = if matches!(found, Look::Foreign(_)) { images } else { images.or(journaled) };
        let (why, fix) = match found {
            Look::Whole { images: stored, differ, undecided } => {
                // A final master has the columns of all its data files.
                let differ = differ + u64::from(is_final && before.is_none());
                (self.differ, self.undecided) = (self.differ + differ, self.undecided + undecided);
                let known = images.unwrap_or(stored);
                if stored < known {
                    let (why, range) = (format!("{shown} holds {stored} of {known} images"), first + stored..first + known);
                    self.gone.push(MissingImages { images: known - stored, ranges: vec![range], why, fix: whole });
                }
                return Ok(Some(Closed { number, path, images: known.max(stored), stored }));
            }
            Look::Gone if !journal_path(&path).exists() && images.is_none() => return Ok(None),
            Look::Gone => (format!("{shown} is not there"), format!("bring the file back to {shown}")),
            Look::Empty => (format!("{shown} is empty (0 bytes)"), whole),
            Look::Foreign(_) if journaled.is_some() => {
                let why = format!(
                    "{shown} holds none of the images that its journal names: they did not reach the disk before a power cut"
                );
                (why, format!("no file has them, unless there is a copy of {shown}"))
            }
            // A journal of this run has a header, unless a power cut took it.
            Look::Foreign(why) if journal_path(&path).exists() => {
                let why = format!("{shown} {why}, and the beginning of its journal was lost in a power cut");
                (why, "no file has them: compare with `images_durable` in the log of the run".into())
            }
            Look::Foreign(why) => (format!("{shown} {why}"), format!("{whole}; move this file away, it is not from this run")),
            Look::Damaged(why) => {
                let damaged = Damaged { path: &path, number, images, spec, columns, master: &self.master };
                match damaged.rescue(&mut self.lost_budget) {
                    Ok(Some(rescued)) => return Ok(Some(self.take(rescued, &path))),
                    Ok(None) => (format!("{shown} is damaged, and no image in it can be read ({why})"), whole),
                    // A file that cannot be rescued does not keep the others from being examined.
                    Err(error) => (format!("{shown} is damaged ({why}), and cannot be rescued: {}", error.cause), error.hint),
                }
            }
        };
        let named = images.or(journaled);
        let range = named.map(|images| first..first + images);
        self.gone.push(MissingImages { images: named.unwrap_or(0), ranges: range.into_iter().collect(), why, fix });
        Ok(placed.map(|images| Closed { number, path, images, stored: 0 }))
    }

    /// Records a data file that was written again.
    fn take(&mut self, rescued: Rescued, path: &Path) -> Closed {
        self.rescued.push(path.to_owned());
        self.lose(&rescued.lost, path, Some(&rescued.kept));
        self.note_unverified(rescued.unverified, path);
        if rescued.lost.is_empty() {
            self.notes.push(format!("the old {} is kept as {}", path.display(), rescued.kept.display()));
        }
        rescued.closed
    }
}

/// More absent data files in a row than this are not a gap of a run.
const FILES_MAX: u64 = 100_000;
/// Files whose run description is read, at most.
const DESCRIPTIONS_MAX: usize = 9;

/// Growing numbers, as ranges.
pub(super) fn ranges(numbers: &[u64]) -> Vec<Range<u64>> {
    numbers.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[0] + run.len() as u64).collect()
}

/// The ledger that can still be made for a run whose own ledger died with its process: images by status.
fn ledger_of_columns(closed: &[Closed], spec: &FileSpec, images: u64) -> LedgerRecord {
    let mut by_status = [0u64; ImageStatus::COUNT];
    for file in closed {
        status_of(file)
            .unwrap_or_default()
            .iter()
            .filter(|&&s| usize::from(s) < ImageStatus::COUNT)
            .for_each(|&s| by_status[usize::from(s)] += 1);
    }
    let file_missing = closed.iter().map(Closed::missing).sum::<u64>();
    by_status[0] += images.saturating_sub(by_status.iter().sum::<u64>() + file_missing);
    let names = ["images_lost", "images_complete", "images_partial", "images_discarded", "images_vetoed"];
    let mut totals: Vec<(String, u64)> = names.iter().zip(by_status).map(|(name, n)| ((*name).to_owned(), n)).collect();
    totals.extend([(FILE_MISSING.into(), file_missing), ("images_in_files".into(), images)]);
    // Whether they were sent is not known: the writer was waiting for them when it was killed.
    let not_received = spec.images_planned.map_or(0, |planned| planned.saturating_sub(images));
    totals.extend((not_received > 0).then(|| (NOT_RECEIVED.into(), not_received)));
    let sum = "images_in_files = images_lost + images_complete + images_partial + images_discarded + images_vetoed + images_file_missing";
    LedgerRecord {
        totals,
        streams: Vec::new(),
        balances: vec![sum.into()],
        latency: Vec::new(),
        ended: format!("{KILLED}; repaired from the data files"),
        end_time: None,
        images_expected: images,
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::ImageRecord;
    use super::super::paths::{COLUMNS, STACK};
    use super::super::spec::Compression;
    use super::super::writer::Writer;
    use super::*;
    use hdf5::File;

    /// Two images, the first and the last, in data files 1 and 4 of four images each; all others are lost.
    fn mostly_lost(directory: &Path) -> PathBuf {
        let compression = Compression::None;
        let (directory, prefix) = (directory.to_owned(), "m".to_owned());
        let pixel_mask = vec![0; 8 * 16];
        let spec = FileSpec {
            directory,
            prefix,
            rows: 8,
            columns: 16,
            compression,
            images_per_file: 4,
            pixel_mask,
            ..FileSpec::default()
        };
        let mut writer = Writer::create(spec).unwrap();
        let chunk = vec![7; writer.spec().image_bytes()];
        for index in [0, 12] {
            writer.write(&ImageRecord::partial(index, &[&chunk])).unwrap();
        }
        let ended = "complete".into();
        writer.finish(&LedgerRecord { ended, images_expected: 13, ..LedgerRecord::default() }).unwrap().master
    }

    #[test]
    fn lost_images_of_all_data_files_share_one_budget() {
        let scratch = tempfile::tempdir().unwrap();
        let master = mostly_lost(scratch.path());
        let data = |n: u64| scratch.path().join(data_file_name("m", n));
        for n in [2, 3] {
            let file = File::open_rw(data(n)).unwrap();
            file.group(COLUMNS).unwrap().unlink("bunch_id").unwrap();
        }
        let image_bytes = File::open(data(2)).unwrap().dataset(STACK).unwrap().chunk_info(0).unwrap().size as usize;
        let repaired = repair_with(&master, LostBudget::of(5 * image_bytes)).unwrap();
        assert_eq!(repaired.rescued, [data(2), data(3)], "{repaired:?}");
        let chunks = [2, 3].map(|n| File::open(data(n)).unwrap().dataset(STACK).unwrap().num_chunks());
        assert_eq!(chunks, [Some(4), Some(1)]);
    }

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[3, 4, 5, 9]), [3..6, 9..10]);
    }
}
