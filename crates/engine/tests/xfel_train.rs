//! Trains of European XFEL through the whole engine without sockets: simulated trains lose, repeat, delay and damage
//! packets; every pixel, every bitmap and every header is compared with a naive reference, and every sum is checked.

use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::{CommittedImage, TileRecord};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::sender::Senders;
use konkordia_core::setup::{Finding, Means, Ports, SetupRules, What};
use konkordia_core::tile::{TileFormat, XfelDetector};
use konkordia_engine::run::{self, Consumers, PixelConstants, RunOutcome, RunParts, WorkerKind};
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel};
use konkordia_sim::xfel_train::{DATA_BYTES, END_BYTES, HEADER_BYTES, TrainModel};
use konkordia_sources::memory::MemorySource;
use konkordia_wire::formats::PacketFormat;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

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

/// What a correct receiver makes of the datagrams of one stream: the data of each packet, by train and number.
#[derive(Default)]
struct Reference {
    trains: BTreeMap<u64, BTreeMap<usize, Vec<u8>>>,
    received: u64,
    malformed: u64,
}

impl Reference {
    fn take(&mut self, model: &TrainModel, datagram: &[u8]) {
        self.received += 1;
        let number = |at: usize| u32::from_le_bytes(datagram[at..at + 4].try_into().unwrap());
        let (last, whole) = (model.packets() - 1, model.train_bytes());
        let is_packet = datagram.len() >= END_BYTES && {
            let word = number(datagram.len() - 4);
            let n = (word & 0x3FFF_FFFF) as usize;
            let bytes = DATA_BYTES.min(whole.saturating_sub(n * DATA_BYTES));
            let marks = u32::from(n == 0) << 31 | u32::from(n == last) << 30;
            n <= last && datagram.len() == bytes + END_BYTES && word & 0xC000_0000 == marks
        };
        if !is_packet {
            self.malformed += 1;
            return;
        }
        let train = u64::from(number(datagram.len() - 8) - model.first_frame);
        let n = (number(datagram.len() - 4) & 0x3FFF_FFFF) as usize;
        let data = datagram[..datagram.len() - END_BYTES].to_vec();
        self.trains.entry(train).or_default().entry(n).or_insert(data);
    }

    /// The words of a train, missing where no packet came.
    fn words(&self, model: &TrainModel, train: u64) -> Vec<u16> {
        let mut bytes = vec![0xFF; model.train_bytes()];
        for (n, data) in self.trains.get(&train).into_iter().flatten() {
            bytes[n * DATA_BYTES..][..data.len()].copy_from_slice(data);
        }
        bytes[HEADER_BYTES..][..model.pixel_bytes()].chunks(2).map(|w| u16::from_le_bytes([w[0], w[1]])).collect()
    }

    fn packets(&self, train: u64) -> Vec<usize> {
        self.trains.get(&train).into_iter().flat_map(|packets| packets.keys().copied()).collect()
    }
}

struct Case {
    model: TrainModel,
    trains: u64,
    faults: FaultModel,
    compression: Compression,
    workers: usize,
    missing: MissingPolicy,
}

