//! Notices of the kernel about one folder.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Room for some hundred notices of one read, aligned as `inotify_event` is.
const BUFFER_WORDS: usize = 4096;
const HEADER_BYTES: usize = size_of::<libc::inotify_event>();

/// What the kernel noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A file with this name was closed after writing, or was moved here.
    Complete(OsString),
    /// Notices were lost, or the folder itself is gone: the caller must search the folder.
    Lost,
}

/// The notices of one folder.
pub(crate) struct Watch {
    descriptor: OwnedFd,
    buffer: Vec<u32>,
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl Watch {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        // SAFETY: no pointers; a descriptor comes back, or -1.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and belongs to nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let path = CString::new(folder.as_os_str().as_bytes())?;
        let wanted = libc::IN_CLOSE_WRITE | libc::IN_MOVED_TO | libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_ONLYDIR;
        // SAFETY: the descriptor is open and `path` is a C string that lives during the call.
        if unsafe { libc::inotify_add_watch(descriptor.as_raw_fd(), path.as_ptr(), wanted) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { descriptor, buffer: vec![0; BUFFER_WORDS] })
    }

    /// Hands every notice that is there to `take`, without waiting.
    pub(crate) fn read(&mut self, mut take: impl FnMut(Notice)) -> io::Result<()> {
        loop {
            let room = size_of_val(&self.buffer[..]);
            // SAFETY: the buffer has as many bytes as are said, and nothing else borrows it.
            let n = unsafe { libc::read(self.descriptor.as_raw_fd(), self.buffer.as_mut_ptr().cast(), room) };
            if n <= 0 {
                let error = io::Error::last_os_error();
                let nothing = n == 0 || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                return if nothing { Ok(()) } else { Err(error) };
            }
            // SAFETY: the kernel filled the first `n` bytes, no more than the buffer has; bytes have no alignment and
            // no invalid values.
            let bytes = unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().cast::<u8>(), n as usize) };
            notices(bytes, &mut take);
        }
    }
}

/// Reads the notices of one read: watch, mask, cookie, length (i32 and three u32), then the name, filled up with zeros
/// to the length.
fn notices(mut bytes: &[u8], take: &mut impl FnMut(Notice)) {
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (mask, length) = (word(4), word(12) as usize);
        let Some((name, next)) = rest.split_at_checked(length) else { return };
        bytes = next;
        let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        if mask & (libc::IN_Q_OVERFLOW | libc::IN_IGNORED | libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_UNMOUNT) != 0 {
            take(Notice::Lost);
        } else if mask & libc::IN_ISDIR == 0 && !name.is_empty() {
            take(Notice::Complete(OsStr::from_bytes(name).to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_as_the_kernel_writes_them() {
        let notice = |mask: u32, name: &[u8], length: usize| {
            let mut bytes = [1u32.to_ne_bytes(), mask.to_ne_bytes(), [0; 4], (length as u32).to_ne_bytes()].concat();
            bytes.extend(name);
            bytes.resize(HEADER_BYTES + length, 0);
            bytes
        };
        let all = [
            notice(libc::IN_CLOSE_WRITE, b"a.cbf", 16),
            notice(libc::IN_MOVED_TO | libc::IN_ISDIR, b"folder", 16),
            notice(libc::IN_Q_OVERFLOW, b"", 0),
            notice(libc::IN_MOVED_TO, b"sixteen bytes ..", 16),
        ]
        .concat();
        let read = |bytes: &[u8]| {
            let mut got = Vec::new();
            notices(bytes, &mut |n| got.push(n));
            got
        };
        let complete = |name: &str| Notice::Complete(name.into());
        assert_eq!(read(&all), [complete("a.cbf"), Notice::Lost, complete("sixteen bytes ..")]);
        // Whatever is cut off is not looked at.
        assert_eq!(read(&all[..all.len() - 1]), [complete("a.cbf"), Notice::Lost]);
        assert_eq!(read(&all[..7]), []);
    }
}
