//! What comes back of a batch, and the account of a pipeline.

use super::spec::{Output, Spec};
use crate::program::STATS_NUMBERS;
use std::fmt;

/// What came back of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome<'a> {
    /// The veto rejected it. Its pixels stayed on the device.
    Rejected,
    /// Its pixels.
    Pixels(&'a [u8]),
    /// The chunk of HDF5 filter 32008.
    Chunk(&'a [u8]),
    /// A sparse image: where each row begins, and after the last one the number of pixels; columns; values.
    Sparse {
        /// Rows + 1 places.
        rows: &'a [u32],
        /// Columns of the pixels.
        columns: &'a [u32],
        /// Values of the pixels.
        values: &'a [u8],
    },
    /// A sparse image for which there was no room. The image must be made elsewhere, from what was given for the
    /// batch.
    Overflow {
        /// Pixels that it has.
        found: u32,
        /// Pixels for which there was room.
        room: u32,
    },
}

/// A batch that is done.
pub struct Batch<'a> {
    pub(super) spec: &'a Spec,
    /// As it was submitted.
    pub number: u64,
    /// Its frames.
    pub frames: u32,
    /// What was given for its frames: their words, or where they begin.
    pub given: &'a [u8],
    pub(super) meta: &'a [u8],
    pub(super) out: &'a [u8],
}

impl<'a> Batch<'a> {
    /// What came back of frame `n` of the batch.
    ///
    /// # Panics
    /// If it has no such frame.
    pub fn outcome(&self, n: u32) -> Outcome<'a> {
        assert!(n < self.frames, "a batch of {} frames has no frame {n}", self.frames);
        let Some(used) = used(self.spec, self.meta, n as usize) else { return Outcome::Rejected };
        let out = &self.out[n as usize * self.spec.returned_bytes_max()..][..self.spec.returned_bytes_max()];
        match self.spec.output {
            Output::Pixels => Outcome::Pixels(&out[..self.spec.image_bytes()]),
            Output::Chunks => Outcome::Chunk(&out[..used]),
            Output::Sparse { room } if used > room as usize => Outcome::Overflow { found: used as u32, room },
            Output::Sparse { room } => {
                let (columns, values) = out.split_at(4 * room as usize);
                Outcome::Sparse {
                    rows: numbers(self.spec, self.meta, n as usize),
                    columns: bytemuck::cast_slice(&columns[..4 * used]),
                    values: &values[..used * self.spec.pixel.bytes()],
                }
            }
        }
    }
}

impl<'a> Batch<'a> {
    /// The statistics of frame `n`, strip by strip: those of `Spec::stats_of`, in the order of the kernel.
    ///
    /// # Panics
    /// As [`Self::outcome`].
    pub fn stats(&self, n: u32) -> impl ExactSizeIterator<Item = &'a [u64; STATS_NUMBERS]> + use<'a> {
        assert!(n < self.frames, "a batch of {} frames has no frame {n}", self.frames);
        let bytes = self.spec.stats_numbers() * 8;
        let meta = &self.meta[self.spec.stats_offset() + n as usize * bytes..][..bytes];
        bytemuck::cast_slice::<u8, [u64; STATS_NUMBERS]>(meta).iter()
    }
}

/// A batch that the device did not finish.
pub struct Unfinished<'a> {
    /// As it was submitted.
    pub number: u64,
    /// Its frames.
    pub frames: u32,
    /// What was given for its frames: their words, or where they begin.
    pub given: &'a [u8],
}

fn numbers<'a>(spec: &Spec, meta: &'a [u8], n: usize) -> &'a [u32] {
    let bytes = spec.numbers() * 4;
    bytemuck::cast_slice(&meta[spec.numbers_offset() + n * bytes..][..bytes])
}

/// How much there is of an image: bytes of its chunk, or pixels. `None` if it is rejected.
pub(super) fn used(spec: &Spec, meta: &[u8], n: usize) -> Option<usize> {
    if meta[n] == 0 {
        return None;
    }
    let used = match spec.output {
        Output::Pixels => spec.pixels(),
        // A device that answers nonsense must not lead outside of the buffer.
        Output::Chunks => (numbers(spec, meta, n)[0] as usize).min(spec.chunk_bytes_max()),
        Output::Sparse { .. } => numbers(spec, meta, n)[spec.rows as usize] as usize,
    };
    Some(used)
}

/// What became of the batches and images of a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Batches that were accepted.
    pub submitted: u64,
    /// Batches that were done.
    pub finished: u64,
    /// Batches that the device did not finish, for the caller to do.
    pub handed_back: u64,
    /// Images of batches that were done, and are kept.
    pub kept: u64,
    /// Images of batches that were done, and are rejected.
    pub rejected: u64,
    /// Images of batches that were done, and did not fit.
    pub overflowed: u64,
    /// Images of all batches that were accepted.
    pub images: u64,
    /// Images of batches that the device did not finish.
    pub images_handed_back: u64,
}

impl Account {
    /// With `in_flight` batches of so many images on their way, is everything accounted for?
    pub fn balances(&self, in_flight: u64, images_in_flight: u64) -> bool {
        let images = self.kept + self.rejected + self.overflowed + self.images_handed_back;
        self.submitted == self.finished + self.handed_back + in_flight && self.images == images + images_in_flight
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} batches of {} images: {} kept, {} rejected, {} without room, {} handed back",
            self.submitted, self.images, self.kept, self.rejected, self.overflowed, self.images_handed_back
        )
    }
}
