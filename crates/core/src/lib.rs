//! The types and the rules of Konkordia: geometry, pixel values, tile assembly, the plan of a run and its ledger.
//! It never does input or output, reads a clock, starts a thread or uses `unsafe`; time and bytes come as arguments.
//! Read [`assembler::TileAssembler`] first, then [`plan::Plan`].
#![forbid(unsafe_code)]

pub mod array;
pub mod assembler;
pub mod backend;
pub mod endpoint;
pub mod experiment;
pub mod failure;
pub mod far_ahead;
pub mod first_packets;
pub mod frame_header;
pub mod geometry;
pub mod image;
pub mod ledger;
pub mod moment;
pub mod order;
pub mod output;
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
pub mod xds;

/// Most packets that a tile may have (the SLS packet mask has the same limit).
pub const MAX_PACKETS_PER_TILE: usize = 512;

/// Most images of a run: two years at 4 MHz. Arithmetic with image numbers below this limit cannot overflow.
pub const IMAGES_MAX: u64 = 1 << 48;
