//! Slots and credits: every order of the steps of a module, a receiver and the link between them.

use super::super::slots::Credits;
use super::*;
use std::collections::HashSet;

const SLICES: Slices = Slices { first: 100, count: None, step: 2 };

fn assembly(slots: u32, modules: usize) -> Assembly {
    let shape = Shape { slots, first_slot: 0, slots_here: slots, slot_bytes: 10, slices: SLICES };
    Assembly::new(shape, &vec![Part { dtp: 3, block_bytes: 8 }; modules])
}

fn event(kind: Kind, slot: u32, generation: u64, count: u64) -> Record {
    let (module, link, slice, sequence, bitmask_offset, time_ns) = (0, 0, 0, 0, 0, 0);
    Record { kind, module, dtp: 3, link, slice, slot, sequence, bitmask_offset, time_ns, generation, count }
}

#[test]
fn an_image_is_ready_when_all_bytes_of_all_modules_came() {
    let mut assembly = assembly(2, 2);
    assembly.placed(0, 10, 8);
    assembly.placed(1, 12, 7);
    assert_eq!(assembly.take(), None);
    assembly.placed(1, 19, 1);
    let image = assembly.take().expect("whole, before any event");
    assert_eq!(image, Image { slot: 1, position: 1, slice: 102, missing_bytes: 0 });
    assert_eq!((assembly.may_place(10), assembly.may_place(9), assembly.may_place(20)), (false, true, false));
    assert_eq!((assembly.next_credit(), assembly.release(0)), (None, Err(Refused::NotInUse(0))));
    assembly.release(1).expect("in use");
    assert_eq!(assembly.next_credit(), Some(Credit { slot: 1, fills: 2 }));
    assert_eq!(
        (assembly.next_credit(), assembly.release(1), assembly.release(7)),
        (None, Err(Refused::NotInUse(1)), Err(Refused::NotInUse(7)))
    );
}

#[test]
fn a_partial_image_is_ready_when_no_packet_can_come_any_more() {
    let mut assembly = assembly(2, 1);
    assembly.placed(0, 0, 5);
    assembly.event(0, &event(Kind::BlockDone, 0, 0, 0), 20);
    assembly.tested(0, 20);
    assert_eq!(assembly.take(), None, "the event itself is not certain yet, so a packet before it may still come");
    assembly.tested(0, 21);
    assert_eq!(assembly.take().map(|image| (image.slot, image.missing_bytes)), Some((0, 3)));
    assert_eq!(assembly.counts(), Counts { whole: 0, partial: 1, empty: 0, missing_bytes: 3 });
}

#[test]
fn a_lost_event_is_replaced_by_a_later_one_and_the_end() {
    let mut assembly = assembly(3, 1);
    assembly.placed(0, 0, 5);
    assembly.placed(0, 10, 6);
    assembly.event(0, &event(Kind::BlockDone, 1, 0, 0), 20);
    assembly.placed(0, 20, 7);
    assembly.tested(0, 21);
    let mut taken = || assembly.take().map(|image| (image.position, image.missing_bytes));
    assert_eq!([taken(), taken(), taken()], [Some((0, 3)), Some((1, 2)), None]);
    assembly.event(0, &event(Kind::End, 0, 0, 3), 25);
    assembly.tested(0, 26);
    assert_eq!(assembly.take().map(|image| (image.position, image.missing_bytes)), Some((2, 1)));
}

#[test]
fn slices_that_all_modules_skipped_are_passed_over() {
    let mut assembly = assembly(1, 2);
    for module in 0..2 {
        assembly.placed(module, 0, 8);
    }
    assembly.take().expect("whole");
    for generation in 1..4 {
        assembly.event(0, &event(Kind::BlockSkipped, 0, generation, 0), 10 + generation);
    }
    assembly.event(1, &event(Kind::BlockSkipped, 0, 2, 0), 11);
    (0..2).for_each(|module| assembly.tested(module, 100));
    assembly.release(0).expect("in use");
    assert_eq!(assembly.next_credit(), Some(Credit { slot: 0, fills: 4 }), "0 was read, both skipped 1 and 2");
    assert_eq!(assembly.counts().empty, 2);
    assembly.placed(1, 0, 8);
    assert_eq!(assembly.take().map(|image| (image.position, image.missing_bytes)), Some((3, 8)), "one module skipped 3");
}

/// Numbers of hostile events: none leads out of the slots or into a long loop.
#[test]
fn events_with_any_numbers_do_no_harm() {
    let mut assembly = assembly(2, 1);
    for (slot, generation, count) in [(u32::MAX, u64::MAX, 0), (0, u64::MAX / 2, 7), (5, 0, 1), (0, 0, u64::MAX)] {
        for kind in Kind::ALL {
            assembly.event(0, &event(kind, slot, generation, count), u64::MAX);
            assembly.event(9, &event(kind, slot, generation, count), 0);
        }
    }
    assembly.placed(9, 0, 8);
    assembly.placed(0, u64::MAX, 8);
    assert_eq!(assembly.take(), None);
    assembly.tested(0, u64::MAX);
    assembly.tested(0, u64::MAX);
    assembly.next_credit();
}

