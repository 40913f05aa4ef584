//! HDF5 files of other programs, limited to stacks of detector words and the numbers beside them: the raw files of the
//! slsReceiver and of SwissFEL. Returns where the bytes of each image lie in the file, so that they are read without
//! the library.

use std::path::{Path, PathBuf};

use hdf5::datatype::ByteOrder;
use hdf5::types::{FixedAscii, FloatSize, IntSize, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5::{Dataset, File};

use super::bounded::ReadAll;
use super::error::{Context, Error, ErrorKind};
use super::foreign_low::raw_values;
use super::low;
use super::packing;
use super::spec::{Compression, IMAGES_PER_FILE_MAX, PIXELS_MAX};

const DOING: &str = "read the input";
/// Most values of one table that are read: one per image and tile.
const VALUES_MAX: usize = 1 << 28;

/// Where the stored bytes of an image lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredImage {
    /// Offset in the file.
    pub address: u64,
    /// Size in bytes; that of the pixels if nothing is compressed.
    pub bytes: u64,
}

/// A stack of images of unsigned integers, images x rows x columns, little-endian.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Rows of an image.
    pub rows: usize,
    /// Columns of an image.
    pub columns: usize,
    /// Bytes of a pixel: 1, 2 or 4.
    pub pixel_bytes: usize,
    /// How images are stored.
    pub compression: Compression,
    /// One entry per image; `None` for an image that was never written.
    pub images: Vec<Option<StoredImage>>,
}

/// An open file of another program.
pub struct ForeignFile {
    path: PathBuf,
    file: File,
}

/// True if the file begins as HDF5 files do.
pub fn is_hdf5(head: &[u8]) -> bool {
    head.starts_with(b"\x89HDF\r\n\x1a\n")
}

