//! The reference: eight elements at a time, as an 8 x 8 bit matrix for each of their bytes.

use super::block::ElementSize;

/// Transposes an 8 x 8 bit matrix: bit `j` of byte `i` becomes bit `i` of byte `j` (Warren, Hacker's Delight, 7-3).
fn transpose8(mut x: u64) -> u64 {
    for (shift, keep) in [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)] {
        let swap = (x ^ (x >> shift)) & keep;
        x ^= swap ^ (swap << shift);
    }
    x
}

/// See [`super::shuffle`]. Transposes the groups of eight elements from `first_group` on; wider paths leave their tails
/// to it.
pub fn shuffle(element: ElementSize, input: &[u8], out: &mut [u8], first_group: usize) {
    let bytes = element.bytes();
    let groups = input.len() / (8 * bytes);
    for group in first_group..groups {
        for byte in 0..bytes {
            let rows = std::array::from_fn(|i| input[(8 * group + i) * bytes + byte]);
            let planes = transpose8(u64::from_le_bytes(rows)).to_le_bytes();
            for (bit, value) in planes.into_iter().enumerate() {
                out[(8 * byte + bit) * groups + group] = value;
            }
        }
    }
}

/// See [`super::unshuffle`]; `first_group` as in [`shuffle`].
pub fn unshuffle(element: ElementSize, input: &[u8], out: &mut [u8], first_group: usize) {
    let bytes = element.bytes();
    let groups = input.len() / (8 * bytes);
    for group in first_group..groups {
        for byte in 0..bytes {
            let planes = std::array::from_fn(|bit| input[(8 * byte + bit) * groups + group]);
            let rows = transpose8(u64::from_le_bytes(planes)).to_le_bytes();
            for (i, value) in rows.into_iter().enumerate() {
                out[(8 * group + i) * bytes + byte] = value;
            }
        }
    }
}
