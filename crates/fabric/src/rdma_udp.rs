//! Receives RDMA over UDP (EUCALL D5.2, 3.2.7): looks up the buffer that a packet names, checks that its payload lies
//! in it, and says where in local memory the payload belongs. It writes nothing itself: [`Receiver::receive`] returns a
//! [`Write`] or a [`Refusal`], and each packet gets exactly one of them, with one counter.
//!
//! A sequence number counts as arrived only if its payload has a place. So a packet whose address is refused is
//! reported as lost too: its data are missing.

use crate::loss::{Arrival, Counts, Detector, Width};
use konkordia_wire::rdma_udp::{Header, NoPacket, Packet};
use std::ops::Range;

/// A buffer that senders may write: an entry of the table by which the receiver translates addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its id on the wire; not 0.
    pub id: u16,
    /// Its length.
    pub bytes: u64,
    /// Bytes of a unit of offsets; not 0.
    pub unit_bytes: u32,
    /// Where it begins in the local memory.
    pub local_offset: u64,
}

/// Why a buffer is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRegistered {
    /// The table is full.
    #[error("the table of buffers is full; it holds {0}")]
    Full(usize),
    /// Id 0, no bytes, units of no bytes, or an end beyond all addresses.
    #[error("a buffer needs an id from 1 on, a length, a unit, and an end that is an address")]
    Invalid,
    /// The id is in the table, maybe revoked.
    #[error("buffer {0} is registered already")]
    Twice(u16),
    /// It shares bytes of local memory with another one.
    #[error("the buffer shares memory with buffer {0}")]
    Overlap(u16),
}

/// What becomes of a packet that comes after it was reported as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePackets {
    /// It is not written: its slot may hold a newer block by now.
    #[default]
    Refuse,
    /// It is written and flagged, as an FPGA without memory of slots does it.
    Write,
}

/// A payload and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Id of the buffer.
    pub buffer: u16,
    /// Where the payload begins in the buffer.
    pub offset: u64,
    /// Where it begins in the local memory.
    pub local_offset: u64,
    /// The payload; it ends inside of the buffer.
    pub payload: &'a [u8],
    /// Position of the packet in its flow; `None` without sequence numbers, and for late packets that the register has
    /// forgotten.
    pub position: Option<u64>,
    /// True if it was reported as lost before.
    pub is_late: bool,
}

/// Why the payload of a packet is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no packet.
    Malformed(NoPacket),
    /// Its sender is not known.
    UnknownSender,
    /// No buffer has this id.
    UnknownBuffer(u16),
    /// The buffer may no longer be written.
    Revoked(u16),
    /// The payload does not end inside of the buffer.
    OutOfBounds(u16),
    /// The packet came before.
    Duplicate,
    /// It was reported as lost, and its slot may hold something newer.
    Late,
}

/// How many packets had which verdict. The sum of all but `bytes` is the number of packets received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Placed in time.
    pub placed: u64,
    /// Placed late ([`LatePackets::Write`]).
    pub placed_late: u64,
    /// No packets.
    pub malformed: u64,
    /// Of unknown senders.
    pub unknown_sender: u64,
    /// For unknown buffers.
    pub unknown_buffer: u64,
    /// For revoked buffers.
    pub revoked: u64,
    /// Not inside of their buffer.
    pub out_of_bounds: u64,
    /// Received before.
    pub duplicate: u64,
    /// Late and refused.
    pub late: u64,
    /// Bytes of all payloads that were placed.
    pub bytes: u64,
}

impl Verdicts {
    /// Packets received.
    pub const fn packets(&self) -> u64 {
        let placed = self.placed + self.placed_late;
        let foreign = self.malformed + self.unknown_sender + self.unknown_buffer + self.revoked + self.out_of_bounds;
        placed + foreign + self.duplicate + self.late
    }
}

/// The receiver: the table of its buffers, and a loss detector for each sender.
#[derive(Debug)]
pub struct Receiver {
    /// Sorted by id; a revoked one stays, so that packets for it are told from those for none.
    buffers: Vec<(Buffer, bool)>,
    buffers_max: usize,
    flows: Vec<Detector>,
    has_extension: bool,
    late: LatePackets,
    verdicts: Verdicts,
}

