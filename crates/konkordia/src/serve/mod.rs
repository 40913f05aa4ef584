//! `konkordia serve`: detectors that are driven until told to stop, and the HTTP interface to them.

pub mod events;
pub mod handle;
pub mod maxiv;
pub mod settings;
