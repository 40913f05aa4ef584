//! The arithmetic of Konkordia as free functions over slices: conversion, bit transposition, compression, and the three
//! fused. It never reads a clock, does input or output, or starts a thread, and it keeps no state of its own between
//! images: what has to last (tracked pedestals, sums) belongs to the caller. Read [`convert`] first, then
//! [`fused::FusedScratch`] and [`codec`].

pub mod baseline;
pub mod bitshuffle;
pub mod byte_offset;
pub mod chains;
pub mod chunk;
pub mod codec;
pub mod constants;
pub mod convert;
pub mod deflate;
pub mod finish;
pub mod fused;
pub mod isa;
pub mod lz4;
pub mod pedestal;
pub mod planes;
pub mod stats;
pub mod sz3;
pub mod transform;
pub mod unpack;
pub mod zstd;

pub use bitshuffle::ElementSize;
pub use convert::{Constants, OutputPixel};
pub use isa::Isa;
