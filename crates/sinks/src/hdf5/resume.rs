//! Finds what can be kept of an interrupted run, or of a part of one, when it is continued: its finished data files.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::bounded::ReadAll;
use super::checksum::CHECKSUM;
use super::columns::Columns;
use super::datafile::{Closed, remove};
use super::error::{Context, Error, ErrorKind};
use super::journal::{refuse_if_alive, replay};
use super::low;
use super::names::{existing, journal_path, master_path};
use super::nexus::read_text;
use super::paths::{COLUMNS, DESCRIPTION, STACK};
use super::spec::FileSpec;
use super::xds::readable_mask;

const DOING: &str = "continue the run";

/// What is kept, and what must be removed before the run is continued.
pub(super) struct Found {
    /// Full data files from the first one that was asked for, and, if the run is complete, the shorter last one.
    pub(super) closed: Vec<Closed>,
    /// Images in them. If all data files were asked for, this is also the number of the first image to write.
    pub(super) images: u64,
    pub(super) images_with_pixels: u64,
    pub(super) chunk_bytes: u64,
    /// All planned images are there.
    pub(super) complete: bool,
    /// Data files and journals (path of the data file, has data file, has journal) that will be written again.
    stale: Vec<(PathBuf, bool, bool)>,
}

impl Found {
    /// Removes the files that will be written again.
    pub(super) fn clear(&self) -> Result<(), Error> {
        for (data, has_data, has_journal) in &self.stale {
            // The data file first, because a data file without a journal counts as finished.
            if *has_data {
                remove(data)?;
            }
            if *has_journal {
                remove(&journal_path(data))?;
            }
        }
        Ok(())
    }
}

/// Searches the data files of this prefix with these numbers, and touches none. A file of another run is an error, even
/// if nothing of it could be kept. Data files with other numbers belong to other processes.
pub(super) fn find(
    spec: &FileSpec,
    columns: &Columns,
    missing_bytes: Option<usize>,
    numbers: &RangeInclusive<u64>,
) -> Result<Found, Error> {
    let mut files = existing(&spec.directory, &spec.prefix).context(DOING, &spec.directory)?;
    files.retain(|(number, ..)| numbers.contains(number));
    for (_, data, _, has_journal) in &files {
        if *has_journal {
            refuse_if_alive(&journal_path(data))?;
        }
    }
    let expected = spec.to_text();
    let master = master_path(&spec.directory, &spec.prefix);
    if let Some(text) = low::open_file(&master).ok().and_then(|file| read_text(&file, DESCRIPTION)) {
        same_run(&expected, &text, &master)?;
    }
    let mut found = Found { closed: vec![], images: 0, images_with_pixels: 0, chunk_bytes: 0, complete: false, stale: vec![] };
    let ipf = u64::from(spec.images_per_file);
    let before = (numbers.start() - 1) * ipf;
    for (number, path, has_data, has_journal) in files {
        if has_journal {
            if let Some(replay) = replay(&journal_path(&path))? {
                same_run(&expected, &replay.text, &path)?;
            }
            found.stale.push((path, has_data, true));
            continue;
        }
        let held = open(spec, columns, &expected, number, &path)?;
        let in_order = number == numbers.start() + found.closed.len() as u64 && before + found.images == (number - 1) * ipf;
        let is_last = spec.images_planned == Some(before + found.images + held.images);
        if in_order && (held.images == ipf || (is_last && held.images > 0)) {
            found.images += held.images;
            found.images_with_pixels += held.with_pixels;
            let lost = held.chunks.saturating_sub(held.with_pixels * spec.pieces() as u64) * missing_bytes.unwrap_or(0) as u64;
            found.chunk_bytes += if held.with_pixels > 0 { held.stored_bytes.saturating_sub(lost) } else { 0 };
            found.closed.push(Closed::whole(number, path, held.images));
        } else {
            found.stale.push((path, true, false));
        }
    }
    let end = |planned: u64| planned.min(numbers.end().saturating_mul(ipf));
    found.complete = spec.images_planned.is_some_and(|planned| planned > 0 && before + found.images >= end(planned));
    Ok(found)
}

struct Held {
    images: u64,
    with_pixels: u64,
    chunks: u64,
    stored_bytes: u64,
}

