//! The ledger: the account of every packet and every image of a run. It must balance when the run closes; an imbalance
//! is reported as a bug.
//!
//! Packets: received = placed + duplicate + late + no slot + foreign + malformed, per stream. Packets that the kernel
//! dropped before the receiver saw them are counted separately and are not part of the sum. Images: expected =
//! complete + partial + lost + discarded + vetoed. Frames (what the detector sends; without a selection the same as
//! images): passed = kept + dark + skipped + unfinished. Across all: expected packets = placed + missing, where
//! missing is summed from the frames. Planned images that never came are counted separately, as not taken or not
//! received.

/// Why a datagram is not a packet of this detector. Each reason has its own counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The length is not that of a header and one payload.
    Length,
    /// The header has another version.
    Version,
    /// Another detector type.
    DetectorType,
    /// Packet number beyond the tile.
    PacketNumber,
    /// Written with another key, or to another queue pair or address than those that were given to the sender (RDMA).
    Access,
    /// Its invariant CRC is wrong (RoCEv2): it was damaged on its way.
    Icrc,
}

impl Malformed {
    /// All reasons, in counter order.
    pub const ALL: [Self; 6] = [Self::Length, Self::Version, Self::DetectorType, Self::PacketNumber, Self::Access, Self::Icrc];

    /// Short name for tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length => "malformed_length",
            Self::Version => "malformed_version",
            Self::DetectorType => "malformed_detector_type",
            Self::PacketNumber => "malformed_packet_number",
            Self::Access => "malformed_access",
            Self::Icrc => "malformed_icrc",
        }
    }
}

/// Packets of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLedger {
    /// Datagrams that the kernel handed over.
    pub received: u64,
    /// Their bytes: detector header and payload, without UDP and IP headers, unless those have to be read, too
    /// (`RemotePages::has_outer_headers`).
    pub received_bytes: u64,
    /// First copies; their payload is in a tile.
    pub placed: u64,
    /// Further copies.
    pub duplicate: u64,
    /// Came after their tile was sealed.
    pub late: u64,
    /// No free slot in the ring.
    pub no_slot: u64,
    /// Of a frame outside the run, or from another sender.
    pub foreign: u64,
    /// Not a packet of this detector, by [`Malformed::ALL`].
    pub malformed: [u64; 6],
    /// Drops that the kernel counted because the socket's buffer was full. Datagrams that the kernel had joined (GRO)
    /// count as one drop, so this number shows the cause of a loss; its exact extent is in the arrival bitmaps.
    pub kernel_dropped: u64,
}

impl StreamLedger {
    /// Sum of the malformed counters.
    pub fn malformed_total(&self) -> u64 {
        self.malformed.iter().sum()
    }

    /// Sum of all verdicts.
    pub fn verdicts(&self) -> u64 {
        self.placed + self.duplicate + self.late + self.no_slot + self.foreign + self.malformed_total()
    }

    /// Counts one malformed datagram.
    pub fn count_malformed(&mut self, why: Malformed) {
        self.malformed[why as usize] += 1;
    }

    /// Number of [`StreamLedger::rows`].
    pub const ROWS: usize = 14;

    /// Names and values, in the order in which they are printed and stored.
    pub fn rows(&self) -> [(&'static str, u64); Self::ROWS] {
        let m = |i: usize| (Malformed::ALL[i].name(), self.malformed[i]);
        [
            ("received", self.received),
            ("placed", self.placed),
            ("duplicate", self.duplicate),
            ("late", self.late),
            ("no_slot", self.no_slot),
            ("foreign", self.foreign),
            m(0),
            m(1),
            m(2),
            m(3),
            m(4),
            m(5),
            ("kernel_dropped", self.kernel_dropped),
            ("received_bytes", self.received_bytes),
        ]
    }

    /// The ledger whose [`StreamLedger::rows`] have these values.
    pub fn from_rows(rows: [u64; Self::ROWS]) -> Self {
        let [received, placed, duplicate, late, no_slot, foreign, m0, m1, m2, m3, m4, m5, kernel_dropped, received_bytes] = rows;
        let malformed = [m0, m1, m2, m3, m4, m5];
        Self { received, received_bytes, placed, duplicate, late, no_slot, foreign, malformed, kernel_dropped }
    }
}

impl std::ops::AddAssign for StreamLedger {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.placed += other.placed;
        self.duplicate += other.duplicate;
        self.late += other.late;
        self.no_slot += other.no_slot;
        self.foreign += other.foreign;
        self.malformed.iter_mut().zip(other.malformed).for_each(|(a, b)| *a += b);
        self.kernel_dropped += other.kernel_dropped;
    }
}

