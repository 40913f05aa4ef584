//! SZ3 streams: no valid pixel moves further than asked, no special value moves at all, and no bytes make the decoder
//! panic. tests/e2e/test_repack.py tests with whole files that the stock plugin decodes the same.

use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_core::plan::ErrorBound;
use konkordia_kernels::sz3::{self, Encoder, Loss};
use konkordia_kernels::{ElementSize, bitshuffle};
use proptest::prelude::*;

fn element(pixel: PixelType) -> ElementSize {
    if pixel.bytes() == 2 { ElementSize::Two } else { ElementSize::Four }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A background that changes over the image, spots, and special values, more of everything with `kind`.
fn image(pixel: PixelType, rows: usize, columns: usize, kind: u64) -> Vec<u8> {
    let mut random = Random(rows as u64 * 1_000_003 + columns as u64 * 7919 + kind);
    let s = pixel.special();
    let specials = [s.missing, s.masked, s.invalid, s.saturated, s.valid_min, s.valid_max];
    let mut out = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let mean = [0.3, 4.0, 300.0, 20_000.0][kind as usize % 4] * (1.0 + (row + column) as f64 / 300.0);
            let noise = (random.below(1000) as f64 / 500.0 - 1.0) * (mean + 0.3).sqrt() * 1.7;
            let mut v = if random.below(200) == 0 { mean * 50.0 } else { mean + noise };
            if pixel != PixelType::Float32 {
                v = v.round();
            }
            if kind > 0 && (random.below(30) == 0 || row == 3 || column / 8 == 2) {
                v = specials[random.below(6) as usize];
            } else {
                v = v.clamp(s.valid_min, s.valid_max);
            }
            out.extend(pixel.le_bytes(v));
        }
    }
    out
}

/// Encodes and decodes, checks every pixel against the promise in the slow and plain way, and compares the report.
fn check(pixel: PixelType, rows: usize, columns: usize, image: &[u8], bound: f64, negative_is_exact: bool) -> (Vec<u8>, Loss) {
    let mut encoder = Encoder::new(pixel, rows, columns, ErrorBound::new(bound).unwrap(), negative_is_exact);
    let mut chunk = Vec::new();
    let loss = encoder.encode(image, &mut chunk);
    let mut out = vec![0xA5; image.len()];
    sz3::decompress(&chunk, element(pixel), &mut out).unwrap();
    let s = pixel.special();
    let (mut changed, mut worst, mut before, mut after) = (0, 0f64, 0.0, 0.0);
    for (a, b) in image.chunks(pixel.bytes()).zip(out.chunks(pixel.bytes())) {
        let (x, y) = (number(pixel, a), number(pixel, b));
        let valid = |v: f64| v >= s.valid_min && v <= s.valid_max;
        if !valid(x) || (negative_is_exact && x < 0.0) {
            assert_eq!(a, b, "{pixel}: a special value changed");
        }
        if valid(x) {
            assert!(valid(y) && (x - y).abs() <= bound, "{pixel}: {x} became {y}, bound {bound}");
            worst = worst.max((x - y).abs());
            before += x;
            after += y;
        }
        changed += u64::from(a != b);
    }
    let said = (loss.pixels_changed, loss.error_max, loss.sum_before, loss.sum_after);
    assert_eq!(said, (changed, worst, before, after), "the report");
    (chunk, loss)
}

fn number(pixel: PixelType, bytes: &[u8]) -> f64 {
    match pixel {
        PixelType::Int16 => i16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        PixelType::Int32 => i32::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        PixelType::Uint16 => u16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        PixelType::Uint32 => u32::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        PixelType::Float32 => f32::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        other => unreachable!("{other} is not tested"),
    }
}

#[test]
fn the_bound_holds_and_special_values_stay() {
    for pixel in PixelType::CONVERTED {
        for (rows, columns) in [(64, 96), (33, 65), (512, 34), (5, 4), (1, 40), (257, 129)] {
            for kind in 0..4 {
                let image = image(pixel, rows, columns, kind);
                for bound in [0.25, 1.0, 2.0, 17.5] {
                    let (_, loss) = check(pixel, rows, columns, &image, bound, kind == 2);
                    assert_eq!(loss.lossless, rows == 1, "{pixel} {rows} x {columns}: no block edge fits one row");
                }
            }
        }
    }
}

