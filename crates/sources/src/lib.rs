//! Sources of bytes: UDP sockets that receive and send datagrams in large batches, AF_XDP sockets that receive them
//! past the network stack, ZeroMQ sockets and folders that hand over whole messages, and sources that replay kept ones.
//! It never looks into a datagram or a message and knows no detector. Read [`udp::UdpReceiver`], [`xdp::open`] and
//! [`zmq::ZmqSource`] first.

mod connections;
pub mod directory;
pub mod limits;
pub mod memory;
pub mod replay;
mod sys;
pub mod udp;
pub mod xdp;
pub mod zmq;
