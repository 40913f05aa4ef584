//! What the protocols cost beside sockets: packets are made in memory and taken from there, in one thread. As behind a
//! socket, the packets lie in few buffers that are used again and again, and their payloads go to one address, or to
//! many in turn.

use super::super::fabric_args::RdmaOperation;
use super::super::spread::Spread;
use super::super::udp::make_room;
use super::protocol::{Agreed, Maker, OVERHEAD_BYTES_MAX, Taker, filling, is_message, stamp};
use konkordia_core::failure::Failure;
use konkordia_core::text;
use konkordia_wire::roce::outer::Outer;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Packets that are made before they are taken.
const BATCH: u64 = 64;
/// Bytes of the buffers of [`icrc`] that stay in the first two caches, and of those that do not fit into any.
const IN_CACHE_BYTES: usize = 32 << 10;
const IN_MEMORY_BYTES: usize = 256 << 20;

/// A protocol with packets of one size.
pub struct Row {
    pub agreed: Agreed,
    pub make_ns: Spread,
    pub take_ns: Spread,
    pub verified: bool,
}

/// What is measured of each operation: RoCEv2 also without comparing iCRCs, as behind sockets of most senders.
fn settings(operations: &[RdmaOperation], packet_bytes: usize, addresses: usize) -> Vec<Agreed> {
    let both = |operation: &RdmaOperation| {
        let agreed = Agreed {
            operation: *operation,
            packet_bytes,
            message_bytes: packet_bytes,
            addresses,
            compares_icrc: operation.is_roce(),
        };
        let unchecked = operation.is_roce().then_some(Agreed { compares_icrc: false, ..agreed });
        std::iter::once(agreed).chain(unchecked)
    };
    operations.iter().flat_map(both).collect()
}

/// All operations in turns, so that what disturbs one disturbs all.
///
/// # Errors
/// There is no memory for the addresses.
pub fn measure(
    operations: &[RdmaOperation],
    packets: &[usize],
    addresses: &[usize],
    count: u64,
    repeats: u32,
) -> Result<Vec<Row>, Failure> {
    let (mut rows, mut memory) = (Vec::new(), Vec::new());
    for &addresses in addresses {
        for &packet_bytes in packets {
            make_room(&mut memory, addresses * packet_bytes)?;
            let settings = settings(operations, packet_bytes, addresses);
            let mut all: Vec<(Vec<f64>, Vec<f64>, bool)> = vec![(Vec::new(), Vec::new(), true); settings.len()];
            // The first round does not count.
            for repeat in 0..=repeats {
                for (agreed, found) in settings.iter().zip(&mut all) {
                    let (make_ns, take_ns, is_right) = once(agreed, count, &mut memory);
                    found.2 &= is_right;
                    if repeat > 0 {
                        found.0.push(make_ns);
                        found.1.push(take_ns);
                    }
                }
            }
            rows.extend(settings.into_iter().zip(all).map(|(agreed, (make, take, verified))| Row {
                agreed,
                make_ns: Spread::of(make),
                take_ns: Spread::of(take),
                verified,
            }));
        }
    }
    Ok(rows)
}

fn some_outer() -> Outer {
    let (from, to) = ("127.0.0.1:49152", "127.0.0.1:4791");
    Outer::of_udp_socket(from.parse().expect("an address"), to.parse().expect("an address")).expect("both of IPv4")
}

