//! The ring of frames and the roles of a run. Frame `n` lies in slot `n % slots`, so all streams agree without a map or
//! a lock. What the workers make of frames lies in a ring of its own, `images.rs`.
//!
//! Every role passes over the frames in order, with a cursor = the first frame it has not finished. *Receivers* (one
//! per tile) come first, then *workers*, then the *committer*; *frame readers* (which look at raw tiles) also come
//! after the receivers. A receiver may write frame `n` while `n >= its own cursor` and
//! `n < lowest cursor of committer and frame readers + slots`. All other roles may touch frame `n` only when all
//! receivers' cursors are above `n` (for the committer: those of the workers, which are never above the receivers').
//! From this it follows that no two roles ever touch the same bytes at once:
//! - A worker, the committer or a frame reader at frame `n` (cursor `<= n`) keeps the lowest cursor `<= n`, so
//!   receivers stay below `n + slots` and cannot write the slot of `n` again.
//! - A receiver never writes `n` once its cursor is above `n`, and the others wait for that.
//! - A frame of which no packet was placed never owned its slot: the slot may still hold `n - slots`. Tags show this:
//!   the tile cell of a slot says which frame it holds, and a role touches the slot of `n` only if some tile carries
//!   the tag of `n`.
//!
//! The first receiver that asks decides for all receivers whether a frame gets a slot ([`TileWriter::claim`]), so that
//! a frame is taken whole or not at all. The argument above does not depend on this.
//!
//! A receiver may lend places of packets of a frame that it may write, also before the frame is opened
//! ([`TileWriter::lend`]). What is written there stays unseen until [`TileWriter::settle`] marks the packet: the other
//! roles read only packets that are marked, in tiles with the tag of the frame.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use konkordia_core::IMAGES_MAX;
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::image::{ImageHead, TileRecord};
use konkordia_core::plan::CLAIMS_MIN;

use crate::cursor::{Bell, Cursor, Wakeups, Wanted, advance, after_move, lowest};
pub use crate::images::SnapshotSpec;
use crate::images::{Images, ImagesSpec};
pub use crate::loan::Filled;
use crate::loan::{Loan, SPARE, TAKEN, swap};
use crate::mapping::Mapping;
pub use crate::raw_frames::RawFrames;
pub use crate::spec::RingSpec;
use crate::sync::{Accesses, AtomicU64, Count, Ordering, Part, Place, kept};

/// Claims that are remembered: fewer under the tools that take long to make them (`scripts/check-memory`).
const CLAIMS: u64 = if cfg!(feature = "loom") {
    2
} else if cfg!(miri) {
    1024
} else {
    CLAIMS_MIN
};

#[derive(Clone, Copy, Default)]
struct TileCell {
    /// Frame + 1 whose tile this is; 0 = none yet.
    tag: u64,
    record: TileRecord,
}

struct Shared {
    spec: RingSpec,
    raw: Arc<Mapping>,
    images: Images,
    tile_stride: usize,
    section_bytes: usize,
    section_packets: usize,
    raw_accesses: Accesses,
    cells: Box<[Place<TileCell>]>,
    claims: Box<[AtomicU64]>,
    received: Box<[Cursor]>,
    worked: Box<[Cursor]>,
    committed: Cursor,
    copied: Box<[Cursor]>,
    worker_bells: Box<[Bell]>,
    committer_bell: Bell,
    image_bell: Bell,
    reader_bells: Box<[Bell]>,
    /// Frames that got a slot.
    slots_given: Count,
    /// Those of them that the committer has passed, and that each reader of raw frames has passed.
    slots_passed: Box<[Count]>,
}

// SAFETY: the only non-Sync parts are the tile cells and the mapping; the role types below reach them only under the
// cursor rules of the module documentation, which give each byte either one writer or only readers, ordered by
// Release/Acquire on the cursors.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

impl Shared {
    fn slot(&self, image: u64) -> usize {
        (image % self.spec.slots) as usize
    }

    fn index(&self, image: u64, tile: usize) -> usize {
        assert!(tile < self.spec.tiles, "there is no tile {tile}");
        self.slot(image) * self.spec.tiles + tile
    }

