//! The memory that a socket shares with the kernel: chunks for packets, the *fill ring* with chunks that are free, and
//! the *receive ring* with chunks that have parts of packets. This file is the only one that touches this memory.
//!
//! Who may touch a chunk: the kernel while the chunk is in a fill ring, or taken from there and not yet in a receive
//! ring; this process from the moment when it takes it out of a receive ring until it puts it into the fill ring. A
//! [`Chunk`] is the right to do so. It cannot be copied; only [`ReceiveRing::take`] and [`PacketMemory::register`] make
//! one, and [`FillRing::give`] uses it up.
//!
//! Who writes an index: the consumer of a ring publishes its index with `Release` when it has read the entries, and the
//! producer when it has written them; each reads the other's with `Acquire`. So entries, and the chunks that they name,
//! are seen as they were written (Documentation/networking/af_xdp.rst; `tools/lib/bpf/xsk.h`).

use super::indices::Indices;
use super::sys::{self, Mapping};
use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of metadata in front of a frame, where the program puts some.
pub const METADATA_BYTES: usize = 16;

/// Memory for the packets of one queue, divided into chunks.
pub(crate) struct PacketMemory {
    mapping: Mapping,
    chunk_bytes: u32,
    chunk_count: u32,
    id: u64,
    is_huge: bool,
}

/// The right to use a chunk, with the part of a packet in it.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Where the data begin, in bytes from the beginning of the memory.
    address: u64,
    bytes: u32,
    /// Further parts of the packet follow in the next chunk.
    pub continues: bool,
    /// Of which memory.
    memory: u64,
}

impl Chunk {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

impl PacketMemory {
    /// Makes memory of `chunk_count` chunks and registers it with a socket, which is not bound yet. All chunks are
    /// free, and the caller has them.
    pub(crate) fn register(socket: BorrowedFd<'_>, chunk_bytes: u32, chunk_count: u32) -> io::Result<(Self, Vec<Chunk>)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        assert!(chunk_bytes.is_power_of_two());
        let bytes = chunk_bytes as usize * chunk_count as usize;
        let (mapping, is_huge) = Mapping::memory(bytes)?;
        sys::register_memory(socket, &mapping, bytes, chunk_bytes)?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let chunk = |n: u32| Chunk { address: u64::from(n) * u64::from(chunk_bytes), bytes: 0, continues: false, memory: id };
        Ok((Self { mapping, chunk_bytes, chunk_count, id, is_huge }, (0..chunk_count).map(chunk).collect()))
    }

    /// True if it lies in huge pages that were reserved.
    pub(crate) fn is_huge(&self) -> bool {
        self.is_huge
    }

    /// The part of a packet that is in a chunk.
    ///
    /// # Panics
    /// If the chunk is of another memory.
    pub(crate) fn data<'a>(&'a self, chunk: &'a Chunk) -> &'a [u8] {
        assert_eq!(chunk.memory, self.id, "a chunk of another queue");
        // SAFETY: `take` (or `register`, with no bytes) checked that the range lies in the memory. The chunk gives the
        // right to use it, so nobody writes to it while the chunk is borrowed; the memory is zeroed or written by the
        // kernel before the entry was published, which `begin` has seen with Acquire.
        unsafe { std::slice::from_raw_parts(self.mapping.start().as_ptr().add(chunk.address as usize), chunk.bytes()) }
    }
}

impl PacketMemory {
    /// What the program has put in front of a frame whose first chunk this is; `None` if there is no room for it in the
    /// chunk. Whether there is any, only the program knows.
    ///
    /// # Panics
    /// If the chunk is of another memory.
    pub(crate) fn metadata<'a>(&'a self, chunk: &'a Chunk) -> Option<&'a [u8; METADATA_BYTES]> {
        assert_eq!(chunk.memory, self.id, "a chunk of another queue");
        let before = chunk.address & u64::from(self.chunk_bytes - 1);
        if before < METADATA_BYTES as u64 {
            return None;
        }
        // SAFETY: the bytes lie in the same chunk as the data (compared above), which lies in the memory (`data`); the
        // right to the chunk is the right to them, and they are zeroed or written by the kernel before the entry was
        // published.
        let bytes = unsafe {
            let data = self.mapping.start().as_ptr().add(chunk.address as usize);
            std::slice::from_raw_parts(data.sub(METADATA_BYTES), METADATA_BYTES)
        };
        bytes.first_chunk()
    }
}

/// The indices and flags of a ring, and its entries of type `T`, in memory shared with the kernel.
struct Shared<T> {
    mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
}

// SAFETY: the pointers go into the mapping that the structure owns, which belongs to no thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn map(socket: BorrowedFd<'_>, page: libc::off_t, at: &libc::xdp_ring_offset, entries: u32) -> io::Result<Self> {
        let bytes = at.desc as usize + entries as usize * size_of::<T>();
        let mapping = Mapping::ring(socket, page, bytes)?;
        for (offset, of, align) in [
            (at.producer, size_of::<AtomicU32>(), align_of::<AtomicU32>()),
            (at.consumer, size_of::<AtomicU32>(), align_of::<AtomicU32>()),
            (at.flags, size_of::<AtomicU32>(), align_of::<AtomicU32>()),
            (at.desc, entries as usize * size_of::<T>(), align_of::<T>()),
        ] {
            assert!(offset as usize + of <= bytes && (offset as usize).is_multiple_of(align), "the layout of a ring");
        }
        let start = mapping.start();
        // SAFETY: all four offsets lie in the mapping, which begins at a page, and are aligned (asserted above).
        let (producer, consumer, flags, entries) = unsafe {
            (
                start.add(at.producer as usize).cast(),
                start.add(at.consumer as usize).cast(),
                start.add(at.flags as usize).cast(),
                start.add(at.desc as usize).cast(),
            )
        };
        Ok(Self { mapping, producer, consumer, flags, entries })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the pointer is valid and aligned for as long as the mapping is (see `map`); the kernel and this
        // process touch the number only in one piece.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as `producer`.
        unsafe { self.flags.as_ref() }
    }

    /// The entry at a place, which the caller has checked to be below the number of entries.
    fn entry(&self, place: usize) -> NonNull<T> {
        debug_assert!(place * size_of::<T>() < self.mapping.bytes());
        // SAFETY: `Indices::next` is below the number of entries, which lie in the mapping (see `map`).
        unsafe { self.entries.add(place) }
    }
}

