//! What a process that looked at a file says about it.

use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// Most chunks that an index has: those of 2 million images with two channels.
pub const CHUNKS_MAX: usize = 4 << 20;

/// Most chunks of results that an index has: those of 2 million images with lists of 300 spots, and more.
pub const RESULT_CHUNKS_MAX: usize = 1 << 20;

/// Tells a file from another one of its name, and from itself before it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Its length.
    pub bytes: u64,
    device: u64,
    inode: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl FileIdentity {
    /// By what the file system says.
    pub fn of(found: &Metadata) -> Self {
        let (modified_s, modified_ns) = (found.mtime(), found.mtime_nsec());
        Self { bytes: found.len(), device: found.dev(), inode: found.ino(), modified_s, modified_ns }
    }

    /// Of the file at this path, which must be one, and no link; `None` if it is not.
    pub fn at(path: &Path) -> Option<Self> {
        std::fs::symlink_metadata(path).ok().filter(Metadata::is_file).map(|found| Self::of(&found))
    }
}

/// A file with images, and where the chunks of each lie.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartIndex {
    /// The file, without links.
    pub path: PathBuf,
    /// As it was when it was looked at.
    pub identity: FileIdentity,
    /// Number of its first image.
    pub first_image: u64,
    /// Images in it.
    pub images: u64,
    /// Where each chunk begins: those of the first image, then those of the next one.
    pub addresses: Vec<u64>,
    /// Bytes of each chunk; 0 = it was never written.
    pub lengths: Vec<u64>,
    /// Chunks that are stored without the filter of the others.
    pub plain: Vec<u64>,
}

/// Where the numbers of one result of all images lie in the master.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultColumn {
    /// Name of the result.
    pub name: String,
    /// Type of its numbers, as numpy writes it.
    pub number: String,
    /// Numbers of an image.
    pub length: usize,
    /// Images of a chunk, also of the last one.
    pub images_per_chunk: u64,
    /// Where each chunk begins; 0 = it was never written.
    pub addresses: Vec<u64>,
}

/// Where the results of the images lie in the master.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResultIndex {
    /// Images that have results.
    pub images: u64,
    /// Each result.
    pub columns: Vec<ResultColumn>,
}

/// What the process that looks at a file says about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileIndex {
    /// The file that was asked for, without links.
    pub master: PathBuf,
    /// As it was when it was looked at.
    pub identity: FileIdentity,
    /// The run ([`konkordia_sinks::hdf5::FileSpec`] as text). Of a file of another program: its facts in this form.
    pub description: String,
    /// Images, with those that were lost.
    pub images: u64,
    /// Dimensions of one channel of an image, slowest first.
    pub shape: Vec<u64>,
    /// Names of the channels; one empty name if there are none.
    pub channels: Vec<String>,
    /// Type of a pixel as numpy writes it.
    pub dtype: String,
    /// How chunks are packed, as [`konkordia_core::array::Packing`] names it.
    pub packing: String,
    /// Chunks of one channel of an image, in the order of its pixels.
    pub pieces: usize,
    /// A pixel that was never written, little-endian.
    pub missing: Vec<u8>,
    /// States of the images by number ([`konkordia_core::ledger::ImageStatus`]); empty if the file has none.
    pub states: Vec<u8>,
    /// Where the results of the images lie, or why there are none, in words.
    pub results: Result<ResultIndex, String>,
    /// The files with the images, in their order.
    pub parts: Vec<PartIndex>,
    /// Data files that are missing or cannot be read, with the reason.
    pub problems: Vec<String>,
    /// What is in the master, in the order in which people read it.
    pub tree: Vec<TreeEntry>,
    /// There is more in the master.
    pub tree_is_cut: bool,
}

impl FileIndex {
    /// Chunks of one image, in all its channels.
    pub fn chunks_per_image(&self) -> usize {
        self.pieces.saturating_mul(self.channels.len())
    }
}

/// One name in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TreeEntry {
    /// Its path.
    pub path: String,
    /// `group`, `dataset` or `link`.
    pub kind: String,
    /// Dimensions of a data set, slowest first; empty for a single value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
    /// Type of its values, as numpy writes it; `text` for texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The values of a small data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value, required = false)]
    pub value: Option<serde_json::Value>,
    /// Their unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<String>,
    /// Where a link leads: `FILE:PATH` into another file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}
