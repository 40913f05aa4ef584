//! `konkordia bench bridge`: placement by a program of the bridge, beside a plain loop that reads the number of frame
//! and packet and copies the payload to the next place of its stream, as a receiver does that leaves the order of the
//! image to others. Both work on packets in memory, in software on one thread: no network, no FPGA. As behind a socket,
//! the packets lie in few buffers, which are used again and again, and the frames in a store beyond the caches. Every
//! byte of the frames that the program has placed is compared with the image that was sent.

use super::args::BenchBridgeArgs;
use super::output::Output;
use super::spread::Spread;
use konkordia_acquire::machine;
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_fabric::bridge::{AddressTable, Bridge, Options, Program, SHIPPED, Store};
use konkordia_memory::pages::Pages;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Bytes of the header of a packet, with the numbers of frame and packet in it.
const HEADER_BYTES: usize = 48;

/// `konkordia bench bridge`
pub fn command(args: &BenchBridgeArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "bridge")?;
    let (repeats, seconds) = if args.quick { (2, 0.0) } else { (args.repeats.max(1), args.seconds) };
    let rows: Vec<Row> = SHIPPED.iter().map(|program| Row::measure(program.name, program.text, repeats, seconds)).collect();
    let verified = rows.iter().all(|row| row.verified);
    let report = json!({
        "bench": "bridge", "machine": machine::facts(), "label": "software, packets in memory", "repeats": repeats,
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "verified": verified,
    });
    output.print(report, &to_text(&rows, repeats));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// Bytes of the frames of a call, and of the store.
const STORE_BYTES: u64 = 128 << 20;
/// Frames whose packets are made; the others are the same under other numbers.
const FRAMES_MADE: u64 = 2;

/// Packets of some frames, in the order in which the ports of a module send them.
struct Sent {
    table: AddressTable,
    first_port: u16,
    packets: Vec<(u16, Vec<u8>)>,
    frames: u64,
    tile_bytes: usize,
    /// Bytes of a line of a tile.
    line_bytes: usize,
    is_eiger: bool,
}

impl Sent {
    fn new(name: &str, text: &str) -> Self {
        let mut program = Program::from_toml(text).expect("a shipped program is valid");
        program.slots = (STORE_BYTES / program.slot_bytes) as u32;
        let table = program.compile().expect("a shipped program is valid");
        let first_port = table.ports().next().expect("its tiles have ports");
        let (tiles, packets) = (table.tiles(), table.packets(0));
        let payload_bytes = table.datagram_bytes_max() - HEADER_BYTES;
        let is_eiger = name.starts_with("eiger");
        let tile_bytes = usize::from(packets) * payload_bytes;
        let line_bytes = if is_eiger { tile_bytes / 256 } else { 2048 };
        let frames = table.slots().into();
        let mut sent = Self { first_port, packets: Vec::new(), frames, tile_bytes, line_bytes, is_eiger, table };
        for (frame, packet, tile) in
            (0..FRAMES_MADE).flat_map(|f| (0..packets).flat_map(move |p| (0..tiles).map(move |t| (f, p, t))))
        {
            let mut bytes = vec![0; HEADER_BYTES + payload_bytes];
            bytes[..8].copy_from_slice(&frame.to_le_bytes());
            bytes[12..14].copy_from_slice(&packet.to_le_bytes());
            bytes[46..48].copy_from_slice(&[if is_eiger { 1 } else { 3 }, 2]);
            let first = usize::from(packet) * payload_bytes;
            bytes[HEADER_BYTES..].iter_mut().enumerate().for_each(|(n, byte)| *byte = pixel(frame, tile, first + n));
            sent.packets.push((first_port + tile as u16, bytes));
        }
        sent
    }

    /// Hands out the packets of all frames of a call, with their ports.
    fn each(&mut self, mut take: impl FnMut(&AddressTable, u16, &[u8])) {
        let of_frame = self.packets.len() / FRAMES_MADE as usize;
        for frame in 0..self.frames {
            let first = (frame % FRAMES_MADE) as usize * of_frame;
            for (port, bytes) in &mut self.packets[first..first + of_frame] {
                bytes[..8].copy_from_slice(&frame.to_le_bytes());
                take(&self.table, *port, black_box(bytes));
            }
        }
    }

