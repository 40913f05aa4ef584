//! The blocks of all modules in the slots of a receive buffer, as one receiver sees them: which slots are whole, which
//! are finished although packets are missing, and when a slot may be filled again. It moves no bytes.
//!
//! A slot goes *free* (credit given) -> *filling* -> *ready* -> *in use* -> *free*. The block of a module is decided
//! when all its bytes came, or when the module said that it is done (or skipped, or did something later) and the loss
//! detector is certain of all packets up to that event. So no packet of a block is on its way any more when its slot is
//! given free, and an event that is lost costs nothing but time.

use super::terms::Slices;
use konkordia_wire::rashpa_event::{Kind, Record};

/// The part of a receive buffer that lies in one receiver: whole slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Slots of the receive buffer, of all receivers.
    pub slots: u32,
    /// The first one here.
    pub first_slot: u32,
    /// How many are here.
    pub slots_here: u32,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// The slices that come.
    pub slices: Slices,
}

/// What one module brings into each slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its transfer, as its events name it.
    pub dtp: u8,
    /// Bytes of its block; not 0.
    pub block_bytes: u64,
}

/// A slot that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    /// Which slot.
    pub slot: u32,
    /// Its place among the slices of the transfer.
    pub position: u64,
    /// The data slice.
    pub slice: u64,
    /// Bytes that did not come; 0 of a whole image.
    pub missing_bytes: u64,
}

/// What a receiver allows all modules of the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credit {
    /// Which slot.
    pub slot: u32,
    /// How often it may be filled in all.
    pub fills: u64,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The slot is not being read.
    #[error("slot {0} is not in use, so it cannot be released")]
    NotInUse(u32),
}

/// How many slices had which fate. The sum is the number of slices for which slots were given free again or are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All bytes came.
    pub whole: u64,
    /// Some bytes came.
    pub partial: u64,
    /// No byte came: all modules skipped the slice, or all was lost.
    pub empty: u64,
    /// Bytes of partial slices that did not come.
    pub missing_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Filling,
    Ready,
    InUse,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot {
    fill: u64,
    state: State,
    has_credit_to_tell: bool,
    parts: Vec<Block>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Block {
    bytes: u64,
    /// Position in the module's flow of the event that told that the block is done.
    told_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    part: Part,
    /// All positions before this one are done or skipped, by what the module said.
    next_position: u64,
    /// The loss detector is certain of all packets of the flow before this one.
    tested_before: u64,
    /// The first event that it is not certain of, if any.
    waits_for: Option<u64>,
}

/// The state of all slots of a receive buffer that are at this receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    shape: Shape,
    modules: Vec<Module>,
    slots: Vec<Slot>,
    counts: Counts,
}

impl Assembly {
    /// Of slots that are free; `shape` has at least one. `parts` has one element for each module. Memory: 32 bytes for
    /// each slot and module.
    pub fn new(shape: Shape, parts: &[Part]) -> Self {
        let slot = Slot { fill: 0, state: State::Filling, has_credit_to_tell: false, parts: vec![Block::default(); parts.len()] };
        let module = |part: &Part| Module { part: *part, next_position: 0, tested_before: 0, waits_for: None };
        Self {
            shape,
            modules: parts.iter().map(module).collect(),
            slots: vec![slot; shape.slots_here as usize],
            counts: Counts::default(),
        }
    }

    /// How many slices had which fate so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The slot of a byte of the part of the receive buffer that is here.
    fn index(&self, offset: u64) -> Option<usize> {
        usize::try_from(offset.checked_div(self.shape.slot_bytes)?).ok().filter(|index| *index < self.slots.len())
    }

    fn position(&self, index: usize, fill: u64) -> u64 {
        fill.saturating_mul(self.shape.slots.into()).saturating_add(u64::from(self.shape.first_slot) + index as u64)
    }

    /// Notes that `bytes` of module number `module` were placed at `offset` from the beginning of the first slot here.
    #[inline]
    pub fn placed(&mut self, module: usize, offset: u64, bytes: u64) {
        let Some(index) = self.index(offset) else { return };
        let Some(block) = self.slots[index].parts.get_mut(module) else { return };
        block.bytes += bytes;
        if block.bytes >= self.modules[module].part.block_bytes {
            self.decide(index);
        }
    }

    /// May bytes be placed at `offset`? Only while its slot is being filled: whoever writes into one that is ready or
    /// in use has no credit, or sends what was overtaken.
    #[inline]
    pub fn may_place(&self, offset: u64) -> bool {
        self.index(offset).is_some_and(|index| self.slots[index].state == State::Filling)
    }

    /// Takes an event of module number `module` that is at position `at` of its flow. Events of other transfers change
    /// nothing.
    pub fn event(&mut self, module: usize, record: &Record, at: u64) {
        let Some(sender) = self.modules.get_mut(module).filter(|sender| sender.part.dtp == record.dtp) else { return };
        let position = record.generation.checked_mul(self.shape.slots.into());
        let position = position.and_then(|first| first.checked_add(record.slot.into()));
        let next = match record.kind {
            Kind::BlockDone | Kind::BlockSkipped => position.and_then(|position| position.checked_add(1)),
            Kind::End => Some(record.count),
            _ => None,
        };
        let Some(next) = next.filter(|next| *next > sender.next_position) else { return };
        sender.next_position = next;
        for index in 0..self.slots.len() {
            let position = self.position(index, self.slots[index].fill);
            let block = &mut self.slots[index].parts[module];
            if position < next && block.told_at.is_none() {
                block.told_at = Some(at);
                let waits_for = &mut self.modules[module].waits_for;
                *waits_for = Some(waits_for.map_or(at, |first| first.min(at)));
                self.decide(index);
            }
        }
    }

