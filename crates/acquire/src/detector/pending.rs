//! The command of an actor that takes its time.

use crate::handle::{ArmRequest, Reply};
use crossbeam_channel::Sender;
use std::time::{Duration, Instant};

/// A command that is being carried out.
pub struct Pending {
    /// Its number.
    pub ticket: u64,
    /// Which one.
    pub verb: Verb,
    /// Who sent it.
    pub by: String,
    /// Where the answer goes.
    pub reply: Sender<Reply>,
    /// Since when.
    pub begun: Instant,
    /// The command counts as failed after this time.
    pub limit: Duration,
    /// Its run is launched, and the driver is arming the detector.
    pub is_launched: bool,
}

/// The commands that take their time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Arm.
    Arm,
    /// Start while nothing is armed.
    ArmAndStart,
    /// Start what is armed.
    Start,
    /// Expose.
    Trigger,
}

impl Verb {
    /// As people send it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arm => "arm",
            Self::ArmAndStart | Self::Start => "start",
            Self::Trigger => "trigger",
        }
    }

    /// True if it begins with an arm.
    pub const fn arms(self) -> bool {
        matches!(self, Self::Arm | Self::ArmAndStart)
    }
}

/// True if a request has no parameters.
pub fn is_plain(request: &ArmRequest) -> bool {
    request.images.is_none()
        && request.prefix.is_none()
        && request.write.is_none()
        && request.metadata.is_empty()
        && !request.append
}
