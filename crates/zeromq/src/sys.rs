//! Opens ZeroMQ sockets with the C functions, because those of the crate panic at unknown error numbers; ends their
//! connections.

use std::ffi::CString;
use std::io;

/// Listens on or connects to `address`.
pub(crate) fn attach(socket: &mut zmq::Socket, address: &str, listen: bool) -> io::Result<()> {
    let text = CString::new(address)?;
    // SAFETY: the socket is open and exclusively borrowed, and `text` is a C string that lives during the call.
    let code = unsafe {
        match listen {
            true => zmq_sys::zmq_bind(socket.as_mut_ptr(), text.as_ptr()),
            false => zmq_sys::zmq_connect(socket.as_mut_ptr(), text.as_ptr()),
        }
    };
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the call only reads the error number of this thread.
    Err(io::Error::from_raw_os_error(unsafe { zmq_sys::zmq_errno() }))
}

/// Ends a connection that the monitor of a socket listening at TCP port `port` reported as accepted; libzmq then sees
/// its end and closes it. Nothing happens if the descriptor has been reused for something else meanwhile.
pub(crate) fn end_connection(descriptor: u32, port: u16) {
    let Ok(descriptor) = libc::c_int::try_from(descriptor) else { return };
    // SAFETY: both calls take a number and touch no memory but `address` and `length`, which live during the call and
    // agree in size. The kernel refuses a number that is not a socket; a socket that is not a connection of this port
    // is left alone. All zero bytes are a valid address.
    unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let code = libc::getsockname(descriptor, (&raw mut address).cast(), &raw mut length);
        // In both families the port follows the family, in network byte order.
        let is_internet = matches!(libc::c_int::from(address.ss_family), libc::AF_INET | libc::AF_INET6);
        let own = u16::from_be((&raw const address).cast::<u16>().add(1).read());
        if code == 0 && is_internet && own == port {
            libc::shutdown(descriptor, libc::SHUT_RDWR);
        }
    }
}
