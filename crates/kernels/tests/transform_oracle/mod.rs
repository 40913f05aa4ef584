//! A slow reference that treats pixels of any type as numbers, and images that hold every kind of value.
#![allow(dead_code)] // Each test program uses a part.

use konkordia_core::array::Element;
use konkordia_kernels::transform::Overflow;

/// All types with numbers.
pub const NUMBERS: [Element; 10] = [
    Element::Uint8,
    Element::Uint16,
    Element::Uint32,
    Element::Uint64,
    Element::Int8,
    Element::Int16,
    Element::Int32,
    Element::Int64,
    Element::Float32,
    Element::Float64,
];

/// One pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Px {
    Special(&'static str),
    Int(i128),
    Float(f64),
}

/// Lowest and highest number of integer types, and whether they are signed.
fn limits(element: Element) -> (i128, i128, bool) {
    match element {
        Element::Uint8 => (0, 255, false),
        Element::Uint16 => (0, 65535, false),
        Element::Uint32 => (0, (1 << 32) - 1, false),
        Element::Uint64 => (0, (1 << 64) - 1, false),
        Element::Int8 => (-128, 127, true),
        Element::Int16 => (-32768, 32767, true),
        Element::Int32 => (-(1 << 31), (1 << 31) - 1, true),
        Element::Int64 => (-(1 << 63), (1 << 63) - 1, true),
        _ => panic!("{element:?} is no integer"),
    }
}

/// The special values of an integer type by name.
fn specials(element: Element) -> [(&'static str, i128); 4] {
    let (min, max, is_signed) = limits(element);
    if is_signed {
        [("masked", min), ("invalid", min + 1), ("missing", min + 2), ("saturated", max)]
    } else {
        [("missing", max), ("masked", max - 1), ("invalid", max - 2), ("saturated", max - 3)]
    }
}

/// Lowest and highest valid number of an integer type.
fn valid(element: Element) -> (i128, i128) {
    let (min, max, is_signed) = limits(element);
    match element {
        Element::Int32 => (-2_147_483_392, 2_147_483_392),
        Element::Uint32 => (0, 2_147_483_392),
        _ if is_signed => (min + 3, max - 1),
        _ => (0, max - 4),
    }
}

fn is_float(element: Element) -> bool {
    matches!(element, Element::Float32 | Element::Float64)
}

fn float(value: f64, lowest: f64) -> Px {
    match value {
        v if v.is_nan() => Px::Special("masked"),
        f64::INFINITY => Px::Special("saturated"),
        f64::NEG_INFINITY => Px::Special("missing"),
        v if v == lowest => Px::Special("invalid"),
        v => Px::Float(v),
    }
}

/// The pixels of an image.
pub fn pixels_of(element: Element, image: &[u8]) -> Vec<Px> {
    let one = |bytes: &[u8]| match element {
        Element::Float32 => float(f64::from(f32::from_le_bytes(bytes.try_into().unwrap())), f64::from(f32::MIN)),
        Element::Float64 => float(f64::from_le_bytes(bytes.try_into().unwrap()), f64::MIN),
        _ => {
            let (_, max, is_signed) = limits(element);
            let mut value = bytes.iter().rev().fold(0i128, |all, byte| all << 8 | i128::from(*byte));
            if is_signed && value > max {
                value -= 2 * (max + 1);
            }
            let special = specials(element).into_iter().find(|(_, special)| *special == value);
            match special {
                Some((name, _)) => Px::Special(name),
                None if value > valid(element).1 => Px::Special("saturated"),
                None => Px::Int(value),
            }
        }
    };
    image.chunks(element.bits() as usize / 8).map(one).collect()
}

/// A pixel as it stands in a file.
pub fn bytes_of(element: Element, pixel: Px, overflow: Overflow) -> Vec<u8> {
    let number = |value: f64| {
        let value = if element == Element::Float32 { f64::from(value as f32) } else { value };
        let max = if element == Element::Float32 { f64::from(f32::MAX) } else { f64::MAX };
        match value {
            v if v > max => {
                if overflow == Overflow::Clamped {
                    max
                } else {
                    f64::INFINITY
                }
            }
            v => v.max(-max * 0.5),
        }
    };
    if is_float(element) {
        let lowest = if element == Element::Float32 { f64::from(f32::MIN) } else { f64::MIN };
        // In one step to single precision, not by way of double.
        if let (Px::Int(value), Element::Float32) = (pixel, element) {
            return (value as f32).to_le_bytes().to_vec();
        }
        let value = match pixel {
            Px::Special("masked") => f64::NAN,
            Px::Special("saturated") => f64::INFINITY,
            Px::Special("missing") => f64::NEG_INFINITY,
            Px::Special(_) => lowest,
            Px::Int(value) => value as f64,
            Px::Float(value) => number(value),
        };
        return if element == Element::Float32 { (value as f32).to_le_bytes().to_vec() } else { value.to_le_bytes().to_vec() };
    }
    let special = |name| specials(element).into_iter().find(|(n, _)| *n == name).unwrap().1;
    let (low, high) = valid(element);
    let value = match pixel {
        Px::Special(name) => special(name),
        Px::Int(value) if value > high && overflow == Overflow::Saturated => special("saturated"),
        Px::Int(value) => value.clamp(low, high),
        Px::Float(value) => return bytes_of(element, Px::Int(value.round_ties_even() as i128), overflow),
    };
    value.to_le_bytes()[..element.bits() as usize / 8].to_vec()
}

pub fn zero(element: Element) -> Px {
    if is_float(element) { Px::Float(0.0) } else { Px::Int(0) }
}

/// The sum; the special value that wins.
pub fn add(a: Px, b: Px) -> Px {
    let order = ["masked", "missing", "invalid", "saturated"];
    match (a, b) {
        (Px::Special(a), Px::Special(b)) => Px::Special(order.into_iter().find(|name| *name == a || *name == b).unwrap()),
        (Px::Special(name), _) | (_, Px::Special(name)) => Px::Special(name),
        (Px::Int(a), Px::Int(b)) => Px::Int(a + b),
        (Px::Float(a), Px::Float(b)) => Px::Float(a + b),
        _ => panic!("{a:?} and {b:?} are of different types"),
    }
}

/// A total over a number, for pixels of type `to`.
pub fn divided(total: Px, by: i128, to: Element) -> Px {
    match total {
        Px::Int(total) if by > 1 && is_float(to) => Px::Float(total as f64 / by as f64),
        Px::Int(total) => {
            let (below, rest) = (total.div_euclid(by), total.rem_euclid(by));
            let is_up = 2 * rest > by || 2 * rest == by && below % 2 != 0;
            Px::Int(below + i128::from(is_up))
        }
        Px::Float(total) => Px::Float(total / by as f64),
        special => special,
    }
}

/// A pixel less its background.
pub fn minus(a: Px, b: Px) -> Px {
    let number = |p| match p {
        Px::Int(value) => value as f64,
        Px::Float(value) => value,
        Px::Special(_) => f64::NAN,
    };
    match (a, b) {
        (Px::Special(_), _) => a,
        (_, Px::Special(_)) => Px::Special("masked"),
        (Px::Int(a), Px::Int(b)) => Px::Int(a - b),
        _ => Px::Float(number(a) - number(b)),
    }
}

/// True if two images are the same; NaN is NaN whatever its bits.
pub fn same(element: Element, a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a == b || is_float(element) && pixels_of(element, a) == pixels_of(element, b))
}