impl Receiver {
    /// A receiver of `senders` senders, numbered from 0, that begin with sequence number 0 if they have the extension.
    /// It holds at most `buffers_max` buffers. Memory: 32 bytes for each buffer, 200 for each sender; nothing more
    /// later.
    pub fn new(senders: usize, buffers_max: usize, has_extension: bool, late: LatePackets) -> Self {
        Self {
            buffers: Vec::with_capacity(buffers_max),
            buffers_max,
            flows: vec![Detector::new(Width::Bits32, Some(0)); senders],
            has_extension,
            late,
            verdicts: Verdicts::default(),
        }
    }

    /// Enters a buffer into the table.
    ///
    /// # Errors
    /// [`NotRegistered`]; the table is as before.
    pub fn register(&mut self, buffer: Buffer) -> Result<(), NotRegistered> {
        let end = buffer.local_offset.checked_add(buffer.bytes);
        let Some(end) = end.filter(|_| buffer.id != 0 && buffer.bytes > 0 && buffer.unit_bytes > 0) else {
            return Err(NotRegistered::Invalid);
        };
        let Err(at) = self.buffers.binary_search_by_key(&buffer.id, |(other, _)| other.id) else {
            return Err(NotRegistered::Twice(buffer.id));
        };
        let shares = |other: &Buffer| other.local_offset < end && buffer.local_offset < other.local_offset + other.bytes;
        if let Some((other, _)) = self.buffers.iter().find(|(other, is_open)| *is_open && shares(other)) {
            return Err(NotRegistered::Overlap(other.id));
        }
        if self.buffers.len() == self.buffers_max {
            return Err(NotRegistered::Full(self.buffers_max));
        }
        self.buffers.insert(at, (buffer, true));
        Ok(())
    }

    /// Lets nobody write the buffer any more; false if there is none with this id.
    pub fn revoke(&mut self, id: u16) -> bool {
        let found = self.buffers.binary_search_by_key(&id, |(buffer, _)| buffer.id);
        found.map(|at| self.buffers[at].1 = false).is_ok()
    }

    /// Where the `bytes` bytes at `offset_units` of buffer `id` are: the translation of addresses.
    fn translate(&self, id: u16, offset_units: u64, bytes: usize) -> Result<(u64, u64), Refusal> {
        let found = self.buffers.binary_search_by_key(&id, |(buffer, _)| buffer.id);
        let (buffer, is_open) = found.map(|at| &self.buffers[at]).map_err(|_| Refusal::UnknownBuffer(id))?;
        if !is_open {
            return Err(Refusal::Revoked(id));
        }
        let offset = offset_units.checked_mul(buffer.unit_bytes.into());
        let is_inside = |offset: &u64| *offset <= buffer.bytes && bytes as u64 <= buffer.bytes - offset;
        let offset = offset.filter(is_inside).ok_or(Refusal::OutOfBounds(id))?;
        Ok((offset, buffer.local_offset + offset))
    }

