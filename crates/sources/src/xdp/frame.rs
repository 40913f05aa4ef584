//! The Ethernet frames that the filter sends to a socket: where the payload of the datagram lies, who sent it, and
//! whether its checksum is right. The filter has checked the headers already (`filter.rs`); they are checked again
//! here, because memory is only read where this code has seen that it may be.
//!
//! Formats: Ethernet with 802.1Q and 802.1ad tags; IPv4, RFC 791; IPv6, RFC 8200; UDP, RFC 768; checksums, RFC 1071.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
const TAGS_MAX: usize = 2;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
/// More fragments, or an offset.
const FRAGMENT: u16 = 0x3fff;

/// Bytes of a frame that are not of its IP packet, at most. (The interface's MTU is that of the IP packet.)
pub(crate) const OVERHEAD_BYTES: usize = ETHERNET_BYTES + TAGS_MAX * TAG_BYTES;

/// One UDP datagram in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub sender: SocketAddr,
    /// Where the payload lies in the frame.
    pub payload: Range<usize>,
    checksum: Checksum,
}

/// What the header says of the checksum. All sums are of 16-bit words in the order of the wire, read as the machine
/// reads them: the order of the bytes makes no difference to whether a sum is right (RFC 1071, 2.B).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Checksum {
    /// The sender computed none (over IPv4 only).
    Absent,
    /// Sum of addresses, protocol and length, sum of the UDP header, and the checksum itself.
    Present { pseudo: u64, header: u64, field: u16 },
}

impl Datagram {
    /// Finds the datagram in a frame of `frame_bytes`, of which `first` is the beginning (all of it, or its first
    /// buffer). `None` if the frame is no whole UDP datagram.
    pub(crate) fn find(first: &[u8], frame_bytes: usize) -> Option<Self> {
        let mut ethertype = u16_at(first, 12)?;
        let mut start = ETHERNET_BYTES;
        for _ in 0..TAGS_MAX {
            if matches!(ethertype, 0x8100 | 0x88a8) {
                ethertype = u16_at(first, start + 2)?;
                start += TAG_BYTES;
            }
        }
        let ip = first.get(start..)?;
        // Addresses, header bytes, bytes behind the header.
        let (source, addresses, header_bytes, ip_payload_bytes) = match ethertype {
            0x0800 => {
                let header = ip.get(..IPV4_BYTES)?;
                let total_bytes = usize::from(u16_at(header, 2)?);
                if header[0] != 0x45 || header[9] != UDP || u16_at(header, 6)? & FRAGMENT != 0 {
                    return None;
                }
                let source = IpAddr::from(Ipv4Addr::from(*header[12..16].as_array()?));
                (source, &header[12..20], IPV4_BYTES, total_bytes.checked_sub(IPV4_BYTES)?)
            }
            0x86dd => {
                let header = ip.get(..IPV6_BYTES)?;
                if header[0] >> 4 != 6 || header[6] != UDP {
                    return None;
                }
                let source = IpAddr::from(Ipv6Addr::from(*header[8..24].as_array()?));
                (source, &header[8..40], IPV6_BYTES, usize::from(u16_at(header, 4)?))
            }
            _ => return None,
        };
        let udp = ip.get(header_bytes..header_bytes + UDP_BYTES)?;
        let udp_bytes = usize::from(u16_at(udp, 4)?);
        let udp_start = start + header_bytes;
        if udp_bytes < UDP_BYTES || udp_bytes > ip_payload_bytes || udp_start + ip_payload_bytes > frame_bytes {
            return None;
        }
        let field = u16::from_ne_bytes([udp[6], udp[7]]);
        let checksum = if field == 0 && ethertype == 0x0800 {
            Checksum::Absent
        } else {
            let rest = u64::from(u16::from(UDP).to_be()) + u64::from((udp_bytes as u16).to_be());
            Checksum::Present { pseudo: sum(addresses) + rest, header: sum(udp), field }
        };
        let sender = SocketAddr::new(source, u16_at(udp, 0)?);
        Some(Self { sender, payload: udp_start + UDP_BYTES..udp_start + udp_bytes, checksum })
    }

    /// True if the sender computed no checksum, if it is right, or if the sender left it to its network card and the
    /// frame has never been on a wire (as between two programs on one machine): then the field has the sum of
    /// addresses, protocol and length only.
    pub(crate) fn checksum_is_right(&self, payload: &[u8]) -> bool {
        match self.checksum {
            Checksum::Absent => true,
            Checksum::Present { pseudo, header, field } => {
                field != 0 && (fold(pseudo + header + sum(payload)) == 0xffff || field == fold(pseudo))
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..at + 2)?.as_array()?))
}

/// Sum of the 16-bit words, not folded: the words are added in pairs. A last single byte counts as if a zero followed.
/// Datagrams are far too short for an overflow.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>() + u64::from(u32::from_ne_bytes(last))
}

/// The sum with its carries added, in 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Copies the part `range` of what the pieces make one after the other to the beginning of `into`, and returns it.
/// `None` if `into` is too small or the pieces are too short.
pub(crate) fn gather<'a, 'p>(
    pieces: impl Iterator<Item = &'p [u8]>,
    range: &Range<usize>,
    into: &'a mut [u8],
) -> Option<&'a [u8]> {
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

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
