//! Synthetic detectors that know the truth: images, the datagrams that carry them, a link that loses and damages
//! datagrams, and a naive pipeline that says what a correct receiver must make of the rest. It never imports the code
//! that it checks (engine, kernels, memory, wire, sources, sinks; from `core` it takes the types of the options, the
//! table of special pixel values and the hash for split pixels), never does I/O, never reads a clock: one seed
//! reproduces every byte. Read [`jungfrau::SyntheticJungfrau`] first, then [`packet::Packetiser`], [`fault::FaultLink`]
//! and [`reference::Reference`].
#![forbid(unsafe_code)]

pub mod eiger;
pub mod fault;
pub mod jungfrau;
mod lattice;
mod normal;
pub mod packet;
pub mod presets;
pub mod processing;
pub mod reference;
pub mod rng;
pub mod scene;
pub mod xfel_train;
