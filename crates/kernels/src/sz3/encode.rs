//! Encodes images to streams.

use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_core::plan::ErrorBound;
use zstd_safe::CCtx;

use super::decode::decompress;
use super::format::{PIXELS_MIN, Settings, block_edge, blocks};
use super::huffman;
use crate::bitshuffle::ElementSize;

/// Radii of the bins, tried in this order. A smaller radius makes the table of codes shorter and more pixels
/// exceptions.
const RADII: [i32; 3] = [64, 1024, 32768];
/// The smallest radius is taken that leaves out at most one pixel in so many.
const EXCEPTIONS_ONE_IN: usize = 1000;
/// No bin: the pixel is an exception.
const EXCEPTION: i32 = i32::MAX;
const LEVEL: i32 = 3;

/// What the encoding changed, found by decoding the image again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Pixels.
    pub pixels: u64,
    /// Pixels with another value than before.
    pub pixels_changed: u64,
    /// Largest difference of a pixel, in units of the image.
    pub error_max: f64,
    /// Sum of the valid pixels before.
    pub sum_before: f64,
    /// Sum of the same pixels after.
    pub sum_after: f64,
    /// Stored without loss, because the bound could not be kept or the lossy form does not take an image of this shape.
    pub lossless: bool,
}

/// Encodes images of one shape and type.
pub struct Encoder {
    rows: usize,
    columns: usize,
    pixel: PixelType,
    bound: ErrorBound,
    negative_is_exact: bool,
    context: CCtx<'static>,
    body: Vec<u8>,
    decoded: Vec<u8>,
}

impl Encoder {
    /// For images of `rows` x `columns` pixels of type `pixel`. No valid pixel moves by more than `bound`; an integer
    /// pixel moves by no more than `bound` rounded down. With `negative_is_exact` no pixel below 0 moves at all: some
    /// programs mark bad pixels with -1 and -2.
    ///
    /// # Panics
    /// If there are fewer than [`PIXELS_MIN`] pixels.
    pub fn new(pixel: PixelType, rows: usize, columns: usize, bound: ErrorBound, negative_is_exact: bool) -> Self {
        assert!(rows * columns >= PIXELS_MIN, "the filter does not touch images this small");
        let mut context = CCtx::create();
        context.set_parameter(zstd_safe::CParameter::CompressionLevel(LEVEL)).expect("a level of the library's");
        Self { rows, columns, pixel, bound, negative_is_exact, context, body: Vec::new(), decoded: Vec::new() }
    }

    /// Replaces `out` by the stream of an image (its bytes, little-endian), decodes it again, and returns what was
    /// lost. If that is more than allowed, `out` is the lossless form.
    ///
    /// # Panics
    /// If the image has another size.
    pub fn encode(&mut self, image: &[u8], out: &mut Vec<u8>) -> Loss {
        assert_eq!(image.len(), self.rows * self.columns * self.pixel.bytes(), "an image of the shape given");
        match self.pixel {
            PixelType::Int16 => self.encode_as::<i16>(image, out),
            PixelType::Int32 => self.encode_as::<i32>(image, out),
            PixelType::Uint16 => self.encode_as::<u16>(image, out),
            PixelType::Uint32 => self.encode_as::<u32>(image, out),
            PixelType::Float32 => self.encode_as::<f32>(image, out),
            other => unreachable!("images of {other} are refused before they come here"),
        }
    }

    fn encode_as<P: Number>(&mut self, image: &[u8], out: &mut Vec<u8>) -> Loss {
        let (rows, columns) = (self.rows, self.columns);
        if let Some(edge) = block_edge(rows, columns) {
            let mut ordered = Vec::with_capacity(rows * columns);
            for (row, high, column, wide) in blocks(rows, columns, edge) {
                for r in row..row + high {
                    let line = &image[(r * columns + column) * size_of::<P>()..][..wide * size_of::<P>()];
                    ordered.extend(line.chunks_exact(size_of::<P>()).map(P::of_le));
                }
            }
            self.lossy(&ordered, edge, out);
            self.decoded.resize(image.len(), 0);
            let element = if P::TYPE.bytes() == 2 { ElementSize::Two } else { ElementSize::Four };
            let decodes = decompress(out, element, &mut self.decoded).is_ok();
            let loss = decodes.then(|| measure::<P>(image, &self.decoded, self.bound, self.negative_is_exact)).flatten();
            if let Some(loss) = loss {
                return loss;
            }
        }
        let settings = Settings {
            rows: rows as u64,
            columns: columns as u64,
            half_step: 0.0,
            block: 16,
            floats: P::TYPE == PixelType::Float32,
        };
        self.finish(image, &settings, out);
        let mut loss = measure::<P>(image, image, self.bound, self.negative_is_exact).expect("an image equals itself");
        loss.lossless = true;
        loss
    }

