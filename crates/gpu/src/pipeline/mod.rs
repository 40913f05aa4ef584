//! Batches of frames on a device: while batch n comes back, n + 1 is worked on and n + 2 is on its way there.
//!
//! The caller has credits; a batch that is submitted takes one, and gives it back when it is done. Buffers of the
//! device are double (three with graphs), pinned buffers are as many as there are credits, so what was given for a
//! batch stays until it is done: if the device fails, [`Pipeline::unfinished`] has all of them, in order. Everything is
//! allocated by [`Pipeline::arm`]. One thread calls; nothing waits inside.

mod batch;
mod buffers;
mod schedule;
mod spec;

pub use batch::{Account, Batch, Outcome, Unfinished};
pub use spec::{Above, Calibration, LaunchBy, Output, Received, Spec, Tables};

use crate::device::{Cause, Device, DeviceError, Flag, Graph, Lent, Memory, Persistent, PinnedSpan, Result, Step, Stream};
use crate::layout::NO_FRAME;
use batch::used;
use buffers::{Constants, Input, Planes, Set, Slot, whole};
use bytemuck::cast_slice;
use std::time::Duration;

/// A pipeline that is armed.
pub struct Pipeline<D: Device> {
    device: D,
    spec: Spec,
    input: Input,
    /// Why the host brings the words although the device was to take them.
    not_taken: Option<DeviceError>,
    sets: Vec<Set>,
    slots: Vec<Slot>,
    labels: Vec<Label>,
    /// For each set, from words to what comes back.
    work: Vec<Vec<Step>>,
    /// For each slot, the graph of a batch.
    graphs: Vec<Graph>,
    streams: Streams,
    flags: Flags,
    at: Cursors,
    account: Account,
    failed: Option<DeviceError>,
    /// When something moved last.
    moved: Duration,
    is_closed: bool,
}

/// What is known of the batch in a slot.
#[derive(Clone, Copy, Default)]
struct Label {
    number: u64,
    frames: u32,
}

struct Streams {
    to_device: Stream,
    /// One, or with graphs one for each set.
    work: Vec<Stream>,
    to_host: Stream,
}

/// Numbers of batches that have come so far, plus `Spec::first`.
struct Flags {
    arrived: Flag,
    on_device: Flag,
    worked: Flag,
    returned: Flag,
    stop: Flag,
}

/// The next batch of each stage.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Cursors {
    submitted: u64,
    /// Its copy to the device is enqueued.
    entered: u64,
    /// Its work is enqueued.
    worked: u64,
    /// Its copy to the host is enqueued.
    returned: u64,
    finished: u64,
}

impl<D: Device> Pipeline<D> {
    /// Allocates everything, and brings the constants to the device.
    ///
    /// # Errors
    /// If the device has not what is needed. The device is given up then.
    pub fn arm(mut device: D, spec: Spec, tables: &Tables<'_>) -> Result<Self> {
        if let Err(why) = spec.check(tables) {
            return Err(DeviceError::new(Cause::Request, "arming the pipeline", device.name(), why));
        }
        let streams = Streams {
            to_device: device.stream()?,
            work: (0..if spec.launch == LaunchBy::Graph { spec.launch.sets() } else { 1 })
                .map(|_| device.stream())
                .collect::<Result<_>>()?,
            to_host: device.stream()?,
        };
        let mut flag = |value| device.flag(value);
        let flags = Flags {
            arrived: flag(spec.first)?,
            on_device: flag(spec.first)?,
            worked: flag(spec.first)?,
            returned: flag(spec.first)?,
            stop: flag(0)?,
        };
        let constants = constants(&mut device, &spec, tables, streams.to_device)?;
        let (input, not_taken) = register(&mut device, &spec, tables, streams.to_device)?;
        let sets = (0..spec.launch.sets()).map(|_| Set::new(&mut device, &spec, input)).collect::<Result<Vec<_>>>()?;
        let slots = (0..spec.credits()).map(|_| Slot::new(&mut device, &spec, input)).collect::<Result<Vec<_>>>()?;
        let (mut work, mut graphs) = (Vec::new(), Vec::new());
        if spec.launch == LaunchBy::Graph {
            for (n, slot) in slots.iter().enumerate() {
                let nodes = sets[n % sets.len()].graph(&mut device, &spec, &constants, slot)?;
                graphs.push(device.graph(&nodes)?);
            }
        } else {
            for set in &sets {
                work.push(set.work(&mut device, &spec, &constants, true)?);
            }
        }
        for set in &sets {
            device.enqueue(streams.to_device, set.first_step(&spec))?;
        }
        wait_for(&mut device, &spec, streams.to_device)?;
        let labels = vec![Label::default(); slots.len()];
        let (at, account, moved) = (Cursors::default(), Account::default(), device.elapsed());
        let mut new = Self {
            device,
            spec,
            input,
            not_taken,
            sets,
            slots,
            labels,
            work,
            graphs,
            streams,
            flags,
            at,
            account,
            failed: None,
            moved,
            is_closed: false,
        };
        if new.spec.launch == LaunchBy::Persistent {
            new.start_persistent()?;
        }
        new.device.seal();
        if new.spec.launch == LaunchBy::WaitValue {
            new.enqueue_held()?;
        }
        Ok(new)
    }

