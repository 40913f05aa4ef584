//! The rules of fabrics by which a sender writes into the memory of a receiver: RoCEv2, RASHPA, PSI's bridge, and the
//! train builder of European XFEL. It opens no sockets, starts no threads and reads no clock: packets, times and memory
//! come as arguments, and what has to be done comes back as values. Read [`regions`] first: nothing is written outside
//! of a registered region; of the train builder, read [`trains`].
#![forbid(unsafe_code)]

pub mod bridge;
pub mod card;
pub mod loss;
pub mod rashpa;
pub mod rdma_udp;
pub mod regions;
pub mod remote;
pub mod roce;
pub mod trains;
