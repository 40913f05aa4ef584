//! What an input is: what was found in its files, and the run that wrote them.

use konkordia_core::tile::TileFormat;
use konkordia_sinks::hdf5::Metadata;
use std::path::PathBuf;
use std::sync::Arc;

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
