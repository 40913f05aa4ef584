//! What the control plane orders of a stream path, and what that reports.

use konkordia_core::series::{SeriesEnd, SeriesStart};
use std::sync::Arc;

/// Arm parameters: what the next series is to be, where it should differ from what the sender says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArmOrder {
    /// Images to take; `None` = as many as the sender announces.
    pub images: Option<u64>,
    /// Name of the file; `None` = as the sender says.
    pub filename: Option<String>,
    /// Pass the series on without writing it.
    pub discard: bool,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A series has begun.
    Started(Arc<SeriesStart>),
    /// Its first image has come, at this time of [`super::SeriesControl::now_ns`].
    First {
        /// When.
        received_ns: u64,
    },
    /// The series is ending; messages still on their way are awaited.
    Draining {
        /// Why, for people.
        reason: String,
    },
    /// A series has ended, or an arm that no series followed. There is one for each [`Notice::Started`] and one for
    /// each arm.
    Ended(Arc<SeriesEnd>),
    /// A source failed for good.
    SourceFailed {
        /// The upstream, from 0.
        upstream: usize,
        /// Its name.
        source: String,
        /// Why.
        why: String,
    },
    /// A mistake in the program ended the sort thread: nothing more comes, and the stream path must be opened anew. A
    /// series that had begun has ended as failed; for an arm without one no [`Notice::Ended`] comes.
    Broken {
        /// What the panic said.
        why: String,
    },
    /// A source has closed connections because there were too many; sent at most every 10 s.
    Crowded {
        /// Its name.
        source: String,
        /// Connections closed since it was opened.
        refused: u64,
    },
    /// Messages are not taken; sent once per upstream, reason and series.
    Refused {
        /// The upstream, from 0.
        upstream: usize,
        /// Why, for people.
        why: String,
    },
}

/// A command to the sort thread.
#[derive(Debug)]
pub(crate) enum Command {
    Arm(ArmOrder),
    StartClock,
    Stop,
    /// With its number, see [`super::SeriesControl::is_cancelling`].
    Cancel(u64),
    Shutdown,
}