/// State of one image. The numbers are those in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ImageStatus {
    /// No packet of it was placed; all pixels are *missing*.
    Lost = 0,
    /// Every packet was placed.
    Complete = 1,
    /// Some packets are missing; their pixels are *missing*.
    Partial = 2,
    /// Not written because the policy for missing packets says so; all pixels are *missing*.
    Discarded = 3,
    /// Every packet was placed, and the image was dropped because a rule over its results says so; all pixels are
    /// *missing*.
    Vetoed = 4,
}

/// What to do with an image of which packets are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingPolicy {
    /// Write it, with the missing value where packets are missing.
    #[default]
    Keep,
    /// Do not write an image that misses packets; its place in the file stays empty and the arrival bitmap is kept.
    Discard,
    /// As `Discard`, and forget the arrival bitmaps of such images too: the file holds nothing but complete images.
    CompleteOnly,
}

impl ImageStatus {
    /// The state of an image with `placed` of `expected` packets under `policy`.
    pub fn of(placed: u32, expected: u32, policy: MissingPolicy) -> Self {
        assert!(placed <= expected, "an image cannot hold more packets than it has");
        match placed {
            0 => Self::Lost,
            n if n == expected => Self::Complete,
            _ if policy == MissingPolicy::Keep => Self::Partial,
            _ => Self::Discarded,
        }
    }

    /// True if the file holds pixels of the image; all other images read as *missing* everywhere.
    pub const fn has_pixels(self) -> bool {
        matches!(self, Self::Complete | Self::Partial)
    }

    /// How many states there are.
    pub const COUNT: usize = 5;

    /// Names by number, as stored in the files.
    pub const NAMES: [&'static str; Self::COUNT] = ["lost", "complete", "partial", "discarded", "vetoed"];

    /// From the number in a file.
    pub fn from_u8(value: u8) -> Option<Self> {
        [Self::Lost, Self::Complete, Self::Partial, Self::Discarded, Self::Vetoed]
            .into_iter()
            .find(|status| *status as u8 == value)
    }

    /// Short name for tables and files.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The states of the images of a run or a series: the part that both accounts have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageLedger {
    /// Positions: images that came, gaps between them, and images after the last one that are known to have been sent.
    /// Planned images beyond these have no position; they are counted in `not_taken` or `not_received`.
    pub expected: u64,
    /// With everything.
    pub complete: u64,
    /// With something missing, written.
    pub partial: u64,
    /// Nothing of them came.
    pub lost: u64,
    /// With something missing, not written because the policy for partial images says so.
    pub discarded: u64,
    /// With everything, dropped because a rule over their results says so ([`ImageStatus::Vetoed`]).
    pub vetoed: u64,
    /// Complete or partial images that the sender wanted passed on, but not stored.
    pub not_stored: u64,
    /// Planned images that nobody waited for any more: a stop, or the sender ended the series.
    pub not_taken: u64,
    /// Planned images that did not come although they were waited for: silence, the next series, or an error.
    pub not_received: u64,
    /// Messages with images that came and are not kept, see [`crate::series::SeriesLedger`]; 0 in runs over UDP.
    pub not_kept: u64,
}

impl ImageLedger {
    /// Enters one image in its final state; `store` as in [`crate::image::CommittedImage`].
    pub fn enter(&mut self, status: ImageStatus, store: bool) {
        self.expected += 1;
        match status {
            ImageStatus::Lost => self.lost += 1,
            ImageStatus::Partial => self.partial += 1,
            ImageStatus::Complete => self.complete += 1,
            ImageStatus::Discarded => self.discarded += 1,
            ImageStatus::Vetoed => self.vetoed += 1,
        }
        self.not_stored += u64::from(status.has_pixels() && !store);
    }

    /// So many images that were entered as complete were dropped by the veto.
    pub fn veto(&mut self, images: u64) {
        let images = images.min(self.complete);
        (self.complete, self.vetoed) = (self.complete - images, self.vetoed + images);
    }

    /// Enters the end: of the `planned` images, those without a position count as not taken if the end was `wanted`,
    /// and as not received otherwise.
    pub fn close(&mut self, planned: u64, wanted: bool) {
        let rest = planned.saturating_sub(self.expected);
        (self.not_taken, self.not_received) = if wanted { (rest, 0) } else { (0, rest) };
    }

