//! The compression of a file, in words.

use konkordia_sinks::hdf5::Compression;

/// The compression as text.
pub fn compression(compression: Compression) -> String {
    let Some(filter) = compression.packing().filter() else { return compression.name().into() };
    let how = match compression {
        Compression::None | Compression::Lz4 => String::new(),
        Compression::Bslz4 => "bitshuffle and LZ4, ".into(),
        Compression::Bszstd { level } => format!("bitshuffle and Zstd, level {level}, "),
        Compression::Zstd { level } | Compression::Gzip { level } => format!("level {level}, "),
        Compression::Sz3 { bound } => format!("lossy, error at most {}, ", bound.value()),
    };
    format!("{} ({how}filter {filter})", compression.name())
}
