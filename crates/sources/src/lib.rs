//! Sources of bytes: UDP sockets and packet rings that receive datagrams in large batches, ZeroMQ sockets and folders
//! that hand over whole messages, and sources that replay kept ones. It never looks into a datagram or a message and
//! knows no detector. Read [`backend::open`], [`udp::UdpReceiver`] and [`zmq::ZmqSource`] first.

pub mod backend;
mod connections;
pub mod directory;
pub mod limits;
pub mod memory;
pub mod packet;
pub mod replay;
mod sys;
pub mod udp;
pub mod zmq;
