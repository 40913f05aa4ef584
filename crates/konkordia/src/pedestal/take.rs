//! Brings dark frames from the detector or from files to the [`Collector`], through the same engine as data.

use super::args::{PedestalArgs, StageChoice};
use crate::console;
use crate::input::source::FileSource;
use crate::input::{Input, Options};
use crate::run::signals::Watch;
use crate::run::{arm, exit_of};
use crate::serve::hooks::{self, About};
use konkordia_calibration::dark::Taken;
use konkordia_calibration::dark::collect::Collector;
use konkordia_config::processing::{PixelOptions, Step};
use konkordia_config::service::{DetectorConfig, DetectorKindConfig, HookSettings};
use konkordia_config::{self, Config, plan};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{CommittedImage, Sink, SinkError, Source};
use konkordia_core::text;
use konkordia_core::tile::{DetectorKind, TileFormat};
use konkordia_kernels::isa::Isa;
use konkordia_sinks::clock;
use konkordia_sinks::hdf5::calibration::GainStage;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Default number of frames per stage from a detector.
const FRAMES_LIVE: u64 = 1000;

/// Hands the raw words of each image to the collector.
struct DarkSink {
    collector: Arc<Mutex<Option<Collector>>>,
    words: Vec<u16>,
    progress: console::Progress,
    planned: Option<u64>,
}

impl Sink for DarkSink {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        let mut collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(collector) = collector.as_mut()
            && !image.strips.is_empty()
        {
            self.words.clear();
            for strip in image.strips {
                self.words.extend(strip.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])));
            }
            collector.add(&self.words, image.tiles);
            let of = self.planned.map_or(String::new(), |n| format!(" of {}", text::count(n)));
            self.progress.update(|| format!("{}{of} dark frames", text::count(image.image + 1)));
        }
        Ok(())
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SinkError> {
        Ok(())
    }
}

