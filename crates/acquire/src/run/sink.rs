//! Writes committed images into NeXus files.

use konkordia_core::frame_header::FrameColumn;
use konkordia_core::image::{CommittedImage, Packets};
use konkordia_core::plan::Plan;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_sinks::durable::Durable;
use konkordia_sinks::hdf5::{self, ExtraColumn, FileReport, ImageRecord, LedgerRecord, Writer};
use konkordia_wire::formats::PacketFormat;
use std::sync::{Arc, Mutex, PoisonError};

/// The writer of the files. The sink's thread uses it during the run and the program that closes the files uses it
/// afterwards, so nothing ever waits for its lock. The default one writes nothing.
#[derive(Clone, Default)]
pub struct SharedWriter {
    writer: Arc<Mutex<Option<Writer>>>,
    durable: Option<Durable>,
}

impl SharedWriter {
    /// Takes over a writer.
    pub fn new(writer: Writer) -> Self {
        Self { durable: writer.durable(), writer: Arc::new(Mutex::new(Some(writer))) }
    }

    /// Images before this position are on the disk, and survive a power cut; `None` if nothing is written, or if the
    /// files are not synced before the end.
    pub fn durable_end(&self) -> Option<u64> {
        self.durable.as_ref().map(Durable::end)
    }

    /// Writes a snapshot of the pedestals without its image, for images that the files of an interrupted conversion
    /// already hold. Does nothing if that conversion was complete: its snapshots are already stored.
    ///
    /// # Errors
    /// As [`Sink::image`].
    pub fn write_pedestals(&self, image: u64, plane: &[f32]) -> Result<(), SinkError> {
        FileSink::with_writer(
            self,
            |writer| if writer.takes_pedestals() { writer.write_pedestals(image, &[plane]) } else { Ok(()) },
        )
    }

    /// Writes the ledger of the run and closes the files; `None` if no files are open.
    pub fn finish(&self, ledger: &LedgerRecord) -> Option<Result<FileReport, hdf5::Error>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        writer.map(|w| w.finish(ledger))
    }
}

/// Per-image columns of runs with a selection of frames, in which a frame is not simply an image. The values come from
/// the head of the image.
const SELECTED: [&str; 3] = ["first_frame", "frames", "frames_complete"];

/// The columns that the packet format of this run brings to its file.
pub fn frame_columns(plan: &Plan) -> &'static [FrameColumn] {
    PacketFormat::of(plan.geometry.format().kind).description().columns
}

/// The additional columns of the file of a run: those of a selection of frames, and the results.
pub fn extra_columns(plan: &Plan, is_selected: bool) -> Vec<ExtraColumn> {
    let selected: &[&str] = if is_selected { &SELECTED } else { &[] };
    selected.iter().map(|name| ExtraColumn::count(name)).chain(plan.result_kinds().into_iter().map(Into::into)).collect()
}

/// Writes the images that the engine commits.
pub struct FileSink {
    writer: SharedWriter,
    bitmap_words: usize,
    packets: Vec<u16>,
    bitmap: Vec<u64>,
    /// The columns that the packet format brings, and their values.
    columns: &'static [FrameColumn],
    values: Vec<u64>,
    /// The file has the columns of a selection of frames.
    is_selected: bool,
    /// The bits of the numbers in the additional columns.
    extra: Vec<u64>,
    extra_numbers: usize,
}

impl FileSink {
    /// A sink for the images of `plan`.
    pub fn new(writer: SharedWriter, plan: &Plan) -> Self {
        Self::with(writer, plan, !plan.processing.selection.is_plain())
    }

    /// A sink for the images of `plan` whose files have the columns of a selection of frames, as [`extra_columns`]
    /// says.
    pub fn with(writer: SharedWriter, plan: &Plan, is_selected: bool) -> Self {
        let tiles = plan.streams();
        let bitmap_words = plan.geometry.format().packets().div_ceil(64) as usize;
        let (packets, bitmap) = (vec![0; tiles], vec![0; tiles * bitmap_words]);
        let extra_numbers = extra_columns(plan, is_selected).iter().map(|column| column.length).sum();
        let extra = Vec::with_capacity(extra_numbers);
        let columns = frame_columns(plan);
        let values = Vec::with_capacity(columns.len() * tiles);
        Self { writer, bitmap_words, packets, bitmap, columns, values, is_selected, extra, extra_numbers }
    }

    /// Writes an image at `position`, with these packets instead of its own.
    ///
    /// # Errors
    /// As [`Sink::image`].
    pub fn write(&mut self, position: u64, image: &CommittedImage, packets: &Packets) -> Result<(), SinkError> {
        let words = self.bitmap_words;
        for (tile, record) in packets.tiles.iter().enumerate() {
            self.packets[tile] = record.packets;
            self.bitmap[tile * words..(tile + 1) * words].copy_from_slice(&record.bitmap.0[..words]);
        }
        // The header of the image is that of the first stream with packets.
        let first = packets.header().unwrap_or_default();
        self.values.clear();
        for column in self.columns {
            if column.is_per_tile {
                self.values.extend(packets.tiles.iter().map(|tile| tile.header.value(column.value)));
            } else {
                self.values.push(first.value(column.value));
            }
        }
        self.extra.clear();
        if self.is_selected {
            self.extra.extend([packets.first_frame, u64::from(packets.frames), u64::from(packets.frames_complete)]);
        }
        self.extra.extend(image.results.bits());
        // An image that never was one has no results.
        self.extra.resize(self.extra_numbers, 0);
        let chunk = [image.chunk()];
        let record = ImageRecord {
            index: position,
            frame_number: first.frame_number,
            status: image.status,
            parts: if image.status.has_pixels() { &chunk } else { &[] },
            packets_received: &self.packets,
            packet_bitmap: &self.bitmap,
            frame_values: &self.values,
            extra: &self.extra,
        };
        Self::with_writer(&self.writer, |writer| {
            writer.write(&record)?;
            let pedestals = packets.pedestals.as_ref();
            pedestals.map_or(Ok(()), |plane| writer.write_pedestals(position, &[plane]))
        })
    }

    fn with_writer(writer: &SharedWriter, f: impl FnOnce(&mut Writer) -> Result<(), hdf5::Error>) -> Result<(), SinkError> {
        let mut writer = writer.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match writer.as_mut() {
            Some(writer) => f(writer).map_err(|e| SinkError {
                what: format!("cannot {}: {}", e.operation, e.path.display()),
                why: e.cause,
                fix: e.hint,
            }),
            None => Ok(()),
        }
    }
}

impl Sink for FileSink {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        match &image.packets {
            Some(packets) => self.write(image.number, image, packets),
            None => Ok(()),
        }
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        Self::with_writer(&self.writer, |writer| writer.tick(now_ns))
    }
}
