//! The end of a wire at which a test sends frames as they are.

use std::fs::File;
use std::io::{self, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Sends frames from an interface.
pub struct Wire(File);

impl Wire {
    /// The wire behind an interface of this network namespace.
    pub fn open(interface: &str) -> io::Result<Self> {
        // Protocol 0: this socket receives nothing.
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was opened above and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: `sockaddr_ll` is a plain C struct for which all zero bytes are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        // SAFETY: the name ends with 0 and lives during the call.
        address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as libc::c_int;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` lives during the call and has the stated length.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(socket.into()))
    }

    /// Sends one frame, and waits while the wire is full.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        for _ in 0..10_000 {
            match self.try_send(frame) {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => std::thread::sleep(Duration::from_millis(1)),
                other => return other,
            }
        }
        self.try_send(frame)
    }

    /// Sends one frame, or says that the wire is full or drops it.
    pub fn try_send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write_all(frame)
    }
}

/// Keeps this process on one processor. The kernel then hands over frames in the order in which they were sent; each
/// processor has a queue of its own.
pub fn stay_on_one_processor() {
    // SAFETY: `cpu_set_t` is a plain C struct for which all zero bytes are valid; the set lives during the calls, and
    // the number of the processor is below the size of the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let here = usize::try_from(libc::sched_getcpu()).unwrap_or(0);
        libc::CPU_SET(here, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
