use super::*;
use crate::series::rules::sum::Sum;
use konkordia_core::image::ImageTimes;
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_kernels::transform::{UnpackScratch, unpack};
use konkordia_sim::rng::Rng;

/// The rule and the pixels together.
struct Sums {
    rule: Sum,
    summer: Summer,
}

impl Sums {
    fn new(frames: u32, missing: MissingPolicy, compression: Compression) -> Self {
        Self { rule: Sum::new(frames, missing), summer: Summer::new(frames, compression) }
    }

    fn added(&self) -> u32 {
        self.rule.frames()
    }

    fn reset(&mut self) {
        self.rule.reset();
        self.summer.reset();
    }

    /// Adds an image. Returns the sum, if that was its last one.
    fn add(&mut self, frame: &CommittedImage) -> Option<CommittedImage> {
        if self.rule.add(frame) && !self.summer.add(frame) {
            self.rule.no_pixels();
        }
        let (mut sum, has_blanks) = self.rule.take()?;
        self.summer.finish(&mut sum, has_blanks);
        Some(sum)
    }
}

/// The numbers in bytes; exact for the types that are used here.
fn numbers(pixel: PixelType, bytes: &[u8]) -> Vec<f64> {
    let int = |bytes: &[u8]| {
        let unsigned = bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let bits = 8 * bytes.len() as u32;
        if pixel.is_unsigned() { unsigned as f64 } else { ((unsigned << (64 - bits)) as i64 >> (64 - bits)) as f64 }
    };
    let one = |bytes: &[u8]| match pixel {
        PixelType::Float32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        _ => int(bytes),
    };
    bytes.chunks_exact(pixel.bytes()).map(one).collect()
}

/// Precedence of a special value over others; 0 for a number.
fn rank(pixel: PixelType, value: f64) -> usize {
    let s = pixel.special();
    let is_it = |special: f64| value == special || (value.is_nan() && special.is_nan());
    [s.masked, s.missing, s.invalid, s.saturated].iter().position(|special| is_it(*special)).map_or(0, |n| 4 - n)
}

/// The sum of pixels, one by one.
fn naive(from: PixelType, to: PixelType, pixels: &[f64]) -> f64 {
    let s = to.special();
    let special = [0.0, s.saturated, s.invalid, s.missing, s.masked];
    match pixels.iter().map(|pixel| rank(from, *pixel)).max().unwrap() {
        0 => {
            let sum = pixels.iter().sum::<f64>();
            let sum = if to == PixelType::Float32 { f64::from(sum as f32) } else { sum };
            if sum > s.valid_max { s.saturated } else { sum.max(s.valid_min) }
        }
        winner => special[winner],
    }
}

fn image(rng: &mut Rng, element: Element, pieces: usize, channels: usize) -> CommittedImage {
    let pixel = element.pixel().unwrap();
    let s = pixel.special();
    let shape = Shape::new(&[6, 5]).unwrap();
    let value = |rng: &mut Rng| match rng.below(60) {
        0 => s.missing,
        1 => s.masked,
        2 => s.invalid,
        3 => s.saturated,
        4 => s.valid_max.min(4e18),
        _ => rng.below(200) as f64,
    };
    let piece = |rng: &mut Rng| -> Bytes { (0..30 / pieces).flat_map(|_| pixel.le_bytes(value(rng))).collect::<Vec<_>>().into() };
    let channel = |rng: &mut Rng, n: usize| {
        let pieces = (0..pieces).map(|_| piece(rng)).collect();
        Channel { name: format!("c{n}").into(), array: Array { shape, element, packing: Packing::None, pieces } }
    };
    CommittedImage {
        status: ImageStatus::Complete,
        channels: (0..channels).map(|n| channel(rng, n)).collect(),
        ..CommittedImage::lost(0)
    }
}

fn unpacked(array: &Array) -> Vec<f64> {
    let mut scratch = UnpackScratch::new(Isa::Scalar);
    let bytes = array.unpacked_bytes() as usize / array.pieces.len();
    let piece = |piece: &Bytes| {
        let mut out = vec![0; bytes];
        unpack::array(array.packing, array.element, piece, &mut out, &mut scratch).unwrap();
        numbers(array.element.pixel().unwrap(), &out)
    };
    array.pieces.iter().flat_map(piece).collect()
}

#[test]
fn sums_are_those_of_naive_code_for_all_types_channels_and_pieces() {
    for seed in 0..48u64 {
        let mut rng = Rng::new(seed);
        let types = [Element::Uint8, Element::Int8, Element::Uint16, Element::Int16, Element::Uint32, Element::Float32];
        let (element, frames) = (types[seed as usize % 6], 2 + rng.below(5) as u32);
        let (pieces, channels) = ([1, 2, 3][rng.below(3) as usize], 1 + rng.below(3) as usize);
        let compression = [Compression::None, Compression::BSLZ4, Compression::LZ4][rng.below(3) as usize];
        let mut summer = Sums::new(frames, MissingPolicy::Keep, compression);
        for number in 0..5 {
            // A sum without the image that is lost is missing all over, but for masked pixels.
            let lost = if number % 2 == 1 { rng.below(u64::from(frames)) as u32 } else { u32::MAX };
            let mut added: Vec<CommittedImage> = Vec::new();
            for n in 0..frames {
                let frame = if n == lost { CommittedImage::lost(0) } else { image(&mut rng, element, pieces, channels) };
                let sum = summer.add(&frame);
                added.push(frame);
                assert_eq!((sum.is_some(), summer.added()), (n + 1 == frames, (n + 1) % frames));
                let Some(sum) = sum else { continue };
                assert_eq!((sum.number, sum.status == ImageStatus::Complete), (number, lost == u32::MAX));
                let (from, to) = (element.pixel().unwrap(), sum_element(element, frames).pixel().unwrap());
                assert_eq!(sum.channels.len(), channels);
                for (c, channel) in sum.channels.iter().enumerate() {
                    let array = &channel.array;
                    assert_eq!((&*channel.name, array.pieces.len()), (&*format!("c{c}"), pieces));
                    assert_eq!((array.packing, array.element.pixel()), (compression.packing(), Some(to)));
                    let frame = |frame: &CommittedImage| match frame.channels.get(c) {
                        Some(channel) => unpacked(&channel.array),
                        None => vec![from.special().missing; 30],
                    };
                    let all: Vec<Vec<f64>> = added.iter().map(frame).collect();
                    let expected = (0..30).map(|i| naive(from, to, &all.iter().map(|frame| frame[i]).collect::<Vec<_>>()));
                    let is_same = |(a, b): (f64, f64)| a == b || (a.is_nan() && b.is_nan());
                    assert!(unpacked(array).into_iter().zip(expected).all(is_same), "seed {seed} sum {number}");
                }
            }
        }
    }
}

