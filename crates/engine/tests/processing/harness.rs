//! Records simulated frames once, runs them under any plan, and compares what the sinks saw with the naive run.

use crate::gpu::EmulatedGpu;
use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Placement};
use konkordia_core::image::{CommittedImage, ImageHead, Packets, TileRecord};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{AnalysisPlan, Compression, FirstFrame, GpuPlan, Plan, Processing, Recipe};
use konkordia_core::ports::{FrameSink, Sink, SinkError, Source};
use konkordia_core::sender::Sender;
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{
    self, Armed, CellConstants, ConstantPlanes, Consumers, PixelConstants, RunOutcome, RunParts, WorkerKind,
};
use konkordia_gpu::device::emulated::Nature;
use konkordia_kernels::codec;
use konkordia_kernels::{ElementSize, Isa};
use konkordia_sim::fault::{Datagram, FaultLink, FaultModel};
use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser, field};
use konkordia_sim::processing::{NaiveRun, Outline, Use};
use konkordia_sim::reference::{JungfrauConstants, Reference, RunLayout};
use konkordia_sim::rng::Rng;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// What the detector does.
pub struct Scene {
    pub interfaces: u8,
    pub modules: usize,
    pub frames: u64,
    pub faults: FaultModel,
    /// Packets (of each tile) that are sent at all; few make a long run cheap.
    pub sends: fn(frame: u64, stream: usize, packet: u32) -> bool,
    /// DAQ info of a frame.
    pub daq_info: fn(frame: u64) -> u32,
}

impl Default for Scene {
    fn default() -> Self {
        Self { interfaces: 1, modules: 1, frames: 12, faults: FaultModel::default(), sends: |_, _, _| true, daq_info: |_| 3 << 8 }
    }
}

/// Losses and duplicates, but nothing out of order, so that sources that wait may be used.
pub fn losses(seed: u64) -> FaultModel {
    FaultModel {
        seed,
        loss: 0.004,
        burst: 0.0005,
        burst_packets_mean: 30.0,
        duplicate: 0.01,
        truncate: 0.003,
        foreign: 0.003,
        ..FaultModel::default()
    }
}

/// Frames for the engine, and what the reference makes of them.
pub struct Recording {
    pub streams: Vec<Arc<Vec<Vec<u8>>>>,
    pub reference: Reference,
    pub format: TileFormat,
}

impl Scene {
    /// Records the frames; `word` gives the word of each pixel (tile by tile, row by row).
    pub fn record(&self, mut word: impl FnMut(u64, usize) -> u16) -> Recording {
        let model = PacketModel::new(DetectorKind::Jungfrau { interfaces: self.interfaces }, self.modules);
        let packetiser = Packetiser::new(&model).unwrap();
        let layout = packetiser.layout();
        let mut reference = Reference::new(RunLayout::stacked(&packetiser, self.frames));
        let mut streams = vec![Vec::new(); layout.streams];
        let mut link = FaultLink::new(&self.faults);
        let mut deliver = |d: Datagram<'_>| {
            reference.receive(d.stream, d.bytes);
            streams[d.stream].push(d.bytes.to_vec());
        };
        let pixels = layout.payload_bytes / 2;
        for frame in 0..self.frames {
            for packet in 0..layout.packets_per_tile {
                for stream in (0..layout.streams).filter(|s| (self.sends)(frame, *s, packet)) {
                    let first = (stream * layout.packets_per_tile as usize + packet as usize) * pixels;
                    let mut bytes = packetiser.write_header(stream, packetiser.frame_number(frame), packet).to_vec();
                    bytes[field::DET_SPEC_3].copy_from_slice(&(self.daq_info)(frame).to_le_bytes());
                    bytes.extend((first..first + pixels).flat_map(|pixel| word(frame, pixel).to_le_bytes()));
                    link.push(Datagram { stream, bytes: &bytes, is_other_sender: false }, &mut deliver);
                }
            }
        }
        link.flush(&mut deliver);
        let format = TileFormat::jungfrau(u32::from(self.interfaces)).unwrap();
        Recording { streams: streams.into_iter().map(Arc::new).collect(), reference, format }
    }

    /// Words near the G0 pedestals of [`constants`], with all other words mixed in.
    pub fn record_random(&self) -> Recording {
        let mut rng = Rng::new(self.faults.seed ^ 0x5EED);
        self.record(|_, _| random_word(&mut rng))
    }
}

