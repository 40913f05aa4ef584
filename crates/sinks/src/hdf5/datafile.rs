//! One growing data file: the image stack, the per-image columns, and the journal beside it.

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File};

use super::columns::Columns;
use super::error::{Context, Error};
use super::journal::{Journal, NO_CHUNK};
use super::low::{self, Format};
use super::names::{data_file_name, journal_path};
use super::nexus;
use super::spec::FileSpec;

/// Path of the image stack in a data file.
pub(crate) const STACK: &str = "/entry/data/data";
/// Group of the per-image columns, in data files and in the master.
pub(crate) const COLUMNS: &str = "/entry/konkordia/images";
/// Run description, in data files and in the master.
pub(crate) const DESCRIPTION: &str = "/entry/konkordia/run_description";

pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    pub(crate) number: u64,
    file: File,
    stack: Dataset,
    columns: Vec<Dataset>,
    layout: Columns,
    image_shape: [usize; 2],
    journal: Option<Journal>,
    first: u64,
    images: u64,
    rows_stored: u64,
    /// Rows of images `rows_stored..images`.
    pending: Vec<u8>,
    scratch: Vec<u8>,
    has_chunk: Vec<bool>,
    pub(crate) chunk_bytes: u64,
}

/// What a closed data file holds.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) images: u64,
}

impl DataFile {
    /// Creates data file `number` (from 1) at its place in the run, with its journal.
    pub(crate) fn create(spec: &FileSpec, layout: &Columns, number: u64) -> Result<Self, Error> {
        let path = spec.directory.join(data_file_name(&spec.prefix, number));
        let first = (number - 1) * u64::from(spec.images_per_file);
        // The journal first: a data file without journal then always is a closed one.
        let journal = Journal::create(&journal_path(&path), &spec.to_text(), layout.row_bytes, number, first)?;
        Self::create_hdf5(spec, layout, number, first, path, Some(journal))
    }

    /// Creates the file alone, for repair.
    pub(crate) fn create_hdf5(
        spec: &FileSpec,
        layout: &Columns,
        number: u64,
        first: u64,
        path: PathBuf,
        journal: Option<Journal>,
    ) -> Result<Self, Error> {
        let doing = "create the data file";
        let file = low::create_file(&path, Format::V18).context(doing, &path)?;
        let (stack, columns) = Self::fill(&file, spec, layout, first, number == 1).context(doing, &path)?;
        file.flush().context(doing, &path)?;
        let bounded = (spec.images_per_file as usize).min(4096);
        Ok(Self {
            path,
            number,
            file,
            stack,
            columns,
            layout: layout.clone(),
            image_shape: [spec.rows as usize, spec.columns as usize],
            journal,
            first,
            images: 0,
            rows_stored: 0,
            pending: Vec::with_capacity(bounded * layout.row_bytes),
            scratch: Vec::with_capacity(bounded * layout.row_bytes),
            has_chunk: vec![false; spec.images_per_file as usize],
            chunk_bytes: 0,
        })
    }

    fn fill(
        file: &File,
        spec: &FileSpec,
        layout: &Columns,
        first: u64,
        with_mask: bool,
    ) -> hdf5::Result<(Dataset, Vec<Dataset>)> {
        nexus::attribute_text(file, "NX_class", "NXroot")?;
        nexus::attribute_text(file, "default", "entry")?;
        nexus::attribute_text(file, "creator", &spec.software)?;
        let entry = nexus::group(file, "entry", "NXentry")?;
        nexus::attribute_text(&entry, "default", "data")?;
        let data = nexus::group(&entry, "data", "NXdata")?;
        nexus::attribute_text(&data, "signal", "data")?;
        let stack = low::create_stack(&data, "data", spec)?;
        stack.new_attr::<u64>().create("image_nr_low")?.write_scalar(&(first + 1))?;
        stack.new_attr::<u64>().create("image_nr_high")?.write_scalar(&first)?;
        nexus::attribute_text(&stack, "units", &spec.unit)?;
        let own = nexus::group(&entry, "konkordia", "NXcollection")?;
        nexus::text(&own, "run_description", &spec.to_text())?;
        if with_mask {
            // The master can be rebuilt from the data files alone.
            let shape = (spec.rows as usize, spec.columns as usize);
            let mask = own.new_dataset::<u32>().shape(shape).create("pixel_mask")?;
            mask.write_raw(&spec.pixel_mask)?;
        }
        let group = nexus::group(&own, "images", "NXcollection")?;
        let columns = layout
            .list
            .iter()
            .map(|column| {
                let dataset = low::create_column(&group, column, spec.images_per_file)?;
                nexus::attribute_text(&dataset, "description", column.description)?;
                Ok(dataset)
            })
            .collect::<hdf5::Result<_>>()?;
        Ok((stack, columns))
    }

