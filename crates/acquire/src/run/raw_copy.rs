//! Writes the raw frames of a run beside its file, in the format of the slsReceiver (docs/protocols.md 1.7):
//! `PREFIX_raw_d<port>_f<file>_0.raw` for each stream and `PREFIX_raw_master_0.json`. `konkordia convert` and every
//! other reader of that format can read them.
//!
//! A record is a header of 112 bytes and the whole tile. Packets that were not received, and rows that the detector did
//! not read out, are filled with 0xFF bytes. A tile of which no packet was received has no record in that frame; the
//! frame numbers show the gap. After an error each file ends with its last whole record.

use konkordia_config::{Config, overrides};
use konkordia_core::MAX_PACKETS_PER_TILE;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::TileRecord;
use konkordia_core::plan::{FirstFrame, Plan};
use konkordia_core::ports::{FrameSink, SinkError};
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_sinks::durable::{DiskSync, Durable, SyncFailed, is_out_of_files, while_out_of_files};
use konkordia_sinks::hdf5::Overwrite;
use konkordia_wire::sls_file::{DataFileName, RECORD_HEADER_BYTES, master_name, write_record_header};
use konkordia_wire::sls_master::{Master, WRITTEN_VERSION};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const EXTENSION: &str = "raw";
const ACQUISITION: u64 = 0;
const DOING: &str = "cannot write the raw frames to";

/// The master of the raw frames of a run.
pub fn master_file_name(prefix: &str) -> String {
    master_name(&format!("{prefix}_raw"), ACQUISITION, "json")
}

/// What is to be written, and where.
#[derive(Clone, Debug)]
pub struct RawSpec {
    /// An existing directory.
    pub directory: PathBuf,
    /// First part of the names of the run's files.
    pub prefix: String,
    /// What to do with older files of the same names.
    pub overwrite: Overwrite,
    /// How often open files are synced to the disk; `None` = only when they are closed.
    pub sync_interval: Option<Duration>,
    /// Every tile has this format.
    pub format: TileFormat,
    /// Tiles of a frame.
    pub tiles: usize,
    /// Frames of a tile in one file; 0 = no limit.
    pub frames_per_file: u64,
    /// Frames of the run, if known.
    pub frames_planned: Option<u64>,
    /// Start of the run, UTC.
    pub start_time: String,
    /// Exposure and period in seconds, where known.
    pub exposure_period_s: (Option<f64>, Option<f64>),
    /// `[detector]` of the configuration, with the values that the arm command gave for this run.
    pub detector: Option<serde_json::Value>,
    /// The metadata of the other tables, likewise.
    pub facts: Option<serde_json::Value>,
    /// Number of the first frame, if it is known before the run.
    pub first_frame: Option<u64>,
    /// Number of frames before the one with which the first image begins; `None` if packet headers decide it.
    pub frames_before_first_image: Option<u64>,
}

impl RawSpec {
    /// The raw frames of a run, stored beside its file.
    pub fn of(config: &Config, plan: &Plan, start_time: String) -> Self {
        Self {
            directory: config.directory.clone(),
            prefix: config.prefix.clone(),
            overwrite: config.overwrite,
            sync_interval: config.sync_interval,
            format: *plan.geometry.format(),
            tiles: plan.streams(),
            frames_per_file: u64::from(config.images_per_file),
            frames_planned: plan.frames,
            start_time,
            exposure_period_s: (config.metadata.count_time_s, config.metadata.frame_time_s),
            detector: detector_of(config),
            facts: config.text.parse().ok().map(|root| overrides::facts_beside_detector(&root, &config.given)),
            first_frame: match plan.first_frame {
                FirstFrame::Number(number) => Some(number),
                FirstFrame::Auto => None,
            },
            frames_before_first_image: plan.processing.selection.frames_before_first_image(),
        }
    }

    /// Bytes of all files, if the number of frames is known.
    pub fn bytes_planned(&self) -> Option<u64> {
        let frame = (RECORD_HEADER_BYTES as u64 + u64::from(self.format.whole().tile_bytes())) * self.tiles as u64;
        self.frames_planned.map(|frames| frames.saturating_mul(frame))
    }

    fn stem(&self) -> String {
        format!("{}_raw", self.prefix)
    }

    fn master_path(&self) -> PathBuf {
        self.directory.join(master_file_name(&self.prefix))
    }

