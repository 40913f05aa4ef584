//! Completes what a killed writer left behind: rebuilds data files from their journals and writes the master anew from what the data
//! files hold. Running it twice changes nothing the second time.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hdf5::File;

use super::channels;
use super::columns::Columns;
use super::datafile::{COLUMNS, Closed, DESCRIPTION, DataFile, STACK, remove};
use super::error::{Context, Error, ErrorKind};
use super::journal::{self, NO_CHUNK, Replay};
use super::low;
use super::master::{self, State};
use super::names::{existing, journal_path, master_file_name, parse, pedestal_file_name, reserve_path, temporary_path};
use super::nexus::{read_number, read_text, read_texts};
use super::packing::{HEAD_BYTES, begins_right};
use super::pedestals::{OWN, PEDESTALS, Snapshots};
use super::spec::{FileSpec, LedgerRecord, StreamRecord};

/// What [`repair`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// The master file, written anew or found right.
    pub master: PathBuf,
    /// Data files rebuilt from their journals.
    pub rebuilt: Vec<PathBuf>,
    /// Whether the master was written anew.
    pub master_written: bool,
    /// Positions in the run now.
    pub images: u64,
    /// Everything that a person should know, one sentence each.
    pub notes: Vec<String>,
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
    Run { directory, prefix, master, rebuilt: Vec::new(), notes: Vec::new() }.repair(&files)
}

struct Run<'a> {
    directory: &'a Path,
    prefix: &'a str,
    master: PathBuf,
    rebuilt: Vec<PathBuf>,
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
        channels::take_back(&mut spec, &[&self.master, &self.directory.join(super::data_file_name(self.prefix, 1))]);
        let closed = self.closed(files, &spec);
        let ipf = u64::from(spec.images_per_file);
        let images = closed.last().map_or(0, |last| (last.number - 1) * ipf + last.images);
        self.snapshots(&mut spec);
        let right = self.rebuilt.is_empty() && master_is_right(&self.master, &closed, images, spec.pedestal_snapshots);
        if !right {
            let (ledger, state) = match low::open_file(&self.master).ok().and_then(|file| read_ledger(&file)) {
                Some(ledger) if self.rebuilt.is_empty() => (ledger, State::Closed),
                _ => (ledger_of_columns(&closed, &spec, images), State::Repaired),
            };
            let columns = Columns::new(&spec);
            master::publish(&spec, &columns, &closed, Some(&ledger), state)?;
        }
        let Self { master, rebuilt, notes, .. } = self;
        Ok(RepairReport { master, rebuilt, master_written: !right, images, notes })
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
        let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(replay) = journal::replay(&journal)?.filter(|replay| !replay.entries.is_empty()) else {
            if has_data {
                remove(data)?;
            }
            remove(&journal)?;
            self.notes.push(format!("{name} was opened and got no image: removed"));
            return Ok(None);
        };
        let damaged = |cause: String| Error::new(ErrorKind::Damaged, doing, &journal, cause).with_hint("keep both files and ask");
        let mut spec = FileSpec::from_text(&replay.text).map_err(damaged)?;
        spec.directory = self.directory.to_owned();
        spec.pixel_mask = self.mask_of(data, spec.pixels()).unwrap_or_else(|| vec![0; spec.pixels()]);
        channels::take_back(&mut spec, &[&self.master, data]);
        spec.validate()?;
        let columns = Columns::new(&spec);
        let part = temporary_path(data);
        if part.exists() {
            remove(&part)?;
        }
        let made = DataFile::create_hdf5(&spec, &columns, replay.number, replay.first, part.clone(), None)
            .and_then(|file| self.copy(&replay, &spec, &columns, data, file))
            .and_then(|_| {
                std::fs::File::open(&part).and_then(|file| file.sync_all()).context(doing, &part)?;
                std::fs::rename(&part, data).context(doing, data)?;
                remove(&journal)
            });
        if made.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        made?;
        self.rebuilt.push(data.to_owned());
        Ok(Some(spec))
    }

    /// Copies every journaled chunk from the raw bytes of the old file; the metadata of libhdf5 in it is not trusted.
    fn copy(
        &mut self,
        replay: &Replay,
        spec: &FileSpec,
        columns: &Columns,
        data: &Path,
        mut file: DataFile,
    ) -> Result<Closed, Error> {
        let old = std::fs::File::open(data).context("rebuild the data file", data)?;
        for entry in &replay.entries {
            let local = entry.image.wrapping_sub(replay.first);
            let fits = local >= file.images() && local < u64::from(spec.images_per_file);
            let parts = entry.parts(spec.pieces()).filter(|(_, row)| fits && row.len() == columns.row_bytes);
            let Some((places, row)) = parts else {
                self.notes.push(format!("image {}: its record in the journal contradicts the others; left out", entry.image));
                continue;
            };
            if places.iter().all(|(offset, _)| *offset == NO_CHUNK) {
                file.write(local, &[], row)?;
                continue;
            }
            let chunks: Option<Vec<Vec<u8>>> = places.iter().map(|place| chunk_at(&old, *place, spec)).collect();
            if let Some(chunks) = chunks {
                file.write(local, &chunks.iter().map(Vec::as_slice).collect::<Vec<_>>(), row)?;
            } else {
                self.notes.push(format!("image {}: its bytes are not in the file; it is lost", entry.image));
                file.write(local, &[], &vec![0; columns.row_bytes])?;
            }
        }
        if let Some(missing) = super::constant::missing_chunk(spec) {
            file.fill_lost(&missing);
        }
        file.flush()?;
        file.close()
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
        self.mask_of(&self.directory.join(super::data_file_name(self.prefix, 1)), pixels)
    }

    fn mask_of(&self, data: &Path, pixels: usize) -> Option<Vec<u32>> {
        let read = |path: &Path, name: &str| {
            let mask = low::open_file(path).ok()?.dataset(name).ok()?.read_raw::<u32>().ok()?;
            (mask.len() == pixels).then_some(mask)
        };
        read(&self.master, "/entry/instrument/detector/pixel_mask").or_else(|| read(data, "/entry/konkordia/pixel_mask"))
    }

    fn closed(&mut self, files: &[(u64, PathBuf, bool, bool)], spec: &FileSpec) -> Vec<Closed> {
        let mut closed = Vec::new();
        for (number, path, ..) in files.iter().filter(|(_, path, ..)| path.exists()) {
            let shape = low::open_file(path).and_then(|file| Ok(file.dataset(STACK)?.shape()));
            match shape {
                Ok(shape) if shape.get(1..) == Some(&spec.image_shape()) && shape[0] > 0 => {
                    closed.push(Closed { number: *number, path: path.clone(), images: shape[0] as u64 });
                }
                Ok(shape) => self.notes.push(format!("{} holds {shape:?}, not images of this run; not linked", path.display())),
                Err(_) => self.notes.push(format!("{} cannot be read and has no journal; not linked", path.display())),
            }
        }
        closed
    }
}

