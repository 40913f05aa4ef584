//! Calls of C functions other than those of HDF5.

pub(crate) mod space;
pub(crate) mod writeback;
pub(crate) mod zmq;
