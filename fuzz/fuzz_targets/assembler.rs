//! Any order of packets, ticks, jumps and slot limits: no packet is placed twice, nothing is placed in a sealed or
//! absent slot, `low` only rises, packets far ahead move nothing, and the bitmaps agree with what was placed.
#![no_main]

use konkordia_core::assembler::{AssemblerSpec, TileAssembler, Verdict};
use libfuzzer_sys::fuzz_target;
use std::collections::{HashMap, HashSet};

fuzz_target!(|data: &[u8]| {
    let [packets, window, jump, deadline, images, steps @ ..] = data else { return };
    let spec = AssemblerSpec {
        packets: u16::from(packets % 16) + 1,
        window_images: u64::from(window % 8) + 1,
        jump_images_max: u64::from(jump % 64) + 1,
        gap_images_max: 1 << (20 + jump / 64),
        behind_images_max: u64::from(*deadline) + 1,
        deadline_ns: u64::from(*deadline),
        images: if *images == 0 { u64::MAX } else { u64::from(*images) * 16 },
    };
    let mut assembler = TileAssembler::new(spec);
    let mut placed: HashMap<u64, HashSet<u16>> = HashMap::new();
    let (mut now_ns, mut newest_end, mut limit) = (0u64, 0u64, 16u64);
    for step in steps.chunks_exact(4) {
        let low = assembler.low();
        match step[0] % 8 {
            0 => {
                now_ns += u64::from(step[1]);
                newest_end = newest_end.max(low + u64::from(step[2] % 32)).min(spec.images);
                assembler.tick(now_ns, newest_end, step[3] & 1 == 1);
            }
            1 => limit += u64::from(step[1]),
            kind => {
                let ahead = if kind == 2 { u64::from(step[2]) << (step[3] % 56) } else { u64::from(step[2] % 12) };
                let image = (low + ahead).saturating_sub(4);
                let packet = u16::from(step[1]) % spec.packets;
                let image = if kind == 3 && step[3] == 255 { None } else { Some(image) };
                let own_end = assembler.own_end();
                match assembler.on_packet(image, packet, newest_end, |i| i < limit) {
                    Verdict::Place { image: at, opens } => {
                        assert_eq!(Some(at), image);
                        assert!(at >= low && at < spec.images);
                        let tile = placed.entry(at).or_default();
                        assert_eq!(opens, tile.is_empty());
                        assert!(!opens || at < limit, "opened without a slot");
                        assert!(tile.insert(packet), "placed twice");
                    }
                    Verdict::Duplicate => assert!(image.is_some_and(|i| placed.get(&i).is_some_and(|t| t.contains(&packet)))),
                    Verdict::Late => assert!(image.is_some_and(|i| i < assembler.low())),
                    Verdict::NoSlot => assert!(image.is_some_and(|i| !placed.contains_key(&i)), "refused after it was opened"),
                    Verdict::Foreign => {}
                    Verdict::Ahead => {
                        let image = image.expect("what is before the run is not far ahead");
                        assert!(assembler.is_ahead(image, newest_end) && (assembler.low(), assembler.own_end()) == (low, own_end));
                        if step[3] & 64 != 0 && image < 1 << 30 {
                            assembler.jump(image);
                            assert!(!assembler.is_ahead(image, newest_end));
                        }
                    }
                }
                newest_end = newest_end.max(assembler.own_end());
            }
        }
        assert!(assembler.low() >= low && assembler.low() <= newest_end.max(assembler.own_end()));
        for image in assembler.low()..assembler.own_end() {
            let expected = placed.get(&image).map_or(0, HashSet::len);
            let found = assembler.bitmap(image).map_or(0, |(bits, n)| {
                assert_eq!(bits.count(), u32::from(n));
                usize::from(n)
            });
            assert_eq!(found, expected);
        }
    }
    let low = assembler.low();
    assert!(assembler.finish(newest_end) >= low);
});
