//! What a repacking is to do.

use super::spots::SpotCopy;
use konkordia_core::plan::Compression;

/// What is done to each file.
pub struct Settings {
    /// How chunks are to be compressed.
    pub compression: Compression,
    /// Makes the background coarser before that, and keeps the spots; `None` keeps all pixels (with sz3: the bound).
    pub spots: Option<SpotCopy>,
    /// Threads that compress.
    pub workers: usize,
    /// Read the copy back and compare it.
    pub verify: bool,
    /// Delete the original afterwards.
    pub delete_source: bool,
    /// Further texts for the record in each file, by name: the licence and the like.
    pub notes: Vec<(&'static str, String)>,
}

impl Settings {
    /// What is done to the pixels, as it stands in the record of each file.
    pub fn words(&self) -> String {
        let packed = words(self.compression);
        self.spots.as_ref().map_or(packed.clone(), |spots| format!("{}, {packed}", spots.words()))
    }
}

/// The compression as it stands in the record.
fn words(compression: Compression) -> String {
    match compression {
        Compression::Sz3 { bound } => format!("sz3, error at most {}", bound.value()),
        _ => compression.words(),
    }
}
