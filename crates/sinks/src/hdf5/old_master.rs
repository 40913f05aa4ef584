//! What a master said before a repair: which data files belong to the run, what their columns were, and the account.

use std::path::Path;

use super::datafile::{COLUMNS, Closed, STACK};
use super::low;
use super::master::State;
use super::nexus::{read_number, read_text};
use super::pedestals::{OWN, PEDESTALS};
use super::repair::{FILE_MISSING, NOT_RESCUED, read_ledger};
use super::spec::{FileSpec, LedgerRecord};

/// See the top of this module.
pub(super) struct OldMaster {
    /// Positions of the run.
    pub(super) images: u64,
    pub(super) ledger: Option<LedgerRecord>,
    state: String,
    /// Numbers of the data files that are linked.
    linked: Vec<u64>,
    /// All images are one virtual data set, without links.
    is_virtual: bool,
    has_pedestals: bool,
    status: Option<Vec<u8>>,
}

impl OldMaster {
    /// `None` if it cannot be read.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let file = low::open_file(path).ok()?;
        let links = file.group("/entry/data").and_then(|group| group.member_names()).unwrap_or_default();
        let mut linked: Vec<u64> = links.iter().filter_map(|name| name.strip_prefix("data_")?.parse().ok()).collect();
        linked.sort_unstable();
        let images = read_number(&file, "/entry/instrument/detector/detectorSpecific/nimages").unwrap_or(0.0) as u64;
        let status = file.dataset(&format!("{COLUMNS}/status")).and_then(|status| status.read_raw::<u8>()).ok();
        Some(Self {
            images,
            ledger: read_ledger(&file),
            state: read_text(&file, "/entry/konkordia/state").unwrap_or_default(),
            is_virtual: linked.is_empty() && links.iter().any(|name| name == "data"),
            linked,
            has_pedestals: file.group(OWN).is_ok_and(|own| own.link_exists(PEDESTALS)),
            status: status.filter(|status| status.len() as u64 == images),
        })
    }

    /// Whether it is final, names exactly these data files, and says of their images what they say.
    pub(super) fn is_right(&self, closed: &[Closed], images: u64, spec: &FileSpec) -> bool {
        let ipf = u64::from(spec.images_per_file);
        let links_right = self.is_virtual || self.linked.iter().eq(closed.iter().map(|file| &file.number));
        let links_right = links_right && self.has_pedestals == spec.pedestal_snapshots;
        let gone = closed.iter().filter(|file| !file.readable).map(|file| file.images).sum::<u64>();
        let same = |file: &Closed| self.of(file, ipf).is_some_and(|before| Some(before) == status_of(file).as_deref());
        self.state != State::Writing.name()
            && self.images == images
            && self.status.is_some()
            && (links_right || images == 0)
            && closed.iter().filter(|file| file.readable).all(same)
            && (self.total(FILE_MISSING) == 0 || self.total(FILE_MISSING) == gone)
    }

    fn total(&self, name: &str) -> u64 {
        let totals = self.ledger.iter().flat_map(|ledger| &ledger.totals);
        totals.filter(|(found, _)| found == name).map(|(_, number)| *number).sum()
    }

    /// States of the images of a data file.
    fn of(&self, file: &Closed, ipf: u64) -> Option<&[u8]> {
        let first = (file.number - 1).checked_mul(ipf)?;
        self.status.as_ref()?.get(usize::try_from(first).ok()?..usize::try_from(first.checked_add(file.images)?).ok()?)
    }

    /// Images that repairs could not read: those of before, and those that have lost or got back their pixels since. `None` where the master
    /// was not final, and has no columns to tell by.
    pub(super) fn not_rescued(&self, closed: &[Closed], ipf: u64) -> Option<u64> {
        self.status.as_ref().filter(|_| self.state != State::Writing.name())?;
        let mut number = self.total(NOT_RESCUED);
        let with_pixels = |status: &[u8]| status.iter().filter(|status| matches!(status, 1 | 2)).count() as u64;
        for file in closed.iter().filter(|file| file.readable) {
            if let (Some(before), Some(now)) = (self.of(file, ipf), status_of(file)) {
                number = (number + with_pixels(before)).saturating_sub(with_pixels(&now));
            }
        }
        Some(number)
    }
}

fn status_of(file: &Closed) -> Option<Vec<u8>> {
    let opened = low::open_file(&file.path).ok()?;
    let images = opened.dataset(STACK).ok()?.shape().first().copied()?;
    let status = opened.dataset(&format!("{COLUMNS}/status")).ok()?.read_raw::<u8>().ok()?;
    (status.len() == images).then_some(status)
}
