//! One run from arm to idle: its files, its report, its end.

pub mod angles;
pub mod arm;
pub mod host;
mod memory_limit;
pub mod placement;
pub mod raw_copy;
mod recorded;
pub mod report;
pub mod setup;

use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::series::Ended;
use konkordia_doctor::counters::Counters;
use konkordia_engine::run::{RunFailure, RunOutcome};
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::RunFiles;
use konkordia_sources::backend::Receiving;
use raw_copy::RawCopy;
use report::Report;
use std::net::SocketAddr;

/// Closes the files and makes the report. `addresses` are those of the streams, in stream order; `host` is what the
/// host had counted when the run was armed ([`arm::Prepared::host`]).
///
/// # Errors
/// The files cannot be completed, for example because the disk is full.
pub fn close(
    config: &Config,
    addresses: &[SocketAddr],
    receiving: &Receiving,
    host: &Counters,
    outcome: &RunOutcome,
    files: &RunFiles,
    raw_copy: Option<&RawCopy>,
) -> Result<Report, Failure> {
    let names: Vec<String> = addresses.iter().map(report::stream_name).collect();
    let mut record = report::ledger_record(config, &names, outcome, clock::now());
    report::add_refused(&mut record, receiving);
    let host = host::rows(host, addresses, outcome);
    record.totals.extend(host.iter().cloned());
    let file = files.finish(&record).transpose();
    let raw = raw_copy.and_then(RawCopy::finish).transpose();
    Ok(Report::new(config, &names, outcome, file?).with_receiving(receiving).with_raw(raw?).with_host(host))
}

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