    fn cell(&self, image: u64, tile: usize) -> &Place<TileCell> {
        &self.cells[self.index(image, tile)]
    }

    /// Bytes of a tile in which the payload of a packet lies.
    ///
    /// # Panics
    /// If the packet lies outside of the tile.
    fn place_of(&self, packet: u16) -> Range<usize> {
        let (packet, section_bytes) = (usize::from(packet), self.section_bytes);
        // Most tiles have one section: no packet of theirs pays for a division.
        let section = if packet < self.section_packets { 0 } else { packet / self.section_packets };
        let first = (packet - section * self.section_packets) * self.spec.payload_bytes;
        let last = (first + self.spec.payload_bytes).min(section_bytes);
        let (start, end) = (section * section_bytes + first, section * section_bytes + last);
        assert!(start < end && end <= self.spec.tile_bytes, "packet {packet} lies outside the tile");
        start..end
    }

    fn tile_start(&self, image: u64, tile: usize) -> *mut u8 {
        let offset = self.index(image, tile) * self.tile_stride;
        debug_assert!(offset + self.spec.tile_bytes <= self.raw.bytes());
        // SAFETY: slot and tile are in range, so the offset lies inside the mapping, which was sized for all slots and
        // tiles.
        unsafe { self.raw.start().add(offset) }
    }

    /// First frame for which there is no slot. It only ever grows.
    fn limit(&self) -> u64 {
        let copied = if kept(Part::RawHold) { lowest(&self.copied) } else { u64::MAX };
        self.committed.get().min(copied).saturating_add(self.spec.slots)
    }

    /// The record of a tile, if packets of it were placed. The caller is a role whose turn it is at `image`.
    ///
    /// # Safety
    /// All receivers' cursors must be above `image`, and the caller's own cursor must not be.
    unsafe fn record(&self, image: u64, tile: usize) -> Option<&TileRecord> {
        // SAFETY: by the caller's promise no receiver writes this cell now (module documentation), so a shared
        // reference is sound.
        let cell = unsafe { &*self.cell(image, tile).to_read() };
        (cell.tag == image + 1).then_some(&cell.record)
    }

