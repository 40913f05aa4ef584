//! Receiving with AF_XDP: a program in the kernel (`filter.rs`) sees every frame of a network interface before the
//! network stack does, and puts the detector's datagrams into memory of this process; all other traffic goes on to the
//! kernel unchanged. A datagram costs no system call, and is copied once less than with a socket: never, if the card
//! writes to that memory itself (zero-copy) and the datagram lies in one chunk.
//!
//! What is where: each queue of the interface has *packet memory* in chunks of 4096 bytes (2048 if the MTU is small)
//! and one ring of free chunks, which its streams share. Each stream has a socket with a receive ring on each queue
//! (`rings.rs`, `receiver.rs`). A stream that is too slow fills its own ring only: the memory has chunks for all rings.
//! A datagram that is longer than a chunk (jumbo frames) comes in several, which are put together in memory of the
//! receiver.
//!
//! Each stream also has an ordinary socket on its port. It reserves the port, and gets what the program leaves to the
//! kernel: fragments, packets with IP options, packets of queues without a socket.
//!
//! Who checks what: the network card the Ethernet checksum; this process the lengths and the checksums of IPv4 and UDP
//! (`../frame.rs`), because the kernel hands nothing on of what the card found out.
//!
//! Source: Documentation/networking/af_xdp.rst and Documentation/bpf of Linux.

mod errors;
mod filter;
mod indices;
mod losses;
mod opening;
mod receiver;
mod rings;
mod sys;

pub use filter::PutMetadata;
pub use losses::Losses;
pub use opening::{NoSockets, Options, Ways, memory_bytes, open, open_shared, open_with_metadata};
pub use receiver::{Report, Traffic, XdpReceiver};
pub use rings::METADATA_BYTES;

#[cfg(test)]
#[path = "veth_tests.rs"]
mod veth_tests;
