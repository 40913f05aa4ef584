//! Makes a configuration from the input files and the options: the text that a user would have written for the same
//! run. It is checked by the same rules and stored in the file.

use super::request::{Request, Setting};
use crate::run::angles;
use konkordia_config::geometry::{PRESETS, Preset};
use konkordia_config::{self, Config, overrides};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::geometry::DoublePixels;
use konkordia_core::tile::DetectorKind;
use konkordia_input::{InputInfo, OwnRun};
use konkordia_sinks::hdf5::{Metadata, Overwrite};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Stands for the path of the configuration in messages, where there is no such file.
const NO_FILE: &str = "(options of convert)";

/// The configuration of a conversion, and notes on what was assumed.
pub struct Settings {
    /// The configuration.
    pub config: Config,
    /// Note on where the modules were placed, if nothing says how they are mounted.
    pub placed: Option<String>,
    /// Note on rotating axes, if nothing says at which angles the images begin.
    pub turned: Option<String>,
}

/// The configuration of this conversion.
pub fn settings(request: &Request, info: &InputInfo) -> Result<Settings, Failure> {
    let mut root = start(request)?;
    for setting in request.set.iter().filter(|s| s.table == "detector") {
        table(&mut root, "detector")?.insert(setting.key.clone(), setting.value.clone());
    }
    detector(&mut root, info)?;
    let placed = place(table(&mut root, "detector")?, request, info)?;
    output(&mut root, request)?;
    pixels(&mut root, request)?;
    let run = table(&mut root, "run")?;
    // The input decides these. The timeouts of a receiver have no meaning for files.
    run.remove("images");
    run.remove("start_timeout_s");
    run.insert("first_frame".into(), Value::Integer(info.first_frame as i64));
    run.remove("stall_timeout_s");
    run.entry("buffer_mib").or_insert(Value::Integer(256));
    for setting in &request.set {
        table(&mut root, &setting.table)?.insert(setting.key.clone(), setting.value.clone());
    }
    demand_calibration(&root, info)?;
    let text = toml::to_string(&root).map_err(|e| bug(&e.to_string()))?;
    let file = request.config.as_deref().unwrap_or(Path::new(NO_FILE));
    let mut config = konkordia_config::parse(&text, file)?;
    fits(&config, info)?;
    if let Some(files) = &mut config.calibration {
        // Old data are converted with the dark frames of their time, not with newer ones.
        files.data_time = info.taken().cloned();
    }
    let mut turned = None;
    if let Some(own) = &info.own {
        (config.metadata, turned) = facts_of_run(&config, own, info.first_frame);
    }
    if request.overwrite {
        config.overwrite = Overwrite::Replace;
    }
    has_its_words(&config, info)?;
    Ok(Settings { config, placed, turned })
}

/// The configuration whose images are the words of this input, where the run of the input or the headers put its tiles;
/// of an EIGER, its counts. Nothing is written with it.
pub fn of_words(info: &InputInfo) -> Result<Config, Failure> {
    let mut root = Table::new();
    detector(&mut root, info)?;
    place(table(&mut root, "detector")?, &Request::default(), info)?;
    if info.format.kind == DetectorKind::Jungfrau {
        table(&mut root, "processing")?.insert("dtype".into(), Value::String("raw".into()));
    }
    root.insert("output".into(), nowhere());
    let text = toml::to_string(&root).map_err(|e| bug(&e.to_string()))?;
    let config = konkordia_config::parse(&text, Path::new("(words)"))?;
    fits(&config, info)?;
    Ok(config)
}

/// Keys of `[detector]` that say what its packets are.
const OF_PACKETS: [&str; 6] = ["type", "modules", "bits", "interfaces", "rows", "ten_giga"];

