//! Unpacking of everything that others pack and of hostile bytes, packing against the encoders of the file path,
//! recipes against their steps.

mod transform_oracle;

use konkordia_core::array::{Array, Element, PackedBits, Packing, Shape};
use konkordia_core::geometry::{Orientation, Quarter};
use konkordia_core::plan::Compression;
use konkordia_kernels::fused::{FusedScratch, compress_chunk};
use konkordia_kernels::transform::*;
use konkordia_kernels::{ElementSize, Isa, bitshuffle, byte_offset, chunk, codec};
use proptest::prelude::*;
use std::sync::Arc;
use transform_oracle::{NUMBERS, image, noise, same};

const PACKINGS: [Packing; 5] = [Packing::None, Packing::Lz4Block, Packing::Lz4, Packing::BitshuffleLz4, Packing::BitshuffleZstd];

fn packed(packing: Packing, isa: Isa, element: Element, pixels: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    pack(packing, isa, element, pixels, &mut out, &mut PackScratch::new()).unwrap();
    out
}

fn unpacked(packing: Packing, isa: Isa, element: Element, data: &[u8], bytes: usize) -> Result<Vec<u8>, String> {
    let mut out = vec![0xA5; bytes];
    unpack::array(packing, element, data, &mut out, &mut UnpackScratch::new(isa)).map(|()| out)
}

/// Packs with blocks of any length, with another LZ4 encoder, by the description of the format.
fn foreign(packing: Packing, element: Element, pixels: &[u8], block_bytes: usize) -> Vec<u8> {
    let size = element.bits() as usize / 8;
    let mut out = vec![0; 12];
    chunk::write_header(&mut out, pixels.len() as u64, block_bytes as u32);
    let (grouped, leftover) =
        pixels.split_at(if packing == Packing::Lz4 { pixels.len() } else { pixels.len() / (8 * size) * (8 * size) });
    for block in grouped.chunks(block_bytes) {
        let mut planes = block.to_vec();
        if packing != Packing::Lz4 {
            bitshuffle::shuffle(Isa::Scalar, ElementSize::new(size).unwrap(), block, &mut planes);
        }
        let mut payload = if packing == Packing::BitshuffleZstd {
            let mut room = vec![0; zstd_safe::compress_bound(planes.len())];
            let length = zstd_safe::compress(&mut room[..], &planes, 3).unwrap();
            room[..length].to_vec()
        } else {
            lz4_flex::block::compress(&planes)
        };
        if packing == Packing::Lz4 && payload.len() >= block.len() {
            payload = block.to_vec();
        }
        out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        out.extend_from_slice(&payload);
    }
    [&out, leftover].concat()
}

#[test]
fn images_come_back_from_every_packing() {
    let mut scratch = PackScratch::new();
    for element in NUMBERS {
        for pixels in [1, 7, 8, 9, 500, 1024, 4099, 70_001] {
            for kind in [0, 2] {
                let image = image(element, pixels, kind, 3);
                for packing in PACKINGS {
                    let expected = packed(packing, Isa::Scalar, element, &image);
                    for &isa in Isa::available() {
                        // One scratch for all, and `out` is not empty.
                        let mut out = vec![9; 3];
                        pack(packing, isa, element, &image, &mut out, &mut scratch).unwrap();
                        assert!(out[3..] == expected, "{isa} {packing:?} {element:?} {pixels}");
                        let back = unpacked(packing, isa, element, &expected, image.len()).unwrap();
                        assert!(back == image, "{isa} {packing:?} {element:?} {pixels}");
                    }
                    for bytes in [image.len() - 1, image.len() + 1] {
                        assert!(unpacked(packing, Isa::detect(), element, &expected, bytes).is_err(), "{packing:?} {bytes}");
                    }
                }
            }
        }
    }
}

