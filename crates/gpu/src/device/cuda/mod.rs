//! A GPU of NVIDIA. The libraries of the driver and of the compiler are opened when a device is; without them there is
//! an error that says so, and nothing else.

mod sys;
mod text;

use super::{
    Argument, Cause, Device, DeviceError, Event, Flag, Graph, Launch, Lent, Memory, Node, Persistent, Pinned, PinnedSpan,
    Prepared, Result, Span, Step, Stream,
};
use crate::program::BLOCK_THREADS;
use konkordia_memory::ring::RawFrames;
use std::time::{Duration, Instant};
use sys::{Chain, Context, EventHandle, GraphHandle, Kernel, Module, PinnedBlock, StreamHandle};
use text::TurnStep;

/// Most flags of a device; each has a cache line.
const FLAGS_MAX: usize = 16;
/// Bytes of a line.
const FLAG_BYTES: usize = 64;

/// A GPU. It belongs to the thread that opened it, or to the one that attached it since.
pub struct Cuda {
    blocks: Vec<PinnedBlock>,
    flags: PinnedBlock,
    flag_count: usize,
    memories: Vec<(u64, usize)>,
    streams: Vec<StreamHandle>,
    events: Vec<EventHandle>,
    launches: Vec<(Launch, Kernel)>,
    graphs: Vec<GraphHandle>,
    persistent: Option<Kernel>,
    kernels: Module,
    is_sealed: bool,
    opened: Instant,
    context: Context,
}

/// What is known of the driver without opening a device: its version, for example 12040.
///
/// # Errors
/// If there is none, or it is too old.
pub fn driver_version() -> Result<i32> {
    sys::driver_version()
}

/// Compiles the kernels for an architecture, for example `sm_90`, without a device: those of streams and graphs. The
/// bytes of the machine code.
///
/// # Errors
/// If NVRTC is missing or refuses the text.
pub fn compile_for(architecture: &str) -> Result<usize> {
    sys::compile(&text::of_graphs(), architecture).map(|image| image.len())
}

/// Leaves this thread without a device: those that it opened are attached by others. A device was opened before.
pub fn detach() {
    sys::detach();
}

impl Cuda {
    /// Opens a device and compiles the kernels for it.
    ///
    /// # Errors
    /// If there is no driver, device or compiler, or others have the device.
    pub fn open(ordinal: u32) -> Result<Self> {
        let context = Context::open(ordinal)?;
        let kernels = context.load(&text::of_graphs())?;
        Self::new(context, kernels)
    }

    /// The same device once more, with streams and memory of its own; the kernels are not compiled again. When one of
    /// them fails, all have failed.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn beside(&self) -> Result<Self> {
        Self::new(self.context.beside(), self.kernels)
    }

    fn new(mut context: Context, kernels: Module) -> Result<Self> {
        let flags = context.allocate_pinned(FLAGS_MAX * FLAG_BYTES)?;
        Ok(Self {
            blocks: Vec::new(),
            flags,
            flag_count: 0,
            memories: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            launches: Vec::new(),
            graphs: Vec::new(),
            persistent: None,
            kernels,
            is_sealed: false,
            opened: Instant::now(),
            context,
        })
    }

    fn open_for(&self, what: &str) -> Result<()> {
        let why = "memory was asked for after the device was sealed";
        if self.is_sealed { Err(self.refused(what, why)) } else { Ok(()) }
    }

    fn refused(&self, what: &str, why: &str) -> DeviceError {
        DeviceError::new(Cause::Request, what, &self.context.name, why)
    }

    /// The address of a part of the memory of the device.
    fn at(&self, span: Span) -> u64 {
        let (address, bytes) = self.memories[span.memory.at()];
        assert!(span.offset + span.bytes <= bytes, "a part lies within its memory");
        address + span.offset as u64
    }

    fn pinned_at(&self, span: PinnedSpan) -> (&PinnedBlock, u64) {
        let block = &self.blocks[span.memory.at()];
        (block, block.device + span.offset as u64)
    }

    fn flag_at(&self, flag: Flag) -> u64 {
        self.flags.device + (flag.at() * FLAG_BYTES) as u64
    }

    fn values(&self, launch: &Launch) -> Vec<u64> {
        let value = |argument: &Argument| match *argument {
            Argument::Read(span, _) | Argument::Write(span, _) => self.at(span),
            Argument::Number(number) => number.bits(),
        };
        launch.arguments.iter().map(value).collect()
    }

    fn used_kernel(&self, step: Step) -> Result<Kernel> {
        let Step::CopyUsed { from, to, used, index, scale } = step else {
            return Err(self.refused("making a graph", "this step is no copy"));
        };
        let (_, to_address) = self.pinned_at(to);
        let counts = self.memories[used.at()].0;
        let values = [self.at(from), to_address, counts, index.into(), scale.into(), from.bytes.min(to.bytes) as u64];
        Ok(Kernel::new(self.context.function(self.kernels, "copy_used")?, (text::COPY_BLOCKS, 1), &values))
    }

    fn add(&self, chain: &mut Chain<'_>, step: Step) -> Result<()> {
        match step {
            Step::CopyIn { from, to } => {
                chain.copy(self.pinned_at(from).0, from.offset, self.at(to), to.bytes.min(from.bytes), true)
            }
            Step::CopyOut { from, to } => {
                chain.copy(self.pinned_at(to).0, to.offset, self.at(from), to.bytes.min(from.bytes), false)
            }
            Step::CopyUsed { .. } => chain.kernel(&self.used_kernel(step)?),
            Step::Fill { what, byte } => chain.fill(self.at(what), byte, what.bytes),
            Step::Launch(prepared) => chain.kernel(&self.launches[prepared.at()].1),
            _ => Err(self.refused("making a graph", "only copies, fills and kernels are nodes")),
        }
    }

    /// A step of the persistent kernel in all its turns.
    fn turn_step(&self, of_turns: &[Step]) -> Result<TurnStep> {
        let wrong = || self.refused("making the persistent kernel", "its turns have other steps");
        match of_turns[0] {
            Step::Launch(first) => {
                let launch = self.launches[first.at()].0.clone();
                let mut addresses = Vec::new();
                for step in of_turns {
                    let Step::Launch(prepared) = *step else { return Err(wrong()) };
                    let arguments = self.launches[prepared.at()].0.arguments.iter();
                    let address = |argument: &Argument| match *argument {
                        Argument::Read(span, _) | Argument::Write(span, _) => Some(self.at(span)),
                        Argument::Number(_) => None,
                    };
                    addresses.push(arguments.filter_map(address).collect());
                }
                Ok(TurnStep::Launch(launch, addresses))
            }
            Step::Fill { what, byte } => {
                let at = |step: &Step| if let Step::Fill { what, .. } = *step { Ok(self.at(what)) } else { Err(wrong()) };
                Ok(TurnStep::Fill(of_turns.iter().map(at).collect::<Result<_>>()?, what.bytes, byte))
            }
            Step::CopyOut { from, .. } => {
                let places = |step: &Step| match *step {
                    Step::CopyOut { from, to } => Ok((self.at(from), self.pinned_at(to).1)),
                    _ => Err(wrong()),
                };
                Ok(TurnStep::CopyOut(of_turns.iter().map(places).collect::<Result<_>>()?, from.bytes))
            }
            _ => Err(wrong()),
        }
    }
}