    /// The lossy form of pixels in the order of the blocks.
    fn lossy<P: Number>(&mut self, ordered: &[P], edge: usize, out: &mut Vec<u8>) {
        let (rows, columns) = (self.rows, self.columns);
        let half_step = P::half_step(self.bound.value());
        let mut centres = Centres::new(P::half_step_of_centres(half_step));
        let mut bins = Vec::with_capacity(ordered.len());
        let mut at = 0;
        let mut excess = 0.0;
        for (_, high, _, wide) in blocks(rows, columns, edge) {
            let block = &ordered[at..at + high * wide];
            excess = self.block(block, half_step, &mut centres, &mut bins, excess);
            at += high * wide;
        }
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.extend((rows as u64).to_le_bytes());
        body.extend((columns as u64).to_le_bytes());
        body.extend((edge as u32).to_le_bytes());
        centres.write(&mut body);
        let radius = radius(&bins);
        let has_bin = |bin: i32| bin != EXCEPTION && bin.abs() < radius;
        let exceptions = ordered.iter().zip(&bins).filter(|(_, bin)| !has_bin(**bin)).map(|(pixel, _)| *pixel);
        write_quantiser(half_step, radius, exceptions, &mut body);
        let symbol = |&bin: &i32| if has_bin(bin) { (bin + radius) as u16 } else { 0 };
        write_huffman(&bins.iter().map(symbol).collect::<Vec<u16>>(), &mut body);
        let settings = Settings {
            rows: rows as u64,
            columns: columns as u64,
            half_step,
            block: edge as u32,
            floats: P::TYPE == PixelType::Float32,
        };
        self.finish(&body, &settings, out);
        self.body = body;
    }

    /// Appends the bins of a block. Of the two centres on either side of its mean it takes the one that leaves less
    /// `excess`, by which the sum of the decoded pixels up to here exceeds the sum of the original ones. This keeps the
    /// sum of the image, although small values fall into the bin of 0.
    fn block<P: Number>(&self, block: &[P], half_step: f64, centres: &mut Centres<P>, bins: &mut Vec<i32>, excess: f64) -> f64 {
        let mean = centre(block);
        let start = bins.len();
        let (low, high) = P::around(mean, half_step);
        let (low, high) = (centres.near(low), centres.near(high));
        let after_low = excess + self.bins(block, low.to_f64(), half_step, bins);
        let after_high = if low == high { after_low } else { excess + self.bins(block, high.to_f64(), half_step, bins) };
        let end = start + block.len();
        if after_high.abs() < after_low.abs() {
            bins.copy_within(end.., start);
        }
        bins.truncate(end);
        centres.push(if after_high.abs() < after_low.abs() { high } else { low });
        if after_high.abs() < after_low.abs() { after_high } else { after_low }
    }

    /// Appends the bins of a block around `centre`, and returns by how much the sum of the block grows.
    fn bins<P: Number>(&self, block: &[P], centre: f64, half_step: f64, bins: &mut Vec<i32>) -> f64 {
        let reciprocal = 1.0 / (2.0 * half_step);
        let (bound, least) = (self.bound.value(), if self.negative_is_exact { 0.0 } else { f64::NEG_INFINITY });
        let mut growth = 0.0;
        bins.extend(block.iter().map(|&pixel| {
            let value = pixel.to_f64();
            let bin = (value - centre) * reciprocal;
            // Rounds halves away from zero, as SZ3 does; the conversion to `i32` saturates.
            let bin = (bin + 0.5f64.copysign(bin)) as i32;
            if !pixel.is_valid() || bin.unsigned_abs() >= RADII[2] as u32 || value < least {
                return EXCEPTION;
            }
            match P::at(centre, bin, half_step) {
                Some(got) if got.is_valid() && (got.to_f64() - value).abs() <= bound => {
                    growth += got.to_f64() - value;
                    bin
                }
                _ => EXCEPTION,
            }
        }));
        growth
    }

