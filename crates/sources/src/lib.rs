//! Sources of bytes: UDP sockets, packet rings, AF_XDP sockets and RDMA cards that receive datagrams in large batches,
//! ZeroMQ sockets and folders that hand over whole messages, and sources that replay kept ones. It never looks into a
//! datagram or a message and knows no detector. Read [`backend::open`], [`udp::UdpReceiver`] and [`zmq::ZmqSource`]
//! first.
//!
//! ```
//! use konkordia_core::ports::Source;
//! use konkordia_sources::udp::{UdpReceiver, UdpSender};
//! use std::time::Duration;
//!
//! let mut receiver = UdpReceiver::bind("127.0.0.1:0".parse()?, 1 << 20)?;
//! let mut sender = UdpSender::connect(receiver.local_addr()?)?;
//! sender.send(b"a packet")?;
//! let mut datagrams = Vec::new();
//! while datagrams.is_empty() {
//!     receiver.receive(Duration::from_millis(100), &mut |datagram, _| datagrams.push(datagram.to_vec()))?;
//! }
//! assert_eq!(datagrams, [b"a packet"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod backend;
mod connections;
pub mod directory;
mod expected;
pub mod frame;
#[cfg(test)]
#[path = "../tests/common/frames.rs"]
mod frames;
pub mod limits;
pub mod memory;
pub mod packet;
#[cfg(test)]
#[path = "../tests/common/place.rs"]
mod place;
pub mod replay;
mod rights;
pub mod shared_port;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
mod sys;
pub mod udp;
pub mod verbs;
#[cfg(test)]
#[path = "../tests/common/wire.rs"]
mod wire;
pub mod xdp;
pub mod zmq;
