//! What a run has opened, which its report needs after the run.

use super::host;
use super::raw_copy::RawCopy;
use super::raw_far::RawFar;
use super::report::{self, Report};
use crate::spool::{Spool, SpoolRun};
use konkordia_config::Config;
use konkordia_core::failure::Failure;
use konkordia_core::series::RunFileText;
use konkordia_doctor::counters::Counters;
use konkordia_engine::run::RunOutcome;
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::{Error, FileReport, LedgerRecord, RunFiles};
use konkordia_sources::backend::Receiving;
use std::net::SocketAddr;
use std::sync::Arc;

/// The files and the streams of a run.
#[derive(Clone)]
pub struct Opened {
    /// Its files.
    pub files: RunFiles,
    /// What its files say, if they are written on other hosts too.
    pub run_file: Option<Arc<RunFileText>>,
    /// The spool of a run that has one for itself; that of a service belongs to its detector.
    pub spool: Option<Arc<Spool>>,
    /// The run in the spool, if its files go through one.
    pub spooled: Option<Arc<SpoolRun>>,
    /// Closes the files of raw frames, if raw frames are kept.
    pub raw_copy: Option<RawCopy>,
    /// Gives the raw frames to writers on other hosts, if there are any.
    pub raw_far: Option<RawFar>,
    /// The address on which each stream is received.
    pub addresses: Vec<SocketAddr>,
    /// Through what they are received.
    pub receiving: Receiving,
    /// What the host had counted when everything was ready.
    pub host: Counters,
}

/// The ledger of a run that is over, as its files get it.
pub(crate) struct ClosingLedger {
    pub names: Vec<String>,
    pub record: LedgerRecord,
    pub host: Vec<(String, u64)>,
}

impl Opened {
    /// The names of the streams, the ledger for the file, and what the host has counted since.
    pub(crate) fn closing_ledger(&self, config: &Config, outcome: &RunOutcome) -> ClosingLedger {
        let names: Vec<String> = self.addresses.iter().map(report::stream_name).collect();
        let mut record = report::ledger_record(config, &names, outcome, clock::now());
        report::add_refused(&mut record, &self.receiving);
        let host = host::rows(&self.host, &self.addresses, outcome);
        record.totals.extend(host.iter().cloned());
        ClosingLedger { names, record, host }
    }

    /// Gives the ledger to the writers on other hosts, before the end of the run is handed to them.
    pub(crate) fn tell_writers(&self, record: &LedgerRecord, outcome: &RunOutcome) {
        if let Some(file) = &self.run_file {
            let _ = file.ledger.set(crate::remote::ledger_text(record));
        }
        if let Some(far) = &self.raw_far {
            far.finish(record, outcome.ledger.frames.passed, crate::remote::ledger_text);
        }
    }

    /// Closes the files; `None` if there are none. Files in a spool are named as they are when all have moved, which
    /// takes longer ([`SpoolRun::wait`]).
    pub(crate) fn finish(&self, record: &LedgerRecord) -> Option<Result<FileReport, Error>> {
        let done = self.files.finish(record)?;
        let Some(run) = &self.spooled else { return Some(done) };
        match &done {
            Ok(file) => run.over(file.images),
            Err(_) => run.leave(),
        }
        Some(done.map(|file| run.in_target(file)))
    }

    /// Closes the files and makes the report.
    ///
    /// # Errors
    /// The files cannot be completed, for example because the disk is full.
    pub fn close(&self, config: &Config, outcome: &RunOutcome) -> Result<Report, Failure> {
        let ClosingLedger { names, record, host } = self.closing_ledger(config, outcome);
        self.tell_writers(&record, outcome);
        let file = self.finish(&record).transpose();
        let raw = self.raw_copy.as_ref().and_then(RawCopy::finish).transpose();
        Ok(Report::new(config, &names, outcome, file?).with_receiving(&self.receiving).with_raw(raw?).with_host(host))
    }
}