    /// Gives a UDP segment of a sender its verdict. `lost` is called with the positions of this sender that are found
    /// to be lost.
    ///
    /// # Errors
    /// [`Refusal`]: nothing is to be written.
    pub fn receive<'a>(
        &mut self,
        sender: usize,
        segment: &'a [u8],
        lost: &mut impl FnMut(Range<u64>),
    ) -> Result<Write<'a>, Refusal> {
        let packet = match Packet::new_checked(segment, self.has_extension) {
            Ok(packet) => packet,
            Err(why) => {
                self.verdicts.malformed += 1;
                return Err(Refusal::Malformed(why));
            }
        };
        let payload = packet.payload();
        self.written(sender, &packet.header(), payload.len(), lost).map(|write| Write { payload, ..write })
    }

    /// Gives a verdict to a packet whose payload is not here, because its sender has written it to its place already or
    /// because it comes on another way. The same rules hold.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was to be written.
    pub fn written(
        &mut self,
        sender: usize,
        header: &Header,
        payload_bytes: usize,
        lost: &mut impl FnMut(Range<u64>),
    ) -> Result<Write<'static>, Refusal> {
        let verdict = self.judge(sender, header, payload_bytes, lost);
        let counts = &mut self.verdicts;
        let counter = match &verdict {
            Ok(write) if write.is_late => &mut counts.placed_late,
            Ok(_) => &mut counts.placed,
            Err(Refusal::Malformed(_)) => &mut counts.malformed,
            Err(Refusal::UnknownSender) => &mut counts.unknown_sender,
            Err(Refusal::UnknownBuffer(_)) => &mut counts.unknown_buffer,
            Err(Refusal::Revoked(_)) => &mut counts.revoked,
            Err(Refusal::OutOfBounds(_)) => &mut counts.out_of_bounds,
            Err(Refusal::Duplicate) => &mut counts.duplicate,
            Err(Refusal::Late) => &mut counts.late,
        };
        *counter += 1;
        counts.bytes += if verdict.is_ok() { payload_bytes as u64 } else { 0 };
        verdict
    }

    fn judge(
        &mut self,
        sender: usize,
        header: &Header,
        payload_bytes: usize,
        lost: &mut impl FnMut(Range<u64>),
    ) -> Result<Write<'static>, Refusal> {
        if sender >= self.flows.len() {
            return Err(Refusal::UnknownSender);
        }
        let (offset, local_offset) = self.translate(header.buffer, header.offset_units, payload_bytes)?;
        let placed = Write { buffer: header.buffer, offset, local_offset, payload: &[], position: None, is_late: false };
        let Some(sequence) = header.sequence else { return Ok(placed) };
        let flow = &mut self.flows[sender];
        match flow.receive(sequence, lost) {
            Arrival::New | Arrival::Gap => Ok(Write { position: flow.position_of(sequence), ..placed }),
            Arrival::Duplicate => Err(Refusal::Duplicate),
            Arrival::Late if self.late == LatePackets::Refuse => Err(Refusal::Late),
            Arrival::Late => Ok(Write { is_late: true, position: flow.position_of(sequence), ..placed }),
        }
    }

    /// Ends the flow of a sender: tests everything up to its newest packet. An unknown sender has nothing to test.
    pub fn drain(&mut self, sender: usize, lost: &mut impl FnMut(Range<u64>)) {
        if let Some(flow) = self.flows.get_mut(sender) {
            flow.drain(None, lost);
        }
    }

    /// The first position of a sender of which it is not certain yet whether it is lost; 0 of an unknown one.
    pub fn tested_before(&self, sender: usize) -> u64 {
        self.flows.get(sender).map_or(0, Detector::tested_before)
    }

    /// What the loss detector of a sender counted.
    pub fn losses(&self, sender: usize) -> Option<Counts> {
        self.flows.get(sender).map(Detector::counts)
    }

    /// How many packets had which verdict.
    pub fn verdicts(&self) -> Verdicts {
        self.verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_wire::rdma_udp::{Header, write_header};
    use proptest::prelude::*;

    fn segment(buffer: u16, offset_units: u64, sequence: Option<u32>, payload: &[u8]) -> Vec<u8> {
        let header = Header { buffer, offset_units, sequence };
        let mut segment = vec![0; header.bytes()];
        write_header(&header, payload.len(), &mut segment).expect("it fits");
        segment.extend(payload);
        segment
    }

    const BUFFER: Buffer = Buffer { id: 7, bytes: 100, unit_bytes: 8, local_offset: 1000 };

    fn receiver(late: LatePackets) -> Receiver {
        let mut receiver = Receiver::new(1, 2, true, late);
        receiver.register(BUFFER).expect("a buffer");
        receiver
    }

    #[test]
    fn each_packet_gets_one_verdict() {
        let mut receiver = receiver(LatePackets::Refuse);
        let mut judge = |sender, segment: &[u8]| receiver.receive(sender, segment, &mut |_| {}).map(|write| write.local_offset);
        assert_eq!(judge(0, &segment(7, 2, Some(0), &[1; 8])), Ok(1016));
        assert_eq!(judge(0, &segment(7, 12, Some(1), &[1; 4])), Ok(1096), "the last byte");
        assert_eq!(judge(0, &segment(7, 12, Some(2), &[1; 5])), Err(Refusal::OutOfBounds(7)));
        assert_eq!(judge(0, &segment(7, 13, Some(2), &[1; 1])), Err(Refusal::OutOfBounds(7)));
        assert_eq!(judge(0, &segment(7, (1 << 48) - 1, Some(2), &[1; 1])), Err(Refusal::OutOfBounds(7)));
        assert_eq!(judge(0, &segment(8, 0, Some(2), &[1; 1])), Err(Refusal::UnknownBuffer(8)));
        assert_eq!(judge(1, &segment(7, 0, Some(2), &[1; 1])), Err(Refusal::UnknownSender));
        assert_eq!(judge(0, &segment(7, 0, Some(1), &[1; 1])), Err(Refusal::Duplicate));
        assert_eq!(judge(0, &[0; 15]), Err(Refusal::Malformed(NoPacket::Short)));
        assert_eq!(judge(0, &segment(7, 0, Some(1000), &[1; 1])), Ok(1000));
        assert_eq!(judge(0, &segment(7, 0, Some(2), &[1; 1])), Err(Refusal::Late));
        assert!(receiver.revoke(7) && !receiver.revoke(8));
        assert_eq!(receiver.receive(0, &segment(7, 0, Some(3), &[1; 1]), &mut |_| {}), Err(Refusal::Revoked(7)));
        let verdicts = receiver.verdicts();
        assert_eq!((verdicts.packets(), verdicts.placed, verdicts.out_of_bounds, verdicts.bytes), (12, 3, 3, 13));
    }

    #[test]
    fn a_late_packet_is_written_where_that_is_wanted() {
        let mut receiver = receiver(LatePackets::Write);
        let mut lost = Vec::new();
        receiver.receive(0, &segment(7, 0, Some(600), &[1; 1]), &mut |run| lost.push(run)).expect("placed");
        assert_eq!((lost.len(), lost.first()), (1, Some(&(0..90))), "600 tests what is up to 89");
        let packet = segment(7, 0, Some(5), &[1; 1]);
        let late = receiver.receive(0, &packet, &mut |_| {}).expect("placed late");
        assert_eq!((late.is_late, late.position), (true, Some(5)));
        receiver.drain(0, &mut |run| lost.push(run));
        assert_eq!((lost.last(), receiver.tested_before(0)), (Some(&(90..600)), 601));
        assert_eq!(receiver.losses(0).expect("a sender").lost, 600);
    }

    #[test]
    fn what_is_not_registered() {
        let mut receiver = receiver(LatePackets::Refuse);
        let other = Buffer { id: 8, local_offset: 1100, ..BUFFER };
        assert_eq!(receiver.register(BUFFER), Err(NotRegistered::Twice(7)));
        assert_eq!(receiver.register(Buffer { local_offset: 1099, ..other }), Err(NotRegistered::Overlap(7)));
        for invalid in [
            Buffer { id: 0, ..other },
            Buffer { bytes: 0, ..other },
            Buffer { unit_bytes: 0, ..other },
            Buffer { local_offset: u64::MAX, ..other },
        ] {
            assert_eq!(receiver.register(invalid), Err(NotRegistered::Invalid));
        }
        assert_eq!(receiver.register(other), Ok(()));
        let third = Buffer { id: 9, local_offset: 2000, ..BUFFER };
        assert_eq!(receiver.register(third), Err(NotRegistered::Full(2)));
    }

    proptest! {
        /// Whatever comes, nothing outside of an open buffer is to be written, and the verdicts sum up.
        #[test]
        fn nothing_outside_of_a_buffer(
            packets in prop::collection::vec((0_u16..4, prop_oneof![0_u64..40, any::<u64>()], any::<u32>(), 1_usize..200, any::<bool>()), 1..60),
            has_extension: bool,
            revoke_at in 0_usize..60,
        ) {
            let buffers = [Buffer { id: 1, bytes: 96, unit_bytes: 3, local_offset: 10 }, Buffer { id: 3, bytes: 1, unit_bytes: 1, local_offset: 106 }];
            let mut receiver = Receiver::new(1, 2, has_extension, LatePackets::Write);
            buffers.iter().for_each(|buffer| receiver.register(*buffer).expect("a buffer"));
            for (n, (id, offset, sequence, bytes, is_cut)) in packets.iter().enumerate() {
                if n == revoke_at {
                    receiver.revoke(1);
                }
                let mut raw = segment(1, 0, has_extension.then_some(*sequence), &vec![0; *bytes]);
                raw[2..4].copy_from_slice(&id.to_be_bytes());
                raw[0..2].copy_from_slice(&(*offset as u16).to_be_bytes());
                if has_extension {
                    raw[12..16].copy_from_slice(&((offset >> 16) as u32).to_be_bytes());
                }
                raw.truncate(raw.len() - usize::from(*is_cut));
                let Ok(write) = receiver.receive(0, &raw, &mut |_| {}) else { continue };
                let end = write.local_offset + write.payload.len() as u64;
                let is_inside = |b: &Buffer| b.id == write.buffer && write.local_offset >= b.local_offset && end <= b.local_offset + b.bytes;
                prop_assert!(buffers.iter().any(is_inside) && !(write.buffer == 1 && n >= revoke_at), "{:?}", write);
            }
            prop_assert_eq!(receiver.verdicts().packets(), packets.len() as u64);
        }
    }
}
