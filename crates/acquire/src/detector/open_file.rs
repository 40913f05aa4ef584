//! Files that stay open behind their runs, so that the next run is appended: one file for the points of a scan.
//! Images count on from run to run, and so does the ledger of the file.

use crate::handle::{FileEntry, FileTotals, OpenFileStatus};
use crate::run::arm::Append;
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_engine::run::RunOutcome;
use konkordia_sinks::hdf5::{FileReport, LedgerRecord, Positions, RunFiles, master_path};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Facts of a stream that are no counters, and are not summed.
const FACTS: &str = "header_";

/// A file that stays open behind its runs.
pub struct OpenFile {
    files: RunFiles,
    master: PathBuf,
    /// Where the files lie, and the start of their names.
    place: (PathBuf, String),
    /// The prefix and the metadata with which its first run was armed.
    asked: (Option<String>, Map<String, Value>),
    first_run: u64,
    runs: u64,
    before: Positions,
    images_expected: Option<u64>,
    ledger: LedgerRecord,
    is_complete: bool,
}

impl OpenFile {
    /// The file of a first run, armed with this prefix.
    pub fn new(config: &Config, prefix: Option<String>, run: u64, files: RunFiles) -> Self {
        Self {
            files,
            master: master_path(&config.directory, &config.prefix),
            place: (config.directory.clone(), config.prefix.clone()),
            asked: (prefix, config.given.clone()),
            first_run: run,
            runs: 0,
            before: Positions::default(),
            images_expected: Some(0),
            ledger: LedgerRecord::default(),
            is_complete: true,
        }
    }

    /// What a further run needs, armed with this prefix and these metadata.
    ///
    /// # Errors
    /// It belongs to another file.
    pub fn append(&self, prefix: Option<&String>, given: &Map<String, Value>) -> Result<Append, Failure> {
        let refuse = |why: String| {
            let fix = "arm with the prefix and the metadata of its first run, or close it first (`konkordia close`)";
            Err(Failure::new(Exit::Configuration, format!("{} is open", self.master.display()), why, fix))
        };
        if prefix.is_some_and(|prefix| Some(prefix) != self.asked.0.as_ref()) {
            return refuse("a run with another prefix cannot be appended to it".into());
        }
        if !given.is_empty() && *given != self.asked.1 {
            return refuse("a run with other metadata cannot be appended to it: they were written with its first run".into());
        }
        Ok(Append { behind: Some((self.files.clone(), self.before)) })
    }

    /// Where its files lie, the start of their names, and the metadata of its first run.
    pub fn place(&self) -> (PathBuf, String, Map<String, Value>) {
        (self.place.0.clone(), self.place.1.clone(), self.asked.1.clone())
    }

    /// A run has ended, of which so many images were planned.
    pub fn add(&mut self, record: LedgerRecord, outcome: &RunOutcome, planned: Option<u64>) {
        self.runs += 1;
        self.before.images += outcome.images;
        self.before.frames += outcome.ledger.frames.passed;
        self.images_expected = self.images_expected.zip(planned).map(|(sum, planned)| sum + planned);
        self.is_complete &= outcome.failure.is_none() && outcome.is_complete() && outcome.images > 0;
        self.ledger = sum(std::mem::take(&mut self.ledger), record);
    }

    /// For the status of the detector.
    pub fn status(&self) -> OpenFileStatus {
        OpenFileStatus { file: self.master.display().to_string(), runs: self.runs, images: self.before.images }
    }

    /// Runs that are in it.
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// Closes it. `None` if it has no files any more.
    pub fn finish(&self) -> Option<Result<FileReport, konkordia_sinks::hdf5::Error>> {
        let mut ledger = self.ledger.clone();
        if self.runs > 1 {
            self.files.forget_latency();
            ledger.totals.push(("runs".into(), self.runs));
        }
        self.files.finish(&ledger)
    }

    /// The entry in the list of files, of closed ones.
    pub fn entry(&self, detector: &str, report: Option<&FileReport>, has_failed: bool) -> FileEntry {
        let writing = FileEntry::writing(detector, self.first_run, &self.master.display().to_string());
        let totals = FileTotals {
            images: report.map_or(self.before.images, |report| report.images),
            images_expected: self.images_expected,
            bytes: report.map_or(0, |report| report.chunk_bytes),
            unpacked_bytes: self.files.shared().unpacked_bytes(),
        };
        writing.closed(has_failed, self.is_complete && !has_failed, totals, &self.ledger.ended)
    }
}

/// The ledger of several runs together.
fn sum(all: LedgerRecord, of_run: LedgerRecord) -> LedgerRecord {
    if all.ended.is_empty() {
        return of_run;
    }
    let ended = match all.ended.split(", ").any(|ended| ended == of_run.ended) {
        true => all.ended,
        false => format!("{}, {}", all.ended, of_run.ended),
    };
    let mut streams = all.streams;
    for record in of_run.streams {
        match streams.iter_mut().find(|stream| stream.name == record.name) {
            Some(stream) => add(&mut stream.counters, record.counters),
            None => streams.push(record),
        }
    }
    let mut totals = all.totals;
    add(&mut totals, of_run.totals);
    let images_expected = all.images_expected + of_run.images_expected;
    LedgerRecord { totals, streams, ended, images_expected, balances: all.balances, ..of_run }
}

fn add(counters: &mut Vec<(String, u64)>, more: Vec<(String, u64)>) {
    for (name, value) in more {
        match counters.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) if name.starts_with(FACTS) => *own = value.min(*own),
            Some((_, own)) => *own += value,
            None => counters.push((name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_sinks::hdf5::StreamRecord;

    fn record(received: u64, module: u64, ended: &str) -> LedgerRecord {
        let counters = vec![("received".into(), received), ("header_module_id".into(), module)];
        LedgerRecord {
            totals: vec![("images_expected".into(), received)],
            streams: vec![StreamRecord { name: "udp://127.0.0.1:1".into(), counters }],
            ended: ended.into(),
            images_expected: received,
            ..LedgerRecord::default()
        }
    }

    #[test]
    fn the_ledger_of_a_file_is_the_sum_of_its_runs_but_a_module_keeps_its_id() {
        let two = sum(sum(LedgerRecord::default(), record(3, 65_536, "complete")), record(4, 7, "complete"));
        assert_eq!((two.images_expected, two.ended.as_str()), (7, "complete"));
        assert_eq!(two.totals, [("images_expected".to_string(), 7)]);
        assert_eq!(two.streams[0].counters, [("received".to_string(), 7), ("header_module_id".to_string(), 7)]);
        assert_eq!(sum(two.clone(), record(1, 7, "stopped")).ended, "complete, stopped");
        assert_eq!(sum(sum(two, record(1, 7, "stopped")), record(1, 7, "stopped")).ended, "complete, stopped");
    }
}
