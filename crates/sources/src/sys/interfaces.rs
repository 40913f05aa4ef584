//! The network interfaces of this machine, or of the network namespace of this thread.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its frames begin with an Ethernet header.
    pub is_ethernet: bool,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
}

/// Number of the interface of this name, if there is one.
pub(crate) fn index_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with 0 and lives during the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// The interface that has an address, if there is one.
pub(crate) fn with_address(address: IpAddr) -> io::Result<Option<Interface>> {
    name_with_address(address)?.map(interface).transpose()
}

/// What the system knows of an interface. `/sys` is not asked: it may be that of another network namespace.
fn interface(name: String) -> io::Result<Interface> {
    let index = index_of(&name).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has written the field that the request names.
    let mtu = unsafe { ask(&name, libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
    // SAFETY: as above.
    let kind = unsafe { ask(&name, libc::SIOCGIFHWADDR)?.ifr_ifru.ifru_hwaddr.sa_family };
    let is_ethernet = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&kind);
    Ok(Interface { name, index, is_ethernet, mtu: usize::try_from(mtu).unwrap_or(0) })
}

/// Asks the kernel for a property of an interface.
fn ask(name: &str, request: libc::c_ulong) -> io::Result<libc::ifreq> {
    // Any socket will do.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).or_else(|_| UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)))?;
    // SAFETY: `ifreq` is a plain C struct for which all zero bytes are valid.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays 0: it ends the name.
    for (to, from) in asked.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: `asked` lives during the call, and both requests write at most an `ifreq`.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut asked) };
    if code == 0 { Ok(asked) } else { Err(io::Error::last_os_error()) }
}

fn name_with_address(address: IpAddr) -> io::Result<Option<String>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` lives during the call.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut next, mut found) = (first, None);
    // SAFETY: `next` is null or an element of the list, which lives until `freeifaddrs` below.
    while let Some(element) = unsafe { next.as_ref() } {
        // SAFETY: the address of an element is null or valid as long as the list.
        if unsafe { address_of(element.ifa_addr) } == Some(address) {
            // SAFETY: the name of an element ends with 0 and lives as long as the list.
            let name = unsafe { CStr::from_ptr(element.ifa_name) };
            found = Some(name.to_string_lossy().into_owned());
            break;
        }
        next = element.ifa_next;
    }
    // SAFETY: `first` came from `getifaddrs`, and nothing borrows from the list any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The IP address in a socket address.
///
/// # Safety
/// `address` is null or points at a socket address of the length that its family has.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller promises null or a valid address.
    let family = unsafe { address.as_ref() }?.sa_family;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is a `sockaddr_in`; it may be unaligned.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above for a `sockaddr_in6`.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