/// Checks whether a closed data file belongs to this run and is whole, and returns what it holds.
fn open(spec: &FileSpec, columns: &Columns, expected: &str, number: u64, path: &Path) -> Result<Held, Error> {
    let damaged = |cause: String| {
        let hint = "move this file away; its images are then written again";
        Error::new(ErrorKind::Damaged, DOING, path, cause).with_hint(hint)
    };
    let file = low::open_file(path).map_err(|error| damaged(Error::hdf5(DOING, path, error).cause))?;
    let text = read_text(&file, DESCRIPTION).ok_or_else(|| damaged("it has no run description".into()))?;
    same_run(expected, &text, path)?;
    if number == 1 {
        let mask = file.dataset("/entry/konkordia/pixel_mask").and_then(|mask| mask.read_all::<u32>());
        let mut mask = mask.context(DOING, path)?;
        // Masks in files of older releases lack the bits that both XDS plug-ins read.
        readable_mask(&mut mask);
        let is_empty = spec.pixel_mask.is_empty() && mask.iter().all(|bits| *bits == 0);
        if mask != spec.pixel_mask && !is_empty {
            return Err(differs("its pixel mask differs from that of this run".into(), path));
        }
    }
    let stack = file.dataset(STACK).context(DOING, path)?;
    let shape = stack.shape();
    if shape.get(1..) != Some(&spec.image_shape()) || shape[0] > spec.images_per_file as usize {
        return Err(damaged(format!("its images have the shape {shape:?}")));
    }
    // Data files of earlier versions have no checksums.
    let has_sums = file.dataset(&format!("{COLUMNS}/{CHECKSUM}")).is_ok();
    for column in columns.list.iter().filter(|column| has_sums || column.name != CHECKSUM) {
        let rows = file.dataset(&format!("{COLUMNS}/{}", column.name)).context(DOING, path)?.shape();
        if rows.first() != Some(&shape[0]) || rows[1..] != column.shape[..] {
            return Err(damaged(format!("its column {} has the shape {rows:?} for {} images", column.name, shape[0])));
        }
    }
    let status = file.dataset(&format!("{COLUMNS}/status")).and_then(|d| d.read_all::<u8>()).context(DOING, path)?;
    let with_pixels = status.iter().filter(|&&status| matches!(status, 1 | 2)).count() as u64;
    Ok(Held {
        images: shape[0] as u64,
        with_pixels,
        chunks: stack.num_chunks().unwrap_or(0) as u64,
        stored_bytes: stack.storage_size(),
    })
}

fn differs(cause: String, path: &Path) -> Error {
    let hint = "give the input and the options of the interrupted run, choose another prefix, or start anew and overwrite";
    Error::new(ErrorKind::Invalid, DOING, path, cause).with_hint(hint)
}

/// Fails if two run descriptions differ; the error names the first line that differs.
fn same_run(expected: &str, found: &str, path: &Path) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (wanted, there) = (lines(expected), lines(found));
    let at = wanted.iter().zip(&there).take_while(|(a, b)| a == b).count();
    let (key, now, then) = part(wanted.get(at), there.get(at));
    Err(differs(format!("it belongs to a run with other settings: {key} was {then} there and is {now} now"), path))
}

/// The key of a line that differs, and both values, from where they begin to differ.
fn part(now: Option<&String>, then: Option<&String>) -> (String, String, String) {
    const SHOWN: usize = 60;
    let split = |line: &String| line.split_once(" = ").map_or((line.clone(), String::new()), |(k, v)| (k.into(), v.into()));
    let ((key, a), (other, b)) = (now.map(split).unwrap_or_default(), then.map(split).unwrap_or_default());
    if key != other {
        let said = |value: String| if value.is_empty() { "not given".to_owned() } else { value };
        let key = if key.is_empty() { other } else { key };
        return (key, said(a.chars().take(SHOWN).collect()), "something else".into());
    }
    let same = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    let from = if a.chars().count().max(b.chars().count()) <= SHOWN { 0 } else { same.saturating_sub(10) };
    let cut = |text: &str| {
        let shown: String = text.chars().skip(from).take(SHOWN).collect();
        if from > 0 { format!("'...{shown}'") } else { format!("'{shown}'") }
    };
    (key, cut(&a), cut(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named() {
        let text = |spec: &FileSpec| spec.to_text();
        let spec = FileSpec { rows: 3, configuration: "a = 1\n".repeat(50), ..FileSpec::default() };
        let said = |other: FileSpec| same_run(&text(&spec), &text(&other), Path::new("f")).unwrap_err().cause;
        assert!(same_run(&text(&spec), &text(&spec), Path::new("f")).is_ok());
        assert!(said(FileSpec { rows: 4, ..spec.clone() }).ends_with("rows was '4' there and is '3' now"));
        let longer = FileSpec { configuration: spec.configuration.clone() + "b = 2", ..spec.clone() };
        assert!(said(longer).contains("configuration was '..."));
        let planned = FileSpec { images_planned: Some(3), ..spec.clone() };
        assert!(said(planned).contains("unit was something else"), "the next key that both have");
    }
}