    /// Counts a frame that is passed, if it had a slot: its claim or a tile says so. 0 is the committer, then readers.
    ///
    /// # Safety
    /// As [`Self::record`].
    unsafe fn count_passed(&self, number: usize, image: u64) {
        let claim = self.claims[(image % self.claims.len() as u64) as usize].load(Ordering::Relaxed);
        // SAFETY: the caller keeps the conditions of `record`.
        let is_open = || (0..self.spec.tiles).any(|tile| unsafe { self.record(image, tile) }.is_some());
        if claim == (image + 1) << 1 | 1 || is_open() {
            self.slots_passed[number].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A tile's record and raw bytes, if packets of it were placed.
    ///
    /// # Safety
    /// As [`Self::record`], and the caller's cursor must not move while the result lives.
    unsafe fn tile(&self, image: u64, tile: usize) -> Option<(&TileRecord, &[u8])> {
        // SAFETY: the caller keeps the conditions of `record`, which are part of those of this function.
        let record = unsafe { self.record(image, tile) }?;
        self.raw_accesses.read(self.index(image, tile));
        // SAFETY: the tile's bytes lie inside the mapping, are initialised (zeroed at start) and have no writer while
        // the caller's cursor stays.
        Some((record, unsafe { std::slice::from_raw_parts(self.tile_start(image, tile), self.spec.tile_bytes) }))
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
    /// The one reader of packed images.
    pub image_reader: ImageReader,
    /// One per reader of raw frames.
    pub frame_readers: Vec<FrameReader>,
    /// Looks at cursors only.
    pub monitor: Monitor,
}

impl Ring {
    /// Maps and touches all memory.
    ///
    /// # Errors
    /// The kernel refused the memory.
    pub fn new(spec: RingSpec) -> io::Result<Self> {
        assert!(spec.slots > 1 && spec.packed_slots > 0 && spec.tiles > 0);
        assert!(spec.shares.iter().any(|share| *share > 0), "somebody makes the strips");
        assert!(!spec.strip_bytes_max.is_empty() && spec.payload_bytes > 0 && spec.tile_bytes > 0);
        let (tile_stride, raw_bytes) = spec.layout().ok_or_else(|| io::Error::other("the ring is larger than any memory"))?;
        let (section_bytes, section_packets) = spec.section();
        let claims = CLAIMS.max(2 * spec.slots);
        let cursors = |n: usize| (0..n).map(|_| Cursor::default()).collect();
        let bells = |n: usize| (0..n).map(|_| Bell::default()).collect();
        let images = Images::new(ImagesSpec {
            slots: spec.packed_slots,
            tiles: spec.tiles,
            strip_bytes_max: spec.strip_bytes_max.clone(),
            strip_numbers: spec.strip_numbers,
            owners: spec.owners(),
            workers: spec.shares.len(),
            snapshot: spec.snapshot.clone(),
        })?;
        let raw = if spec.reserved_pages { Mapping::reserved(raw_bytes) } else { None };
        let raw = Arc::new(raw.map_or_else(|| Mapping::new(raw_bytes), Ok)?);
        let shared = Arc::new(Shared {
            raw,
            images,
            tile_stride,
            section_bytes,
            section_packets,
            raw_accesses: Accesses::new(spec.slots as usize * spec.tiles),
            cells: (0..spec.slots as usize * spec.tiles).map(|_| Place::new(TileCell::default())).collect(),
            claims: (0..claims).map(|_| AtomicU64::new(0)).collect(),
            received: cursors(spec.tiles),
            worked: cursors(spec.shares.len()),
            committed: Cursor::default(),
            copied: cursors(spec.frame_readers),
            worker_bells: bells(spec.shares.len()),
            committer_bell: Bell::default(),
            image_bell: Bell::default(),
            reader_bells: bells(spec.frame_readers),
            slots_given: Count::new(0),
            slots_passed: (0..=spec.frame_readers).map(|_| Count::new(0)).collect(),
            spec,
        });
        let part = || Arc::clone(&shared);
        let spec = &shared.spec;
        Ok(Self {
            receivers: (0..spec.tiles).map(|tile| TileWriter::new(part(), tile)).collect(),
            workers: (0..spec.shares.len())
                .map(|worker| Worker { shared: part(), worker, next: 0, images_end: 0, room: 0 })
                .collect(),
            committer: Committer { shared: part(), next: 0 },
            image_reader: ImageReader { shared: part(), next: 0 },
            frame_readers: (0..spec.frame_readers).map(|reader| FrameReader { shared: part(), reader, next: 0 }).collect(),
            monitor: Monitor { shared: part() },
        })
    }
}

/// The receiver of one tile: the only writer of its bytes.
pub struct TileWriter {
    shared: Arc<Shared>,
    tile: usize,
    low: u64,
    /// A limit that the ring once had. Limits only grow, so it still holds.
    limit: u64,
    /// When the packets that are now placed were taken from their source.
    now_ns: u64,
    loan: Loan,
}

impl TileWriter {
    fn new(shared: Arc<Shared>, tile: usize) -> Self {
        let packets = shared.spec.sections * shared.section_packets;
        Self { shared, tile, low: 0, limit: 0, now_ns: 0, loan: Loan::new(packets) }
    }

    /// Asks for the slot of an image. The first receiver that asks decides for all: either every tile of the image has
    /// a place or none has. An answer is remembered for [`CLAIMS_MIN`] images; a receiver that is even further behind
    /// the others gets no slot.
    pub fn claim(&mut self, image: u64) -> bool {
        assert!(image < IMAGES_MAX, "image {image} is beyond any run");
        let index = (image % self.shared.claims.len() as u64) as usize;
        let acquire = if kept(Part::ClaimAcquire) { Ordering::Acquire } else { Ordering::Relaxed };
        let release = if kept(Part::ClaimRelease) { Ordering::AcqRel } else { acquire };
        loop {
            let seen = self.shared.claims[index].load(acquire);
            let has_slot = match (seen >> 1).cmp(&(image + 1)) {
                // Decided by another receiver, whose view of the cursors is visible here now (Acquire).
                Equal => seen & 1 == 1,
                // A far newer image has taken over this entry: the ring is past this image.
                Greater => return false,
                Less => self.has_room(image),
            };
            let decided = (image + 1) << 1 | u64::from(has_slot);
            let (entry, is_known) = (&self.shared.claims[index], seen == decided);
            if is_known || entry.compare_exchange(seen, decided, release, acquire).is_ok() {
                assert!(!has_slot || self.has_room(image), "cursors only move up");
                if has_slot && !is_known {
                    self.shared.slots_given.fetch_add(1, Ordering::AcqRel);
                }
                return has_slot;
            }
        }
    }

    /// Says when the packets that follow were taken from their source, ns since the run was armed.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Puts the first packet of a tile in its place and notes the frame's header and the time.
    pub fn open(&mut self, image: u64, header: FrameHeader) {
        assert!(image >= self.low && image < self.limit, "image {image} is not this receiver's to write");
        // SAFETY: `low <= image < limit` was just asserted, so by the cursor rules only this receiver touches the cell;
        // `&mut self` makes it the only one of this tile.
        let cell = unsafe { &mut *self.shared.cell(image, self.tile).to_write() };
        let record = TileRecord { header, received_ns: self.now_ns, ..TileRecord::default() };
        *cell = TileCell { tag: image + 1, record };
    }

    /// Replaces the header of a tile, for packets of which only one has it. The image must have been opened.
    pub fn describe(&mut self, image: u64, header: FrameHeader) {
        assert!(image >= self.low && image < self.limit, "image {image} is not this receiver's to write");
        // SAFETY: as in `open`.
        let cell = unsafe { &mut *self.shared.cell(image, self.tile).to_write() };
        assert!(cell.tag == image + 1, "image {image} was not opened");
        cell.record.header = header;
    }

    /// Copies a payload to its place and marks the packet. The image must have been opened. Payloads of a loan are in
    /// the way, unless they were taken or rescued.
    #[inline]
    pub fn place(&mut self, image: u64, packet: u16, payload: &[u8]) {
        let place = self.shared.place_of(packet);
        assert!(payload.len() == place.len(), "the payload of packet {packet} has {} bytes", payload.len());
        self.mark(image, packet);
        self.shared.raw_accesses.write(self.shared.index(image, self.tile));
        // SAFETY: source and destination do not overlap (the payload is not ring memory); the destination lies inside
        // this tile by `place_of`, and only this receiver touches the tile now (`mark` asserts `low <= image < limit`).
        unsafe {
            let to = self.shared.tile_start(image, self.tile).add(place.start);
            std::ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len());
        }
    }

    /// Marks a packet of an opened image as placed.
    #[inline]
    fn mark(&mut self, image: u64, packet: u16) {
        assert!(image >= self.low && image < self.limit, "image {image} is not this receiver's to write");
        // SAFETY: as in `open`.
        let cell = unsafe { &mut *self.shared.cell(image, self.tile).to_write() };
        assert!(cell.tag == image + 1, "image {image} was not opened");
        assert!(cell.record.bitmap.set(packet), "packet {packet} of image {image} is placed twice");
        cell.record.packets += 1;
    }

    /// Lends the places of some packets of an image, one behind the other, to be filled. The image need not be opened.
    /// There is one loan at a time; an older one is forgotten with what was not settled.
    ///
    /// # Panics
    /// If the image is not this receiver's to write, or if a packet lies outside the tile or is placed.
    pub fn lend(&mut self, image: u64, packets: Range<u16>) -> &mut [u8] {
        assert!(image >= self.low && image < self.limit, "image {image} is not this receiver's to write");
        let is_in_tile = !packets.is_empty() && usize::from(packets.end) <= self.loan.at.len();
        assert!(is_in_tile, "packets {packets:?} lie outside the tile");
        // SAFETY: as in `open`, and it is only read.
        let cell = unsafe { &*self.shared.cell(image, self.tile).to_read() };
        let is_placed = |packet| cell.tag == image + 1 && cell.record.bitmap.has(packet);
        assert!(!packets.clone().any(is_placed), "a packet of {packets:?} of image {image} is placed");
        let bytes = self.shared.place_of(packets.start).start..self.shared.place_of(packets.end - 1).end;
        self.loan.begin(image, packets);
        &mut self.bytes_mut(image)[bytes]
    }

    /// The payload of `bytes` that was written to the place of `packet` of the loan.
    ///
    /// # Panics
    /// If `packet` is not in the loan, was asked for before, or has a smaller place.
    pub fn filled(&mut self, packet: u16, bytes: usize) -> Filled {
        assert!(bytes <= self.shared.place_of(packet).len(), "the place of packet {packet} has no {bytes} bytes");
        self.loan.take(packet, bytes)
    }

    /// Ends the loan. What was not taken is forgotten.
    pub fn end_loan(&mut self) {
        self.loan.end();
    }

    /// Allocates the memory that [`TileWriter::rescue`] may need.
    pub fn reserve_spare(&mut self) {
        self.loan.spare = vec![0; self.shared.spec.tile_bytes];
    }

    /// Moves the payloads of the loan that were not taken yet out of the ring, so that payloads may be placed there
    /// that were not part of the loan.
    pub fn rescue(&mut self) {
        if self.loan.left == 0 {
            return;
        }
        let mut spare = std::mem::take(&mut self.loan.spare);
        spare.resize(self.shared.spec.tile_bytes, 0);
        for packet in self.loan.packets.clone() {
            let at = self.loan.at[usize::from(packet)];
            if at == TAKEN || at == SPARE {
                continue;
            }
            let to = self.shared.place_of(packet);
            let bytes = to.len().min(self.shared.place_of(at).len());
            spare[to][..bytes].copy_from_slice(self.payload(Filled { image: self.loan.image, packet, at, bytes }));
            self.loan.at[usize::from(packet)] = SPARE;
        }
        self.loan.spare = spare;
    }

    /// The bytes of a payload that was written to a lent place.
    pub fn payload(&self, filled: Filled) -> &[u8] {
        if filled.at == SPARE {
            return &self.loan.spare[self.shared.place_of(filled.packet)][..filled.bytes];
        }
        let place = self.shared.place_of(filled.at);
        self.shared.raw_accesses.read(self.shared.index(filled.image, self.tile));
        // SAFETY: the place lies inside the tile, whose bytes are initialised. Only this receiver writes tiles of this
        // number, in whichever slot and whatever the cursors say, and `&self` keeps it from doing so.
        unsafe { std::slice::from_raw_parts(self.shared.tile_start(filled.image, self.tile).add(place.start), filled.bytes) }
    }

    /// Marks a packet whose payload was written to a lent place. If that is not the packet's own place, the payload is
    /// moved there; a payload of the loan that lies there and is not settled yet gives way. The image must have been
    /// opened; it need not be that of the loan.
    ///
    /// # Panics
    /// As [`TileWriter::place`].
    pub fn settle(&mut self, image: u64, packet: u16, filled: Filled) {
        let to = self.shared.place_of(packet);
        assert!(filled.bytes == to.len(), "the payload of packet {packet} has {} bytes", filled.bytes);
        assert!(filled.image == self.loan.image, "a payload of an older loan");
        self.mark(image, packet);
        if filled.at == SPARE {
            // All payloads of the loan are there then, so none has to give way.
            let spare = std::mem::take(&mut self.loan.spare);
            let payload = &spare[self.shared.place_of(filled.packet)][..filled.bytes];
            self.bytes_mut(image)[to].copy_from_slice(payload);
            self.loan.spare = spare;
            return;
        }
        let from = self.shared.place_of(filled.at);
        if self.shared.slot(image) != self.shared.slot(filled.image) {
            self.shared.raw_accesses.read(self.shared.index(filled.image, self.tile));
            self.shared.raw_accesses.write(self.shared.index(image, self.tile));
            // SAFETY: both places lie inside tiles of this number, in different slots, so they do not overlap. Only
            // this receiver writes such tiles, and nobody else touches that of `image` (`mark` asserts `low <= image <
            // limit`).
            unsafe {
                let (source, target) =
                    (self.shared.tile_start(filled.image, self.tile), self.shared.tile_start(image, self.tile));
                std::ptr::copy_nonoverlapping(source.add(from.start), target.add(to.start), to.len());
            }
            return;
        }
        if filled.at == packet {
            return;
        }
        // The slot is that of `image` now, so all of it is this receiver's.
        if self.loan.gives_way(packet, filled.at) {
            swap(self.bytes_mut(image), from.start, to.start, to.len());
        } else {
            self.bytes_mut(image).copy_within(from.start..from.start + to.len(), to.start);
        }
    }

    /// All bytes of this receiver's tile of an image.
    fn bytes_mut(&mut self, image: u64) -> &mut [u8] {
        assert!(image >= self.low && image < self.limit, "image {image} is not this receiver's to write");
        self.shared.raw_accesses.write(self.shared.index(image, self.tile));
        // SAFETY: the bytes lie inside the mapping and are initialised. `low <= image < limit` was just asserted, so by
        // the cursor rules only this receiver touches the tile, and `&mut self` makes this its only reference.
        unsafe { std::slice::from_raw_parts_mut(self.shared.tile_start(image, self.tile), self.shared.spec.tile_bytes) }
    }

    /// First image that is not sealed.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// Gives all images below `low` to the workers. Lower values than before change nothing.
    pub fn seal_below(&mut self, low: u64) {
        let from = self.low;
        self.low = low.max(from);
        if low > from && advance(&self.shared.received, self.tile, from, low) {
            if kept(Part::WakeWorkers) {
                self.shared.worker_bells.iter().for_each(|bell| bell.ring(Wanted::Work));
            }
            if kept(Part::WakeFrameReaders) {
                self.shared.reader_bells.iter().for_each(|bell| bell.ring(Wanted::Work));
            }
        }
    }

    /// True if there is a slot for `image` now.
    pub fn has_room(&mut self, image: u64) -> bool {
        if image >= self.limit {
            self.limit = self.shared.limit();
        }
        image < self.limit
    }
}

/// A worker: reads tiles, writes its own strips.
pub struct Worker {
    shared: Arc<Shared>,
    worker: usize,
    next: u64,
    images_end: u64,
    /// A limit that the ring of images once had. Limits only grow, so it still holds.
    room: u64,
}

impl Worker {
    /// Waits until frames are ready or `timeout` is over; returns how many are ready, at most `most`, from
    /// [`Worker::next`] on.
    pub fn wait(&self, most: u64, timeout: Duration) -> u64 {
        let ready = || (lowest(&self.shared.received) - self.next).min(most);
        self.shared.worker_bells[self.worker].wait(Wanted::Work, timeout, ready)
    }

    /// First frame that is not finished.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Strips of this worker.
    pub fn strips(&self) -> impl Iterator<Item = usize> + use<> {
        let (owners, worker) = (Arc::clone(&self.shared.images.owners), self.worker);
        (0..owners.len()).filter(move |strip| owners[*strip] == worker)
    }

    fn assert_ready(&self, frame: u64) {
        assert!(frame >= self.next && frame < lowest(&self.shared.received), "frame {frame} is not ready for the workers");
    }

    /// A tile's record and raw bytes, or `None` if no packet of it was placed. Bytes of packets that did not arrive are
    /// those of older frames: look at the bitmap first.
    pub fn tile(&self, frame: u64, tile: usize) -> Option<(&TileRecord, &[u8])> {
        self.assert_ready(frame);
        // SAFETY: `assert_ready` checked both cursors; while `self` is borrowed the cursor cannot move, so no receiver
        // gets this slot again.
        unsafe { self.shared.tile(frame, tile) }
    }

    /// The memory of the raw frames, for a device that reads it by itself.
    pub fn raw_frames(&self) -> RawFrames {
        RawFrames::new(Arc::clone(&self.shared.raw), self.shared.tile_stride)
    }

    /// Where the tiles of a frame begin in [`Self::raw_frames`]. Their bytes may be read, of packets that came, until
    /// this worker finishes the frame.
    pub fn frame_start(&self, frame: u64) -> usize {
        self.assert_ready(frame);
        self.shared.slot(frame) * self.shared.spec.tiles * self.shared.tile_stride
    }

    /// True if there is room for an image.
    pub fn has_room(&mut self, image: u64) -> bool {
        if image >= self.room {
            self.room = self.shared.images.limit();
        }
        image < self.room
    }

    /// Waits until there is more room than [`Self::has_room`] last found, or `timeout` is over.
    pub fn wait_for_room(&self, timeout: Duration) {
        let more = || self.shared.images.limit() - self.room;
        self.shared.worker_bells[self.worker].wait(Wanted::Room, timeout, more);
    }

    /// Lets `pack` fill one of this worker's strips of an image and notes the length that it returns.
    pub fn pack(&mut self, image: u64, strip: usize, pack: impl FnOnce(&Self, &mut [u8]) -> usize) {
        // `&mut self` makes this the worker's only loan: `pack` gets a shared `self`, which cannot lend another strip.
        let this = &*self;
        let bytes = pack(this, this.shared.images.strip_mut(image, this.worker, strip, this.room));
        this.shared.images.set_strip_bytes(image, strip, bytes);
    }

    /// Notes the numbers that go with one of this worker's strips of an image.
    ///
    /// # Panics
    /// If there are not as many as the ring was made for.
    pub fn set_numbers(&mut self, image: u64, strip: usize, numbers: &[u64]) {
        self.shared.images.set_numbers(image, (self.worker, strip), self.room, numbers);
    }

    /// The pedestals that go with a strip of an image, to be written; `None` for most images.
    pub fn snapshot(&mut self, image: u64, strip: usize) -> Option<&mut [f32]> {
        self.shared.images.snapshot_mut(image, self.worker, strip, self.room)
    }

    /// Gives the next `frames` frames to the committer, and all images below `images_end`, for which there must be
    /// room.
    pub fn finish(&mut self, frames: u64, images_end: u64) {
        let from = self.next;
        self.next = from.checked_add(frames).expect("cursors do not overflow");
        assert!(self.next <= lowest(&self.shared.received), "a worker cannot finish frames that are not received");
        if images_end > self.images_end {
            assert!(self.has_room(images_end - 1), "there is no room for image {}", images_end - 1);
            self.images_end = images_end;
            self.shared.images.finished[self.worker].set(images_end);
        }
        if advance(&self.shared.worked, self.worker, from, self.next) && kept(Part::WakeCommitter) {
            self.shared.committer_bell.ring(Wanted::Work);
        }
    }
}

/// The committer: looks at the frames in order and decides the state of each image.
pub struct Committer {
    shared: Arc<Shared>,
    next: u64,
}

impl Committer {
    /// Waits until a frame is ready or `timeout` is over.
    pub fn wait(&self, timeout: Duration) -> bool {
        let ready = || lowest(&self.shared.worked) - self.next;
        self.shared.committer_bell.wait(Wanted::Work, timeout, ready) > 0
    }

    /// First frame that is not committed.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The record of a tile of the next frame, if packets of it were placed.
    pub fn record(&self, tile: usize) -> Option<&TileRecord> {
        assert!(self.next < lowest(&self.shared.worked), "frame {} is not ready for the committer", self.next);
        // SAFETY: workers only pass frames that all receivers have passed, and this cursor is at the frame while `self`
        // is borrowed.
        unsafe { self.shared.record(self.next, tile) }
    }

    /// Gives the slot of the next frame back.
    pub fn pass(&mut self) {
        assert!(self.next < lowest(&self.shared.worked), "frame {} is not ready for the committer", self.next);
        // SAFETY: as in `record`.
        unsafe { self.shared.count_passed(0, self.next) };
        self.next += 1;
        self.shared.committed.set(self.next);
    }

    /// Gives the next image to its reader.
    pub fn publish(&mut self, head: ImageHead, records: &[TileRecord]) {
        self.shared.images.publish(head, records);
        after_move();
        if kept(Part::WakeImageReader) {
            self.shared.image_bell.ring(Wanted::Work);
        }
    }
}

/// Takes committed images in order; its cursor frees their slots.
pub struct ImageReader {
    shared: Arc<Shared>,
    next: u64,
}

/// A committed image in the ring.
pub struct ImageView<'a> {
    images: &'a Images,
    /// Position in the file.
    pub image: u64,
    /// What the committer says of it.
    pub head: &'a ImageHead,
    /// One record per tile.
    pub records: &'a [TileRecord],
}

impl<'a> ImageView<'a> {
    /// Strips of the image.
    pub fn strips(&self) -> usize {
        self.images.strips()
    }

