//! Committed images into NeXus files.

use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::{Compression, Plan};
use konkordia_core::ports::{CommittedImage, Sink, SinkError};
use konkordia_kernels::chunk;
use konkordia_sinks::hdf5::{self, FileReport, ImageRecord, LedgerRecord, Writer};
use std::sync::{Arc, Mutex, PoisonError};

/// The writer, shared between the sink's thread during the run and the program that closes the file afterwards. Nobody ever waits for it.
#[derive(Clone)]
pub struct SharedWriter(Arc<Mutex<Option<Writer>>>);

impl SharedWriter {
    /// Takes over a writer.
    pub fn new(writer: Writer) -> Self {
        Self(Arc::new(Mutex::new(Some(writer))))
    }

    /// Closes the files with the account of the run; `None` if there are none to close any more.
    pub fn finish(&self, ledger: &LedgerRecord) -> Option<Result<FileReport, hdf5::Error>> {
        let writer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        writer.map(|w| w.finish(ledger))
    }
}

/// Writes what the engine commits.
pub struct FileSink {
    writer: SharedWriter,
    /// Total bytes and block bytes before the strips of a `bslz4` chunk; empty without compression.
    header: Vec<u8>,
    bitmap_words: usize,
    packets: Vec<u16>,
    bitmap: Vec<u64>,
}

impl FileSink {
    /// A sink for the images of `plan`.
    pub fn new(writer: SharedWriter, plan: &Plan) -> Self {
        let mut header = Vec::new();
        if plan.compression == Compression::Bslz4 {
            header.resize(chunk::HEADER_BYTES, 0);
            chunk::write_header(&mut header, plan.image_bytes() as u64, chunk::BLOCK_BYTES as u32);
        }
        let tiles = plan.streams();
        let bitmap_words = plan.geometry.format().packets().div_ceil(64) as usize;
        Self { writer, header, bitmap_words, packets: vec![0; tiles], bitmap: vec![0; tiles * bitmap_words] }
    }

    fn with_writer(&self, f: impl FnOnce(&mut Writer) -> Result<(), hdf5::Error>) -> Result<(), SinkError> {
        let mut writer = self.writer.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The state of an image as the file numbers it.
fn file_status(status: ImageStatus) -> hdf5::ImageStatus {
    match status {
        ImageStatus::Lost => hdf5::ImageStatus::Lost,
        ImageStatus::Partial => hdf5::ImageStatus::Partial,
        ImageStatus::Complete => hdf5::ImageStatus::Complete,
        ImageStatus::Discarded => hdf5::ImageStatus::Discarded,
    }
}

impl Sink for FileSink {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        let words = self.bitmap_words;
        for (tile, record) in image.tiles.iter().enumerate() {
            self.packets[tile] = record.packets;
            self.bitmap[tile * words..(tile + 1) * words].copy_from_slice(&record.bitmap.0[..words]);
        }
        // The tile that has the lowest stream number speaks for the image.
        let first = image.tiles.iter().find(|t| t.packets > 0).map(|t| t.header).unwrap_or_default();
        // At most one part per strip and the header; a chunk is written in one go by the writer.
        let mut parts: [&[u8]; konkordia_core::plan::STRIPS_MAX + 1] = [&[]; konkordia_core::plan::STRIPS_MAX + 1];
        let mut count = 0;
        if !image.strips.is_empty() {
            parts[0] = &self.header;
            parts[1..=image.strips.len()].copy_from_slice(image.strips);
            count = image.strips.len() + 1;
        }
        let record = ImageRecord {
            index: image.image,
            frame_number: first.frame_number,
            status: file_status(image.status),
            parts: &parts[..count],
            packets_received: &self.packets,
            packet_bitmap: &self.bitmap,
            timestamp_100ns: first.timestamp_100ns,
            bunch_id: first.bunch_id,
            exposure_100ns: first.exposure_length,
            detector_info: first.daq_info,
            extra: &[],
        };
        self.with_writer(|writer| writer.write(&record))
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.with_writer(|writer| writer.tick(now_ns))
    }
}
