//! Why something of a calibration cannot be shown.

use konkordia_core::failure::{Exit, Failure};

/// Why something cannot be shown.
#[derive(Clone, Debug)]
pub enum NotShown {
    /// It is not there.
    Missing(Failure),
    /// It is there and cannot be used.
    Broken(Failure),
}

impl From<Failure> for NotShown {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
}

/// Something is not there.
pub fn missing(what: String, why: &str, fix: impl Into<String>) -> NotShown {
    NotShown::Missing(Failure::new(Exit::Configuration, what, why, fix))
}
