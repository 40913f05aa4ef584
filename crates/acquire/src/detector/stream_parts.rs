//! The parts of a stream detector: its sources, the counters of a series, and its end in words.

use super::status::{Live, Look, StatusMessage, image_totals, not_complete, totals_of};
use crate::handle::{ArmRequest, Severity};
use crate::machine;
use crate::paths::{Place, Target};
use crate::transform;
use konkordia_config::overrides;
use konkordia_config::service::DetectorConfig;
use konkordia_config::stream::{Socket, StreamConfig, StreamSource};
use konkordia_core::analysis_counts::AnalysisCounts;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::latency::Meter;
use konkordia_core::plan::Compression;
use konkordia_core::ports::{MessageSource, SinkError};
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger};
use konkordia_core::state::State;
use konkordia_core::text;
use konkordia_engine::output_queue::OutputQueue;
use konkordia_engine::series::protocols::{decoder_with, with_chip_gaps};
use konkordia_engine::series::{Join, SeriesControl, SeriesSpec, Upstream};
use konkordia_sinks::hdf5::{Metadata, Overwrite, SharedState};
use konkordia_sources::directory::{DirectorySource, DirectorySpec};
use konkordia_sources::zmq::{ZmqKind, ZmqSource, ZmqSourceSpec, context};
use konkordia_wire::message::DecoderOptions;
use konkordia_wire::stream::Bounds;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Arm parameters: what a command sets for the next series.
#[derive(Clone, Debug, Default)]
pub struct ArmParameters {
    /// Images to take; `None` = as many as the sender announces.
    pub images: Option<u64>,
    /// Where the files go, if the command says so.
    pub target: Option<Target>,
    /// Whether files are written.
    pub write: bool,
    /// Facts for the file.
    pub metadata: Metadata,
    /// Number of the arm; 0 without an arm.
    pub arm: u64,
}

/// The arm parameters of a command, checked.
pub fn parameters(
    base: &DetectorConfig,
    config: &StreamConfig,
    place: &Place,
    request: &ArmRequest,
) -> Result<ArmParameters, Failure> {
    if request.append {
        let why = "its sender begins and ends series, and each has a file of its own";
        let fix = "arm without `append`; several triggers of one arm of the detector are one series";
        return Err(Failure::new(Exit::Configuration, "a series cannot be appended", why, fix));
    }
    let write = request.write.unwrap_or(base.write);
    let images = match request.images {
        Some(0) => None,
        Some(n) if n <= 1 << 40 => Some(n),
        Some(n) => {
            let what = format!("a series cannot have {n} images");
            return Err(Failure::new(Exit::Configuration, what, "at most 2^40 are possible", "give fewer, or 0 = as announced"));
        }
        None => config.images,
    };
    let target = match &request.prefix {
        Some(prefix) if write => Some(place.target(prefix)?),
        _ => None,
    };
    let metadata = overrides::metadata(&request.metadata)?.over(config.metadata.clone());
    Ok(ArmParameters { images, target, write, metadata, arm: 0 })
}

/// The parameters without an arm: as configured.
pub fn default_parameters(base: &DetectorConfig, config: &StreamConfig) -> ArmParameters {
    ArmParameters { images: config.images, target: None, write: base.write, metadata: config.metadata.clone(), arm: 0 }
}

/// Opens the sources of a detector, each with the decoder of its messages.
pub fn upstreams(config: &StreamConfig) -> Result<Vec<Upstream>, Failure> {
    let bounds = bounds(config);
    let sources: Vec<Box<dyn MessageSource>> = match &config.source {
        StreamSource::Messages { upstreams, bind, socket } => {
            let context = context(1).map_err(|error| open_failed("ZeroMQ", &error))?;
            let open = |address: &String| {
                let kind = if *socket == Socket::Sub { ZmqKind::Sub } else { ZmqKind::Pull };
                let (message_bytes_max, peers_max) = (config.message_bytes_max, machine::connections_per_port());
                let spec =
                    ZmqSourceSpec { bind: *bind, kind, message_bytes_max, peers_max, ..ZmqSourceSpec::pull(address.clone()) };
                let source = ZmqSource::open(&context, &spec).map_err(|error| open_failed(address, &error))?;
                Ok(Box::new(source) as Box<dyn MessageSource>)
            };
            upstreams.iter().map(open).collect::<Result<_, Failure>>()?
        }
        StreamSource::Folder { folder, suffixes, remove, settle_ms, poll_ms } => {
            let spec = DirectorySpec {
                suffixes: suffixes.iter().map(|suffix| format!(".{suffix}")).collect(),
                remove: *remove,
                settle: Duration::from_millis(*settle_ms),
                sweep: Duration::from_millis(*poll_ms),
                file_bytes_max: config.message_bytes_max,
                ..DirectorySpec::new(folder)
            };
            let source = DirectorySource::open(spec).map_err(|error| open_failed(&folder.display().to_string(), &error))?;
            vec![Box::new(source)]
        }
    };
    let pieces = if config.pieces { sources.len() as u64 } else { 0 };
    let upstream = |(n, source)| {
        let chip_gap_px = config.modules.as_ref().map_or(0, |modules| modules.chip_gaps_px[n]);
        let is_maxiv = config.append_dataset.is_some();
        let options = DecoderOptions { pieces, pixels_are_cbf: config.transform.cbf, is_maxiv };
        Upstream { source, decoder: with_chip_gaps(decoder_with(config.protocol, bounds, options), chip_gap_px, bounds) }
    };
    Ok(sources.into_iter().enumerate().map(upstream).collect())
}

