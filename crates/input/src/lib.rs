//! Reads frames from files of this program and of others: an index of the frames, and the pixels of one tile of one
//! frame. Live data come through `sources` instead.
//! Read [`Input::open`] first, then [`source::FileSource`].
//!
//! ```no_run
//! use konkordia_input::{Input, Options};
//!
//! let input = Input::open(&["run_d0_f0_0.raw".into()], &Options::default())?;
//! let mut tile = input.open_tile(0);
//! let mut pixels = vec![0; input.info().format.tile_bytes() as usize];
//! for nth in 0..tile.len() {
//!     let frame = tile.read(nth, &mut pixels)?;
//!     println!("frame {}: {} packets", tile.frame_number(nth), frame.bitmap.count());
//! }
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
//!
//! Formats: our own runs of raw words, the slsReceiver's binary files and its HDF5, SwissFEL JUNGFRAU HDF5, records
//! with a header of 112, 48 or 16 bytes, and plain planes of words (docs/convert.md). Opening reads every header once,
//! so that frames can be sorted and missing frames are known before the first pixel is read. Memory: 24 bytes for each
//! tile of each frame; for runs of raw words also the columns of each image.
#![forbid(unsafe_code)]

mod bare;
mod index;
mod own;
mod records;
mod sls;
pub mod source;
mod stack;
#[cfg(test)]
mod tests;

use index::{Place, TileIndex};
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::FrameHeader;
use konkordia_core::tile::TileFormat;
use konkordia_sinks::hdf5::Metadata;
use sha2::{Digest, Sha256};
use std::io::{IoSliceMut, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Format of the input files; without it the content decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Acquisition of the slsReceiver: its JSON master, or data files beside it
    SlsRaw,
    /// Records of header (48 bytes), packet mask (64 bytes) and pixels, without a master
    Raw112,
    /// Records of header (48 bytes) and pixels
    Raw48,
    /// Records of frame number and bunch id (16 bytes) and pixels
    Raw16,
    /// Plain uint16 words without headers: frames of modules x 512 x 1024 pixels
    U16,
    /// HDF5: a run of Konkordia with dtype = "raw", files of the slsReceiver or of SwissFEL
    Hdf5,
}

impl Format {
    /// All of them, with their names and what they are.
    pub const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::SlsRaw, "sls-raw", "Acquisition of the slsReceiver: its JSON master, or data files beside it"),
        (Self::Raw112, "raw112", "Records of header (48 bytes), packet mask (64 bytes) and pixels, without a master"),
        (Self::Raw48, "raw48", "Records of header (48 bytes) and pixels"),
        (Self::Raw16, "raw16", "Records of frame number and bunch id (16 bytes) and pixels"),
        (Self::U16, "u16", "Plain uint16 words without headers: frames of modules x 512 x 1024 pixels"),
        (Self::Hdf5, "hdf5", "HDF5: a run of Konkordia with dtype = \"raw\", files of the slsReceiver or of SwissFEL"),
    ];
}

/// What the files do not say themselves, and which frames are wanted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Format of the files.
    pub format: Option<Format>,
    /// Modules of plain words; 1 if not given.
    pub modules: Option<u32>,
    /// Which detector of a SwissFEL file; needed only if there are several.
    pub detector: Option<String>,
    /// The configuration places each tile, in the order of the ports: they are not ordered by their headers.
    pub in_port_order: bool,
    /// Only frames with these numbers, both ends included.
    pub frames: Option<(u64, u64)>,
}

/// What was found in the files.
#[derive(Clone, Debug)]
pub struct InputInfo {
    /// Description of the files, for messages.
    pub kind: String,
    /// Every tile has this format; JUNGFRAU tiles of 256 rows are half modules.
    pub format: TileFormat,
    /// Modules of the detector.
    pub modules: u32,
    /// Tiles of a JUNGFRAU module; of an EIGER module it is 4.
    pub interfaces: u32,
    /// Row and column of each tile in the image, if the files say more than that modules are stacked.
    pub placements: Option<Vec<(u32, u32)>>,
    /// Keys of `[detector]` of the run that wrote the files, if this program wrote them.
    pub detector: Option<toml::Table>,
    /// The run that wrote the files, if this program did.
    pub own: Option<OwnRun>,
    /// Lowest frame number.
    pub first_frame: u64,
    /// Highest frame number.
    pub last_frame: u64,
    /// Lowest and highest frame number of the whole input, even if only a part is wanted. Frames that its run lost are
    /// included.
    pub span: (u64, u64),
    /// Frames that the files should hold, if they say so.
    pub frames_expected: Option<u64>,
    /// Number of different frame numbers.
    pub frames_found: u64,
    /// Bytes of pixels.
    pub raw_bytes: u64,
    /// Names of the tiles, for messages.
    pub tile_names: Vec<String>,
    /// Module id of each tile, from its first frame; 0 where the files have none.
    pub module_ids: Vec<u16>,
    /// True if something that should be there is not: a file, the end of a file, frames that the master counts.
    pub incomplete: bool,
    /// Notes for the user: what is missing, doubled, out of order or cut off.
    pub notes: Vec<String>,
    /// Changes when a file changes: SHA-256 over names, sizes, modification times and first bytes, as "sha256:...".
    pub identity: String,
    /// When the first data file was last written, in UTC as NeXus wants it. That may be when it was copied.
    pub written: Option<String>,
    /// When the slsReceiver was stopped, by its own clock, ISO 8601 without time zone.
    pub stopped: Option<String>,
    /// The data files.
    pub files: Vec<PathBuf>,
}

