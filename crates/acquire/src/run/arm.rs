//! Arms a run. Every step that can fail before a run is done here, in an order in which a failure leaves as little
//! behind as possible.

use super::opened::Opened;
use super::raw_copy::{RawCopy, RawSpec};
use super::raw_far::RawFar;
use super::{angles, memory_limit, placement, recorded};
use crate::analysis::live::{self, ImageFacts};
use crate::analysis::metadata;
use crate::readiness::{self, Demand};
use crate::shapes::{Drawing, RunMask};
use crate::spool::{CurrentRun, News, Spool, SpoolRun, SpooledSink};
use konkordia_calibration::guard::Note;
use konkordia_calibration::{self as calibration, Loaded};
use konkordia_config::{Config, plan};
use konkordia_core::backend::Backend;
use konkordia_core::experiment::Goniometer;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{Negative, Plan, Recipe};
use konkordia_core::ports::{FrameSink, Sink, Source};
use konkordia_core::series::RunFileText;
use konkordia_core::text;
use konkordia_engine::output_queue::OutputQueues;
use konkordia_engine::run::{ArmError, Armed, Consumers, RunParts, WorkerKind, arm};
use konkordia_kernels::isa::Isa;
use konkordia_sinks::clock;
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{ExtraColumn, FileSpec, Positions, RunFiles, TileInfo, Writer, unknown};
use konkordia_sources::backend::{self, Streams};
use konkordia_sources::shared_port::SharedPort;
use konkordia_sources::udp::kernel_receive_buffer_bytes_max;
use konkordia_wire::formats::PacketFormat;
use konkordia_wire::roce_frames;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An armed run, which waits for packets.
pub struct Prepared {
    /// The run.
    pub armed: Armed,
    /// Its plan.
    pub plan: Arc<Plan>,
    /// Its files and streams.
    pub opened: Opened,
    /// Which pixels it masks.
    pub mask: RunMask,
    /// Receive buffer that the kernel gave to each stream, in payload bytes.
    pub receive_buffer_bytes: usize,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The ports to which the sockets of the streams are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// The ports of the configuration.
    Configured,
    /// Free ports that the kernel chooses.
    Free,
}

/// The inputs of a run: its plan and its calibration. Sources and files are not open yet.
pub struct RunInputs {
    /// Its plan.
    pub plan: Plan,
    /// Its calibration.
    pub loaded: Loaded,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Makes the plan, checks that there is enough memory, and loads the calibration. An automatic negative offset in the
/// plan is computed from the calibration.
///
/// # Errors
/// There is too little memory, or the calibration cannot be read or does not fit the detector.
pub fn run_inputs(config: &Config) -> Result<RunInputs, Failure> {
    let mut plan = plan::plan(config);
    memory_limit::check(&plan, 0)?;
    let loaded = calibration::for_config(config)?;
    if config.options.negative_offset_auto {
        plan.processing.negative = Negative::Offset(auto_offset(&loaded)?);
    }
    let mut notes: Vec<String> = Some(loaded.report.clone()).filter(|report| !report.is_empty()).into_iter().collect();
    notes.extend(konkordia_config::xds::notes(config));
    Ok(RunInputs { plan, loaded, notes })
}

/// The sink of the images, and those of raw frames.
pub type Sinks = (Box<dyn Sink>, Vec<Box<dyn FrameSink>>);

/// Refuses a plan for which the disk is too small or too slow; risks come back as notes.
pub type CheckDisk<'a> = dyn Fn(&Plan) -> Result<Vec<String>, Failure> + 'a;

/// A run that is appended, or whose file stays open behind it.
#[derive(Clone, Default)]
pub struct Append {
    /// The files of the runs before, and what they hold; `None`: this is the first one.
    pub behind: Option<(RunFiles, Positions)>,
}

impl Append {
    /// The open files, and what they hold. Refuses a run whose images would differ from what they say of theirs. (How
    /// many images they will have in the end is not known, and not planned.)
    ///
    /// # Errors
    /// They would.
    pub fn checked(&self, config: &Config, plan: &Plan, loaded: &Loaded) -> Result<Option<&(RunFiles, Positions)>, Failure> {
        let differs = self.behind.as_ref().and_then(|(files, _)| files.differs(&file_spec(config, plan, loaded)));
        differs.map_or(Ok(self.behind.as_ref()), |what| {
            let why = format!("{what} has changed since its first run, and a file says it once for all its images");
            let fix = "close it (`konkordia close`), and arm with another prefix";
            Err(Failure::new(Exit::Configuration, "the run cannot be appended to the open file", why, fix))
        })
    }
}

/// What a service changes about a run: whether files are written, consumers, wrapped sources.
pub struct Additions<'a> {
    /// Whether files are written.
    pub write: bool,
    /// The spool through which its files go, if it has one.
    pub spool: Option<&'a Arc<Spool>>,
    /// The mask and the regions that people have drawn.
    pub drawing: Option<&'a Drawing>,
    /// Its file stays open behind it, and perhaps it is appended to one that is.
    pub append: Option<&'a Append>,
    /// Checks the disk before anything is made. `None`: only its free space is compared with the images.
    pub disk: Option<&'a CheckDisk<'a>>,
    /// Gets remarks on the images while the run goes on.
    pub note: &'a dyn Fn() -> Note,
    /// Some of the consumers write its files on other hosts.
    pub has_writers: bool,
    /// Those who write its raw frames on other hosts, if there are any.
    pub raw_writers: Option<&'a Arc<OutputQueues>>,
    /// Who gets the images beside the file.
    pub consumers: &'a dyn Fn() -> Consumers,
    /// Wraps the source of each stream.
    pub wrap: &'a dyn Fn(Box<dyn Source>) -> Box<dyn Source>,
    /// Makes who gets the images in place of files, of what files would say.
    pub sink: Option<&'a MakeSink<'a>>,
}

