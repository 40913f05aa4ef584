//! Any bytes as a chunk, and any parameters, in our filter of HDF5: it refuses or gives what it should, in both
//! directions, and never takes more memory than such a chunk can need. The filters that are built in behind the
//! plug-ins of others too.
#![no_main]

use konkordia_plugin::bitshuffle::apply;
use konkordia_plugin::others::{Plugins, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [element, block, coding, level, header, rest @ ..] = data else { return };
    let values = [0, 4, u32::from(*element), u32::from(*block) * 8, u32::from(*coding % 5), u32::from(*level)];
    let values = &values[..if *header & 2 == 0 { 6 } else { usize::from(*level % 7) }];
    // With a right header, so that the blocks are reached.
    let total = (u64::from(*element) * (rest.len() as u64 * u64::from(*header) / 8)).to_be_bytes();
    let block_bytes = (u32::from(*block) * 8 * u32::from(*element)).to_be_bytes();
    let chunk = if *header & 1 == 0 { rest.to_vec() } else { [&total[..], &block_bytes, rest].concat() };
    let _ = apply(values, true, &chunk);
    let mut none = Plugins::new(Vec::new());
    let id = [1, 2, 3, 32_008][usize::from(*coding / 64)];
    let _ = decode(&mut none, &[(2, vec![u32::from(*element)]), (id, values.to_vec())], &chunk, 1000);
    if let Ok(packed) = apply(values, false, rest) {
        let back = apply(values, true, packed.written()).unwrap_or_else(|why| panic!("{values:?}: {why}"));
        assert!(back.written() == rest, "{values:?}");
    }
});
