//! The layout of the MAX IV streaming-receiver. A file holds one series (or several, one after the other): a group of
//! the detector with what the sender said, `sequence_number`, and one stack of images to which each image is appended.
//! The position is not the image number here: images that are lost or not to be stored take no place, and
//! `sequence_number` gives the numbers of those that are there.
//!
//! There is no journal. The metadata that libhdf5 has of the file are written every 0.4 s and kept in memory in
//! between; then libhdf5 forgets them, so that the memory does not grow with the file. So a killed process leaves the
//! file as it was at the last flush, unless it was killed during a flush. A power cut can hit the disk during a flush
//! too, so for these files no image is reported as safe, although they are brought to the disk like others.

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File, Group};
use konkordia_core::image::CommittedImage;
use konkordia_core::latency::{Meter, Stage};
use konkordia_core::pixel::PixelType;
use konkordia_core::series::{SeriesEnd, SeriesStart};

use super::columns::{Column, ColumnType};
use super::error::{Context, Error, ErrorKind};
use super::handoff::ChunkWrites;
use super::low;
use super::open_files::OpenFiles;
use super::packing;
use super::series_form::{Chunks, Form};
use super::series_state::SharedState;
use super::{fields, nexus, reader};
use crate::durable::{DiskSync, ToDisk};
use crate::sys::space;

/// A flush follows the one before after this time or at the next tick.
const FLUSH_NS: u64 = 400_000_000;
/// A flush also follows after so many chunks: until then libhdf5 keeps some 400 bytes of each.
const UNFLUSHED_CHUNKS_MAX: usize = 1 << 14;
/// Space that a flush may take in addition to the images.
const FLUSH_BYTES: u64 = 1 << 20;
/// With less space than this left, the file system is asked before every image.
const FREE_CLOSE: u64 = 256 << 20;
/// The only group of synced files.
const GROUP: u64 = 0;
const SEQUENCE: &str = "sequence_number";

const OPEN: &str = "open the file";
const WRITE: &str = "append an image";
const SYNC: &str = "sync the data to the disk";

/// Where the images of one series go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendSpec {
    /// The file, in a place that the series may write to: names that come from the sender have been checked. An
    /// existing file is appended to.
    pub path: PathBuf,
    /// The data set, for example "/entry/instrument/zyla/data".
    pub dataset: String,
    /// When written data are brought to the disk.
    pub to_disk: ToDisk,
}

/// The open file. Images count as written once they are flushed.
pub(super) struct AppendFile {
    spec: AppendSpec,
    file: File,
    disk: Option<DiskSync>,
    sequence: Dataset,
    column: Column,
    /// Rows of `sequence_number` in the file.
    rows: u64,
    /// Rows of `sequence_number` that are not in the file yet.
    pending: Vec<u8>,
    /// When the images of this series among them were received.
    pending_received_ns: Vec<u64>,
    meter: Meter,
    stack: Option<Stack>,
    chunks: Chunks,
    free_known: u64,
    unflushed_bytes: [u64; 2],
    unflushed_chunks: usize,
    flushed_ns: Option<u64>,
}

struct Stack {
    form: Form,
    dataset: Dataset,
    shape: Vec<usize>,
    /// Where the chunks of an image begin; the first number is that of the image.
    starts: Vec<Vec<u64>>,
    images: u64,
}

impl AppendFile {
    /// Opens or makes the file, and writes what the sender said.
    pub(super) fn open(spec: AppendSpec, start: &SeriesStart) -> Result<Self, Error> {
        let path = spec.path.clone();
        let Some((group_name, own_name)) =
            spec.dataset.rsplit_once('/').filter(|(group, name)| !group.is_empty() && !name.is_empty())
        else {
            let cause = format!("'{}' is not the path of a data set within a group", spec.dataset);
            return Err(Error::new(ErrorKind::Invalid, OPEN, &path, cause));
        };
        let is_new = !path.exists();
        let file = low::open_to_append(&path).map_err(|error| unreadable(Error::hdf5(OPEN, &path, error)))?;
        let made = Self::prepare(&file, [group_name, own_name], start).context(OPEN, &path);
        let (sequence, column) = made.inspect_err(|_| {
            if is_new {
                let _ = std::fs::remove_file(&path);
            }
        })?;
        file.flush().context(OPEN, &path)?;
        let disk = match spec.to_disk {
            ToDisk::Beside(interval) | ToDisk::InSpool(interval) => {
                let disk = DiskSync::start(path.parent().unwrap_or(Path::new(".")), interval).context(OPEN, &path)?;
                disk.opened(GROUP, vec![(path.clone(), std::fs::File::open(&path).context(OPEN, &path)?.into())]);
                Some(disk)
            }
            ToDisk::Never | ToDisk::AtEnd => None,
        };
        let rows = sequence.shape().first().map_or(0, |&rows| rows as u64);
        let (pending, chunks) = (Vec::new(), Chunks::default());
        Ok(Self {
            spec,
            file,
            disk,
            sequence,
            column,
            rows,
            pending,
            pending_received_ns: Vec::new(),
            meter: start.meter.clone(),
            stack: None,
            chunks,
            free_known: 0,
            unflushed_bytes: [0; 2],
            unflushed_chunks: 0,
            flushed_ns: None,
        })
    }