/// Mostly near the G0 pedestals of [`constants`]; some words of any kind, some of the special ones.
pub fn random_word(rng: &mut Rng) -> u16 {
    let r = rng.next_u64();
    match r & 255 {
        0 => (r >> 16) as u16,
        1 if r & 0x700 == 0 => [0xFFFF, 0xC000, 0x4000, 0x8123][(r >> 16 & 3) as usize],
        _ => 2900 + (r >> 16 & 511) as u16,
    }
}

/// Constants of all storage cells in stream order.
#[derive(Clone)]
pub struct Constants {
    pub sets: Vec<JungfrauConstants>,
    pub set_of_cell: [Option<usize>; 16],
    pub gates: Vec<Vec<f32>>,
}

/// One set for all cells, every plane different, some pixels masked in all stages and some in one; gates of about 100
/// ADU.
pub fn constants(recording: &Recording) -> Constants {
    let pixels = recording.streams.len() * recording.format.pixels() as usize;
    let mut rng = Rng::new(99);
    let mut plane = |mean: f32, spread: f32| (0..pixels).map(|_| mean + spread * rng.uniform() as f32).collect::<Vec<_>>();
    let pedestals = [plane(2900.0, 300.0), plane(14800.0, 300.0), plane(15100.0, 300.0)];
    let mut factors = [plane(0.019, 0.002), plane(-0.56, 0.05), plane(-7.0, 0.5)];
    let mut gates = plane(90.0, 20.0);
    for pixel in (0..pixels).step_by(101) {
        factors.iter_mut().for_each(|f| f[pixel] = f32::NAN);
        gates[pixel] = f32::NAN;
    }
    for pixel in (50..pixels).step_by(97) {
        factors[1 + pixel % 2][pixel] = f32::NAN;
    }
    let sets = vec![JungfrauConstants { pedestals, factors, high_gain: false }];
    Constants { sets, set_of_cell: [Some(0); 16], gates: vec![gates] }
}

impl Constants {
    fn arranged(&self, geometry: &ImageGeometry) -> CellConstants {
        let tile = geometry.format().pixels() as usize;
        let plane = |plane: &Vec<f32>| geometry.arrange(&plane.chunks(tile).collect::<Vec<_>>(), f32::NAN);
        let set = |set: &JungfrauConstants| ConstantPlanes {
            pedestal: set.pedestals.each_ref().map(plane),
            factor: set.factors.each_ref().map(plane),
        };
        CellConstants {
            sets: self.sets.iter().map(set).collect(),
            set_of_cell: Box::new(self.set_of_cell),
            gate_adu: self.gates.iter().map(plane).collect(),
            high_gain: self.sets[0].high_gain,
        }
    }
}

impl Recording {
    /// A plan for all frames with tiles one below the other; sources wait, so that nothing is ever refused.
    pub fn plan(&self) -> Plan {
        Plan {
            geometry: ImageGeometry::stacked(self.format, self.streams.len() as u32).unwrap(),
            recipe: Recipe::JungfrauPhotons,
            pixel: PixelType::Int16,
            compression: Compression::None,
            processing: Processing::default(),
            frames: Some(self.reference.layout().images),
            first_frame: FirstFrame::Number(1),
            missing: MissingPolicy::Keep,
            slots: 16,
            packed_slots: 8,
            lossless_source: true,
            analysis: AnalysisPlan::default(),
            fills_slots: true,
            window_images: 8,
            deadline_ns: 300_000_000,
            stall_timeout_ns: 500_000_000,
            start_timeout_ns: 5_000_000_000,
            workers: 2,
            gpu: None,
            affinity: Affinity::default(),
            setup: konkordia_core::setup::SetupRules::default(),
        }
    }

    /// As [`Self::plan`], with tiles elsewhere and double pixels treated.
    pub fn plan_at(&self, placements: Vec<Placement>, double_pixels: DoublePixels) -> Plan {
        Plan { geometry: ImageGeometry::new(self.format, placements, None, double_pixels).unwrap(), ..self.plan() }
    }

