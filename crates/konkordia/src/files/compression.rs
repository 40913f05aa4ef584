//! The compression of a file, in words.

use konkordia_sinks::hdf5::Compression;

/// The compression as text.
pub fn compression(compression: Compression) -> String {
    match compression {
        Compression::None => "none".into(),
        Compression::Bslz4 => "bslz4 (bitshuffle and LZ4, filter 32008)".into(),
        Compression::Bszstd { level } => format!("bszstd (bitshuffle and Zstd, level {level}, filter 32008)"),
        Compression::Lz4 => "lz4 (filter 32004)".into(),
        Compression::Zstd { level } => format!("zstd (level {level}, filter 32015)"),
        Compression::Gzip { level } => format!("gzip (level {level}, filter 1)"),
        Compression::Sz3 { bound } => format!("sz3 (lossy, error at most {}, filter 32024)", bound.value()),
    }
}
