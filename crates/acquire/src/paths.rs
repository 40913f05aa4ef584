//! File names from outside: from the header of a stream, or from a request. Whatever the name is, no file is written
//! outside of the data root.
//!
//! Relative names count from the output folder of the detector. Links are followed, the place to which they lead is
//! checked, and the returned path has no link in it. This does not protect from somebody who changes folders below the
//! root at the same moment; such a person can do worse directly.

use crate::run::raw_copy;
use konkordia_config::service::{DetectorConfig, DetectorKindConfig};
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::{Overwrite, data_file_name, master_file_name};
use std::path::{Component, Path, PathBuf};

/// Longest component in bytes. With the suffixes of data files it stays below the 255 bytes of file systems.
const COMPONENT_BYTES_MAX: usize = 200;
const HIDDEN: &str = "a part of it begins with a dot";
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Where the files of a detector may lie.
#[derive(Clone, Debug)]
pub struct Place {
    /// No file lies outside of this folder.
    pub root: PathBuf,
    /// Relative names count from here.
    pub base: PathBuf,
    /// What becomes of folders that a name has and that are not there.
    pub missing_folders: MissingFolders,
    /// What stands behind the prefix of every run: that of the part of the image, or nothing.
    pub suffix: String,
}

/// What to do about folders that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFolders {
    /// The name is refused.
    Refuse,
    /// They are created.
    Create,
    /// Nothing: only the name is looked at.
    Imagine,
}

impl MissingFolders {
    /// As configured.
    pub fn of(create_folders: bool) -> Self {
        if create_folders { Self::Create } else { Self::Refuse }
    }
}

/// Where the files of one run lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// An existing folder, without links.
    pub directory: PathBuf,
    /// Start of the file names.
    pub prefix: String,
}

/// The prefix in a file name: without `.h5` and `_master`, because these are added when files are named.
fn stem(name: &str) -> &str {
    let name = name.strip_suffix(".h5").unwrap_or(name);
    name.strip_suffix("_master").unwrap_or(name)
}

impl Place {
    /// Of a detector with this output folder; without a data root, no file lies outside of that folder.
    pub fn of(detector: &DetectorConfig, directory: &Path, data_root: Option<&PathBuf>) -> Self {
        let root = data_root.map_or(directory, PathBuf::as_path).to_path_buf();
        let suffix = match &detector.kind {
            DetectorKindConfig::Udp(config) => config.part.map(|part| part.suffix()).unwrap_or_default(),
            DetectorKindConfig::Stream(_) => String::new(),
        };
        Self { root, base: directory.to_path_buf(), missing_folders: MissingFolders::of(detector.create_folders), suffix }
    }

