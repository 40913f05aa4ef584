//! Everything that a control server needs, free of HTTP: the list of detectors ([`Fleet`]), and of each of them
//! snapshots, commands, images and files ([`Detector`]); waiting for a state, and events ([`Subscription`]).
//!
//! No call here takes a lock of the data path. States are snapshots that an actor publishes, and commands go through
//! its queue. Servers may use nothing else of this crate, which `tests/architecture` checks. Some types say how they
//! are written as JSON and described (`serde`, `utoipa`), because HTTP and its client share them and would have to
//! double them.

pub use crate::calibration_report::{
    CalibrationChange, CalibrationMap, CalibrationProblem, CalibrationReport, CalibrationRow, MapRequest, MapValues, MaskReason,
    NotShown, PreviousCalibration, Quantity, UsedCalibration,
};
pub use crate::dark::StageChoice;
pub use crate::events::{EventLog, News, ServiceEvent, Severity, Subscription};
pub use crate::file_images::{FileCheck, FileIdentity, FileImages, FileIndex, TreeEntry, check as check_file};
pub use crate::image_ring::{ImageRing, RingImage};
pub use crate::machine::{MemoryUse, memory_use};
pub use crate::public_state::{PublicState, StateWord};
pub use crate::run_needs::{DryRun, RequestProblem, RunNeeds, SizeFrom};
pub use crate::shapes::{DrawnShapes, ModuleList, NotDrawn, PixelFacts, ShapeBoard, ShapesState};
pub use crate::spool::status::SpoolStatus;
pub use crate::threads::{ThreadGroup, ThreadLoad, ThreadWatch};
/// The states of the one state machine.
pub use konkordia_core::state::State as DetectorState;
/// Called by the threads of a server: a panic there costs one request, and not the service.
pub use konkordia_engine::contain::contain_thread;
/// Images with their pixels.
pub use konkordia_engine::plane::{PixelPlane, SharedPlanes};
/// The time as events have it: ISO 8601 with offset.
pub use konkordia_sinks::clock::now as time_now;

use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// State of one detector at one moment. Numbers that are not known are absent, never invented.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DetectorStatus {
    /// Name in the configuration.
    pub detector: String,
    /// `udp` or `stream`.
    pub kind: String,
    /// State. As JSON these are the two fields of [`PublicState`].
    #[serde(flatten, with = "crate::public_state")]
    #[schema(value_type = PublicState, inline)]
    pub state: DetectorState,
    /// What people should know.
    pub message: String,
    /// How bad that is.
    pub severity: Severity,
    /// What to do about it, if something is to be done.
    pub hint: Option<String>,
    /// Counts the runs since the service began; 0 before the first.
    pub run: u64,
    /// Images in their final state over images expected, 0 to 1, from the ledger; absent when the number is not known.
    pub progress: Option<f64>,
    /// Images that the run is to have.
    pub images_expected: Option<u64>,
    /// Images in their final state.
    pub images_committed: u64,
    /// Images that the file has.
    pub images_written: u64,
    /// Images that came and are missing in the file: it could not be written (a full disk), or they do not fit it.
    #[serde(default)]
    pub images_unwritten: u64,
    /// Images before this position are on the disk and survive a power cut (`konkordia repair` makes the file
    /// readable). Absent if no file is written, and in the MAX IV layout, which cannot promise it.
    pub images_durable: Option<u64>,
    /// The same for the raw frames that `keep_raw` writes beside the file; absent without.
    pub raw_frames_durable: Option<u64>,
    /// The spool through which the files go; absent without.
    #[serde(default)]
    pub spool: Option<SpoolStatus>,
    /// Images lost, whole.
    pub images_lost: u64,
    /// Images that miss packets or parts.
    pub images_partial: u64,
    /// Planned images that were not taken: the run was stopped, or the sender ended it. The file has no place for them.
    pub images_not_taken: u64,
    /// Planned images that did not arrive: silence, a new series or an error ended the run. The file has no place for
    /// them.
    pub images_not_received: u64,
    /// Master file of this run, or of the last one.
    pub file: Option<String>,
    /// Why the last run ended.
    pub ended: Option<String>,
    /// The file that stays open behind its runs (`append`), without what the run in progress adds to it; absent
    /// without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_file: Option<OpenFileStatus>,
    /// Seconds since the state changed.
    pub state_age_s: f64,
    /// Where data are expected.
    pub listens: Vec<String>,
    /// The alarms that are on, raised or not.
    #[serde(default)]
    pub alarms: Vec<AlarmStatus>,
    /// Who armed or started the present run, or takes pedestals; absent without a run, and for a series that its sender
    /// began by itself.
    #[serde(default)]
    pub operator: Option<Operator>,
    /// How many dark frames have come, by gain stage; absent while no pedestals are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dark_frames: Option<Vec<DarkFrames>>,
}

