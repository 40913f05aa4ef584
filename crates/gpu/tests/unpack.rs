//! Chunks to images: the pixels of the CPU, and of wrong chunks what the CPU says is wrong with them.

mod common;

use common::Numbers;
use konkordia_core::plan::Compression;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_gpu::program::BLOCK_BYTES;
use konkordia_kernels::chunk::{self, ChunkError};
use konkordia_kernels::{ElementSize, Isa, bitshuffle, codec, lz4};

const ORDERS: [Order; 3] = [Order::Parallel(2), Order::Down, Order::Mixed(5)];

/// Images of a size, and how many bytes their blocks have.
#[derive(Clone, Copy, Debug)]
struct Form {
    element: ElementSize,
    image_bytes: usize,
    block_bytes: usize,
}

impl Form {
    fn blocks(&self) -> usize {
        let group = 8 * self.element.bytes();
        (self.image_bytes / group * group).div_ceil(self.block_bytes)
    }

    /// The error that the numbers of a verdict mean; `None` = the chunk is whole.
    fn error(&self, verdict: &[u64], chunk: &[u8]) -> Option<ChunkError> {
        let (first, second) = (verdict[1], verdict[2]);
        let group = 8 * self.element.bytes();
        let block_bytes = |block: usize| self.block_bytes.min(self.image_bytes / group * group - block * self.block_bytes);
        let parts = ["the header", "the length of a block", "a block", "the last pixels"];
        Some(match verdict[0] {
            0 => return None,
            1 => ChunkError::Truncated { at: chunk.len(), what: parts[first as usize] },
            2 => ChunkError::WrongLength { found: first, expected: self.image_bytes },
            3 => ChunkError::BlockBytes(first as u32),
            4 => ChunkError::Block { block: first as usize, at: second as usize, bytes: block_bytes(first as usize) },
            5 => ChunkError::Trailing(first as usize),
            other => panic!("verdict {other}"),
        })
    }
}

/// The images and verdicts (4 numbers each) of chunks; pixels begin with 0x77.
fn unpack(form: Form, chunks: &[Vec<u8>], order: Order) -> (Vec<Vec<u8>>, Vec<u64>) {
    let most = chunks.iter().map(Vec::len).max().unwrap_or(0);
    let (count, blocks) = (chunks.len(), form.blocks());
    let all: Vec<u8> =
        chunks.iter().flat_map(|chunk| chunk.iter().copied().chain(std::iter::repeat_n(0xCC, most - chunk.len()))).collect();
    let lengths_of_chunks: Vec<u32> = chunks.iter().map(|chunk| chunk.len() as u32).collect();
    let [mut places, mut lengths] = [(); 2].map(|()| vec![u32::MAX; count * blocks]);
    let (mut verdicts, mut wrong) = (vec![u64::MAX; 4 * count], vec![9u8; count * blocks]);
    let mut images = vec![0x77u8; count * form.image_bytes];
    let numbers = || {
        [
            Argument::number(form.image_bytes as u64),
            Argument::number(form.element.bytes() as u32),
            Argument::number(form.block_bytes as u32),
            Argument::number(blocks as u32),
        ]
    };
    let given = || [Argument::read(&all), Argument::number(most as u64), Argument::read(&lengths_of_chunks)];
    let found = [Argument::write(&mut places), Argument::write(&mut lengths), Argument::write(&mut verdicts)];
    let find = given().into_iter().chain(numbers()).chain(found).chain([Argument::number(count as u32)]);
    launch("chunk_blocks", Grid { x: 1, y: 1 }, order, &find.collect::<Vec<_>>()).expect("no fault");
    let known = [Argument::read(&places), Argument::read(&lengths), Argument::read(&verdicts)];
    let out = [Argument::write(&mut images), Argument::write(&mut wrong)];
    let decode = given().into_iter().chain(numbers()).chain(known).chain(out);
    launch("unpack_blocks", Grid { x: blocks.max(1) as u32, y: count as u32 }, order, &decode.collect::<Vec<_>>())
        .expect("no fault");
    let say = [Argument::read(&wrong), Argument::read(&places), Argument::number(blocks as u32), Argument::write(&mut verdicts)];
    launch("chunk_verdicts", Grid { x: count as u32, y: 1 }, order, &say).expect("no fault");
    (images.chunks(form.image_bytes.max(1)).map(<[u8]>::to_vec).collect(), verdicts)
}

