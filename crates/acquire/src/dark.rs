//! Takes dark frames through the same engine as data, from a detector, from files, or from any other sources of tiles.

use crate::control_driver::{Action, ControlDriver, Order};
use crate::control_order::of_packets;
use crate::hooks::{self, About};
use crate::run::{arm, exit_of};
use crate::stopper::Stopper;
use konkordia_calibration::dark::Taken;
use konkordia_calibration::dark::collect::Collector;
use konkordia_config::control::HookSettings;
use konkordia_config::processing::{PixelOptions, Step};
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_config::{self, Config, plan};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::CommittedImage;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::text;
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_input::{Input, Options};
use konkordia_kernels::isa::Isa;
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::calibration::GainStage;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use utoipa::ToSchema;

/// Default number of frames per stage from a detector.
const FRAMES_LIVE: u64 = 1000;

/// Gain stage of dark frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageChoice {
    /// As the headers and the gain bits of each frame say
    Auto,
    /// Dark frames of the normal mode
    G0,
    /// Gain forced to stage 1
    G1,
    /// Gain forced to stage 2
    G2,
    /// Dark frames of the high gain mode
    Hg0,
    /// From a detector: G0, then G1, then G2, one after the other
    All,
}

impl StageChoice {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Auto, Self::G0, Self::G1, Self::G2, Self::Hg0, Self::All];

    /// Name on the command line and in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::G0 => "g0",
            Self::G1 => "g1",
            Self::G2 => "g2",
            Self::Hg0 => "hg0",
            Self::All => "all",
        }
    }

    /// The stages whose frames are taken one after the other; `None` = any stage.
    pub fn wanted(self) -> Vec<Option<GainStage>> {
        match self {
            Self::Auto => vec![None],
            Self::G0 => vec![Some(GainStage::G0)],
            Self::G1 => vec![Some(GainStage::G1)],
            Self::G2 => vec![Some(GainStage::G2)],
            Self::Hg0 => vec![Some(GainStage::Hg0)],
            Self::All => [GainStage::G0, GainStage::G1, GainStage::G2].map(Some).into(),
        }
    }
}

/// What a dark run is to take.
#[derive(Clone, Copy, Debug)]
pub struct DarkOptions {
    /// Gain stage of the frames; frames of another stage are refused.
    pub stage: StageChoice,
    /// Frames per stage, all storage cells together.
    pub frames: Option<u64>,
    /// Frames at the beginning that are not used.
    pub skip: u64,
}

/// Called after each frame with the number of frames so far and of those planned.
pub type Progress = Arc<dyn Fn(u64, Option<u64>) + Send + Sync>;

/// Gets the messages of a dark run while it goes on.
pub struct Listener<'a> {
    /// What the user has to do.
    pub ask: &'a dyn Fn(&str),
    /// What happens.
    pub note: &'a dyn Fn(&str),
    /// How far it is.
    pub progress: Progress,
}

/// Hands the raw words of each image to the collector.
struct DarkSink {
    collector: Arc<Mutex<Option<Collector>>>,
    words: Vec<u16>,
    progress: Progress,
    planned: Option<u64>,
}

impl Sink for DarkSink {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        let mut collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(collector), Some(packets)) = (collector.as_mut(), &image.packets)
            && image.status.has_pixels()
        {
            self.words.clear();
            self.words.extend(image.chunk().chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])));
            collector.add(&self.words, &packets.tiles);
            (self.progress)(image.number + 1, self.planned);
        }
        Ok(())
    }
}

/// Takes frames from a detector, one gain stage after the other. With its configuration come the number of the run and
/// its driver.
///
/// # Errors
/// It is no JUNGFRAU that is read out whole, its driver or a program of its configuration failed, or the run did.
pub fn from_detector(
    options: &DarkOptions,
    detector: (DetectorConfig, u64, Option<Arc<ControlDriver>>),
    stopper: &Stopper,
    listener: &Listener<'_>,
) -> Result<Vec<Taken>, Failure> {
    let detector = Detector::new(detector)?;
    let taken = stages(options, &detector, stopper, listener);
    // The detector is not left with its gain forced, even after an error.
    let back = match &detector.control {
        Some(_) => detector.drive(Action::Stop, detector.order(None)),
        None if options.stage == StageChoice::All => detector.force(GainStage::G0, listener),
        None => Ok(()),
    };
    taken.and_then(|taken| back.map(|()| taken))
}