    pub fn sources(&self) -> Vec<Box<dyn Source>> {
        let source =
            |datagrams: &Arc<Vec<Vec<u8>>>| Box::new(Replay { datagrams: datagrams.clone(), next: 0 }) as Box<dyn Source>;
        self.streams.iter().map(source).collect()
    }

    /// Everything for a run with one sink that keeps all images.
    pub fn parts(&self, plan: &Plan, constants: &Constants) -> (RunParts, Collector) {
        let collector = Collector::default();
        let constants = match plan.recipe {
            Recipe::Raw => PixelConstants::None,
            _ => PixelConstants::Jungfrau(constants.arranged(&plan.geometry)),
        };
        let parts = RunParts {
            plan: Arc::new(plan.clone()),
            sources: self.sources(),
            constants,
            sinks: vec![Box::new(collector.clone())],
            consumers: Consumers::default(),
            frame_sinks: vec![],
            isa: Isa::detect(),
            workers: WorkerKind::default(),
        };
        (parts, collector)
    }

    /// Runs the frames and returns what the sink saw.
    pub fn run(&self, plan: &Plan, constants: &Constants) -> (RunOutcome, Vec<Seen>) {
        let (parts, collector) = self.parts(plan, constants);
        let outcome = run_within(60, run::arm(parts).unwrap());
        (outcome, collector.take())
    }

    pub fn outline(&self, plan: &Plan) -> Outline {
        let (tile, g) = ((self.format.rows as usize, self.format.columns as usize), &plan.geometry);
        Outline::new(tile, g.placements(), (g.rows() as usize, g.columns() as usize), g.double_pixels())
    }

    /// Runs the frames with every kind of worker and compares everything with the naive run: heads, states, pixels,
    /// pedestals, sums. All kinds give the same bytes. Returns what the sink saw.
    pub fn check(&self, plan: &Plan, constants: &Constants) -> Vec<Seen> {
        let (outcome, seen) = self.run(plan, constants);
        self.compare(plan, constants, &outcome, &seen);
        self.check_with(WorkerKind::Scalar, plan, constants, &seen);
        if plan.check_gpu().is_ok() && constants.sets.len() == 1 {
            // With a thread of the processor, and without; words that are brought, and words that are taken.
            for (workers, share_percent, reads_ring) in [(4, 40, false), (4, 40, true), (3, 100, false), (3, 100, true)] {
                let gpu = Some(GpuPlan { ordinal: 0, workers: 3, share_percent, reads_ring });
                let plan = Plan { workers, gpu, ..plan.clone() };
                let gpu = EmulatedGpu::new(Nature::sound(self.reference.packet_ledger().placed));
                self.check_with(WorkerKind::Gpu(Arc::new(gpu)), &plan, constants, &seen);
            }
        }
        seen
    }

    fn check_with(&self, kind: WorkerKind, plan: &Plan, constants: &Constants, expected: &[Seen]) {
        let (mut parts, collector) = self.parts(plan, constants);
        parts.workers = kind.clone();
        let outcome = run_within(120, run::arm(parts).unwrap());
        let seen = collector.take();
        self.compare(plan, constants, &outcome, &seen);
        assert!(seen == expected, "{kind:?} workers give other images");
        if let Some(gpu) = outcome.gpu {
            assert_eq!((gpu.failure, gpu.copies_because), (None, None));
            assert_eq!(Some(gpu.reads_ring), plan.gpu.map(|gpu| gpu.reads_ring));
        }
    }

