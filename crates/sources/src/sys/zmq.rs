//! Opens ZeroMQ sockets with the C functions, because those of the crate panic at unknown error numbers; reads and ends
//! their connections.

use std::ffi::CString;
use std::io;

/// Listens on or connects to `address`.
pub(crate) fn attach(socket: &mut zmq::Socket, address: &str, listen: bool) -> io::Result<()> {
    let text = CString::new(address)?;
    // SAFETY: the socket is open and borrowed alone, and `text` is a C string that lives during the call.
    let code = unsafe {
        match listen {
            true => zmq_sys::zmq_bind(socket.as_mut_ptr(), text.as_ptr()),
            false => zmq_sys::zmq_connect(socket.as_mut_ptr(), text.as_ptr()),
        }
    };
    if code == 0 {
        return Ok(());
    }
    // SAFETY: it only reads the error number of this thread.
    Err(io::Error::from_raw_os_error(unsafe { zmq_sys::zmq_errno() }))
}

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

/// Ends a connection in both directions; its owner closes it. True if there was one.
pub(crate) fn cut(descriptor: i32) -> bool {
    // SAFETY: it takes no memory; a descriptor that is none is an error.
    unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) == 0 }
}

/// Ends a connection that the monitor of a socket listening at TCP port `port` announced as accepted; libzmq then sees
/// its end and closes it. Nothing happens if the number has become something else meanwhile.
pub(crate) fn end_connection(descriptor: u32, port: u16) {
    let Ok(descriptor) = libc::c_int::try_from(descriptor) else { return };
    // SAFETY: both calls take a number and touch no memory but `address` and `length`, which live during the call and
    // agree in size. A number that is no socket is refused by the kernel; one that is no connection of this port is
    // left alone. All zero bytes are a valid address.
    unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let code = libc::getsockname(descriptor, (&raw mut address).cast(), &raw mut length);
        // In both families the port stands behind the family, in the order of the network.
        let is_internet = matches!(libc::c_int::from(address.ss_family), libc::AF_INET | libc::AF_INET6);
        let own = u16::from_be((&raw const address).cast::<u16>().add(1).read());
        if code == 0 && is_internet && own == port {
            cut(descriptor);
        }
    }
}