/// Chunks are decoded to the images of the CPU, or refused for the same reason. Returns how many were refused.
fn check(form: Form, chunks: &[Vec<u8>], order: Order) -> usize {
    let (images, verdicts) = unpack(form, chunks, order);
    let mut refused = 0;
    for (n, chunk) in chunks.iter().enumerate() {
        let mut expected = vec![0; form.image_bytes];
        let result = codec::decompress(Compression::BSLZ4, Isa::Scalar, chunk, form.element, &mut expected);
        assert_eq!(form.error(&verdicts[4 * n..][..4], chunk), result.clone().err(), "chunk {n}, {form:?}");
        if result.is_ok() {
            assert!(images[n] == expected, "chunk {n}, {form:?}");
        }
        refused += usize::from(result.is_err());
    }
    refused
}

/// A chunk of blocks of any length, by the search of the stock encoder.
fn stock_chunk(form: Form, image: &[u8]) -> Vec<u8> {
    let group = 8 * form.element.bytes();
    let (grouped, leftover) = image.split_at(image.len() / group * group);
    let mut chunk = vec![0; chunk::HEADER_BYTES];
    chunk::write_header(&mut chunk, image.len() as u64, form.block_bytes as u32);
    let mut encoder = lz4::Encoder::new();
    for pixels in grouped.chunks(form.block_bytes) {
        let mut planes = vec![0; pixels.len()];
        bitshuffle::shuffle(Isa::Scalar, form.element, pixels, &mut planes);
        let mut out = vec![0; 4 + lz4::bound(planes.len())];
        let written = chunk::write_block(&mut encoder, &planes, &mut out);
        chunk.extend_from_slice(&out[..written]);
    }
    chunk.extend_from_slice(leftover);
    chunk
}

/// Bytes of which about one of `rarity` begins a new run.
fn runs(numbers: &mut Numbers, bytes: usize, rarity: u64) -> Vec<u8> {
    let mut value = 0;
    let mut byte = || {
        if numbers.below(rarity) == 0 {
            value = numbers.next() as u8;
        }
        value
    };
    (0..bytes).map(|_| byte()).collect()
}

#[test]
fn chunks_of_both_encoders_become_the_images_of_the_cpu() {
    let mut numbers = Numbers(0xDEC0_0000_1234_5679);
    for element in [ElementSize::One, ElementSize::Two, ElementSize::Four, ElementSize::Eight] {
        for (n, pixels) in [1, 7, 8, 9, 100, 1024, 4097, 8192 + 13].into_iter().enumerate() {
            let form = Form { element, image_bytes: pixels * element.bytes(), block_bytes: BLOCK_BYTES };
            let rarity = if pixels > 1000 { 200 } else { [1, 3, 20][n % 3] };
            let image = runs(&mut numbers, form.image_bytes, rarity);
            let ours = codec::compress(Compression::BSLZ4, Isa::Scalar, element, &image, 1 << 17);
            let (back, verdicts) = unpack(form, &[ours, stock_chunk(form, &image)], ORDERS[n % 3]);
            let blocks = form.blocks() as u64;
            assert_eq!(verdicts, [[0, 0, 0, blocks]; 2].concat(), "{form:?}");
            assert!(back == [image.clone(), image], "{form:?}");
        }
    }
}

/// Blocks of other lengths than 8 KiB, up to more blocks than threads.
#[test]
fn blocks_of_other_lengths_become_the_images_of_the_cpu() {
    let mut numbers = Numbers(0xDEC1_0000_1234_5679);
    for block_bytes in [16, 64, 4096, 8176] {
        let form = Form { element: ElementSize::Two, image_bytes: 300 * 16 + 6, block_bytes };
        let images: Vec<Vec<u8>> = (0..2).map(|_| runs(&mut numbers, form.image_bytes, 6)).collect();
        let chunks: Vec<Vec<u8>> = images.iter().map(|image| stock_chunk(form, image)).collect();
        assert_eq!(check(form, &chunks, Order::Mixed(3)), 0);
    }
}

/// A chunk whose blocks are others than those of the launch is not decoded, and the verdict says which it has.
#[test]
fn blocks_that_the_launch_was_not_made_for_are_named() {
    let form = Form { element: ElementSize::Two, image_bytes: 5000, block_bytes: 4096 };
    let chunk = stock_chunk(Form { block_bytes: 1024, ..form }, &vec![3; 5000]);
    let (images, verdicts) = unpack(form, &[chunk], Order::Parallel(2));
    assert_eq!((verdicts, images), (vec![6, 1024, 0, 0], vec![vec![0x77; 5000]]));
}

