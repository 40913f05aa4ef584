//! Calls of libzmq that its crate lacks: messages that share bytes, errors without a panic, an option of publishers.

use bytes::Bytes;
use std::ffi::{c_int, c_void};
use std::io;

/// Parts up to this size are copied, which costs less than sharing.
const COPIED_BYTES_MAX: usize = 512;
const XPUB_NODROP: c_int = 69;

/// A message that shares bytes until libzmq has sent it.
struct Shared(zmq_sys::zmq_msg_t);

impl Shared {
    fn new(bytes: &Bytes) -> io::Result<Self> {
        let mut message = zmq_sys::zmq_msg_t::default();
        let owner = Box::into_raw(Box::new(bytes.clone()));
        // SAFETY: `message` is plain memory that libzmq fills. The bytes live as long as `owner`, which libzmq passes
        // to `release` once, from any thread (`Bytes` may be dropped in any), when it no longer needs them. Messages
        // that go over a network or a file system are only read.
        let code = unsafe {
            let data = (*owner).as_ptr().cast_mut().cast::<c_void>();
            zmq_sys::zmq_msg_init_data(&raw mut message, data, bytes.len(), Some(release), owner.cast())
        };
        if code != 0 {
            let error = last_error();
            // SAFETY: libzmq refused (no memory for its own record), so the owner is still ours.
            drop(unsafe { Box::from_raw(owner) });
            return Err(error);
        }
        Ok(Self(message))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the message was initialised by `new`, and is empty if it was sent; closing releases it once.
        unsafe { zmq_sys::zmq_msg_close(&raw mut self.0) };
    }
}

/// Sends one part without waiting and without copying it; false if there is no room. The socket must not be an inproc
/// one, where a receiver could write into the bytes.
pub(crate) fn send(socket: &mut zmq::Socket, part: &Bytes, more: bool) -> io::Result<bool> {
    let flags = zmq::DONTWAIT | if more { zmq::SNDMORE } else { 0 };
    let code = if part.len() <= COPIED_BYTES_MAX {
        // SAFETY: the socket is open and exclusively borrowed; libzmq copies as many bytes as the length says, during
        // the call.
        unsafe { zmq_sys::zmq_send(socket.as_mut_ptr(), part.as_ptr().cast(), part.len(), flags) }
    } else {
        let mut message = Shared::new(part)?;
        // SAFETY: the socket is open and exclusively borrowed, and the message is initialised; libzmq empties it if it
        // takes it.
        unsafe { zmq_sys::zmq_msg_send(&raw mut message.0, socket.as_mut_ptr(), flags) }
    };
    if code >= 0 {
        return Ok(true);
    }
    match last_error() {
        error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
        error => Err(error),
    }
}

/// Called by libzmq when it no longer needs the bytes.
unsafe extern "C" fn release(_data: *mut c_void, owner: *mut c_void) {
    // SAFETY: `owner` came from `Box::into_raw` in `Shared::new`, and libzmq passes it here once.
    drop(unsafe { Box::from_raw(owner.cast::<Bytes>()) });
}

/// Makes a publisher report that it is full for one subscriber, instead of dropping the message for that subscriber.
pub(crate) fn refuse_when_full(socket: &mut zmq::Socket) -> io::Result<()> {
    option(socket, XPUB_NODROP, &(1 as c_int).to_ne_bytes())
}

fn option(socket: &mut zmq::Socket, option: c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the socket is open and exclusively borrowed; libzmq reads as many bytes as the length says, during the
    // call.
    check(unsafe { zmq_sys::zmq_setsockopt(socket.as_mut_ptr(), option, value.as_ptr().cast(), value.len()) })
}

fn check(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> io::Error {
    // SAFETY: the call only reads the error number of this thread.
    io::Error::from_raw_os_error(unsafe { zmq_sys::zmq_errno() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted(Vec<u8>, Arc<AtomicUsize>);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn shared_bytes_are_released_once_and_not_before_they_were_sent() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let bytes = Bytes::from_owner(Counted(vec![5; 10_000], Arc::clone(&dropped)));
        drop(Shared::new(&bytes).unwrap());
        let context = zmq::Context::new();
        let (mut push, pull) = (context.socket(zmq::PUSH).unwrap(), context.socket(zmq::PULL).unwrap());
        pull.bind("tcp://127.0.0.1:*").unwrap();
        push.connect(&pull.get_last_endpoint().unwrap().unwrap()).unwrap();
        for _ in 0..100 {
            assert!(send(&mut push, &bytes, false).unwrap());
        }
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop(bytes);
        for _ in 0..100 {
            assert_eq!(pull.recv_bytes(0).unwrap(), vec![5; 10_000]);
        }
        // Dropping the context waits until libzmq has released everything.
        drop((push, pull, context));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn messages_that_were_never_sent_are_released_with_their_socket() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let context = zmq::Context::new();
        let mut push = context.socket(zmq::PUSH).unwrap();
        push.set_linger(0).unwrap();
        push.connect("tcp://127.0.0.1:1").unwrap();
        let bytes = Bytes::from_owner(Counted(vec![5; 10_000], Arc::clone(&dropped)));
        assert!(send(&mut push, &bytes, false).unwrap());
        drop(bytes);
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop((push, context));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn short_bytes_are_copied_and_long_ones_are_not() {
        let context = zmq::Context::new();
        for length in [0, 1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1] {
            let dropped = Arc::new(AtomicUsize::new(0));
            let mut push = context.socket(zmq::PUSH).unwrap();
            push.set_linger(0).unwrap();
            push.connect("tcp://127.0.0.1:1").unwrap();
            assert!(send(&mut push, &Bytes::from_owner(Counted(vec![3; length], Arc::clone(&dropped))), false).unwrap());
            assert_eq!(dropped.load(Ordering::SeqCst), usize::from(length <= COPIED_BYTES_MAX));
        }
    }

    #[test]
    fn a_message_that_does_not_fit_is_released() {
        let context = zmq::Context::new();
        let mut push = context.socket(zmq::PUSH).unwrap();
        push.bind("tcp://127.0.0.1:*").unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        assert!(!send(&mut push, &Bytes::from_owner(Counted(vec![3; 9999], Arc::clone(&dropped))), false).unwrap());
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}