/// A file that stays open behind its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenFileStatus {
    /// Master file.
    pub file: String,
    /// Runs that have ended and are in it.
    pub runs: u64,
    /// Images that these had: the position of the first image of the next run.
    pub images: u64,
}

/// Dark frames of a gain stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DarkFrames {
    /// `g0`, `g1`, `g2`, `hg0`, or `auto` where each frame says its stage.
    #[schema(example = "g0")]
    pub stage: String,
    /// Frames that have come.
    pub frames: u64,
    /// Frames that are to come.
    pub expected: u64,
}

/// Who holds a detector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operator {
    /// Name of the token; where none is needed, `local` and the address that the command came from.
    #[schema(example = "alice")]
    pub name: String,
    /// When the command was carried out; ISO 8601 with offset.
    pub since: String,
    /// Seconds since then.
    #[serde(default)]
    pub age_s: f64,
    /// `arm`, `start` or `pedestal`.
    #[schema(example = "arm")]
    pub action: String,
}

/// One alarm of a detector (`[alarms]` in its configuration).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlarmStatus {
    /// `loss`, `no_hits`, `hit_drop`, `strong`, `saturated`, `invalid`, `ice`, `unanalysed`, `beam_shift`,
    /// `pedestal_age` or `pedestal_drift`.
    pub name: String,
    /// Its cause is there, or was within the last two seconds.
    pub raised: bool,
    /// What is wrong, while it is raised.
    pub message: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// When it was raised, or ended the last time; ISO 8601.
    pub since: Option<String>,
}

impl DetectorStatus {
    /// True if run `run` has ended: nothing is armed, in progress or being closed, or another run has begun.
    pub fn has_ended(&self, run: u64) -> bool {
        !self.state.has_run() || self.run != run
    }
}

/// Rates and counters of one detector. Each group maps documented names to numbers; names may be added.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DetectorStatistics {
    /// Name in the configuration.
    pub detector: String,
    /// Counters of the ledger of this run: packets or messages by verdict, images by state.
    pub ledger: BTreeMap<String, u64>,
    /// Images and bytes per second over the last second, by stage (`received_hz`, `received_bytes_per_s`,
    /// `committed_hz`, `written_hz`, ...).
    pub rates: BTreeMap<String, f64>,
    /// How full the queues are, 0 to 1; docs/api.md lists the names.
    pub queues: BTreeMap<String, f64>,
    /// Latency from reception to stage in microseconds (`committed_p50_us`, `committed_p99_us`, `written_p50_us`, ...),
    /// and the images that came to a stage (`committed_images`, ...).
    pub latency: BTreeMap<String, f64>,
    /// Consumers of streams.
    pub consumers: Vec<ConsumerStatistics>,
    /// Counters since the service began, that never go back (for Prometheus).
    pub totals: BTreeMap<String, u64>,
}

/// Packets of one module in a run. They are counted where an image is committed, and by the receivers of its streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModulePackets {
    /// Its number in the configuration, from 0.
    pub module: usize,
    /// Packets that came to its sockets.
    pub received_packets: u64,
    /// Packets that its images should have and that never came into them, whatever the reason.
    pub lost_packets: u64,
    /// Among them: the buffer of the socket was full. Datagrams that the kernel had joined count as one.
    pub kernel_dropped_packets: u64,
    /// Among them: their place was still held by an earlier image.
    pub no_slot_packets: u64,
    /// Among them: they came when their image was closed.
    pub late_packets: u64,
}

/// One consumer of images.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ConsumerStatistics {
    /// Its name.
    pub name: String,
    /// Where it gets its images.
    pub address: String,
    /// `reliable`, `reliable-skip` or `latest`.
    pub service: String,
    /// A receiver is connected.
    pub connected: bool,
    /// Images that were handed to it.
    pub delivered: u64,
    /// Images that it did not get.
    pub skipped: u64,
    /// Images that wait for it.
    pub lag_images: u64,
}

