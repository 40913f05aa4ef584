//! The pixels above a level of all images of a file of results, as one sparse matrix in compressed rows (CSR): one row
//! for each image, one column for each pixel, row by row.
//!
//! `data`, `indices` and `indptr` are the arguments of `scipy.sparse.csr_array`; the attributes have the names and
//! values that AnnData specifies for such a group.

use hdf5::{Dataset, Group};
use konkordia_core::frame_header::ColumnType;

use super::columns::Column;
use super::low;
use super::nexus::{self, attribute_text};

/// Its name.
const NAME: &str = "pixels_above_level";
/// Numbers that wait at most.
const WAITING_MAX: usize = 1 << 16;

/// The matrix while it is written.
pub(super) struct SparseRows {
    group: Group,
    pixels: u64,
    /// Values, numbers of pixels, and ends of rows.
    sets: [(Column, Dataset, Vec<u8>); 3],
    /// Entries so far, and rows so far.
    entries: u64,
    rows: u64,
    written: [u64; 3],
}

impl SparseRows {
    /// An empty matrix for images of `shape`, rows and columns.
    pub(super) fn create(parent: &Group, shape: [usize; 2]) -> hdf5::Result<Self> {
        let group = nexus::group(parent, NAME, "NXcollection")?;
        attribute_text(&group, "encoding-type", "csr_matrix")?;
        attribute_text(&group, "encoding-version", "0.1.0")?;
        let image_shape = shape.map(|length| length as i64);
        group.new_attr_builder().with_data(&image_shape).create("image_shape")?;
        let set = |name: &str, kind: ColumnType, description: &str| {
            let column = Column { name: name.into(), kind, shape: vec![], offset: 0, description: description.into() };
            let set = low::create_column(&group, &column, u32::MAX)?;
            attribute_text(&set, "description", description)?;
            Ok::<_, hdf5::Error>((column, set, Vec::new()))
        };
        let mut sets = [
            set("data", ColumnType::F64, "values of the pixels above the level, image after image, each row by row")?,
            set("indices", ColumnType::I64, "number of each of these pixels in its image, row by row, from 0")?,
            set("indptr", ColumnType::I64, "image n has the entries from indptr[n] to before indptr[n + 1]")?,
        ];
        sets[2].2.extend_from_slice(&0i64.to_le_bytes());
        let pixels = (shape[0] * shape[1]) as u64;
        Ok(Self { group, pixels, sets, entries: 0, rows: 0, written: [0; 3] })
    }

    /// Appends an image: the numbers of its pixels, ascending, and their values.
    pub(super) fn push(&mut self, indices: &[u32], values: &[f64]) -> hdf5::Result<()> {
        assert_eq!(indices.len(), values.len(), "one value for each pixel");
        self.entries += indices.len() as u64;
        self.rows += 1;
        let [(.., data), (.., places), (.., ends)] = &mut self.sets;
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        places.extend(indices.iter().flat_map(|index| i64::from(*index).to_le_bytes()));
        ends.extend_from_slice(&self.entries.cast_signed().to_le_bytes());
        let waiting = self.sets.iter().map(|(.., bytes)| bytes.len()).max().unwrap_or(0);
        if waiting >= 8 * WAITING_MAX { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> hdf5::Result<()> {
        for ((column, set, bytes), written) in self.sets.iter_mut().zip(&mut self.written) {
            let count = (bytes.len() / 8) as u64;
            if count > 0 {
                low::set_extent(set, *written + count, &[])?;
                low::write_rows(set, column, *written, bytes)?;
            }
            *written += count;
            bytes.clear();
        }
        Ok(())
    }

    /// Writes what waits, and the shape.
    pub(super) fn finish(mut self) -> hdf5::Result<()> {
        self.write()?;
        let shape = [self.rows, self.pixels].map(u64::cast_signed);
        self.group.new_attr_builder().with_data(&shape).create("shape").map(drop)
    }
}
