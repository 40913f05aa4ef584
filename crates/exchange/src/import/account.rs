//! The account of an import: every position is an image or a lost one, every file is one of them.

use super::one::Made;
use super::request::{Done, NAMED_MAX};
use konkordia_core::failure::Failure;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, UpstreamLedger};
use konkordia_sinks::hdf5::{FileReport, FileSpec, LedgerRecord, Reader, data_file_name, ledger_of_series};

#[derive(Default)]
pub struct Account {
    complete: u64,
    /// Files that cannot be read.
    malformed: u64,
    /// Images that came too late for their position, or twice (only from folders that are watched).
    pub late: u64,
    pub duplicate: u64,
    /// Files of another series.
    pub foreign: u64,
    unreadable: Vec<Failure>,
    pixel_bytes: u64,
    pub source_bytes: u64,
    lacking: u64,
}

impl Account {
    /// With the images that an interrupted import has left, by the states in their data files.
    pub fn of_kept(spec: &FileSpec, kept: u64) -> Result<Self, Failure> {
        let mut account = Self::default();
        for number in 1..=kept.div_ceil(u64::from(spec.images_per_file)) {
            let reader = Reader::open(&spec.directory.join(data_file_name(&spec.prefix, number)))?;
            let states = reader.column("status").unwrap_or_default();
            let complete = states.iter().filter(|state| **state == ImageStatus::Complete as u64).count() as u64;
            account.complete += complete;
            account.pixel_bytes += complete * spec.image_bytes() as u64;
        }
        Ok(account)
    }

    pub fn enter(&mut self, made: &Made, pixel_bytes: u64) {
        self.complete += 1;
        self.pixel_bytes += pixel_bytes;
        self.lacking += made.lacking;
    }

    pub fn unreadable(&mut self, failure: Failure) {
        self.malformed += 1;
        if self.unreadable.len() < NAMED_MAX {
            self.unreadable.push(failure);
        }
    }

    /// The ledger of so many positions.
    pub fn record(&self, (ended, reason): (Ended, String), positions: u64) -> LedgerRecord {
        let (lost, mut ledger) = (positions.saturating_sub(self.complete), SeriesLedger::default());
        let verdicts = self.complete + self.malformed + self.late + self.duplicate + self.foreign;
        ledger.upstreams = vec![UpstreamLedger {
            received: verdicts,
            received_bytes: self.pixel_bytes,
            placed: self.complete,
            malformed: self.malformed,
            late: self.late,
            duplicate: self.duplicate,
            foreign: self.foreign,
            ..UpstreamLedger::default()
        }];
        (ledger.parts_per_image, ledger.frames_per_image, ledger.parts_missing) = (1, 1, lost);
        ledger.images.expected = positions;
        ledger.images.complete = self.complete;
        ledger.images.lost = lost;
        ledger.images.not_kept = self.late + self.duplicate;
        debug_assert!(ledger.imbalances().is_empty(), "{:?}", ledger.imbalances());
        ledger_of_series(&SeriesEnd { ended, reason, ledger }, self.complete, 0, None)
    }

    pub fn done(self, file: FileReport, images_kept: u64, positions: u64, stopped: bool) -> Done {
        Done {
            file,
            images_kept,
            complete: self.complete,
            lost: positions.saturating_sub(self.complete),
            unreadable: self.unreadable,
            pixel_bytes: self.pixel_bytes,
            source_bytes: self.source_bytes,
            lacking: self.lacking,
            stopped,
        }
    }
}