/// What an `arm` or `start` may set for the run; everything else is as configured. Absent = as configured.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmRequest {
    /// Images of the run; 0 = until stopped.
    #[serde(default, deserialize_with = "whole")]
    pub images: Option<u64>,
    /// Start of the file names; may contain folders below the data root, never `..` or an absolute path outside of it.
    pub prefix: Option<String>,
    /// Whether files are written.
    pub write: Option<bool>,
    /// Facts for the file by the names of `[detector]`, `[goniometer]`, `[experiment]` and `[output]`, for example
    /// `energy_kev` or `sample_name`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: serde_json::Map<String, Value>,
    /// The file stays open behind the run: the images of the next run that is armed with `append` come behind those of
    /// this one, until `close`. For detectors that send packets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
}

/// What a `pedestal` takes. Absent = as the verb of the command line has it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PedestalRequest {
    /// Gain stages. `all`: G0, G1 and G2 one after the other; the program `on_stage` of the configuration sets the gain
    /// of the detector, `on_trigger` starts it.
    pub stage: StageChoice,
    /// Dark frames of each stage, all storage cells together; 1000 if absent.
    #[schema(minimum = 1, maximum = 1_000_000)]
    #[serde(deserialize_with = "whole")]
    pub frames: Option<u64>,
    /// Frames at the beginning of each stage that are not used.
    #[schema(maximum = 1_000_000)]
    #[serde(deserialize_with = "whole")]
    pub skip: Option<u64>,
    /// The calibration file, below the data root; an existing file keeps the stages that are not taken. Absent: the
    /// file of `[calibration]` in the configuration.
    pub file: Option<String>,
    /// Use frames that look as if there was light.
    pub force: bool,
}

impl Default for PedestalRequest {
    fn default() -> Self {
        Self { stage: StageChoice::All, frames: None, skip: None, file: None, force: false }
    }
}

/// Accepts a whole number in any notation: for JSON 1000.0 is one too, and some programs write it so.
fn whole<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let is_whole = |value: &f64| value.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(value);
    let value = number.as_u64().or_else(|| number.as_f64().filter(is_whole).map(|value| value as u64));
    value.map(Some).ok_or_else(|| serde::de::Error::custom(format!("{number} is no whole number from 0 to {}", u64::MAX)))
}

/// A command to a detector.
#[derive(Clone, Debug)]
pub enum Command {
    /// Make everything ready.
    Arm(Box<ArmRequest>),
    /// Arm if nothing is armed, and start the time limit for the first data.
    Start(Box<ArmRequest>),
    /// Take dark frames and make a calibration file from them.
    Pedestal(Box<PedestalRequest>),
    /// Make the detector expose, by running the configured program (`on_trigger`).
    Trigger,
    /// End the run; everything that has arrived is kept.
    Stop,
    /// End the run at once; what has been written is closed.
    Cancel,
    /// Close the file that stays open behind its runs (`append`).
    Close,
    /// Begin no further run; what is armed or in progress goes on.
    Drain,
}

/// The answer to a command: the state after it, or why it was refused.
pub type Reply = Result<DetectorStatus, Refusal>;

/// Why a command was refused, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCode {
    /// The state of the detector does not allow it.
    WrongState,
    /// What had to be made ready could not be.
    ArmFailed,
    /// There is no detector of this name.
    UnknownDetector,
    /// The service has several detectors, and none was named.
    WhichDetector,
    /// The configuration names no program that triggers the detector.
    NoTrigger,
    /// Another command is being carried out, or something is still being released. Later it may be accepted.
    Busy,
    /// What the command asks for is not possible.
    BadRequest,
    /// It was given up: cancelled, or a program of the user failed.
    Refused,
}

impl RefusalCode {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::WrongState,
        Self::ArmFailed,
        Self::UnknownDetector,
        Self::WhichDetector,
        Self::NoTrigger,
        Self::Busy,
        Self::BadRequest,
        Self::Refused,
    ];

    /// The code as HTTP and the events have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WrongState => "wrong_state",
            Self::ArmFailed => "arm_failed",
            Self::UnknownDetector => "unknown_detector",
            Self::WhichDetector => "which_detector",
            Self::NoTrigger => "no_trigger",
            Self::Busy => "busy",
            Self::BadRequest => "bad_request",
            Self::Refused => "refused",
        }
    }
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// What happened.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// State of the detector.
    pub state: Option<DetectorState>,
}