    /// Creates the group of the detector with what the sender said, as far as it is not there yet.
    fn prepare(file: &File, [group_name, own_name]: [&str; 2], start: &SeriesStart) -> hdf5::Result<(Dataset, Column)> {
        low::hold_metadata(file)?;
        let mut group: Group = file.group("/")?;
        let names: Vec<&str> = group_name.split('/').filter(|name| !name.is_empty()).collect();
        for (n, name) in names.iter().enumerate() {
            group = if group.link_exists(name) { group.group(name)? } else { group.create_group(name)? };
            if n + 1 == names.len() && group.attr("NX_class").is_err() {
                nexus::attribute_text(&group, "NX_class", "NXdetector")?;
            }
        }
        let column = Column {
            name: SEQUENCE.into(),
            kind: ColumnType::U32,
            shape: vec![],
            offset: 0,
            description: "frame of each image".into(),
        };
        let sequence =
            if group.link_exists(SEQUENCE) { group.dataset(SEQUENCE)? } else { low::create_column(&group, &column, u32::MAX)? };
        // Fields of the sender must not take the names of the sequence numbers and of the images, which are created
        // later.
        let mut said = start.metadata.clone();
        said.remove(own_name);
        fields::write_tree(&group, &said)?;
        let is_right = sequence.dtype()?.size() == 4 && sequence.ndim() == 1 && sequence.is_resizable();
        if is_right { Ok((sequence, column)) } else { Err(format!("{SEQUENCE} is not an extendable list of uint32").into()) }
    }

    /// Creates or opens the data set at the first image; says why an image does not fit it.
    fn take_form(&mut self, image: &CommittedImage) -> Result<Result<(), String>, Error> {
        if let Some(stack) = &self.stack {
            return Ok(stack.form.differs(image).map_or(Ok(()), Err));
        }
        let form = match Form::of(image) {
            Ok(form) => form,
            Err(why) => return Ok(Err(why)),
        };
        let opened = Stack::open(&self.file, &self.spec.dataset, form).context("create the data set", &self.spec.path)?;
        Ok(opened.map(|stack| {
            // A file of another program may have fewer numbers than images; this makes our numbers stand beside our
            // images.
            let missing = stack.images.saturating_sub(self.rows) as usize;
            self.pending.splice(0..0, std::iter::repeat_n(0xFF, 4 * missing));
            self.stack = Some(stack);
        }))
    }

    fn check_space(&mut self, bytes: u64) -> Result<(), Error> {
        let directory = self.spec.path.parent().unwrap_or(Path::new("."));
        let needed = bytes + FLUSH_BYTES;
        if self.free_known < needed + FREE_CLOSE {
            self.free_known = space::free_bytes(directory).context(WRITE, directory)?;
        }
        if self.free_known < needed {
            let cause = format!("{} bytes are free, the next image may need {needed}", self.free_known);
            return Err(Error::new(ErrorKind::DiskFull, WRITE, &self.spec.path, cause));
        }
        self.free_known -= bytes;
        Ok(())
    }

    fn flush(&mut self, shared: &SharedState) -> Result<(), Error> {
        self.free_known = 0;
        if let Some(failed) = self.disk.as_ref().and_then(DiskSync::failure) {
            return Err(Error::io(SYNC, failed.path(), failed.error()));
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        let images = (self.pending.len() / 4) as u64;
        let rows = self.rows + images;
        let stored = low::set_extent(&self.sequence, rows, &[])
            .and_then(|()| low::write_rows(&self.sequence, &self.column, self.rows, &self.pending))
            .and_then(|()| self.file.flush())
            .and_then(|()| low::release_metadata(&self.file));
        stored.context("write images into the file", &self.spec.path)?;
        (self.rows, self.unflushed_chunks) = (rows, 0);
        self.pending.clear();
        self.pending_received_ns.drain(..).for_each(|received_ns| self.meter.reached(Stage::Written, received_ns));
        if let Some(disk) = &self.disk {
            disk.written(rows);
        }
        shared.wrote(images, std::mem::take(&mut self.unflushed_bytes));
        Ok(())
    }
}

impl OpenFiles for AppendFile {
    fn image(&mut self, image: &CommittedImage, shared: &SharedState) -> Result<(), Error> {
        if image.channels.is_empty() || !image.status.has_pixels() || !image.store {
            return Ok(());
        }
        if let Err(why) = self.take_form(image)? {
            shared.refuse(format!("image {}: {why}", image.number));
            return Ok(());
        }
        let bytes = image.packed_bytes();
        self.check_space(bytes)?;
        let Some(stack) = &mut self.stack else { return Ok(()) };
        let (path, local) = (&self.spec.path, stack.images);
        let written = self.chunks.with(&stack.form, image, |pieces| -> Result<(), Error> {
            low::set_extent(&stack.dataset, local + 1, &stack.shape).context(WRITE, path)?;
            for (start, piece) in stack.starts.iter_mut().zip(pieces) {
                start[0] = local;
                let offset = low::hand_off_chunk(&stack.dataset, start, piece, ChunkWrites::OutsideLock);
                offset.map_err(|failed| failed.at(WRITE, path))?;
            }
            Ok(())
        });
        match written {
            Err(why) => shared.refuse(format!("image {}: {why}", image.number)),
            Ok(Err(error)) => {
                // A chunk that was not written must not stay in the index. Of a chunk that libhdf5 itself could not
                // store it may refuse that too; the earlier images are there in any case.
                let _ = low::set_extent(&stack.dataset, local, &stack.shape);
                return Err(error);
            }
            Ok(Ok(())) => {
                stack.images += 1;
                self.pending.extend((image.frame as u32).to_le_bytes());
                self.pending_received_ns.push(image.received_ns);
                self.unflushed_bytes[0] += bytes;
                self.unflushed_bytes[1] += image.unpacked_bytes();
                self.unflushed_chunks += stack.starts.len();
            }
        }
        if self.unflushed_chunks >= UNFLUSHED_CHUNKS_MAX { self.flush(shared) } else { Ok(()) }
    }

