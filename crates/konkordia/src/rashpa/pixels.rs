//! The pixels of simulated modules: they follow from seed, module, slice and place, so a receiver can compute what has
//! to be in its memory. No byte is 0, so a byte that did not come is seen.

use konkordia_fabric::rashpa::telegram::ReceivedPart;
use konkordia_sim::rng::mix;

/// The bytes of a pixel; as many of them as a pixel has are used.
fn pixel(of_slice: u64, x: u32, y: u32) -> [u8; 8] {
    (mix(of_slice ^ (u64::from(y) << 32 | u64::from(x))) | 0x0101_0101_0101_0101).to_le_bytes()
}

fn of_slice(seed: u64, module: u16, slice: u64) -> u64 {
    mix(mix(seed ^ u64::from(module) << 48) ^ slice)
}

/// Puts the image of a module into `image`, row by row.
pub fn fill(image: &mut [u8], (seed, module, slice): (u64, u16, u64), width: u32, pixel_bytes: u32) {
    let key = of_slice(seed, module, slice);
    for (n, place) in image.chunks_exact_mut(pixel_bytes as usize).enumerate() {
        place.copy_from_slice(&pixel(key, n as u32 % width, n as u32 / width)[..pixel_bytes as usize]);
    }
}

/// What a comparison of a slot with the truth found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Bytes that are right.
    pub equal: u64,
    /// Bytes that are 0: they did not come.
    pub missing: u64,
    /// Bytes that nobody sent.
    pub different: u64,
}

/// Compares the part of a module in a slot with what the module sends.
pub fn compare(slot: &[u8], part: &ReceivedPart, (seed, slice): (u64, u64), slot_width: u32, pixel_bytes: u32) -> Compared {
    let key = of_slice(seed, part.module.0, slice);
    let (pixel_len, pitch) = (pixel_bytes as usize, slot_width as usize * pixel_bytes as usize);
    let mut found = Compared::default();
    for row in 0..part.height {
        let begin = part.block_offset as usize + row as usize * pitch;
        let places = slot[begin..begin + part.width as usize * pixel_len].chunks_exact(pixel_len);
        for (column, place) in places.enumerate() {
            let truth = pixel(key, part.x + column as u32, part.y + row);
            for (byte, truth) in place.iter().zip(&truth) {
                let count = match byte {
                    byte if byte == truth => &mut found.equal,
                    0 => &mut found.missing,
                    _ => &mut found.different,
                };
                *count += 1;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_fabric::rashpa::terms::ModuleId;

    #[test]
    fn a_part_of_an_image_is_compared_at_its_place() {
        let mut image = vec![0; 8 * 4 * 2];
        fill(&mut image, (7, 3, 9), 8, 2);
        assert!(image.iter().all(|byte| *byte != 0));
        // Columns 2 to 4 and rows 1 to 2 of the module, at column 1 and row 1 of a slot of 5 columns.
        let part = ReceivedPart { module: ModuleId(3), x: 2, y: 1, width: 3, height: 2, block_offset: 12, ..Default::default() };
        let mut slot = vec![0; 5 * 3 * 2];
        for row in 0..2 {
            slot[12 + row * 10..][..6].copy_from_slice(&image[(1 + row) * 16 + 4..][..6]);
        }
        assert_eq!(compare(&slot, &part, (7, 9), 5, 2), Compared { equal: 12, missing: 0, different: 0 });
        slot[12] = 0;
        slot[23] ^= 2;
        assert_eq!(compare(&slot, &part, (7, 9), 5, 2), Compared { equal: 10, missing: 1, different: 1 });
        assert!(compare(&slot, &part, (8, 9), 5, 2).different > 5, "another seed");
    }
}
