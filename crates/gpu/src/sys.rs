//! The call into the kernels that are compiled as C++ (`shim/launch.cpp`).

use bytemuck::Pod;
use konkordia_memory::ring::RawFrames;
use std::ffi::{CStr, c_char, c_int};

/// An argument as `shim::Argument` has it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Argument {
    data: *mut u8,
    count: u64,
    element_bytes: u32,
    kind: u32,
    bits: u64,
}

impl Argument {
    /// An array that is only read.
    pub fn read<T: Pod>(array: &[T]) -> Self {
        let data = array.as_ptr().cast_mut().cast();
        Self { data, count: array.len() as u64, element_bytes: size_of::<T>() as u32, kind: 0, bits: 0 }
    }

    /// An array that is written.
    pub fn write<T: Pod>(array: &mut [T]) -> Self {
        let data = array.as_mut_ptr().cast();
        Self { data, count: array.len() as u64, element_bytes: size_of::<T>() as u32, kind: 1, bits: 0 }
    }

    /// The words of the memory of received frames. The kernel reads some of them by their address alone, so no
    /// reference to what the receivers write meanwhile is made.
    pub fn received_words(frames: &RawFrames) -> Self {
        let (data, count) = (frames.start().cast_mut(), frames.bytes() as u64 / 2);
        Self { data, count, element_bytes: 2, kind: 0, bits: 0 }
    }

    /// The bytes of an array that is written; `None` for others.
    pub fn written(&self) -> Option<usize> {
        (self.kind == 1).then_some(self.count as usize * self.element_bytes as usize)
    }

    /// The same argument with other memory for an array that is written.
    ///
    /// # Panics
    /// If the memory has not enough bytes.
    fn moved(self, memory: &mut [u64]) -> Self {
        assert!(self.written().is_some_and(|bytes| bytes <= size_of_val(memory)), "memory for the whole array");
        Self { data: memory.as_mut_ptr().cast(), ..self }
    }

    /// A number; `bits` begins with its bytes.
    pub fn number(bits: u64, element_bytes: u32) -> Self {
        Self { data: std::ptr::null_mut(), count: 0, element_bytes, kind: 2, bits }
    }
}

// SAFETY: the declaration is that of `shim/launch.cpp`.
unsafe extern "C" {
    fn konkordia_gpu_shim_launch(
        name: *const c_char,
        grid_x: u32,
        grid_y: u32,
        threads: u32,
        order: u64,
        arguments: *const Argument,
        count: usize,
        error: *mut c_char,
        error_bytes: usize,
    ) -> c_int;

    // The declaration is that of `shim/threads.cpp`.
    fn konkordia_gpu_threads_launch(
        name: *const c_char,
        grid_x: u32,
        grid_y: u32,
        threads: u32,
        workers: u32,
        arguments: *const Argument,
    ) -> c_int;
}

/// Launches a kernel; the arrays of the arguments are borrowed by the caller for as long.
pub fn launch(name: &CStr, grid: (u32, u32), threads: u32, order: u64, arguments: &[Argument]) -> Result<(), String> {
    let mut error = [0u8; 512];
    // SAFETY: the name ends with 0 (`CStr`). The arguments are a slice with its true length, and each array in them is
    // borrowed by `emulator::Argument`, mutably if its kind is 1, with its true length. Of received frames only those
    // are read that nobody writes (`device/emulated/sys.rs`). The spans of the shim check
    // every access against that length, and the kind and size of the elements against the kernel. The error is written
    // within its length and ended by 0.
    let failed = unsafe {
        konkordia_gpu_shim_launch(
            name.as_ptr(),
            grid.0,
            grid.1,
            threads,
            order,
            arguments.as_ptr(),
            arguments.len(),
            error.as_mut_ptr().cast(),
            error.len(),
        )
    };
    if failed == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&error).map(CStr::to_string_lossy);
    Err(text.map_or_else(|_| "the launch failed".to_owned(), |text| text.into_owned()))
}

/// Launches a kernel in the checked target, then with plain pointers and blocks in parallel on `workers` threads, and
/// compares what both wrote. The arrays of the arguments have what the checked target wrote.
pub fn launch_both(name: &CStr, grid: (u32, u32), threads: u32, workers: u32, arguments: &[Argument]) -> Result<(), String> {
    let mut copies: Vec<Vec<u64>> = arguments.iter().map(copy_of).collect();
    launch(name, grid, threads, 0, arguments)?;
    let of_copies: Vec<Argument> = arguments
        .iter()
        .zip(&mut copies)
        .map(|(argument, copy)| if argument.written().is_some() { argument.moved(copy) } else { *argument })
        .collect();
    // SAFETY: the checked target has just run this kernel with the same grid, the same numbers and arrays of the same
    // lengths and contents (`copy_of`, made before), and found no access outside of an array, no barrier at which some
    // threads are missing, and no element that two blocks use and one writes except by additions. So no block reads
    // what another one writes, and every order of blocks makes the same accesses. The copies live until the call
    // returns; the name ends with 0.
    let failed =
        unsafe { konkordia_gpu_threads_launch(name.as_ptr(), grid.0, grid.1, threads, workers.max(1), of_copies.as_ptr()) };
    if failed != 0 {
        return Err("the second target has no kernel of this name".to_owned());
    }
    for (n, (argument, copy)) in arguments.iter().zip(&copies).enumerate() {
        let (checked, plain) = (bytes_of(argument), &bytemuck::cast_slice::<u64, u8>(copy));
        if let Some(at) = checked.iter().zip(plain.iter()).position(|(a, b)| a != b) {
            return Err(format!("argument {n}: byte {at} differs between the checked target and that of plain pointers"));
        }
    }
    Ok(())
}

/// The bytes of an array that is written; none for other arguments.
fn bytes_of(argument: &Argument) -> &[u8] {
    match argument.written() {
        // SAFETY: the array is borrowed mutably by `emulator::Argument` with this length for as long, and no kernel
        // runs while the bytes are read.
        Some(bytes) if bytes > 0 => unsafe { std::slice::from_raw_parts(argument.data, bytes) },
        _ => &[],
    }
}

fn copy_of(argument: &Argument) -> Vec<u64> {
    let bytes = bytes_of(argument);
    let mut copy = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut copy)[..bytes.len()].copy_from_slice(bytes);
    copy
}
