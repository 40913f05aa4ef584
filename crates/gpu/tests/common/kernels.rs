// The kernels of pipelines, made of the code of the CPU; those of sparse images and vetoes for `int16` pixels only.
// They allocate nothing, and take a thousandth of the time of the text of the kernels (`tests/pipeline_text.rs`).

use konkordia_gpu::device::emulated::{Executor, Value, received_word};
use konkordia_gpu::layout::{NO_FRAME, NO_SOURCE};
use konkordia_gpu::program::{BLOCK_BYTES, SLOT_BYTES, STATS_NUMBERS};
use konkordia_kernels::convert::fixed::{FixedView, jungfrau_fixed};
use konkordia_kernels::convert::{OutputPixel, jungfrau, saturate_high_gain};
use konkordia_kernels::planes::Lz4Encoder;
use konkordia_kernels::stats::{self, Measured, PixelStats};
use konkordia_kernels::{Constants, ElementSize, Isa, above, bitshuffle};

const HEADER_BYTES: usize = 12;

pub struct CpuExecutor {
    encoder: Lz4Encoder,
    planes: Vec<u8>,
    usable: Vec<bool>,
}

impl CpuExecutor {
    pub fn new(pixels: usize) -> Self {
        Self { encoder: Lz4Encoder::new(BLOCK_BYTES), planes: vec![0; BLOCK_BYTES], usable: vec![false; pixels] }
    }

    fn set_usable(&mut self, bytes: &[u8]) {
        self.usable.iter_mut().zip(bytes).for_each(|(usable, byte)| *usable = *byte != 0);
    }
}

fn two(bytes: &[u8]) -> &[u16] {
    bytemuck::cast_slice(bytes)
}

fn pixels(bytes: &[u8]) -> &[i16] {
    bytemuck::cast_slice(bytes)
}

fn four(bytes: &[u8]) -> &[u32] {
    bytemuck::cast_slice(bytes)
}

fn four_mut(bytes: &mut [u8]) -> &mut [u32] {
    bytemuck::cast_slice_mut(bytes)
}

fn number(value: &Value<'_>) -> usize {
    let Value::Number(number) = value else { panic!("a number is expected") };
    number.bits() as usize
}

/// Converts frames of `count` words one after the other.
fn each_frame<P: OutputPixel>(words: &[u16], out: &mut [u8], count: usize, high_gain: usize, convert: impl Fn(&[u16], &mut [P])) {
    let out: &mut [P] = bytemuck::cast_slice_mut(out);
    for (words, out) in words.chunks_exact(count).zip(out.chunks_exact_mut(count)) {
        convert(words, out);
        if high_gain != 0 {
            saturate_high_gain(words, out);
        }
    }
}

