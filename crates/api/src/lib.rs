//! The interfaces of a service over HTTP: commands, states, images and events, metrics, and those that other
//! systems know. They see detectors only through `konkordia_acquire::handle`, and never touch a ring or an open file.
//! Read [`maxiv::api`] first, which is small, then [`http::Server`] and [`security::Role`].
//!
//! ```no_run
//! use konkordia_acquire::service::Detectors;
//! use konkordia_api::http::{Settings, spawn};
//! use std::sync::Arc;
//!
//! let service = konkordia_config::service::load("run.toml".as_ref())?;
//! let detectors = Detectors::start(&service, |detector| detector)?;
//! let server = spawn(Arc::clone(detectors.fleet()), Settings::from(&service.settings.http))?;
//! println!("{}", server.url());
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod adapters;
pub mod http;
pub mod jfjoch;
pub mod maxiv;
pub mod metrics;
pub mod security;
pub mod simplon;
