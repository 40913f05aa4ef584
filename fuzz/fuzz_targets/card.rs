//! Any bytes as entries and masks of a card: a frame that is believed lies in its slot, comes behind the one before,
//! and has as many packets as its masks say.
#![no_main]

use konkordia_fabric::card::{ENTRY_BYTES, Form, Layout, MASK_BYTES, STEP_MAX};
use libfuzzer_sys::fuzz_target;

const FORM: Form =
    Form { image_bytes: 2 * 8192, is_unsigned: false, tiles: 2, tile_packets: 100, slots: 3, first_frame: 1, rows: 1 };

fuzz_target!(|data: &[u8]| {
    let layout = Layout::new(FORM).expect("a card has this form");
    let (mut taken, mut before) = (0, None);
    for bytes in data.chunks_exact(ENTRY_BYTES + 2 * MASK_BYTES) {
        let (entry, masks) = bytes.split_first_chunk::<ENTRY_BYTES>().expect("there are more");
        let Ok(frame) = layout.check(entry, taken, before) else { continue };
        assert!(frame.slot_start >= layout.ring_start());
        assert!(frame.slot_start + layout.frame_bytes() as u64 <= layout.memory_bytes());
        let next = before.map_or(0, |before| before + 1);
        assert!((next..next + STEP_MAX).contains(&frame.image));
        if layout.check_masks(&frame, masks).is_err() {
            continue;
        }
        let came: u32 = masks.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(came + u32::from(frame.missing), layout.frame_packets());
        (taken, before) = (taken + 1, Some(frame.image));
    }
});
