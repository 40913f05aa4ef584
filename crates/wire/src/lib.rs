//! What bytes on the wire mean: one file per format, each handing out checked views of a datagram.
//! It never receives, stores or interprets pixels, and there is no way to build a view without its checks.
//! Read [`sls_udp::Packet`] first.
#![forbid(unsafe_code)]

pub mod sls_udp;