/// Makes who gets the images of a run, of what its files would say.
pub type MakeSink<'a> = dyn Fn(&FileSpec) -> Box<dyn Sink> + 'a;

/// The writers on other hosts of a run without a service.
pub struct WritersOfRun<'a> {
    /// Who gets the images.
    pub consumers: &'a dyn Fn() -> Consumers,
    /// As in [`Additions`].
    pub has_writers: bool,
    /// As in [`Additions`].
    pub raw_writers: Option<&'a Arc<OutputQueues>>,
}

/// Loads the calibration, opens the streams, creates the files and allocates the buffers. `note` gets remarks on the
/// images while the run goes on.
///
/// # Errors
/// One of these is not possible; the failure says which and what to do. Nothing is left behind, except files without
/// images if they had been created already.
pub fn prepare(config: &Config, ports: Ports, note: fn(&str)) -> Result<Prepared, Failure> {
    prepare_for(config, ports, note, None)
}

/// As [`prepare`], with writers on other hosts.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_for(
    config: &Config,
    ports: Ports,
    note: fn(&str),
    writers: Option<&WritersOfRun<'_>>,
) -> Result<Prepared, Failure> {
    let tell = move |news: &News| news.to_text().iter().for_each(|text| note(text));
    let spool = config.spool.as_ref().map(|settings| Spool::open(settings, Box::new(tell))).transpose()?;
    let plain = Additions {
        write: true,
        spool: spool.as_ref(),
        drawing: None,
        append: None,
        disk: None,
        note: &|| Box::new(note),
        has_writers: writers.is_some_and(|writers| writers.has_writers),
        raw_writers: writers.and_then(|writers| writers.raw_writers),
        consumers: writers.map_or(&Consumers::default, |writers| writers.consumers),
        wrap: &|source| source,
        sink: None,
    };
    let mut prepared = prepare_with(config, ports, &plain)?;
    prepared.opened.spool = spool;
    Ok(prepared)
}

/// As [`prepare`], for images that do not go into files: `sink` makes who gets them, of what files would say of them.
///
/// # Errors
/// As of [`prepare`].
pub fn prepare_to(
    config: &Config,
    ports: Ports,
    note: fn(&str),
    sink: &dyn Fn(&FileSpec) -> Box<dyn Sink>,
) -> Result<Prepared, Failure> {
    let elsewhere = Additions {
        write: false,
        spool: None,
        drawing: None,
        append: None,
        disk: None,
        note: &|| Box::new(note),
        has_writers: false,
        raw_writers: None,
        consumers: &Consumers::default,
        wrap: &|source| source,
        sink: Some(sink),
    };
    prepare_with(config, ports, &elsewhere)
}

