//! The writer of one run. One thread owns it. It reads no clock, and does not wait for the disk before
//! [`Writer::finish`].

use std::path::{Path, PathBuf};

use konkordia_core::latency::{Meter, Stage};

use super::columns::{Columns, ImageRecord, ImageStatus, SeriesRecord};
use super::constant::{LostBudget, MissingChunk};
use super::datafile::{Closed, DataFile, remove};
use super::error::{Context, Error, ErrorKind};
use super::handoff::ChunkWrites;
use super::journal::refuse_if_alive;
use super::ledger::NOT_RESCUED;
use super::master::{self, State};
use super::names::{existing, journal_path, master_path, pedestal_file_name, reserve_path};
use super::nexus;
use super::packing::{HEAD_BYTES, begins_right};
use super::pedestals::PedestalFile;
use super::reader::inspect;
use super::repair::{MissingImages, repair};
use super::resume;
use super::spec::{FileSpec, LedgerRecord, Overwrite};
use super::whole::{self, Whole};
use super::xds::readable_mask;
use crate::durable::{DiskSync, Durable, SyncFailed, ToDisk, while_out_of_files};
use crate::sys::space;

/// A flush follows the one before after this time or at the next tick. With ticks every 100 ms, two flushes are at most
/// 0.5 s apart.
const FLUSH_NS: u64 = 400_000_000;
/// How often, at most, a master of a running run is written again with the data files closed since. Each time costs one
/// copy of the mask.
const PUBLISH_NS: u64 = 10_000_000_000;
/// An image number that skips more data files than this is refused: the skipped files would fill the disk with lost
/// images.
const SKIPPED_FILES_MAX: u64 = 1000;

/// Space on the disk at create, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceEstimate {
    /// Free for this user on the file system of the directory.
    pub free: u64,
    /// Uncompressed size of all planned images, if their number is known. Real images take a fraction
    /// (docs/formats.md).
    pub images_uncompressed: Option<u64>,
    /// Reserved so that the files can be closed on a full disk; already subtracted from `free`.
    pub reserve: u64,
}

/// Group number of the pedestal file; data files have their own numbers, from 1.
const PEDESTALS_GROUP: u64 = 0;
const SYNC: &str = "sync the data to the disk";
const LOOK_AT_DISK: &str = "look at the system log (dmesg) for the disk; `konkordia repair FILE` names the images";
/// With less space than this left, the writer asks the file system before every image, otherwise at every flush: on a
/// network file system the question takes time.
const FREE_CLOSE: u64 = 256 << 20;

/// What [`Writer::finish`] wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The master file.
    pub master: PathBuf,
    /// Data files, in order.
    pub data_files: Vec<PathBuf>,
    /// Positions in the files, lost images included.
    pub images: u64,
    /// Images with pixels.
    pub images_with_pixels: u64,
    /// Snapshots of the pedestals.
    pub pedestal_snapshots: u64,
    /// Bytes of all chunks given to `write`.
    pub chunk_bytes: u64,
    /// Of a part of an image: the master of the whole image, or why there is none.
    pub whole: Option<Result<Whole, String>>,
}

/// Writes the files of one run: [`Writer::create`] at arm, [`Writer::write`] per image and [`Writer::tick`] at least
/// every 100 ms, [`Writer::finish`] at the end, also after an error. [`Writer::resume`] continues an interrupted run.
pub struct Writer {
    spec: FileSpec,
    columns: Columns,
    current: Option<DataFile>,
    pedestals: Option<PedestalFile>,
    closed: Vec<Closed>,
    next_index: u64,
    row: Vec<u8>,
    joined: Vec<u8>,
    missing: Option<MissingChunk>,
    lost_budget: LostBudget,
    failed: Option<Error>,
    flushed_ns: Option<u64>,
    published_ns: Option<u64>,
    published_files: usize,
    space: SpaceEstimate,
    /// Free bytes at the last query, less what was written since.
    free_known: u64,
    images_with_pixels: u64,
    chunk_bytes: u64,
    to_disk: ToDisk,
    disk: Option<DiskSync>,
    meter: Meter,
    chunk_writes: ChunkWrites,
}

