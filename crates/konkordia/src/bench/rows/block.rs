//! The steps of a worker on blocks of 8 KiB that stay in the caches.

use crate::bench::args::BlockStep;
use konkordia_kernels::bitshuffle::{self, ElementSize};
use konkordia_kernels::chunk::{BLOCK_BYTES, bslz4_bound};
use konkordia_kernels::convert::{self, Constants};
use konkordia_kernels::fused::{FusedScratch, block_pixels};
use konkordia_kernels::isa::Isa;
use konkordia_kernels::planes::Lz4Encoder;
use konkordia_kernels::stats::{self, PixelStats};
use std::hint::black_box;

/// Different blocks, evenly spread over the frame.
pub const BLOCKS: usize = 8;
const PIXELS: usize = block_pixels::<i16>();

/// A buffer of a block that begins with a cache line, as those of the workers do.
#[derive(Clone)]
#[repr(C, align(64))]
struct Buffer([u8; BLOCK_BYTES]);

/// A block, and what the scalar reference makes of it.
struct Block<'a> {
    words: Box<Buffer>,
    constants: Constants<'a>,
    pixels: Box<Buffer>,
    planes: Box<Buffer>,
    lz4: Vec<u8>,
    stats: PixelStats<i64>,
}

/// The blocks.
pub struct Scene<'a>(Vec<Block<'a>>);

impl<'a> Scene<'a> {
    /// Of a frame of at least [`BLOCKS`] blocks, and its constants.
    pub fn new(frame: &[u16], constants: &Constants<'a>) -> Self {
        let apart = frame.len() / BLOCKS / PIXELS * PIXELS;
        assert!(apart > 0, "a frame has at least {BLOCKS} blocks");
        let block = |n: usize| {
            let first = n * apart + apart / PIXELS / 2 * PIXELS;
            Block::new(&frame[first..first + PIXELS], constants.slice(first, PIXELS))
        };
        Self((0..BLOCKS).map(block).collect())
    }

    /// Bytes of words, pixels and planes, and of the constants of G0.
    pub fn bytes_in_use(&self) -> usize {
        self.0.len() * (3 * BLOCK_BYTES + 2 * PIXELS * size_of::<f32>())
    }
}

impl<'a> Block<'a> {
    fn new(raw: &[u16], constants: Constants<'a>) -> Self {
        let empty = || Box::new(Buffer([0; BLOCK_BYTES]));
        let (mut words, mut pixels, mut planes) = (empty(), empty(), empty());
        bytemuck::cast_slice_mut(&mut words.0).copy_from_slice(raw);
        convert::scalar::jungfrau::<i16>(raw, &constants, bytemuck::cast_slice_mut(&mut pixels.0));
        bitshuffle::shuffle(Isa::Scalar, ElementSize::Two, &pixels.0, &mut planes.0);
        let mut lz4 = vec![0; bslz4_bound(PIXELS, ElementSize::Two)];
        let bytes = Lz4Encoder::new(BLOCK_BYTES).compress(Isa::Scalar, ElementSize::Two, &planes.0, &mut lz4);
        lz4.truncate(bytes);
        let mut stats = PixelStats::default();
        stats::add::<i16>(Isa::Scalar, bytemuck::cast_slice(&pixels.0), &mut stats);
        Self { words, constants, pixels, planes, lz4, stats }
    }
}

/// The blocks, and the buffers of a worker.
pub struct Bench<'a> {
    scene: &'a Scene<'a>,
    scratch: FusedScratch,
    encoder: Lz4Encoder,
    planes: Box<Buffer>,
    out: Vec<u8>,
    stats: PixelStats<i64>,
}

impl<'a> Bench<'a> {
    /// With buffers of its own.
    pub fn new(scene: &'a Scene<'a>) -> Self {
        Self {
            scene,
            scratch: FusedScratch::new(),
            encoder: Lz4Encoder::new(BLOCK_BYTES),
            planes: Box::new(Buffer([0; BLOCK_BYTES])),
            out: vec![0; bslz4_bound(PIXELS, ElementSize::Two)],
            stats: PixelStats::default(),
        }
    }

    /// Does so many blocks, one after the other.
    pub fn run(&mut self, step: BlockStep, isa: Isa, blocks: usize) {
        (0..blocks).for_each(|n| {
            black_box(self.block(step, isa, n % BLOCKS));
        });
    }

    /// Does a block; returns the bytes written where something is compressed.
    fn block(&mut self, step: BlockStep, isa: Isa, n: usize) -> usize {
        let block = &self.scene.0[n];
        let words: &[u16] = bytemuck::cast_slice(&block.words.0);
        match step {
            BlockStep::Convert => {
                convert::jungfrau(isa, words, &block.constants, self.scratch.pixels_mut::<i16>());
                black_box(self.scratch.pixels_mut::<i16>());
            }
            BlockStep::Stats => {
                stats::add::<i16>(isa, bytemuck::cast_slice(&block.pixels.0), &mut self.stats);
                black_box(&self.stats);
            }
            BlockStep::Bitshuffle => {
                bitshuffle::shuffle(isa, ElementSize::Two, &block.pixels.0, &mut self.planes.0);
                black_box(&self.planes.0);
            }
            BlockStep::Lz4 => return self.encoder.compress(isa, ElementSize::Two, &block.planes.0, &mut self.out),
            BlockStep::Fused => {
                let pixels = self.scratch.pixels_mut::<i16>();
                convert::jungfrau(isa, words, &block.constants, pixels);
                stats::add::<i16>(isa, pixels, &mut self.stats);
                return self.scratch.pack_block::<i16>(isa, PIXELS, &mut self.out);
            }
        }
        0
    }

    /// Is what a step makes of every block that of the scalar reference?
    pub fn verify(&mut self, step: BlockStep, isa: Isa) -> bool {
        (0..BLOCKS).all(|n| {
            self.scratch.pixels_mut::<i16>().fill(-1);
            self.planes.0.fill(0xA5);
            self.out.fill(0xA5);
            self.stats = PixelStats::default();
            let written = self.block(step, isa, n);
            let block = &self.scene.0[n];
            match step {
                BlockStep::Convert => *self.scratch.pixels_mut::<i16>() == *bytemuck::cast_slice::<u8, i16>(&block.pixels.0),
                BlockStep::Stats => self.stats.bits() == block.stats.bits(),
                BlockStep::Bitshuffle => self.planes.0 == block.planes.0,
                BlockStep::Lz4 => self.out[..written] == block.lz4,
                // Behind the length of the block.
                BlockStep::Fused => self.out[4..written] == block.lz4 && self.stats.bits() == block.stats.bits(),
            }
        })
    }
}
