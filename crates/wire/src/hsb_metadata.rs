//! What NVIDIA's Holoscan sensor bridge sends at the end of a frame: a block of 128 bytes behind the pixels, and
//! immediate data. All integers are big-endian. Sources and layout: docs/protocols.md 10.4.
//!
//! Facts relied on: the frame goes as WRITE_ONLY packets of RoCEv2 (UC) with absolute addresses. Its last packet is a
//! WRITE_ONLY_WITH_IMMEDIATE, whose last 128 bytes are this block; the block lies at the next multiple of 128 bytes
//! behind the frame. The immediate data are the page (which of the receiver's buffers) and the low bits of the packet's
//! PSN, which stands in the block too: only if both agree, the page is to be trusted.

use crate::packet::array;
use std::ops::Range;

/// Byte ranges of the block; the rest is reserved.
mod field {
    use std::ops::Range;
    pub const FLAGS: Range<usize> = 0..4;
    pub const PSN: Range<usize> = 4..8;
    pub const CRC: Range<usize> = 8..12;
    pub const BEGIN_S: Range<usize> = 12..20;
    pub const BEGIN_NS: Range<usize> = 20..24;
    pub const BYTES_WRITTEN: Range<usize> = 24..32;
    pub const FRAME_NUMBER: Range<usize> = 34..36;
    pub const END_S: Range<usize> = 36..44;
    pub const END_NS: Range<usize> = 44..48;
}

/// Bytes of the block, and what its place is a multiple of.
pub const BLOCK_BYTES: usize = 128;

/// Offset of the block in the buffer of a frame of so many bytes; `None` if it is beyond all addresses.
pub fn block_at(frame_bytes: u64) -> Option<u64> {
    frame_bytes.checked_next_multiple_of(BLOCK_BYTES as u64)
}

/// What the block says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameEnd {
    /// Not explained by its maker.
    pub flags: u32,
    /// PSN of the packet that brings the block.
    pub psn: u32,
    /// A CRC of the frame, if the bridge makes one; which, depends on its set-up.
    pub crc: u32,
    /// When the frame began: seconds and nanoseconds of the bridge's clock.
    pub begin: (u64, u32),
    /// Bytes that were sent of this frame.
    pub bytes_written: u64,
    /// Number of the frame; wraps.
    pub frame_number: u16,
    /// When the block was made, as `begin`.
    pub end: (u64, u32),
}

impl FrameEnd {
    /// Of the payload of a packet that ends a frame: its last [`BLOCK_BYTES`]. `None` if it is shorter.
    pub fn of_payload(payload: &[u8]) -> Option<Self> {
        let block: &[u8; BLOCK_BYTES] = payload.last_chunk()?;
        let narrow = |range: Range<usize>| u32::from_be_bytes(array(block, range));
        let wide = |range: Range<usize>| u64::from_be_bytes(array(block, range));
        Some(Self {
            flags: narrow(field::FLAGS),
            psn: narrow(field::PSN),
            crc: narrow(field::CRC),
            begin: (wide(field::BEGIN_S), narrow(field::BEGIN_NS)),
            bytes_written: wide(field::BYTES_WRITTEN),
            frame_number: u16::from_be_bytes(array(block, field::FRAME_NUMBER)),
            end: (wide(field::END_S), narrow(field::END_NS)),
        })
    }

    /// As the block.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[field::FLAGS].copy_from_slice(&self.flags.to_be_bytes());
        block[field::PSN].copy_from_slice(&self.psn.to_be_bytes());
        block[field::CRC].copy_from_slice(&self.crc.to_be_bytes());
        block[field::BEGIN_S].copy_from_slice(&self.begin.0.to_be_bytes());
        block[field::BEGIN_NS].copy_from_slice(&self.begin.1.to_be_bytes());
        block[field::BYTES_WRITTEN].copy_from_slice(&self.bytes_written.to_be_bytes());
        block[field::FRAME_NUMBER].copy_from_slice(&self.frame_number.to_be_bytes());
        block[field::END_S].copy_from_slice(&self.end.0.to_be_bytes());
        block[field::END_NS].copy_from_slice(&self.end.1.to_be_bytes());
        block
    }
}

