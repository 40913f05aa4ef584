//! Decodes LZ4 blocks, quickest where they are those of bit-transposed pixels: long literals (planes of noise), and
//! long runs of one byte (empty planes). Reads every block of an encoder, and touches nothing but checked slices.
//!
//! Most sequences are short. They are copied as 16 bytes whatever their length, where there is room: what is too much
//! is overwritten by the next one.

/// Bytes of such a copy.
const STEP: usize = 16;

/// Decompresses one block. Returns the bytes written to the start of `out`, or `None` if the block is malformed or does
/// not fit. What lies behind these bytes in `out` may have changed.
pub fn decompress(block: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut from, mut at) = (0, 0);
    loop {
        let token = *block.get(from)?;
        from += 1;
        let mut literals = usize::from(token >> 4);
        if literals == 15 {
            literals += rest_of_length(block, &mut from)?;
        }
        copy_literals(block.get(from..)?, out.get_mut(at..)?, literals)?;
        (from, at) = (from + literals, at + literals);
        if from == block.len() {
            return Some(at);
        }
        let distance = usize::from(u16::from_le_bytes([*block.get(from)?, *block.get(from + 1)?]));
        from += 2;
        let mut length = usize::from(token & 15);
        if length == 15 {
            length += rest_of_length(block, &mut from)?;
        }
        length += 4;
        if distance == 0 || distance > at || length > out.len() - at {
            return None;
        }
        if distance == 1 {
            run(&mut out[at - 1..], length);
        } else {
            repeat(&mut out[at - distance..], distance, length);
        }
        at += length;
    }
}

/// The bytes that continue a length of 15: all but the last are 255.
#[inline]
fn rest_of_length(block: &[u8], from: &mut usize) -> Option<usize> {
    let mut length = 0;
    loop {
        let byte = *block.get(*from)?;
        *from += 1;
        length += usize::from(byte);
        if byte != 255 {
            return Some(length);
        }
    }
}

#[inline]
fn copy_literals(block: &[u8], out: &mut [u8], length: usize) -> Option<()> {
    if length <= STEP
        && let (Some(from), Some(to)) = (block.first_chunk::<STEP>(), out.first_chunk_mut::<STEP>())
    {
        *to = *from;
        return Some(());
    }
    out.get_mut(..length)?.copy_from_slice(block.get(..length)?);
    Some(())
}

/// Repeats the first byte of `out` `length` times behind it.
#[inline]
fn run(out: &mut [u8], length: usize) {
    let byte = out[0];
    match out[1..].first_chunk_mut::<{ 2 * STEP }>() {
        Some(to) if length <= 2 * STEP => *to = [byte; 2 * STEP],
        _ => out[1..=length].fill(byte),
    }
}

/// Continues `out` behind its first `distance` bytes for `length` bytes, each equal to the one `distance` before.
#[inline]
fn repeat(out: &mut [u8], distance: usize, length: usize) {
    if distance >= STEP && length <= 4 * STEP && distance + length + STEP <= out.len() {
        for done in (0..length).step_by(STEP) {
            let part: [u8; STEP] = out[done..][..STEP].try_into().expect("so many bytes");
            out[distance + done..][..STEP].copy_from_slice(&part);
        }
        return;
    }
    let end = distance + length;
    // What was copied may be copied again: the part that repeats doubles.
    let mut known = distance;
    while known < end {
        let part = known.min(end - known);
        out.copy_within(..part, known);
        known += part;
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::Numbers;
    use super::*;
    use crate::lz4;

    /// True if both decoders take a block; then they make the same of it. One alone may take a damaged block: the stock
    /// decoder takes a distance of 0, and refuses ends that only encoders must not make.
    fn check(block: &[u8], bytes: usize) -> bool {
        let (mut ours, mut stock) = (vec![0xA5; bytes], vec![0x5A; bytes]);
        let (here, there) = (decompress(block, &mut ours), lz4::decompress(block, &mut stock));
        let (Some(here), Some(there)) = (here, there) else { return false };
        assert_eq!(here, there, "{block:?}");
        assert!(ours[..here] == stock[..here], "{block:?}");
        true
    }

    #[test]
    fn blocks_of_every_kind_are_as_the_stock_decoder_reads_them() {
        let mut numbers = Numbers(0xC0DE_5678_9ABC_DEF1);
        let mut encoder = lz4::Encoder::new();
        for bytes in [0, 1, 4, 12, 13, 20, 64, 100, 1000, 8192, 65536] {
            for rarity in [1, 2, 3, 10, 100, 5000] {
                for period in [0, 1, 2, 3, 7, 15, 16, 17, 40, 600] {
                    let mut image = numbers.runs(bytes, rarity);
                    for at in (period..bytes).filter(|_| period > 0) {
                        if at % 97 != 0 {
                            image[at] = image[at - period];
                        }
                    }
                    let mut packed = vec![0; lz4::bound(bytes)];
                    let written = encoder.compress(&image, &mut packed);
                    assert!(check(&packed[..written], bytes), "{bytes} {rarity} {period}");
                    let mut back = vec![0; bytes];
                    assert_eq!(decompress(&packed[..written], &mut back), Some(bytes));
                    assert!(back == image, "{bytes} {rarity} {period}");
                    if bytes > 0 {
                        assert_eq!(decompress(&packed[..written], &mut back[1..]), None, "one byte too few");
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_blocks_are_refused_or_read_as_the_stock_decoder_does() {
        let mut numbers = Numbers(0xBAD0_5678_9ABC_DEF1);
        let mut encoder = lz4::Encoder::new();
        let mut accepted = 0;
        for _ in 0..20_000 {
            let image = numbers.runs(300, 3);
            let mut packed = vec![0; lz4::bound(300)];
            let written = encoder.compress(&image, &mut packed);
            let block = &mut packed[..written];
            for _ in 0..1 + numbers.next() % 3 {
                let at = numbers.next() as usize % block.len();
                block[at] = numbers.next() as u8;
            }
            let cut = block.len() - numbers.next() as usize % 3 * (numbers.next() as usize % block.len()) / 2;
            accepted += usize::from(check(&block[..cut], 300));
        }
        assert!(accepted > 1000, "{accepted}");
        assert_eq!(decompress(&[], &mut [0; 8]), None);
        assert_eq!(decompress(&[0xFF; 40], &mut [0; 64]), None);
    }
}