/// The configuration for frames whose words [`of_words`] has described in `words`, by what a request says of pixels,
/// and the keys that it sets. Nothing is written with it. `taken`: when the frames were taken.
pub fn of_frames(request: &Request, words: &str, taken: Option<&String>) -> Result<Config, Failure> {
    let mut root = start(request)?;
    let mut words: Table = words.parse().map_err(|error: toml::de::Error| bug(&error.to_string()))?;
    let known = words.remove("detector").and_then(|detector| detector.try_into::<Table>().ok()).unwrap_or_default();
    let own = table(&mut root, "detector")?;
    if let Some(name) = &request.geometry {
        GEOMETRY[..4].iter().for_each(|key| drop(own.remove(*key)));
        own.insert("geometry".into(), Value::String(name.clone()));
    }
    let placed_by_user = ["geometry", "tile"].iter().any(|key| own.contains_key(*key));
    for (key, value) in known {
        match own.get(&key) {
            Some(given) if OF_PACKETS.contains(&key.as_str()) && *given != value => {
                let what =
                    format!("the configuration is for another detector: [detector] {key} is {given}, the frames have {value}");
                return Err(usage(what, "", "give the configuration of this detector, or remove the line"));
            }
            Some(_) => {}
            None if placed_by_user && GEOMETRY.contains(&key.as_str()) => {}
            None => drop(own.insert(key, value)),
        }
    }
    root.remove("run");
    root.insert("output".into(), nowhere());
    pixels(&mut root, request)?;
    for setting in &request.set {
        table(&mut root, &setting.table)?.insert(setting.key.clone(), setting.value.clone());
    }
    let text = toml::to_string(&root).map_err(|e| bug(&e.to_string()))?;
    let mut config = konkordia_config::parse(&text, request.config.as_deref().unwrap_or(Path::new(NO_FILE)))?;
    if let Some(files) = &mut config.calibration {
        files.data_time = taken.cloned();
    }
    Ok(config)
}

/// The table `[output]` where nothing is written.
fn nowhere() -> Value {
    Table::from_iter([("directory", "."), ("prefix", "words")].map(|(k, v)| (k.into(), v.into()))).into()
}

/// What the run that wrote the words says of the measurement, for frames from the first one of the input on.
pub fn facts_of_words(config: &Config, info: &InputInfo) -> Metadata {
    let run = info.own.as_ref().map(|own| run_facts(config, own, info.first_frame).0).unwrap_or_default();
    Metadata { start_time: info.times().start.cloned(), ..run }
}

/// Metadata of the file. Values of the options and of the configuration come first, then those of the converted run,
/// then the assumptions for such a detector. Angles are those at which the first image of the conversion begins;
/// `first_frame` is the first frame of the input. Also returns a note if these angles are not known.
fn facts_of_run(config: &Config, own: &OwnRun, first_frame: u64) -> (Metadata, Option<String>) {
    let (run, turned) = run_facts(config, own, first_frame);
    (overrides::metadata_of_text(&config.text).over(run.over(config.metadata.clone())), turned)
}

/// Metadata of the converted run, and the note.
fn run_facts(config: &Config, own: &OwnRun, first_frame: u64) -> (Metadata, Option<String>) {
    let mut run = own.metadata.clone();
    let goniometer = run.experiment.goniometer;
    let before = config.options.processing.selection.frames_before_first_image();
    let since_first_image = before.and_then(|before| own.frames.since_first_image(first_frame.saturating_add(before)));
    run.experiment.goniometer = match since_first_image {
        Some(frames) => angles::later(goniometer, frames),
        None => angles::in_steps_of(goniometer, None),
    };
    let lost = since_first_image.is_none() && run.experiment.goniometer != goniometer;
    let turned = lost.then(|| {
        "the number of the frame with which the first image begins is unknown: the angles of axes that turned are left out; give them with --set goniometer.omega_start_deg=... and the like".into()
    });
    (run, turned)
}

