//! The cost of splitting the double pixels, compared with the fused kernel alone. Both work strip by strip, as the
//! engine's workers do.

use super::rows::KernelRow;
use super::rows::harness::{Row, measure};
use konkordia_core::geometry::{DoublePixels, Gather, ImageGeometry};
use konkordia_core::share::{share, share_start};
use konkordia_core::tile::TileFormat;
use konkordia_kernels::chunk::bslz4_bound;
use konkordia_kernels::convert::{self, Constants};
use konkordia_kernels::fused::{FusedScratch, block_pixels};
use konkordia_kernels::{ElementSize, Isa};
use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

/// Blocks of a strip.
const STRIP_BLOCKS: usize = 16;

/// Runs the two rows for about `budget`; the frames are those of one module.
pub fn run(frames: &[Vec<u16>], constants: &Constants<'_>, budget: Duration) -> Vec<KernelRow> {
    let raw_pixels = frames[0].len();
    let mut rows = Vec::new();
    let names = [("plain: fused, strip by strip", DoublePixels::Keep), ("fused, double pixels split", DoublePixels::Split)];
    for (name, double_pixels) in names {
        let geometry =
            ImageGeometry::stacked_with(TileFormat::jungfrau(1).expect("a module has one interface"), 1, double_pixels)
                .expect("a module is an image");
        let mut module = Module::new(frames, constants, geometry);
        let verified = module.verify(frames, constants);
        let blocks = module.gather.blocks();
        let part = (STRIP_BLOCKS * block_pixels::<i16>()) as f64 / module.geometry.pixels() as f64;
        let work = Box::new(move |round: usize| {
            // Full strips only, so that every sample does the same.
            let first = round % (blocks / STRIP_BLOCKS) * STRIP_BLOCKS;
            for image in 0..module.frames.len() {
                black_box(module.pack(first..first + STRIP_BLOCKS, image));
            }
        });
        let raw_bytes = 2.0 * raw_pixels as f64 * part * frames.len() as f64;
        rows.push(Row { name, isa: Isa::detect(), plain: 0, raw_bytes, bits_per_pixel: None, verified, every: 1, work });
    }
    measure(rows, budget)
}

/// Converts and packs frames of a module into images of one geometry.
struct Module<'a> {
    frames: &'a [Vec<u16>],
    geometry: ImageGeometry,
    gather: Gather,
    /// Pedestals and factors in the order of the image.
    planes: [Vec<f32>; 6],
    words: Vec<u16>,
    scratch: FusedScratch,
    out: Vec<u8>,
}

impl<'a> Module<'a> {
    fn new(frames: &'a [Vec<u16>], constants: &Constants<'_>, geometry: ImageGeometry) -> Self {
        let arranged = |i: usize| {
            let plane = if i < 3 { constants.pedestal[i] } else { constants.factor[i - 3] };
            geometry.arrange(&[plane], f32::NAN)
        };
        Self {
            frames,
            gather: geometry.gather(block_pixels::<i16>()),
            planes: std::array::from_fn(arranged),
            words: vec![0; block_pixels::<i16>()],
            scratch: FusedScratch::new(),
            out: vec![0; bslz4_bound(geometry.pixels(), ElementSize::Two)],
            geometry,
        }
    }

    /// Packs some blocks of an image into `out` and returns their length.
    fn pack(&mut self, blocks: Range<usize>, image: usize) -> usize {
        let (isa, frame) = (Isa::detect(), &self.frames[image]);
        let [p0, p1, p2, f0, f1, f2] = &self.planes;
        let constants = Constants { pedestal: [p0, p1, p2], factor: [f0, f1, f2] };
        let mut at = 0;
        for block in blocks {
            let (first, length) = (block * block_pixels::<i16>(), self.gather.block_length(block));
            let pixels = &mut self.scratch.pixels_mut::<i16>()[..length];
            if self.gather.is_plain(block) {
                for segment in self.gather.segments(block) {
                    let (to, from, count) = (segment.block_offset as usize, segment.tile_pixel as usize, segment.length as usize);
                    let raw = &frame[from..from + count];
                    convert::jungfrau(isa, raw, &constants.slice(first + to, count), &mut pixels[to..to + count]);
                }
            } else {
                for segment in self.gather.segments(block) {
                    let (to, from, count) = (segment.block_offset as usize, segment.tile_pixel as usize, segment.length as usize);
                    if segment.step == 1 {
                        self.words[to..to + count].copy_from_slice(&frame[from..from + count]);
                    } else {
                        let place = |k: usize| (from as i64 + k as i64 * i64::from(segment.step)) as usize;
                        (0..count).for_each(|k| self.words[to + k] = frame[place(k)]);
                    }
                }
                convert::jungfrau(isa, &self.words[..length], &constants.slice(first, length), pixels);
            }
            share_out(&self.gather, block, image, pixels);
            at += self.scratch.pack_block::<i16>(isa, length, &mut self.out[at..]);
        }
        at
    }

    /// True if the packed blocks of all images are equal to those of whole images that the scalar reference converts
    /// and splits.
    fn verify(&mut self, frames: &[Vec<u16>], constants: &Constants<'_>) -> bool {
        let whole = self.geometry.gather(self.geometry.pixels());
        let mut good = true;
        for (image, frame) in frames.iter().enumerate() {
            let mut converted = vec![0i16; frame.len()];
            convert::jungfrau(Isa::Scalar, frame, constants, &mut converted);
            let mut expected = self.geometry.arrange(&[&converted], i16::MIN);
            share_out(&whole, 0, image, &mut expected);
            let (mut packed, mut room) = (Vec::new(), vec![0; self.out.len()]);
            for block in expected.chunks(block_pixels::<i16>()) {
                let bytes: Vec<u8> = block.iter().flat_map(|p| p.to_le_bytes()).collect();
                let written = self.scratch.pack_bytes(Isa::Scalar, ElementSize::Two, &bytes, &mut room);
                packed.extend_from_slice(&room[..written]);
            }
            let length = self.pack(0..self.gather.blocks(), image);
            good &= self.out[..length] == packed;
        }
        good
    }
}

fn share_out(gather: &Gather, block: usize, image: usize, pixels: &mut [i16]) {
    for s in gather.shares(block) {
        let pixel = &mut pixels[s.block_offset as usize];
        *pixel = share(*pixel, s.part, s.parts, share_start(s.group, image as u64));
    }
}
