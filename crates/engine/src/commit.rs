//! The committer: visits every frame in order, adds up the packets of each image, gives the image its state, and
//! publishes it for the thread that joins its strips (`strips.rs`).

use crate::control::Control;
use crate::latency::RunLatencies;
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::image::{ImageHead, TileRecord};
use konkordia_core::latency::Stage;
use konkordia_core::ledger::{ImageStatus, MissingPolicy, RunLedger};
use konkordia_core::plan::Plan;
use konkordia_core::selection::{FrameSeen, FrameUse, ImageFrames, Selector};
use konkordia_memory::ring::Committer;
use konkordia_wire::formats::PacketFormat;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Commits frames until the end of the run and counts frames and images in `ledger`.
pub(crate) fn run(control: &Control, plan: &Plan, mut committer: Committer, ledger: &mut RunLedger) {
    let mut selector = Selector::new(plan.processing.selection);
    let records = vec![TileRecord::default(); plan.streams()];
    let mut image = OpenImage { first_frame: 0, frames: ImageFrames::default(), records, sealed_ns: 0 };
    let expected = plan.packets_per_image() as u32;
    let flags_field = PacketFormat::of(plan.geometry.format()).description().flags;
    while !control.has_failed() && committer.next() < control.end.load(Ordering::Acquire) {
        if !committer.wait(Duration::from_millis(20)) {
            continue;
        }
        let records = || (0..plan.streams()).map(|tile| committer.record(tile));
        let FrameSeen { placed, flags } = FrameSeen::of(records().flatten(), flags_field);
        ledger.frames.enter(placed, expected);
        if placed < expected {
            count_missing(control, plan, records());
        }
        match selector.next(flags) {
            FrameUse::Skip => ledger.frames.skipped += 1,
            FrameUse::Dark => ledger.frames.dark += 1,
            FrameUse::Keep { image: number, first, last } => {
                image.add(committer.next(), first, records());
                if let Some(latencies) = control.latencies().filter(|_| placed > 0) {
                    image.sealed_ns = image.sealed_ns.max(latencies.sealed_ns(committer.next()));
                }
                image.frames.add(first, ImageStatus::of(placed, expected, MissingPolicy::Keep));
                if last {
                    let head = image.head(plan);
                    control.count_image(head.status);
                    if let Some(latencies) = control.latencies().filter(|_| head.status.has_pixels()) {
                        // Before it is published: what comes later must not be counted with an earlier time.
                        image.count(latencies, number, control.now_ns());
                    }
                    committer.publish(head, &image.records);
                    ledger.images.enter(head.status, true);
                    ledger.frames.kept += u64::from(head.frames);
                }
            }
        }
        committer.pass();
    }
    ledger.frames.unfinished = u64::from(selector.open_frames());
    control.images_end.store(ledger.images.expected, Ordering::Release);
}

/// Counts what a frame misses, by stream.
fn count_missing<'a>(control: &Control, plan: &Plan, records: impl Iterator<Item = Option<&'a TileRecord>>) {
    let of_tile = u64::from(plan.geometry.format().packets());
    for (stream, record) in records.enumerate() {
        let placed = record.map_or(0, |record| u64::from(record.packets));
        if placed < of_tile {
            control.count_missing(stream, of_tile - placed);
        }
    }
}

/// The image whose frames are being committed.
struct OpenImage {
    first_frame: u64,
    frames: ImageFrames,
    records: Vec<TileRecord>,
    /// When the last tile of its frames was sealed.
    sealed_ns: u64,
}

impl OpenImage {
    fn add<'a>(&mut self, frame: u64, first: bool, records: impl Iterator<Item = Option<&'a TileRecord>>) {
        if first {
            (self.first_frame, self.sealed_ns) = (frame, 0);
        }
        for (sum, record) in self.records.iter_mut().zip(records) {
            let record = record.copied().unwrap_or_default();
            if first {
                *sum = record;
                continue;
            }
            // Only a tile without a packet has an all-zero header.
            if sum.header == FrameHeader::default() {
                (sum.header, sum.received_ns) = (record.header, record.received_ns);
            }
            sum.bitmap.0.iter_mut().zip(record.bitmap.0).for_each(|(a, b)| *a &= b);
            sum.packets = sum.bitmap.count() as u16;
        }
    }

    /// Counts how long it took to be assembled, converted and committed.
    fn count(&self, latencies: &RunLatencies, number: u64, now_ns: u64) {
        let received_ns = TileRecord::first_received_ns(&self.records).unwrap_or(0);
        let times = [self.sealed_ns, latencies.converted_ns(number), now_ns];
        for (stage, at_ns) in [Stage::Assembled, Stage::Converted, Stage::Committed].into_iter().zip(times) {
            latencies.latencies.count(stage, received_ns, at_ns);
        }
    }

    fn head(&self, plan: &Plan) -> ImageHead {
        ImageHead {
            status: self.frames.status(plan.missing),
            first_frame: self.first_frame,
            frames: self.frames.frames,
            frames_complete: self.frames.complete,
        }
    }
}
