//! The answer of the service with all of its detectors.

use konkordia_acquire::handle::DetectorStatus;
use serde::Deserialize;

/// All detectors.
#[derive(Debug, Deserialize)]
pub struct Detectors {
    /// In the order of the configuration.
    pub detectors: Vec<DetectorStatus>,
}
