//! The order of pixels. LPD sends an image chip by chip and not row by row; DSSC and AGIPD send their rows as they are
//! (docs/protocols.md 7.2). The elements are moved, whatever they are: pixels, or marks of missing ones.

use konkordia_core::tile::XfelDetector;

/// Edge of an image of LPD.
const EDGE: usize = 256;
/// Chips of a column of chips, and rows of a chip.
const CHIP_ROWS: usize = 32;
const CHIPS_DOWN: usize = EDGE / CHIP_ROWS;
/// Chips of a row of chips, and columns of a chip.
const CHIPS_ACROSS: usize = 16;
const CHIP_COLUMNS: usize = EDGE / CHIPS_ACROSS;

/// True if the detector sends its pixels in another order than row by row.
pub const fn is_needed(detector: XfelDetector) -> bool {
    matches!(detector, XfelDetector::Lpd)
}

/// The place on the wire of the pixel at `row` and `column` of an image.
pub const fn wire_place(detector: XfelDetector, row: usize, column: usize) -> usize {
    if !is_needed(detector) {
        return row * detector.image_size().1 as usize + column;
    }
    // For each pixel of a chip, from the bottom row up, come all chips: from the bottom row of chips up, from left to
    // right.
    let (chip_row, chip_column) = (row / CHIP_ROWS, column / CHIP_COLUMNS);
    let pixel = (CHIP_ROWS - 1 - row % CHIP_ROWS) * CHIP_COLUMNS + column % CHIP_COLUMNS;
    (pixel * CHIPS_DOWN + CHIPS_DOWN - 1 - chip_row) * CHIPS_ACROSS + chip_column
}

/// Brings an image of LPD into the order of rows: `image` gets the elements of `wire`.
///
/// # Panics
/// If one of them does not have 256 x 256 elements.
pub fn lpd_to_image<T: Copy>(wire: &[T], image: &mut [T]) {
    assert!(wire.len() == EDGE * EDGE && image.len() == EDGE * EDGE, "images of 256 x 256");
    for row in 0..EDGE {
        let (chip_row, pixel_row) = (row / CHIP_ROWS, CHIP_ROWS - 1 - row % CHIP_ROWS);
        // A row of the image is 16 groups of 16 elements of the wire, which stand a column apart: a square turned about
        // its diagonal.
        let groups = &wire[(pixel_row * CHIP_COLUMNS * CHIPS_DOWN + CHIPS_DOWN - 1 - chip_row) * CHIPS_ACROSS..];
        let out: &mut [T; EDGE] = (&mut image[row * EDGE..][..EDGE]).try_into().expect("a row");
        for (column, group) in groups.chunks(CHIPS_DOWN * CHIPS_ACROSS).take(CHIP_COLUMNS).enumerate() {
            let group: &[T; CHIPS_ACROSS] = group[..CHIPS_ACROSS].try_into().expect("16 chips");
            for (chip, element) in group.iter().enumerate() {
                out[chip * CHIP_COLUMNS + column] = *element;
            }
        }
    }
}

/// Brings the images of a train, 16-bit words, into the order of rows; `scratch` is grown to one image once.
///
/// # Panics
/// If `images` is not whole images.
pub fn to_image(detector: XfelDetector, images: &mut [u8], scratch: &mut Vec<[u8; 2]>) {
    if !is_needed(detector) {
        return;
    }
    assert!(images.len().is_multiple_of(2 * EDGE * EDGE), "whole images");
    scratch.resize(EDGE * EDGE, [0; 2]);
    for image in images.chunks_exact_mut(2 * EDGE * EDGE) {
        let (words, _) = image.as_chunks_mut::<2>();
        scratch.copy_from_slice(words);
        lpd_to_image(scratch, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the odin plug-in of LPD walks through the wire (docs/protocols.md 7.2): four loops, one element after the
    /// other.
    fn walked(wire: &[u16]) -> Vec<u16> {
        let mut image = vec![0; EDGE * EDGE];
        let mut next = wire.iter();
        for pixel_row in (0..32).rev() {
            for pixel_column in 0..16 {
                for asic_row in (0..8).rev() {
                    for asic_column in 0..16 {
                        let (row, column) = (asic_row * 32 + pixel_row, asic_column * 16 + pixel_column);
                        image[row * 256 + column] = *next.next().unwrap();
                    }
                }
            }
        }
        image
    }

    #[test]
    fn an_image_of_lpd_is_in_the_order_of_the_naive_walk() {
        let wire: Vec<u16> = (0..=u16::MAX).map(|n| n.wrapping_mul(40503) ^ n >> 3).collect();
        let mut image = vec![0; wire.len()];
        lpd_to_image(&wire, &mut image);
        assert_eq!(image, walked(&wire));
        let mut bytes: Vec<u8> = wire.iter().chain(&wire).flat_map(|word| word.to_le_bytes()).collect();
        to_image(XfelDetector::Lpd, &mut bytes, &mut Vec::new());
        let expected: Vec<u8> = image.iter().chain(&image).flat_map(|word| word.to_le_bytes()).collect();
        assert!(bytes == expected);
    }

    #[test]
    fn the_order_is_a_bijection_and_both_ways_agree() {
        for detector in XfelDetector::ALL {
            let (rows, columns) = detector.image_size();
            let mut seen = vec![false; (rows * columns) as usize];
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                let place = wire_place(detector, row as usize, column as usize);
                assert!(!std::mem::replace(&mut seen[place], true), "{detector:?}: two pixels at {place}");
            }
            assert!(seen.iter().all(|seen| *seen));
        }
        let wire: Vec<u32> = (0..65536).collect();
        let mut image = vec![0; wire.len()];
        lpd_to_image(&wire, &mut image);
        for (place, element) in image.iter().enumerate() {
            assert_eq!(*element as usize, wire_place(XfelDetector::Lpd, place / 256, place % 256));
        }
    }

    #[test]
    fn dssc_and_agipd_stay_as_they_are() {
        for detector in [XfelDetector::Dssc, XfelDetector::Agipd] {
            let mut bytes = vec![1, 2, 3, 4];
            to_image(detector, &mut bytes, &mut Vec::new());
            assert_eq!(bytes, [1, 2, 3, 4]);
        }
    }
}
