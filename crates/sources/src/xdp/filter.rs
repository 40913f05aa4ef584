//! The XDP program that picks the detector's datagrams out of the traffic of an interface. It runs in the kernel for
//! every frame, before the network stack. Datagrams to the ports of the streams go to their sockets; everything else
//! goes on to the kernel unchanged. Streams may share a port; a number in their datagrams then tells them apart.
//!
//! What is a datagram of the detector: an Ethernet frame to this interface (or to a group), with at most two VLAN tags
//! (802.1Q, 802.1ad) that only give a priority, IPv4 without options and not a fragment, or IPv6 without extension
//! headers; UDP; the address and a port of the streams. Frames of a VLAN are for the VLAN's own interface. Datagrams
//! that the kernel has joined go back to it. Lengths and checksums are not looked at here: the reader refuses what is
//! wrong, and counts it by reason (`../frame.rs`).

use crate::shared_port::{NUMBER_MASK, SharedPort};
use konkordia_core::ebpf::{Assembler, If, Instruction, Register::*, Size};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which traffic is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// The Ethernet address of the interface.
    pub mac: [u8; 6],
    /// The address to which datagrams are sent, of an interface.
    pub address: IpAddr,
    /// What tells the streams apart.
    pub streams: Streams,
    /// Bytes of the longest frame that the interface can receive.
    pub frame_bytes_max: u32,
}

/// What tells streams apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// The port of each.
    Ports(Vec<u16>),
    /// A number in the datagrams to this port, for so many streams. Datagrams of other numbers, and those that are too
    /// short for one, go to the first stream, so that they are refused and counted.
    Numbers(u16, SharedPort, usize),
}

impl Streams {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Ports(ports) => ports.len(),
            Self::Numbers(_, _, streams) => *streams,
        }
    }
}

/// The maps that the program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapFds {
    /// Sockets (`BPF_MAP_TYPE_XSKMAP`): the one of stream s for queue q is number `q x streams + s`.
    pub sockets: i32,
    /// [`COUNTERS`] numbers of 64 bits for each CPU (`BPF_MAP_TYPE_PERCPU_ARRAY`).
    pub counters: i32,
}

/// Numbers in the map of counters; their indices are below.
pub(crate) const COUNTERS: usize = 4;
/// Frames that are not the detector's.
pub(crate) const PASSED: usize = 0;
/// Datagrams that went to a socket.
pub(crate) const REDIRECTED: usize = 1;
/// Datagrams on a queue that has no socket; the kernel gets them.
pub(crate) const WITHOUT_SOCKET: usize = 2;
/// Frames longer than the interface can receive, with a datagram to a port of the streams: several datagrams that the
/// kernel has joined (GRO, or GSO of a sender on the same machine). The kernel gets them, and divides them again.
pub(crate) const JOINED: usize = 3;

// Results of XDP programs (`enum xdp_action`).
pub(crate) const XDP_PASS: i32 = 2;
pub(crate) const XDP_REDIRECT: i32 = 4;

// Helper functions of the kernel (`enum bpf_func_id`).
const MAP_LOOKUP_ELEM: i32 = 1;
const REDIRECT_MAP: i32 = 51;
const XDP_GET_BUFF_LEN: i32 = 188;

// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

/// EtherTypes as they are loaded: in network order.
const IPV4: i32 = 0x0800_u16.to_be() as i32;
const IPV6: i32 = 0x86dd_u16.to_be() as i32;
const VLAN: i32 = 0x8100_u16.to_be() as i32;
const SERVICE_VLAN: i32 = 0x88a8_u16.to_be() as i32;
const UDP: i32 = 17;
/// Bits of the fragment field that no whole packet has: more fragments, and the offset.
const FRAGMENT: i32 = 0x3fff_u16.to_be() as i32;
/// Bits of a tag that are 0 if it only gives a priority: the number of the VLAN.
const VLAN_NUMBER: i32 = 0x0fff_u16.to_be() as i32;

/// Where on the stack the program keeps the index of the counter and the stream, as offsets from R10.
const COUNTER: i16 = -4;
const STREAM: i16 = -16;

/// Instructions that put metadata in front of a frame of a stream, or jump to "pass". Before: R6 is the context, R8 the
/// UDP header. R6 and the stack must stay as they are.
pub type PutMetadata<'a> = &'a dyn Fn(&mut Assembler);

