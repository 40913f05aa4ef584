//! The ring of slots. Image `n` lives in slot `n % slots`, so all streams agree without a map or a lock.
//!
//! Four roles pass over the images in order, each with a cursor = the first image it has not finished:
//! *receivers* (one per tile) < *workers* < *committer* < *sinks*. A receiver may write image `n` while `n >= its own cursor` and
//! `n < lowest sink cursor + slots`; everybody else may touch image `n` only when all cursors of the role before are above `n`.
//! From this it follows that no two roles ever touch the same bytes at once:
//! - A worker, the committer or a sink at image `n` (cursor `<= n`) keeps the lowest sink cursor `<= n`, so receivers stay below `n + slots`
//!   and cannot write the slot of `n` again.
//! - A receiver never writes `n` once its cursor is above `n`, and the others wait for that.
//! - An image of which no packet was placed never owned its slot: the slot may still hold `n - slots`. Tags tell: the tile cell of a slot
//!   says which image it holds, and a role touches the slot of `n` only if some tile carries the tag of `n`.
//!
//! Which images find a slot is decided once for all receivers, by the first that asks ([`TileWriter::claim`]). That is a courtesy to the
//! data, so that an image is taken whole or not at all; the argument above does not need it.

use std::cell::UnsafeCell;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use konkordia_core::IMAGES_MAX;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::CLAIMS_MIN;
use konkordia_core::ports::{FrameHeader, TileRecord};

use crate::cursor::{Bell, Cursor, lowest};
use crate::mapping::Mapping;

/// Size of a ring; all bounds come from the plan.
#[derive(Clone, Debug)]
pub struct RingSpec {
    /// Images that the ring holds.
    pub slots: u64,
    /// Tiles of an image.
    pub tiles: usize,
    /// Bytes of a raw tile.
    pub tile_bytes: usize,
    /// Payload bytes of a packet; `tile_bytes` is a multiple.
    pub payload_bytes: usize,
    /// Most bytes of each packed strip.
    pub strip_bytes_max: Vec<usize>,
    /// Worker threads; strip `s` belongs to worker `s % workers`.
    pub workers: usize,
    /// Sink threads.
    pub sinks: usize,
}

#[derive(Clone, Copy, Default)]
struct TileCell {
    /// Image + 1 whose tile this is; 0 = none yet.
    tag: u64,
    record: TileRecord,
}

struct Shared {
    spec: RingSpec,
    raw: Mapping,
    packed: Mapping,
    tile_stride: usize,
    packed_stride: usize,
    strip_offsets: Vec<usize>,
    cells: Box<[UnsafeCell<TileCell>]>,
    claims: Box<[AtomicU64]>,
    strip_bytes: Box<[AtomicU32]>,
    statuses: Box<[AtomicU8]>,
    received: Box<[Cursor]>,
    worked: Box<[Cursor]>,
    committed: Box<[Cursor]>,
    written: Box<[Cursor]>,
    worker_bells: Box<[Bell]>,
    committer_bell: Bell,
    sink_bells: Box<[Bell]>,
}

// SAFETY: the only non-Sync parts are the tile cells and the two mappings; the role types below reach them only under the cursor rules of the
// module documentation, which give each byte either one writer or only readers, ordered by Release/Acquire on the cursors.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

impl Shared {
    fn slot(&self, image: u64) -> usize {
        (image % self.spec.slots) as usize
    }

    fn cell(&self, image: u64, tile: usize) -> *mut TileCell {
        assert!(tile < self.spec.tiles, "there is no tile {tile}");
        self.cells[self.slot(image) * self.spec.tiles + tile].get()
    }

    fn tile_start(&self, image: u64, tile: usize) -> *mut u8 {
        let offset = (self.slot(image) * self.spec.tiles + tile) * self.tile_stride;
        debug_assert!(offset + self.spec.tile_bytes <= self.raw.bytes());
        // SAFETY: slot and tile are in range, so the offset lies inside the mapping, which was sized for all slots and tiles.
        unsafe { self.raw.start().add(offset) }
    }

