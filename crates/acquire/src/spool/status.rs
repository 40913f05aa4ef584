//! What people should know of a spool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The spool of a detector: a place in memory or on a fast disk, from which finished files move to the output folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpoolStatus {
    /// Its folder.
    pub directory: String,
    /// Bytes in it.
    pub used_bytes: u64,
    /// Most bytes that may lie in it. When it is full, images wait.
    pub limit_bytes: u64,
    /// Files that are still to move.
    pub files_waiting: u64,
    /// Bytes per second that left it with the newest file; absent before the first.
    pub drain_bytes_per_s: Option<f64>,
    /// Why files cannot move now; absent if they can.
    pub problem: Option<String>,
}