/// The program. Its registers: R6 context, R7 start of the IP header, R8 start of the UDP header, R9 stream; before the
/// first call R2 start and R3 end of the frame's first buffer, R5 the EtherType in network order.
///
/// # Panics
/// If there are no streams.
pub(crate) fn program(filter: &Filter, maps: MapFds, metadata: Option<PutMetadata<'_>>) -> Vec<Instruction> {
    assert!(filter.streams.count() > 0, "a filter without streams");
    let mut a = Assembler::default();
    ethernet(&mut a, filter.mac);
    match filter.address {
        IpAddr::V4(ip) => ipv4(&mut a, ip),
        IpAddr::V6(ip) => ipv6(&mut a, ip),
    }
    match &filter.streams {
        Streams::Ports(list) => ports(&mut a, list),
        Streams::Numbers(port, shared, streams) => {
            ports(&mut a, &[*port]);
            number(&mut a, *shared, *streams);
        }
    }
    joined(&mut a, filter.frame_bytes_max);
    if let Some(put) = metadata {
        a.store(Size::Bits64, R10, STREAM, R9);
        put(&mut a);
        a.load(Size::Bits64, R9, R10, STREAM);
    }
    redirect(&mut a, filter.streams.count(), maps);
    a.finish()
}

/// Jumps to "pass" unless `bytes` from `start` lie in the first buffer. Without this the kernel refuses to load the
/// loads that follow.
fn require(a: &mut Assembler, start: konkordia_core::ebpf::Register, bytes: i32) {
    a.copy(R0, start);
    a.add(R0, bytes);
    a.jump_if_register(If::Greater, R0, R3, "pass");
}

/// Destination and tags. Afterwards R5 is the EtherType in network order.
fn ethernet(a: &mut Assembler, mac: [u8; 6]) {
    a.copy(R6, R1);
    a.load(Size::Bits32, R2, R6, DATA);
    a.load(Size::Bits32, R3, R6, DATA_END);
    require(a, R2, 14);
    // Groups (multicast, broadcast) have the lowest bit of the first byte.
    a.load(Size::Bits8, R0, R2, 0);
    a.jump_if(If::AnyBit, R0, 1, "for us");
    a.load(Size::Bits32, R0, R2, 0);
    a.jump_if_u32(If::Unequal, R0, u32::from_ne_bytes([mac[0], mac[1], mac[2], mac[3]]), "pass");
    a.load(Size::Bits16, R0, R2, 4);
    a.jump_if(If::Unequal, R0, i32::from(u16::from_ne_bytes([mac[4], mac[5]])), "pass");
    a.label("for us");
    a.load(Size::Bits16, R5, R2, 12);
    a.copy(R7, R2);
    a.add(R7, 14);
    for tag in 0..2 {
        a.jump_if(If::Equal, R5, VLAN, format!("tag {tag}"));
        a.jump_if(If::Unequal, R5, SERVICE_VLAN, "untagged");
        a.label(format!("tag {tag}"));
        require(a, R7, 4);
        a.load(Size::Bits16, R0, R7, 0);
        a.jump_if(If::AnyBit, R0, VLAN_NUMBER, "pass");
        a.load(Size::Bits16, R5, R7, 2);
        a.add(R7, 4);
    }
    a.label("untagged");
}

fn ipv4(a: &mut Assembler, address: Ipv4Addr) {
    a.jump_if(If::Unequal, R5, IPV4, "pass");
    require(a, R7, 20 + 8);
    // Version 4 and a header of 5 words: no options.
    a.load(Size::Bits8, R0, R7, 0);
    a.jump_if(If::Unequal, R0, 0x45, "pass");
    a.load(Size::Bits8, R0, R7, 9);
    a.jump_if(If::Unequal, R0, UDP, "pass");
    a.load(Size::Bits16, R0, R7, 6);
    a.jump_if(If::AnyBit, R0, FRAGMENT, "pass");
    a.load(Size::Bits32, R0, R7, 16);
    a.jump_if_u32(If::Unequal, R0, u32::from_ne_bytes(address.octets()), "pass");
    a.copy(R8, R7);
    a.add(R8, 20);
}

fn ipv6(a: &mut Assembler, address: Ipv6Addr) {
    a.jump_if(If::Unequal, R5, IPV6, "pass");
    require(a, R7, 40 + 8);
    a.load(Size::Bits8, R0, R7, 0);
    a.shift_right(R0, 4);
    a.jump_if(If::Unequal, R0, 6, "pass");
    a.load(Size::Bits8, R0, R7, 6);
    a.jump_if(If::Unequal, R0, UDP, "pass");
    for (word, bytes) in (0i16..).zip(address.octets().as_chunks::<4>().0) {
        a.load(Size::Bits32, R0, R7, 24 + 4 * word);
        a.jump_if_u32(If::Unequal, R0, u32::from_ne_bytes(*bytes), "pass");
    }
    a.copy(R8, R7);
    a.add(R8, 40);
}