/// Takes one stage after the other, until one of them fails or the user stops.
fn stages(options: &DarkOptions, detector: &Detector, stopper: &Stopper, listener: &Listener<'_>) -> Result<Vec<Taken>, Failure> {
    let mut all = Vec::new();
    for wanted in options.stage.wanted() {
        if let Some(stage) = wanted.filter(|_| options.stage == StageChoice::All) {
            detector.force(stage, listener)?;
        }
        detector.drive(Action::Pedestal, detector.order(Some((wanted, frames_of_stage(options)))))?;
        let taken = live(options, detector, wanted, stopper, listener)?;
        let goes_on = taken.exit == Exit::Complete || taken.exit == Exit::Incomplete;
        all.push(taken);
        if !goes_on {
            break;
        }
    }
    Ok(all)
}

/// Frames that are taken per stage from a detector, skipped ones included.
pub fn frames_of_stage(options: &DarkOptions) -> u64 {
    options.frames.unwrap_or(FRAMES_LIVE).saturating_add(options.skip)
}

/// A detector, and what drives it.
struct Detector {
    name: String,
    run: u64,
    config: Config,
    hooks: HookSettings,
    control: Option<Arc<ControlDriver>>,
}

impl Detector {
    fn new((config, run, control): (DetectorConfig, u64, Option<Arc<ControlDriver>>)) -> Result<Self, Failure> {
        let DetectorConfig { name, hooks, kind: DetectorKindConfig::Udp(config), .. } = config else {
            let why = "such detectors count photons themselves";
            return Err(Failure::new(Exit::Configuration, "a stream detector has no pedestals", why, "name a JUNGFRAU"));
        };
        Ok(Self { name, run, config: as_words(Config::clone(&config))?, hooks, control })
    }

    fn about(&self) -> About {
        About { detector: self.name.clone(), run: self.run, images: self.config.images, ..About::default() }
    }

    /// What the driver gets to know. A stage comes with the number of its frames.
    fn order(&self, stage: Option<(Option<GainStage>, u64)>) -> Order {
        let mut order = of_packets(&self.config);
        if let Some((stage, frames)) = stage {
            order.insert("frames".into(), frames.into());
            order.insert("stage".into(), stage.map_or("auto", GainStage::name).into());
            order.insert("gainmode".into(), stage.map_or("dynamic", gainmode).into());
        }
        order
    }

    /// Calls the driver, if there is one.
    fn drive(&self, action: Action, order: Order) -> Result<(), Failure> {
        let Some(control) = &self.control else { return Ok(()) };
        control.call(action, order, self.about()).map(drop)
    }

    /// Sets the gain with the program `on_stage` of the configuration. Without one, the user is asked to set it.
    fn force(&self, stage: GainStage, listener: &Listener<'_>) -> Result<(), Failure> {
        let gainmode = gainmode(stage);
        if self.hooks.on_stage.is_empty() && self.control.is_some() {
            return Ok(());
        }
        if self.hooks.on_stage.is_empty() {
            (listener.ask)(&format!("set the detector to: gainmode {gainmode}"));
            return Ok(());
        }
        let more = [("KONKORDIA_STAGE", stage.name()), ("KONKORDIA_GAINMODE", gainmode)];
        hooks::run_with("on_stage", &self.hooks.on_stage, self.hooks.timeout, &self.about(), &more)
    }
}

/// Name of the setting in the SLS detector package.
const fn gainmode(stage: GainStage) -> &'static str {
    match stage {
        GainStage::G1 => "forceswitchg1",
        GainStage::G2 => "forceswitchg2",
        GainStage::G0 | GainStage::Hg0 => "dynamic",
    }
}

/// Refuses partial readout, because a calibration is of whole modules.
pub fn whole_modules(format: &TileFormat) -> Result<(), Failure> {
    if !format.is_partial() {
        return Ok(());
    }
    let why = format!("a calibration is of whole modules; here {} of 512 rows are read", format.module_rows());
    let fix =
        "take the dark frames with all rows: `rows 512` in the detector, no `rows` here; runs with fewer rows use their part";
    Err(Failure::new(Exit::Configuration, "dark frames of partial readout make no calibration", why, fix))
}

