//! The interface between libhdf5 and a filter plug-in, as H5Zpublic.h and H5PLextern.h of HDF5 1.10 to 2.0 declare it.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `hid_t`, a handle of libhdf5 1.10 and newer.
pub type Handle = i64;

/// `H5Z_CLASS_T_VERS`
pub const CLASS_VERSION: c_int = 1;
/// `H5Z_FLAG_REVERSE`: unpack instead of pack.
pub const FLAG_REVERSE: c_uint = 0x0100;
/// `H5PL_TYPE_FILTER`
pub const TYPE_FILTER: c_int = 0;

/// `H5Z_set_local_func_t`, also `H5Z_can_apply_func_t`: property list, type, data space.
pub type SetLocal = unsafe extern "C" fn(Handle, Handle, Handle) -> c_int;
/// `H5Z_func_t`: flags, number of parameters, parameters, bytes, bytes of the buffer, buffer (of `malloc`; the filter
/// may put another one in its place). Returns the bytes of the result, 0 for a failure.
pub type Apply = unsafe extern "C" fn(c_uint, usize, *const c_uint, usize, *mut usize, *mut *mut c_void) -> usize;

/// `H5Z_class2_t`
#[repr(C)]
pub struct Class {
    /// [`CLASS_VERSION`].
    pub version: c_int,
    /// Number of the filter.
    pub id: c_int,
    /// Not 0: it packs.
    pub packs: c_uint,
    /// Not 0: it unpacks.
    pub unpacks: c_uint,
    /// Text with a 0 at its end.
    pub name: *const c_char,
    /// Whether a data set may have this filter.
    pub can_apply: Option<SetLocal>,
    /// Completes the parameters when a data set is made.
    pub set_local: Option<SetLocal>,
    /// Packs and unpacks.
    pub apply: Option<Apply>,
}

// SAFETY: nothing changes a class; its pointers are to constants of the program or the library that holds it.
unsafe impl Sync for Class {}

/// Exports what libhdf5 looks for in a plug-in: its type, and the class `$class` (a `static`).
#[macro_export]
macro_rules! export_filter {
    ($class:path) => {
        /// What kind of plug-in this is: a filter.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C" fn H5PLget_plugin_type() -> std::ffi::c_int {
            $crate::sys::abi::TYPE_FILTER
        }

        /// The filter.
        #[allow(unsafe_code)]
        #[unsafe(no_mangle)]
        pub extern "C" fn H5PLget_plugin_info() -> *const $crate::sys::abi::Class {
            &raw const $class
        }
    };
}
