//! Calibration files of a JUNGFRAU: pedestals with their noise and mask per storage cell and gain stage, and gains.
//! docs/formats/calibration.md describes them. A file is written beside its place and renamed, so it is there whole or
//! not at all. A SHA-256 over everything that conversion uses is stored in it, and a file that does not match its own
//! hash is refused.
//!
//! The data sets of other programs are read by [`super::calibration_planes`].

use konkordia_core::output::temporary_path;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use hdf5::{Dataset, File, Group, H5Type};
use sha2::{Digest, Sha256};

use super::bounded::ReadAll;
use super::error::{Context, Error, ErrorKind};
use super::low::{self, Format};
use super::nexus::{attribute_text, numbers, read_attribute as attribute, read_text, read_texts, text, texts};

/// Name of the format, in the attribute `format` of the root.
pub const FORMAT: &str = "konkordia-calibration";
/// Version of the format, in the attribute `format_version` of the root; readers refuse any other.
pub const FORMAT_VERSION: u32 = 1;
/// Rows of a module.
pub const MODULE_ROWS: usize = 512;
/// Columns of a module.
pub const MODULE_COLUMNS: usize = 1024;
/// Pixels of a module.
pub const MODULE_PIXELS: usize = MODULE_ROWS * MODULE_COLUMNS;
/// Most modules of a detector, as in the configuration.
const MODULES_MAX: usize = 256;
/// Storage cells of a JUNGFRAU 1.0 chip; version 1.1 has 4.
pub const STORAGE_CELLS: u8 = 16;
/// Stands for a module id that no packet gave.
const NO_MODULE_ID: i32 = -1;

/// Gain of a pixel's first amplifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GainStage {
    /// Highest gain in dynamic switching.
    G0,
    /// Medium gain.
    G1,
    /// Low gain.
    G2,
    /// High gain: replaces G0 where the detector is set to it.
    Hg0,
}

impl GainStage {
    /// All, in the order of files.
    pub const ALL: [Self; 4] = [Self::G0, Self::G1, Self::G2, Self::Hg0];

    /// Name as files and command lines spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::G0 => "g0",
            Self::G1 => "g1",
            Self::G2 => "g2",
            Self::Hg0 => "hg0",
        }
    }

    /// The stage of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Index into arrays of four.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The stage that the gain bits of a word name, 0 to 2; HG0 has the gain bits of G0.
    pub const fn of_words(self) -> usize {
        match self {
            Self::G0 | Self::Hg0 => 0,
            Self::G1 => 1,
            Self::G2 => 2,
        }
    }
}

/// What becomes of a file that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is kept as the previous one, in place of an older one.
    Previous,
    /// It is gone.
    Nothing,
}

/// Where the file that `path` had before is kept: `cal.previous.h5` beside `cal.h5`.
pub fn previous_path(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(".previous");
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Keeps the file as the previous one and leaves it where it is. Whatever happens in between, there is a whole file
/// under each of the two names that had one.
fn keep_previous(path: &Path) -> std::io::Result<()> {
    let previous = previous_path(path);
    let part = temporary_path(&previous);
    match std::fs::remove_file(&part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Some file systems have no second names.
    if std::fs::hard_link(path, &part).is_err() {
        std::fs::copy(path, &part)?;
        std::fs::File::open(&part)?.sync_all()?;
    }
    std::fs::rename(&part, &previous)
}

/// Pedestals of one storage cell in one stage. All planes: (modules x 512, 1024), row-major, modules one below the
/// other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StagePedestal {
    /// Mean in ADU; NaN without data.
    pub mean_adu: Vec<f32>,
    /// Standard deviation in ADU; NaN if unknown.
    pub rms_adu: Vec<f32>,
    /// Words of which the mean was taken; 0 if unknown (imported planes).
    pub count: Vec<u32>,
    /// Why the pixel is not usable: reason bits, 0 = good.
    pub mask: Vec<u32>,
    /// Frames that were used.
    pub frames: u64,
    /// Frames that were refused.
    pub frames_refused: u64,
    /// When they were taken, ISO 8601 in UTC; empty if unknown.
    pub taken: String,
    /// Where they came from, as text for users.
    pub source: String,
    /// Thresholds of the mask and similar settings, as JSON.
    pub settings: String,
}

/// A whole calibration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CalibrationFile {
    /// Modules of the detector.
    pub modules: usize,
    /// When the file was written, ISO 8601 in UTC.
    pub created: String,
    /// Program and version.
    pub software: String,
    /// Serial number of the detector; empty if not known.
    pub detector_serial: String,
    /// Module ids from the packet headers, by module; empty or `None` if unknown.
    pub module_ids: Vec<Option<u16>>,
    /// Pedestals by storage cell and stage.
    pub pedestals: BTreeMap<(u8, GainStage), StagePedestal>,
    /// Gains in ADU/keV by [`GainStage::index`]; planes as for the pedestals.
    pub gains: [Option<Vec<f32>>; 4],
    /// Where the gains came from, as text for users.
    pub gain_source: String,
    /// What was done to the file, one line per step.
    pub history: Vec<String>,
    /// Meaning of the reason bits: name by bit number.
    pub reasons: Vec<(u8, String)>,
}

