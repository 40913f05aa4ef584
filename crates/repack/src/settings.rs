//! What a repacking is to do.

use konkordia_core::plan::Compression;

/// What is done to each file.
pub struct Settings {
    /// How chunks are to be compressed.
    pub compression: Compression,
    /// Threads that compress.
    pub workers: usize,
    /// Read the copy back and compare it.
    pub verify: bool,
    /// Delete the original afterwards.
    pub delete_source: bool,
}
