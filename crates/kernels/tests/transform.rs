//! Transformations against naive code: odd sizes, every type, special values, every instruction set of the machine.
//! Unpacking against hostile bytes, packing against the encoders of the file path.

mod transform_oracle;

use konkordia_core::array::{Element, PackedBits, Shape};
use konkordia_core::geometry::{Orientation, Quarter};
use konkordia_kernels::Isa;
use konkordia_kernels::transform::packed::unpack;
use konkordia_kernels::transform::pixels::{convert, lookup, lookup_per_pixel, mask, mask_rectangle, subtract};
use konkordia_kernels::transform::place::{crop, orient, place};
use konkordia_kernels::transform::{
    Background, Bin, Entries, Mask, Overflow, PixelTable, Reduce, Sum, SumState, Table, Totals, Window, bin,
};
use transform_oracle::*;

const SIZES: [(usize, usize); 14] = [
    (130, 67),
    (33, 161),
    (1, 1),
    (1, 7),
    (13, 1),
    (7, 11),
    (8, 8),
    (9, 17),
    (16, 8),
    (31, 67),
    (64, 130),
    (65, 64),
    (1, 257),
    (97, 3),
];

/// A quarter turn clockwise: what was above is at the right.
fn turn_once(pixels: &[Vec<u8>], rows: usize, columns: usize) -> Vec<Vec<u8>> {
    (0..columns * rows).map(|i| pixels[(rows - 1 - i % rows) * columns + i / rows].clone()).collect()
}

fn turn_naive(pixel_bytes: usize, (mut rows, mut columns): (usize, usize), image: &[u8], orientation: Orientation) -> Vec<u8> {
    let mut pixels: Vec<Vec<u8>> = image.chunks(pixel_bytes).map(<[u8]>::to_vec).collect();
    if orientation.flip_rows {
        pixels = pixels.chunks(columns).rev().flatten().cloned().collect();
    }
    for _ in 0..orientation.rotate.deg() / 90 {
        pixels = turn_once(&pixels, rows, columns);
        (rows, columns) = (columns, rows);
    }
    pixels.concat()
}

#[test]
fn images_are_turned_and_flipped() {
    for size in SIZES {
        for pixel_bytes in [1, 2, 4, 8] {
            let image = noise(size.0 * size.1 * pixel_bytes, 3);
            for orientation in Orientation::all() {
                let expected = turn_naive(pixel_bytes, size, &image, orientation);
                for &isa in Isa::available() {
                    let mut out = vec![0xA5; image.len()];
                    orient(isa, pixel_bytes, size, &image, orientation, &mut out);
                    assert!(out == expected, "{isa} {size:?} {pixel_bytes} {orientation}");
                }
            }
        }
    }
}

#[test]
fn a_quarter_turn_by_hand() {
    let mut out = [0; 6];
    orient(Isa::detect(), 1, (2, 3), &[1, 2, 3, 4, 5, 6], Orientation { flip_rows: false, rotate: Quarter::Deg90 }, &mut out);
    assert_eq!(out, [4, 1, 5, 2, 6, 3]);
    orient(Isa::detect(), 1, (2, 3), &[1, 2, 3, 4, 5, 6], Orientation { flip_rows: true, rotate: Quarter::Deg270 }, &mut out);
    assert_eq!(out, [6, 3, 5, 2, 4, 1]);
}

