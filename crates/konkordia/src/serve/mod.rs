//! `konkordia serve`: detectors that are driven until told to stop, and the HTTP interface to them.

pub mod events;
pub mod handle;
pub mod http;
pub mod maxiv;
pub mod metrics;
pub mod security;
pub mod settings;
