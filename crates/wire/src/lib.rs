//! What bytes on the wire, and in the files that receivers made of them, mean: one file per format, each handing out checked views.
//! It never receives, stores or interprets pixels, and there is no way to build a view without its checks.
//! Read [`sls_udp::Packet`] first, and for messages of several parts [`stream::Pixels`].
#![forbid(unsafe_code)]

pub mod cbf;
pub mod cbor;
pub mod dectris_v1;
pub mod dectris_v2;
pub mod edf;
pub mod sls_file;
pub mod sls_json;
pub mod sls_master;
pub mod sls_udp;
pub mod stins;
pub mod stream;
pub mod tiff;
pub mod zmsg;