#[test]
fn chunks_are_those_of_the_file_path() {
    for element in NUMBERS {
        let size = ElementSize::new(element.bits() as usize / 8).unwrap();
        for pixels in [1, 8, 1023, 4100, 50_001] {
            let image = image(element, pixels, 0, 21);
            let mut expected = vec![0; chunk::bslz4_bound(pixels, size)];
            let length = compress_chunk(Isa::Scalar, &mut FusedScratch::new(), size, &image, &mut expected);
            assert!(packed(Packing::BitshuffleLz4, Isa::detect(), element, &image) == expected[..length], "{element:?} {pixels}");
            for (packing, codec) in [(Packing::Lz4, Compression::LZ4), (Packing::BitshuffleZstd, Compression::BSZSTD)] {
                let expected = codec::compress(codec, Isa::Scalar, size, &image, 65536);
                assert!(packed(packing, Isa::detect(), element, &image) == expected, "{packing:?} {element:?} {pixels}");
            }
        }
    }
}

/// `bitshuffle.compress_lz4(numpy.arange(17, dtype="u8") * 0x0102030405060708 >> 3)` of the bitshuffle package 0.5.2,
/// behind the header.
#[test]
fn elements_of_eight_bytes_are_those_of_the_library() {
    let image: Vec<u8> = (0..17u64).flat_map(|i| (i.wrapping_mul(0x0102_0304_0506_0708) >> 3).to_le_bytes()).collect();
    let own = packed(Packing::BitshuffleLz4, Isa::detect(), Element::Uint64, &image);
    for chunk in [LIBRARY, &own] {
        let mut back = vec![0; image.len()];
        chunk::decompress_chunk(Isa::detect(), chunk, ElementSize::Eight, &mut back).unwrap();
        assert_eq!(back, image);
    }
}

#[rustfmt::skip]
const LIBRARY: &[u8] = &[
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x88, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x00, 0x59, 0xF2, 0x0B, 0xAA, 0xAA, 0xCC, 0xCC, 0xF0, 0xF0,
    0x00, 0xFF, 0x00, 0x00, 0xAA, 0xAA, 0x66, 0x66, 0x1E, 0x1E, 0x54, 0xAB, 0x98, 0x33, 0xE0, 0xC3, 0x00, 0xFC, 0x00, 0x00, 0x12, 0x00, 0x80, 0xB4,
    0xB4, 0x38, 0xC7, 0xC0, 0x07, 0x00, 0xF8, 0x0E, 0x00, 0xC0, 0xCC, 0xCC, 0x5A, 0x5A, 0x6C, 0x93, 0x70, 0x1C, 0x80, 0x1F, 0x00, 0xE0, 0x20, 0x00,
    0x02, 0x14, 0x00, 0x02, 0x3E, 0x00, 0x00, 0x0C, 0x00, 0x08, 0x2E, 0x00, 0x00, 0x02, 0x00, 0x00, 0x32, 0x00, 0x04, 0x1E, 0x00, 0x0C, 0x0E, 0x00,
    0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x0E, 0x0C, 0x0A, 0x08, 0x06, 0x04, 0x02,
];

#[test]
fn blocks_of_any_legal_length_are_read() {
    for element in NUMBERS {
        let size = element.bits() as usize / 8;
        for pixels in [5, 8, 130, 3001] {
            let image = image(element, pixels, 1, 4);
            for elements in [8, 16, 24, 128, 1000, 2048, 4096, 65536] {
                for packing in [Packing::BitshuffleLz4, Packing::BitshuffleZstd, Packing::Lz4] {
                    let data = foreign(packing, element, &image, elements * size);
                    for &isa in Isa::available() {
                        assert!(
                            unpacked(packing, isa, element, &data, image.len()).unwrap() == image,
                            "{isa} {element:?} {elements}"
                        );
                    }
                }
            }
            for illegal in [0, 4 * size, 12 * size] {
                let data = foreign(Packing::BitshuffleLz4, element, &image, 8 * size);
                let data = [&data[..8], &(illegal as u32).to_be_bytes(), &data[12..]].concat();
                let why = unpacked(Packing::BitshuffleLz4, Isa::detect(), element, &data, image.len()).unwrap_err();
                assert!(why.contains("impossible"), "{why}");
            }
        }
    }
}

