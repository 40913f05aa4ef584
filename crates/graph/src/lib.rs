//! The rules of a graph of stages, which work on images in processes and hosts of their own: the file that describes
//! it, the messages, who gets which image, and what is sent again when a process dies. It opens no sockets, starts no
//! threads and reads no clock. Read [`producer::Producer`] first, then [`consumer::Consumer`].
//!
//! An image has one number in the whole graph, its position in the file. A producer keeps it until the stage behind has
//! said [`message::Message::Done`]: the image is on the disk of the last stage, or that stage wants nothing of it. So a
//! process that dies takes nothing along. An image may be sent twice; each stage takes a number once (decision 0053).
#![forbid(unsafe_code)]

pub mod account;
pub mod consumer;
pub mod file;
pub mod message;
pub mod producer;
#[cfg(test)]
mod simulated;
