//! The filter that the kernel runs for each frame of an interface, so that only frames of one stream reach its ring.
//!
//! It is a program of the classic packet filter (`Documentation/networking/filter.rst` of Linux). It sees the frame
//! from the Ethernet header on and returns how many bytes to keep; 0 refuses the frame. Of a datagram in fragments the
//! head of the first one is kept: it is counted, never used. The kernel has taken VLAN tags out, and calls frames of a
//! VLAN that has no interface here "for another machine".

use crate::frame::ETHERNET_BYTES;
use crate::shared_port::{NUMBER_MASK, SharingStream};
use libc::{SKF_AD_OFF, SKF_AD_PKTTYPE, sock_filter};
use std::net::{IpAddr, SocketAddr};

/// Bytes of a head: Ethernet, IP with all its options, UDP.
pub(crate) const HEAD_BYTES: u32 = 128;
/// More than any frame has.
pub(crate) const ALL_BYTES: u32 = 0x4_0000;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_BEHIND_X: u16 = 0x48;
const LOAD_WORD_BEHIND_X: u16 = 0x40;
const AND: u16 = 0x54;
const SUBTRACT: u16 = 0x14;
const JUMP_IF_AT_LEAST: u16 = 0x35;
/// X = 4 * (byte & 0xF): the length of an IPv4 header.
const LOAD_X_HEADER_BYTES: u16 = 0xB1;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Where the kernel shows for whom a frame is.
const PACKET_TYPE: u32 = (SKF_AD_OFF + SKF_AD_PKTTYPE) as u32;
const TO_HOST: u32 = libc::PACKET_HOST as u32;

const TYPE_IPV4: u32 = 0x0800;
const TYPE_IPV6: u32 = 0x86DD;
const PROTOCOL_UDP: u32 = 17;
const PROTOCOL_FRAGMENT: u32 = 44;
/// Where the IP header begins, and the UDP header behind one of IPv6.
const IP: u32 = ETHERNET_BYTES as u32;
const IPV6_UDP: u32 = IP + 40;
const UDP_BYTES: u32 = 8;

/// Where a test goes on.
#[derive(Clone, Copy, PartialEq)]
enum Goes {
    /// To the instruction behind it.
    On,
    /// So many instructions further.
    Over(u8),
    /// The frame is refused.
    Out,
    /// The head is kept.
    Head,
    /// Everything is kept.
    All,
}

#[derive(Clone, Copy)]
enum Step {
    /// A load, or a computation with the number that was loaded.
    Load(u16, u32),
    Test(u16, u32, Goes, Goes),
}
use Goes::{All, Head, On, Out, Over};
use Step::{Load, Test};

/// The filter for the datagrams to one address and port, and of one stream among those that share the port.
pub(crate) fn program(to: SocketAddr, sharing: Option<SharingStream>) -> Vec<sock_filter> {
    // Fragments are counted once. With IPv4, X is the length of the IP header at the end.
    let fragment = if sharing.is_none_or(|sharing| sharing.stream == 0) { Head } else { Out };
    let whole = if sharing.is_some() { On } else { All };
    let (mut steps, loads, udp) = match to.ip() {
        IpAddr::V4(ip) => (ipv4(u32::from(ip), to.port().into(), fragment, whole), [LOAD_HALF_BEHIND_X, LOAD_WORD_BEHIND_X], IP),
        IpAddr::V6(ip) => (ipv6(ip.octets(), to.port().into(), fragment, whole), [LOAD_HALF, LOAD_WORD], IPV6_UDP),
    };
    steps.extend(sharing.iter().flat_map(|sharing| number(sharing, loads, udp)));
    assemble(&steps)
}

/// Whether the number of a datagram is that of the stream. A datagram of no stream, or too short to have a number, goes
/// to the first one. `udp` = where the UDP header begins for these loads of 2 and 4 bytes.
fn number(sharing: &SharingStream, [half, word]: [u16; 2], udp: u32) -> Vec<Step> {
    let SharingStream { shared, stream, streams } = *sharing;
    let end_byte = UDP_BYTES + shared.end_byte;
    let of_nobody = if stream == 0 { All } else { Out };
    vec![
        Load(half, udp + 4),
        Test(JUMP_IF_AT_LEAST, end_byte, On, of_nobody),
        Load(word, udp + end_byte - 4),
        Load(AND, NUMBER_MASK),
        Load(SUBTRACT, shared.first),
        Test(JUMP_IF_EQUAL, stream, All, On),
        Test(JUMP_IF_AT_LEAST, streams, of_nobody, Out),
    ]
}

