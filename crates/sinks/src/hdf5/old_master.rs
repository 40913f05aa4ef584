//! What the master said before a repair: which data files belong to the run, the columns of their images, and the
//! ledger.

use std::path::{Path, PathBuf};

use super::bounded::ReadAll;
use super::check::needs_repair;
use super::datafile::Closed;
use super::ledger::{FILE_MISSING, NOT_RESCUED, read_ledger};
use super::look::bytes_that_differ;
use super::low;
use super::mappings;
use super::master::{BOOT, State, boot_id};
use super::nexus::{read_number, read_text};
use super::paths::MASK;
use super::paths::{COLUMNS, DESCRIPTION, OWN};
use super::pedestals::PEDESTALS;
use super::reader::virtual_name;
use super::spec::{FileSpec, LedgerRecord};
use super::xds::readable_mask;

/// See the top of this module.
pub(super) struct OldMaster {
    path: PathBuf,
    description: Option<String>,
    /// Positions of the run, as `nimages` gives them.
    images: u64,
    pub(super) ledger: Option<LedgerRecord>,
    state: String,
    /// The boot of the machine during which it was written, if the run was going on.
    boot: Option<String>,
    /// Numbers of the data files that are linked.
    linked: Vec<u64>,
    /// True if all images are one virtual data set, without links.
    is_virtual: bool,
    has_pedestals: bool,
    /// Whether the mappings of its virtual data set, if it has one, are whole.
    mappings_whole: bool,
    mask: Option<Vec<u32>>,
    /// States of the images of all data files: as many as the column has, whatever `images` says.
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
        let status = file.dataset(&format!("{COLUMNS}/status")).and_then(|status| status.read_all::<u8>()).ok();
        Some(Self {
            path: path.to_owned(),
            description: read_text(&file, DESCRIPTION),
            images,
            ledger: read_ledger(&file),
            state: read_text(&file, "/entry/konkordia/state").unwrap_or_default(),
            boot: read_text(&file, &format!("{OWN}/{BOOT}")),
            is_virtual: linked.is_empty() && links.iter().any(|name| name == "data"),
            linked,
            has_pedestals: file.group(OWN).is_ok_and(|own| own.link_exists(PEDESTALS)),
            mappings_whole: virtual_name(&file).is_none() || mappings::are_whole(path),
            mask: file.dataset(MASK).and_then(|mask| mask.read_all::<u32>()).ok(),
            status,
        })
    }

    /// Whether it shows the files of parts, and has none of its own.
    pub(super) fn is_of_parts(&self) -> bool {
        self.description.as_ref().and_then(|text| FileSpec::from_text(text).ok()).is_some_and(|spec| spec.parts > 0)
    }

    /// Whether the run had ended when the master was written, so that it has the columns of all data files.
    pub(super) fn is_final(&self) -> bool {
        self.state != State::Writing.name()
    }

    /// True if the run was going on when the machine stopped, or had been killed before that; also true if the files
    /// come from another machine.
    pub(super) fn was_cut(&self) -> bool {
        !self.is_final() && self.boot.is_some() && self.boot != boot_id()
    }

    /// Positions of the run. A bit of the number may have flipped, so it counts only if the length of the columns or
    /// the links agree with it.
    pub(super) fn images(&self, ipf: u64) -> u64 {
        let linked = self.linked.last().copied();
        let agrees = |images: u64| linked == Some(images.div_ceil(ipf));
        match self.status.as_ref().map(|status| status.len() as u64) {
            Some(rows) if rows == self.images => rows,
            _ if agrees(self.images) => self.images,
            Some(rows) if linked.is_none() || agrees(rows) => rows,
            _ => 0,
        }
    }

    /// Whether it is final, names exactly these data files, and agrees with them about their images.
    pub(super) fn is_right(&self, closed: &[Closed], images: u64, spec: &FileSpec) -> bool {
        let ipf = u64::from(spec.images_per_file);
        let links_right = self.is_virtual || self.linked.iter().eq(closed.iter().map(|file| &file.number));
        let links_right = links_right && self.has_pedestals == spec.pedestal_snapshots;
        let gone = closed.iter().map(Closed::missing).sum::<u64>();
        let same = |file: &Closed| self.of(file, ipf).is_some_and(|before| status_of(file).as_deref() == Some(before));
        let mask = self.mask.clone().map(|mut mask| {
            readable_mask(&mut mask);
            mask
        });
        self.is_final()
            && self.mappings_whole
            && self.images == images
            && self.status.as_ref().is_some_and(|status| status.len() as u64 == images)
            && (links_right || images == 0)
            && mask.is_some_and(|mask| mask == spec.pixel_mask)
            && closed.iter().filter(|file| file.is_readable()).all(same)
            && (self.total(FILE_MISSING) == 0 || self.total(FILE_MISSING) == gone)
            && self.description.as_ref().is_some_and(|text| bytes_that_differ(text, spec) == Some(0))
            && !needs_repair(&self.path)
    }

    pub(super) fn total(&self, name: &str) -> u64 {
        let totals = self.ledger.iter().flat_map(|ledger| &ledger.totals);
        totals.filter(|(found, _)| found == name).map(|(_, number)| *number).sum()
    }

    /// States of the images of a data file, as the master has them.
    fn of(&self, file: &Closed, ipf: u64) -> Option<&[u8]> {
        let first = (file.number - 1).checked_mul(ipf)?;
        self.status.as_ref()?.get(usize::try_from(first).ok()?..usize::try_from(first.checked_add(file.stored)?).ok()?)
    }

    /// Images that repairs could not read: those of earlier repairs, corrected by those that have lost or regained
    /// their pixels since. `None` if the master was not final, and so has no columns to compare with.
    pub(super) fn not_rescued(&self, closed: &[Closed], ipf: u64) -> Option<u64> {
        self.status.as_ref().filter(|_| self.is_final())?;
        let mut number = self.total(NOT_RESCUED);
        let with_pixels = |status: &[u8]| status.iter().filter(|status| matches!(status, 1 | 2)).count() as u64;
        for file in closed.iter().filter(|file| file.is_readable()) {
            let Some(before) = self.of(file, ipf) else { continue };
            // The master says nothing of a file that was away when it was written.
            let was_away = self.total(FILE_MISSING) > 0 && before.iter().all(|status| *status == 0);
            if let Some(now) = status_of(file).filter(|_| !was_away) {
                number = (number + with_pixels(before)).saturating_sub(with_pixels(&now));
            }
        }
        Some(number)
    }
}

/// States of the images of a data file, as the file has them.
pub(super) fn status_of(file: &Closed) -> Option<Vec<u8>> {
    let status = file.columns().ok()??.dataset("status").ok()?.read_all::<u8>().ok()?;
    (status.len() as u64 == file.stored).then_some(status)
}
