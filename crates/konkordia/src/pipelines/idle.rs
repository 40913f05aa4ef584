//! Whether the detectors of a service are idle, and since when.

use crate::serve::client::http::Client;
use crate::serve::client::list::Detectors;
use konkordia_core::failure::Failure;
use std::time::{Duration, Instant};

/// Time between two looks at the service.
pub const LOOK: Duration = Duration::from_secs(1);
/// Longest time of one look.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at a service again and again.
pub struct Idle {
    client: Client,
    since: Option<Instant>,
}

impl Idle {
    /// For this service.
    pub fn new(client: Client) -> Self {
        Self { client, since: None }
    }

    /// For how long no detector has been armed or running, as far as it was looked at. A service that does not answer
    /// is not known to be idle.
    ///
    /// # Errors
    /// The service does not answer.
    pub fn look(&mut self) -> Result<Option<Duration>, Failure> {
        let answer = self.client.get_within::<Detectors>("detectors", &[], PATIENCE);
        match answer {
            Ok(list) if list.detectors.iter().any(|status| status.state.has_run()) => self.since = None,
            Ok(_) => {
                self.since.get_or_insert_with(Instant::now);
            }
            Err(failure) => {
                self.since = None;
                return Err(failure);
            }
        }
        Ok(self.since.map(|since| since.elapsed()))
    }

    /// Counts from now on.
    pub fn restart(&mut self) {
        self.since = None;
    }
}
