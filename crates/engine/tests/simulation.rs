//! The whole engine without sockets: simulated packets go through the fault link, every image is compared with the
//! naive reference, and every sum is checked.

#[path = "processing/planes.rs"]
mod planes;

use konkordia_core::affinity::Affinity;
use konkordia_core::array::Element;
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Orientation, Placement, Quarter};
use konkordia_core::image::{CommittedImage, TileRecord};
use konkordia_core::latency::{Stage, StageLatency};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_core::plan::{AnalysisPlan, Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::sender::{Sender, Senders};
use konkordia_core::series::Ended;
use konkordia_core::setup::{Finding, Means, Ports, SetupRules, What};
use konkordia_core::tile::TileFormat;
use konkordia_engine::output_queue::{OutputQueues, PreviewBuffer};
use konkordia_engine::run::{self, ConstantPlanes, Consumers, PixelConstants, RunFailure, RunOutcome, RunParts, WorkerKind};
use konkordia_kernels::codec;
use konkordia_kernels::{ElementSize, Isa, OutputPixel};
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};
use konkordia_sim::reference::{Conversion, JungfrauConstants, Reference, RunLayout, TilePlacement};
use konkordia_sim::rng::Rng;
use konkordia_sources::memory::MemorySource;
use planes::Planes;
use std::sync::{Arc, Mutex};

/// One image as a sink saw it: its state, records and chunk.
type Seen = (u64, ImageStatus, Vec<TileRecord>, Vec<u8>);

/// Keeps every image; can fail at one, or be slow.
#[derive(Clone, Default)]
struct Collector {
    seen: Arc<Mutex<Vec<Seen>>>,
    fails_at: Option<u64>,
    pause_us: u64,
}

impl Sink for Collector {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        if self.fails_at.is_some_and(|at| image.number >= at) {
            let text = |s: &str| s.to_string();
            return Err(SinkError { what: text("cannot write"), why: text("the test says so"), fix: text("nothing") });
        }
        std::thread::sleep(std::time::Duration::from_micros(self.pause_us));
        let packets = image.packets.as_ref().expect("a run has packets");
        self.seen.lock().unwrap().push((
            image.number,
            image.status,
            // The time of arrival differs in each run.
            packets.tiles.iter().map(|tile| TileRecord { received_ns: 0, ..*tile }).collect(),
            image.chunk().to_vec(),
        ));
        Ok(())
    }
}

/// One simulated run.
struct Case {
    kind: DetectorKind,
    modules: usize,
    images: u64,
    pixel: PixelType,
    recipe: Recipe,
    compression: Compression,
    missing: MissingPolicy,
    workers: usize,
    slots: u64,
    spread: bool,
    faults: FaultModel,
    /// Images of which no packet comes.
    gap: Option<std::ops::Range<u64>>,
    /// Three packets of the last image, made in addition, come in the middle of each stream. They are not placed.
    strays_at: Option<u64>,
    /// Packets that contradict the configuration are not placed. False where faults damage ports, of which the
    /// reference knows nothing.
    is_strict: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            kind: DetectorKind::Jungfrau { interfaces: 1 },
            modules: 1,
            images: 12,
            pixel: PixelType::Int16,
            recipe: Recipe::JungfrauPhotons,
            compression: Compression::BSLZ4,
            missing: MissingPolicy::Keep,
            workers: 2,
            slots: 32,
            spread: false,
            faults: FaultModel::default(),
            gap: None,
            strays_at: None,
            is_strict: true,
        }
    }
}

/// Faults that a window of 8 images tolerates without a late packet; headers are damaged only outside of the frame
/// number.
fn faults(seed: u64) -> FaultModel {
    FaultModel {
        seed,
        loss: 0.01,
        burst: 0.0005,
        burst_packets_mean: 60.0,
        duplicate: 0.01,
        reorder: 0.02,
        reorder_packets_max: 60,
        corrupt_header: 0.005,
        header_bytes: 8..48,
        corrupt_payload: 0.005,
        truncate: 0.005,
        foreign: 0.01,
        ..FaultModel::default()
    }
}

struct Prepared {
    plan: Plan,
    constants: PixelConstants,
    naive: JungfrauConstants,
    reference: Reference,
    streams: Vec<Vec<(Vec<u8>, Sender)>>,
    /// Packets of the second detector, by stream.
    other_senders: Vec<u64>,
    /// Packets of the first detector that are not of the run, by stream.
    foreign: Vec<u64>,
    /// Output queues of consumers beside the sinks.
    queues: Arc<OutputQueues>,
}

/// A detector has an address, and each of its streams a port.
fn sender(address: u8, stream: usize) -> Sender {
    Sender::from(std::net::SocketAddr::from(([10, 0, 0, address], 32410 + stream as u16)))
}