    /// True if a slot has the image of a frame, byte by byte, by the shape of the detector and not by the program.
    fn is_image(&self, frame: u64, slot: &[u8]) -> bool {
        slot.iter().enumerate().all(|(at, byte)| {
            let (tile, in_tile) = if self.is_eiger {
                let (row, column) = (at / (2 * self.line_bytes), at % (2 * self.line_bytes));
                let (half, line) = if row < 256 { (0, 255 - row) } else { (1, row - 256) };
                (2 * half + column / self.line_bytes, line * self.line_bytes + column % self.line_bytes)
            } else {
                (at / self.tile_bytes, at % self.tile_bytes)
            };
            *byte == pixel(frame % FRAMES_MADE, tile, in_tile)
        })
    }
}

/// Some byte that depends on everything.
fn pixel(frame: u64, tile: usize, at: usize) -> u8 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(frame * 77 + tile as u64 * 131);
    (mixed >> 24) as u8
}

struct Row {
    name: String,
    packets: u64,
    segments: usize,
    /// GB/s of payload: plain loop, addresses and copies, the whole bridge.
    plain: Spread,
    placed: Spread,
    bridge: Spread,
    /// Time of the plain loop / time of the bridge, in the same round.
    ratio: Spread,
    verified: bool,
}

impl Row {
    fn measure(name: &str, text: &str, repeats: u32, seconds: f64) -> Self {
        let mut sent = Sent::new(name, text);
        let packets = sent.frames * sent.table.coverage().packets;
        let mut memory = pages(&sent.table);
        let (mut plain, mut placed, mut bridge) = (Vec::new(), Vec::new(), Vec::new());
        let mut verified = true;
        // The first round is not counted.
        for round in 0..=repeats {
            let times = [
                time(seconds, || copy_plainly(&mut sent, &mut memory)),
                time(seconds, || copy_by_table(&mut sent, &mut memory)),
                time(seconds, || run_bridge(&mut sent, &mut memory)),
            ];
            if round > 0 {
                let bytes = (packets * (sent.table.datagram_bytes_max() - HEADER_BYTES) as u64) as f64;
                for (list, time) in [&mut plain, &mut placed, &mut bridge].into_iter().zip(times) {
                    list.push(bytes / time / 1e9);
                }
            }
        }
        for work in [copy_by_table, run_bridge] {
            memory.fill(0);
            work(&mut sent, &mut memory);
            let mut store = Store::new(&sent.table, &mut memory).expect("the store has its length");
            verified &= (0..sent.frames).all(|f| sent.is_image(f, store.slot(&sent.table, sent.table.slot_of(f))));
        }
        let ratio = Spread::of(bridge.iter().zip(&plain).map(|(bridge, plain)| bridge / plain));
        Self {
            name: name.into(),
            packets,
            segments: sent.table.coverage().segments_max,
            plain: Spread::of(plain),
            placed: Spread::of(placed),
            bridge: Spread::of(bridge),
            ratio,
            verified,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name, "packets": self.packets, "segments_max": self.segments, "verified": self.verified,
            "plain_gigabytes_per_second": self.plain.to_json(), "placed_gigabytes_per_second": self.placed.to_json(),
            "bridge_gigabytes_per_second": self.bridge.to_json(), "bridge_of_plain": self.ratio.to_json(),
        })
    }

    fn to_text(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.segments.to_string(),
            self.plain.to_text(2),
            self.placed.to_text(2),
            self.bridge.to_text(2),
            self.ratio.to_text(2),
            if self.verified { "right" } else { "WRONG" }.into(),
        ]
    }
}

/// The store as `konkordia bridge run` has it.
fn pages(table: &AddressTable) -> Pages {
    Pages::new(table.store_bytes() as usize).expect("there is memory for the store")
}

/// Seconds of one call, of as many as fit into `seconds`: the shortest.
fn time(seconds: f64, mut work: impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    loop {
        let begin = Instant::now();
        work();
        best = begin.elapsed().as_secs_f64().min(best);
        if start.elapsed().as_secs_f64() >= seconds {
            return best;
        }
    }
}

