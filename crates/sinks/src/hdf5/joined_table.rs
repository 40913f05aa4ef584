//! The table of `konkordia join`: a row for each trigger number that was handed on, with the place of the image of each
//! detector in its own file and the numbers of other devices. Read [`JoinedTable`] first; docs/join.md has the layout.
//!
//! There is no journal: what was flushed before a process is killed can be read.

use std::path::{Path, PathBuf};

use hdf5::{File, Group};

use super::columns::ColumnType;
use super::error::{Context, Error};
use super::low::{self, Format};
use super::nexus;
use super::table::Table;

/// Most different numbers of one device that have columns.
pub const VALUES_MAX: usize = 256;
/// Rows that wait for a flush, at most.
const ROWS_MAX: usize = 4096;
const CREATE: &str = "create the table";
const WRITE: &str = "write the table";

/// A source of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedSource {
    /// Its name.
    pub name: String,
    /// It sends images, and otherwise numbers.
    pub has_images: bool,
}

/// What a source has in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JoinedPart<'a> {
    /// An image: its number in its series, and which series of the source this is, from 0.
    Image(u64, u64),
    /// Numbers by name.
    Scalars(&'a [(String, f64)]),
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct JoinedRow<'a> {
    /// Number of the trigger.
    pub trigger: u64,
    /// No required source is absent.
    pub is_complete: bool,
    /// Why it left, as docs/join.md numbers it.
    pub reason: u8,
    /// What each source has; `None` = absent.
    pub parts: &'a [Option<JoinedPart<'a>>],
}

/// What is written at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedAccount {
    /// Counters of the trigger numbers.
    pub numbers: Vec<(String, u64)>,
    /// Counters of each source.
    pub sources: Vec<Vec<(String, u64)>>,
    /// Names of the files of each source, one for each of its series, as its sender says them.
    pub files: Vec<Vec<String>>,
    /// Why the run ended.
    pub ended: String,
}

/// A column, and rows of it that wait.
struct Waiting {
    name: String,
    table: Table,
    bytes: Vec<u8>,
}

impl Waiting {
    fn create(parent: &Group, name: &str, kind: ColumnType) -> hdf5::Result<Self> {
        Ok(Self { name: name.to_owned(), table: Table::create(parent, &[(name, kind, &[])])?, bytes: Vec::new() })
    }

    fn write(&mut self) -> hdf5::Result<()> {
        self.table.append(&[&self.bytes])?;
        self.bytes.clear();
        Ok(())
    }
}

/// The columns of one source.
struct Columns {
    group: Group,
    has_images: bool,
    columns: Vec<Waiting>,
}

/// The open table.
pub struct JoinedTable {
    file: File,
    path: PathBuf,
    main: [Waiting; 3],
    sources: Vec<Columns>,
    rows: u64,
    refused: u64,
}