/// Each returns false if the arguments are not those of the kernel.
impl CpuExecutor {
    fn take_words(values: &mut [Value<'_>]) -> bool {
        let [Value::Frames(received), Value::Read(begins, 8), Value::Read(source, 4), Value::Write(words, 2), count] = values
        else {
            return false;
        };
        let (begins, words): (&[u64], &mut [u16]) = (bytemuck::cast_slice(begins), bytemuck::cast_slice_mut(words));
        for (begin, words) in begins.iter().zip(words.chunks_exact_mut(number(count))) {
            for (word, source) in words.iter_mut().zip(four(source)) {
                let is_there = *begin != NO_FRAME && *source != NO_SOURCE;
                *word = if is_there { received_word(received, *begin as usize + *source as usize) } else { 0xFFFF };
            }
        }
        true
    }

    fn convert<P: OutputPixel>(values: &mut [Value<'_>]) -> bool {
        let [
            Value::Read(words, 2),
            Value::Read(pedestal, 4),
            Value::Read(factor, 4),
            high_gain,
            Value::Write(out, bytes),
            count,
            frames,
        ] = values
        else {
            return false;
        };
        let (count, words) = (number(count), two(words));
        let planes = |bytes| {
            let all: &[f32] = bytemuck::cast_slice(bytes);
            [&all[..count], &all[count..2 * count], &all[2 * count..]]
        };
        let constants = Constants { pedestal: planes(pedestal), factor: planes(factor) };
        assert_eq!((out.len(), *bytes), (number(frames) * count * size_of::<P>(), size_of::<P>()));
        each_frame::<P>(words, out, count, number(high_gain), |words, out| jungfrau(Isa::Scalar, words, &constants, out));
        true
    }

    fn convert_fixed<P: OutputPixel>(values: &mut [Value<'_>]) -> bool {
        let [
            Value::Read(words, 2),
            Value::Read(g0, 4),
            Value::Read(g1, 2),
            Value::Read(g2, 2),
            Value::Read(factor, 2),
            shift_g0,
            shift_g1,
            shift_g2,
            high_gain,
            Value::Write(out, bytes),
            count,
            frames,
        ] = values
        else {
            return false;
        };
        let (count, words, factor) = (number(count), two(words), two(factor));
        let constants = FixedView {
            pedestal_g0: four(g0),
            pedestal_g1: two(g1),
            pedestal_g2: two(g2),
            factor: [&factor[..count], &factor[count..2 * count], &factor[2 * count..]],
            shift: [number(shift_g0) as u8, number(shift_g1) as u8, number(shift_g2) as u8],
        };
        assert_eq!((out.len(), *bytes), (number(frames) * count * size_of::<P>(), size_of::<P>()));
        each_frame::<P>(words, out, count, number(high_gain), |words, out| jungfrau_fixed(words, &constants, out));
        true
    }

    fn stats<P: OutputPixel + Measured>(grid: (u32, u32), values: &mut [Value<'_>]) -> bool {
        let [Value::Read(images, bytes), Value::Write(numbers, 8), count, strip] = values else { return false };
        assert_eq!(*bytes, size_of::<P>());
        let (images, numbers): (&[P], &mut [u64]) = (bytemuck::cast_slice(images), bytemuck::cast_slice_mut(numbers));
        let strips = images.chunks_exact(number(count)).flat_map(|image| image.chunks(number(strip)));
        assert_eq!(strips.clone().count(), (grid.0 * grid.1) as usize);
        for (strip, numbers) in strips.zip(numbers.chunks_exact_mut(STATS_NUMBERS)) {
            let mut stats = PixelStats::default();
            stats::add(Isa::Scalar, strip, &mut stats);
            numbers.copy_from_slice(&stats.bits());
        }
        true
    }

    fn count_above(&mut self, values: &mut [Value<'_>]) -> bool {
        let [Value::Read(images, 2), Value::Read(usable, 1), level, high, Value::Write(counts, 4), count] = values else {
            return false;
        };
        self.set_usable(usable);
        for (image, count) in pixels(images).chunks_exact(number(count)).zip(four_mut(counts)) {
            // As the kernel does, which adds to what is there.
            *count += above::count(Isa::Scalar, image, &self.usable, number(level) as i16, number(high) as i16) as u32;
        }
        true
    }

    fn keep_images(values: &mut [Value<'_>]) -> bool {
        let [Value::Read(counts, 4), Value::Write(keep, 1), least, _] = values else { return false };
        keep.iter_mut().zip(four(counts)).for_each(|(keep, count)| *keep = u8::from(*count as usize >= number(least)));
        true
    }

    fn pack_blocks(&mut self, grid: (u32, u32), values: &mut [Value<'_>]) -> bool {
        let [Value::Read(images, 1), bytes, element, Value::Write(slots, 1), Value::Write(sizes, 4)] = values else {
            return false;
        };
        let element = if number(element) == 2 { ElementSize::Two } else { ElementSize::Four };
        let blocks = grid.0 as usize;
        for (n, size) in four_mut(sizes).iter_mut().enumerate() {
            let group = 8 * element.bytes();
            let grouped = number(bytes) / group * group;
            let image = &images[n / blocks * number(bytes)..][..grouped];
            let block = &image[n % blocks * BLOCK_BYTES..grouped.min((n % blocks + 1) * BLOCK_BYTES)];
            let planes = &mut self.planes[..block.len()];
            bitshuffle::shuffle(Isa::Scalar, element, block, planes);
            *size = self.encoder.compress(Isa::Scalar, element, planes, &mut slots[n * SLOT_BYTES..][..SLOT_BYTES]) as u32;
        }
        true
    }

    fn chunk_places(values: &mut [Value<'_>]) -> bool {
        let [
            Value::Read(sizes, 4),
            blocks,
            bytes,
            element,
            block_bytes,
            Value::Write(places, 4),
            Value::Write(chunks, 1),
            room,
            Value::Write(lengths, 4),
        ] = values
        else {
            return false;
        };
        let (blocks, places) = (number(blocks), four_mut(places));
        for (image, length) in four_mut(lengths).iter_mut().enumerate() {
            let (mut at, of_image) = (HEADER_BYTES, image * blocks..(image + 1) * blocks);
            for (place, size) in places[of_image.clone()].iter_mut().zip(&four(sizes)[of_image]) {
                *place = at as u32;
                at += 4 + *size as usize;
            }
            *length = (at + number(bytes) % (8 * number(element))) as u32;
            let header = &mut chunks[image * number(room)..];
            header[..8].copy_from_slice(&(number(bytes) as u64).to_be_bytes());
            header[8..12].copy_from_slice(&(number(block_bytes) as u32).to_be_bytes());
        }
        true
    }

    fn chunk_gather(values: &mut [Value<'_>]) -> bool {
        let [
            Value::Read(images, 1),
            bytes,
            element,
            Value::Read(slots, 1),
            Value::Read(sizes, 4),
            Value::Read(places, 4),
            blocks,
            Value::Write(chunks, 1),
            room,
            Value::Read(lengths, 4),
        ] = values
        else {
            return false;
        };
        let blocks = number(blocks);
        for (n, (size, place)) in four(sizes).iter().zip(four(places)).enumerate() {
            let to = &mut chunks[n / blocks * number(room) + *place as usize..];
            to[..4].copy_from_slice(&size.to_be_bytes());
            to[4..4 + *size as usize].copy_from_slice(&slots[n * SLOT_BYTES..][..*size as usize]);
        }
        let rest = number(bytes) % (8 * number(element));
        for (image, length) in four(lengths).iter().enumerate() {
            let from = &images[(image + 1) * number(bytes) - rest..][..rest];
            chunks[image * number(room) + *length as usize - rest..][..rest].copy_from_slice(from);
        }
        true
    }

    fn row_counts(&mut self, grid: (u32, u32), values: &mut [Value<'_>]) -> bool {
        let [Value::Read(images, 2), Value::Read(usable, 1), level, high, Value::Write(counts, 4), columns] = values else {
            return false;
        };
        self.set_usable(usable);
        for (n, (row, count)) in pixels(images).chunks_exact(number(columns)).zip(four_mut(counts)).enumerate() {
            let usable = &self.usable[n % grid.0 as usize * number(columns)..][..number(columns)];
            *count = above::count(Isa::Scalar, row, usable, number(level) as i16, number(high) as i16) as u32;
        }
        true
    }

    fn row_places(values: &mut [Value<'_>]) -> bool {
        let [Value::Read(counts, 4), rows, Value::Write(places, 4)] = values else { return false };
        let rows = number(rows);
        for (counts, places) in four(counts).chunks_exact(rows).zip(four_mut(places).chunks_exact_mut(rows + 1)) {
            places[0] = 0;
            (0..rows).for_each(|row| places[row + 1] = places[row] + counts[row]);
        }
        true
    }

    fn collect(&mut self, grid: (u32, u32), values: &mut [Value<'_>]) -> bool {
        let [
            Value::Read(images, 2),
            Value::Read(usable, 1),
            level,
            high,
            Value::Read(places, 4),
            Value::Write(out, 4),
            Value::Write(values, 2),
            columns,
            room,
        ] = values
        else {
            return false;
        };
        self.set_usable(usable);
        let (columns, room, rows) = (number(columns), number(room), grid.0 as usize);
        let (out, values): (&mut [u32], &mut [i16]) = (four_mut(out), bytemuck::cast_slice_mut(values));
        for (n, row) in pixels(images).chunks_exact(columns).enumerate() {
            let (image, at) = (n / rows, (four(places)[n / rows * (rows + 1) + n % rows] as usize).min(room));
            let usable = &self.usable[n % rows * columns..][..columns];
            let here = image * room + at..(image + 1) * room;
            let (level, high) = (number(level) as i16, number(high) as i16);
            above::collect(Isa::Scalar, row, usable, level, high, &mut out[here.clone()], &mut values[here]);
        }
        true
    }
}

impl Executor for CpuExecutor {
    fn run(&mut self, kernel: &str, grid: (u32, u32), values: &mut [Value<'_>]) -> Result<(), String> {
        let is_known = match kernel {
            "take_words" => Self::take_words(values),
            "convert_int16" => Self::convert::<i16>(values),
            "convert_fixed_int16" => Self::convert_fixed::<i16>(values),
            "convert_fixed_uint16" => Self::convert_fixed::<u16>(values),
            "convert_fixed_int32" => Self::convert_fixed::<i32>(values),
            "convert_fixed_uint32" => Self::convert_fixed::<u32>(values),
            "stats_int16" => Self::stats::<i16>(grid, values),
            "convert_uint16" => Self::convert::<u16>(values),
            "stats_uint16" => Self::stats::<u16>(grid, values),
            "convert_int32" => Self::convert::<i32>(values),
            "stats_int32" => Self::stats::<i32>(grid, values),
            "convert_uint32" => Self::convert::<u32>(values),
            "stats_uint32" => Self::stats::<u32>(grid, values),
            "convert_float32" => Self::convert::<f32>(values),
            "stats_float32" => Self::stats::<f32>(grid, values),
            "count_above_int16" => self.count_above(values),
            "keep_images" => Self::keep_images(values),
            "bslz4_blocks" => self.pack_blocks(grid, values),
            "chunk_places" => Self::chunk_places(values),
            "chunk_gather" => Self::chunk_gather(values),
            "row_counts_int16" => self.row_counts(grid, values),
            "row_places" => Self::row_places(values),
            "collect_int16" => self.collect(grid, values),
            _ => false,
        };
        if is_known { Ok(()) } else { Err(format!("there is no kernel {kernel} with {} arguments of these kinds", values.len())) }
    }
}
