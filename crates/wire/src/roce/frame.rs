//! Ethernet frames with packets of RoCEv2, for captures and packet sockets: with the IP header, unlike behind a UDP
//! socket, so that the iCRC can always be compared.
//!
//! Facts relied on: docs/protocols.md 8 (Ethernet, tags of VLANs).

use super::UDP_PORT;
use super::outer::{NoDatagram, Outer};
use crate::packet::array;
use std::ops::Range;

/// Byte ranges of a frame without tags.
mod field {
    use std::ops::Range;
    pub const DESTINATION: Range<usize> = 0..6;
    pub const SOURCE: Range<usize> = 6..12;
    pub const ETHER_TYPE: Range<usize> = 12..14;
}

/// Bytes of the Ethernet header without tags.
pub const ETHERNET_BYTES: usize = 14;
/// The shortest frame without its check sequence; shorter ones are filled with zeros.
pub const FRAME_BYTES_MIN: usize = 60;
/// Bytes of a tag.
const TAG_BYTES: usize = 4;
/// More tags than a provider and a customer put in front are not looked through.
const TAGS_MAX: usize = 2;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86DD;
const TYPE_TAG: [u16; 2] = [0x8100, 0x88A8];

/// Finds the packet of RoCEv2 in a frame: the headers around it, and its bytes. Tags of VLANs are passed over.
///
/// # Errors
/// The frame is other traffic, or must not be used.
pub fn packet_of(frame: &[u8]) -> Result<(Outer, &[u8]), NoDatagram> {
    let mut at = field::ETHER_TYPE;
    for _ in 0..=TAGS_MAX {
        let bytes = frame.get(at.clone()).ok_or(NoDatagram::Length)?;
        let ether_type = u16::from_be_bytes(array(bytes, 0..2));
        if !TYPE_TAG.contains(&ether_type) {
            let (outer, payload) = match ether_type {
                TYPE_IPV4 | TYPE_IPV6 => Outer::of_ip_packet(&frame[at.end..])?,
                _ => return Err(NoDatagram::OtherTraffic),
            };
            return if outer.destination_port == UDP_PORT { Ok((outer, payload)) } else { Err(NoDatagram::OtherTraffic) };
        }
        at = at.start + TAG_BYTES..at.end + TAG_BYTES;
    }
    Err(NoDatagram::OtherTraffic)
}

/// Addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Who receives.
    pub destination: [u8; 6],
    /// Who sends.
    pub source: [u8; 6],
}

impl Ethernet {
    /// Writes Ethernet, IP and UDP header of a frame with a packet of so many bytes; returns their bytes. The packet
    /// comes behind them, and the frame is filled with zeros to [`FRAME_BYTES_MIN`].
    ///
    /// # Panics
    /// As [`Outer::write`].
    pub fn write(&self, outer: &Outer, packet_bytes: usize, type_of_service: u8, into: &mut [u8]) -> usize {
        let ether_type = if matches!(outer.ip, super::outer::Ip::V4 { .. }) { TYPE_IPV4 } else { TYPE_IPV6 };
        into[field::DESTINATION].copy_from_slice(&self.destination);
        into[field::SOURCE].copy_from_slice(&self.source);
        into[field::ETHER_TYPE].copy_from_slice(&ether_type.to_be_bytes());
        ETHERNET_BYTES + outer.write(packet_bytes, type_of_service, &mut into[ETHERNET_BYTES..])
    }
}

/// Where the packet lies in a frame that [`packet_of`] was given; `packet` = what it returned.
pub fn range_in(frame: &[u8], packet: &[u8]) -> Range<usize> {
    let start = packet.as_ptr().addr() - frame.as_ptr().addr();
    start..start + packet.len()
}
