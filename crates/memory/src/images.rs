//! The ring of packed images. Image `n` lives in slot `n % slots`; frames have a ring of their own (`ring.rs`), because
//! an image may be the sum of many frames, and a frame may be no image at all.
//!
//! Three roles pass over the images in order, each with a cursor = the first image it has not finished: first
//! *workers*, then the *committer*, then the *reader*.
//! - A worker writes its own strips of image `n` while its cursor is `<= n` and `n < cursor of the reader + slots`.
//! - The committer writes the head of `n` when all workers' cursors are above `n` and its own is not.
//! - The reader reads `n` when the committer's cursor is above `n` and its own is not.
//!
//! A worker moves its cursor past `n` only if there is room for `n`, so the committer too finds the slot free. No two
//! roles touch the same bytes at once: while the reader is at `n`, nobody writes `n + slots`; the other two wait for
//! each other.

use std::io;
use std::sync::Arc;

use konkordia_core::image::{ImageHead, TileRecord};

use crate::cursor::{Cursor, lowest};
use crate::mapping::Mapping;
use crate::sync::{Accesses, AtomicU32, AtomicU64, Ordering, Place};

/// Snapshots of the pedestals that go with some of the images.
#[derive(Clone, Debug)]
pub struct SnapshotSpec {
    /// There is one with every `every_images`-th image; not 0.
    pub every_images: u64,
    /// Snapshots for which there is room: more than can be in the ring at once, which is one for every `every_images`
    /// of its slots, and one more.
    pub slots: u64,
    /// Pixels of each strip.
    pub strip_pixels: Vec<usize>,
}

/// What is known of a packed image.
#[derive(Default)]
struct Cell {
    head: ImageHead,
    records: Box<[TileRecord]>,
}

/// The place of a strip's snapshot in the mapping.
struct SnapshotRange {
    /// In pixels.
    start: usize,
    /// In pixels.
    length: usize,
    /// Its number in the list of accesses.
    access: usize,
}

pub(crate) struct Images {
    slots: u64,
    strip_bytes_max: Vec<usize>,
    strip_offsets: Vec<usize>,
    stride: usize,
    packed: Mapping,
    strip_accesses: Accesses,
    strip_bytes: Box<[AtomicU32]>,
    /// Numbers that a worker gives with each strip.
    strip_numbers: usize,
    numbers: Box<[AtomicU64]>,
    cells: Box<[Place<Cell>]>,
    snapshot: Option<SnapshotSpec>,
    snapshot_offsets: Vec<usize>,
    /// Pixels from snapshot to snapshot.
    snapshot_stride: usize,
    snapshots: Mapping,
    snapshot_accesses: Accesses,
    /// The worker of each strip.
    pub owners: Arc<[usize]>,
    /// One per worker.
    pub finished: Box<[Cursor]>,
    pub published: Cursor,
    /// Of the reader.
    pub taken: Cursor,
}

/// What an [`Images`] is made of.
pub(crate) struct ImagesSpec {
    pub slots: u64,
    pub tiles: usize,
    pub strip_bytes_max: Vec<usize>,
    pub strip_numbers: usize,
    /// The worker of each strip.
    pub owners: Arc<[usize]>,
    pub workers: usize,
    pub snapshot: Option<SnapshotSpec>,
}

/// Offsets of parts of these lengths, each on cache lines of its own, and their sum; `None` if it does not fit into the
/// address space.
fn offsets(lengths: impl Iterator<Item = usize>) -> Option<(Vec<usize>, usize)> {
    let (mut list, mut sum) = (Vec::new(), 0usize);
    for length in lengths {
        list.push(sum);
        sum = sum.checked_add(length.checked_next_multiple_of(64)?)?;
    }
    Some((list, sum))
}