impl Device for Cuda {
    fn name(&self) -> &str {
        &self.context.name
    }

    fn allocate(&mut self, bytes: usize) -> Result<Memory> {
        self.open_for("allocating memory")?;
        let address = self.context.allocate(bytes)?;
        self.memories.push((address, bytes));
        Ok(Memory(self.memories.len() as u32 - 1))
    }

    fn allocate_pinned(&mut self, bytes: usize) -> Result<Pinned> {
        self.open_for("allocating pinned memory")?;
        self.blocks.push(self.context.allocate_pinned(bytes)?);
        Ok(Pinned(self.blocks.len() as u32 - 1))
    }

    fn register(&mut self, frames: &RawFrames) -> Result<Memory> {
        self.open_for("registering the memory of received frames")?;
        self.memories.push((self.context.register(frames)?, frames.bytes()));
        Ok(Memory(self.memories.len() as u32 - 1))
    }

    fn flag(&mut self, value: u32) -> Result<Flag> {
        self.open_for("allocating a flag")?;
        if self.flag_count == FLAGS_MAX {
            return Err(self.refused("allocating a flag", "there are no more"));
        }
        let flag = Flag(self.flag_count as u32);
        self.flag_count += 1;
        self.set_flag(flag, value);
        Ok(flag)
    }

    fn stream(&mut self) -> Result<Stream> {
        self.open_for("making a stream")?;
        self.streams.push(self.context.stream()?);
        Ok(Stream(self.streams.len() as u32 - 1))
    }

    fn event(&mut self) -> Result<Event> {
        self.open_for("making an event")?;
        self.events.push(self.context.event()?);
        Ok(Event(self.events.len() as u32 - 1))
    }

    fn prepare(&mut self, launch: &Launch) -> Result<Prepared> {
        self.open_for("preparing a kernel")?;
        if launch.arguments.len() > super::ARGUMENTS_MAX || launch.grid.0 == 0 || launch.grid.1 == 0 {
            return Err(self.refused("preparing a kernel", "too many arguments, or a grid without blocks"));
        }
        let function = self.context.function(self.kernels, &launch.kernel)?;
        let kernel = Kernel::new(function, launch.grid, &self.values(launch));
        self.launches.push((launch.clone(), kernel));
        Ok(Prepared(self.launches.len() as u32 - 1))
    }

