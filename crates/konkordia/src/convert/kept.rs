//! Places images of a conversion in its files: after those that an interrupted conversion wrote, whose counts are added
//! to the ledger, and with the frame numbers that they had in the converted run.

use konkordia_acquire::run::sink::{FileSink, SharedWriter};
use konkordia_config::Config;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ledger::{ImageStatus, RunLedger, StreamLedger};
use konkordia_core::plan::Plan;
use konkordia_core::ports::{CommittedImage, Sink, SinkError, TileRecord};
use konkordia_engine::run::{Ended, RunOutcome};
use konkordia_input::{InputInfo, RunFrames};
use konkordia_sinks::hdf5::{Reader, data_file_name};
use konkordia_wire::sls_udp::HEADER_BYTES;
use std::time::Duration;

/// Counts of the images that were kept, from the columns of their data files.
#[derive(Default)]
pub struct Kept {
    images: u64,
    /// Lost, complete, partial, discarded.
    by_status: [u64; 4],
    /// Packets placed, by stream.
    packets: Vec<u64>,
    packets_per_image: u64,
    datagram_bytes: u64,
}

impl Kept {
    /// Reads the columns of the data files that hold the first `images` images.
    pub fn read(config: &Config, images: u64, plan: &Plan) -> Result<Self, Failure> {
        let streams = plan.streams();
        let mut kept = Self {
            images,
            packets: vec![0; streams],
            packets_per_image: plan.packets_per_image(),
            datagram_bytes: HEADER_BYTES as u64 + u64::from(plan.geometry.format().payload_bytes),
            ..Self::default()
        };
        for number in 1..=images.div_ceil(u64::from(config.images_per_file)) {
            let reader = Reader::open(&config.directory.join(data_file_name(&config.prefix, number)))?;
            for status in reader.column("status").unwrap_or_default() {
                if let Some(count) = kept.by_status.get_mut(status as usize) {
                    *count += 1;
                }
            }
            for row in reader.column("packets_received").unwrap_or_default().chunks_exact(streams) {
                kept.packets.iter_mut().zip(row).for_each(|(sum, packets)| *sum += packets);
            }
        }
        Ok(kept)
    }

    /// Adds these images to the ledger of the run that converted the rest.
    pub fn add_to(&self, outcome: &mut RunOutcome) {
        let ledger = &mut outcome.ledger;
        for (stream, packets) in ledger.streams.iter_mut().zip(&self.packets) {
            stream.received += packets;
            stream.received_bytes += packets * self.datagram_bytes;
            stream.placed += packets;
        }
        let count = |status: ImageStatus| self.by_status[status as usize];
        let placed: u64 = self.packets.iter().sum();
        let images = &mut ledger.images;
        images.expected += self.images;
        images.complete += count(ImageStatus::Complete);
        images.partial += count(ImageStatus::Partial);
        images.lost += count(ImageStatus::Lost);
        images.discarded += count(ImageStatus::Discarded);
        images.written += count(ImageStatus::Complete) + count(ImageStatus::Partial);
        images.packets_placed += placed;
        images.packets_missing += (self.images * self.packets_per_image).saturating_sub(placed);
        images.frames += self.images;
        images.frames_kept += self.images;
        outcome.images += self.images;
    }
}

/// The outcome of a conversion with no frames left to convert.
pub fn nothing_to_do(plan: &Plan, first_frame: u64) -> RunOutcome {
    RunOutcome {
        ledger: RunLedger {
            streams: vec![StreamLedger::default(); plan.streams()],
            packets_per_image: plan.packets_per_image(),
            ..RunLedger::default()
        },
        ended: Ended::Finished,
        images: 0,
        first_frame: Some(first_frame),
        receive_time: Duration::ZERO,
        seen: Vec::new(),
        findings: Vec::new(),
        sinks: Vec::new(),
        frame_sinks: Vec::new(),
    }
}

/// The failure of a source that could not read any further.
pub fn source_failure(error: &std::io::Error) -> Failure {
    let text = error.to_string();
    let (what, why) = text.split_once('\n').unwrap_or((&text, ""));
    Failure::new(
        Exit::Io,
        what,
        why,
        "check the input; the images converted so far are in the files, and --resume goes on from there",
    )
}

/// How the images of a resumed conversion are numbered in the file, and which of them are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    images: u64,
    skips: bool,
}

impl Shift {
    /// Image n of the run is image n of the file.
    pub fn none() -> Self {
        Self { images: 0, skips: false }
    }

    /// Image 0 of the run is image `images` of the file.
    pub fn onwards(images: u64) -> Self {
        Self { images, skips: false }
    }

    /// The first `images` images are computed again, because later ones depend on them, but are not written. Only their
    /// snapshots of the pedestals are written, because the file of the snapshots is started again.
    pub fn skip(images: u64) -> Self {
        Self { images, skips: true }
    }

    /// True if images are computed again.
    pub fn skips(&self) -> bool {
        self.skips
    }

    /// Wraps the sink of `writer` with this shift.
    pub fn before(self, sink: Box<dyn Sink>, writer: SharedWriter) -> Box<dyn Sink> {
        if self.images == 0 { sink } else { Box::new(Shifted { shift: self, inner: sink, writer }) }
    }
}

/// Sink before the file of a conversion, where the converted run did not keep every frame. It gives images the frame
/// numbers and positions that they had in that run.
pub struct AsInRun {
    inner: FileSink,
    frames: RunFrames,
    first_frame: u64,
    tiles: Vec<TileRecord>,
}

impl AsInRun {
    /// True if the input is a run that did not keep every frame of the detector.
    pub fn is_needed(info: &InputInfo) -> bool {
        info.own.as_ref().is_some_and(|own| matches!(own.frames, RunFrames::Kept(..)))
    }

    /// The sink of the file, wrapped by this one where it is needed.
    pub fn before_file(writer: SharedWriter, plan: &Plan, info: &InputInfo) -> Box<dyn Sink> {
        let Some(own) = info.own.as_ref().filter(|_| Self::is_needed(info)) else {
            return Box::new(FileSink::new(writer, plan));
        };
        let tiles = vec![TileRecord::default(); plan.streams()];
        let inner = FileSink::of_selected(writer, plan);
        Box::new(Self { inner, frames: own.frames.clone(), first_frame: info.first_frame, tiles })
    }
}

impl Sink for AsInRun {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        let kept = self.frames.kept(self.first_frame + image.head.first_frame).unwrap_or_default();
        let mut head = image.head;
        match kept.position {
            Some(position) => head.first_frame = position,
            // `frames` = 0 tells readers of the columns that the position is unknown.
            None => (head.first_frame, head.frames) = (0, 0),
        }
        self.tiles.copy_from_slice(image.tiles);
        for tile in self.tiles.iter_mut().filter(|tile| tile.packets > 0) {
            tile.header.frame_number = kept.number.unwrap_or(tile.header.frame_number);
        }
        self.inner.write(&CommittedImage { head, tiles: &self.tiles, ..*image })
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.inner.tick(now_ns)
    }
}

struct Shifted {
    shift: Shift,
    inner: Box<dyn Sink>,
    writer: SharedWriter,
}

impl Sink for Shifted {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        if !self.shift.skips {
            let mut later = *image;
            later.image += self.shift.images;
            later.head.first_frame += self.shift.images;
            return self.inner.write(&later);
        }
        match image {
            _ if image.image >= self.shift.images => self.inner.write(image),
            _ if image.pedestals.is_empty() => Ok(()),
            _ => self.writer.write_pedestals(image.image, image.pedestals),
        }
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.inner.tick(now_ns)
    }
}
