//! The files of a run, which are open from its arm to its ledger.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use konkordia_core::frame_header::FrameColumn;
use konkordia_core::image::{CommittedImage, Packets};
use konkordia_core::latency::Meter;
use konkordia_core::ports::SinkError;
use konkordia_core::series::SeriesEnd;
use konkordia_core::xds::readable_bits;

use super::columns::ImageRecord;
use super::error::Error;
use super::extra_column::ExtraColumn;
use super::file_sink::FileSink;
use super::names::master_path;
use super::open_files::OpenFiles;
use super::series_state::SharedState;
use super::spec::{FileSpec, LedgerRecord};
use super::writer::{FileReport, Writer};

/// The files of a run. The thread of its sink writes them during the run, and who has armed the run closes them
/// afterwards, so nothing ever waits for the lock. The default has no files and writes nothing.
#[derive(Clone, Default)]
pub struct RunFiles {
    writer: Arc<Mutex<Option<Writer>>>,
    shared: Arc<SharedState>,
}

impl RunFiles {
    /// Takes over a writer, to which no image was given.
    pub fn new(writer: Writer) -> Self {
        let files = Self::default();
        files.shared.begin(Some(master_path(&writer.spec().directory, &writer.spec().prefix)));
        files.shared.is_durable_to(writer.durable());
        *files.locked() = Some(writer);
        files
    }

    /// The sink of the images. Their records have the columns of the specification of the files.
    pub fn sink(&self) -> FileSink {
        self.sink_behind(Positions::default())
    }

    /// The sink of a further run, whose images lie behind those of the runs before.
    pub fn sink_behind(&self, before: Positions) -> FileSink {
        FileSink::of_run(Box::new(RunImages::new(self, before)), Arc::clone(&self.shared))
    }

    /// The first fact in which the images of a further run would differ from what these files say; `None` if they may
    /// be appended, or if there are no files.
    pub fn differs(&self, further: &FileSpec) -> Option<&'static str> {
        let locked = self.locked();
        let spec = locked.as_ref()?.spec();
        let facts = [
            ("the calibration", spec.calibration_hash == further.calibration_hash),
            ("the mask", further.pixel_mask.iter().map(|bits| readable_bits(*bits)).eq(spec.pixel_mask.iter().copied())),
            ("the size or the type of the images", spec.image_shape() == further.image_shape() && spec.pixel == further.pixel),
        ];
        facts.into_iter().find(|(_, is_same)| !is_same).map(|(name, _)| name)
    }

    /// A run has ended and the files stay open for the next one: what is there is flushed.
    ///
    /// # Errors
    /// It cannot be written; the files are to be closed then.
    pub fn pause(&self) -> Result<(), Error> {
        self.locked().as_mut().map_or(Ok(()), Writer::flush)
    }

    /// Latencies count for one run. Files of several runs have none.
    pub fn forget_latency(&self) {
        if let Some(writer) = self.locked().as_mut() {
            writer.set_meter(Meter::default());
        }
    }

    /// What is known of the files, readable from other threads.
    pub fn shared(&self) -> &Arc<SharedState> {
        &self.shared
    }

    /// Writes a snapshot of the pedestals without its image, for images that the files of an interrupted conversion
    /// already hold. Does nothing if that conversion was complete: its snapshots are already stored.
    ///
    /// # Errors
    /// As [`konkordia_core::ports::Sink::image`].
    pub fn write_pedestals(&self, image: u64, plane: &[f32]) -> Result<(), SinkError> {
        match self.locked().as_mut() {
            Some(writer) if writer.takes_pedestals() => Ok(writer.write_pedestals(image, &[plane])?),
            _ => Ok(()),
        }
    }

    /// Writes the ledger of the run and closes the files; `None` if no files are open.
    pub fn finish(&self, ledger: &LedgerRecord) -> Option<Result<FileReport, Error>> {
        let writer = self.locked().take()?;
        let done = writer.finish(ledger);
        if let Ok(report) = &done {
            self.shared.has_positions(report.images);
        }
        Some(done)
    }

    /// Closes single data files, which end before position `end` of the run; `None` if no files are open.
    pub fn finish_single_files(&self, end: u64) -> Option<Result<FileReport, Error>> {
        let writer = self.locked().take()?;
        Some(writer.finish_single_files(end))
    }

    fn locked(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the files hold of the runs before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Images.
    pub images: u64,
    /// Frames, those that became no image too.
    pub frames: u64,
}