/// As [`prepare`], with the changes of a service.
///
/// # Errors
/// As of [`prepare`]; also if the disk is too small or too slow.
pub fn prepare_with(config: &Config, ports: Ports, additions: &Additions<'_>) -> Result<Prepared, Failure> {
    let RunInputs { mut plan, mut loaded, mut notes } = run_inputs(config)?;
    notes.extend(placement::place(config, &mut plan));
    let (size, drawing) = ([plan.geometry.rows() as usize, plan.geometry.columns() as usize], additions.drawing);
    let mask = RunMask::of_run(&mut loaded, size, drawing, config.analysis.is_some());
    let mut consumers = (additions.consumers)();
    consumers.start.pedestals_taken_s = loaded.taken_s;
    let analysis = analysis(config, &plan, &loaded, drawing)?;
    let mut analysis_texts = Vec::new();
    if let Some(live) = analysis {
        plan.analysis = live.plan();
        notes.extend(live.notes);
        consumers.start.notes.extend(live.texts.iter().cloned());
        (consumers.analysis, analysis_texts) = (Some(live.analysis), live.texts);
    }
    if let Some(disk) = additions.disk {
        notes.extend(disk(&plan)?);
    }
    let behind = additions.append.map_or(Ok(None), |append| append.checked(config, &plan, &loaded))?;
    let plan = Arc::new(plan);
    let ring_bytes = backend::memory_bytes(config.receive, config.address, plan.streams(), config.receive_buffer_bytes);
    memory_limit::check(&plan, ring_bytes)?;
    // Everything from here on, up to the end: buffers of the kernel, the ring, the pool.
    let _preferred = placement::prefer_node(&plan, &mut notes);
    let Streams { receiving, streams, notes: of_receiving } = open(config, plan.streams(), ports)?;
    notes.extend(of_receiving);
    let addresses: Vec<SocketAddr> = streams.iter().map(|stream| stream.address).collect();
    let given = streams.iter().map(|stream| stream.buffer_bytes).min().unwrap_or(0);
    notes.extend(buffer_note(receiving.backend, config.receive_buffer_bytes, given));
    // Created before the HDF5 file: raw files without a frame are removed when a later step fails.
    let begin = clock::now();
    let raw = (config.keep_raw && additions.write).then(|| RawSpec::of(config, &plan, begin.clone()));
    let raw_copy = raw.clone().map(RawCopy::create).transpose()?;
    let raw_far = raw_far_of(config, &plan, additions, (&begin, &consumers.give_up))?;
    let mut spooled = None;
    let texts = [("received_through".into(), receiving.line())].into_iter().chain(analysis_texts).chain(mask.note().cloned());
    let spec = described(file_spec(config, &plan, &loaded), additions, texts, begin);
    let run_file = (additions.has_writers && additions.append.is_none()).then(|| run_file(&spec, &plan));
    consumers.start.run_file.clone_from(&run_file);
    let elsewhere = additions.sink.map(|make| make(&spec));
    let files = if let Some((files, _)) = behind {
        files.clone()
    } else if additions.write {
        if let (Some(spool), Some(settings)) = (additions.spool, &config.spool) {
            if additions.disk.is_none() {
                notes.extend(readiness::spooled(&spec.directory, settings, &Demand::of(config, &plan))?);
            }
            spooled = Some(spool.begin(&spec, Some(plan.image_bytes() as u64))?);
        }
        let writer = create(spec, config, spooled.as_ref())?;
        if additions.disk.is_none() && spooled.is_none() {
            notes.extend(space_note(&writer));
        }
        notes.extend(unknown::notes(&config.metadata));
        notes.extend(raw.and_then(|raw| raw_space_note(&raw, writer.space().free)));
        let files = RunFiles::new(writer);
        if let Some(run) = &spooled {
            files.shared().is_durable_to(Some(run.durable()));
        }
        files
    } else {
        RunFiles::default()
    };
    let sink = elsewhere.unwrap_or_else(|| sink_of(&files, spooled.as_ref(), behind.map(|(_, before)| *before)));
    let sources = streams.into_iter().map(|stream| (additions.wrap)(stream.source)).collect();
    let frame_sinks = sinks_of_frames(raw_copy.as_ref(), raw_far.as_ref());
    let parts = Parts { sources, sinks: (sink, frame_sinks), consumers, isa: Isa::detect() };
    let armed = arm_all(&plan, loaded, parts, (additions.note)()).inspect_err(|_| abandon(spooled.as_ref()))?;
    let host = super::host::counters(&addresses);
    let opened = Opened { host, files, run_file, spool: None, spooled, raw_copy, raw_far, addresses, receiving };
    Ok(Prepared { armed, plan, opened, mask, receive_buffer_bytes: given, notes })
}

