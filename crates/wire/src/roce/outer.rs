//! The headers around a packet of RoCEv2, as far as its iCRC covers them, and the iCRC.
//!
//! Facts relied on (docs/protocols.md 10.3; InfiniBand Architecture Specification, annex A17): the iCRC is the CRC-32
//! of Ethernet and zlib, over 8 bytes 0xFF, the IP header, the UDP header, and the packet without the iCRC. Fields that
//! change on the way count as ones: TOS, TTL and header checksum of IPv4, traffic class, flow label and hop limit of
//! IPv6, the checksum of UDP, and byte 4 of the BTH. It stands in the packet little-endian.

use super::{BTH_BYTES, ICRC_BYTES, bth};
use crate::packet::array;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_BYTES: usize = 40;
/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;
/// Ones in place of the header of a link layer that RoCEv2 does not have.
const LINK_BYTES: usize = 8;
/// The longest input of the iCRC before the second word of the BTH.
const HEAD_BYTES_MAX: usize = LINK_BYTES + IPV6_BYTES + UDP_BYTES + BTH_BYTES;
/// Don't fragment.
pub const DONT_FRAGMENT: u16 = 0x4000;
const PROTOCOL_UDP: u8 = 17;

/// Byte ranges of the IP and UDP headers.
pub(super) mod field {
    use std::ops::Range;
    pub const VERSION_AND_WORDS: usize = 0;
    pub const TYPE_OF_SERVICE: usize = 1;
    pub const V4_BYTES: Range<usize> = 2..4;
    pub const V4_IDENTIFICATION: Range<usize> = 4..6;
    pub const V4_FRAGMENT: Range<usize> = 6..8;
    pub const V4_TIME_TO_LIVE: usize = 8;
    pub const V4_PROTOCOL: usize = 9;
    pub const V4_CHECKSUM: Range<usize> = 10..12;
    pub const V4_SOURCE: Range<usize> = 12..16;
    pub const V4_DESTINATION: Range<usize> = 16..20;
    pub const V6_CLASS_AND_FLOW: Range<usize> = 1..4;
    pub const V6_PAYLOAD_BYTES: Range<usize> = 4..6;
    pub const V6_NEXT: usize = 6;
    pub const V6_HOP_LIMIT: usize = 7;
    pub const V6_SOURCE: Range<usize> = 8..24;
    pub const V6_DESTINATION: Range<usize> = 24..40;
    pub const UDP_SOURCE: Range<usize> = 0..2;
    pub const UDP_DESTINATION: Range<usize> = 2..4;
    pub const UDP_BYTES: Range<usize> = 4..6;
    pub const UDP_CHECKSUM: Range<usize> = 6..8;
}

/// The IP header, as far as the iCRC covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// IPv4 without options.
    V4 {
        /// Who sends.
        source: Ipv4Addr,
        /// Who receives.
        destination: Ipv4Addr,
        /// Identification of the packet.
        identification: u16,
        /// Flags, and the offset of a fragment. Packets of RoCEv2 are never fragmented.
        flags: u16,
    },
    /// IPv6 without extension headers.
    V6 {
        /// Who sends.
        source: Ipv6Addr,
        /// Who receives.
        destination: Ipv6Addr,
    },
}

/// The headers around a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The IP header.
    pub ip: Ip,
    /// UDP port of the sender.
    pub source_port: u16,
    /// UDP port of the receiver, [`super::UDP_PORT`].
    pub destination_port: u16,
}

/// Why an IP packet has no packet of RoCEv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDatagram {
    /// It is no UDP, or IP with options or extension headers.
    OtherTraffic,
    /// It is part of a datagram that was sent in several pieces.
    Fragment,
    /// The lengths in the headers contradict each other or the packet.
    Length,
}

impl Outer {
    /// Reads an IP packet; what is behind its announced end (padding of short frames) is left out. Returns the headers
    /// and the payload of the UDP datagram. Checksums of IP and UDP are not compared, because the iCRC covers more.
    ///
    /// # Errors
    /// It has no datagram that RoCEv2 could be in.
    #[inline]
    pub fn of_ip_packet(bytes: &[u8]) -> Result<(Self, &[u8]), NoDatagram> {
        match bytes.first().ok_or(NoDatagram::Length)? >> 4 {
            4 => Self::of_ipv4(bytes),
            6 => Self::of_ipv6(bytes),
            _ => Err(NoDatagram::OtherTraffic),
        }
    }

