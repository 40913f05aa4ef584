//! One growing data file: the image stack, the per-image columns, and the journal beside it.

use konkordia_core::output::temporary_path;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdf5::{Dataset, File, Group};

use super::channels;
use super::checksum;
use super::columns::Columns;
use super::constant::{LostBudget, MissingChunk};
use super::error::{Context, Error};
use super::handoff::{ChunkWrites, Failed};
use super::journal::{Journal, NO_CHUNK, places_bytes};
use super::low::{self, Format};
use super::names::{data_file_name, journal_path};
use super::nexus;
use super::paths::{COLUMNS, OWN};
use super::spec::FileSpec;
use crate::durable::DiskSync;
use crate::sys::space;

/// CRC-32 of the journal from which a data file was rebuilt: attribute of [`OWN`].
pub(crate) const JOURNAL_CRC32: &str = "rebuilt_from_journal_crc32";

const WRITE: &str = "write an image";

pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    pub(crate) number: u64,
    file: File,
    /// The same file, to bring it to the disk.
    raw: Arc<std::fs::File>,
    stack: Dataset,
    columns: Vec<Dataset>,
    layout: Columns,
    image_shape: Vec<usize>,
    /// Where each chunk of an image begins in the stack; the first number is that of the image.
    starts: Vec<Vec<u64>>,
    journal: Option<Journal>,
    first: u64,
    images: u64,
    rows_stored: u64,
    /// Rows of images `rows_stored..images`, at most `rows_max`.
    pending: Vec<u8>,
    /// Rows of the smallest chunk of a column. More rows than these do not wait for a flush, so that it needs no more
    /// space than [`Columns::flush_bytes`] says.
    rows_max: u64,
    scratch: Vec<u8>,
    has_chunk: Vec<bool>,
    /// Offset and size of the chunks of one image, for the journal.
    places: Vec<(u64, u64)>,
    pub(crate) chunk_bytes: u64,
    pub(crate) chunk_writes: ChunkWrites,
    /// Set when the index names a chunk that could not be written, and cannot be corrected.
    is_ahead: Option<Error>,
}

/// What a closed data file holds.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// Positions of the run that belong to it.
    pub(crate) images: u64,
    /// Images that are in the file: fewer if an older copy replaced it, none if it is absent or cannot be read. The
    /// master keeps its link and its place.
    pub(crate) stored: u64,
}

impl Closed {
    pub(crate) fn whole(number: u64, path: PathBuf, images: u64) -> Self {
        Self { number, path, images, stored: images }
    }

    /// False if the file is absent or cannot be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.stored > 0
    }

    /// Images that the file had and no longer holds.
    pub(crate) fn missing(&self) -> u64 {
        self.images.saturating_sub(self.stored)
    }

    /// Its per-image columns; `None` if it is known that the file is absent or cannot be read.
    ///
    /// # Errors
    /// If it cannot be read now: a master made without it would say that its images are lost.
    pub(crate) fn columns(&self) -> hdf5::Result<Option<Group>> {
        if !self.is_readable() || !self.path.exists() {
            return Ok(None);
        }
        low::open_file(&self.path).and_then(|file| file.group(COLUMNS)).map(Some)
    }
}

