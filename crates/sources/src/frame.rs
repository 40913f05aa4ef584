//! Ethernet frames that hold a UDP datagram: bytes in, payload or the reason of a refusal out.
//!
//! Facts (docs/protocols.md 8):
//! - Ethernet: two addresses of 6 bytes, then the type of what follows; a VLAN tag (IEEE 802.1Q) is a type of its own,
//!   2 bytes of which the low 12 bits are the number of the VLAN, and again a type. Number 0 only gives a priority.
//! - IPv4 (RFC 791): the length of the header is in words of 4 bytes; a fragment has the flag "more fragments" or an
//!   offset; the header has a checksum of its own.
//! - IPv6 (RFC 8200): a header of 40 bytes; fragments have an extension header of type 44.
//! - UDP (RFC 768): the checksum covers the addresses too. 0 means that there is none, which IPv6 does not allow.
//!
//! All numbers are big-endian. Frames may be padded at the end, so the lengths in the headers count. A frame may lie in
//! several buffers; its headers lie in the first one.

use konkordia_core::sender::Sender;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the Ethernet header without tags.
pub const ETHERNET_BYTES: usize = 14;
/// More tags than a provider and a customer put in front are not looked through.
const VLAN_TAGS_MAX: usize = 2;
/// Bytes of a frame that are not of its IP packet, at most. (The MTU of an interface is that of the IP packet.)
pub(crate) const OVERHEAD_BYTES: usize = ETHERNET_BYTES + VLAN_TAGS_MAX * 4;
/// Bytes of the UDP header.
const UDP_BYTES: usize = 8;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86DD;
const TYPE_VLAN: [u16; 2] = [0x8100, 0x88A8];
const VLAN_NUMBER: u16 = 0x0FFF;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_FRAGMENT: u8 = 44;

/// Byte ranges, each from the beginning of its header.
mod field {
    use std::ops::Range;

    pub const ETHER_TYPE: Range<usize> = 12..14;

    pub const IPV4_VERSION_AND_WORDS: usize = 0;
    pub const IPV4_BYTES: Range<usize> = 2..4;
    pub const IPV4_FRAGMENT: Range<usize> = 6..8;
    pub const IPV4_PROTOCOL: usize = 9;
    pub const IPV4_SOURCE: Range<usize> = 12..16;
    pub const IPV4_DESTINATION: Range<usize> = 16..20;
    pub const IPV4_HEADER_BYTES_MIN: usize = 20;

    pub const IPV6_VERSION: usize = 0;
    pub const IPV6_PAYLOAD_BYTES: Range<usize> = 4..6;
    pub const IPV6_NEXT: usize = 6;
    pub const IPV6_SOURCE: Range<usize> = 8..24;
    pub const IPV6_DESTINATION: Range<usize> = 24..40;
    pub const IPV6_HEADER_BYTES: usize = 40;

    pub const UDP_SOURCE: Range<usize> = 0..2;
    pub const UDP_DESTINATION: Range<usize> = 2..4;
    pub const UDP_BYTES: Range<usize> = 4..6;
    pub const UDP_CHECKSUM: Range<usize> = 6..8;
}

/// Flag "more fragments" and offset of a fragment.
const IPV4_IS_FRAGMENT: u16 = 0x3FFF;

/// Why a frame is no datagram of the stream. Each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No UDP, or for another address or port.
    OtherTraffic,
    /// Part of a datagram that was sent in several frames.
    Fragment,
    /// For another VLAN than that of the interface.
    Vlan,
    /// The lengths in the headers contradict each other or the frame, or the frame is cut.
    Length,
    /// The checksum of the IP header or of the datagram is wrong.
    Checksum,
    /// Longer than any packet on a wire: several datagrams that the sender, the card or the kernel has joined.
    Joined,
    /// Received through an ordinary socket, which does not show the headers that the checksum of the datagram covers.
    Headerless,
}