impl Writer {
    /// Checks everything that can be known, creates the first data file, and publishes a master without images.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], [`ErrorKind::NotFound`], [`ErrorKind::NotWritable`], [`ErrorKind::Exists`],
    /// [`ErrorKind::InUse`], [`ErrorKind::DiskFull`]; then no new file is left behind, and with [`Overwrite::Refuse`]
    /// no older file was touched.
    pub fn create(mut spec: FileSpec) -> Result<Self, Error> {
        spec.validate()?;
        readable_mask(&mut spec.pixel_mask);
        patiently(|| Self::begin(spec.clone()))
    }

    fn begin(spec: FileSpec) -> Result<Self, Error> {
        check_directory(&spec.directory)?;
        clear_way(&spec)?;
        let columns = Columns::new(&spec);
        let space = take_reserve(&spec, reserve_bytes(&spec, &columns))?;
        let start = || {
            let pedestals = PedestalFile::create(&spec)?;
            master::publish(&spec, &columns, &[], None, State::Writing)?;
            Ok((DataFile::create(&spec, &columns, 1)?, pedestals))
        };
        match start() {
            Ok((first, pedestals)) => Ok(Self::new(spec, columns, Some(first), pedestals, space)),
            Err(error) => {
                remove_all(&spec);
                Err(error)
            }
        }
    }

    /// Continues an interrupted run of the same specification. Its finished data files are kept with their columns; a
    /// data file that was still growing is written again. Returns the writer and the number of the first image to
    /// write. After [`Writer::finish`] the files hold what a run without interruption would have written.
    ///
    /// Without any file of this prefix it is the same as [`Writer::create`]. If all of `images_planned` are there, no
    /// image can be written any more and only `finish` is left to do. Snapshots of pedestals start again from nothing,
    /// except in a complete run: write those of the kept images once more. The overwrite policy has no effect.
    /// Positions that `finish` has added up to `images_expected` count as written: to be able to continue a run, end it
    /// by dropping the writer, or expect no more images than were written.
    ///
    /// # Errors
    /// As [`Writer::create`]; [`ErrorKind::Invalid`] names the first setting in which the interrupted run differs,
    /// [`ErrorKind::Damaged`] names a finished data file that cannot be read. No file was touched then.
    pub fn resume(mut spec: FileSpec) -> Result<(Self, u64), Error> {
        spec.validate()?;
        readable_mask(&mut spec.pixel_mask);
        check_directory(&spec.directory)?;
        let columns = Columns::new(&spec);
        let found = resume::find(&spec, &columns, MissingChunk::of(&spec).map(|chunk| chunk.bytes().len()), &(1..=u64::MAX))?;
        found.clear()?;
        let space = take_reserve(&spec, reserve_bytes(&spec, &columns))?;
        let start = || {
            if found.complete {
                return Ok((None, None));
            }
            let pedestals = PedestalFile::create(&spec)?;
            master::publish(&spec, &columns, &found.closed, None, State::Writing)?;
            Ok((Some(DataFile::create(&spec, &columns, found.closed.len() as u64 + 1)?), pedestals))
        };
        let (current, pedestals) = start().inspect_err(|_| release_reserve(&spec))?;
        let mut writer = Self::new(spec, columns, current, pedestals, space);
        writer.next_index = found.images;
        writer.images_with_pixels = found.images_with_pixels;
        writer.chunk_bytes = found.chunk_bytes;
        writer.published_files = found.closed.len();
        writer.closed = found.closed;
        Ok((writer, found.images))
    }

    fn new(
        spec: FileSpec,
        columns: Columns,
        current: Option<DataFile>,
        pedestals: Option<PedestalFile>,
        space: SpaceEstimate,
    ) -> Self {
        Self {
            row: vec![0; columns.row_bytes],
            joined: Vec::new(),
            missing: MissingChunk::of(&spec),
            lost_budget: LostBudget::WHOLE,
            current,
            pedestals,
            closed: Vec::new(),
            next_index: 0,
            failed: None,
            flushed_ns: None,
            published_ns: None,
            published_files: 0,
            space,
            free_known: 0,
            images_with_pixels: 0,
            chunk_bytes: 0,
            to_disk: ToDisk::AtEnd,
            disk: None,
            meter: Meter::default(),
            chunk_writes: ChunkWrites::default(),
            columns,
            spec,
        }
    }