fn open_failed(address: &str, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Io,
        format!("the source {address} cannot be opened"),
        reason(error),
        "correct [source] in the configuration",
    )
}

fn bounds(config: &StreamConfig) -> Bounds {
    let most = config.message_bytes_max;
    Bounds { image_bytes_max: most, table_bytes_max: most, ..Bounds::default() }
}

/// The stream path of this detector; its clock is that of the fan-out.
pub fn spec(config: &StreamConfig, clock_began: Instant) -> Result<SeriesSpec, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let join = match &config.modules {
        None if config.pieces => Join::Pieces,
        None => Join::Balanced,
        Some(modules) => join_modules(modules),
    };
    let transform = transform::factory(&config.transform)?;
    let sum_frames = config.transform.sum_frames.unwrap_or(1);
    let is_changed = transform.is_some() && !config.transform.keeps_packing;
    let repacks = is_changed || config.modules.is_some() || config.transform.cbf || sum_frames > 1;
    Ok(SeriesSpec {
        bounds: bounds(config),
        join,
        positions: config.positions,
        compression: config.transform.compression.or(repacks.then_some(Compression::BSLZ4)),
        transform,
        sum_frames,
        check_pixels: config.check_pixels,
        window_images: config.window_images,
        wait_ns: config.wait_ns,
        drain_ns: config.drain_ns,
        stall_timeout_ns: config.stall_timeout_ns,
        start_timeout_ns: config.start_timeout_ns,
        missing: config.missing,
        budget_bytes: config.budget_bytes,
        workers: config.workers.unwrap_or(processors.saturating_sub(1).max(1)),
        accept: config.accept,
        images: config.images,
        clock_began,
        ..SeriesSpec::new(config.protocol)
    })
}

fn join_modules(modules: &konkordia_config::stream::Modules) -> Join {
    Join::PerModule { placements: modules.placements.clone(), rows: modules.rows, columns: modules.columns }
}

/// The counters of a series in progress.
pub struct SeriesLive {
    /// The control of the stream path.
    pub control: Arc<SeriesControl>,
    /// What the file sink has done.
    pub files: Arc<SharedState>,
    /// Counts how long the images of the series take.
    pub meter: Meter,
    /// What becomes of them at their analysis.
    pub analysis: AnalysisCounts,
    /// The output queue of the file sink.
    pub output_queue: Arc<OutputQueue>,
    /// Files are written.
    pub write: bool,
}

impl Live for SeriesLive {
    fn look(&self) -> Look {
        let progress = self.control.progress();
        let end = SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: progress.ledger.clone() };
        let mut look = look_of(&end);
        look.totals = totals_of_series(&progress.ledger);
        look.expected = progress.images_planned;
        look.written = if self.write { self.files.images() } else { 0 };
        look.durable = self.files.durable_end().filter(|_| self.write);
        look.unwritten = self.files.unwritten();
        let fill = |used: u64, of: u64| (used as f64 / of.max(1) as f64).min(1.0);
        let limit = progress.upstreams.iter().map(|upstream| upstream.in_flight_bytes_max).sum();
        look.queues.insert("in_flight".into(), fill(progress.in_flight_bytes(), limit));
        let queued = self.output_queue.stats().queued.load(Ordering::Relaxed);
        look.queues.insert("output_file".into(), fill(queued, self.output_queue.spec().queue_images as u64));
        look.meter = self.meter.clone();
        let received = |f: fn(&konkordia_engine::series::UpstreamProgress) -> u64| progress.upstreams.iter().map(f).sum();
        look.counters = vec![
            ("received_messages_hz", received(|u| u.received)),
            ("received_bytes_per_s", received(|u| u.received_bytes)),
            ("committed_hz", progress.images_committed),
            ("committed_bytes_per_s", progress.committed_bytes),
            ("written_hz", look.written),
            ("written_bytes_per_s", if self.write { self.files.bytes() } else { 0 }),
        ];
        look.with_analysis(&self.analysis)
    }
}

/// What a ledger adds to the totals of a detector.
fn totals_of_series(ledger: &SeriesLedger) -> Vec<(String, u64)> {
    totals_of("messages", &ledger.total().rows()).chain(image_totals(&ledger.images)).collect()
}

/// What is added to the totals while the actor knows of no series: what arrived between two series, or all of a series
/// that has just begun.
pub fn totals_between(control: &SeriesControl) -> Vec<(String, u64)> {
    let progress = control.progress();
    let is_between = matches!(progress.state, State::Idle | State::Armed);
    totals_of_series(if is_between { &progress.between } else { &progress.ledger })
}

