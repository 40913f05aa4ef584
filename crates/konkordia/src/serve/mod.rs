//! `konkordia serve`: runs detectors until it is stopped, with an HTTP interface to them.

pub mod adapters;
pub mod client;
pub mod command;
mod supervisor;
