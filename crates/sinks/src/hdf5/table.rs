//! Columns of numbers that grow together, row by row.

use hdf5::{Dataset, Group};

use super::columns::{Column, ColumnType};
use super::low;

/// Rows of a chunk of a column.
const CHUNK_ROWS: u32 = 256;

/// Columns with the same rows.
pub(crate) struct Table {
    columns: Vec<(Dataset, Column)>,
    pub(crate) rows: u64,
}

impl Table {
    pub(crate) fn create(parent: &Group, columns: &[(&str, ColumnType, &[usize])]) -> hdf5::Result<Self> {
        let create = |&(name, kind, shape): &(&str, ColumnType, &[usize])| {
            let (name, shape, description) = (name.to_owned(), shape.to_vec(), String::new());
            let column = Column { name, kind, shape, offset: 0, description };
            Ok((low::create_column(parent, &column, CHUNK_ROWS)?, column))
        };
        Ok(Self { columns: columns.iter().map(create).collect::<hdf5::Result<_>>()?, rows: 0 })
    }

    /// Appends rows: the bytes of each column.
    pub(crate) fn append(&mut self, values: &[&[u8]]) -> hdf5::Result<()> {
        assert_eq!(values.len(), self.columns.len(), "one value for each column");
        let added = values[0].len() / self.columns[0].1.bytes();
        for ((dataset, column), bytes) in self.columns.iter().zip(values) {
            assert_eq!(bytes.len(), added * column.bytes(), "as many rows of {}", column.name);
            low::set_extent(dataset, self.rows + added as u64, &column.shape)?;
            if added > 0 {
                low::write_rows(dataset, column, self.rows, bytes)?;
            }
        }
        self.rows += added as u64;
        Ok(())
    }
}