impl ForeignFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it is absent, or not an HDF5 file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        std::fs::metadata(path).context(DOING, path)?;
        let wrong = |error| {
            let Error { cause, .. } = Error::hdf5(DOING, path, error);
            Error::new(ErrorKind::Damaged, DOING, path, cause)
                .with_hint("check that this is a whole HDF5 file, for example with h5dump")
        };
        Ok(Self { path: path.to_owned(), file: low::open_file(path).map_err(wrong)? })
    }

    /// Names in a group; empty if there is no such group.
    pub fn names(&self, group: &str) -> Vec<String> {
        self.file.group(group).and_then(|g| g.member_names()).unwrap_or_default()
    }

    /// True if there is a data set of this name.
    pub fn has(&self, name: &str) -> bool {
        self.file.dataset(name).is_ok()
    }

    /// A table of integers, row after row; `None` if there is no such table or it holds something else.
    pub fn numbers(&self, name: &str) -> Option<Vec<u64>> {
        let table = self.file.dataset(name).ok().filter(|t| t.size() <= VALUES_MAX)?;
        match table.dtype().ok()?.to_descriptor().ok()? {
            TypeDescriptor::Unsigned(_) => table.read_all().ok(),
            // -1 stands for "none" in signed tables.
            TypeDescriptor::Integer(_) => Some(table.read_all::<i64>().ok()?.into_iter().map(|v| v as u64).collect()),
            TypeDescriptor::Boolean => Some(table.read_all::<bool>().ok()?.into_iter().map(u64::from).collect()),
            TypeDescriptor::Float(FloatSize::U8 | FloatSize::U4) => {
                Some(table.read_all::<f64>().ok()?.into_iter().map(|v| v as u64).collect())
            }
            _ => None,
        }
    }

    /// A single integer.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers(name).filter(|v| v.len() == 1)?.first().copied()
    }

    /// A single text, whatever string type holds it.
    pub fn text(&self, name: &str) -> Option<String> {
        let field = self.file.dataset(name).ok().filter(|f| f.size() == 1)?;
        let fixed = || Some(field.read_all::<FixedAscii<256>>().ok()?.first()?.as_bytes().to_vec());
        let bytes = match field.dtype().ok()?.to_descriptor().ok()? {
            TypeDescriptor::VarLenUnicode => field.read_all::<VarLenUnicode>().ok()?.first()?.as_bytes().to_vec(),
            TypeDescriptor::VarLenAscii => field.read_all::<VarLenAscii>().ok()?.first()?.as_bytes().to_vec(),
            _ => fixed()?,
        };
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    /// A table of texts of `bytes` bytes each, as stored, zero bytes too; `None` if there is no such table or it holds
    /// something else.
    pub fn bytes(&self, name: &str, bytes: usize) -> Option<Vec<u8>> {
        let table = self.file.dataset(name).ok().filter(|t| t.size() <= VALUES_MAX / bytes)?;
        let kind = table.dtype().ok()?.to_descriptor().ok()?;
        let fixed = matches!(kind, TypeDescriptor::FixedAscii(n) | TypeDescriptor::FixedUnicode(n) if n == bytes);
        fixed.then_some(())?;
        raw_values(&table, bytes).ok()
    }

    /// A stack of images, each of which lies in one piece.
    ///
    /// # Errors
    /// If there is no such data set, it is not a stack of images, or its chunks or filters are not supported.
    pub fn stack(&self, name: &str) -> Result<Stack, Error> {
        let stack = self.file.dataset(name).context(DOING, &self.path)?;
        let refuse = |cause: String, hint: &str| {
            Error::new(ErrorKind::Damaged, DOING, &self.path, format!("{name} {cause}")).with_hint(hint)
        };
        let shape = stack.shape();
        let &[images, rows, columns] = &shape[..] else {
            return Err(refuse(format!("has the shape {shape:?}, not images x rows x columns"), "name another data set"));
        };
        if images > IMAGES_PER_FILE_MAX as usize * 100 || !(1..=PIXELS_MAX).contains(&rows.saturating_mul(columns)) {
            return Err(refuse(format!("has the impossible shape {shape:?}"), "the file is damaged"));
        }
        let kind = stack.dtype().context(DOING, &self.path)?;
        let words = kind.to_descriptor().context(DOING, &self.path)?;
        let pixel_bytes = match words {
            TypeDescriptor::Unsigned(IntSize::U1) => 1,
            TypeDescriptor::Unsigned(IntSize::U2) => 2,
            TypeDescriptor::Unsigned(IntSize::U4) => 4,
            other => {
                return Err(refuse(format!("holds {other}, not words of a detector"), "give the raw data, not converted images"));
            }
        };
        if kind.byte_order() == ByteOrder::BigEndian {
            return Err(refuse("is big-endian".into(), "copy it as little-endian words"));
        }
        let filters = low::filters(&stack).context(DOING, &self.path)?;
        let repack = "if there is a plug-in of HDF5 for them, name its folder in HDF5_PLUGIN_PATH; or make a copy that can be read: h5repack -l /DATASET:CHUNK=1xROWSxCOLUMNS -f NONE";
        let compression = packing::compression(&filters).ok_or_else(|| refuse(format!("has the filters {filters:?}"), repack))?;
        let image_bytes = rows.checked_mul(columns).and_then(|pixels| pixels.checked_mul(pixel_bytes));
        let image_bytes = image_bytes.ok_or_else(|| refuse("claims to have larger images than any".into(), repack))? as u64;
        let found = if stack.is_chunked() {
            if stack.chunk() != Some(vec![1, rows, columns]) {
                return Err(refuse(format!("has chunks of {:?}, not of one image", stack.chunk().unwrap_or_default()), repack));
            }
            chunks(&stack, images).context(DOING, &self.path)?
        } else {
            // Nothing is allocated for a stack that was never written. An address too large for 64 bits lies beyond the
            // end of the file, too.
            let at = move |start: u64, n: u64| start.saturating_add(n.saturating_mul(image_bytes));
            let place = |start: u64| move |n: u64| Some(StoredImage { address: at(start, n), bytes: image_bytes });
            match stack.offset() {
                Some(start) => (0..images as u64).map(place(start)).collect(),
                None => vec![None; images],
            }
        };
        if self.file.userblock() != 0 {
            return Err(refuse("lies behind a user block".into(), "remove it with h5unjam"));
        }
        let end = std::fs::metadata(&self.path).context(DOING, &self.path)?.len();
        let beyond =
            |s: &StoredImage| s.address.checked_add(s.bytes).is_none_or(|e| e > end) || s.bytes > 2 * image_bytes + 65536;
        // The file was cut short: these images are absent.
        let images = found.into_iter().map(|s| s.filter(|s| !beyond(s))).collect();
        Ok(Stack { rows, columns, pixel_bytes, compression, images })
    }
}