    /// Names and values of the states, in the order in which they are printed, stored and added to totals.
    pub fn states(&self) -> [(&'static str, u64); ImageStatus::COUNT] {
        [
            ("complete", self.complete),
            ("partial", self.partial),
            ("lost", self.lost),
            ("discarded", self.discarded),
            ("vetoed", self.vetoed),
        ]
    }

    /// Images in all states.
    pub fn committed(&self) -> u64 {
        self.complete + self.partial + self.lost + self.discarded + self.vetoed
    }

    /// Images that have pixels.
    pub fn with_pixels(&self) -> u64 {
        self.complete + self.partial
    }

    /// Images that came and must be in the file.
    pub fn to_be_written(&self) -> u64 {
        self.with_pixels().saturating_sub(self.not_stored)
    }

    /// The equation of the states, if it does not hold.
    pub fn imbalance(&self) -> Option<Imbalance> {
        Imbalance::of("images expected = complete + partial + lost + discarded + vetoed", self.expected, self.committed())
    }

    /// True when every expected image came with everything and none was waited for in vain.
    pub fn is_complete(&self) -> bool {
        self.complete + self.vetoed == self.expected && self.not_received == 0
    }

    /// True when everything that came is kept and nothing is missing.
    pub fn is_success(&self) -> bool {
        self.is_complete() && self.not_kept == 0
    }
}

/// Frames of a run, and their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameLedger {
    /// Frames that passed through the ring, lost ones too.
    pub passed: u64,
    /// Of these: in images.
    pub kept: u64,
    /// Of these: dark, or warm-up that counts as dark.
    pub dark: u64,
    /// Of these: not selected.
    pub skipped: u64,
    /// Of these: the beginning of a sum that the run did not finish.
    pub unfinished: u64,
    /// Planned frames that never came.
    pub absent: u64,
    /// Packets placed in all frames, counted from their bitmaps.
    pub packets_placed: u64,
    /// Packets missing in all frames that passed.
    pub packets_missing: u64,
}

impl FrameLedger {
    /// Enters the packets of one frame.
    pub fn enter(&mut self, packets_placed: u32, packets_expected: u32) {
        self.passed += 1;
        self.packets_placed += u64::from(packets_placed);
        self.packets_missing += u64::from(packets_expected - packets_placed);
    }
}

/// The account of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunLedger {
    /// One per stream, in stream order.
    pub streams: Vec<StreamLedger>,
    /// All images.
    pub images: ImageLedger,
    /// All frames.
    pub frames: FrameLedger,
    /// Images that every sink took.
    pub written: u64,
    /// Complete and partial images that a sink could not take because it had failed.
    pub unwritten: u64,
    /// Packets of one complete frame.
    pub packets_per_image: u64,
}

/// One equation that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} does not hold ({left} against {right})")]
pub struct Imbalance {
    /// The equation, in words.
    pub what: String,
    /// Its left side.
    pub left: u64,
    /// Its right side.
    pub right: u64,
}

impl Imbalance {
    /// The equation `what`, unless it holds.
    pub fn of(what: &str, left: u64, right: u64) -> Option<Self> {
        (left != right).then(|| Self { what: what.into(), left, right })
    }
}

impl RunLedger {
    /// Sum over the streams.
    pub fn total(&self) -> StreamLedger {
        self.streams.iter().fold(StreamLedger::default(), |mut sum, s| {
            sum += *s;
            sum
        })
    }

    /// Checks every equation at the top of this module; empty when the ledger balances.
    pub fn imbalances(&self) -> Vec<Imbalance> {
        let of_stream = |(i, s): (usize, &StreamLedger)| {
            Imbalance::of(&format!("stream {i}: packets received = sum of verdicts"), s.received, s.verdicts())
        };
        let (images, f) = (&self.images, &self.frames);
        let frames = f.kept + f.dark + f.skipped + f.unfinished;
        let (placed, expected) = (self.total().placed, f.passed * self.packets_per_image);
        let taken = self.written + self.unwritten;
        let mut found: Vec<_> = self.streams.iter().enumerate().filter_map(of_stream).collect();
        found.extend(images.imbalance());
        found.extend(Imbalance::of("frames = kept + dark + skipped + unfinished", f.passed, frames));
        found.extend(Imbalance::of("packets placed by the streams = packets found in the frames", placed, f.packets_placed));
        found.extend(Imbalance::of("packets expected = placed + missing", expected, f.packets_placed + f.packets_missing));
        found.extend(Imbalance::of("images written + unwritten = complete + partial", taken, images.with_pixels()));
        found
    }