fn format(kind: DetectorKind) -> TileFormat {
    match kind {
        DetectorKind::Jungfrau { interfaces } => TileFormat::jungfrau(u32::from(interfaces)).unwrap(),
        DetectorKind::Eiger { bits } => TileFormat::eiger(u32::from(bits)).unwrap(),
    }
}

/// CellConstants with every plane different, some pixels masked in all stages and some in one.
fn random_constants(rng: &mut Rng, pixels: usize) -> JungfrauConstants {
    let mut plane = |mean: f32, spread: f32| (0..pixels).map(|_| mean + spread * rng.uniform() as f32).collect::<Vec<_>>();
    let pedestals = [plane(2900.0, 300.0), plane(14800.0, 300.0), plane(15100.0, 300.0)];
    let mut factors = [plane(0.0019, 0.0002), plane(-0.056, 0.005), plane(-0.7, 0.05)];
    for pixel in (0..pixels).step_by(101) {
        factors.iter_mut().for_each(|f| f[pixel] = f32::NAN);
    }
    for pixel in (50..pixels).step_by(97) {
        factors[1 + pixel % 2][pixel] = f32::NAN;
    }
    JungfrauConstants { pedestals, factors, high_gain: false }
}

fn prepare(case: &Case) -> Prepared {
    let packetiser = Packetiser::new(&PacketModel::new(case.kind, case.modules)).unwrap();
    let (layout, tile) = (packetiser.layout(), format(case.kind));
    let mut rng = Rng::new(case.faults.seed ^ 0x5EED);
    let mut run_layout = RunLayout::stacked(&packetiser, case.images);
    let mut geometry = ImageGeometry::stacked(tile, layout.streams as u32).unwrap();
    if case.spread {
        // Tiles two abreast with gaps of odd size, every third one upside down.
        let at = |t: usize| (3 + t / 2 * (layout.rows + 5), 1 + t % 2 * (layout.columns + 7), t % 3 == 1);
        let size = (6 + layout.streams.div_ceil(2) * (layout.rows + 5), 2 * layout.columns + 10);
        let place = |t| TilePlacement { row: at(t).0, column: at(t).1, flip_rows: at(t).2 };
        run_layout = run_layout.placed((0..layout.streams).map(place).collect(), size.0, size.1);
        let place = |t| Placement {
            row: at(t).0 as u32,
            column: at(t).1 as u32,
            orientation: Orientation::new(at(t).2, false, Quarter::Deg0),
        };
        let size = Some((size.0 as u32, size.1 as u32));
        geometry = ImageGeometry::new(tile, (0..layout.streams).map(place).collect(), size, DoublePixels::Keep).unwrap();
    }
    let naive = random_constants(&mut rng, layout.streams * layout.rows * layout.columns);
    let arrange = |plane: &Vec<f32>| geometry.arrange(&plane.chunks(tile.pixels() as usize).collect::<Vec<_>>(), f32::NAN);
    let constants = match case.recipe {
        Recipe::JungfrauPhotons => PixelConstants::Jungfrau(run::CellConstants::from(ConstantPlanes {
            pedestal: [0, 1, 2].map(|g| arrange(&naive.pedestals[g])),
            factor: [0, 1, 2].map(|g| arrange(&naive.factors[g])),
        })),
        Recipe::Counts => PixelConstants::Mask(vec![0; geometry.pixels()]),
        Recipe::Raw => PixelConstants::None,
    };
    let sent = send(case, &packetiser, &mut rng, Reference::new(run_layout));
    let plan = Plan {
        geometry,
        recipe: case.recipe,
        pixel: case.pixel,
        compression: case.compression,
        processing: Processing::default(),
        frames: Some(case.images),
        first_frame: FirstFrame::Number(1),
        missing: case.missing,
        slots: case.slots,
        packed_slots: case.slots,
        lossless_source: false,
        analysis: AnalysisPlan::default(),
        fills_slots: false,
        window_images: 8.min(case.slots / 2),
        deadline_ns: 300_000_000,
        stall_timeout_ns: 1_500_000_000,
        start_timeout_ns: 5_000_000_000,
        workers: case.workers,
        gpu: None,
        affinity: Affinity::default(),
        setup: SetupRules {
            is_strict: case.is_strict,
            ports_per_module: tile.tiles_per_module,
            ports: Ports::Ordered,
            senders: Senders::Learned,
        },
    };
    let Sent { reference, streams, other_senders, foreign } = sent;
    Prepared { plan, constants, naive, reference, streams, other_senders, foreign, queues: Arc::default() }
}

/// What came out of the link, and which part of it belongs to the run.
struct Sent {
    reference: Reference,
    streams: Vec<Vec<(Vec<u8>, Sender)>>,
    other_senders: Vec<u64>,
    foreign: Vec<u64>,
}

