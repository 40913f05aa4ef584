//! Encoders of bit-transposed blocks: LZ4 and Zstd without a search.
//!
//! The planes of detector images are of three kinds. Those of the low bits are noise, in which a search finds nothing.
//! Those of the high bits are empty but for a few pixels: runs of one value. And where numbers have a sign, the high
//! planes repeat each other. So two places are enough to look for a match: the byte before, and the same byte of the
//! plane before. Both are found for 64 bytes at once by comparing (`repeats.rs`). Any decoder of the format reads the
//! blocks. The bytes are the same with every instruction set, and do not depend on earlier blocks.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod by_isa;
mod lz4;
mod lz4_read;
mod lz4_write;
mod repeats;
#[cfg(test)]
mod samples;
mod zstd;

pub use lz4::Lz4Encoder;
pub use lz4_read::decompress as decompress_lz4;
pub use zstd::ZstdEncoder;
