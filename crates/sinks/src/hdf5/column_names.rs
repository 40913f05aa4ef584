//! The names that the per-image columns of a run have.

use super::checksum::CHECKSUM;

const FIXED: [&str; 9] = [
    "frame_number",
    "status",
    "packets_received",
    "packet_bitmap",
    "timestamp",
    "bunch_id",
    "exposure",
    "detector_info",
    CHECKSUM,
];

/// Whether an additional column must not have this name.
pub(crate) fn is_reserved(name: &str) -> bool {
    FIXED.contains(&name)
}