impl Refusal {
    /// Makes a refusal from a failure.
    pub fn of(code: RefusalCode, failure: &Failure) -> Self {
        Self { code, what: failure.what.clone(), why: failure.why.clone(), fix: failure.fix.clone(), state: None }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(Exit::State, refusal.what, refusal.why, refusal.fix)
    }
}

/// What became of the files of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// They are being written.
    Writing,
    /// Closed; every image is complete and in them.
    Complete,
    /// Closed; images are missing or not complete.
    Incomplete,
    /// The run failed.
    Failed,
}

/// A finished or growing set of files.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Detector.
    pub detector: String,
    /// Run that wrote it.
    pub run: u64,
    /// Master file.
    pub master: String,
    /// `writing`, `complete`, `incomplete`, `failed`.
    #[schema(value_type = String)]
    pub state: FileState,
    /// Positions in the files.
    pub images: u64,
    /// Bytes of pixels as they are packed.
    pub bytes: u64,
    /// Bytes of the same pixels, unpacked.
    #[serde(default)]
    pub unpacked_bytes: u64,
    /// Images that the run was to have; absent while that is not known.
    #[serde(default)]
    pub images_expected: Option<u64>,
    /// Why the run ended.
    pub ended: Option<String>,
    /// Why no file was made; `master` is empty then.
    #[serde(default)]
    pub problem: Option<String>,
}

/// What is in the files of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTotals {
    /// Positions.
    pub images: u64,
    /// Images that the run was to have.
    pub images_expected: Option<u64>,
    /// Bytes of pixels as they are packed.
    pub bytes: u64,
    /// Bytes of the same pixels, unpacked.
    pub unpacked_bytes: u64,
}

impl FileEntry {
    /// The files of a run that has just begun.
    pub fn writing(detector: &str, run: u64, master: &str) -> Self {
        let (detector, master) = (detector.to_string(), master.to_string());
        Self {
            detector,
            run,
            master,
            state: FileState::Writing,
            images: 0,
            bytes: 0,
            unpacked_bytes: 0,
            images_expected: None,
            ended: None,
            problem: None,
        }
    }

    /// A run of which no file was made.
    pub fn not_made(detector: &str, run: u64, problem: String, ended: &str) -> Self {
        let (state, problem) = (FileState::Failed, Some(problem));
        Self { state, problem, ended: Some(ended.into()), ..Self::writing(detector, run, "") }
    }

    /// The same files, closed. `has_failed`: something of them could
    /// not be written; `is_complete`: every image is complete and in the files.
    #[must_use]
    pub fn closed(self, has_failed: bool, is_complete: bool, totals: FileTotals, ended: &str) -> Self {
        let state = match (has_failed, is_complete) {
            (true, _) => FileState::Failed,
            (false, true) => FileState::Complete,
            (false, false) => FileState::Incomplete,
        };
        let FileTotals { images, images_expected, bytes, unpacked_bytes } = totals;
        Self { state, images, images_expected, bytes, unpacked_bytes, ended: Some(ended.into()), ..self }
    }
}

/// Hits of the newest run or series over time and over the raster, as data for plots. Only analysed images count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HitRate {
    /// The detector.
    pub detector: String,
    /// Number of the run, or of the series as its sender counts it.
    pub series: u64,
    /// Width of a bin of time, seconds. It doubles when 600 bins do not reach any more.
    pub bin_s: f64,
    /// Images of each bin; the first one begins when the first image was received. Empty without analysis.
    pub analysed: Vec<u64>,
    /// Hits among them.
    pub hits: Vec<u64>,
    /// Those among the analysed ones that the indexing program indexed; empty without one (`[indexing]`).
    pub indexed: Vec<u64>,
    /// Over the raster, if images have a place in one (`[image_metadata]`).
    pub raster: Option<RasterHits>,
}

/// Hits over a raster: one entry of each list for each place of which an image came, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RasterHits {
    /// Row of the place, from 0.
    pub row: Vec<u64>,
    /// Column of the place, from 0.
    pub column: Vec<u64>,
    /// Images there.
    pub analysed: Vec<u64>,
    /// Hits among them.
    pub hits: Vec<u64>,
    /// Indexed ones among them; empty without an indexing program.
    pub indexed: Vec<u64>,
    /// Images at further places, beyond the 65536 that are counted.
    pub not_counted: u64,
}

