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
    /// It leads to this machine only. Its frames have an Ethernet header too, without addresses.
    pub is_loopback: bool,
    /// It is switched on.
    pub is_up: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
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

/// The interface that has an address.
///
/// # Errors
/// There is none, or the address stands for all of them; the text is for people.
pub(crate) fn with_address(address: IpAddr) -> Result<Interface, String> {
    if address.is_unspecified() {
        return Err(format!("a ring belongs to one network card, and the address {address} stands for all of them"));
    }
    let found = name_with_address(address).and_then(|name| name.map(interface).transpose());
    found.ok().flatten().ok_or_else(|| format!("no network card of this machine has the address {address}"))
}

/// What the system knows of an interface. `/sys` is not asked: it may be that of another network namespace.
fn interface(name: String) -> io::Result<Interface> {
    let index = index_of(&name).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has written the field that the request names.
    let mtu = unsafe { ask(&name, libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
    // SAFETY: as above.
    let hardware = unsafe { ask(&name, libc::SIOCGIFHWADDR)?.ifr_ifru.ifru_hwaddr };
    // SAFETY: as above.
    let flags = unsafe { ask(&name, libc::SIOCGIFFLAGS)?.ifr_ifru.ifru_flags };
    let is_loopback = hardware.sa_family == libc::ARPHRD_LOOPBACK;
    let is_ethernet = is_loopback || hardware.sa_family == libc::ARPHRD_ETHER;
    let is_up = libc::c_int::from(flags) & libc::IFF_UP != 0;
    let mac = std::array::from_fn(|n| hardware.sa_data[n] as u8);
    Ok(Interface { name, index, is_ethernet, is_loopback, is_up, mac, mtu: usize::try_from(mtu).unwrap_or(0) })
}

/// The receive queues of an interface that are in use; 1 if its driver does not say.
pub(crate) fn queues_of(name: &str) -> u32 {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    // `struct ethtool_channels`: command, most of rx, tx, other, combined; then the present ones in the same order.
    let mut channels = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    match ask_with(name, libc::SIOCETHTOOL, channels.as_mut_ptr().cast()) {
        Ok(_) => (channels[5] + channels[8]).max(1),
        Err(_) => 1,
    }
}

/// Asks the kernel for a property of an interface.
fn ask(name: &str, request: libc::c_ulong) -> io::Result<libc::ifreq> {
    ask_with(name, request, std::ptr::null_mut())
}

/// As [`ask`], for a request with a structure of its own at `data`.
fn ask_with(name: &str, request: libc::c_ulong, data: *mut libc::c_char) -> io::Result<libc::ifreq> {
    // Any socket will do; even where loopback is down, it can be bound to all addresses.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).or_else(|_| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)))?;
    // SAFETY: `ifreq` is a plain C struct for which all zero bytes are valid.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays 0: it ends the name.
    for (to, from) in asked.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    asked.ifr_ifru.ifru_data = data;
    // SAFETY: `asked` lives during the call, and the requests above write at most an `ifreq`; SIOCETHTOOL also writes
    // the structure of its command, which `queues_of` keeps during the call.
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
