//! Each function, with each instruction set, against a naive one.

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

/// Rows of pixels of which some are special, a few large and the others small; and which are usable.
fn image<P: Measured>(rows: usize, columns: usize, random: &mut Random) -> (Vec<P>, Vec<u8>) {
    let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX, P::from_count(1 << 24)];
    let rarity = [3, 40, 100_000][random.below(3) as usize];
    let pixel = |random: &mut Random| match random.below(rarity) {
        0 => special[random.below(special.len() as u64) as usize],
        1 => P::from_photons(random.below(40_000) as f32 - 9000.0),
        _ => P::from_photons(random.below(6) as f32 * 1.25),
    };
    let pixels = (0..rows * columns).map(|_| pixel(random)).collect();
    let usable = (0..rows * columns).map(|_| u8::from(random.below(rarity) != 0)).collect();
    (pixels, usable)
}

/// The rows under a window, as they lie in memory.
struct Lines<V> {
    values: Vec<V>,
    flags: Vec<u8>,
    large: Vec<u8>,
}

fn loaded<P: Measured, V: Value>(isa: Isa, (pixels, usable): &(Vec<P>, Vec<u8>), columns: usize, limit: i32) -> Lines<V> {
    let (length, rows, blocks) = (padded(columns), pixels.len() / columns, columns.div_ceil(BLOCK));
    let (values, flags, large) = (vec![V::default(); rows * length], vec![0; rows * length], vec![0; rows * blocks]);
    let mut lines = Lines { values, flags, large };
    let from = P::from_count(1 << 24);
    let range = Range {
        low: P::VALID_MIN,
        high: P::VALID_MAX,
        uncounted_from: from.is_number().then_some(from),
        small_min: V::lowest(limit),
        small_max: V::highest(limit),
    };
    for row in 0..rows {
        let (pixels, usable) = (&pixels[row * columns..][..columns], &usable[row * columns..][..columns]);
        let line = row * length + PAD..(row + 1) * length - PAD;
        let large = &mut lines.large[row * blocks..][..blocks];
        load(isa, pixels, usable, range, &mut lines.values[line.clone()], &mut lines.flags[line], large);
    }
    lines
}

fn check_load<P: Measured, V: Value>(image: &(Vec<P>, Vec<u8>), columns: usize, limit: i32, lines: &Lines<V>) {
    let (length, blocks) = (padded(columns), columns.div_ceil(BLOCK));
    let mut large = vec![0; lines.large.len()];
    for (n, (pixel, usable)) in image.0.iter().zip(&image.1).enumerate() {
        let (row, column) = (n / columns, n % columns);
        let is_valid = *usable == 1 && pixel.is_number();
        let counts = is_valid && pixel.to_f64() < f64::from(1 << 24);
        let at = row * length + PAD + column;
        let expected = if counts { (pixel.to_f64(), 1) } else { (0.0, u8::from(is_valid) * 2) };
        assert_eq!((lines.values[at].wide(), lines.flags[at]), expected, "{pixel:?}");
        let is_large = !V::IS_WHOLE || lines.values[at].wide().abs() > f64::from(limit);
        large[row * blocks + column / BLOCK] |= u8::from(is_large);
    }
    assert_eq!(large, lines.large);
}

/// Window of `half` around a place: number, sum, sum of squares of what counts.
fn around<V: Value>(lines: &Lines<V>, length: usize, half: [usize; 2], place: [usize; 2]) -> (usize, f64, f64) {
    let mut sums = (0, 0.0, 0.0);
    for row in place[0] - half[0]..=place[0] + half[0] {
        for column in place[1] - half[1]..=place[1] + half[1] {
            let value = lines.values[row * length + column].wide();
            sums.0 += usize::from(lines.flags[row * length + column] & 1);
            sums.1 += value;
            sums.2 += value * value;
        }
    }
    sums
}