impl Refused {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 7] =
        [Self::OtherTraffic, Self::Fragment, Self::Vlan, Self::Length, Self::Checksum, Self::Joined, Self::Headerless];

    /// Name of the counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherTraffic => "other_traffic",
            Self::Fragment => "fragment",
            Self::Vlan => "vlan",
            Self::Length => "length",
            Self::Checksum => "checksum",
            Self::Joined => "joined",
            Self::Headerless => "headerless",
        }
    }

    /// What it means and what to do, for people; comes after "N frames were refused: ".
    pub const fn advice(self) -> &'static str {
        match self {
            Self::OtherTraffic => "they are no datagrams for the address of this stream",
            Self::Fragment => {
                "the detector's datagrams come in fragments, because the MTU on their way is too small: set it to 9000 in \
                 detector, switch and network card, or write receive = \"socket\" in [source], which joins fragments"
            }
            Self::Vlan => "they are of another VLAN: give the address of the VLAN's own interface in [source] address",
            Self::Length => "their lengths are contradictory: they were damaged or cut on their way",
            Self::Checksum => "their checksums are wrong: they were damaged on their way",
            Self::Joined => {
                "several datagrams were joined to one: switch this off (`ethtool -K INTERFACE lro off rx-udp-gro-forwarding off`; \
                 a sender on this machine must not use GSO), or write receive = \"socket\" in [source]"
            }
            Self::Headerless => {
                "AF_XDP did not take them (they came in fragments, with IP options, or before it was ready), and without their IP \
                 header the iCRC cannot be compared: see docs/af-xdp.md, Which packets are taken"
            }
        }
    }
}

/// Frames that a source has refused, by reason. The source counts, others read.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; Refused::ALL.len()]);

impl Refusals {
    /// Counts one frame.
    pub fn count(&self, why: Refused) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Frames that were refused for this reason.
    pub fn of(&self, why: Refused) -> u64 {
        self.0[why as usize].load(Ordering::Relaxed)
    }
}

/// What is known of the checksum of a datagram before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing, so it must be right.
    #[default]
    Unknown,
    /// Nothing, and the datagram may never have been on a wire. Its sender on this machine may then have left the
    /// checksum to a network card, and have written only the sum of addresses, protocol and length.
    MaybeLeft,
    /// The card or the kernel has verified it, or the datagram never left this machine.
    Verified,
    /// Another checksum covers the datagram, with its addresses, and will be compared. This one may be missing.
    Superseded,
}

/// How much of a frame is here, and what the card or the kernel says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes that the frame had.
    pub frame_bytes: usize,
    /// Bytes of it that are here, in the first buffer and those behind it; fewer if it was cut.
    pub here_bytes: usize,
    /// What is known of the checksum of the datagram.
    pub checksum: Checksum,
}

impl Arrival {
    /// A frame that is here as a whole, of whose checksum nothing is known.
    pub fn whole(frame_bytes: usize) -> Self {
        Self { frame_bytes, here_bytes: frame_bytes, checksum: Checksum::Unknown }
    }
}

/// A datagram in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Who sent it.
    pub sender: Sender,
    /// Where its payload is in the frame, in bytes.
    pub payload: Range<usize>,
    /// Where the IP packet is in the frame, from its header to the end of the payload.
    pub packet: Range<usize>,
    /// `None` if no checksum must be compared.
    sums: Option<Sums>,
}

/// The sums that the checksum of a datagram is made of, without that of the payload. All sums are of words as the
/// machine reads them: the order of the bytes makes no difference to whether a sum is right (RFC 1071, 2.B).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sums {
    /// Of addresses, protocol and length, which stand in front of the datagram for this sum only.
    in_front: u64,
    /// Of the UDP header.
    header: u64,
    /// The checksum, if the sender may have left it to a network card.
    maybe_left: Option<u16>,
}

impl Datagram {
    /// Compares the checksum; `payload` = the bytes of the payload.
    ///
    /// # Errors
    /// It is wrong.
    pub fn check(&self, payload: &[u8]) -> Result<(), Refused> {
        let Some(Sums { in_front, header, maybe_left }) = self.sums else { return Ok(()) };
        let is_right = folded(in_front + header + sum(payload)) == 0xFFFF || maybe_left == Some(folded(in_front));
        if is_right { Ok(()) } else { Err(Refused::Checksum) }
    }
}