    fn data_path(&self, port: usize, sub_file: u64) -> PathBuf {
        let name = DataFileName { stem: self.stem(), port: port as u32, sub_file, acquisition: ACQUISITION };
        self.directory.join(name.with_extension(EXTENSION))
    }

    /// The master; without `frames_in_file` readers count the records themselves.
    fn master(&self, frames_in_file: Option<u64>) -> Master {
        let tiles = self.tiles as u32;
        let ports = match self.format.kind {
            DetectorKind::Eiger if tiles.is_multiple_of(2) => (2, tiles / 2),
            _ => (1, tiles),
        };
        let named = [("exposure", self.exposure_period_s.0), ("period", self.exposure_period_s.1)];
        Master {
            version: WRITTEN_VERSION,
            format: self.format,
            ports,
            interfaces: self.format.tiles_per_module,
            frames_per_file: self.frames_per_file,
            frames_in_file,
            frames_total: self.frames_planned.or(frames_in_file),
            timestamp: Some(self.start_time.clone()),
            detector: self.detector.clone(),
            facts: self.facts.clone(),
            first_frame: self.first_frame.zip(self.frames_before_first_image).map(|(first, before)| first + before),
            texts: named.into_iter().filter_map(|(name, seconds)| Some((name, with_unit(seconds?)))).collect(),
        }
    }

    /// All existing files of this name. The master comes first: it is removed first, so that a master never stands
    /// beside the data of another run.
    fn existing(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, master) = (self.stem(), self.master_path());
        let mut found: Vec<PathBuf> = master.exists().then_some(master).into_iter().collect();
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| DataFileName::parse(n, EXTENSION));
            if name.is_some_and(|n| n.stem == stem && n.acquisition == ACQUISITION) {
                found.push(path);
            }
        }
        Ok(found)
    }

    fn clear_way(&self) -> Result<(), Failure> {
        let found = self.existing().map_err(|e| Failure::io("cannot look for older raw frames in", &self.directory, &e))?;
        if let (Overwrite::Refuse, Some(path)) = (self.overwrite, found.first()) {
            let fix = "choose another prefix, move the old files, or set overwrite = \"replace\" in [output]";
            return Err(Failure::new(Exit::Io, format!("{DOING} {}", path.display()), "the file exists", fix));
        }
        for path in &found {
            std::fs::remove_file(path).map_err(|e| Failure::io("cannot replace", path, &e))?;
        }
        Ok(())
    }
}

/// `[detector]` of a configuration, with the values that the arm command gave for this run.
fn detector_of(config: &Config) -> Option<serde_json::Value> {
    let mut root: toml::Table = config.text.parse().ok()?;
    let mut detector = serde_json::to_value(root.remove("detector")?).ok()?;
    let given = config.given.iter().filter(|(name, _)| overrides::is_of_detector(name));
    given.for_each(|(name, value)| detector[name.as_str()] = value.clone());
    Some(detector)
}

/// A duration as the slsReceiver writes it: "840us".
fn with_unit(seconds: f64) -> String {
    let ns = (seconds * 1e9).round() as u64;
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let unit = units.into_iter().find(|(size, _)| ns > 0 && ns.is_multiple_of(*size)).unwrap_or((1, "ns"));
    format!("{}{}", ns / unit.0, unit.1)
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReport {
    /// The JSON master.
    pub master: PathBuf,
    /// Data files.
    pub files: u64,
    /// Frames of which at least one tile was written.
    pub frames: u64,
    /// Bytes of all data files.
    pub bytes: u64,
}

/// The files of raw frames. The sink's thread writes them during the run and the program closes them afterwards, so
/// nothing ever waits for their lock. They are removed if they are dropped without a frame and without
/// [`RawCopy::finish`].
#[derive(Clone)]
pub struct RawCopy {
    files: Arc<Mutex<Option<Files>>>,
    durable: Durable,
}

impl RawCopy {
    /// Creates the first file of each tile, and a master without a frame count.
    ///
    /// # Errors
    /// Older files exist and may not be replaced, or a file cannot be created. Then nothing is left behind.
    pub fn create(spec: RawSpec) -> Result<Self, Failure> {
        assert!(PADDING.len() >= spec.format.payload_bytes as usize);
        spec.clear_way()?;
        let disk = DiskSync::start(&spec.directory, spec.sync_interval).map_err(|e| Failure::io(DOING, &spec.directory, &e))?;
        let durable = disk.durable();
        let mut files =
            Files { spec, ports: Vec::new(), disk: Some(disk), count: 0, frames: 0, newest: None, bytes: 0, is_finished: false };
        write_master(&files.spec.master_path(), &files.spec.master(None))?;
        for port in 0..files.spec.tiles {
            let opened = Port::create(files.spec.data_path(port, 0))?;
            files.grows(port, &opened);
            files.ports.push(opened);
            files.count += 1;
        }
        Ok(Self { files: Arc::new(Mutex::new(Some(files))), durable })
    }

    /// Frames before this one are on the disk, and survive a power cut.
    pub fn durable_end(&self) -> u64 {
        self.durable.end()
    }

    /// Closes the files and writes the final master; `None` if that was done before. It is called after an error too,
    /// so that what was written before the error is kept.
    pub fn finish(&self) -> Option<Result<RawReport, Failure>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).take();
        files.map(Files::finish)
    }
}