    fn strip_start(&self, image: u64, strip: usize) -> *mut u8 {
        let offset = self.slot(image) * self.packed_stride + self.strip_offsets[strip];
        debug_assert!(offset + self.spec.strip_bytes_max[strip] <= self.packed.bytes());
        // SAFETY: as in `tile_start`, for the packed mapping.
        unsafe { self.packed.start().add(offset) }
    }

    /// First image for which there is no slot. It only ever grows.
    fn limit(&self) -> u64 {
        lowest(&self.written).saturating_add(self.spec.slots)
    }

    /// The record of a tile, if packets of it were placed. Caller: a role whose turn image `image` is.
    ///
    /// # Safety
    /// All receivers' cursors must be above `image`, and the caller's own cursor must not be.
    unsafe fn record(&self, image: u64, tile: usize) -> Option<&TileRecord> {
        // SAFETY: by the caller's promise no receiver writes this cell now (module documentation), so a shared reference is sound.
        let cell = unsafe { &*self.cell(image, tile) };
        (cell.tag == image + 1).then_some(&cell.record)
    }

    fn strip_bytes(&self, image: u64, strip: usize) -> &AtomicU32 {
        &self.strip_bytes[self.slot(image) * self.spec.strip_bytes_max.len() + strip]
    }
}

/// The ring, taken apart into its roles. Each part is owned by one thread.
pub struct Ring {
    /// One per tile.
    pub receivers: Vec<TileWriter>,
    /// One per worker.
    pub workers: Vec<Worker>,
    /// The one committer.
    pub committer: Committer,
    /// One per sink.
    pub sinks: Vec<SinkReader>,
    /// Looks at cursors only.
    pub monitor: Monitor,
}

impl Ring {
    /// Maps and touches all memory.
    ///
    /// # Errors
    /// The kernel refused the memory.
    pub fn new(spec: RingSpec) -> io::Result<Self> {
        assert!(spec.slots > 1 && spec.tiles > 0 && spec.workers > 0 && spec.sinks > 0 && !spec.strip_bytes_max.is_empty());
        assert!(spec.payload_bytes > 0 && spec.tile_bytes.is_multiple_of(spec.payload_bytes));
        let (tile_stride, strip_offsets, packed_stride) =
            layout(&spec).ok_or_else(|| io::Error::other("the ring is larger than any memory"))?;
        let slots = spec.slots as usize;
        let claims = CLAIMS_MIN.max(2 * spec.slots);
        let cursors = |n: usize| (0..n).map(|_| Cursor::default()).collect();
        let bells = |n: usize| (0..n).map(|_| Bell::default()).collect();
        let shared = Arc::new(Shared {
            raw: Mapping::new(tile_stride * spec.tiles * slots)?,
            packed: Mapping::new(packed_stride * slots)?,
            tile_stride,
            packed_stride,
            strip_offsets,
            cells: (0..slots * spec.tiles).map(|_| UnsafeCell::default()).collect(),
            claims: (0..claims).map(|_| AtomicU64::new(0)).collect(),
            strip_bytes: (0..slots * spec.strip_bytes_max.len()).map(|_| AtomicU32::new(0)).collect(),
            statuses: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            received: cursors(spec.tiles),
            worked: cursors(spec.workers),
            committed: cursors(1),
            written: cursors(spec.sinks),
            worker_bells: bells(spec.workers),
            committer_bell: Bell::default(),
            sink_bells: bells(spec.sinks),
            spec,
        });
        let part = || Arc::clone(&shared);
        Ok(Self {
            receivers: (0..shared.spec.tiles).map(|tile| TileWriter { shared: part(), tile, low: 0, limit: 0 }).collect(),
            workers: (0..shared.spec.workers).map(|worker| Worker { shared: part(), worker, next: 0 }).collect(),
            committer: Committer { shared: part(), next: 0 },
            sinks: (0..shared.spec.sinks)
                .map(|sink| SinkReader { shared: part(), sink, next: 0, records: vec![TileRecord::default(); shared.spec.tiles] })
                .collect(),
            monitor: Monitor { shared: part() },
        })
    }
}