    /// Notes that the loss detector is certain of all packets of module number `module` before position `before`.
    #[inline]
    pub fn tested(&mut self, module: usize, before: u64) {
        let Some(sender) = self.modules.get_mut(module) else { return };
        sender.tested_before = sender.tested_before.max(before);
        if sender.waits_for.is_none_or(|at| at >= sender.tested_before) {
            return;
        }
        for index in 0..self.slots.len() {
            self.decide(index);
        }
        let before = self.modules[module].tested_before;
        let told = self.slots.iter().filter_map(|slot| slot.parts[module].told_at);
        self.modules[module].waits_for = told.filter(|at| *at >= before).min();
    }

    /// Is it certain what came of this block?
    fn is_decided(&self, index: usize, module: usize) -> bool {
        let (sender, slot) = (&self.modules[module], &self.slots[index]);
        let block = slot.parts[module];
        let is_told = sender.next_position > self.position(index, slot.fill);
        let is_certain = block.told_at.is_none_or(|at| at < sender.tested_before);
        block.bytes >= sender.part.block_bytes || (is_told && is_certain)
    }

    /// All positions before this one were told as done or skipped by all modules that bring something; 0 if there is
    /// none.
    fn told_by_all(&self) -> u64 {
        let bringing = self.modules.iter().filter(|sender| sender.part.block_bytes > 0);
        bringing.map(|sender| sender.next_position).min().unwrap_or(0)
    }

    /// Makes a slot ready whose blocks are all decided. Slices of which nothing came are passed over, in one step: how
    /// many they are is what modules say.
    fn decide(&mut self, index: usize) {
        let is_decided = (0..self.modules.len()).all(|module| self.is_decided(index, module));
        if self.slots[index].state != State::Filling || !is_decided {
            return;
        }
        if self.slots[index].parts.iter().any(|block| block.bytes > 0) {
            self.slots[index].state = State::Ready;
            return;
        }
        let fill = self.slots[index].fill;
        let slots = u64::from(self.shape.slots);
        let behind = self.told_by_all().saturating_sub(u64::from(self.shape.first_slot) + index as u64);
        let next = behind.div_ceil(slots);
        if next > fill {
            self.counts.empty = self.counts.empty.saturating_add(next - fill);
            self.refill(index, next);
        }
    }

    /// Gives a slot free for this fill.
    fn refill(&mut self, index: usize, fill: u64) {
        let slot = &mut self.slots[index];
        slot.fill = fill;
        slot.parts.fill(Block::default());
        (slot.state, slot.has_credit_to_tell) = (State::Filling, true);
    }

    /// How many of the first `due` slices of the transfer belong here and have no fate yet: they are being filled, are
    /// ready or in use, or nothing is known of them.
    pub fn open_before(&self, due: u64) -> u64 {
        let slots = u64::from(self.shape.slots);
        let open = |(index, slot): (usize, &Slot)| {
            let here = due.saturating_sub(u64::from(self.shape.first_slot) + index as u64).div_ceil(slots);
            here.saturating_sub(slot.fill)
        };
        self.slots.iter().enumerate().map(open).sum()
    }

    /// How many of the first `due` slices of the transfer belong here.
    pub fn due_here(&self, due: u64) -> u64 {
        let slots = u64::from(self.shape.slots);
        let first = u64::from(self.shape.first_slot);
        (0..self.slots.len() as u64).map(|index| due.saturating_sub(first + index).div_ceil(slots)).sum()
    }

    /// The oldest slot that is ready; it is in use from now on.
    pub fn take(&mut self) -> Option<Image> {
        let ready = (0..self.slots.len()).filter(|index| self.slots[*index].state == State::Ready);
        let index = ready.min_by_key(|index| self.position(*index, self.slots[*index].fill))?;
        self.slots[index].state = State::InUse;
        let missing = |(block, sender): (&Block, &Module)| sender.part.block_bytes.saturating_sub(block.bytes);
        let missing_bytes = self.slots[index].parts.iter().zip(&self.modules).map(missing).sum();
        let count = if missing_bytes == 0 { &mut self.counts.whole } else { &mut self.counts.partial };
        *count += 1;
        self.counts.missing_bytes += missing_bytes;
        let position = self.position(index, self.slots[index].fill);
        let slice = self.shape.slices.at(position).unwrap_or(u64::MAX);
        Some(Image { slot: self.shape.first_slot + index as u32, position, slice, missing_bytes })
    }

    /// Gives a slot free that was read.
    ///
    /// # Errors
    /// [`Refused`]: nothing changes.
    pub fn release(&mut self, slot: u32) -> Result<(), Refused> {
        let index = slot.checked_sub(self.shape.first_slot).map(|index| index as usize);
        let in_use = |index: &usize| self.slots.get(*index).is_some_and(|slot| slot.state == State::InUse);
        let index = index.filter(in_use).ok_or(Refused::NotInUse(slot))?;
        self.refill(index, self.slots[index].fill.saturating_add(1));
        self.decide(index);
        Ok(())
    }

    /// A credit that the modules do not know yet.
    pub fn next_credit(&mut self) -> Option<Credit> {
        let index = self.slots.iter().position(|slot| slot.has_credit_to_tell)?;
        self.slots[index].has_credit_to_tell = false;
        Some(Credit { slot: self.shape.first_slot + index as u32, fills: self.slots[index].fill.saturating_add(1) })
    }
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
