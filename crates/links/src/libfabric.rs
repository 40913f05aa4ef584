//! Links by libfabric, which is opened at run time (`libfabric.so.1`). A provider of it writes (`fi_write` and
//! `fi_writedata` of an endpoint of type FI_EP_RDM), and a connection over TCP carries addresses, keys and messages.
//!
//! - Events have 32 bits, because InfiniBand has no more; some providers would take 64.
//! - A write counts as done when its bytes are in the memory of the other side (FI_DELIVERY_COMPLETE).
//! - Most providers make progress only while their user looks (FI_PROGRESS_MANUAL): both sides have to call
//!   [`Link::poll`] often, and each needs a thread of its own. [`Link::write`] waits for the other side when all slots
//!   are on their way, at the first write until the other side looks.
//! - Bytes are copied once, into registered memory from which the provider writes.
//!
//! The provider `shm` shares locks between the two programs. If one is killed while it holds one, the other waits in
//! `fi_cq_read` for ever; there is no way out of that here.
//!
//! It was run with the providers `tcp` and `shm` (libfabric 1.17 of Debian). The others need hardware that we have not;
//! they get the same calls.

use crate::remote::RemoteLink;
pub use crate::sys::fabric::Offer;
use crate::sys::fabric::{self, Endpoint};
use crate::{Link, LinkError, tcp};
use std::net::SocketAddr;
use std::time::Duration;

/// Providers whose endpoints have an address of the host; others find their device by themselves.
const BY_HOST: [&str; 5] = ["tcp", "tcp;ofi_rxm", "verbs;ofi_rxm", "sockets", "net"];

/// Version of libfabric on this host, for example `1.17`; the error says how to get it.
pub fn version() -> Result<String, LinkError> {
    fabric::version().map_err(|why| LinkError::Absent { link: "libfabric".into(), why })
}

/// What libfabric offers on this host, each way once.
pub fn offers() -> Result<Vec<Offer>, LinkError> {
    fabric::offers().map_err(|why| LinkError::Absent { link: "libfabric".into(), why })
}

/// The name of a link by this provider, which both sides compare.
pub(crate) fn kind(provider: &str) -> String {
    format!("libfabric {provider}")
}

/// Connects to a [`crate::kind::Listener`], which must accept at the same time.
pub fn connect(provider: &str, address: SocketAddr, timeout: Duration) -> Result<Box<dyn Link>, LinkError> {
    version()?;
    meet(provider, tcp::connect(address, timeout)?, timeout)
}

pub(crate) fn meet(provider: &str, control: tcp::TcpLink, timeout: Duration) -> Result<Box<dyn Link>, LinkError> {
    let host = if BY_HOST.contains(&provider) { Some(control.local_addr()?.ip()) } else { None };
    let kind = kind(provider);
    let absent = |why| LinkError::Absent { link: format!("{kind} {}", control.other()), why };
    let endpoint = Endpoint::open(provider, host).map_err(absent)?;
    Ok(Box::new(RemoteLink::meet(control, &kind, endpoint, timeout)?))
}
