//! What a receiver must remember of the places that it has lent: where each payload lies now. Payloads whose place was
//! guessed wrongly move, and those in their way give way.

use std::ops::Range;

/// Nothing is expected of this place any more.
pub(crate) const TAKEN: u16 = u16::MAX;
/// The payload lies in the spare tile, in the place to which it was written.
pub(crate) const SPARE: u16 = u16::MAX - 1;

/// The places of some packets of a frame, which a source fills itself.
pub(crate) struct Loan {
    pub image: u64,
    pub packets: Range<u16>,
    /// For each packet of the tile: the packet in whose place the payload lies that was written to the place of this
    /// one, or [`SPARE`], or [`TAKEN`]. Only those of the loan mean something.
    pub at: Box<[u16]>,
    /// Places of which nothing was taken yet.
    pub left: usize,
    /// A tile for payloads that left the ring; empty until it is reserved or needed.
    pub spare: Vec<u8>,
}

/// A payload that a source has written to a lent place. It is to be used before the next loan.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    pub(crate) image: u64,
    /// The packet to whose place it was written.
    pub(crate) packet: u16,
    /// The packet in whose place it lies, or [`SPARE`].
    pub(crate) at: u16,
    pub(crate) bytes: usize,
}

impl Loan {
    /// No loan, of tiles with so many packets.
    pub fn new(packets: usize) -> Self {
        Self { image: 0, packets: 0..0, at: vec![TAKEN; packets].into(), left: 0, spare: Vec::new() }
    }

    /// Lends the places of packets, which lie in the tile; an older loan ends.
    pub fn begin(&mut self, image: u64, packets: Range<u16>) {
        packets.clone().for_each(|packet| self.at[usize::from(packet)] = packet);
        self.left = packets.len();
        (self.image, self.packets) = (image, packets);
    }

    /// Takes the payload that was written to the place of `packet`.
    ///
    /// # Panics
    /// If `packet` is not in the loan, or was taken before.
    pub fn take(&mut self, packet: u16, bytes: usize) -> Filled {
        assert!(self.packets.contains(&packet), "packet {packet} is not in the loan of {:?}", self.packets);
        let at = std::mem::replace(&mut self.at[usize::from(packet)], TAKEN);
        assert!(at != TAKEN, "packet {packet} of the loan is taken twice");
        self.left -= 1;
        Filled { image: self.image, packet, at, bytes }
    }

    /// True if a payload that was not taken yet lies in the place of `packet`; from now on it counts as being in the
    /// place of `to`.
    pub fn gives_way(&mut self, packet: u16, to: u16) -> bool {
        let displaced = self.packets.clone().find(|other| self.at[usize::from(*other)] == packet);
        if let Some(other) = displaced {
            self.at[usize::from(other)] = to;
        }
        displaced.is_some()
    }

    /// Ends the loan.
    pub fn end(&mut self) {
        (self.packets, self.left) = (0..0, 0);
    }
}

/// Exchanges two parts of `length` bytes that do not overlap.
pub(crate) fn swap(bytes: &mut [u8], a: usize, b: usize, length: usize) {
    let (before, behind) = bytes.split_at_mut(a.max(b));
    before[a.min(b)..][..length].swap_with_slice(&mut behind[..length]);
}