#[test]
fn what_cannot_be_packed_says_why() {
    let mut scratch = PackScratch::new();
    let mut run = |packing, element, bytes: &[u8]| pack(packing, Isa::detect(), element, bytes, &mut Vec::new(), &mut scratch);
    assert!(run(Packing::BitshuffleLz4, Element::Packed(PackedBits::Twelve), &[0; 3]).unwrap_err().contains("mono12p"));
    assert!(run(Packing::BitshuffleZstd, Element::Uint32, &[0; 6]).unwrap_err().contains("no whole number of pixels"));
    assert!(run(Packing::Lz4, Element::Packed(PackedBits::Twelve), &[0; 3]).is_ok());
    assert!(
        unpacked(Packing::BitshuffleLz4, Isa::detect(), Element::Packed(PackedBits::Twelve), &[0; 30], 3)
            .unwrap_err()
            .contains("mono12p")
    );
    assert!(
        unpacked(Packing::None, Isa::detect(), Element::Uint8, &[0; 30], 3).unwrap_err().contains("30 bytes, 3 were expected")
    );
    assert!(unpacked(Packing::Lz4Block, Isa::detect(), Element::Uint8, &[0; 30], 3).unwrap_err().contains("LZ4 block"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any bytes, and chunks with one byte changed: refused or read, and nothing around the image is touched.
    #[test]
    fn hostile_bytes_do_no_harm(
        which in 0usize..5, element in 0usize..11, pixels in 0usize..600, seed in any::<u64>(), cut in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(), flip in any::<u8>(), with_header in any::<bool>(), from_image in any::<bool>()
    ) {
        let (packing, element) = (PACKINGS[which], Element::ALL[element]);
        let bytes = (pixels * element.bits() as usize).div_ceil(8);
        let is_shuffled = matches!(packing, Packing::BitshuffleLz4 | Packing::BitshuffleZstd);
        let mut data = if from_image && !(is_shuffled && element.is_packed()) {
            packed(packing, Isa::detect(), element, &noise(bytes / 2, seed).repeat(3)[..bytes / 8 * 8])
        } else {
            noise(seed as usize % 300, seed)
        };
        if with_header && data.len() >= 12 {
            chunk::write_header(&mut data, bytes as u64, 64 * (seed as u32 % 64));
        }
        if !data.is_empty() {
            let at = place.index(data.len());
            data[at] ^= flip;
            data.truncate(cut.index(data.len()) + 1);
        }
        let mut room = vec![0x5A; bytes + 64];
        let mut scratch = UnpackScratch::new(Isa::detect());
        let _ = unpack::array(packing, element, &data, &mut room[32..32 + bytes], &mut scratch);
        prop_assert!(room[..32].iter().chain(&room[32 + bytes..]).all(|byte| *byte == 0x5A));
        let _ = byte_offset::decode(&data, &mut room[32..32 + bytes / 4 * 4]);
        prop_assert!(room[..32].iter().chain(&room[32 + bytes..]).all(|byte| *byte == 0x5A));
    }

    #[test]
    fn byte_offset_gives_any_pixels_back(pixels in prop::collection::vec(prop_oneof![-100i32..100, any::<i32>()], 0..300)) {
        let image: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
        let mut data = Vec::new();
        byte_offset::encode(&image, &mut data);
        prop_assert!(data.len() <= byte_offset::bound(pixels.len()));
        let mut back = vec![0xA5; image.len()];
        prop_assert_eq!(byte_offset::decode(&data, &mut back), Ok(data.len()));
        prop_assert_eq!(back, image);
    }
}

fn shape(dimensions: &[u64]) -> Shape {
    Shape::new(dimensions).unwrap()
}

fn array(dimensions: &[u64], element: Element, packing: Packing, pieces: &[&[u8]]) -> Array {
    let pack = |piece: &&[u8]| packed(packing, Isa::detect(), element, piece).into();
    Array { shape: shape(dimensions), element, packing, pieces: pieces.iter().map(pack).collect() }
}

/// Steps of every kind for images of 20 x 30 `uint16`, in an order that works.
fn all_steps() -> Vec<Step> {
    let entries = (0..60_000).map(|i| (i % 997) as u16).collect();
    let background = Background::Float32((0..126).map(|i| i as f32 * 0.5).collect());
    vec![
        Step::Mask(Plane { rows: 20, columns: 30, data: Arc::new(Mask::new((0..600).map(|i| i % 11 == 0))) }),
        Step::Lookup(Arc::new(Table::new(Element::Uint16, Entries::Uint16(entries)).unwrap())),
        Step::Crop(Window { row: 1, column: 2, rows: 19, columns: 28 }),
        Step::Orient(Orientation { flip_rows: true, rotate: Quarter::Deg90 }),
        Step::Bin(Bin {
            rows: 2,
            columns: 2,
            reduce: Reduce::Sum,
            element: Some(Element::Uint32),
            overflow: Overflow::Saturated,
        }),
        Step::Subtract(Plane { rows: 14, columns: 9, data: Arc::new(background) }),
        Step::Mask(Plane { rows: 14, columns: 9, data: Arc::new(Mask::new((0..126).map(|i| i == 125))) }),
        Step::Convert { element: Element::Int16, overflow: Overflow::Clamped },
    ]
}

/// The same by the free functions.
fn by_hand(image: &[u8]) -> Vec<u8> {
    let mut pixels = image.to_vec();
    pixels::mask(Element::Uint16, &Mask::new((0..600).map(|i| i % 11 == 0)), &mut pixels);
    let entries = (0..60_000).map(|i| (i % 997) as u16).collect();
    let mut looked = vec![0; 1200];
    pixels::lookup(&Table::new(Element::Uint16, Entries::Uint16(entries)).unwrap(), &pixels, &mut looked);
    let mut cut = vec![0; 19 * 28 * 2];
    place::crop(2, 30, &looked, Window { row: 1, column: 2, rows: 19, columns: 28 }, &mut cut);
    let mut turned = vec![0; cut.len()];
    place::orient(Isa::Scalar, 2, (19, 28), &cut, Orientation { flip_rows: true, rotate: Quarter::Deg90 }, &mut turned);
    let how = Bin { rows: 2, columns: 2, reduce: Reduce::Sum, element: Some(Element::Uint32), overflow: Overflow::Saturated };
    let mut binned = vec![0; 126 * 4];
    bin::bin(Isa::Scalar, Element::Uint16, 19, &turned, &how, &mut Totals::default(), &mut binned);
    let mut less = vec![0; 126 * 4];
    let background = Background::Float32((0..126).map(|i| i as f32 * 0.5).collect());
    pixels::subtract(Isa::Scalar, Element::Uint32, &binned, &background, &mut less);
    pixels::mask(Element::Int32, &Mask::new((0..126).map(|i| i == 125)), &mut less);
    let mut last = vec![0; 126 * 2];
    pixels::convert(Isa::Scalar, Element::Int32, &less, Element::Int16, Overflow::Clamped, &mut last);
    last
}

#[test]
fn recipes_are_their_steps_one_after_the_other() {
    let recipe = Recipe { steps: all_steps() };
    let images: Vec<Vec<u8>> = (0..6).map(|n| image(Element::Uint16, 600, n % 4, n as u64)).collect();
    let images: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let expected: Vec<Vec<u8>> = images.iter().map(|image| by_hand(image)).collect();
    for &isa in Isa::available() {
        let mut scratch = Scratch::new(isa);
        let mut out = vec![1; 7];
        for packing in PACKINGS {
            let one = Compiled::new(&recipe, shape(&[20, 30]), Element::Uint16).unwrap();
            assert_eq!(one.output(), (shape(&[14, 9]), Element::Int16));
            one.prepare(&mut scratch);
            for (image, expected) in images.iter().zip(&expected) {
                one.run(&array(&[20, 30], Element::Uint16, packing, &[image]), &mut scratch, &mut out).unwrap();
                assert!(out == *expected, "{isa} {packing:?}");
            }
            // Channels and pieces: three pieces of one plane each, then one piece, then two of three planes in a deeper
            // shape.
            let stack = Compiled::new(&recipe, shape(&[6, 20, 30]), Element::Uint16).unwrap();
            assert_eq!(stack.output(), (shape(&[6, 14, 9]), Element::Int16));
            for pieces in [
                images.iter().map(|i| i.to_vec()).collect(),
                vec![images.concat()],
                vec![images[..3].concat(), images[3..].concat()],
            ] {
                let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
                stack.run(&array(&[6, 20, 30], Element::Uint16, packing, &pieces), &mut scratch, &mut out).unwrap();
                assert!(out == expected.concat(), "{isa} {packing:?}, {} pieces", pieces.len());
            }
            let deep = Compiled::new(&recipe, shape(&[2, 3, 20, 30]), Element::Uint16).unwrap();
            deep.run(&array(&[2, 3, 20, 30], Element::Uint16, packing, &[&images.concat()]), &mut scratch, &mut out).unwrap();
            assert!(out == expected.concat());
        }
    }
}

#[test]
fn no_steps_unpack_and_one_dimension_is_a_row() {
    let line = image(Element::Float32, 100, 0, 2);
    let mut scratch = Scratch::new(Isa::detect());
    let mut out = Vec::new();
    let nothing = Compiled::new(&Recipe::default(), shape(&[100]), Element::Float32).unwrap();
    assert!(nothing.is_empty() && nothing.output() == nothing.input());
    for packing in PACKINGS {
        nothing.run(&array(&[100], Element::Float32, packing, &[&line]), &mut scratch, &mut out).unwrap();
        assert_eq!(out, line);
    }
    let mean = Bin { rows: 1, columns: 4, reduce: Reduce::Mean, element: None, overflow: Overflow::Saturated };
    let binned = Compiled::new(&Recipe { steps: vec![Step::Bin(mean)] }, shape(&[100]), Element::Float32).unwrap();
    assert_eq!(binned.output(), (shape(&[25]), Element::Float32));
    binned.run_unpacked(&line, &mut scratch, &mut out).unwrap();
    let numbers = transform_oracle::values::<f32>(&line);
    let expected: Vec<u8> =
        numbers.chunks(4).flat_map(|c| (c.iter().map(|v| f64::from(*v)).sum::<f64>() as f32 / 4.0).to_le_bytes()).collect();
    assert!(same(Element::Float32, &out, &expected));
    let turn = Step::Orient(Orientation { flip_rows: false, rotate: Quarter::Deg90 });
    let upright = Compiled::new(&Recipe { steps: vec![turn] }, shape(&[100]), Element::Float32).unwrap();
    assert_eq!(upright.output().0, shape(&[100, 1]));
}

#[test]
fn tables_of_pixels_and_rectangles_go_through_a_recipe() {
    let table = PixelTable::new(6, 3, (0..18).map(|i| i as f32).collect()).unwrap();
    let steps = vec![
        Step::LookupPerPixel(Plane { rows: 2, columns: 3, data: Arc::new(table) }),
        Step::Orient(Orientation { flip_rows: false, rotate: Quarter::Deg90 }),
        Step::MaskRectangle(Window { row: 0, column: 1, rows: 2, columns: 1 }),
    ];
    let compiled = Compiled::new(&Recipe { steps }, shape(&[2, 3]), Element::Int32).unwrap();
    assert_eq!(compiled.output(), (shape(&[3, 2]), Element::Float32));
    let image: Vec<u8> = [1i32, 2, 3, 0, -7, 1].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut out = Vec::new();
    compiled.run_unpacked(&image, &mut Scratch::new(Isa::detect()), &mut out).unwrap();
    let pixels: Vec<f32> = out.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    // Looked up: 1 5 -2 / 9 -1 16; clockwise: 9 1 / -1 5 / 16 -2.
    assert_eq!(pixels, [9.0, -1.0, -1.0, -1.0, 16.0, -2.0]);
    let alone = Recipe { steps: vec![Step::MaskRectangle(Window { row: 1, column: 0, rows: 1, columns: 2 })] };
    let compiled = Compiled::new(&alone, shape(&[2, 2]), Element::Int8).unwrap();
    compiled.run_unpacked(&[1, 2, 3, 4], &mut Scratch::new(Isa::detect()), &mut out).unwrap();
    assert_eq!(out, [1, 2, 0xFF, 0xFF]);
}

#[test]
fn twelve_bits_go_through_a_recipe() {
    let steps = vec![Step::Unpack, Step::Crop(Window { row: 0, column: 1, rows: 1, columns: 2 })];
    let compiled =
        Compiled::new(&Recipe { steps: steps.clone() }, shape(&[2, 1, 4]), Element::Packed(PackedBits::Twelve)).unwrap();
    assert_eq!(compiled.output(), (shape(&[2, 1, 2]), Element::Uint16));
    let packed = [0x23, 0x61, 0x45, 0x89, 0xC7, 0xAB, 0x01, 0x30, 0x02, 0x05, 0x70, 0x06];
    let mut out = Vec::new();
    let input = array(&[2, 1, 4], Element::Packed(PackedBits::Twelve), Packing::Lz4, &[&packed[..6], &packed[6..]]);
    compiled.run(&input, &mut Scratch::new(Isa::detect()), &mut out).unwrap();
    assert_eq!(transform_oracle::values::<u16>(&out), [0x456, 0x789, 0x023, 0x005]);
    let why = Compiled::new(&Recipe { steps }, shape(&[2, 1, 3]), Element::Packed(PackedBits::Twelve)).unwrap_err();
    assert!(why.contains("do not start on byte boundaries"), "{why}");
}

#[test]
fn steps_that_cannot_be_done_say_why() {
    let refused = |steps: Vec<Step>, dimensions: &[u64], element| {
        Compiled::new(&Recipe { steps }, shape(dimensions), element).expect_err("this is to be refused")
    };
    let crop = |row, rows| Step::Crop(Window { row, column: 0, rows, columns: 10 });
    let bin = |rows, columns| Bin { rows, columns, reduce: Reduce::Sum, element: None, overflow: Overflow::Saturated };
    let plane = |rows, columns, pixels| Step::Mask(Plane { rows, columns, data: Arc::new(Mask::new(vec![false; pixels])) });
    let table = Step::Lookup(Arc::new(Table::new(Element::Uint8, Entries::Uint16(vec![1])).unwrap()));
    let background = Step::Subtract(Plane { rows: 20, columns: 10, data: Arc::new(Background::Int32(vec![0; 200])) });
    let pixel_table = PixelTable::new(200, 1, vec![0.0; 200]).unwrap();
    let pixel_table = Step::LookupPerPixel(Plane { rows: 10, columns: 20, data: Arc::new(pixel_table) });
    let to = |element| Step::Convert { element, overflow: Overflow::Saturated };
    let cases = [
        (
            vec![crop(0, 20), crop(15, 6)],
            "step 2 (crop): 6 rows from row 15 and 10 columns from column 0 do not lie in an image of 20 x 10",
        ),
        (vec![crop(usize::MAX, 2)], "do not lie"),
        (vec![Step::Bin(bin(0, 1))], "step 1 (bin): bins of 0 x 1 do not fit"),
        (vec![Step::Bin(bin(21, 1))], "do not fit"),
        (
            vec![Step::Bin(Bin { element: Some(Element::Packed(PackedBits::Twelve)), ..bin(1, 1) })],
            "nothing can be converted to mono12p",
        ),
        (vec![to(Element::Packed(PackedBits::Twelve))], "nothing can be converted to mono12p"),
        (vec![plane(10, 20, 200)], "the mask is for 10 x 20 pixels, the image has 20 x 10 there"),
        (vec![plane(20, 10, 199)], "the mask has 199 values for 20 x 10 pixels"),
        (
            vec![Step::Bin(bin(2, 2)), background.clone()],
            "step 2 (subtract): the background is for 20 x 10 pixels, the image has 10 x 5",
        ),
        (vec![to(Element::Float64), background], "cannot be subtracted from pixels of float64"),
        (vec![table], "the table is for pixels of uint8, these are uint16"),
        (vec![Step::Unpack], "there is nothing to unpack"),
        (vec![Step::MaskRectangle(Window { row: 0, column: 5, rows: 1, columns: 6 })], "do not lie in an image of 20 x 10"),
        (vec![pixel_table.clone()], "the lookup table is for 10 x 20 pixels"),
        (vec![to(Element::Float32), pixel_table], "step 2 (lookup per pixel): a table for each pixel is for integers"),
    ];
    for (steps, expected) in cases {
        let why = refused(steps, &[20, 10], Element::Uint16);
        assert!(why.contains(expected), "{why}");
    }
    assert!(refused(vec![crop(0, 1)], &[4, 10], Element::Packed(PackedBits::Twelve)).contains("put the step unpack before it"));
    assert!(refused(vec![Step::Bin(bin(2000, 2000))], &[2000, 2000], Element::Uint8).contains("at most 1048576 pixels"));
    for dimensions in [&[1 << 63][..], &[1 << 31, 1 << 31], &[1 << 40, 1 << 10, 1 << 10]] {
        assert!(refused(vec![], dimensions, Element::Uint64).contains("too large"));
        assert!(refused(vec![to(Element::Uint8)], dimensions, Element::Uint64).contains("too large"));
    }
}

#[test]
fn images_that_are_not_what_was_announced_say_why() {
    let compiled = Compiled::new(&Recipe { steps: all_steps() }, shape(&[20, 30]), Element::Uint16).unwrap();
    let mut scratch = Scratch::new(Isa::detect());
    let pixels = vec![0; 1200];
    let mut run = |array: &Array| compiled.run(array, &mut scratch, &mut Vec::new()).unwrap_err();
    let why = run(&array(&[30, 20], Element::Uint16, Packing::None, &[&pixels]));
    assert_eq!(why, "an image of [30, 20] uint16 came after images of [20, 30] uint16");
    assert!(run(&array(&[20, 30], Element::Int16, Packing::None, &[&pixels])).contains("int16 came after"));
    assert!(run(&array(&[20, 30], Element::Uint16, Packing::None, &[&pixels[2..]])).contains("1198 bytes, 1200 were expected"));
    assert!(run(&array(&[20, 30], Element::Uint16, Packing::Lz4, &[&pixels[2..]])).contains("1198 bytes of image, 1200"));
    assert!(run(&array(&[20, 30], Element::Uint16, Packing::None, &[])).contains("cannot come in 0 pieces"));
    assert!(run(&array(&[20, 30], Element::Uint16, Packing::None, &[&pixels[..400]; 3])).contains("cannot come in 3 pieces"));
    let bad = array(&[20, 30], Element::Uint16, Packing::Lz4, &[&pixels[..600], &pixels[..500]]);
    assert!(run(&bad).starts_with("piece 2 of 2: "));
}

/// The seeds of the fuzz targets; `KONKORDIA_WRITE_SEEDS=1 cargo test -p konkordia-kernels --test transform_recipe`
/// writes them anew.
#[test]
fn seeds_are_what_is_packed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let check = |target: &str, name: String, bytes: Vec<u8>| {
        let path = folder.join(target).join(name);
        if std::env::var_os("KONKORDIA_WRITE_SEEDS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).ok() == Some(bytes), "{} is not what is packed", path.display());
    };
    for (which, packing) in PACKINGS.into_iter().enumerate() {
        for (index, element) in Element::ALL.into_iter().enumerate() {
            if matches!(element, Element::Uint8 | Element::Float64)
                || (element, packing) == (Element::Packed(PackedBits::Twelve), Packing::Lz4Block)
            {
                let pixels = 150;
                let bytes = (pixels * element.bits() as usize).div_ceil(8);
                let image = if element.is_packed() { noise(bytes, 1) } else { image(element, pixels, 0, 1) };
                let choice = [which as u8, index as u8, pixels as u8, 0];
                let data = packed(packing, Isa::Scalar, element, &image);
                check("unpack_array", format!("{which}_{}", element.name()), [&choice[..], &data].concat());
            }
        }
    }
    for (name, kind) in [("small", 0), ("any", 2), ("limits", 3)] {
        let mut data = vec![40, 0];
        byte_offset::encode(&image(Element::Int32, 40, kind, 2), &mut data);
        check("byte_offset", name.to_string(), data);
    }
}
