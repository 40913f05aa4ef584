//! How files are written: their names until they are whole, what becomes of older files of a run, and how a master
//! names the images.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The name that a file has until it is whole: hidden, beside its own name, with `.part` behind it.
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    path.with_file_name(name)
}

/// What to do when files of this run exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Refuse to start.
    #[default]
    Refuse,
    /// Remove the master and all data files of the same prefix at create.
    Replace,
}

/// How the master names the images. fabio adds up every member of `/entry/data` whose name starts with "data", so it
/// counts images twice if a virtual data set called `data` stands beside links `data_000001`. XDS (neggia) needs the
/// links; most NeXus readers follow `@signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Links `data_000001` and so on, and the virtual data set `images`, named by `@signal`: right in every reader
    /// tested.
    #[default]
    Both,
    /// Only the virtual data set, called `data`. Not for XDS or ALBULA.
    Virtual,
    /// Only the links. Not for DIALS when there is more than one data file.
    Links,
}

impl Layout {
    /// Name in configurations and in the files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Virtual => "virtual",
            Self::Links => "links",
        }
    }

    /// Name, in `/entry/data`, of the one data set that has all images; `None` if there are only links.
    pub const fn stack(self) -> Option<&'static str> {
        match self {
            Self::Both => Some("images"),
            Self::Virtual => Some("data"),
            Self::Links => None,
        }
    }

    /// The layout of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Both, Self::Virtual, Self::Links].into_iter().find(|layout| layout.name() == name)
    }
}

/// The part of a detector's image that one host receives and writes, with files of its own. The master of the whole
/// image is made of the files of all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOfImage {
    /// Number of the part, from 1.
    pub number: u32,
    /// Number of parts.
    pub of: u32,
    /// Row of the whole image in which the part begins.
    pub row: u32,
    /// Column of the whole image in which the part begins.
    pub column: u32,
    /// Rows of the whole image.
    pub image_rows: u32,
    /// Columns of the whole image.
    pub image_columns: u32,
}

impl PartOfImage {
    /// Most parts of one image.
    pub const PARTS_MAX: u32 = 256;

    /// What stands behind the prefix of the run in the names of the files of the part.
    pub fn suffix(&self) -> String {
        Self::suffix_of(self.number)
    }

    /// The suffix of part `number`.
    pub fn suffix_of(number: u32) -> String {
        format!("_part{number}")
    }

    /// As text, for [`Self::from_text`].
    pub fn to_text(&self) -> String {
        let Self { number, of, row, column, image_rows, image_columns } = self;
        format!("{number} {of} {row} {column} {image_rows} {image_columns}")
    }

    /// The inverse of [`Self::to_text`]; `None` if it is no part.
    pub fn from_text(text: &str) -> Option<Self> {
        let numbers: Vec<u32> = text.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [number, of, row, column, image_rows, image_columns] = numbers[..] else { return None };
        let part = Self { number, of, row, column, image_rows, image_columns };
        (part.problem(1, 1).is_none()).then_some(part)
    }

    /// Why a part of so many rows and columns is impossible, in words.
    pub fn problem(&self, rows: u32, columns: u32) -> Option<String> {
        let Self { number, of, row, column, image_rows, image_columns } = *self;
        if !(2..=Self::PARTS_MAX).contains(&of) || !(1..=of).contains(&number) {
            return Some(format!(
                "there is no part {number} of {of}; parts are numbered from 1, and there are 2 to {}",
                Self::PARTS_MAX
            ));
        }
        let ends = [(row, rows, image_rows, "rows"), (column, columns, image_columns, "columns")];
        let wrong = ends.into_iter().find(|(first, size, whole, _)| first.checked_add(*size).is_none_or(|end| end > *whole));
        wrong.map(|(first, size, whole, name)| {
            format!("its {size} {name} from {first} on do not lie in an image of {whole} {name}")
        })
    }
}
