//! Packets of RoCEv2 as a capture, and a capture through the responder: for comparisons with other programs.
//!
//! ```text
//! roce_pcap make CAPTURE              write packets of every kind that the requester and the responder make
//! roce_pcap play CAPTURE IMAGE        give a capture to a responder; its memory goes to IMAGE, its account to the
//! output
//! ```
//!
//! The responder has queue pairs 0x11 (UC), 0x12 (RC) and 0x13 (UD, Q_Key 0x11112222) with a path MTU of 256 bytes, all
//! from PSN 0xFFFFFE, and a region of 64 KiB at 0x10000 with the key 0x1234. The UD one has 4 buffers of 256 bytes at
//! offset 0x8000, the others 64 receives without a buffer. `tests/readers/test_roce.py` knows these numbers too.

use konkordia_fabric::regions::{ProtectionDomain, Region, Regions, Rights};
use konkordia_fabric::roce::holoscan::{Page, frame};
use konkordia_fabric::roce::image::MemoryImages;
use konkordia_fabric::roce::pair::{Buffer, QueuePairSettings, Receive};
use konkordia_fabric::roce::requester::{Cut, Requester, RequesterSettings, Write};
use konkordia_fabric::roce::responder::{IcrcCheck, Responder};
use konkordia_fabric::roce::verdict::Verdict;
use konkordia_wire::hsb_metadata::{FrameEnd, ImmediateLayout};
use konkordia_wire::roce::frame::{Ethernet, packet_of};
use konkordia_wire::roce::opcode::{Opcode, Operation, Part, Transport};
use konkordia_wire::roce::outer::{DONT_FRAGMENT, Ip, Outer};
use konkordia_wire::roce::{
    Acknowledgement, DEFAULT_PARTITION_KEY, DatagramSource, Header, PathMtu, Psn, QueuePairNumber, Syndrome,
};
use std::error::Error;
use std::fs;

const KEY: u32 = 0x1234;
const BASE: u64 = 0x10000;
const REGION_BYTES: usize = 1 << 16;
const QUEUE_KEY: u32 = 0x1111_2222;
const DOMAIN: ProtectionDomain = ProtectionDomain(1);
const FIRST: u32 = 0xFF_FFFE;

/// A classic capture of Ethernet frames with times in microseconds: the file header, then 16 bytes before each frame.
mod capture {
    pub const HEADER: [u32; 6] = [0xA1B2_C3D4, 0x0004_0002, 0, 0, 65535, 1];
    pub const HEADER_BYTES: usize = 24;
    pub const RECORD_BYTES: usize = 16;
}

fn qpn(number: u32) -> QueuePairNumber {
    QueuePairNumber::new(number).expect("24 bits")
}

/// Frames that are written one after the other.
struct Capture {
    bytes: Vec<u8>,
    outer: Outer,
}

impl Capture {
    fn new(outer: Outer) -> Self {
        Self { bytes: capture::HEADER.iter().flat_map(|word| word.to_le_bytes()).collect(), outer }
    }

    fn push(&mut self, header: &Header, payload: &[u8]) {
        let packet_bytes = header.packet_bytes(payload.len());
        let mut frame = vec![0; 14 + self.outer.header_bytes() + packet_bytes];
        let ethernet = Ethernet { destination: [2, 0, 0, 0, 0, 2], source: [2, 0, 0, 0, 0, 1] };
        let at = ethernet.write(&self.outer, packet_bytes, 2, &mut frame);
        header.encode(payload, &mut frame[at..]);
        self.outer.seal(&mut frame[at..]);
        let length = frame.len() as u32;
        self.bytes.extend([0, 0, length, length].iter().flat_map(|word| word.to_le_bytes()));
        self.bytes.extend(frame);
    }
}

/// Pixels that other programs can make too.
fn pixels(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 256) as u8).collect()
}

fn make() -> Result<Vec<u8>, Box<dyn Error>> {
    let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let v4 = Ip::V4 { source, destination, identification: 0x1234, flags: DONT_FRAGMENT };
    let mut capture = Capture::new(Outer { ip: v4, source_port: 0xC001, destination_port: 4791 });
    let unreliable =
        RequesterSettings { first_psn: Psn::new(FIRST), ..RequesterSettings::unreliable(qpn(0x11), PathMtu::Bytes256) };
    let mut requester = Requester::new(unreliable);
    let bytes = pixels(1000);
    for (n, cut) in [Cut::OneMessage, Cut::OnlyPackets].into_iter().enumerate() {
        for immediate in [None, Some(0xDEAD_BEEF)] {
            let message = Write { address: BASE + 4096 * n as u64, key: KEY, length_bytes: 1000, immediate };
            requester.write(message, cut)?.for_each(|piece| capture.push(&piece.header, &bytes[piece.payload.clone()]));
        }
    }
    for immediate in [None, Some(1)] {
        requester.send(600, immediate)?.for_each(|piece| capture.push(&piece.header, &bytes[piece.payload.clone()]));
        requester.send(5, immediate)?.for_each(|piece| capture.push(&piece.header, &bytes[piece.payload.clone()]));
    }
    let page = Page { number: 2, address: BASE + 0x4000, key: KEY };
    let end = FrameEnd { frame_number: 9, begin: (1_700_000_000, 5), end: (1_700_000_000, 6), ..FrameEnd::default() };
    let made = frame(&mut requester, page, 1000, end, ImmediateLayout::Page12)?;
    made.pixels.clone().for_each(|piece| capture.push(&piece.header, &bytes[piece.payload.clone()]));
    capture.push(&made.end, &made.block);
    let datagrams = RequesterSettings {
        transport: Transport::UnreliableDatagram,
        destination: qpn(0x13),
        source: DatagramSource { queue_key: QUEUE_KEY, queue_pair: qpn(0xABCDEF) },
        ..unreliable
    };
    let mut datagrams = Requester::new(datagrams);
    for immediate in [None, Some(77)] {
        datagrams.send(30, immediate)?.for_each(|piece| capture.push(&piece.header, &bytes[piece.payload.clone()]));
    }
    let find = |transport, operation| Opcode::find(transport, operation, Part::Only, false).ok_or("no such opcode");
    for syndrome in [Syndrome::ACKNOWLEDGED, Syndrome::SequenceError, Syndrome::ReceiverNotReady(14)] {
        let opcode = find(Transport::ReliableConnection, Operation::Acknowledge)?;
        let acknowledgement = Acknowledgement { syndrome, messages: 0x010203 };
        capture.push(&Header { acknowledgement, ..Header::new(opcode, qpn(0x12), Psn::new(5)) }, &[]);
    }
    capture.push(&Header::new(find(Transport::None, Operation::CongestionNotification)?, qpn(0x11), Psn::new(0)), &[]);
    capture.outer.ip = Ip::V6 { source: "fd00::1".parse()?, destination: "fd00::2".parse()? };
    let message = Write { address: BASE, key: KEY, length_bytes: 300, immediate: Some(6) };
    requester.write(message, Cut::OneMessage)?.for_each(|piece| capture.push(&piece.header, &bytes[piece.payload.clone()]));
    Ok(capture.bytes)
}