/// What a run of this program stores beside its words.
#[derive(Clone, Debug)]
pub struct OwnRun {
    /// Metadata of the measurement, with the values of the arm command.
    pub metadata: Metadata,
    /// When the run ended, if that was observed.
    pub end_time: Option<String>,
    /// What was wrong with its set-up.
    pub wrong_setup: Option<String>,
    /// False if the words of double pixels are not in the files.
    pub has_double_pixels: bool,
    /// Which frames of the detector the frames of the input are.
    pub frames: RunFrames,
}

/// Which frames of the detector the frames of an input are.
#[derive(Clone, Debug)]
pub enum RunFrames {
    /// Every frame, one after the other. The value is the number of the frame with which the first image of the run
    /// begins, if it is known.
    Each(Option<u64>),
    /// Only the frames that the run kept as images. The first value is the number of the first of them in the input.
    Kept(u64, Arc<Vec<KeptFrame>>),
}

/// A frame that a run kept as an image. Both fields are `None` if nothing is known about the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptFrame {
    /// The number that the detector gave it.
    pub number: Option<u64>,
    /// Its position in the run, from 0.
    pub position: Option<u64>,
}

impl RunFrames {
    /// Number of detector frames from the start of the first image of the run to the frame `number` of the input;
    /// `None` if it is not known.
    pub fn since_first_image(&self, number: u64) -> Option<i64> {
        let (from, to) = match self {
            Self::Each(first) => ((*first)?, number),
            Self::Kept(first, _) => (self.kept(*first)?.position?, self.kept(number)?.position?),
        };
        (to as i64).checked_sub(from as i64)
    }

    /// The frame `number` of the input, if the run did not keep every frame.
    pub fn kept(&self, number: u64) -> Option<KeptFrame> {
        let Self::Kept(first, kept) = self else { return None };
        let at = number.checked_sub(*first).and_then(|at| usize::try_from(at).ok());
        Some(at.and_then(|at| kept.get(at)).copied().unwrap_or_default())
    }
}

/// When the frames of an input were taken, as far as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times<'a> {
    /// Start of the first frame.
    pub start: Option<&'a String>,
    /// End of the last frame, observed.
    pub end: Option<&'a String>,
    /// When the receiver was stopped, which is some time after the last frame.
    pub end_estimated: Option<&'a String>,
}

impl InputInfo {
    /// When the data were taken, as far as the input says: the start of a run, or when the first data file was last
    /// written.
    pub fn taken(&self) -> Option<&String> {
        self.own.as_ref().and_then(|own| own.metadata.start_time.as_ref()).or(self.written.as_ref())
    }

    /// When the frames were taken. If only a part of the input is wanted, its start and its end are known only where
    /// they are those of the whole input.
    pub fn times(&self) -> Times<'_> {
        let (has_first, has_last) = (self.first_frame <= self.span.0, self.last_frame >= self.span.1);
        let start = self.own.as_ref().and_then(|own| own.metadata.start_time.as_ref());
        let end = self.own.as_ref().and_then(|own| own.end_time.as_ref());
        Times {
            start: start.filter(|_| has_first),
            end: end.filter(|_| has_last),
            end_estimated: self.stopped.as_ref().filter(|_| has_last),
        }
    }

    /// False for formats without headers, which have zeros there.
    pub fn has_module_ids(&self) -> bool {
        self.module_ids.iter().any(|id| *id != 0)
    }

    /// For programs.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "kind": self.kind, "modules": self.modules, "interfaces": self.interfaces, "first_frame": self.first_frame,
            "last_frame": self.last_frame, "frames_expected": self.frames_expected, "frames_found": self.frames_found,
            "raw_bytes": self.raw_bytes, "module_ids": self.module_ids, "incomplete": self.incomplete, "notes": self.notes,
            "identity": self.identity, "written": self.written, "files": self.files,
        })
    }
}

