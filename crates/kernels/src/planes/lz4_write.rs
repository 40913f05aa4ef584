//! Writes the sequences of an LZ4 block, see `lz4.rs`.

use super::repeats::{Repeats, WORD_BYTES};

/// A match is at least this long.
pub const MATCH_BYTES_MIN: usize = 4;
/// These bytes at the end of a block are literals.
const END_LITERALS: usize = 5;
/// A match begins at least so many bytes before the end of a block.
const END_MATCH: usize = 12;
/// A length that goes on in more bytes.
const LONG: usize = 15;
/// Literals that are copied by one instruction where there is room.
const SHORT: usize = 16;

/// Writes the sequences: from the first byte on, the longer one of the runs that begin here is a match. Inlined into
/// each instruction set.
#[inline(always)]
pub fn write(repeats: &Repeats, block: &[u8], plane_bytes: usize, out: &mut [u8]) -> usize {
    let mut writer = Writer { block, out, written: 0, done: 0 };
    let last = block.len().checked_sub(END_MATCH);
    while let Some(start) = next_run(repeats, writer.done).filter(|start| Some(*start) <= last) {
        let (byte, plane) = (repeats.byte.run_length(start), repeats.plane.run_length(start));
        let (distance, length) = if plane > byte { (plane_bytes, plane) } else { (1, byte) };
        // At least 7, because a match does not begin in the last 12 bytes: so it never gets shorter than a match may
        // be.
        let length = length.min(block.len() - END_LITERALS - start);
        writer.sequence(start, distance as u16, length);
    }
    writer.end()
}

/// The first byte from `at` on with which a run begins or goes on.
#[inline(always)]
fn next_run(repeats: &Repeats, at: usize) -> Option<usize> {
    let (mut word, bit) = (at / WORD_BYTES, at % WORD_BYTES);
    let (byte, plane) = (&*repeats.byte.runs, &*repeats.plane.runs);
    // So that one comparison is enough for both.
    let plane = &plane[..byte.len()];
    let mut runs = (byte[word] | plane[word]) >> bit << bit;
    while runs == 0 {
        word += 1;
        if word >= byte.len() {
            return None;
        }
        runs = byte[word] | plane[word];
    }
    Some(word * WORD_BYTES + runs.trailing_zeros() as usize)
}

/// Writes sequences. What is written never overtakes the [`crate::lz4::bound`] of what is done: a match takes three
/// bytes besides those of long lengths and stands for at least four, and each 255 literals take one byte more.
struct Writer<'a> {
    block: &'a [u8],
    out: &'a mut [u8],
    written: usize,
    /// Bytes of the block that are done.
    done: usize,
}

impl Writer<'_> {
    /// The literals up to `start`, and a match of `length` bytes that begins there.
    #[inline(always)]
    fn sequence(&mut self, start: usize, distance: u16, length: usize) {
        let (literals, more) = (start - self.done, length - MATCH_BYTES_MIN);
        let token = (literals.min(LONG) << 4 | more.min(LONG)) as u8;
        let (from, to) = (&self.block[self.done..], &mut self.out[self.written..]);
        match (from.first_chunk::<SHORT>(), to.first_chunk_mut::<{ 1 + SHORT + 2 }>()) {
            // Most sequences have few literals. Bytes behind them are overwritten by what follows.
            (Some(from), Some(to)) if literals < LONG => {
                to[0] = token;
                to[1..=SHORT].copy_from_slice(from);
                to[1 + literals..][..2].copy_from_slice(&distance.to_le_bytes());
                self.written += 1 + literals + 2;
            }
            _ => {
                self.put(token);
                self.literals(literals);
                self.out[self.written..][..2].copy_from_slice(&distance.to_le_bytes());
                self.written += 2;
            }
        }
        self.rest(more);
        self.done = start + length;
    }

    /// The last literals.
    #[inline(always)]
    fn end(mut self) -> usize {
        let literals = self.block.len() - self.done;
        self.put((literals.min(LONG) << 4) as u8);
        self.literals(literals);
        self.written
    }

    #[inline(always)]
    fn literals(&mut self, count: usize) {
        self.rest(count);
        let (from, to) = (&self.block[self.done..], &mut self.out[self.written..]);
        match (from.first_chunk::<SHORT>(), to.first_chunk_mut::<SHORT>()) {
            // Bytes behind the literals are overwritten by what follows.
            (Some(from), Some(to)) if count <= SHORT => *to = *from,
            _ => to[..count].copy_from_slice(&from[..count]),
        }
        self.written += count;
    }

    /// What a length has beyond the [`LONG`] of its token.
    #[inline(always)]
    fn rest(&mut self, length: usize) {
        let Some(mut rest) = length.checked_sub(LONG) else { return };
        while rest >= 255 {
            self.put(255);
            rest -= 255;
        }
        self.put(rest as u8);
    }

    #[inline(always)]
    fn put(&mut self, byte: u8) {
        self.out[self.written] = byte;
        self.written += 1;
    }
}
