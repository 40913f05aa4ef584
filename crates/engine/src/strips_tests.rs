//! Whatever compression a run uses, its images leave with their pixels; their memory is used again only when nobody
//! holds it.

use super::*;
use crate::output_queue::{OutputQueueSpec, OutputQueues, PreviewBuffer};
use crate::results::numbers_of_strip;
use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{AnalysisPlan, Compression, FirstFrame, Processing, Recipe, TrackedFrames, Tracking};
use konkordia_core::ports::ServiceLevel;
use konkordia_core::series::SeriesStart;
use konkordia_core::tile::TileFormat;
use konkordia_kernels::codec::{Packer, piece_bound};
use konkordia_kernels::transform::{UnpackScratch, unpack};
use konkordia_kernels::{ElementSize, Isa};
use konkordia_memory::ring::{Ring, RingSpec};

fn plan(compression: Compression) -> Plan {
    Plan {
        geometry: ImageGeometry::stacked(TileFormat::eiger(16).unwrap(), 2).unwrap(),
        recipe: Recipe::Counts,
        pixel: PixelType::Uint16,
        compression,
        processing: Processing::default(),
        frames: Some(9),
        first_frame: FirstFrame::Auto,
        missing: MissingPolicy::Keep,
        slots: 16,
        packed_slots: 5,
        lossless_source: false,
        analysis: AnalysisPlan::default(),
        fills_slots: false,
        window_images: 1,
        deadline_ns: 1,
        stall_timeout_ns: 1,
        start_timeout_ns: 1,
        workers: 1,
        gpu: None,
        affinity: Affinity::default(),
        setup: konkordia_core::setup::SetupRules::default(),
    }
}

/// The strips that the workers of a run make.
fn strips(plan: &Plan, image: &[u8]) -> Vec<Vec<u8>> {
    let (block, codec) = (plan.compression.block_bytes(), plan.compression);
    let strip_bytes = plan.blocks_per_strip() * block;
    let piece = if codec.is_by_strip() { strip_bytes } else { block };
    let mut packer = Packer::new(codec, Isa::detect(), piece);
    let mut out = vec![0; piece_bound(codec, piece)];
    let strip = |strip: &[u8]| {
        let pieces = strip.chunks(piece).flat_map(|piece| {
            let written = packer.pack_bytes(ElementSize::Two, piece, &mut out);
            out[..written].to_vec()
        });
        pieces.collect()
    };
    image.chunks(strip_bytes).map(strip).collect()
}

/// What a worker leaves with a strip: 100 valid pixels from 2 to 60, with the sum 900, and one missing pixel.
const STRIP: [u64; 6] = [100, 1, 0, 2, 60, 900];

/// A ring, and what is needed to take images out of it.
struct Bench {
    plan: Plan,
    ring: Ring,
    pool: ImagePool,
    framing: Framing,
    next: u64,
}

impl Bench {
    fn new(plan: Plan) -> Self {
        let format = plan.geometry.format();
        let ring = Ring::new(RingSpec {
            slots: plan.slots,
            packed_slots: plan.strip_slots(),
            tiles: plan.streams(),
            tile_bytes: format.tile_bytes() as usize,
            sections: format.sections as usize,
            payload_bytes: format.payload_bytes as usize,
            strip_bytes_max: vec![plan.packed_bytes_max(); plan.strips().count()],
            strip_numbers: numbers_of_strip(&plan),
            shares: vec![1],
            frame_readers: 0,
            snapshot: None,
            reserved_pages: false,
        });
        let (pool, framing) = (ImagePool::new(&plan).unwrap(), Framing::new(plan.compression, plan.image_bytes()));
        Self { plan, ring: ring.unwrap(), pool, framing, next: 0 }
    }

