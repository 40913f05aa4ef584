//! Bitshuffle, LZ4 blocks and chunks: byte for byte those of the CPU, and the stock decoder gives the pixels back.

use konkordia_core::plan::Compression;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_gpu::program::{BLOCK_BYTES, SLOT_BYTES};
use konkordia_kernels::planes::Lz4Encoder;
use konkordia_kernels::{ElementSize, Isa, bitshuffle, chunk, codec, lz4};

const ORDERS: [Order; 3] = [Order::Parallel(2), Order::Down, Order::Mixed(5)];

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// Bytes of which about one of `rarity` begins a new run.
    fn runs(&mut self, bytes: usize, rarity: u64) -> Vec<u8> {
        let mut value = 0;
        let mut byte = || {
            if self.next().is_multiple_of(rarity) {
                value = self.next() as u8;
            }
            value
        };
        (0..bytes).map(|_| byte()).collect()
    }

    /// Pixels of `element` bytes, little-endian: counts of about `mean`, with a sign if it is `is_signed`.
    fn photons(&mut self, pixels: usize, element: ElementSize, mean: u64, is_signed: bool) -> Vec<u8> {
        let mut photon =
            || (0..4 * mean).filter(|_| self.next().is_multiple_of(4)).count() as i64 - i64::from(is_signed) * mean as i64;
        (0..pixels).flat_map(|_| photon().to_le_bytes()[..element.bytes()].to_vec()).collect()
    }
}

/// Bytes of an image that are in groups of eight elements.
fn grouped(bytes: usize, element: ElementSize) -> usize {
    bytes / (8 * element.bytes()) * (8 * element.bytes())
}

fn blocks(image_bytes: usize, element: ElementSize) -> usize {
    grouped(image_bytes, element).div_ceil(BLOCK_BYTES)
}

/// The transposed image of the CPU: blocks, then the last elements.
fn shuffled(element: ElementSize, image: &[u8]) -> Vec<u8> {
    let mut planes = image.to_vec();
    let grouped = grouped(image.len(), element);
    for (pixels, planes) in image[..grouped].chunks(BLOCK_BYTES).zip(planes[..grouped].chunks_mut(BLOCK_BYTES)) {
        bitshuffle::shuffle(Isa::Scalar, element, pixels, planes);
    }
    planes
}

#[test]
fn transposed_blocks_are_those_of_the_cpu_and_come_back() {
    let mut numbers = Numbers(0xB175_0000_1234_5679);
    for element in ElementSize::ALL {
        let group = 8 * element.bytes();
        for (pixels, images) in [(1, 2), (8, 1), (9, 3), (1000, 2), (8191, 1), (8192, 1), (8193, 2), (20_011, 1)] {
            let bytes = pixels * element.bytes();
            let input: Vec<u8> = (0..bytes * images).map(|_| numbers.next() as u8).collect();
            let expected: Vec<u8> = input.chunks(bytes).flat_map(|image| shuffled(element, image)).collect();
            let grid = Grid { x: (bytes / group * group).div_ceil(BLOCK_BYTES).max(1) as u32, y: images as u32 };
            for order in ORDERS {
                let (mut planes, mut back) = (vec![0x5A; input.len()], vec![0x5A; input.len()]);
                transpose(&input, &mut planes, (bytes, element), grid, order, false);
                assert!(planes == expected, "{element:?}, {pixels} pixels, {order:?}");
                transpose(&planes, &mut back, (bytes, element), grid, order, true);
                assert!(back == input, "inverse: {element:?}, {pixels} pixels, {order:?}");
            }
        }
    }
}

fn transpose(from: &[u8], to: &mut [u8], (bytes, element): (usize, ElementSize), grid: Grid, order: Order, is_inverse: bool) {
    let arguments = [
        Argument::read(from),
        Argument::write(to),
        Argument::number(bytes as u64),
        Argument::number(element.bytes() as u32),
        Argument::number(u32::from(is_inverse)),
    ];
    launch("bitshuffle", grid, order, &arguments).expect("no fault");
}

/// Slots and sizes of the LZ4 blocks of images of `bytes` bytes each.
fn lz4_blocks(kernel: &str, images: &[u8], bytes: usize, element: ElementSize, order: Order) -> (Vec<u8>, Vec<u32>) {
    let grid = Grid { x: blocks(bytes, element) as u32, y: (images.len() / bytes) as u32 };
    let count = (grid.x * grid.y) as usize;
    let (mut slots, mut sizes) = (vec![0xEE; count * SLOT_BYTES], vec![u32::MAX; count]);
    if count > 0 {
        let arguments = [
            Argument::read(images),
            Argument::number(bytes as u64),
            Argument::number(element.bytes() as u32),
            Argument::write(&mut slots),
            Argument::write(&mut sizes),
        ];
        launch(kernel, grid, order, &arguments).expect("no fault");
    }
    (slots, sizes)
}

/// The LZ4 blocks of one image of transposed bytes: those of the CPU, and the stock decoder reads them.
fn check_blocks(element: ElementSize, planes: &[u8], order: Order) {
    let (slots, sizes) = lz4_blocks("lz4_blocks", planes, planes.len(), element, order);
    let mut encoder = Lz4Encoder::new(BLOCK_BYTES);
    for ((block, slot), size) in planes.chunks(BLOCK_BYTES).zip(slots.chunks(SLOT_BYTES)).zip(&sizes) {
        let mut expected = vec![0; lz4::bound(block.len())];
        let written = encoder.compress(Isa::Scalar, element, block, &mut expected);
        let ours = &slot[..*size as usize];
        assert!(ours == &expected[..written], "{element:?}, {} bytes: {size} bytes, on the CPU {written}", block.len());
        let mut back = vec![0; block.len()];
        assert_eq!(lz4::decompress(ours, &mut back), Some(block.len()));
        assert!(back == block);
    }
}

