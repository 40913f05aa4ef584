//! `konkordia serve`: runs detectors until it is told to stop, with an HTTP interface to them.

pub mod client;
pub mod command;
pub mod http;
pub mod maxiv;
pub mod metrics;
pub mod security;