    /// Where a run with this name writes its files.
    ///
    /// # Errors
    /// The name leads outside of the root or is not a file name, or its folder does not exist or cannot be created.
    pub fn target(&self, name: &str) -> Result<Target, Failure> {
        let refuse = |why: String, fix: &str| {
            let shown: String = name.chars().take(200).collect();
            Failure::new(Exit::Configuration, format!("the file name \"{}\" cannot be used", shown.escape_debug()), why, fix)
        };
        let (folders, prefix) = split(name).map_err(|why| refuse(why, "give a plain name such as lyso/run03"))?;
        let root = canonical(&self.root)?;
        let outside = || {
            let why = format!("no file is written outside of {}", root.display());
            refuse(why, "give a name below that folder, or change service.data_root")
        };
        let at = match &folders {
            Folders::Absolute(path) => {
                let below = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix(&root)).map_err(|_| outside())?;
                if below.iter().chain([prefix.as_ref()]).any(|part| part.as_encoded_bytes().starts_with(b".")) {
                    return Err(refuse(HIDDEN.into(), "give a name without it"));
                }
                self.walk(root.clone(), below, &root, &outside)?
            }
            Folders::Relative(path) => {
                let base = canonical(&self.base)?;
                self.walk(base, path, &root, &outside)?
            }
        };
        if !at.starts_with(&root) {
            return Err(outside());
        }
        if !at.is_dir() && (self.missing_folders != MissingFolders::Imagine || at.exists()) {
            return Err(refuse(format!("{} is not a folder", at.display()), "give another name"));
        }
        Ok(Target { directory: at, prefix: format!("{prefix}{}", self.suffix) })
    }

    /// The same place for somebody who only asks: no folder is created.
    #[must_use]
    pub fn for_asking(self) -> Self {
        let create = self.missing_folders == MissingFolders::Create;
        Self { missing_folders: if create { MissingFolders::Imagine } else { self.missing_folders }, ..self }
    }

    /// Where a run without a name writes its files: PREFIX_000007, with the number `from` or, unless older files are
    /// replaced, the next free one. So a service that was restarted goes on counting.
    ///
    /// # Errors
    /// As for [`Place::target`].
    pub fn numbered(&self, prefix: &str, from: u64, overwrite: Overwrite) -> Result<(u64, Target), Failure> {
        for number in from.. {
            let target = self.target(&format!("{prefix}_{number:06}"))?;
            let is_there = |name: String| target.directory.join(name).exists();
            let first = data_file_name(&target.prefix, 1);
            let raw = raw_copy::master_file_name(&target.prefix);
            let mut names = [master_file_name(&target.prefix), format!("{first}.journal"), first, raw].into_iter();
            if overwrite == Overwrite::Replace || !names.any(is_there) {
                return Ok((number, target));
            }
        }
        unreachable!("a folder has fewer files than numbers")
    }

    /// Checks and creates one folder after the other, so that nothing is created behind a link that leads outside.
    fn walk(&self, mut at: PathBuf, folders: &Path, root: &Path, outside: &dyn Fn() -> Failure) -> Result<PathBuf, Failure> {
        for folder in folders {
            let next = at.join(folder);
            if std::fs::symlink_metadata(&next).is_err() {
                if self.missing_folders == MissingFolders::Imagine {
                    if at.exists() && !at.is_dir() {
                        let what = format!("{} is not a folder", at.display());
                        return Err(Failure::new(Exit::Io, what, "no file can lie below it", "give another name"));
                    }
                    // What is below a folder that is not there is not there either, and leads nowhere else.
                    at = next;
                    continue;
                }
                if self.missing_folders == MissingFolders::Refuse {
                    let what = format!("the folder {} does not exist", next.display());
                    let fix = format!("mkdir -p {}, or set [output] create_folders = true", next.display());
                    return Err(Failure::new(Exit::Io, what, "missing folders are created only if that is configured", fix));
                }
                match std::fs::create_dir(&next) {
                    Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                        return Err(Failure::io("cannot make the folder", &next, &error));
                    }
                    _ => {}
                }
            }
            at = canonical(&next)?;
            if !at.starts_with(root) {
                return Err(outside());
            }
        }
        Ok(at)
    }
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::io("cannot use the folder", path, &error))
}

enum Folders {
    Absolute(PathBuf),
    Relative(PathBuf),
}