/// The middle row of the image, from sums that slid down to it.
fn check_row<P: Measured, V: Value>(half: [usize; 2], columns: usize, random: &mut Random) {
    let (length, blocks) = (padded(columns), columns.div_ceil(BLOCK));
    // One row comes and goes before.
    let rows = 2 * half[0] + 2;
    let image = image::<P>(rows, columns, random);
    let bound = Bound::new(half[0], half[1], 2 + random.below(3) as usize, 1.5, 1.0);
    let marks: Vec<u8> = (0..rows * length).map(|_| u8::from(random.below(2) == 1)).collect();
    let mut first: Option<Vec<u8>> = None;
    for &isa in Isa::available() {
        let lines = loaded::<P, V>(isa, &image, columns, bound.small_max());
        check_load(&image, columns, bound.small_max(), &lines);
        let line = |row: usize| (&lines.values[row * length..][..length], &lines.flags[row * length..][..length]);
        let (zero, none) = (vec![V::default(); length], vec![0; length]);
        let mut sums = Columns::new(columns);
        (0..rows).for_each(|row| slide(isa, line(row), (&zero, &none), &mut sums));
        slide(isa, (&zero, &none), line(0), &mut sums);
        let slots: Vec<usize> = (1..rows).collect();
        let is_large = |block: usize| (1..rows).any(|row| lines.large[row * blocks + block] != 0);
        let near = |block: usize| (block.saturating_sub(1)..(block + 2).min(blocks)).any(is_large);
        let is_wide: Vec<u8> = (0..blocks).map(|block| u8::from(near(block))).collect();
        let middle = half[0] + 1;
        let mut above = vec![7; length];
        let window = Window { values: &lines.values, length, slots: &slots };
        let row = Row { is_wide: &is_wide, flags: line(middle).1, masked: 5, above: &mut above };
        disperse(isa, window, &mut sums, &bound, row);
        for column in 0..columns {
            let (count, sum, squares) = around(&lines, length, half, [middle, PAD + column]);
            let is_masked = line(middle).1[PAD + column] == 0;
            let expected = if is_masked { 5 } else { u8::from(bound.is_above(count, sum, squares)) };
            let context = format!("{:?} {half:?} column {column} of {columns} {isa}: {count} {sum} {squares}", P::TYPE);
            // Sums of floats may be rounded otherwise here.
            let is_close = !V::IS_WHOLE && squares > 1e9;
            assert!(is_close || above[PAD + column] == expected, "{context}");
        }
        assert_eq!(first.get_or_insert_with(|| above.clone()), &above, "{isa}: other results than {}", Isa::Scalar);
        let background = sum_background(isa, &lines, &marks, columns);
        let naive = naive_background(&lines, &marks, columns);
        assert_eq!(background.counts[PAD..length - PAD], naive.counts[PAD..length - PAD]);
        assert_eq!(background.sums[PAD..length - PAD], naive.sums[PAD..length - PAD]);
    }
}

fn sum_background<V: Value>(isa: Isa, lines: &Lines<V>, marks: &[u8], columns: usize) -> Columns {
    let length = padded(columns);
    let line = |row: usize| (&lines.values[row * length..][..length], &marks[row * length..][..length]);
    let mut sums = Columns::new(columns);
    slide_background(isa, line(0), (&vec![V::default(); length], &vec![0; length]), &mut sums);
    slide_background(isa, line(1), line(0), &mut sums);
    slide_background(isa, line(2), (&vec![V::default(); length], &vec![0; length]), &mut sums);
    sums
}

fn naive_background<V: Value>(lines: &Lines<V>, marks: &[u8], columns: usize) -> Columns {
    let length = padded(columns);
    let mut sums = Columns::new(columns);
    for n in 0..length {
        for at in [length + n, 2 * length + n] {
            sums.counts[n] += marks[at];
            sums.sums[n] = sums.sums[n].wrapping_add(if marks[at] == 1 { lines.values[at].whole() } else { 0 });
        }
    }
    sums
}

