//! Memory of one program that others of the same host write into. The one who makes it tells its [`Memory::address`];
//! who opens that may write everywhere in it, so its bytes are believed no more than those of a packet.
//!
//! The memory is a file without a name (`memfd`), which others reach by `/proc/PID/fd/NUMBER`: both programs have to
//! run on one host and belong to one user. Its size is sealed, so that nobody can end the other program by making it
//! shorter. Each side holds a lock of the file as long as it lives, by which the other one sees that it has gone, also
//! when it was killed.
//!
//! [`Writer`] and [`Reader`] are the ends of a queue in such memory: what was written is told there. A [`Link`]
//! of both is made by [`crate::kind`].

mod device;
mod memory;
mod queue;

pub use memory::Memory;
pub use queue::{Broken, ENTRY_BYTES, Entry, Reader, Writer, queue_bytes};

use crate::remote::RemoteLink;
use crate::{Link, LinkError, tcp};
use device::SharedMemory;
use std::net::SocketAddr;
use std::time::Duration;

/// Name of the kind of link.
pub(crate) const KIND: &str = "shm";

/// Connects to a [`crate::kind::Listener`], which must accept at the same time.
pub fn connect(address: SocketAddr, timeout: Duration) -> Result<Box<dyn Link>, LinkError> {
    meet(tcp::connect(address, timeout)?, timeout)
}

pub(crate) fn meet(control: tcp::TcpLink, timeout: Duration) -> Result<Box<dyn Link>, LinkError> {
    let io = |source| LinkError::Io { link: format!("shm {}", control.other()), source };
    let device = SharedMemory::new().map_err(io)?;
    Ok(Box::new(RemoteLink::meet(control, KIND, device, timeout)?))
}