    fn start_persistent(&mut self) -> Result<()> {
        let turn = |(n, slot): (usize, &Slot)| {
            let set = n % self.sets.len();
            let mut steps = self.work[set].clone();
            steps.extend(self.sets[set].meta_copies(&self.spec, slot).into_iter().flatten());
            steps
        };
        let program = Persistent {
            turns: self.slots.iter().enumerate().map(turn).collect(),
            sets: self.sets.len() as u32,
            first: self.spec.first,
            arrived: self.flags.on_device,
            returned: self.flags.returned,
            worked: self.flags.worked,
            stop: self.flags.stop,
        };
        self.device.persistent(&program)?;
        self.device.enqueue(self.streams.work[0], Step::StartPersistent)
    }

    /// What it does.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// True if the device takes the words of frames from where they were received.
    pub fn takes_words(&self) -> bool {
        matches!(self.input, Input::Received { .. })
    }

    /// Why the host brings the words although the device was to take them.
    pub fn not_taken(&self) -> Option<&DeviceError> {
        self.not_taken.as_ref()
    }

    /// Moves it to the thread that calls.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn attach(&mut self) -> Result<()> {
        let result = self.device.attach();
        self.note(result);
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// What became of everything so far.
    pub fn account(&self) -> Account {
        self.account
    }

    /// Why the device is no longer used.
    pub fn failure(&self) -> Option<&DeviceError> {
        self.failed.as_ref()
    }

    /// Batches that can be submitted now. None after a failure.
    pub fn credits(&self) -> usize {
        if self.failed.is_some() { 0 } else { self.slots.len() - (self.at.submitted - self.at.finished) as usize }
    }

    /// Batches on their way.
    pub fn in_flight(&self) -> u64 {
        self.at.submitted - self.at.finished
    }

    /// Accepts a batch of `frames` frames: `fill` writes their words or, if the device takes them
    /// ([`Self::takes_words`]), for each frame a `u64`: at which word of the received memory it begins. Such a frame
    /// must stay there until the batch is done or the device has failed. False if there is no credit, and nothing was
    /// done then. A batch that was accepted is either done or handed back.
    ///
    /// # Panics
    /// If a batch has not so many frames.
    pub fn submit(&mut self, number: u64, frames: u32, fill: impl FnOnce(&mut [u8])) -> bool {
        assert!(frames > 0 && frames <= self.spec.frames, "a batch has 1 to {} frames", self.spec.frames);
        if self.credits() == 0 || self.is_closed {
            return false;
        }
        let n = self.slot_of(self.at.submitted);
        let (given, frame_bytes) = (self.slots[n].given, self.input.frame_bytes(&self.spec));
        let bytes = self.device.pinned_mut(given);
        if matches!(self.input, Input::Received { .. }) {
            bytes.chunks_exact_mut(frame_bytes).for_each(|begin| begin.copy_from_slice(&NO_FRAME.to_ne_bytes()));
        }
        fill(&mut bytes[..frames as usize * frame_bytes]);
        self.device.lend(given, Lent::Read);
        self.device.lend(self.slots[n].meta, Lent::Write);
        self.labels[n] = Label { number, frames };
        if self.in_flight() == 0 {
            self.moved = self.device.elapsed();
        }
        self.at.submitted += 1;
        self.account.submitted += 1;
        self.account.images += u64::from(frames);
        let result = self.ring();
        self.note(result);
        true
    }

