//! The results of images as files have them: files of runs and series, and those of `konkordia analyse --output`.

use std::path::{Path, PathBuf};

use hdf5::datatype::ByteOrder;
use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, File, Group};
use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::{self, RESULT_NUMBERS_MAX, ResultKind, analysis};

use super::columns::Column;
use super::error::{Context, Error, ErrorKind};
use super::low;
use super::nexus::read_text;
use super::paths::COLUMNS;
use super::stored::{StoredChunk, chunks};

const DOING: &str = "read the results of";
/// Where `konkordia analyse` writes them.
const RESULTS: &str = "/entry_1/result_1";

/// Where the numbers of one result lie in a file: row after row, those of one image in each.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredColumn {
    /// What it is.
    pub kind: ResultKind,
    /// Rows of a chunk, also of the last one.
    pub rows_per_chunk: u64,
    /// The chunks, in the order of their images.
    pub chunks: Vec<StoredChunk>,
}

/// The results in a file.
pub struct StoredResults {
    path: PathBuf,
    file: File,
    columns: Vec<(ResultKind, Column, Dataset)>,
    images: usize,
}

impl StoredResults {
    /// Opens a file that holds results of analysis.
    ///
    /// # Errors
    /// It cannot be read, or holds none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = low::open_file(path).context(DOING, path)?;
        let group = file.group(RESULTS).or_else(|_| file.group(COLUMNS)).ok();
        let columns = group.map_or(Ok(Vec::new()), |group| columns(&group)).context(DOING, path)?;
        let analysed = columns.iter().find(|(kind, ..)| kind.name == analysis::IS_ANALYSED.name);
        let Some(images) = analysed.and_then(|(.., set)| set.shape().first().copied()) else {
            let hint = "analyse its images first: konkordia analyse FILE --recipe RECIPE.toml --output RESULTS.h5";
            let cause = "it has no results of analysis".to_owned();
            return Err(Error::new(ErrorKind::Invalid, DOING, path, cause).with_hint(hint));
        };
        check(path, &columns, images)?;
        Ok(Self { path: path.to_owned(), file, columns, images })
    }

    /// Opens what a file of a run or series has beside the results that analysis makes; `None` if it has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn beside_analysis(path: &Path) -> Result<Option<Self>, Error> {
        Self::of_columns(path, |kind| !analysis::ALL.iter().any(|of_analysis| of_analysis.name == kind.name))
    }

    /// Opens all results that a file of a run or series has; `None` if it has none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_run(path: &Path) -> Result<Option<Self>, Error> {
        Self::of_columns(path, |_| true)
    }

    fn of_columns(path: &Path, is_wanted: impl Fn(&ResultKind) -> bool) -> Result<Option<Self>, Error> {
        let file = low::open_file(path).context(DOING, path)?;
        let group = file.group(COLUMNS).ok();
        let mut columns = group.map_or(Ok(Vec::new()), |group| columns(&group)).context(DOING, path)?;
        columns.retain(|(kind, ..)| is_wanted(kind));
        let images = columns.first().and_then(|(.., set)| set.shape().first().copied());
        let Some(images) = images else { return Ok(None) };
        check(path, &columns, images)?;
        Ok(Some(Self { path: path.to_owned(), file, columns, images }))
    }

    /// Only those whose kinds are wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&ResultKind) -> bool) {
        self.columns.retain(|(kind, ..)| is_wanted(kind));
    }

    /// What they are.
    pub fn kinds(&self) -> Vec<ResultKind> {
        self.columns.iter().map(|(kind, ..)| *kind).collect()
    }

    /// Number of images.
    pub fn images(&self) -> usize {
        self.images
    }

    /// The recipe of a run, as its text (TOML); the settings of `konkordia analyse` (JSON).
    pub fn recipe(&self) -> (Option<String>, Option<String>) {
        let of_run = read_text(&self.file, "/entry/konkordia/conversion/analysis_recipe");
        (of_run, read_text(&self.file, &format!("{RESULTS}/settings")))
    }

    /// The bits of the results of some images: kind after kind, image after image.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn rows(&self, first: usize, count: usize) -> Result<Vec<Vec<u64>>, Error> {
        let mut rows = vec![Vec::new(); count];
        for (kind, column, set) in &self.columns {
            let bytes = low::read_rows(set, column, first as u64, count as u64).context(DOING, &self.path)?;
            let bits: Vec<u64> = bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
            rows.iter_mut().zip(bits.chunks_exact(kind.length)).for_each(|(row, own)| row.extend(own));
        }
        Ok(rows)
    }

    /// Where the results lie in the file, so that they can be read without libhdf5. `most`: more chunks are an error.
    ///
    /// # Errors
    /// They do not lie there row by row as this program writes them, or are too many.
    pub fn places(&self, most: usize) -> Result<Vec<StoredColumn>, Error> {
        let mut left = most;
        let place = |(kind, column, set): &(ResultKind, Column, Dataset)| {
            let chunk = set.chunk().unwrap_or_default();
            let is_little = set.dtype().context(DOING, &self.path)?.byte_order() == ByteOrder::LittleEndian;
            let is_plain = is_little && low::filters(set).context(DOING, &self.path)?.is_empty();
            if !is_plain || chunk.first().is_none_or(|rows| *rows == 0) || chunk[1..] != column.shape {
                let cause = format!("{} does not lie in it as konkordia writes it", column.name);
                return Err(Error::new(ErrorKind::Invalid, DOING, &self.path, cause));
            }
            let chunks = chunks(set, &self.file, &self.path, &mut left)?;
            Ok(StoredColumn { kind: *kind, rows_per_chunk: chunk[0] as u64, chunks })
        };
        self.columns.iter().map(place).collect()
    }

    /// The numbers of a column of the run by image, such as `status`; `None` if there is none.
    pub fn status(&self) -> Option<Vec<u8>> {
        self.file.group(COLUMNS).ok()?.dataset("status").ok()?.read_raw::<u8>().ok()
    }
}

