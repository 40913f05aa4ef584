//! Hostile packets in hostile order through a whole run, from its sources to its sinks. Nothing panics, the run ends,
//! its ledger balances, and every pixel is that of the packet which belongs there, or the missing value.
//!
//! The fuzz target `packets_through_engine` and the tests of the engine use this.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::{CommittedImage, TileRecord};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{AnalysisPlan, Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{FrameSink, Sink, SinkError, Source};
use konkordia_core::sender::{Sender, Senders};
use konkordia_core::setup::{Ports, SetupRules};
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{self, Consumers, PixelConstants, RunParts, WorkerKind};
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser, field};

const ROWS: u16 = 8;
const COLUMNS: usize = 1024;
const PAYLOAD: usize = 8192;
/// What a raw pixel holds where no packet arrived.
const MISSING: u16 = u16::MAX;
const PACKETS_MAX: usize = 400;

/// Datagrams of one stream, or `None` where the source is empty for a moment.
type Arrivals = VecDeque<Option<(Vec<u8>, Sender)>>;

struct Replay(Arrivals);

impl Source for Replay {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> std::io::Result<usize> {
        let mut count = 0;
        while let Some(Some((datagram, sender))) = self.0.front() {
            take(datagram, *sender);
            self.0.pop_front();
            count += 1;
        }
        if count == 0 && self.0.pop_front().is_none() {
            // A source that has nothing more is empty for a while.
            std::thread::sleep(timeout);
        }
        Ok(count)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

/// Number, first frame (from 0), state and chunk of an image.
type Seen = (u64, u64, ImageStatus, Vec<u8>);

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Seen>>>);

impl Sink for Collector {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let first_frame = image.packets.as_ref().expect("a run has packets").first_frame;
        self.0.lock().unwrap().push((image.number, first_frame, image.status, image.chunk().to_vec()));
        Ok(())
    }
}

/// Looks at every byte that a raw frame lends.
struct RawReader;

impl FrameSink for RawReader {
    fn write(&mut self, frame: u64, tile: usize, record: &TileRecord, bytes: &[u8]) -> Result<(), SinkError> {
        for packet in (0..2u16).filter(|packet| record.bitmap.has(*packet)) {
            let first = usize::from(packet) * PAYLOAD;
            let word = u16::from_le_bytes([bytes[first], bytes[first + 1]]);
            assert!(bytes[first..first + PAYLOAD].chunks_exact(2).all(|b| b == word.to_le_bytes()), "frame {frame}, tile {tile}");
        }
        Ok(())
    }
}

/// The pixel of a packet: all of them are alike. Never the missing value.
fn pixel(frame_number: u64, packet: u32, stream: usize) -> u16 {
    let mixed = frame_number.wrapping_mul(0x9E37_79B9).wrapping_add(u64::from(packet) * 97 + stream as u64 * 31);
    (mixed ^ mixed >> 16) as u16 & 0x7FFF
}

/// What the first bytes of the input choose.
struct Choice {
    streams: usize,
    plan: Plan,
    has_raw_sink: bool,
}

fn choice(bytes: [u8; 3], patience_ns: u64) -> Choice {
    let [a, b, c] = bytes;
    let streams = 1 + usize::from(a & 1);
    let format = TileFormat::jungfrau(1).unwrap().with_rows(ROWS.into()).unwrap();
    let window_images = 1 + u64::from(b & 3);
    let plan = Plan {
        geometry: ImageGeometry::stacked(format, streams as u32).unwrap(),
        recipe: Recipe::Raw,
        pixel: PixelType::Uint16,
        compression: if a & 2 == 0 { Compression::None } else { Compression::BSLZ4 },
        processing: Processing::default(),
        // Where no end is planned, all frames of a gap are frames of the run, and a long gap takes long.
        frames: Some(if a & 4 == 0 { 1 + u64::from(c % 32) } else { 1000 }),
        first_frame: if a & 8 == 0 { FirstFrame::Number(1) } else { FirstFrame::Auto },
        missing: [MissingPolicy::Keep, MissingPolicy::Discard, MissingPolicy::CompleteOnly][usize::from(b >> 2) % 3],
        slots: (2 * window_images).max(4) + u64::from(b >> 6),
        packed_slots: 1 + u64::from(c >> 6),
        lossless_source: a & 16 != 0,
        analysis: AnalysisPlan::default(),
        fills_slots: false,
        window_images,
        deadline_ns: 2 * patience_ns,
        stall_timeout_ns: 15 * patience_ns,
        start_timeout_ns: 15 * patience_ns,
        workers: 1 + usize::from(a >> 5 & 1),
        gpu: None,
        affinity: Affinity::default(),
        setup: SetupRules { is_strict: a & 64 == 0, ports_per_module: 1, ports: Ports::Ordered, senders: Senders::Learned },
    };
    Choice { streams, plan, has_raw_sink: a & 128 != 0 }
}

