//! Writes single data files of a run, for a run that several processes share. Each process has data files of its
//! own, so none waits for another. When all data files are there, [`Writer::resume`] finds them and makes the master.

use std::ops::RangeInclusive;

use super::{Writer, check_directory, patiently, resume};
use crate::hdf5::columns::Columns;
use crate::hdf5::constant::MissingChunk;
use crate::hdf5::datafile::DataFile;
use crate::hdf5::error::{Context, Error, ErrorKind};
use crate::hdf5::names::master_path;
use crate::hdf5::spec::FileSpec;
use crate::hdf5::writer::{FileReport, SpaceEstimate};
use crate::hdf5::xds::readable_mask;
use crate::sys::space;

const DOING: &str = "write single data files of the run";

impl Writer {
    /// Writes the data files with these numbers (from 1) of a run whose `images_planned` are known, and no master. Data
    /// files of an earlier attempt are kept if they are whole; what was growing is written again. Returns the writer
    /// and the number of the first image to write. End it with [`Writer::finish_single_files`].
    ///
    /// # Errors
    /// As [`Writer::resume`]; [`ErrorKind::Invalid`] if the run has no such data file, or has snapshots of pedestals,
    /// which are one file.
    pub fn single_files(mut spec: FileSpec, numbers: &RangeInclusive<u64>) -> Result<(Self, u64), Error> {
        spec.validate()?;
        readable_mask(&mut spec.pixel_mask);
        check_directory(&spec.directory)?;
        let ipf = u64::from(spec.images_per_file);
        let begin = numbers.start().saturating_sub(1).saturating_mul(ipf);
        let has_it = *numbers.start() > 0 && spec.images_planned.is_some_and(|planned| begin < planned);
        if !has_it || numbers.is_empty() || spec.pedestal_snapshots {
            let planned = spec.images_planned.unwrap_or(0);
            let cause = format!("data files {numbers:?} of a run with {planned} images, {ipf} in each file");
            return Err(Error::new(ErrorKind::Invalid, DOING, &spec.directory, cause));
        }
        let columns = Columns::new(&spec);
        let missing_bytes = MissingChunk::of(&spec).map(|chunk| chunk.bytes().len());
        let found = resume::find(&spec, &columns, missing_bytes, numbers)?;
        found.clear()?;
        // No space is reserved: what does not fit is written again by the next attempt.
        let free = space::free_bytes(&spec.directory).context(DOING, &spec.directory)?;
        let estimate = SpaceEstimate { free, images_uncompressed: None, reserve: 0 };
        let next = numbers.start() + found.closed.len() as u64;
        let current = if found.complete { None } else { Some(patiently(|| DataFile::create(&spec, &columns, next))?) };
        let mut writer = Self::new(spec, columns, current, None, estimate);
        writer.next_index = begin + found.images;
        writer.images_with_pixels = found.images_with_pixels;
        writer.chunk_bytes = found.chunk_bytes;
        writer.closed = found.closed;
        // There is no master that could be published meanwhile.
        writer.published_files = usize::MAX;
        let first = writer.next_index;
        Ok((writer, first))
    }

    /// Closes the data files, the last of which ends before position `end`. Their master is only named in the report:
    /// it is not there yet.
    ///
    /// # Errors
    /// As [`Writer::finish`]. A data file that could not be closed keeps its journal, and is written again.
    pub fn finish_single_files(mut self, end: u64) -> Result<FileReport, Error> {
        let is_over = self.failed.is_some() || self.current.is_none();
        let total = if is_over { self.next_index } else { self.next_index.max(end) };
        let lost = self.close_at(total)?;
        self.all_to_disk(false, total)?;
        if lost > 0 {
            let cause = format!("{lost} images that were written could not be read back when their data file was closed");
            return Err(Error::new(ErrorKind::Damaged, DOING, &self.spec.directory, cause));
        }
        Ok(FileReport {
            master: master_path(&self.spec.directory, &self.spec.prefix),
            whole: None,
            data_files: self.closed.iter().map(|closed| closed.path.clone()).collect(),
            images: total,
            images_with_pixels: self.images_with_pixels,
            pedestal_snapshots: 0,
            chunk_bytes: self.chunk_bytes,
        })
    }
}