impl JoinedTable {
    /// Makes the file.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    pub fn create(path: &Path, sources: &[JoinedSource]) -> Result<Self, Error> {
        let make = || -> hdf5::Result<Self> {
            let file = low::create_file(path, Format::V18)?;
            nexus::attribute_text(&file, "NX_class", "NXroot")?;
            nexus::attribute_text(&file, "default", "entry")?;
            let entry = nexus::group(&file, "entry", "NXentry")?;
            nexus::attribute_text(&entry, "default", "joined")?;
            nexus::text(&entry, "start_time", &crate::clock::now())?;
            nexus::text(&entry, "program_name", &format!("konkordia {}", env!("CARGO_PKG_VERSION")))?;
            let joined = nexus::group(&entry, "joined", "NXdata")?;
            nexus::attribute_text(&joined, "signal", "complete")?;
            nexus::attribute_texts(&joined, "axes", &["trigger".to_owned()])?;
            let main = [
                Waiting::create(&joined, "trigger", ColumnType::U64)?,
                Waiting::create(&joined, "complete", ColumnType::U8)?,
                Waiting::create(&joined, "reason", ColumnType::U8)?,
            ];
            let groups = nexus::group(&entry, "sources", "NXcollection")?;
            let source = |source: &JoinedSource| -> hdf5::Result<Columns> {
                let group = nexus::group(&groups, &source.name, "NXcollection")?;
                let names: &[&str] = if source.has_images { &["image", "series"] } else { &[] };
                let columns = names.iter().map(|name| Waiting::create(&group, name, ColumnType::I64));
                let columns = columns.collect::<hdf5::Result<_>>()?;
                Ok(Columns { group, has_images: source.has_images, columns })
            };
            let sources = sources.iter().map(source).collect::<hdf5::Result<_>>()?;
            file.flush()?;
            Ok(Self { file, path: path.to_owned(), main, sources, rows: 0, refused: 0 })
        };
        make().context(CREATE, path)
    }

    /// Adds a row; it may wait for the next flush.
    ///
    /// # Errors
    /// The file cannot be written; nothing more can be added then.
    ///
    /// # Panics
    /// If there are not as many parts as sources, or a part is of the other kind.
    pub fn add(&mut self, row: &JoinedRow<'_>) -> Result<(), Error> {
        assert_eq!(row.parts.len(), self.sources.len(), "one part for each source");
        let [trigger, complete, reason] = &mut self.main;
        trigger.bytes.extend(row.trigger.to_le_bytes());
        complete.bytes.push(u8::from(row.is_complete));
        reason.bytes.push(row.reason);
        for (source, part) in self.sources.iter_mut().zip(row.parts) {
            match part {
                Some(JoinedPart::Scalars(values)) => {
                    assert!(!source.has_images, "a source of numbers");
                    self.refused += source.put(values, self.rows).context(WRITE, &self.path)?;
                }
                Some(JoinedPart::Image(number, series)) => {
                    assert!(source.has_images, "a source of images");
                    let numbers = [*number, *series].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
                    source.columns.iter_mut().zip(numbers).for_each(|(column, number)| column.bytes.extend(number.to_le_bytes()));
                }
                None if source.has_images => {
                    source.columns.iter_mut().for_each(|column| column.bytes.extend((-1_i64).to_le_bytes()));
                }
                None => self.refused += source.put(&[], self.rows).context(WRITE, &self.path)?,
            }
        }
        self.rows += 1;
        if self.main[1].bytes.len() >= ROWS_MAX { self.flush() } else { Ok(()) }
    }

    /// Writes the rows that wait, so that readers and a later kill find them.
    ///
    /// # Errors
    /// The file cannot be written; nothing more can be added then.
    pub fn flush(&mut self) -> Result<(), Error> {
        let columns = self.main.iter_mut().chain(self.sources.iter_mut().flat_map(|source| source.columns.iter_mut()));
        columns.filter(|column| !column.bytes.is_empty()).try_for_each(Waiting::write).context(WRITE, &self.path)?;
        self.file.flush().context(WRITE, &self.path)
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Numbers that are not in the table, because there were more than [`VALUES_MAX`] names.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Writes the rest, with the account.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, account: &JoinedAccount) -> Result<(), Error> {
        self.flush()?;
        let write = || -> hdf5::Result<()> {
            let entry = self.file.group("entry")?;
            nexus::text(&entry, "end_time", &crate::clock::now())?;
            let group = nexus::group(&entry, "account", "NXcollection")?;
            nexus::text(&group, "ended", &account.ended)?;
            counters(&nexus::group(&group, "numbers", "NXcollection")?, &account.numbers)?;
            let parts = nexus::group(&group, "sources", "NXcollection")?;
            for ((source, counts), files) in self.sources.iter().zip(&account.sources).zip(&account.files) {
                let name = source.group.name();
                let name = name.rsplit('/').next().unwrap_or_default();
                counters(&nexus::group(&parts, name, "NXcollection")?, counts)?;
                if source.has_images {
                    nexus::texts(&source.group, "files", files)?;
                }
            }
            self.file.flush()
        };
        write().context(WRITE, &self.path)
    }
}

fn counters(group: &Group, counts: &[(String, u64)]) -> hdf5::Result<()> {
    counts.iter().try_for_each(|(name, count)| nexus::number(group, name, *count, ""))
}

