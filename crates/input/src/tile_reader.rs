//! The frames of one tile, read one by one.

use super::index::Place;
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::failure::Failure;
use konkordia_core::sls_header::SlsHeader;
use std::io::IoSliceMut;

/// Header and received packets of one tile of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileFrame {
    /// What is known of the frame.
    pub header: SlsHeader,
    /// Packets that the receiver caught. If the file has no mask, these are the packets that are not all 0xFF bytes,
    /// the padding of receivers.
    pub bitmap: PacketBitmap,
}

/// The frames of one tile, in the order of their numbers.
pub trait TileReader: Send {
    /// Where the frames lie, in the order of their numbers.
    fn places(&self) -> &[Place];

    /// Number of frames.
    fn len(&self) -> usize {
        self.places().len()
    }

    /// True if there is no frame.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frame number of the `nth` frame; the numbers ascend.
    ///
    /// # Panics
    /// If there are not so many.
    fn frame_number(&self, nth: usize) -> u64 {
        self.places()[nth].frame
    }

    /// Reads the pixels of the `nth` frame into `payloads`: all packets one after the other, or one slice for each
    /// packet.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter than it was when it was opened.
    fn read_into(&mut self, nth: usize, payloads: &mut [IoSliceMut<'_>]) -> Result<TileFrame, Failure>;

    /// Reads the pixels of the `nth` frame into `out`, the bytes of a tile.
    ///
    /// # Errors
    /// As of [`Self::read_into`].
    fn read(&mut self, nth: usize, out: &mut [u8]) -> Result<TileFrame, Failure> {
        self.read_into(nth, &mut [IoSliceMut::new(out)])
    }
}