    fn tick(&mut self, now_ns: u64, shared: &SharedState) -> Result<(), Error> {
        let flushed = *self.flushed_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(flushed) < FLUSH_NS {
            return Ok(());
        }
        self.flushed_ns = Some(now_ns);
        self.flush(shared)
    }

    fn end(mut self: Box<Self>, _: &SeriesEnd, _: bool, shared: &SharedState) -> Result<(), Error> {
        let flushed = self.flush(shared);
        let Self { spec, file, disk, sequence, stack, rows, .. } = *self;
        shared.has_positions(rows);
        drop((sequence, stack));
        let closed = file.close().context("close the file", &spec.path);
        flushed.and(closed)?;
        if let Some(disk) = disk {
            disk.closed(GROUP, vec![spec.path.clone()], 0, None);
            disk.finish().map_err(|failed| Error::io(SYNC, failed.path(), failed.error()))?;
        }
        if spec.to_disk == ToDisk::AtEnd {
            std::fs::File::open(&spec.path).and_then(|file| file.sync_data()).context(SYNC, &spec.path)?;
        }
        Ok(())
    }
}

impl Stack {
    /// The data set of a file, created if it is absent; an error in words if images of this form do not fit it.
    fn open(file: &File, name: &str, form: Form) -> hdf5::Result<Result<Self, String>> {
        let narrow = |shape: Vec<u64>| shape.iter().map(|&size| size as usize).collect::<Vec<usize>>();
        let (shape, chunk) = (narrow(form.image_shape()), narrow(form.chunk_shape()));
        let filter = packing::filter_of(form.compression(), form.pixel().bytes(), Some(form.pixel()), [1, 1]);
        let (group_name, own_name) = name.rsplit_once('/').unwrap_or(("", name));
        let group = file.group(group_name)?;
        let dataset = if group.link_exists(own_name) {
            let there = group.dataset(own_name)?;
            if let Err(why) = fits(&there, &form, [&shape, &chunk])? {
                return Ok(Err(why));
            }
            there
        } else {
            low::create_images(&group, own_name, form.pixel(), [&shape, &chunk], None, filter.as_ref())?
        };
        let (image, chunk) = (form.image_shape(), form.chunk_shape());
        let start = |piece| [&[0], &super::series_info::chunk_start(&image, &chunk, piece)[..]].concat();
        let (starts, images) = ((0..form.chunks()).map(start).collect(), dataset.shape()[0] as u64);
        Ok(Ok(Self { form, dataset, shape, starts, images }))
    }
}

/// Whether images of this form can be appended to an existing data set.
fn fits(dataset: &Dataset, form: &Form, [shape, chunk]: [&[usize]; 2]) -> hdf5::Result<Result<(), String>> {
    let kind = dataset.dtype()?.to_descriptor().ok();
    let (pixel, compression) = (kind.and_then(|kind| reader::pixel_of(&kind)), packing::compression(&low::filters(dataset)?));
    let (there, chunks) = (dataset.shape(), dataset.chunk().unwrap_or_default());
    let same_codec = compression.is_some_and(|there| there.name() == form.compression().name());
    let same_shape = there.get(1..) == Some(shape) && chunks.first() == Some(&1) && chunks.get(1..) == Some(chunk);
    if same_shape && pixel == Some(form.pixel()) && same_codec {
        return Ok(Ok(()));
    }
    let found = pixel.map_or("another type", PixelType::name);
    let packed = compression.map_or("another filter", |compression| compression.name());
    Ok(Err(format!(
        "the existing data set has shape {there:?} in chunks of {chunks:?}, {found}, {packed}; the image has {shape:?} in chunks of {chunk:?}, {}, {}",
        form.pixel().name(),
        form.compression().name()
    )))
}

fn unreadable(mut error: Error) -> Error {
    if matches!(error.kind, ErrorKind::Io | ErrorKind::NotHdf5) {
        error.kind = ErrorKind::Damaged;
        error.hint =
            "choose another file name, or move the file away: it is not an HDF5 file, or its writer was killed while it flushed"
                .into();
    }
    error
}
