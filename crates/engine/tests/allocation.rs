//! The data path allocates at arm and never after: a counting allocator watches a run of hundreds of images.
//! A test binary of its own, because the allocator counts for the whole process.

use konkordia_core::geometry::ImageGeometry;
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{CommittedImage, Sink, SinkError, Source};
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{self, ConstantPlanes, Ended, PixelConstants, RunParts};
use konkordia_kernels::Isa;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system allocator unchanged; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of this trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const IMAGES: u64 = 400;

/// Makes JUNGFRAU packets in a buffer of its own, every 50th packet missing; tells the count of allocations at image 100 and at the end.
struct Maker {
    datagram: Vec<u8>,
    packet: u64,
    at_100: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
}

impl Source for Maker {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> std::io::Result<usize> {
        if self.packet == IMAGES * 128 {
            std::thread::sleep(timeout);
            return Ok(0);
        }
        // Not faster than the sink, so that all images pass through the whole engine.
        while self.packet / 128 > self.seen.load(Ordering::Relaxed) + 40 {
            std::thread::sleep(Duration::from_micros(100));
        }
        for _ in 0..64 {
            self.datagram[0..8].copy_from_slice(&(self.packet / 128 + 1).to_le_bytes());
            self.datagram[12..16].copy_from_slice(&((self.packet % 128) as u32).to_le_bytes());
            if self.packet % 50 != 7 {
                take(&self.datagram);
            }
            self.packet += 1;
        }
        if self.packet == 100 * 128 {
            self.at_100.store(ALLOCATIONS.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(64)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

/// Counts the images and notes the count of allocations at the last one.
struct Last {
    allocations: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
}

impl Sink for Last {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        self.seen.store(image.image + 1, Ordering::Relaxed);
        if image.image == IMAGES - 1 {
            self.allocations.store(ALLOCATIONS.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SinkError> {
        Ok(())
    }
}

#[test]
fn nothing_is_allocated_after_arm() {
    let geometry = ImageGeometry::stacked(TileFormat::jungfrau(1).unwrap(), 1).unwrap();
    let pixels = geometry.pixels();
    let plan = Plan {
        geometry,
        recipe: Recipe::JungfrauPhotons,
        pixel: PixelType::Int16,
        compression: Compression::Bslz4,
        processing: Processing::default(),
        frames: Some(IMAGES),
        first_frame: FirstFrame::Number(1),
        missing: MissingPolicy::Keep,
        slots: 64,
        packed_slots: 64,
        lossless_source: false,
        window_images: 8,
        deadline_ns: 200_000_000,
        stall_timeout_ns: 2_000_000_000,
        start_timeout_ns: 5_000_000_000,
        workers: 2,
        pin_receivers: vec![],
        pin_workers: vec![],
    };
    let mut datagram: Vec<u8> = (0..48 + 8192).map(|i| (i * 7) as u8 & 0x3f).collect();
    (datagram[46], datagram[47]) = (3, 2);
    let [first, last, seen] = [0; 3].map(|n| Arc::new(AtomicU64::new(n)));
    let planes =
        ConstantPlanes { pedestal: [0, 1, 2].map(|_| vec![3000.0; pixels]), factor: [0, 1, 2].map(|_| vec![0.002; pixels]) };
    let armed = run::arm(RunParts {
        plan: Arc::new(plan),
        sources: vec![Box::new(Maker { datagram, packet: 0, at_100: first.clone(), seen: seen.clone() })],
        constants: PixelConstants::Jungfrau(planes.into()),
        sinks: vec![Box::new(Last { allocations: last.clone(), seen })],
        frame_sinks: vec![],
        isa: Isa::detect(),
    })
    .unwrap();
    let outcome = armed.run();
    assert!(matches!(outcome.ended, Ended::Finished));
    assert_eq!(outcome.ledger.images.partial + outcome.ledger.images.complete, IMAGES);
    let (first, last) = (first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
    assert!(first > 0 && last >= first);
    assert_eq!(last - first, 0, "allocations between image 100 and image {IMAGES}");
}
