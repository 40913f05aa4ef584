//! The rows of per-image columns that a data file and the master hold of the same images, and which of them agree with
//! the stored bytes.

use hdf5::File;

use super::bounded::BYTES_MAX;
use super::checksum::{self, CHECKSUM};
use super::columns::{Column, Columns, ImageStatus};
use super::low;
use super::paths::COLUMNS;

/// Rows of columns as one file holds them.
pub(super) struct Rows {
    rows: Vec<Vec<u8>>,
    has_sums: bool,
    is_complete: bool,
}

/// The row of one image in one file.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) has_sum: bool,
}

/// How well a row and the stored chunks of an image agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Agreement {
    Nothing,
    /// The row says that there are pixels, and has no checksum.
    Status,
    /// The checksum is right, but the row says that there are no pixels.
    Checksum,
    Both,
}

impl Rows {
    /// Rows from `first` on, at most up to `images`; `None` if the states cannot be read. Other columns that cannot be
    /// read, or have another length, read as zeros.
    pub(super) fn of(file: &File, columns: &Columns, first: u64, images: u64) -> Option<Self> {
        let group = file.group(COLUMNS).ok()?;
        let length = |name: &str| Some(*group.dataset(name).ok()?.shape().first()? as u64);
        let there = length("status")?;
        let images = images.min(there.saturating_sub(first));
        let read = |column: &Column| {
            let set = group.dataset(&column.name).ok().filter(|_| length(&column.name) == Some(there))?;
            low::read_rows(&set, column, first, images).ok()
        };
        // As much memory as the largest table that is read, at most.
        images.checked_mul(columns.row_bytes as u64).filter(|bytes| *bytes <= BYTES_MAX as u64)?;
        let mut found = Self { rows: vec![vec![0; columns.row_bytes]; images as usize], has_sums: false, is_complete: true };
        for column in &columns.list {
            let Some(bytes) = read(column) else {
                if column.name == "status" {
                    return None;
                }
                found.is_complete &= column.name == CHECKSUM && !group.link_exists(CHECKSUM);
                continue;
            };
            found.has_sums |= column.name == CHECKSUM;
            for (row, value) in found.rows.iter_mut().zip(bytes.chunks_exact(column.bytes())) {
                row[column.offset..column.offset + value.len()].copy_from_slice(value);
            }
        }
        Some(found)
    }

    /// Whether every column could be read; checksums may be absent, because earlier versions did not write them.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether there are checksums.
    pub(super) fn has_sums(&self) -> bool {
        self.has_sums
    }

    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Whether all bytes are zero.
    pub(super) fn is_nothing(&self) -> bool {
        self.rows.iter().flatten().all(|byte| *byte == 0)
    }

    pub(super) fn get(&self, local: u64) -> Option<Row<'_>> {
        let bytes = self.rows.get(usize::try_from(local).ok()?)?;
        Some(Row { bytes, has_sum: self.has_sums })
    }
}

impl Row<'_> {
    /// A row of zeros is that of a lost image, or of an image of which nothing is known.
    pub(super) fn is_nothing(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    pub(super) fn has_pixels(&self, columns: &Columns) -> bool {
        columns.status(self.bytes).is_some_and(ImageStatus::has_pixels)
    }

    pub(super) fn agrees(&self, columns: &Columns, sum: u32) -> Agreement {
        let same = self.has_sum && columns.checksum(self.bytes) == sum;
        match (same, self.has_pixels(columns)) {
            (true, true) => Agreement::Both,
            (true, false) => Agreement::Checksum,
            (false, true) if !self.has_sum => Agreement::Status,
            _ => Agreement::Nothing,
        }
    }

    /// Whether both rows are equal. Checksums are compared only if both have one.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let both = self.has_sum && other.has_sum;
        let end = self.bytes.len() - if both { 0 } else { checksum::BYTES };
        self.bytes[..end] == other.bytes[..end]
    }

    /// This row, with the values of the other row in the columns where this one is zero.
    pub(super) fn completed(&self, other: Option<Row<'_>>, columns: &Columns) -> Vec<u8> {
        let mut row = self.bytes.to_vec();
        let Some(other) = other else { return row };
        for column in &columns.list {
            let range = column.offset..column.offset + column.bytes();
            if row[range.clone()].iter().all(|byte| *byte == 0) {
                row[range.clone()].copy_from_slice(&other.bytes[range]);
            }
        }
        row
    }
}

/// Which row is taken as right, of those that a data file and the master hold of an image with this checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// That of the data file.
    Own,
    /// That of the master: the row of the data file is damaged.
    Master,
    /// Columns of the data file are zero where the master has numbers: a lost block of the file reads as zeros.
    Zeros,
    /// They differ, and nothing shows which one is right.
    Undecided,
}

/// Compares two rows that are not the same.
pub(super) fn judge(own: Row<'_>, master: Row<'_>, columns: &Columns, sum: u32) -> Verdict {
    let (of_own, of_master) = (own.agrees(columns, sum), master.agrees(columns, sum));
    if of_own != of_master {
        return if of_own > of_master { Verdict::Own } else { Verdict::Master };
    }
    // What the master says of pixels that are no longer there is of no use.
    if of_own == Agreement::Nothing && master.has_pixels(columns) {
        return Verdict::Own;
    }
    if own.completed(Some(master), columns) != own.bytes { Verdict::Zeros } else { Verdict::Undecided }
}
