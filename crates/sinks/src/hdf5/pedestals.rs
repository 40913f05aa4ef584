//! Snapshots of the pedestals that a run tracks, taken from time to time, in a file of their own beside the images:
//! `<prefix>_pedestals.h5`.
//!
//! There is no journal: each snapshot is flushed as a whole, and after a kill the file holds the snapshots before the
//! last flush.

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File};
use konkordia_core::pixel::PixelType;

use super::bounded::ReadAll;
use super::columns::{Column, ColumnType};
use super::datafile::remove;
use super::error::{Context, Error, ErrorKind};
use super::low::{self, Format};
use super::names::pedestal_file_name;
use super::nexus::attribute_text;
use super::paths::OWN;
use super::spec::{Compression, FileSpec};

/// Name of the link in [`OWN`].
pub(crate) const PEDESTALS: &str = "pedestals";
const STACK: &str = "pedestal_g0_adu";
const IMAGE: &str = "image";
const DOING: &str = "write pedestals";
const MEANING: &str =
    "pedestals of gain stage G0 as followed during the run: one plane for each snapshot, rows and columns as in the images";

/// The snapshot file of one run, while it is written.
pub(crate) struct PedestalFile {
    path: PathBuf,
    file: File,
    stack: Dataset,
    images: Dataset,
    column: Column,
    shape: [usize; 2],
    count: u64,
    newest: Option<u64>,
    plane: Vec<u8>,
}

impl PedestalFile {
    /// Creates the file, if the run is to have one. Allocates one plane of 4 bytes per pixel.
    pub(crate) fn create(spec: &FileSpec) -> Result<Option<Self>, Error> {
        if !spec.pedestal_snapshots {
            return Ok(None);
        }
        let path = spec.directory.join(pedestal_file_name(&spec.prefix));
        if path.exists() {
            remove(&path)?;
        }
        let doing = "create the pedestal file";
        let column = Column { name: IMAGE.into(), kind: ColumnType::U64, shape: vec![], offset: 0, description: String::new() };
        let make = || -> hdf5::Result<_> {
            let file = low::create_file(&path, Format::V18)?;
            attribute_text(&file, "NX_class", "NXcollection")?;
            attribute_text(&file, "creator", &spec.software)?;
            attribute_text(&file, "description", MEANING)?;
            let of_planes = FileSpec {
                rows: spec.rows,
                columns: spec.columns,
                pixel: PixelType::Float32,
                compression: Compression::None,
                ..FileSpec::default()
            };
            let stack = low::create_stack(&file, STACK, &of_planes)?;
            attribute_text(&stack, "units", "ADU")?;
            let images = low::create_column(&file, &column, 1024)?;
            attribute_text(&images, "description", "the snapshot was taken after this image, counted from 0")?;
            file.flush()?;
            Ok((file, stack, images))
        };
        let (file, stack, images) = make().inspect_err(|_| drop(std::fs::remove_file(&path))).context(doing, &path)?;
        let shape = [spec.rows as usize, spec.columns as usize];
        let plane = vec![0; 4 * spec.pixels()];
        Ok(Some(Self { path, file, stack, images, column, shape, count: 0, newest: None, plane }))
    }

    /// Refuses data that do not fit, before anything is written.
    pub(crate) fn check(&self, image: u64, parts: &[&[f32]]) -> Result<(), Error> {
        let wrong = |cause: String| Err(Error::new(ErrorKind::Invalid, DOING, &self.path, cause));
        let (given, wanted) = (parts.iter().map(|part| part.len()).sum::<usize>(), self.shape[0] * self.shape[1]);
        if given != wanted {
            return wrong(format!("{given} pedestals for {wanted} pixels"));
        }
        match self.newest.filter(|newest| *newest >= image) {
            Some(newest) => wrong(format!("snapshots must come in order: image {image} comes after image {newest}")),
            None => Ok(()),
        }
    }

