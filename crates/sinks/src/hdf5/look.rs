//! Examines the file in the place of a data file when a run is repaired.

use std::path::Path;

use hdf5::{Dataset, File};

use super::checksum;
use super::columns::Columns;
use super::error::Error;
use super::low;
use super::nexus::read_text;
use super::paths::{COLUMNS, DESCRIPTION, STACK};
use super::rows::{Row, Rows, Verdict, judge};
use super::spec::FileSpec;

/// See the top of this module.
pub(super) enum Look {
    /// Readable, with this number of images.
    Whole {
        images: u64,
        /// Images whose rows in the master differ.
        differ: u64,
        /// Those of them for which nothing shows which row is right.
        undecided: u64,
    },
    Gone,
    Empty,
    /// Of another run, or without images.
    Foreign(String),
    Damaged(String),
}

/// Examines a data file; `before` holds the rows of its images in the final master.
pub(super) fn look(path: &Path, spec: &FileSpec, columns: &Columns, before: Option<&Rows>) -> Look {
    match std::fs::metadata(path) {
        Err(_) => return Look::Gone,
        Ok(facts) if facts.len() == 0 => return Look::Empty,
        Ok(_) => {}
    }
    let damaged = |error| Look::Damaged(Error::hdf5("open the data file", path, error).cause);
    let file = match low::open_file(path) {
        Ok(file) => file,
        Err(error) => return damaged(error),
    };
    let stack = match file.dataset(STACK) {
        Ok(stack) => stack,
        Err(error) => return damaged(error),
    };
    let shape = stack.shape();
    let images = shape.first().copied().unwrap_or(0);
    if images == 0 {
        return Look::Foreign("holds no images".into());
    }
    if shape.get(1..) != Some(&spec.image_shape()) || images > spec.images_per_file as usize {
        return Look::Foreign(format!("holds data of shape {shape:?}, not images of this run"));
    }
    if is_of_another_run(&file, spec) {
        return Look::Foreign("belongs to another run".into());
    }
    let images = images as u64;
    let rows = match rows(&file, columns, images, before) {
        Ok(rows) => rows,
        Err(why) => return Look::Damaged(why),
    };
    compare(&stack, spec, columns, images, &rows, before)
}

/// Reads all columns; the error names the first one that is absent or has another length than the stack.
fn rows(file: &File, columns: &Columns, images: u64, before: Option<&Rows>) -> Result<Rows, String> {
    // A master has checksums only if all of its data files had them; data files of earlier versions have none.
    let must_have_sums = before.is_some_and(Rows::has_sums);
    for column in &columns.list {
        let set = file.dataset(&format!("{COLUMNS}/{}", column.name));
        let Ok(set) = set else {
            let may_be_gone = column.name == checksum::CHECKSUM && !must_have_sums;
            if may_be_gone && file.group(COLUMNS).is_ok_and(|group| !group.link_exists(&column.name)) {
                continue;
            }
            return Err(format!("its column {} cannot be read", column.name));
        };
        if set.shape().first() != Some(&(images as usize)) {
            return Err(format!("its column {} has the shape {:?}, for {images} images", column.name, set.shape()));
        }
    }
    Rows::of(file, columns, 0, images).filter(Rows::is_complete).ok_or_else(|| "its columns cannot be read".into())
}

/// Every file of a run has the same description. One byte of it may have been damaged since.
fn is_of_another_run(file: &File, spec: &FileSpec) -> bool {
    let text = read_text(file, DESCRIPTION).filter(|text| FileSpec::from_text(text).is_ok());
    text.is_some_and(|text| bytes_that_differ(&text, spec).is_none_or(|bytes| bytes > 1))
}

/// In how many bytes a description differs from that of the run; `None` if it is not a description, or has another
/// length. Three differences are ignored: the name of the run may have been changed by hand, the pedestal snapshots may
/// be gone, and a copy may be compressed differently.
pub(super) fn bytes_that_differ(text: &str, spec: &FileSpec) -> Option<usize> {
    let mut found = FileSpec::from_text(text).ok()?;
    found.prefix.clone_from(&spec.prefix);
    found.compression = spec.compression;
    found.pedestal_snapshots = spec.pedestal_snapshots;
    let (found, expected) = (found.to_text(), spec.to_text());
    (found.len() == expected.len()).then(|| found.bytes().zip(expected.bytes()).filter(|(a, b)| a != b).count())
}

/// Compares the images with the index and with the master. An image that the index does not find counts as damaged,
/// however whole its bytes are.
fn compare(stack: &Dataset, spec: &FileSpec, columns: &Columns, images: u64, rows: &Rows, before: Option<&Rows>) -> Look {
    let starts = spec.chunk_starts();
    let is_found = |local: u64| {
        let bytes_at = |start: &Vec<u64>| low::dataset_chunk_bytes(stack, &[&[local], &start[..]].concat());
        starts.iter().all(|start| bytes_at(start).is_ok_and(|bytes| bytes > 0))
    };
    let (mut differ, mut undecided, mut zeros) = (0, 0, 0);
    for local in 0..images {
        let Some(own) = rows.get(local) else { continue };
        if own.has_pixels(columns) && !is_found(local) {
            return Look::Damaged(format!("its image {local} has no chunk"));
        }
        let master = before.and_then(|before| before.get(local));
        let Some(master) = master.filter(|master: &Row<'_>| !master.is_same(&own)) else { continue };
        differ += 1;
        if master.is_nothing() {
            continue;
        }
        match judge(own, master, columns, stored_sum(stack, spec, &starts, local)) {
            Verdict::Own => {}
            Verdict::Master => return Look::Damaged(format!("the per-image columns of image {local} are damaged")),
            Verdict::Zeros => zeros += 1,
            Verdict::Undecided => undecided += 1,
        }
    }
    // A single one can just as well be a flipped bit in the master.
    if zeros > 1 {
        return Look::Damaged(format!("its columns are zero for {zeros} images for which the master has values"));
    }
    Look::Whole { images, differ, undecided: undecided + zeros }
}

/// The checksum of the chunks of an image as they are now; that of zero bytes if they cannot be read.
fn stored_sum(stack: &Dataset, spec: &FileSpec, starts: &[Vec<u64>], local: u64) -> u32 {
    let read = |start: &Vec<u64>| {
        let mut chunk = Vec::new();
        let found = low::read_chunk(stack, &[&[local], &start[..]].concat(), spec.chunk_bytes_max(), &mut chunk);
        found.ok().flatten().map(|()| chunk)
    };
    let chunks: Option<Vec<Vec<u8>>> = starts.iter().map(read).collect();
    checksum::of(chunks.unwrap_or_default().iter().map(Vec::as_slice))
}