    /// Packs and commits the next image.
    fn commit(&mut self, status: ImageStatus, strips: &[Vec<u8>], records: &[TileRecord]) {
        let (image, worker) = (self.next, &mut self.ring.workers[0]);
        self.ring.receivers.iter_mut().for_each(|receiver| receiver.seal_below(image + 1));
        assert!(worker.has_room(image));
        for (n, strip) in strips.iter().enumerate() {
            worker.pack(image, n, |_, out| {
                out[..strip.len()].copy_from_slice(strip);
                strip.len()
            });
            worker.set_numbers(image, n, &STRIP);
        }
        worker.finish(1, image + 1);
        let head = ImageHead { status, first_frame: image, frames: 1, frames_complete: 0 };
        self.ring.committer.publish(head, records);
        self.ring.committer.pass();
        self.next += 1;
    }

    fn take(&mut self) -> Option<Arc<CommittedImage>> {
        take(&mut self.ring.image_reader, &mut self.pool, &self.plan, &mut self.framing)
    }

    fn take_next(&mut self) -> Option<Arc<CommittedImage>> {
        let image: Vec<u8> = vec![self.next as u8; self.plan.image_bytes()];
        let strips = strips(&self.plan, &image);
        let whole = TileRecord { packets: self.plan.geometry.format().packets() as u16, ..TileRecord::default() };
        self.commit(ImageStatus::Complete, &strips, &[whole; 2]);
        self.take()
    }
}

#[test]
fn images_of_every_compression_leave_with_their_pixels() {
    for compression in Compression::ALL {
        let mut bench = Bench::new(plan(compression));
        let image: Vec<u8> = (0..bench.plan.image_bytes() / 2).flat_map(|n| ((n * n / 5) as u16).to_le_bytes()).collect();
        let strips = strips(&bench.plan, &image);
        let whole = TileRecord { packets: bench.plan.geometry.format().packets() as u16, ..TileRecord::default() };
        let tiles = [whole, TileRecord { packets: 1, received_ns: 77, ..whole }];
        // Each image of the pool is used, with and without pixels.
        for n in 0..2 * bench.plan.pool_images() {
            bench.commit(ImageStatus::Lost, &[], &[TileRecord::default(); 2]);
            let lost = bench.take().unwrap();
            assert!(lost.channels.is_empty() && lost.status == ImageStatus::Lost && lost.number == 2 * n);
            let packets = lost.packets.as_ref().unwrap();
            assert_eq!((packets.header(), packets.missing_tiles()), (None, 0b11));
            assert_eq!(lost.results.iter().count(), 0, "a lost image has no pixels");
            drop(lost);
            bench.commit(ImageStatus::Partial, &strips, &tiles);
            let partial = bench.take().unwrap();
            let packets = partial.packets.as_ref().unwrap();
            assert_eq!((partial.number, packets.first_frame, &packets.tiles[..]), (2 * n + 1, 2 * n + 1, &tiles[..]));
            assert_eq!((packets.missing_tiles(), partial.received_ns), (0b10, 77));
            let parts = strips.len() as u64;
            assert_eq!(partial.results.bits(), [100 * parts, parts, 0, 2, 60, 900 * parts]);
            assert_eq!(partial.results.to_json()["max_value"], 60);
            let array = &partial.channels[0].array;
            let size = [bench.plan.geometry.rows(), bench.plan.geometry.columns()].map(u64::from);
            assert_eq!((array.packing, array.shape.dimensions()), (compression.packing(), &size[..]));
            let mut out = vec![0; image.len()];
            let mut scratch = UnpackScratch::new(Isa::detect());
            unpack::array(array.packing, array.element, &array.pieces[0], &mut out, &mut scratch).unwrap();
            assert!(out == image, "{compression:?}");
        }
    }
}

#[test]
fn memory_is_used_again_only_when_nobody_holds_the_image_or_its_pixels() {
    let mut bench = Bench::new(plan(Compression::None));
    let count = bench.plan.pool_images();
    let mut held: Vec<_> = (0..count).map(|_| bench.take_next().unwrap()).collect();
    assert!(bench.take_next().is_none(), "all are held");
    // A socket holds only the pixels.
    let pixels = held[1].channels[0].array.pieces[0].clone();
    drop(held.remove(1));
    assert!(bench.take().is_none());
    assert!(pixels.iter().all(|byte| *byte == 1));
    drop(pixels);
    let next = bench.take().unwrap();
    assert_eq!(next.number, count);
    for image in held.iter().chain([&next]) {
        assert!(image.channels[0].array.pieces[0].iter().all(|byte| *byte == image.number as u8), "{}", image.number);
    }
    // A copy holds nothing back.
    let copy = next.detached();
    drop(next);
    let next = bench.take_next().unwrap();
    assert!(copy.channels[0].array.pieces[0][0] == count as u8 && next.channels[0].array.pieces[0][0] == count as u8 + 1);
}