/// Bytes from tile to tile, where each strip begins, and bytes from packed image to packed image, each part on cache lines of its own. `None`
/// if any size or offset of the ring does not fit into the address space: the pointers made from them rely on it.
fn layout(spec: &RingSpec) -> Option<(usize, Vec<usize>, usize)> {
    let slots = usize::try_from(spec.slots).ok().filter(|n| *n < 1 << 32)?;
    let tile_stride = spec.tile_bytes.checked_next_multiple_of(64)?;
    let mut strip_offsets = Vec::with_capacity(spec.strip_bytes_max.len());
    let mut packed_stride = 0usize;
    for bytes in &spec.strip_bytes_max {
        strip_offsets.push(packed_stride);
        u32::try_from(*bytes).ok()?;
        packed_stride = packed_stride.checked_add(bytes.checked_next_multiple_of(64)?)?;
    }
    let fits = |bytes: Option<usize>| bytes.filter(|n| *n < isize::MAX as usize - 4096);
    fits(tile_stride.checked_mul(spec.tiles)?.checked_mul(slots))?;
    fits(packed_stride.checked_mul(slots))?;
    Some((tile_stride, strip_offsets, packed_stride))
}

/// The receiver of one tile: the only writer of its bytes.
pub struct TileWriter {
    shared: Arc<Shared>,
    tile: usize,
    low: u64,
    /// A limit that the ring has had, and so still holds.
    limit: u64,
}

impl TileWriter {
    /// Asks for the slot of an image. The first receiver that asks decides for all: either every tile of the image has a place or none has.
    /// An answer is remembered for [`CLAIMS_MIN`] images; a receiver that is even further behind the others is told no.
    pub fn claim(&mut self, image: u64) -> bool {
        assert!(image < IMAGES_MAX, "image {image} is beyond any run");
        let Self { shared, limit, .. } = self;
        let mut below_limit = |image| {
            if image >= *limit {
                *limit = shared.limit();
            }
            image < *limit
        };
        let entry = &shared.claims[(image % shared.claims.len() as u64) as usize];
        loop {
            let seen = entry.load(Ordering::Acquire);
            let has_slot = match (seen >> 1).cmp(&(image + 1)) {
                // Decided by another receiver, whose view of the sinks is this one's now (Acquire).
                Equal => seen & 1 == 1,
                // A far newer image has taken over this entry: the ring has passed this one by.
                Greater => return false,
                Less => below_limit(image),
            };
            let decided = (image + 1) << 1 | u64::from(has_slot);
            if seen == decided || entry.compare_exchange(seen, decided, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                assert!(!has_slot || below_limit(image), "the sinks' cursors only move up");
                return has_slot;
            }
        }
    }

    /// Puts the first packet of a tile in its place and notes the frame's header.
    pub fn open(&mut self, image: u64, header: FrameHeader) {
        assert!(image >= self.low && image < self.limit, "image {image} is not this receiver's to write");
        // SAFETY: `low <= image < limit` was just asserted, so by the cursor rules only this receiver touches the cell; `&mut self` makes
        // it the only one of this tile.
        let cell = unsafe { &mut *self.shared.cell(image, self.tile) };
        *cell = TileCell { tag: image + 1, record: TileRecord { header, ..TileRecord::default() } };
    }

    /// Copies a payload to its place and marks the packet. The image must have been opened.
    #[inline]
    pub fn place(&mut self, image: u64, packet: u16, payload: &[u8]) {
        assert!(image >= self.low && image < self.limit, "image {image} is not this receiver's to write");
        let spec = &self.shared.spec;
        let offset = usize::from(packet) * spec.payload_bytes;
        assert!(
            payload.len() == spec.payload_bytes && offset + payload.len() <= spec.tile_bytes,
            "packet {packet} lies outside the tile"
        );
        // SAFETY: as in `open`.
        let cell = unsafe { &mut *self.shared.cell(image, self.tile) };
        assert!(cell.tag == image + 1, "image {image} was not opened");
        assert!(cell.record.bitmap.set(packet), "packet {packet} of image {image} is placed twice");
        cell.record.packets += 1;
        // SAFETY: source and destination do not overlap (the payload is not ring memory); the destination lies inside this tile by the
        // assert above, and only this receiver touches the tile now (`low <= image < limit`).
        unsafe {
            let to = self.shared.tile_start(image, self.tile).add(offset);
            std::ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len());
        }
    }

    /// Gives all images below `low` to the workers. Lower values than before change nothing.
    pub fn seal_below(&mut self, low: u64) {
        if low > self.low {
            self.low = low;
            self.shared.received[self.tile].set(low);
            self.shared.worker_bells.iter().for_each(Bell::ring);
        }
    }
}