    fn of_ipv4(bytes: &[u8]) -> Result<(Self, &[u8]), NoDatagram> {
        let header: &[u8; IPV4_BYTES] = bytes.first_chunk().ok_or(NoDatagram::Length)?;
        if header[field::VERSION_AND_WORDS] != 0x45 || header[field::V4_PROTOCOL] != PROTOCOL_UDP {
            return Err(NoDatagram::OtherTraffic);
        }
        let flags = u16::from_be_bytes(array(header, field::V4_FRAGMENT));
        if flags & 0x3FFF != 0 {
            return Err(NoDatagram::Fragment);
        }
        let end = usize::from(u16::from_be_bytes(array(header, field::V4_BYTES)));
        let ip = Ip::V4 {
            source: Ipv4Addr::from(array::<4>(header, field::V4_SOURCE)),
            destination: Ipv4Addr::from(array::<4>(header, field::V4_DESTINATION)),
            identification: u16::from_be_bytes(array(header, field::V4_IDENTIFICATION)),
            flags,
        };
        Self::with_udp(ip, bytes.get(IPV4_BYTES..end).ok_or(NoDatagram::Length)?)
    }

    fn of_ipv6(bytes: &[u8]) -> Result<(Self, &[u8]), NoDatagram> {
        let header: &[u8; IPV6_BYTES] = bytes.first_chunk().ok_or(NoDatagram::Length)?;
        if header[field::V6_NEXT] != PROTOCOL_UDP {
            let is_fragment = header[field::V6_NEXT] == 44;
            return Err(if is_fragment { NoDatagram::Fragment } else { NoDatagram::OtherTraffic });
        }
        let end = IPV6_BYTES + usize::from(u16::from_be_bytes(array(header, field::V6_PAYLOAD_BYTES)));
        let ip = Ip::V6 {
            source: Ipv6Addr::from(array::<16>(header, field::V6_SOURCE)),
            destination: Ipv6Addr::from(array::<16>(header, field::V6_DESTINATION)),
        };
        Self::with_udp(ip, bytes.get(IPV6_BYTES..end).ok_or(NoDatagram::Length)?)
    }

    /// `udp` = UDP header and payload. RoCEv2 leaves no room between the end of the datagram and that of the IP packet.
    fn with_udp(ip: Ip, udp: &[u8]) -> Result<(Self, &[u8]), NoDatagram> {
        let (header, payload) = udp.split_first_chunk::<UDP_BYTES>().ok_or(NoDatagram::Length)?;
        if usize::from(u16::from_be_bytes(array(header, field::UDP_BYTES))) != udp.len() {
            return Err(NoDatagram::Length);
        }
        let source_port = u16::from_be_bytes(array(header, field::UDP_SOURCE));
        let destination_port = u16::from_be_bytes(array(header, field::UDP_DESTINATION));
        Ok((Self { ip, source_port, destination_port }, payload))
    }

