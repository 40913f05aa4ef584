//! Replacement for the streaming-receiver of MAX IV: its HTTP interface and its configuration, for an ordinary detector
//! of the service.

pub mod api;
mod docs;
mod pickle;
pub mod server;
pub mod yaml;
