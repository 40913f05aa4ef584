//! A bounded place in memory or on a fast disk, for targets that are slower than the detector
//! (docs/decisions/0032-spool.md).
//!
//! The files of a run are written into a folder of its own in the spool, as they would be in the target. The thread
//! `drain` moves finished files to the target, the master last. The bound is in bytes; while the spool is full, the
//! sink of the files waits. Read [`Spool`] first, then `moving.rs` and [`left_over`].

mod drain;
mod folder;
pub mod left_over;
mod moving;
mod note;
mod sink;
pub mod status;
#[cfg(test)]
mod tests;

pub use drain::{News, Spool, SpoolReport, SpoolRun};
pub use sink::{CurrentRun, SpooledSink};
