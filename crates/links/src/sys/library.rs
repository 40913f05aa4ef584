//! Opens a shared library at run time, so that the program starts where it is absent.

use super::signals::keeping_handlers;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// A library that stays open until the program ends.
pub(crate) struct Library {
    handle: NonNull<c_void>,
    name: &'static CStr,
}

// SAFETY: the handle is only passed to `dlsym`, which any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above; nothing is changed through it.
unsafe impl Sync for Library {}

impl Library {
    /// Opens the library `name`, which the dynamic linker looks for. The error is its message.
    pub(crate) fn open(name: &'static CStr) -> Result<Self, String> {
        // SAFETY: `name` is a C string. The constructors of libfabric and libibverbs may run at any time.
        let open = || unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = keeping_handlers(open);
        NonNull::new(handle).map(|handle| Self { handle, name }).ok_or_else(last_error)
    }

    /// The address of a symbol that is there; never null.
    pub(crate) fn symbol(&self, symbol: &'static CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: the handle is open for ever, and `symbol` is a C string.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), symbol.as_ptr()) };
        NonNull::new(found)
            .ok_or_else(|| format!("{} has no {}: it is another version", self.name.to_string_lossy(), symbol.to_string_lossy()))
    }
}

/// What the dynamic linker says of the last call of this thread.
fn last_error() -> String {
    // SAFETY: the call takes nothing, and returns null or a C string that lives until the next call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker does not say why".into();
    }
    // SAFETY: not null, see above; it is copied here.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Of a structure its name, its size, and of each field the name and the offset.
#[cfg(test)]
pub(super) type Structure = (&'static str, usize, Vec<(&'static str, usize)>);

/// The functions of a library, each with its type: a structure with one field for each, and how it is filled.
macro_rules! functions {
    ($(#[$about:meta])* $name:ident { $($symbol:ident: $type:ty,)* }) => {
        $(#[$about])*
        struct $name { $($symbol: $type,)* }

        /// Their names.
        #[cfg(test)]
        pub(super) const FUNCTIONS: &[&str] = &[$(stringify!($symbol),)*];

        impl $name {
            fn find(library: &$crate::sys::library::Library) -> Result<Self, String> {
                Ok(Self { $($symbol: {
                    let name = concat!(stringify!($symbol), "\0");
                    let name = std::ffi::CStr::from_bytes_with_nul(name.as_bytes()).expect("one zero at the end");
                    // SAFETY: a function pointer has the size of a pointer and is not null, and the symbol is a
                    // function of this type in every version of the library with this name.
                    unsafe { std::mem::transmute::<std::ptr::NonNull<std::ffi::c_void>, $type>(library.symbol(name)?) }
                },)* })
            }
        }
    };
}

/// Structures with the list of their fields, and constants with their names; both are compared with the headers.
macro_rules! abi {
    (structures { $($structure:ident { $($field:ident: $type:ty,)* })* } constants { $($constant:ident: $kind:ty = $value:expr,)* }) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(dead_code, reason = "most fields only keep the others at their place")]
            pub(super) struct $structure { $(pub(super) $field: $type,)* }
        )*
        $(pub(super) const $constant: $kind = $value;)*

        /// Of each structure its name, its size, and of each field the name and the offset.
        #[cfg(test)]
        pub(super) fn structures() -> Vec<$crate::sys::library::Structure> {
            vec![$((
                stringify!($structure),
                size_of::<$structure>(),
                vec![$((stringify!($field).trim_start_matches("r#"), std::mem::offset_of!($structure, $field)),)*],
            ),)*]
        }

        #[cfg(test)]
        pub(super) fn constants() -> Vec<(&'static str, u64)> {
            vec![$((stringify!($constant), u64::try_from($constant).expect("not negative")),)*]
        }
    };
}
pub(super) use {abi, functions};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_named() {
        let error = Library::open(c"libkonkordia-has-no-such.so.1").err().unwrap();
        assert!(error.contains("libkonkordia-has-no-such.so.1"), "{error}");
        let library = Library::open(c"libc.so.6").unwrap();
        assert!(library.symbol(c"strlen").is_ok());
        let error = library.symbol(c"fi_no_such_function").unwrap_err();
        assert!(error.contains("libc.so.6 has no fi_no_such_function"), "{error}");
    }
}