    fn finish(&mut self, body: &[u8], settings: &Settings, out: &mut Vec<u8>) {
        out.clear();
        out.extend((body.len() as u64).to_le_bytes());
        out.resize(8 + zstd_safe::compress_bound(body.len()), 0);
        let written = self.context.compress2(&mut out[8..], body).expect("Zstd always succeeds within its bound");
        out.truncate(8 + written);
        settings.write(out);
    }
}

fn radius(bins: &[i32]) -> i32 {
    let outside = |radius: i32| bins.iter().filter(|bin| **bin != EXCEPTION && bin.abs() >= radius).count();
    RADII.into_iter().find(|&radius| outside(radius) <= bins.len() / EXCEPTIONS_ONE_IN).unwrap_or(RADII[2])
}

fn write_quantiser<P: Number>(half_step: f64, radius: i32, exceptions: impl Iterator<Item = P>, body: &mut Vec<u8>) {
    body.push(2);
    body.extend(half_step.to_le_bytes());
    body.extend(radius.to_le_bytes());
    let at = body.len();
    body.extend(0u64.to_le_bytes());
    exceptions.for_each(|pixel| pixel.push_le(body));
    let many = (body.len() - at - 8) / size_of::<P>();
    body[at..at + 8].copy_from_slice(&(many as u64).to_le_bytes());
}

fn write_huffman(symbols: &[u16], body: &mut Vec<u8>) {
    let mut counts = vec![0u64; 1 << 16];
    symbols.iter().for_each(|&symbol| counts[usize::from(symbol)] += 1);
    huffman::write(symbols, &counts, body);
}

/// The centres of the blocks, as differences from one to the next in steps of their own.
struct Centres<P> {
    half_step: f64,
    last: P,
    symbols: Vec<u16>,
    exceptions: Vec<P>,
}

impl<P: Number> Centres<P> {
    const RADIUS: i32 = 32768;

    fn new(half_step: f64) -> Self {
        Self { half_step, last: P::default(), symbols: Vec::new(), exceptions: Vec::new() }
    }

    fn bin(&self, wanted: f64) -> f64 {
        ((wanted - self.last.to_f64()) / (2.0 * self.half_step)).round()
    }

    /// The value near `wanted` that a decoder will see if it is the centre of the next block.
    fn near(&self, wanted: f64) -> P {
        let bin = self.bin(wanted);
        let near = if bin.abs() < f64::from(Self::RADIUS) { P::at(self.last.to_f64(), bin as i32, self.half_step) } else { None };
        near.unwrap_or_else(|| P::nearest(wanted))
    }

    /// Takes a result of [`Self::near`] as the centre of the next block.
    fn push(&mut self, centre: P) {
        let bin = self.bin(centre.to_f64());
        let reached =
            bin.abs() < f64::from(Self::RADIUS) && P::at(self.last.to_f64(), bin as i32, self.half_step) == Some(centre);
        // Slopes are 0 in every block.
        self.symbols.extend([Self::RADIUS as u16; 2]);
        self.symbols.push(if reached { (bin as i32 + Self::RADIUS) as u16 } else { 0 });
        if !reached {
            self.exceptions.push(centre);
        }
        self.last = centre;
    }

    fn write(&self, body: &mut Vec<u8>) {
        body.push(2);
        body.extend((self.symbols.len() as u64).to_le_bytes());
        write_quantiser(self.half_step, Self::RADIUS, self.exceptions.iter().copied(), body);
        write_quantiser(1.0, Self::RADIUS, std::iter::empty::<P>(), body);
        write_huffman(&self.symbols, body);
    }
}

/// Mean of the valid pixels without those more than three standard deviations from it, so that one strong spot does not
/// move the centre of all the others.
fn centre<P: Number>(block: &[P]) -> f64 {
    let (mut valid, mut sum, mut squares) = (0u32, 0.0, 0.0);
    for pixel in block {
        if pixel.is_valid() {
            let value = pixel.to_f64();
            valid += 1;
            sum += value;
            squares += value * value;
        }
    }
    let n = f64::from(valid.max(1));
    let mean = sum / n;
    let far = 3.0 * (squares / n - mean * mean).max(0.0).sqrt();
    // Few pixels are far from the mean, so they are subtracted from the sum.
    for pixel in block {
        let value = pixel.to_f64();
        if (value - mean).abs() > far && pixel.is_valid() {
            valid -= 1;
            sum -= value;
        }
    }
    let trimmed = sum / f64::from(valid.max(1));
    if trimmed.is_finite() { trimmed } else { 0.0 }
}

