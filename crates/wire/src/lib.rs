//! The formats of packets, messages and files: one source file per format, which hands out checked views of the bytes
//! and, for messages, their meaning and the messages of our own images. It never receives, stores or unpacks pixels,
//! and no view can be built without its checks. Read [`packet::Decoder`] and [`sls_udp::Packet`] first, and for
//! messages [`stream::Pixels`], [`message::MessageDecoder`] and [`protocols`].
#![forbid(unsafe_code)]

pub mod cbf;
pub mod cbor;
pub mod dectris_v1;
pub mod dectris_v2;
pub mod edf;
pub mod files;
pub mod formats;
pub mod message;
pub mod packet;
pub mod protocols;
mod shared;
pub mod sls_file;
pub mod sls_json;
pub mod sls_master;
pub mod sls_udp;
pub mod stins;
pub mod stream;
pub mod tiff;
pub mod unpacker;
pub mod xfel_train;
pub mod zmsg;
