//! The call of the kernel that begins to write a file to the disk and does not wait for it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Begins to write what the kernel holds of this file. Many files begun together cost the disk little more than one; that they are there only
/// `fdatasync` says.
pub(crate) fn begin(file: &File) {
    // SAFETY: an open descriptor; the call changes neither memory nor file. Where a file system cannot do it, nothing happens.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}
