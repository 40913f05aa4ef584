//! Where the files of a stream go: in the layout of Konkordia, or in that of the MAX IV receiver.

use super::stream_parts::ArmParameters;
use crate::paths::{Place, Target};
use konkordia_config::stream::StreamConfig;
use konkordia_core::failure::Failure;
use konkordia_core::ports::SinkError;
use konkordia_core::protocol::Protocol;
use konkordia_core::series::SeriesStart;
use konkordia_sinks::clock;
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::{AppendSpec, FileSpec, Metadata, SeriesFileSpec, SeriesTarget, master_path};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Decides where the files of each series go.
pub struct Namer {
    /// Where files may lie.
    pub place: Place,
    /// The configuration of this detector.
    pub config: Arc<StreamConfig>,
    /// The parameters of the next series, or of the current one.
    pub parameters: Arc<Mutex<ArmParameters>>,
    /// The parameters without an arm.
    pub usual: ArmParameters,
    /// The last arm that a series has used; the series after it does not use the same arm.
    pub spent: u64,
    /// Series so far, for names.
    pub series: u64,
}

impl Namer {
    /// The parameters for the series that begins now. An arm is valid for one series only: a sender may begin another
    /// series before the actor has reset the parameters, and that series would go into the files of the last one.
    fn next_parameters(&mut self) -> ArmParameters {
        let parameters = self.parameters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if parameters.arm != 0 && parameters.arm == self.spent {
            return self.usual.clone();
        }
        self.spent = parameters.arm;
        parameters
    }

    /// Where the images of this series go; `None` if it is not to be written.
    pub fn target(&mut self, start: &SeriesStart) -> Result<Option<SeriesTarget>, SinkError> {
        let parameters = self.next_parameters();
        if !parameters.write {
            return Ok(None);
        }
        match self.config.append_dataset.clone() {
            Some(dataset) => Ok(self.one_file(&parameters, start, dataset)?.map(Into::into)),
            None => Ok(Some(self.files(parameters, start)?.into())),
        }
    }

    /// The files of a series in the layout of Konkordia.
    fn files(&mut self, parameters: ArmParameters, start: &SeriesStart) -> Result<SeriesFileSpec, Failure> {
        self.series += 1;
        let target = match (parameters.target, &start.filename) {
            (Some(target), _) => target,
            (None, Some(name)) if !name.is_empty() => self.place.target(name)?,
            _ => self.free_target()?,
        };
        let config = &self.config;
        let file = FileSpec {
            directory: target.directory,
            prefix: target.prefix,
            images_per_file: config.images_per_file,
            overwrite: config.overwrite,
            layout: config.layout,
            xds: config.xds,
            software: konkordia_core::SOFTWARE.into(),
            configuration: config.text.clone(),
            metadata: self.metadata(parameters.metadata),
            ..FileSpec::default()
        };
        // For a folder of files, the time of reception is not the time of the exposure.
        let clock = (config.protocol != Protocol::Files).then_some(clock::now as fn() -> String);
        Ok(SeriesFileSpec { file, to_disk: ToDisk::Beside(config.sync_interval), clock })
    }

    /// The file of a series in the layout of MAX IV, named by the command or else by the header. Without a name there
    /// is no file, as in the MAX IV receiver.
    fn one_file(&self, parameters: &ArmParameters, start: &SeriesStart, dataset: String) -> Result<Option<AppendSpec>, Failure> {
        let path = match (&parameters.target, &start.filename) {
            (Some(target), _) => inside(&self.place, main_file(&self.config, target))?,
            (None, Some(name)) if !name.is_empty() => named(&self.place, name)?,
            _ => return Ok(None),
        };
        Ok(Some(AppendSpec { path, dataset, to_disk: ToDisk::Beside(self.config.sync_interval) }))
    }

    /// What is known where the sender says nothing. Angles are given from frame to frame, and go into the file from
    /// image to image.
    fn metadata(&self, given: Metadata) -> Metadata {
        let mut metadata = given;
        let sum_frames = self.config.transform.sum_frames.unwrap_or(1);
        metadata.experiment.goniometer = metadata.experiment.goniometer.in_steps_of(sum_frames);
        metadata.start_time = (self.config.protocol != Protocol::Files).then(clock::now);
        metadata
    }

    /// The configured prefix with the next free number.
    fn free_target(&mut self) -> Result<Target, Failure> {
        let (number, target) = self.place.numbered(&self.config.prefix, self.series, self.config.overwrite)?;
        self.series = number;
        Ok(target)
    }
}

/// The main file of a run.
pub fn main_file(config: &StreamConfig, target: &Target) -> PathBuf {
    match config.append_dataset {
        Some(_) => target.directory.join(format!("{}.h5", target.prefix)),
        None => master_path(&target.directory, &target.prefix),
    }
}

/// The file with exactly the name in a header. Unlike in Konkordia's own layout, nothing is added to the name or
/// removed from it.
fn named(place: &Place, name: &str) -> Result<PathBuf, Failure> {
    let folder = place.target(name)?.directory;
    inside(place, folder.join(Path::new(name).file_name().unwrap_or_default()))
}

/// Resolves a link, and checks that the file behind it lies below the root.
fn inside(place: &Place, path: PathBuf) -> Result<PathBuf, Failure> {
    if !path.is_symlink() {
        return Ok(path);
    }
    // Appending to a link changes the file behind it, so that file must lie below the root too.
    let real = path.canonicalize().map_err(|error| Failure::io("cannot use the link", &path, &error))?;
    let root = place.root.canonicalize().map_err(|error| Failure::io("cannot use the folder", &place.root, &error))?;
    if real.starts_with(&root) {
        return Ok(real);
    }
    let what = format!("{} cannot be written", path.display());
    let why = format!("it is a link to {}, and no file is written outside of {}", real.display(), root.display());
    Err(Failure::new(konkordia_core::failure::Exit::Configuration, what, why, "remove the link, or give another name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::MissingFolders;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_of_headers_are_taken_to_the_letter_and_links_do_not_lead_out() {
        let all = tempfile::tempdir().unwrap();
        let top = all.path().canonicalize().unwrap();
        let (root, outside) = (top.join("root"), top.join("outside"));
        std::fs::create_dir(&root).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("there.h5"), "").unwrap();
        std::fs::write(root.join("real.h5"), "").unwrap();
        symlink(outside.join("there.h5"), root.join("out.h5")).unwrap();
        symlink(outside.join("new.h5"), root.join("broken.h5")).unwrap();
        symlink("real.h5", root.join("in.h5")).unwrap();
        let place =
            Place { root: root.clone(), base: root.clone(), missing_folders: MissingFolders::Refuse, suffix: String::new() };
        let at = |name: &str| named(&place, name);
        let absolute = root.join("scan-7.hdf5").display().to_string();
        assert_eq!(at(&absolute).unwrap(), root.join("scan-7.hdf5"));
        assert_eq!(at("a_master.h5").unwrap(), root.join("a_master.h5"));
        assert_eq!(at("in.h5").unwrap(), root.join("real.h5"));
        for name in ["out.h5", "broken.h5", "../x.h5", "/etc/x.h5", "no/x.h5"] {
            let said = at(name).expect_err(name);
            assert!(!said.why.is_empty() && !said.fix.is_empty());
        }
        for link in ["out.h5", "broken.h5"] {
            assert!(inside(&place, root.join(link)).is_err(), "a name of a command: {link}");
        }
        assert_eq!(inside(&place, root.join("in.h5")).unwrap(), root.join("real.h5"));
        assert!(!outside.join("new.h5").exists());
    }
}