/// The ring from which this process takes packets.
pub(crate) struct ReceiveRing {
    shared: Shared<libc::xdp_desc>,
    indices: Indices,
}

impl ReceiveRing {
    /// Maps the ring of a socket whose ring was set to `entries`.
    pub(crate) fn map(socket: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let offsets = sys::ring_offsets(socket)?;
        let shared = Shared::map(socket, libc::XDP_PGOFF_RX_RING, &offsets.rx, entries)?;
        let own = shared.consumer().load(Ordering::Relaxed);
        let other = shared.producer().load(Ordering::Acquire);
        Ok(Self { shared, indices: Indices::new(entries, own, other) })
    }

    /// Looks what is there, and returns the number of chunks that can be taken until the next call.
    pub(crate) fn begin(&mut self) -> u32 {
        self.indices.observe(self.shared.producer().load(Ordering::Acquire));
        self.indices.filled()
    }

    /// Takes the oldest chunk, if `begin` saw one.
    ///
    /// # Panics
    /// If the kernel names bytes outside of the memory.
    pub(crate) fn take(&mut self, memory: &PacketMemory) -> Option<Chunk> {
        if self.indices.filled() == 0 {
            return None;
        }
        let place = self.indices.next();
        // SAFETY: the entry is one that the kernel has published (`begin`) and does not write before this side's index
        // has passed it (`end`); all bytes are valid.
        let entry = unsafe { self.shared.entry(place).read() };
        self.indices.advance();
        let chunk_bytes = u64::from(memory.chunk_bytes);
        let end = chunk_bytes * u64::from(memory.chunk_count);
        // In one chunk, and so in the memory.
        let is_inside = entry.addr < end && entry.addr % chunk_bytes + u64::from(entry.len) <= chunk_bytes;
        assert!(is_inside, "the kernel put {} bytes at {} of {end}", entry.len, entry.addr);
        let continues = entry.options & libc::XDP_PKT_CONTD != 0;
        Some(Chunk { address: entry.addr, bytes: entry.len, continues, memory: memory.id })
    }

    /// The entries of all chunks that were taken may be used again.
    pub(crate) fn end(&mut self) {
        self.shared.consumer().store(self.indices.own(), Ordering::Release);
    }
}

/// The ring with which this process gives free chunks to the kernel.
pub(crate) struct FillRing {
    shared: Shared<u64>,
    indices: Indices,
}

impl FillRing {
    /// As [`ReceiveRing::map`].
    pub(crate) fn map(socket: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let offsets = sys::ring_offsets(socket)?;
        let page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let shared = Shared::map(socket, page, &offsets.fr, entries)?;
        let own = shared.producer().load(Ordering::Relaxed);
        let other = shared.consumer().load(Ordering::Acquire);
        Ok(Self { shared, indices: Indices::new(entries, own, other) })
    }

    /// Gives chunks back, as many as there is room for; a ring that is as long as the memory has chunks has room for
    /// all.
    ///
    /// # Panics
    /// If a chunk is of another memory.
    pub(crate) fn give(&mut self, memory: &PacketMemory, chunks: &mut Vec<Chunk>) {
        self.indices.observe(self.shared.consumer().load(Ordering::Acquire));
        let count = chunks.len().min(self.indices.free() as usize);
        for chunk in chunks.drain(..count) {
            assert_eq!(chunk.memory, memory.id, "a chunk of another queue");
            let start = chunk.address & !(u64::from(memory.chunk_bytes) - 1);
            // SAFETY: the place is free (`Indices::free`), so the kernel does not read it before the index below is
            // published.
            unsafe { self.shared.entry(self.indices.next()).write(start) };
            self.indices.advance();
        }
        self.shared.producer().store(self.indices.own(), Ordering::Release);
    }

    /// The kernel waits to be woken after chunks were given.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.shared.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
