//! Synthetic detectors that know the truth: images, the datagrams that carry them, a link that loses and damages
//! datagrams, and a naive pipeline that says what a correct receiver must make of the rest. It never imports the code
//! that it checks (engine, kernels, memory, wire, sources, sinks; from `core` it takes the types of the options, the
//! table of special pixel values and the hash for split pixels), never does I/O, never reads a clock: one seed
//! reproduces every byte. Read [`jungfrau::SyntheticJungfrau`] first, then [`packet::Packetiser`], [`fault::FaultLink`]
//! and [`reference::Reference`].
//!
//! ```
//! use konkordia_sim::jungfrau::{JungfrauModel, SyntheticJungfrau, raw_bytes};
//! use konkordia_sim::packet::{DetectorKind, PacketModel, Packetiser};
//!
//! let detector = SyntheticJungfrau::new(&JungfrauModel::for_modules(1))?;
//! let image = detector.image(0);
//! println!("{} photons", image.photons.iter().sum::<u32>());
//! // Packet 0 of its tile, as the module sends it.
//! let tile = raw_bytes(&image.raw);
//! let packetiser = Packetiser::new(&PacketModel::new(DetectorKind::Jungfrau { interfaces: 1 }, 1))?;
//! let mut datagram = vec![0; packetiser.layout().datagram_bytes()];
//! packetiser.write_packet(0, packetiser.frame_number(0), 0, &tile, &mut datagram);
//! assert_eq!((datagram.len(), &datagram[48..]), (48 + 8192, &tile[..8192]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod eiger;
pub mod excalibur;
pub mod fault;
pub mod jungfrau;
mod lattice;
mod normal;
pub mod packet;
pub mod presets;
pub mod processing;
pub mod reference;
pub mod rng;
pub mod roce;
pub mod scene;
pub mod xfel_train;