/// The folders and the start of the file name, from the text alone.
fn split(name: &str) -> Result<(Folders, String), String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("it has {} bytes; at most {NAME_BYTES_MAX} are allowed", name.len()));
    }
    if let Some(bad) = name.chars().find(|c| c.is_control()) {
        return Err(format!("it contains the control character {}", bad.escape_unicode()));
    }
    let body = name.strip_prefix('/').unwrap_or(name);
    for component in body.split('/') {
        let why = match component {
            "" => "a part of it is empty",
            "." | ".." => "it has a part . or ..",
            // The root itself may lie below such folders.
            part if part.starts_with('.') && !name.starts_with('/') => HIDDEN,
            part if part.len() > COMPONENT_BYTES_MAX => "a part of it is longer than 200 bytes",
            _ => continue,
        };
        return Err(why.into());
    }
    let (folders, file) = name.rsplit_once('/').unwrap_or(("", name));
    let prefix = stem(file);
    if prefix.is_empty() {
        return Err("it is empty without its suffix (.h5 or _master.h5)".into());
    }
    let folders = Path::new(folders);
    // The system must read the path as the checks above have read it.
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::RootDir);
    if !folders.components().all(plain) {
        return Err("it is not a path of plain folder names".into());
    }
    let folders = if name.starts_with('/') {
        Folders::Absolute(Path::new("/").join(folders))
    } else {
        Folders::Relative(folders.to_owned())
    };
    Ok((folders, prefix.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Folder {
        _all: tempfile::TempDir,
        root: PathBuf,
        outside: PathBuf,
    }

    fn folder() -> Folder {
        let all = tempfile::tempdir().unwrap();
        let top = all.path().canonicalize().unwrap();
        let (root, outside) = (top.join("root"), top.join("outside"));
        for path in [&root, &outside, &root.join("beam"), &root.join("beam/old")] {
            std::fs::create_dir_all(path).unwrap();
        }
        symlink(&outside, root.join("beam/away")).unwrap();
        symlink("../../outside", root.join("beam/away2")).unwrap();
        symlink("old", root.join("beam/same")).unwrap();
        symlink("/nowhere", root.join("beam/broken")).unwrap();
        Folder { _all: all, root, outside }
    }

    fn place(folder: &Folder, create_folders: bool) -> Place {
        Place {
            root: folder.root.clone(),
            base: folder.root.join("beam"),
            missing_folders: MissingFolders::of(create_folders),
            suffix: String::new(),
        }
    }

    #[test]
    fn plain_names_are_taken() {
        let f = folder();
        let p = place(&f, false);
        let at = |name: &str| {
            let target = p.target(name).unwrap();
            (target.directory, target.prefix)
        };
        assert_eq!(at("run"), (f.root.join("beam"), "run".into()));
        assert_eq!(at("old/run 7 ü"), (f.root.join("beam/old"), "run 7 ü".into()));
        assert_eq!(at("same/run"), (f.root.join("beam/old"), "run".into()), "a link that stays inside");
        let absolute = f.root.join("beam/old/run_master.h5");
        assert_eq!(at(absolute.to_str().unwrap()), (f.root.join("beam/old"), "run".into()));
        assert_eq!(at(f.root.join("x.h5").to_str().unwrap()), (f.root.clone(), "x".into()));
    }

    #[test]
    fn runs_without_a_name_take_the_next_number_that_is_free() {
        let f = folder();
        let p = place(&f, false);
        let next = |from, overwrite| {
            let (number, target) = p.numbered("run", from, overwrite).unwrap();
            assert_eq!(target.prefix, format!("run_{number:06}"));
            number
        };
        assert_eq!(next(1, Overwrite::Refuse), 1);
        let left = [
            "run_000001_master.h5",
            "run_000002_data_000001.h5",
            "run_000003_data_000001.h5.journal",
            "run_000004_raw_master_0.json",
        ];
        for (n, name) in left.iter().enumerate() {
            std::fs::write(f.root.join("beam").join(name), "").unwrap();
            assert_eq!(next(1, Overwrite::Refuse), n as u64 + 2, "{name} is in the way");
        }
        assert_eq!(next(9, Overwrite::Refuse), 9);
        assert_eq!(next(2, Overwrite::Replace), 2);
    }

    #[test]
    fn hostile_names_are_refused_and_leave_nothing_behind() {
        let f = folder();
        let outside = f.outside.join("run").display().to_string();
        let beside = format!("{}-evil/run", f.root.display());
        let inside_out = format!("{}/../outside/run", f.root.display());
        let hidden = format!("{}/.hidden/run", f.root.display());
        let hidden_file = format!("{}/beam/.run", f.root.display());
        let long = "x".repeat(201);
        let deep = "d/".repeat(600) + "run";
        let hostile = [
            "",
            "/",
            "..",
            ".",
            "../run",
            "a/../../run",
            "old/../../../outside/run",
            "old//run",
            "/run",
            "/etc/passwd",
            "//etc/run",
            "run/",
            "old/./run",
            ".hidden",
            "old/.x/run",
            "a\0b",
            "run\n",
            "away/run",
            "away2/run",
            "away/deeper/run",
            "broken/run",
            "_master.h5",
            ".h5",
            &outside,
            &beside,
            &inside_out,
            &hidden,
            &hidden_file,
            &long,
            &deep,
        ];
        for create in [false, true] {
            let p = place(&f, create);
            for name in hostile {
                let error = p.target(name).map(|t| t.directory).expect_err(name);
                assert!(!error.what.is_empty() && !error.fix.is_empty(), "{name}");
            }
        }
        assert_eq!(std::fs::read_dir(&f.outside).unwrap().count(), 0);
        assert!(!Path::new(&format!("{}-evil", f.root.display())).exists());
    }

    #[test]
    fn folders_are_made_only_if_configured_and_only_inside() {
        let f = folder();
        let error = place(&f, false).target("new/run").unwrap_err();
        assert!(error.what.contains("does not exist") && error.fix.contains("create_folders"), "{error}");
        let target = place(&f, true).target("new/deeper/run").unwrap();
        assert_eq!(target.directory, f.root.join("beam/new/deeper"));
        assert!(target.directory.is_dir());
        let asking = place(&f, true).for_asking();
        let target = asking.target("other/deeper/run").unwrap();
        assert_eq!(target.directory, f.root.join("beam/other/deeper"));
        assert!(!f.root.join("beam/other").exists(), "who only asks creates nothing");
        assert!(asking.target("away/x/run").is_err() && asking.target("broken/run").is_err());
        assert!(place(&f, false).for_asking().target("other/run").is_err());
        std::fs::write(f.root.join("beam/file"), "").unwrap();
        for name in ["file/run", "file/x/run"] {
            assert!(place(&f, true).target(name).is_err(), "{name}");
            assert!(asking.target(name).is_err(), "{name}");
        }
    }
}
