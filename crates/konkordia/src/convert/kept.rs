//! Where images of a conversion belong: behind those that an interrupted one wrote already, with the account of these, and to which frames of the
//! run.

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::input::{InputInfo, RunFrames};
use crate::run::sink::{FileSink, SharedWriter};
use konkordia_core::ledger::{ImageStatus, RunLedger, StreamLedger};
use konkordia_core::plan::Plan;
use konkordia_core::ports::{CommittedImage, Sink, SinkError, TileRecord};
use konkordia_engine::run::{Ended, RunOutcome};
use konkordia_sinks::hdf5::{Reader, data_file_name};
use konkordia_wire::sls_udp::HEADER_BYTES;
use std::time::Duration;

/// What the columns of the data files that were kept tell.
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

    /// Adds these images to the account of a run that took the rest.
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

/// The outcome of a run that had nothing left to do.
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

/// A source that could not read on.
pub fn source_failure(error: &std::io::Error) -> Failure {
    let text = error.to_string();
    let (what, why) = text.split_once('\n').unwrap_or((&text, ""));
    Failure::new(
        Exit::Io,
        what,
        why,
        "check the input; what was converted before is in the files, and --resume goes on from there",
    )
}

/// Where the images of a resumed run go.
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

    /// The first `images` images are computed once more, because later ones depend on them, and not written; only their snapshots of the
    /// pedestals are, since the file of these begins anew.
    pub fn skip(images: u64) -> Self {
        Self { images, skips: true }
    }

    /// True if images are computed once more.
    pub fn skips(&self) -> bool {
        self.skips
    }

    /// Puts the shift before the sink of `writer`.
    pub fn before(self, sink: Box<dyn Sink>, writer: SharedWriter) -> Box<dyn Sink> {
        if self.images == 0 { sink } else { Box::new(Shifted { shift: self, inner: sink, writer }) }
    }
}

/// Before the file of a conversion: gives images the frames that they had in the run, where that did not keep every frame.
pub struct AsInRun {
    inner: FileSink,
    frames: RunFrames,
    first_frame: u64,
    tiles: Vec<TileRecord>,
}

impl AsInRun {
    /// True if the frames of the input are not those of the detector, one by one.
    pub fn is_needed(info: &InputInfo) -> bool {
        info.own.as_ref().is_some_and(|own| matches!(own.frames, RunFrames::Kept(..)))
    }

    /// The sink of the file, with this before it where it is needed.
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
            // No frame: readers of the column know then that its place is not known.
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
