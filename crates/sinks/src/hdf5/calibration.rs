//! Calibration files of a JUNGFRAU: pedestals with their noise and mask per storage cell and gain stage, and gains.
//! docs/formats/calibration.md describes them. A file is written beside its place and renamed, so it is there whole or
//! not at all. A SHA-256 over everything that conversion uses is stored in it, and a file that does not match its own
//! hash is refused.
//!
//! The data sets of other programs are read by [`super::calibration_planes`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use hdf5::{File, Group, H5Type};
use sha2::{Digest, Sha256};

use super::bounded::ReadAll;
use super::error::{Context, Error, ErrorKind};
use super::low::{self, Format};
use super::names::temporary_path;
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
        let mut hasher = Sha256::new();
        let ids: Vec<String> = self.module_ids.iter().map(|id| id.map_or("-".into(), |id| id.to_string())).collect();
        hasher.update(format!("{FORMAT} {FORMAT_VERSION}\n{}\n{}\n{}\n", self.modules, self.detector_serial, ids.join(",")));
        for ((cell, stage), planes) in &self.pedestals {
            hasher.update(format!("cell {cell} {} {}\n", stage.name(), planes.taken));
            bytes_of(&planes.mean_adu, f32::to_le_bytes, &mut hasher);
            bytes_of(&planes.rms_adu, f32::to_le_bytes, &mut hasher);
            bytes_of(&planes.count, u32::to_le_bytes, &mut hasher);
            bytes_of(&planes.mask, u32::to_le_bytes, &mut hasher);
        }
        for (stage, gain) in GainStage::ALL.into_iter().zip(&self.gains) {
            let Some(gain) = gain else { continue };
            hasher.update(format!("gain {}\n", stage.name()));
            bytes_of(gain, f32::to_le_bytes, &mut hasher);
        }
        hasher.finalize().iter().fold(String::from("sha256:"), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Writes the file, replacing an older one of this name. Returns its hash.
    ///
    /// # Errors
    /// If a plane does not have the size of the detector, or the file cannot be written; an older file is then
    /// untouched.
    pub fn write(&self, path: &Path) -> Result<String, Error> {
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
            let group = file.create_group("gain")?;
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
        let doing = "read the calibration";
        std::fs::metadata(path).context(doing, path)?;
        let damaged = |cause: String| {
            let hint = "take the file from a backup, or make it again: konkordia help pedestal";
            Error::new(ErrorKind::Damaged, doing, path, cause).with_hint(hint)
        };
        let file = low::open_file(path).map_err(|error| match Error::hdf5(doing, path, error) {
            error if matches!(error.kind, ErrorKind::Io | ErrorKind::NotHdf5 | ErrorKind::Damaged) => {
                damaged(format!("the file is damaged, or not HDF5: {}", error.cause))
            }
            error => error,
        })?;
        if attribute(&file, "format").as_deref() != Some(FORMAT) {
            let hint = "calibrations of other programs are read with their own kind: [calibration] kind = \"jungfrau_utils\" or \"files\"";
            let why = "it has no attribute format = \"konkordia-calibration\"";
            return Err(Error::new(ErrorKind::Invalid, doing, path, why).with_hint(hint));
        }
        let version = file.attr("format_version").and_then(|a| a.read_scalar::<u32>()).unwrap_or(0);
        if version != FORMAT_VERSION {
            let why = format!("its format has version {version}; this program knows {FORMAT_VERSION}");
            return Err(Error::new(ErrorKind::Invalid, doing, path, why).with_hint("use the program that wrote it"));
        }
        let read = Self::parse(&file).map_err(|cause| damaged(format!("the file is damaged: {cause}")))?;
        let (stated, found) = (attribute(&file, "hash").unwrap_or_default(), read.hash());
        if stated != found {
            return Err(damaged(format!("the file is damaged: its content has the hash {found}, but the file states {stated}")));
        }
        Ok(read)
    }

    fn parse(file: &File) -> Result<Self, String> {
        let number = |name: &str| file.attr(name).and_then(|a| a.read_scalar::<u32>()).map_err(|_| format!("no number '{name}'"));
        let modules = number("modules")? as usize;
        if modules == 0 || modules > MODULES_MAX {
            return Err(format!("{modules} modules"));
        }
        let mut read = Self {
            modules,
            created: attribute(file, "created").unwrap_or_default(),
            software: attribute(file, "software").unwrap_or_default(),
            detector_serial: attribute(file, "detector_serial").unwrap_or_default(),
            gain_source: attribute(file, "gain_source").unwrap_or_default(),
            history: read_texts(file, "history").unwrap_or_default(),
            ..Self::default()
        };
        if let Ok(ids) = file.dataset("module_ids") {
            let ids = ids.read_all::<i32>().map_err(|_| "module_ids cannot be read")?;
            read.module_ids = ids.into_iter().map(|id| u16::try_from(id).ok()).collect();
        }
        for line in read_texts(file, "reasons").unwrap_or_default() {
            let (bit, name) = line.split_once(' ').ok_or("reasons")?;
            read.reasons.push((bit.parse().map_err(|_| "reasons")?, name.to_string()));
        }
        let shape = [modules * MODULE_ROWS, MODULE_COLUMNS];
        for cell in 0..STORAGE_CELLS {
            let Ok(parent) = file.group(&format!("cell_{cell:02}")) else { continue };
            for stage in GainStage::ALL {
                let Ok(group) = parent.group(stage.name()) else { continue };
                read.pedestals.insert((cell, stage), read_stage(&group, shape).map_err(|e| format!("cell {cell}: {e}"))?);
            }
        }
        if let Ok(group) = file.group("gain") {
            for stage in GainStage::ALL.into_iter().filter(|s| group.link_exists(s.name())) {
                read.gains[stage.index()] = Some(read_plane(&group, stage.name(), shape)?);
            }
        }
        Ok(read)
    }
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

fn read_stage(group: &Group, shape: [usize; 2]) -> Result<StagePedestal, String> {
    let frames = |name: &str| group.attr(name).and_then(|a| a.read_scalar::<u64>()).map_err(|_| format!("no number '{name}'"));
    Ok(StagePedestal {
        mean_adu: read_plane(group, "mean", shape)?,
        rms_adu: read_plane(group, "rms", shape)?,
        count: read_plane(group, "count", shape)?,
        mask: read_plane(group, "mask", shape)?,
        frames: frames("frames")?,
        frames_refused: frames("frames_refused")?,
        taken: attribute(group, "taken").unwrap_or_default(),
        source: attribute(group, "source").unwrap_or_default(),
        settings: read_text(group, "settings").unwrap_or_default(),
    })
}

fn read_plane<T: H5Type>(group: &Group, name: &str, shape: [usize; 2]) -> Result<Vec<T>, String> {
    let data = group.dataset(name).map_err(|_| format!("there is no '{name}'"))?;
    if data.shape() != shape {
        return Err(format!("'{name}' has the shape {:?} instead of {shape:?}", data.shape()));
    }
    data.read_all::<T>().map_err(|error| format!("'{name}' cannot be read: {error}"))
}
