//! Everything that receives: runs of a detector over UDP, the detectors of a service with their commands and events,
//! dark frames, and the consumers that get images. It never serves HTTP and never prints; whoever uses it does.
//! Read [`handle::Fleet`] first, then [`run::arm::prepare`].
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
pub mod statistics;
pub mod stopper;
mod tables;
pub mod transform;