/// A worker: reads tiles, writes its own strips.
pub struct Worker {
    shared: Arc<Shared>,
    worker: usize,
    next: u64,
}

impl Worker {
    /// Waits until images are ready or `timeout` is over; returns how many are ready, at most `most`, from [`Worker::next`] on.
    pub fn wait(&self, most: u64, timeout: Duration) -> u64 {
        let ready = || (lowest(&self.shared.received) - self.next).min(most);
        self.shared.worker_bells[self.worker].answer_here();
        match ready() {
            0 => {
                self.shared.worker_bells[self.worker].sleep(timeout);
                ready()
            }
            n => n,
        }
    }

    /// First image that is not finished.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Strips of this worker.
    pub fn strips(&self) -> impl Iterator<Item = usize> + use<> {
        (self.worker..self.shared.spec.strip_bytes_max.len()).step_by(self.shared.spec.workers)
    }

    fn assert_ready(&self, image: u64) {
        assert!(image >= self.next && image < lowest(&self.shared.received), "image {image} is not ready for the workers");
    }

    /// True if a packet of this image was placed, so that it owns its slot.
    pub fn is_present(&self, image: u64) -> bool {
        self.assert_ready(image);
        // SAFETY: `assert_ready` checked both cursors.
        (0..self.shared.spec.tiles).any(|tile| unsafe { self.shared.record(image, tile) }.is_some())
    }

    /// A tile's record and raw bytes, or `None` if no packet of it was placed. Bytes of packets that did not arrive are old: look at the
    /// bitmap first.
    pub fn tile(&self, image: u64, tile: usize) -> Option<(&TileRecord, &[u8])> {
        self.assert_ready(image);
        // SAFETY: `assert_ready` checked both cursors; while `self` is borrowed the cursor cannot move, so no receiver gets this slot again.
        let record = unsafe { self.shared.record(image, tile) }?;
        // SAFETY: the tile's bytes lie inside the mapping, are initialised (zeroed at start) and have no writer now, as above.
        Some((record, unsafe { std::slice::from_raw_parts(self.shared.tile_start(image, tile), self.shared.spec.tile_bytes) }))
    }

    /// Lets `pack` fill one of this worker's strips from the tiles and notes the length that it returns.
    pub fn pack(&mut self, image: u64, strip: usize, pack: impl FnOnce(&Self, &mut [u8]) -> usize) {
        assert!(strip % self.shared.spec.workers == self.worker, "strip {strip} belongs to another worker");
        assert!(self.is_present(image), "image {image} owns no slot");
        let bytes_max = self.shared.spec.strip_bytes_max[strip];
        // SAFETY: the strip lies inside the packed mapping; the image is present, so the slot is its own, and no role but this worker
        // touches this strip until its cursor passes `image` (the committer and sinks wait for it; strips of workers are disjoint).
        let out = unsafe { std::slice::from_raw_parts_mut(self.shared.strip_start(image, strip), bytes_max) };
        let bytes = pack(self, out);
        assert!(bytes <= bytes_max);
        self.shared.strip_bytes(image, strip).store(bytes as u32, Ordering::Relaxed);
    }

    /// Gives the next `images` images to the committer.
    pub fn finish(&mut self, images: u64) {
        self.next = self.next.checked_add(images).expect("cursors do not overflow");
        assert!(self.next <= lowest(&self.shared.received), "a worker cannot finish images that are not received");
        self.shared.worked[self.worker].set(self.next);
        self.shared.committer_bell.ring();
    }
}

/// The committer: decides the state of each image, in order.
pub struct Committer {
    shared: Arc<Shared>,
    next: u64,
}

impl Committer {
    /// Waits until an image is ready or `timeout` is over.
    pub fn wait(&self, timeout: Duration) -> bool {
        let ready = || lowest(&self.shared.worked) > self.next;
        self.shared.committer_bell.answer_here();
        if !ready() {
            self.shared.committer_bell.sleep(timeout);
        }
        ready()
    }

