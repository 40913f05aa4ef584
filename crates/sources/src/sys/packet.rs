//! The ring of an `AF_PACKET` socket (`TPACKET_V2`, `Documentation/networking/packet_mmap.rst` of Linux): memory that
//! the kernel fills frame by frame, and that this process reads in place.
//!
//! The ring has slots of equal size. A slot belongs to the kernel or to this process, as its status says: the kernel
//! writes a frame and then sets `TP_STATUS_USER`; this process reads the frame and then sets `TP_STATUS_KERNEL`.
//! [`Ring::next`] is the only place where slots are read and given back.

use super::options;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Slots lie in blocks that the kernel allocates one by one. Blocks of this size waste little at their ends.
const BLOCK_BYTES: usize = 1 << 20;
const ALIGNMENT: usize = libc::TPACKET_ALIGNMENT;
/// What the kernel puts in front of the IP header: its own header, the address of the interface, the Ethernet header.
const HEAD_BYTES: usize = (libc::TPACKET2_HDRLEN + 16).next_multiple_of(ALIGNMENT);

/// A ring that is bound to an interface.
pub(crate) struct Ring {
    socket: OwnedFd,
    /// `blocks * BLOCK_BYTES` bytes, mapped until the ring is dropped.
    memory: *mut u8,
    blocks: usize,
    slots_per_block: usize,
    slot_bytes: usize,
    /// The slot that the kernel fills next, as far as this process has read.
    next: usize,
}

// SAFETY: `memory` is a mapping of this process that only this value uses; no thread owns it.
unsafe impl Send for Ring {}

/// A frame in its slot.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// What is in the slot, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// Bytes that the frame had.
    pub frame_bytes: usize,
    /// The card or the kernel has verified the checksum, or it was never on a wire.
    pub is_verified: bool,
}

/// What the kernel counted since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Frames that have got a slot.
    pub placed: u64,
    /// Frames for which no slot was free.
    pub dropped: u64,
}

/// What a ring is made of.
pub(crate) struct RingSpec<'a> {
    /// Number of the interface.
    pub interface: u32,
    /// Largest IP packet of the interface.
    pub mtu: usize,
    /// `ETH_P_IP` or `ETH_P_IPV6`.
    pub protocol: libc::c_int,
    /// What the kernel passes to the ring.
    pub filter: &'a [libc::sock_filter],
    /// Memory of the ring; the kernel may give less.
    pub bytes: usize,
}

impl Ring {
    /// Opens a ring. Nothing can enter it before the filter is attached.
    pub(crate) fn open(spec: &RingSpec<'_>) -> io::Result<Self> {
        // Protocol 0: nothing is received before `bind` names the protocol.
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was opened above and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        options::set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        options::attach_filter(&socket, spec.filter)?;
        let slot_bytes = (HEAD_BYTES + spec.mtu).next_multiple_of(ALIGNMENT);
        if slot_bytes > BLOCK_BYTES {
            return Err(io::Error::other(format!("the MTU of the interface is {}", spec.mtu)));
        }
        let slots_per_block = BLOCK_BYTES / slot_bytes;
        let blocks = request(&socket, (spec.bytes / BLOCK_BYTES).max(1), slots_per_block, slot_bytes)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping of the whole ring, which the kernel has just allocated with this length.
        let memory = unsafe { libc::mmap(ptr::null_mut(), blocks * BLOCK_BYTES, access, flags, socket.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ring = Self { socket, memory: memory.cast(), blocks, slots_per_block, slot_bytes, next: 0 };
        bind(&ring.socket, spec.interface, spec.protocol)?;
        Ok(ring)
    }

    /// Bytes that the slots take.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks * BLOCK_BYTES
    }

    /// Lends the oldest frame to `take`, then gives its slot back. False if there is none.
    #[inline]
    pub(crate) fn next(&mut self, take: impl FnOnce(Frame<'_>)) -> bool {
        let offset = self.next / self.slots_per_block * BLOCK_BYTES + self.next % self.slots_per_block * self.slot_bytes;
        debug_assert!(offset + self.slot_bytes <= self.bytes());
        // SAFETY: `next` is below the number of slots, so the slot is within the mapping, and slots are aligned to 16.
        let slot = unsafe { self.memory.add(offset) };
        // SAFETY: the status is a u32 at this place of the header; both sides access it as a whole.
        let status = unsafe { AtomicU32::from_ptr(slot.add(offset_of!(libc::tpacket2_hdr, tp_status)).cast()) };
        // Acquire: the frame was written before its status.
        let flags = status.load(Ordering::Acquire);
        if flags & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the slot belongs to this process now, and begins with a header that the kernel has written.
        let header = unsafe { ptr::read(slot.cast::<libc::tpacket2_hdr>()) };
        let begin = usize::from(header.tp_mac);
        let length = (header.tp_snaplen as usize).min(self.slot_bytes.saturating_sub(begin));
        // SAFETY: `begin + length` is at most `slot_bytes`, and the kernel does not write to a slot of this process.
        // The slice ends before the status is set below: `take` cannot keep it.
        let bytes = unsafe { std::slice::from_raw_parts(slot.add(begin.min(self.slot_bytes)), length) };
        take(Frame {
            bytes,
            frame_bytes: header.tp_len as usize,
            is_verified: flags & (libc::TP_STATUS_CSUM_VALID | libc::TP_STATUS_CSUMNOTREADY) != 0,
        });
        // Release: the frame was read before the kernel may write again.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % (self.blocks * self.slots_per_block);
        true
    }

    /// Asks the kernel for its counts, which begin again at 0.
    pub(crate) fn counts(&self) -> io::Result<Counts> {
        let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        options::get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts)?;
        // The kernel counts the dropped frames among the packets too.
        let (all, dropped) = (u64::from(counts.tp_packets), u64::from(counts.tp_drops));
        Ok(Counts { placed: all.saturating_sub(dropped), dropped })
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> libc::c_int {
        self.socket.as_raw_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `open` with this length, and no slice of it is left.
        unsafe { libc::munmap(self.memory.cast(), self.bytes()) };
    }
}

/// Allocates the ring, smaller if there is not enough memory; returns the number of blocks.
fn request(socket: &OwnedFd, blocks: usize, slots_per_block: usize, slot_bytes: usize) -> io::Result<usize> {
    let mut blocks = blocks;
    loop {
        let asked = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: (blocks * slots_per_block) as u32,
        };
        match options::set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &asked) {
            Ok(()) => return Ok(blocks),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && blocks > 1 => blocks /= 2,
            Err(error) => return Err(error),
        }
    }
}

fn bind(socket: &OwnedFd, interface: u32, protocol: libc::c_int) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is a plain C struct for which all zero bytes are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = interface as libc::c_int;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` lives during the call and has the stated length.
    let code = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
