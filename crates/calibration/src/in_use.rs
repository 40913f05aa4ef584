//! What the calibration that the runs of a detector use is like, for people: numbers of each module, and maps in the
//! geometry of the images. Read [`InUse::report`] and [`InUse::map`] first.
//!
//! A file of `konkordia pedestal` is read in parts, one module at a time. What was made of it last, one report and one
//! map, is kept until [`InUse::forget`].

mod not_shown;
mod open;

pub use not_shown::NotShown;

use crate::calibration::arrange;
use crate::compare::{Change, change};
use crate::dark::judge::{ModuleRow, rows};
use crate::load::{oldest, refusal};
use crate::reasons::{median, usable_gain};
use konkordia_config::model::{CalibrationFiles, CalibrationKind, Config};
use konkordia_core::failure::Failure;
use konkordia_core::percentile::percentiles;
use konkordia_core::pixel::Pixel;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, MODULE_PIXELS, StagePedestal, previous_path};
use not_shown::missing;
use open::Opened;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A calibration, module by module.
pub struct Report {
    /// All but the planes.
    pub facts: CalibrationFile,
    /// Its hash; empty for planes of other programs.
    pub hash: String,
    /// Gain stages that runs use, in the order of the gain bits.
    pub stages: [GainStage; 3],
    /// True if the planes are for all storage cells; the cell of each row is then 0.
    pub is_for_all_cells: bool,
    /// By cell, stage and module.
    pub rows: Vec<Row>,
    /// When the oldest pedestals of the first stage were taken, as text and in seconds since 1970.
    pub taken: Option<(String, u64)>,
    /// Why a run would refuse it.
    pub refusal: Option<Failure>,
    /// The calibration before this one.
    pub previous: Option<Previous>,
}

/// One module in one cell and stage.
pub struct Row {
    /// Its pedestals, masked pixels and verdict.
    pub judged: ModuleRow,
    /// Median gain in ADU/keV.
    pub gain_adu_per_kev: Option<f32>,
    /// How it differs from the previous calibration.
    pub change: Option<Change>,
}

/// The calibration before the one that is used.
pub struct Previous {
    /// Its file.
    pub path: PathBuf,
    /// When the oldest of its pedestals of the first stage were taken.
    pub taken: Option<(String, u64)>,
    /// Why nothing can be compared with it.
    pub failure: Option<Failure>,
}

/// What a map shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Mean in ADU.
    Pedestal,
    /// Standard deviation in ADU.
    Noise,
    /// Gain in ADU/keV.
    Gain,
    /// Reason bits.
    Mask,
}

impl Quantity {
    /// Name in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pedestal => "pedestal",
            Self::Noise => "noise",
            Self::Gain => "gain",
            Self::Mask => "mask",
        }
    }

    /// Unit of its values; empty if they have none.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Pedestal | Self::Noise => "ADU",
            Self::Gain => "ADU/keV",
            Self::Mask => "",
        }
    }
}

/// Which map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// What it shows.
    pub quantity: Quantity,
    /// Gain stage by its gain bits: 0, 1 or 2.
    pub stage: usize,
    /// Storage cell; `None` = the first one that has pedestals.
    pub cell: Option<u8>,
    /// The difference to the previous calibration.
    pub minus_previous: bool,
}

/// A quantity of all pixels of the image.
pub struct Map {
    /// Rows of the image.
    pub rows: usize,
    /// Columns of the image.
    pub columns: usize,
    /// Its gain stage.
    pub stage: GainStage,
    /// Its storage cell; `None` if it is of all cells.
    pub cell: Option<u8>,
    /// The values.
    pub values: Values,
    /// A range that has all numbers but outliers; `None` for bits.
    pub range: Option<(f32, f32)>,
}

/// The range of the numbers, without what lies far from nearly all of them.
fn range_of(values: &Values) -> Option<(f32, f32)> {
    let Values::Numbers(numbers) = values else { return None };
    let ((lowest, highest), (low, high)) = (percentiles(numbers, 0.0, 1.0)?, percentiles(numbers, 0.0005, 0.9995)?);
    let margin = 3.0 * (high - low);
    Some((lowest.max(low - margin), highest.min(high + margin)))
}