    /// A packed strip. If the image was not packed, its bytes mean nothing.
    pub fn strip(&self, strip: usize) -> &'a [u8] {
        self.images.strip(self.image, strip)
    }

    /// The numbers that go with a strip. If the image was not packed, they mean nothing.
    pub fn numbers(&self, strip: usize) -> impl Iterator<Item = u64> + use<'a> {
        self.images.numbers(self.image, strip)
    }

    /// The pedestals that go with a strip, for images that have them.
    pub fn snapshot(&self, strip: usize) -> Option<&'a [f32]> {
        self.images.snapshot(self.image, strip)
    }
}

impl ImageReader {
    /// Waits until an image is ready or `timeout` is over.
    pub fn wait(&self, timeout: Duration) -> bool {
        let ready = || self.shared.images.published.get() - self.next;
        self.shared.image_bell.wait(Wanted::Work, timeout, ready) > 0
    }

    /// First image that is not taken.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Lends the next image to `take`. Its slot is free afterwards.
    pub fn take<R>(&mut self, take: impl FnOnce(&ImageView<'_>) -> R) -> R {
        let images = &self.shared.images;
        let (head, records) = images.head(self.next);
        let result = take(&ImageView { images, image: self.next, head, records });
        self.next += 1;
        images.taken.set(self.next);
        after_move();
        if kept(Part::WakeForRoom) {
            self.shared.worker_bells.iter().for_each(|bell| bell.ring(Wanted::Room));
        }
        result
    }
}

/// Reads raw frames in order, in parallel to the workers; holds their slots while it does.
pub struct FrameReader {
    shared: Arc<Shared>,
    reader: usize,
    next: u64,
}

impl FrameReader {
    /// Waits until a frame is ready or `timeout` is over.
    pub fn wait(&self, timeout: Duration) -> bool {
        let ready = || lowest(&self.shared.received) - self.next;
        self.shared.reader_bells[self.reader].wait(Wanted::Work, timeout, ready) > 0
    }