/// Nanoseconds to make a packet, and to take one, and whether the memory is right.
fn once(agreed: &Agreed, count: u64, memory: &mut [u8]) -> (f64, f64, bool) {
    let outer = some_outer();
    let mut taker = Taker::new(*agreed, outer);
    let mut maker = Maker::new(*agreed, outer, taker.key());
    let room_bytes = agreed.packet_bytes + OVERHEAD_BYTES_MAX;
    let mut rooms = vec![0; BATCH as usize * room_bytes];
    let mut lengths = vec![0; BATCH as usize];
    let filling = filling(agreed.message_bytes);
    let (mut message, mut make_s, mut take_s, mut refused) = (filling.clone(), 0.0, 0.0, 0u64);
    let batches = count.div_ceil(BATCH).max(1);
    for first in (0..batches).map(|batch| batch * BATCH) {
        let begin = Instant::now();
        for ((number, room), length) in (first..).zip(rooms.chunks_mut(room_bytes)).zip(&mut lengths) {
            stamp(&mut message, number);
            let put = &mut |packet: &[u8]| {
                *length = packet.len();
                Ok(())
            };
            maker.make(black_box(&message), number, room, put).expect("messages of one packet can be sent");
        }
        let made = Instant::now();
        for (room, length) in rooms.chunks(room_bytes).zip(&lengths) {
            match taker.judge(black_box(&room[..*length])) {
                Some(judged) => {
                    memory[judged.offset..judged.offset + judged.payload.len()].copy_from_slice(judged.payload);
                }
                None => refused += 1,
            }
        }
        make_s += (made - begin).as_secs_f64();
        take_s += made.elapsed().as_secs_f64();
    }
    let packets = batches * BATCH;
    let written = packets.saturating_sub(agreed.addresses as u64)..packets;
    let is_right = |n: u64| is_message(&memory[agreed.offset(n)..][..agreed.message_bytes], n, &filling);
    let ns = |seconds: f64| seconds * 1e9 / packets as f64;
    (ns(make_s), ns(take_s), refused == 0 && { written }.all(is_right))
}

impl Row {
    fn name(&self) -> String {
        let Agreed { operation, compares_icrc, .. } = self.agreed;
        let unchecked = if operation.is_roce() && !compares_icrc { ", iCRC not compared" } else { "" };
        format!("{}{unchecked}", operation.name())
    }

    fn gigabytes_per_s(&self, ns: f64) -> f64 {
        self.agreed.packet_bytes as f64 / ns
    }

    /// Time of RoCEv2's WRITE, iCRCs compared, by the time of this, to make and take a packet of this size.
    fn times_roce(&self, rows: &[Self]) -> f64 {
        let roce = Agreed { operation: RdmaOperation::Write, compares_icrc: true, ..self.agreed };
        let sum = |row: &Self| row.make_ns.median + row.take_ns.median;
        rows.iter().find(|row| row.agreed == roce).map_or(f64::NAN, |roce| sum(roce) / sum(self))
    }

    /// For programs.
    pub fn to_json(&self, rows: &[Self]) -> Value {
        let Agreed { packet_bytes, addresses, .. } = self.agreed;
        json!({
            "name": format!("{}, {packet_bytes} bytes, {addresses} address(es)", self.name()), "packet_bytes": packet_bytes, "addresses": addresses,
            "make_ns": self.make_ns.to_json(), "take_ns": self.take_ns.to_json(), "times_roce": self.times_roce(rows),
            "make_gigabytes_per_second": self.gigabytes_per_s(self.make_ns.median),
            "take_gigabytes_per_second": self.gigabytes_per_s(self.take_ns.median), "verified": self.verified,
        })
    }

    fn line(&self, rows: &[Self]) -> Vec<String> {
        let times = self.times_roce(rows);
        vec![
            text::count(self.agreed.packet_bytes as u64),
            text::count(self.agreed.addresses as u64),
            self.name(),
            self.make_ns.to_short_text(0),
            self.take_ns.to_short_text(0),
            format!("{:.2}", self.gigabytes_per_s(self.make_ns.median)),
            format!("{:.2}", self.gigabytes_per_s(self.take_ns.median)),
            if times.is_finite() { format!("{times:.2}") } else { "-".into() },
            if self.verified { "whole" } else { "WRONG" }.into(),
        ]
    }
}

