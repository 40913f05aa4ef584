// The kernels of pipelines with `int16` pixels, made of the code of the CPU. They allocate nothing, and take a
// thousandth of the time of the text of the kernels, which `tests/pipeline.rs` runs too.

use konkordia_gpu::device::emulated::{Executor, Value};
use konkordia_gpu::program::{BLOCK_BYTES, SLOT_BYTES};
use konkordia_kernels::convert::{jungfrau, saturate_high_gain};
use konkordia_kernels::planes::Lz4Encoder;
use konkordia_kernels::{Constants, ElementSize, Isa, above, bitshuffle};

const TWO: ElementSize = ElementSize::Two;
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

impl CpuExecutor {
    fn images(&mut self, kernel: &str, values: &mut [Value<'_>]) -> Result<(), String> {
        match (kernel, values) {
            (
                "convert_int16",
                [
                    Value::Read(words, 2),
                    Value::Read(pedestal, 4),
                    Value::Read(factor, 4),
                    high_gain,
                    Value::Write(out, 2),
                    count,
                    frames,
                ],
            ) => {
                let (count, words) = (number(count), two(words));
                let planes = |bytes| {
                    let all: &[f32] = bytemuck::cast_slice(bytes);
                    [&all[..count], &all[count..2 * count], &all[2 * count..]]
                };
                let constants = Constants { pedestal: planes(pedestal), factor: planes(factor) };
                let out: &mut [i16] = bytemuck::cast_slice_mut(out);
                assert_eq!(out.len(), number(frames) * count);
                for (words, out) in words.chunks_exact(count).zip(out.chunks_exact_mut(count)) {
                    jungfrau::<i16>(Isa::Scalar, words, &constants, out);
                    if number(high_gain) != 0 {
                        saturate_high_gain(words, out);
                    }
                }
            }
            (
                "count_above_int16",
                [Value::Read(images, 2), Value::Read(usable, 1), level, high, Value::Write(counts, 4), count],
            ) => {
                self.set_usable(usable);
                for (image, count) in pixels(images).chunks_exact(number(count)).zip(four_mut(counts)) {
                    // As the kernel does, which adds to what is there.
                    *count += above::count(Isa::Scalar, image, &self.usable, number(level) as i16, number(high) as i16) as u32;
                }
            }
            ("keep_images", [Value::Read(counts, 4), Value::Write(keep, 1), least, _]) => {
                keep.iter_mut().zip(four(counts)).for_each(|(keep, count)| *keep = u8::from(*count as usize >= number(least)));
            }
            (other, values) => return Err(format!("there is no kernel {other} with {} arguments of these kinds", values.len())),
        }
        Ok(())
    }

    fn blocks(&mut self, kernel: &str, grid: (u32, u32), values: &mut [Value<'_>]) -> Result<(), String> {
        match (kernel, values) {
            ("bslz4_blocks", [Value::Read(images, 1), bytes, element, Value::Write(slots, 1), Value::Write(sizes, 4)]) => {
                assert_eq!(number(element), 2);
                let blocks = grid.0 as usize;
                for (n, size) in four_mut(sizes).iter_mut().enumerate() {
                    let grouped = number(bytes) / 16 * 16;
                    let image = &images[n / blocks * number(bytes)..][..grouped];
                    let block = &image[n % blocks * BLOCK_BYTES..grouped.min((n % blocks + 1) * BLOCK_BYTES)];
                    let planes = &mut self.planes[..block.len()];
                    bitshuffle::shuffle(Isa::Scalar, TWO, block, planes);
                    *size = self.encoder.compress(Isa::Scalar, TWO, planes, &mut slots[n * SLOT_BYTES..][..SLOT_BYTES]) as u32;
                }
            }
            (
                "chunk_places",
                [
                    Value::Read(sizes, 4),
                    blocks,
                    bytes,
                    _,
                    block_bytes,
                    Value::Write(places, 4),
                    Value::Write(chunks, 1),
                    room,
                    Value::Write(lengths, 4),
                ],
            ) => {
                let (blocks, places) = (number(blocks), four_mut(places));
                for (image, length) in four_mut(lengths).iter_mut().enumerate() {
                    let mut at = HEADER_BYTES;
                    for (size, place) in four(sizes).iter().zip(&mut *places).skip(image * blocks).take(blocks) {
                        *place = at as u32;
                        at += 4 + *size as usize;
                    }
                    *length = (at + number(bytes) % 16) as u32;
                    let header = &mut chunks[image * number(room)..];
                    header[..8].copy_from_slice(&(number(bytes) as u64).to_be_bytes());
                    header[8..12].copy_from_slice(&(number(block_bytes) as u32).to_be_bytes());
                }
            }
            (other, values) => return Err(format!("there is no kernel {other} with {} arguments of these kinds", values.len())),
        }
        Ok(())
    }

    fn sparse(&mut self, kernel: &str, grid: (u32, u32), values: &mut [Value<'_>]) -> Result<(), String> {
        match (kernel, values) {
            (
                "row_counts_int16",
                [Value::Read(images, 2), Value::Read(usable, 1), level, high, Value::Write(counts, 4), columns],
            ) => {
                self.set_usable(usable);
                for (n, (row, count)) in pixels(images).chunks_exact(number(columns)).zip(four_mut(counts)).enumerate() {
                    let usable = &self.usable[n % grid.0 as usize * number(columns)..][..number(columns)];
                    *count = above::count(Isa::Scalar, row, usable, number(level) as i16, number(high) as i16) as u32;
                }
            }
            ("row_places", [Value::Read(counts, 4), rows, Value::Write(places, 4)]) => {
                let rows = number(rows);
                for (counts, places) in four(counts).chunks_exact(rows).zip(four_mut(places).chunks_exact_mut(rows + 1)) {
                    places[0] = 0;
                    (0..rows).for_each(|row| places[row + 1] = places[row] + counts[row]);
                }
            }
            (
                "collect_int16",
                [
                    Value::Read(images, 2),
                    Value::Read(usable, 1),
                    level,
                    high,
                    Value::Read(places, 4),
                    Value::Write(out, 4),
                    Value::Write(values, 2),
                    columns,
                    room,
                ],
            ) => {
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
            }
            (other, values) => return Err(format!("there is no kernel {other} with {} arguments of these kinds", values.len())),
        }
        Ok(())
    }
}

fn gather(kernel: &str, values: &mut [Value<'_>]) -> Result<(), String> {
    match (kernel, values) {
        (
            "chunk_gather",
            [
                Value::Read(images, 1),
                bytes,
                _,
                Value::Read(slots, 1),
                Value::Read(sizes, 4),
                Value::Read(places, 4),
                blocks,
                Value::Write(chunks, 1),
                room,
                Value::Read(lengths, 4),
            ],
        ) => {
            let blocks = number(blocks);
            for (n, (size, place)) in four(sizes).iter().zip(four(places)).enumerate() {
                let to = &mut chunks[n / blocks * number(room) + *place as usize..];
                to[..4].copy_from_slice(&size.to_be_bytes());
                to[4..4 + *size as usize].copy_from_slice(&slots[n * SLOT_BYTES..][..*size as usize]);
            }
            let rest = number(bytes) % 16;
            for (image, length) in four(lengths).iter().enumerate() {
                let from = &images[(image + 1) * number(bytes) - rest..][..rest];
                chunks[image * number(room) + *length as usize - rest..][..rest].copy_from_slice(from);
            }
        }
        (other, values) => return Err(format!("there is no kernel {other} with {} arguments of these kinds", values.len())),
    }
    Ok(())
}

impl Executor for CpuExecutor {
    fn run(&mut self, kernel: &str, grid: (u32, u32), values: &mut [Value<'_>]) -> Result<(), String> {
        match kernel {
            "bslz4_blocks" | "chunk_places" => self.blocks(kernel, grid, values),
            "chunk_gather" => gather(kernel, values),
            "row_counts_int16" | "row_places" | "collect_int16" => self.sparse(kernel, grid, values),
            _ => self.images(kernel, values),
        }
    }
}