    /// First image that is not committed.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Commits the next image with the state that `decide` gives for the number of packets placed in each tile.
    pub fn commit(&mut self, decide: impl FnOnce(&mut dyn Iterator<Item = u16>) -> ImageStatus) -> ImageStatus {
        let (shared, image) = (&self.shared, self.next);
        assert!(image < lowest(&shared.worked), "image {image} is not ready for the committer");
        // SAFETY: workers only pass images that all receivers have passed, and this cursor is at `image`.
        let record = |tile| unsafe { shared.record(image, tile) };
        let present = (0..shared.spec.tiles).any(|tile| record(tile).is_some());
        let status = decide(&mut (0..shared.spec.tiles).map(|tile| record(tile).map_or(0, |r| r.packets)));
        assert!(present || status == ImageStatus::Lost, "an image without packets is lost");
        if present {
            // An image without packets does not own its slot, whose state may still be wanted for an older image.
            shared.statuses[shared.slot(image)].store(status as u8, Ordering::Relaxed);
        }
        self.next += 1;
        shared.committed[0].set(self.next);
        shared.sink_bells.iter().for_each(Bell::ring);
        status
    }
}

/// A sink's view: reads committed images in order; its cursor frees the slots.
pub struct SinkReader {
    shared: Arc<Shared>,
    sink: usize,
    next: u64,
    records: Vec<TileRecord>,
}

impl SinkReader {
    /// Waits until an image is ready or `timeout` is over.
    pub fn wait(&self, timeout: Duration) -> bool {
        let ready = || lowest(&self.shared.committed) > self.next;
        self.shared.sink_bells[self.sink].answer_here();
        if !ready() {
            self.shared.sink_bells[self.sink].sleep(timeout);
        }
        ready()
    }

    /// First image that is not taken.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Lends the next image to `take`: its state, tile records and packed strips (none for a lost image). Its slot is free afterwards.
    pub fn take<R>(&mut self, take: impl FnOnce(u64, ImageStatus, &[TileRecord], &mut dyn Iterator<Item = &[u8]>) -> R) -> R {
        let (shared, image) = (&self.shared, self.next);
        assert!(image < lowest(&shared.committed), "image {image} is not ready for the sinks");
        let mut present = false;
        for tile in 0..shared.spec.tiles {
            // SAFETY: committed images have been passed by all receivers, and this sink's cursor is at `image`.
            let record = unsafe { shared.record(image, tile) };
            present |= record.is_some();
            self.records[tile] = record.copied().unwrap_or_default();
        }
        let status = if present {
            ImageStatus::from_u8(shared.statuses[shared.slot(image)].load(Ordering::Relaxed)).expect("the committer stored it")
        } else {
            ImageStatus::Lost
        };
        let strips = if present { shared.spec.strip_bytes_max.len() } else { 0 };
        let mut strips = (0..strips).map(|strip| {
            let bytes = shared.strip_bytes(image, strip).load(Ordering::Relaxed) as usize;
            // SAFETY: the strip was packed by a worker that has passed `image` (it stored `bytes <= strip_bytes_max`), and nobody writes it
            // before this sink's cursor passes `image`, which `&mut self` holds back while the iterator lives.
            unsafe { std::slice::from_raw_parts(shared.strip_start(image, strip).cast_const(), bytes) }
        });
        let result = take(image, status, &self.records, &mut strips);
        self.next += 1;
        self.shared.written[self.sink].set(self.next);
        result
    }
}

/// Looks at the cursors; for progress and the end of a run.
#[derive(Clone)]
pub struct Monitor {
    shared: Arc<Shared>,
}

impl Monitor {
    /// Images that all receivers have sealed.
    pub fn received(&self) -> u64 {
        lowest(&self.shared.received)
    }

    /// Images that are committed.
    pub fn committed(&self) -> u64 {
        lowest(&self.shared.committed)
    }

    /// Images that all sinks have taken.
    pub fn written(&self) -> u64 {
        lowest(&self.shared.written)
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u64 {
        self.shared.spec.slots
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
