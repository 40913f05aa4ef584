//! The rules by which images of several detectors and numbers of other devices are joined by trigger number: the file
//! that describes a join, what belongs together, how long is waited, and the account of all parts. It opens no sockets,
//! starts no threads and reads no clock. Read [`rules::Join`] first, then [`account::SourceAccount`].
//!
//! ```
//! use konkordia_join::rules::{Join, JoinSpec, SourceSpec};
//!
//! let source = |name: &str| SourceSpec { name: name.into(), is_required: true };
//! let sources = vec![source("left"), source("right")];
//! let mut join = Join::new(JoinSpec { sources, timeout_us: 1000, is_kept: true, bytes_max: 1 << 20 });
//! join.offer(0, 7, "left", 100, 0);
//! join.offer(1, 7, "right", 100, 10);
//! let joined = join.pop().expect("both have come");
//! assert_eq!((joined.trigger, joined.parts), (7, vec![Some("left"), Some("right")]));
//! ```
#![forbid(unsafe_code)]

pub mod account;
pub mod file;
pub mod ranges;
pub mod rules;
#[cfg(test)]
mod simulated;