/// Who writes the images into files: through the spool, or behind those of a run before.
fn sink_of(files: &RunFiles, spooled: Option<&Arc<SpoolRun>>, before: Option<Positions>) -> Box<dyn Sink> {
    match spooled {
        None => Box::new(files.sink_behind(before.unwrap_or_default())),
        Some(run) => Box::new(SpooledSink { inner: files.sink(), current: CurrentRun::of(Arc::clone(run)), closes: false }),
    }
}

/// Adds what is known only when the streams are open. How many images an appended run will have in the end is not
/// known.
fn described(
    mut spec: FileSpec,
    additions: &Additions<'_>,
    texts: impl Iterator<Item = (String, String)>,
    begin: String,
) -> FileSpec {
    spec.images_planned = spec.images_planned.filter(|_| additions.append.is_none());
    spec.conversion.extend(texts);
    spec.metadata.start_time = Some(begin);
    spec
}

/// What the files of the run say, for writers on other hosts. They get no snapshots of pedestals: these lie in memory
/// that the run uses again.
fn run_file(spec: &FileSpec, plan: &Plan) -> Arc<RunFileText> {
    let (description, pixel_mask) = (FileSpec { pedestal_snapshots: false, ..spec.clone() }.to_text(), spec.pixel_mask.clone());
    // A chunk has a head of a few bytes before its blocks.
    let packed_bytes_max = plan.packed_bytes_max() as u64 + 64;
    Arc::new(RunFileText { description, pixel_mask, tiles: plan.streams(), packed_bytes_max, ..RunFileText::default() })
}

/// Gives the raw frames of a run to writers on other hosts, if there are any. The far files say what those of a run of
/// the same detector with `dtype = "raw"` say.
fn raw_far_of(
    config: &Config,
    plan: &Plan,
    additions: &Additions<'_>,
    (begin, give_up): (&str, &Arc<AtomicBool>),
) -> Result<Option<RawFar>, Failure> {
    let Some(to) = additions.raw_writers.filter(|_| additions.append.is_none()) else { return Ok(None) };
    let mut words = konkordia_config::words::of(config, plan.frames)?;
    if !plan.processing.selection.is_plain() {
        // The angles are those of the images.
        words.metadata.experiment.goniometer = Goniometer::default();
    }
    let RunInputs { plan, loaded, .. } = run_inputs(&words)?;
    let mut spec = file_spec(&words, &plan, &loaded);
    spec.metadata.start_time = Some(begin.into());
    Ok(Some(RawFar::new(Arc::clone(to), run_file(&spec, &plan), &plan.geometry, Arc::clone(give_up))))
}

/// Who takes every frame of a run.
fn sinks_of_frames(copy: Option<&RawCopy>, far: Option<&RawFar>) -> Vec<Box<dyn FrameSink>> {
    let copy = copy.map(|copy| Box::new(copy.clone()) as Box<dyn FrameSink>);
    copy.into_iter().chain(far.map(|far| Box::new(far.clone()) as Box<dyn FrameSink>)).collect()
}

/// Prepares the analysis of the images, if the configuration asks for it.
fn analysis(config: &Config, plan: &Plan, loaded: &Loaded, drawing: Option<&Drawing>) -> Result<Option<live::Prepared>, Failure> {
    let goniometer = config.metadata.experiment.goniometer;
    let goniometer = angles::in_steps_of(goniometer, angles::step(&config.options.processing.selection));
    let columns = PacketFormat::of(plan.geometry.format()).description().columns;
    let known = metadata::of(&config.image_metadata, &goniometer, Some(columns)).map_err(|why| {
        let what = "images cannot have the values of [image_metadata]";
        Failure::new(Exit::Configuration, what, why, "correct [image_metadata] in the configuration")
    })?;
    let before = known.behind(&plan.result_kinds());
    let analysis = config.analysis.as_ref().map(|options| {
        let (metadata, pixel_mask) = (config.metadata.clone(), loaded.mask.clone());
        let valid = plan.pixel.valid_range(recorded::underload(plan), None);
        let facts_of = move |_, _| ImageFacts { metadata: metadata.clone(), pixel_mask: pixel_mask.clone(), valid };
        let size = [plan.geometry.rows() as usize, plan.geometry.columns() as usize];
        let drawn = drawing.map_or(&[][..], |drawing| &drawing.regions);
        live::prepare(options, (Some(size), Some(plan.pixel)), &before, drawn, Box::new(facts_of))
    });
    Ok(live::with_metadata(known, analysis.transpose()?))
}