/// The chunk at this offset with this size, if it can be one.
fn chunk_at(file: &std::fs::File, (offset, size): (u64, u64), spec: &FileSpec) -> Option<Vec<u8>> {
    let most = 12 + 64 + 2 * spec.piece_bytes() as u64;
    let mut chunk = vec![0; usize::try_from(size).ok().filter(|_| size <= most)?];
    file.read_exact_at(&mut chunk, offset).ok()?;
    let head = &chunk[..chunk.len().min(HEAD_BYTES)];
    begins_right(spec.compression, spec.piece_bytes(), chunk.len(), head).then_some(chunk)
}

/// Whether the master is final and names exactly the data files that exist.
fn master_is_right(master: &Path, closed: &[Closed], images: u64, with_pedestals: bool) -> bool {
    let Ok(file) = low::open_file(master) else { return false };
    let state = read_text(&file, "/entry/konkordia/state").unwrap_or_default();
    let nimages = read_number(&file, "/entry/instrument/detector/detectorSpecific/nimages");
    let links = file.group("/entry/data").and_then(|group| group.member_names()).unwrap_or_default();
    let mut linked: Vec<u64> = links.iter().filter_map(|name| name.strip_prefix("data_")?.parse().ok()).collect();
    linked.sort_unstable();
    let there: Vec<u64> = closed.iter().map(|file| file.number).collect();
    let has_columns = file.dataset(&format!("{COLUMNS}/status")).is_ok_and(|status| status.shape() == [images as usize]);
    let links_right = linked == there || (linked.is_empty() && links.iter().any(|name| name == "data"));
    let links_right = links_right && file.group(OWN).is_ok_and(|own| own.link_exists(PEDESTALS)) == with_pedestals;
    state != State::Writing.name() && nimages == Some(images as f64) && has_columns && (links_right || images == 0)
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
    for file in closed {
        let status = low::open_file(&file.path).and_then(|f| f.dataset(&format!("{COLUMNS}/status"))?.read_raw::<u8>());
        status.unwrap_or_default().iter().filter(|&&s| s < 4).for_each(|&s| by_status[usize::from(s)] += 1);
    }
    // Images of data files that are gone count as lost.
    by_status[0] += images.saturating_sub(by_status.iter().sum());
    let names = ["images_lost", "images_complete", "images_partial", "images_discarded"];
    let mut totals: Vec<(String, u64)> = names.iter().zip(by_status).map(|(name, n)| ((*name).to_owned(), n)).collect();
    totals.push(("images_in_files".into(), images));
    LedgerRecord {
        totals,
        streams: Vec::new(),
        balances: vec!["images_in_files = images_lost + images_complete + images_partial + images_discarded".into()],
        ended: "killed; repaired from the data files".into(),
        end_time: None,
        images_expected: spec.images_planned.unwrap_or(images),
    }
}