/// Finds the datagram for `to` in a frame. `first` begins with the Ethernet header; it is the frame, or the first of
/// its buffers. The checksum of the payload is for [`Datagram::check`].
///
/// # Errors
/// There is none, or it must not be used.
pub fn datagram(first: &[u8], arrival: Arrival, to: SocketAddr) -> Result<Datagram, Refused> {
    let (ether_type, ip_at, is_of_vlan) = ethernet(first)?;
    let packet = match (ether_type, to.ip()) {
        (TYPE_IPV4, IpAddr::V4(_)) => ipv4(first, ip_at)?,
        (TYPE_IPV6, IpAddr::V6(_)) => ipv6(first, ip_at)?,
        _ => return Err(Refused::OtherTraffic),
    };
    if packet.destination != to.ip() {
        return Err(Refused::OtherTraffic);
    }
    let Range { start, end } = packet.udp;
    let udp = &first[start.min(first.len())..end.min(first.len())];
    let ports = (u16_at(udp, field::UDP_SOURCE), u16_at(udp, field::UDP_DESTINATION));
    let (Some(source_port), Some(port)) = ports else { return Err(Refused::Length) };
    if port != to.port() {
        return Err(Refused::OtherTraffic);
    }
    // Only datagrams for this stream count as fragments or as of another VLAN.
    if is_of_vlan {
        return Err(Refused::Vlan);
    }
    if packet.is_fragment {
        return Err(Refused::Fragment);
    }
    if arrival.frame_bytes > arrival.here_bytes {
        return Err(Refused::Joined);
    }
    let bytes = u16_at(udp, field::UDP_BYTES).map_or(0, usize::from);
    if end > arrival.here_bytes || bytes < UDP_BYTES || bytes > end - start || udp.len() < UDP_BYTES {
        return Err(Refused::Length);
    }
    if !packet.is_header_right {
        return Err(Refused::Checksum);
    }
    let sender = Sender::from(SocketAddr::new(packet.source, source_port));
    let sums = sums(&packet, &udp[..UDP_BYTES], bytes, arrival.checksum)?;
    let end = start + bytes;
    Ok(Datagram { sender, payload: start + UDP_BYTES..end, packet: ip_at..end, sums })
}

/// A frame that lies in one piece.
pub(crate) struct Lent<'a> {
    /// Its bytes.
    pub frame: &'a [u8],
    /// What is known of them.
    pub arrival: Arrival,
    /// The address of the stream.
    pub to: SocketAddr,
    /// The IP packet is lent, and not only the payload.
    pub is_packet: bool,
}

impl Lent<'_> {
    /// Lends its datagram to `take`, or counts why it must not be used; true if it was lent.
    pub fn hand_over(&self, refusals: &Refusals, take: &mut dyn FnMut(&[u8], Sender)) -> bool {
        let found = datagram(self.frame, self.arrival, self.to).and_then(|found| {
            found.check(&self.frame[found.payload.clone()])?;
            Ok(found)
        });
        match found {
            Ok(found) => take(&self.frame[if self.is_packet { found.packet } else { found.payload }], found.sender),
            Err(why) => {
                refusals.count(why);
                return false;
            }
        }
        true
    }
}

/// What the checksum of a datagram of `bytes` is compared with.
fn sums(packet: &IpPacket, header: &[u8], bytes: usize, known: Checksum) -> Result<Option<Sums>, Refused> {
    let field = u16::from_ne_bytes([header[field::UDP_CHECKSUM.start], header[field::UDP_CHECKSUM.start + 1]]);
    if matches!(known, Checksum::Verified | Checksum::Superseded) || (field == 0 && packet.source.is_ipv4()) {
        return Ok(None);
    }
    if field == 0 {
        return Err(Refused::Checksum);
    }
    let addresses: u64 = [packet.source, packet.destination].iter().map(address_sum).sum();
    let in_front = addresses + u64::from(u16::from(PROTOCOL_UDP).to_be()) + u64::from((bytes as u16).to_be());
    Ok(Some(Sums { in_front, header: sum(header), maybe_left: (known == Checksum::MaybeLeft).then_some(field) }))
}

/// Copies the part `range` of what the pieces make one after the other to the beginning of `into`, and returns it.
/// `None` if `into` is too small or the pieces are too short.
pub fn gather<'a, 'p>(pieces: impl Iterator<Item = &'p [u8]>, range: &Range<usize>, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let into = into.get_mut(..range.len())?;
    let (mut start, mut done) = (0, 0);
    for piece in pieces {
        let from = range.start.max(start);
        let to = range.end.min(start + piece.len());
        if from < to {
            into[done..done + (to - from)].copy_from_slice(&piece[from - start..to - start]);
            done += to - from;
        }
        start += piece.len();
    }
    (done == into.len()).then_some(into)
}

/// An IP packet.
struct IpPacket {
    source: IpAddr,
    destination: IpAddr,
    /// Where UDP header and payload must be in the frame; it may be shorter.
    udp: Range<usize>,
    is_fragment: bool,
    is_header_right: bool,
}

