//! Frames against a set-based oracle, over a link that loses, reorders and doubles packets, and against hostile
//! packets.

use super::super::program::{Program, Segment};
use super::super::shipped::ShippedProgram;
use super::*;
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// 2 tiles (ports 1 and 2) of 3 packets of 2 bytes; frames of 8 or 16 bits.
fn small(slots: u32, window_frames: u32, frame_bytes: u32) -> AddressTable {
    let text = format!(
        "name = \"s\"\nslots = {slots}\nslot_bytes = 16\nbase_bytes = 4\nwindow_frames = {window_frames}\npixel = \"uint16\"
[headers.h]\nbytes = 3\npayload_bytes = 2\npackets = 3
frame = {{ offset = 0, bytes = {frame_bytes} }}\npacket = {{ offset = 2, bytes = 1 }}
[places.p]\nheader = \"h\"\nterms = [{{ multiply = 2 }}]\npatterns = [[{{ source = 0, destination = 0, bytes = 2 }}]]
[[tiles]]\nport = 1\nplaces = \"p\"\noffset = 0\n[[tiles]]\nport = 2\nplaces = \"p\"\noffset = 8\n"
    );
    Program::compile_text(&text).unwrap()
}

fn datagram(frame: u64, packet: u8) -> [u8; 5] {
    let [low, high, ..] = frame.to_le_bytes();
    [low, high, packet, low ^ 0x80, packet]
}

/// A bridge with its memory.
struct Bench {
    bridge: Bridge,
    bytes: Vec<u8>,
}

impl Bench {
    fn new(table: AddressTable, options: Options) -> Self {
        let mut bytes = vec![0xEE; table.store_bytes() as usize];
        let bridge = Bridge::new(table, options);
        bridge.prepare(&mut Store::new(bridge.table(), &mut bytes).unwrap());
        Self { bridge, bytes }
    }

    fn packet(&mut self, port: u16, datagram: &[u8]) -> Outcome {
        let mut store = Store::new(self.bridge.table(), &mut self.bytes).unwrap();
        self.bridge.on_packet(port, datagram, &mut store)
    }

    fn send(&mut self, port: u16, frame: u64, packet: u8) -> Verdict {
        self.packet(port, &datagram(frame, packet)).verdict
    }

    fn whole(&mut self, frame: u64) {
        for (port, packet) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
            assert_eq!(self.send(port, frame, packet), Verdict::Placed, "frame {frame}");
        }
    }

    fn end(&mut self) -> Option<Interrupt> {
        let mut store = Store::new(self.bridge.table(), &mut self.bytes).unwrap();
        self.bridge.end(&mut store)
    }

    fn slot(&mut self, slot: u32) -> Vec<u8> {
        Store::new(self.bridge.table(), &mut self.bytes).unwrap().slot(self.bridge.table(), slot).to_vec()
    }
}

fn options(missing: Missing) -> Options {
    Options { missing, interrupt_frames: 1, first_frame: Some(0) }
}

