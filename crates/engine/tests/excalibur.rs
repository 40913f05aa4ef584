//! EXCALIBUR through the whole engine without sockets: simulated FEMs lose, repeat, delay and damage packets; every
//! pixel, every bitmap and every header is compared with a naive reference, and every sum is checked.

use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Orientation, Placement, Quarter};
use konkordia_core::image::{CommittedImage, TileRecord};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::sender::Senders;
use konkordia_core::setup::{Ports, SetupRules};
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{self, Consumers, PixelConstants, RunOutcome, RunParts, WorkerKind};
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_sim::excalibur::{
    ExcaliburModel, FRAME_PACKETS, HEADER_BYTES, PRIMARY_BYTES, STRIPE_COLUMNS, STRIPE_ROWS, SUBFRAME_PACKETS, TRAILER_BYTES,
};
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel};
use konkordia_sources::memory::MemorySource;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const STRIPE_PIXELS: usize = STRIPE_ROWS * STRIPE_COLUMNS;
/// Data bytes of a tail packet, with its trailer.
const TAIL_BYTES: usize = 4296;

type Seen = (u64, ImageStatus, Vec<TileRecord>, Vec<u8>);

/// Keeps every image.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Seen>>>);

impl Sink for Collector {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let packets = image.packets.as_ref().expect("a run has packets");
        self.0.lock().unwrap().push((image.number, image.status, packets.tiles.clone(), image.chunk().to_vec()));
        Ok(())
    }
}

/// What a correct receiver makes of the datagrams of one stream: the data of each packet, by frame and by its number in
/// the frame.
#[derive(Default)]
struct Reference {
    frames: BTreeMap<u64, BTreeMap<usize, Vec<u8>>>,
    received: u64,
    malformed: u64,
}

impl Reference {
    fn take(&mut self, model: &ExcaliburModel, datagram: &[u8]) {
        self.received += 1;
        let number = |at: usize| u32::from_le_bytes(datagram[at..at + 4].try_into().unwrap());
        let is_packet = datagram.len() >= HEADER_BYTES && {
            let n = (number(4) & 0x3FFF_FFFF) as usize;
            let marks = u32::from(n == 0) << 31 | u32::from(n == 65) << 30;
            n <= 65 && number(4) & 0xC000_0000 == marks && datagram.len() == 8 + if n == 65 { TAIL_BYTES } else { 8000 }
        };
        if !is_packet {
            self.malformed += 1;
            return;
        }
        let (counter, n) = (number(0), (number(4) & 0x3FFF_FFFF) as usize);
        let frame = u64::from(counter / 2 - model.first_frame);
        let packet = counter as usize % 2 * SUBFRAME_PACKETS + n;
        self.frames.entry(frame).or_default().entry(packet).or_insert(datagram[HEADER_BYTES..].to_vec());
    }

    /// The counts of a frame where they are seen in the image, missing where no packet came.
    fn counts(&self, fem: usize, frame: u64) -> Vec<u16> {
        let mut counts = vec![0xFFFF; STRIPE_PIXELS];
        let order = ExcaliburModel::sent_order(fem);
        for (packet, data) in self.frames.get(&frame).into_iter().flatten() {
            let (subframe, n) = (packet / SUBFRAME_PACKETS, packet % SUBFRAME_PACKETS);
            let pixels = &data[..data.len() - if n == 65 { TRAILER_BYTES } else { 0 }];
            let first = (subframe * STRIPE_PIXELS + n * PRIMARY_BYTES) / 2;
            for (at, word) in order[first..].iter().zip(pixels.chunks(2)) {
                counts[*at] = u16::from_le_bytes([word[0], word[1]]);
            }
        }
        counts
    }

    fn packets(&self, frame: u64) -> Vec<usize> {
        self.frames.get(&frame).into_iter().flat_map(|packets| packets.keys().copied()).collect()
    }
}

struct Case {
    model: ExcaliburModel,
    frames: u64,
    faults: FaultModel,
    compression: Compression,
    workers: usize,
}