/// Checks length, type and version, reads frame and packet, marks the packet, and copies the payload behind the others
/// of its tile.
fn copy_plainly(sent: &mut Sent, memory: &mut [u8]) {
    let (tiles, frames, first_port, tile_bytes) = (sent.table.tiles(), sent.frames, sent.first_port, sent.tile_bytes);
    let mut masks = vec![PacketBitmap::default(); frames as usize * tiles];
    let slot_bytes = sent.table.slot_bytes() as usize;
    let (packets, datagram_bytes) = (usize::from(sent.table.packets(0)), sent.table.datagram_bytes_max());
    let kind = if sent.is_eiger { 1 } else { 3 };
    sent.each(|table, port, datagram| {
        let tile = usize::from(port - first_port);
        if datagram.len() != datagram_bytes || datagram[46] != kind || datagram[47] != 2 {
            return;
        }
        let frame = u64::from_le_bytes(*datagram.first_chunk().unwrap_or(&[0; 8]));
        let packet = usize::from(u16::from_le_bytes([datagram[12], datagram[13]]));
        if frame >= frames || packet >= packets || tile >= tiles {
            return;
        }
        if !masks[frame as usize * tiles + tile].set(packet as u16) {
            return;
        }
        let payload = &datagram[HEADER_BYTES..];
        let at = table.slot_of(frame) as usize * slot_bytes + tile * tile_bytes + packet * payload.len();
        memory[at..at + payload.len()].copy_from_slice(payload);
    });
    black_box(&masks);
}

/// Addresses and copies only.
fn copy_by_table(sent: &mut Sent, memory: &mut [u8]) {
    let mut store = Store::new(&sent.table, memory).expect("the store has its length");
    sent.each(|table, port, datagram| {
        if let Ok(address) = table.address(port, datagram) {
            table.copy(&address, datagram, store.slot(table, table.slot_of(address.frame)));
        }
    });
}

/// All of it: verdicts, masks, finished frames.
fn run_bridge(sent: &mut Sent, memory: &mut [u8]) {
    let mut store = Store::new(&sent.table, memory).expect("the store has its length");
    let mut bridge = Bridge::new(sent.table.clone(), Options { first_frame: Some(0), ..Options::default() });
    sent.each(|_, port, datagram| {
        if bridge.on_packet(port, datagram, &mut store).interrupt.is_some() {
            while let Some(closed) = bridge.take() {
                bridge.release(black_box(closed).image);
            }
        }
    });
    assert_eq!(bridge.account().complete, sent.frames, "every frame is whole");
}

fn to_text(rows: &[Row], repeats: u32) -> String {
    let head = ["program", "addresses", "plain copy", "by table", "bridge", "bridge / plain", "images"];
    let lines: Vec<Vec<String>> =
        std::iter::once(head.map(str::to_string).to_vec()).chain(rows.iter().map(Row::to_text)).collect();
    format!(
        "{}\nsoftware, one thread, packets in memory: GB/s of payload, median (lowest .. highest) of {repeats}\n\n{}\n\n\
         addresses = places of one packet; by table = address and copy; bridge = with verdicts, masks and frames\n\
         PSI's FPGA board: 5.6 GB/s at packets of 4096 bytes, 6.1 GB/s at 8192, limited by PCIe 3.0 x8",
        machine::line(),
        text::table(&lines)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_compared_byte_by_byte() {
        let program = SHIPPED.iter().find(|program| program.name == "eiger-8bit").unwrap();
        let mut sent = Sent::new(program.name, program.text);
        let mut memory = pages(&sent.table);
        copy_plainly(&mut sent, &mut memory);
        let slot = sent.table.slot_bytes() as usize;
        assert!(!sent.is_image(0, &memory[..slot]), "the plain copy leaves the lines as they came");
        run_bridge(&mut sent, &mut memory);
        assert!(sent.is_image(0, &memory[..slot]) && !sent.is_image(1, &memory[..slot]));
        memory[slot - 1] ^= 1;
        assert!(!sent.is_image(0, &memory[..slot]));
    }
}
