//! Segments of a packet to their places in a large memory. The wide path writes past the caches: a store of many frames
//! does not fit into them, and a line that is fetched before it is overwritten costs the memory twice.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod scalar;
mod segment;

use crate::isa::Isa;
pub use segment::Segment;

/// Copies the segments to their places, in their order. What lies outside of the packet or of the memory is left out.
/// All is written, also for other threads, when this returns.
#[inline]
pub fn place(isa: Isa, packet: &[u8], memory: &mut [u8], segments: impl Iterator<Item = Segment>) {
    match isa.usable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => avx2::place(packet, memory, segments),
        _ => scalar::place(packet, memory, segments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte.
    fn naive(packet: &[u8], memory: &mut [u8], segments: &[Segment]) {
        for segment in segments {
            if segment.source + segment.bytes > packet.len() || segment.destination + segment.bytes > memory.len() {
                continue;
            }
            for n in 0..segment.bytes {
                memory[segment.destination + n] = packet[segment.source + n];
            }
        }
    }

    #[test]
    fn every_set_places_what_the_naive_loop_places() {
        let packet: Vec<u8> = (0..8240_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..400 {
            let segments: Vec<Segment> = (0..random(6))
                .map(|_| {
                    let bytes = random([40, 300, 5000, 9000][round % 4]);
                    // Also beyond the ends, and every second round at a place that is aligned.
                    let destination = random(20_000) & if round % 2 == 0 { !63 } else { usize::MAX };
                    Segment { source: random(4000), destination, bytes }
                })
                .collect();
            let mut expected = vec![0xEE; 20_000];
            naive(&packet, &mut expected, &segments);
            for &isa in Isa::available() {
                let mut memory = vec![0xEE; 20_000];
                place(isa, &packet, &mut memory, segments.iter().copied());
                assert!(memory == expected, "{} {segments:?}", isa.name());
            }
        }
    }

    #[test]
    fn places_that_cannot_be_are_left_out() {
        let huge = Segment { source: usize::MAX, destination: 0, bytes: 2 };
        let far = Segment { source: 0, destination: usize::MAX - 1, bytes: 2 };
        for &isa in Isa::available() {
            let mut memory = [1; 64];
            place(isa, &[2; 64], &mut memory, [huge, far].into_iter());
            assert_eq!(memory, [1; 64]);
        }
    }
}