impl Images {
    pub(crate) fn new(spec: ImagesSpec) -> io::Result<Self> {
        let ImagesSpec { slots, tiles, strip_bytes_max, strip_numbers, owners, workers, snapshot } = spec;
        let too_large = || io::Error::other("the ring of images is larger than any memory");
        assert!(snapshot.as_ref().is_none_or(|s| s.every_images > 0 && s.strip_pixels.len() == strip_bytes_max.len()));
        assert!(snapshot.as_ref().is_none_or(|s| s.slots > slots / s.every_images + 1), "see `snapshot_range`");
        if slots >= 1 << 32 || strip_bytes_max.iter().any(|bytes| u32::try_from(*bytes).is_err()) {
            return Err(too_large());
        }
        let (strip_offsets, stride) = offsets(strip_bytes_max.iter().copied()).ok_or_else(too_large)?;
        let pixels = snapshot.iter().flat_map(|s| s.strip_pixels.iter());
        let (snapshot_offsets, snapshot_pixels) = offsets(pixels.copied()).ok_or_else(too_large)?;
        let snapshot_slots = snapshot.as_ref().map_or(0, |s| s.slots);
        let fits = |count: usize, bytes: usize| count.checked_mul(bytes).filter(|n| *n < isize::MAX as usize - 4096);
        let count = slots as usize;
        let packed_bytes = fits(stride, count).ok_or_else(too_large)?;
        let snapshot_bytes =
            snapshot_pixels.checked_mul(4).and_then(|n| fits(n, snapshot_slots as usize)).ok_or_else(too_large)?;
        let numbers = count.checked_mul(strip_bytes_max.len() * strip_numbers).ok_or_else(too_large)?;
        let cursors = |n: usize| (0..n).map(|_| Cursor::default()).collect();
        let cell = || Cell { head: ImageHead::default(), records: vec![TileRecord::default(); tiles].into() };
        Ok(Self {
            slots,
            packed: Mapping::new(packed_bytes)?,
            strip_accesses: Accesses::new(count * strip_bytes_max.len()),
            strip_bytes: (0..count * strip_bytes_max.len()).map(|_| AtomicU32::new(0)).collect(),
            strip_numbers,
            numbers: (0..numbers).map(|_| AtomicU64::new(0)).collect(),
            cells: (0..count).map(|_| Place::new(cell())).collect(),
            snapshots: Mapping::new(snapshot_bytes.max(64))?,
            snapshot_accesses: Accesses::new(snapshot_slots as usize * strip_bytes_max.len()),
            strip_bytes_max,
            strip_offsets,
            stride,
            snapshot,
            snapshot_offsets,
            snapshot_stride: snapshot_pixels,
            owners,
            finished: cursors(workers),
            published: Cursor::default(),
            taken: Cursor::default(),
        })
    }

    pub(crate) fn strips(&self) -> usize {
        self.strip_bytes_max.len()
    }

    /// First image for which there is no room. It only ever grows.
    pub(crate) fn limit(&self) -> u64 {
        self.taken.get().saturating_add(self.slots)
    }

    fn slot(&self, image: u64) -> usize {
        (image % self.slots) as usize
    }

    fn assert_writable(&self, image: u64, worker: usize, strip: usize, limit: u64) {
        assert!(image >= self.finished[worker].get() && image < limit, "image {image} is not this worker's to write");
        assert!(self.owners.get(strip) == Some(&worker), "strip {strip} belongs to another worker");
    }

    /// A strip for its worker to write. `limit` is a limit that this ring once had; limits only grow, so it still
    /// holds.
    #[expect(clippy::mut_from_ref, reason = "the cursor rules give the strip one owner")]
    pub(crate) fn strip_mut(&self, image: u64, worker: usize, strip: usize, limit: u64) -> &mut [u8] {
        self.assert_writable(image, worker, strip, limit);
        self.strip_accesses.write(self.slot(image) * self.strips() + strip);
        let offset = self.slot(image) * self.stride + self.strip_offsets[strip];
        // SAFETY: the strip lies inside the mapping, which was sized for all slots and is initialised (zeroed at
        // start). By the rules of the module this worker alone touches it now: its cursor is at most `image`, so
        // neither committer nor reader look at it, and `image` is below a limit, so the reader is past the image that
        // was here before. The worker holds one strip at a time (`&mut` in `ring.rs`).
        unsafe { std::slice::from_raw_parts_mut(self.packed.start().add(offset), self.strip_bytes_max[strip]) }
    }

    /// Notes how long a strip has become. The caller has just written it.
    pub(crate) fn set_strip_bytes(&self, image: u64, strip: usize, bytes: usize) {
        assert!(bytes <= self.strip_bytes_max[strip]);
        let index = self.slot(image) * self.strips() + strip;
        self.strip_accesses.write(index);
        self.strip_bytes[index].store(bytes as u32, Ordering::Relaxed);
    }

    fn numbers_of(&self, image: u64, strip: usize) -> &[AtomicU64] {
        let first = (self.slot(image) * self.strips() + strip) * self.strip_numbers;
        &self.numbers[first..first + self.strip_numbers]
    }

    /// Notes the numbers that go with a strip.
    pub(crate) fn set_numbers(&self, image: u64, (worker, strip): (usize, usize), limit: u64, numbers: &[u64]) {
        self.assert_writable(image, worker, strip, limit);
        assert_eq!(numbers.len(), self.strip_numbers, "each strip has as many numbers as the ring was made for");
        self.numbers_of(image, strip).iter().zip(numbers).for_each(|(place, number)| place.store(*number, Ordering::Relaxed));
    }