#[test]
fn snapshots_of_pedestals_survive_whoever_holds_copies() {
    let tracking = Tracking { window_frames: 9, frames: TrackedFrames::All, snapshot_images: 2 };
    let mut plan = plan(Compression::None);
    plan.processing.tracking = Some(tracking);
    let (mut pool, mut copies) = (ImagePool::new(&plan).unwrap(), Vec::new());
    for n in 0..20 {
        let mut free = pool.free().unwrap();
        let plane = [n as f32, 0.5, 7.0];
        free.set_pedestals([&plane[..2], &plane[2..]].into_iter());
        let image = free.finish();
        let pedestals = image.packets.as_ref().and_then(|packets| packets.pedestals.clone());
        assert_eq!(pedestals.as_deref().map(Vec::as_slice), Some(&plane[..]), "image {n}");
        // Nobody else needs them.
        copies.push(image.detached());
    }
    assert!(copies.iter().all(|copy| copy.packets.as_ref().is_some_and(|packets| packets.pedestals.is_none())));
}

#[test]
fn a_preview_holds_no_run_back_and_a_slow_consumer_gets_copies() {
    let mut bench = Bench::new(plan(Compression::BSLZ4));
    let preview = Arc::new(PreviewBuffer::new(100, u64::MAX));
    let output_queues = OutputQueues::new(Some(Arc::clone(&preview)));
    let service = ServiceLevel::ReliableSkip;
    let spec = OutputQueueSpec { name: "slow".into(), service, queue_images: 100, queue_bytes: u64::MAX, borrows: false };
    let mut slow = output_queues.add(spec);
    output_queues.start(&Arc::new(SeriesStart::default()), &|| true);
    let count = 3 * bench.plan.pool_images();
    let mut looked = Vec::new();
    for n in 0..count {
        let image = bench.take_next().or_else(|| {
            assert!(preview.give_back(), "image {n} is held by somebody else");
            bench.take()
        });
        output_queues.lend(&image.unwrap(), &|| true);
        // Somebody looks at every image, and keeps it.
        looked.push(preview.look(None, Instant::now()).unwrap());
    }
    assert_eq!(preview.numbers(), (count - bench.plan.pool_images()..count).collect::<Vec<_>>());
    preview.keep_copies();
    for _ in 0..bench.plan.pool_images() {
        assert!(bench.take_next().is_some(), "the run has its memory again");
    }
    let mut items = Vec::new();
    slow.take(Duration::ZERO, &mut items);
    let first = Arc::clone(preview.look(Some(count - 1), Instant::now()).unwrap().image());
    let mut scratch = UnpackScratch::new(Isa::detect());
    let mut pixel = |image: &CommittedImage| {
        let (array, mut out) = (&image.channels[0].array, vec![0; bench.plan.image_bytes()]);
        unpack::array(array.packing, array.element, &array.pieces[0], &mut out, &mut scratch).unwrap();
        out[0]
    };
    assert_eq!((pixel(&first), preview.numbers().len() as u64), ((count - 1) as u8, bench.plan.pool_images()));
    for planes in &looked {
        let number = planes.image().number as u8;
        assert!(pixel(planes.image()) == number && planes.plane(0).unwrap().bytes.iter().all(|byte| *byte == number));
    }
    let images: Vec<u8> = items
        .iter()
        .filter_map(|item| if let crate::output_queue::Item::Image(image) = item { Some(pixel(image)) } else { None })
        .collect();
    assert_eq!(images, (0..images.len() as u8).collect::<Vec<_>>());
    assert!(images.len() >= 3);
}