    /// First frame that is not taken.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A tile of the next frame: record and bytes, or `None` if no packet of it was placed. Bytes of packets that did
    /// not arrive are those of older frames.
    pub fn tile(&self, tile: usize) -> Option<(&TileRecord, &[u8])> {
        assert!(self.next < lowest(&self.shared.received), "frame {} is not ready for its readers", self.next);
        // SAFETY: all receivers have passed the frame, and this reader's cursor stays at it while `self` is borrowed.
        unsafe { self.shared.tile(self.next, tile) }
    }

    /// Gives the frame back.
    pub fn pass(&mut self) {
        assert!(self.next < lowest(&self.shared.received), "frame {} is not ready for its readers", self.next);
        // SAFETY: as in `tile`.
        unsafe { self.shared.count_passed(1 + self.reader, self.next) };
        self.next += 1;
        self.shared.copied[self.reader].set(self.next);
    }
}

/// Looks at the cursors; for progress and the end of a run.
#[derive(Clone)]
pub struct Monitor {
    shared: Arc<Shared>,
}

impl Monitor {
    /// Frames that all receivers have sealed.
    pub fn received(&self) -> u64 {
        lowest(&self.shared.received)
    }

    /// Frames that the committer, and all readers of raw frames, have passed.
    pub fn committed(&self) -> u64 {
        self.shared.committed.get().min(lowest(&self.shared.copied))
    }

    /// Images that are committed.
    pub fn published(&self) -> u64 {
        self.shared.images.published.get()
    }

    /// Images that were taken out of the ring.
    pub fn taken(&self) -> u64 {
        self.shared.images.taken.get()
    }

    /// Slots whose frame not everybody has passed; never more than there are, because what was given is read first.
    pub fn slots_used(&self) -> u64 {
        let given = self.shared.slots_given.load(Ordering::Acquire);
        let passed = self.shared.slots_passed.iter().map(|passed| passed.load(Ordering::Relaxed)).min();
        given.saturating_sub(passed.unwrap_or(0))
    }

    /// How often each thread woke up: the workers, the committer, the reader of images, the readers of raw frames.
    pub fn wakeups(&self) -> impl Iterator<Item = Wakeups> {
        let s = &*self.shared;
        s.worker_bells.iter().chain([&s.committer_bell, &s.image_bell]).chain(&s.reader_bells).map(Bell::wakeups)
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "ring_tests.rs"]
mod tests;