/// How the immediate data are divided; it changed with firmware 0x2603 of the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImmediateLayout {
    /// 12 bits page, 20 bits PSN.
    #[default]
    Page12,
    /// 8 bits page, 24 bits PSN: firmware before 0x2603.
    Page8,
}

impl ImmediateLayout {
    const fn page_bits(self) -> u32 {
        match self {
            Self::Page12 => 12,
            Self::Page8 => 8,
        }
    }

    /// The immediate data of a page; `None` if the page has more bits than there is room for.
    pub fn encode(self, page: u16, psn: u32) -> Option<u32> {
        let bits = self.page_bits();
        (u32::from(page) < 1 << bits).then_some(u32::from(page) | psn << bits)
    }

    /// The page, if the PSN of the immediate data is that of the block; else the block is of another frame.
    pub fn page(self, immediate: u32, end: &FrameEnd) -> Option<u16> {
        let bits = self.page_bits();
        let is_of_block = immediate >> bits == end.psn & (u32::MAX >> bits);
        is_of_block.then_some((immediate & ((1 << bits) - 1)) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Layout as `module/core/frame_metadata_default.cpp` of holoscan-sensor-bridge reads it (Apache-2.0), by hand.
    #[test]
    fn the_block_is_read_field_by_field() {
        let mut payload = vec![0xEE; 100];
        payload.extend([0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5]);
        payload.extend([0, 0, 0, 0, 0, 0, 0, 6, 0xFF, 0xFF, 1, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 9]);
        payload.resize(100 + 128, 0);
        let expected = FrameEnd { flags: 1, psn: 2, crc: 3, begin: (4, 5), bytes_written: 6, frame_number: 0x107, end: (8, 9) };
        assert_eq!(FrameEnd::of_payload(&payload), Some(expected));
        assert_eq!(FrameEnd::of_payload(&payload[101..]), None);
        assert_eq!((block_at(0), block_at(1), block_at(128), block_at(u64::MAX)), (Some(0), Some(128), Some(128), None));
    }

    #[test]
    fn a_page_is_trusted_only_with_the_psn_of_its_block() {
        let end = FrameEnd { psn: 0xABCDEF, ..FrameEnd::default() };
        assert_eq!(ImmediateLayout::Page12.encode(0xFFF, 0xABCDEF), Some(0xBCDE_FFFF));
        assert_eq!(ImmediateLayout::Page8.encode(0x12, 0xABCDEF), Some(0xABCD_EF12));
        assert_eq!(ImmediateLayout::Page12.encode(0x1000, 0), None);
        assert_eq!(ImmediateLayout::Page8.encode(0x100, 0), None);
        assert_eq!(ImmediateLayout::Page12.page(0xBCDE_FFFF, &end), Some(0xFFF));
        assert_eq!(ImmediateLayout::Page12.page(0xBCDE_EFFF, &end), None);
        assert_eq!(ImmediateLayout::Page8.page(0xABCD_EF12, &end), Some(0x12));
        assert_eq!(ImmediateLayout::Page8.page(0xBBCD_EF12, &end), None);
    }

    proptest! {
        #[test]
        fn a_block_comes_back(flags in any::<u32>(), psn in any::<u32>(), crc in any::<u32>(), begin in any::<(u64, u32)>(),
            bytes_written in any::<u64>(), frame_number in any::<u16>(), end in any::<(u64, u32)>()) {
            let block = FrameEnd { flags, psn, crc, begin, bytes_written, frame_number, end };
            prop_assert_eq!(FrameEnd::of_payload(&block.encode()), Some(block));
        }
    }
}