/// Creates the files of a run: in the spool, if it has one.
fn create(mut spec: FileSpec, config: &Config, spooled: Option<&Arc<SpoolRun>>) -> Result<Writer, Failure> {
    let mut to_disk = ToDisk::Beside(config.sync_interval);
    if let Some(run) = spooled {
        to_disk = ToDisk::InSpool(config.sync_interval);
        run.directory().clone_into(&mut spec.directory);
    }
    let made = Writer::create(spec).and_then(|mut writer| {
        writer.set_to_disk(to_disk)?;
        Ok(writer)
    });
    Ok(made.inspect_err(|_| abandon(spooled))?)
}

fn abandon(spooled: Option<&Arc<SpoolRun>>) {
    if let Some(run) = spooled {
        run.abandon();
    }
}

/// What a run is made of besides its plan and calibration.
struct Parts {
    sources: Vec<Box<dyn Source>>,
    sinks: Sinks,
    consumers: Consumers,
    isa: Isa,
}

/// Arms a run with one source for each stream, one sink for its images, and sinks for its raw frames.
pub fn arm_with(
    plan: &Arc<Plan>,
    loaded: Loaded,
    sources: Vec<Box<dyn Source>>,
    sinks: Sinks,
    isa: Isa,
    note: Note,
) -> Result<Armed, Failure> {
    arm_all(plan, loaded, Parts { sources, sinks, consumers: Consumers::default(), isa }, note)
}

/// As [`arm_with`]. The sink is wrapped by the guard that compares image headers with the calibration, because it
/// receives the headers of every image.
fn arm_all(plan: &Arc<Plan>, loaded: Loaded, parts: Parts, note: Note) -> Result<Armed, Failure> {
    let Parts { sources, sinks: (sink, frame_sinks), consumers, isa } = parts;
    let sinks = vec![calibration::guard::wrap(sink, loaded.expected(), plan.streams(), note)];
    let parts = RunParts {
        plan: Arc::clone(plan),
        sources,
        constants: loaded.constants,
        sinks,
        consumers,
        frame_sinks,
        isa,
        workers: WorkerKind::of(plan),
    };
    arm(parts).map_err(|error| {
        if let ArmError::Gpu { why, fix } = error {
            return Failure::new(Exit::Io, "the run cannot be armed: its GPU cannot be used", why, fix);
        }
        let fix = "set a smaller [run] buffer_mib, or close other programs";
        Failure::new(Exit::Io, "the run cannot be armed", error.to_string(), fix)
    })
}

/// The offset that keeps counts from being negative, computed from the noise of the pixels.
fn auto_offset(loaded: &Loaded) -> Result<i32, Failure> {
    loaded.levels.and_then(|levels| levels.offset_against_negatives()).ok_or_else(|| {
        let why = "the calibration has no RMS noise of the pixels";
        let fix = "write negative_offset = ... in units of the pixels, or give a calibration with RMS noise";
        Failure::new(Exit::Configuration, "negative_offset = \"auto\" needs the noise of the pixels", why, fix)
    })
}

/// Opens the streams.
///
/// # Errors
/// An address or port cannot be used, for example because another program has it, or a right is missing.
pub fn open(config: &Config, streams: usize, ports: Ports) -> Result<Streams, Failure> {
    let port = |stream: usize| if ports == Ports::Free { 0 } else { config.port(stream) };
    if let Some(pages) = config.geometry.format().remote {
        let shared = SharedPort { end_byte: roce_frames::QUEUE_PAIR_END, first: pages.queue_pair };
        let address = SocketAddr::new(config.address, port(0));
        let opened = backend::open_shared(config.receive, shared, address, streams, config.receive_buffer_bytes)?;
        let has_headers = opened.receiving.backend != Backend::Socket;
        assert_eq!(pages.has_outer_headers, has_headers, "the decoder expects what the source lends");
        return Ok(opened);
    }
    let addresses: Vec<SocketAddr> = (0..streams).map(|stream| SocketAddr::new(config.address, port(stream))).collect();
    backend::open(config.receive, &addresses, config.receive_buffer_bytes)
}