/// A result that can be plotted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultName {
    /// As in the file and in the images.
    pub name: String,
    /// Unit of its numbers; empty if it has none.
    pub unit: String,
    /// What it means, in one line.
    pub meaning: String,
}

/// One result of all images of the newest run against their number. The lists have an entry for each bin with images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResultPlot {
    /// Name of the detector.
    pub detector: String,
    /// Number of the run, or of the series as its sender counts it.
    pub series: u64,
    /// What can be plotted.
    pub results: Vec<ResultName>,
    /// Unit of `profile_axis`; null if there are no profiles.
    pub profile_unit: Option<String>,
    /// Middle of each bin of the profiles. This and the next two lists are empty if a result is asked for.
    pub profile_axis: Vec<f64>,
    /// Names of the regions, in the order in which the results of an image have them.
    pub regions: Vec<String>,
    /// Middle of each sector of the cakes, degrees.
    pub cake_azimuth_deg: Vec<f64>,
    /// Name of the result of which the lists are; absent if none was asked for.
    pub result: Option<String>,
    /// Numbers of images that a bin has. It doubles when 1024 bins do not reach any more.
    #[schema(minimum = 1)]
    pub bin_images: u64,
    /// Number of the first image of each bin.
    pub first_image: Vec<u64>,
    /// Images that came.
    pub images: Vec<u64>,
    /// Those among them that have no results: lost, or not analysed.
    pub without: Vec<u64>,
    /// Mean of the result; null where no image has a number.
    pub mean: Vec<Option<f64>>,
    /// Its lowest number.
    pub lowest: Vec<Option<f64>>,
    /// Its highest number.
    pub highest: Vec<Option<f64>>,
    /// When the first image with results was received, in seconds since the first of all.
    pub time_s: Vec<Option<f64>>,
}

/// One detector as control servers see it.
pub trait Detector: Send + Sync {
    /// Its name.
    fn name(&self) -> &str;
    /// The newest snapshot.
    fn status(&self) -> Arc<DetectorStatus>;
    /// The current rates and counters.
    fn statistics(&self) -> DetectorStatistics;
    /// Hits over time and over the raster.
    fn hit_rate(&self) -> HitRate;
    /// A result of all images of the newest run; without a name, which ones there are. `None` if there is no such
    /// result.
    fn results(&self, result: Option<&str>) -> Option<ResultPlot>;
    /// The configuration in force, as JSON, without secrets.
    fn configuration(&self) -> Value;
    /// What is known of its next run without the parameters of an arm: the metadata of the configuration, and facts of
    /// this kind of detector.
    fn facts(&self) -> Metadata;
    /// The calibration that its runs use; `None` if the configuration names none.
    fn calibration(&self) -> Option<Arc<UsedCalibration>> {
        None
    }
    /// Carries out a command of `by`, whose name the status shows while its run lasts. Blocks until it is done or
    /// refused, at most as long as an arm may take: not for async threads.
    ///
    /// # Errors
    /// The command was refused, and changed nothing.
    fn command(&self, command: Command, by: &str) -> Reply;
    /// What is wrong with an arm, and what its run needs. Takes nothing and changes nothing. Asks the file system,
    /// which can take long: not for async threads.
    fn dry_run(&self, request: &ArmRequest) -> DryRun;
    /// Packets of the modules in this run, or in the last one; empty where they are not counted by module.
    fn modules(&self) -> Vec<ModulePackets> {
        Vec::new()
    }
    /// Its last images.
    fn images(&self) -> Arc<dyn ImageRing>;
    /// Its files, newest last, at most the last 1000 runs.
    fn files(&self) -> Vec<FileEntry>;
    /// The mask and the regions that people draw over its images.
    fn shapes(&self) -> Arc<ShapeBoard>;
    /// Its output folder; that of the newest file if the configuration names none.
    fn output_folder(&self) -> Option<PathBuf> {
        let configured = self.configuration()["output"]["directory"].as_str().map(PathBuf::from);
        let newest = || self.status().file.as_ref().and_then(|file| Path::new(file).parent().map(Path::to_path_buf));
        configured.or_else(newest)
    }
    /// Free space in its output folder, in bytes; `None` if it is not known. Asks the file system, which can take long:
    /// not for async threads.
    fn free_bytes(&self) -> Option<u64> {
        konkordia_sinks::hdf5::free_bytes(&self.output_folder()?).ok()
    }
}