/// The configuration for dark frames: raw words, modules one below the other, no processing.
pub fn as_words(mut config: Config) -> Result<Config, Failure> {
    let (format, streams) = (*config.geometry.format(), config.geometry.placements().len() as u32);
    if format.kind != DetectorKind::Jungfrau {
        let why = format!("the configuration is of an {}, which counts photons itself", format.kind.name());
        return Err(Failure::new(
            Exit::Configuration,
            "only a JUNGFRAU has pedestals",
            why,
            "give the configuration of a JUNGFRAU",
        ));
    }
    whole_modules(&format)?;
    config.geometry = ImageGeometry::stacked(format, streams)
        .map_err(|e| Failure::new(Exit::Configuration, "impossible geometry", e.to_string(), "use fewer modules"))?;
    (config.recipe, config.pixel, config.compression) = (Recipe::Raw, PixelType::Uint16, Compression::None);
    config.options =
        PixelOptions { processing: Processing::default(), step: Step::Photons(1.0), gate_rms: 4.0, negative_offset_auto: false };
    config.calibration = None;
    config.keep_raw = false;
    Ok(config)
}

/// Takes frames from files of one acquisition.
///
/// # Errors
/// The files cannot be read, they are not of a JUNGFRAU that was read out whole, or the run failed.
pub fn from_files(
    paths: &[PathBuf],
    input: &Options,
    options: &DarkOptions,
    stopper: &Stopper,
    progress: Progress,
) -> Result<Taken, Failure> {
    let input = Input::open(paths, input)?;
    let info = input.info();
    if info.format.kind != DetectorKind::Jungfrau {
        let why = format!("the files are of an {}, which counts photons itself", info.format.kind.name());
        return Err(Failure::new(Exit::Configuration, "only a JUNGFRAU has pedestals", why, "give dark frames of a JUNGFRAU"));
    }
    whole_modules(&info.format)?;
    let text = format!(
        "[detector]\ntype = \"jungfrau\"\nmodules = {}\ninterfaces = {}\n[processing]\ndtype = \"raw\"\n[output]\ndirectory = \".\"\nprefix = \"dark\"\n",
        info.modules, info.interfaces
    );
    let config = Config::parse(&text, Path::new("dark.toml")).map_err(|d| {
        Failure::new(Exit::Configuration, "these files cannot be read as one detector", d.to_string(), "check the files")
    })?;
    let mut config = as_words(config)?;
    let all = info.last_frame - info.first_frame + 1;
    config.images = Some(options.frames.map_or(all, |n| n.saturating_add(options.skip).min(all)));
    config.first_frame = FirstFrame::Number(info.first_frame);
    let mut plan = plan::plan(&config);
    plan.lossless_source = true;
    plan.fills_slots = true;
    let wanted = options.stage.wanted().first().copied().flatten();
    let words = Words { wanted, skip: options.skip, progress };
    let mut done = take(&config, plan, input.sources(info.first_frame), words, stopper, || ())?;
    if !info.has_module_ids() {
        done.collector.module_ids.fill(None);
    }
    let names: Vec<String> = info.files.iter().filter_map(|f| Some(f.file_name()?.to_string_lossy().into_owned())).collect();
    let source = format!("{}: {}", info.kind, names.join(" "));
    done.notes.splice(0..0, info.notes.iter().cloned());
    if info.incomplete && done.exit == Exit::Complete {
        done.exit = Exit::Incomplete;
    }
    Ok(Taken { taken: info.taken().cloned().unwrap_or_default(), source, ..done })
}