impl DataFile {
    /// Creates data file `number` (from 1) at its place in the run, with its journal.
    pub(crate) fn create(spec: &FileSpec, layout: &Columns, number: u64) -> Result<Self, Error> {
        let path = spec.directory.join(data_file_name(&spec.prefix, number));
        let first = (number - 1) * u64::from(spec.images_per_file);
        // The journal first, so that a data file without a journal is always a closed one.
        let row_bytes = places_bytes(spec.pieces()) + layout.row_bytes;
        let journal = Journal::create(&journal_path(&path), &spec.to_text(), row_bytes, number, first)?;
        // The file gets its name when it has content, so under its name it is empty only if a power cut took the
        // content.
        let part = temporary_path(&path);
        let _ = std::fs::remove_file(&part);
        let made = Self::create_hdf5(spec, layout, number, first, part.clone(), Some(journal)).and_then(|file| {
            std::fs::rename(&part, &path).context("create the data file", &path)?;
            Ok(Self { path: path.clone(), ..file })
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&part);
            let _ = std::fs::remove_file(journal_path(&path));
        }
        made
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
        let format = if spec.series.is_some() { Format::V18SmallChunks } else { Format::V18 };
        let file = low::create_data_file(&path, format).context(doing, &path)?;
        let (stack, columns) = Self::begin(&file, spec, layout, first, number == 1).context(doing, &path)?;
        file.flush().context(doing, &path)?;
        let raw = Arc::new(std::fs::File::open(&path).context(doing, &path)?);
        let rows_max = layout.list.iter().map(|column| Columns::rows_per_chunk(column, spec.images_per_file)).min().unwrap_or(1);
        let pending_bytes = rows_max as usize * layout.row_bytes;
        Ok(Self {
            path,
            number,
            file,
            raw,
            stack,
            columns,
            layout: layout.clone(),
            image_shape: spec.image_shape(),
            starts: spec.chunk_starts().into_iter().map(|start| [&[0], &start[..]].concat()).collect(),
            journal,
            first,
            images: 0,
            rows_stored: 0,
            pending: Vec::with_capacity(pending_bytes),
            rows_max,
            scratch: Vec::with_capacity(pending_bytes),
            has_chunk: vec![false; spec.images_per_file as usize],
            places: Vec::new(),
            chunk_bytes: 0,
            chunk_writes: ChunkWrites::default(),
            is_ahead: None,
        })
    }