    pub fn compare(&self, plan: &Plan, constants: &Constants, outcome: &RunOutcome, seen: &[Seen]) {
        let outline = self.outline(plan);
        let naive = NaiveRun {
            reference: &self.reference,
            processing: plan.processing,
            pixel: plan.pixel,
            missing: plan.missing,
            sets: &constants.sets,
            set_of_cell: constants.set_of_cell,
            gates: &constants.gates,
            outline: &outline,
        };
        let total = outcome.ledger.total();
        let count = |wanted: fn(&Use) -> bool| naive.uses().iter().filter(|u| wanted(u)).count() as u64;
        if plan.processing.selection.images_max == Some(outcome.images) {
            assert_eq!(total.no_slot, 0, "what comes after the last image may be left unread, but is not refused");
        } else {
            assert_eq!((total.no_slot, total.placed), (0, self.reference.packet_ledger().placed), "every packet is placed");
            assert_eq!(outcome.ledger.frames.dark, count(|u| *u == Use::Dark));
        }
        assert_eq!(outcome.ledger.frames.unfinished, count(|u| *u == Use::Unfinished));
        assert_eq!(outcome.ledger.frames.kept, count(|u| matches!(u, Use::Image(_))));
        let every_images = plan.processing.tracking.map_or(0, |t| t.snapshot_images);
        let mut number = 0;
        naive.for_each_image(|image, expected| {
            let got = seen.get(number).unwrap_or_else(|| panic!("image {image} never came"));
            number += 1;
            let head = got.head;
            assert_eq!((got.image, got.status, head.status), (image, expected.status, expected.status), "state of image {image}");
            let frames = (expected.first_frame, expected.frames, expected.frames_complete);
            assert_eq!((head.first_frame, head.frames, head.frames_complete), frames, "frames of image {image}");
            let pixels = got.pixels(plan);
            assert_eq!(pixels.len(), expected.pixels.len(), "pixels of image {image}");
            let differs = |(a, b): &(&f64, &f64)| a != b && !(a.is_nan() && b.is_nan());
            let differing: Vec<_> = pixels.iter().zip(&expected.pixels).enumerate().filter(|(_, pair)| differs(pair)).collect();
            assert!(differing.is_empty(), "image {image}: {} pixels differ, the first: {:?}", differing.len(), differing[0]);
            got.assert_results(plan, &expected.pixels);
            if every_images > 0 && image.is_multiple_of(every_images) {
                let is_same = |(a, b): (&u32, &f32)| *a == b.to_bits() || f32::from_bits(*a).is_nan() && b.is_nan();
                assert_eq!(got.pedestals.len(), expected.pedestals.len(), "image {image} has a snapshot");
                assert!(got.pedestals.iter().zip(&expected.pedestals).all(is_same), "pedestals after image {image}");
            } else {
                assert!(got.pedestals.is_empty());
            }
        });
        assert_eq!((number, outcome.images), (seen.len(), seen.len() as u64), "no image more than there are");
    }
}

/// One image as a sink saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub image: u64,
    pub status: ImageStatus,
    pub head: ImageHead,
    pub tiles: Vec<TileRecord>,
    pub chunk: Vec<u8>,
    /// Bits of the pedestals, so that NaN equals NaN.
    pub pedestals: Vec<u32>,
    /// Bits of the results; none if the image has none.
    pub results: Vec<u64>,
}

impl Seen {
    /// The results are those of these pixels, counted one by one.
    fn assert_results(&self, plan: &Plan, pixels: &[f64]) {
        if pixels.is_empty() || plan.recipe == Recipe::Raw {
            assert!(self.results.is_empty(), "image {} has no values", self.image);
            return;
        }
        let special = plan.pixel.special();
        let valid = || pixels.iter().copied().filter(|p| *p >= special.valid_min && *p <= special.valid_max);
        let equal = |value: f64| pixels.iter().filter(|p| **p == value).count() as u64;
        let count = valid().count() as u64;
        assert_eq!(self.results[..3], [count, equal(special.missing), equal(special.saturated)], "image {}", self.image);
        let range = (valid().fold(f64::INFINITY, f64::min), valid().fold(f64::NEG_INFINITY, f64::max));
        let (min, max) = if count > 0 { range } else { (0.0, 0.0) };
        let [.., low, high, sum] = self.results[..] else { panic!("too few results") };
        let of_bits = |bits| if plan.pixel.is_float() { f64::from_bits(bits) } else { bits.cast_signed() as f64 };
        assert_eq!((of_bits(low), of_bits(high)), (min, max), "image {}", self.image);
        let (sum, expected, sizes) = (of_bits(sum), valid().sum::<f64>(), valid().map(f64::abs).sum::<f64>());
        // Integers are exact.
        let tolerance = if plan.pixel.is_float() { sizes * 1e-12 } else { 0.0 };
        assert!((sum - expected).abs() <= tolerance, "image {}: sum {sum} instead of {expected}", self.image);
    }