fn live(
    options: &DarkOptions,
    detector: &Detector,
    wanted: Option<GainStage>,
    stopper: &Stopper,
    listener: &Listener<'_>,
) -> Result<Taken, Failure> {
    let mut config = detector.config.clone();
    config.images = Some(frames_of_stage(options));
    config.first_frame = FirstFrame::Auto;
    let mut plan = plan::plan(&config);
    // Dark frames are used even if packets are missing.
    plan.missing = konkordia_core::ledger::MissingPolicy::Keep;
    let opened = arm::open(&config, plan.streams(), arm::Ports::Configured)?;
    let sources: Vec<Box<dyn Source>> = opened.streams.into_iter().map(|stream| stream.source).collect();
    let place = config.listens_at();
    let of = wanted.map_or(String::new(), |stage| format!(" of {}", stage.name().to_uppercase()));
    (listener.note)(&format!("armed: {place}; waiting for {} dark frames{of}", text::count(config.images.unwrap_or(0))));
    let taken = clock::now();
    let starting = Starting::default();
    let order = detector.order(Some((wanted, frames_of_stage(options))));
    let begin = || starting.begin(options, detector, order, stopper);
    let words = Words { wanted, skip: options.skip, progress: Arc::clone(&listener.progress) };
    let done = take(&config, plan, sources, words, stopper, begin);
    let done = starting.end(stopper).and(done)?;
    let source = format!("detector, {place}");
    Ok(Taken { taken, source, serial: config.metadata.detector_serial.clone(), ..done })
}

/// The start of the detector for one stage. What starts it may run until all frames are sent, so it gets a thread.
#[derive(Default)]
struct Starting {
    thread: Mutex<Option<JoinHandle<()>>>,
    failed: Arc<Mutex<Option<Failure>>>,
}

impl Starting {
    fn begin(&self, options: &DarkOptions, detector: &Detector, order: Order, stopper: &Stopper) {
        if options.stage != StageChoice::All && detector.control.is_none() {
            return;
        }
        let (hooks, about, control) = (detector.hooks.clone(), detector.about(), detector.control.clone());
        let (failed, stopper) = (Arc::clone(&self.failed), stopper.clone());
        let is_all = options.stage == StageChoice::All;
        let start = move || {
            let hooked = if is_all { hooks::run("on_trigger", &hooks.on_trigger, hooks.timeout, &about) } else { Ok(()) };
            let started =
                hooked.and_then(|()| control.map_or(Ok(()), |control| control.call(Action::Start, order, about).map(drop)));
            if let Err(failure) = started {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                // No frames will come.
                stopper.stop();
            }
        };
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::spawn(start));
    }

    /// Waits for the program, and says why it failed. After a stop nobody waits: its time limit ends it.
    fn end(self, stopper: &Stopper) -> Result<(), Failure> {
        let thread = self.thread.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.filter(|_| !stopper.is_stopped()) {
            let _ = thread.join();
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

/// Which frames a dark run uses.
pub struct Words {
    /// Only those of this stage; `None` = of any.
    pub wanted: Option<GainStage>,
    /// Frames at the beginning that are not used.
    pub skip: u64,
    /// Called after each frame.
    pub progress: Progress,
}

/// Runs `plan` from arm to its end and adds up the words of its frames; `begin` is called when it is armed. The caller
/// fills in when and where the frames were taken.
///
/// # Errors
/// The run cannot be armed, or failed.
pub fn take(
    config: &Config,
    plan: Plan,
    sources: Vec<Box<dyn Source>>,
    words: Words,
    stopper: &Stopper,
    begin: impl FnOnce(),
) -> Result<Taken, Failure> {
    let shared = Arc::new(Mutex::new(Some(Collector::new(config.modules as usize, words.wanted, words.skip))));
    let planned = plan.frames;
    let plan = Arc::new(plan);
    let sink = DarkSink {
        collector: Arc::clone(&shared),
        words: Vec::with_capacity(plan.geometry.pixels()),
        progress: words.progress,
        planned,
    };
    let loaded = konkordia_calibration::for_config(config)?;
    let armed = arm::arm_with(&plan, loaded, sources, (Box::new(sink), Vec::new()), Isa::detect(), Box::new(|_| ()))?;
    stopper.follow(armed.control());
    begin();
    let outcome = armed.run();
    let (exit, failure) = exit_of(&outcome, planned.is_some(), stopper.is_stopped());
    if let Some(failure) = failure {
        return Err(failure);
    }
    let images = &outcome.ledger.images;
    let mut notes = Vec::new();
    let incomplete_frames = images.partial + images.lost;
    if incomplete_frames > 0 {
        notes.push(format!("{} of {} frames have missing packets", text::count(incomplete_frames), text::count(images.expected)));
    }
    let collector = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(Taken {
        collector: collector.unwrap_or_else(|| Collector::new(config.modules as usize, None, 0)),
        taken: String::new(),
        source: String::new(),
        serial: None,
        incomplete_frames,
        notes,
        exit,
    })
}
