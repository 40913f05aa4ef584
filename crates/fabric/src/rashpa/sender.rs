//! A detector module that sends: it executes its transfers slice by slice and makes the packets of RDMA over UDP, with
//! one sequence of numbers for each receiver over all its links. Behind each block it tells its receivers by an event.
//!
//! A block that cannot be sent is a named loss: *skipped* where its slot has no credit (the receiver is told), *unsent*
//! where no link is up (the next event tells it). Nothing waits and nothing is stored.

use super::descriptor::{self, Burst};
use super::links::Links;
use super::slots::{self, Credits};
use super::space::{AddressSpace, LocalBuffer};
use super::terms::{BufferId, DtpId, Geometry, LinkId, ModuleId, ReceiveBufferId, ReceiverId};
use super::transfer::{BadTransfer, Dtp, PACKET_BYTES_MAX, Policy, Transfer};
use konkordia_wire::rashpa_event::{Kind, RECORD_BYTES, Record, SLOTS_MAX};
use konkordia_wire::rdma_udp::{Header, header_bytes, write_header};
use std::ops::Range;

/// The ring of a receiver into which a module writes its events. It belongs to this module alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventRing {
    /// Whose it is.
    pub receiver: ReceiverId,
    /// The local buffer, with units of 64 bytes.
    pub buffer: BufferId,
    /// How many records fit; not 0.
    pub records: u32,
    /// Where the buffer begins in the memory of the receiver. Over shared memory, the queue in which the module tells
    /// its writes is behind the records ([`super::shared`]).
    pub address: u64,
}

/// A receive buffer as a range of the address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReceiveBuffer {
    /// Its id.
    pub id: ReceiveBufferId,
    /// Its first address.
    pub base: u64,
    /// Its size.
    pub bytes: u64,
}

impl ReceiveBuffer {
    /// Its addresses; an end beyond all addresses is the last one, which no space has.
    pub const fn range(&self) -> Range<u64> {
        self.base..self.base.saturating_add(self.bytes)
    }
}

/// Why a module cannot send what it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSetup {
    /// A transfer.
    #[error(transparent)]
    Transfer(#[from] BadTransfer),
    /// A receiver that the map names cannot be told of events.
    #[error("{0} is in the map but has no ring of events, or one without records; define one")]
    NoRing(ReceiverId),
    /// More links than a module may have.
    #[error("a module has at most 32 links, not {0}")]
    Links(usize),
    /// More slots than a module keeps credits for.
    #[error("the transfers of a module have at most 1048576 slots together, not {0}; use fewer or larger slots")]
    Slots(u64),
}

/// What a slice did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSlice {
    /// An image of another size.
    #[error("the image of slice {slice} has {bytes} bytes, but the module has {expected}")]
    Image {
        /// Which slice.
        slice: u64,
        /// What came.
        bytes: usize,
        /// What an image has.
        expected: u128,
    },
    /// Slices come in ascending order.
    #[error("slice {0} comes after a later one, or twice; slices are sent in ascending order")]
    Order(u64),
}

/// How many blocks and packets a module sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Blocks sent.
    pub blocks: u64,
    /// Blocks without a credit.
    pub skipped: u64,
    /// Blocks while no link was up.
    pub unsent: u64,
    /// Packets with pixels.
    pub packets: u64,
    /// Packets with an event.
    pub events: u64,
    /// Events while no link was up.
    pub unsent_events: u64,
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// By which link.
    pub link: LinkId,
    /// To whom.
    pub receiver: ReceiverId,
    /// Where the payload belongs.
    pub header: Header,
    /// What is to be written there.
    pub payload: &'a [u8],
    /// A UDP segment: header and payload in one piece. Nothing for receivers into whose memory the payload is copied
    /// ([`Sender::use_links`]).
    pub segment: &'a [u8],
}

#[derive(Debug)]
struct Channel {
    transfer: Transfer,
    credits: Credits,
    next_position: u64,
    /// The flows to receivers of its receive buffer.
    flows: Vec<usize>,
}

/// The packets of this module to one receiver.
#[derive(Debug)]
struct Flow {
    ring: EventRing,
    next_sequence: u32,
    next_record: u32,
    /// Packets of the block that is being sent.
    block_packets: u64,
    /// The links that reach the receiver, as bits.
    links: u32,
    /// Is the payload copied into the memory of the receiver, without a segment?
    is_direct: bool,
}