#[test]
fn a_larger_bound_gives_a_smaller_stream() {
    let image = image(PixelType::Int16, 512, 512, 1);
    let sizes = [0.5, 1.0, 2.0, 4.0].map(|bound| check(PixelType::Int16, 512, 512, &image, bound, false).0.len());
    assert!(sizes.windows(2).all(|pair| pair[1] < pair[0]), "{sizes:?}");
    // With whole numbers a bound below 1 allows no change.
    assert_eq!(check(PixelType::Int16, 512, 512, &image, 0.5, false).1.pixels_changed, 0);
}

#[test]
fn images_of_one_value_and_of_special_values_only() {
    for pixel in PixelType::CONVERTED {
        for v in [0.0, 7.0, pixel.special().missing, pixel.special().valid_max, pixel.special().valid_min] {
            let image = pixel.le_bytes(v).repeat(64 * 70);
            let (chunk, loss) = check(pixel, 64, 70, &image, 2.0, false);
            assert!(
                chunk.len() < 400 && (loss.pixels_changed == 0 || pixel == PixelType::Float32),
                "{pixel} {v}: {} bytes",
                chunk.len()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_image(which in 0usize..5, rows in 5usize..70, columns in 5usize..70, seed in any::<u64>(), spread in 0u32..40, bound in 0.01f64..50.0) {
        let pixel = PixelType::CONVERTED[which];
        let mut random = Random(seed | 1);
        let bits = |r: &mut Random| (r.next() as u32 >> (31 - spread.min(31))).wrapping_sub(if spread > 31 { 1 << 30 } else { 0 });
        let image: Vec<u8> =
            (0..rows * columns).flat_map(|_| bits(&mut random).to_le_bytes()[..pixel.bytes()].to_vec()).collect();
        check(pixel, rows, columns, &image, bound, seed % 2 == 0);
    }

    #[test]
    fn damaged_streams_get_an_answer(at in 0usize..4000, byte in any::<u8>(), cut in 0usize..4000) {
        let image = image(PixelType::Int16, 64, 64, 1);
        let mut chunk = check(PixelType::Int16, 64, 64, &image, 1.0, false).0;
        let at = at % chunk.len();
        chunk[at] = byte;
        let mut out = vec![0; image.len()];
        let _ = sz3::decompress(&chunk, ElementSize::Two, &mut out);
        let cut = cut % chunk.len();
        prop_assert!(sz3::decompress(&chunk[..cut], ElementSize::Two, &mut out).is_err());
    }
}

/// The body behind Zstd, damaged: streams that decompress, but say nonsense.
#[test]
fn damaged_bodies_get_an_answer() {
    let image = image(PixelType::Int32, 40, 50, 1);
    let chunk = check(PixelType::Int32, 40, 50, &image, 1.0, false).0;
    let length = u64::from_le_bytes(chunk[..8].try_into().unwrap()) as usize;
    let frame = zstd_safe::find_frame_compressed_size(&chunk[8..]).unwrap();
    let mut body = vec![0; length];
    assert_eq!(zstd_safe::decompress(&mut body[..], &chunk[8..8 + frame]), Ok(length));
    let mut random = Random(9);
    let mut out = vec![0; image.len()];
    let mut refused = 0;
    for n in 0..4000 {
        let mut bad = body.clone();
        // First every byte of the head, then anywhere.
        let at = if n < 300 { n } else { random.below(length as u64) as usize };
        bad[at] = if n % 3 == 0 { 0xFF } else { random.next() as u8 };
        if n % 5 == 0 {
            bad.truncate(random.below(length as u64) as usize);
        }
        let mut packed = vec![0; zstd_safe::compress_bound(bad.len())];
        let written = zstd_safe::compress(&mut packed[..], &bad, 1).unwrap();
        let stream = [&(bad.len() as u64).to_le_bytes()[..], &packed[..written], &chunk[8 + frame..]].concat();
        refused += u64::from(sz3::decompress(&stream, ElementSize::Four, &mut out).is_err());
    }
    assert!(refused > 1000, "{refused}");
}

/// On photons: the stream is smaller than what any lossless codec gives (`cargo test -- --nocapture` prints by how
/// much).
#[test]
fn photons_shrink() {
    let image = image(PixelType::Int16, 512, 1024, 0);
    let (chunk, loss) = check(PixelType::Int16, 512, 1024, &image, 1.0, false);
    let mut planes = vec![0; image.len()];
    bitshuffle::shuffle(konkordia_kernels::Isa::Scalar, ElementSize::Two, &image, &mut planes);
    let lossless = zstd_safe::compress_bound(planes.len());
    let mut packed = vec![0; lossless];
    let lossless = zstd_safe::compress(&mut packed[..], &planes, 3).unwrap();
    println!("{} bytes, {lossless} without loss; {loss:?}", chunk.len());
    assert!(chunk.len() * 2 < lossless);
}