/// True if the input is a configuration.
pub fn is_live(input: &[PathBuf]) -> bool {
    matches!(input, [path] if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")))
}

/// Takes the frames that the command line asks for, one gain stage after the other.
pub fn take(args: &PedestalArgs) -> Result<Vec<Taken>, Failure> {
    let mut watch = Watch::new()?;
    if is_live(&args.input) {
        return from_detector(args, load(&args.input[0])?, &mut watch);
    }
    if args.stage == StageChoice::All {
        let why = "each frame of a file goes to the stage of its gain bits";
        let fix = "leave --stage out, or give a configuration (.toml) to take the frames from the detector";
        return Err(Failure::new(Exit::Usage, "--stage all is for a detector", why, fix));
    }
    let wanted = args.stage.wanted().first().copied().flatten();
    Ok(vec![files(args, wanted, &mut watch)?])
}

/// The configuration of the only detector in this file.
fn load(path: &Path) -> Result<DetectorConfig, Failure> {
    let mut service = konkordia_config::service::load(path)?;
    if let (Some(only), true) = (service.detectors.pop(), service.detectors.is_empty()) {
        return Ok(only);
    }
    let what = format!("{} has several detectors", path.display());
    Err(Failure::new(Exit::Configuration, what, "", "give the configuration of one of them"))
}

/// Takes frames from a detector, one gain stage after the other.
pub fn from_detector(args: &PedestalArgs, config: DetectorConfig, watch: &mut Watch) -> Result<Vec<Taken>, Failure> {
    let detector = Detector::new(config)?;
    let taken = stages(args, &detector, watch);
    // The detector is not left with its gain forced, even after an error.
    let back = if args.stage == StageChoice::All { detector.force(GainStage::G0) } else { Ok(()) };
    taken.and_then(|taken| back.map(|()| taken))
}

/// Takes one stage after the other, until one of them fails or the user stops.
fn stages(args: &PedestalArgs, detector: &Detector, watch: &mut Watch) -> Result<Vec<Taken>, Failure> {
    let mut all = Vec::new();
    for wanted in args.stage.wanted() {
        if let Some(stage) = wanted.filter(|_| args.stage == StageChoice::All) {
            detector.force(stage)?;
        }
        let taken = live(args, detector, wanted, watch)?;
        let goes_on = taken.exit == Exit::Complete || taken.exit == Exit::Incomplete;
        all.push(taken);
        if !goes_on {
            break;
        }
    }
    Ok(all)
}

/// Frames that are taken per stage from a detector, skipped ones included.
pub fn frames_of_stage(args: &PedestalArgs) -> u64 {
    args.frames.unwrap_or(FRAMES_LIVE).saturating_add(args.skip)
}

/// A detector, and the programs that drive it.
struct Detector {
    name: String,
    config: Config,
    hooks: HookSettings,
}

impl Detector {
    fn new(config: DetectorConfig) -> Result<Self, Failure> {
        let DetectorConfig { name, hooks, kind: DetectorKindConfig::Udp(config), .. } = config else {
            let why = "such detectors count photons themselves";
            return Err(Failure::new(Exit::Configuration, "a stream detector has no pedestals", why, "name a JUNGFRAU"));
        };
        Ok(Self { name, config: as_words(Config::clone(&config))?, hooks })
    }

    fn about(&self) -> About {
        About { detector: self.name.clone(), images: self.config.images, ..About::default() }
    }

    /// Sets the gain with the program `on_stage` of the configuration. Without one, the user is told what to set.
    fn force(&self, stage: GainStage) -> Result<(), Failure> {
        let gainmode = gainmode(stage);
        if self.hooks.on_stage.is_empty() {
            console::to_stderr(&format!("set the detector to: gainmode {gainmode}"));
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
fn whole_modules(format: &TileFormat) -> Result<(), Failure> {
    if !format.is_partial() {
        return Ok(());
    }
    let why = format!("a calibration is of whole modules; here {} of 512 rows are read", format.module_rows());
    let fix =
        "take the dark frames with all rows: `rows 512` in the detector, no `rows` here; runs with fewer rows use their part";
    Err(Failure::new(Exit::Configuration, "dark frames of partial readout make no calibration", why, fix))
}

/// The configuration for dark frames: raw words, modules one below the other, no processing.
fn as_words(mut config: Config) -> Result<Config, Failure> {
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

fn live(args: &PedestalArgs, detector: &Detector, wanted: Option<GainStage>, watch: &mut Watch) -> Result<Taken, Failure> {
    let mut config = detector.config.clone();
    config.images = Some(frames_of_stage(args));
    config.first_frame = FirstFrame::Auto;
    let mut plan = plan::plan(&config);
    // Dark frames are used even if packets are missing.
    plan.missing = konkordia_core::ledger::MissingPolicy::Keep;
    let receivers = arm::bind(&config, plan.streams(), arm::Ports::Configured)?;
    let sources: Vec<Box<dyn Source>> = receivers.into_iter().map(|r| Box::new(r) as Box<dyn Source>).collect();
    let last = usize::from(config.first_port) + plan.streams() - 1;
    let place = format!("{}:{} to {last}", config.address, config.first_port);
    if !args.quiet {
        let of = wanted.map_or(String::new(), |stage| format!(" of {}", stage.name().to_uppercase()));
        console::to_stderr(&format!("armed: {place}; waiting for {} dark frames{of}", text::count(config.images.unwrap_or(0))));
    }
    let taken = clock::now();
    // The program that starts the detector may run until all frames are sent, so it gets a thread.
    let (hooks, about) = (detector.hooks.clone(), detector.about());
    let mut starts = None;
    let begin = || {
        let program = move || hooks::run("on_trigger", &hooks.on_trigger, hooks.timeout, &about);
        starts = (args.stage == StageChoice::All).then(|| std::thread::spawn(program));
    };
    let done = run(args, &config, plan, sources, (wanted, watch), begin);
    // After Ctrl-C nobody waits for a program that takes longer; its time limit ends it.
    let started = starts.filter(|_| !watch.interrupted()).map_or(Ok(Ok(())), std::thread::JoinHandle::join).unwrap_or(Ok(()));
    let done = started.and(done)?;
    let source = format!("detector, {place}");
    Ok(Taken { taken, source, serial: config.metadata.detector_serial.clone(), ..done })
}

fn files(args: &PedestalArgs, wanted: Option<GainStage>, watch: &mut Watch) -> Result<Taken, Failure> {
    let options = Options { format: args.format, modules: args.modules, ..Options::default() };
    let input = Input::open(&args.input, &options)?;
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
    config.images = Some(args.frames.map_or(all, |n| n.saturating_add(args.skip).min(all)));
    config.first_frame = FirstFrame::Number(info.first_frame);
    let mut plan = plan::plan(&config);
    plan.lossless_source = true;
    let sources: Vec<Box<dyn Source>> =
        (0..input.tiles()).map(|tile| Box::new(FileSource::new(input.open_tile(tile), info.format)) as Box<dyn Source>).collect();
    let mut done = run(args, &config, plan, sources, (wanted, watch), || ())?;
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

fn run(
    args: &PedestalArgs,
    config: &Config,
    plan: Plan,
    sources: Vec<Box<dyn Source>>,
    (wanted, watch): (Option<GainStage>, &mut Watch),
    begin: impl FnOnce(),
) -> Result<Taken, Failure> {
    let shared = Arc::new(Mutex::new(Some(Collector::new(config.modules as usize, wanted, args.skip))));
    let planned = plan.frames;
    let plan = Arc::new(plan);
    let sink = DarkSink {
        collector: Arc::clone(&shared),
        words: Vec::with_capacity(plan.geometry.pixels()),
        progress: console::Progress::new(args.quiet || args.json),
        planned,
    };
    let loaded = konkordia_calibration::for_config(config)?;
    let armed = arm::arm_with(&plan, loaded, sources, (Box::new(sink), Vec::new()), Isa::detect())?;
    watch.start(armed.control());
    watch.also_stop(armed.control());
    begin();
    let outcome = armed.run();
    let (exit, failure) = exit_of(&outcome, planned.is_some(), watch.interrupted());
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