fn bytes_of<T: Copy>(values: &[T], to: impl Fn(T) -> [u8; 4], hasher: &mut Sha256) {
    let mut block = [0; 16_384];
    for part in values.chunks(block.len() / 4) {
        for (bytes, value) in block.chunks_exact_mut(4).zip(part) {
            bytes.copy_from_slice(&to(*value));
        }
        hasher.update(&block[..part.len() * 4]);
    }
}

/// The hash of a calibration: its parts are added in the order of docs/formats/calibration.md.
pub(super) struct ContentHash(Sha256);

impl ContentHash {
    /// Begins with what identifies the detector.
    pub(super) fn new(facts: &CalibrationFile) -> Self {
        let ids: Vec<String> = facts.module_ids.iter().map(|id| id.map_or("-".into(), |id| id.to_string())).collect();
        let mut hasher = Sha256::new();
        hasher.update(format!("{FORMAT} {FORMAT_VERSION}\n{}\n{}\n{}\n", facts.modules, facts.detector_serial, ids.join(",")));
        Self(hasher)
    }

    /// Begins the planes of a cell and stage.
    pub(super) fn stage(&mut self, (cell, stage): (u8, GainStage), taken: &str) {
        self.0.update(format!("cell {cell} {} {taken}\n", stage.name()));
    }

    /// Begins the gains of a stage.
    pub(super) fn gain(&mut self, stage: GainStage) {
        self.0.update(format!("gain {}\n", stage.name()));
    }

    pub(super) fn floats(&mut self, values: &[f32]) {
        bytes_of(values, f32::to_le_bytes, &mut self.0);
    }