#[test]
fn missing_packets_are_discarded_kept_or_padded() {
    // The first frame in the slot is whole, the next one lacks packet 1 of port 2.
    for missing in [Missing::Discard, Missing::Keep, Missing::Pad] {
        let mut bench = Bench::new(small(2, 1, 2), options(missing));
        bench.whole(0);
        let first = bench.bridge.take().unwrap();
        bench.bridge.release(first.image);
        bench.whole(1);
        bench.bridge.take().unwrap();
        bench.bridge.release(1);
        for (port, packet) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 2)] {
            assert_eq!(bench.send(port, 2, packet), Verdict::Placed);
        }
        assert_eq!(bench.bridge.take(), None);
        let interrupt = bench.end();
        let Some(closed) = bench.bridge.take() else {
            assert_eq!((missing, interrupt, bench.bridge.account().discarded), (Missing::Discard, None, 1));
            continue;
        };
        assert_eq!((closed.frame, closed.slot, closed.state), (2, 0, FrameState::Partial { missing_packets: 1 }));
        let slot = bench.slot(0);
        // What was there before: frame 0, packet 1; or 65535, missing of uint16. The gap has 65534, masked.
        let hole = if missing == Missing::Keep { [0x80, 1] } else { [0xFF, 0xFF] };
        assert_eq!(slot[8..14], [[0x82, 0], hole, [0x82, 2]].concat());
        assert_eq!((&slot[6..8], &slot[14..]), (&[0xFE, 0xFF][..], &[0xFE, 0xFF][..]));
        assert_eq!((bench.bridge.mask(&closed, 0).0[0], bench.bridge.mask(&closed, 1).0[0]), (0b111, 0b101));
        assert_eq!(bench.bridge.mask_bytes(&closed, 1)[..2], [0b101, 0]);
        assert_eq!(bench.bridge.mask(&closed, 2).count(), 0, "there is no such tile");
        assert_eq!((bench.bridge.account().partial, bench.bridge.account().frames()), (1, 3));
    }
}

#[test]
fn frames_keep_their_slots_until_they_are_released() {
    let mut bench = Bench::new(small(2, 2, 2), options(Missing::Keep));
    bench.whole(0);
    bench.whole(1);
    let before = bench.bytes.clone();
    assert_eq!(bench.send(1, 2, 0), Verdict::NoSlot);
    bench.bridge.release(0);
    assert_eq!(bench.send(1, 2, 1), Verdict::NoSlot, "frames that were not taken are not released");
    let first = bench.bridge.take().unwrap();
    bench.bridge.release(first.image);
    assert_eq!(bench.send(2, 2, 1), Verdict::NoSlot, "a frame is refused whole");
    assert_eq!(bench.bytes, before);
    assert_eq!(bench.send(1, 1, 0), Verdict::Duplicate);
    bench.bridge.take().unwrap();
    bench.bridge.release(1);
    bench.whole(3);
    // Frame 2 is still in the window: its packets might have come in another order.
    assert_eq!(bench.bridge.take(), None);
    bench.end();
    assert_eq!(bench.bridge.take().unwrap().frame, 3);
    assert_eq!(bench.bridge.account().refused, 1);
}

#[test]
fn the_interrupt_comes_after_so_many_frames_and_at_the_end() {
    let mut bench = Bench::new(small(8, 2, 2), Options { interrupt_frames: 3, ..options(Missing::Keep) });
    let mut found = Vec::new();
    for frame in 0..7 {
        for (port, packet) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)] {
            if let Some(interrupt) = bench.packet(port, &datagram(frame, packet)).interrupt {
                found.push((frame, interrupt.frames));
            }
        }
    }
    assert_eq!(found, [(2, 3), (5, 3)]);
    assert_eq!((bench.end(), bench.end()), (Some(Interrupt { frames: 1 }), None));
}

#[test]
fn late_lost_and_foreign_frames_have_their_counters() {
    let mut bench = Bench::new(small(8, 2, 2), Options { first_frame: Some(5), ..options(Missing::Keep) });
    assert_eq!(bench.send(1, 4, 0), Verdict::Foreign);
    assert_eq!(bench.send(1, 5, 0), Verdict::Placed);
    assert_eq!(bench.send(1, 5, 0), Verdict::Duplicate);
    // Frame 6 does not come at all; 5 leaves the window with frame 8, 6 with frame 9.
    bench.whole(7);
    assert_eq!(bench.send(2, 8, 0), Verdict::Placed);
    assert_eq!((bench.send(2, 5, 1), bench.send(1, 5, 0)), (Verdict::Late, Verdict::Duplicate));
    assert_eq!(bench.send(1, 9, 3), Verdict::PacketNumber);
    assert_eq!(bench.packet(3, &datagram(9, 0)).verdict, Verdict::Unknown);
    assert_eq!(bench.packet(1, &[0; 6]).verdict, Verdict::Length);
    bench.end();
    let account = *bench.bridge.account();
    assert_eq!((account.lost, account.partial, account.complete, account.frames()), (1, 2, 1, 4));
    assert_eq!(account.received(), 15);
    assert_eq!(account.packets[Verdict::Placed as usize], 8);
    let frames: Vec<u64> = std::iter::from_fn(|| bench.bridge.take()).map(|closed| closed.frame).collect();
    assert_eq!(frames, [5, 7, 8]);
}