/// The kernel silently limits the buffer of a socket to its maximum, and a ring to the memory that it has; this note
/// reports it.
fn buffer_note(backend: Backend, asked: usize, given: usize) -> Option<String> {
    if given >= asked {
        return None;
    }
    let (given, wanted) = (text::bytes(given as u64), text::bytes(asked as u64));
    Some(match backend {
        Backend::Socket => {
            let limit = kernel_receive_buffer_bytes_max().map_or("unknown".into(), |n| n.to_string());
            format!(
                "the kernel gave a receive buffer of {given} instead of {wanted} (net.core.rmem_max is {limit}); to raise it:\n  sudo sysctl -w net.core.rmem_max={asked}"
            )
        }
        Backend::Packet => {
            format!("the kernel gave rings of {given} instead of {wanted}: it has no more memory for them; end other programs")
        }
        Backend::Verbs => {
            format!("the card holds {given} of frames for each stream instead of {wanted}: its queues are no longer")
        }
        Backend::Xdp => format!("the rings have {given} instead of {wanted}: AF_XDP has no longer ones for this MTU"),
    })
}

/// Raw frames are not compressed, so their size is known before the run.
fn raw_space_note(raw: &RawSpec, free: u64) -> Option<String> {
    let needed = raw.bytes_planned()?;
    (needed > free).then(|| {
        format!("the disk has {} free; the raw frames alone take {} ([output] keep_raw)", text::bytes(free), text::bytes(needed))
    })
}

/// Real images compress well, so too little space for uncompressed images is only a remark.
pub fn space_note(writer: &Writer) -> Option<String> {
    let space = writer.space();
    readiness::space_note(space.free, space.images_uncompressed?)
}

/// The additional columns of the files of a run: those of a selection of frames, where there is one, and the results.
pub fn extra_columns(plan: &Plan, has_selection: bool) -> Vec<ExtraColumn> {
    let selection = ExtraColumn::of_selection().into_iter().filter(|_| has_selection);
    selection.chain(plan.result_kinds().into_iter().map(Into::into)).collect()
}

/// The description of the files to write. The start time of the run is left out.
pub fn file_spec(config: &Config, plan: &Plan, loaded: &Loaded) -> FileSpec {
    let format = plan.geometry.format();
    let tile = |(n, p): (usize, &konkordia_core::geometry::Placement)| {
        let (rows, columns) = plan.geometry.box_size(n);
        TileInfo {
            rows,
            columns,
            row: p.row,
            column: p.column,
            flip_rows: p.orientation.flip_rows,
            rotate_deg: p.orientation.rotate.deg(),
            packets: format.packets(),
        }
    };
    FileSpec {
        directory: config.directory.clone(),
        prefix: config.prefix.clone(),
        images_per_file: config.images_per_file,
        overwrite: config.overwrite,
        rows: plan.geometry.rows(),
        columns: plan.geometry.columns(),
        pixel: plan.pixel,
        raw_words: plan.recipe == Recipe::Raw,
        compression: plan.compression,
        layout: config.layout,
        images_planned: plan.images(),
        metadata: config.metadata.clone(),
        pixel_mask: loaded.mask.clone(),
        tiles: plan.geometry.placements().iter().enumerate().map(tile).collect(),
        tiles_per_module: if config.each_module { plan.streams() as u32 / config.modules.max(1) } else { 0 },
        unit: plan::unit(config).into(),
        calibration_hash: loaded.hash.clone(),
        software: konkordia_core::SOFTWARE.into(),
        configuration: config.text.clone(),
        conversion: recorded::conversion(config, plan),
        frame_columns: PacketFormat::of(format).description().columns.to_vec(),
        extra_columns: extra_columns(plan, !plan.processing.selection.is_plain()),
        series: None,
        scale: recorded::scale(config, plan),
        underload: recorded::underload(plan),
        saturation: None,
        xds: config.xds,
        part: config.part,
        parts: 0,
        pedestal_snapshots: plan.processing.tracking.is_some_and(|t| t.snapshot_images > 0),
    }
}