/// Lengths of literals and matches at their edges, periods of every kind, blocks that do not shrink.
#[test]
fn sequences_at_their_edges_become_the_images_of_the_cpu() {
    let mut numbers = Numbers(0xDEC2_0000_1234_5679);
    // Elements of one byte whose blocks are transposed from what the encoder is to see.
    let form = Form { element: ElementSize::One, image_bytes: BLOCK_BYTES, block_bytes: BLOCK_BYTES };
    let image_of = |planes: &[u8]| {
        let mut image = vec![0; planes.len()];
        bitshuffle::unshuffle(Isa::Scalar, form.element, planes, &mut image);
        image
    };
    let mut chunks = Vec::new();
    for literals in [0, 1, 14, 15, 16, 269, 270, 271, 600] {
        for run in [4, 18, 19, 20, 273, 274, 275, 600] {
            let one: Vec<u8> = (0..literals).map(|n| (n * 37 % 251) as u8).chain(std::iter::repeat_n(252, 1 + run)).collect();
            let planes: Vec<u8> = one.iter().copied().cycle().take(BLOCK_BYTES).collect();
            chunks.push(stock_chunk(form, &image_of(&planes)));
        }
    }
    for period in [2, 3, 7, 255, 256, 257, 600] {
        let mut planes = runs(&mut numbers, BLOCK_BYTES, 1);
        for at in period..BLOCK_BYTES {
            planes[at] = if at % 997 == 0 { planes[at] } else { planes[at - period] };
        }
        chunks.push(stock_chunk(form, &image_of(&planes)));
    }
    chunks.push(stock_chunk(form, &runs(&mut numbers, BLOCK_BYTES, 1)));
    assert_eq!(check(form, &chunks, Order::Mixed(9)), 0);
}

/// Chunks that are cut at every kind of place, have bytes too many, or wrong headers.
#[test]
fn cut_chunks_are_refused_as_on_the_cpu() {
    let mut numbers = Numbers(0xDEC3_0000_1234_5679);
    let form = Form { element: ElementSize::Two, image_bytes: 3 * 256 + 6, block_bytes: 256 };
    let whole = stock_chunk(form, &runs(&mut numbers, form.image_bytes, 5));
    let mut chunks: Vec<Vec<u8>> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    chunks.push([&whole[..], &[1, 2, 3]].concat());
    for (at, byte) in [(7, 1), (0, 1), (8, 1), (10, 0), (11, 3), (8, 0x7F), (8, 0xFF)] {
        let mut chunk = whole.clone();
        chunk[at] = byte;
        let stated = u32::from_be_bytes([chunk[8], chunk[9], chunk[10], chunk[11]]);
        // A length that is possible is another launch's.
        if at < 8 || stated == 0 || !stated.is_multiple_of(16) || stated > 0x7E00_0000 {
            chunks.push(chunk.clone());
            chunks.extend([8, 11].map(|length| chunk[..length].to_vec()));
        }
    }
    let refused = check(form, &chunks, Order::Down);
    assert_eq!(refused, chunks.len());
}

/// Chunks with some wrong bytes: what the CPU takes is decoded to the same pixels, the rest refused for the same
/// reason.
#[test]
fn damaged_chunks_are_as_on_the_cpu() {
    let mut numbers = Numbers(0xBAD0_5678_9ABC_DEF1);
    let form = Form { element: ElementSize::Two, image_bytes: 5 * 512 + 2, block_bytes: 512 };
    let mut counts = [0; 2];
    for round in 0..40 {
        let damaged = |_| {
            let mut chunk = stock_chunk(form, &runs(&mut numbers, form.image_bytes, 3));
            for _ in 0..1 + numbers.below(3) {
                let at = 12 + numbers.below(chunk.len() as u64 - 12) as usize;
                chunk[at] = numbers.next() as u8;
            }
            if numbers.below(4) == 0 {
                chunk.truncate(12 + numbers.below(chunk.len() as u64 - 12) as usize);
            }
            chunk
        };
        let chunks: Vec<Vec<u8>> = (0..16).map(damaged).collect();
        let refused = check(form, &chunks, ORDERS[round % 3]);
        counts = [counts[0] + refused, counts[1] + chunks.len() - refused];
    }
    assert!(counts[0] > 100 && counts[1] > 100, "refused and taken: {counts:?}");
}

