//! The arithmetic of Konkordia as free functions over slices: conversion, bit transposition, compression, and the three
//! fused. It never reads a clock, does input or output, or starts a thread, and it keeps no state of its own between
//! images: what has to last (tracked pedestals, sums) belongs to the caller. Read [`convert`] first, then
//! [`fused::FusedScratch`] and [`codec`].
//!
//! ```
//! use konkordia_core::plan::Compression;
//! use konkordia_kernels::codec::{compress, decompress};
//! use konkordia_kernels::convert::jungfrau;
//! use konkordia_kernels::{Constants, ElementSize, Isa};
//!
//! // Words in G0, each 100 ADU above its pedestal: one photon.
//! let (words, pedestal, factor) = ([3100u16; 64], [3000.0f32; 64], [0.01f32; 64]);
//! let constants = Constants { pedestal: [&pedestal[..]; 3], factor: [&factor[..]; 3] };
//! let mut pixels = [0i16; 64];
//! jungfrau(Isa::detect(), &words, &constants, &mut pixels);
//! assert_eq!(pixels, [1; 64]);
//!
//! let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
//! let element = ElementSize::new(2).expect("pixels of 16 bits");
//! let chunk = compress(Compression::BSLZ4, Isa::detect(), element, &bytes, 1 << 17);
//! let mut back = vec![0; bytes.len()];
//! decompress(Compression::BSLZ4, Isa::detect(), &chunk, element, &mut back).expect("a whole chunk");
//! assert_eq!(back, bytes);
//! ```

pub mod above;
pub mod azimuthal;
pub mod baseline;
pub mod bitshuffle;
pub mod byte_offset;
pub mod chains;
pub mod chunk;
pub mod codec;
pub mod constants;
pub mod convert;
pub mod deflate;
pub mod dispersion;
pub mod finish;
pub mod fused;
pub mod isa;
pub mod length;
pub mod lz4;
pub mod pedestal;
pub mod placement;
pub mod planes;
pub mod radial;
pub mod regions;
pub mod rounding;
pub mod stats;
pub mod sz3;
pub mod transform;
pub mod unpack;
pub mod zstd;

pub use bitshuffle::ElementSize;
pub use convert::{Constants, OutputPixel};
pub use isa::Isa;
