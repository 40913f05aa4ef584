//! Which frame a packet belongs to, where its sender writes frames into a few pages in turn and its packets say only
//! the page: from the packet that was placed last, and from the sequence numbers, which count all packets that were
//! sent.

/// What a packet says of its place among all packets of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// The page.
    pub page: u16,
    /// Number of pages, at least 1.
    pub pages: u16,
    /// Sequence number of 24 bits.
    pub sequence: u32,
    /// Index of the packet in its frame.
    pub packet: u16,
    /// Packets of a frame, at least 1.
    pub packets: u16,
}

/// A packet whose frame is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Number of the frame.
    pub frame: u64,
    /// Its sequence number.
    pub sequence: u32,
    /// Its index in the frame.
    pub packet: u16,
}

const SEQUENCE_BITS: u32 = 24;

impl PagePlace {
    /// The frame, as seen from a packet whose frame is known. Sequence numbers say how many frames lie between, as long
    /// as these are fewer than 2^23 packets. If the page contradicts that, the sender does not count all its packets,
    /// or counts with fewer bits (the emulator of the Holoscan sensor bridge has 20): it is then the nearest frame with
    /// this page.
    pub fn frame(&self, anchor: &Anchor) -> u64 {
        let shift = 32 - SEQUENCE_BITS;
        let since = i64::from((self.sequence.wrapping_sub(anchor.sequence) << shift) as i32 >> shift);
        let frames = (i64::from(anchor.packet) + since).div_euclid(i64::from(self.packets));
        let estimate = i128::from(anchor.frame) + i128::from(frames);
        let pages = i128::from(self.pages);
        let has_page = |frame: i128| (i128::from(self.page) - frame).rem_euclid(pages);
        if estimate >= 0 && has_page(estimate) == 0 {
            return u64::try_from(estimate).unwrap_or(anchor.frame);
        }
        let here = i128::from(anchor.frame);
        let after = has_page(here);
        let nearest = if 2 * after > pages { here + after - pages } else { here + after };
        u64::try_from(if nearest < 0 { nearest + pages } else { nearest }).unwrap_or(u64::from(self.page))
    }

    /// This packet, of frame `frame`.
    pub fn anchor(&self, frame: u64) -> Anchor {
        Anchor { frame, sequence: self.sequence, packet: self.packet }
    }

    /// What is assumed of the first packet of a stream. Its frame is not the first round of pages, so that packets that
    /// were sent before it can have lower numbers. `newest` = the newest frame of the other streams, if there is one:
    /// all streams count alike.
    pub fn first(&self, newest: Option<u64>) -> Anchor {
        let before = newest.unwrap_or(u64::from(self.pages));
        let here = Anchor { frame: before, sequence: self.sequence, packet: self.packet };
        self.anchor(self.frame(&here))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u16 = 257;

    fn place(frame: u64, packet: u16, pages: u16, begin: u32) -> PagePlace {
        let sequence = (u64::from(begin) + frame * u64::from(PACKETS) + u64::from(packet)) & 0xFF_FFFF;
        PagePlace { page: (frame % u64::from(pages)) as u16, pages, sequence: sequence as u32, packet, packets: PACKETS }
    }

    /// Against the truth: any packet up to 32 000 frames before or behind another one, over the wraps of both counters.
    #[test]
    fn the_frame_is_found_from_any_other_packet_in_reach() {
        for (pages, begin) in [(1, 0), (2, 5), (64, 0xFF_FFF0), (256, 77), (4096, 0x80_0000)] {
            for (frame, packet) in [(0u64, 0), (1, 256), (100_000, 3), (1 << 40, 128)] {
                let anchor = place(frame, packet, pages, begin).anchor(frame);
                for other in [0i64, 1, -1, 17, -40, 255, 256, 257, -300, 4095, 4097, 20_000, -20_000, 32_000, -32_000] {
                    let Some(sought) = frame.checked_add_signed(other) else { continue };
                    for packet in [0, 1, 255, 256] {
                        assert_eq!(
                            place(sought, packet, pages, begin).frame(&anchor),
                            sought,
                            "{pages} {frame} {other} {packet}"
                        );
                    }
                }
            }
        }
    }

    /// A sender that does not count its packets evenly, or with fewer bits, is still followed by its pages.
    #[test]
    fn pages_correct_the_sequence_numbers() {
        let anchor = place(1000, 10, 64, 0).anchor(1000);
        for frame in 1000..1020 {
            let mut seen = place(frame, 5, 64, 0);
            seen.sequence = (seen.sequence + 20 * u32::from(PACKETS)) & 0xFF_FFFF;
            assert_eq!(seen.frame(&anchor), frame);
        }
        let (before, mut behind) = (place(4080, 0, 64, 0), place(4081, 0, 64, 0));
        behind.sequence &= 0xF_FFFF;
        assert_eq!((before.sequence, behind.sequence), (0xF_FFF0, 0xF1));
        assert_eq!(behind.frame(&before.anchor(4080)), 4081);
    }

    #[test]
    fn numbers_begin_where_the_other_streams_are() {
        let first = place(5, 0, 64, 9).first(None);
        assert_eq!(first.frame, 69);
        assert_eq!(place(4, 9, 64, 9).frame(&first), 68);
        // The other stream has begun with the last page, this one begins with page 0.
        assert_eq!(place(64, 0, 64, 9).first(Some(127)).frame, 128);
        assert_eq!(place(63, 0, 64, 9).first(Some(128)).frame, 127);
    }

    #[test]
    fn no_packet_has_a_frame_below_zero() {
        let hostile = PagePlace { page: 3, pages: 4, sequence: 0x80_0000, packet: 0, packets: 1 };
        assert_eq!(hostile.frame(&Anchor { frame: 0, sequence: 0, packet: 0 }) % 4, 3);
    }
}
