//! What `konkordia repack` says in a file of pixels that it has changed.

use super::nexus::{read_number, read_text};
use hdf5::Group;

/// Group that records how a file was repacked, in every repacked file.
pub const RECORD: &str = "/entry/konkordia/repack";
/// The record of the repacking before, if pixels have changed until then; in the record of the last one.
pub(super) const EARLIER: &str = "earlier";
/// A damaged file may contain itself.
const EARLIER_MAX: usize = 16;

/// How pixels were changed until a repacking with this record, last time first; empty if none was.
pub(super) fn losses(record: &Group) -> Vec<String> {
    let mut record = Some(record.clone());
    let mut losses = Vec::new();
    for _ in 0..EARLIER_MAX {
        let Some(group) = record else { break };
        if read_number(&group, "pixels_changed").is_some_and(|pixels| pixels > 0.0) {
            losses.push(read_text(&group, "compression").unwrap_or_else(|| "it is not said how".into()));
        }
        record = group.group(EARLIER).ok();
    }
    losses
}
