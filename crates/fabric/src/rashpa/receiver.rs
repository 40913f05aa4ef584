//! A data receiver: takes the packets of its modules, writes what has a place into its memory, and knows from their
//! events and from the loss detector which slots can be read. Each packet gets one verdict, and the verdicts sum up.

use super::assembly::{Assembly, Counts};
use super::sender::ring_bytes;
use super::terms::BufferId;
use crate::rdma_udp::{Buffer, LatePackets, NotRegistered, Receiver, Refusal, Verdicts, Write};
use konkordia_wire::rashpa_event::{NoEvent, RECORD_BYTES, Record};
use konkordia_wire::rdma_udp::Header;
use std::ops::Range;

/// What a local buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Slots of assembly number `assembly`; the buffer begins `offset` bytes behind the first slot that is here.
    Slots {
        /// Index of the assembly.
        assembly: usize,
        /// Bytes of its slots before this buffer.
        offset: u64,
    },
    /// The ring of events of sender number `sender`.
    Events {
        /// Whose events.
        sender: usize,
    },
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Pixels, written.
    Placed,
    /// An event, written and taken.
    Event(Record),
    /// Written into a ring of events, but no event.
    NoEvent(NoEvent),
    /// Not written: into a slot that is not free.
    SlotNotFree,
    /// Not written: into the ring of another module.
    ForeignRing,
    /// Not written.
    Refused(Refusal),
}

/// The packets that [`Receiver`] accepts and this layer does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Bytes in a ring of events that are none.
    pub no_event: u64,
    /// Into slots that are ready or in use.
    pub slot_not_free: u64,
    /// Into the ring of another module.
    pub foreign_ring: u64,
}

/// Why a buffer is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBuffer {
    /// The table does not take it.
    #[error(transparent)]
    Table(#[from] NotRegistered),
    /// There is no such assembly or sender.
    #[error("{0} is for slots or events that this receiver does not have")]
    NoUse(BufferId),
}

/// A data receiver.
#[derive(Debug)]
pub struct DataReceiver {
    table: Receiver,
    /// Sorted by id.
    uses: Vec<(u16, Use)>,
    senders: usize,
    assemblies: Vec<Assembly>,
    refusals: Refusals,
}

impl DataReceiver {
    /// A receiver of `senders` modules, which are numbered from 0 here and in its assemblies, with at most
    /// `buffers_max` local buffers.
    pub fn new(senders: usize, buffers_max: usize, assemblies: Vec<Assembly>) -> Self {
        let table = Receiver::new(senders, buffers_max, true, LatePackets::Refuse);
        Self { table, uses: Vec::with_capacity(buffers_max), senders, assemblies, refusals: Refusals::default() }
    }

    /// Lets the modules write a buffer.
    ///
    /// # Errors
    /// [`BadBuffer`]: nothing changes.
    pub fn add(&mut self, buffer: Buffer, used_for: Use) -> Result<(), BadBuffer> {
        let is_known = match used_for {
            Use::Slots { assembly, .. } => assembly < self.assemblies.len(),
            Use::Events { sender } => sender < self.senders,
        };
        if !is_known {
            return Err(BadBuffer::NoUse(BufferId(buffer.id)));
        }
        self.table.register(buffer)?;
        let at = self.uses.partition_point(|(id, _)| *id < buffer.id);
        self.uses.insert(at, (buffer.id, used_for));
        Ok(())
    }

    /// Lets the modules write a ring of events: a buffer of `records` records that begins at `local_offset`.
    ///
    /// # Errors
    /// [`BadBuffer`]: nothing changes.
    pub fn add_ring(&mut self, id: BufferId, records: u32, local_offset: u64, sender: usize) -> Result<(), BadBuffer> {
        let buffer = Buffer { id: id.0, bytes: ring_bytes(records), unit_bytes: RECORD_BYTES as u32, local_offset };
        self.add(buffer, Use::Events { sender })
    }

    /// Lets nobody write a buffer any more; false if there is none with this id.
    pub fn revoke(&mut self, id: BufferId) -> bool {
        self.table.revoke(id.0)
    }

    /// An assembly by its index, to take and release images.
    pub fn assembly(&mut self, index: usize) -> Option<&mut Assembly> {
        self.assemblies.get_mut(index)
    }

    /// What an assembly counted.
    pub fn assembly_counts(&self, index: usize) -> Option<Counts> {
        self.assemblies.get(index).map(Assembly::counts)
    }