/// Refuses a configuration that needs the words of double pixels if the input does not have them.
fn has_its_words(config: &Config, info: &InputInfo) -> Result<(), Failure> {
    if info.own.as_ref().is_none_or(|own| own.has_double_pixels) || config.geometry.double_pixels() == DoublePixels::Mask {
        return Ok(());
    }
    let why = "the run masked them (double_pixels = \"mask\"), so their words are not in its file";
    Err(usage("the input has no double pixels", why, "leave double_pixels out, or write double_pixels = \"mask\""))
}

/// Folders that the conversion will write to, as far as the options and the configuration name them. `settings`
/// reports what is wrong with these.
pub fn folders(request: &Request) -> Vec<PathBuf> {
    let mut root = start(request).unwrap_or_default();
    let _ = output(&mut root, request);
    for setting in &request.set {
        let _ = table(&mut root, &setting.table).map(|table| table.insert(setting.key.clone(), setting.value.clone()));
    }
    let file = request.config.as_deref().unwrap_or(Path::new(NO_FILE));
    let folder = |name: &str| Some(konkordia_config::model::resolve(file, root.get(name)?.get("directory")?.as_str()?));
    ["output", "travel"].into_iter().filter_map(folder).collect()
}

fn bug(why: &str) -> Failure {
    Failure::new(
        Exit::Bug,
        "the configuration cannot be written as text",
        why,
        "please report this with the command that you gave",
    )
}

fn usage(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Failure {
    Failure::new(Exit::Configuration, what, why, fix)
}

/// The tables of `--config`; empty without it.
fn start(request: &Request) -> Result<Table, Failure> {
    let Some(path) = &request.config else { return Ok(Table::new()) };
    let text = std::fs::read_to_string(path).map_err(|e| Failure::io("cannot read the configuration", path, &e))?;
    match text.parse() {
        Ok(table) => Ok(table),
        // The loader of configurations gives a better message, with the line.
        Err(error) => match konkordia_config::load(path) {
            Err(failure) => Err(failure),
            Ok(_) => Err(bug(&error.to_string())),
        },
    }
}

fn table<'a>(root: &'a mut Table, name: &str) -> Result<&'a mut Table, Failure> {
    let entry = root.entry(name).or_insert_with(|| Value::Table(Table::new()));
    let found = entry.as_table_mut();
    found
        .ok_or_else(|| usage(format!("'{name}' is not a table of the configuration"), "it is a value", format!("write [{name}]")))
}

/// Enters what the files say about the detector. A configuration that disagrees is refused.
fn detector(root: &mut Table, info: &InputInfo) -> Result<(), Failure> {
    let detector = table(root, "detector")?;
    let (format, eiger) = (&info.format, info.format.kind == DetectorKind::Eiger);
    let mut facts = vec![("type", Value::String(format.kind.name().into())), ("modules", Value::Integer(info.modules.into()))];
    facts.push(if eiger {
        ("bits", Value::Integer(format.bits.into()))
    } else {
        ("interfaces", Value::Integer(info.interfaces.into()))
    });
    let rows = if eiger { format.rows } else { format.module_rows() };
    // A default value is left out, unless the configuration names the key.
    if format.is_partial() || detector.contains_key("rows") {
        facts.push(("rows", Value::Integer(rows.into())));
    }
    if eiger && (format.is_one_gigabit() || detector.contains_key("ten_giga")) {
        facts.push(("ten_giga", Value::Boolean(!format.is_one_gigabit())));
    }
    for (key, value) in facts {
        if let Some(configured) = detector.get(key).filter(|configured| **configured != value) {
            let what =
                format!("the configuration is for another detector: [detector] {key} is {configured}, the input has {value}");
            return Err(usage(what, info.kind.clone(), "give the configuration of this detector, or remove the line"));
        }
        detector.insert(key.into(), value);
    }
    Ok(())
}

/// Keys that place the tiles.
const GEOMETRY: [&str; 5] = ["geometry", "tile", "image_rows", "image_columns", "double_pixels"];

