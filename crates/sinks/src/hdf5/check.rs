//! Checks whether a run is whole and valid. Every finding says what, where, and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

use hdf5::{Dataset, File, Group};

use konkordia_core::series::Ended;

use super::bounded::ReadAll;
use super::checksum::CHECKSUM;
use super::columns::{Columns, ImageStatus};
use super::decode::Decode;
use super::error::Error;
use super::ledger::{FILE_MISSING, KILLED, MASK_MISSING, NOT_RESCUED, read_ledger, totals};
use super::low;
use super::mappings;
use super::names::{existing, parse, pedestal_file_name};
use super::nexus::{read_attribute, read_text};
use super::packing;
use super::paths::{COLUMNS, OWN, STACK};
use super::pedestals::{PEDESTALS, Snapshots};
use super::reader::{Reader, virtual_name};
use super::spec::{FileSpec, Layout};
use super::split_driver::SplitName;
use super::unknown;
use super::xds::xds_problems_of;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Readers work, but somebody should know.
    Warning,
    /// The file is not whole or not valid.
    Error,
}

/// One thing found by [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// File, path in the file, image.
    pub place: String,
    /// What to do next.
    pub fix: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.severity == Severity::Error { "error" } else { "warning" };
        write!(f, "{severity}: {}\n  at:   {}\n  fix:  {}", self.what, self.place, self.fix)
    }
}

const REPAIR: &str = "run `konkordia repair FILE`";
/// Findings of one kind are listed up to this number.
const LISTED_MAX: usize = 10;

/// Checks a run (master or one data file): links, chunks, mask, positions, columns, ledger, required NXmx fields. Reads
/// every image.
pub fn check(path: &Path, decode: &Decode<'_>) -> Vec<Finding> {
    checked(path, Some(decode))
}

/// As [`check()`], without reading an image: of a file whose pixels are not here, for example on tape.
pub fn check_structure(path: &Path) -> Vec<Finding> {
    checked(path, None)
}

fn checked(path: &Path, decode: Option<&Decode<'_>>) -> Vec<Finding> {
    let mut report = Report { path, findings: Vec::new(), skips_virtual: false };
    match Reader::open(path) {
        Ok(reader) => report.run(&reader, decode),
        Err(Error { cause, hint, .. }) => report.push(Severity::Error, format!("the file cannot be read: {cause}"), "", &hint),
    }
    report.findings
}

/// Whether writing the master again would correct something.
pub(super) fn needs_repair(master: &Path) -> bool {
    let mut report = Report { path: master, findings: Vec::new(), skips_virtual: false };
    let Ok(reader) = Reader::open(master) else { return true };
    report.master(&reader);
    report.findings.iter().any(|finding| finding.severity == Severity::Error && finding.fix == REPAIR)
}

/// The first file with pixels of a split file, if none is there.
fn absent(path: &Path) -> Option<PathBuf> {
    SplitName::of(path).filter(|name| name.pieces().is_empty()).map(|name| name.raw(1))
}

pub(super) struct Report<'a> {
    path: &'a Path,
    findings: Vec<Finding>,
    /// True if the virtual data set must not be opened.
    skips_virtual: bool,
}