/// A module that is configured.
#[derive(Debug)]
pub struct Sender {
    module: ModuleId,
    geometry: Geometry,
    space: AddressSpace,
    channels: Vec<Channel>,
    flows: Vec<Flow>,
    /// The flow of each entry of the space.
    flow_of: Vec<usize>,
    output: Output,
}

/// Where packets go. Apart from the channels, so that both can be borrowed.
#[derive(Debug)]
struct Output {
    links: Links,
    segment: Vec<u8>,
    sent: Sent,
}

impl Sender {
    /// A module with its map, rings of events and transfers. All memory is taken here: 200 bytes for each transfer and
    /// receiver, 8 for each slot, and one packet.
    ///
    /// # Errors
    /// [`BadSetup`]: the first thing that does not fit together.
    pub fn new(
        (module, geometry, links): (ModuleId, Geometry, usize),
        space: AddressSpace,
        buffers: &[ReceiveBuffer],
        rings: &[EventRing],
        dtps: &[Dtp],
    ) -> Result<Self, BadSetup> {
        let to_flow = |ring: &EventRing| Flow {
            ring: *ring,
            next_sequence: 0,
            next_record: 0,
            block_packets: 0,
            links: u32::MAX,
            is_direct: false,
        };
        let flows: Vec<Flow> = rings.iter().filter(|ring| ring.records > 0).map(to_flow).collect();
        let find = |receiver: ReceiverId| flows.iter().position(|flow| flow.ring.receiver == receiver);
        let flow_of = space.entries().iter().map(|entry| entry.local.receiver);
        let flow_of = flow_of.map(|receiver| find(receiver).ok_or(BadSetup::NoRing(receiver)));
        let flow_of: Vec<usize> = flow_of.collect::<Result<_, _>>()?;
        let slots = dtps.iter().map(|dtp| u64::from(dtp.layout.slots)).sum();
        if slots > SLOTS_MAX.into() {
            return Err(BadSetup::Slots(slots));
        }
        let mut channels: Vec<Channel> = Vec::with_capacity(dtps.len());
        for dtp in dtps {
            if channels.iter().any(|channel| channel.transfer.dtp().id == dtp.id) {
                return Err(BadTransfer::Twice(dtp.id).into());
            }
            let buffer = buffers.iter().find(|buffer| buffer.id == dtp.buffer);
            let range = buffer.ok_or(BadTransfer::NoBuffer(dtp.id, dtp.buffer))?.range();
            let transfer = Transfer::new(*dtp, geometry, &space, range.clone())?;
            let mut flows: Vec<usize> = space.pieces(range).into_iter().flatten().map(|piece| flow_of[piece.entry]).collect();
            flows.sort_unstable();
            flows.dedup();
            let credits = Credits::new(dtp.layout.slots);
            channels.push(Channel { transfer, credits, next_position: 0, flows });
        }
        let links = Links::new(links).ok_or(BadSetup::Links(links))?;
        let segment = Vec::with_capacity(header_bytes(true) + PACKET_BYTES_MAX as usize);
        let output = Output { links, segment, sent: Sent::default() };
        Ok(Self { module, geometry, space, channels, flows, flow_of, output })
    }

    /// Says which links reach a receiver, as bits; without it, all do. A `direct` one gets packets without segments.
    pub fn use_links(&mut self, receiver: ReceiverId, links: u32, direct: bool) {
        for flow in self.flows.iter_mut().filter(|flow| flow.ring.receiver == receiver) {
            (flow.links, flow.is_direct) = (links, direct);
        }
    }

    /// The rings for the events of this module.
    pub fn rings(&self) -> impl Iterator<Item = &EventRing> {
        self.flows.iter().map(|flow| &flow.ring)
    }

