//! The data path allocates at arm and never after: a counting allocator watches runs of hundreds of frames.
//! A test binary of its own, because the allocator counts for the whole process.

#[path = "../../../tests/counting.rs"]
mod counting;

use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Orientation, Placement, Quarter};
use konkordia_core::image::{CommittedImage, TileRecord};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{
    AnalysisPlan, CommonMode, Compression, FirstFrame, Negative, Plan, Processing, Recipe, TrackedFrames, Tracking,
};
use konkordia_core::ports::{FrameSink, Sink, SinkError, Source};
use konkordia_core::selection::{Marked, Selection};
use konkordia_core::sender::{Sender, Senders};
use konkordia_core::series::Ended;
use konkordia_core::setup::{Ports, SetupRules};
use konkordia_core::tile::TileFormat;
use konkordia_engine::output_queue::{OutputQueues, PreviewBuffer};
use konkordia_engine::run::{self, CellConstants, ConstantPlanes, Consumers, PixelConstants, RunParts, WorkerKind};
use konkordia_kernels::Isa;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Makes JUNGFRAU packets in a buffer of its own, every 50th packet missing; records the count of allocations before
/// frame `counts_from`.
struct Maker {
    datagram: Vec<u8>,
    packet: u64,
    frames: u64,
    /// The first frames, up to this number, have half of the packets, as with two interfaces.
    halves: u64,
    /// The count is recorded before this frame.
    counts_from: u64,
    first: Arc<AtomicU64>,
    /// First frame after the newest image.
    seen: Arc<AtomicU64>,
}

