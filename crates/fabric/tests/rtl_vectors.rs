//! `rtl/vectors/`, with which the logic of `rtl/` is tested, says what this program does with the same packets:
//! verdicts, frames and addresses of bridge programs, and the loss detector.

use konkordia_fabric::bridge::{AddressTable, Bridge, FrameState, Options, Program, SHIPPED, ShippedProgram, Store};
use konkordia_fabric::loss::{Arrival, Detector, Width};
use std::ops::Range;

/// An EIGER at 12 bit, beside the programs that come with Konkordia.
const EIGER_12: (&str, &str) = ("eiger-12bit", include_str!("../../../rtl/vectors/eiger-12bit.toml"));

fn table(name: &str) -> AddressTable {
    let text = if name == EIGER_12.0 { EIGER_12.1 } else { ShippedProgram::find(name).unwrap().text };
    Program::compile_text(text).unwrap()
}

#[test]
fn packets_go_where_the_logic_writes_them() {
    let rows = include_str!("../../../rtl/vectors/segments.csv").lines().skip(1);
    let mut packets = 0;
    for row in rows {
        let [name, tile, packet, segments] = row.split(',').collect::<Vec<_>>().try_into().unwrap();
        let found = table(name)
            .segments(tile.parse().unwrap(), packet.parse().unwrap())
            .map(|(source, destination, bytes)| format!("{source}:{destination}:{bytes}"))
            .collect::<Vec<_>>();
        assert_eq!(found.join("/"), segments, "{row}");
        packets += 1;
    }
    let names = SHIPPED.iter().map(|program| program.name).chain([EIGER_12.0]);
    let all = names.map(|name| table(name).coverage().packets).sum::<u64>();
    assert_eq!(packets, all);
}

/// A packet of a detector of PSI, as `Datagram` of `rtl/tests/model_place.py` makes it; the pixels do not matter here.
fn datagram(fields: &[i64], payload_bytes: usize) -> Vec<u8> {
    let [frame, packet, kind, version, cut] = fields[1..6] else { panic!("five numbers behind the port") };
    let mut bytes = vec![0; 48 + payload_bytes];
    bytes[0..8].copy_from_slice(&frame.to_le_bytes());
    bytes[12..16].copy_from_slice(&(packet as u32).to_le_bytes());
    (bytes[46], bytes[47]) = (kind as u8, version as u8);
    bytes.resize((bytes.len() as i64 + cut) as usize, 0);
    bytes
}

#[test]
fn packets_of_a_bad_link_have_the_verdicts_and_frames_of_the_logic() {
    let rows: Vec<Vec<&str>> =
        include_str!("../../../rtl/vectors/bridge.csv").lines().skip(1).map(|row| row.split(',').collect()).collect();
    let table = table("eiger-4bit");
    let (tiles, mut memory) = (table.tiles(), vec![0; table.store_bytes() as usize]);
    let options = Options { first_frame: Some(rows[0][0].parse().unwrap()), ..Options::default() };
    let mut bridge = Bridge::new(table.clone(), options);
    let mut store = Store::new(&table, &mut memory).unwrap();
    for (n, row) in rows.iter().enumerate() {
        let fields: Vec<i64> = row[1..7].iter().map(|value| value.parse().unwrap()).collect();
        let outcome = bridge.on_packet(fields[0] as u16, &datagram(&fields, 4096), &mut store);
        assert_eq!(outcome.verdict.name(), row[7], "row {n}");
        let mut closed = Vec::new();
        while let Some(frame) = bridge.take() {
            let missing = match frame.state {
                FrameState::Complete => 0,
                FrameState::Partial { missing_packets } => missing_packets,
            };
            let masks = (0..tiles).map(|tile| format!("{:x}", bridge.mask(&frame, tile).0[0])).collect::<Vec<_>>().join(":");
            closed.push(format!("{}:{}:{missing}:{masks}", frame.image, frame.slot));
        }
        assert_eq!(closed.join("/"), row[8], "row {n}");
    }
    assert!(rows.len() > 1000);
}

/// Runs that adjoin are one: the detector may tell a run in two parts, the logic does not.
fn joined(runs: &[Range<u64>]) -> String {
    let mut out: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match out.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => out.push(run.clone()),
        }
    }
    out.iter().map(|run| format!("{}:{}", run.start, run.end)).collect::<Vec<_>>().join("/")
}

#[test]
fn losses_are_those_that_the_logic_finds() {
    let rows: Vec<Vec<&str>> =
        include_str!("../../../rtl/vectors/loss.csv").lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows[0][0], "24");
    let mut detector = Detector::new(Width::Bits24, Some(rows[0][1].parse().unwrap()));
    for (n, row) in rows.iter().enumerate() {
        let number: u32 = row[2].parse().unwrap();
        let mut lost = Vec::new();
        let mut told = |run: Range<u64>| lost.push(run);
        let verdict = if row[3] == "1" {
            detector.drain((row[4] == "1").then_some(number), &mut told);
            "drain"
        } else {
            match detector.receive(number, &mut told) {
                Arrival::New => "new",
                Arrival::Gap => "gap",
                Arrival::Duplicate => "duplicate",
                Arrival::Late => "late",
            }
        };
        assert_eq!((verdict, joined(&lost).as_str()), (row[5], row[6]), "row {n}");
    }
    assert!(rows.len() > 1500);
}