fn plan(case: &Case) -> Plan {
    let upside_down = Orientation::new(false, false, Quarter::Deg180);
    let orientation = |fem: usize| if fem % 2 == 1 { upside_down } else { Orientation::UPRIGHT };
    let placement = |fem| Placement { row: 256 * fem as u32, column: 0, orientation: orientation(fem) };
    let placements = (0..case.model.fems).map(placement).collect();
    Plan {
        geometry: ImageGeometry::new(TileFormat::excalibur(), placements, None, DoublePixels::Keep).unwrap(),
        recipe: Recipe::Counts,
        pixel: PixelType::Uint16,
        compression: case.compression,
        processing: Processing::default(),
        frames: Some(case.frames),
        first_frame: FirstFrame::Number(case.model.first_frame.into()),
        missing: MissingPolicy::Keep,
        slots: 16,
        packed_slots: 16,
        lossless_source: false,
        fills_slots: false,
        window_images: 8,
        deadline_ns: 300_000_000,
        stall_timeout_ns: 1_500_000_000,
        start_timeout_ns: 5_000_000_000,
        workers: case.workers,
        affinity: Affinity::default(),
        setup: SetupRules { is_strict: true, ports_per_module: 1, ports: Ports::Unknown, senders: Senders::Any },
    }
}

/// Sends the frames of all FEMs over the link.
fn send(case: &Case) -> (Vec<Vec<Vec<u8>>>, Vec<Reference>) {
    let model = &case.model;
    let mut streams = vec![Vec::new(); model.fems];
    let mut references: Vec<Reference> = (0..model.fems).map(|_| Reference::default()).collect();
    let mut link = FaultLink::new(&case.faults);
    let mut deliver = |d: Datagram<'_>| {
        references[d.stream].take(model, d.bytes);
        streams[d.stream].push(d.bytes.to_vec());
    };
    for frame in 0..case.frames {
        let fems: Vec<_> = (0..model.fems).map(|fem| model.datagrams(fem, frame)).collect();
        for packet in 0..FRAME_PACKETS {
            for (stream, datagrams) in fems.iter().enumerate() {
                link.push(Datagram { stream, bytes: &datagrams[packet], is_other_sender: false }, &mut deliver);
            }
        }
    }
    link.flush(&mut deliver);
    (streams, references)
}

fn run(plan: &Plan, streams: Vec<Vec<Vec<u8>>>, sink: Collector) -> RunOutcome {
    let sources = streams.into_iter().map(|datagrams| Box::new(MemorySource::new(datagrams, 50)) as Box<dyn Source>).collect();
    let parts = RunParts {
        plan: Arc::new(plan.clone()),
        sources,
        constants: PixelConstants::Mask(vec![0; plan.geometry.pixels()]),
        sinks: vec![Box::new(sink)],
        consumers: Consumers::default(),
        frame_sinks: vec![],
        isa: Isa::detect(),
        workers: WorkerKind::default(),
    };
    run::arm(parts).unwrap().run()
}

/// Bitmap and headers of the tiles of a frame.
fn check_records(case: &Case, frame: u64, records: &[TileRecord], references: &[Reference]) {
    for (fem, (record, reference)) in records.iter().zip(references).enumerate() {
        let came: Vec<usize> = (0..FRAME_PACKETS).filter(|n| record.bitmap.has(*n as u16)).collect();
        assert_eq!(came, reference.packets(frame), "frame {frame}, FEM {fem}");
        let number = u64::from(case.model.first_frame) + frame;
        let has_trailer = came.contains(&65) || came.contains(&131);
        assert_eq!(record.header.fields[0], if has_trailer { number + 1 } else { 0 }, "frame {frame}, FEM {fem}");
        assert_eq!(record.header.frame_number, if came.is_empty() { 0 } else { number });
    }
}