/// Type of what the frame holds, where that begins, and whether it is of another VLAN.
fn ethernet(frame: &[u8]) -> Result<(u16, usize, bool), Refused> {
    let (mut at, mut is_of_vlan) = (field::ETHER_TYPE, false);
    for _ in 0..=VLAN_TAGS_MAX {
        let ether_type = u16_at(frame, at.clone()).ok_or(Refused::Length)?;
        if !TYPE_VLAN.contains(&ether_type) {
            return Ok((ether_type, at.end, is_of_vlan));
        }
        is_of_vlan |= u16_at(frame, at.end..at.end + 2).ok_or(Refused::Length)? & VLAN_NUMBER != 0;
        at = at.start + 4..at.end + 4;
    }
    Err(Refused::OtherTraffic)
}

fn ipv4(frame: &[u8], at: usize) -> Result<IpPacket, Refused> {
    let ip = frame.get(at..).filter(|ip| ip.len() >= field::IPV4_HEADER_BYTES_MIN).ok_or(Refused::Length)?;
    let first = ip[field::IPV4_VERSION_AND_WORDS];
    let header_bytes = usize::from(first & 0x0F) * 4;
    let bytes = u16_at(ip, field::IPV4_BYTES).map_or(0, usize::from);
    if first >> 4 != 4 || header_bytes < field::IPV4_HEADER_BYTES_MIN || bytes < header_bytes || ip.len() < header_bytes {
        return Err(Refused::Length);
    }
    let fragment = u16_at(ip, field::IPV4_FRAGMENT).unwrap_or(0) & IPV4_IS_FRAGMENT;
    // Behind an offset there is no UDP header, so it cannot be known whose fragment it is.
    let offset = fragment & 0x1FFF;
    if ip[field::IPV4_PROTOCOL] != PROTOCOL_UDP || offset != 0 {
        return Err(Refused::OtherTraffic);
    }
    Ok(IpPacket {
        source: v4_at(ip, field::IPV4_SOURCE),
        destination: v4_at(ip, field::IPV4_DESTINATION),
        udp: at + header_bytes..at + bytes,
        is_fragment: fragment != 0,
        is_header_right: folded(sum(&ip[..header_bytes])) == 0xFFFF,
    })
}

fn ipv6(frame: &[u8], at: usize) -> Result<IpPacket, Refused> {
    let ip = frame.get(at..).filter(|ip| ip.len() >= field::IPV6_HEADER_BYTES).ok_or(Refused::Length)?;
    let bytes = u16_at(ip, field::IPV6_PAYLOAD_BYTES).map_or(0, usize::from);
    if ip[field::IPV6_VERSION] >> 4 != 6 {
        return Err(Refused::Length);
    }
    let (mut begin, end) = (at + field::IPV6_HEADER_BYTES, at + field::IPV6_HEADER_BYTES + bytes);
    let mut next = ip[field::IPV6_NEXT];
    let is_fragment = next == PROTOCOL_FRAGMENT;
    if is_fragment {
        // Next header, reserved, offset in units of 8 bytes with flags below, number of the packet.
        let extension = frame.get(begin..begin + 8).ok_or(Refused::Length)?;
        let offset = u16_at(extension, 2..4).unwrap_or(0) >> 3;
        next = if offset == 0 { extension[0] } else { 0 };
        begin += 8;
    }
    if next != PROTOCOL_UDP {
        return Err(Refused::OtherTraffic);
    }
    Ok(IpPacket {
        source: v6_at(ip, field::IPV6_SOURCE),
        destination: v6_at(ip, field::IPV6_DESTINATION),
        udp: begin..end.max(begin),
        is_fragment,
        is_header_right: true,
    })
}

fn address_sum(address: &IpAddr) -> u64 {
    match address {
        IpAddr::V4(ip) => sum(&ip.octets()),
        IpAddr::V6(ip) => sum(&ip.octets()),
    }
}

/// Sum of the words of 16 bits (RFC 1071), not yet folded. A last single byte counts as if a zero followed.
fn sum(bytes: &[u8]) -> u64 {
    // Words of 32 bits give the same folded sum, and the sum of 2^16 of them fits.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>() + u64::from(u32::from_ne_bytes(last))
}

/// The sum with its carries added, in 16 bits.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

fn u16_at(bytes: &[u8], at: Range<usize>) -> Option<u16> {
    bytes.get(at)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

fn v4_at(ip: &[u8], at: Range<usize>) -> IpAddr {
    let octets: [u8; 4] = *ip[at].first_chunk().expect("the caller has checked the length of the header");
    IpAddr::V4(Ipv4Addr::from(octets))
}

fn v6_at(ip: &[u8], at: Range<usize>) -> IpAddr {
    let octets: [u8; 16] = *ip[at].first_chunk().expect("the caller has checked the length of the header");
    IpAddr::V6(Ipv6Addr::from(octets))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
