//! Calls of the system that only read. Nothing else in this crate is `unsafe`.

use konkordia_core::failure::reason;
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const SIOCETHTOOL: u32 = 0x8946;
/// Bytes of an interface's name, with the zero at its end.
const NAME_BYTES: usize = 16;

/// What `ethtool` asks for; the numbers are those of `linux/ethtool.h`.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Query {
    Coalescing = 0x0e,
    Ring = 0x10,
    Pause = 0x12,
    Checksums = 0x14,
    /// With the kind of packets.
    FlowHash = 0x29,
    Gro = 0x2b,
    Channels = 0x3c,
}

/// The structure of a query, as numbers; larger than each of them, and aligned for the 64-bit fields of some.
#[repr(C, align(8))]
struct Answer([u32; 64]);

/// `struct ifreq`: the name, and a union that is as long as the last two together.
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    data: *mut Answer,
    rest: [u8; 16],
}

/// Asks the driver of an interface; the first number of the answer is the query itself. `argument` is its second
/// number.
pub(crate) fn ethtool(socket: &UdpSocket, interface: &str, query: Query, argument: u32) -> Result<[u32; 64], String> {
    let mut name = [0; NAME_BYTES];
    let Some(place) = name.get_mut(..interface.len()).filter(|_| interface.len() < NAME_BYTES) else {
        return Err(format!("{interface} is too long for the name of an interface"));
    };
    place.copy_from_slice(interface.as_bytes());
    let mut answer = Answer([0; 64]);
    (answer.0[0], answer.0[1]) = (query as u32, argument);
    let mut request = Request { name, data: &raw mut answer, rest: [0; 16] };
    // SAFETY: `request` has the layout and at least the size of `struct ifreq`. Its name ends in a zero, and it points
    // at `answer`, which lives during the call and is larger than the structure of every query. These queries only read
    // the settings of the driver.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if code < 0 { Err(reason(&io::Error::last_os_error())) } else { Ok(answer.0) }
}

/// Every address of this machine, with its interface.
pub(crate) fn addresses() -> Vec<(String, IpAddr)> {
    let mut first = std::ptr::null_mut();
    let mut found = Vec::new();
    // SAFETY: `first` is valid for writes; the list that the call makes there is freed below, once.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return found;
    }
    let mut next = first;
    // SAFETY: the list is valid until it is freed: `next` is null or points at an entry, whose name is a C string and
    // whose address is null or as long as its family says.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        let Some(address) = (unsafe { entry.ifa_addr.as_ref() }) else { continue };
        match libc::c_int::from(address.sa_family) {
            libc::AF_INET => {
                // SAFETY: the family says that these bytes are a `sockaddr_in`; a copy need not be aligned.
                let v4 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                found.push((name, Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into()));
            }
            libc::AF_INET6 => {
                // SAFETY: as above for a `sockaddr_in6`.
                let v6 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                found.push((name, Ipv6Addr::from(v6.sin6_addr.s6_addr).into()));
            }
            _ => {}
        }
    }
    // SAFETY: the call above made this list, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// Is the clock synchronised, and by how much may it be wrong, in microseconds?
pub(crate) fn clock() -> Result<(bool, u64), String> {
    // SAFETY: all-zero is a valid value of this plain struct; with `modes` 0 the call only reads the clock.
    let (state, clock) = unsafe {
        let mut clock: libc::timex = zeroed();
        (libc::adjtimex(&raw mut clock), clock)
    };
    if state < 0 {
        return Err(reason(&io::Error::last_os_error()));
    }
    let is_synchronised = state != libc::TIME_ERROR && clock.status & libc::STA_UNSYNC == 0;
    Ok((is_synchronised, u64::try_from(clock.maxerror).unwrap_or(0)))
}

/// The time-stamp counter of this processor, if it has one.
pub(crate) fn timestamp_counter() -> Option<u64> {
    // SAFETY: every x86-64 has this instruction, which only reads. A process to which it was forbidden (PR_SET_TSC)
    // ends with a signal.
    #[cfg(target_arch = "x86_64")]
    return Some(unsafe { core::arch::x86_64::_rdtsc() });
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Free and all bytes of the file system of a folder.
pub(crate) fn space(folder: &Path) -> io::Result<(u64, u64)> {
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid value of this plain struct; the path is terminated and the output valid for writes.
    unsafe {
        let mut stat: libc::statvfs = zeroed();
        if libc::statvfs(path.as_ptr(), &raw mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((stat.f_bavail as u64 * stat.f_frsize as u64, stat.f_blocks as u64 * stat.f_frsize as u64))
    }
}