/// Sends the images of a case over its link.
fn send(case: &Case, packetiser: &Packetiser, rng: &mut Rng, mut reference: Reference) -> Sent {
    let layout = packetiser.layout();
    let mut streams = vec![Vec::new(); layout.streams];
    let mut other_senders = vec![0; layout.streams];
    let mut link = FaultLink::new(&case.faults);
    let mut deliver = |d: Datagram<'_>| {
        if d.is_other_sender {
            other_senders[d.stream] += 1;
        } else {
            reference.receive(d.stream, d.bytes);
        }
        streams[d.stream].push((d.bytes.to_vec(), sender(1 + u8::from(d.is_other_sender), d.stream)));
    };
    let mut out = vec![0; layout.datagram_bytes()];
    let mut strays = vec![Vec::new(); layout.streams];
    for image in 0..case.images {
        let tiles: Vec<Vec<u8>> = (0..layout.streams).map(|_| random_tile(rng, case.kind, layout.tile_bytes)).collect();
        if case.gap.as_ref().is_some_and(|gap| gap.contains(&image)) {
            continue;
        }
        for packet in 0..layout.packets_per_tile {
            for (stream, tile) in tiles.iter().enumerate() {
                let is_stray = case.strays_at == Some(image) && packet < 3;
                let frame = packetiser.frame_number(if is_stray { case.images - 1 } else { image });
                let length = packetiser.write_packet(stream, frame, packet, tile, &mut out);
                if is_stray {
                    strays[stream].push(out[..length].to_vec());
                }
                let frame = packetiser.frame_number(image);
                let length = packetiser.write_packet(stream, frame, packet, tile, &mut out);
                link.push(Datagram { stream, bytes: &out[..length], is_other_sender: false }, &mut deliver);
            }
        }
    }
    link.flush(&mut deliver);
    let foreign: Vec<u64> = strays.iter().map(|strays| strays.len() as u64).collect();
    for (stream, strays) in strays.into_iter().enumerate() {
        let at = streams[stream].len() / 4;
        streams[stream].splice(at..at, strays.into_iter().map(|bytes| (bytes, sender(1, stream))));
    }
    Sent { reference, streams, other_senders, foreign }
}

/// JUNGFRAU words near the G0 pedestal with all other words mixed in; EIGER bytes of any value, mostly small.
fn random_tile(rng: &mut Rng, kind: DetectorKind, bytes: usize) -> Vec<u8> {
    match kind {
        DetectorKind::Jungfrau { .. } => (0..bytes / 2)
            .flat_map(|_| {
                let r = rng.next_u64();
                let word = if r & 63 == 0 { (r >> 16) as u16 } else { 2900 + (r >> 16 & 1023) as u16 };
                word.to_le_bytes()
            })
            .collect(),
        DetectorKind::Eiger { .. } => (0..bytes)
            .map(|_| {
                let r = rng.next_u64();
                if r & 15 == 0 { (r >> 8) as u8 } else { (r >> 8 & 1) as u8 }
            })
            .collect(),
    }
}

fn execute(prepared: &mut Prepared, sinks: Vec<Box<dyn Sink>>, isa: Isa) -> RunOutcome {
    execute_with(prepared, sinks, isa, WorkerKind::default())
}

fn execute_with(prepared: &mut Prepared, sinks: Vec<Box<dyn Sink>>, isa: Isa, workers: WorkerKind) -> RunOutcome {
    let sources = std::mem::take(&mut prepared.streams)
        .into_iter()
        .map(|datagrams| Box::new(MemorySource::from_senders(datagrams, 50)) as Box<dyn Source>)
        .collect();
    let parts = RunParts {
        plan: Arc::new(prepared.plan.clone()),
        sources,
        constants: prepared.constants.clone(),
        sinks,
        consumers: Consumers { output_queues: Arc::clone(&prepared.queues), ..Consumers::default() },
        frame_sinks: vec![],
        isa,
        workers,
    };
    run::arm(parts).unwrap().run()
}

fn decode<P: OutputPixel>(plan: &Plan, chunk: &[u8]) -> Vec<P> {
    let mut out = vec![P::default(); plan.geometry.pixels()];
    let codec = plan.compression;
    let element = if size_of::<P>() == 2 { ElementSize::Two } else { ElementSize::Four };
    codec::decompress(codec, Isa::Scalar, chunk, element, bytemuck::cast_slice_mut(&mut out)).expect("every chunk decodes");
    out
}

/// Bit equality, so that NaN equals NaN.
fn same<P: Pixel>(a: P, b: P) -> bool {
    a == b || (a.to_f64().is_nan() && b.to_f64().is_nan())
}

