//! The results of the images of a file, which its writer has stored image by image.

use super::index::ResultIndex;
use konkordia_core::failure::reason;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::results::{self, ImageResults, RESULT_NUMBERS_MAX, ResultKind};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a number: results have no others.
const NUMBER_BYTES: u64 = 8;

/// Where the results of images lie, checked.
pub struct StoredRows {
    index: ResultIndex,
    kinds: Arc<[ResultKind]>,
}

impl StoredRows {
    /// Those of an index, which may have come from a hostile file of so many bytes.
    ///
    /// # Errors
    /// It contradicts itself; in words.
    pub fn new(index: ResultIndex, file_bytes: u64) -> Result<Self, String> {
        let mut kinds = Vec::with_capacity(index.columns.len());
        for column in &index.columns {
            let name = &column.name;
            let number = ColumnType::from_name(&column.number).filter(|number| number.bytes() as u64 == NUMBER_BYTES);
            let kind = number.and_then(|number| results::known(name, number, column.length));
            kinds.push(kind.ok_or_else(|| format!("{name} is no result that is known"))?);
            let chunk = (column.length as u64).checked_mul(NUMBER_BYTES).and_then(|row| row.checked_mul(column.images_per_chunk));
            let chunk = chunk.filter(|bytes| *bytes > 0).ok_or_else(|| format!("{name} has chunks of no size"))?;
            if column.addresses.len() as u64 != index.images.div_ceil(column.images_per_chunk) {
                return Err(format!("{name}: its chunks and the images do not agree"));
            }
            if column.addresses.iter().any(|address| address.checked_add(chunk).is_none_or(|end| end > file_bytes)) {
                return Err(format!("{name}: a chunk does not lie in the file; the file was cut or is damaged"));
            }
        }
        if results::numbers(&kinds) > RESULT_NUMBERS_MAX {
            return Err("an image has more results than any analysis gives".into());
        }
        Ok(Self { index, kinds: kinds.into() })
    }

    /// Chunks of all results.
    pub fn chunks(&self) -> usize {
        self.index.columns.iter().map(|column| column.addresses.len()).sum()
    }

    /// Names of the results.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kinds.iter().map(|kind| kind.name)
    }

    /// The results of an image, from the file. Numbers that were never written are 0.
    ///
    /// # Errors
    /// The file cannot be read; in words.
    pub fn read(&self, file: &File, image: u64) -> Result<ImageResults, String> {
        let mut found = ImageResults::new(Arc::clone(&self.kinds));
        let mut rest = found.fill();
        for (column, kind) in self.index.columns.iter().zip(&*self.kinds) {
            let (own, after) = rest.split_at_mut(kind.length);
            rest = after;
            let place = usize::try_from(image / column.images_per_chunk).ok().and_then(|chunk| column.addresses.get(chunk));
            let Some(address) = place.filter(|address| **address > 0 && image < self.index.images) else { continue };
            let mut bytes = vec![0; own.len() * NUMBER_BYTES as usize];
            let at = address + image % column.images_per_chunk * bytes.len() as u64;
            file.read_exact_at(&mut bytes, at).map_err(|error| format!("the results: {}", reason(&error)))?;
            own.iter_mut().zip(bytes.as_chunks().0).for_each(|(bits, bytes)| *bits = u64::from_le_bytes(*bytes));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::ResultColumn;
    use super::*;
    use serde_json::json;

    fn column(name: &str, number: &str, length: usize, addresses: &[u64]) -> ResultColumn {
        let (name, number, addresses) = (name.into(), number.into(), addresses.to_vec());
        ResultColumn { name, number, length, images_per_chunk: 2, addresses }
    }

    /// Three images in chunks of two; the second chunk of the spots was never written.
    fn index() -> ResultIndex {
        let columns = vec![
            column("is_analysed", "uint64", 1, &[8, 24]),
            column("nPeaks", "uint64", 1, &[40, 56]),
            column("peakXPosRaw", "float64", 2, &[72, 0]),
        ];
        ResultIndex { images: 3, columns }
    }

    #[test]
    fn each_image_has_its_own_row() {
        let mut file = tempfile::tempfile().unwrap();
        let words = [99, 1, 1, 1, 7, 1, 2, 0, 7, 1.5f64.to_bits(), 0, 3.5f64.to_bits(), 4.0f64.to_bits()];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let rows = StoredRows::new(index(), bytes.len() as u64).unwrap();
        let said = |image| serde_json::Value::Object(rows.read(&file, image).unwrap().to_json());
        assert_eq!(said(0), json!({"is_analysed": 1, "nPeaks": 1, "peakXPosRaw": [1.5]}));
        assert_eq!(said(1), json!({"is_analysed": 1, "nPeaks": 2, "peakXPosRaw": [3.5, 4.0]}));
        assert_eq!(said(2), json!({"is_analysed": 1, "nPeaks": 0, "peakXPosRaw": []}));
        // Images behind those that have results were not analysed.
        assert_eq!(said(3), json!({"is_analysed": 0, "nPeaks": 0, "peakXPosRaw": []}));
        assert_eq!((rows.chunks(), rows.names().count()), (6, 3));
        file.set_len(80).unwrap();
        assert!(rows.read(&file, 1).is_err(), "the file was cut");
    }

    #[test]
    fn an_index_that_contradicts_itself_is_refused() {
        type Change = fn(&mut ResultIndex);
        let changes: [(&str, Change); 9] = [
            ("no result", |index| index.columns[0].name = "password".into()),
            ("no result", |index| index.columns[0].number = "uint8".into()),
            ("no size", |index| index.columns[0].length = 0),
            ("no size", |index| index.columns[0].length = usize::MAX),
            ("no size", |index| index.columns[0].images_per_chunk = 0),
            ("do not agree", |index| index.images = 5),
            ("lie in the file", |index| index.columns[2].addresses[0] = 96),
            ("lie in the file", |index| index.columns[2].addresses[0] = u64::MAX - 1),
            ("more results", |index| {
                index.columns[2] = column("peakXPosRaw", "float64", RESULT_NUMBERS_MAX, &[0, 0]);
            }),
        ];
        for (why, change) in changes {
            let mut index = index();
            change(&mut index);
            let bytes = if why == "more results" { 1 << 20 } else { 104 };
            let found = StoredRows::new(index, bytes).err().unwrap_or_else(|| panic!("{why}: it was taken"));
            assert!(found.contains(why), "{why}: {found}");
        }
    }
}
