//! `konkordia serve`: runs detectors until it is told to stop, with an HTTP interface to them.

pub mod client;
pub mod command;
pub mod detector;
pub mod events;
pub mod fanout;
pub mod handle;
pub mod hooks;
pub mod http;
pub mod maxiv;
pub mod metrics;
pub mod paths;
pub mod readiness;
pub mod security;
pub mod statistics;
mod tables;
pub mod transform;
