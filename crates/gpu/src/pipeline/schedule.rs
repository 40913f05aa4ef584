//! In which order the stages of batches are enqueued, for each of the four ways to launch.
//!
//! Let S be the sets of buffers of the device. The copy of batch b to the device needs the set of b - S to be worked
//! on; its work needs what comes back of b - S to be with the host. Plain launches say so by events, the others by
//! flags, which hold the number of batches that have come: `on_device`, `worked`, `returned`. Whether an image comes
//! back is known when the work on its batch is done: the host then enqueues the copies of images that are kept. With
//! graphs the device decides.

use super::batch::Batch;
use super::buffers::{MetaCopies, Slot};
use super::spec::{LaunchBy, Output};
use super::{Pipeline, used};
use crate::device::{Device, Flag, Lent, Result, Step, has_come};

impl<D: Device> Pipeline<D> {
    /// A batch was submitted.
    pub(super) fn ring(&mut self) -> Result<()> {
        match self.spec.launch {
            LaunchBy::Plain => self.enqueue_plain(),
            LaunchBy::WaitValue => {
                // What was enqueued before goes on at once.
                self.device.set_flag(self.flags.arrived, self.value(self.at.submitted));
                self.enqueue_held()
            }
            LaunchBy::Graph => self.launch_graphs(),
            LaunchBy::Persistent => self.enqueue_copies(),
        }
    }

