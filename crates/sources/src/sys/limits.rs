//! The limit of open files of this process.

use std::io;

/// Raises the limit in force as far as this process may, at most to `most`, and returns the new limit.
pub(crate) fn raise_open_files(most: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid structure that lives during the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let wanted = limit.rlim_max.min(most).max(limit.rlim_cur);
    if wanted > limit.rlim_cur {
        limit.rlim_cur = wanted;
        // SAFETY: as above; the kernel only reads it.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}
