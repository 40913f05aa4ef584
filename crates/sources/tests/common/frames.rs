//! Ethernet frames with UDP datagrams as they are on a wire. Written from the RFCs (768, 791, 8200, IEEE 802.1Q),
//! without the code under test.
#![allow(dead_code)]

use std::net::{IpAddr, SocketAddr};

/// Hardware address of the machine that receives.
pub const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Hardware address of the detector.
pub const DETECTOR: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A frame with the datagram `payload`.
pub fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], &ip(from.ip(), to.ip(), 17, &udp(from, to, payload)))
}

/// The frames of the datagram `payload` where IP packets have at most `mtu` bytes.
pub fn fragments(from: SocketAddr, to: SocketAddr, payload: &[u8], mtu: usize, id: u16) -> Vec<Vec<u8>> {
    let whole = udp(from, to, payload);
    let header = if to.is_ipv4() { 20 } else { 48 };
    let step = (mtu - header) / 8 * 8;
    let count = whole.len().div_ceil(step);
    let part = |(n, bytes): (usize, &[u8])| {
        let (offset, more) = ((n * step) as u16, n + 1 < count);
        let packet = match to.ip() {
            IpAddr::V4(_) => {
                let mut packet = ip(from.ip(), to.ip(), 17, bytes);
                packet[4..6].copy_from_slice(&id.to_be_bytes());
                packet[6..8].copy_from_slice(&((u16::from(more) << 13) | (offset / 8)).to_be_bytes());
                seal_ipv4(&mut packet, 20);
                packet
            }
            IpAddr::V6(_) => {
                let mut extension = vec![17, 0];
                extension.extend((offset | u16::from(more)).to_be_bytes());
                extension.extend(u32::from(id).to_be_bytes());
                extension.extend(bytes);
                ip(from.ip(), to.ip(), 44, &extension)
            }
        };
        ethernet(&[], &packet)
    };
    whole.chunks(step).enumerate().map(part).collect()
}

/// UDP header with checksum, and payload.
pub fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut bytes = Vec::new();
    for number in [from.port(), to.port(), length, 0] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(payload);
    let mut covered = octets(from.ip());
    covered.extend(octets(to.ip()));
    covered.extend([0, 17]);
    covered.extend(length.to_be_bytes());
    covered.extend(&bytes);
    // A sum of 0 is sent as its other form, because 0 means that there is none.
    let checksum = match checksum(&covered) {
        0 => 0xFFFF,
        sum => sum,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// An IP packet of `protocol`.
pub fn ip(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = match to {
        IpAddr::V4(_) => {
            let mut header = vec![0x45, 0];
            header.extend(((20 + payload.len()) as u16).to_be_bytes());
            header.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            header
        }
        IpAddr::V6(_) => {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend((payload.len() as u16).to_be_bytes());
            header.extend([protocol, 64]);
            header
        }
    };
    packet.extend(octets(from));
    packet.extend(octets(to));
    if to.is_ipv4() {
        seal_ipv4(&mut packet, 20);
    }
    packet.extend(payload);
    packet
}

/// Writes the checksum of an IPv4 header.
pub fn seal_ipv4(packet: &mut [u8], header_bytes: usize) {
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header_bytes]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// A frame from the detector, with the tags of these VLANs.
pub fn ethernet(vlans: &[u16], packet: &[u8]) -> Vec<u8> {
    let mut frame = [RECEIVER, DETECTOR].concat();
    for vlan in vlans {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xDD] });
    frame.extend(packet);
    // Shorter frames are padded by the card.
    if frame.len() < 60 {
        frame.resize(60, 0xEE);
    }
    frame
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// RFC 1071, word by word.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}
