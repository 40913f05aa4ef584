//! Images of files of other programs into a master and data files, as a series: in parallel, resumable, compared with
//! the originals if that is wanted.

mod account;
mod job;
mod one;
mod request;
mod verify;
mod watch;

pub use crate::parallel::Progress;
pub use job::Import;
pub use request::{Done, Request};
pub use verify::Compared;
pub use watch::{Watch, WatchEnd};

#[cfg(test)]
mod tests;
