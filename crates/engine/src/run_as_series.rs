//! Hands the images of a run on as images of a series, so that output streams and previews get them like those from
//! messages.

use crate::output_queue::OutputQueues;
use crate::run::{Ended, RunOutcome};
use bytes::Bytes;
use konkordia_core::array::{Element, Packing, Shape};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::{Compression, Plan, STRIPS_MAX};
use konkordia_core::ports::{CommittedImage, Sink, SinkError};
use konkordia_core::series::{
    Array, Channel, ImageTimes, PacketFrame, SeriesEnd, SeriesEnded, SeriesImage, SeriesLedger, SeriesStart,
};
use konkordia_core::tile::DetectorKind;
use konkordia_kernels::codec::{self, Framing};
use konkordia_kernels::{ElementSize, Isa};
use konkordia_wire::sls_udp::{HEADER_VERSION, detector_type};
use std::sync::Arc;

/// A sink of a run that hands its images to output queues. Costs nothing while there is no consumer.
pub struct RunAsSeries {
    output_queues: Arc<OutputQueues>,
    give_up: Box<dyn Fn() -> bool + Send>,
    compression: Compression,
    packing: Option<Packing>,
    shape: Shape,
    element: Element,
    image_bytes: usize,
    packets_per_tile: u32,
    detector_type: u8,
    has_times: bool,
    isa: Isa,
    name: Arc<str>,
}

/// The name that streams have for this compression; `None` = they have none, and images are unpacked for them.
pub const fn packing_of(compression: Compression) -> Option<Packing> {
    match compression {
        Compression::None => Some(Packing::None),
        Compression::Bslz4 => Some(Packing::BitshuffleLz4),
        Compression::Bszstd { .. } => Some(Packing::BitshuffleZstd),
        Compression::Lz4 => Some(Packing::Lz4),
        Compression::Zstd { .. } | Compression::Gzip { .. } | Compression::Sz3 { .. } => None,
    }
}

impl RunAsSeries {
    /// Begins a series of this run. `start` describes it; size, type and number of the images come from the plan. The
    /// writer waits for a full reliable consumer until `give_up` returns true. The caller ends the series, see
    /// [`end_of_run`].
    ///
    /// # Panics
    /// If the plan has no pixels, which no plan has.
    pub fn new(
        plan: &Plan,
        isa: Isa,
        start: SeriesStart,
        output_queues: Arc<OutputQueues>,
        give_up: impl Fn() -> bool + Send + 'static,
    ) -> Self {
        let size = [u64::from(plan.geometry.rows()), u64::from(plan.geometry.columns())];
        let element = Element::from(plan.pixel);
        let start = SeriesStart { images_planned: plan.images(), image_size: Some(size), element: Some(element), ..start };
        output_queues.start(&Arc::new(start), &give_up);
        let format = plan.geometry.format();
        Self {
            output_queues,
            give_up: Box::new(give_up),
            compression: plan.compression,
            packing: packing_of(plan.compression),
            shape: Shape::new(&size).expect("a plan has pixels"),
            element,
            image_bytes: plan.image_bytes(),
            packets_per_tile: format.packets(),
            detector_type: detector_type(format.kind),
            has_times: format.kind == DetectorKind::Jungfrau,
            isa,
            name: "".into(),
        }
    }

    /// Joins the strips to one chunk.
    fn join(&self, strips: &[&[u8]]) -> Result<Array, SinkError> {
        let mut parts: [&[u8]; STRIPS_MAX + 2] = [&[]; _];
        let mut framing = Framing::new(self.compression, self.image_bytes);
        let count = framing.join(strips, &mut parts);
        let chunk = parts[..count].concat();
        let (packing, bytes) = match self.packing {
            Some(packing) => (packing, chunk),
            None => (Packing::None, self.unpacked(&chunk)?),
        };
        Ok(Array { shape: self.shape, element: self.element, packing, pieces: vec![Bytes::from(bytes)] })
    }

    fn unpacked(&self, chunk: &[u8]) -> Result<Vec<u8>, SinkError> {
        let mut out = vec![0; self.image_bytes];
        let size = ElementSize::new(self.element.bits() as usize / 8).unwrap_or(ElementSize::One);
        codec::decompress(self.compression, self.isa, chunk, size, &mut out).map(|()| out).map_err(|error| SinkError {
            what: "an image that was just packed cannot be unpacked for a stream".into(),
            why: error.to_string(),
            fix: "this is a bug, please report it; another [output] compression avoids it".into(),
        })
    }
}

impl Sink for RunAsSeries {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        if self.output_queues.is_unused() {
            return Ok(());
        }
        let mut of_series = SeriesImage { status: image.head.status, ..SeriesImage::lost(image.image) };
        if image.head.status != ImageStatus::Complete {
            let tiles = image.tiles.iter().take(64).enumerate();
            let missing = tiles.filter(|(_, tile)| u32::from(tile.packets) < self.packets_per_tile);
            of_series.missing_parts = missing.fold(0, |bits, (n, _)| bits | 1 << n);
        }
        if image.head.status.has_pixels() {
            of_series.channels = vec![Channel { name: Arc::clone(&self.name), array: self.join(image.strips)? }];
            let header = image.tiles.iter().find(|tile| tile.packets > 0).map(|tile| tile.header);
            of_series.packets = header.map(|header| PacketFrame {
                header,
                caught: image.tiles.iter().map(|tile| u32::from(tile.packets)).sum(),
                detector_type: self.detector_type,
                header_version: HEADER_VERSION,
            });
            of_series.times = header.filter(|_| self.has_times).map(|header| {
                let (start_ns, real_ns) = (header.timestamp_100ns.saturating_mul(100), u64::from(header.exposure_length) * 100);
                ImageTimes { start_ns, stop_ns: start_ns.saturating_add(real_ns), real_ns }
            });
        }
        self.output_queues.image(&Arc::new(of_series), &*self.give_up);
        self.output_queues.flush();
        Ok(())
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The end of a run as the end of a series. The ledger of the run counts packets; this one counts images.
pub fn end_of_run(outcome: &RunOutcome) -> SeriesEnd {
    let images = &outcome.ledger.images;
    let (ended, reason) = match &outcome.ended {
        Ended::Finished => (SeriesEnded::Finished, String::new()),
        Ended::Stopped => (SeriesEnded::Stopped, String::new()),
        Ended::Stalled => (SeriesEnded::Stalled, String::new()),
        Ended::NoData => (SeriesEnded::NoData, String::new()),
        Ended::SourceError(stream, error) => (SeriesEnded::Failed, format!("stream {stream}: {error}")),
        Ended::SinkError(error) => (SeriesEnded::Failed, error.to_string()),
        Ended::NoThread(error) => (SeriesEnded::Failed, format!("the system could not start a thread for the run: {error}")),
        Ended::Panicked(panic) => (SeriesEnded::Failed, panic.to_string()),
    };
    let ledger = SeriesLedger {
        expected: images.expected,
        complete: images.complete,
        partial: images.partial,
        lost: images.lost,
        discarded: images.discarded,
        not_taken: images.not_taken,
        not_received: images.not_received,
        ..SeriesLedger::default()
    };
    SeriesEnd { ended, reason, ledger }
}

#[cfg(test)]
#[path = "run_as_series_tests.rs"]
mod tests;
