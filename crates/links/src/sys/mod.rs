//! Libraries of C that are opened at run time (libfabric, libibverbs and Open MPI), and memory that programs share. All
//! `unsafe` of this crate is here.

mod library;
mod memory;
mod signals;

#[cfg(test)]
mod abi_tests;
#[cfg(test)]
#[path = "../../../../tests/skip.rs"]
mod skip;

pub(crate) mod fabric;
mod fabric_abi;
pub(crate) mod mpi;
pub(crate) mod shared;
pub(crate) mod verbs;
mod verbs_abi;
pub(crate) mod verbs_states;