    /// Goes on as far as the device has come, and calls `done` for each batch that is done, in order. True if something
    /// moved; the caller may call [`Self::pause`] otherwise.
    ///
    /// # Errors
    /// If the device has failed, now or before: see [`Self::unfinished`].
    pub fn poll(&mut self, mut done: impl FnMut(&Batch<'_>)) -> Result<bool> {
        let before = self.at;
        if self.failed.is_none() {
            let result = self.go_on(&mut done);
            self.note(result);
        }
        if self.failed.is_none() && self.at == before {
            let result = self.look_for_failure();
            self.note(result);
        } else {
            self.moved = self.device.elapsed();
        }
        self.failed.clone().map_or(Ok(self.at != before), Err)
    }

    /// Gives the device time.
    pub fn pause(&mut self) {
        self.device.pause();
    }

    /// After a failure, the batches that are not done, in order. Each belongs to the caller; the results of all others
    /// were given to [`Self::poll`].
    pub fn unfinished(&self) -> impl Iterator<Item = Unfinished<'_>> {
        let numbers = if self.failed.is_some() { self.at.finished..self.at.submitted } else { 0..0 };
        numbers.map(|batch| {
            let n = self.slot_of(batch);
            let Label { number, frames } = self.labels[n];
            let given = &self.device.pinned(self.slots[n].given)[..frames as usize * self.input.frame_bytes(&self.spec)];
            Unfinished { number, frames, given }
        })
    }

    /// Gives the device up as if it had failed.
    pub fn give_up(&mut self, error: DeviceError) {
        self.note(Err(error));
    }

    /// Ends: what is held by flags is let go. Batches that are on their way must be done before, or the device have
    /// failed.
    ///
    /// # Panics
    /// If there are any.
    pub fn close(&mut self) {
        assert!(self.failed.is_some() || self.in_flight() == 0, "batches are on their way");
        if !self.is_closed {
            self.is_closed = true;
            self.release();
        }
    }

    fn slot_of(&self, batch: u64) -> usize {
        (batch % self.slots.len() as u64) as usize
    }

    fn set_of(&self, batch: u64) -> usize {
        (batch % self.sets.len() as u64) as usize
    }

    /// The value of a flag when so many batches have come.
    fn value(&self, batches: u64) -> u32 {
        self.spec.first.wrapping_add(batches as u32)
    }

    fn note(&mut self, result: Result<()>) {
        let Err(error) = result else { return };
        if self.failed.is_none() {
            self.device.set_flag(self.flags.stop, 1);
            self.device.abandon();
            self.account.handed_back = self.in_flight();
            let frames = (self.at.finished..self.at.submitted).map(|batch| u64::from(self.labels[self.slot_of(batch)].frames));
            self.account.images_handed_back = frames.sum();
            self.failed = Some(error);
        }
    }

    /// Nothing moved: has the device failed, or is it silent for too long?
    fn look_for_failure(&mut self) -> Result<()> {
        self.device.check()?;
        let silent = self.device.elapsed().saturating_sub(self.moved);
        if self.in_flight() == 0 || silent < self.spec.patience {
            return Ok(());
        }
        let why = format!("nothing moved for {:.1} s with {} batches on their way", silent.as_secs_f64(), self.in_flight());
        Err(DeviceError::new(Cause::Hang, "working on frames", self.device.name(), why))
    }