    /// The numbers that go with a strip of an image that the reader has not passed.
    pub(crate) fn numbers(&self, image: u64, strip: usize) -> impl Iterator<Item = u64> + use<'_> {
        self.assert_readable(image);
        self.numbers_of(image, strip).iter().map(|number| number.load(Ordering::Relaxed))
    }

    /// Where the snapshot of a strip is, if the image has one. The snapshot that was there before belongs to image
    /// `image - every_images * snapshot.slots`, which is below `image - slots`: the reader has passed it when there is
    /// room for `image`.
    fn snapshot_range(&self, image: u64, strip: usize) -> Option<SnapshotRange> {
        let spec = self.snapshot.as_ref().filter(|s| image.is_multiple_of(s.every_images))?;
        let slot = (image / spec.every_images % spec.slots) as usize;
        let start = slot * self.snapshot_stride + self.snapshot_offsets[strip];
        Some(SnapshotRange { start, length: spec.strip_pixels[strip], access: slot * self.strips() + strip })
    }

    /// The snapshot of a strip for its worker to write.
    #[expect(clippy::mut_from_ref, reason = "the cursor rules give the strip one owner")]
    pub(crate) fn snapshot_mut(&self, image: u64, worker: usize, strip: usize, limit: u64) -> Option<&mut [f32]> {
        self.assert_writable(image, worker, strip, limit);
        let SnapshotRange { start, length, access } = self.snapshot_range(image, strip)?;
        self.snapshot_accesses.write(access);
        assert!((start + length) * 4 <= self.snapshots.bytes());
        // SAFETY: as in `strip_mut`; the range was checked and is aligned to a cache line, and any bits are an `f32`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.snapshots.start().cast::<f32>().add(start), length) })
    }

    /// Writes the head of the committer's next image and gives it to the reader.
    pub(crate) fn publish(&self, head: ImageHead, records: &[TileRecord]) {
        let image = self.published.get();
        assert!(image < lowest(&self.finished), "image {image} is not ready for the committer");
        // SAFETY: all workers are past `image`, for which they found room, and the reader is not there yet: the cell is
        // the committer's alone, of which there is one (`&mut` in `ring.rs`).
        let cell = unsafe { &mut *self.cells[self.slot(image)].to_write() };
        cell.head = head;
        cell.records.copy_from_slice(records);
        self.published.set(image + 1);
    }

    fn assert_readable(&self, image: u64) {
        assert!(image < self.published.get() && image >= self.taken.get(), "image {image} is not ready for its reader");
    }

    /// Head and tile records of an image that the reader has not passed.
    pub(crate) fn head(&self, image: u64) -> (&ImageHead, &[TileRecord]) {
        self.assert_readable(image);
        // SAFETY: the committer has passed `image`, and nobody writes this cell again before the reader has.
        let cell = unsafe { &*self.cells[self.slot(image)].to_read() };
        (&cell.head, &cell.records)
    }

    /// A packed strip of an image that the reader has not passed.
    pub(crate) fn strip(&self, image: u64, strip: usize) -> &[u8] {
        self.assert_readable(image);
        let index = self.slot(image) * self.strips() + strip;
        self.strip_accesses.read(index);
        let bytes = self.strip_bytes[index].load(Ordering::Relaxed) as usize;
        let offset = self.slot(image) * self.stride + self.strip_offsets[strip];
        // SAFETY: as in `head`; `bytes` is at most the strip's place (`set_strip_bytes`).
        unsafe { std::slice::from_raw_parts(self.packed.start().add(offset).cast_const(), bytes) }
    }

    /// The snapshot of a strip of an image that the reader has not passed.
    pub(crate) fn snapshot(&self, image: u64, strip: usize) -> Option<&[f32]> {
        self.assert_readable(image);
        let SnapshotRange { start, length, access } = self.snapshot_range(image, strip)?;
        self.snapshot_accesses.read(access);
        // SAFETY: as in `head`; the range is that of `snapshot_mut`.
        Some(unsafe { std::slice::from_raw_parts(self.snapshots.start().cast::<f32>().add(start).cast_const(), length) })
    }
}

// SAFETY: the only non-Sync parts are the cells and the two mappings, which are reached by the rules of the module
// documentation: each byte has either one writer or only readers, ordered by Release and Acquire on the cursors.
unsafe impl Sync for Images {}
// SAFETY: as above; nothing in it belongs to one thread.
unsafe impl Send for Images {}