fn plan(case: &Case) -> Plan {
    let tile = TileFormat::xfel_train(XfelDetector::Lpd, case.model.images as u32).unwrap();
    Plan {
        geometry: ImageGeometry::stacked(tile, case.model.modules as u32).unwrap(),
        recipe: Recipe::Raw,
        pixel: PixelType::Uint16,
        compression: case.compression,
        processing: Processing::default(),
        frames: Some(case.trains),
        first_frame: FirstFrame::Number(case.model.first_frame.into()),
        missing: case.missing,
        slots: 32,
        packed_slots: 32,
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

/// Sends the trains of all modules over the link.
fn send(case: &Case) -> (Vec<Vec<Vec<u8>>>, Vec<Reference>) {
    let model = &case.model;
    let mut streams = vec![Vec::new(); model.modules];
    let mut references: Vec<Reference> = (0..model.modules).map(|_| Reference::default()).collect();
    let mut link = FaultLink::new(&case.faults);
    let mut deliver = |d: Datagram<'_>| {
        references[d.stream].take(model, d.bytes);
        streams[d.stream].push(d.bytes.to_vec());
    };
    for train in 0..case.trains {
        let modules: Vec<_> = (0..model.modules).map(|module| model.datagrams(module, train)).collect();
        for packet in 0..model.packets() {
            for (stream, datagrams) in modules.iter().enumerate() {
                link.push(Datagram { stream, bytes: &datagrams[packet], is_other_sender: false }, &mut deliver);
            }
        }
    }
    link.flush(&mut deliver);
    (streams, references)
}

/// The columns of a tile, by name.
fn columns(plan: &Plan, record: &TileRecord) -> BTreeMap<String, u64> {
    let columns = PacketFormat::of(plan.geometry.format().kind).description().columns;
    columns.iter().map(|column| (column.name.to_string(), record.header.value(column.value))).collect()
}

fn run(plan: &Plan, streams: Vec<Vec<Vec<u8>>>, sink: Collector) -> RunOutcome {
    let sources = streams.into_iter().map(|datagrams| Box::new(MemorySource::new(datagrams, 50)) as Box<dyn Source>).collect();
    let parts = RunParts {
        plan: Arc::new(plan.clone()),
        sources,
        constants: PixelConstants::None,
        sinks: vec![Box::new(sink)],
        consumers: Consumers::default(),
        frame_sinks: vec![],
        isa: Isa::detect(),
        workers: WorkerKind::default(),
    };
    run::arm(parts).unwrap().run()
}

fn check(case: &Case) -> (RunOutcome, Vec<ImageStatus>) {
    let plan = plan(case);
    let (streams, references) = send(case);
    let collector = Collector::default();
    let outcome = run(&plan, streams, collector.clone());
    assert_eq!(outcome.ledger.imbalances(), []);
    for (stream, got) in outcome.ledger.streams.iter().enumerate() {
        let expected = &references[stream];
        let placed: usize = expected.trains.values().map(BTreeMap::len).sum();
        assert_eq!((got.received, got.placed), (expected.received, placed as u64), "stream {stream}");
        assert_eq!(got.malformed.iter().sum::<u64>(), expected.malformed, "stream {stream}");
        assert_eq!((got.late, got.no_slot, got.foreign), (0, 0, 0), "stream {stream}");
    }
    let seen = std::mem::take(&mut *collector.0.lock().unwrap());
    assert_eq!(seen.len() as u64, case.trains);
    let model = &case.model;
    for (number, status, records, chunk) in &seen {
        let is_complete = references.iter().all(|reference| reference.packets(*number).len() == model.packets());
        let is_lost = references.iter().all(|reference| reference.packets(*number).is_empty());
        assert_eq!((*status == ImageStatus::Complete, *status == ImageStatus::Lost), (is_complete, is_lost), "train {number}");
        for (module, (record, reference)) in records.iter().zip(&references).enumerate() {
            let came: Vec<usize> = (0..model.packets()).filter(|n| record.bitmap.has(*n as u16)).collect();
            assert_eq!(came, reference.packets(*number), "train {number}, module {module}");
            let has_header = came.first() == Some(&0);
            let said = columns(&plan, record);
            let expected = [
                ("train_id", model.train_id(*number)),
                ("data_id", model.data_id(*number)),
                ("link_id", model.link_id(module)),
                ("image_count", model.images as u64),
            ];
            for (name, value) in expected {
                assert_eq!(said[name], if has_header { value } else { 0 }, "{name} of train {number}, module {module}");
            }
            let frame = if came.is_empty() { 0 } else { u64::from(model.first_frame) + number };
            assert_eq!(record.header.frame_number, frame);
        }
        if status.has_pixels() {
            let mut pixels = vec![0u16; plan.geometry.pixels()];
            let out = bytemuck::cast_slice_mut(&mut pixels);
            codec::decompress(plan.compression, Isa::Scalar, chunk, ElementSize::Two, out).expect("every chunk decodes");
            let expected: Vec<u16> = references.iter().flat_map(|reference| reference.words(model, *number)).collect();
            assert!(pixels == expected, "pixels of train {number}");
        }
    }
    (outcome, seen.iter().map(|seen| seen.1).collect())
}

fn case(seed: u64) -> Case {
    Case {
        model: TrainModel { seed, ..TrainModel::lpd(1, 2) },
        trains: 12,
        faults: FaultModel { seed, ..FaultModel::default() },
        compression: Compression::Bslz4,
        workers: 2,
        missing: MissingPolicy::Keep,
    }
}

#[test]
fn without_faults_every_train_is_complete() {
    for (images, modules, compression) in
        [(1, 2, Compression::Bslz4), (3, 1, Compression::None), (2, 1, Compression::Zstd { level: 1 })]
    {
        let model = TrainModel::lpd(images, modules);
        let (outcome, states) = check(&Case { model, compression, ..case(1) });
        assert!(states.iter().all(|status| *status == ImageStatus::Complete), "{images} images, {modules} modules");
        assert!(outcome.is_success() && outcome.findings.is_empty(), "{:?}", outcome.findings);
    }
}

#[test]
fn lost_packets_are_written_as_missing() {
    let mut partial = 0;
    for seed in 1..=6 {
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
    assert!(partial > 20, "only {partial} trains lost packets");
}

#[test]
fn damaged_packets_are_refused_and_counted() {
    for seed in 1..=4 {
        let faults = FaultModel { seed, truncate: 0.05, loss: 0.01, ..FaultModel::default() };
        let (outcome, _) = check(&Case { faults, ..case(seed) });
        assert!(outcome.ledger.streams.iter().map(|stream| stream.malformed.iter().sum::<u64>()).sum::<u64>() > 0);
    }
}

/// The first packet of a train has its header. It may come behind the others, or not at all.
#[test]
fn the_header_is_that_of_packet_0_whenever_it_comes() {
    let faults = FaultModel { seed: 3, reorder: 0.5, reorder_packets_max: 16, loss: 0.1, ..FaultModel::default() };
    check(&Case { faults, ..case(3) });
}

/// The number of workers changes nothing.
#[test]
fn one_worker_and_three_do_the_same() {
    for workers in [1, 3] {
        check(&Case { workers, faults: FaultModel { seed: 5, loss: 0.05, ..FaultModel::default() }, ..case(5) });
    }
}

/// Trains of another length than the configured one are named, and longer ones are not placed.
#[test]
fn another_number_of_images_is_a_finding() {
    for (sends, configured) in [(1, 2), (2, 1), (1, 3)] {
        let model = TrainModel { images: sends, ..case(1).model };
        let sent = send(&Case { model, ..case(1) }).0;
        let plan = plan(&Case { model: TrainModel { images: configured, ..model }, ..case(1) });
        let expected = plan.geometry.format().packets();
        let outcome = run(&plan, sent, Collector::default());
        assert_eq!(outcome.ledger.imbalances(), []);
        let is_it = |finding: &&Finding| matches!(finding.what, What::Packets { .. });
        let found = outcome.findings.iter().find(is_it).map(|finding| (finding.what, finding.streams, finding.is_wrong));
        let what = What::Packets { seen: model.packets() as u32, expected, means: Means::Images(sends as u32) };
        assert_eq!(found, Some((what, 2, true)), "{sends} images, {configured} configured: {:?}", outcome.findings);
    }
}
