//! Options of sockets.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

/// Sets an option to a value of a plain C type.
pub(crate) fn set<T: Copy>(socket: &impl AsRawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` lives during the call and has the stated length; the kernel only reads it.
    let code = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), length) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Fills `value`, of a plain C type for which all bytes are valid, and returns how many bytes the kernel wrote.
pub(crate) fn get<T: Copy>(socket: &impl AsRawFd, level: libc::c_int, option: libc::c_int, value: &mut T) -> io::Result<usize> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` and `length` live during the call and agree in size; the caller sees to it that all bytes are
    // valid.
    let code = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut *value).cast(), &raw mut length) };
    if code == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// From now on the kernel passes only what the filter keeps.
pub(crate) fn attach_filter(socket: &impl AsRawFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    // The kernel copies the instructions during the call and does not write to them.
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// From now on the program says which socket of the group of `socket` gets a datagram, by the order in which they were
/// bound.
pub(crate) fn attach_steering(socket: &impl AsRawFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    // As above: the kernel copies the instructions.
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Takes the error that waits at a socket, if there is one.
pub(crate) fn take_error(socket: &impl AsRawFd) -> Option<io::Error> {
    let mut code: libc::c_int = 0;
    match get(socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut code) {
        Ok(_) if code == 0 => None,
        Ok(_) => Some(io::Error::from_raw_os_error(code)),
        Err(error) => Some(error),
    }
}
