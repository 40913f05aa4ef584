//! A series: its start and its end with the ledger, in one form for all protocols and all sinks. Texts come from the
//! sender and are not trusted: a file name must be checked before it is used as a path.

use crate::analysis_counts::AnalysisCounts;
use crate::array::{Array, Element};
use crate::experiment::Metadata;
use crate::geometry::Orientation;
use crate::image::CommittedImage;
use crate::latency::Meter;
use crate::ledger::{ImageLedger, ImageStatus, Imbalance};
use crate::results::ResultKind;
use crate::user_mask::UserMask;
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock};

/// What decides where an image stands in its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// The number that its sender gave it, from 0.
    Frames,
    /// Its message: the number of the message, counted from the one after the header, or, where messages have no
    /// numbers and there is one upstream, the order of arrival. The number that the sender gave the image is only a
    /// label, which may begin anywhere, go in steps, or repeat itself.
    Messages,
}

/// When a series may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Whenever the sender begins one.
    Always,
    /// Only after an arm, one each time.
    WhenArmed,
}

/// What is known of a channel before the first image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelStart {
    /// Its name.
    pub name: String,
    /// Threshold in eV.
    pub threshold_energy_ev: Option<f64>,
    /// Why a pixel is not usable, uint32, rows x columns; 0 = the pixel is good.
    pub pixel_mask: Option<Array>,
    /// Factor of each pixel, float32, rows x columns.
    pub flat_field: Option<Array>,
}

/// The beginning of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesStart {
    /// Number of the series as the sender counts it; if the protocol has none, the receiver counts.
    pub series: u64,
    /// Unique name of the series; empty if it has none.
    pub unique_id: String,
    /// Path that the sender wants for the file; `None` = it does not want a file. Not trusted.
    pub filename: Option<String>,
    /// Images that the sender announces.
    pub images_planned: Option<u64>,
    /// Rows and columns, if announced.
    pub image_size: Option<[u64; 2]>,
    /// Type of the pixels, if announced.
    pub element: Option<Element>,
    /// Channels in the order in which they come; empty where the protocol knows of none.
    pub channels: Vec<ChannelStart>,
    /// Facts about the measurement.
    pub facts: Metadata,
    /// How the images were turned on the way; as the sender sent them they count as upright.
    pub orientation: Orientation,
    /// Everything that the sender said, without the tables above, in any structure; written to the file as a tree.
    pub metadata: Map<String, Value>,
    /// The other keys of the first part of a STINS header, which are passed on downstream.
    pub header_extra: Map<String, Value>,
    /// What was changed or left out on the way, and why: (name, text).
    pub notes: Vec<(String, String)>,
    /// Keys, named as in STINS, that are sent with every image of the series; a value that the image has itself takes
    /// precedence.
    pub image_extra: Map<String, Value>,
    /// How the sender asks for its images to be turned. They have not been turned yet.
    pub turn: Orientation,
    /// Parts of the start that cannot be used, as texts for the user; the series goes on without them.
    pub warnings: Vec<String>,
    /// False if the sender asks that raw data be not stored (`save_raw` of MAX IV).
    pub store: bool,
    /// What is computed of each image, in the order in which its results are.
    pub results: Vec<ResultKind>,
    /// Counts what becomes of its images at their analysis.
    pub analysis: AnalysisCounts,
    /// When the oldest pedestals of the pixels were taken, seconds since 1970; `None` if there are none or that is not
    /// known.
    pub pedestals_taken_s: Option<u64>,
    /// What people have masked in its images; the sender knows nothing of it.
    pub user_mask: Option<Arc<UserMask>>,
    /// Who brings an image of the series to a stage counts it here.
    pub meter: Meter,
    /// Of a run of packets: what its file says, for those who write it on another host.
    pub run_file: Option<Arc<RunFileText>>,
}

/// What the file of a run says beside its images, in the form in which the file stores it.
#[derive(Debug, Default, PartialEq)]
pub struct RunFileText {
    /// The description of the run, complete at arm.
    pub description: String,
    /// NXmx mask bits, rows x columns row by row.
    pub pixel_mask: Vec<u32>,
    /// Tiles of an image.
    pub tiles: usize,
    /// Bytes of the packed pixels of an image, at most.
    pub packed_bytes_max: u64,
    /// The ledger of the run, as JSON; set before the end of the run is handed over.
    pub ledger: OnceLock<String>,
}

/// How a run or a series ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The end message came, or every announced image; of packets, every planned image, or all of the files.
    Finished,
    /// A stop was requested.
    Stopped,
    /// A cancel was requested.
    Cancelled,
    /// Messages or packets stopped coming.
    Stalled,
    /// No image came at all.
    NoData,
    /// A new series began before this one had ended.
    Superseded,
    /// A sink or a source failed.
    Failed,
}

