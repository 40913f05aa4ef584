//! What the reader of a format has found.

use super::index::TileIndex;
use super::info::OwnRun;
use super::{own_reader, records, stack_reader};
use konkordia_core::tile::TileFormat;
use std::path::PathBuf;

/// What the reader of a format has found, before frames are sorted and counted.
pub struct Found {
    pub kind: Kind,
    /// Description of the files, for messages.
    pub words: String,
    pub format: TileFormat,
    pub interfaces: u32,
    pub placements: Option<Vec<(u32, u32)>>,
    pub detector: Option<toml::Table>,
    pub own: Option<OwnRun>,
    /// First and last frame number of the run, including missing frames, as far as the files say.
    pub span: (Option<u64>, Option<u64>),
    pub stopped: Option<String>,
    pub frames_expected: Option<u64>,
    pub incomplete: bool,
    pub notes: Vec<String>,
    pub files: Vec<PathBuf>,
    pub tiles: Vec<TileIndex>,
    pub module_ids: Vec<u16>,
}

impl Found {
    /// Modules one below the other, in files that say nothing of the run that wrote them.
    pub fn stacked(kind: Kind, words: String, format: TileFormat, files: Vec<PathBuf>) -> Self {
        Self {
            kind,
            words,
            format,
            interfaces: format.tiles_per_module,
            placements: None,
            detector: None,
            own: None,
            span: (None, None),
            stopped: None,
            frames_expected: None,
            incomplete: false,
            notes: Vec::new(),
            files,
            tiles: Vec::new(),
            module_ids: Vec::new(),
        }
    }
}

/// How pixels are read.
pub enum Kind {
    Records(records::Files),
    Stacks(stack_reader::Stacks),
    Own(own_reader::RawRun),
}
