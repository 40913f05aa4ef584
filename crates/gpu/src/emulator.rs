//! Runs kernels on the host, from the text that NVRTC compiles for a GPU. `shim/shim.hpp` says what it finds, and
//! what it may miss. It is made for tests: every access is checked, and all threads of a launch run on one thread.

use crate::program::BLOCK_THREADS;
use crate::sys;
use bytemuck::{NoUninit, Pod};
use konkordia_memory::ring::RawFrames;
use std::ffi::CString;
use std::marker::PhantomData;

/// The order in which blocks, and the threads of a block between two barriers, run one after the other. Results must
/// not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the first to the last.
    Up,
    /// From the last to the first.
    Down,
    /// Mixed anew at each barrier, by this seed.
    Mixed(u64),
    /// Upwards, and then once more in the second target: with plain pointers, as a GPU has them, and blocks in parallel
    /// on so many threads of the host. It is an error if both do not write the same bits.
    Parallel(u32),
}

/// Number of blocks in both directions; each has [`BLOCK_THREADS`] threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks of an image.
    pub x: u32,
    /// Images.
    pub y: u32,
}

/// An argument of a kernel.
pub struct Argument<'a> {
    pub(crate) raw: sys::Argument,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Argument<'a> {
    /// An array that the kernel only reads.
    pub fn read<T: Pod>(array: &'a [T]) -> Self {
        Self { raw: sys::Argument::read(array), life: PhantomData }
    }

    /// An array that the kernel reads and writes.
    pub fn write<T: Pod>(array: &'a mut [T]) -> Self {
        Self { raw: sys::Argument::write(array), life: PhantomData }
    }

    /// The words of the memory of received frames, which the kernel only reads; see
    /// [`received_word`](crate::device::emulated::received_word).
    pub fn received_words(frames: &'a RawFrames) -> Self {
        Self { raw: sys::Argument::received_words(frames), life: PhantomData }
    }

    /// A number of at most 8 bytes.
    ///
    /// # Panics
    /// If it has more.
    pub fn number<T: NoUninit>(number: T) -> Self {
        let bytes = bytemuck::bytes_of(&number);
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        Self { raw: sys::Argument::number(u64::from_ne_bytes(bits), bytes.len() as u32), life: PhantomData }
    }
}

/// Runs a kernel to its end.
///
/// # Errors
/// If there is no such kernel, its arguments are others, or one of the faults of the module was found: in words, with
/// the block. What was written until then stays.
pub fn launch(kernel: &str, grid: Grid, order: Order, arguments: &[Argument<'_>]) -> Result<(), String> {
    if grid.x == 0 || grid.y == 0 {
        return Err(format!("{kernel}: a grid of {} x {} blocks; both are at least 1", grid.x, grid.y));
    }
    let name = CString::new(kernel).map_err(|_| format!("'{kernel}' is not the name of a kernel"))?;
    let raw: Vec<sys::Argument> = arguments.iter().map(|argument| argument.raw).collect();
    let checked = |order: u64| sys::launch(&name, (grid.x, grid.y), BLOCK_THREADS, order, &raw);
    let result = match order {
        Order::Up => checked(0),
        Order::Down => checked(1),
        Order::Mixed(seed) => checked(seed.saturating_add(2)),
        Order::Parallel(workers) => sys::launch_both(&name, (grid.x, grid.y), BLOCK_THREADS, workers, &raw),
    };
    result.map_err(|why| format!("{kernel}: {why}"))
}