/// Header and received packets of one tile of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileFrame {
    /// What is known of the frame.
    pub header: FrameHeader,
    /// Packets that the receiver caught. If the file has no mask, these are the packets that are not all 0xFF bytes,
    /// the padding of receivers.
    pub bitmap: PacketBitmap,
}

/// The frames of one tile, in the order of their numbers.
pub trait TileReader: Send {
    /// Where the frames lie, in the order of their numbers.
    fn places(&self) -> &[Place];

    /// Number of frames.
    fn len(&self) -> usize {
        self.places().len()
    }

    /// True if there is no frame.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frame number of the `nth` frame; the numbers ascend.
    ///
    /// # Panics
    /// If there are not so many.
    fn frame_number(&self, nth: usize) -> u64 {
        self.places()[nth].frame
    }

    /// Reads the pixels of the `nth` frame into `payloads`: all packets one after the other, or one slice for each
    /// packet.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter than it was when it was opened.
    fn read_into(&mut self, nth: usize, payloads: &mut [IoSliceMut<'_>]) -> Result<TileFrame, Failure>;

    /// Reads the pixels of the `nth` frame into `out`, the bytes of a tile.
    ///
    /// # Errors
    /// As of [`Self::read_into`].
    fn read(&mut self, nth: usize, out: &mut [u8]) -> Result<TileFrame, Failure> {
        self.read_into(nth, &mut [IoSliceMut::new(out)])
    }
}

/// Files that were opened and understood.
pub struct Input {
    info: InputInfo,
    tiles: Vec<TileIndex>,
    kind: Kind,
}

/// How pixels are read.
enum Kind {
    Records(records::Files),
    Stacks(stack::Stacks),
    Own(own::RawRun),
}

impl Input {
    /// Opens files as one acquisition: the master of the slsReceiver, or the data files in any order.
    ///
    /// # Errors
    /// A file cannot be read or understood, files do not belong together, or there is no frame at all.
    pub fn open(paths: &[PathBuf], options: &Options) -> Result<Self, Failure> {
        let first = paths.first().ok_or_else(|| wrong("no input", "no file was given", "name the files to read"))?;
        let found = match options.format {
            Some(Format::SlsRaw) => sls::open(paths, options)?,
            Some(Format::Hdf5) | None if own::is_own(first) => own::open(paths)?,
            Some(Format::Hdf5) => stack::open(paths, options)?,
            Some(format) => bare::open(paths, Some(format), options)?,
            None if sls::is_master(first) || sls::master_beside(first).is_some() => sls::open(paths, options)?,
            None if stack::is_stack(first) => stack::open(paths, options)?,
            None => bare::open(paths, None, options)?,
        };
        found.finish(options)
    }

    /// What was found.
    pub fn info(&self) -> &InputInfo {
        &self.info
    }

    /// Adds a note for the user.
    pub fn add_note(&mut self, note: String) {
        self.info.notes.push(note);
    }

    /// Number of tiles, one per stream.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// The frames of tile `tile`.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn open_tile(&self, tile: usize) -> Box<dyn TileReader> {
        let index = self.tiles[tile].clone();
        match &self.kind {
            Kind::Records(files) => Box::new(records::Reader::new(files.clone(), index, tile)),
            Kind::Stacks(stacks) => Box::new(stack::Reader::new(stacks.clone(), index, tile)),
            Kind::Own(run) => Box::new(own::Reader::new(run.clone(), index, tile)),
        }
    }
}

/// What the reader of a format has found, before frames are sorted and counted.
struct Found {
    kind: Kind,
    words: String,
    format: TileFormat,
    interfaces: u32,
    placements: Option<Vec<(u32, u32)>>,
    detector: Option<toml::Table>,
    own: Option<OwnRun>,
    /// First and last frame number of the run, including missing frames, as far as the files say.
    span: (Option<u64>, Option<u64>),
    stopped: Option<String>,
    frames_expected: Option<u64>,
    incomplete: bool,
    notes: Vec<String>,
    files: Vec<PathBuf>,
    tiles: Vec<TileIndex>,
    module_ids: Vec<u16>,
}

impl Found {
    /// Sorts and counts the frames, and checks their numbers.
    fn finish(mut self, options: &Options) -> Result<Input, Failure> {
        for tile in &mut self.tiles {
            tile.settle(&mut self.notes);
        }
        let all = index::union(&self.tiles);
        self.expect_all(&all);
        if let Some((from, to)) = options.frames {
            self.tiles.iter_mut().for_each(|tile| tile.restrict(from, to));
        }
        let numbers = index::union(&self.tiles);
        let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else {
            return Err(self.nothing(&all, options));
        };
        let found = numbers.len() as u64;
        let span = (self.span.0.unwrap_or(all[0]), self.span.1.unwrap_or(all[all.len() - 1]));
        let (from, to) = options.frames.unwrap_or((0, u64::MAX));
        // Includes frames that the run lost before the first and after the last one, as far as they are wanted.
        let (first, last) = (span.0.max(from).min(first), span.1.min(to).max(last));
        self.judge_span(first, last, found)?;
        index::missing_notes(&self.tiles, &numbers, (first, last), &mut self.notes);
        let tile_frames: u64 = self.tiles.iter().map(|t| t.places().len() as u64).sum();
        let info = InputInfo {
            kind: self.words,
            format: self.format,
            modules: self.tiles.len() as u32 / self.interfaces,
            interfaces: self.interfaces,
            placements: self.placements,
            detector: self.detector,
            own: self.own,
            first_frame: first,
            last_frame: last,
            span,
            frames_expected: self.frames_expected,
            frames_found: found,
            raw_bytes: tile_frames * u64::from(self.format.tile_bytes()),
            tile_names: self.tiles.iter().map(|t| t.name.clone()).collect(),
            module_ids: self.module_ids,
            incomplete: self.incomplete,
            notes: self.notes,
            identity: identity(&self.files)?,
            written: self.files.first().and_then(|f| f.metadata().ok()?.modified().ok()).map(konkordia_sinks::clock::of),
            stopped: self.stopped,
            files: self.files,
        };
        Ok(Input { info, tiles: self.tiles, kind: self.kind })
    }

