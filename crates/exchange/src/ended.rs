//! How an import or an export ended.

use konkordia_core::failure::Exit;

/// The exit code after `lost` images without pixels, or after a stop.
pub(crate) fn exit_of(stopped: bool, lost: u64) -> Exit {
    match (stopped, lost) {
        (true, _) => Exit::Interrupted,
        (false, 0) => Exit::Complete,
        (false, _) => Exit::Incomplete,
    }
}