/// Makes the datagrams; their number is what the sources hand out.
fn arrivals(streams: usize, steps: &[u8]) -> Vec<Arrivals> {
    let mut model = PacketModel::new(DetectorKind::Jungfrau { interfaces: 1 }, streams);
    model.rows_read = Some(ROWS);
    let packetiser = Packetiser::new(&model).unwrap();
    let mut all = vec![Arrivals::new(); streams];
    let mut base = 1u64;
    for step in steps.as_chunks::<6>().0.iter().take(PACKETS_MAX) {
        let [what, frame, packet, place, value, more] = *step;
        let stream = usize::from(what & 1) % streams;
        let (mut sender, mut length) = (1, usize::MAX);
        base += u64::from(more & 3 == 3);
        let mut frame = base + u64::from(frame % 24);
        if what >> 1 & 7 == 6 {
            frame = frame.wrapping_add(1 << (value % 64));
        }
        let mut header = packetiser.write_header(stream, frame, u32::from(packet % 2));
        match what >> 1 & 7 {
            4 => header[usize::from(place) % 48] ^= value,
            5 => length = usize::from(place) << 8 | usize::from(value),
            7 if more & 4 == 0 => {
                all[stream].push_back(None);
                continue;
            }
            7 => sender = 2,
            _ => {}
        }
        let at = |range: std::ops::Range<usize>| header[range].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let word = pixel(at(field::FRAME_NUMBER), at(field::PACKET_NUMBER) as u32, stream).to_le_bytes();
        let mut datagram = header.to_vec();
        datagram.extend(std::iter::repeat_n(word, PAYLOAD / 2).flatten());
        if length != usize::MAX {
            datagram.resize(length % 10_000, 0);
        }
        let from = SocketAddr::from(([10, 0, 0, sender], 32410 + stream as u16));
        all[stream].push_back(Some((datagram, Sender::from(from))));
    }
    all
}

/// `began` is the frame number of frame 0.
fn check_image(choice: &Choice, began: u64, image: &Seen) {
    let (number, first_frame, status, chunk) = image;
    assert_eq!(status.has_pixels(), !chunk.is_empty(), "image {number}");
    if chunk.is_empty() {
        return;
    }
    let mut bytes = vec![0; choice.plan.image_bytes()];
    codec::decompress(choice.plan.compression, Isa::detect(), chunk, ElementSize::Two, &mut bytes).expect("chunks decode");
    let first_packet = u32::from(choice.plan.geometry.format().first_packet as u16);
    for (part, words) in bytes.chunks_exact(4 * COLUMNS * 2).enumerate() {
        let expected = pixel(began + first_frame, first_packet + part as u32 % 2, part / 2);
        let word = u16::from_le_bytes([words[0], words[1]]);
        let is_missing = word == MISSING && *status != ImageStatus::Complete;
        assert!(word == expected || is_missing, "image {number} of frame {first_frame}, part {part}: {word}, not {expected}");
        assert!(words.chunks_exact(2).all(|b| b == word.to_le_bytes()), "image {number}, part {part}");
    }
}

/// One run; the input says what comes. Returns the images that came whole. All times of the run are multiples of
/// `patience_ns`: short where it ends by them, long where nothing may depend on how busy the machine is.
pub fn check(data: &[u8], patience_ns: u64) -> u64 {
    let Some((first, steps)) = data.split_first_chunk::<3>() else { return 0 };
    let choice = choice(*first, patience_ns);
    let arrivals = arrivals(choice.streams, steps);
    let sent: usize = arrivals.iter().flatten().flatten().count();
    let collector = Collector::default();
    let parts = RunParts {
        plan: Arc::new(choice.plan.clone()),
        sources: arrivals.into_iter().map(|list| Box::new(Replay(list)) as Box<dyn Source>).collect(),
        constants: PixelConstants::None,
        sinks: vec![Box::new(collector.clone())],
        consumers: Consumers::default(),
        frame_sinks: if choice.has_raw_sink { vec![Box::new(RawReader)] } else { vec![] },
        isa: Isa::detect(),
        workers: WorkerKind::default(),
    };
    let outcome = run::arm(parts).expect("the plan is consistent").run();
    assert!(outcome.failure.is_none(), "{}", outcome.failure.unwrap());
    assert_eq!(outcome.ledger.imbalances(), []);
    assert!(outcome.ledger.total().received <= sent as u64, "more were received than sent");
    let seen = std::mem::take(&mut *collector.0.lock().unwrap());
    assert_eq!(seen.len() as u64, outcome.images);
    for (number, image) in seen.iter().enumerate() {
        assert_eq!(image.0, number as u64, "images come in order");
        check_image(&choice, outcome.first_frame.unwrap_or_default(), image);
    }
    outcome.ledger.images.complete
}
