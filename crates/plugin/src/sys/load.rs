//! Plug-ins of others: shared libraries that say which filter they hold and run it. Their code is not checked by
//! anybody, so only a process that may end at any moment loads them.

use super::abi::{Apply, CLASS_VERSION, Class, FLAG_REVERSE, TYPE_FILTER};
use super::output::Output;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The filter of a library that stays loaded.
pub struct Filter {
    /// Number of the filter.
    pub id: i32,
    apply: Apply,
}

/// Loads a library and asks it for its filter. `None` if it is a plug-in of another kind.
///
/// # Errors
/// It cannot be loaded, or is no plug-in of HDF5; in words.
pub fn filter(path: &Path) -> Result<Option<Filter>, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name holds a zero byte".to_string())?;
    // SAFETY: loading runs code of the library: whoever calls this runs it anyway. It is never unloaded, so its
    // functions stay.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(last_error());
    }
    let symbol = |name: &CStr| {
        // SAFETY: an open library and a terminated name.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if found.is_null() { Err(format!("it has no {}", name.to_string_lossy())) } else { Ok(found) }
    };
    let (kind, info) = (symbol(c"H5PLget_plugin_type")?, symbol(c"H5PLget_plugin_info")?);
    // SAFETY: the functions of these names in plug-ins of HDF5 have these types (H5PLextern.h).
    let info = unsafe {
        let kind = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(kind);
        let info = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const Class>(info);
        if kind() != TYPE_FILTER {
            return Ok(None);
        }
        info()
    };
    // SAFETY: a plug-in of a filter returns its class, which stays as long as the library is loaded.
    let class = unsafe { info.as_ref() }.ok_or("it names no filter")?;
    if class.version != CLASS_VERSION {
        return Err(format!("it has version {} of the interface, not {CLASS_VERSION}", class.version));
    }
    match class.apply {
        Some(apply) if class.unpacks != 0 => Ok(Some(Filter { id: class.id, apply })),
        _ => Err("its filter does not unpack".into()),
    }
}

fn last_error() -> String {
    // SAFETY: `dlerror` returns null or a terminated text that stays until the next call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Filter {
    /// Unpacks `input`. The filter may do anything, also end the process. `None` if it fails.
    pub fn unpack(&self, values: &[u32], input: Output) -> Option<Output> {
        let (start, bytes, capacity) = input.into_raw();
        let (mut buffer, mut buffer_bytes) = (start.as_ptr().cast::<c_void>(), capacity);
        // SAFETY: the parameters are as many as said; the buffer is of `malloc`, as the interface demands, and the
        // filter may replace it by another such buffer.
        let written = unsafe { (self.apply)(FLAG_REVERSE, values.len(), values.as_ptr(), bytes, &mut buffer_bytes, &mut buffer) };
        // SAFETY: the buffer is of `malloc` still or again, and belongs to us; the filter says how much it holds.
        let output = unsafe { Output::from_raw(buffer.cast(), written, buffer_bytes) };
        output.filter(|output| !output.written().is_empty())
    }
}
