//! Bytes in: UDP sockets that receive and send datagrams in large batches, and sources that repeat datagrams from memory.
//! It never looks into a datagram and knows no detector. Read [`udp::UdpReceiver`] first.

pub mod memory;
mod sys;
pub mod udp;
