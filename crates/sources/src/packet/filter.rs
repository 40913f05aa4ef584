//! The filter that the kernel runs for each frame of an interface, so that only frames of one stream reach its ring.
//!
//! It is a program of the classic packet filter (`Documentation/networking/filter.rst` of Linux). It sees the frame
//! from the Ethernet header on and returns how many bytes to keep; 0 refuses the frame. Of a datagram in fragments the
//! head of the first one is kept: it is counted, never used. The kernel has taken VLAN tags out, and calls frames of a
//! VLAN that has no interface here "for another machine".

use crate::frame::ETHERNET_BYTES;
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
    Load(u16, u32),
    Test(u16, u32, Goes, Goes),
}
use Goes::{All, Head, On, Out, Over};
use Step::{Load, Test};

/// The filter for the datagrams to one address and port.
pub(crate) fn program(to: SocketAddr) -> Vec<sock_filter> {
    let steps = match to.ip() {
        IpAddr::V4(ip) => ipv4(u32::from(ip), to.port().into()),
        IpAddr::V6(ip) => ipv6(ip.octets(), to.port().into()),
    };
    assemble(&steps)
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

fn ipv4(address: u32, port: u32) -> Vec<Step> {
    const IP: u32 = ETHERNET_BYTES as u32;
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
        Test(JUMP_IF_ANY_BIT, MORE_FRAGMENTS, Head, All),
    ]);
    steps
}

fn ipv6(address: [u8; 16], port: u32) -> Vec<Step> {
    const IP: u32 = ETHERNET_BYTES as u32;
    const UDP: u32 = IP + 40;
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
        Test(JUMP_IF_EQUAL, port, Head, Out),
        // A whole datagram.
        Load(LOAD_HALF, UDP + 2),
        Test(JUMP_IF_EQUAL, port, All, Out),
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
