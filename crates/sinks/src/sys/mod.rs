//! Calls of C functions outside of HDF5.

pub(crate) mod writeback;
pub(crate) mod zmq;
