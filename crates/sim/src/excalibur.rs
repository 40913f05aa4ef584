//! EXCALIBUR with counters of 12 bits and its UDP packets (docs/protocols.md 9), written from the description of the
//! format and not from the code that reads it.

use crate::rng::Rng;

/// Rows of the stripe of a FEM.
pub const STRIPE_ROWS: usize = 256;
/// Columns of the stripe of a FEM: 8 chips.
pub const STRIPE_COLUMNS: usize = 2048;
/// Packets of a subframe.
pub const SUBFRAME_PACKETS: usize = 66;
/// Packets of a frame of a FEM.
pub const FRAME_PACKETS: usize = 2 * SUBFRAME_PACKETS;
/// Bytes of a datagram before its data.
pub const HEADER_BYTES: usize = 8;
/// Bytes of a tail packet behind its pixels.
pub const TRAILER_BYTES: usize = 8;
/// Data bytes of a primary packet.
pub const PRIMARY_BYTES: usize = 8000;
/// Bytes of the pixels of a subframe.
pub const SUBFRAME_BYTES: usize = STRIPE_ROWS * STRIPE_COLUMNS;
const START: u32 = 0x8000_0000;
const END: u32 = 0x4000_0000;

/// What the FEMs of a detector send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExcaliburModel {
    /// FEMs; each has a stripe and a stream of its own.
    pub fems: usize,
    /// Number of the first frame, as the subframe counter has it.
    pub first_frame: u32,
    /// Everything random follows from this.
    pub seed: u64,
}

impl ExcaliburModel {
    /// A detector whose first frame is 0.
    pub fn new(fems: usize) -> Self {
        Self { fems, first_frame: 0, seed: 1 }
    }

    /// The counts of a stripe as it is seen in the image, row by row: random numbers of 12 bits.
    pub fn counts(&self, fem: usize, frame: u64) -> Vec<u16> {
        let mut rng = Rng::keyed(self.seed, &[0x6578_6361, fem as u64, frame]);
        let mut counts = Vec::with_capacity(STRIPE_ROWS * STRIPE_COLUMNS);
        while counts.len() < STRIPE_ROWS * STRIPE_COLUMNS {
            let four = rng.next_u64();
            counts.extend([0, 16, 32, 48].map(|bit| (four >> bit) as u16 & 0x0FFF));
        }
        counts
    }

    /// The counts of the image: the stripes of the FEMs, one below the other.
    pub fn image(&self, frame: u64) -> Vec<u16> {
        (0..self.fems).flat_map(|fem| self.counts(fem, frame)).collect()
    }

    /// The places in the stripe of FEM `fem`, as it is seen in the image, of the pixels of both subframes in the order
    /// in which they are sent. Every second stripe is mounted upside down.
    pub fn sent_order(fem: usize) -> Vec<usize> {
        let mut order = Vec::with_capacity(STRIPE_ROWS * STRIPE_COLUMNS);
        for subframe in 0..2 {
            for row in 0..STRIPE_ROWS {
                for group in 0..64 {
                    for chip in 0..4 {
                        for pixel in 0..4 {
                            // Chips count along the stripe, pixels of a chip against it.
                            let along = subframe * 1024 + chip * 256 + 255 - (group * 4 + pixel);
                            order.push(if fem % 2 == 1 {
                                (STRIPE_ROWS - 1 - row) * STRIPE_COLUMNS + along
                            } else {
                                row * STRIPE_COLUMNS + STRIPE_COLUMNS - 1 - along
                            });
                        }
                    }
                }
            }
        }
        order
    }

    /// The datagrams of a frame, in their order.
    pub fn datagrams(&self, fem: usize, frame: u64) -> Vec<Vec<u8>> {
        let counts = self.counts(fem, frame);
        let words: Vec<u8> = Self::sent_order(fem).into_iter().flat_map(|at| counts[at].to_le_bytes()).collect();
        let number = self.first_frame.wrapping_add(frame as u32);
        let trailer = (u64::from(number) + 1).to_le_bytes();
        let mut datagrams = Vec::with_capacity(FRAME_PACKETS);
        for (subframe, words) in (0u32..).zip(words.chunks(SUBFRAME_BYTES)) {
            let counter = number.wrapping_mul(2).wrapping_add(subframe);
            for (n, data) in (0u32..).zip(words.chunks(PRIMARY_BYTES)) {
                let is_tail = n as usize == SUBFRAME_PACKETS - 1;
                let word = n | if n == 0 { START } else { 0 } | if is_tail { END } else { 0 };
                let behind: &[u8] = if is_tail { &trailer } else { &[] };
                datagrams.push([&counter.to_le_bytes(), &word.to_le_bytes(), data, behind].concat());
            }
        }
        datagrams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths that the receiver of this detector expects (docs/protocols.md 9.1).
    #[test]
    fn a_frame_is_two_subframes_with_a_tail_packet_each() {
        let model = ExcaliburModel { first_frame: 7, ..ExcaliburModel::new(2) };
        let datagrams = model.datagrams(1, 2);
        assert_eq!(datagrams.len(), 132);
        for (n, datagram) in datagrams.iter().enumerate() {
            let (subframe, packet) = (n / 66, n % 66);
            assert_eq!(datagram.len(), if packet == 65 { 8 + 4296 } else { 8 + 8000 }, "packet {n}");
            assert_eq!(datagram[..4], (18 + subframe as u32).to_le_bytes());
            let marks = if packet == 0 { 0x80 } else { 0 } | if packet == 65 { 0x40 } else { 0 };
            assert_eq!(datagram[4..8], [packet as u8, 0, 0, marks]);
        }
        assert_eq!(datagrams[65][4296..], 10u64.to_le_bytes());
        let words = |datagram: &[u8], n: usize| u16::from_le_bytes([datagram[8 + 2 * n], datagram[9 + 2 * n]]);
        // The first pixels that an upside-down stripe sends are in its last row, from the right end of its first chip.
        let counts = model.counts(1, 2);
        assert_eq!([0, 1, 4].map(|n| words(&datagrams[0], n)), [255, 254, 511].map(|column| counts[255 * 2048 + column]));
        let (counts, datagrams) = (model.counts(0, 2), model.datagrams(0, 2));
        assert_eq!([0, 1, 4].map(|n| words(&datagrams[0], n)), [1792, 1793, 1536].map(|column| counts[column]));
    }

    #[test]
    fn every_pixel_is_sent_once() {
        for fem in 0..2 {
            let mut order = ExcaliburModel::sent_order(fem);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..STRIPE_ROWS * STRIPE_COLUMNS));
        }
    }
}