    /// Of the first `told` slices of the transfer of an assembly: how many belong here, and how many of them have no
    /// fate yet.
    pub fn due_and_open(&self, index: usize, told: u64) -> (u64, u64) {
        let assembly = self.assemblies.get(index);
        assembly.map_or((0, 0), |assembly| (assembly.due_here(told), assembly.open_before(told)))
    }

    /// What the table of buffers counted.
    pub fn verdicts(&self) -> Verdicts {
        self.table.verdicts()
    }

    /// What was refused although the table has a place for it.
    pub const fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// What the loss detector of a sender counted.
    pub fn losses(&self, sender: usize) -> Option<crate::loss::Counts> {
        self.table.losses(sender)
    }

    /// Takes a UDP segment of a sender, and writes its payload into `memory` if it has a place there. `lost` is called
    /// with the sender and the positions that are found to be lost.
    ///
    /// # Panics
    /// If `memory` is shorter than the end of the last buffer that was added.
    pub fn receive(
        &mut self,
        sender: usize,
        segment: &[u8],
        memory: &mut [u8],
        lost: &mut impl FnMut(usize, Range<u64>),
    ) -> Verdict {
        let verdict = match self.table.receive(sender, segment, &mut |run| lost(sender, run)) {
            Err(refusal) => return Verdict::Refused(refusal),
            Ok(write) => {
                let record = || Record::from_bytes(write.payload);
                let verdict = self.judge(sender, &write, write.payload.len(), record);
                if !matches!(verdict, Verdict::SlotNotFree | Verdict::ForeignRing) {
                    memory[write.local_offset as usize..][..write.payload.len()].copy_from_slice(write.payload);
                }
                verdict
            }
        };
        self.count(sender, verdict)
    }

    /// Takes what a sender says that it has written into memory which it shares with this receiver. The rules are those
    /// of [`Self::receive`], but what is refused is in memory nevertheless. `read` copies a record of the memory.
    pub fn written(
        &mut self,
        sender: usize,
        (header, payload_bytes): (&Header, usize),
        read: impl FnOnce(u64) -> [u8; RECORD_BYTES],
        lost: &mut impl FnMut(usize, Range<u64>),
    ) -> Verdict {
        let verdict = match self.table.written(sender, header, payload_bytes, &mut |run| lost(sender, run)) {
            Err(refusal) => return Verdict::Refused(refusal),
            Ok(write) => {
                let is_record = payload_bytes == RECORD_BYTES;
                let record = || if is_record { Record::from_bytes(&read(write.local_offset)) } else { Err(NoEvent::Length) };
                self.judge(sender, &write, payload_bytes, record)
            }
        };
        self.count(sender, verdict)
    }

    fn count(&mut self, sender: usize, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::NoEvent(_) => self.refusals.no_event += 1,
            Verdict::SlotNotFree => self.refusals.slot_not_free += 1,
            Verdict::ForeignRing => self.refusals.foreign_ring += 1,
            _ => {}
        }
        self.note_tested(sender);
        verdict
    }

    fn judge(
        &mut self,
        sender: usize,
        write: &Write<'_>,
        payload_bytes: usize,
        record: impl FnOnce() -> Result<Record, NoEvent>,
    ) -> Verdict {
        let at = self.uses.binary_search_by_key(&write.buffer, |(id, _)| *id);
        // Each buffer of the table has a use.
        let used_for = at.map_or(Use::Events { sender: usize::MAX }, |at| self.uses[at].1);
        match used_for {
            Use::Slots { assembly, offset: before } => {
                let (assembly, offset) = (&mut self.assemblies[assembly], before + write.offset);
                if !assembly.may_place(offset) {
                    return Verdict::SlotNotFree;
                }
                assembly.placed(sender, offset, payload_bytes as u64);
                Verdict::Placed
            }
            Use::Events { sender: owner } if owner != sender => Verdict::ForeignRing,
            Use::Events { .. } => match record() {
                Err(why) => Verdict::NoEvent(why),
                Ok(record) => {
                    let position = write.position.unwrap_or(0);
                    self.assemblies.iter_mut().for_each(|assembly| assembly.event(sender, &record, position));
                    Verdict::Event(record)
                }
            },
        }
    }

    fn note_tested(&mut self, sender: usize) {
        let before = self.table.tested_before(sender);
        self.assemblies.iter_mut().for_each(|assembly| assembly.tested(sender, before));
    }

    /// Ends the flow of a sender, when its end was told and nothing can be on its way any more, or when it has been
    /// silent for too long: what did not come by now is lost.
    pub fn drain(&mut self, sender: usize, lost: &mut impl FnMut(usize, Range<u64>)) {
        self.table.drain(sender, &mut |run| lost(sender, run));
        self.note_tested(sender);
    }
}

