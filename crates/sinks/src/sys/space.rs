//! The system calls that ask for space on the disk and take it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Free bytes for this user on the file system of `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid value of this plain struct; the path is terminated and the output valid for writes.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &raw mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stat.f_bavail as u64 * stat.f_frsize as u64)
    }
}

/// Allocates `bytes` of space on the disk to the file.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    // SAFETY: an open descriptor; the call changes nothing but the file.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
