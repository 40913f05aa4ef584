//! The one system call of this crate: where a thread may run.

use std::io;

/// Keeps the calling thread on processor `cpu`.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: `cpu_set_t` is a plain bit field for which zero is valid, `CPU_SET` stays inside it by the check above,
    // and the call reads it.
    let code = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
