//! SZ3 3.1 streams: whole images with an absolute error bound, in the form that HDF5 filter 32024 of hdf5plugin
//! decodes. Written after the sources of SZ3 3.1.7 (BSD), sharing no code with them; `docs/compression.md` says why.
//! SZ3 knows many forms of such a stream. This module writes one: two dimensions, the regression predictor with slopes
//! of 0, the linear quantiser, Huffman codes, Zstd. A pixel is `centre of its block + bin * step`, or stands as it is
//! in a list of exceptions. Everything that is not a valid number is an exception, so special values come back bit for
//! bit whatever the bound.
//!
//! | bytes, little-endian but where noted | content |
//! |---|---|
//! | 8, then a Zstd frame | length of the body, the body |
//! | body: 8 + 8 + 4 | rows, columns, edge of a block |
//! | body: 1 + 8 | 2, number of centres x 3 |
//! | body: quantiser, quantiser | of the centres, of the slopes: 1 (2), 8 (half a step, f64), 4 (radius), 8 (number of exceptions), the exceptions |
//! | body: Huffman | two slopes and the centre of each block, as differences from the block before |
//! | body: quantiser, Huffman | the pixels, block after block |
//! | the rest | settings (see `Settings` in the source); their length, 4 |
//!
//! Huffman: 4 (lowest symbol), 4 big-endian (nodes), 4 big-endian (room for symbols), 1 (0), left and right child of
//! each node (0 = none; of 1, 2 or 4 bytes by the number of nodes), its symbol less the lowest (4), whether it is a
//! leaf (1), 8 (bytes of the codes), the codes from the high bit down.
//!
//! If half a step is 0 in the settings, the body is the image itself: the lossless form.

mod decode;
mod encode;
mod huffman;

pub use decode::decompress;
pub use encode::{Encoder, Loss, compare};

/// The filter passes images of fewer pixels through unchanged.
pub const PIXELS_MIN: usize = 20;

/// Bytes of [`Settings`] in a stream, without their length.
const SETTINGS_BYTES: usize = 72;
/// Values of the byte in which SZ3 keeps the direction of an interpolation, which these streams do not use. They show
/// that this program wrote the stream, and of which type its pixels are.
const INTEGERS: u8 = 0x4B;
const FLOATS: u8 = 0x4C;
/// Largest and smallest edge of a block in the lossy form. The lossless form states 16, which no lossy stream does.
const BLOCK_MAX: usize = 32;
const BLOCK_MIN: usize = 17;

/// The trailer of a stream: what SZ3 calls its configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    rows: u64,
    columns: u64,
    /// Half a step; 0 in the lossless form.
    half_step: f64,
    block: u32,
    floats: bool,
}

impl Settings {
    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(2);
        for number in [self.rows, self.columns, self.rows * self.columns] {
            out.extend(number.to_le_bytes());
        }
        // Lorenzo and regression; absolute bound.
        out.extend([0, 0]);
        out.extend(self.half_step.to_le_bytes());
        out.extend(0f64.to_le_bytes());
        // Of the four predictors the third: regression. Then the interpolation, which is not used.
        out.extend([0, 0, 1, 0, 0, if self.floats { FLOATS } else { INTEGERS }]);
        out.extend(32u32.to_le_bytes());
        // Zstd and Huffman.
        out.extend([1, 1]);
        out.extend(65536u32.to_le_bytes());
        for number in [self.block, self.block, 2] {
            out.extend(number.to_le_bytes());
        }
        out.push(0);
        assert_eq!(out.len() - start, SETTINGS_BYTES, "the fields of SZ3's configuration for two dimensions");
        out.extend((SETTINGS_BYTES as u32).to_le_bytes());
    }

    /// The settings at the end of `chunk` and the bytes before them, if this program wrote them.
    fn read(chunk: &[u8]) -> Option<(Self, &[u8])> {
        let (rest, length) = chunk.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*length) as usize != SETTINGS_BYTES {
            return None;
        }
        let (before, s) = rest.split_at_checked(rest.len().checked_sub(SETTINGS_BYTES)?)?;
        let u64_at = |at: usize| u64::from_le_bytes(s[at..at + 8].try_into().expect("eight bytes"));
        let floats = s[48] == FLOATS;
        let settings = Self {
            rows: u64_at(1),
            columns: u64_at(9),
            half_step: f64::from_bits(u64_at(27)),
            block: u32::from_le_bytes(s[59..63].try_into().expect("four bytes")),
            floats,
        };
        let mut again = Vec::with_capacity(SETTINGS_BYTES + 4);
        settings.checked_pixels()?;
        settings.write(&mut again);
        (again == chunk[before.len()..]).then_some((settings, before))
    }

    fn checked_pixels(&self) -> Option<u64> {
        self.rows.checked_mul(self.columns)
    }
}

/// Edge of the blocks of an image. It is chosen so that no block at the border is one pixel wide, because SZ3 changes
/// the predictor for such blocks. `None` where there is no such edge.
fn block_edge(rows: usize, columns: usize) -> Option<usize> {
    (BLOCK_MIN..=BLOCK_MAX).rev().find(|edge| rows % edge != 1 && columns % edge != 1)
}

/// Blocks in the order of the stream, as (first row, rows, first column, columns).
fn blocks(rows: usize, columns: usize, edge: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..rows).step_by(edge).flat_map(move |row| {
        (0..columns).step_by(edge).map(move |column| (row, edge.min(rows - row), column, edge.min(columns - column)))
    })
}
