//! The literals of a block (RFC 8878, 3.1.1.3.1), with the code that fits the share of their bits that are set.
//!
//! The bits of a plane are nearly independent of each other, so the share of bits that are set says how often each byte
//! comes. A code for each of some shares is made once. So no table has to be made of the bytes, and all bytes have
//! codes.

use super::huffman::Code;
use std::sync::OnceLock;

/// Fewer are not worth a code.
const LITERALS_MIN: usize = 64;
/// Fewer do not pay for the description of a code that is a little better.
const DESCRIBED_MIN: usize = 1000;
/// Codes for shares up to a half; there are as many above.
const CODES: usize = 32;
/// The lowest share that has a code.
const SHARE_MIN: f64 = 0.002;

/// The code of a share.
pub struct ShareCode {
    share: f64,
    code: Code,
}

/// All codes, by rising share: 70 KiB, made with the first encoder.
pub fn codes() -> &'static [ShareCode] {
    static ALL: OnceLock<Vec<ShareCode>> = OnceLock::new();
    ALL.get_or_init(|| {
        let step = (0.5 / SHARE_MIN).powf(1.0 / (CODES - 1) as f64);
        let low = (0..CODES).map(|n| SHARE_MIN * step.powi(n as i32));
        let high = (0..CODES - 1).rev().map(|n| 1.0 - SHARE_MIN * step.powi(n as i32));
        low.chain(high).map(ShareCode::new).collect()
    })
}

impl ShareCode {
    fn new(share: f64) -> Self {
        let of_byte = |byte: usize| {
            let ones = byte.count_ones() as i32;
            share.powi(ones) * (1.0 - share).powi(8 - ones)
        };
        Self { share, code: Code::new(&std::array::from_fn(of_byte)) }
    }
}

/// The code that is next to the share of the bits that are set.
fn nearest(codes: &[ShareCode], literals: &[u8]) -> usize {
    let (words, rest) = literals.as_chunks::<8>();
    let ones: usize = words.iter().map(|word| u64::from_le_bytes(*word).count_ones() as usize).sum();
    let ones = ones + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    let share = ones as f64 / (8 * literals.len()) as f64;
    let above = codes.partition_point(|code| code.share < share).min(codes.len() - 1);
    let below = above.saturating_sub(1);
    if share - codes[below].share < codes[above].share - share { below } else { above }
}

/// Room that [`write()`] needs, in bytes.
pub fn room_bytes(literals: usize) -> usize {
    5 + 128 + Code::room_bytes(literals)
}

/// Writes the literals section; `last` is the code that the decoder has, and becomes that of these literals.
pub fn write(literals: &[u8], last: &mut Option<usize>, out: &mut [u8]) -> usize {
    if literals.len() >= LITERALS_MIN {
        let codes = codes();
        let mut which = nearest(codes, literals);
        if let Some(last) = *last
            && (literals.len() < DESCRIBED_MIN || last.abs_diff(which) < 2)
        {
            which = last;
        }
        let is_known = *last == Some(which);
        let code = &codes[which].code;
        let description = if is_known { &[][..] } else { code.description() };
        let (head, format, width) = if literals.len() < 1 << 14 { (4, 2, 14) } else { (5, 3, 18) };
        out[head..][..description.len()].copy_from_slice(description);
        let packed = description.len() + code.streams(literals, &mut out[head + description.len()..]);
        if packed < literals.len() {
            let kind = if is_known { 3 } else { 2 };
            let section = kind | format << 2 | (literals.len() as u64) << 4 | (packed as u64) << (4 + width);
            out[..head].copy_from_slice(&section.to_le_bytes()[..head]);
            *last = Some(which);
            return head + packed;
        }
    }
    plain(literals, out)
}

/// Literals as they are.
fn plain(literals: &[u8], out: &mut [u8]) -> usize {
    let count = literals.len() as u32;
    let (section, head) = match count {
        0..32 => (count << 3, 1),
        32..4096 => (1 << 2 | count << 4, 2),
        _ => (3 << 2 | count << 4, 3),
    };
    out[..head].copy_from_slice(&section.to_le_bytes()[..head]);
    out[head..][..literals.len()].copy_from_slice(literals);
    head + literals.len()
}