/// Runs a case and compares everything: verdicts, states, bitmaps, pixels, and those that are lent to consumers.
fn check<P: OutputPixel>(case: &Case) -> Vec<Seen> {
    assert_eq!(P::TYPE, case.pixel);
    let mut prepared = prepare(case);
    let (collector, planes) = (Collector::default(), Planes::default());
    let mut consumer = planes.spawn("planes", &prepared.queues, 1, case.images as usize + 1);
    let outcome = execute(&mut prepared, vec![Box::new(collector.clone())], Isa::detect());
    let (plan, reference) = (&prepared.plan, &prepared.reference);
    assert_eq!(outcome.ledger.imbalances(), []);
    for (stream, got) in outcome.ledger.streams.iter().enumerate() {
        let expected = reference.stream_ledger(stream);
        let (other_senders, foreign) = (prepared.other_senders[stream], prepared.foreign[stream]);
        let received = expected.received + other_senders + foreign;
        // Nothing writes by RDMA.
        let [length, version, detector_type, number] = expected.malformed;
        let malformed = [length, version, detector_type, number, 0, 0];
        assert_eq!((got.received, got.placed, got.malformed), (received, expected.placed, malformed));
        // A duplicate of a packet whose tile has left the history is late in one ledger and a duplicate in the other.
        assert_eq!(got.duplicate + got.late + got.no_slot, expected.duplicate);
        assert_eq!(got.foreign, expected.foreign + other_senders + foreign);
        let named = outcome.seen[stream].other_senders;
        assert_eq!((named.packets(), named.first()), (other_senders, (other_senders > 0).then(|| sender(2, stream))));
    }
    let images = reference.image_ledger();
    let got = outcome.ledger.images;
    assert_eq!((got.complete, got.partial + got.discarded, got.lost), (images.complete, images.partial, images.lost));
    assert_eq!(outcome.ledger.frames.packets_missing, images.packets_missing);
    let seen = std::mem::take(&mut *collector.seen.lock().unwrap());
    assert_eq!(seen.len() as u64, outcome.images);
    let mut lent = planes.end("planes", &prepared.queues, &mut consumer).into_iter();
    for (position, (image, status, tiles, body)) in seen.iter().enumerate() {
        assert_eq!(*image, position as u64, "images come in order, each once");
        for (t, tile) in tiles.iter().enumerate().filter(|_| case.missing != MissingPolicy::CompleteOnly) {
            let arrived = reference.arrived(*image, t);
            let bits: Vec<bool> = (0..arrived.len()).map(|p| tile.bitmap.has(p as u16)).collect();
            assert_eq!(bits, arrived, "bitmap of image {image}, tile {t}");
        }
        if matches!(status, ImageStatus::Lost | ImageStatus::Discarded) {
            assert!(body.is_empty());
            continue;
        }
        let pixels = decode::<P>(plan, body);
        let expected: Vec<P> = match case.recipe {
            Recipe::JungfrauPhotons => reference.image(*image, Conversion::Photons(&prepared.naive)),
            Recipe::Counts => reference.image(*image, Conversion::Counts),
            Recipe::Raw => raw_expected(reference, *image),
        };
        let differing = pixels.iter().zip(&expected).filter(|(a, b)| !same(**a, **b)).count();
        assert_eq!(differing, 0, "pixels of image {image} that differ");
        let plane = lent.next().expect("each image with pixels is lent");
        let size = (plan.geometry.rows() as usize, plan.geometry.columns() as usize);
        assert_eq!((plane.series, plane.image, plane.size, plane.element), (0, *image, size, Element::from(P::TYPE)));
        assert!(plane.bytes == bytemuck::cast_slice::<P, u8>(&pixels), "plane of image {image}");
    }
    assert!(lent.next().is_none() && consumer.skipped() == 0);
    seen
}

fn raw_expected<P: OutputPixel>(reference: &Reference, image: u64) -> Vec<P> {
    let missing = P::MISSING.to_f64() as u32;
    reference
        .raw_image(image, missing, missing)
        .iter()
        .map(|w| if size_of::<P>() == 2 { bytemuck::cast(*w as u16) } else { cast_wide(*w) })
        .collect()
}

fn cast_wide<P: OutputPixel>(word: u32) -> P {
    bytemuck::cast_slice::<u32, P>(&[word])[0]
}

#[test]
fn a_perfect_link_loses_nothing_whatever_the_detector_and_type() {
    check::<i16>(&Case::default());
    check::<i32>(&Case {
        pixel: PixelType::Int32,
        kind: DetectorKind::Jungfrau { interfaces: 2 },
        modules: 2,
        images: 5,
        ..Case::default()
    });
    check::<u16>(&Case { pixel: PixelType::Uint16, spread: true, modules: 3, images: 5, workers: 3, ..Case::default() });
    check::<f32>(&Case { pixel: PixelType::Float32, compression: Compression::None, images: 4, ..Case::default() });
    check::<u16>(&Case { pixel: PixelType::Uint16, recipe: Recipe::Raw, spread: true, modules: 2, images: 4, ..Case::default() });
}

