//! Opens ZeroMQ sockets with the C functions, because those of the crate panic at unknown error numbers; ends their
//! connections.

use std::ffi::{CString, c_void};
use std::io;
use std::sync::Arc;

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

/// Sends bytes that are shared, and that are not copied; they are freed when nobody needs them any more. Never waits.
///
/// # Errors
/// Those of `zmq_msg_send`; the bytes are not sent then.
pub fn send_shared(socket: &mut zmq::Socket, bytes: Arc<Vec<u8>>, flags: i32) -> Result<(), zmq::Error> {
    let (length, data) = (bytes.len(), bytes.as_ptr());
    let owner = Arc::into_raw(bytes);
    // SAFETY: the data live as long as `owner`, whose count `release` gives back exactly once: the library calls it
    // when it needs the data no more, from any thread, and an `Arc` may be dropped by any thread. The data are only
    // read. The message is closed by us if it was not sent, and belongs to the library otherwise.
    unsafe {
        let mut message: zmq_sys::zmq_msg_t = std::mem::zeroed();
        let hint = owner.cast_mut().cast();
        if zmq_sys::zmq_msg_init_data(&raw mut message, data.cast_mut().cast(), length, Some(release), hint) != 0 {
            drop(Arc::from_raw(owner));
            return Err(zmq::Error::from_raw(zmq_sys::zmq_errno()));
        }
        if zmq_sys::zmq_msg_send(&raw mut message, socket.as_mut_ptr(), flags | zmq::DONTWAIT) >= 0 {
            return Ok(());
        }
        let number = zmq_sys::zmq_errno();
        zmq_sys::zmq_msg_close(&raw mut message);
        Err(zmq::Error::from_raw(number))
    }
}

unsafe extern "C" fn release(_data: *mut c_void, owner: *mut c_void) {
    // SAFETY: `owner` is what `Arc::into_raw` returned, see above.
    drop(unsafe { Arc::from_raw(owner.cast_const().cast::<Vec<u8>>()) });
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
