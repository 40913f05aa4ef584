//! The system calls of AF_XDP: sockets, mapped memory, maps and programs of eBPF. What the kernel writes into memory
//! that is shared with it is in `rings.rs`.

use crate::sys::options;
use konkordia_core::ebpf::Instruction;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

/// Pages that the kernel shares with this process; they are unmapped when this is dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory, which belongs to no thread; it has no methods that touch its content.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        // SAFETY: a new mapping at a place that the kernel chooses; it touches no memory that is in use.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A ring of a socket; `offset` says which (`XDP_PGOFF_...`).
    pub(crate) fn ring(socket: BorrowedFd<'_>, offset: libc::off_t, bytes: usize) -> io::Result<Self> {
        Self::new(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset)
    }

    /// Zeroed memory, and whether it lies in huge pages that were reserved for that. Otherwise the kernel is asked to
    /// make huge pages of it as far as it can.
    pub(crate) fn memory(bytes: usize) -> io::Result<(Self, bool)> {
        const HUGE: usize = 2 << 20;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if let Ok(huge) = Self::new(bytes.next_multiple_of(HUGE), flags | libc::MAP_HUGETLB, -1, 0) {
            return Ok((huge, true));
        }
        let memory = Self::new(bytes, flags, -1, 0)?;
        // SAFETY: the range is the mapping that was just made; the call changes no content. It is only a wish.
        unsafe { libc::madvise(memory.start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok((memory, false))
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped once. Nothing points into it any more: references are
        // made only by the owners of a mapping in `rings.rs`, and do not outlive them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A descriptor from a system call.
fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for the caller, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn done(code: libc::c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An AF_XDP socket.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    owned(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

/// Sets the number of entries of a ring (`XDP_RX_RING`, `XDP_UMEM_FILL_RING`, ...), a power of two.
pub(crate) fn set_ring(socket: BorrowedFd<'_>, ring: libc::c_int, entries: u32) -> io::Result<()> {
    options::set(&socket, libc::SOL_XDP, ring, &entries)
}

/// Hands memory to the kernel for packets, in chunks of `chunk_bytes`.
pub(crate) fn register_memory(socket: BorrowedFd<'_>, memory: &Mapping, bytes: usize, chunk_bytes: u32) -> io::Result<()> {
    assert!(bytes <= memory.bytes());
    // The first version of the structure: of what later versions have more, nothing is used.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Registration {
        address: u64,
        bytes: u64,
        chunk_bytes: u32,
        headroom_bytes: u32,
        flags: u32,
        transmit_metadata_bytes: u32,
    }
    let address = memory.start().as_ptr().addr() as u64;
    let registration =
        Registration { address, bytes: bytes as u64, chunk_bytes, headroom_bytes: 0, flags: 0, transmit_metadata_bytes: 0 };
    options::set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
}

/// Where the parts of the rings lie in their mappings.
pub(crate) fn ring_offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    let bytes = options::get(&socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    if bytes < size_of::<libc::xdp_mmap_offsets>() {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(offsets)
}

/// Binds the socket to a queue of an interface. `share_with` = a socket that is bound to the same queue, whose packet
/// memory this one uses.
pub(crate) fn bind(
    socket: BorrowedFd<'_>,
    index: u32,
    queue: u32,
    flags: u16,
    share_with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags | if share_with.is_some() { libc::XDP_SHARED_UMEM } else { 0 },
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: share_with.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `address` lives during the call and has the stated length.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })
}

/// What the kernel has counted for a socket since it was opened.
pub(crate) fn statistics(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    let mut counted = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    // Kernels before 5.9 write the first three numbers only; `rx_dropped` then has what the ring had no room for.
    options::get(&socket, libc::SOL_XDP, libc::XDP_STATISTICS, &mut counted)?;
    Ok(counted)
}

/// True if the network card writes packets to their memory itself.
pub(crate) fn is_zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut answer = libc::xdp_options { flags: 0 };
    options::get(&socket, libc::SOL_XDP, libc::XDP_OPTIONS, &mut answer)?;
    Ok(answer.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Lets this process run the driver's receive loop instead of waiting for interrupts
/// (Documentation/networking/napi.rst).
pub(crate) fn prefer_busy_poll(socket: BorrowedFd<'_>, poll_us: u32, packets_max: u32) -> io::Result<()> {
    const SO_BUSY_POLL: libc::c_int = 46;
    const SO_PREFER_BUSY_POLL: libc::c_int = 69;
    const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
    options::set(&socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1_i32)?;
    options::set(&socket, libc::SOL_SOCKET, SO_BUSY_POLL, &poll_us.cast_signed())?;
    options::set(&socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &packets_max.cast_signed())
}

/// Makes the kernel look at the fill ring, and receive in the case of busy polling.
pub(crate) fn wake(socket: BorrowedFd<'_>) {
    // SAFETY: no memory is passed; without a buffer the call only wakes the driver.
    unsafe { libc::recvfrom(socket.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut()) };
}

/// An entry for [`wait`].
pub(crate) fn readable(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the descriptors can be read or has failed, `timeout` is over or a signal came.
pub(crate) fn wait(descriptors: &mut [libc::pollfd], timeout: Duration) -> io::Result<()> {
    let limit = libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos().into() };
    let count = descriptors.len() as libc::nfds_t;
    // SAFETY: valid `pollfd`s, as many as stated, and a valid time-out; no signal mask.
    match done(unsafe { libc::ppoll(descriptors.as_mut_ptr(), count, &raw const limit, ptr::null()) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Kinds of maps (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum MapKind {
    PerCpuArray = 6,
    Sockets = 17,
}

// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

/// `attributes` must be the beginning of `union bpf_attr` as the command reads it, without padding, and what it points
/// to must live and be as large as the command expects.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let bytes = size_of::<T>() as libc::c_uint;
    // SAFETY: the caller promises what the attributes are; they live during the call.
    let code = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attributes), bytes) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code as libc::c_int) }
}

/// A map with keys and values of the given sizes.
pub(crate) fn create_map(kind: MapKind, key_bytes: u32, value_bytes: u32, entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
    }
    let mut create = Create { kind: kind as u32, key_bytes, value_bytes, entries, flags: 0 };
    // SAFETY: the structure has the fields of BPF_MAP_CREATE in their order, and points to nothing.
    owned(unsafe { bpf(MAP_CREATE, &mut create) }?)
}

/// Attributes of the commands on one element.
#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn element(command: libc::c_int, map: BorrowedFd<'_>, key: u32, value: u64) -> io::Result<()> {
    let key_at = (&raw const key).addr() as u64;
    let mut element = Element { map: map.as_raw_fd() as u32, unused: 0, key: key_at, value, flags: 0 };
    // SAFETY: the structure has the fields of the commands on elements in their order; `key` lives during the call and
    // has the four bytes of the keys of all maps here; `value` is 0 or, as the callers below see to, large enough.
    unsafe { bpf(command, &mut element) }.map(|_| ())
}

/// Puts a socket into a map of sockets.
pub(crate) fn set_socket(map: BorrowedFd<'_>, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd() as u32;
    element(MAP_UPDATE_ELEM, map, key, (&raw const value).addr() as u64)
}

/// Takes a socket out of a map of sockets.
pub(crate) fn remove_socket(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    element(MAP_DELETE_ELEM, map, key, 0)
}

/// The sum over all CPUs of a number of 64 bits in a map of [`MapKind::PerCpuArray`].
pub(crate) fn sum_over_cpus(map: BorrowedFd<'_>, key: u32) -> io::Result<u64> {
    // The kernel writes one number for each CPU that there could be. No kernel can be built for more than 8192.
    const CPUS_MAX: usize = 16_384;
    let mut values = vec![0_u64; CPUS_MAX];
    element(MAP_LOOKUP_ELEM, map, key, values.as_mut_ptr().expose_provenance() as u64)?;
    Ok(values.iter().sum())
}

/// Loads a program of type XDP that reads the first buffer of a frame and knows that there may be more of them. If the
/// kernel refuses it, its reasons come with the error.
pub(crate) fn load_program(instructions: &[Instruction]) -> Result<OwnedFd, (io::Error, String)> {
    match try_load(instructions, &mut []) {
        Ok(program) => Ok(program),
        Err(first) if first.raw_os_error() == Some(libc::EPERM) => Err((first, String::new())),
        Err(_) => {
            // Once more, to learn why. (With a log the kernel works longer.)
            let mut log = vec![0; 1 << 16];
            try_load(instructions, &mut log).map_err(|error| {
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                (error, String::from_utf8_lossy(&log[..end]).trim_end().to_owned())
            })
        }
    }
}

fn try_load(instructions: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_XDP: u32 = 6;
    const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
    const BPF_XDP: u32 = 37;
    #[repr(C)]
    struct Load {
        kind: u32,
        instruction_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let license = c"Apache-2.0";
    let mut load = Load {
        kind: BPF_PROG_TYPE_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
        kernel_version: 0,
        flags: BPF_F_XDP_HAS_FRAGS,
        name: *b"konkordia\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: BPF_XDP,
    };
    // SAFETY: the structure has the fields of BPF_PROG_LOAD in their order; the instructions, the licence and the log
    // live during the call and have the stated lengths.
    owned(unsafe { bpf(PROG_LOAD, &mut load) }?)
}

/// How a program is attached to an interface (`XDP_FLAGS_...`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Hook {
    /// In the network stack, for drivers without XDP.
    Generic = 1 << 1,
    /// In the driver.
    Native = 1 << 2,
}

/// Attaches a program to an interface for as long as the descriptor is open. It is closed at the latest when the
/// process ends, for whatever reason.
pub(crate) fn attach(program: BorrowedFd<'_>, index: u32, hook: Hook) -> io::Result<OwnedFd> {
    const BPF_XDP: u32 = 37;
    #[repr(C)]
    struct Attach {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attach = Attach { program: program.as_raw_fd() as u32, interface: index, attach_type: BPF_XDP, flags: hook as u32 };
    // SAFETY: the structure has the fields of BPF_LINK_CREATE in their order, and points to nothing.
    owned(unsafe { bpf(LINK_CREATE, &mut attach) }?)
}

#[cfg(test)]
pub(crate) use tests::test_run;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on one frame and returns its result; nothing is sent anywhere.
    pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
        const PROG_TEST_RUN: libc::c_int = 10;
        #[repr(C)]
        struct TestRun {
            program: u32,
            result: u32,
            bytes_in: u32,
            bytes_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            duration_ns: u32,
            context_in_bytes: u32,
            context_out_bytes: u32,
            context_in: u64,
            context_out: u64,
            flags: u32,
            cpu: u32,
            batch: u32,
            padding: u32,
        }
        let mut run = TestRun {
            program: program.as_raw_fd() as u32,
            result: u32::MAX,
            bytes_in: frame.len() as u32,
            bytes_out: 0,
            data_in: frame.as_ptr().expose_provenance() as u64,
            data_out: 0,
            repeat: 1,
            duration_ns: 0,
            context_in_bytes: 0,
            context_out_bytes: 0,
            context_in: 0,
            context_out: 0,
            flags: 0,
            cpu: 0,
            batch: 0,
            padding: 0,
        };
        // SAFETY: the structure has the fields of BPF_PROG_TEST_RUN in their order; the frame lives during the call and
        // has the stated length, and nothing is written.
        unsafe { bpf(PROG_TEST_RUN, &mut run) }?;
        Ok(run.result)
    }
}
