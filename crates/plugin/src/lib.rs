//! Filter plug-ins of HDF5, in both directions: the arithmetic of this program as a plug-in for programs of others
//! ([`bitshuffle`]), and plug-ins of others, which decode chunks for this program ([`others`]). It never links to
//! libhdf5, starts no process, and keeps nothing between two chunks. Read [`bitshuffle::apply`] first, then
//! [`others::decode`].

#![deny(unsafe_code)]

pub mod bitshuffle;
mod elements;
pub mod others;
#[allow(unsafe_code)]
pub mod sys;