    fn begin(
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
            // So that the master can be rebuilt from the data files alone.
            let shape = (spec.rows as usize, spec.columns as usize);
            nexus::mask(&own, "pixel_mask", shape, &spec.pixel_mask)?;
            channels::keep(&own, spec)?;
        }
        let group = nexus::group(&own, "images", "NXcollection")?;
        let columns = layout
            .list
            .iter()
            .map(|column| {
                let dataset = low::create_column(&group, column, spec.images_per_file)?;
                nexus::attribute_text(&dataset, "description", &column.description)?;
                Ok(dataset)
            })
            .collect::<hdf5::Result<_>>()?;
        Ok((stack, columns))
    }

    /// Records in the file from which journal it was made. A repair that was interrupted before it removed the journal
    /// is recognised by this.
    pub(crate) fn mark(&self, journal_crc32: u32) -> Result<(), Error> {
        let mark = || self.file.group(OWN)?.new_attr::<u32>().create(JOURNAL_CRC32)?.write_scalar(&journal_crc32);
        mark().context("rebuild the data file", &self.path)
    }

    /// Brings the file, its journal and their names to the disk.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.raw.sync_data()?;
        self.journal.as_ref().map_or(Ok(()), |journal| journal.file().1.sync_data())?;
        std::fs::File::open(self.path.parent().unwrap_or(&self.path))?.sync_all()
    }

    /// Positions in this file so far.
    pub(crate) fn images(&self) -> u64 {
        self.images
    }

    /// Stores image `local` (its position in this file, not before the end) with its chunks: as many as there are
    /// pieces, or none. On error the image is a lost one, and everything before it is unchanged.
    pub(crate) fn write(&mut self, local: u64, chunks: &[&[u8]], row: &[u8]) -> Result<(), Error> {
        assert!(local >= self.images, "images come in order");
        assert!(chunks.is_empty() || chunks.len() == self.starts.len(), "all chunks of an image or none");
        self.extend(local)?;
        self.make_room(1)?;
        low::set_extent(&self.stack, local + 1, &self.image_shape).context(WRITE, &self.path)?;
        let written = self.write_chunks(local, chunks, row);
        match &written {
            Ok(()) => self.pending.extend_from_slice(row),
            Err(_) => self.pending.resize(self.pending.len() + row.len(), 0),
        }
        self.images = local + 1;
        // Also after an error: libhdf5 1.14 remembers the place of a chunk that it failed to write, so this position is
        // not written again.
        self.has_chunk[local as usize] = !chunks.is_empty();
        written
    }

    fn write_chunks(&mut self, local: u64, chunks: &[&[u8]], row: &[u8]) -> Result<(), Error> {
        self.places.clear();
        for (piece, chunk) in chunks.iter().enumerate() {
            self.starts[piece][0] = local;
            let written = low::hand_off_chunk(&self.stack, &self.starts[piece], chunk, self.chunk_writes);
            let offset = written.map_err(|failed| self.take_back(local, failed))?;
            self.places.push((offset, chunk.len() as u64));
            self.chunk_bytes += chunk.len() as u64;
        }
        self.places.resize(self.starts.len(), (NO_CHUNK, NO_CHUNK));
        match &mut self.journal {
            Some(journal) => journal.append(self.first + local, &self.places, row),
            None => Ok(()),
        }
    }

    /// If libhdf5 has a chunk of image `local` in its index that could not be written, removes the chunks of the image
    /// from the index.
    fn take_back(&mut self, local: u64, failed: Failed) -> Error {
        let is_ahead = matches!(failed, Failed::Data(_));
        let error = failed.at(WRITE, &self.path);
        let extents = [local, local + 1];
        let set = || extents.into_iter().try_for_each(|images| low::set_extent(&self.stack, images, &self.image_shape));
        if is_ahead && set().is_err() {
            self.is_ahead = Some(error.clone());
        }
        error
    }

    /// Extends the file to `images` positions; the new ones are lost images.
    pub(crate) fn extend(&mut self, images: u64) -> Result<(), Error> {
        while self.images < images {
            let rows = (images - self.images).min(self.rows_max);
            self.make_room(rows)?;
            let end = self.images + rows;
            low::set_extent(&self.stack, end, &self.image_shape).context("extend the data file", &self.path)?;
            self.pending.resize(self.pending.len() + rows as usize * self.layout.row_bytes, 0);
            self.images = end;
        }
        Ok(())
    }

    /// Writes the rows that wait into the columns, if so many more are too many.
    fn make_room(&mut self, rows: u64) -> Result<(), Error> {
        if self.images + rows - self.rows_stored <= self.rows_max { Ok(()) } else { self.store_rows() }
    }

    /// Writes everything so far into the file, in a state that stock readers open. After an error libhdf5 1.14 refuses
    /// every further flush of this file ("slist already enabled"): then only its journal helps, and also where the
    /// index is wrong.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.is_ahead {
            return Err(error.clone());
        }
        self.store_rows()?;
        self.file.flush().context("flush the data file", &self.path)
    }

    /// Writes the rows that wait into the columns.
    fn store_rows(&mut self) -> Result<(), Error> {
        if self.rows_stored < self.images {
            self.put_rows().context("write the per-image columns", &self.path)?;
            self.rows_stored = self.images;
            self.pending.clear();
        }
        Ok(())
    }

    fn put_rows(&mut self) -> hdf5::Result<()> {
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

    /// Gives every piece of an image without pixels the chunk of a lost image, as far as possible: without the chunk,
    /// the fill value says the same.
    pub(crate) fn fill_lost(&mut self, missing: &MissingChunk, budget: &mut LostBudget) {
        let lost: Vec<u64> = (0..self.images).filter(|local| !self.has_chunk[*local as usize]).collect();
        let free = || space::free_bytes(&self.path).unwrap_or(0);
        let allowed = missing.allow(lost.len(), self.starts.len(), self.has_chunk.contains(&true), budget, free);
        if allowed == 0 {
            return;
        }
        let filled = lost.iter().take(allowed).take_while(|local| self.fill(**local, missing.bytes())).count();
        let sum = checksum::of(self.starts.iter().map(|_| missing.bytes()));
        lost[..filled].chunk_by(|a, b| a + 1 == *b).for_each(|run| self.set_checksums(run[0]..run[0] + run.len() as u64, sum));
    }

    fn fill(&mut self, local: u64, missing: &[u8]) -> bool {
        self.starts.iter_mut().all(|start| {
            start[0] = local;
            // libhdf5 writes these itself, so that its index names none that cannot be written.
            low::write_chunk(&self.stack, start, missing).is_ok()
        })
    }

    /// Replaces the checksums of consecutive images, in the rows that are in the file and in those that are not yet.
    fn set_checksums(&mut self, images: std::ops::Range<u64>, sum: u32) {
        let row_bytes = self.layout.row_bytes;
        for local in images.start.max(self.rows_stored)..images.end {
            let end = (local + 1 - self.rows_stored) as usize * row_bytes;
            self.pending[end - checksum::BYTES..end].copy_from_slice(&sum.to_le_bytes());
        }
        let stored = images.end.min(self.rows_stored).saturating_sub(images.start);
        if let (Some(column), Some(dataset), true) = (self.layout.list.last(), self.columns.last(), stored > 0) {
            // If this fails, the next flush fails too.
            let _ = low::write_rows(dataset, column, images.start, &sum.to_le_bytes().repeat(stored as usize));
        }
    }

    /// Has the file brought to the disk while it grows.
    pub(crate) fn sync_with(&self, disk: &DiskSync) {
        let data = (self.path.clone(), Arc::clone(&self.raw));
        disk.opened(self.number, std::iter::once(data).chain(self.journal.as_ref().map(Journal::file)).collect());
    }

    /// Closes the file after a successful [`Self::flush`] and removes the journal: at once, or when `disk` has brought
    /// the data to the disk.
    pub(crate) fn close(self, disk: Option<&DiskSync>) -> Result<Closed, Error> {
        let Self { path, number, file, stack, columns, journal, images, first, .. } = self;
        drop(columns);
        drop(stack);
        file.close().context("close the data file", &path)?;
        match (journal, disk) {
            (Some(journal), Some(disk)) => {
                // The journal is synced too before it is removed: what a power cut leaves of it then names all images.
                let journal = journal.file().0;
                disk.closed(number, vec![path.clone(), journal.clone()], first + images, Some(journal));
            }
            (Some(journal), None) => journal.remove()?,
            (None, _) => {}
        }
        Ok(Closed::whole(number, path, images))
    }

    /// Closes and deletes a file without images.
    pub(crate) fn discard(self) -> Result<(), Error> {
        let closed = self.close(None)?;
        remove(&closed.path)
    }
}

pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    std::fs::remove_file(path).context("remove the file", path)
}

#[cfg(test)]
mod tests {
    use super::super::Compression;
    use super::super::columns::ImageStatus;
    use super::*;

    #[test]
    fn rows_of_a_long_gap_do_not_pile_up() {
        let folder = tempfile::tempdir().unwrap();
        let spec = FileSpec {
            directory: folder.path().into(),
            rows: 4,
            columns: 4,
            compression: Compression::None,
            images_per_file: 200_000,
            pixel_mask: vec![0; 16],
            ..FileSpec::default()
        };
        let layout = Columns::new(&spec);
        let mut file = DataFile::create_hdf5(&spec, &layout, 1, 0, folder.path().join("a.h5"), None).unwrap();
        let (row, chunk) = (layout.unknown_row(), vec![7; spec.image_bytes()]);
        let bytes_at_first = file.pending.capacity();
        assert_eq!(file.rows_max, 1024);
        let written = [0, 150_000, 150_001];
        for local in written {
            file.write(local, &[&chunk], &row).unwrap();
            assert_eq!(file.pending.capacity(), bytes_at_first);
        }
        file.extend(200_000).unwrap();
        assert_eq!(file.pending.capacity(), bytes_at_first);
        file.flush().unwrap();
        let status = layout.list.iter().position(|column| column.name == "status").unwrap();
        let states = low::read_rows(&file.columns[status], &layout.list[status], 0, 200_000).unwrap();
        let expected = |local| {
            let status = if written.contains(&local) { ImageStatus::Partial } else { ImageStatus::Lost };
            status as u8
        };
        assert!((0..200_000).zip(states).all(|(local, state)| state == expected(local)));
    }
}