/// Compares an image with its decoded stream (both as bytes, little-endian). `None` where a special value changed or a
/// valid one moved further than [`Encoder::new`] promises.
pub fn compare(pixel: PixelType, before: &[u8], after: &[u8], bound: ErrorBound, negative_is_exact: bool) -> Option<Loss> {
    match pixel {
        PixelType::Int16 => measure::<i16>(before, after, bound, negative_is_exact),
        PixelType::Int32 => measure::<i32>(before, after, bound, negative_is_exact),
        PixelType::Uint16 => measure::<u16>(before, after, bound, negative_is_exact),
        PixelType::Uint32 => measure::<u32>(before, after, bound, negative_is_exact),
        PixelType::Float32 => measure::<f32>(before, after, bound, negative_is_exact),
        other => unreachable!("images of {other} are refused before they come here"),
    }
}

/// See [`compare`].
fn measure<P: Number>(before: &[u8], after: &[u8], bound: ErrorBound, negative_is_exact: bool) -> Option<Loss> {
    let mut loss = Loss { pixels: (before.len() / size_of::<P>()) as u64, ..Loss::default() };
    for (before, after) in before.chunks_exact(size_of::<P>()).zip(after.chunks_exact(size_of::<P>())) {
        let (was, is) = (P::of_le(before), P::of_le(after));
        if before != after {
            let error = (was.to_f64() - is.to_f64()).abs();
            let allowed = was.is_valid() && is.is_valid() && error <= bound.value();
            if !allowed || (negative_is_exact && was.to_f64() < 0.0) {
                return None;
            }
            loss.pixels_changed += 1;
            loss.error_max = loss.error_max.max(error);
        }
        if was.is_valid() {
            loss.sum_before += was.to_f64();
            loss.sum_after += is.to_f64();
        }
    }
    Some(loss)
}

/// A pixel type with the arithmetic of SZ3: in double precision, then converted.
trait Number: Pixel {
    fn of_le(bytes: &[u8]) -> Self;
    fn push_le(self, out: &mut Vec<u8>);
    /// Half a step for a bound. A bin of integers holds as many values as the bound allows, one more than SZ3 itself
    /// would use.
    fn half_step(bound: f64) -> f64;
    fn half_step_of_centres(half_step: f64) -> f64;
    /// Two centres, one not above and one not below the mean of a block.
    fn around(mean: f64, half_step: f64) -> (f64, f64);
    /// `centre + 2 * bin * half_step`, if the type holds it.
    fn at(centre: f64, bin: i32, half_step: f64) -> Option<Self>;
    /// The number nearest to `value`.
    fn nearest(value: f64) -> Self;

    fn is_valid(self) -> bool {
        self >= Self::VALID_MIN && self <= Self::VALID_MAX
    }
}

macro_rules! integer {
    ($($t:ty)*) => { $(
        impl Number for $t {
            fn of_le(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("the bytes of one pixel"))
            }
            fn push_le(self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn half_step(bound: f64) -> f64 {
                bound.floor() + 0.5
            }
            fn half_step_of_centres(_: f64) -> f64 {
                0.5
            }
            fn around(mean: f64, _: f64) -> (f64, f64) {
                (mean.floor(), mean.ceil())
            }
            fn at(centre: f64, bin: i32, half_step: f64) -> Option<Self> {
                let value = centre + f64::from(2 * bin) * half_step;
                (value >= f64::from(Self::MIN) && value <= f64::from(Self::MAX)).then_some(value as Self)
            }
            fn nearest(value: f64) -> Self {
                value.round_ties_even() as Self
            }
        }
    )* };
}
integer!(i16 i32 u16 u32);

impl Number for f32 {
    fn of_le(bytes: &[u8]) -> Self {
        Self::from_le_bytes(bytes.try_into().expect("the bytes of one pixel"))
    }
    fn push_le(self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }
    fn half_step(bound: f64) -> f64 {
        // Leaves room for the rounding of the sum to single precision, which another processor may do in another way.
        bound * (1.0 - 1e-6)
    }
    fn half_step_of_centres(half_step: f64) -> f64 {
        half_step / 4.0
    }
    fn around(mean: f64, half_step: f64) -> (f64, f64) {
        (mean - half_step / 2.0, mean + half_step / 2.0)
    }
    fn at(centre: f64, bin: i32, half_step: f64) -> Option<Self> {
        let value = (centre + f64::from(2 * bin) * half_step) as Self;
        value.is_finite().then_some(value)
    }
    fn nearest(value: f64) -> Self {
        value as Self
    }
}