    /// The local buffers of a receiver that this module may write: id, address in the memory there, bytes of a unit.
    pub fn buffers(&self, receiver: ReceiverId) -> impl Iterator<Item = (BufferId, u64, u32)> + use<'_> {
        let of_receiver = move |local: &&LocalBuffer| local.receiver == receiver;
        let slots = self.space.entries().iter().map(|entry| &entry.local).filter(of_receiver);
        let rings = self.rings().filter(move |ring| ring.receiver == receiver);
        let rings = rings.map(|ring| (ring.buffer, ring.address, RECORD_BYTES as u32));
        slots.map(|local| (local.buffer, local.address, local.unit_bytes)).chain(rings)
    }

    /// True if the receivers allow all blocks of a slice.
    pub fn has_credit(&self, slice: u64) -> bool {
        self.channels.iter().all(|channel| {
            let transfer = &channel.transfer;
            let Some(position) = transfer.dtp().slices.position(slice) else { return true };
            let (slot, generation) = transfer.slot(position);
            transfer.dtp().policy != Policy::Credit || channel.credits.allow(slot, generation)
        })
    }

    /// How much was sent so far.
    pub const fn sent(&self) -> Sent {
        self.output.sent
    }

    /// True if the last slice of all transfers was sent; never if one of them has no end.
    pub fn is_finished(&self) -> bool {
        let is_finished = |channel: &Channel| channel.transfer.dtp().slices.count.is_some_and(|n| channel.next_position >= n);
        self.channels.iter().all(is_finished)
    }

    /// Slices of each transfer up to the newest one that was sent, in the order of the transfers.
    pub fn positions(&self) -> impl Iterator<Item = (DtpId, u64)> + use<'_> {
        self.channels.iter().map(|channel| (channel.transfer.dtp().id, channel.next_position))
    }

    /// The links that are up.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.output.links.is_up(link)
    }

    /// Takes a credit for a slot of a receive buffer; false if no transfer with credits has such a slot.
    pub fn credit(&mut self, buffer: ReceiveBufferId, slot: u32, fills: u64) -> bool {
        let takes = |channel: &&mut Channel| channel.transfer.dtp().buffer == buffer;
        self.channels.iter_mut().filter(takes).fold(false, |taken, channel| channel.credits.grant(slot, fills) | taken)
    }

    /// Notes that a link came up or went down, and tells all receivers.
    pub fn set_link(&mut self, link: LinkId, is_up: bool, time_ns: u64, out: &mut impl FnMut(Outgoing<'_>)) {
        if !self.output.links.set(link, is_up) {
            return;
        }
        let kind = if is_up { Kind::LinkUp } else { Kind::LinkDown };
        for flow in &mut self.flows {
            let record = Record { link: link.0, ..record(kind, self.module, time_ns) };
            self.output.event(flow, record, out);
        }
    }

    /// Sends the blocks of a slice. `image` is the image of the module; what a transfer does not ask for stays here.
    ///
    /// # Errors
    /// [`BadSlice`]: nothing was sent.
    pub fn slice(&mut self, slice: u64, image: &[u8], time_ns: u64, out: &mut impl FnMut(Outgoing<'_>)) -> Result<(), BadSlice> {
        let expected = self.geometry.image_bytes();
        if image.len() as u128 != expected {
            return Err(BadSlice::Image { slice, bytes: image.len(), expected });
        }
        let position = |channel: &Channel| channel.transfer.dtp().slices.position(slice);
        if self.channels.iter().any(|channel| position(channel).is_some_and(|n| n < channel.next_position)) {
            return Err(BadSlice::Order(slice));
        }
        for index in 0..self.channels.len() {
            if let Some(position) = position(&self.channels[index]) {
                self.channels[index].next_position = position + 1;
                self.block(index, position, slice, image, time_ns, out);
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        channel: usize,
        position: u64,
        slice: u64,
        image: &[u8],
        time_ns: u64,
        out: &mut impl FnMut(Outgoing<'_>),
    ) {
        let Self { module, space, channels, flows, flow_of, output, .. } = self;
        let Channel { transfer, credits, .. } = &channels[channel];
        let dtp = transfer.dtp();
        let (slot, generation) = transfer.slot(position);
        flows.iter_mut().for_each(|flow| flow.block_packets = 0);
        bursts(transfer, space, position, |part| flows[flow_of[usize::from(part.entry)]].block_packets += 1);
        if flows.iter().any(|flow| flow.block_packets > 0 && output.links.are_down(flow.links)) {
            output.sent.unsent += 1;
            return;
        }
        let block = Record { dtp: dtp.id.0, slice, slot, generation, ..record(Kind::BlockDone, *module, time_ns) };
        if dtp.policy == Policy::Credit && !credits.allow(slot, generation) {
            output.sent.skipped += 1;
            return output.events(flows, Record { kind: Kind::BlockSkipped, ..block }, out);
        }
        let is_free_run = dtp.policy == Policy::FreeRun;
        if is_free_run {
            let generation = slots::counter(generation, false);
            output.events(flows, Record { kind: Kind::BlockBegin, generation, ..block }, out);
        }
        bursts(transfer, space, position, |part| {
            let Some(local) = descriptor::row(space, part.entry) else { return };
            let payload = &image[part.source as usize..part.source as usize + part.bytes as usize];
            let flow = &mut flows[flow_of[usize::from(part.entry)]];
            output.packet(flow, local.buffer, part.offset / u64::from(local.unit_bytes), payload, out);
            output.sent.packets += 1;
        });
        output.sent.blocks += 1;
        let generation = if is_free_run { slots::counter(generation, true) } else { generation };
        output.events(flows, Record { generation, ..block }, out);
    }

    /// Tells all receivers that the run is over: which blocks were the last ones.
    pub fn end(&mut self, time_ns: u64, out: &mut impl FnMut(Outgoing<'_>)) {
        for channel in &self.channels {
            let dtp = channel.transfer.dtp().id.0;
            for &flow in &channel.flows {
                let record = Record { dtp, count: channel.next_position, ..record(Kind::End, self.module, time_ns) };
                self.output.event(&mut self.flows[flow], record, out);
            }
        }
    }
}

/// What BGU and BSU make of a block.
fn bursts(transfer: &Transfer, space: &AddressSpace, position: u64, mut emit: impl FnMut(Burst)) {
    let packet_bytes = transfer.dtp().packet_bytes;
    descriptor::descriptors(transfer, space, position, |block| descriptor::bursts(block, packet_bytes).for_each(&mut emit));
}

const fn record(kind: Kind, module: ModuleId, time_ns: u64) -> Record {
    let (slice, slot, sequence, bitmask_offset, generation, count) = (0, 0, 0, 0, 0, 0);
    Record { kind, module: module.0, dtp: 0, link: 0, slice, slot, sequence, bitmask_offset, time_ns, generation, count }
}

impl Output {
    /// The event of a block, to each receiver that has part of it.
    fn events(&mut self, flows: &mut [Flow], record: Record, out: &mut impl FnMut(Outgoing<'_>)) {
        for flow in flows.iter_mut().filter(|flow| flow.block_packets > 0) {
            let (count, sequence) = (flow.block_packets, flow.next_sequence.wrapping_sub(1));
            self.event(flow, Record { count, sequence, ..record }, out);
        }
    }

    fn event(&mut self, flow: &mut Flow, record: Record, out: &mut impl FnMut(Outgoing<'_>)) {
        let at = flow.next_record;
        if self.packet(flow, flow.ring.buffer, at.into(), &record.to_bytes(), out) {
            flow.next_record = (at + 1) % flow.ring.records;
            self.sent.events += 1;
        } else {
            self.sent.unsent_events += 1;
        }
    }

    /// Sends a packet by the next link that is up; false if there is none, and then no number is used.
    fn packet(
        &mut self,
        flow: &mut Flow,
        buffer: BufferId,
        offset_units: u64,
        payload: &[u8],
        out: &mut impl FnMut(Outgoing<'_>),
    ) -> bool {
        let Some(link) = self.links.choose(flow.links) else { return false };
        let header = Header { buffer: buffer.0, offset_units, sequence: Some(flow.next_sequence) };
        self.segment.clear();
        if !flow.is_direct {
            self.segment.resize(header.bytes(), 0);
            let written = write_header(&header, payload.len(), &mut self.segment);
            debug_assert_eq!(written, Ok(()), "buffers have ids, packets fit, and units keep offsets in 48 bits");
            self.segment.extend_from_slice(payload);
        }
        flow.next_sequence = flow.next_sequence.wrapping_add(1);
        out(Outgoing { link, receiver: flow.ring.receiver, header, payload, segment: &self.segment });
        true
    }
}

/// Bytes of a ring of events.
pub const fn ring_bytes(records: u32) -> u64 {
    records as u64 * RECORD_BYTES as u64
}