    /// Names and values of images and frames, in the order in which they are printed and stored.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        let (images, frames) = (&self.images, &self.frames);
        let mut rows = vec![("expected", images.expected)];
        rows.extend(images.states());
        rows.extend([
            ("written", self.written),
            ("unwritten", self.unwritten),
            ("not_taken", images.not_taken),
            ("not_received", images.not_received),
            ("packets_placed", frames.packets_placed),
            ("packets_missing", frames.packets_missing),
            ("frames", frames.passed),
            ("frames_kept", frames.kept),
            ("frames_dark", frames.dark),
            ("frames_skipped", frames.skipped),
            ("frames_unfinished", frames.unfinished),
            ("frames_absent", frames.absent),
        ]);
        rows
    }

    /// True when every expected image is complete and written or vetoed, and none was waited for in vain.
    pub fn is_complete(&self) -> bool {
        self.images.is_success() && self.written + self.images.vetoed == self.images.expected
    }

    /// Packets of this detector that came and were not kept although their image had a slot: duplicates, and packets
    /// that came after their tile was sealed.
    pub fn packets_not_kept(&self) -> u64 {
        let total = self.total();
        total.duplicate + total.late
    }

    /// True if a stream has at least as many of these as its tile has packets: a whole image may then have been thrown
    /// away. Fewer are duplicates that a network makes.
    pub fn may_lack_an_image(&self) -> bool {
        let of_stream = (self.packets_per_image / self.streams.len().max(1) as u64).max(1);
        self.streams.iter().any(|stream| stream.duplicate + stream.late >= of_stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_make_the_ledger_that_they_are_of() {
        let values = std::array::from_fn(|n| n as u64 + 1);
        assert_eq!(StreamLedger::from_rows(values).rows().map(|(_, value)| value), values);
    }

    fn balanced() -> RunLedger {
        let (mut images, mut frames) = (ImageLedger::default(), FrameLedger { kept: 3, ..FrameLedger::default() });
        for placed in [128, 100, 0] {
            frames.enter(placed, 128);
            images.enter(ImageStatus::of(placed, 128, MissingPolicy::Keep), true);
        }
        let mut stream =
            StreamLedger { received: 240, placed: 228, duplicate: 5, late: 3, no_slot: 2, foreign: 1, ..Default::default() };
        stream.count_malformed(Malformed::Version);
        RunLedger { streams: vec![stream], images, frames, written: 2, unwritten: 0, packets_per_image: 128 }
    }

    #[test]
    fn as_many_packets_as_an_image_may_be_one() {
        let mut ledger = balanced();
        assert_eq!((ledger.packets_not_kept(), ledger.may_lack_an_image()), (8, false));
        ledger.streams[0].late = 123;
        assert!(ledger.may_lack_an_image());
        ledger.streams.push(StreamLedger::default());
        (ledger.streams[0].late, ledger.packets_per_image) = (58, 128);
        assert!(!ledger.may_lack_an_image());
        ledger.streams[0].late = 59;
        assert!(ledger.may_lack_an_image());
    }

    #[test]
    fn a_balanced_ledger_has_no_imbalance_and_each_broken_sum_is_named() {
        assert_eq!(balanced().imbalances(), []);
        let broken = |change: fn(&mut RunLedger)| {
            let mut ledger = balanced();
            change(&mut ledger);
            ledger.imbalances().len()
        };
        assert_eq!(broken(|l| l.streams[0].received += 1), 1);
        assert_eq!(broken(|l| l.images.lost += 1), 1);
        assert_eq!(broken(|l| l.frames.packets_placed += 1), 2);
        assert_eq!(broken(|l| l.frames.packets_missing += 1), 1);
        assert_eq!(broken(|l| l.frames.dark += 1), 1);
        // These have no position in the file and no packets.
        assert_eq!(broken(|l| l.frames.absent += 1), 0);
        assert_eq!(broken(|l| l.images.not_received += 1), 0);
        assert_eq!(broken(|l| l.written += 1), 1);
    }

    #[test]
    fn a_veto_moves_complete_images_and_the_ledger_balances() {
        let mut ledger = balanced();
        ledger.images.veto(1);
        ledger.written = 1;
        assert_eq!((ledger.images.complete, ledger.images.vetoed, ledger.imbalances()), (0, 1, vec![]));
        ledger.images.veto(7);
        assert_eq!((ledger.images.complete, ledger.images.vetoed), (0, 1), "only what is complete");
        // Everything came, so a run without a file's image is complete.
        let all = ImageLedger { expected: 2, vetoed: 2, ..ImageLedger::default() };
        assert!(all.is_success() && RunLedger { images: all, ..RunLedger::default() }.is_complete());
    }

    #[test]
    fn policies_decide_the_state_of_partial_images() {
        assert_eq!(ImageStatus::of(1, 2, MissingPolicy::Keep), ImageStatus::Partial);
        assert_eq!(ImageStatus::of(1, 2, MissingPolicy::Discard), ImageStatus::Discarded);
        assert_eq!(ImageStatus::of(2, 2, MissingPolicy::CompleteOnly), ImageStatus::Complete);
        assert_eq!(ImageStatus::of(0, 2, MissingPolicy::Discard), ImageStatus::Lost);
        for (code, name) in (0u8..).zip(ImageStatus::NAMES) {
            let status = ImageStatus::from_u8(code).unwrap();
            assert_eq!((status as u8, status.name()), (code, name));
        }
        assert_eq!(ImageStatus::from_u8(5), None);
    }
}
