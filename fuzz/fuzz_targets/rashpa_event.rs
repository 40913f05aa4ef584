//! Any bytes as events of RASHPA: they are refused, or written again they are the same event. Then the events go to the
//! slots of a receiver, which stay consistent.
#![no_main]

use konkordia_fabric::rashpa::assembly::{Assembly, Part, Shape};
use konkordia_fabric::rashpa::terms::Slices;
use konkordia_wire::rashpa_event::{Immediate, RECORD_BYTES, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(bits) = data.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) {
        if let Ok(immediate) = Immediate::from_bits(bits) {
            assert_eq!(immediate.to_bits(), Some(bits));
        }
    }
    let slices = Slices { first: 0, count: None, step: 1 };
    let shape = Shape { slots: 4, first_slot: 1, slots_here: 2, slot_bytes: 8, slices };
    let mut assembly = Assembly::new(shape, &[Part { dtp: 0, block_bytes: 4 }, Part { dtp: 0, block_bytes: 4 }]);
    for (n, bytes) in data.chunks(RECORD_BYTES).enumerate() {
        let Ok(mut record) = Record::from_bytes(bytes) else { continue };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
        record.dtp &= 1;
        let (module, at) = (usize::from(bytes[6] & 1), n as u64);
        assembly.placed(module, u64::from(bytes[7]), 4);
        assembly.event(module, &record, at);
        assembly.tested(module, at.saturating_sub(1));
        if let Some(image) = assembly.take() {
            assert!((1..3).contains(&image.slot) && image.missing_bytes < 8);
            assembly.release(image.slot).expect("it was taken");
        }
    }
});