    /// Goes on as far as the device has come.
    pub(super) fn go_on(&mut self, done: &mut impl FnMut(&Batch<'_>)) -> Result<()> {
        match self.spec.launch {
            LaunchBy::Plain => self.go_on_plain(done),
            LaunchBy::WaitValue => {
                self.go_on_by_flags(done)?;
                self.enqueue_held()
            }
            LaunchBy::Graph => {
                self.launch_graphs()?;
                while self.at.finished < self.at.returned && self.is_reached(self.at.finished, |slot| slot.out_done)? {
                    self.finish(done);
                }
                Ok(())
            }
            LaunchBy::Persistent => self.go_on_by_flags(done),
        }
    }

    /// Lets go what is held by flags.
    pub(super) fn release(&mut self) {
        let held = self.at.entered;
        for slot in 0..self.slots.len() {
            let Slot { given, meta, out, .. } = self.slots[slot];
            if self.failed.is_none() {
                self.device.lend(given, Lent::Read);
                self.device.lend(meta, Lent::Write);
                self.device.lend(out, Lent::Write);
            }
        }
        self.device.set_flag(self.flags.stop, 1);
        for flag in [self.flags.arrived, self.flags.returned] {
            self.device.set_flag(flag, self.value(held));
        }
    }

    fn put_entering(&mut self, step: Step) -> Result<()> {
        self.device.enqueue(self.streams.to_device, step)
    }

    fn put_working(&mut self, step: Step) -> Result<()> {
        self.device.enqueue(self.streams.work[0], step)
    }

    fn put_returning(&mut self, step: Step) -> Result<()> {
        self.device.enqueue(self.streams.to_host, step)
    }

    fn is_reached(&mut self, batch: u64, event: impl Fn(&Slot) -> crate::device::Event) -> Result<bool> {
        let event = event(&self.slots[self.slot_of(batch)]);
        self.device.is_reached(event)
    }

    /// True if a flag says that a batch has passed.
    fn has_passed(&self, flag: Flag, batch: u64) -> bool {
        has_come(self.device.read_flag(flag), self.value(batch + 1))
    }

    /// The batch that used the set of this batch before it.
    fn earlier(&self, batch: u64) -> Option<u64> {
        batch.checked_sub(self.sets.len() as u64)
    }

    // Plain launches.

    fn enqueue_plain(&mut self) -> Result<()> {
        let sets = self.sets.len() as u64;
        // An event that is waited for must have been recorded before.
        while self.at.entered < self.at.submitted && self.at.entered < self.at.worked + sets {
            let batch = self.at.entered;
            if let Some(earlier) = self.earlier(batch) {
                self.put_entering(Step::WaitEvent(self.slots[self.slot_of(earlier)].work_done))?;
            }
            let slot = self.slot_of(batch);
            self.put_entering(self.sets[self.set_of(batch)].copy_in(&self.spec, &self.slots[slot]))?;
            self.put_entering(Step::Record(self.slots[slot].in_done))?;
            self.at.entered += 1;
        }
        while self.at.worked < self.at.entered && self.at.worked < self.at.returned + sets {
            let batch = self.at.worked;
            let slot = self.slot_of(batch);
            self.put_working(Step::WaitEvent(self.slots[slot].in_done))?;
            if let Some(earlier) = self.earlier(batch) {
                self.put_working(Step::WaitEvent(self.slots[self.slot_of(earlier)].out_done))?;
            }
            self.enqueue_work(batch)?;
            self.put_working(Step::Record(self.slots[slot].work_done))?;
            self.at.worked += 1;
        }
        Ok(())
    }

    /// The kernels of a batch, and what the host must know of it.
    fn enqueue_work(&mut self, batch: u64) -> Result<()> {
        let (set, slot) = (self.set_of(batch), self.slot_of(batch));
        for n in 0..self.work[set].len() {
            self.put_working(self.work[set][n])?;
        }
        let copies = self.meta_copies(set, slot);
        copies.into_iter().flatten().try_for_each(|step| self.put_working(step))
    }

    fn meta_copies(&self, set: usize, slot: usize) -> MetaCopies {
        self.sets[set].meta_copies(&self.spec, &self.slots[slot])
    }

    fn go_on_plain(&mut self, done: &mut impl FnMut(&Batch<'_>)) -> Result<()> {
        self.enqueue_plain()?;
        while self.at.returned < self.at.worked && self.is_reached(self.at.returned, |slot| slot.work_done)? {
            self.enqueue_return(self.at.returned)?;
            self.put_returning(Step::Record(self.slots[self.slot_of(self.at.returned)].out_done))?;
            self.at.returned += 1;
        }
        while self.at.finished < self.at.returned && self.is_reached(self.at.finished, |slot| slot.out_done)? {
            self.finish(done);
        }
        self.enqueue_plain()
    }

    /// Copies the images of a batch that are kept, as far as they fit.
    fn enqueue_return(&mut self, batch: u64) -> Result<()> {
        let (set, n) = (self.set_of(batch), self.slot_of(batch));
        let (meta, out) = (self.slots[n].meta, self.slots[n].out);
        self.device.take_back(meta);
        self.device.lend(out, Lent::Write);
        for frame in 0..self.labels[n].frames as usize {
            let Some(used) = used(&self.spec, self.device.pinned(meta), frame) else { continue };
            if matches!(self.spec.output, Output::Sparse { room } if used > room as usize) {
                continue;
            }
            let copies = self.sets[set].copy_out(&self.spec, &self.slots[n], frame, used);
            copies.into_iter().flatten().try_for_each(|step| self.put_returning(step))?;
        }
        Ok(())
    }

    // Stream memory operations.

    /// Enqueues the copies and the work of all batches for which there are slots, whether they have come or not.
    pub(super) fn enqueue_held(&mut self) -> Result<()> {
        while self.at.entered < self.at.finished + self.slots.len() as u64 {
            let batch = self.at.entered;
            let (flag, value) = (self.flags.arrived, self.value(batch + 1));
            self.put_entering(Step::WaitValue { flag, value })?;
            self.enqueue_copy(batch)?;
            let (flag, value) = (self.flags.on_device, self.value(batch + 1));
            self.put_working(Step::WaitValue { flag, value })?;
            if let Some(earlier) = self.earlier(batch) {
                let (flag, value) = (self.flags.returned, self.value(earlier + 1));
                self.put_working(Step::WaitValue { flag, value })?;
            }
            self.enqueue_work(batch)?;
            let (flag, value) = (self.flags.worked, self.value(batch + 1));
            self.put_working(Step::WriteValue { flag, value })?;
            (self.at.entered, self.at.worked) = (batch + 1, batch + 1);
        }
        Ok(())
    }

    /// The copy of a batch to the device, when its set is free, and the flag that it is there.
    fn enqueue_copy(&mut self, batch: u64) -> Result<()> {
        if let Some(earlier) = self.earlier(batch) {
            let (flag, value) = (self.flags.worked, self.value(earlier + 1));
            self.put_entering(Step::WaitValue { flag, value })?;
        }
        self.put_entering(self.sets[self.set_of(batch)].copy_in(&self.spec, &self.slots[self.slot_of(batch)]))?;
        let (flag, value) = (self.flags.on_device, self.value(batch + 1));
        self.put_entering(Step::WriteValue { flag, value })
    }

    fn go_on_by_flags(&mut self, done: &mut impl FnMut(&Batch<'_>)) -> Result<()> {
        while self.at.returned < self.at.submitted && self.has_passed(self.flags.worked, self.at.returned) {
            self.enqueue_return(self.at.returned)?;
            let (flag, value) = (self.flags.returned, self.value(self.at.returned + 1));
            self.put_returning(Step::WriteValue { flag, value })?;
            self.at.returned += 1;
        }
        while self.at.finished < self.at.returned && self.has_passed(self.flags.returned, self.at.finished) {
            self.finish(done);
        }
        Ok(())
    }

    // The persistent kernel.

    fn enqueue_copies(&mut self) -> Result<()> {
        while self.at.entered < self.at.submitted {
            self.enqueue_copy(self.at.entered)?;
            self.at.entered += 1;
            self.at.worked = self.at.entered;
        }
        Ok(())
    }

    // Graphs.

    fn launch_graphs(&mut self) -> Result<()> {
        while self.at.entered < self.at.submitted {
            let batch = self.at.entered;
            let (set, slot) = (self.set_of(batch), self.slot_of(batch));
            self.device.lend(self.slots[slot].out, Lent::Write);
            let stream = self.streams.work[set];
            self.device.enqueue(stream, Step::LaunchGraph(self.graphs[slot]))?;
            self.device.enqueue(stream, Step::Record(self.slots[slot].out_done))?;
            self.at.entered = batch + 1;
            (self.at.worked, self.at.returned) = (self.at.entered, self.at.entered);
        }
        Ok(())
    }
}