/// The responder that the head of this file describes.
fn responder(regions: &mut Regions) -> Result<(Responder, MemoryImages), Box<dyn Error>> {
    let region = Region { base: BASE, length_bytes: REGION_BYTES as u64, rights: Rights::Write, domain: DOMAIN };
    let (id, key) = regions.register(region)?;
    assert_eq!(key.get(), KEY, "the first region has the key that is announced");
    let mut images = MemoryImages::default();
    images.add(id, REGION_BYTES, 0xC5);
    let mut responder = Responder::new(3, IcrcCheck::Always);
    let transports = [Transport::UnreliableConnection, Transport::ReliableConnection, Transport::UnreliableDatagram];
    for (number, transport) in (0x11..).zip(transports) {
        let is_datagram = transport == Transport::UnreliableDatagram;
        responder.add(QueuePairSettings {
            number: qpn(number),
            transport,
            first_psn: Psn::new(FIRST),
            path_mtu: PathMtu::Bytes256,
            partition_key: DEFAULT_PARTITION_KEY,
            queue_key: QUEUE_KEY,
            peer: None,
            peer_number: qpn(0xBEEF),
            domain: DOMAIN,
            receives_max: 64,
            not_ready_timer: 14,
        })?;
        for receive in 0..if is_datagram { 4 } else { 64 } {
            let buffer = Buffer { region: id, offset_bytes: 0x8000 + receive * 256, length_bytes: 256 };
            responder.prepare(qpn(number), Receive { id: receive, buffer: is_datagram.then_some(buffer) })?;
        }
    }
    Ok((responder, images))
}

fn frames(capture: &[u8]) -> Result<Vec<&[u8]>, Box<dyn Error>> {
    let mut rest = capture.get(capture::HEADER_BYTES..).filter(|_| capture.starts_with(&capture::HEADER[0].to_le_bytes()));
    let mut found = Vec::new();
    while let Some(bytes) = rest.filter(|bytes| !bytes.is_empty()) {
        let (record, behind) = bytes.split_at_checked(capture::RECORD_BYTES).ok_or("the capture is cut")?;
        let length = u32::from_le_bytes(record[8..12].try_into()?) as usize;
        let (frame, behind) = behind.split_at_checked(length).ok_or("the capture is cut")?;
        found.push(frame);
        rest = Some(behind);
    }
    if rest.is_none() { Err("it is no classic capture of this machine's byte order".into()) } else { Ok(found) }
}

/// Prints a line per completion and per reply (a whole packet without the headers around it), and the counters.
fn play(capture: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut regions = Regions::new(1, 0x1_0000 ^ KEY);
    let (mut responder, mut images) = responder(&mut regions)?;
    for bytes in frames(capture)? {
        let Ok((outer, packet)) = packet_of(bytes) else {
            println!("other_frame");
            continue;
        };
        let outcome = responder.receive(packet, &outer, &regions);
        println!("verdict {}", outcome.verdict.name());
        outcome.copy.iter().for_each(|copy| images.apply(copy));
        if let Some(done) = outcome.completion {
            let immediate = done.immediate.map_or("none".to_owned(), |immediate| format!("{immediate:08x}"));
            println!("completion {:x} {immediate} {}", done.queue_pair.get(), done.length_bytes);
        }
        if let Some(reply) = outcome.reply {
            let hex: String = reply.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("reply {hex}");
        }
    }
    let counters = responder.counters();
    println!("packets {} balanced {}", counters.packets, counters.is_balanced());
    let seen = Verdict::ALL.into_iter().filter(|verdict| counters.of(*verdict) > 0);
    seen.for_each(|verdict| println!("counter {} {}", verdict.name(), counters.of(verdict)));
    let id = regions.find(konkordia_fabric::regions::Key::new(KEY), BASE, 1, konkordia_fabric::regions::Access::Write, DOMAIN)?;
    Ok(images.of(id.region).to_vec())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", capture] => fs::write(capture, make()?)?,
        ["play", capture, image] => fs::write(image, play(&fs::read(capture)?)?)?,
        _ => return Err("roce_pcap make CAPTURE, or roce_pcap play CAPTURE IMAGE".into()),
    }
    Ok(())
}
