//! zlib streams (HDF5's gzip filter) from strips that are compressed independently. Each strip is deflate data up to a
//! full flush. This module puts the checksum of the strip behind it, and combines the checksum of the stream from
//! these.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Bytes before the first strip: deflate with a window of 32 KiB (RFC 1950).
pub const STREAM_HEADER: [u8; 2] = [0x78, 0x01];
/// Bytes between the last strip and the checksum: an empty block that is marked as the last one.
pub const STREAM_END: [u8; 2] = [0x03, 0x00];
/// Bytes of the checksum and the length behind each packed strip; they do not go into the stream.
pub const STRIP_TAIL_BYTES: usize = 8;
const ADLER_MODULUS: u32 = 65521;

/// A compressor, kept between strips, with a buffer for the largest output of a strip.
///
/// It does not write to the place of the strip, because zlib-rs 0.6 panics at level 1 when its output fills.
pub struct Encoder {
    stream: Compress,
    room: Vec<u8>,
}

impl Encoder {
    /// Allocates a compressor of a level, 1 to 9, for strips of at most `bytes_max`.
    ///
    /// # Panics
    /// If the level is out of range.
    pub fn new(level: u8, bytes_max: usize) -> Self {
        assert!((1..=9).contains(&level), "deflate has levels 1 to 9");
        // The fixed codes of level 1 take at most 9 bits for a byte.
        let room = vec![0; bytes_max + bytes_max / 4 + 4096];
        Self { stream: Compress::new(Compression::new(u32::from(level)), false), room }
    }

    /// Compresses `input` to the start of `out`, with its checksum and length behind it, and returns the bytes written.
    ///
    /// # Panics
    /// If `out` has less than [`bound`] bytes, or `input` does not fit the buffer that [`Self::new`] made.
    pub fn strip(&mut self, input: &[u8], out: &mut [u8]) -> usize {
        assert!(input.len() < self.room.len(), "strips of {} bytes are too long", input.len());
        assert!(out.len() >= bound(input.len()), "{} bytes of output are too few for {}", out.len(), input.len());
        self.stream.reset();
        let done = self.stream.compress(input, &mut self.room, FlushCompress::Full).ok();
        let written = self.stream.total_out() as usize;
        // If the buffer is full, the end of the flush may be lacking.
        let whole = done == Some(Status::Ok) && self.stream.total_in() as usize == input.len() && written < self.room.len();
        let at = if whole && written <= bound(input.len()) - STRIP_TAIL_BYTES {
            out[..written].copy_from_slice(&self.room[..written]);
            written
        } else {
            stored(input, out)
        };
        out[at..at + 4].copy_from_slice(&adler32(input).to_be_bytes());
        out[at + 4..at + 8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        at + STRIP_TAIL_BYTES
    }
}

/// Largest size of a packed strip, in bytes.
pub fn bound(input_bytes: usize) -> usize {
    input_bytes + 5 * (input_bytes / 65535 + 1) + STRIP_TAIL_BYTES + 1
}

/// Writes `input` as stored blocks, where deflate would make it larger.
fn stored(input: &[u8], out: &mut [u8]) -> usize {
    let mut at = 0;
    for part in input.chunks(65535) {
        let length = part.len() as u16;
        out[at] = 0;
        out[at + 1..at + 3].copy_from_slice(&length.to_le_bytes());
        out[at + 3..at + 5].copy_from_slice(&(!length).to_le_bytes());
        out[at + 5..at + 5 + part.len()].copy_from_slice(part);
        at += 5 + part.len();
    }
    at
}

/// Splits a packed strip into the data for the stream, its checksum, and its length before compression.
///
/// # Panics
/// If the strip has no tail.
pub fn split(strip: &[u8]) -> (&[u8], u32, u32) {
    let (body, tail) = strip.split_at(strip.len() - STRIP_TAIL_BYTES);
    let number = |at: usize| u32::from_be_bytes([tail[at], tail[at + 1], tail[at + 2], tail[at + 3]]);
    (body, number(0), number(4))
}

/// Adler-32 (RFC 1950).
pub fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    // As many bytes as the sums can take before the remainder must be taken.
    for part in bytes.chunks(5552) {
        for &byte in part {
            a += u32::from(byte);
            b += a;
        }
        a %= ADLER_MODULUS;
        b %= ADLER_MODULUS;
    }
    b << 16 | a
}

/// The checksum of two consecutive parts from those of each; the second part has `second_bytes` bytes.
pub fn adler32_combine(first: u32, second: u32, second_bytes: u32) -> u32 {
    let modulus = u64::from(ADLER_MODULUS);
    let (a1, b1) = (u64::from(first & 0xFFFF), u64::from(first >> 16));
    let (a2, b2) = (u64::from(second & 0xFFFF), u64::from(second >> 16));
    let length = u64::from(second_bytes) % modulus;
    let a = (a1 + a2 + modulus - 1) % modulus;
    let b = (b1 + b2 + length * (a1 + modulus - 1)) % modulus;
    (b << 16 | a) as u32
}

/// True if `data` is a zlib stream of exactly `out`, checksum included, and nothing follows it.
pub fn decompress(data: &[u8], out: &mut [u8]) -> bool {
    let mut stream = Decompress::new(true);
    let mut done = stream.decompress(data, out, FlushDecompress::Finish).ok();
    if matches!(done, Some(Status::Ok | Status::BufError)) {
        // The output may be full before the end of the stream has been read.
        done = stream.decompress(&data[stream.total_in() as usize..], &mut [], FlushDecompress::Finish).ok();
    }
    done == Some(Status::StreamEnd) && stream.total_in() == data.len() as u64 && stream.total_out() == out.len() as u64
}