/// True if `--config` or `--set` places each tile. Tiles are then in the order of the ports.
pub fn places_each_tile(request: &Request) -> Result<bool, Failure> {
    let set = |setting: &Setting| setting.table == "detector" && setting.key == "tile";
    let detector = start(request)?.remove("detector");
    let is_placed = detector.as_ref().and_then(Value::as_table).is_some_and(|detector| detector.contains_key("tile"));
    Ok(request.geometry.is_none() && (is_placed || request.set.iter().any(set)))
}

/// Enters where tiles lie: as the command line or the configuration says, otherwise as in the run of the input,
/// otherwise as the files say. Returns a note if nothing says how the modules are mounted.
fn place(detector: &mut Table, request: &Request, info: &InputInfo) -> Result<Option<String>, Failure> {
    if let Some(name) = &request.geometry {
        GEOMETRY[..4].iter().for_each(|key| drop(detector.remove(*key)));
        detector.insert("geometry".into(), Value::String(name.clone()));
    }
    let is_placed = |detector: &Table| ["geometry", "tile"].iter().any(|key| detector.contains_key(*key));
    let placed_by_user = is_placed(detector);
    for (key, value) in info.detector.iter().flatten() {
        let is_of_user = detector.contains_key(key) || placed_by_user && GEOMETRY.contains(&key.as_str());
        if !is_of_user {
            detector.insert(key.clone(), value.clone());
        }
    }
    let energy = info.own.as_ref().and_then(|own| own.metadata.energy_kev);
    if let Some(energy) = energy.filter(|_| !detector.contains_key("energy_kev")) {
        detector.insert("energy_kev".into(), Value::Float(energy));
    }
    if is_placed(detector) || info.detector.is_some() {
        return Ok(None);
    }
    let Some(places) = &info.placements else {
        let how = format!("the {} modules were placed one below the other, without gaps", info.modules);
        return Ok((info.modules > 1).then(|| how + &how_to_place(info)));
    };
    let tile = |(row, column): &(u32, u32)| {
        let mut tile = Table::new();
        tile.insert("row".into(), Value::Integer((*row).into()));
        tile.insert("column".into(), Value::Integer((*column).into()));
        Value::Table(tile)
    };
    detector.insert("tile".into(), Value::Array(places.iter().map(tile).collect()));
    let how = if info.format.kind == DetectorKind::Eiger {
        "the ports were placed side by side as their headers say, without gaps and none of them rotated"
    } else {
        "the modules were placed side by side as the master says, without gaps"
    };
    Ok(Some(how.to_owned() + &how_to_place(info)))
}

/// What the user can do if nothing says how the modules are mounted.
fn how_to_place(info: &InputInfo) -> String {
    let fits = |p: &&Preset| p.kind == info.format.kind && p.modules() == info.modules;
    let example = match PRESETS.iter().find(fits) {
        Some(preset) => format!("--geometry {}", preset.name),
        None => "--config with [[detector.tile]]".into(),
    };
    format!(
        "; the files do not say how the modules of the detector are mounted, so pixel positions in the image are not the real ones: give its geometry, for example {example}"
    )
}

fn absolute(path: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(path).map_err(|e| Failure::io("cannot find", path, &e))?;
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| usage(format!("{} is not UTF-8", path.display()), "a path in the configuration is text", "rename it"))
}

