//! The libhdf5 that called us. A plug-in is not linked with it, and a process may hold several (h5py and other packages
//! each bring their own), whose handles mean nothing to each other. So the stack says which one it is: the first
//! function on it that is not ours lies in that library.

use super::abi::Handle;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

/// Frames of the stack that are looked at. There are about ten of ours.
const FRAMES: usize = 64;

// In libgcc_s or its substitute, which the standard library links.
// SAFETY: the declarations are those of unwind.h.
unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

struct Frames {
    addresses: [usize; FRAMES],
    count: usize,
}

/// `_URC_NO_REASON` and `_URC_END_OF_STACK`
const GO_ON: c_int = 0;
const STOP: c_int = 5;

extern "C" fn step(context: *mut c_void, frames: *mut c_void) -> c_int {
    // SAFETY: `stack` passes its own `Frames`, which it does not touch meanwhile; the context is that of the library.
    let (frames, address) = unsafe { (&mut *frames.cast::<Frames>(), _Unwind_GetIP(context)) };
    if frames.count == FRAMES {
        return STOP;
    }
    frames.addresses[frames.count] = address;
    frames.count += 1;
    GO_ON
}

fn stack() -> Frames {
    let mut frames = Frames { addresses: [0; FRAMES], count: 0 };
    // SAFETY: `step` fits the declaration and takes `frames` as its argument, which lives until the call returns.
    unsafe { _Unwind_Backtrace(step, (&raw mut frames).cast()) };
    frames
}

/// Base and path of the program or library in which an address lies.
fn object(address: usize) -> Option<(*mut c_void, CString)> {
    // SAFETY: a structure of pointers, all of which may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the path, if there is one, stays as long as the library is loaded, which
    // holds at least until our caller returns, and is copied here.
    unsafe {
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some((info.dli_fbase, CStr::from_ptr(info.dli_fname).to_owned()))
    }
}

/// The functions of a libhdf5 that a filter needs; all of them have been there since HDF5 1.8.
pub struct Library {
    get_filter: GetFilter,
    modify_filter: ModifyFilter,
    type_bytes: TypeBytes,
    push: Option<(Push, [Handle; 3])>,
}

/// `H5Pget_filter_by_id2`
type GetFilter =
    unsafe extern "C" fn(Handle, c_int, *mut c_uint, *mut usize, *mut c_uint, usize, *mut c_char, *mut c_uint) -> c_int;
/// `H5Pmodify_filter`
type ModifyFilter = unsafe extern "C" fn(Handle, c_int, c_uint, usize, *const c_uint) -> c_int;
/// `H5Tget_size`
type TypeBytes = unsafe extern "C" fn(Handle) -> usize;
/// `H5Epush2`
type Push =
    unsafe extern "C" fn(Handle, *const c_char, *const c_char, c_uint, Handle, Handle, Handle, *const c_char, ...) -> c_int;

/// Parameters that a filter of ours has, at most.
const VALUES_MAX: usize = 16;

impl Library {
    /// The one that called; `None` if the stack does not say, or it lacks a function.
    pub fn that_called() -> Option<Self> {
        let (own, _) = object(Self::that_called as *const () as usize)?;
        let frames = stack();
        let mut seen = own;
        for address in &frames.addresses[..frames.count] {
            let Some((base, path)) = object(*address) else { continue };
            if base == own || base == seen {
                continue;
            }
            seen = base;
            if let Some(library) = Self::at(&path) {
                return Some(library);
            }
        }
        None
    }

    fn at(path: &CStr) -> Option<Self> {
        // SAFETY: nothing is loaded, only a library that is there is named (the main program by null). It is not closed
        // again, so that the functions stay.
        let library = unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) } else { library }
        };
        let symbol = |name: &CStr| {
            // SAFETY: `dlsym` takes any handle of `dlopen` and any name.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let handle = |name: &CStr| {
            // SAFETY: the variables of these names are handles in every libhdf5 since 1.8.
            symbol(name).map(|at| unsafe { *at.cast::<Handle>() })
        };
        let kinds = || Some([handle(c"H5E_ERR_CLS_g")?, handle(c"H5E_PLINE_g")?, handle(c"H5E_CANTFILTER_g")?]);
        // SAFETY: the functions of these names have had these types since HDF5 1.8, with handles of 64 bits since 1.10.
        unsafe {
            Some(Self {
                get_filter: std::mem::transmute::<*mut c_void, GetFilter>(symbol(c"H5Pget_filter_by_id2")?),
                modify_filter: std::mem::transmute::<*mut c_void, ModifyFilter>(symbol(c"H5Pmodify_filter")?),
                type_bytes: std::mem::transmute::<*mut c_void, TypeBytes>(symbol(c"H5Tget_size")?),
                push: symbol(c"H5Epush2").map(|at| std::mem::transmute::<*mut c_void, Push>(at)).zip(kinds()),
            })
        }
    }

    /// Flags and parameters of the filter `id` in a property list.
    pub fn values(&self, properties: Handle, id: c_int) -> Option<(c_uint, Vec<u32>)> {
        let (mut flags, mut count, mut values) = (0, VALUES_MAX, [0; VALUES_MAX]);
        let (no_name, no_config) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the library writes at most `count` parameters, and no name since its length is 0.
        let done =
            unsafe { (self.get_filter)(properties, id, &mut flags, &mut count, values.as_mut_ptr(), 0, no_name, no_config) };
        (done >= 0).then(|| (flags, values[..count.min(VALUES_MAX)].to_vec()))
    }

    /// Replaces flags and parameters of the filter `id`; false if the library refuses.
    pub fn replace(&self, properties: Handle, id: c_int, flags: c_uint, values: &[u32]) -> bool {
        // SAFETY: the parameters are as many as said; the library copies them.
        unsafe { (self.modify_filter)(properties, id, flags, values.len(), values.as_ptr()) >= 0 }
    }

    /// Bytes of an element of a type; 0 if there is no such type.
    pub fn element_bytes(&self, kind: Handle) -> usize {
        // SAFETY: the library checks the handle.
        unsafe { (self.type_bytes)(kind) }
    }

    /// Adds a line to what the library reports of the failure.
    pub fn report(&self, function: &CStr, why: &str) {
        let (Some((push, [class, major, minor])), Ok(why)) = (self.push, CString::new(why.replace('\0', " "))) else { return };
        // SAFETY: all texts end with a 0 and outlive the call, which copies them; "%s" takes one text.
        unsafe {
            push(0, c"konkordia".as_ptr(), function.as_ptr(), 0, class, major, minor, c"%s".as_ptr(), why.as_ptr());
        }
    }
}
