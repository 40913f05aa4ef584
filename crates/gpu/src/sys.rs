//! The call into the kernels that are compiled as C++ (`shim/launch.cpp`).

use bytemuck::Pod;
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
}

/// Launches a kernel; the arrays of the arguments are borrowed by the caller for as long.
pub fn launch(name: &CStr, grid: (u32, u32), threads: u32, order: u64, arguments: &[Argument]) -> Result<(), String> {
    let mut error = [0u8; 512];
    // SAFETY: the name ends with 0 (`CStr`). The arguments are a slice with its true length, and each array in them is
    // borrowed by `emulator::Argument`, mutably if its kind is 1, with its true length. The spans of the shim check
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