/// A stray packet far ahead moves nothing; a stream that goes on there does.
#[test]
fn a_stream_moves_when_it_goes_on_elsewhere_and_not_for_one_packet() {
    let mut bench = Bench::new(small(4, 2, 2), options(Missing::Keep));
    bench.whole(0);
    assert_eq!(bench.send(1, 9000, 0), Verdict::Ahead);
    bench.whole(1);
    assert_eq!(bench.send(1, 9001, 0), Verdict::Ahead);
    assert_eq!(bench.send(1, 9001, 1), Verdict::Ahead);
    for image in [0, 1] {
        bench.bridge.take().unwrap();
        bench.bridge.release(image);
    }
    assert_eq!(bench.send(1, 9001, 2), Verdict::Placed, "as many as a tile has");
    bench.whole(9002);
    bench.end();
    let account = *bench.bridge.account();
    assert_eq!((account.of(Verdict::Ahead), account.complete, account.partial), (3, 3, 1));
    assert_eq!((account.lost, account.frames()), (8999, 9003));
}

/// Numbers of 8 bits go round many times, those of 48 bits once.
#[test]
fn numbers_of_frames_wrap() {
    let mut bench = Bench::new(small(4, 2, 1), Options { first_frame: Some(250), ..options(Missing::Keep) });
    for frame in 250..2000u64 {
        bench.whole(frame & 0xFF);
        let closed = bench.bridge.take().unwrap();
        assert_eq!((closed.frame, closed.slot), (frame, (frame % 4) as u32));
        assert_eq!(bench.slot(closed.slot)[..2], [frame as u8 ^ 0x80, 0]);
        bench.bridge.release(closed.image);
    }
    assert_eq!(bench.send(1, 1999 & 0xFF, 0), Verdict::Duplicate);

    let table = ShippedProgram::find("eiger-8bit").map(|p| Program::compile_text(p.text).unwrap()).unwrap();
    let mut bench = Bench::new(table, Options::default());
    let packetiser = Packetiser::new(&PacketModel::new(DetectorKind::Eiger { bits: 8 }, 1)).unwrap();
    let last = (1u64 << 48) - 1;
    for (frame, image) in [(last - 1, 0), (last, 1), (0, 2), (1, 3)] {
        let mut datagram = packetiser.write_header(0, frame, 0).to_vec();
        datagram.resize(48 + 4096, 7);
        assert_eq!(bench.packet(50_020, &datagram).verdict, Verdict::Placed);
        bench.end();
        let closed = bench.bridge.take().unwrap();
        assert_eq!((closed.image, closed.slot), (image, (frame % 64) as u32));
    }
}

#[test]
fn a_store_that_is_too_short_is_refused() {
    let table = small(2, 2, 2);
    assert_eq!(table.store_bytes(), 36);
    let why = Store::new(&table, &mut [0; 35]).unwrap_err();
    assert!(why.contains("35 bytes") && why.contains("36"), "{why}");
}