    pub(super) fn words(&mut self, values: &[u32]) {
        bytes_of(values, u32::to_le_bytes, &mut self.0);
    }

    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().fold(String::from("sha256:"), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl StagePedestal {
    /// The part of one module, with all facts.
    #[must_use]
    pub fn of_module(&self, module: usize) -> Self {
        let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
        let (taken, source, settings) = (self.taken.clone(), self.source.clone(), self.settings.clone());
        Self {
            mean_adu: self.mean_adu[range.clone()].to_vec(),
            rms_adu: self.rms_adu[range.clone()].to_vec(),
            count: self.count[range.clone()].to_vec(),
            mask: self.mask[range].to_vec(),
            taken,
            source,
            settings,
            ..*self
        }
    }
}

impl CalibrationFile {
    /// Pixels of a plane.
    pub fn pixels(&self) -> usize {
        self.modules * MODULE_PIXELS
    }

    /// Storage cells that have pedestals, ascending.
    pub fn cells(&self) -> Vec<u8> {
        let mut cells: Vec<u8> = self.pedestals.keys().map(|k| k.0).collect();
        cells.dedup();
        cells
    }

    /// "sha256:" and 64 hexadecimal digits, over what conversion uses and what identifies the detector
    /// (docs/formats/calibration.md gives the order).
    pub fn hash(&self) -> String {
        let mut hash = ContentHash::new(self);
        for (key, planes) in &self.pedestals {
            hash.stage(*key, &planes.taken);
            hash.floats(&planes.mean_adu);
            hash.floats(&planes.rms_adu);
            hash.words(&planes.count);
            hash.words(&planes.mask);
        }
        for (stage, gain) in GainStage::ALL.into_iter().zip(&self.gains) {
            let Some(gain) = gain else { continue };
            hash.gain(stage);
            hash.floats(gain);
        }
        hash.finish()
    }

    /// Writes the file, replacing an older one of this name, which [`Keep::Previous`] keeps under [`previous_path`].
    /// Returns its hash.
    ///
    /// # Errors
    /// If a plane does not have the size of the detector, or the file cannot be written; an older file is then
    /// untouched.
    pub fn write(&self, path: &Path, keep: Keep) -> Result<String, Error> {
        let doing = "write the calibration";
        self.check_sizes(path)?;
        let hash = self.hash();
        let part = temporary_path(path);
        if part.exists() {
            std::fs::remove_file(&part).context(doing, &part)?;
        }
        let written = self.fill(&part, &hash).context(doing, path).and_then(|()| {
            let file = std::fs::File::open(&part).context(doing, path)?;
            file.sync_all().context(doing, path)?;
            if keep == Keep::Previous && path.exists() {
                keep_previous(path).context("keep the previous calibration", path)?;
            }
            std::fs::rename(&part, path).context(doing, path)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written.map(|()| hash)
    }

    fn check_sizes(&self, path: &Path) -> Result<(), Error> {
        let pixels = self.pixels();
        let wrong = |what: String| Err(Error::new(ErrorKind::Invalid, "write the calibration", path, what));
        if self.modules == 0 || self.modules > MODULES_MAX {
            return wrong(format!("{} modules; there can be 1 to {MODULES_MAX}", self.modules));
        }
        for ((cell, stage), p) in &self.pedestals {
            let lengths = [p.mean_adu.len(), p.rms_adu.len(), p.count.len(), p.mask.len()];
            if *cell >= STORAGE_CELLS || lengths.iter().any(|n| *n != pixels) {
                return wrong(format!("cell {cell} {}: the planes have {lengths:?} pixels instead of {pixels}", stage.name()));
            }
        }
        if self.gains.iter().flatten().any(|g| g.len() != pixels) {
            return wrong(format!("a gain plane does not have {pixels} pixels"));
        }
        Ok(())
    }

    fn fill(&self, part: &Path, hash: &str) -> hdf5::Result<()> {
        let file = low::create_file(part, Format::V18)?;
        attribute_text(&file, "format", FORMAT)?;
        file.new_attr::<u32>().create("format_version")?.write_scalar(&FORMAT_VERSION)?;
        file.new_attr::<u32>().create("modules")?.write_scalar(&(self.modules as u32))?;
        for (name, value) in [
            ("created", &self.created),
            ("software", &self.software),
            ("detector_serial", &self.detector_serial),
            ("gain_source", &self.gain_source),
        ] {
            attribute_text(&file, name, value)?;
        }
        attribute_text(&file, "hash", hash)?;
        if !self.module_ids.is_empty() {
            let ids: Vec<i32> = self.module_ids.iter().map(|id| id.map_or(NO_MODULE_ID, i32::from)).collect();
            numbers(&file, "module_ids", &ids)?;
        }
        if !self.history.is_empty() {
            texts(&file, "history", &self.history)?;
        }
        if !self.reasons.is_empty() {
            let lines: Vec<String> = self.reasons.iter().map(|(bit, name)| format!("{bit} {name}")).collect();
            texts(&file, "reasons", &lines)?;
        }
        let shape = (self.modules * MODULE_ROWS, MODULE_COLUMNS);
        for ((cell, stage), planes) in &self.pedestals {
            let name = format!("cell_{cell:02}");
            let parent = file.group(&name).or_else(|_| file.create_group(&name))?;
            write_stage(&parent.create_group(stage.name())?, planes, shape)?;
        }
        if self.gains.iter().any(Option::is_some) {
            let group = file.create_group(GAIN)?;
            for (stage, gain) in GainStage::ALL.into_iter().zip(&self.gains) {
                if let Some(gain) = gain {
                    plane(&group, stage.name(), gain, shape, "ADU/keV")?;
                }
            }
        }
        file.flush()
    }

    /// Reads a file and compares it with its hash.
    ///
    /// # Errors
    /// If it cannot be read, is no calibration of this version, has planes of a wrong shape, or does not match its
    /// hash.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = open(path)?;
        let read = Self::parse(&file).map_err(|cause| damaged(path, format!("the file is damaged: {cause}")))?;
        compare_hash(path, &file, &read.hash())?;
        Ok(read)
    }

    fn parse(file: &File) -> Result<Self, String> {
        let mut read = facts(file)?;
        let shape = [read.modules * MODULE_ROWS, MODULE_COLUMNS];
        for ((cell, stage), planes) in &mut read.pedestals {
            let group = file.group(&stage_group(*cell, *stage)).map_err(|error| format!("cell {cell}: {error}"))?;
            let damaged = |cause| format!("cell {cell}: {cause}");
            planes.mean_adu = read_plane(&group, "mean", shape).map_err(damaged)?;
            planes.rms_adu = read_plane(&group, "rms", shape).map_err(damaged)?;
            planes.count = read_plane(&group, "count", shape).map_err(damaged)?;
            planes.mask = read_plane(&group, "mask", shape).map_err(damaged)?;
        }
        for (stage, gain) in GainStage::ALL.into_iter().zip(&mut read.gains) {
            if let Some(gain) = gain {
                *gain = read_plane(&file.group(GAIN).map_err(|error| error.to_string())?, stage.name(), shape)?;
            }
        }
        Ok(read)
    }
}

/// Group of the gains.
pub(super) const GAIN: &str = "gain";

/// Group of the planes of a cell and stage.
pub(super) fn stage_group(cell: u8, stage: GainStage) -> String {
    format!("cell_{cell:02}/{}", stage.name())
}

/// Opens a calibration file of this version.
pub(super) fn open(path: &Path) -> Result<File, Error> {
    std::fs::metadata(path).context(DOING, path)?;
    let file = low::open_file(path).map_err(|error| match Error::hdf5(DOING, path, error) {
        error if matches!(error.kind, ErrorKind::Io | ErrorKind::NotHdf5 | ErrorKind::Damaged) => {
            damaged(path, format!("the file is damaged, or not HDF5: {}", error.cause))
        }
        error => error,
    })?;
    if attribute(&file, "format").as_deref() != Some(FORMAT) {
        let hint =
            "calibrations of other programs are read with their own kind: [calibration] kind = \"jungfrau_utils\" or \"files\"";
        let why = "it has no attribute format = \"konkordia-calibration\"";
        return Err(Error::new(ErrorKind::Invalid, DOING, path, why).with_hint(hint));
    }
    let version = file.attr("format_version").and_then(|a| a.read_scalar::<u32>()).unwrap_or(0);
    if version != FORMAT_VERSION {
        let why = format!("its format has version {version}; this program knows {FORMAT_VERSION}");
        return Err(Error::new(ErrorKind::Invalid, DOING, path, why).with_hint("use the program that wrote it"));
    }
    Ok(file)
}

const DOING: &str = "read the calibration";

pub(super) fn damaged(path: &Path, cause: String) -> Error {
    let hint = "take the file from a backup, or make it again: konkordia help pedestal";
    Error::new(ErrorKind::Damaged, DOING, path, cause).with_hint(hint)
}

/// Compares the hash of what was read with what the file says.
pub(super) fn compare_hash(path: &Path, file: &File, found: &str) -> Result<(), Error> {
    let stated = attribute(file, "hash").unwrap_or_default();
    if stated == found {
        return Ok(());
    }
    let why = format!("the file is damaged: its content has the hash {found}, but the file states {stated}");
    Err(damaged(path, why))
}

/// All of a file but its planes, which are empty where it has them.
pub(super) fn facts(file: &File) -> Result<CalibrationFile, String> {
    let number = |name: &str| file.attr(name).and_then(|a| a.read_scalar::<u32>()).map_err(|_| format!("no number '{name}'"));
    let modules = number("modules")? as usize;
    if modules == 0 || modules > MODULES_MAX {
        return Err(format!("{modules} modules"));
    }
    let mut read = CalibrationFile {
        modules,
        created: attribute(file, "created").unwrap_or_default(),
        software: attribute(file, "software").unwrap_or_default(),
        detector_serial: attribute(file, "detector_serial").unwrap_or_default(),
        gain_source: attribute(file, "gain_source").unwrap_or_default(),
        history: read_texts(file, "history").unwrap_or_default(),
        ..CalibrationFile::default()
    };
    if let Ok(ids) = file.dataset("module_ids") {
        let ids = ids.read_all::<i32>().map_err(|_| "module_ids cannot be read")?;
        read.module_ids = ids.into_iter().map(|id| u16::try_from(id).ok()).collect();
    }
    for line in read_texts(file, "reasons").unwrap_or_default() {
        let (bit, name) = line.split_once(' ').ok_or("reasons")?;
        read.reasons.push((bit.parse().map_err(|_| "reasons")?, name.to_string()));
    }
    for cell in 0..STORAGE_CELLS {
        let Ok(parent) = file.group(&format!("cell_{cell:02}")) else { continue };
        for stage in GainStage::ALL {
            let Ok(group) = parent.group(stage.name()) else { continue };
            read.pedestals.insert((cell, stage), stage_facts(&group).map_err(|e| format!("cell {cell}: {e}"))?);
        }
    }
    if let Ok(group) = file.group(GAIN) {
        for stage in GainStage::ALL.into_iter().filter(|s| group.link_exists(s.name())) {
            read.gains[stage.index()] = Some(Vec::new());
        }
    }
    Ok(read)
}

fn plane<T: H5Type>(group: &Group, name: &str, values: &[T], shape: (usize, usize), units: &str) -> hdf5::Result<()> {
    let data = group.new_dataset::<T>().shape(shape).create(name)?;
    data.write_raw(values)?;
    attribute_text(&data, "units", units)
}

fn write_stage(group: &Group, planes: &StagePedestal, shape: (usize, usize)) -> hdf5::Result<()> {
    plane(group, "mean", &planes.mean_adu, shape, "ADU")?;
    plane(group, "rms", &planes.rms_adu, shape, "ADU")?;
    plane(group, "count", &planes.count, shape, "words")?;
    plane(group, "mask", &planes.mask, shape, "reason bits, see /reasons")?;
    group.new_attr::<u64>().create("frames")?.write_scalar(&planes.frames)?;
    group.new_attr::<u64>().create("frames_refused")?.write_scalar(&planes.frames_refused)?;
    attribute_text(group, "taken", &planes.taken)?;
    attribute_text(group, "source", &planes.source)?;
    text(group, "settings", &planes.settings)
}

fn stage_facts(group: &Group) -> Result<StagePedestal, String> {
    let frames = |name: &str| group.attr(name).and_then(|a| a.read_scalar::<u64>()).map_err(|_| format!("no number '{name}'"));
    Ok(StagePedestal {
        frames: frames("frames")?,
        frames_refused: frames("frames_refused")?,
        taken: attribute(group, "taken").unwrap_or_default(),
        source: attribute(group, "source").unwrap_or_default(),
        settings: read_text(group, "settings").unwrap_or_default(),
        ..StagePedestal::default()
    })
}

fn read_plane<T: H5Type>(group: &Group, name: &str, shape: [usize; 2]) -> Result<Vec<T>, String> {
    let data = plane_of(group, name, shape)?;
    data.read_all::<T>().map_err(|error| format!("'{name}' cannot be read: {error}"))
}

/// A plane whose size is that of the detector.
pub(super) fn plane_of(group: &Group, name: &str, shape: [usize; 2]) -> Result<Dataset, String> {
    let data = group.dataset(name).map_err(|_| format!("there is no '{name}'"))?;
    if data.shape() != shape {
        return Err(format!("'{name}' has the shape {:?} instead of {shape:?}", data.shape()));
    }
    Ok(data)
}
