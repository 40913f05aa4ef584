//! What the kernel knows of the connections of ZeroMQ sockets.

/// The kernel's identifier of the socket behind a descriptor, which is never reused; `None` if there is no such socket.
pub(crate) fn cookie(descriptor: i32) -> Option<u64> {
    const SO_COOKIE: libc::c_int = 57;
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` and `length` live during the call and agree in size; a descriptor that is none is an error.
    let code = unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, SO_COOKIE, (&raw mut cookie).cast(), &raw mut length) };
    (code == 0).then_some(cookie)
}

/// Bytes that were read from a TCP connection: those that it received, minus those that are still in the kernel.
pub(crate) fn bytes_read(descriptor: i32) -> Option<u64> {
    // `tcpi_bytes_received` of `struct tcp_info` (linux/tcp.h), the 17th word of 8 bytes; since Linux 4.1.
    const WORD: usize = 16;
    let mut info = [0u64; WORD + 1];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` and `length` live during the call and agree in size; the kernel writes at most so much and says
    // how much.
    let code =
        unsafe { libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length) };
    let mut waiting: libc::c_int = 0;
    // SAFETY: `FIONREAD` writes one `int`, which lives during the call.
    let known = unsafe { libc::ioctl(descriptor, libc::FIONREAD, &raw mut waiting) } == 0;
    let is_known = code == 0 && length as usize == size_of_val(&info) && known;
    is_known.then(|| info[WORD].saturating_sub(waiting.max(0) as u64))
}

/// Ends a connection in both directions; its owner closes it. True if there was one. The sender gets a reset, because
/// one that waits for room would not notice a plain end for minutes.
pub(crate) fn cut(descriptor: i32) -> bool {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of_val(&at_once) as libc::socklen_t;
    // SAFETY: `at_once` lives during the call, and `length` is its size; a descriptor that is none is an error.
    unsafe {
        libc::setsockopt(descriptor, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const at_once).cast(), length);
        libc::shutdown(descriptor, libc::SHUT_RDWR) == 0
    }
}