#[test]
fn every_codec_gives_every_pixel_type_whatever_the_number_of_workers() {
    for compression in Compression::ALL {
        let case = |workers, pixel| Case { workers, pixel, compression, images: 3, modules: 2, spread: true, ..Case::default() };
        let one = check::<i16>(&case(1, PixelType::Int16));
        assert!(check::<i16>(&case(3, PixelType::Int16)) == one, "{compression:?}");
        check::<i32>(&case(1, PixelType::Int32));
        check::<u16>(&case(2, PixelType::Uint16));
        check::<u32>(&case(1, PixelType::Uint32));
        check::<f32>(&case(2, PixelType::Float32));
    }
    let high = Compression::BSZSTD.with_level(7).unwrap();
    check::<i16>(&Case { compression: high, images: 3, ..Case::default() });
}

#[test]
fn eiger_of_every_depth_is_placed_and_unpacked() {
    for bits in [4, 8, 12, 16, 32] {
        let case = Case {
            kind: DetectorKind::Eiger { bits },
            images: 6,
            recipe: Recipe::Counts,
            spread: bits != 16,
            faults: faults(u64::from(bits)),
            is_strict: false,
            ..Case::default()
        };
        if bits == 32 {
            check::<u32>(&Case { pixel: PixelType::Uint32, ..case });
        } else {
            check::<u16>(&Case { pixel: PixelType::Uint16, ..case });
        }
    }
    check::<u16>(&Case {
        kind: DetectorKind::Eiger { bits: 12 },
        pixel: PixelType::Uint16,
        recipe: Recipe::Raw,
        images: 3,
        ..Case::default()
    });
}

/// Another detector with each number: an EIGER, a JUNGFRAU with one interface, with two.
fn one_of_three(number: u64) -> DetectorKind {
    match number % 3 {
        0 => DetectorKind::Eiger { bits: 16 },
        interfaces => DetectorKind::Jungfrau { interfaces: interfaces as u8 },
    }
}

/// Counts of an EIGER, photons of a JUNGFRAU.
fn check_counts_or_photons(case: Case) {
    match case.kind {
        DetectorKind::Eiger { .. } => drop(check::<u16>(&Case { pixel: PixelType::Uint16, recipe: Recipe::Counts, ..case })),
        DetectorKind::Jungfrau { .. } => drop(check::<i16>(&case)),
    }
}

#[test]
fn under_faults_every_image_equals_the_reference_where_its_packets_arrived() {
    for seed in 1..=6 {
        let kind = DetectorKind::Jungfrau { interfaces: 1 + (seed % 2) as u8 };
        check::<i16>(&Case {
            kind,
            modules: 1 + (seed % 3) as usize,
            images: 20,
            workers: 1 + (seed % 4) as usize,
            spread: seed % 2 == 0,
            faults: faults(seed),
            is_strict: false,
            ..Case::default()
        });
    }
}

/// As before, with packets that contradict the configuration not placed: damaged packet numbers contradict nothing, and
/// the ledger is the same to the packet.
#[test]
fn under_faults_a_right_setup_is_never_refused() {
    for seed in 1..=12 {
        let kind = one_of_three(seed);
        let model = FaultModel { corrupt_header: 0.02, header_bytes: 12..16, loss: 0.05, ..faults(seed) };
        let case = Case { kind, modules: 1 + (seed % 2) as usize, images: 8, faults: model, ..Case::default() };
        check_counts_or_photons(case);
    }
}

/// A second detector on the same ports sends the same frames at the same time: none of its pixels is in an image, each
/// of its packets is counted, and nothing of the first detector is lost, whatever else the link does.
#[test]
fn under_faults_a_second_detector_on_the_same_ports_is_left_out() {
    for seed in 1..=8 {
        let kind = one_of_three(seed);
        let model = FaultModel { other_sender: 0.1 * seed as f64, ..faults(seed) };
        let model = if seed % 2 == 0 { FaultModel { seed, other_sender: 0.8, ..FaultModel::default() } } else { model };
        let case =
            Case { kind, modules: 1 + (seed % 2) as usize, images: 12, faults: model, is_strict: false, ..Case::default() };
        check_counts_or_photons(case);
    }
}