    /// Checks whether [`Writer::create`] would start a run here: the directory exists, and there is no older file that
    /// may not be replaced. Touches nothing.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn check_way(spec: &FileSpec) -> Result<(), Error> {
        spec.validate()?;
        Self::check_names(&spec.directory, &spec.prefix, spec.overwrite)
    }

    /// As [`Writer::check_way`], where nothing but the names of the files is known yet.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn check_names(directory: &Path, prefix: &str, overwrite: Overwrite) -> Result<(), Error> {
        check_directory(directory)?;
        if overwrite != Overwrite::Refuse {
            return Ok(());
        }
        let names = FileSpec { directory: directory.into(), prefix: prefix.into(), overwrite, ..FileSpec::default() };
        patiently(|| clear_way(&names))
    }

    /// Refuses or removes older files of this prefix, as [`Writer::create`] does, and creates nothing: for files that
    /// come to this directory later.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn make_way(spec: &FileSpec) -> Result<(), Error> {
        check_directory(&spec.directory)?;
        patiently(|| clear_way(spec))
    }

    /// Sets when written data are brought to the disk; at the end unless set. To be called before the first image.
    ///
    /// # Errors
    /// If the machine has no threads left.
    pub fn set_to_disk(&mut self, to_disk: ToDisk) -> Result<(), Error> {
        self.to_disk = to_disk;
        let (ToDisk::Beside(interval) | ToDisk::InSpool(interval)) = to_disk else { return Ok(()) };
        let disk = DiskSync::start(&self.spec.directory, interval).context(SYNC, &self.spec.directory)?;
        if let Some(pedestals) = &self.pedestals {
            let path = pedestals.path();
            let file = std::fs::File::open(path).context(SYNC, path)?;
            disk.opened(PEDESTALS_GROUP, vec![(path.to_owned(), file.into())]);
        }
        if let Some(file) = &self.current {
            file.sync_with(&disk);
        }
        self.disk = Some(disk);
        Ok(())
    }

    /// Sets who writes the bytes of images, for comparisons. To be called before the first image.
    pub fn set_chunk_writes(&mut self, writes: ChunkWrites) {
        self.chunk_writes = writes;
        self.current.iter_mut().for_each(|file| file.chunk_writes = writes);
    }

    /// Up to which image everything is on the disk, for other threads; `None` unless data are brought there while they
    /// are written. What is in a spool does not count.
    pub fn durable(&self) -> Option<Durable> {
        self.disk_that_counts().map(DiskSync::durable)
    }

    fn disk_that_counts(&self) -> Option<&DiskSync> {
        self.disk.as_ref().filter(|_| !matches!(self.to_disk, ToDisk::InSpool(_)))
    }

    /// Counts at `meter` when images are written, and when they are on the disk if data are brought there meanwhile. To
    /// be called after [`Writer::set_to_disk`] and before the first image. The ledger gets what was counted.
    pub fn set_meter(&mut self, meter: Meter) {
        if let Some(disk) = self.disk_that_counts() {
            disk.measure(meter.clone());
        }
        self.meter = meter;
    }

    /// Counts the latency of the image that was written last; its first byte was received at `received_ns`.
    pub fn count_latency(&self, received_ns: u64) {
        self.meter.reached(Stage::Written, received_ns);
        if let Some(disk) = self.disk_that_counts().filter(|_| self.meter.is_on()) {
            disk.wrote(self.next_index, received_ns);
        }
    }

    /// The specification given to [`Writer::create`].
    pub fn spec(&self) -> &FileSpec {
        &self.spec
    }

    /// Space on the disk at create.
    pub fn space(&self) -> SpaceEstimate {
        self.space
    }

    /// The lowest position that the next image may have: one past the last one written.
    pub fn next_index(&self) -> u64 {
        self.next_index
    }

    /// Bytes of all chunks written so far.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Writes one image. Image numbers must grow; skipped images are lost images and read as *missing*.
    ///
    /// # Errors
    /// After the first I/O error every further call returns the same error. Everything written before stays intact, and
    /// [`Writer::finish`] closes it. [`ErrorKind::Invalid`] (a record that contradicts the specification) changes
    /// nothing.
    pub fn write(&mut self, image: &ImageRecord<'_>) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.spec.series.is_some() {
            return Err(self.invalid(image.index, "this is a file of a series".into()));
        }
        let bytes = image.parts.iter().map(|part| part.len()).sum::<usize>();
        self.check_position(image.index, image.status, bytes)?;
        self.check_chunk(image.index, image.parts)?;
        self.columns.pack(image, &mut self.row)?;
        match image.parts {
            [one] => self.put(image.index, &[one]),
            _ if bytes == 0 => self.put(image.index, &[]),
            parts => {
                let mut joined = std::mem::take(&mut self.joined);
                joined.clear();
                parts.iter().for_each(|part| joined.extend_from_slice(part));
                let result = self.put(image.index, &[&joined]);
                self.joined = joined;
                result
            }
        }
    }

    /// Writes one image that was in a journal: its chunks, and its row of columns as it was.
    pub(super) fn put_row(&mut self, index: u64, chunks: &[&[u8]], row: &[u8]) -> Result<(), Error> {
        assert_eq!(row.len(), self.row.len(), "a row of the same columns");
        self.row.copy_from_slice(row);
        self.put(index, chunks)
    }

    /// Images with pixels in the files so far.
    pub(super) fn images_with_pixels(&self) -> u64 {
        self.images_with_pixels
    }

    /// Brings the growing data file to the disk.
    pub(super) fn sync_current(&self) -> Result<(), Error> {
        self.current.as_ref().map_or(Ok(()), |file| file.sync().context(SYNC, &file.path))
    }

    /// Writes one image of a series.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_series(&mut self, image: &SeriesRecord<'_>) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.spec.series.is_none() {
            return Err(self.invalid(image.index, "this is a file of a run".into()));
        }
        let bytes = image.pieces.iter().map(|piece| piece.len()).sum::<usize>();
        self.check_position(image.index, image.status, bytes)?;
        if bytes > 0 && (image.pieces.len() != self.spec.pieces() || image.pieces.iter().any(|piece| piece.is_empty())) {
            let cause = format!("{} pieces instead of {} non-empty ones", image.pieces.len(), self.spec.pieces());
            return Err(self.invalid(image.index, cause));
        }
        for piece in image.pieces {
            self.check_chunk(image.index, &[piece])?;
        }
        self.columns.pack_series(image, &mut self.row)?;
        self.put(image.index, if bytes > 0 { image.pieces } else { &[] })
    }

    /// Stores the chunks of an image that has been checked and whose row has been packed.
    fn put(&mut self, index: u64, chunks: &[&[u8]]) -> Result<(), Error> {
        let chunk_bytes = chunks.iter().map(|chunk| chunk.len()).sum::<usize>();
        let ipf = u64::from(self.spec.images_per_file);
        let result = self.check_space(chunk_bytes as u64).and_then(|()| self.advance_to(index / ipf + 1)).and_then(|()| {
            let file = self.current.as_mut().expect("a data file is open unless a write failed");
            file.write(index % ipf, chunks, &self.row)
        });
        match result {
            Ok(()) => {
                self.next_index = index + 1;
                self.chunk_bytes += chunk_bytes as u64;
                self.images_with_pixels += u64::from(chunk_bytes > 0);
                if let Some(disk) = &self.disk {
                    disk.written(self.next_index);
                }
                Ok(())
            }
            Err(error) => {
                if let Some(file) = &self.current {
                    // The image that failed may already have a position; it then counts as lost.
                    self.next_index = self.next_index.max((file.number - 1) * ipf + file.images());
                }
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// True if [`Writer::write_pedestals`] can be called: the run has snapshots and is not complete yet.
    pub fn takes_pedestals(&self) -> bool {
        self.pedestals.is_some()
    }

    /// Writes the pedestals of G0 as they are after image `image`, in ADU; `parts` one after the other are the pixels
    /// of an image. Snapshots come in the order of their images. Each one is in the file when this returns.
    ///
    /// # Errors
    /// As [`Writer::write`]; [`ErrorKind::Invalid`] also when the specification has no `pedestal_snapshots`.
    pub fn write_pedestals(&mut self, image: u64, parts: &[&[f32]]) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(file) = &mut self.pedestals else {
            let cause = "this run was created without snapshots, or is complete";
            return Err(Error::new(ErrorKind::Invalid, "write pedestals", &self.spec.directory, cause));
        };
        file.check(image, parts)?;
        let bytes = 4 * self.spec.pixels() as u64;
        let result = self.check_space(bytes).and_then(|()| match &mut self.pedestals {
            Some(file) => file.append(image, parts),
            None => Ok(()),
        });
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Refuses an image if the next flush might not fit any more. libhdf5 cannot recover from a flush that fails, so
    /// none may fail; the reserve then makes room for closing.
    fn check_space(&mut self, chunk_bytes: u64) -> Result<(), Error> {
        let needed = chunk_bytes + self.columns.flush_bytes(self.spec.images_per_file);
        if self.free_known < needed + FREE_CLOSE {
            self.free_known = space::free_bytes(&self.spec.directory).context("write an image", &self.spec.directory)?;
        }
        if self.free_known >= needed {
            self.free_known -= chunk_bytes;
            return Ok(());
        }
        let cause = format!("{} bytes are free, the next image may need {needed}", self.free_known);
        Err(Error::new(ErrorKind::DiskFull, "write an image", &self.spec.directory, cause))
    }

    fn invalid(&self, index: u64, cause: String) -> Error {
        Error::new(ErrorKind::Invalid, "write an image", &self.spec.directory, format!("image {index}: {cause}"))
    }

    /// Checks number, state and bytes of an image against the images written before.
    fn check_position(&self, index: u64, status: ImageStatus, bytes: usize) -> Result<(), Error> {
        let wrong = |cause: String| Err(self.invalid(index, cause));
        if index < self.next_index {
            return wrong(format!("image numbers must increase: the next one is {} or later", self.next_index));
        }
        if self.current.is_none() {
            return wrong(format!("the run is complete: all its {} images are in the files", self.next_index));
        }
        let skipped = (index - self.next_index) / u64::from(self.spec.images_per_file);
        if skipped > SKIPPED_FILES_MAX {
            return wrong(format!("it would need {skipped} data files of lost images before it"));
        }
        if status.has_pixels() != (bytes > 0) {
            return wrong(format!("{status:?} with {bytes} bytes of pixels"));
        }
        Ok(())
    }

    /// Checks a chunk, given in parts, against the specification.
    fn check_chunk(&self, index: u64, parts: &[&[u8]]) -> Result<(), Error> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let whole = self.spec.piece_bytes();
        let mut head = [0; HEAD_BYTES];
        let first = parts.iter().flat_map(|part| part.iter()).zip(&mut head).map(|(byte, head)| *head = *byte).count();
        let compression = self.spec.compression;
        if bytes > 0 && !begins_right(compression, whole, bytes, &head[..first]) {
            let (name, head) = (compression.name(), &head[..first]);
            let cause = format!("its {bytes} bytes are not an image of {whole} bytes in {name}: they begin with {head:02x?}");
            return Err(self.invalid(index, cause));
        }
        Ok(())
    }

    /// Makes data file `number` the current one, and closes the ones before it at their full length.
    fn advance_to(&mut self, number: u64) -> Result<(), Error> {
        let ipf = u64::from(self.spec.images_per_file);
        while let Some(file) = &mut self.current
            && file.number < number
        {
            file.extend(ipf)?;
            self.close_current()?;
            let next = self.closed.last().map_or(1, |closed| closed.number + 1);
            let mut next = patiently(|| DataFile::create(&self.spec, &self.columns, next))?;
            next.chunk_writes = self.chunk_writes;
            if let Some(disk) = &self.disk {
                next.sync_with(disk);
            }
            self.current = Some(next);
        }
        Ok(())
    }

    fn close_current(&mut self) -> Result<(), Error> {
        let Some(file) = &mut self.current else { return Ok(()) };
        if let Some(missing) = &self.missing {
            file.fill_lost(missing, &mut self.lost_budget);
            self.free_known = 0;
        }
        file.flush()?;
        if let Some(file) = self.current.take() {
            self.closed.push(file.close(self.disk.as_ref())?);
        }
        Ok(())
    }

    /// Flushes what was written.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.failed.is_none() {
            self.failed = self.current.as_mut().and_then(|file| file.flush().err());
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Flushes when it is due; `now_ns` is any clock that never goes back. Call it at least every 100 ms while armed.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn tick(&mut self, now_ns: u64) -> Result<(), Error> {
        if self.failed.is_some() {
            return Ok(());
        }
        let flushed = *self.flushed_ns.get_or_insert(now_ns);
        let published = *self.published_ns.get_or_insert(now_ns);
        let mut result = self.disk.as_ref().and_then(DiskSync::failure).map_or(Ok(()), |failed| Err(not_synced(&failed)));
        if result.is_ok() && now_ns.saturating_sub(flushed) >= FLUSH_NS {
            self.flushed_ns = Some(now_ns);
            // Other programs write to this disk too: query the free space again.
            self.free_known = 0;
            result = self.current.as_mut().map_or(Ok(()), DataFile::flush);
        }
        if result.is_ok() && self.closed.len() > self.published_files && now_ns.saturating_sub(published) >= PUBLISH_NS {
            self.published_ns = Some(now_ns);
            self.published_files = self.closed.len();
            let publish = || master::publish(&self.spec, &self.columns, &self.closed, None, State::Writing).map(drop);
            // It is published again later, and at the end.
            result = publish().or_else(|error| if error.kind == ErrorKind::OutOfFiles { Ok(()) } else { Err(error) });
        }
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Closes everything and publishes the final master. After a failed write it closes what was written before the
    /// failure.
    ///
    /// # Errors
    /// If that fails too, the journal stays: `konkordia repair` completes the file once the cause is removed.
    /// [`ErrorKind::Damaged`] if everything is closed, but images that were written cannot be read back.
    pub fn finish(mut self, ledger: &LedgerRecord) -> Result<FileReport, Error> {
        release_reserve(&self.spec);
        let ended = self.failed.is_some() || self.current.is_none();
        let total = if ended { self.next_index } else { self.next_index.max(ledger.images_expected) };
        let lost = self.close_at(total)?;
        let pedestal_snapshots = self.pedestals.take().map_or(Ok(0), PedestalFile::close)?;
        self.all_to_disk(pedestal_snapshots > 0, total)?;
        let mut ledger = ledger.clone();
        if self.meter.is_on() {
            ledger.latency = self.meter.read();
        }
        if lost > 0 {
            ledger.totals.push((NOT_RESCUED.into(), lost));
            let master = master::publish(&self.spec, &self.columns, &self.closed, Some(&ledger), State::Repaired)?;
            let cause = format!("{lost} images that were written could not be read back when their data file was closed");
            return Err(Error::new(ErrorKind::Damaged, "finish the run", &master, cause).with_hint(LOOK_AT_DISK));
        }
        let master = patiently(|| master::publish(&self.spec, &self.columns, &self.closed, Some(&ledger), State::Closed));
        let master = master.map_err(|error| {
            let master = master_path(&self.spec.directory, &self.spec.prefix);
            let hint =
                format!("{}; the data files are closed: `konkordia repair {}` makes the master", error.hint, master.display());
            error.with_hint(hint)
        })?;
        let whole = self.spec.part.map(|_| whole::compose(&master).map_err(|error| error.to_string()));
        Ok(FileReport {
            master,
            whole,
            data_files: self.closed.iter().map(|closed| closed.path.clone()).collect(),
            images: total,
            images_with_pixels: self.images_with_pixels,
            pedestal_snapshots,
            chunk_bytes: self.chunk_bytes,
        })
    }
}

impl Writer {
    /// Closes the last data file, and those before it, with `total` positions. Returns how many images are lost.
    fn close_at(&mut self, total: u64) -> Result<u64, Error> {
        let ipf = u64::from(self.spec.images_per_file);
        if self.failed.is_none() && total > 0 {
            self.advance_to((total - 1) / ipf + 1)?;
        }
        if let Some(file) = &mut self.current {
            let end = total.saturating_sub((file.number - 1) * ipf).min(ipf);
            file.extend(end)?;
            if file.images() == 0 {
                file.flush()?;
                if let Some(disk) = &self.disk {
                    disk.forget(file.number);
                }
                self.current.take().map_or(Ok(()), DataFile::discard)?;
            } else if let Err(error) = self.close_current() {
                return self.rescue().map_err(|_| error);
            }
        }
        Ok(0)
    }

    /// Waits until all files that the master will name are on the disk. This happens only here, after the run: nothing
    /// waits for the disk while data come in, and data that are on the disk by then cost nothing more. After a failed
    /// write it does as much as possible. A data file that somebody has moved away since it was complete is left to
    /// them.
    fn all_to_disk(&mut self, with_pedestals: bool, total: u64) -> Result<(), Error> {
        let pedestals = with_pedestals.then(|| self.spec.directory.join(pedestal_file_name(&self.spec.prefix)));
        if let Some(disk) = self.disk.take() {
            disk.written(total);
            if let Some(pedestals) = pedestals {
                disk.closed(PEDESTALS_GROUP, vec![pedestals], 0, None);
            }
            let done = disk.finish();
            return if self.failed.is_some() { Ok(()) } else { done.map_err(|failed| not_synced(&failed)) };
        }
        if self.to_disk != ToDisk::AtEnd {
            return Ok(());
        }
        for path in self.closed.iter().map(|closed| &closed.path).chain(&pedestals) {
            let synced = std::fs::File::open(path).and_then(|file| file.sync_data());
            let is_gone = synced.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            if self.failed.is_none() && !is_gone {
                synced.context(SYNC, path)?;
            }
        }
        Ok(())
    }

    /// Rebuilds the current data file from its journal when libhdf5 cannot close it. Returns the number of its images
    /// that are lost.
    fn rescue(&mut self) -> Result<u64, Error> {
        let Some(file) = self.current.take() else { return Ok(0) };
        let (number, path) = (file.number, file.path.clone());
        drop(file);
        // The sync thread holds the locks of journals, and brings to the disk what was closed before.
        if let Some(disk) = self.disk.take() {
            disk.finish().map_err(|failed| not_synced(&failed))?;
        }
        let report = repair(&path)?;
        let images = inspect(&path)?.images;
        self.closed.push(Closed::whole(number, path, images));
        // Complete data files may have been moved away: only what is missing of this one counts.
        let begin = (number - 1) * u64::from(self.spec.images_per_file);
        let is_before = |lost: &&MissingImages| lost.ranges.last().is_some_and(|range| range.end <= begin);
        Ok(report.missing.iter().filter(|lost| !is_before(lost)).map(|lost| lost.images).sum())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        release_reserve(&self.spec);
    }
}

/// Tries again while no file descriptor is free.
fn patiently<T>(make: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    while_out_of_files(|error: &Error| error.kind == ErrorKind::OutOfFiles, make)
}

fn not_synced(failed: &SyncFailed) -> Error {
    Error::io(SYNC, failed.path(), failed.error()).with_hint(LOOK_AT_DISK)
}

fn check_directory(directory: &Path) -> Result<(), Error> {
    let doing = "write into the output directory";
    let found = std::fs::metadata(directory).context(doing, directory)?;
    if !found.is_dir() {
        return Err(Error::new(ErrorKind::NotFound, doing, directory, "this is not a directory"));
    }
    Ok(())
}

/// Refuses or removes older files of the same prefix.
fn clear_way(spec: &FileSpec) -> Result<(), Error> {
    let doing = "start a run with this prefix";
    let master = master_path(&spec.directory, &spec.prefix);
    let files = existing(&spec.directory, &spec.prefix).context(doing, &spec.directory)?;
    for (_, path, _, has_journal) in &files {
        if *has_journal {
            refuse_if_alive(&journal_path(path))?;
        }
    }
    if spec.overwrite == Overwrite::Refuse {
        let older = files.first().map(|(_, path, ..)| path.clone());
        let pedestals = spec.directory.join(pedestal_file_name(&spec.prefix));
        return match older.or_else(|| [master, pedestals].into_iter().find(|path| path.exists())) {
            Some(path) => Err(Error::new(ErrorKind::Exists, doing, &path, "the file exists")),
            None => Ok(()),
        };
    }
    remove_all_of(spec, &files)
}

/// Removes the master first, so that a master never links to a file that is gone.
fn remove_all_of(spec: &FileSpec, files: &[(u64, PathBuf, bool, bool)]) -> Result<(), Error> {
    let master = master_path(&spec.directory, &spec.prefix);
    if master.exists() {
        remove(&master)?;
    }
    let pedestals = spec.directory.join(pedestal_file_name(&spec.prefix));
    if pedestals.exists() {
        remove(&pedestals)?;
    }
    for (_, path, has_data, has_journal) in files {
        if *has_data {
            remove(path)?;
        }
        if *has_journal {
            remove(&journal_path(path))?;
        }
    }
    Ok(())
}

/// Cleans up as far as possible when create fails half way.
fn remove_all(spec: &FileSpec) {
    release_reserve(spec);
    if let Ok(files) = existing(&spec.directory, &spec.prefix) {
        let _ = remove_all_of(spec, &files);
    }
}

/// Space needed to close the files on a full disk: the columns and chunk index of one data file (a B-tree node of 64
/// keys is at least half full), the mask in the master, the columns of the planned images in the master, and the small
/// metadata of both files.
fn reserve_bytes(spec: &FileSpec, columns: &Columns) -> u64 {
    let per_image = columns.row_bytes as u64 + 128;
    let per_file = u64::from(spec.images_per_file);
    let in_file = spec.images_planned.unwrap_or(per_file).min(per_file);
    let in_master = spec.images_planned.unwrap_or(per_file).min(10_000_000);
    let is_hole = nexus::is_hole(&spec.pixel_mask, (spec.rows as usize, spec.columns as usize));
    let mask = if is_hole { 0 } else { 4 * spec.pixels() as u64 };
    let small = (128 << 10) + columns.flush_bytes(spec.images_per_file) + 4 * spec.configuration.len() as u64;
    // Begin and end of each angle, stored in at most two places, and the time of each image.
    let axes = spec.metadata.experiment.goniometer.axes().iter().filter(|(_, axis)| axis.is_given()).count() as u64;
    small + (in_file + in_master) * per_image + in_master * (8 + 32 * axes) + mask
}

fn take_reserve(spec: &FileSpec, bytes: u64) -> Result<SpaceEstimate, Error> {
    let doing = "reserve disk space";
    let path = reserve_path(&spec.directory, &spec.prefix);
    let taken = std::fs::File::create(&path).and_then(|file| space::allocate(&file, bytes));
    if let Err(error) = taken {
        let _ = std::fs::remove_file(&path);
        return Err(Error::io(doing, &path, &error));
    }
    let free = space::free_bytes(&spec.directory).context(doing, &spec.directory)?;
    let images_uncompressed = spec.images_planned.map(|n| n.saturating_mul(spec.image_bytes() as u64));
    Ok(SpaceEstimate { free, images_uncompressed, reserve: bytes })
}

fn release_reserve(spec: &FileSpec) {
    let _ = std::fs::remove_file(reserve_path(&spec.directory, &spec.prefix));
}

#[path = "single_files.rs"]
mod single_files;

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