#[cfg(test)]
mod tests {
    use super::super::assembly::{Part, Shape};
    use super::super::terms::Slices;
    use super::*;
    use konkordia_wire::rashpa_event::Kind;
    use konkordia_wire::rdma_udp::write_header;

    /// Four slots of 8 bytes, and a ring of two events behind them.
    fn receiver() -> DataReceiver {
        let slices = Slices { first: 0, count: None, step: 1 };
        let shape = Shape { slots: 4, first_slot: 0, slots_here: 4, slot_bytes: 8, slices };
        let assembly = Assembly::new(shape, &[Part { dtp: 0, block_bytes: 8 }]);
        let mut receiver = DataReceiver::new(1, 2, vec![assembly]);
        let slots = Buffer { id: 1, bytes: 32, unit_bytes: 1, local_offset: 0 };
        receiver.add(slots, Use::Slots { assembly: 0, offset: 0 }).expect("slots");
        receiver.add_ring(BufferId(2), 2, 32, 0).expect("a ring");
        receiver
    }

    /// What is written into shared memory gets the verdict of the packet that would have brought it.
    #[test]
    fn what_was_written_gets_the_verdicts_of_packets() {
        let (module, dtp, link, sequence, bitmask_offset, time_ns, generation, count) = (0, 0, 0, 0, 0, 0, 0, 0);
        let (kind, slice, slot) = (Kind::BlockDone, 1, 1);
        let event = Record { kind, module, dtp, link, slice, slot, sequence, bitmask_offset, time_ns, generation, count };
        let none = [0; RECORD_BYTES];
        let record = event.to_bytes();
        let cases: [(usize, u16, u64, u32, &[u8]); 11] = [
            (0, 1, 0, 0, &[1; 8]),
            (0, 1, 0, 1, &[1; 8]),
            (0, 1, 8, 2, &[2; 4]),
            (0, 2, 0, 3, &record),
            (0, 2, 1, 4, &none),
            (0, 2, 0, 5, &[1; 8]),
            (0, 1, 28, 6, &[1; 5]),
            (0, 1, u64::MAX >> 16, 6, &[1; 5]),
            (0, 3, 0, 6, &[1; 5]),
            (0, 1, 16, 2, &[1; 5]),
            (1, 1, 16, 6, &[1; 5]),
        ];
        let (mut by_packets, mut by_memory) = (receiver(), receiver());
        let (mut memory, mut shared) = ([0; 160], [0; 160]);
        let mut verdicts = Vec::new();
        for (sender, buffer, offset_units, sequence, payload) in cases {
            let header = Header { buffer, offset_units, sequence: Some(sequence) };
            let mut segment = vec![0; header.bytes()];
            write_header(&header, payload.len(), &mut segment).expect("it fits");
            segment.extend(payload);
            let verdict = by_packets.receive(sender, &segment, &mut memory, &mut |_, _| {});
            let place = offset_units as usize * if buffer == 2 { RECORD_BYTES } else { 1 } + if buffer == 2 { 32 } else { 0 };
            if let Some(place) = shared.get_mut(place..place.saturating_add(payload.len())) {
                place.copy_from_slice(payload);
            }
            let read = |at: u64| std::array::from_fn(|n| shared[at as usize + n]);
            let other = by_memory.written(sender, (&header, payload.len()), read, &mut |_, _| {});
            assert_eq!(verdict, other, "{header:?}");
            verdicts.push(verdict);
        }
        assert_eq!((by_packets.verdicts(), by_packets.refusals()), (by_memory.verdicts(), by_memory.refusals()));
        assert_eq!(by_packets.assembly(0).and_then(Assembly::take), by_memory.assembly(0).and_then(Assembly::take));
        assert_eq!(verdicts[..4], [Verdict::Placed, Verdict::SlotNotFree, Verdict::Placed, Verdict::Event(event)]);
        assert_eq!(verdicts[5], Verdict::NoEvent(NoEvent::Length));
        assert!(verdicts[6..].iter().all(|verdict| matches!(verdict, Verdict::Refused(_))), "{verdicts:?}");
    }
}