/// The stream of the destination port into R9.
fn ports(a: &mut Assembler, ports: &[u16]) {
    a.load(Size::Bits16, R1, R8, 2);
    a.u16_from_network(R1);
    // Streams have consecutive ports as a rule: one comparison for each sequence of them.
    for (first, stream, count) in sequences(ports) {
        let next = format!("not {stream}");
        a.copy(R9, R1);
        a.add(R9, -i32::from(first));
        a.jump_if(If::Greater, R9, count - 1, next.clone());
        a.add(R9, stream);
        a.jump("found");
        a.label(next);
    }
    a.jump("pass");
    a.label("found");
}

/// The stream of the number in the datagram into R9, which is that of the first stream before.
fn number(a: &mut Assembler, shared: SharedPort, streams: usize) {
    const UDP_BYTES: i32 = 8;
    let end = UDP_BYTES + shared.end_byte as i32;
    // Beyond the datagram there may be padding of the frame.
    a.load(Size::Bits16, R1, R8, 4);
    a.u16_from_network(R1);
    a.set(R0, end);
    a.jump_if_register(If::Greater, R0, R1, "of the first");
    a.copy(R0, R8);
    a.add(R0, end);
    a.jump_if_register(If::Greater, R0, R3, "of the first");
    a.load(Size::Bits32, R1, R8, (end - 4) as i16);
    a.from_network(R1, 32);
    let above = NUMBER_MASK.leading_zeros() as i32 + 32;
    a.shift_left(R1, above);
    a.shift_right(R1, above);
    a.add(R1, -(shared.first as i32));
    a.jump_if(If::Greater, R1, streams as i32 - 1, "of the first");
    a.copy(R9, R1);
    a.label("of the first");
}

/// Divides the ports into sequences of consecutive ones: first port, its stream, length.
fn sequences(ports: &[u16]) -> Vec<(u16, i32, i32)> {
    let mut found: Vec<(u16, i32, i32)> = Vec::new();
    for (stream, &port) in (0..).zip(ports) {
        match found.last_mut() {
            Some((first, _, count)) if i32::from(*first) + *count == i32::from(port) => *count += 1,
            _ => found.push((port, stream, 1)),
        }
    }
    found
}

/// Frames that are longer than any on a wire are several datagrams in one.
fn joined(a: &mut Assembler, frame_bytes_max: u32) {
    a.copy(R1, R6);
    // Of all buffers of the frame; those behind the first are out of reach of the loads above.
    a.call(XDP_GET_BUFF_LEN);
    a.jump_if(If::Greater, R0, frame_bytes_max as i32, "joined");
}

/// To the socket of queue and stream, or to the kernel if there is none; then the counter.
fn redirect(a: &mut Assembler, streams: usize, maps: MapFds) {
    a.load(Size::Bits32, R2, R6, RX_QUEUE_INDEX);
    a.multiply(R2, streams as i32);
    a.add_register(R2, R9);
    a.load_map(R1, maps.sockets);
    a.set(R3, XDP_PASS);
    a.call(REDIRECT_MAP);
    a.copy(R6, R0);
    a.store_value(Size::Bits32, R10, COUNTER, REDIRECTED as i32);
    a.jump_if(If::Equal, R6, XDP_REDIRECT, "count");
    a.store_value(Size::Bits32, R10, COUNTER, WITHOUT_SOCKET as i32);
    a.jump("count");

    a.label("joined");
    a.set(R6, XDP_PASS);
    a.store_value(Size::Bits32, R10, COUNTER, JOINED as i32);
    a.jump("count");

    a.label("pass");
    a.set(R6, XDP_PASS);
    a.store_value(Size::Bits32, R10, COUNTER, PASSED as i32);

    a.label("count");
    a.load_map(R1, maps.counters);
    a.copy(R2, R10);
    a.add(R2, i32::from(COUNTER));
    a.call(MAP_LOOKUP_ELEM);
    a.jump_if(If::Equal, R0, 0, "out");
    // Each CPU has numbers of its own, and is not interrupted here by another frame.
    a.load(Size::Bits64, R1, R0, 0);
    a.add(R1, 1);
    a.store(Size::Bits64, R0, 0, R1);
    a.label("out");
    a.copy(R0, R6);
    a.exit();
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
