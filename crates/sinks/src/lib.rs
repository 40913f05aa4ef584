//! The outputs of the program for committed images: NeXus HDF5 files, written so that a killed run loses at most the
//! last second, and ZeroMQ messages. It never computes a pixel (chunks arrive compressed, decoders arrive as callbacks)
//! and starts one kind of thread, which brings files to the disk. Read [`hdf5::Writer`] first, then
//! [`hdf5::spec::FileSpec`]; docs/formats.md has every path of the files.
#![deny(unsafe_code)]

pub mod clock;
pub mod durable;
pub mod hdf5;
#[allow(unsafe_code)]
mod sys;
pub mod zmq;