#[test]
fn lz4_blocks_of_every_kind_are_those_of_the_cpu() {
    let mut numbers = Numbers(0x1234_5678_9ABC_DEF1);
    for element in ElementSize::ALL {
        let group = 8 * element.bytes();
        for groups in [1, 2, 3, 7, 8, 31, 33, 63, 65, BLOCK_BYTES / group - 1, BLOCK_BYTES / group, BLOCK_BYTES / group + 1] {
            for (rarity, order) in
                [(1, ORDERS[0]), (2, ORDERS[1]), (3, ORDERS[2]), (10, ORDERS[0]), (100, ORDERS[1]), (5000, ORDERS[2])]
            {
                check_blocks(element, &numbers.runs(groups * group, rarity), order);
            }
        }
    }
}

/// Literals of every kind of length between matches of every kind of length, and blocks that do not shrink.
#[test]
fn lengths_at_their_edges_are_those_of_the_cpu() {
    for literals in [0, 1, 14, 15, 16, 269, 270, 271, 525, 600] {
        for run in [4, 5, 18, 19, 20, 273, 274, 275, 600] {
            let one: Vec<u8> = (0..literals).map(|n| (n * 37 % 251) as u8).chain(std::iter::repeat_n(252, 1 + run)).collect();
            let block: Vec<u8> = one.iter().copied().cycle().take(BLOCK_BYTES).collect();
            check_blocks(ElementSize::Two, &block, Order::Parallel(2));
        }
    }
    let mut numbers = Numbers(77);
    let noise: Vec<u8> = (0..BLOCK_BYTES).map(|_| numbers.next() as u8).collect();
    check_blocks(ElementSize::Two, &noise, Order::Mixed(2));
    check_blocks(ElementSize::Four, &[0; BLOCK_BYTES], Order::Down);
    let period_4: Vec<u8> = (0..BLOCK_BYTES).map(|at| (at / 5 * 7) as u8).collect();
    check_blocks(ElementSize::One, &period_4, Order::Parallel(2));
}

/// Chunks of images of `bytes` bytes each, made by all kernels one after the other.
fn chunks(images: &[u8], bytes: usize, element: ElementSize, order: Order) -> Vec<Vec<u8>> {
    let count = images.len() / bytes;
    let blocks = blocks(bytes, element);
    let (slots, sizes) = lz4_blocks("bslz4_blocks", images, bytes, element, order);
    let bound = chunk::bslz4_bound(bytes / element.bytes(), element);
    let header_block_bytes = BLOCK_BYTES as u32;
    let (mut places, mut chunk_bytes) = (vec![0u32; count * blocks], vec![0u32; count]);
    let mut out = vec![0xDD; count * bound];
    let arguments = [
        Argument::read(&sizes),
        Argument::number(blocks as u32),
        Argument::number(bytes as u64),
        Argument::number(element.bytes() as u32),
        Argument::number(header_block_bytes),
        Argument::write(&mut places),
        Argument::write(&mut out),
        Argument::number(bound as u64),
        Argument::write(&mut chunk_bytes),
    ];
    launch("chunk_places", Grid { x: count as u32, y: 1 }, order, &arguments).expect("no fault");
    let arguments = [
        Argument::read(images),
        Argument::number(bytes as u64),
        Argument::number(element.bytes() as u32),
        Argument::read(&slots),
        Argument::read(&sizes),
        Argument::read(&places),
        Argument::number(blocks as u32),
        Argument::write(&mut out),
        Argument::number(bound as u64),
        Argument::read(&chunk_bytes),
    ];
    launch("chunk_gather", Grid { x: blocks.max(1) as u32, y: count as u32 }, order, &arguments).expect("no fault");
    out.chunks(bound).zip(&chunk_bytes).map(|(chunk, bytes)| chunk[..*bytes as usize].to_vec()).collect()
}

fn check_chunks(images: &[u8], bytes: usize, element: ElementSize, order: Order) {
    for (image, chunk) in images.chunks(bytes).zip(chunks(images, bytes, element, order)) {
        let expected = codec::compress(Compression::BSLZ4, Isa::Scalar, element, image, 1 << 17);
        assert!(chunk == expected, "{element:?}, {bytes} bytes: {} bytes, on the CPU {}", chunk.len(), expected.len());
        let mut back = vec![0; bytes];
        codec::decompress(Compression::BSLZ4, Isa::Scalar, &chunk, element, &mut back).expect("a whole chunk");
        assert!(back == image);
    }
}

#[test]
fn chunks_are_those_of_the_cpu() {
    let mut numbers = Numbers(0xC4C4_0000_1234_5679);
    for element in [ElementSize::One, ElementSize::Two, ElementSize::Four, ElementSize::Eight] {
        for (n, pixels) in [1, 7, 8, 9, 100, 1024, 4096, 4097, 8192 + 13].into_iter().enumerate() {
            let (mean, is_signed) = [(0, false), (1, true), (20, false)][n % 3];
            let images = numbers.photons(2 * pixels, element, mean, is_signed);
            check_chunks(&images, pixels * element.bytes(), element, ORDERS[n % 3]);
        }
    }
}

/// More blocks than threads: the sum of their sizes goes on from one round to the next.
#[test]
fn a_chunk_of_more_blocks_than_threads_is_that_of_the_cpu() {
    let mut numbers = Numbers(0xC4C4_0000_1234_567B);
    let bytes = 259 * BLOCK_BYTES + 24;
    check_chunks(&numbers.runs(bytes, 900), bytes, ElementSize::Four, Order::Parallel(2));
}