impl FrameSink for RawCopy {
    fn write(&mut self, frame: u64, tile: usize, record: &TileRecord, bytes: &[u8]) -> Result<(), SinkError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(files) = files.as_mut() else { return Ok(()) };
        Ok(files.write(frame, tile, record, bytes)?)
    }
}

struct Files {
    spec: RawSpec,
    ports: Vec<Port>,
    /// Syncs the files to the disk; `None` once they are finished.
    disk: Option<DiskSync>,
    /// Data files created.
    count: u64,
    frames: u64,
    newest: Option<u64>,
    bytes: u64,
    is_finished: bool,
}

impl Files {
    /// Appends one record with one system call, and starts a new file when the current one is full.
    fn write(&mut self, frame: u64, tile: usize, record: &TileRecord, bytes: &[u8]) -> Result<(), Failure> {
        let format = self.spec.format;
        assert_eq!(bytes.len(), format.tile_bytes() as usize);
        if record.bitmap.count() == 0 {
            return Ok(());
        }
        let (limit, records) = (self.spec.frames_per_file, self.ports[tile].records);
        if limit > 0 && records > 0 && records.is_multiple_of(limit) {
            let next = Port::create(self.spec.data_path(tile, records / limit))?;
            self.is_closed(tile);
            self.grows(tile, &next);
            self.ports[tile] = Port { records, ..next };
            self.count += 1;
        }
        let port = &mut self.ports[tile];
        let before = port.length;
        port.append(&format.of_tile(tile), record, bytes).map_err(|e| Failure::io(DOING, &port.path, &e))?;
        self.bytes += port.length - before;
        if self.newest != Some(frame) {
            self.frames_are_written(frame)?;
            self.newest = Some(frame);
            self.frames += 1;
            self.spec.first_frame = self.spec.first_frame.or(record.header.frame_number.checked_sub(frame));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<RawReport, Failure> {
        self.is_finished = true;
        let frames = self.newest.map_or(0, |newest| newest + 1);
        self.frames_are_written(frames)?;
        (0..self.ports.len()).for_each(|port| self.is_closed(port));
        self.disk.take().map_or(Ok(()), DiskSync::finish).map_err(|failed| not_synced(&failed))?;
        let (master, most) = (self.spec.master_path(), self.ports.iter().map(|p| p.records).max());
        write_master(&master, &self.spec.master(most))?;
        Ok(RawReport { master, files: self.count, frames: self.frames, bytes: self.bytes })
    }
}

impl Files {
    /// Registers a new file for the disk sync.
    fn grows(&self, tile: usize, port: &Port) {
        if let Some(disk) = &self.disk {
            disk.opened(tile as u64, vec![(port.path.clone(), Arc::clone(&port.file))]);
        }
    }

    /// Marks the newest file of a tile as complete for the disk sync.
    fn is_closed(&self, tile: usize) {
        if let Some(disk) = &self.disk {
            disk.closed(tile as u64, vec![self.ports[tile].path.clone()], 0, None);
        }
    }

    /// Marks the frames before `end` as written, and returns an error that the disk sync has met.
    fn frames_are_written(&self, end: u64) -> Result<(), Failure> {
        let Some(disk) = &self.disk else { return Ok(()) };
        disk.written(end);
        disk.failure().map_or(Ok(()), |failed| Err(not_synced(&failed)))
    }
}

fn not_synced(failed: &SyncFailed) -> Failure {
    Failure::io("cannot sync the raw frames to the disk:", failed.path(), failed.error())
}

impl Drop for Files {
    fn drop(&mut self) {
        if !self.is_finished && self.frames == 0 {
            let _ = std::fs::remove_file(self.spec.master_path());
            for port in &self.ports {
                let _ = std::fs::remove_file(&port.path);
            }
        }
    }
}

/// The newest file of one tile.
struct Port {
    file: Arc<File>,
    path: PathBuf,
    /// Bytes of whole records in this file.
    length: u64,
    /// Records in all files of the tile.
    records: u64,
}

impl Port {
    fn create(path: PathBuf) -> Result<Self, Failure> {
        let file = while_out_of_files(is_out_of_files, || OpenOptions::new().write(true).create_new(true).open(&path));
        Ok(Self { file: Arc::new(file.map_err(|e| Failure::io(DOING, &path, &e))?), path, length: 0, records: 0 })
    }

    fn append(&mut self, format: &TileFormat, record: &TileRecord, bytes: &[u8]) -> io::Result<()> {
        let mut header = [0; RECORD_HEADER_BYTES];
        let caught = record.bitmap.renumbered(0, format.packets() as u16, format.first_packet as u16);
        write_record_header(&record.header.into(), format.kind, &caught, &mut header);
        let mut parts = [IoSlice::new(&[]); PARTS_MAX];
        let count = parts_of(format, record, &header, bytes, &mut parts);
        if let Err(error) = write_all(&self.file, &mut parts[..count]) {
            // Readers skip a record that is cut off. Removing it only spares them the warning.
            let _ = self.file.set_len(self.length);
            let _ = (&*self.file).seek(SeekFrom::Start(self.length));
            return Err(error);
        }
        self.length += header.len() as u64 + u64::from(format.whole().tile_bytes());
        self.records += 1;
        Ok(())
    }
}

/// Largest number of pieces of a record: the header, and one for each packet.
const PARTS_MAX: usize = MAX_PACKETS_PER_TILE + 1;
/// Fills the place of a packet that was not received; the payload of a packet has at most 8192 bytes.
static PADDING: [u8; 8192] = [0xFF; 8192];

/// Fills `parts` with the pieces of a record: its header, the received packets, and padding for the others. Returns
/// their number.
fn parts_of<'a>(
    format: &TileFormat,
    record: &TileRecord,
    header: &'a [u8],
    bytes: &'a [u8],
    parts: &mut [IoSlice<'a>; PARTS_MAX],
) -> usize {
    let payload = format.payload_bytes as usize;
    // All packets of the whole tile. Packets of rows that were not read out count as not received.
    let (packets, first) = (format.whole().packets() as u16, format.first_packet as u16);
    let came = |packet: u16| packet.checked_sub(first).is_some_and(|p| u32::from(p) < format.packets() && record.bitmap.has(p));
    parts[0] = IoSlice::new(header);
    let (mut count, mut packet) = (1, 0);
    while packet < packets {
        let from = packet;
        while packet < packets && came(packet) {
            packet += 1;
        }
        if packet > from {
            parts[count] = IoSlice::new(&bytes[usize::from(from - first) * payload..usize::from(packet - first) * payload]);
        } else {
            parts[count] = IoSlice::new(&PADDING[..payload]);
            packet += 1;
        }
        count += 1;
    }
    count
}

fn write_all(mut file: &File, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !parts.is_empty() {
        match file.write_vectored(parts) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut parts, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Replaces the master by a rename, so that a reader finds the whole old one or the whole new one.
fn write_master(path: &Path, master: &Master) -> Result<(), Failure> {
    let part = path.with_extension("json.part");
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(master.to_text().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, path)?;
        // Some file systems cannot sync a folder. They do not promise more without it, so the error is ignored.
        let _ = path.parent().map(|folder| File::open(folder).and_then(|folder| folder.sync_all()));
        Ok(())
    };
    write().map_err(|e| {
        let _ = std::fs::remove_file(&part);
        Failure::io(DOING, path, &e)
    })
}

#[cfg(test)]
#[path = "raw_copy_tests.rs"]
mod tests;
