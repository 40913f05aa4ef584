//! One run from arm to idle: its files, its report, its end.

pub mod angles;
pub mod arm;
pub mod host;
pub mod memory_limit;
pub mod opened;
pub mod placement;
pub mod raw_copy;
pub mod raw_far;
mod recorded;
pub mod report;
pub mod setup;

use konkordia_core::failure::{Exit, Failure};
use konkordia_core::series::Ended;
use konkordia_engine::run::{RunFailure, RunOutcome};

/// The exit code for the end of a run, and the failure to report, if there is one.
pub fn exit_of(outcome: &RunOutcome, planned: bool, interrupted: bool) -> (Exit, Option<Failure>) {
    let whole = if outcome.is_success() { Exit::Complete } else { Exit::Incomplete };
    // After a panic the ledger need not balance: the run was cut short.
    if !outcome.has_panicked() && !outcome.ledger.imbalances().is_empty() {
        return (Exit::Bug, None);
    }
    match (&outcome.failure, outcome.ended) {
        (Some(RunFailure::Sink(error)), _) => (Exit::Io, Some(error.clone().into())),
        (Some(RunFailure::Source(stream, error)), _) => {
            let why = konkordia_core::failure::reason(error);
            (
                Exit::Io,
                Some(Failure::new(
                    Exit::Io,
                    format!("stream {stream} cannot receive any more"),
                    why,
                    "look at the network card: `ip link`",
                )),
            )
        }
        (Some(RunFailure::NoThread(error)), _) => {
            let why = konkordia_core::failure::reason(error);
            let fix = "end other programs, or raise the limit: `ulimit -u`, TasksMax of the service";
            (Exit::Io, Some(Failure::new(Exit::Io, "no thread could be started for the run", why, fix)))
        }
        (Some(RunFailure::Panicked(panic)), _) => (Exit::Bug, Some(panic.into())),
        (None, Ended::Stopped) if interrupted => (Exit::Interrupted, None),
        (None, Ended::NoData) => (Exit::Timeout, None),
        (None, Ended::Stalled) if planned && whole == Exit::Incomplete => (Exit::Timeout, None),
        (None, _) => (whole, None),
    }
}
