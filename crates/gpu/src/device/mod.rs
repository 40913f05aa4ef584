//! What the pipeline asks of a device: memory, streams, launches, flags, graphs.
//!
//! Two things are devices: a GPU of NVIDIA ([`cuda`]), and an emulated one ([`emulated`]) whose streams a scheduler
//! runs from a seed. Everything that takes memory comes before [`Device::seal`], everything else after it as well.

pub mod cuda;
pub mod emulated;
mod error;

pub use error::{Cause, DeviceError};

use konkordia_memory::ring::RawFrames;
use std::time::Duration;

/// Result of what a device does.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// Most arguments of a kernel.
pub const ARGUMENTS_MAX: usize = 12;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub(crate) u32);
        impl $name {
            pub(crate) fn at(self) -> usize { self.0 as usize }
        }
    )* };
}
handles! {
    /// Memory of the device.
    Memory
    /// Memory of the host that the device reads and writes without help.
    Pinned
    /// Operations in this order.
    Stream
    /// A place in a stream.
    Event
    /// A kernel with its grid and arguments.
    Prepared
    /// Operations that are launched as one.
    Graph
    /// A number of 32 bits in pinned memory that both sides read and write.
    Flag
}

/// A part of the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The memory.
    pub memory: Memory,
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

/// A part of pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedSpan {
    /// The memory.
    pub memory: Pinned,
    /// Its first byte.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

/// What the device may do with pinned memory that the host has lent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// The device reads it; the host may read it too.
    Read,
    /// The device writes it; the host keeps away.
    Write,
}

/// A number as an argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the types")]
pub enum Number {
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    U64(u64),
    F32(f32),
}

impl Number {
    /// Its bytes, at the beginning of eight.
    pub fn bits(self) -> u64 {
        match self {
            Self::I16(n) => u64::from(n as u16),
            Self::U16(n) => n.into(),
            Self::I32(n) => u64::from(n as u32),
            Self::U32(n) => n.into(),
            Self::U64(n) => n,
            Self::F32(n) => n.to_bits().into(),
        }
    }

    /// How many bytes it has.
    pub fn bytes(self) -> usize {
        match self {
            Self::I16(_) | Self::U16(_) => 2,
            Self::I32(_) | Self::U32(_) | Self::F32(_) => 4,
            Self::U64(_) => 8,
        }
    }
}

/// An argument of a kernel. No two arguments of a launch lie in the same memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// An array that is only read, of elements of so many bytes.
    Read(Span, usize),
    /// An array that is written, of elements of so many bytes.
    Write(Span, usize),
    /// A number.
    Number(Number),
}

/// A kernel with its grid and arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Its name in [`crate::program::text`].
    pub kernel: String,
    /// Blocks in both directions, each of [`crate::program::BLOCK_THREADS`] threads.
    pub grid: (u32, u32),
    /// At most [`ARGUMENTS_MAX`].
    pub arguments: Vec<Argument>,
}

/// An operation of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are what the variant says")]
pub enum Step {
    /// Copies to the device.
    CopyIn { from: PinnedSpan, to: Span },
    /// Copies to the host.
    CopyOut { from: Span, to: PinnedSpan },
    /// Copies to the host `scale` times as many bytes as element `index` of `used` (`u32`) says, at most all.
    CopyUsed { from: Span, to: PinnedSpan, used: Memory, index: u32, scale: u32 },
    /// Sets all bytes.
    Fill { what: Span, byte: u8 },
    /// Runs a kernel.
    Launch(Prepared),
    /// The event is here now.
    Record(Event),
    /// Goes on when the event, as it was last recorded, has been reached; at once if it never was.
    WaitEvent(Event),
    /// Goes on when the flag is at least `value`, as numbers that wrap around: `flag - value` is less than 2^31.
    WaitValue { flag: Flag, value: u32 },
    /// Sets the flag when everything before it in the stream is done.
    WriteValue { flag: Flag, value: u32 },
    /// Runs a graph.
    LaunchGraph(Graph),
    /// Starts the persistent kernel; the stream goes on when it has been told to stop.
    StartPersistent,
}

/// A node of a graph; nodes run one after the other. Only copies, fills and launches are nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Always done.
    Always(Step),
    /// Done if byte `index` of the memory is not 0 when the graph arrives here.
    If {
        /// Bytes.
        keep: Memory,
        /// Which.
        index: u32,
        /// What is done.
        steps: Vec<Step>,
    },
}

