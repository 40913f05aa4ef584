//! Per-image columns that only some runs have.

use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::{RESULT_NUMBERS_MAX, ResultKind};

/// A per-image column that only some runs have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraColumn {
    /// Its name: letters, digits and underscores.
    pub name: String,
    /// Type of its numbers, one of those of 8 bytes.
    pub kind: ColumnType,
    /// Numbers per image, at least 1; a column of more has the shape (images, length).
    pub length: usize,
}

impl ExtraColumn {
    /// Names of the columns of runs in which an image is not simply a frame: the position of its first frame, how many
    /// frames were added, and how many of them were complete.
    pub const SELECTION: [&'static str; 3] = ["first_frame", "frames", "frames_complete"];

    /// The columns of [`ExtraColumn::SELECTION`].
    pub fn of_selection() -> [Self; 3] {
        Self::SELECTION.map(Self::count)
    }

    /// A column of one unsigned number per image.
    pub fn count(name: &str) -> Self {
        Self { name: name.to_owned(), kind: ColumnType::U64, length: 1 }
    }

    /// As one line of the text of the run; columns of older files are a name only.
    pub(crate) fn to_text(&self) -> String {
        format!("{} {} {}", self.name, self.kind.name(), self.length)
    }

    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        let mut words = text.split(' ');
        let mut column = Self::count(words.next().unwrap_or_default());
        if let Some(name) = words.next() {
            let kind = ColumnType::from_name(name).filter(|kind| kind.bytes() == 8);
            column.kind = kind.ok_or_else(|| format!("'{name}' is not a type of 8 bytes"))?;
        }
        if let Some(length) = words.next() {
            let length = length.parse().ok().filter(|length| (1..=RESULT_NUMBERS_MAX).contains(length));
            column.length = length.ok_or("the length of a column is not a number that it can have")?;
        }
        Ok(column)
    }
}

impl From<ResultKind> for ExtraColumn {
    fn from(kind: ResultKind) -> Self {
        Self { name: kind.name.to_owned(), kind: kind.number, length: kind.length }
    }
}