/// A long gap on all streams, lost on the wire: nothing that came is lost, neither before the gap nor behind it. With
/// one stream, a few packets of a frame far ahead come in the middle, and packets are reordered: nothing moves.
/// (Streams from memory share no clock: one may be finished before the other has begun.)
#[test]
fn under_faults_a_gap_loses_nothing_and_strays_far_ahead_move_nothing() {
    for seed in 1..=5u64 {
        let interfaces = 1 + (seed % 2) as u8;
        let (strays_at, reorder) = if interfaces == 1 { (Some(10), 0.02) } else { (None, 0.0) };
        let kind = DetectorKind::Jungfrau { interfaces };
        let model = FaultModel { seed, duplicate: 0.01, reorder, reorder_packets_max: 60, ..FaultModel::default() };
        let images = 60;
        // Sources in memory run ahead of each other, at most by half of the slots.
        let slots = 2 * images + 2;
        let case = Case { kind, images, slots, gap: Some(20..20 + 7 * seed), strays_at, faults: model, ..Case::default() };
        let seen = check::<i16>(&case);
        let lost = seen.iter().filter(|s| s.1 == ImageStatus::Lost).count() as u64;
        assert_eq!((lost, seen.len() as u64), (7 * seed, images), "seed {seed}");
    }
}

#[test]
fn any_number_of_workers_and_any_instruction_set_give_the_same_bytes() {
    let case =
        |workers| Case { modules: 2, images: 8, spread: true, faults: faults(77), is_strict: false, workers, ..Case::default() };
    let one = check::<i16>(&case(1));
    for workers in [2, 5] {
        assert!(check::<i16>(&case(workers)) == one);
    }
    for isa in Isa::available() {
        let mut prepared = prepare(&case(2));
        let collector = Collector::default();
        execute(&mut prepared, vec![Box::new(collector.clone())], *isa);
        assert!(*collector.seen.lock().unwrap() == one, "{isa}");
    }
}

/// Every codec, pixel type and readout through every kind of worker. (What depends on the order of frames is in
/// `processing`.)
#[test]
fn any_kind_of_worker_gives_the_same_bytes() {
    let jungfrau = |compression| Case { modules: 2, images: 3, spread: true, faults: faults(5), compression, ..Case::default() };
    let mut cases: Vec<Case> = Compression::ALL.into_iter().map(jungfrau).collect();
    let raw = Case { pixel: PixelType::Uint16, recipe: Recipe::Raw, spread: true, images: 3, ..Case::default() };
    cases.extend([raw, Case { pixel: PixelType::Float32, images: 3, ..Case::default() }]);
    let eiger = |bits| Case { kind: DetectorKind::Eiger { bits }, recipe: Recipe::Counts, images: 3, ..Case::default() };
    cases.extend([4, 12, 16].map(|bits| Case { pixel: PixelType::Uint16, ..eiger(bits) }));
    cases.push(Case { pixel: PixelType::Uint32, ..eiger(32) });
    for case in cases {
        let [first, others @ ..] = [WorkerKind::Strips, WorkerKind::Scalar].map(|kind| {
            let (mut prepared, collector) = (prepare(&case), Collector::default());
            let outcome = execute_with(&mut prepared, vec![Box::new(collector.clone())], Isa::detect(), kind);
            assert_eq!(outcome.ledger.imbalances(), []);
            std::mem::take(&mut *collector.seen.lock().unwrap())
        });
        assert!(first.len() == 3 && first.iter().all(|(.., chunk)| !chunk.is_empty()));
        assert!(others.iter().all(|other| *other == first), "{:?} {:?} {:?}", case.kind, case.pixel, case.compression);
    }
}

#[test]
fn policies_for_missing_packets_hold_images_back() {
    for missing in [MissingPolicy::Discard, MissingPolicy::CompleteOnly] {
        let seen = check::<i16>(&Case {
            missing,
            images: 20,
            faults: FaultModel { seed: 3, loss: 0.004, ..FaultModel::default() },
            ..Case::default()
        });
        let discarded: Vec<&Seen> = seen.iter().filter(|s| s.1 == ImageStatus::Discarded).collect();
        assert!(!discarded.is_empty() && discarded.len() < 20);
        assert!(discarded.iter().all(|s| (s.2[0].packets == 0) == (missing == MissingPolicy::CompleteOnly)));
    }
}

