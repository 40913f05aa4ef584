//! `konkordia serve`: runs detectors until it is told to stop, with an HTTP interface to them.

pub mod client;
pub mod command;