    fn graph(&mut self, nodes: &[Node]) -> Result<Graph> {
        self.open_for("preparing a graph")?;
        let mut chain = self.context.chain()?;
        for node in nodes {
            match node {
                Node::Always(step) => self.add(&mut chain, *step)?,
                Node::If { keep, index, steps } => {
                    let condition = chain.condition()?;
                    let values = [condition, self.memories[keep.at()].0, (*index).into()];
                    let set = self.context.function(self.kernels, "set_condition")?;
                    chain.kernel(&Kernel::new(set, (1, 1), &values))?;
                    let mut body = chain.conditional(condition)?;
                    steps.iter().try_for_each(|step| self.add(&mut body, *step))?;
                }
            }
        }
        let graph = chain.instantiate()?;
        self.graphs.push(graph);
        Ok(Graph(self.graphs.len() as u32 - 1))
    }

    fn persistent(&mut self, program: &Persistent) -> Result<()> {
        self.open_for("making the persistent kernel")?;
        let what = "making the persistent kernel";
        if !self.context.has_cooperative_launches {
            return Err(DeviceError::new(Cause::Unsupported, what, &self.context.name, "it has no cooperative launches"));
        }
        let turns = &program.turns;
        let count = turns.first().map_or(0, Vec::len);
        if count == 0 || turns.iter().any(|turn| turn.len() != count) {
            return Err(self.refused(what, "its turns have other steps"));
        }
        let step = |n: usize| self.turn_step(&turns.iter().map(|turn| turn[n]).collect::<Vec<_>>());
        let steps = (0..count).map(step).collect::<Result<Vec<_>>>()?;
        let module = self.context.load(&text::persistent(&steps, turns.len(), program.first, program.sets))?;
        let function = self.context.function(module, "persistent")?;
        let blocks = self.context.blocks_each(function, BLOCK_THREADS)?.min(2) * self.context.multiprocessors;
        if blocks == 0 {
            return Err(DeviceError::new(Cause::Unsupported, what, &self.context.name, "no block of it fits"));
        }
        let flags = [program.arrived, program.returned, program.worked, program.stop].map(|flag| self.flag_at(flag));
        self.persistent = Some(Kernel::new(function, (blocks, 1), &flags));
        Ok(())
    }

    fn attach(&mut self) -> Result<()> {
        self.context.attach()
    }

    fn seal(&mut self) {
        self.is_sealed = true;
    }

    fn pinned(&self, memory: Pinned) -> &[u8] {
        self.blocks[memory.at()].bytes()
    }

    fn pinned_mut(&mut self, memory: Pinned) -> &mut [u8] {
        self.blocks[memory.at()].bytes_mut()
    }

    fn lend(&mut self, memory: Pinned, lent: Lent) {
        self.blocks[memory.at()].lent = Some(lent);
    }

    fn take_back(&mut self, memory: Pinned) {
        self.blocks[memory.at()].lent = None;
    }

    fn read_flag(&self, flag: Flag) -> u32 {
        sys::read_flag(self.flags.flag(flag.at() * FLAG_BYTES))
    }

    fn set_flag(&mut self, flag: Flag, value: u32) {
        sys::set_flag(self.flags.flag(flag.at() * FLAG_BYTES), value);
    }

    fn enqueue(&mut self, stream: Stream, step: Step) -> Result<()> {
        let (stream, context) = (self.streams[stream.at()], &self.context);
        match step {
            Step::CopyIn { from, to } => {
                let bytes = to.bytes.min(from.bytes);
                context.copy_in(stream, self.at(to), self.pinned_at(from).0, from.offset, bytes)
            }
            Step::CopyOut { from, to } => {
                let bytes = to.bytes.min(from.bytes);
                context.copy_out(stream, self.pinned_at(to).0, to.offset, self.at(from), bytes)
            }
            Step::CopyUsed { .. } => Err(self.refused("copying to the host", "only a node of a graph copies what is used")),
            Step::Fill { what, byte } => context.fill(stream, self.at(what), byte, what.bytes),
            Step::Launch(prepared) => context.launch(stream, &self.launches[prepared.at()].1),
            Step::Record(event) => context.record(stream, self.events[event.at()]),
            Step::WaitEvent(event) => context.wait_event(stream, self.events[event.at()]),
            Step::WaitValue { flag, value } => context.wait_value(stream, self.flag_at(flag), value),
            Step::WriteValue { flag, value } => context.write_value(stream, self.flag_at(flag), value),
            Step::LaunchGraph(graph) => context.launch_graph(stream, self.graphs[graph.at()]),
            Step::StartPersistent => match &self.persistent {
                Some(kernel) => context.launch_cooperative(stream, kernel),
                None => Err(self.refused("starting the persistent kernel", "there is none")),
            },
        }
    }

    fn is_reached(&mut self, event: Event) -> Result<bool> {
        self.context.is_reached(self.events[event.at()])
    }

    fn check(&mut self) -> Result<()> {
        self.context.check()
    }

    fn pause(&mut self) {
        std::thread::yield_now();
    }

    fn elapsed(&self) -> Duration {
        self.opened.elapsed()
    }

    fn abandon(&mut self) {
        self.context.abandon();
    }
}