/// Chaos: damaged frame numbers, a counter that restarts, few slots and slow sinks. Only two things must hold: the
/// ledger balances, and no image shows what did not arrive for it.
#[test]
fn the_ledger_balances_whatever_happens() {
    for seed in 1..=8 {
        let model = FaultModel {
            corrupt_header: 0.02,
            header_bytes: 0..48,
            restart_at_image: (seed % 2 == 0).then_some(15),
            ..faults(seed)
        };
        let case = Case { images: 25, modules: 2, slots: 4, faults: model, is_strict: seed % 4 < 2, ..Case::default() };
        let mut prepared = prepare(&case);
        if seed > 4 {
            prepared.plan.first_frame = FirstFrame::Auto;
        }
        let collector = Collector { pause_us: 3000, ..Collector::default() };
        let outcome = execute(&mut prepared, vec![Box::new(collector.clone()), Box::new(Collector::default())], Isa::detect());
        assert_eq!(outcome.ledger.imbalances(), [], "seed {seed}");
        assert!(outcome.ledger.total().no_slot > 0, "four slots and a slow sink must refuse packets");
        for (image, _, tiles, body) in collector.seen.lock().unwrap().iter().filter(|s| !s.3.is_empty()) {
            let pixels = decode::<i16>(&prepared.plan, body);
            for (t, tile) in tiles.iter().enumerate() {
                for packet in (0..128).filter(|p| !tile.bitmap.has(*p)) {
                    let first = t * 524_288 + usize::from(packet) * 4096;
                    assert!(
                        pixels[first..first + 4096].iter().all(|p| *p == i16::MISSING),
                        "image {image} shows a packet that did not arrive"
                    );
                }
            }
        }
    }
}

#[test]
fn a_run_that_is_too_fast_loses_whole_images_and_no_parts() {
    let mut prepared = prepare(&Case { images: 100, slots: 4, ..Case::default() });
    let outcome = execute(&mut prepared, vec![Box::new(Collector { pause_us: 2_000, ..Collector::default() })], Isa::detect());
    let images = outcome.ledger.images;
    assert_eq!(outcome.ledger.imbalances(), []);
    assert!(images.lost > 0 && images.complete >= 4 && images.partial == 0, "{images:?}");
    assert_eq!(outcome.ledger.frames.packets_missing % 128, 0, "no tile is torn");
    assert_eq!(outcome.ledger.total().no_slot, outcome.ledger.frames.packets_missing);
}

#[test]
fn a_silent_stream_and_a_stop_end_the_run_with_the_reason() {
    let mut prepared = prepare(&Case { modules: 2, images: 6, ..Case::default() });
    prepared.streams[1].clear();
    let outcome = execute(&mut prepared, vec![Box::new(Collector::default())], Isa::detect());
    assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
    assert_eq!((outcome.ledger.images.partial, outcome.ledger.frames.packets_missing), (6, 6 * 128));
    assert_eq!(outcome.ledger.imbalances(), []);

    let mut prepared = prepare(&Case { images: 6, ..Case::default() });
    prepared.streams[0].truncate(3 * 128 + 5);
    let outcome = execute(&mut prepared, vec![Box::new(Collector::default())], Isa::detect());
    assert!(outcome.ended == Ended::Stalled);
    let images = outcome.ledger.images;
    assert_eq!((images.expected, images.complete, images.partial, images.lost, outcome.images), (4, 3, 1, 0, 4));
    assert_eq!((images.not_taken, images.not_received), (0, 2));
    assert_eq!(outcome.ledger.imbalances(), []);

    let mut prepared = prepare(&Case { images: 6, ..Case::default() });
    prepared.streams[0].clear();
    prepared.plan.start_timeout_ns = 50_000_000;
    let outcome = execute(&mut prepared, vec![Box::new(Collector::default())], Isa::detect());
    assert!(outcome.ended == Ended::NoData);
    assert_eq!((outcome.ledger.images.lost, outcome.ledger.images.not_received, outcome.images), (0, 6, 0));
}

#[test]
fn a_sink_that_fails_ends_the_run_and_keeps_what_it_had() {
    let mut prepared = prepare(&Case { images: 12, slots: 8, ..Case::default() });
    let collector = Collector { fails_at: Some(5), ..Collector::default() };
    let outcome = execute(&mut prepared, vec![Box::new(collector.clone())], Isa::detect());
    assert!(matches!(outcome.failure, Some(RunFailure::Sink(_))));
    assert_eq!((collector.seen.lock().unwrap().len(), outcome.ledger.written), (5, 5));
    assert!(outcome.ledger.unwritten > 0);
    assert_eq!(outcome.ledger.imbalances(), []);
}

#[test]
fn each_stage_counts_every_image_with_pixels_and_none_is_reached_before_the_one_before() {
    for sum_frames in [1, 3] {
        let mut prepared = prepare(&Case { modules: 2, images: 30, faults: faults(11), ..Case::default() });
        prepared.plan.processing.selection.sum_frames = sum_frames;
        prepared.queues = Arc::new(OutputQueues::new(Some(Arc::new(PreviewBuffer::new(2, 1 << 24)))));
        let outcome = execute(&mut prepared, vec![Box::new(Collector::default())], Isa::detect());
        let images = outcome.ledger.images.complete + outcome.ledger.images.partial;
        assert_eq!((images, outcome.ledger.imbalances()), (30 / u64::from(sum_frames), vec![]));
        let latencies = outcome.meter.read();
        let counted: Vec<_> = latencies.iter().map(|latency| (latency.stage, latency.images)).collect();
        let stages = [Stage::Assembled, Stage::Converted, Stage::Committed, Stage::Seen];
        assert_eq!(counted, stages.map(|stage| (stage, images)), "{sum_frames}");
        let quantiles: Vec<_> = latencies.iter().map(StageLatency::quantiles_us).collect();
        assert!(quantiles.iter().all(|of_stage| of_stage[0] > 0.0 && of_stage.is_sorted()), "{quantiles:?}");
        let is_later = |pair: &[[f64; 4]]| pair[0].iter().zip(&pair[1]).all(|(before, after)| before <= after);
        assert!(quantiles.windows(2).all(is_later), "{quantiles:?}");
    }
}