    /// Gives a batch that is done to the caller.
    fn finish(&mut self, done: &mut impl FnMut(&Batch<'_>)) {
        let n = self.slot_of(self.at.finished);
        let (slot, Label { number, frames }) = (&self.slots[n], self.labels[n]);
        for memory in [slot.given, slot.meta, slot.out] {
            self.device.take_back(memory);
        }
        let pinned = |memory| self.device.pinned(memory);
        let given = &pinned(slot.given)[..frames as usize * self.input.frame_bytes(&self.spec)];
        let batch = Batch { spec: &self.spec, number, frames, given, meta: pinned(slot.meta), out: pinned(slot.out) };
        for frame in 0..frames {
            match batch.outcome(frame) {
                Outcome::Rejected => self.account.rejected += 1,
                Outcome::Overflow { .. } => self.account.overflowed += 1,
                _ => self.account.kept += 1,
            }
        }
        done(&batch);
        self.account.finished += 1;
        self.at.finished += 1;
    }
}

/// Ends what stays on the device. A device that goes away takes its memory with it.
impl<D: Device> Drop for Pipeline<D> {
    fn drop(&mut self) {
        if self.in_flight() > 0 && self.failed.is_none() {
            let error = DeviceError::new(Cause::Request, "ending", self.device.name(), "batches were on their way");
            self.note(Err(error));
        }
        self.close();
    }
}

/// Brings the constants to the device.
fn constants(device: &mut dyn Device, spec: &Spec, tables: &Tables<'_>, stream: Stream) -> Result<Constants> {
    let mut upload = |bytes: &[u8]| upload(device, spec, stream, bytes);
    let planes = match tables.calibration {
        Calibration::Float { pedestal, factor } => {
            Planes::Float { pedestal: upload(cast_slice(pedestal))?, factor: upload(cast_slice(factor))? }
        }
        Calibration::Fixed { pedestal_g0, pedestal_g1, pedestal_g2, factor, shift } => Planes::Fixed {
            pedestals: [upload(cast_slice(pedestal_g0))?, upload(cast_slice(pedestal_g1))?, upload(cast_slice(pedestal_g2))?],
            factor: upload(cast_slice(factor))?,
            shift: *shift,
        },
    };
    Ok(Constants { planes, usable: upload(tables.usable)? })
}

/// Brings a table to the device.
fn upload(device: &mut dyn Device, spec: &Spec, stream: Stream, bytes: &[u8]) -> Result<Memory> {
    let (memory, staging) = (device.allocate(bytes.len())?, device.allocate_pinned(bytes.len())?);
    device.pinned_mut(staging).copy_from_slice(bytes);
    device.lend(staging, Lent::Read);
    let from = PinnedSpan { memory: staging, offset: 0, bytes: bytes.len() };
    device.enqueue(stream, Step::CopyIn { from, to: whole(memory, bytes.len()) })?;
    wait_for(device, spec, stream)?;
    device.take_back(staging);
    Ok(memory)
}

/// Lets the device read where frames were received, if it can; otherwise why not.
fn register(device: &mut dyn Device, spec: &Spec, tables: &Tables<'_>, stream: Stream) -> Result<(Input, Option<DeviceError>)> {
    let Some(Received { frames, source }) = tables.received else { return Ok((Input::Words, None)) };
    match device.register(frames) {
        Err(error) => Ok((Input::Words, Some(error))),
        Ok(memory) => {
            let source = upload(device, spec, stream, cast_slice(source))?;
            Ok((Input::Received { frames: memory, bytes: frames.bytes(), source }, None))
        }
    }
}

/// Waits at arm until a stream is done.
fn wait_for(device: &mut dyn Device, spec: &Spec, stream: Stream) -> Result<()> {
    let (event, began) = (device.event()?, device.elapsed());
    device.enqueue(stream, Step::Record(event))?;
    while !device.is_reached(event)? {
        if device.elapsed().saturating_sub(began) > spec.patience {
            device.abandon();
            let why = format!("nothing came back within {:.1} s", spec.patience.as_secs_f64());
            return Err(DeviceError::new(Cause::Hang, "copying the constants", device.name(), why));
        }
        device.pause();
    }
    Ok(())
}
