//! The functions of our filter that libhdf5 calls. None of them lets a panic through.

use super::abi::{CLASS_VERSION, Class, FLAG_REVERSE, Handle};
use super::caller::Library;
use crate::bitshuffle;
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

const BITSHUFFLE_ID: c_int = 32008;

/// Filter 32008.
pub static BITSHUFFLE: Class = Class {
    version: CLASS_VERSION,
    id: BITSHUFFLE_ID,
    packs: 1,
    unpacks: 1,
    name: c"bitshuffle of konkordia; see https://github.com/kiyo-masui/bitshuffle".as_ptr(),
    can_apply: None,
    set_local: Some(set_local),
    apply: Some(apply),
};

const FAILED: c_int = -1;
const DONE: c_int = 0;

/// `H5Z_set_local_func_t`: completes the parameters with the size of the elements.
unsafe extern "C" fn set_local(properties: Handle, kind: Handle, _: Handle) -> c_int {
    catch_unwind(|| {
        let Some(library) = Library::that_called() else { return FAILED };
        let Some((flags, given)) = library.values(properties, BITSHUFFLE_ID) else { return FAILED };
        match bitshuffle::stored_values(&given, library.element_bytes(kind)) {
            Ok(values) if library.replace(properties, BITSHUFFLE_ID, flags, &values) => DONE,
            Ok(_) => FAILED,
            Err(why) => {
                library.report(c"bitshuffle set_local", &why);
                FAILED
            }
        }
    })
    .unwrap_or(FAILED)
}

/// `H5Z_func_t`
unsafe extern "C" fn apply(
    flags: c_uint,
    value_count: usize,
    values: *const c_uint,
    bytes: usize,
    buffer_bytes: *mut usize,
    buffer: *mut *mut c_void,
) -> usize {
    // SAFETY: libhdf5 passes its parameters with their number (null only with 0), and a buffer of `malloc` of which
    // `bytes` bytes are filled; nobody else uses either until this function returns.
    let (values, input) = unsafe { (slice(values, value_count), slice((*buffer).cast::<u8>().cast_const(), bytes)) };
    let work = AssertUnwindSafe(|| bitshuffle::apply(values, flags & FLAG_REVERSE != 0, input));
    let why = match catch_unwind(work) {
        Ok(Ok(output)) => {
            let (start, written, capacity) = output.into_raw();
            // SAFETY: the old buffer is of `malloc` and is replaced by the new one, which libhdf5 frees.
            unsafe {
                libc::free(*buffer);
                *buffer = start.as_ptr().cast();
                *buffer_bytes = capacity;
            }
            return written;
        }
        Ok(Err(why)) => why,
        Err(_) => "an internal error of the plug-in".into(),
    };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if let Some(library) = Library::that_called() {
            library.report(c"bitshuffle", &why);
        }
    }));
    0
}

/// # Safety
/// `at` points to `count` values that nobody changes during `'a`, or is null with a count of 0.
unsafe fn slice<'a, T>(at: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(at, count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(flags: c_uint, values: &[u32], input: &[u8]) -> Option<Vec<u8>> {
        // SAFETY: the buffer is of `malloc` and holds the input; what comes back is read up to its length and freed.
        unsafe {
            let mut buffer = libc::malloc(input.len().max(1));
            buffer.cast::<u8>().copy_from_nonoverlapping(input.as_ptr(), input.len());
            let mut buffer_bytes = input.len();
            let written = apply(flags, values.len(), values.as_ptr(), input.len(), &mut buffer_bytes, &mut buffer);
            assert!(written <= buffer_bytes);
            let out = std::slice::from_raw_parts(buffer.cast::<u8>(), written).to_vec();
            libc::free(buffer);
            (written > 0).then_some(out)
        }
    }

    #[test]
    fn a_chunk_comes_back_through_the_interface_and_a_bad_one_leaves_the_buffer() {
        let image: Vec<u8> = (0..20_000u32).map(|n| (n % 7) as u8).collect();
        let values = [0, 4, 2, 0, 2];
        let packed = call(0, &values, &image).unwrap();
        assert!(packed.len() < image.len());
        assert_eq!(call(FLAG_REVERSE, &values, &packed), Some(image));
        assert_eq!(call(FLAG_REVERSE, &values, &packed[..100]), None);
        assert_eq!(call(FLAG_REVERSE, &[], &packed), None);
    }
}