/// Over a link with every fault: masks and places are those of a set of the packets that came, and nothing is counted
/// twice or not at all.
#[test]
fn a_bad_link_gives_the_masks_of_the_packets_that_came() {
    let table = ShippedProgram::find("eiger-16bit").map(|p| Program::compile_text(p.text).unwrap()).unwrap();
    let packetiser = Packetiser::new(&PacketModel::new(DetectorKind::Eiger { bits: 16 }, 1)).unwrap();
    for seed in 0..4 {
        let mut bench = Bench::new(table.clone(), Options { first_frame: Some(1), ..options(Missing::Pad) });
        let mut link = FaultLink::new(&FaultModel {
            seed,
            loss: 0.02,
            burst: 0.001,
            duplicate: 0.02,
            reorder: 0.1,
            truncate: 0.01,
            foreign: 0.02,
            log_packets: true,
            ..FaultModel::default()
        });
        let (mut delivered, mut closed) = (0, BTreeMap::new());
        let mut receive = |d: Datagram<'_>, bench: &mut Bench| {
            delivered += 1;
            bench.packet(50_020 + d.stream as u16, d.bytes);
            while let Some(frame) = bench.bridge.take() {
                let masks: Vec<PacketBitmap> = (0..4).map(|tile| bench.bridge.mask(&frame, tile)).collect();
                closed.insert(frame.image, (masks, bench.slot(frame.slot)));
                bench.bridge.release(frame.image);
            }
        };
        for image in 0..24u64 {
            for packet in 0..64 {
                for stream in 0..4 {
                    let mut d = packetiser.write_header(stream, 1 + image, packet).to_vec();
                    d.resize(48 + 4096, (image as u8) << 3 | stream as u8);
                    link.push(Datagram { stream, bytes: &d, is_other_sender: false }, &mut |d| receive(d, &mut bench));
                }
            }
        }
        link.flush(&mut |d| receive(d, &mut bench));
        bench.end();
        while let Some(frame) = bench.bridge.take() {
            let masks: Vec<PacketBitmap> = (0..4).map(|tile| bench.bridge.mask(&frame, tile)).collect();
            closed.insert(frame.image, (masks, bench.slot(frame.slot)));
            bench.bridge.release(frame.image);
        }
        let (account, log) = (*bench.bridge.account(), link.log());
        assert_eq!(account.received(), delivered);
        assert_eq!((account.of(Verdict::Placed), account.of(Verdict::Late)), (log.placeable(), 0));
        assert_eq!(account.of(Verdict::Duplicate), log.surplus());
        assert_eq!((account.frames(), closed.len()), (24, 24));
        for (image, (masks, slot)) in &closed {
            let came: BTreeSet<(usize, u32)> = log
                .packets
                .iter()
                .filter(|(id, fate)| id.image == *image && fate.placeable() > 0)
                .map(|(id, _)| (id.stream, id.packet))
                .collect();
            for (stream, mask) in masks.iter().enumerate() {
                for packet in 0..64 {
                    assert_eq!(mask.has(packet), came.contains(&(stream, packet.into())), "{image} {stream} {packet}");
                }
            }
            for (at, byte) in slot.iter().enumerate() {
                let (row, column) = (at / 2048, at % 2048 / 1024);
                let (half, line) = if row < 256 { (0, 255 - row) } else { (1, row - 256) };
                let (stream, packet) = (2 * half + column, (line / 4) as u32);
                let expected = if came.contains(&(stream, packet)) { (*image as u8) << 3 | stream as u8 } else { 0xFF };
                assert_eq!(*byte, expected, "image {image}, byte {at}");
            }
        }
    }
}

