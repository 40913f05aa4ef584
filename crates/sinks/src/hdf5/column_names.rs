//! The names that the per-image columns of a run have, and the columns of a packet format as text.

use super::checksum::CHECKSUM;
use konkordia_core::frame_header::{ColumnType, ColumnValue, FIELDS_MAX, FrameColumn};
use konkordia_core::sls_header;

/// The columns of every run; those of the packet format stand between the last two.
const FIXED: [&str; 5] = ["frame_number", "status", "packets_received", "packet_bitmap", CHECKSUM];
/// Most columns of a packet format: its fields and the time stamp, each once.
const FRAME_COLUMNS_MAX: usize = FIELDS_MAX + 1;

/// Whether an additional column must not have this name, whatever the packet format is.
pub(crate) fn is_reserved(name: &str) -> bool {
    FIXED.contains(&name) || sls_header::COLUMNS.iter().any(|column| column.name == name)
}

/// Whether a name consists of letters, digits and underscores.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Why a packet format cannot have these columns.
pub(crate) fn problem(columns: &[FrameColumn]) -> Option<String> {
    let is_wrong = |(n, column): &(usize, &FrameColumn)| {
        let is_twice = columns[..*n].iter().any(|other| other.name == column.name);
        !is_plain(&column.name) || FIXED.contains(&&*column.name) || is_twice || field(column.value) >= FIELDS_MAX
    };
    if columns.len() > FRAME_COLUMNS_MAX {
        return Some(format!("{} columns of a packet format are more than {FRAME_COLUMNS_MAX}", columns.len()));
    }
    let (_, wrong) = columns.iter().enumerate().find(is_wrong)?;
    Some(format!("'{}' cannot be a column of a packet format", wrong.name))
}

fn field(value: ColumnValue) -> usize {
    match value {
        ColumnValue::Timestamp => 0,
        ColumnValue::Field(field) => field,
    }
}

/// The text that begins a list of columns.
const NONE: &str = "none";

/// The columns as text: the list begins with "none"; each column says type, `image` or `tile`, the field (or
/// `timestamp`), name and meaning.
pub(crate) fn to_text(columns: &[FrameColumn], mut put: impl FnMut(&str)) {
    put(NONE);
    for column in columns {
        let per = if column.is_per_tile { "tile" } else { "image" };
        let value = match column.value {
            ColumnValue::Timestamp => "timestamp".to_owned(),
            ColumnValue::Field(field) => field.to_string(),
        };
        put(&format!("{} {per} {value} {} {}", column.kind.name(), column.name, column.meaning));
    }
}

/// Adds a column from its text.
pub(crate) fn add_from_text(columns: &mut Vec<FrameColumn>, text: &str) -> Result<(), String> {
    if text == NONE {
        columns.clear();
        return Ok(());
    }
    let mut words = text.splitn(5, ' ');
    let mut word = || words.next().ok_or("five words expected");
    let (kind, per, value, name, meaning) = (word()?, word()?, word()?, word()?, word()?);
    let value = match value {
        "timestamp" => ColumnValue::Timestamp,
        field => ColumnValue::Field(field.parse().map_err(|_| "not a field")?),
    };
    columns.push(FrameColumn {
        name: name.to_owned().into(),
        kind: ColumnType::from_name(kind).ok_or("not a type of columns")?,
        value,
        is_per_tile: per == "tile",
        meaning: meaning.to_owned().into(),
    });
    problem(columns).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back_from_their_text() {
        let own = [
            FrameColumn::of_image("pulse", ColumnType::U64, ColumnValue::Field(5), "number of the pulse"),
            FrameColumn::of_tiles("clock", ColumnType::U8, ColumnValue::Timestamp, "a = b"),
        ];
        for columns in [&own[..], &[], &sls_header::COLUMNS] {
            let mut read = sls_header::COLUMNS.to_vec();
            to_text(columns, |text| add_from_text(&mut read, text).unwrap());
            assert_eq!(read, columns);
        }
    }

    #[test]
    fn impossible_columns_are_refused() {
        let refused = |lines: &[&str]| {
            let mut columns = Vec::new();
            lines.iter().any(|text| add_from_text(&mut columns, text).is_err())
        };
        assert!(!refused(&["uint16 tile 0 board the board"]));
        for lines in [
            &["uint16 tile 0 status x"][..],
            &["uint16 tile 0 a/b x"],
            &["uint16 tile 6 board x"],
            &["uint16 tile x board x"],
            &["int8 tile 0 board x"],
            &["uint16 tile 0 board"],
            &["uint16 tile 0 board x", "uint16 tile 1 board x"],
            &[
                "none",
                "uint8 image 0 a x",
                "uint8 image 0 b x",
                "uint8 image 0 c x",
                "uint8 image 0 d x",
                "uint8 image 0 e x",
                "uint8 image 0 f x",
                "uint8 image 0 g x",
                "uint8 image 0 h x",
            ],
        ] {
            assert!(refused(lines), "{lines:?}");
        }
    }
}
