//! Everything that receives: runs of a detector over UDP, the detectors of a service with their commands and events,
//! dark frames, and the consumers that get images. It never serves HTTP and never prints; whoever uses it does.
//! Read [`handle::Fleet`] first, then [`run::arm::prepare`].
//!
//! One run, from arm to its report:
//!
//! ```no_run
//! use konkordia_acquire::run::arm::{Ports, prepare};
//! use konkordia_acquire::run::close;
//!
//! let config = konkordia_config::load("run.toml".as_ref())?;
//! let run = prepare(&config, Ports::Configured, |note| eprintln!("{note}"))?;
//! println!("waiting for packets at {:?}", run.addresses);
//! let outcome = run.armed.run();
//! let report = close(&config, &run.addresses, &run.receiving, &outcome, &run.writer, run.raw_copy.as_ref())?;
//! println!("{}", report.to_text());
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
//!
//! Detectors that take commands, as `konkordia serve` has them:
//!
//! ```no_run
//! use konkordia_acquire::handle::Command;
//! use konkordia_acquire::service::Detectors;
//!
//! let service = konkordia_config::service::load("run.toml".as_ref())?;
//! let detectors = Detectors::start(&service, |detector| detector)?;
//! let detector = &detectors.fleet().detectors[0];
//! detector.command(Command::Arm(Box::default())).expect("ready for the first packet");
//! println!("{}", detector.status().message);
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod dark;
pub mod detector;
pub mod events;
pub mod fanout;
pub mod handle;
pub mod hooks;
pub mod machine;
pub mod paths;
pub mod readiness;
pub mod run;
pub mod service;
pub mod statistics;
pub mod stopper;
mod tables;
pub mod transform;
