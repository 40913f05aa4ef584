//! Any packets and pauses at the beginning of a stream. Nothing panics or overflows; no more is held back than the
//! memory for it; every packet starts the stream, is refused, dropped or still held back; and in strict mode no run
//! begins without a frame of the tile.
#![no_main]

use konkordia_core::first_packets::{FirstPacket, FirstVerdict, Opening, OpeningSpec, Origin};
use konkordia_core::ledger::Malformed;
use konkordia_core::sender::{Sender, Senders};
use konkordia_core::setup::{HeaderFields, Look, Port, Ports, Seen, SetupRules, distinctive_number, judge};
use konkordia_core::tile::TileFormat;
use libfuzzer_sys::fuzz_target;

fn sender(port: u8) -> Sender {
    Sender::from(std::net::SocketAddr::from(([10, 0, 0, 1], port.into())))
}

fuzz_target!(|data: &[u8]| {
    let [choice, rows, steps @ ..] = data else { return };
    let whole = match choice % 8 {
        0 => TileFormat::jungfrau(1),
        1 => TileFormat::jungfrau(2),
        2 => TileFormat::eiger_1gbe(32),
        n => TileFormat::eiger([4, 8, 12, 16, 32][usize::from(n) - 3]),
    }
    .expect("all of these exist");
    let format = whole.with_rows(8 * u32::from(*rows)).unwrap_or(whole);
    let rules = SetupRules {
        is_strict: choice & 8 == 0,
        ports_per_module: format.tiles_per_module,
        ports: Ports::Ordered,
        senders: Senders::Learned,
    };
    let distinctive_number = distinctive_number(&format, rules.ports_per_module);
    let end = format.first_packet + format.packets();
    assert!(distinctive_number < format.packets());
    let spec = OpeningSpec {
        packets: format.packets(),
        is_strict: rules.is_strict,
        distinctive_number,
        distinctive_packets: end - distinctive_number.max(format.first_packet),
        is_single: choice & 32 != 0,
    };
    let (mut opening, mut seen, mut now_ns) = (Opening::new(spec), [Seen::default(); 2], 0u64);
    let (mut pushed, mut decided) = (0, 0);
    let is_known = choice & 16 == 0;
    for step in steps.chunks_exact(4) {
        let number = match step[1] {
            255 => u32::MAX,
            n => u32::from(n) << (step[3] & 1),
        };
        let packet = FirstPacket {
            frame: if step[0] == 255 { u64::MAX } else { u64::from(step[0] >> 3) },
            number,
            is_in_tile: (format.first_packet..end).contains(&number),
            origin: Origin { port: Port { module_id: u16::from(step[2] & 1), ..Port::default() }, sender: sender(step[2] >> 7) },
        };
        let verdict = if step[0] & 7 == 7 {
            now_ns += u64::from(step[1]) << 20;
            let fields = HeaderFields { detector_type: step[2], version: 2, packet_number: number };
            let why = if step[3] & 1 == 0 { Malformed::PacketNumber } else { Malformed::Length };
            seen[1].on_malformed(100, Some(fields), why);
            opening.tick(now_ns, is_known, step[3] == 255)
        } else {
            pushed += 1;
            opening.push(packet, now_ns, is_known)
        };
        assert!(opening.held().len() <= Opening::packets_max(spec.packets));
        match verdict {
            FirstVerdict::Wait => assert!(opening.held().len() < Opening::packets_max(spec.packets)),
            FirstVerdict::DropOldest => {
                seen[0].on_number(opening.held()[0].number);
                opening.drop_oldest();
                decided += 1;
            }
            FirstVerdict::Refuse => {
                assert!(rules.is_strict);
                opening.held().iter().for_each(|held| seen[0].on_refused(held.frame, held.number));
                decided += opening.held().len();
                opening.refuse();
            }
            FirstVerdict::Begin { frame, origin } => {
                let distinctive =
                    opening.held().iter().filter(|held| held.is_in_tile && held.number >= distinctive_number).count() as u32;
                assert!(!rules.is_strict || distinctive_number == 0 || distinctive >= spec.distinctive_packets.min(2));
                // Unless the first frame is known or all has come, no few packets say which it is.
                let is_near = |held: &&FirstPacket| held.is_in_tile && held.frame.abs_diff(frame) <= 16;
                let near = opening.held().iter().filter(is_near).count() as u32;
                assert!(is_known || step[3] == 255 || 2 * near >= spec.packets.min(16));
                seen[0].on_begin(origin.map(|origin| origin.port));
                for held in opening.held() {
                    seen[0].other_senders.count(held.origin.sender);
                    seen[0].on_frame(held.frame);
                    seen[0].is_own(held.origin.port, format.packets());
                    seen[0].on_number(held.number);
                }
                decided += opening.held().len();
                opening = Opening::new(spec);
            }
        }
        assert_eq!(pushed, decided + opening.held().len());
    }
    for has_ended in [false, true] {
        let look = Look {
            rules: &rules,
            format: &format,
            detector_type: 1,
            version: 2,
            first_frame: Some(3),
            seen: &seen,
            since_first_ns: now_ns,
            has_ended,
        };
        judge(&look);
    }
});