#[test]
fn a_run_may_start_with_any_frame() {
    let mut prepared = prepare(&Case { images: 4, ..Case::default() });
    prepared.streams[0].drain(..2 * 128);
    prepared.plan.first_frame = FirstFrame::Auto;
    prepared.plan.frames = Some(2);
    let outcome = execute(&mut prepared, vec![Box::new(Collector::default())], Isa::detect());
    assert!(outcome.ended == Ended::Finished);
    assert_eq!((outcome.first_frame, outcome.ledger.images.complete), (Some(3), 2));
}

#[test]
fn parts_that_do_not_fit_are_refused_at_arm() {
    let refused = |change: fn(&mut Prepared)| {
        let mut prepared = prepare(&Case { images: 1, ..Case::default() });
        change(&mut prepared);
        let parts = RunParts {
            plan: Arc::new(prepared.plan.clone()),
            sources: prepared
                .streams
                .into_iter()
                .map(|d| Box::new(MemorySource::from_senders(d, 9)) as Box<dyn Source>)
                .collect(),
            constants: prepared.constants,
            sinks: vec![Box::new(Collector::default())],
            consumers: Consumers::default(),
            frame_sinks: vec![],
            isa: Isa::Scalar,
            workers: WorkerKind::default(),
        };
        run::arm(parts).is_err()
    };
    assert!(!refused(|_| {}));
    assert!(refused(|p| p.streams.clear()));
    assert!(refused(|p| p.constants = PixelConstants::None));
    assert!(refused(|p| p.plan.window_images = p.plan.slots));
    assert!(refused(|p| p.plan.workers = 0));
    assert!(refused(|p| p.plan.recipe = Recipe::Raw));
}

/// A detector that sends another readout, under faults: nothing is placed, the ledger balances, and the finding names
/// it.
#[test]
fn under_faults_another_readout_is_refused_whole() {
    let eiger = |bits| (DetectorKind::Eiger { bits }, Means::Bits(u32::from(bits)));
    let jungfrau = |interfaces| (DetectorKind::Jungfrau { interfaces }, Means::Interfaces(u32::from(interfaces)));
    let pairs = [
        (eiger(16), eiger(32)),
        (eiger(32), eiger(12)),
        (eiger(16), eiger(8)),
        (jungfrau(2), jungfrau(1)),
        (jungfrau(1), jungfrau(2)),
    ];
    for (seed, (configured, (sent, means))) in (1..).zip(pairs) {
        for first_frame in [FirstFrame::Auto, FirstFrame::Number(1)] {
            // Bytes 46 and 47 say type and version.
            let faults = FaultModel { corrupt_header: 0.02, header_bytes: 46..48, ..faults(seed) };
            let recipe = Recipe::Raw;
            let pixel = if configured.0 == (DetectorKind::Eiger { bits: 32 }) { PixelType::Uint32 } else { PixelType::Uint16 };
            let case = |kind, faults| Case { kind, images: 15, recipe, pixel, faults, ..Case::default() };
            let mut prepared = prepare(&case(configured.0, FaultModel::default()));
            let streams = prepared.plan.streams();
            prepared.streams = prepare(&Case { modules: 2, ..case(sent, faults) }).streams;
            prepared.streams.truncate(streams);
            prepared.streams.iter_mut().for_each(|stream| drop(stream.drain(..stream.len().min(70))));
            (prepared.plan.first_frame, prepared.plan.start_timeout_ns) = (first_frame, 800_000_000);
            let outcome = execute(&mut prepared, vec![Box::new(Collector::default())], Isa::detect());
            assert_eq!((outcome.ledger.imbalances(), outcome.ledger.total().placed), (vec![], 0), "{configured:?} {sent:?}");
            assert!(outcome.ended == Ended::NoData);
            let is_it = |finding: &Finding| match finding.what {
                What::Packets { means: Means::BitsOrRows { bits, .. }, .. } => Means::Bits(bits) == means,
                What::Packets { means: named, .. } => named == means,
                _ => false,
            };
            assert!(outcome.findings.iter().any(is_it), "{configured:?} {sent:?}: {:?}", outcome.findings);
        }
    }
}
