//! Programs that turn the header of a packet into addresses, as PSI's Ethernet to PCIe bridge does.
//!
//! The bridge of PSI reads {module, frame, packet} in the header of each packet and writes the packet to the place in
//! the memory of the host that belongs to it; what is missing stays as it was, and a bit for each packet says what
//! came.
//! PSI publishes this idea, not how its addresses are written down; the form of the programs here is ours
//! (docs/bridge.md).
//!
//! ```text
//! address = base + (frame mod slots) x slot_bytes + offset of the tile + sum of the terms of the packet + segment
//! ```
//!
//! Read [`Program`] first: it is data, from TOML or made in Rust ([`of_geometry`] makes it of an image geometry).
//! [`Program::compile`] checks all of it and gives an [`AddressTable`], which looks up addresses without allocation.
//! [`Bridge`] adds the frames: a verdict for each packet, bit masks, missing packets, and which frames are finished.

mod compile;
mod frames;
mod generate;
mod packet_filter;
mod problem;
mod program;
mod shipped;
mod table;
mod written;

pub use frames::{Account, Bridge, Closed, FrameState, Interrupt, Missing, Options, Outcome, Store, Verdict};
pub use generate::{Streams, of_geometry};
pub use packet_filter::{LookUp, METADATA_BYTES, Metadata, instructions};
pub use problem::{Problem, Problems};
pub use program::{
    Endian, HEADER_BYTES_MAX, Header, Key, PATTERNS_MAX, Places, Program, REQUIRED_MAX, Require, SEGMENTS_MAX, SLOT_BYTES_MAX,
    SLOTS_MAX, STORE_BYTES_MAX, Segment, TERMS_MAX, TEXT_BYTES_MAX, TILES_MAX, Term, Tile,
};
pub use shipped::{SHIPPED, ShippedProgram};
pub use table::{Address, AddressTable, Coverage, Refusal};
