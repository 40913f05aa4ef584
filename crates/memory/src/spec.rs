//! The size of a ring.

use crate::images::SnapshotSpec;
use std::sync::Arc;

/// Size of a ring; all bounds come from the plan.
#[derive(Clone, Debug)]
pub struct RingSpec {
    /// Frames that the ring holds.
    pub slots: u64,
    /// Images whose strips the ring holds.
    pub packed_slots: u64,
    /// Tiles of a frame.
    pub tiles: usize,
    /// Bytes of a raw tile.
    pub tile_bytes: usize,
    /// Sections of a tile: equal parts of its bytes, each divided into packets on its own.
    pub sections: usize,
    /// Payload bytes of every packet but the last of a section, which has the rest of the section.
    pub payload_bytes: usize,
    /// Most bytes of each packed strip.
    pub strip_bytes_max: Vec<usize>,
    /// Numbers that a worker gives with each packed strip, beside its bytes.
    pub strip_numbers: usize,
    /// For each worker thread, its share of the strips, relative to those of the others. Workers with the same share
    /// take the strips in turn.
    pub shares: Vec<u32>,
    /// Threads that take raw frames.
    pub frame_readers: usize,
    /// Snapshots of the pedestals.
    pub snapshot: Option<SnapshotSpec>,
    /// The raw tiles lie in reserved huge pages, if there are enough.
    pub reserved_pages: bool,
}

impl RingSpec {
    /// The worker of each strip. Strips of every worker lie all over the image, so that none has the dark rim only.
    pub(crate) fn owners(&self) -> Arc<[usize]> {
        let all: i64 = self.shares.iter().map(|share| i64::from(*share)).sum();
        let mut due = vec![0i64; self.shares.len()];
        let next = |_| {
            due.iter_mut().zip(&self.shares).for_each(|(due, share)| *due += i64::from(*share));
            // The first of those to whom most is due.
            let most = due.iter().copied().max().unwrap_or_default();
            let owner = due.iter().position(|due| *due == most).unwrap_or_default();
            due[owner] -= all;
            owner
        };
        (0..self.strip_bytes_max.len()).map(next).collect()
    }

    /// Bytes and packets of each section.
    pub(crate) fn section(&self) -> (usize, usize) {
        assert!(self.sections > 0 && self.tile_bytes.is_multiple_of(self.sections), "sections are equal parts");
        let bytes = self.tile_bytes / self.sections;
        (bytes, bytes.div_ceil(self.payload_bytes))
    }

    /// Bytes from tile to tile, on cache lines of their own, and of all tiles. `None` if any size or offset of the ring
    /// does not fit into the address space: the pointers made from them rely on it.
    pub(crate) fn layout(&self) -> Option<(usize, usize)> {
        let slots = usize::try_from(self.slots).ok().filter(|n| *n < 1 << 32)?;
        let tile_stride = self.tile_bytes.checked_next_multiple_of(64)?;
        let bytes = tile_stride.checked_mul(self.tiles)?.checked_mul(slots)?;
        (bytes < isize::MAX as usize - 4096).then_some((tile_stride, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(shares: &[u32], strips: usize) -> Vec<usize> {
        let spec = RingSpec {
            slots: 2,
            packed_slots: 1,
            tiles: 1,
            tile_bytes: 64,
            sections: 1,
            payload_bytes: 64,
            strip_bytes_max: vec![64; strips],
            strip_numbers: 0,
            shares: shares.to_vec(),
            frame_readers: 0,
            snapshot: None,
            reserved_pages: false,
        };
        spec.owners().to_vec()
    }

    #[test]
    fn equal_workers_take_strips_in_turn_and_others_by_their_shares() {
        assert_eq!(owners(&[1, 1, 1], 8), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(owners(&[5], 3), [0; 3]);
        assert_eq!(owners(&[0, 2], 3), [1; 3]);
        for shares in [[50, 50, 75, 75], [99, 1, 1, 1], [3, 1, 0, 7]] {
            let all: u32 = shares.iter().sum();
            let owners = owners(&shares, 3 * all as usize);
            for (worker, share) in shares.into_iter().enumerate() {
                assert_eq!(owners.iter().filter(|owner| **owner == worker).count(), 3 * share as usize, "{shares:?}");
            }
        }
    }
}