/// The fuzz target `rashpa_event` found that a receiver counted the slices one by one that an end told.
#[test]
fn an_end_far_ahead_is_one_step() {
    let mut assembly = assembly(2, 1);
    assembly.event(0, &event(Kind::End, 0, 0, u64::MAX), 0);
    assembly.tested(0, 1);
    assert_eq!(assembly.next_credit(), Some(Credit { slot: 0, fills: (1 << 63) + 1 }));
    assert_eq!(assembly.counts().empty, u64::MAX);
}

/// A module, a receiver and what is on its way between them. Data come in order; credits may stay on their way for any
/// time, and overtake each other.
#[derive(Clone)]
struct World {
    credits: Credits,
    next: u64,
    sent: u64,
    skipped: u64,
    forward: Vec<(u64, bool)>,
    back: Vec<Credit>,
    receiver: Assembly,
    flow: u64,
    reads: Vec<Image>,
    read: u64,
}

const SLOTS: u32 = 2;
const POSITIONS: u64 = 5;

impl World {
    fn key(&self) -> String {
        format!("{:?}", (&self.credits, self.next, &self.forward, &self.back, &self.receiver, &self.reads, self.read))
    }

    /// The worlds to which each possible step leads.
    fn steps(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            next.push(world);
        };
        if self.next < POSITIONS {
            step(&Self::send);
        }
        if !self.forward.is_empty() {
            step(&Self::arrive);
        }
        for at in 0..self.back.len() {
            step(&|world| {
                let credit = world.back.swap_remove(at);
                assert!(world.credits.grant(credit.slot, credit.fills));
            });
        }
        step(&|world| world.reads.extend(world.receiver.take()));
        for at in 0..self.reads.len() {
            step(&|world| world.finish_reading(at));
        }
        next
    }

    fn send(&mut self) {
        let (slot, generation) = ((self.next % u64::from(SLOTS)) as u32, self.next / u64::from(SLOTS));
        let may = self.credits.allow(slot, generation);
        (self.sent, self.skipped) = (self.sent + u64::from(may), self.skipped + u64::from(!may));
        self.forward.push((self.next, may));
        self.next += 1;
    }

    fn arrive(&mut self) {
        let (position, has_data) = self.forward.remove(0);
        let (slot, generation) = ((position % u64::from(SLOTS)) as u32, position / u64::from(SLOTS));
        if has_data {
            let offset = u64::from(slot) * 10;
            assert!(self.receiver.may_place(offset), "a module overwrites slot {slot}, which is not free");
            self.receiver.placed(0, offset, 8);
        }
        let kind = if has_data { Kind::BlockDone } else { Kind::BlockSkipped };
        self.receiver.event(0, &event(kind, slot, generation, 0), self.flow);
        self.flow += 1;
        self.receiver.tested(0, self.flow);
        self.collect();
    }

    fn finish_reading(&mut self, at: usize) {
        let image = self.reads.swap_remove(at);
        assert_eq!(image.missing_bytes, 0);
        self.receiver.release(image.slot).expect("it was taken");
        self.read += 1;
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(credit) = self.receiver.next_credit() {
            self.back.push(credit);
        }
    }

    /// Whatever happened: when all that is on its way has arrived and all is read, the accounts balance, and the module
    /// may fill every slot again. So nothing is stuck.
    fn check_quiet(mut self) {
        self.reads.extend(std::iter::from_fn(|| self.receiver.take()));
        while !(self.forward.is_empty() && self.back.is_empty() && self.reads.is_empty()) {
            while !self.forward.is_empty() {
                self.arrive();
            }
            self.reads.extend(std::iter::from_fn(|| self.receiver.take()));
            while !self.reads.is_empty() {
                self.finish_reading(0);
            }
            for credit in std::mem::take(&mut self.back) {
                self.credits.grant(credit.slot, credit.fills);
            }
            self.reads.extend(std::iter::from_fn(|| self.receiver.take()));
        }
        let counts = self.receiver.counts();
        assert_eq!((self.sent, self.skipped), (self.read, counts.empty), "sent = read, skipped = empty");
        for position in self.next..self.next + u64::from(SLOTS) {
            let slot = (position % u64::from(SLOTS)) as u32;
            assert!(self.credits.allow(slot, position / u64::from(SLOTS)), "slot {slot} is stuck at {position}");
        }
    }
}

#[test]
fn no_order_of_steps_overwrites_a_slot_or_gets_stuck() {
    let (credits, receiver) = (Credits::new(SLOTS), assembly(SLOTS, 1));
    let start =
        World { credits, next: 0, sent: 0, skipped: 0, forward: vec![], back: vec![], receiver, flow: 0, reads: vec![], read: 0 };
    let (mut seen, mut open) = (HashSet::new(), vec![start]);
    let mut skipped = 0;
    while let Some(world) = open.pop() {
        if !seen.insert(world.key()) {
            continue;
        }
        skipped = skipped.max(world.skipped);
        world.clone().check_quiet();
        open.extend(world.steps());
    }
    assert!(seen.len() > 1000, "only {} states", seen.len());
    assert_eq!(skipped, POSITIONS - u64::from(SLOTS), "also the slowest receiver was tried");
}