#[test]
fn states_times_and_headers_of_a_sum() {
    let frame = |status: ImageStatus, n: u64| {
        let mut rng = Rng::new(n);
        let is_there = status != ImageStatus::Lost;
        let channels = if status.has_pixels() { image(&mut rng, Element::Uint16, 1, 1).channels } else { Vec::new() };
        CommittedImage {
            status,
            channels,
            store: n != 7,
            times: is_there.then(|| ImageTimes { start_ns: 100 * n, stop_ns: 100 * n + 90, real_ns: 80 }),
            header_json: if is_there { format!("{{\"n\":{n}}}").into() } else { Bytes::new() },
            received_ns: if is_there { 1000 + n } else { 0 },
            missing_parts: if status == ImageStatus::Complete { 0 } else { 1 << n },
            ..CommittedImage::lost(99)
        }
    };
    use ImageStatus::{Complete as C, Discarded as D, Lost as L, Partial as P};
    let add = |missing: MissingPolicy, states: [ImageStatus; 3]| {
        let mut summer = Sums::new(3, missing, Compression::None);
        // A sum that was begun before the reset has no effect.
        assert!(summer.add(&frame(C, 1)).is_none());
        summer.reset();
        let sums = states.iter().zip(2..).map(|(state, n)| summer.add(&frame(*state, n)));
        let sum = sums.last().unwrap().unwrap();
        assert_eq!((sum.number, sum.status.has_pixels()), (0, !sum.channels.is_empty()));
        assert_eq!((summer.added(), summer.add(&frame(C, 5)).is_none()), (0, true));
        sum
    };
    let all = [([C, C, C], C, C), ([L, L, L], L, L), ([L, C, C], P, D), ([C, P, C], P, D), ([C, C, L], P, D), ([C, D, L], D, D)];
    for (states, kept, else_) in all {
        assert_eq!(add(MissingPolicy::Keep, states).status, kept, "{states:?}");
        assert_eq!(add(MissingPolicy::Discard, states).status, else_, "{states:?}");
        assert_eq!(add(MissingPolicy::CompleteOnly, states).status, else_, "{states:?}");
    }
    let sum = add(MissingPolicy::Keep, [L, P, C]);
    assert_eq!(sum.times, Some(ImageTimes { start_ns: 300, stop_ns: 490, real_ns: 160 }));
    assert_eq!((&sum.header_json[..], sum.received_ns, sum.missing_parts), (&b"{\"n\":3}"[..], 1003, 0b1100));
    assert!(sum.store && add(MissingPolicy::Keep, [L, L, L]).times.is_none());
    let mut summer = Sums::new(2, MissingPolicy::Keep, Compression::None);
    assert!(summer.add(&frame(C, 6)).is_none());
    assert!(!summer.add(&frame(C, 7)).unwrap().store, "one of them is not to be stored");
}

#[test]
fn pixels_of_another_form_are_missing_and_a_new_series_may_have_them() {
    let mut rng = Rng::new(3);
    let (narrow, wide) = (image(&mut rng, Element::Uint16, 1, 1), image(&mut rng, Element::Uint32, 1, 1));
    let mut summer = Sums::new(2, MissingPolicy::Keep, Compression::None);
    assert!(summer.add(&narrow).is_none());
    let sum = summer.add(&wide).unwrap();
    assert_eq!(sum.status, ImageStatus::Partial);
    let is_special = |value: f64| rank(PixelType::Uint32, value) >= 3;
    assert!(unpacked(&sum.channels[0].array).into_iter().all(is_special));
    assert!(summer.add(&wide).is_none() && summer.add(&wide).unwrap().status == ImageStatus::Complete);
}

#[test]
fn types_of_sums_hold_every_sum_of_narrow_pixels() {
    let of = |element, frames| sum_element(element, frames);
    assert_eq!(
        (of(Element::Uint8, 1), of(Element::Uint8, 260), of(Element::Uint8, 261)),
        (Element::Uint8, Element::Uint16, Element::Uint32)
    );
    assert_eq!(
        (of(Element::Int16, 2), of(Element::Uint32, 2), of(Element::Float32, 9)),
        (Element::Int32, Element::Uint32, Element::Float32)
    );
    for element in [Element::Uint8, Element::Int8, Element::Uint16, Element::Int16] {
        for frames in [2, 260, 261, 1000] {
            let (from, to) = (element.pixel().unwrap().special(), of(element, frames).pixel().unwrap().special());
            let frames = f64::from(frames);
            assert!(from.valid_max * frames <= to.valid_max && from.valid_min * frames >= to.valid_min, "{element:?} {frames}");
        }
    }
}
