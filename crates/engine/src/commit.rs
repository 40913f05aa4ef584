//! The committer: visits every frame in order, adds up the packets of each image, gives the image its state, and
//! publishes it for the thread that joins its strips (`strips.rs`).

use crate::control::Control;
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::image::{ImageHead, TileRecord};
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
    let mut image =
        OpenImage { first_frame: 0, frames: ImageFrames::default(), records: vec![TileRecord::default(); plan.streams()] };
    let expected = plan.packets_per_image() as u32;
    let flags_field = PacketFormat::of(plan.geometry.format().kind).description().flags;
    while !control.has_failed() && committer.next() < control.end.load(Ordering::Acquire) {
        if !committer.wait(Duration::from_millis(20)) {
            continue;
        }
        let records = || (0..plan.streams()).map(|tile| committer.record(tile));
        let FrameSeen { placed, flags } = FrameSeen::of(records().flatten(), flags_field);
        ledger.frames.enter(placed, expected);
        match selector.next(flags) {
            FrameUse::Skip => ledger.frames.skipped += 1,
            FrameUse::Dark => ledger.frames.dark += 1,
            FrameUse::Keep { first, last, .. } => {
                image.add(committer.next(), first, records());
                image.frames.add(first, ImageStatus::of(placed, expected, MissingPolicy::Keep));
                if last {
                    let head = image.head(plan);
                    control.count_image(head.status);
                    let received_ns = TileRecord::first_received_ns(&image.records);
                    committer.publish(head, &image.records);
                    if let Some(received_ns) = received_ns {
                        control.committed_latency.count(control.now_ns().saturating_sub(received_ns));
                    }
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

/// The image whose frames are being committed.
struct OpenImage {
    first_frame: u64,
    frames: ImageFrames,
    records: Vec<TileRecord>,
}

impl OpenImage {
    fn add<'a>(&mut self, frame: u64, first: bool, records: impl Iterator<Item = Option<&'a TileRecord>>) {
        if first {
            self.first_frame = frame;
        }
        for (sum, record) in self.records.iter_mut().zip(records) {
            let record = record.copied().unwrap_or_default();
            if first {
                *sum = record;
                continue;
            }
            // Only a tile without a packet has an all-zero header.
            if sum.header == FrameHeader::default() {
                sum.header = record.header;
            }
            sum.bitmap.0.iter_mut().zip(record.bitmap.0).for_each(|(a, b)| *a &= b);
            sum.packets = sum.bitmap.count() as u16;
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