/// For people.
pub fn to_text(rows: &[Row]) -> String {
    let head =
        ["bytes", "addresses", "operation", "ns to make", "ns to take", "GB/s made", "GB/s taken", "times write", "memory"];
    let lines = rows.iter().map(|row| row.line(rows));
    let table = text::table(&std::iter::once(head.map(str::to_string).to_vec()).chain(lines).collect::<Vec<_>>());
    format!(
        "packets made and taken in memory, one thread: software, no link, no card\n\n{table}\n\ntimes write: how many times the speed of write with \
         iCRCs, for a packet made and taken"
    )
}

/// The iCRC of packets of one size beside a copy of the same bytes, in GB/s.
pub struct Icrc {
    pub packet_bytes: usize,
    pub is_in_cache: bool,
    pub icrc: Spread,
    pub copy: Spread,
}

/// The iCRC and a copy, in turns.
///
/// # Errors
/// There is no memory for the buffers.
pub fn icrc(packets: &[usize], repeats: u32, is_quick: bool) -> Result<Vec<Icrc>, Failure> {
    let outer = some_outer();
    let large = if is_quick { 4 * IN_CACHE_BYTES } else { IN_MEMORY_BYTES };
    let (mut from, mut to) = (Vec::new(), Vec::new());
    make_room(&mut from, large)?;
    make_room(&mut to, large)?;
    let mut rows = Vec::new();
    for &packet_bytes in packets.iter().filter(|bytes| **bytes >= 16) {
        for is_in_cache in [true, false] {
            let bytes = if is_in_cache { IN_CACHE_BYTES } else { large };
            // As many rounds as need the time of the large buffer.
            let rounds = if is_quick { 1 } else { IN_MEMORY_BYTES / bytes / 4 };
            let (mut icrc, mut copy) = (Vec::new(), Vec::new());
            for repeat in 0..=repeats {
                let each = || from[..bytes].chunks_exact(packet_bytes);
                let begin = Instant::now();
                for _ in 0..rounds.max(1) {
                    each().for_each(|packet| {
                        black_box(outer.icrc(&[black_box(packet)]));
                    });
                }
                let summed = Instant::now();
                for _ in 0..rounds.max(1) {
                    each().zip(to.chunks_exact_mut(packet_bytes)).for_each(|(from, to)| to.copy_from_slice(black_box(from)));
                }
                black_box(&to);
                let (icrc_s, copy_s) = ((summed - begin).as_secs_f64(), summed.elapsed().as_secs_f64());
                let gigabytes = (each().len() * packet_bytes * rounds.max(1)) as f64 / 1e9;
                if repeat > 0 {
                    icrc.push(gigabytes / icrc_s);
                    copy.push(gigabytes / copy_s);
                }
            }
            rows.push(Icrc { packet_bytes, is_in_cache, icrc: Spread::of(icrc), copy: Spread::of(copy) });
        }
    }
    Ok(rows)
}

impl Icrc {
    const fn place(&self) -> &'static str {
        if self.is_in_cache { "caches" } else { "memory" }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "name": format!("{} bytes, {}", self.packet_bytes, self.place()), "packet_bytes": self.packet_bytes,
            "icrc_gigabytes_per_second": self.icrc.to_json(), "copy_gigabytes_per_second": self.copy.to_json(),
        })
    }
}

/// For people.
pub fn icrc_text(rows: &[Icrc]) -> String {
    let head = ["bytes", "from", "iCRC GB/s", "memcpy GB/s", "iCRC / memcpy"].map(str::to_string).to_vec();
    let line = |row: &Icrc| {
        vec![
            text::count(row.packet_bytes as u64),
            row.place().into(),
            row.icrc.to_short_text(2),
            row.copy.to_short_text(2),
            format!("{:.2}", row.icrc.median / row.copy.median),
        ]
    };
    let table = text::table(&std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>());
    format!("the iCRC of RoCEv2 on one core, beside a copy of the same bytes\n\n{table}")
}
