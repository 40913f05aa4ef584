//! The clock of the machine as UTC text.

use konkordia_core::moment;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now in UTC: 2026-11-21T05:18:21.123Z.
pub fn now() -> String {
    of(SystemTime::now())
}

/// A moment in UTC, in the same format.
pub fn of(moment: SystemTime) -> String {
    moment::of_unix_ms(moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}