/// Of several wrong blocks the first is named, whichever thread finds it.
#[test]
fn the_first_wrong_block_is_named() {
    let form = Form { element: ElementSize::Two, image_bytes: 600 * 16, block_bytes: 16 };
    let whole = stock_chunk(form, &vec![5; form.image_bytes]);
    let block_at = |block: usize| 12 + (whole.len() - 12) / 600 * block + 4;
    for wrong in [[3, 259, 515], [299, 300, 43 + 256], [599, 255, 511], [256, 512, 0]] {
        let mut chunk = whole.clone();
        wrong.iter().for_each(|block| chunk[block_at(*block)] = 0xFF);
        assert_eq!(check(form, std::slice::from_ref(&chunk), Order::Mixed(7)), 1);
        let (_, verdicts) = unpack(form, &[chunk], Order::Down);
        assert_eq!(verdicts[..2], [4, wrong.into_iter().min().expect("blocks") as u64]);
    }
}

/// Blocks that are made by hand to read or write where they must not.
#[test]
fn hostile_blocks_are_refused() {
    let form = Form { element: ElementSize::Two, image_bytes: 64, block_bytes: 64 };
    let long_literals = [&[0xF0][..], &[255; 20], &[0, 1, 2]].concat();
    let long_match = [&[0x1F, 7, 1, 0][..], &[255; 20], &[0]].concat();
    let blocks: Vec<Vec<u8>> = vec![
        vec![],
        vec![0xFF; 40],
        vec![0x00],
        vec![0xF0],
        long_literals,
        long_match,
        // A distance of 0, one before the block, one that is cut.
        vec![0x1F, 7, 0, 0, 0],
        vec![0x1F, 7, 2, 0, 0],
        vec![0x1F, 7, 1],
        // A match that ends one byte behind the block, and one that fills it but for the end.
        [&[0x1F, 7, 1, 0, 64 - 19 - 1 + 1][..], &[0x00]].concat(),
        [&[0x1F, 7, 1, 0, 64 - 19 - 1][..], &[0x00]].concat(),
        // Literals up to the last byte, without and with bytes behind them.
        [&[0xF0, 64 - 15][..], &[9; 64]].concat(),
        [&[0xF0, 64 - 15][..], &[9; 65]].concat(),
        [&[0xF0, 65 - 15][..], &[9; 65]].concat(),
        [&[0xF0, 63 - 15][..], &[9; 63]].concat(),
        // Behind 60 bytes: 10 literals, and a match of 12; in a block that ends, 5 literals.
        [&[0x1F, 7, 1, 0, 40, 0xA0][..], &[9; 10]].concat(),
        vec![0x1F, 7, 1, 0, 40, 0x08, 1, 0, 0x00],
        vec![0x50, 1, 2],
    ];
    let chunk_of = |block: &Vec<u8>| {
        let mut chunk = vec![0; 12];
        chunk::write_header(&mut chunk, 64, 64);
        chunk.extend((block.len() as u32).to_be_bytes());
        chunk.extend(block);
        chunk
    };
    let chunks: Vec<Vec<u8>> = blocks.iter().map(chunk_of).collect();
    let refused = check(form, &chunks, Order::Parallel(2));
    assert_eq!(refused, chunks.len() - 2);
    // Alone, each is followed by nothing that could be read.
    for chunk in &chunks {
        check(form, std::slice::from_ref(chunk), Order::Down);
    }
    // The same at the end of the memory for a block: 8190 bytes, then 10 literals or a match of 12.
    let full = Form { element: ElementSize::Two, image_bytes: BLOCK_BYTES, block_bytes: BLOCK_BYTES };
    let first = [&[0x1F, 7, 1, 0][..], &[255; 32], &[10]].concat();
    for rest in [[&[0xA0][..], &[9; 10]].concat(), vec![0x08, 1, 0, 0x00]] {
        let mut chunk = chunk_of(&[&first[..], &rest].concat());
        chunk::write_header(&mut chunk, BLOCK_BYTES as u64, BLOCK_BYTES as u32);
        assert_eq!(check(full, &[chunk], Order::Parallel(2)), 1);
    }
    // The pixels of a wrong block are not touched.
    let (images, _) = unpack(form, &chunks[..1], Order::Parallel(2));
    assert!(images[0].iter().all(|byte| *byte == 0x77));
}