impl Ended {
    /// Short name for reports and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
            Self::Stalled => "stalled",
            Self::NoData => "no data",
            Self::Superseded => "superseded by a new series",
            Self::Failed => "failed",
        }
    }
}

/// The end of a series, with its closed ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesEnd {
    /// Why.
    pub ended: Ended,
    /// Details for the user; may be empty.
    pub reason: String,
    /// The ledger.
    pub ledger: SeriesLedger,
}

/// Messages of one upstream during a series, one counter per verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamLedger {
    /// Messages received, all kinds.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Images, or parts of images, that were taken.
    pub placed: u64,
    /// Starts and ends that were taken.
    pub control: u64,
    /// Messages that had come before.
    pub duplicate: u64,
    /// Images that came after they were committed, or after the end.
    pub late: u64,
    /// Messages of another series, images with a number far ahead or beyond the end, messages while nothing was armed.
    pub foreign: u64,
    /// Messages that cannot be read, or that contradict the series (shape, type).
    pub malformed: u64,
}

impl UpstreamLedger {
    /// Sum of all verdicts.
    pub fn verdicts(&self) -> u64 {
        self.placed + self.control + self.duplicate + self.late + self.foreign + self.malformed
    }

    /// Names and values, in the order in which they are printed and stored.
    pub fn rows(&self) -> [(&'static str, u64); 8] {
        [
            ("received", self.received),
            ("placed", self.placed),
            ("control", self.control),
            ("duplicate", self.duplicate),
            ("late", self.late),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
            ("received_bytes", self.received_bytes),
        ]
    }
}

/// The ledger of a series. It must balance when the series closes; an imbalance is reported as a bug.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesLedger {
    /// One per upstream.
    pub upstreams: Vec<UpstreamLedger>,
    /// Images by state. `not_kept` counts duplicates, late images, images of no series that is being received, images
    /// with a number beyond the end, and unreadable messages without a position. Images beyond the number that was
    /// requested do not count.
    pub images: ImageLedger,
    /// Parts that make one image: 1, or the number of upstreams whose parts are combined.
    pub parts_per_image: u64,
    /// Parts that are missing in all expected images.
    pub parts_missing: u64,
    /// Images of the sender that are added to make one image. Above 1, the states above are those of the sums, and
    /// frames are counted too.
    pub frames_per_image: u64,
    /// Images of the sender in all states; counted only if sums are made.
    pub frames: u64,
    /// Images at the end that are too few for a sum. That sum is not written.
    pub frames_unfinished: u64,
}

impl SeriesLedger {
    /// Enters one image in its final state, if no sums are made.
    pub fn enter(&mut self, image: &CommittedImage) {
        self.images.enter(image.status, image.store);
        self.enter_parts(image);
    }

    /// Enters one image of the sender that becomes part of a sum. The sum itself is entered in `images`.
    pub fn enter_frame(&mut self, frame: &CommittedImage) {
        self.frames += 1;
        self.enter_parts(frame);
    }

    fn enter_parts(&mut self, image: &CommittedImage) {
        self.parts_missing += match image.status {
            ImageStatus::Complete | ImageStatus::Vetoed => 0,
            ImageStatus::Lost => self.parts_per_image,
            ImageStatus::Partial | ImageStatus::Discarded => u64::from(image.missing_parts.count_ones()),
        };
    }

    /// Enters the end, as [`ImageLedger::close`]; `planned` counts images of the sender.
    pub fn close(&mut self, planned: Option<u64>, wanted: bool) {
        self.images.close(planned.unwrap_or(0) / self.frames_per_image.max(1), wanted);
    }

    /// True if several images of the sender are added to make one.
    pub fn has_sums(&self) -> bool {
        self.frames_per_image > 1
    }

    /// Images of the sender that have been entered.
    pub fn positions(&self) -> u64 {
        if self.has_sums() { self.frames } else { self.images.expected }
    }

    /// Sum over the upstreams.
    pub fn total(&self) -> UpstreamLedger {
        self.upstreams.iter().fold(UpstreamLedger::default(), |a, b| UpstreamLedger {
            received: a.received + b.received,
            received_bytes: a.received_bytes + b.received_bytes,
            placed: a.placed + b.placed,
            control: a.control + b.control,
            duplicate: a.duplicate + b.duplicate,
            late: a.late + b.late,
            foreign: a.foreign + b.foreign,
            malformed: a.malformed + b.malformed,
        })
    }

