//! The files of a stream: the layout of Konkordia, or that of the MAX IV receiver.

use super::stream_parts::Namer;
use crate::paths::{Place, Target};
use konkordia_config::stream::StreamConfig;
use konkordia_core::failure::Failure;
use konkordia_core::image::CommittedImage;
use konkordia_core::ports::{Sink, SinkError};
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_sinks::durable::ToDisk;
use konkordia_sinks::hdf5::append::{AppendFile, AppendSpec};
use konkordia_sinks::hdf5::{SeriesFile, SharedState, master_file_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes in one of the two layouts.
pub enum FileSink {
    /// The layout of Konkordia: an image's position is its number.
    Series(Box<SeriesFile>),
    /// The layout of the MAX IV receiver: an image's position is its order of arrival. Existing files are continued.
    Append(Box<AppendFile>),
}

impl FileSink {
    /// For the configured layout. `opens` is called with the main file of each series that has one.
    pub fn new(mut namer: Namer, opens: impl Fn(PathBuf) + Send + 'static) -> Self {
        let Some(dataset) = namer.config.append_dataset.clone() else {
            return Self::Series(Box::new(SeriesFile::new(Box::new(move |start: &SeriesStart| {
                let spec = namer.spec(start)?.filter(|_| start.store);
                if let Some(spec) = &spec {
                    opens(spec.directory.join(master_file_name(&spec.prefix)));
                }
                Ok(spec)
            }))));
        };
        Self::Append(Box::new(AppendFile::new(Box::new(move |start: &SeriesStart| {
            let spec = append(&mut namer, start, &dataset)?.filter(|_| start.store);
            if let Some(spec) = &spec {
                opens(spec.path.clone());
            }
            Ok(spec)
        }))))
    }

    /// The state of the sink, for other threads.
    pub fn shared(&self) -> Arc<SharedState> {
        match self {
            Self::Series(file) => file.shared(),
            Self::Append(file) => file.shared(),
        }
    }
}

impl Sink for FileSink {
    fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
        match self {
            Self::Series(file) => file.start(start),
            Self::Append(file) => file.start(start),
        }
    }

    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        match self {
            Self::Series(file) => file.image(image),
            Self::Append(file) => file.image(image),
        }
    }

    fn end(&mut self, end: &Arc<SeriesEnd>) -> Result<(), SinkError> {
        match self {
            Self::Series(file) => file.end(end),
            Self::Append(file) => file.end(end),
        }
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        match self {
            Self::Series(file) => file.tick(now_ns),
            Self::Append(file) => file.tick(now_ns),
        }
    }
}

/// The main file of a run.
pub fn main_file(config: &StreamConfig, target: &Target) -> PathBuf {
    let is_one = config.append_dataset.is_some();
    target.directory.join(if is_one { format!("{}.h5", target.prefix) } else { master_file_name(&target.prefix) })
}

/// The file of a series, named by the command or else by the header. Without a name there is no file, as in the MAX IV
/// receiver.
fn append(namer: &mut Namer, start: &SeriesStart, dataset: &str) -> Result<Option<AppendSpec>, SinkError> {
    let parameters = namer.next_parameters();
    let path = match (&parameters.target, &start.filename) {
        _ if !parameters.write => return Ok(None),
        (Some(target), _) => inside(&namer.place, main_file(&namer.config, target)),
        (None, Some(name)) if !name.is_empty() => named(&namer.place, name),
        _ => return Ok(None),
    };
    let path = path.map_err(|Failure { what, why, fix, .. }| SinkError { what, why, fix })?;
    let to_disk = ToDisk::Beside(namer.config.sync_interval);
    Ok(Some(AppendSpec { path, dataset: dataset.to_string(), to_disk }))
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
        let place = Place { root: root.clone(), base: root.clone(), create_folders: false };
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