pub fn values<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// An image by `kind`: small numbers; those with few special values; numbers of any size; the ends of the range and
/// special values.
pub fn image(element: Element, pixels: usize, kind: usize, seed: u64) -> Vec<u8> {
    let random = values::<u64>(&noise(pixels * 8, seed + 17 * kind as u64));
    let bytes = element.bits() as usize / 8;
    let special = |r: u64| {
        bytes_of(element, Px::Special(["masked", "missing", "invalid", "saturated"][r as usize % 4]), Overflow::Saturated)
    };
    let one = |r: u64| match kind {
        1 if r.is_multiple_of(50) => special(r >> 32),
        0 | 1 if is_float(element) => bytes_of(element, Px::Float((r >> 40) as f64 / 1024.0 - 900.0), Overflow::Saturated),
        0 | 1 => bytes_of(element, Px::Int(i128::from(r >> 48 & 0x7F)), Overflow::Saturated),
        2 if element == Element::Float32 => (f32::from_bits(0x3000_0000 | r as u32 & 0xAFFF_FFFF)).to_le_bytes().to_vec(),
        2 if element == Element::Float64 => (f64::from_bits(r & 0xBFFF_FFFF_FFFF_FFFF)).to_le_bytes().to_vec(),
        2 => r.to_le_bytes()[..bytes].to_vec(),
        _ if r.is_multiple_of(3) => special(r >> 32),
        _ if is_float(element) => {
            bytes_of(element, Px::Float([1e300, -1e300, 0.5, 1.5, -2.5, 1e38][r as usize % 6]), Overflow::Clamped)
        }
        _ => {
            let (low, high) = valid(element);
            let near = i128::from(r >> 60);
            let value = if r.is_multiple_of(2) { low + near } else { high - near };
            bytes_of(element, Px::Int(value), Overflow::Clamped)
        }
    };
    random.into_iter().flat_map(one).collect()
}
