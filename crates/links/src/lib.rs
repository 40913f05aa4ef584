//! Links that write into memory which the other host (or another program of this one) has registered, and tell it when
//! the bytes are there. This crate never decides what is written where, or when a place may be written again: that is a
//! matter of those who use a link. Read [`Link`] first, then [`tcp`]; [`kind::Kind`] chooses one when the program runs.
//!
//! ```
//! use konkordia_links::{Arrival, Link, RemoteAddress, tcp};
//! use std::time::Duration;
//!
//! let wait = Duration::from_secs(5);
//! let listener = tcp::Listener::bind("127.0.0.1:0".parse()?)?;
//! let mut far = tcp::connect(listener.local_addr()?, wait)?;
//! let mut near = listener.accept(wait)?.expect("somebody has connected");
//!
//! let region = near.register(1 << 20)?;
//! far.write(b"an image", RemoteAddress { key: region.key, offset_bytes: 4096 }, Some(7))?;
//! assert_eq!(near.poll(wait)?, Some(Arrival::Event(7)));
//! let mut image = [0; 8];
//! near.read(region, 4096, &mut image)?;
//! assert_eq!(&image, b"an image");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod control;
mod device;
pub mod kind;
pub mod libfabric;
pub mod mpi;
mod remote;
pub mod shm;
mod sys;
pub mod tcp;
pub mod verbs;

use std::time::Duration;

/// Longest message of [`Link::send`], in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Memory of this side that the other side may write into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// What the other side has to name; a number that it cannot guess from that of another region.
    pub key: u64,
    /// Its size in bytes.
    pub length_bytes: usize,
}

/// A place in memory that the other side has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// [`Region::key`] of the other side.
    pub key: u64,
    /// Bytes from the beginning of that region.
    pub offset_bytes: u64,
}

/// What the other side did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It wrote with this event. The bytes of this write, and of those before it, are in memory.
    Event(u32),
    /// It sent a message. What it wrote before is in memory.
    Message(Vec<u8>),
}

/// Why a link cannot do what it should; `link` is [`Link::name`].
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each field is a part of the message above it")]
pub enum LinkError {
    /// The operating system refused.
    #[error("{link}: {source}")]
    Io { link: String, source: std::io::Error },
    /// The other side has closed the link, or its program has ended.
    #[error("{link}: the other side has closed the link")]
    Closed { link: String },
    /// The other side did what it must not. The link is of no further use.
    #[error("{link}: the other side broke the rules of the link: {why}")]
    Broken { link: String, why: String },
    /// This host lacks a library or a device.
    #[error("{link}: {why}")]
    Absent { link: String, why: String },
    /// A mistake of the caller.
    #[error("{link}: {why}")]
    Refused { link: String, why: String },
}

/// A link to one other host.
///
/// Order: the other side finds writes and messages in the order in which they were made here.
///
/// Nothing keeps the other side from writing into a region while it is read here. Who uses a link agrees with the other
/// side when a place may be written, and can see by a checksum whether that was kept.
pub trait Link: Send {
    /// Name of the kind of link and of the other side, for people, for example `tcp 10.0.0.2:9300`.
    fn name(&self) -> &str;

    /// Allocates memory, filled with zeros, that the other side may write into.
    fn register(&mut self, length_bytes: usize) -> Result<Region, LinkError>;

    /// Copies bytes of one's own region, from `offset_bytes` on.
    fn read(&self, region: Region, offset_bytes: usize, into: &mut [u8]) -> Result<(), LinkError>;

    /// Writes `bytes` to a place of the other side, which then gets `event`. Returns when `bytes` may be used again;
    /// that they have arrived is known only when the other side says so.
    fn write(&mut self, bytes: &[u8], to: RemoteAddress, event: Option<u32>) -> Result<(), LinkError>;

    /// Sends a message of at most [`MESSAGE_BYTES_MAX`].
    fn send(&mut self, message: &[u8]) -> Result<(), LinkError>;

    /// Waits for what the other side does, at most `timeout`. Writes without an event are not reported. A link makes
    /// progress in this call only, so it has to be called often.
    fn poll(&mut self, timeout: Duration) -> Result<Option<Arrival>, LinkError>;
}
