//! Links by verbs: queue pairs of a card with RDMA, without a library between (`libibverbs.so.1`, opened at run time).
//! Numbers of queue pairs, packets and keys are exchanged over TCP, which also carries messages; no connection manager
//! is needed.
//!
//! **None of this has ever run on a card**, because there was none. Its structures and constants are compared with the
//! headers of rdma-core, the steps of a queue pair with its manual page; what happens around the calls is the same code
//! as in [`crate::libfabric`], which runs.
//!
//! With [`Service::Reliable`] (RC) the rules of [`Link`] hold. With [`Service::Unreliable`] (UC) a lost write stays
//! lost: if it had an event, the next message or [`Link::write`] reports it after some seconds; if not, nobody does.
//! Who uses UC compares checksums. Detectors send by UC, because it needs no answers.
//!
//! On Ethernet the queue pair uses the RoCEv2 address of the TCP connection, so connect by an address of the card.

use crate::remote::RemoteLink;
pub use crate::sys::verbs::packets::{FrameQueue, FrameQueueSpec, ReceivedFrame};
use crate::sys::verbs::{self, QueuePair};
pub use crate::sys::verbs_states::Service;
use crate::{Link, LinkError, tcp};
use std::net::SocketAddr;
use std::time::Duration;

/// The name of these links, which both sides compare.
pub(crate) const KIND: &str = "verbs";

/// The RDMA devices of this host. The error says what is absent, and what to do.
pub fn devices() -> Result<Vec<String>, LinkError> {
    verbs::devices().map_err(|why| LinkError::Absent { link: "verbs".into(), why })
}

/// Connects to a [`crate::kind::Listener`], which must accept at the same time.
pub fn connect(
    device: Option<&str>,
    service: Service,
    address: SocketAddr,
    timeout: Duration,
) -> Result<Box<dyn Link>, LinkError> {
    devices()?;
    meet(device, service, tcp::connect(address, timeout)?, timeout)
}

pub(crate) fn meet(
    device: Option<&str>,
    service: Service,
    control: tcp::TcpLink,
    timeout: Duration,
) -> Result<Box<dyn Link>, LinkError> {
    let absent = |why| LinkError::Absent { link: format!("verbs {}", control.other()), why };
    let queue_pair = QueuePair::open(device, service, control.local_addr()?.ip()).map_err(absent)?;
    Ok(Box::new(RemoteLink::meet(control, KIND, queue_pair, timeout)?))
}