/// All detectors of the service; immutable after start.
pub struct Fleet {
    /// By name, in the order of the configuration.
    pub detectors: Vec<Arc<dyn Detector>>,
    /// Events, newest last, with a bounded history for later subscribers.
    pub events: EventLog,
    is_stopping: AtomicBool,
}

impl Fleet {
    /// Detectors whose events and changes of states go to `events`.
    pub fn new(detectors: Vec<Arc<dyn Detector>>, events: EventLog) -> Self {
        Self { detectors, events, is_stopping: AtomicBool::new(false) }
    }

    /// The detector with this name; without a name, the only detector.
    ///
    /// # Errors
    /// There is none of this name, or several and no name.
    pub fn find(&self, name: Option<&str>) -> Result<Arc<dyn Detector>, Refusal> {
        let names = || self.detectors.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
        let refuse = |code, what: String, fix: &str| Refusal {
            code,
            what,
            why: format!("this service has: {}", names()),
            fix: fix.into(),
            state: None,
        };
        match name {
            Some(name) => self.detectors.iter().find(|d| d.name() == name).cloned().ok_or_else(|| {
                refuse(RefusalCode::UnknownDetector, format!("there is no detector '{name}'"), "use one of these names")
            }),
            None if self.detectors.len() == 1 => Ok(Arc::clone(&self.detectors[0])),
            None => {
                let fix = "add ?detector=NAME (on the command line: --detector NAME)";
                Err(refuse(RefusalCode::WhichDetector, "which detector?".into(), fix))
            }
        }
    }

    /// Waits until `is_reached` is true of the status of a detector, at most `longest`. Returns the newest status and
    /// whether it was reached; also returns when the service is stopping. Looks at every change of a state, a run, a
    /// file or a message, but not at every image.
    pub fn wait_for(
        &self,
        detector: &dyn Detector,
        longest: Duration,
        is_reached: impl Fn(&DetectorStatus) -> bool,
    ) -> (Arc<DetectorStatus>, bool) {
        let until = Instant::now().checked_add(longest);
        // Before the first look, so that no change is missed in between.
        let mut changes = self.events.subscribe();
        loop {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            let status = detector.status();
            let reached = is_reached(&status);
            if reached || is_over || self.is_stopping() {
                return (status, reached);
            }
            changes.wait(until);
        }
    }

    /// Says that the service is stopping, and wakes everybody who waits.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.events.wake();
    }

    /// True when the service is stopping.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of HTTP, byte for byte: fields in the documented order, `state` and `draining` in their place.
    #[test]
    fn a_status_is_written_and_read_as_documented() {
        let text = r#"{"detector":"eiger","kind":"udp","state":"running","draining":true,"message":"m","severity":"info","hint":null,"run":3,"progress":0.5,"images_expected":4,"images_committed":2,"images_written":1,"images_unwritten":0,"images_durable":null,"raw_frames_durable":null,"spool":null,"images_lost":0,"images_partial":0,"images_not_taken":0,"images_not_received":0,"file":"/data/a_master.h5","ended":null,"state_age_s":1.5,"listens":["udp://127.0.0.1:1"],"alarms":[],"operator":{"name":"alice","since":"2026-11-28T05:44:19+01:00","age_s":2.5,"action":"arm"}}"#;
        let status: DetectorStatus = serde_json::from_str(text).unwrap();
        assert_eq!((status.state, status.images_expected), (DetectorState::Draining, Some(4)));
        assert_eq!(serde_json::to_string(&status).unwrap(), text);
        assert!(!status.has_ended(3) && status.has_ended(2));
        // Fields of a later version are no mistake, and fields that may be absent are not needed.
        let later = text.replace(r#""hint":null,"#, r#""later":1,"#).replace(r#""images_unwritten":0,"#, "");
        assert_eq!(serde_json::from_str::<DetectorStatus>(&later).unwrap().hint, None);
        let idle = text.replace(r#""running","draining":true"#, r#""idle","draining":false"#);
        assert_eq!(serde_json::from_str::<DetectorStatus>(&idle).unwrap().state, DetectorState::Idle);
    }
}
