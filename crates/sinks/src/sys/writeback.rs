//! The system call that starts writing a file to the disk without waiting for it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Starts writing to the disk what the kernel holds of this file. Many files started together cost the disk little more
/// than one. Only `fdatasync` says that the data are on the disk.
pub(crate) fn begin(file: &File) {
    // SAFETY: an open descriptor; the call changes neither memory nor file. On a file system that cannot do it, nothing
    // happens.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}