#[test]
fn every_path_equals_naive_sums() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for columns in [1, 2, 31, 32, 33, 64, 95, 201] {
        for half in [[1, 1], [3, 3], [2, 5], [7, 4], [1, 7], [4, 2], [5, 6]] {
            check_row::<i16, i32>(half, columns, &mut random);
            check_row::<u16, i32>(half, columns, &mut random);
            check_row::<i32, i32>(half, columns, &mut random);
            check_row::<u32, i32>(half, columns, &mut random);
            check_row::<f32, f32>(half, columns, &mut random);
        }
    }
}

#[test]
fn every_path_shrinks_regions_alike() {
    let mut random = Random(88_172_645_463_325_252);
    for columns in [1, 2, 31, 32, 33, 64, 95, 201] {
        for reach in 0..5 {
            let (length, rows) = (padded(columns), 2 * reach + 1);
            let rarity = 2 + random.below(200);
            let above: Vec<u8> = (0..rows * length).map(|_| u8::from(random.below(rarity) != 0)).collect();
            let flags: Vec<u8> = (0..length).map(|_| random.below(3) as u8).collect();
            let slots: Vec<usize> = (0..rows).collect();
            for &isa in Isa::available() {
                let (mut inner, mut back) = (vec![0; length], vec![0; length]);
                let any = erode(isa, &above, length, &slots, &flags, &mut inner, &mut back);
                let end = length - PAD;
                for n in PAD..end {
                    let mut around = slots.iter().flat_map(|slot| &above[slot * length + n - reach..=slot * length + n + reach]);
                    let all = around.all(|above| *above == 1);
                    let expected = (u8::from(all && flags[n] != 0), u8::from(!all && flags[n] == 1));
                    assert_eq!((inner[n], back[n]), expected, "column {n} of {length}, reach {reach}, {isa}");
                }
                assert_eq!(any, inner.contains(&1));
            }
        }
    }
}

#[test]
fn whole_sums_are_right_again_after_large_values() {
    let columns = 40;
    let length = padded(columns);
    for &isa in Isa::available() {
        let mut sums = Columns::new(columns);
        let (zero, none, all) = (vec![0i32; length], vec![0u8; length], vec![1u8; length]);
        let large = vec![16_777_215; length];
        let small = vec![-3; length];
        (0..9).for_each(|_| slide(isa, (&large, &all), (&zero, &none), &mut sums));
        slide(isa, (&small, &all), (&zero, &none), &mut sums);
        (0..9).for_each(|_| slide(isa, (&zero, &none), (&large, &all), &mut sums));
        assert_eq!((sums.counts[7], sums.sums[7], sums.squares[7]), (1, -3, 9));
    }
}

#[test]
fn every_path_adds_the_pixels_that_count() {
    let mut random = Random(77);
    for length in [0, 1, 7, 8, 9, 15, 16, 17, 64, 65, 1000, 1001] {
        let flags: Vec<u8> = (0..length).map(|_| random.below(3) as u8).collect();
        let value = |flag: &u8, random: &mut Random| if *flag == 1 { random.below(1 << 25) as i32 - (1 << 24) } else { 0 };
        let whole: Vec<i32> = flags.iter().map(|flag| value(flag, &mut random)).collect();
        let float: Vec<f32> = whole.iter().map(|value| *value as f32 * 0.37).collect();
        let count = flags.iter().filter(|flag| **flag == 1).count() as u64;
        let sum = whole.iter().map(|value| i64::from(*value)).sum::<i64>() as f64;
        let naive = float.iter().map(|value| f64::from(*value)).sum::<f64>();
        let of_scalar = add(Isa::Scalar, &float, &flags);
        for &isa in Isa::available() {
            assert_eq!(add(isa, &whole, &flags), (count, sum), "{isa}, {length}");
            let (counted, sum) = add(isa, &float, &flags);
            assert_eq!((counted, sum.to_bits()), (count, of_scalar.1.to_bits()), "{isa}, {length}");
            assert!((sum - naive).abs() <= 1e-9 * (1.0 + naive.abs()) + 1e-6, "{isa}, {length}");
        }
    }
}