/// Values of a map, row by row.
pub enum Values {
    /// NaN in gaps and where the pixel is masked.
    Numbers(Vec<f32>),
    /// Reason bits, the masked value of the type in gaps. As a difference, 1: no longer masked, 2: newly masked.
    Bits(Vec<u32>),
}

/// Size and time of the last change of each file that was read.
type Seen = Vec<Option<(u64, SystemTime)>>;

/// Something that was made, from which files, and when somebody last asked for it.
struct Kept<T> {
    seen: Seen,
    value: T,
    asked: Instant,
}

#[derive(Default)]
struct Made {
    report: Option<Kept<Arc<Report>>>,
    map: Option<Kept<(MapRequest, Arc<Map>)>>,
}

/// The calibration that the runs of a detector use.
pub struct InUse {
    config: Config,
    files: CalibrationFiles,
    made: Mutex<Made>,
}

impl InUse {
    /// The calibration that `config` names, if it names one. Reads nothing.
    pub fn new(config: &Config) -> Option<Self> {
        let files = config.calibration.clone()?;
        Some(Self { config: config.clone(), files, made: Mutex::default() })
    }

    /// The files that the configuration names.
    pub fn files(&self) -> &CalibrationFiles {
        &self.files
    }

    /// Bytes of memory that making a map takes.
    pub fn map_bytes(&self) -> u64 {
        let pixels = u64::from(self.config.modules) * MODULE_PIXELS as u64;
        match self.files.kind {
            // The values, the map, and what is made of it.
            CalibrationKind::Konkordia if self.files.gain.is_empty() => 16 * pixels,
            // All planes of all stages, and their files.
            CalibrationKind::Konkordia => 32 * pixels,
            CalibrationKind::Files | CalibrationKind::JungfrauUtils => 96 * pixels,
        }
    }

    /// Where the calibration before this one is kept; `None` if none is.
    pub fn previous(&self) -> Option<PathBuf> {
        (self.files.kind == CalibrationKind::Konkordia).then(|| previous_path(&self.files.pedestal[0]))
    }

    /// What the calibration is like. Reads all files if they have changed: not for threads that must not wait.
    ///
    /// # Errors
    /// The files are not there, damaged, or of another detector.
    pub fn report(&self) -> Result<Arc<Report>, NotShown> {
        let (mut made, seen) = (self.made(), self.seen());
        if let Some(kept) = made.report.as_mut().filter(|kept| kept.seen == seen) {
            kept.asked = Instant::now();
            return Ok(Arc::clone(&kept.value));
        }
        made.report = None;
        let value = Arc::new(self.make_report()?);
        made.report = Some(Kept { seen, value: Arc::clone(&value), asked: Instant::now() });
        Ok(value)
    }

    /// A map. Reads files: not for threads that must not wait.
    ///
    /// # Errors
    /// There is no such map, or the files cannot be read.
    pub fn map(&self, request: MapRequest) -> Result<Arc<Map>, NotShown> {
        // A damaged file is refused before anything of it is shown.
        self.report()?;
        let (mut made, seen) = (self.made(), self.seen());
        if let Some(kept) = made.map.as_mut().filter(|kept| kept.seen == seen && kept.value.0 == request) {
            kept.asked = Instant::now();
            return Ok(Arc::clone(&kept.value.1));
        }
        made.map = None;
        let map = Arc::new(self.make_map(request)?);
        made.map = Some(Kept { seen, value: (request, Arc::clone(&map)), asked: Instant::now() });
        Ok(map)
    }

