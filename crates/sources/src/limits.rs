//! What the system allows this process.

use crate::sys;
use std::io;

/// More descriptors than this are never needed; a table of a million costs memory, and programs that this one starts inherit the limit.
const OPEN_FILES_MAX: u64 = 65_536;

/// Raises the limit of open files (sockets count too) as far as this process may, which often begins with 1024 and may have more; gives the limit then.
/// To be called once, at the start of the program.
///
/// # Errors
/// The kernel does not tell, or refuses.
pub fn raise_open_files() -> io::Result<u64> {
    sys::limits::raise_open_files(OPEN_FILES_MAX)
}
