//! Opening of ZeroMQ sockets by the C functions, because those of the crate panic at error numbers that they do not know.

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