/// A filter that refuses everything.
pub(crate) fn nothing() -> Vec<sock_filter> {
    vec![sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }]
}

/// What every frame of a stream is: an IP packet of this version to this machine.
fn is_for_us(ether_type: u32) -> [Step; 4] {
    [
        Load(LOAD_HALF, 12),
        Test(JUMP_IF_EQUAL, ether_type, On, Out),
        Load(LOAD_WORD, PACKET_TYPE),
        Test(JUMP_IF_EQUAL, TO_HOST, On, Out),
    ]
}

/// `fragment`, `whole` = where it goes on for the first fragment of a datagram of the port, and for a whole one.
fn ipv4(address: u32, port: u32, fragment: Goes, whole: Goes) -> Vec<Step> {
    const MORE_FRAGMENTS: u32 = 0x2000;
    const OFFSET: u32 = 0x1FFF;
    let mut steps = is_for_us(TYPE_IPV4).to_vec();
    steps.extend([
        Load(LOAD_BYTE, IP + 9),
        Test(JUMP_IF_EQUAL, PROTOCOL_UDP, On, Out),
        Load(LOAD_WORD, IP + 16),
        Test(JUMP_IF_EQUAL, address, On, Out),
        Load(LOAD_HALF, IP + 6),
        Test(JUMP_IF_ANY_BIT, OFFSET, Out, On),
        Load(LOAD_X_HEADER_BYTES, IP),
        Load(LOAD_HALF_BEHIND_X, IP + 2),
        Test(JUMP_IF_EQUAL, port, On, Out),
        Load(LOAD_HALF, IP + 6),
        Test(JUMP_IF_ANY_BIT, MORE_FRAGMENTS, fragment, whole),
    ]);
    steps
}

/// As [`ipv4`].
fn ipv6(address: [u8; 16], port: u32, fragment: Goes, whole: Goes) -> Vec<Step> {
    const UDP: u32 = IPV6_UDP;
    /// Of the extension header of a fragment.
    const OFFSET: u32 = 0xFFF8;
    let mut steps = is_for_us(TYPE_IPV6).to_vec();
    for (n, word) in address.as_chunks::<4>().0.iter().enumerate() {
        steps.extend([Load(LOAD_WORD, IP + 24 + 4 * n as u32), Test(JUMP_IF_EQUAL, u32::from_be_bytes(*word), On, Out)]);
    }
    steps.extend([
        Load(LOAD_BYTE, IP + 6),
        Test(JUMP_IF_EQUAL, PROTOCOL_UDP, Over(7), On),
        Test(JUMP_IF_EQUAL, PROTOCOL_FRAGMENT, On, Out),
        // A fragment.
        Load(LOAD_BYTE, UDP),
        Test(JUMP_IF_EQUAL, PROTOCOL_UDP, On, Out),
        Load(LOAD_HALF, UDP + 2),
        Test(JUMP_IF_ANY_BIT, OFFSET, Out, On),
        Load(LOAD_HALF, UDP + 8 + 2),
        Test(JUMP_IF_EQUAL, port, fragment, Out),
        // A whole datagram.
        Load(LOAD_HALF, UDP + 2),
        Test(JUMP_IF_EQUAL, port, whole, Out),
    ]);
    steps
}

/// The steps as instructions, with the three ends behind them.
fn assemble(steps: &[Step]) -> Vec<sock_filter> {
    let ends = [0, HEAD_BYTES, ALL_BYTES];
    let distance = |from: usize, goes: Goes| {
        let to_end = |end: usize| u8::try_from(steps.len() + end - from - 1).expect("a filter has fewer than 256 instructions");
        match goes {
            On => 0,
            Over(instructions) => instructions,
            Out => to_end(0),
            Head => to_end(1),
            All => to_end(2),
        }
    };
    let instruction = |(at, step): (usize, &Step)| match *step {
        Load(code, k) => sock_filter { code, jt: 0, jf: 0, k },
        Test(code, k, yes, no) => sock_filter { code, jt: distance(at, yes), jf: distance(at, no), k },
    };
    let ends = ends.map(|k| sock_filter { code: RETURN, jt: 0, jf: 0, k });
    steps.iter().enumerate().map(instruction).chain(ends).collect()
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
