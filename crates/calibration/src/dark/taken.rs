//! What a dark run has taken.

use super::collect::Collector;
use konkordia_core::failure::Exit;

/// A dark run.
pub struct Taken {
    /// Its sums.
    pub collector: Collector,
    /// When it was taken, ISO 8601; empty if that is not known.
    pub taken: String,
    /// Where the frames come from, for people.
    pub source: String,
    /// Serial number, if it is known.
    pub serial: Option<String>,
    /// Frames with missing packets, lost frames included.
    pub incomplete_frames: u64,
    /// Notes for people.
    pub notes: Vec<String>,
    /// Not [`Exit::Complete`] if data were lost or the user stopped.
    pub exit: Exit,
}