/// Packets at random, mostly near each other.
fn any_packet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let near = (1u16..4, 0u64..14, 0u8..4).prop_map(|(port, frame, packet)| (port, datagram(frame, packet).to_vec()));
    let wild = (0u16..4, prop::collection::vec(any::<u8>(), 0..8));
    let far = (1u16..3, any::<[u8; 5]>()).prop_map(|(port, bytes)| (port, bytes.to_vec()));
    prop_oneof![8 => near, 1 => wild, 1 => far]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever comes: bytes outside of the slots, gaps and slots that are held do not change, the account adds up, and
    /// frames come in order, each once.
    #[test]
    fn no_packet_writes_outside_of_the_slots_that_are_free(
        packets in prop::collection::vec(any_packet(), 1..200),
        missing in prop_oneof![Just(Missing::Discard), Just(Missing::Keep), Just(Missing::Pad)],
        first in prop::option::of(0u64..6),
        hold in 0usize..5,
        interrupt_frames in 1u32..4,
    ) {
        let mut bench = Bench::new(small(4, 3, 2), Options { missing, interrupt_frames, first_frame: first });
        let (mut held, mut told, mut next): (Vec<(Closed, Vec<u8>)>, u32, u64) = (Vec::new(), 0, 0);
        let count = packets.len() as u64;
        for (port, bytes) in packets {
            told += bench.packet(port, &bytes).interrupt.map_or(0, |i| i.frames);
            while let Some(closed) = bench.bridge.take() {
                prop_assert!(closed.image >= next);
                next = closed.image + 1;
                let slot = bench.slot(closed.slot);
                held.push((closed, slot));
            }
            if held.len() > hold {
                bench.bridge.release(held.remove(0).0.image);
            }
            for (closed, before) in &held {
                prop_assert_eq!(&bench.slot(closed.slot), before);
            }
            prop_assert!(bench.bytes[..4].iter().all(|byte| *byte == 0xEE));
            for slot in 0..4 {
                let slot = bench.slot(slot);
                prop_assert_eq!((&slot[6..8], &slot[14..]), (&[0xFE, 0xFF][..], &[0xFE, 0xFF][..]));
            }
        }
        told += bench.end().map_or(0, |i| i.frames);
        let account = *bench.bridge.account();
        prop_assert_eq!(account.received(), count);
        prop_assert_eq!(u64::from(told), account.complete + account.partial);
        let masks: u32 = held.iter().map(|(closed, _)| (0..2).map(|t| bench.bridge.mask(closed, t).count()).sum::<u32>()).sum();
        prop_assert!(u64::from(masks) <= account.of(Verdict::Placed));
    }
}

/// The record of an slsReceiver has the same 64 bytes.
#[test]
fn masks_are_those_of_the_sls_receiver() {
    use konkordia_core::{sls_header::SlsHeader, tile};
    use konkordia_wire::sls_file::{RECORD_HEADER_BYTES, RecordHeader, write_record_header};
    let mut program = ShippedProgram::find("jungfrau-1").map(|p| Program::from_toml(p.text).unwrap()).unwrap();
    // Partial readout: packets 56 to 71 keep their numbers.
    let header = program.headers.get_mut("sls").unwrap();
    (header.packets, header.first_packet) = (16, 56);
    program.slot_bytes = 16 * 8192;
    program.places.values_mut().for_each(|p| p.patterns = vec![vec![Segment { source: 0, destination: 0, bytes: 8192 }]]);
    let mut bench = Bench::new(program.compile().unwrap(), options(Missing::Keep));
    let mut datagram = vec![0; 48 + 8192];
    for packet in [56, 63, 64, 71] {
        let header = SlsHeader::default();
        konkordia_wire::sls_udp::write_header(&header, tile::DetectorKind::Jungfrau, packet, &mut datagram);
        assert_eq!(bench.packet(50_010, &datagram).verdict, Verdict::Placed);
    }
    bench.end();
    let closed = bench.bridge.take().unwrap();
    let mask = bench.bridge.mask_bytes(&closed, 0);
    let set: Vec<usize> = (0..512).filter(|p| mask[p / 8] >> (p % 8) & 1 == 1).collect();
    assert_eq!(set, [56, 63, 64, 71]);
    let mut record = [0; RECORD_HEADER_BYTES];
    let caught = bench.bridge.mask(&closed, 0).renumbered(0, 16, 56);
    write_record_header(&SlsHeader::default(), tile::DetectorKind::Jungfrau, &caught, &mut record);
    assert_eq!(record[48..], mask);
    let read = RecordHeader::new_checked(&record, tile::DetectorKind::Jungfrau).unwrap();
    assert_eq!(read.bitmap(512).unwrap(), caught);
}