    /// Appends what [`Self::check`] accepted.
    pub(crate) fn append(&mut self, image: u64, parts: &[&[f32]]) -> Result<(), Error> {
        let mut rest = &mut self.plane[..];
        for part in parts {
            let (here, after) = rest.split_at_mut(4 * part.len());
            here.chunks_exact_mut(4).zip(*part).for_each(|(bytes, value)| bytes.copy_from_slice(&value.to_le_bytes()));
            rest = after;
        }
        self.store(image).context(DOING, &self.path)?;
        (self.count, self.newest) = (self.count + 1, Some(image));
        Ok(())
    }

    fn store(&self, image: u64) -> hdf5::Result<()> {
        low::set_extent(&self.stack, self.count + 1, &self.shape)?;
        low::write_chunk(&self.stack, &[self.count, 0, 0], &self.plane)?;
        low::set_extent(&self.images, self.count + 1, &[])?;
        low::write_rows(&self.images, &self.column, self.count, &image.to_le_bytes())?;
        self.file.flush()
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file; returns the number of snapshots.
    pub(crate) fn close(self) -> Result<u64, Error> {
        let Self { path, file, stack, images, count, .. } = self;
        drop(images);
        drop(stack);
        file.close().context("close the pedestal file", &path)?;
        Ok(count)
    }
}

/// What a pedestal file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// The file.
    pub path: PathBuf,
    /// After which image each snapshot was taken, counted from 0.
    pub images: Vec<u64>,
}

impl Snapshots {
    /// Reads which snapshots there are.
    ///
    /// # Errors
    /// If the file cannot be read or is not a pedestal file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let doing = "read the pedestal file";
        let file_bytes = std::fs::metadata(path).context(doing, path)?.len();
        let file = low::open_file(path).context(doing, path)?;
        let images = file.dataset(IMAGE).context(doing, path)?;
        let (shape, stack) = (images.shape(), file.dataset(STACK).context(doing, path)?.shape());
        // Each snapshot has a plane in the file. This finds a number of snapshots that the file cannot hold before
        // memory is allocated for it.
        if shape.len() != 1 || stack.len() != 3 || stack[0] != shape[0] || shape[0] as u64 > file_bytes / 4 {
            let cause = format!("{STACK} has the shape {stack:?} for images {shape:?} in a file of {file_bytes} bytes");
            return Err(Error::new(ErrorKind::Damaged, doing, path, cause));
        }
        let images = images.read_all::<u64>().context(doing, path)?;
        Ok(Self { path: path.to_owned(), images })
    }

    /// The plane of snapshot `nth`, rows x columns, ADU.
    ///
    /// # Errors
    /// As [`Self::read`], and if there are fewer snapshots.
    pub fn plane(&self, nth: usize) -> Result<Vec<f32>, Error> {
        let doing = "read pedestals";
        let file = low::open_file(&self.path).context(doing, &self.path)?;
        let stack = file.dataset(STACK).context(doing, &self.path)?;
        let pixels: usize = stack.shape().iter().skip(1).product();
        let mut bytes = Vec::new();
        let found = low::read_chunk(&stack, &[nth as u64, 0, 0], 4 * pixels as u64, &mut bytes).context(doing, &self.path)?;
        if found.is_none() || bytes.len() != 4 * pixels {
            let cause = format!("there is no snapshot {nth}; it has {}, counted from 0", self.images.len());
            return Err(Error::new(ErrorKind::Invalid, doing, &self.path, cause));
        }
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// The snapshots of the run of this master, if it links them.
    pub(crate) fn of_master(path: &Path, file: &File) -> Option<Self> {
        file.group(OWN).ok()?.link_exists(PEDESTALS).then_some(())?;
        let name = path.file_name()?.to_str()?;
        let (prefix, _) = super::names::parse(name)?;
        Self::read(&path.with_file_name(pedestal_file_name(prefix))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_snapshots_than_the_file_can_hold_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r_pedestals.h5");
        let file = File::create(&path).unwrap();
        let count = 1usize << 40;
        file.new_dataset::<u64>().shape(count).chunk(1024).create(IMAGE).unwrap();
        file.new_dataset::<f32>().shape((count, 2, 2)).chunk((1, 2, 2)).create(STACK).unwrap();
        file.close().unwrap();
        let error = Snapshots::read(&path).unwrap_err();
        assert!(error.kind == ErrorKind::Damaged && error.cause.contains("in a file of"), "{error}");
    }
}
