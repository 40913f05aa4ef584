//! What the system allows this process.

use crate::sys;
use std::io;

/// More descriptors than this are never needed; a table of a million costs memory, and programs that this one starts
/// inherit the limit.
const OPEN_FILES_MAX: u64 = 65_536;

/// Raises the limit of open files (sockets count too) as far as the system permits, and returns the new limit. A
/// process often starts with a limit of 1024 but may have more. To be called once, at the start of the program.
///
/// # Errors
/// The kernel does not report the limit, or refuses the new one.
pub fn raise_open_files() -> io::Result<u64> {
    sys::limits::raise_open_files(OPEN_FILES_MAX)
}
