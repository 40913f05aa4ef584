//! What writing and reading streams have in common: the settings at their end, and the blocks of an image.

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
pub(super) struct Settings {
    pub rows: u64,
    pub columns: u64,
    /// Half a step; 0 in the lossless form.
    pub half_step: f64,
    pub block: u32,
    pub floats: bool,
}

impl Settings {
    pub fn write(&self, out: &mut Vec<u8>) {
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
    pub fn read(chunk: &[u8]) -> Option<(Self, &[u8])> {
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
pub(super) fn block_edge(rows: usize, columns: usize) -> Option<usize> {
    (BLOCK_MIN..=BLOCK_MAX).rev().find(|edge| rows % edge != 1 && columns % edge != 1)
}

/// Blocks in the order of the stream, as (first row, rows, first column, columns).
pub(super) fn blocks(rows: usize, columns: usize, edge: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..rows).step_by(edge).flat_map(move |row| {
        (0..columns).step_by(edge).map(move |column| (row, edge.min(rows - row), column, edge.min(columns - column)))
    })
}
