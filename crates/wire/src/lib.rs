//! The formats of packets, messages and files: one source file per format, which hands out checked views of the bytes
//! and, for messages, their meaning and the messages of our own images. It never receives, stores or unpacks pixels,
//! and no view can be built without its checks. Read [`packet::Decoder`] and [`sls_udp::Packet`] first, and for
//! messages [`stream::Pixels`], [`message::MessageDecoder`] and [`protocols`].
//!
//! ```
//! use konkordia_core::sls_header::SlsHeader;
//! use konkordia_core::tile::{DetectorKind, TileFormat};
//! use konkordia_wire::sls_udp::{Packet, write_header};
//!
//! let format = TileFormat::jungfrau(1).expect("a module with one interface");
//! let mut datagram = vec![0; 48 + 8192];
//! let header = SlsHeader { frame_number: 7, ..SlsHeader::default() };
//! write_header(&header, DetectorKind::Jungfrau, 5, &mut datagram);
//! let packet = Packet::new_checked(&datagram, &format).expect("a packet of this detector");
//! assert_eq!((packet.frame_number(), packet.packet(), packet.payload().len()), (7, 5, 8192));
//! // A datagram that was cut is none.
//! assert!(Packet::new_checked(&datagram[..1000], &format).is_err());
//! ```
#![forbid(unsafe_code)]

pub mod blob;
pub mod cbf;
pub mod cbor;
pub mod dectris_v1;
pub mod dectris_v2;
pub mod edf;
pub mod excalibur;
pub mod files;
pub mod formats;
pub mod hsb_metadata;
pub mod joined;
pub mod karabo_bridge;
pub mod message;
pub mod packet;
pub mod protocols;
pub mod rashpa_event;
pub mod rdma_udp;
pub mod roce;
pub mod roce_frames;
pub mod scalar;
mod shared;
pub mod sls_file;
pub mod sls_json;
pub mod sls_master;
pub mod sls_udp;
pub mod spe;
pub mod stins;
pub mod stream;
pub mod tiff;
pub mod unpacker;
pub mod xfel_train;
pub mod zmsg;