/// Folder and prefix from OUT; `run_master.h5` and `run` are the same.
fn output(root: &mut Table, request: &Request) -> Result<(), Failure> {
    let out = &request.output;
    let name = out.file_name().and_then(|n| n.to_str()).filter(|_| !out.is_dir());
    let Some(name) = name else {
        let fix = format!("add a name: -o {}", out.join("run01").display());
        return Err(usage(format!("{} is a folder", out.display()), "the first part of the file names is missing", fix));
    };
    let prefix = name.strip_suffix("_master.h5").unwrap_or(name);
    let folder = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = absolute(folder)?;
    let output = table(root, "output")?;
    output.insert("directory".into(), Value::String(directory));
    output.insert("prefix".into(), Value::String(prefix.into()));
    // Not part of the text, which must be the same when the conversion is resumed.
    output.remove("overwrite");
    // The input is raw already.
    // A conversion waits for its disk, so it needs no spool.
    for key in ["keep_raw", "spool_directory", "spool_gib", "spool_codec"] {
        output.remove(key);
    }
    let given = [
        ("compression", request.compression.clone().map(Value::String)),
        ("compression_level", request.compression_level.map(|n| Value::Integer(n.into()))),
        ("images_per_file", request.images_per_file.map(|n| Value::Integer(n.into()))),
    ];
    for (key, value) in given {
        output.extend(value.map(|v| (key.to_string(), v)));
    }
    if request.compression.is_some() && request.compression_level.is_none() {
        // A level in the configuration belongs to the compression named there.
        output.remove("compression_level");
    }
    Ok(())
}

fn pixels(root: &mut Table, request: &Request) -> Result<(), Failure> {
    if let Some(energy) = request.energy_kev {
        table(root, "detector")?.insert("energy_kev".into(), Value::Float(energy));
    }
    let processing = table(root, "processing")?;
    processing.extend(request.dtype.clone().map(|t| ("dtype".to_string(), Value::String(t))));
    if let Some(path) = &request.calibration {
        root.insert("calibration".into(), Value::Table(calibration(path)?));
    }
    Ok(())
}

/// The table `[calibration]` for a calibration file or a folder of planes.
fn calibration(path: &PathBuf) -> Result<Table, Failure> {
    std::fs::metadata(path).map_err(|e| {
        Failure::new(Exit::Configuration, format!("cannot read the calibration {}", path.display()), reason(&e), "check the path")
    })?;
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| drop(table.insert(key.into(), value));
    if !path.is_dir() {
        put("kind", Value::String("konkordia".into()));
        put("file", Value::String(absolute(path)?));
        return Ok(table);
    }
    let file = |name: &str| absolute(&path.join(name)).map(Value::String);
    let planes = (0..3).map(|g| file(&format!("pedestal_g{g}.f32"))).collect::<Result<_, _>>()?;
    put("kind", Value::String("files".into()));
    put("pedestal", Value::Array(planes));
    put("gain", file("gain_adu_per_kev.f32")?);
    Ok(table)
}

/// Refuses a conversion to photons without calibration or photon energy, and names the options that are missing.
fn demand_calibration(root: &Table, info: &InputInfo) -> Result<(), Failure> {
    let text = |table: &str, key: &str| root.get(table)?.get(key)?.as_str();
    if info.format.kind == DetectorKind::Eiger || text("processing", "dtype") == Some("raw") {
        return Ok(());
    }
    if text("calibration", "kind").unwrap_or("none") == "none" {
        let why = "photons = (ADC - pedestal) / (gain * energy) needs pedestals and gains";
        let fix = "give --calibration, for example the file that `konkordia pedestal` made, or keep the words with --dtype raw";
        return Err(usage("photons without calibration", why, fix));
    }
    if root.get("detector").and_then(|d| d.get("energy_kev")).is_none() && text("processing", "unit") != Some("kev") {
        let why = "photons = (ADC - pedestal) / (gain * energy)";
        return Err(usage("photons without the energy of a photon", why, "give --energy-kev, for example --energy-kev 12.4"));
    }
    Ok(())
}

fn fits(config: &Config, info: &InputInfo) -> Result<(), Failure> {
    let streams = config.geometry.placements().len();
    let tiles = info.modules * info.interfaces;
    if *config.geometry.format() == info.format && streams == tiles as usize {
        return Ok(());
    }
    let why = format!(
        "the configuration makes {streams} streams, the input has {tiles} tiles of {} x {} pixels",
        info.format.rows, info.format.columns
    );
    Err(usage("the configuration does not fit the input", why, "correct [detector] type, modules and interfaces"))
}