fn check(case: &Case) -> (RunOutcome, Vec<ImageStatus>) {
    let plan = plan(case);
    let (streams, references) = send(case);
    let collector = Collector::default();
    let outcome = run(&plan, streams, collector.clone());
    assert_eq!(outcome.ledger.imbalances(), []);
    for (stream, got) in outcome.ledger.streams.iter().enumerate() {
        let expected = &references[stream];
        let placed: usize = expected.frames.values().map(BTreeMap::len).sum();
        assert_eq!((got.received, got.placed), (expected.received, placed as u64), "stream {stream}");
        assert_eq!(got.malformed.iter().sum::<u64>(), expected.malformed, "stream {stream}");
        assert_eq!((got.late, got.no_slot, got.foreign), (0, 0, 0), "stream {stream}");
    }
    let seen = std::mem::take(&mut *collector.0.lock().unwrap());
    assert_eq!(seen.len() as u64, case.frames);
    for (number, status, records, chunk) in &seen {
        let is_complete = references.iter().all(|reference| reference.packets(*number).len() == FRAME_PACKETS);
        let is_lost = references.iter().all(|reference| reference.packets(*number).is_empty());
        assert_eq!((*status == ImageStatus::Complete, *status == ImageStatus::Lost), (is_complete, is_lost), "frame {number}");
        check_records(case, *number, records, &references);
        if status.has_pixels() {
            let mut pixels = vec![0u16; plan.geometry.pixels()];
            let out = bytemuck::cast_slice_mut(&mut pixels);
            codec::decompress(plan.compression, Isa::Scalar, chunk, ElementSize::Two, out).expect("every chunk decodes");
            let stripes = references.iter().enumerate().flat_map(|(fem, reference)| reference.counts(fem, *number));
            assert!(pixels == stripes.collect::<Vec<_>>(), "counts of frame {number}");
        }
    }
    (outcome, seen.iter().map(|seen| seen.1).collect())
}

fn case(seed: u64) -> Case {
    Case {
        model: ExcaliburModel { seed, first_frame: 3, ..ExcaliburModel::new(2) },
        frames: 6,
        faults: FaultModel { seed, ..FaultModel::default() },
        compression: Compression::Bslz4,
        workers: 2,
    }
}

#[test]
fn without_faults_every_frame_is_the_image() {
    for (fems, compression) in [(2, Compression::Bslz4), (1, Compression::None), (3, Compression::Zstd { level: 1 })] {
        let model = ExcaliburModel::new(fems);
        let (outcome, states) = check(&Case { model, compression, ..case(1) });
        assert!(states.iter().all(|status| *status == ImageStatus::Complete), "{fems} FEMs");
        assert!(outcome.is_success() && outcome.findings.is_empty(), "{:?}", outcome.findings);
    }
}

/// Tail packets are among the lost ones: they are shorter, and have the trailer.
#[test]
fn lost_packets_are_written_as_missing() {
    let mut partial = 0;
    for seed in 1..=4 {
        let faults = FaultModel {
            seed,
            loss: 0.03,
            burst: 0.004,
            burst_packets_mean: 8.0,
            duplicate: 0.02,
            reorder: 0.05,
            reorder_packets_max: 20,
            ..FaultModel::default()
        };
        let (outcome, states) = check(&Case { faults, ..case(seed) });
        partial += states.iter().filter(|status| **status == ImageStatus::Partial).count();
        assert!(!outcome.is_complete());
    }
    assert!(partial > 12, "only {partial} frames lost packets");
}

#[test]
fn damaged_packets_are_refused_and_counted() {
    for seed in 1..=2 {
        let faults = FaultModel { seed, truncate: 0.05, loss: 0.01, ..FaultModel::default() };
        let (outcome, _) = check(&Case { faults, ..case(seed) });
        assert!(outcome.ledger.streams.iter().map(|stream| stream.malformed.iter().sum::<u64>()).sum::<u64>() > 0);
    }
}

/// The trailer may come before the other packets of its subframe, once, twice, or not at all.
#[test]
fn the_trailer_is_found_whenever_it_comes() {
    let faults = FaultModel { seed: 3, reorder: 0.5, reorder_packets_max: 16, loss: 0.4, ..FaultModel::default() };
    check(&Case { faults, frames: 12, ..case(3) });
}

/// The number of workers changes nothing.
#[test]
fn one_worker_and_three_do_the_same() {
    for workers in [1, 3] {
        check(&Case { workers, faults: FaultModel { seed: 5, loss: 0.05, ..FaultModel::default() }, ..case(5) });
    }
}
