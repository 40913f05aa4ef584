//! Finished files: what is in them, whether they are whole, and their images as those of the ring. Another process
//! looks into them ([`konkordia_acquire::handle::FileImages`]); a few that were asked for last are kept.

pub mod cache;
mod info;
mod opening;
mod place;

pub use cache::Cache;
pub use info::{__path_file, FileInfo, file};
pub use opening::{none, open};
