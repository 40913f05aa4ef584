//! What `konkordia repack` says in a file of pixels that it has changed.

use super::nexus::{read_number, read_text};
use hdf5::{File, Group};

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

/// How pixels of a run were changed, by its files: what that file says of which most was changed. A master has no
/// pixels, and in some data files every image may have been stored without loss.
pub(super) fn losses_of_files<'a>(files: impl Iterator<Item = &'a File>) -> Vec<String> {
    let of_files = files.filter_map(|file| file.group(RECORD).ok()).map(|record| losses(&record));
    of_files.max_by_key(Vec::len).unwrap_or_default()
}
