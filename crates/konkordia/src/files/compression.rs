//! The compression of a file, in words.

use konkordia_sinks::hdf5::Compression;

/// The compression as text.
pub fn compression(compression: Compression) -> String {
    if let Compression::Other(other) = compression {
        let ids: Vec<String> = other.filters().iter().map(|filter| filter.id.to_string()).collect();
        return format!("by other filters ({}), decoded by plug-ins", ids.join(", "));
    }
    let Some(filter) = compression.packing().filter() else { return compression.name().into() };
    let how = match compression {
        Compression::None | Compression::Lz4 { .. } | Compression::Other(_) => String::new(),
        Compression::Bslz4 { .. } => "bitshuffle and LZ4, ".into(),
        Compression::Bszstd { level, .. } => format!("bitshuffle and Zstd, level {level}, "),
        Compression::Zstd { level } | Compression::Gzip { level } => format!("level {level}, "),
        Compression::Sz3 { bound } => format!("lossy, error at most {}, ", bound.value()),
    };
    let block = compression.unusual_block().map_or(String::new(), |block| format!("blocks of {} KiB, ", block.bytes() >> 10));
    format!("{} ({how}{block}filter {filter})", compression.name())
}