/// Makes records of the images of a run: their chunk, and what their packets say.
struct RunImages {
    files: RunFiles,
    before: Positions,
    bitmap_words: usize,
    packets: Vec<u16>,
    bitmap: Vec<u64>,
    /// The columns that the packet format brings, and their values.
    columns: Vec<FrameColumn>,
    values: Vec<u64>,
    /// The files have the columns of a selection of frames.
    has_selection: bool,
    /// The bits of the numbers in the additional columns.
    extra: Vec<u64>,
    extra_numbers: usize,
}

impl RunImages {
    fn new(files: &RunFiles, before: Positions) -> Self {
        let (locked, no_files) = (files.locked(), FileSpec::default());
        let spec = locked.as_ref().map_or(&no_files, Writer::spec);
        let (tiles, bitmap_words, extra_numbers) = (spec.tiles.len(), spec.bitmap_words(), spec.extra_numbers());
        let has = |name: &&str| spec.extra_columns.iter().any(|column| column.name == **name);
        Self {
            files: files.clone(),
            before,
            bitmap_words,
            packets: vec![0; tiles],
            bitmap: vec![0; tiles * bitmap_words],
            values: Vec::with_capacity(spec.frame_columns.len() * tiles),
            columns: spec.frame_columns.clone(),
            has_selection: ExtraColumn::SELECTION.iter().all(has),
            extra: Vec::with_capacity(extra_numbers),
            extra_numbers,
        }
    }

    /// Fills the rows of an image.
    fn fill(&mut self, image: &CommittedImage, packets: &Packets) {
        let words = self.bitmap_words;
        for (tile, record) in packets.tiles.iter().enumerate() {
            self.packets[tile] = record.packets;
            self.bitmap[tile * words..(tile + 1) * words].copy_from_slice(&record.bitmap.0[..words]);
        }
        // The header of the image is that of the first stream with packets.
        let first = packets.header().unwrap_or_default();
        self.values.clear();
        for column in &self.columns {
            if column.is_per_tile {
                self.values.extend(packets.tiles.iter().map(|tile| tile.header.value(column.value)));
            } else {
                self.values.push(first.value(column.value));
            }
        }
        self.extra.clear();
        if self.has_selection {
            self.extra.extend([
                self.before.frames + packets.first_frame,
                u64::from(packets.frames),
                u64::from(packets.frames_complete),
            ]);
        }
        self.extra.extend(image.results.bits());
        // An image that never was one has no results.
        self.extra.resize(self.extra_numbers, 0);
    }
}

impl OpenFiles for RunImages {
    fn image(&mut self, image: &CommittedImage, shared: &SharedState) -> Result<(), Error> {
        let files = self.files.clone();
        let mut locked = files.locked();
        let (Some(writer), Some(packets)) = (locked.as_mut(), &image.packets) else { return Ok(()) };
        self.fill(image, packets);
        let (chunk, index) = ([image.chunk()], self.before.images + image.number);
        writer.write(&ImageRecord {
            index,
            frame_number: packets.header().unwrap_or_default().frame_number,
            status: image.status,
            parts: if image.status.has_pixels() { &chunk } else { &[] },
            packets_received: &self.packets,
            packet_bitmap: &self.bitmap,
            frame_values: &self.values,
            extra: &self.extra,
        })?;
        if image.status.has_pixels() {
            shared.wrote(1, [image.packed_bytes(), image.unpacked_bytes()]);
            writer.count_latency(image.received_ns);
        }
        packets.pedestals.as_ref().map_or(Ok(()), |plane| writer.write_pedestals(index, &[plane]))
    }

    fn measure(&mut self, meter: &Meter) {
        if let Some(writer) = self.files.locked().as_mut() {
            writer.set_meter(meter.clone());
        }
    }

    fn tick(&mut self, now_ns: u64, _: &SharedState) -> Result<(), Error> {
        self.files.locked().as_mut().map_or(Ok(()), |writer| writer.tick(now_ns))
    }

    /// [`RunFiles::finish`] closes the files.
    fn end(self: Box<Self>, _: &SeriesEnd, _: bool, _: &SharedState) -> Result<(), Error> {
        Ok(())
    }
}