fn chunks(stack: &Dataset, images: usize) -> hdf5::Result<Vec<Option<StoredImage>>> {
    let mut found = vec![None; images];
    stack.chunks_visit(|chunk| {
        // A chunk that skipped a filter does not match the filters; no known writer of raw data makes such chunks.
        if let Some(place) = found.get_mut(chunk.offset[0] as usize).filter(|_| chunk.filter_mask == 0 && chunk.size > 0) {
            *place = Some(StoredImage { address: chunk.addr, bytes: chunk.size });
        }
        0
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn new_file() -> (tempfile::TempDir, PathBuf, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let file = File::create(&path).unwrap();
        (folder, path, file)
    }

    #[test]
    fn images_lie_where_the_stack_says() {
        let (_folder, path, file) = new_file();
        let words: Vec<u16> = (0..3 * 4 * 8).collect();
        let chunked = file.new_dataset::<u16>().chunk((1, 4, 8)).shape((3.., 4, 8)).create("chunked").unwrap();
        chunked.write_raw(&words).unwrap();
        chunked.resize((5, 4, 8)).unwrap();
        file.new_dataset::<u16>().shape((3, 4, 8)).create("plain").unwrap().write_raw(&words).unwrap();
        file.new_dataset::<u16>().chunk((2, 4, 8)).shape((4, 4, 8)).create("two").unwrap();
        file.new_dataset::<i16>().shape((3, 4, 8)).create("signed").unwrap();
        file.new_dataset::<u16>().shape((4, 8)).create("flat").unwrap();
        drop((chunked, file));
        let foreign = ForeignFile::open(&path).unwrap();
        let bytes = std::fs::File::open(&path).unwrap();
        for (name, images) in [("chunked", 5), ("plain", 3)] {
            let stack = foreign.stack(name).unwrap();
            assert_eq!((stack.rows, stack.columns, stack.pixel_bytes, stack.images.len()), (4, 8, 2, images), "{name}");
            for (n, image) in stack.images.iter().enumerate() {
                let Some(place) = image else {
                    assert!(n >= 3, "image {n} was written");
                    continue;
                };
                let mut found = [0; 64];
                bytes.read_exact_at(&mut found, place.address).unwrap();
                let expected: Vec<u8> = words[n * 32..(n + 1) * 32].iter().flat_map(|w| w.to_le_bytes()).collect();
                assert_eq!((place.bytes, &found[..]), (64, &expected[..]), "{name} {n}");
            }
        }
        for (name, part) in [("two", "chunks of [2, 4, 8]"), ("signed", "not words"), ("flat", "shape [4, 8]"), ("gone", "")] {
            let error = foreign.stack(name).unwrap_err();
            assert!(error.cause.contains(part), "{name}: {error}");
        }
        // Cut off in the last image.
        let whole = std::fs::metadata(&path).unwrap().len();
        let last = foreign.stack("chunked").unwrap().images[2].unwrap();
        assert!(last.address < whole);
    }

    #[test]
    fn masks_keep_their_zero_bytes_and_numbers_are_numbers() {
        let (_folder, path, file) = new_file();
        let masks =
            [FixedAscii::<64>::from_ascii(&[1u8; 64]).unwrap(), FixedAscii::<64>::from_ascii(b"a\0b").unwrap_or_default()];
        file.new_dataset_builder().with_data(&masks).create("mask").unwrap();
        file.new_dataset_builder().with_data(&[-1i64, 5]).create("map").unwrap();
        file.new_dataset_builder().with_data(&[true, false]).create("good").unwrap();
        file.new_dataset::<u32>().create("one").unwrap().write_scalar(&7u32).unwrap();
        drop(file);
        let foreign = ForeignFile::open(&path).unwrap();
        assert_eq!(foreign.bytes("mask", 64).unwrap()[..64], [1; 64]);
        assert_eq!((foreign.bytes("mask", 32), foreign.bytes("map", 8)), (None, None));
        assert_eq!((foreign.numbers("map"), foreign.number("one")), (Some(vec![u64::MAX, 5]), Some(7)));
        assert_eq!((foreign.numbers("good"), foreign.numbers("gone"), foreign.text("map")), (Some(vec![1, 0]), None, None));
        drop(foreign);
        std::fs::write(&path, "no").unwrap();
        assert!(ForeignFile::open(&path).err().unwrap().hint.contains("HDF5"));
    }
}