    /// Names and values of the images, in the order in which they are printed and stored; frames only if sums are made.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let images = &self.images;
        let mut rows = vec![("expected", images.expected)];
        rows.extend(images.states());
        rows.extend([
            ("not_stored", images.not_stored),
            ("not_taken", images.not_taken),
            ("not_received", images.not_received),
            ("not_kept", images.not_kept),
            ("parts_missing", self.parts_missing),
        ]);
        if self.has_sums() {
            rows.extend([
                ("frames", self.frames),
                ("frames_kept", self.frames_kept()),
                ("frames_unfinished", self.frames_unfinished),
            ]);
        }
        rows
    }

    /// Frames that are in sums.
    fn frames_kept(&self) -> u64 {
        self.images.expected * self.frames_per_image
    }

    /// Checks that every message has one verdict, every position one state, and that placed and missing parts add up;
    /// empty when the ledger balances.
    pub fn imbalances(&self) -> Vec<Imbalance> {
        let of_upstream = |(n, upstream): (usize, &UpstreamLedger)| {
            let what = format!("upstream {n}: messages received = sum of verdicts");
            Imbalance::of(&what, upstream.received, upstream.verdicts())
        };
        let mut found: Vec<_> = self.upstreams.iter().enumerate().filter_map(of_upstream).collect();
        found.extend(self.images.imbalance());
        if self.has_sums() {
            let frames = self.frames_kept() + self.frames_unfinished;
            found.extend(Imbalance::of("frames = frames in images + unfinished", self.frames, frames));
        }
        let parts = self.positions() * self.parts_per_image;
        let found_parts = self.total().placed + self.parts_missing;
        found.extend(Imbalance::of("parts expected = placed + missing", parts, found_parts));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balanced() -> SeriesLedger {
        let upstream = |placed| UpstreamLedger { received: placed + 2, placed, control: 2, ..Default::default() };
        let mut ledger =
            SeriesLedger { upstreams: vec![upstream(2), upstream(1)], parts_per_image: 2, ..SeriesLedger::default() };
        let image = |number, status, missing_parts| CommittedImage { status, missing_parts, ..CommittedImage::lost(number) };
        ledger.enter(&image(0, ImageStatus::Complete, 0));
        ledger.enter(&image(1, ImageStatus::Partial, 0b10));
        ledger.enter(&CommittedImage::lost(2));
        ledger
    }

    #[test]
    fn a_balanced_ledger_has_no_imbalance_and_each_broken_sum_is_named() {
        assert_eq!(balanced().imbalances(), []);
        assert_eq!(balanced().parts_missing, 3);
        let broken = |change: fn(&mut SeriesLedger)| {
            let mut ledger = balanced();
            change(&mut ledger);
            ledger.imbalances().len()
        };
        assert_eq!(broken(|l| l.upstreams[1].received += 1), 1);
        assert_eq!(broken(|l| l.images.lost += 1), 1);
        assert_eq!(broken(|l| l.parts_missing += 1), 1);
        assert_eq!(broken(|l| l.upstreams[0].placed += 1), 2);
    }

    #[test]
    fn frames_of_sums_are_counted_beside_images() {
        let mut ledger = SeriesLedger { frames_per_image: 3, parts_per_image: 1, ..SeriesLedger::default() };
        let complete = CommittedImage { status: ImageStatus::Complete, ..CommittedImage::lost(0) };
        (0..3).for_each(|_| ledger.enter_frame(&complete));
        ledger.images.enter(complete.status, complete.store);
        ledger.upstreams.push(UpstreamLedger { received: 3, placed: 3, ..UpstreamLedger::default() });
        assert_eq!(ledger.imbalances(), []);
        ledger.close(Some(11), false);
        assert_eq!((ledger.images.expected, ledger.images.lost, ledger.images.not_received, ledger.parts_missing), (1, 0, 2, 0));
        assert_eq!(ledger.rows()[11..], [("frames", 3), ("frames_kept", 3), ("frames_unfinished", 0)]);
        assert_eq!((ledger.positions(), ledger.imbalances()), (3, vec![]));
        ledger.frames_unfinished = 1;
        assert_eq!(ledger.imbalances().len(), 1);
    }

    #[test]
    fn what_was_announced_and_did_not_come_is_no_position() {
        for (planned, wanted, not_taken, not_received) in
            [(Some(100_000), true, 99_997, 0), (Some(100_000), false, 0, 99_997), (Some(3), false, 0, 0), (None, false, 0, 0)]
        {
            let mut ledger = balanced();
            ledger.close(planned, wanted);
            assert_eq!((ledger.images.expected, ledger.images.lost), (3, 1));
            assert_eq!(
                (ledger.images.not_taken, ledger.images.not_received, ledger.imbalances()),
                (not_taken, not_received, vec![])
            );
        }
        let complete = ImageLedger { expected: 3, complete: 3, not_taken: 7, ..ImageLedger::default() };
        assert!(complete.is_success() && !ImageLedger { not_received: 1, ..complete }.is_success());
        let copies = ImageLedger { not_kept: 1, ..complete };
        assert!(copies.is_complete() && !copies.is_success());
    }
}