/// A kernel that stays on the device. It does turn `n` = 0, 1, ... when `arrived` is at least `first + n + 1` and
/// `returned` at least `first + n + 1 - sets`; then it sets `worked` to `first + n + 1`. It ends when `stop` is not 0.
#[derive(Clone, Debug)]
pub struct Persistent {
    /// What turn `n` does is `turns[n % turns.len()]`: fills, launches, and copies to the host. All turns have the same
    /// steps; only memory differs.
    pub turns: Vec<Vec<Step>>,
    /// Turns that may be done before the first of them was returned.
    pub sets: u32,
    /// See above.
    pub first: u32,
    /// See above.
    pub arrived: Flag,
    /// See above.
    pub returned: Flag,
    /// See above.
    pub worked: Flag,
    /// See above.
    pub stop: Flag,
}

/// True if a flag has come to a value; see [`Step::WaitValue`].
pub fn has_come(flag: u32, value: u32) -> bool {
    flag.wrapping_sub(value) < 1 << 31
}

/// A device. Its methods return at once; what streams do is seen later, by flags and events. An error of an operation
/// is the result of one of the next calls, and from then on of all calls: nothing that was not seen to be done is done.
pub trait Device {
    /// Its name for people.
    fn name(&self) -> &str;

    /// Memory whose bytes mean nothing.
    ///
    /// # Errors
    /// If there is not so much, or after [`Self::seal`].
    fn allocate(&mut self, bytes: usize) -> Result<Memory>;

    /// Pinned memory of zeros, which the host has. Errors as [`Self::allocate`]; so for all up to `seal`.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    fn allocate_pinned(&mut self, bytes: usize) -> Result<Pinned>;

    /// The memory in which the host receives frames, as memory of the device that is only read, by kernels. It is not
    /// freed before the device has gone. What is read there, and when, is the caller's matter: see
    /// [`konkordia_memory::ring::Worker::frame_start`].
    ///
    /// # Errors
    /// As [`Self::allocate`], or if the device cannot read memory of the host that it did not allocate.
    fn register(&mut self, frames: &RawFrames) -> Result<Memory>;

    /// A flag with a first value.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    fn flag(&mut self, value: u32) -> Result<Flag>;

    /// A stream.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    fn stream(&mut self) -> Result<Stream>;

    /// An event that was never recorded.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    fn event(&mut self) -> Result<Event>;

    /// Prepares a launch.
    ///
    /// # Errors
    /// As [`Self::allocate`], or if the launch is wrong.
    fn prepare(&mut self, launch: &Launch) -> Result<Prepared>;

    /// Prepares a graph.
    ///
    /// # Errors
    /// As [`Self::allocate`], or if the device has no conditional nodes.
    fn graph(&mut self, nodes: &[Node]) -> Result<Graph>;

    /// Prepares the persistent kernel, of which there is one.
    ///
    /// # Errors
    /// As [`Self::allocate`], or if the device has no cooperative launches.
    fn persistent(&mut self, program: &Persistent) -> Result<()>;

    /// Moves the device to the thread that calls, which alone calls it from now on.
    ///
    /// # Errors
    /// If the device has failed.
    fn attach(&mut self) -> Result<()> {
        Ok(())
    }

    /// From now on nothing is allocated.
    fn seal(&mut self);

    /// The bytes of pinned memory.
    ///
    /// # Panics
    /// If the device may write them.
    fn pinned(&self, memory: Pinned) -> &[u8];

    /// The same to write.
    ///
    /// # Panics
    /// If it is lent to the device.
    fn pinned_mut(&mut self, memory: Pinned) -> &mut [u8];

    /// Lends pinned memory to the device. Operations that use it come later.
    fn lend(&mut self, memory: Pinned, lent: Lent);

    /// Takes it back, after all operations that use it were seen to be done.
    fn take_back(&mut self, memory: Pinned);

    /// The value of a flag. What the device wrote before it is seen by whoever sees it.
    fn read_flag(&self, flag: Flag) -> u32;

    /// Sets a flag; what the host wrote before is seen by whoever sees it.
    fn set_flag(&mut self, flag: Flag, value: u32);

    /// Puts an operation at the end of a stream.
    ///
    /// # Errors
    /// If the device has failed.
    fn enqueue(&mut self, stream: Stream, step: Step) -> Result<()>;

    /// Has the event been reached, as it was last recorded?
    ///
    /// # Errors
    /// If the device has failed.
    fn is_reached(&mut self, event: Event) -> Result<bool>;

    /// Asks whether the device has failed, which flags do not say.
    ///
    /// # Errors
    /// If it has.
    fn check(&mut self) -> Result<()>;

    /// The host has nothing to do for a moment.
    fn pause(&mut self);

    /// Time since the device was opened.
    fn elapsed(&self) -> Duration;

    /// Gives the device up. It may never answer again and may still write what was lent to it, so nothing of it is
    /// freed.
    fn abandon(&mut self);
}
