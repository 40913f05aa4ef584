//! Places images of a conversion in its files: after those that an interrupted conversion wrote, whose counts are added
//! to the ledger, and with the frame numbers that they had in the converted run.

use konkordia_config::Config;
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::CommittedImage;
use konkordia_core::latency::Meter;
use konkordia_core::ledger::{ImageStatus, RunLedger, StreamLedger};
use konkordia_core::plan::Plan;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::series::Ended;
use konkordia_core::setup::{Port, Seen};
use konkordia_engine::run::RunOutcome;
use konkordia_input::{Input, InputInfo, RunFrames};
use konkordia_sinks::hdf5::{FileSink, Reader, RunFiles, data_file_name};
use konkordia_wire::sls_udp::HEADER_BYTES;
use std::sync::Arc;
use std::time::Duration;

/// Counts of the images that were kept, from the columns of their data files.
#[derive(Default)]
pub struct Kept {
    images: u64,
    /// Lost, complete, partial, discarded.
    by_status: [u64; ImageStatus::COUNT],
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
        images.vetoed += count(ImageStatus::Vetoed);
        ledger.written += count(ImageStatus::Complete) + count(ImageStatus::Partial);
        let frames = &mut ledger.frames;
        frames.packets_placed += placed;
        frames.packets_missing += (self.images * self.packets_per_image).saturating_sub(placed);
        frames.passed += self.images;
        frames.kept += self.images;
        outcome.images += self.images;
    }
}

/// Adds what the headers say of streams whose frames were all in images that are kept.
pub fn add_ports(outcome: &mut RunOutcome, input: &Input) {
    let streams = outcome.ledger.streams.len();
    outcome.seen.resize(streams, Seen::default());
    let mut pixels = vec![0; input.info().format.tile_bytes() as usize];
    for (tile, seen) in outcome.seen.iter_mut().enumerate().filter(|(tile, seen)| *tile < input.tiles() && seen.port.is_none()) {
        let mut reader = input.open_tile(tile);
        // What cannot be read is left out: the images are in the files.
        let frames = (0..reader.len()).map_while(|nth| reader.read(nth, &mut pixels).ok());
        let header = frames.into_iter().find(|frame| frame.bitmap.count() > 0).map(|frame| frame.header);
        seen.port = header.map(|h| Port { row: h.row, column: h.column, module_id: h.module_id });
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
        failure: None,
        images: 0,
        first_frame: Some(first_frame),
        receive_time: Duration::ZERO,
        pool_waited: Duration::ZERO,
        seen: Vec::new(),
        findings: Vec::new(),
        meter: Meter::default(),
        wakeups: Vec::new(),
        gpu: None,
        analysis: AnalysisCounts::default(),
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
}

/// True if the input is a run that did not keep every frame of the detector.
pub fn has_gaps(info: &InputInfo) -> bool {
    info.own.as_ref().is_some_and(|own| matches!(own.frames, RunFrames::Kept(..)))
}

/// The sink of the files of a conversion.
pub fn sink(files: &RunFiles, info: &InputInfo, shift: Shift) -> Box<dyn Sink> {
    let run = info.own.as_ref().filter(|_| has_gaps(info)).map(|own| (own.frames.clone(), info.first_frame));
    if run.is_none() && shift.images == 0 {
        return Box::new(files.sink());
    }
    Box::new(Placed { inner: files.sink(), files: files.clone(), shift, run })
}

/// Sink before the files of a conversion. It gives images the positions that they have there, and, where the converted
/// run did not keep every frame, the frame numbers and positions that they had in that run.
struct Placed {
    inner: FileSink,
    files: RunFiles,
    shift: Shift,
    /// Frames of the converted run, and its first one.
    run: Option<(RunFrames, u64)>,
}

impl Placed {
    /// Numbers an image that came `shift` images after the first one of the files.
    fn place(&self, image: &mut CommittedImage, shift: u64) {
        image.number += shift;
        let Some(packets) = &mut image.packets else { return };
        packets.first_frame += shift;
        let Some((frames, first_frame)) = &self.run else { return };
        let kept = frames.kept(first_frame + packets.first_frame).unwrap_or_default();
        match kept.position {
            Some(position) => packets.first_frame = position,
            // `frames` = 0 says that the position is unknown.
            None => (packets.first_frame, packets.frames) = (0, 0),
        }
        for tile in packets.tiles.iter_mut().filter(|tile| tile.packets > 0) {
            tile.header.frame_number = kept.number.unwrap_or(tile.header.frame_number);
        }
    }
}

impl Sink for Placed {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        if self.shift.skips && image.number < self.shift.images {
            let pedestals = image.packets.as_ref().and_then(|packets| packets.pedestals.as_ref());
            return pedestals.map_or(Ok(()), |plane| self.files.write_pedestals(image.number, plane));
        }
        let mut placed = (**image).clone();
        self.place(&mut placed, if self.shift.skips { 0 } else { self.shift.images });
        self.inner.image(&Arc::new(placed))
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.inner.tick(now_ns)
    }
}
