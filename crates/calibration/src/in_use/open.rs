//! The files of a calibration, opened: read in parts where their format allows it.

use super::not_shown::{NotShown, missing};
use crate::load::{Foreign, check_detector, gains_of_run};
use crate::planes::{configuration, names};
use crate::reasons::{self, mark_gains};
use konkordia_config::model::{CalibrationFiles, CalibrationKind, Config};
use konkordia_core::failure::Failure;
use konkordia_sinks::hdf5::calibration::{CalibrationFile, GainStage, MODULE_PIXELS, StagePedestal};
use konkordia_sinks::hdf5::calibration_reader::CalibrationReader;
use std::path::Path;

/// An open calibration.
pub struct Opened {
    source: Source,
    /// Gains of the stages of a run that replace those of the file.
    gains: Option<[Vec<f32>; 3]>,
    stages: [GainStage; 3],
}

enum Source {
    /// A file of `konkordia pedestal`.
    Parts(Box<CalibrationReader>),
    /// Planes of other programs, which are small.
    Whole(Box<CalibrationFile>),
}

impl Opened {
    /// The calibration that a configuration names.
    pub fn open(config: &Config, files: &CalibrationFiles) -> Result<Self, NotShown> {
        if let Some(path) = files.pedestal.iter().find(|path| !path.exists()) {
            let what = format!("the calibration {} does not exist", path.display());
            let fix = "take pedestals, or give the path of a calibration that exists ([calibration] in the configuration)";
            return Err(missing(what, "no pedestals have been taken, or the file was moved", fix));
        }
        match files.kind {
            CalibrationKind::Konkordia => Ok(Self::own(config, files, &files.pedestal[0])?),
            CalibrationKind::Files | CalibrationKind::JungfrauUtils => Ok(Self::foreign(config, files)?),
        }
    }

    /// The calibration before the one that a configuration names.
    pub fn previous(config: &Config, files: &CalibrationFiles, path: &Path) -> Result<Self, Failure> {
        let opened = Self::own(config, files, path)?;
        opened.check_hash()?;
        Ok(opened)
    }

    fn own(config: &Config, files: &CalibrationFiles, path: &Path) -> Result<Self, Failure> {
        let reader = CalibrationReader::open(path).map_err(configuration)?;
        if reader.facts().modules != config.modules as usize {
            check_detector(config, reader.facts(), path)?;
        }
        let gains = if files.gain.is_empty() { None } else { Some(gains_of_run(config.modules as usize, files)?) };
        Ok(Self { source: Source::Parts(Box::new(reader)), gains, stages: stages_of(files) })
    }

    fn foreign(config: &Config, files: &CalibrationFiles) -> Result<Self, Failure> {
        let modules = config.modules as usize;
        let Foreign { pedestals, mask, gains, rms_g0 } = Foreign::read(modules, files)?;
        let pixels = modules * MODULE_PIXELS;
        let (marked, mut rms) = (mask.unwrap_or_else(|| vec![0; pixels]), rms_g0);
        let stages = stages_of(files);
        let mut file = CalibrationFile { modules, gain_source: names(&files.gain), ..CalibrationFile::default() };
        for ((stage, mean), gain) in stages.into_iter().zip(pedestals).zip(gains) {
            // Only the noise of the first stage is known.
            let rms = rms.take().unwrap_or_else(|| vec![f32::NAN; pixels]);
            let source = names(&files.pedestal);
            file.pedestals.insert((0, stage), StagePedestal { source, ..reasons::of_source(mean, rms, &marked) });
            file.gains[stage.index()] = Some(gain);
        }
        Ok(Self { source: Source::Whole(Box::new(file)), gains: None, stages })
    }

    /// Gain stages of a run, in the order of the gain bits.
    pub fn stages(&self) -> [GainStage; 3] {
        self.stages
    }

    /// True if the planes are for all storage cells; they are those of cell 0 then.
    pub fn is_for_all_cells(&self) -> bool {
        matches!(self.source, Source::Whole(_))
    }

    /// All but the planes.
    pub fn facts(&self) -> CalibrationFile {
        match &self.source {
            Source::Parts(reader) => reader.facts().clone(),
            Source::Whole(file) => {
                let empty = |planes: &StagePedestal| StagePedestal { source: planes.source.clone(), ..StagePedestal::default() };
                CalibrationFile {
                    modules: file.modules,
                    gain_source: file.gain_source.clone(),
                    pedestals: file.pedestals.iter().map(|(key, planes)| (*key, empty(planes))).collect(),
                    ..CalibrationFile::default()
                }
            }
        }
    }

    /// Compares the content with its hash and returns it; planes of other programs have none.
    pub fn check_hash(&self) -> Result<String, Failure> {
        match &self.source {
            Source::Parts(reader) => reader.check_hash().map_err(configuration),
            Source::Whole(_) => Ok(String::new()),
        }
    }

    /// The pedestals of a module, with pixels that have no usable gain marked; `None` if there are none.
    pub fn pedestals(&self, key: (u8, GainStage), module: usize) -> Result<Option<StagePedestal>, Failure> {
        let planes = match &self.source {
            Source::Parts(reader) => reader.pedestals(key, module).map_err(configuration)?,
            Source::Whole(file) => file.pedestals.get(&key).map(|planes| planes.of_module(module)),
        };
        let Some(mut planes) = planes else { return Ok(None) };
        if let Some(gain) = self.gain(key.1, module)? {
            mark_gains(&mut planes.mask, &gain, key.1);
        }
        Ok(Some(planes))
    }

    /// The gains of a module; `None` if there are none.
    pub fn gain(&self, stage: GainStage, module: usize) -> Result<Option<Vec<f32>>, Failure> {
        let range = module * MODULE_PIXELS..(module + 1) * MODULE_PIXELS;
        let of_run = self.stages.iter().position(|of_run| *of_run == stage);
        if let (Some(gains), Some(of_run)) = (&self.gains, of_run) {
            return Ok(Some(gains[of_run][range].to_vec()));
        }
        match &self.source {
            Source::Parts(reader) => reader.gain(stage, module).map_err(configuration),
            Source::Whole(file) => Ok(file.gains[stage.index()].as_ref().map(|gain| gain[range].to_vec())),
        }
    }
}

fn stages_of(files: &CalibrationFiles) -> [GainStage; 3] {
    [if files.high_gain { GainStage::Hg0 } else { GainStage::G0 }, GainStage::G1, GainStage::G2]
}