impl Source for Maker {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> std::io::Result<usize> {
        if self.packet == self.frames * 128 {
            std::thread::sleep(timeout);
            return Ok(0);
        }
        // Not faster than the sink, so that all images pass through the whole engine.
        while self.packet / 128 > self.seen.load(Ordering::Relaxed) + 40 {
            std::thread::sleep(Duration::from_micros(100));
        }
        if self.packet == self.counts_from * 128 {
            // The other threads have started by then.
            std::thread::sleep(Duration::from_millis(300 * u64::from(self.packet == 0)));
            self.first.store(counting::of_the_process(), Ordering::Relaxed);
        }
        for _ in 0..64 {
            self.datagram[0..8].copy_from_slice(&(self.packet / 128 + 1).to_le_bytes());
            self.datagram[12..16].copy_from_slice(&((self.packet % 128) as u32).to_le_bytes());
            let is_sent = self.packet / 128 >= self.halves || self.packet % 128 < 64;
            if self.packet % 50 != 7 && is_sent {
                take(&self.datagram, Sender::NONE);
            }
            self.packet += 1;
        }
        Ok(64)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

/// Records the count of allocations at the last image.
struct Last {
    image: u64,
    allocations: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
    snapshots: Arc<AtomicU64>,
}

impl Sink for Last {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let packets = image.packets.as_ref().expect("a run has packets");
        self.seen.store(packets.first_frame + u64::from(packets.frames), Ordering::Relaxed);
        self.snapshots.fetch_add(u64::from(packets.pedestals.is_some()), Ordering::Relaxed);
        if image.number == self.image {
            self.allocations.store(counting::of_the_process(), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Takes raw frames and forgets them.
struct Forget;

impl FrameSink for Forget {
    fn write(&mut self, _frame: u64, _tile: usize, _record: &TileRecord, _bytes: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }
}

/// 400 frames, each an image.
fn plain() -> Plan {
    Plan {
        geometry: ImageGeometry::stacked(TileFormat::jungfrau(1).unwrap(), 1).unwrap(),
        recipe: Recipe::JungfrauPhotons,
        pixel: PixelType::Int16,
        compression: Compression::BSLZ4,
        processing: Processing::default(),
        frames: Some(400),
        first_frame: FirstFrame::Number(1),
        missing: MissingPolicy::Keep,
        slots: 64,
        packed_slots: 64,
        lossless_source: false,
        analysis: AnalysisPlan::default(),
        fills_slots: false,
        window_images: 8,
        deadline_ns: 200_000_000,
        stall_timeout_ns: 2_000_000_000,
        start_timeout_ns: 5_000_000_000,
        workers: 2,
        gpu: None,
        affinity: Affinity::default(),
        setup: konkordia_core::setup::SetupRules::default(),
    }
}

/// Counts allocations between half of the frames and the last image; returns them and the snapshots of the pedestals.
fn allocations(plan: Plan, images: u64) -> (u64, u64) {
    let half = plan.frames.unwrap() / 2;
    allocations_from(plan, images, half, 0)
}

/// The same from frame `counts_from` on; the first `halves` frames contradict the configuration.
fn allocations_from(plan: Plan, images: u64, counts_from: u64, halves: u64) -> (u64, u64) {
    let (pixels, frames) = (plan.geometry.pixels(), plan.frames.unwrap() + halves);
    let mut datagram: Vec<u8> = (0..48 + 8192).map(|i| (i * 7) as u8 & 0x3f).collect();
    (datagram[46], datagram[47]) = (3, 2);
    let [first, last, seen, snapshots] = [0; 4].map(|n| Arc::new(AtomicU64::new(n)));
    let planes =
        ConstantPlanes { pedestal: [0, 1, 2].map(|_| vec![3000.0; pixels]), factor: [0, 1, 2].map(|_| vec![0.002; pixels]) };
    let calibration = CellConstants { gate_adu: vec![vec![9000.0; pixels]], ..planes.into() };
    // More than the run has images, so that they are given back.
    let preview = Arc::new(PreviewBuffer::new(100, u64::MAX));
    let sink = Last { image: images - 1, allocations: last.clone(), seen: seen.clone(), snapshots: snapshots.clone() };
    let armed = run::arm(RunParts {
        plan: Arc::new(plan),
        sources: vec![Box::new(Maker { datagram, packet: 0, frames, halves, counts_from, first: first.clone(), seen })],
        constants: PixelConstants::Jungfrau(calibration),
        sinks: vec![Box::new(sink)],
        consumers: Consumers { output_queues: Arc::new(OutputQueues::new(Some(preview))), ..Consumers::default() },
        frame_sinks: vec![Box::new(Forget)],
        isa: Isa::detect(),
        workers: WorkerKind::default(),
    })
    .unwrap();
    let outcome = armed.run();
    assert!(outcome.ended == Ended::Finished);
    assert_eq!(outcome.ledger.images.partial + outcome.ledger.images.complete, images);
    let (first, last) = (first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
    assert!(first > 0 && last >= first);
    (last - first, snapshots.load(Ordering::Relaxed))
}

/// One test, because the runs must not overlap.
#[test]
fn nothing_is_allocated_after_arm() {
    assert_eq!(allocations(plain(), 400), (0, 0));

    // From the first packet on: packets are held back and first refused, then they begin the run.
    let setup = SetupRules { is_strict: true, ports_per_module: 1, ports: Ports::Unknown, senders: Senders::Learned };
    let opening = Plan { first_frame: FirstFrame::Auto, setup, ..plain() };
    assert_eq!(allocations_from(opening, 400, 0, 9), (0, 0));

    // Tracked pedestals, dark frames, sums, split pixels in a tile that lies sideways, another codec, few slots.
    let sideways = Placement { row: 0, column: 0, orientation: Orientation { flip_rows: true, rotate: Quarter::Deg90 } };
    let format = TileFormat::jungfrau(1).unwrap();
    let geometry = ImageGeometry::new(format, vec![sideways], None, DoublePixels::Split).unwrap();
    let processing = Processing {
        selection: Selection { darks: Marked::Every(10), sum_frames: 3, ..Selection::default() },
        tracking: Some(Tracking { window_frames: 100, frames: TrackedFrames::All, snapshot_images: 4 }),
        negative: Negative::Offset(10),
        ..Processing::default()
    };
    let compression = Compression::BSZSTD;
    let all = Plan { geometry, processing, compression, pixel: PixelType::Uint16, packed_slots: 2, frames: Some(200), ..plain() };
    assert_eq!(allocations(all.clone(), 60), (0, 15));

    let processing = Processing { tracking: None, common_mode: CommonMode::Column, ..processing };
    let compression = Compression::Zstd { level: 1 };
    let common_mode = Plan { processing, compression, pixel: PixelType::Float32, ..all };
    assert_eq!(allocations(Plan { lossless_source: true, slots: 8, window_images: 4, ..common_mode }, 60), (0, 0));
}
