//! The codecs that do not transpose, packed in strips as in the engine, against the library call that everybody makes.

use super::harness::{Row, measure};
use super::{KernelRow, STRIP_PIXELS};
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress};
use konkordia_core::plan::Compression;
use konkordia_kernels::bitshuffle::ElementSize;
use konkordia_kernels::chunk::{self, write_header};
use konkordia_kernels::codec::{self, Framing, Packer, piece_bound};
use konkordia_kernels::convert::{self, Constants};
use konkordia_kernels::isa::Isa;
use konkordia_kernels::lz4;
use std::hint::black_box;
use std::time::Duration;

/// Codec, how many rounds there are to one sample, and the names of its rows: plain, plain back, ours, ours back.
/// "Back" is decoding.
type Names = (Compression, usize, [&'static str; 4]);
const CODECS: [Names; 3] = [
    (Compression::LZ4, 1, ["plain: lz4 of pixels", "plain: unlz4", "lz4 of pixels", "lz4 decode"]),
    (Compression::Zstd { level: 1 }, 3, ["plain: zstd of pixels", "plain: unzstd", "zstd of pixels", "zstd decode"]),
    (Compression::Gzip { level: 1 }, 9, ["plain: gzip of pixels", "plain: ungzip", "gzip of pixels", "gzip decode"]),
];

/// Runs the rows for about `budget`.
///
/// # Errors
/// As [`super::run`].
pub fn run(frames: &[Vec<u16>], constants: &Constants<'_>, budget: Duration) -> Result<Vec<KernelRow>, String> {
    super::check(frames, constants)?;
    let convert = |raw: &Vec<u16>| {
        let mut image = vec![0i16; raw.len()];
        convert::jungfrau(Isa::detect(), raw, constants, &mut image);
        bytemuck::cast_slice(&image).to_vec()
    };
    let images: Vec<Vec<u8>> = frames.iter().map(convert).collect();
    let made: Vec<(Chunks, Chunks)> =
        CODECS.iter().map(|(codec, ..)| (Chunks::plain(*codec, &images), Chunks::ours(*codec, &images))).collect();
    let mut rows = Vec::new();
    for ((codec, every, names), (plain, ours)) in CODECS.iter().zip(&made) {
        let first = rows.len();
        for (i, name) in names.iter().enumerate() {
            let chunks = if i < 2 { plain } else { ours };
            rows.push(Row {
                name,
                isa: Isa::detect(),
                plain: first + i % 2,
                raw_bytes: images[0].len() as f64,
                bits_per_pixel: (i % 2 == 0).then_some(chunks.bits_per_pixel),
                verified: chunks.verified,
                every: *every,
                work: work(*codec, i, &images, chunks),
            });
        }
    }
    Ok(measure(rows, budget))
}

/// The chunks of all images.
struct Chunks {
    chunks: Vec<Vec<u8>>,
    bits_per_pixel: f64,
    verified: bool,
}

impl Chunks {
    fn plain(codec: Compression, images: &[Vec<u8>]) -> Self {
        let mut room = vec![0; images[0].len() * 2 + 65536];
        let pack = |image: &Vec<u8>| {
            let length = plain_pack(codec, image, &mut room);
            room[..length].to_vec()
        };
        Self::new(codec, images, images.iter().map(pack).collect(), plain_unpack)
    }

    fn ours(codec: Compression, images: &[Vec<u8>]) -> Self {
        let mut own = Own::new(codec, images[0].len());
        let pack = |image: &Vec<u8>| {
            let length = own.pack(image);
            own.out[..length].to_vec()
        };
        Self::new(codec, images, images.iter().map(pack).collect(), own_unpack)
    }

    /// Verified if `unpack` gives the images back, and our own decoder does too.
    fn new(codec: Compression, images: &[Vec<u8>], chunks: Vec<Vec<u8>>, unpack: fn(Compression, &[u8], &mut [u8])) -> Self {
        let mut back = vec![0; images[0].len()];
        let mut same = |chunk: &[u8], image: &[u8], unpack: fn(Compression, &[u8], &mut [u8])| {
            back.fill(0xA5);
            unpack(codec, chunk, &mut back);
            back == image
        };
        let verified = images.iter().zip(&chunks).all(|(i, c)| same(c, i, unpack) && same(c, i, own_unpack));
        let bytes: usize = chunks.iter().map(Vec::len).sum();
        let bits_per_pixel = bytes as f64 * 8.0 / (images.len() * images[0].len() / 2) as f64;
        Self { chunks, bits_per_pixel, verified }
    }
}

/// The work of a row: 0 plain, 1 plain decoding, 2 ours, 3 our decoding.
fn work<'a>(codec: Compression, which: usize, images: &'a [Vec<u8>], chunks: &'a Chunks) -> Box<dyn FnMut(usize) + 'a> {
    let (mut room, mut back) = (vec![0; images[0].len() * 2 + 65536], vec![0; images[0].len()]);
    match which {
        0 => Box::new(move |round| {
            black_box(plain_pack(codec, &images[round % images.len()], &mut room));
        }),
        1 => Box::new(move |round| plain_unpack(codec, &chunks.chunks[round % images.len()], &mut back)),
        2 => {
            let mut own = Own::new(codec, images[0].len());
            Box::new(move |round| {
                black_box(own.pack(&images[round % images.len()]));
            })
        }
        _ => Box::new(move |round| own_unpack(codec, &chunks.chunks[round % images.len()], &mut back)),
    }
}

/// One image, one call (for LZ4 one call for each block of 64 KiB, which its filter asks for).
fn plain_pack(codec: Compression, image: &[u8], out: &mut [u8]) -> usize {
    match codec {
        Compression::Zstd { level } => zstd_safe::compress(out, image, level.into()).expect("there is room"),
        Compression::Gzip { level } => {
            let mut stream = Compress::new(flate2::Compression::new(level.into()), true);
            stream.compress(image, out, FlushCompress::Finish).expect("there is room");
            stream.total_out() as usize
        }
        _ => {
            write_header(out, image.len() as u64, codec.block_bytes() as u32);
            let mut at = chunk::HEADER_BYTES;
            for block in image.chunks(codec.block_bytes()) {
                let written = lz4::compress_default(block, &mut out[at + 4..]);
                if written >= block.len() {
                    out[at + 4..][..block.len()].copy_from_slice(block);
                }
                let written = written.min(block.len());
                out[at..at + 4].copy_from_slice(&(written as u32).to_be_bytes());
                at += 4 + written;
            }
            at
        }
    }
}

fn plain_unpack(codec: Compression, chunk: &[u8], image: &mut [u8]) {
    const MADE: &str = "the bench made this chunk";
    match codec {
        Compression::Zstd { .. } => {
            zstd_safe::decompress(image, chunk).expect(MADE);
        }
        Compression::Gzip { .. } => {
            Decompress::new(true).decompress(chunk, image, FlushDecompress::Finish).expect(MADE);
        }
        _ => {
            let mut at = chunk::HEADER_BYTES;
            for block in image.chunks_mut(codec.block_bytes()) {
                let length = u32::from_be_bytes([chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]]) as usize;
                let packed = &chunk[at + 4..][..length];
                if length == block.len() {
                    block.copy_from_slice(packed);
                } else {
                    lz4::decompress(packed, block).expect(MADE);
                }
                at += 4 + length;
            }
        }
    }
}

fn own_unpack(codec: Compression, chunk: &[u8], image: &mut [u8]) {
    codec::decompress(codec, Isa::detect(), chunk, ElementSize::Two, image).expect("the bench made this chunk");
}

/// The buffers of a worker and of the writer that make a chunk of strips.
struct Own {
    codec: Compression,
    packer: Packer,
    packed: Vec<Vec<u8>>,
    framing: Framing,
    out: Vec<u8>,
}

impl Own {
    fn new(codec: Compression, image_bytes: usize) -> Self {
        let piece = if codec.is_by_strip() { 2 * STRIP_PIXELS } else { codec.block_bytes() };
        let packed = vec![vec![0; piece_bound(codec, piece)]; image_bytes.div_ceil(piece)];
        let packer = Packer::new(codec, Isa::detect(), piece);
        Self { codec, packer, packed, framing: Framing::new(codec, image_bytes), out: vec![0; image_bytes * 2 + 65536] }
    }

    /// Packs an image into `out` and returns the length of the chunk.
    fn pack(&mut self, image: &[u8]) -> usize {
        let piece = if self.codec.is_by_strip() { 2 * STRIP_PIXELS } else { self.codec.block_bytes() };
        let pack = |(piece, room): (&[u8], &mut Vec<u8>)| self.packer.pack_bytes(ElementSize::Two, piece, room);
        let lengths: Vec<usize> = image.chunks(piece).zip(&mut self.packed).map(pack).collect();
        let pieces: Vec<&[u8]> = self.packed.iter().zip(&lengths).map(|(room, length)| &room[..*length]).collect();
        let mut parts = vec![&[][..]; pieces.len() + 2];
        let count = self.framing.join(&pieces, &mut parts);
        let mut at = 0;
        for part in &parts[..count] {
            self.out[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        at
    }
}