    /// Frees what nobody has asked for since so long.
    pub fn forget(&self, unasked_for: Duration) {
        // While something is being made, somebody is asking.
        let Ok(mut made) = self.made.try_lock() else { return };
        made.report.take_if(|kept| kept.asked.elapsed() >= unasked_for);
        made.map.take_if(|kept| kept.asked.elapsed() >= unasked_for);
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> Seen {
        let files = &self.files;
        let all = files.pedestal.iter().chain(&files.gain).chain(&files.pedestal_rms);
        let seen = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.len(), found.modified().ok()?))
        };
        all.map(|path| seen(path)).chain([self.previous().and_then(|path| seen(&path))]).collect()
    }

    fn make_report(&self) -> Result<Report, NotShown> {
        let opened = Opened::open(&self.config, &self.files)?;
        let hash = opened.check_hash()?;
        let facts = opened.facts();
        let previous = self.previous().filter(|path| path.exists());
        let before = previous.as_deref().map(|path| Opened::previous(&self.config, &self.files, path));
        let stages = opened.stages();
        let of_run = facts.pedestals.keys().copied().filter(|(_, stage)| stages.contains(stage));
        let mut rows = Vec::new();
        for key in of_run {
            let before = before.as_ref().and_then(|before| before.as_ref().ok());
            for module in 0..facts.modules {
                rows.extend(row(&opened, before, key, module)?);
            }
        }
        let own = self.files.kind == CalibrationKind::Konkordia;
        Ok(Report {
            hash,
            is_for_all_cells: opened.is_for_all_cells(),
            rows,
            taken: oldest(&facts, stages[0]),
            refusal: own.then(|| refusal(&self.config, &self.files, &facts, stages[0])).flatten(),
            previous: previous.zip(before).map(|(path, before)| match before {
                Ok(opened) => Previous { path, taken: oldest(&opened.facts(), stages[0]), failure: None },
                Err(failure) => Previous { path, taken: None, failure: Some(failure) },
            }),
            stages,
            facts,
        })
    }

    fn make_map(&self, request: MapRequest) -> Result<Map, NotShown> {
        let opened = Opened::open(&self.config, &self.files)?;
        let stage = opened.stages()[request.stage.min(2)];
        let cell = self.cell(&opened, request, stage)?;
        let before = request.minus_previous.then(|| self.open_previous()).transpose()?;
        let name = format!("{} of {}", request.quantity.name(), stage.name().to_uppercase());
        let modules = opened.facts().modules;
        let of_modules = |opened: &Opened| Plane::read(opened, request.quantity, (cell, stage), modules);
        let now = of_modules(&opened)?.ok_or_else(|| {
            let fix = "take pedestals of this stage, or add gains: konkordia pedestal --help";
            missing(format!("the calibration has no {name}"), "its file has no such plane", fix)
        })?;
        let plane = match before.as_ref().map(of_modules).transpose()? {
            Some(Some(before)) => now.minus(&before),
            Some(None) => {
                let fix = "look at the values instead of the difference";
                return Err(missing(format!("the previous calibration has no {name}"), "its file has no such plane", fix));
            }
            None => now,
        };
        let geometry = &self.config.geometry;
        let values = match plane {
            Plane::Numbers(numbers) => Values::Numbers(arrange(geometry, &numbers, f32::NAN)),
            Plane::Bits(bits) => Values::Bits(arrange(geometry, &bits, u32::MASKED)),
        };
        let (rows, columns) = (geometry.rows() as usize, geometry.columns() as usize);
        let (range, cell) = (range_of(&values), (!opened.is_for_all_cells()).then_some(cell));
        Ok(Map { rows, columns, stage, cell, values, range })
    }

    /// The storage cell of a map. Planes of other programs are for all cells.
    fn cell(&self, opened: &Opened, request: MapRequest, stage: GainStage) -> Result<u8, NotShown> {
        if opened.is_for_all_cells() {
            return Ok(0);
        }
        let facts = opened.facts();
        let cells: Vec<u8> = facts.pedestals.keys().filter(|key| key.1 == stage).map(|key| key.0).collect();
        let found = request.cell.map_or(cells.first().copied(), |cell| cells.contains(&cell).then_some(cell));
        // Gains are of all cells.
        found.or((request.quantity == Quantity::Gain).then_some(0)).ok_or_else(|| {
            let of = request.cell.map_or(String::new(), |cell| format!(" of storage cell {cell}"));
            let list: Vec<String> = cells.iter().map(u8::to_string).collect();
            let why = if list.is_empty() { "there are none".into() } else { format!("there are those of {}", list.join(", ")) };
            missing(
                format!("the calibration has no pedestals of {}{of}", stage.name().to_uppercase()),
                &why,
                "ask for another one",
            )
        })
    }

    fn open_previous(&self) -> Result<Opened, NotShown> {
        let path = self.previous().filter(|path| path.exists()).ok_or_else(|| {
            let why = "the calibration before is kept when new pedestals replace it";
            missing("there is no previous calibration".into(), why, "take pedestals twice")
        })?;
        Ok(Opened::previous(&self.config, &self.files, &path)?)
    }
}