    fn expect_all(&mut self, all: &[u64]) {
        let found = all.len() as u64;
        if let Some(expected) = self.frames_expected.filter(|n| *n > found) {
            self.incomplete = true;
            self.notes.push(format!("the master counts {expected} frames, the files hold {found}"));
        }
    }

    fn nothing(&self, all: &[u64], options: &Options) -> Failure {
        let why = match (all.first().zip(all.last()), options.frames) {
            (Some((first, last)), Some((from, to))) => {
                format!("none of the frames {first} to {last} lies between {from} and {to}")
            }
            _ => format!("{} without a whole frame", self.words),
        };
        let name = self.files.first().map_or(String::new(), |f| format!(": {}", f.display()));
        wrong(format!("there is no frame in the input{name}"), why, "check the files, and --frames if given")
    }

    /// Refuses frame numbers that lie too far apart. Images are stored by frame number, so a damaged number would make
    /// the file enormous.
    fn judge_span(&self, first: u64, last: u64, found: u64) -> Result<(), Failure> {
        const PER_FRAME: u64 = 1000;
        const ALWAYS: u64 = 100_000;
        if last - first < found.saturating_mul(PER_FRAME).max(ALWAYS) {
            return Ok(());
        }
        let why = format!("{found} frames have numbers from {first} to {last}; nearly all images between would be empty");
        Err(wrong("the frame numbers of the input lie too far apart", why, "choose a part with --frames FROM:TO"))
    }
}

/// A failure of the input itself.
fn wrong(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Failure {
    Failure::new(Exit::Configuration, what, why, fix)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    Failure::io("cannot read the input", path, error)
}

/// The beginning of a file, at most `most` bytes.
fn head(path: &Path, most: usize) -> Result<Vec<u8>, Failure> {
    let file = std::fs::File::open(path).map_err(|e| cannot_read(path, &e))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).map_err(|e| cannot_read(path, &e))?;
    Ok(bytes)
}

/// SHA-256 over name, size, modification time and first bytes of each file.
fn identity(files: &[PathBuf]) -> Result<String, Failure> {
    use std::os::unix::fs::MetadataExt;
    const HEAD_BYTES: usize = 4096;
    let mut hasher = Sha256::new();
    for path in files {
        let meta = path.metadata().map_err(|e| cannot_read(path, &e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        hasher.update(format!("{name}\n{}\n{}.{:09}\n", meta.len(), meta.mtime(), meta.mtime_nsec()));
        hasher.update(head(path, HEAD_BYTES)?);
    }
    let hex: String = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok(format!("sha256:{hex}"))
}
