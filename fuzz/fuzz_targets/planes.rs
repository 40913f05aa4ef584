//! Any bytes as a transposed block: our encoders keep to their bounds, and the stock decoders give the block back.
#![no_main]

use konkordia_kernels::planes::{Lz4Encoder, ZstdEncoder};
use konkordia_kernels::{ElementSize, Isa, lz4, zstd};
use libfuzzer_sys::fuzz_target;

const BLOCK_BYTES_MAX: usize = 65_536;

fuzz_target!(|data: &[u8]| {
    let [choice, stretch, rest @ ..] = data else { return };
    let element = ElementSize::ALL[usize::from(choice % 4)];
    // Longer blocks with runs: each byte several times.
    let times = 1 + usize::from(stretch % 40);
    let mut block: Vec<u8> = rest.iter().flat_map(|byte| std::iter::repeat_n(*byte, times)).take(BLOCK_BYTES_MAX).collect();
    block.truncate(block.len() / (8 * element.bytes()) * (8 * element.bytes()));
    let mut back = vec![0; block.len()];
    let (mut first_lz4, mut first_zstd) = (Vec::new(), Vec::new());
    for (n, &isa) in Isa::available().iter().enumerate() {
        let mut out = vec![0; lz4::bound(block.len())];
        let written = Lz4Encoder::new(BLOCK_BYTES_MAX).compress(isa, element, &block, &mut out);
        assert_eq!(lz4::decompress(&out[..written], &mut back), Some(block.len()));
        assert!(back == block);
        out.truncate(written);
        let mut frame = vec![0; zstd::bound(block.len())];
        let written = ZstdEncoder::new(BLOCK_BYTES_MAX).compress(isa, element, &block, &mut frame);
        assert!(zstd::Decoder::new().decompress(&frame[..written], &mut back));
        assert!(back == block);
        frame.truncate(written);
        if n == 0 {
            (first_lz4, first_zstd) = (out, frame);
        } else {
            assert!(out == first_lz4 && frame == first_zstd, "{isa} gives other bytes");
        }
    }
});