    /// The pixels in output order; none if the image was not written.
    pub fn pixels(&self, plan: &Plan) -> Vec<f64> {
        if self.chunk.is_empty() {
            return Vec::new();
        }
        let element = if plan.pixel.bytes() == 2 { ElementSize::Two } else { ElementSize::Four };
        let mut bytes = vec![0; plan.image_bytes()];
        codec::decompress(plan.compression, Isa::Scalar, &self.chunk, element, &mut bytes).expect("every chunk decodes");
        let (two, four) = (bytes.chunks_exact(2), bytes.chunks_exact(4));
        let (two, four) = (two.map(|b| [b[0], b[1]]), four.map(|b| [b[0], b[1], b[2], b[3]]));
        match plan.pixel {
            PixelType::Int16 => two.map(|b| f64::from(i16::from_le_bytes(b))).collect(),
            PixelType::Uint16 => two.map(|b| f64::from(u16::from_le_bytes(b))).collect(),
            PixelType::Int32 => four.map(|b| f64::from(i32::from_le_bytes(b))).collect(),
            PixelType::Uint32 => four.map(|b| f64::from(u32::from_le_bytes(b))).collect(),
            PixelType::Float32 => four.map(|b| f64::from(f32::from_le_bytes(b))).collect(),
            other => unreachable!("no run converts to {other}"),
        }
    }
}

/// Keeps every image; can be slow with those that hold pixels, and can fail.
#[derive(Clone, Default)]
pub struct Collector {
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub pause: Duration,
    pub fails_at: Option<u64>,
}

impl Collector {
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

pub fn refusal() -> SinkError {
    let text = |s: &str| s.to_string();
    SinkError { what: text("cannot write"), why: text("the test says so"), fix: text("nothing") }
}

impl Sink for Collector {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        if self.fails_at.is_some_and(|at| image.number >= at) {
            return Err(refusal());
        }
        let packets = image.packets.as_ref().expect("a run has packets");
        let Packets { first_frame, frames, frames_complete, .. } = *packets;
        if !image.chunk().is_empty() {
            std::thread::sleep(self.pause);
        }
        self.seen.lock().unwrap().push(Seen {
            image: image.number,
            status: image.status,
            head: ImageHead { status: image.status, first_frame, frames, frames_complete },
            // The time of arrival differs in each run.
            tiles: packets.tiles.iter().map(|tile| TileRecord { received_ns: 0, ..*tile }).collect(),
            chunk: image.chunk().to_vec(),
            pedestals: packets.pedestals.iter().flat_map(|plane| plane.iter().map(|p| p.to_bits())).collect(),
            results: image.results.iter().flat_map(|(_, bits)| bits.iter().copied()).collect(),
        });
        Ok(())
    }
}

/// One tile of a frame as a sink of raw frames saw it: frame, tile, record, words.
pub type RawTile = (u64, usize, TileRecord, Vec<u16>);

/// Keeps every raw tile; can be slow, and can fail.
#[derive(Clone, Default)]
pub struct RawCollector {
    pub seen: Arc<Mutex<Vec<RawTile>>>,
    pub pause: Duration,
    pub fails_at: Option<u64>,
}

impl FrameSink for RawCollector {
    fn write(&mut self, frame: u64, tile: usize, record: &TileRecord, bytes: &[u8]) -> Result<(), SinkError> {
        if self.fails_at.is_some_and(|at| frame >= at) {
            return Err(refusal());
        }
        std::thread::sleep(self.pause);
        let words = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        self.seen.lock().unwrap().push((frame, tile, *record, words));
        Ok(())
    }
}

/// Hands out recorded datagrams, a few at a time.
struct Replay {
    datagrams: Arc<Vec<Vec<u8>>>,
    next: usize,
}

impl Source for Replay {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> std::io::Result<usize> {
        let rest = &self.datagrams[self.next..];
        let count = rest.len().min(50);
        rest[..count].iter().for_each(|datagram| take(datagram, Sender::NONE));
        self.next += count;
        if count == 0 {
            std::thread::sleep(timeout);
        }
        Ok(count)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

/// Fails the test if the run does not end, or if its ledger does not balance.
pub fn run_within(seconds: u64, armed: Armed) -> RunOutcome {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        // After a time-out nothing listens any more.
        let _ = done.send(armed.run());
    });
    let outcome = result.recv_timeout(Duration::from_secs(seconds)).expect("the run ends in time, and no thread panics");
    assert_eq!(outcome.ledger.imbalances(), []);
    outcome
}