/// Columns of so many images are small enough and belong together.
fn check(path: &Path, columns: &[(ResultKind, Column, Dataset)], images: usize) -> Result<(), Error> {
    let numbers: usize = columns.iter().map(|(kind, ..)| kind.length).sum();
    if numbers > RESULT_NUMBERS_MAX || columns.iter().any(|(.., set)| set.shape().first() != Some(&images)) {
        let cause = "its columns of results are not those of images".to_owned();
        return Err(Error::new(ErrorKind::Damaged, DOING, path, cause));
    }
    Ok(())
}

/// The columns of a group that are results, in the order of their names.
fn columns(group: &Group) -> hdf5::Result<Vec<(ResultKind, Column, Dataset)>> {
    let mut found = Vec::new();
    for name in group.member_names()? {
        let Ok(set) = group.dataset(&name) else { continue };
        let number = match set.dtype()?.to_descriptor() {
            Ok(TypeDescriptor::Unsigned(hdf5::types::IntSize::U8)) => ColumnType::U64,
            Ok(TypeDescriptor::Integer(hdf5::types::IntSize::U8)) => ColumnType::I64,
            Ok(TypeDescriptor::Float(hdf5::types::FloatSize::U8)) => ColumnType::F64,
            _ => continue,
        };
        let (length, shape) = match set.shape()[..] {
            [_] => (1, vec![]),
            [_, length] if length > 0 => (length, vec![length]),
            [_, azimuths, bins] if azimuths.saturating_mul(bins) > 0 => (azimuths.saturating_mul(bins), vec![azimuths, bins]),
            _ => continue,
        };
        let column = Column { name: name.clone(), kind: number, shape, offset: 0, description: String::new() };
        found.extend(results::known(&name, number, length).map(|kind| (kind, column, set)));
    }
    Ok(found)
}
