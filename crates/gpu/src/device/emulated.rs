//! A device without a device: streams are queues, and a scheduler takes the next operation of one of them by a seed. So
//! every order that the waits, events and flags permit comes up for some seed, and the same seed repeats it. Copies are
//! done in pieces, between which other streams go on. Failures are injected at an operation.
//!
//! It checks what a real device cannot: an operation that touches pinned memory which the host has not lent panics.

mod sys;

use super::{
    ARGUMENTS_MAX, Argument, Cause, Device, DeviceError, Event, Flag, Graph, Launch, Lent, Memory, Node, Number, Persistent,
    Pinned, PinnedSpan, Prepared, Result, Span, Step, Stream, has_come,
};
use konkordia_memory::ring::RawFrames;
use std::collections::VecDeque;
use std::time::Duration;

/// An argument of a kernel, with its bytes.
pub enum Value<'a> {
    /// An array that is read, of elements of so many bytes.
    Read(&'a [u8], usize),
    /// An array that is written.
    Write(&'a mut [u8], usize),
    /// The memory of received frames, which is read by [`received_word`].
    Frames(&'a RawFrames),
    /// A number.
    Number(Number),
}

/// What runs kernels.
pub trait Executor {
    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// If there is none, or it has a fault.
    fn run(&mut self, kernel: &str, grid: (u32, u32), values: &mut [Value<'_>]) -> std::result::Result<(), String>;
}

/// A failure that is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails.
    Operation,
    /// The operation leaves wrong bits, and the device says so.
    Uncorrectable,
    /// The operation never ends. Other streams go on.
    Hang,
}

/// How the device is, and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Nature {
    /// Chooses the order.
    pub seed: u64,
    /// Memory of the device.
    pub memory_bytes: usize,
    /// Memory of the host that can be pinned.
    pub pinned_bytes: usize,
    /// The number of an operation, from 0, and what happens there.
    pub fault: Option<(u64, Fault)>,
    /// It can read the memory of received frames.
    pub reads_frames: bool,
}

impl Nature {
    /// A device with much memory that does not fail.
    pub fn sound(seed: u64) -> Self {
        Self { seed, memory_bytes: usize::MAX, pinned_bytes: usize::MAX, fault: None, reads_frames: true }
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that were done.
    pub operations: u64,
    /// Bytes to the device.
    pub in_bytes: u64,
    /// Bytes to the host.
    pub out_bytes: u64,
    /// Launches of kernels.
    pub launches: u64,
}

/// The emulated device.
pub struct Emulated<E> {
    executor: E,
    nature: Nature,
    random: u64,
    memories: Vec<Bytes>,
    pinned: Vec<(Bytes, Option<Lent>)>,
    flags: Vec<u32>,
    streams: Vec<Queue>,
    events: Vec<Place>,
    launches: Vec<Launch>,
    graphs: Vec<Vec<Node>>,
    persistent: Option<Persistent>,
    is_sealed: bool,
    failed: Option<DeviceError>,
    now: Duration,
    counts: Counts,
}

/// Bytes that begin where numbers of 64 bits may.
#[derive(Default)]
struct Bytes {
    words: Vec<u64>,
    bytes: usize,
    /// These have no words, and are in the way of nothing but kernels.
    frames: Option<RawFrames>,
}

impl Bytes {
    fn new(bytes: usize, word: u64) -> Self {
        Self { words: vec![word; bytes.div_ceil(8)], bytes, frames: None }
    }

    fn get(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Operation>,
    /// Of the copy at the head.
    copied_bytes: usize,
    /// Of the persistent kernel at the head.
    turn: u32,
    stage: usize,
    is_stuck: bool,
}

#[derive(Clone, Copy)]
enum Operation {
    Step(Step),
    Record(Event, u64),
    Wait(Event, u64),
    /// Leaves the next operations out if the byte is 0.
    Branch {
        keep: Memory,
        index: u32,
        skip: usize,
    },
}

/// How often an event was recorded, and the last record that was reached.
#[derive(Clone, Copy, Default)]
struct Place {
    recorded: u64,
    reached: u64,
}

/// Operations that a queue holds without asking for memory.
const QUEUE_OPERATIONS: usize = 4096;

impl<E: Executor> Emulated<E> {
    /// Opens it.
    pub fn new(executor: E, nature: Nature) -> Self {
        Self {
            executor,
            nature,
            random: nature.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            memories: Vec::new(),
            pinned: Vec::new(),
            flags: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            launches: Vec::new(),
            graphs: Vec::new(),
            persistent: None,
            is_sealed: false,
            failed: None,
            now: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// True if no stream has anything to do.
    pub fn is_idle(&self) -> bool {
        self.streams.iter().all(|queue| queue.operations.is_empty())
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % end
    }

    fn open(&self, what: &str) -> Result<()> {
        if self.is_sealed {
            return Err(self.error(Cause::Request, what, "memory was asked for after the device was sealed"));
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn error(&self, cause: Cause, what: &str, why: impl Into<String>) -> DeviceError {
        DeviceError::new(cause, what, "the emulated device", why)
    }

    /// Does up to `most` operations.
    fn go_on(&mut self, most: u64) {
        for _ in 0..self.below(most + 1) {
            let count = self.streams.len() as u64;
            let first = if count == 0 { 0 } else { self.below(count) };
            let ready = (0..count).map(|n| ((first + n) % count) as usize).find(|&stream| self.is_ready(stream));
            let Some(stream) = ready.filter(|_| self.failed.is_none()) else { return };
            self.now += Duration::from_micros(1);
            self.do_next(stream);
        }
    }

    fn is_ready(&self, stream: usize) -> bool {
        let queue = &self.streams[stream];
        match queue.operations.front() {
            None => false,
            _ if queue.is_stuck => false,
            Some(Operation::Wait(event, ticket)) => self.events[event.at()].reached >= *ticket,
            Some(Operation::Step(Step::WaitValue { flag, value })) => has_come(self.flags[flag.at()], *value),
            Some(Operation::Step(Step::StartPersistent)) => self.has_turn(queue),
            Some(_) => true,
        }
    }

    fn has_turn(&self, queue: &Queue) -> bool {
        let program = self.persistent.as_ref().expect("enqueue has looked");
        let flag = |flag: Flag| self.flags[flag.at()];
        let turn = program.first.wrapping_add(queue.turn).wrapping_add(1);
        let may = has_come(flag(program.arrived), turn) && has_come(flag(program.returned), turn.wrapping_sub(program.sets));
        queue.stage > 0 || flag(program.stop) != 0 || may
    }

    /// Does the operation at the head of a stream, or a part of it.
    fn do_next(&mut self, stream: usize) {
        if let Some((_, fault)) = self.nature.fault.filter(|(at, _)| *at == self.counts.operations) {
            return self.fail_at(stream, fault);
        }
        let Some(operation) = self.streams[stream].operations.front().copied() else { return };
        let is_done = match operation {
            Operation::Step(Step::StartPersistent) => self.take_turn(stream),
            Operation::Step(step) => self.take_step(stream, step),
            Operation::Record(event, ticket) => {
                self.events[event.at()].reached = ticket;
                true
            }
            Operation::Wait(..) => true,
            Operation::Branch { keep, index, skip } => {
                if self.memories[keep.at()].get()[index as usize] == 0 {
                    self.streams[stream].operations.drain(1..=skip);
                }
                true
            }
        };
        self.counts.operations += 1;
        if is_done {
            self.streams[stream].operations.pop_front();
            self.streams[stream].copied_bytes = 0;
        }
    }

    fn fail_at(&mut self, stream: usize, fault: Fault) {
        self.counts.operations += 1;
        let what = "an operation of a stream";
        match fault {
            Fault::Hang => self.streams[stream].is_stuck = true,
            Fault::Operation => self.failed = Some(self.error(Cause::Operation, what, "an illegal address was used (injected)")),
            Fault::Uncorrectable => {
                for n in 0..self.memories.len() {
                    // Frames in the memory of the host are not the device's to spoil.
                    if self.memories[n].frames.is_some() {
                        continue;
                    }
                    let at = self.below(self.memories[n].bytes.max(1) as u64) as usize;
                    self.memories[n].get_mut()[at] ^= 0x40;
                }
                self.failed = Some(self.error(Cause::Uncorrectable, what, "an ECC error that cannot be corrected (injected)"));
            }
        }
    }

    /// A step of the persistent kernel. True when it has ended.
    fn take_turn(&mut self, stream: usize) -> bool {
        let program = self.persistent.take().expect("enqueue has looked");
        let (turn, stage) = (self.streams[stream].turn, self.streams[stream].stage);
        let is_ended = stage == 0 && self.flags[program.stop.at()] != 0;
        if !is_ended {
            let steps = &program.turns[turn as usize % program.turns.len()];
            if self.take_step(stream, steps[stage]) {
                let queue = &mut self.streams[stream];
                (queue.copied_bytes, queue.stage) = (0, stage + 1);
                if queue.stage == steps.len() {
                    (queue.turn, queue.stage) = (turn.wrapping_add(1), 0);
                    self.flags[program.worked.at()] = program.first.wrapping_add(turn).wrapping_add(1);
                }
            }
        }
        self.persistent = Some(program);
        is_ended
    }

    /// Does a step or a part of it. True when it is done.
    fn take_step(&mut self, stream: usize, step: Step) -> bool {
        match step {
            Step::CopyIn { from, to } => self.copy(stream, from, to, to.bytes, true),
            Step::CopyOut { from, to } => self.copy(stream, to, from, from.bytes, false),
            Step::CopyUsed { from, to, used, index, scale } => {
                let used: &[u32] = bytemuck::cast_slice(self.memories[used.at()].get());
                let bytes = (used[index as usize] as usize * scale as usize).min(from.bytes);
                self.copy(stream, to, from, bytes, false)
            }
            Step::Fill { what, byte } => {
                self.memories[what.memory.at()].get_mut()[what.offset..what.offset + what.bytes].fill(byte);
                true
            }
            Step::Launch(prepared) => {
                self.counts.launches += 1;
                if let Err(why) = self.run_kernel(prepared) {
                    self.failed = Some(self.error(Cause::Operation, "a kernel", why));
                }
                true
            }
            Step::WriteValue { flag, value } => {
                self.flags[flag.at()] = value;
                true
            }
            Step::WaitValue { .. } => true,
            Step::Record(_) | Step::WaitEvent(_) | Step::LaunchGraph(_) | Step::StartPersistent => {
                unreachable!("enqueue has made other operations of it")
            }
        }
    }

    /// Copies the next piece. True when all of `bytes` is copied.
    fn copy(&mut self, stream: usize, host: PinnedSpan, device: Span, bytes: usize, is_in: bool) -> bool {
        let done = self.streams[stream].copied_bytes;
        let rest = bytes - done;
        let piece = if self.below(3) == 0 { self.below(rest as u64 + 1) as usize } else { rest };
        let (host_at, device_at) = (host.offset + done, device.offset + done);
        let (pinned, lent) = &mut self.pinned[host.memory.at()];
        let device = &mut self.memories[device.memory.at()].get_mut()[device_at..device_at + piece];
        let host_bytes = &mut pinned.get_mut()[host_at..host_at + piece];
        if is_in {
            assert!(lent.is_some(), "the device reads pinned memory {} that the host has", host.memory.0);
            device.copy_from_slice(host_bytes);
            self.counts.in_bytes += piece as u64;
        } else {
            assert_eq!(*lent, Some(Lent::Write), "the device writes pinned memory {} that it must not write", host.memory.0);
            host_bytes.copy_from_slice(device);
            self.counts.out_bytes += piece as u64;
        }
        self.streams[stream].copied_bytes += piece;
        done + piece == bytes
    }

    fn run_kernel(&mut self, prepared: Prepared) -> std::result::Result<(), String> {
        let launch = &self.launches[prepared.at()];
        let mut taken: [Bytes; ARGUMENTS_MAX] = std::array::from_fn(|_| Bytes::default());
        for (argument, taken) in launch.arguments.iter().zip(&mut taken) {
            if let Argument::Read(span, _) | Argument::Write(span, _) = argument {
                *taken = std::mem::take(&mut self.memories[span.memory.at()]);
            }
        }
        let mut values: [Value<'_>; ARGUMENTS_MAX] = std::array::from_fn(|_| Value::Number(Number::U32(0)));
        for ((argument, taken), value) in launch.arguments.iter().zip(&mut taken).zip(&mut values) {
            *value = match *argument {
                Argument::Read(span, element) => match &taken.frames {
                    Some(frames) => Value::Frames(frames),
                    None => Value::Read(&taken.get()[span.offset..span.offset + span.bytes], element),
                },
                Argument::Write(span, element) => {
                    Value::Write(&mut taken.get_mut()[span.offset..span.offset + span.bytes], element)
                }
                Argument::Number(number) => Value::Number(number),
            };
        }
        let result = self.executor.run(&launch.kernel, launch.grid, &mut values[..launch.arguments.len()]);
        for (argument, taken) in launch.arguments.iter().zip(taken) {
            if let Argument::Read(span, _) | Argument::Write(span, _) = argument {
                self.memories[span.memory.at()] = taken;
            }
        }
        result
    }

    fn check_launch(&self, launch: &Launch) -> Result<()> {
        let wrong = |why: &str| Err(self.error(Cause::Request, &format!("preparing {}", launch.kernel), why));
        if launch.arguments.len() > ARGUMENTS_MAX || launch.grid.0 == 0 || launch.grid.1 == 0 {
            return wrong("too many arguments, or a grid without blocks");
        }
        let mut seen = Vec::new();
        for argument in &launch.arguments {
            let (Argument::Read(span, element) | Argument::Write(span, element)) = argument else { continue };
            let bytes = self.memories.get(span.memory.at()).map_or(0, |memory| memory.bytes);
            if span.offset + span.bytes > bytes || span.offset % element != 0 || span.bytes % element != 0 {
                return wrong("an argument lies outside of its memory, or is no array of whole elements");
            }
            if seen.contains(&span.memory) {
                return wrong("two arguments lie in the same memory");
            }
            seen.push(span.memory);
        }
        Ok(())
    }

    fn put(&mut self, stream: Stream, operation: Operation) {
        let queue = &mut self.streams[stream.at()].operations;
        assert!(queue.len() < QUEUE_OPERATIONS, "a stream holds at most {QUEUE_OPERATIONS} operations");
        queue.push_back(operation);
    }

    fn put_graph(&mut self, stream: Stream, graph: Graph) {
        for node in 0..self.graphs[graph.at()].len() {
            let steps = match &self.graphs[graph.at()][node] {
                Node::Always(step) => {
                    let step = *step;
                    self.put(stream, Operation::Step(step));
                    continue;
                }
                Node::If { keep, index, steps } => {
                    let (branch, count) = (Operation::Branch { keep: *keep, index: *index, skip: steps.len() }, steps.len());
                    self.put(stream, branch);
                    count
                }
            };
            for n in 0..steps {
                let Node::If { steps, .. } = &self.graphs[graph.at()][node] else { continue };
                let step = steps[n];
                self.put(stream, Operation::Step(step));
            }
        }
    }
}

/// Room of a kind of memory.
fn room(used: usize, bytes: usize, all: usize) -> std::result::Result<(), String> {
    let free = all - used;
    if bytes > free { Err(format!("{bytes} bytes are asked for and {free} are free")) } else { Ok(()) }
}

impl<E: Executor> Device for Emulated<E> {
    fn name(&self) -> &str {
        "emulated device"
    }

    fn allocate(&mut self, bytes: usize) -> Result<Memory> {
        self.open("allocating memory")?;
        let used = self.memories.iter().filter(|memory| memory.frames.is_none()).map(|memory| memory.bytes).sum();
        room(used, bytes, self.nature.memory_bytes)
            .map_err(|why| self.error(Cause::OutOfMemory, "allocating memory of the device", why))?;
        self.memories.push(Bytes::new(bytes, 0xA5A5_A5A5_A5A5_A5A5));
        Ok(Memory(self.memories.len() as u32 - 1))
    }

    fn allocate_pinned(&mut self, bytes: usize) -> Result<Pinned> {
        self.open("allocating pinned memory")?;
        let used = self.pinned.iter().map(|(memory, _)| memory.bytes).sum();
        room(used, bytes, self.nature.pinned_bytes)
            .map_err(|why| self.error(Cause::OutOfMemory, "allocating pinned memory", why))?;
        self.pinned.push((Bytes::new(bytes, 0), None));
        Ok(Pinned(self.pinned.len() as u32 - 1))
    }

    fn register(&mut self, frames: &RawFrames) -> Result<Memory> {
        let what = "registering the memory of received frames";
        self.open(what)?;
        if !self.nature.reads_frames {
            return Err(self.error(Cause::Unsupported, what, "this memory cannot be pinned (injected)"));
        }
        self.memories.push(Bytes { words: Vec::new(), bytes: frames.bytes(), frames: Some(frames.clone()) });
        Ok(Memory(self.memories.len() as u32 - 1))
    }

    fn flag(&mut self, value: u32) -> Result<Flag> {
        self.open("allocating a flag")?;
        self.flags.push(value);
        Ok(Flag(self.flags.len() as u32 - 1))
    }

    fn stream(&mut self) -> Result<Stream> {
        self.open("making a stream")?;
        self.streams.push(Queue { operations: VecDeque::with_capacity(QUEUE_OPERATIONS), ..Queue::default() });
        Ok(Stream(self.streams.len() as u32 - 1))
    }

    fn event(&mut self) -> Result<Event> {
        self.open("making an event")?;
        self.events.push(Place::default());
        Ok(Event(self.events.len() as u32 - 1))
    }

    fn prepare(&mut self, launch: &Launch) -> Result<Prepared> {
        self.open("preparing a kernel")?;
        self.check_launch(launch)?;
        self.launches.push(launch.clone());
        Ok(Prepared(self.launches.len() as u32 - 1))
    }

    fn graph(&mut self, nodes: &[Node]) -> Result<Graph> {
        self.open("preparing a graph")?;
        self.graphs.push(nodes.to_vec());
        Ok(Graph(self.graphs.len() as u32 - 1))
    }

    fn persistent(&mut self, program: &Persistent) -> Result<()> {
        self.open("preparing the persistent kernel")?;
        self.persistent = Some(program.clone());
        Ok(())
    }

    fn seal(&mut self) {
        self.is_sealed = true;
    }

    fn pinned(&self, memory: Pinned) -> &[u8] {
        let (bytes, lent) = &self.pinned[memory.at()];
        assert_ne!(*lent, Some(Lent::Write), "the host reads pinned memory that the device writes");
        bytes.get()
    }

    fn pinned_mut(&mut self, memory: Pinned) -> &mut [u8] {
        let (bytes, lent) = &mut self.pinned[memory.at()];
        assert_eq!(*lent, None, "the host writes pinned memory that the device has");
        bytes.get_mut()
    }

    fn lend(&mut self, memory: Pinned, lent: Lent) {
        self.pinned[memory.at()].1 = Some(lent);
    }

    fn take_back(&mut self, memory: Pinned) {
        self.pinned[memory.at()].1 = None;
    }

    fn read_flag(&self, flag: Flag) -> u32 {
        self.flags[flag.at()]
    }

    fn set_flag(&mut self, flag: Flag, value: u32) {
        self.flags[flag.at()] = value;
    }

    fn enqueue(&mut self, stream: Stream, step: Step) -> Result<()> {
        self.check()?;
        match step {
            Step::Record(event) => {
                self.events[event.at()].recorded += 1;
                self.put(stream, Operation::Record(event, self.events[event.at()].recorded));
            }
            Step::WaitEvent(event) => self.put(stream, Operation::Wait(event, self.events[event.at()].recorded)),
            Step::LaunchGraph(graph) => self.put_graph(stream, graph),
            Step::StartPersistent if self.persistent.is_none() => {
                return Err(self.error(Cause::Request, "starting the persistent kernel", "there is none"));
            }
            step => self.put(stream, Operation::Step(step)),
        }
        self.go_on(2);
        Ok(())
    }

    fn is_reached(&mut self, event: Event) -> Result<bool> {
        self.check()?;
        let place = self.events[event.at()];
        Ok(place.reached == place.recorded)
    }

    fn check(&mut self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn pause(&mut self) {
        self.go_on(4);
        self.now += Duration::from_micros(5);
    }

    fn elapsed(&self) -> Duration {
        self.now
    }

    fn abandon(&mut self) {
        if self.failed.is_none() {
            self.failed = Some(self.error(Cause::Hang, "an operation of a stream", "the device was given up"));
        }
    }
}

/// Word `at` of the memory of received frames, as a kernel reads it: of a frame that the caller of the pipeline holds.
///
/// # Panics
/// If there are not so many words.
pub fn received_word(frames: &RawFrames, at: usize) -> u16 {
    sys::received_word(frames, at)
}

/// Runs the text of the kernels ([`crate::emulator`]).
#[cfg(feature = "emulator")]
pub struct TextExecutor {
    /// The order of threads and blocks.
    pub order: crate::emulator::Order,
}

#[cfg(feature = "emulator")]
impl Executor for TextExecutor {
    fn run(&mut self, kernel: &str, (x, y): (u32, u32), values: &mut [Value<'_>]) -> std::result::Result<(), String> {
        use crate::emulator::Argument;
        use bytemuck::{cast_slice, cast_slice_mut};
        let argument = |value| match value {
            &mut Value::Read(bytes, 1) => Argument::read(bytes),
            &mut Value::Read(bytes, 2) => Argument::read::<u16>(cast_slice(bytes)),
            &mut Value::Read(bytes, 8) => Argument::read::<u64>(cast_slice(bytes)),
            &mut Value::Read(bytes, _) => Argument::read::<u32>(cast_slice(bytes)),
            Value::Write(bytes, 1) => Argument::write::<u8>(bytes),
            Value::Write(bytes, 2) => Argument::write::<u16>(cast_slice_mut(bytes)),
            Value::Write(bytes, 8) => Argument::write::<u64>(cast_slice_mut(bytes)),
            Value::Write(bytes, _) => Argument::write::<u32>(cast_slice_mut(bytes)),
            Value::Frames(frames) => Argument::received_words(frames),
            Value::Number(number) if number.bytes() == 2 => Argument::number(number.bits() as u16),
            Value::Number(number) if number.bytes() == 4 => Argument::number(number.bits() as u32),
            Value::Number(number) => Argument::number(number.bits()),
        };
        let arguments: Vec<Argument<'_>> = values.iter_mut().map(argument).collect();
        crate::emulator::launch(kernel, crate::emulator::Grid { x, y }, self.order, &arguments)
    }
}