    /// Positions in this file so far.
    pub(crate) fn images(&self) -> u64 {
        self.images
    }

    /// Whether some image of this file has pixels.
    pub(crate) fn has_pixels(&self) -> bool {
        self.has_chunk.contains(&true)
    }

    /// Stores image `local` (position in this file, not before the end). On error the file is as it was.
    pub(crate) fn write(&mut self, local: u64, chunk: &[u8], row: &[u8]) -> Result<(), Error> {
        assert!(local >= self.images, "images come in order");
        let doing = "write an image";
        let before = self.images;
        low::set_extent(&self.stack, local + 1, &self.image_shape).context(doing, &self.path)?;
        let written = self.write_chunk(local, chunk, row);
        if written.is_err() {
            // Shrinking touches only cached metadata, so it works on a full disk too.
            low::set_extent(&self.stack, before, &self.image_shape).context(doing, &self.path)?;
            return written;
        }
        let gap = (local - before) as usize * self.layout.row_bytes;
        self.pending.resize(self.pending.len() + gap, 0);
        self.pending.extend_from_slice(row);
        self.images = local + 1;
        Ok(())
    }

    fn write_chunk(&mut self, local: u64, chunk: &[u8], row: &[u8]) -> Result<(), Error> {
        let doing = "write an image";
        let mut place = (NO_CHUNK, NO_CHUNK);
        if !chunk.is_empty() {
            low::write_chunk(&self.stack, local, chunk).context(doing, &self.path)?;
            let stored = low::chunk_place(&self.stack, local).context(doing, &self.path)?;
            place = stored.unwrap_or(place);
        }
        if let Some(journal) = &mut self.journal {
            journal.append(self.first + local, place.0, place.1, row)?;
        }
        if !chunk.is_empty() {
            self.has_chunk[local as usize] = true;
            self.chunk_bytes += chunk.len() as u64;
        }
        Ok(())
    }

    /// Extends the file to `images` positions; the new ones are lost images.
    pub(crate) fn extend(&mut self, images: u64) -> Result<(), Error> {
        if images > self.images {
            low::set_extent(&self.stack, images, &self.image_shape).context("extend the data file", &self.path)?;
            let gap = (images - self.images) as usize * self.layout.row_bytes;
            self.pending.resize(self.pending.len() + gap, 0);
            self.images = images;
        }
        Ok(())
    }

    /// Brings everything written so far into the file, in a state that stock readers open. Can be repeated after an error.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        if self.rows_stored < self.images {
            self.store_rows().context("write the per-image columns", &self.path)?;
            self.rows_stored = self.images;
            self.pending.clear();
        }
        self.file.flush().context("flush the data file", &self.path)
    }

    fn store_rows(&mut self) -> hdf5::Result<()> {
        for (column, dataset) in self.layout.list.iter().zip(&self.columns) {
            self.scratch.clear();
            for row in self.pending.chunks_exact(self.layout.row_bytes) {
                self.scratch.extend_from_slice(&row[column.offset..column.offset + column.bytes()]);
            }
            low::set_extent(dataset, self.images, &column.shape)?;
            low::write_rows(dataset, column, self.rows_stored, &self.scratch)?;
        }
        self.stack.attr("image_nr_high")?.write_scalar(&(self.first + self.images))
    }

    /// Gives every image without pixels the chunk `missing`, best effort: without it the fill value says the same.
    pub(crate) fn fill_lost(&mut self, missing: &[u8]) {
        for local in 0..self.images {
            if !self.has_chunk[local as usize] && low::write_chunk(&self.stack, local, missing).is_err() {
                return;
            }
        }
    }

    /// Closes the file after a successful [`Self::flush`] and removes the journal.
    pub(crate) fn close(self) -> Result<Closed, Error> {
        let Self { path, number, file, stack, columns, journal, images, .. } = self;
        drop(columns);
        drop(stack);
        file.close().context("close the data file", &path)?;
        if let Some(journal) = journal {
            journal.remove()?;
        }
        Ok(Closed { number, path, images })
    }

    /// Closes and deletes a file without images.
    pub(crate) fn discard(self) -> Result<(), Error> {
        let closed = self.close()?;
        remove(&closed.path)
    }
}

pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    std::fs::remove_file(path).context("remove the file", path)
}