/// The counters of a series.
pub fn look_of(end: &SeriesEnd) -> Look {
    let (ledger, total) = (&end.ledger, end.ledger.total());
    let mut entries: BTreeMap<String, u64> = total.rows().iter().map(|(n, v)| ((*n).to_string(), *v)).collect();
    let name = |n: &str| if n == "parts_missing" || n.starts_with("frames") { n.into() } else { format!("images_{n}") };
    entries.extend(ledger.rows().iter().map(|(n, v)| (name(n), *v)));
    let mut totals = totals_of_series(ledger);
    totals.push((format!("runs_{}", end.ended.name().replace(' ', "_")), 1));
    Look { ledger: entries, totals, ..Look::of(&ledger.images) }
}

/// The message for the end of a series, and whether the detector is in error. `written` images are in the file;
/// `unwritten` ones arrived and are not in it.
pub fn sum_up(
    run: u64,
    end: &SeriesEnd,
    waited_for: Option<&str>,
    failure: Option<&SinkError>,
    (written, unwritten): (u64, u64),
) -> (StatusMessage, bool) {
    let (ledger, ended) = (&end.ledger, end.ended.name());
    let wrong = ledger.imbalances().first().cloned();
    if wrong.is_some() && end.ended == Ended::Failed {
        // Something cut the series short, so the sums do not balance. The cause is what to report.
        let message = format!("run {run} has ended ({ended}): {}", end.reason);
        let hint = Some("please report this text with the configuration".to_string());
        return (StatusMessage { message, severity: Severity::Error, hint }, true);
    }
    if let Some(wrong) = wrong {
        let hint = Some("please report this: it is a bug in konkordia".into());
        return (
            StatusMessage {
                message: format!("run {run}: the ledger does not balance: {wrong}"),
                severity: Severity::Error,
                hint,
            },
            true,
        );
    }
    if let Some(error) = failure {
        let mut message = format!("run {run}: {}: {}", error.what, error.why);
        if unwritten > 0 {
            let (there, not) = (text::count(written), text::count(unwritten));
            message.push_str(&format!(
                "; of {} images {there} are in the file, {not} came and are not in it",
                text::count(ledger.images.expected)
            ));
        }
        return (StatusMessage { message, severity: Severity::Error, hint: Some(error.fix.clone()) }, true);
    }
    let came = ledger.images.complete + ledger.images.partial > 0;
    let waited_for = waited_for.filter(|_| !came && end.ended != Ended::Cancelled);
    let because = waited_for.map(str::to_string).or(Some(end.reason.clone()).filter(|text| !text.is_empty()));
    let because = because.map_or(String::new(), |why| format!(": {why}"));
    if !came {
        let severity = if end.ended == Ended::Cancelled { Severity::Info } else { Severity::Warning };
        let hint = "is the sender running, and does it send to this address? GET /api/v1/statistics shows what was received and why it was not used";
        let hint = (severity == Severity::Warning).then(|| hint.to_string());
        return (
            StatusMessage { message: format!("run {run} has no image ({ended}){because}"), severity, hint },
            end.ended == Ended::Failed,
        );
    }
    let is_whole = ledger.images.is_success() && unwritten == 0 && matches!(end.ended, Ended::Finished | Ended::Stopped);
    let severity = if is_whole { Severity::Success } else { Severity::Warning };
    let mut message = format!(
        "run {run} has ended ({ended}){because}: {} of {} images complete",
        text::count(ledger.images.complete),
        text::count(ledger.images.expected)
    );
    message.push_str(&not_complete(&ledger.images));
    if ledger.images.not_kept > 0 {
        message.push_str(&format!(
            ", {} more arrived and were not used (duplicate, late, unreadable, or of no series)",
            text::count(ledger.images.not_kept)
        ));
    }
    if unwritten > 0 {
        message.push_str(&format!(", {} not in the file because they do not fit it", text::count(unwritten)));
    }
    let failed = end.ended == Ended::Failed;
    (StatusMessage { message, severity: if failed { Severity::Error } else { severity }, hint: None }, failed)
}

/// Checks that a file may be created, as it is before the first image.
pub fn check_file(config: &StreamConfig, file: &Path) -> Result<(), Failure> {
    // Files of the MAX IV layout are continued.
    let refuses = config.append_dataset.is_none() && config.overwrite == Overwrite::Refuse;
    if !refuses || !file.exists() {
        return Ok(());
    }
    let fix = "choose another prefix, move the old files, or set output.overwrite = \"replace\"";
    Err(Failure::new(Exit::Io, format!("cannot create: {}", file.display()), "the file exists", fix))
}

/// Checks that there is space for a file, as far as that is possible before the first image.
pub fn check_folder(directory: &Path) -> Result<(), Failure> {
    let demand = crate::readiness::Demand { image_bytes: 1 << 20, images: Some(1), rate_hz: None, is_compressed: false };
    crate::readiness::disk(directory, &demand).map(drop)
}