    /// Of a datagram whose IP header is not known, because a UDP socket brought it or is to send it: identification 0
    /// and "don't fragment", as Linux sends from a socket that is not connected and has `IP_MTU_DISCOVER` =
    /// `IP_PMTUDISC_DO`. From other senders, the iCRC of IPv4 packets cannot be compared behind a socket. `None` if one
    /// of the addresses is of IPv4 and the other is not.
    pub fn of_udp_socket(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let ip = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Ip::V4 { source, destination, identification: 0, flags: DONT_FRAGMENT }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ip::V6 { source, destination },
            _ => return None,
        };
        Some(Self { ip, source_port: source.port(), destination_port: destination.port() })
    }

    /// Who sends.
    pub fn source(&self) -> SocketAddr {
        let ip = match self.ip {
            Ip::V4 { source, .. } => IpAddr::V4(source),
            Ip::V6 { source, .. } => IpAddr::V6(source),
        };
        SocketAddr::new(ip, self.source_port)
    }

    /// Bytes of IP and UDP header.
    pub fn header_bytes(&self) -> usize {
        UDP_BYTES + if matches!(self.ip, Ip::V4 { .. }) { IPV4_BYTES } else { IPV6_BYTES }
    }

    /// Writes IP and UDP header of a datagram with so much payload, with what the iCRC does not cover as ones; returns
    /// their bytes.
    fn write_masked(&self, payload_bytes: usize, into: &mut [u8]) -> usize {
        let udp_bytes = (payload_bytes + UDP_BYTES) as u16;
        let at = match self.ip {
            Ip::V4 { source, destination, identification, flags } => {
                into[..IPV4_BYTES].fill(0xFF);
                into[field::VERSION_AND_WORDS] = 0x45;
                into[field::V4_BYTES].copy_from_slice(&(udp_bytes + IPV4_BYTES as u16).to_be_bytes());
                into[field::V4_IDENTIFICATION].copy_from_slice(&identification.to_be_bytes());
                into[field::V4_FRAGMENT].copy_from_slice(&flags.to_be_bytes());
                into[field::V4_PROTOCOL] = PROTOCOL_UDP;
                into[field::V4_SOURCE].copy_from_slice(&source.octets());
                into[field::V4_DESTINATION].copy_from_slice(&destination.octets());
                IPV4_BYTES
            }
            Ip::V6 { source, destination } => {
                into[..IPV6_BYTES].fill(0xFF);
                into[field::VERSION_AND_WORDS] = 0x6F;
                into[field::V6_PAYLOAD_BYTES].copy_from_slice(&udp_bytes.to_be_bytes());
                into[field::V6_NEXT] = PROTOCOL_UDP;
                into[field::V6_SOURCE].copy_from_slice(&source.octets());
                into[field::V6_DESTINATION].copy_from_slice(&destination.octets());
                IPV6_BYTES
            }
        };
        let udp = &mut into[at..at + UDP_BYTES];
        udp[field::UDP_SOURCE].copy_from_slice(&self.source_port.to_be_bytes());
        udp[field::UDP_DESTINATION].copy_from_slice(&self.destination_port.to_be_bytes());
        udp[field::UDP_BYTES].copy_from_slice(&udp_bytes.to_be_bytes());
        udp[field::UDP_CHECKSUM].fill(0xFF);
        at + UDP_BYTES
    }

    /// Writes the IP and UDP header of a datagram with so much payload, as a raw socket or a frame needs them: DSCP and
    /// ECN `type_of_service`, 64 hops, flow label 0, no checksum of UDP (Linux's UDP sockets refuse such packets over
    /// IPv6 unless `UDP_NO_CHECK6_RX` is set). Returns their bytes.
    ///
    /// # Panics
    /// `into` is shorter than [`Outer::header_bytes`], or the datagram is longer than 65 535 bytes.
    pub fn write(&self, payload_bytes: usize, type_of_service: u8, into: &mut [u8]) -> usize {
        assert!(payload_bytes + self.header_bytes() <= usize::from(u16::MAX), "a datagram of {payload_bytes} bytes is too long");
        let bytes = self.write_masked(payload_bytes, into);
        into[bytes - UDP_BYTES..][field::UDP_CHECKSUM].fill(0);
        if matches!(self.ip, Ip::V4 { .. }) {
            into[field::TYPE_OF_SERVICE] = type_of_service;
            into[field::V4_TIME_TO_LIVE] = 64;
            into[field::V4_CHECKSUM].fill(0);
            let checksum = checksum(&into[..IPV4_BYTES]);
            into[field::V4_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        } else {
            into[field::VERSION_AND_WORDS] = 0x60 | type_of_service >> 4;
            into[field::V6_CLASS_AND_FLOW].copy_from_slice(&[type_of_service << 4, 0, 0]);
            into[field::V6_HOP_LIMIT] = 64;
        }
        bytes
    }

    /// The iCRC of a packet in these headers. `pieces` = the packet without its iCRC, in one or several pieces, of
    /// which the first has at least the BTH.
    ///
    /// # Panics
    /// The first piece is shorter than the BTH, or all are longer than 65 535 bytes.
    pub fn icrc(&self, pieces: &[&[u8]]) -> u32 {
        let packet_bytes: usize = pieces.iter().map(|piece| piece.len()).sum::<usize>() + ICRC_BYTES;
        assert!(packet_bytes + self.header_bytes() <= usize::from(u16::MAX), "a packet of {packet_bytes} bytes is too long");
        let mut head = [0xFF; HEAD_BYTES_MAX];
        let at = LINK_BYTES + self.write_masked(packet_bytes, &mut head[LINK_BYTES..]);
        let (first, rest) = pieces[0].split_at(BTH_BYTES);
        head[at..at + BTH_BYTES].copy_from_slice(first);
        head[at + bth::CONGESTION] = 0xFF;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head[..at + BTH_BYTES]);
        hasher.update(rest);
        pieces[1..].iter().for_each(|piece| hasher.update(piece));
        hasher.finalize()
    }

    /// Writes the iCRC to the end of a packet.
    ///
    /// # Panics
    /// The packet is shorter than BTH and iCRC.
    pub fn seal(&self, packet: &mut [u8]) {
        let (covered, icrc) = packet.split_at_mut(packet.len() - ICRC_BYTES);
        icrc.copy_from_slice(&self.icrc(&[covered]).to_le_bytes());
    }

    /// Whether the iCRC of this packet is right in these headers.
    #[inline]
    pub fn is_right(&self, packet: &super::Packet<'_>) -> bool {
        let covered = &packet.bytes()[..packet.bytes().len() - ICRC_BYTES];
        covered.len() + ICRC_BYTES + self.header_bytes() <= usize::from(u16::MAX) && self.icrc(&[covered]) == packet.icrc()
    }
}

/// The checksum of an IPv4 header whose own field is 0 (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = (0..header.len() / 2).map(|n| u32::from(u16::from_be_bytes(array(header, word(n))))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !(((folded & 0xFFFF) + (folded >> 16)) as u16)
}

fn word(n: usize) -> Range<usize> {
    n * 2..n * 2 + 2
}