fn row(opened: &Opened, before: Option<&Opened>, key: (u8, GainStage), module: usize) -> Result<Option<Row>, Failure> {
    let Some(planes) = opened.pedestals(key, module)? else { return Ok(None) };
    let before = before.map(|before| before.pedestals(key, module)).transpose()?.flatten();
    let gain = opened.gain(key.1, module)?;
    let Some(judged) = rows(key.0, key.1, &planes).pop() else { return Ok(None) };
    Ok(Some(Row {
        judged: ModuleRow { module, ..judged },
        gain_adu_per_kev: gain.and_then(|gain| median(gain.into_iter().filter(|gain| *gain != 0.0), 1)),
        change: before.map(|before| change(key, module, &before, &planes)),
    }))
}

/// A quantity in module order.
enum Plane {
    Numbers(Vec<f32>),
    Bits(Vec<u32>),
}

impl Plane {
    /// `None` if the calibration has no such plane, or not one number in it.
    fn read(opened: &Opened, quantity: Quantity, key: (u8, GainStage), modules: usize) -> Result<Option<Self>, Failure> {
        if quantity == Quantity::Mask {
            let mut bits = Vec::with_capacity(modules * MODULE_PIXELS);
            for module in 0..modules {
                let Some(planes) = opened.pedestals(key, module)? else { return Ok(None) };
                bits.extend(planes.mask);
            }
            return Ok(Some(Self::Bits(bits)));
        }
        let mut numbers = Vec::with_capacity(modules * MODULE_PIXELS);
        for module in 0..modules {
            let Some(part) = numbers_of(opened, quantity, key, module)? else { return Ok(None) };
            numbers.extend(part);
        }
        Ok(numbers.iter().any(|number| number.is_finite()).then_some(Self::Numbers(numbers)))
    }

    fn minus(self, before: &Self) -> Self {
        match (self, before) {
            (Self::Numbers(mut now), Self::Numbers(before)) => {
                now.iter_mut().zip(before).for_each(|(now, before)| *now -= before);
                Self::Numbers(now)
            }
            (Self::Bits(mut now), Self::Bits(before)) => {
                let changed = |now: u32, before: u32| match (now != 0, before != 0) {
                    (true, false) => 2,
                    (false, true) => 1,
                    _ => 0,
                };
                now.iter_mut().zip(before).for_each(|(now, before)| *now = changed(*now, *before));
                Self::Bits(now)
            }
            (now, _) => now,
        }
    }
}

/// The values of one module, NaN where the pixel is masked in this stage.
fn numbers_of(opened: &Opened, quantity: Quantity, key: (u8, GainStage), module: usize) -> Result<Option<Vec<f32>>, Failure> {
    if quantity == Quantity::Gain {
        let usable = |gain: f32| if usable_gain(key.1, gain) { gain } else { f32::NAN };
        return Ok(opened.gain(key.1, module)?.map(|gain| gain.into_iter().map(usable).collect()));
    }
    let Some(StagePedestal { mean_adu, rms_adu, mask, .. }) = opened.pedestals(key, module)? else { return Ok(None) };
    let mut numbers = if quantity == Quantity::Noise { rms_adu } else { mean_adu };
    numbers.iter_mut().zip(mask).filter(|(_, mask)| *mask != 0).for_each(|(number, _)| *number = f32::NAN);
    Ok(Some(numbers))
}

#[cfg(test)]
mod tests;