impl Columns {
    /// Adds the numbers of a row, NaN where there is none; gives how many found no column.
    fn put(&mut self, values: &[(String, f64)], rows: u64) -> hdf5::Result<u64> {
        let mut refused = 0;
        for (name, _) in values {
            if self.columns.iter().any(|column| column.name == *name) {
                continue;
            }
            if self.columns.len() == VALUES_MAX {
                refused += 1;
                continue;
            }
            let mut column = Waiting::create(&self.group, name, ColumnType::F64)?;
            // Rows before it.
            for first in (0..rows).step_by(ROWS_MAX) {
                column.bytes = f64::NAN.to_le_bytes().repeat((rows - first).min(ROWS_MAX as u64) as usize);
                column.write()?;
            }
            self.columns.push(column);
        }
        for column in &mut self.columns {
            let value = values.iter().find(|(name, _)| *name == column.name).map_or(f64::NAN, |(_, value)| *value);
            column.bytes.extend(value.to_le_bytes());
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdf5::ErrorKind;

    fn sources() -> Vec<JoinedSource> {
        [("left", true), ("encoder", false)].map(|(name, has_images)| JoinedSource { name: name.into(), has_images }).into()
    }

    #[test]
    fn rows_are_read_back_with_gaps_and_late_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("joined.h5");
        let mut table = JoinedTable::create(&path, &sources()).unwrap();
        let angle = [("angle_deg".to_owned(), 1.5)];
        let both = [("speed".to_owned(), 2.0), ("angle_deg".to_owned(), 2.5)];
        let rows = ROWS_MAX as u64 + 10;
        for n in 0..rows {
            let image = (n % 2 == 0).then_some(JoinedPart::Image(n, 1));
            let values = match n {
                0 => None,
                1..=4999 if n < rows - 1 => Some(JoinedPart::Scalars(&angle[..])),
                _ => Some(JoinedPart::Scalars(&both[..])),
            };
            let parts = [image, values];
            table.add(&JoinedRow { trigger: 10 + n, is_complete: n > 0, reason: u8::from(n == 0), parts: &parts }).unwrap();
        }
        assert_eq!((table.rows(), table.refused()), (rows, 0));
        let count = |name: &str, count| (name.to_owned(), count);
        let account = JoinedAccount {
            numbers: vec![count("complete", rows - 1)],
            sources: vec![vec![count("joined", 7)], vec![count("joined", 8)]],
            files: vec![vec!["a_master.h5".into(), "b_master.h5".into()], vec![]],
            ended: "finished".into(),
        };
        table.finish(&account).unwrap();
        let file = low::open_file(&path).unwrap();
        let read = |name: &str| file.dataset(name).unwrap();
        assert_eq!(read("entry/joined/trigger").read_raw::<u64>().unwrap(), (10..10 + rows).collect::<Vec<_>>());
        let images = read("entry/sources/left/image").read_raw::<i64>().unwrap();
        assert_eq!(images, (0..rows as i64).map(|n| if n % 2 == 0 { n } else { -1 }).collect::<Vec<_>>());
        let speed = read("entry/sources/encoder/speed").read_raw::<f64>().unwrap();
        assert!(speed[..speed.len() - 1].iter().all(|value| value.is_nan()) && speed.last() == Some(&2.0));
        let angle = read("entry/sources/encoder/angle_deg").read_raw::<f64>().unwrap();
        assert!(angle[0].is_nan() && angle[1..angle.len() - 1].iter().all(|value| *value == 1.5));
        assert_eq!((angle.len() as u64, angle.last()), (rows, Some(&2.5)));
        assert_eq!(read("entry/account/sources/encoder/joined").read_scalar::<u64>().unwrap(), 8);
        let files = crate::hdf5::text::read_list(&read("entry/sources/left/files")).unwrap();
        assert_eq!(files, ["a_master.h5", "b_master.h5"]);
    }

    #[test]
    fn a_file_is_not_replaced_and_names_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("joined.h5");
        let mut table = JoinedTable::create(&path, &sources()).unwrap();
        let many: Vec<(String, f64)> = (0..VALUES_MAX + 3).map(|n| (format!("v{n}"), n as f64)).collect();
        let parts = [None, Some(JoinedPart::Scalars(&many[..]))];
        table.add(&JoinedRow { trigger: 1, is_complete: true, reason: 0, parts: &parts }).unwrap();
        assert_eq!(table.refused(), 3);
        table.finish(&JoinedAccount::default()).unwrap();
        assert_eq!(JoinedTable::create(&path, &sources()).err().unwrap().kind, ErrorKind::Exists);
    }
}
