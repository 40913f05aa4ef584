//! Any bytes as an LZ4 block: our decoder refuses or gives what the stock one gives, and a block of the stock encoder
//! comes back.
#![no_main]

use konkordia_kernels::lz4;
use konkordia_kernels::planes::decompress_lz4;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [low, high, block @ ..] = data else { return };
    let room = usize::from(*low) | usize::from(*high % 16) << 8;
    let (mut ours, mut stock) = (vec![0; room], vec![1; room]);
    let (here, there) = (decompress_lz4(block, &mut ours), lz4::decompress(block, &mut stock));
    if let (Some(here), Some(there)) = (here, there) {
        assert!(here == there && ours[..here] == stock[..here]);
    }
    let mut packed = vec![0; lz4::bound(block.len())];
    let written = lz4::Encoder::new().compress(block, &mut packed);
    let mut back = vec![0; block.len()];
    assert_eq!(decompress_lz4(&packed[..written], &mut back), Some(block.len()));
    assert!(back == block);
});