impl Report<'_> {
    pub(super) fn push(&mut self, severity: Severity, what: impl Into<String>, place: &str, fix: &str) {
        let place = format!("{}{}{place}", self.path.display(), if place.is_empty() { "" } else { " " });
        self.findings.push(Finding { severity, what: what.into(), place, fix: fix.into() });
    }

    fn error(&mut self, what: impl Into<String>, place: &str, fix: &str) {
        self.push(Severity::Error, what, place, fix);
    }

    fn run(&mut self, reader: &Reader, decode: Option<&Decode<'_>>) {
        let is_master = self.path.file_name().and_then(|n| n.to_str()).and_then(parse).is_none_or(|(_, n)| n.is_none());
        self.unfinished();
        if is_master {
            self.master(reader);
            self.same_mask(reader);
            self.xds(reader);
            self.ledger(reader.file());
        }
        for (first, images, stack, file, path) in reader.parts() {
            self.stack(reader, stack, path);
            self.columns(reader, first, images, file, path);
            if is_master {
                self.same_columns(reader, file, first, images, path);
            }
        }
        match (decode, absent(self.path)) {
            _ if reader.is_of_parts() => self.parts_of_image(reader, decode),
            (None, _) => {}
            (Some(_), Some(pixels)) => {
                let fix = "bring the pixels back to this folder; `konkordia check --structure FILE` checks the rest without them";
                self.error("the file with the pixels is missing", &pixels.to_string_lossy(), fix);
            }
            (Some(decode), None) => self.chunks(reader, decode),
        }
    }

    /// Checks the parts of a whole image, and names those that are not there.
    fn parts_of_image(&mut self, reader: &Reader, decode: Option<&Decode<'_>>) {
        let count = reader.summary().spec.as_ref().map_or(0, |spec| spec.parts);
        let found: Vec<u32> =
            reader.parts_of_image().filter_map(|part| Some(part.summary().spec.as_ref()?.part?.number)).collect();
        for number in (1..=count).filter(|number| !found.contains(number)) {
            let state = read_text(reader.file(), &format!("{OWN}/parts/part_{number}/state")).unwrap_or_default();
            let place = format!("/entry/konkordia/parts/part_{number}");
            if state == "absent" {
                let what = format!("part {number} of the image is absent: its pixels are missing and masked");
                self.push(
                    Severity::Warning,
                    what,
                    &place,
                    "bring its files here, and make this master again: konkordia repair FILE",
                );
            } else {
                self.error(format!("the files of part {number} cannot be read"), &place, "bring them back to this folder");
            }
        }
        for part in reader.parts_of_image() {
            // What is wrong with all parts is said of the whole.
            let findings = checked(&part.summary().path, decode);
            self.findings.extend(findings.into_iter().filter(|finding| finding.severity == Severity::Error));
        }
    }

    /// Checks what the master says of itself and of its data files: everything that a new master would correct.
    fn master(&mut self, reader: &Reader) {
        self.mappings(reader);
        self.links(reader);
        self.nxmx(reader.file());
        self.mask(reader);
        self.positions(reader);
        self.pedestals(reader);
    }

    fn unfinished(&mut self) {
        let name = self.path.file_name().and_then(|n| n.to_str()).and_then(parse);
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let Some((prefix, number)) = name else { return };
        for (n, data, _, has_journal) in existing(directory, prefix).unwrap_or_default() {
            let concerns = number.is_none_or(|number| number == n);
            if concerns && std::fs::metadata(&data).is_ok_and(|facts| facts.len() == 0) {
                let fix = format!("bring back a whole copy; if there is none, {REPAIR} to see which images are missing");
                let what = "a data file is empty (0 bytes): a power cut took what was written into it, or a copy failed";
                self.error(what, &data.to_string_lossy(), &fix);
            }
            if has_journal && concerns {
                let what = "a data file was never closed: its writer is still running or was killed";
                self.error(what, &data.to_string_lossy(), REPAIR);
            }
        }
    }

    /// Checks the mappings of the virtual data set before libhdf5 reads them: damaged ones can end the program.
    fn mappings(&mut self, reader: &Reader) {
        let has_virtual = virtual_name(reader.file()).filter(|_| !reader.holds_images());
        let Some(name) = has_virtual.filter(|_| !mappings::are_whole(self.path)) else { return };
        self.skips_virtual = true;
        self.error("the mappings of the virtual data set are damaged: programs that open it can crash", &name, REPAIR);
    }

    fn links(&mut self, reader: &Reader) {
        for file in &reader.summary().data_files {
            let Some(problem) = &file.problem else { continue };
            let shown = file.path.display().to_string();
            if file.path.exists() {
                let fix =
                    format!("bring back a whole copy of {shown}; if there is none, {REPAIR}, which rescues what is readable");
                self.error(format!("a data file is damaged ({problem})"), &shown, &fix);
            } else {
                self.error("a data file is missing", &shown, &format!("bring the file back to {shown}"));
            }
        }
        let Ok(data) = reader.file().group("/entry/data") else {
            return self.error("the group is missing", "/entry/data", REPAIR);
        };
        // Links to data files that cannot be read have already been named.
        let unreadable = reader.summary().data_files.iter().filter(|file| file.problem.is_some());
        let mut unreadable: Vec<String> = unreadable.map(|file| format!("data_{:06}", file.number)).collect();
        if self.skips_virtual {
            unreadable.extend(["images".into(), "data".into()]);
        }
        for name in data.member_names().unwrap_or_default().iter().filter(|name| !unreadable.contains(name)) {
            if data.dataset(name).is_err() {
                self.error("a link points nowhere", &format!("/entry/data/{name}"), REPAIR);
            }
        }
        match read_attribute(&data, "signal") {
            Some(signal) if !data.link_exists(&signal) => {
                self.error(format!("@signal names '{signal}', which does not exist"), "/entry/data", REPAIR);
            }
            None if reader.summary().images > 0 => self.error("@signal is missing", "/entry/data", REPAIR),
            _ => {}
        }
    }

    fn nxmx(&mut self, file: &File) {
        let required = [
            "definition",
            "sample/depends_on",
            "instrument/beam",
            "instrument/detector",
            "instrument/detector/detectorSpecific/nimages",
            "instrument/detector/detectorSpecific/ntrigger",
        ];
        for name in required {
            let name = format!("/entry/{name}");
            if !file.link_exists(&name) {
                self.error("a required field is missing", &name, REPAIR);
            }
        }
        if read_text(file, "/entry/definition").is_some_and(|definition| definition != "NXmx") {
            self.error("the application definition is not NXmx", "/entry/definition", REPAIR);
        }
        self.modules(file);
        self.chain(file, "/entry/sample/depends_on");
        self.chain(file, "/entry/instrument/detector/depends_on");
        let warn = Severity::Warning;
        for fact in unknown::FACTS {
            let there = fact.paths.iter().any(|path| file.link_exists(&format!("/entry/{path}")));
            if !there {
                self.push(warn, fact.finding(), &format!("/entry/{}", fact.paths[0]), &fact.remedy());
            }
        }
        // Files written before November 2026.
        let stand_in = "set it in the configuration of the next run; for this one, give the true value to the processing program";
        let beam = "/entry/instrument/beam";
        if file.link_exists(&format!("{beam}/incident_wavelength")) && !file.link_exists(&format!("{beam}/incident_energy")) {
            self.push(warn, "no photon energy: the wavelength of 1 angstrom is a placeholder, not measured", beam, stand_in);
        }
        if read_text(file, "/entry/start_time").is_some_and(|time| time.starts_with("1970-01-01")) {
            self.push(warn, "no start time: 1970 is a placeholder", "/entry/start_time", stand_in);
        }
    }

    /// Checks that every module says which part of the image it is.
    fn modules(&mut self, file: &File) {
        let detector = "/entry/instrument/detector";
        let names = file.group(detector).and_then(|group| group.member_names()).unwrap_or_default();
        let modules: Vec<String> = names.into_iter().filter(|name| name == "module" || name.starts_with("module_")).collect();
        if modules.is_empty() {
            self.error("a required field is missing", &format!("{detector}/module"), REPAIR);
        }
        for name in modules {
            for field in ["data_origin", "data_size"] {
                let path = format!("{detector}/{name}/{field}");
                if file.dataset(&path).is_err() {
                    self.error("a required field is missing", &path, REPAIR);
                }
            }
        }
    }

    /// Checks that a chain of transformations can be followed to its end.
    fn chain(&mut self, file: &File, from: &str) {
        let mut next = read_text(file, from);
        // No goniometer has this many axes: a longer chain is a circle.
        for _ in 0..32 {
            let Some(path) = next.filter(|path| path != ".") else { return };
            let Ok(field) = file.dataset(&path) else {
                return self.error(format!("the chain of transformations names {path}, which does not exist"), from, REPAIR);
            };
            next = read_attribute(&field, "depends_on");
        }
        self.error("the chain of transformations has no end", from, REPAIR);
    }

    fn mask(&mut self, reader: &Reader) {
        let shape = vec![reader.summary().rows as usize, reader.summary().columns as usize];
        for name in ["pixel_mask", "detectorSpecific/pixel_mask"] {
            let name = format!("/entry/instrument/detector/{name}");
            match reader.file().dataset(&name) {
                Ok(mask) if mask.shape() != shape => {
                    self.error(format!("the mask has the shape {:?}, the images {shape:?}", mask.shape()), &name, REPAIR);
                }
                Ok(mask) if mask.is_chunked() => self.error("the mask is chunked; XDS cannot read it", &name, REPAIR),
                Ok(_) => {}
                Err(_) => self.error("the pixel mask is missing", &name, REPAIR),
            }
        }
    }

    /// Warns if XDS would misread pixels, unless the run was declared as not for XDS.
    fn xds(&mut self, reader: &Reader) {
        let Some(spec) = reader.summary().spec.as_ref().filter(|spec| spec.xds != Some(false)) else { return };
        let of_runs = if spec.series.is_some() { "" } else { "; or say that it is not for XDS: xds = false in [output]" };
        for problem in xds_problems_of(spec) {
            let fix = format!("for XDS, {} in the next run{of_runs}", problem.fix);
            self.push(Severity::Warning, format!("XDS would misread it: {}", problem.what), "/entry/data", &fix);
        }
    }

    fn ledger(&mut self, file: &File) {
        let state = read_text(file, "/entry/konkordia/state").unwrap_or_default();
        let Some(ledger) = read_ledger(file) else {
            let what = format!("no ledger; the state of the run is '{state}'");
            return self.error(what, "/entry/konkordia", "wait for the end of the run, or run `konkordia repair FILE`");
        };
        let at_state = "/entry/konkordia/state";
        if state == "repaired" && ledger.ended.starts_with(KILLED) {
            let what = "the writer was killed; the ledger holds only what the data files record";
            let is_missing = |(name, n): &(String, u64)| (name == NOT_RESCUED || name == FILE_MISSING) && *n > 0;
            let fix = if ledger.totals.iter().any(is_missing) {
                "bring back the data files of the missing images; the images in the file are whole"
            } else {
                "nothing to do; the images in the file are whole"
            };
            self.push(Severity::Warning, what, at_state, fix);
        }
        if let Some(reason) = ledger.ended.strip_prefix(Ended::Failed.name()).and_then(|rest| rest.strip_prefix(": ")) {
            let fix = "the images in the file are whole; those that were to follow are not there";
            self.push(Severity::Warning, format!("the writing of the file ended with an error: {reason}"), at_state, fix);
        }
        let not_rescued = ledger.totals.iter().find(|(name, _)| name == NOT_RESCUED);
        if let Some((_, images)) = not_rescued.filter(|(_, images)| *images > 0) {
            let what =
                format!("{images} images were damaged after they were written and could not be rescued: they read as missing");
            let fix = "bring back whole copies of the data files that were damaged, and run repair again";
            self.push(Severity::Warning, what, at_state, fix);
        }
        if ledger.totals.iter().any(|(name, n)| name == MASK_MISSING && *n > 0) {
            let fix = "bring back a whole copy of data file 1, and run repair again";
            self.error("the pixel mask was in no file when the run was repaired: no pixel is masked", at_state, fix);
        }
        let place = "/entry/konkordia/ledger/totals";
        let lost = "packets or images are unaccounted for: keep the file and report it";
        for balance in &ledger.balances {
            if let Err(why) = holds(balance, &totals(file)) {
                self.error(format!("the ledger does not balance: {why}"), place, lost);
            }
            for stream in &ledger.streams {
                // Sums of images do not concern single streams.
                let known = balance.split([' ', '+', '=']).filter(|w| !w.is_empty());
                let concerned = known.clone().all(|word| stream.counters.iter().any(|(name, _)| name == word));
                if let (true, Err(why)) = (concerned, holds(balance, &stream.counters)) {
                    self.error(format!("the ledger of {} does not balance: {why}", stream.name), place, lost);
                }
            }
        }
    }

    /// Checks that position in the file = image number: every data file but the last is full.
    fn positions(&mut self, reader: &Reader) {
        let Some(spec) = reader.summary().spec.as_ref().filter(|spec| spec.parts == 0) else { return };
        let ipf = u64::from(spec.images_per_file);
        let files = &reader.summary().data_files;
        for (i, file) in files.iter().enumerate() {
            let images = file.images.unwrap_or(0);
            let place = file.path.to_string_lossy().into_owned();
            if i + 1 < files.len() && images != ipf && file.images.is_some() {
                let fix = format!("bring back a whole copy of {place}: it was longer when it was written");
                self.error(format!("the data file holds {images} images instead of {ipf}"), &place, &fix);
            }
            if i as u64 + 1 != file.number {
                self.error("a data file before this one is not linked", &place, REPAIR);
            }
        }
        let nimages = reader.summary().images;
        // If the last one cannot be read, nobody knows how many images it holds.
        let sum = files.last().map_or(Some(0), |last| Some(last.first_image.saturating_add(last.images?)));
        if let Some(sum) = sum.filter(|sum| *sum != nimages) {
            let place = "/entry/instrument/detector/detectorSpecific/nimages";
            self.error(format!("the master says {nimages} images, the data files hold {sum}"), place, REPAIR);
        }
        if !reader.holds_images() && spec.layout != Layout::Links && nimages > 0 && !self.skips_virtual {
            let name = if spec.layout == Layout::Both { "/entry/data/images" } else { "/entry/data/data" };
            let shape = reader.file().dataset(name).map(|d| d.shape()).unwrap_or_default();
            if shape.first() != Some(&(nimages as usize)) {
                self.error(format!("the virtual data set has shape {shape:?}, the run has {nimages} images"), name, REPAIR);
            }
        }
    }

    /// Checks the snapshots of the pedestals, if the run has them.
    fn pedestals(&mut self, reader: &Reader) {
        let Some(spec) = reader.summary().spec.as_ref().filter(|spec| spec.pedestal_snapshots) else { return };
        let path = reader.summary().path.with_file_name(pedestal_file_name(&spec.prefix));
        let place = path.to_string_lossy().into_owned();
        match Snapshots::read(&path) {
            Err(error) => self.error(format!("the snapshots of the pedestals cannot be read: {}", error.cause), &place, REPAIR),
            Ok(found) if reader.file().group(OWN).is_ok_and(|own| !own.link_exists(PEDESTALS)) => {
                self.error(format!("{} snapshots of the pedestals are not linked", found.images.len()), &place, REPAIR);
            }
            Ok(found) => {
                let in_order = found.images.is_sorted_by(|a, b| a < b);
                if !in_order || found.images.last().is_some_and(|last| *last >= reader.summary().images) {
                    let what = format!("the pedestal snapshots are out of order or beyond the run: images {:?}", found.images);
                    self.push(Severity::Warning, what, &place, "do not use the snapshots; the images are not affected");
                }
            }
        }
    }

    fn stack(&mut self, reader: &Reader, stack: &Dataset, path: &Path) {
        let summary = reader.summary();
        let place = format!("{} {STACK}", path.display());
        let shape = stack.shape();
        if !shape[1..].iter().map(|&size| size as u64).eq(summary.image_shape.iter().copied()) {
            let what = format!("the images have the shape {:?}, not that of the run", &shape[1..]);
            self.error(what, &place, "this file belongs to another run: move it away");
        }
        let missing = summary.pixel.missing_le_bytes();
        if low::fill_value(stack, summary.pixel).ok() != Some(missing) {
            let fix = "recover the data file from a copy, or do not use its lost images";
            self.error("the fill value is not the missing value: lost images read as measured ones", &place, fix);
        }
        let filters = low::filters(stack).unwrap_or_default();
        let wanted: Vec<_> = packing::filter(summary.compression, summary.pixel, [summary.rows as u32, summary.columns as u32])
            .into_iter()
            .collect();
        if filters != wanted {
            self.error(format!("unexpected filters {filters:?}"), &place, "copy the file with h5repack");
        }
    }

    fn columns(&mut self, reader: &Reader, first: u64, images: u64, file: &File, path: &Path) {
        let read = |name: &str| file.dataset(&format!("{COLUMNS}/{name}")).and_then(|d| d.read_all::<u64>()).ok();
        let place = format!("{} {COLUMNS}", path.display());
        if reader.summary().spec.as_ref().is_some_and(|spec| spec.series.is_some()) {
            return self.series_columns(&read, first, images as usize, &place);
        }
        let (Some(status), Some(received), Some(bitmap)) = (read("status"), read("packets_received"), read("packet_bitmap"))
        else {
            return self.error("the per-image columns are missing", &place, REPAIR);
        };
        let n = images as usize;
        if status.len() != n || received.len() % n.max(1) != 0 || bitmap.len() % n.max(1) != 0 || received.is_empty() != (n == 0)
        {
            return self.error(format!("the per-image columns have {} rows for {n} images", status.len()), &place, REPAIR);
        }
        self.further_columns(reader, first, n, file, &place);
        let packets: Vec<u64> = match &reader.summary().spec {
            Some(FileSpec { tiles, .. }) => tiles.iter().map(|tile| u64::from(tile.packets)).collect(),
            None => Vec::new(),
        };
        let tiles = received.len() / n.max(1);
        let words = bitmap.len() / received.len().max(1);
        let mut wrong = Vec::new();
        for i in 0..n {
            let got = &received[i * tiles..(i + 1) * tiles];
            let bits = bitmap[i * tiles * words..(i + 1) * tiles * words].chunks(words.max(1));
            let counts: Vec<u64> = bits.map(|words| words.iter().map(|w| u64::from(w.count_ones())).sum()).collect();
            let all = packets.is_empty() || got == packets;
            let why = match ImageStatus::from_u8(status[i] as u8) {
                None => Some(format!("status {}", status[i])),
                _ if counts != got => Some(format!("packets received {got:?}, bits set {counts:?}")),
                Some(ImageStatus::Complete) if !all => Some(format!("complete with {got:?} packets")),
                Some(ImageStatus::Partial) if all && !packets.is_empty() => Some("partial with all packets".into()),
                _ => None,
            };
            wrong.extend(why.map(|why| format!("image {}: {why}", first + i as u64)));
        }
        self.list(wrong, &place, "the columns of these images contradict each other: keep the file and report it");
    }

    /// Checks the columns of a series: a number for each image, in order, and parts missing where the status says so.
    fn series_columns(&mut self, read: &dyn Fn(&str) -> Option<Vec<u64>>, first: u64, n: usize, place: &str) {
        let names = ["status", "frame_number", "parts_missing", "timestamp_ns", "exposure_ns"];
        let [Some(status), Some(numbers), Some(missing), Some(start), Some(exposure)] = names.map(read) else {
            return self.error("the per-image columns are missing", place, REPAIR);
        };
        if let Some(rows) = [&status, &numbers, &missing, &start, &exposure].into_iter().find(|column| column.len() != n) {
            return self.error(format!("the per-image columns have {} rows for {n} images", rows.len()), place, REPAIR);
        }
        let wrong = (0..n).filter_map(|i| {
            let image = first + i as u64;
            let why = match ImageStatus::from_u8(status[i] as u8) {
                None => format!("status {}", status[i]),
                Some(ImageStatus::Complete) if missing[i] != 0 => format!("complete, but parts {:b} are missing", missing[i]),
                Some(ImageStatus::Lost) if numbers[i] != 0 => format!("lost, but with the frame number {}", numbers[i]),
                _ => return None,
            };
            Some(format!("image {image}: {why}"))
        });
        self.list(wrong.collect(), place, "the columns of these images contradict each other: keep the file and report it");
    }

    /// Checks the columns that the run names: one row for each image, and no more complete frames than frames.
    fn further_columns(&mut self, reader: &Reader, first: u64, n: usize, file: &File, place: &str) {
        let named = reader.summary().spec.as_ref().map(|spec| spec.extra_columns.clone()).unwrap_or_default();
        let dataset = |name: &str| file.dataset(&format!("{COLUMNS}/{name}"));
        for column in &named {
            let rows = dataset(&column.name).map_or(0, |d| d.shape().first().copied().unwrap_or(0));
            if rows != n {
                self.error(format!("{rows} rows of column {} for {n} images", column.name), place, REPAIR);
            }
        }
        let read = |name: &str| dataset(name).and_then(|d| d.read_all::<u64>()).unwrap_or_default();
        if ["frames", "frames_complete"].iter().all(|name| named.iter().any(|column| column.name == *name)) {
            let (all, complete) = (read("frames"), read("frames_complete"));
            let pairs = all.iter().zip(&complete).enumerate().filter(|(_, (all, complete))| complete > all);
            let wrong =
                pairs.map(|(i, (all, complete))| format!("image {}: {complete} of {all} frames complete", first + i as u64));
            self.list(wrong.collect(), place, "the columns of these images contradict each other: keep the file and report it");
        }
    }

    /// Compares the columns in the data files with their copy in the master: a difference is a later change.
    fn same_columns(&mut self, reader: &Reader, file: &File, first: u64, images: u64, path: &Path) {
        let Some(spec) = &reader.summary().spec else { return };
        let (Ok(own), Ok(master)) = (file.group(COLUMNS), reader.file().group(COLUMNS)) else { return };
        let has_sums = |group: &Group| group.link_exists(CHECKSUM);
        for column in &Columns::new(spec).list {
            // Data files of earlier versions have no checksums, and a master has none if one of its data files has
            // none. If they have been lost, the check of the chunks reports it.
            if column.name == CHECKSUM && !(has_sums(&own) && has_sums(&master)) {
                continue;
            }
            let read = |group: &Group, first| low::read_rows(&group.dataset(&column.name)?, column, first, images);
            let place = format!("{COLUMNS}/{} and {}", column.name, path.display());
            match (read(&own, 0), read(&master, first)) {
                (Ok(part), Ok(whole)) if part == whole => {}
                (Ok(_), Ok(_)) => self.error("this column differs between the master and the data file", &place, REPAIR),
                (Err(error), _) | (_, Err(error)) => self.error(format!("a column cannot be read: {error}"), &place, REPAIR),
            }
        }
    }

    /// Compares the mask in the master with that in the first data file.
    fn same_mask(&mut self, reader: &Reader) {
        let Some((.., file, path)) = reader.parts().find(|(first, ..)| *first == 0) else { return };
        let read = |file: &File, name: &str| file.dataset(name).and_then(|mask| mask.read_all::<u32>()).ok();
        let kept = read(file, "/entry/konkordia/pixel_mask");
        let used = read(reader.file(), "/entry/instrument/detector/pixel_mask");
        if let (Some(kept), Some(used)) = (kept, used)
            && kept != used
        {
            let differ = kept.iter().zip(&used).filter(|(a, b)| a != b).count();
            let what = format!("the mask of the master differs in {differ} pixels from that in {}", path.display());
            let fix = "if nobody has changed the mask of the master, recover the file that is damaged from a copy";
            self.push(Severity::Warning, what, "/entry/instrument/detector/pixel_mask", fix);
        }
    }

    pub(super) fn list(&mut self, wrong: Vec<String>, place: &str, fix: &str) {
        let more = wrong.len().saturating_sub(LISTED_MAX);
        for what in wrong.into_iter().take(LISTED_MAX) {
            self.error(what, place, fix);
        }
        if more > 0 {
            self.error(format!("and {more} more of this kind"), place, fix);
        }
    }
}

/// Evaluates "a = b + c"; the error says what does not add up.
fn holds(balance: &str, counters: &[(String, u64)]) -> Result<(), String> {
    let value = |name: &str| {
        let found = counters.iter().find(|(n, _)| n == name.trim());
        found.map(|(_, value)| *value).ok_or_else(|| format!("'{}' in '{balance}' has no counter", name.trim()))
    };
    let (left, right) = balance.split_once('=').ok_or_else(|| format!("'{balance}' is not a sum"))?;
    let (total, mut sum) = (value(left)?, 0u64);
    for name in right.split('+') {
        sum = sum.checked_add(value(name)?).ok_or("numbers too large")?;
    }
    if total == sum { Ok(()) } else { Err(format!("{balance}, but {total} is not {sum}")) }
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn balances_are_evaluated() {
        let counters = [("a".to_owned(), 5), ("b".to_owned(), 2), ("c".to_owned(), 3)];
        assert!(holds("a = b + c", &counters).is_ok());
        assert!(holds("a = b", &counters).unwrap_err().contains("5 is not 2"));
        assert!(holds("a = b + d", &counters).unwrap_err().contains("'d'"));
        assert!(holds("nonsense", &counters).is_err());
    }
}
