//! A part of a packet and its place.

/// Some bytes of a packet and their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte in the packet.
    pub source: usize,
    /// First byte in the memory.
    pub destination: usize,
    /// Number of bytes.
    pub bytes: usize,
}

impl Segment {
    /// Its bytes and its place, if both are there.
    #[inline]
    pub(super) fn slices<'a>(&self, packet: &'a [u8], memory: &'a mut [u8]) -> Option<(&'a [u8], &'a mut [u8])> {
        let from = packet.get(self.source..self.source.checked_add(self.bytes)?)?;
        let to = memory.get_mut(self.destination..self.destination.checked_add(self.bytes)?)?;
        Some((from, to))
    }
}
