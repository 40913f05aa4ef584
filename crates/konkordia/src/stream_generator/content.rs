//! Images to send: a few, made once.

use super::args::ContentChoice;
use konkordia_core::array::{Element, Shape};
use konkordia_sim::rng::Rng;

/// Largest number of pixels that are drawn one by one; larger images repeat them.
const DRAWN_PIXELS_MAX: usize = 1 << 20;
/// Mean of the photons of `Poisson`.
const PHOTONS_MEAN: f64 = 1.5;
const SPOTS: u64 = 150;

/// The bytes of image `number`, little-endian.
pub fn image(content: ContentChoice, shape: &Shape, element: Element, seed: u64, number: u64) -> Vec<u8> {
    let pixels = shape.elements() as usize;
    let mut rng = Rng::keyed(seed, &[0x7374_7265_616d, number]);
    let bytes = (shape.elements() * u64::from(element.bits())).div_ceil(8) as usize;
    match content {
        ContentChoice::Constant => packed(element, &vec![1; pixels]),
        ContentChoice::Noise => {
            let words = (0..bytes.div_ceil(8).min(DRAWN_PIXELS_MAX)).flat_map(|_| rng.next_u64().to_le_bytes());
            let drawn: Vec<u8> = words.collect();
            drawn.iter().copied().cycle().take(bytes).collect()
        }
        ContentChoice::Poisson => {
            let drawn: Vec<u32> = (0..pixels.min(DRAWN_PIXELS_MAX)).map(|_| rng.poisson(PHOTONS_MEAN)).collect();
            packed(element, &drawn.iter().copied().cycle().take(pixels).collect::<Vec<_>>())
        }
        ContentChoice::Diffraction => packed(element, &diffraction(shape, &mut rng)),
    }
}

/// Rings that grow weaker outwards, and spots that differ from image to image. A shape with one dimension is one row.
fn diffraction(shape: &Shape, rng: &mut Rng) -> Vec<u32> {
    let dimensions = shape.dimensions();
    let columns = dimensions[dimensions.len() - 1] as usize;
    let rows = shape.elements() as usize / columns;
    let (middle_y, middle_x) = (rows as f64 / 2.0, columns as f64 / 2.0);
    let reach = middle_x.hypot(middle_y).max(1.0);
    let mut image: Vec<u32> = (0..rows * columns)
        .map(|pixel| {
            let (y, x) = (pixel / columns, pixel % columns);
            let radius = (y as f64 - middle_y).hypot(x as f64 - middle_x) / reach;
            let rings: f64 = [0.3, 0.5, 0.75].iter().map(|at| (-((radius - at) / 0.02).powi(2)).exp()).sum();
            rng.poisson((0.2 + 2.0 * rings) * (-2.0 * radius).exp() + 5.0 * (-30.0 * radius).exp())
        })
        .collect();
    for _ in 0..SPOTS {
        let (y, x) = (rng.below(rows as u64) as usize, rng.below(columns as u64) as usize);
        let photons = 20.0 + 400.0 * rng.uniform();
        for (dy, dx, share) in [(0, 0, 1.0), (0, 1, 0.4), (1, 0, 0.4), (1, 1, 0.2)] {
            if y + dy < rows && x + dx < columns {
                image[(y + dy) * columns + x + dx] += rng.poisson(photons * share);
            }
        }
    }
    image
}

/// Counts as elements, clipped at the highest value of the type.
fn packed(element: Element, counts: &[u32]) -> Vec<u8> {
    fn each<const N: usize>(counts: &[u32], to: impl Fn(u32) -> [u8; N]) -> Vec<u8> {
        counts.iter().flat_map(|count| to(*count)).collect()
    }
    match element {
        Element::Uint8 => each(counts, |n| [n.min(255) as u8]),
        Element::Int8 => each(counts, |n| [n.min(127) as u8]),
        Element::Uint16 => each(counts, |n| (n.min(65535) as u16).to_le_bytes()),
        Element::Int16 => each(counts, |n| (n.min(32767) as i16).to_le_bytes()),
        Element::Uint32 => each(counts, u32::to_le_bytes),
        Element::Int32 => each(counts, |n| (n.min(i32::MAX as u32)).to_le_bytes()),
        Element::Uint64 | Element::Int64 => each(counts, |n| u64::from(n).to_le_bytes()),
        Element::Float32 => each(counts, |n| (n as f32).to_le_bytes()),
        Element::Float64 => each(counts, |n| f64::from(n).to_le_bytes()),
        Element::Packed(bits) => {
            // Four pixels fill whole bytes. Those that the last pixels do not fill are 0 in their upper bits.
            let (count, most) = (bits.count(), (1 << bits.count()) - 1);
            let four = |four: &[u32]| {
                let word = four.iter().rev().fold(0u64, |word, n| word << count | u64::from(*n.min(&most)));
                word.to_le_bytes().into_iter().take(bits.bytes(four.len()))
            };
            counts.chunks(4).flat_map(four).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::array::PackedBits;

    #[test]
    fn every_content_fills_every_type_and_follows_from_its_seed() {
        let shape = Shape::new(&[37, 41]).unwrap();
        for element in Element::ALL {
            let bytes = (37 * 41 * element.bits() as usize).div_ceil(8);
            for content in [ContentChoice::Constant, ContentChoice::Noise, ContentChoice::Poisson, ContentChoice::Diffraction] {
                let made = image(content, &shape, element, 1, 0);
                assert_eq!(made.len(), bytes, "{element:?} {content:?}");
                assert_eq!(made, image(content, &shape, element, 1, 0));
                assert_eq!(made == image(content, &shape, element, 1, 1), content == ContentChoice::Constant);
            }
        }
    }

    #[test]
    fn counts_are_cut_and_packed() {
        assert_eq!(packed(Element::Packed(PackedBits::Twelve), &[0xABC, 0x123, 5000]), [0xBC, 0x3A, 0x12, 0xFF, 0x0F]);
        assert_eq!(packed(Element::Packed(PackedBits::Four), &[5, 7, 99]), [0x75, 0x0F]);
        assert_eq!(packed(Element::Packed(PackedBits::Fourteen), &[0x3FFF, 0, 1 << 20]), [0xFF, 0x3F, 0, 0xF0, 0xFF, 0x03]);
        assert_eq!(packed(Element::Uint8, &[300, 7]), [255, 7]);
        assert_eq!(packed(Element::Float32, &[2]), 2f32.to_le_bytes());
    }
}
