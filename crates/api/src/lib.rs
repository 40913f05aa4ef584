//! The interfaces of a service over HTTP: commands, states, images and events, metrics, and the interface of the MAX IV
//! receiver. They see detectors only through `konkordia_acquire::handle`, and never touch a ring or a file that is being
//! written. Read [`http::Server`] first, then [`security::Role`].
#![forbid(unsafe_code)]

pub mod http;
pub mod maxiv;
pub mod metrics;
pub mod security;
