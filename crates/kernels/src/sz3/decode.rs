//! Decodes streams to images.

use super::format::{Settings, block_edge, blocks};
use super::huffman::{self, take};
use crate::bitshuffle::ElementSize;
use crate::chunk::ChunkError;
use crate::zstd;

/// Decodes a stream of this program into exactly `out`, the bytes of the image. The chunk is untrusted; the memory used
/// is bounded by the size of the image. Streams of other programs have other forms and are refused.
///
/// # Errors
/// [`ChunkError::Stream`].
pub fn decompress(chunk: &[u8], element: ElementSize, out: &mut [u8]) -> Result<(), ChunkError> {
    let bytes = out.len();
    read(chunk, element, out).ok_or(ChunkError::Stream { what: "an SZ3 stream of this program", bytes })
}

fn read(chunk: &[u8], element: ElementSize, out: &mut [u8]) -> Option<()> {
    let (settings, mut before) = Settings::read(chunk)?;
    let (rows, columns) = (usize::try_from(settings.rows).ok()?, usize::try_from(settings.columns).ok()?);
    if rows.checked_mul(columns)?.checked_mul(element.bytes())? != out.len() || out.is_empty() {
        return None;
    }
    let length = usize::try_from(u64::from_le_bytes(take(&mut before)?)).ok()?;
    if settings.half_step == 0.0 {
        return (length == out.len() && zstd::Decoder::new().decompress(before, out)).then_some(());
    }
    // At most, every pixel is an exception with a code of eight bytes, in a tree of 65536 symbols.
    if length > 16 * out.len() + (4 << 20) {
        return None;
    }
    let mut body = vec![0; length];
    if !zstd::Decoder::new().decompress(before, &mut body) {
        return None;
    }
    match element {
        ElementSize::Two => pixels::<i16>(&settings, rows, columns, &body, out),
        ElementSize::Four if settings.floats => pixels::<f32>(&settings, rows, columns, &body, out),
        ElementSize::Four => pixels::<i32>(&settings, rows, columns, &body, out),
        ElementSize::One | ElementSize::Eight => None,
    }
}

/// Half a step, radius, exceptions.
struct Quantiser<T> {
    half_step: f64,
    radius: i64,
    exceptions: std::vec::IntoIter<T>,
}

impl<T: Number> Quantiser<T> {
    fn read(input: &mut &[u8]) -> Option<Self> {
        take::<1>(input)?;
        let half_step = f64::from_le_bytes(take(input)?);
        let radius = i64::from(i32::from_le_bytes(take(input)?));
        let many = usize::try_from(u64::from_le_bytes(take(input)?)).ok()?;
        let exceptions = input.split_off(..many.checked_mul(T::BYTES)?)?;
        let exceptions: Vec<T> = exceptions.chunks_exact(T::BYTES).map(T::of_le).collect();
        (T::takes(half_step) && radius > 0).then_some(Self { half_step, radius, exceptions: exceptions.into_iter() })
    }

    fn recover(&mut self, near: T, symbol: u32) -> Option<T> {
        match symbol {
            0 => self.exceptions.next(),
            _ => Some(near.plus(i64::from(symbol) - self.radius, self.half_step)),
        }
    }
}

fn pixels<T: Number>(settings: &Settings, rows: usize, columns: usize, mut body: &[u8], out: &mut [u8]) -> Option<()> {
    let input = &mut body;
    let shape = [u64::from_le_bytes(take(input)?), u64::from_le_bytes(take(input)?)];
    let edge = u32::from_le_bytes(take(input)?);
    let edge_fits = block_edge(rows, columns) == Some(edge as usize) && edge == settings.block;
    if shape != [settings.rows, settings.columns] || !edge_fits {
        return None;
    }
    let edge = edge as usize;
    take::<1>(input)?;
    let block_count = rows.div_ceil(edge) * columns.div_ceil(edge);
    if u64::from_le_bytes(take(input)?) != 3 * block_count as u64 {
        return None;
    }
    let mut of_centres = Quantiser::<T>::read(input)?;
    Quantiser::<T>::read(input)?;
    let centres = huffman::read(input, 3 * block_count)?;
    let mut of_pixels = Quantiser::<T>::read(input)?;
    let symbols = huffman::read(input, rows * columns)?;
    let mut symbols = symbols.into_iter();
    let mut centre = T::default();
    for ((row, high, column, wide), symbol) in blocks(rows, columns, edge).zip(centres.chunks_exact(3)) {
        centre = of_centres.recover(centre, symbol[2])?;
        for r in row..row + high {
            let line = &mut out[(r * columns + column) * T::BYTES..][..wide * T::BYTES];
            for pixel in line.chunks_exact_mut(T::BYTES) {
                of_pixels.recover(centre, symbols.next()?)?.put_le(pixel);
            }
        }
    }
    Some(())
}

/// A pixel while it is decoded. Unsigned integers are decoded as signed ones, because sums of whole steps are the same
/// modulo 2^bits.
trait Number: Copy + Default {
    const BYTES: usize;
    fn of_le(bytes: &[u8]) -> Self;
    fn put_le(self, out: &mut [u8]);
    /// True if streams of this program can have such a half step.
    fn takes(half_step: f64) -> bool;
    fn plus(self, bins: i64, half_step: f64) -> Self;
}

macro_rules! integer {
    ($($t:ty)*) => { $(
        impl Number for $t {
            const BYTES: usize = size_of::<Self>();
            fn of_le(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("the bytes of one pixel"))
            }
            fn put_le(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            fn takes(half_step: f64) -> bool {
                (0.5..4e9).contains(&half_step) && (2.0 * half_step).fract() == 0.0
            }
            fn plus(self, bins: i64, half_step: f64) -> Self {
                self.wrapping_add((bins * (2.0 * half_step) as i64) as Self)
            }
        }
    )* };
}
integer!(i16 i32);

impl Number for f32 {
    const BYTES: usize = 4;
    fn of_le(bytes: &[u8]) -> Self {
        Self::from_le_bytes(bytes.try_into().expect("the bytes of one pixel"))
    }
    fn put_le(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn takes(half_step: f64) -> bool {
        half_step.is_finite() && half_step > 0.0
    }
    fn plus(self, bins: i64, half_step: f64) -> Self {
        (f64::from(self) + (2 * bins) as f64 * half_step) as Self
    }
}