#[test]
fn tiles_lie_in_an_image_and_leave_the_rest_alone() {
    let (rows, columns) = (40, 53);
    for (size, pixel_bytes) in [((9, 17), 2), ((16, 24), 4), ((1, 30), 1), ((11, 3), 8)] {
        let tile = noise(size.0 * size.1 * pixel_bytes, 9);
        for orientation in Orientation::all() {
            let (high, wide) = if orientation.is_sideways() { (size.1, size.0) } else { size };
            let turned = turn_naive(pixel_bytes, size, &tile, orientation);
            for at in [(0, 0), (3, 5), (rows - high, columns - wide)] {
                let mut expected = vec![0x77; rows * columns * pixel_bytes];
                for (row, line) in turned.chunks(wide * pixel_bytes).enumerate() {
                    expected[((at.0 + row) * columns + at.1) * pixel_bytes..][..line.len()].copy_from_slice(line);
                }
                for &isa in Isa::available() {
                    let mut image = vec![0x77; expected.len()];
                    place(isa, pixel_bytes, size, &tile, orientation, &mut image, columns, at);
                    assert!(image == expected, "{isa} {size:?} {orientation} {at:?}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "the tile lies in the image")]
fn a_tile_that_sticks_out_is_refused() {
    place(Isa::Scalar, 1, (2, 3), &[0; 6], Orientation::UPRIGHT, &mut [0; 20], 5, (3, 0));
}

#[test]
fn windows_are_cut_out() {
    for (rows, columns) in SIZES {
        for pixel_bytes in [1, 2, 4, 8] {
            let image = noise(rows * columns * pixel_bytes, 5);
            let (row, column) = (rows / 3, columns / 4);
            for window in [
                Window { row: 0, column: 0, rows, columns },
                Window { row, column, rows: 1, columns: 1 },
                Window { row, column, rows: rows - row, columns: columns - column },
                Window { row, column: 0, rows: (rows - row).div_ceil(2), columns },
            ] {
                let mut expected = Vec::new();
                for r in window.row..window.row + window.rows {
                    for c in window.column..window.column + window.columns {
                        expected.extend_from_slice(&image[(r * columns + c) * pixel_bytes..][..pixel_bytes]);
                    }
                }
                let mut out = vec![0xA5; expected.len()];
                crop(pixel_bytes, columns, &image, window, &mut out);
                assert!(out == expected, "{rows} x {columns}, {window:?}");
            }
        }
    }
    let beyond = |row, rows| Window { row, column: 0, rows, columns: 4 }.fits(10, 4);
    assert!(beyond(0, 10) && !beyond(1, 10) && !beyond(0, 0) && !beyond(usize::MAX, 2));
}

fn bin_naive(element: Element, (rows, columns): (usize, usize), image: &[u8], how: &Bin) -> Vec<u8> {
    let pixels = pixels_of(element, image);
    let to = how.element.unwrap_or(element);
    let mut out = Vec::new();
    for r in 0..rows / how.rows {
        for c in 0..columns / how.columns {
            // Down the columns first: the order in which floats are added.
            let columns_of_bin = (0..how.columns).map(|j| {
                let down = (0..how.rows).map(|i| pixels[(r * how.rows + i) * columns + c * how.columns + j]);
                down.fold(zero(element), add)
            });
            let total = columns_of_bin.fold(zero(element), add);
            let divisor = if how.reduce == Reduce::Mean { (how.rows * how.columns) as i128 } else { 1 };
            out.extend(bytes_of(to, divided(total, divisor, to), how.overflow));
        }
    }
    out
}

#[test]
fn bins_of_every_type() {
    let mut totals = Totals::default();
    for element in NUMBERS {
        for (index, to) in NUMBERS.into_iter().map(Some).chain([None]).enumerate() {
            for ((rows, columns), (high, wide)) in
                [((7, 131), (2, 2)), ((13, 200), (3, 5)), ((1, 1), (1, 1)), ((5, 64), (1, 64)), ((64, 3), (64, 1))]
            {
                for kind in 0..4 {
                    let image = image(element, rows * columns, kind, index as u64 + 1);
                    let reduce = [Reduce::Sum, Reduce::Mean][(index + kind) % 2];
                    let overflow = [Overflow::Saturated, Overflow::Clamped][index / 2 % 2];
                    let how = Bin { rows: high, columns: wide, reduce, element: to, overflow };
                    let expected = bin_naive(element, (rows, columns), &image, &how);
                    for &isa in Isa::available() {
                        let mut out = vec![0xA5; expected.len()];
                        bin::bin(isa, element, columns, &image, &how, &mut totals, &mut out);
                        assert!(
                            same(to.unwrap_or(element), &out, &expected),
                            "{isa} {element:?} {kind} {rows} x {columns} {how:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn bins_by_hand() {
    let image: Vec<u8> = [1u16, 2, 3, 65535, 65531, 4, 65534, 65535].iter().flat_map(|v| v.to_le_bytes()).collect();
    let run = |reduce, element, overflow| {
        let how = Bin { rows: 2, columns: 2, reduce, element, overflow };
        let mut out = vec![0; 2 * element.unwrap_or(Element::Uint16).bits() as usize / 8];
        bin::bin(Isa::detect(), Element::Uint16, 4, &image, &how, &mut Totals::default(), &mut out);
        out
    };
    assert_eq!(run(Reduce::Sum, None, Overflow::Saturated), [[0xFC, 0xFF], [0xFE, 0xFF]].concat(), "saturated, masked");
    assert_eq!(run(Reduce::Sum, None, Overflow::Clamped)[..2], [0xFB, 0xFF]);
    let wide = run(Reduce::Sum, Some(Element::Uint32), Overflow::Saturated);
    assert_eq!(wide, [65538u32, u32::MAX - 1].map(u32::to_le_bytes).concat());
    let mean = run(Reduce::Mean, Some(Element::Float32), Overflow::Saturated);
    assert_eq!(mean[..4], 16384.5f32.to_le_bytes());
    assert_eq!(run(Reduce::Mean, None, Overflow::Saturated)[..2], 16384u16.to_le_bytes(), "half to even");
}

#[test]
fn images_are_summed() {
    let shape = Shape::new(&[3, 7, 11]).unwrap();
    for (element, to) in
        [(Element::Uint16, Some(Element::Uint32)), (Element::Uint8, None), (Element::Int64, None), (Element::Float32, None)]
    {
        for &isa in Isa::available() {
            for reduce in [Reduce::Sum, Reduce::Mean] {
                let sum = Sum { images: 3, reduce, element: to, overflow: Overflow::Saturated };
                let mut state = SumState::new(isa, &sum, shape, element).unwrap();
                let to = state.element();
                let mut out = Vec::new();
                for (first, count) in [(0u64, 3i128), (3, 3), (6, 2)] {
                    let mut expected = vec![zero(element); 231];
                    for n in 0..count as u64 {
                        let image = image(element, 231, (first + n) as usize % 4, first + n);
                        expected.iter_mut().zip(pixels_of(element, &image)).for_each(|(sum, pixel)| *sum = add(*sum, pixel));
                        assert_eq!(state.add(&image), Ok(n == 2));
                        assert_eq!(u64::from(state.added()), n + 1);
                    }
                    state.finish(&mut out);
                    let divisor = if reduce == Reduce::Mean { count } else { 1 };
                    let expected: Vec<u8> = expected
                        .into_iter()
                        .flat_map(|sum| bytes_of(to, divided(sum, divisor, to), Overflow::Saturated))
                        .collect();
                    assert!(same(to, &out, &expected), "{isa} {element:?} {reduce:?} {first}");
                }
            }
        }
    }
}

#[test]
fn sums_that_cannot_be_made_say_why() {
    let shape = Shape::new(&[2, 2]).unwrap();
    let sum = Sum { images: 2, reduce: Reduce::Sum, element: None, overflow: Overflow::Saturated };
    let new = |sum, shape, element| SumState::new(Isa::Scalar, &sum, shape, element).err().unwrap();
    assert!(new(Sum { images: 0, ..sum }, shape, Element::Uint8).contains("choose 1 to"));
    assert!(new(sum, shape, Element::Packed(PackedBits::Twelve)).contains("unpack them first"));
    assert!(new(sum, Shape::new(&[1 << 62]).unwrap(), Element::Uint8).contains("too large"));
    let mut state = SumState::new(Isa::Scalar, &sum, shape, Element::Uint16).unwrap();
    assert!(state.add(&[0; 7]).unwrap_err().contains("7 bytes, but the sum takes images of 8 bytes"));
    let mut out = vec![1; 3];
    state.finish(&mut out);
    assert_eq!(out, [0xFF; 8], "nothing came: missing");
    assert_eq!((state.add(&[0; 8]), state.add(&[0; 8])), (Ok(false), Ok(true)));
    assert!(state.add(&[0; 8]).unwrap_err().contains("full"));
}

#[test]
fn backgrounds_are_subtracted() {
    for element in NUMBERS.into_iter().filter(|element| Background::takes(*element)) {
        for pixels in [1, 63, 64, 65, 500] {
            for kind in 0..4 {
                let image = image(element, pixels, kind, 7);
                let ints: Vec<i32> = values::<i32>(&transform_oracle::image(Element::Int32, pixels, kind, 8));
                let floats: Vec<f32> = values::<f32>(&transform_oracle::image(Element::Float32, pixels, kind, 9));
                for (which, background) in [Background::Int32(ints), Background::Float32(floats)].into_iter().enumerate() {
                    let (plane_element, plane): (_, Vec<u8>) = match &background {
                        Background::Int32(list) => (Element::Int32, list.iter().flat_map(|v| v.to_le_bytes()).collect()),
                        Background::Float32(list) => (Element::Float32, list.iter().flat_map(|v| v.to_le_bytes()).collect()),
                    };
                    let pairs = pixels_of(element, &image).into_iter().zip(pixels_of(plane_element, &plane));
                    let expected: Vec<u8> =
                        pairs.flat_map(|(a, b)| bytes_of(Element::Int32, minus(a, b), Overflow::Saturated)).collect();
                    for &isa in Isa::available() {
                        let mut out = vec![0xA5; pixels * 4];
                        subtract(isa, element, &image, &background, &mut out);
                        assert!(out == expected, "{isa} {element:?} {kind} {which} {pixels}");
                    }
                }
            }
        }
    }
}

#[test]
fn subtraction_at_the_limits_by_hand() {
    let run = |image: &[u8], element, background: Background| {
        let mut out = vec![0; background.pixels() * 4];
        Isa::available()
            .iter()
            .map(|isa| {
                subtract(*isa, element, image, &background, &mut out);
                values::<i32>(&out)
            })
            .reduce(|a, b| {
                assert_eq!(a, b);
                b
            })
            .unwrap()
    };
    let half = Background::Float32(vec![0.5, 1.5, -0.5, f32::NAN, f32::INFINITY, 0.0, 0.0]);
    let image: Vec<u8> = [3u16, 3, 3, 3, 3, 65535, 65534].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(run(&image, Element::Uint16, half), [2, 2, 4, i32::MIN, i32::MIN, i32::MIN + 2, i32::MIN]);
    let far = Background::Int32(vec![-2_147_483_392, 2_147_483_392, 0]);
    let image: Vec<u8> = [1i32, -1, 2_147_483_392].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(run(&image, Element::Int32, far), [i32::MAX, -2_147_483_392, 2_147_483_392]);
}

#[test]
fn tables_have_the_first_word() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let table = Table::new(Element::Uint16, Entries::Float32((0..1000).map(|i| i as f32 * 0.25).collect())).unwrap();
    assert_eq!((table.input(), table.output()), (Element::Uint16, Element::Float32));
    let mut out = vec![0; 65536 * 4];
    lookup(&table, &all, &mut out);
    let out = values::<f32>(&out);
    for (value, out) in out.iter().enumerate().take(65532) {
        assert_eq!(*out, if value < 1000 { value as f32 * 0.25 } else { f32::INFINITY });
    }
    assert_eq!((out[65535], out[65533], out[65532]), (f32::NEG_INFINITY, f32::MIN, f32::INFINITY));
    assert!(out[65534].is_nan());

    let full = Table::new(Element::Uint8, Entries::Uint16((0..256).map(|i| 1000 - i as u16).collect())).unwrap();
    let mut out = vec![0; 512];
    lookup(&full, &(0..=255).collect::<Vec<u8>>(), &mut out);
    assert_eq!(values::<u16>(&out), (0..256).map(|i| 1000 - i as u16).collect::<Vec<_>>());
    let wide = Table::new(Element::Uint8, Entries::Uint32(vec![7])).unwrap();
    let mut out = vec![0; 12];
    lookup(&wide, &[0, 1, 255], &mut out);
    assert_eq!(values::<u32>(&out), [7, u32::MAX - 3, u32::MAX]);

    assert!(Table::new(Element::Int16, Entries::Uint16(vec![1])).unwrap_err().contains("not int16"));
    assert!(Table::new(Element::Uint8, Entries::Uint16(vec![1; 257])).unwrap_err().contains("needs 1 to 256"));
    assert!(Table::new(Element::Uint16, Entries::Uint16(vec![])).unwrap_err().contains("0 entries"));
}

#[test]
fn each_pixel_has_its_own_table() {
    let (pixels, values) = (231, 37);
    let entries: Vec<f32> = (0..pixels * values).map(|i| i as f32 * 0.5 + 1.0).collect();
    let table = PixelTable::new(pixels, values, entries.clone()).unwrap();
    for element in NUMBERS.into_iter().filter(|element| PixelTable::takes(*element)) {
        let mut image = image(element, pixels, 0, 5);
        let bytes = element.bits() as usize / 8;
        // Values of every table and their neighbours, beside the specials that are in the image.
        for (i, pixel) in image.chunks_mut(bytes).enumerate().filter(|(i, _)| i % 5 != 0) {
            pixel.copy_from_slice(&bytes_of(element, Px::Int(i as i128 % 40), Overflow::Clamped));
        }
        let mut out = vec![0; pixels * 4];
        lookup_per_pixel(element, &table, &image, &mut out);
        for (i, (pixel, out)) in image.chunks(bytes).zip(values_of(&out)).enumerate() {
            let expected = match pixels_of(element, pixel)[0] {
                Px::Int(value) if (0..values as i128).contains(&value) => entries[i * values + value as usize],
                _ if element.name().starts_with("int") && pixel.last().is_some_and(|byte| *byte > 0x7F) => -1.0,
                _ => -2.0,
            };
            assert_eq!(out, expected, "{element:?} {i}");
        }
    }
    assert!(!PixelTable::takes(Element::Float32));
    for (pixels, values, has) in [(2, 3, 5), (0, 3, 0), (3, 0, 0), (usize::MAX, 2, 4)] {
        assert!(PixelTable::new(pixels, values, vec![0.0; has]).unwrap_err().contains("does not fit"), "{pixels} {values}");
    }
}

fn values_of(bytes: &[u8]) -> Vec<f32> {
    values(bytes)
}

#[test]
fn rectangles_become_minus_one_or_masked() {
    let (rows, columns) = (11, 21);
    let window = Window { row: 2, column: 5, rows: 4, columns: 16 };
    for element in NUMBERS {
        let before = image(element, rows * columns, 3, 1);
        let mut after = before.clone();
        mask_rectangle(element, columns, window, &mut after);
        let bytes = element.bits() as usize / 8;
        for (i, (before, after)) in before.chunks(bytes).zip(after.chunks(bytes)).enumerate() {
            let (row, column) = (i / columns, i % columns);
            let expected = match ((2..6).contains(&row) && column >= 5, element) {
                (false, _) => before.to_vec(),
                (true, Element::Uint8 | Element::Uint16 | Element::Uint32 | Element::Uint64) => {
                    bytes_of(element, Px::Special("masked"), Overflow::Saturated)
                }
                (true, Element::Float32) => (-1f32).to_le_bytes().to_vec(),
                (true, Element::Float64) => (-1f64).to_le_bytes().to_vec(),
                (true, _) => vec![0xFF; bytes],
            };
            assert_eq!(after, expected, "{element:?} {i}");
        }
    }
}

#[test]
fn masks_set_what_is_of_no_use() {
    let plane: Vec<bool> = (0..231).map(|i| i % 7 == 0 || (50..80).contains(&i) || i == 230).collect();
    let of_no_use = Mask::new(plane.iter().copied());
    assert_eq!((of_no_use.pixels(), of_no_use.masked()), (231, plane.iter().filter(|is| **is).count()));
    for element in NUMBERS {
        let before = image(element, 231, 3, 1);
        let mut after = before.clone();
        mask(element, &of_no_use, &mut after);
        let bytes = element.bits() as usize / 8;
        for (i, (before, after)) in before.chunks(bytes).zip(after.chunks(bytes)).enumerate() {
            let expected = if plane[i] { bytes_of(element, Px::Special("masked"), Overflow::Saturated) } else { before.to_vec() };
            assert_eq!(after, expected, "{element:?} {i}");
        }
    }
    assert_eq!(Mask::new([false; 5]).masked(), 0);
}

#[test]
fn packed_pixels_are_unpacked() {
    for (bits, pixels) in PackedBits::ALL.into_iter().flat_map(|bits| (0..300).chain([4095, 4096, 4097]).map(move |n| (bits, n)))
    {
        let count = bits.count() as usize;
        let packed = noise((pixels * count).div_ceil(8), pixels as u64 + 3);
        assert_eq!(packed.len(), bits.bytes(pixels));
        let bit = |i: usize| u16::from(packed[i / 8] >> (i % 8) & 1);
        let expected: Vec<u16> = (0..pixels).map(|p| (0..count).map(|i| bit(count * p + i) << i).sum()).collect();
        for &isa in Isa::available() {
            let mut out = vec![0xA5; pixels * bits.unpacked().bits() as usize / 8];
            unpack(isa, bits, &packed, &mut out);
            let out = if bits == PackedBits::Four { out.iter().map(|n| u16::from(*n)).collect() } else { values::<u16>(&out) };
            assert_eq!(out, expected, "{isa} {bits:?} {pixels}");
        }
    }
}

#[test]
fn types_are_converted() {
    for from in NUMBERS {
        for to in NUMBERS {
            for (kind, overflow) in
                [(0, Overflow::Saturated), (1, Overflow::Clamped), (2, Overflow::Saturated), (3, Overflow::Clamped)]
            {
                let image = image(from, 300, kind, 11);
                let expected: Vec<u8> = pixels_of(from, &image).into_iter().flat_map(|p| bytes_of(to, p, overflow)).collect();
                for &isa in Isa::available() {
                    let mut out = vec![0xA5; expected.len()];
                    convert(isa, from, &image, to, overflow, &mut out);
                    assert!(same(to, &out, &expected), "{isa} {from:?} to {to:?}, {kind}");
                }
            }
        }
    }
}
