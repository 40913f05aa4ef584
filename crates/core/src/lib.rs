//! The types and the rules of Konkordia: geometry, pixel values, tile assembly, the plan of a run and its ledger.
//! It never does input or output, reads a clock, starts a thread or uses `unsafe`; time and bytes come as arguments.
//! Read [`assembler::TileAssembler`] first, then [`plan::Plan`].
//!
//! ```
//! use konkordia_core::assembler::{AssemblerSpec, TileAssembler, Verdict};
//!
//! // A stream whose tiles have 128 packets.
//! let mut stream = TileAssembler::new(AssemblerSpec {
//!     packets: 128,
//!     window_images: 4,
//!     jump_images_max: 64,
//!     gap_images_max: 1024,
//!     behind_images_max: 8,
//!     deadline_ns: 10_000_000,
//!     images: 1000,
//! });
//! let has_slot = |_| true;
//! assert_eq!(stream.on_packet(Some(0), 5, 0, has_slot), Verdict::Place { image: 0, opens: true });
//! assert_eq!(stream.on_packet(Some(0), 5, 1, has_slot), Verdict::Duplicate);
//! // A packet from before the first image of the run.
//! assert_eq!(stream.on_packet(None, 5, 1, has_slot), Verdict::Foreign);
//! ```
#![forbid(unsafe_code)]

/// Program and version, as files name who wrote them.
pub const SOFTWARE: &str = concat!("konkordia ", env!("CARGO_PKG_VERSION"));

pub mod affinity;
pub mod analysis_counts;
pub mod array;
pub mod assembler;
pub mod backend;
pub mod compression;
pub mod ebpf;
pub mod endpoint;
pub mod experiment;
pub mod failure;
pub mod far_ahead;
pub mod fields;
pub mod first_packets;
pub mod frame_header;
pub mod geometry;
pub mod image;
pub mod image_metadata;
pub mod latency;
pub mod ledger;
pub mod moment;
pub mod order;
pub mod output;
pub mod pages;
pub mod percentile;
pub mod pixel;
pub mod plan;
pub mod ports;
pub mod process;
pub mod protocol;
pub mod results;
pub mod selection;
pub mod sender;
pub mod series;
pub mod setup;
pub mod share;
pub mod sls_header;
pub mod state;
pub mod text;
pub mod tile;
pub mod user_mask;
pub mod xds;

/// Most packets that a tile may have (the SLS packet mask has the same limit).
pub const MAX_PACKETS_PER_TILE: usize = 512;

/// Most images of a run: two years at 4 MHz. Arithmetic with image numbers below this limit cannot overflow.
pub const IMAGES_MAX: u64 = 1 << 48;
