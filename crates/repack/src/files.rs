//! Which files belong to a repacking, and what they are called afterwards.

use super::settings::Settings;
use super::{identity, record};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_kernels::sz3;
use konkordia_sinks::hdf5::META;
use konkordia_sinks::hdf5::mirror::Stacks;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files of a repacking.
pub struct Job {
    /// Each source and its target. The file given on the command line comes last, since it points to the others.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Images to process, for the progress display. Images that are written and then compared count twice.
    pub images: u64,
    /// First part of the new names.
    pub prefix: String,
    old_prefix: String,
}

impl Job {
    /// Checks all files, so that what cannot be done is refused before anything is written.
    ///
    /// # Errors
    /// When a file is missing, cannot be repacked, or would be written over.
    pub fn new(file: &Path, output: &Path, settings: &Settings) -> Result<Self, Failure> {
        let old_prefix = prefix_of(file)?;
        let (folder, prefix) = place(output, &old_prefix)?;
        let named = Stacks::open(file)?;
        let mut job = Self { files: Vec::new(), images: 0, prefix, old_prefix };
        let has_checksums = named.has_checksums();
        let mut sources: Vec<PathBuf> = named.linked_files();
        sources.push(file.to_owned());
        check(&named, settings)?;
        drop(named);
        let mut targets = BTreeSet::new();
        for source in sources {
            let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let target = folder.join(job.rename(&name));
            if !targets.insert(target.clone()) {
                let why = "they are in different folders, but their copies go into one";
                let fix = "repack the data files one by one";
                return Err(Failure::new(Exit::Usage, format!("two files would be copied to {}", target.display()), why, fix));
            }
            job.count(&source, &target, has_checksums, settings)?;
            job.files.push((source, target));
        }
        Ok(job)
    }

    /// One file alone, with the same name in `folder`. The files that it points to were repacked before, and lie where
    /// it points to; they count as their own copies.
    ///
    /// # Errors
    /// When it cannot be repacked, or would be written over.
    pub fn alone(file: &Path, folder: &Path, settings: &Settings) -> Result<Self, Failure> {
        let prefix = prefix_of(file)?;
        let named = Stacks::open(file)?;
        let files: Vec<(PathBuf, PathBuf)> = named.linked_files().into_iter().map(|copy| (copy.clone(), copy)).collect();
        drop(named);
        let mut job = Self { files, images: 0, prefix: prefix.clone(), old_prefix: prefix };
        let target = folder.join(file.file_name().unwrap_or_default());
        job.count(file, &target, false, settings)?;
        job.files.push((file.to_owned(), target));
        Ok(job)
    }

    /// Checks one file and counts its images. `has_checksums`: the file given on the command line has checksums.
    fn count(&mut self, source: &Path, target: &Path, has_checksums: bool, settings: &Settings) -> Result<(), Failure> {
        if source.canonicalize().is_ok_and(|source| target.canonicalize().is_ok_and(|target| source == target)) {
            let what = format!("{} would be written over itself", source.display());
            return Err(Failure::new(Exit::Usage, what, "", "choose another folder or another first part of the names after -o"));
        }
        let finished = is_finished(source, target, settings)?;
        if finished && !is_compared_again(source, settings) {
            return Ok(());
        }
        if !source.exists() {
            let what = format!("{} is missing", source.display());
            let why = "another of the files points to it";
            return Err(Failure::new(Exit::Incomplete, what, why, "put it back, or repack the other data files one by one"));
        }
        let stacks = Stacks::open(source)?;
        check(&stacks, settings)?;
        if has_checksums {
            stacks.must_have_checksums()?;
        }
        let passes = if settings.verify && !finished { 2 } else { 1 };
        self.images += passes * stacks.layouts().map(|layout| layout.images).sum::<u64>();
        Ok(())
    }

    /// The new name of a file. Folders in links are left out, because all copies lie in one folder.
    pub fn rename(&self, name: &str) -> String {
        let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Structure and pixels come together in one file.
        let name = name.strip_suffix(META).map_or(name.clone(), |stem| format!("{stem}.h5"));
        match name.strip_prefix(&self.old_prefix) {
            Some(rest) if rest.starts_with(['_', '.']) => format!("{}{rest}", self.prefix),
            _ => name,
        }
    }
}

/// The folder and the first part of the names that an output means: an existing folder, or a folder and that part.
///
/// # Errors
/// The folder does not exist, or the names would be none.
pub fn place(output: &Path, old_prefix: &str) -> Result<(PathBuf, String), Failure> {
    let is_folder = output.is_dir() || output.as_os_str().to_string_lossy().ends_with('/');
    let (folder, prefix) = if is_folder {
        (output.to_owned(), old_prefix.to_owned())
    } else {
        let folder = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        (folder.to_owned(), prefix_of(output)?)
    };
    if folder.is_dir() {
        return Ok((folder, prefix));
    }
    let what = format!("there is no folder {}", folder.display());
    Err(Failure::new(Exit::Io, what, "the copies go into it", "create it, or correct the path after -o"))
}

/// The part of a name before `_master.h5`, `_data_000001.h5` or the extension.
pub fn prefix_of(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = [".meta.h5", ".h5", ".hdf5", ".nxs"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    let digits = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let prefix =
        stem.strip_suffix("_master").or_else(|| digits.strip_suffix("_data_").filter(|_| digits != stem)).unwrap_or(stem);
    if prefix.is_empty() || prefix.starts_with('.') {
        let what = format!("{} is not a name for files", path.display());
        return Err(Failure::new(Exit::Usage, what, "", "give a folder and the first part of the names, as in out/run01"));
    }
    Ok(prefix.to_owned())
}

/// Why lossy copies of raw words are refused.
const RAW_WORDS: &str = "its pixels are raw words of the detector, whose highest bits are the gain";

/// Whether the settings fit the images.
fn check(stacks: &Stacks, settings: &Settings) -> Result<(), Failure> {
    for layout in stacks.layouts() {
        let refuse = |why: String, fix: &str| {
            let what = format!("cannot repack {} with {}", stacks.path().display(), settings.words());
            Err(Failure::new(Exit::Configuration, what, why, fix))
        };
        if let Err(why) = super::recode::element(settings.compression, layout.element_bytes) {
            return refuse(why, "choose zstd, gzip, lz4 or none");
        }
        if let Some(spots) = &settings.spots {
            if let Some(why) = spots.refuses(layout) {
                return refuse(why, "choose bszstd, or for images of float32 sz3");
            }
            if stacks.is_raw_words() {
                return refuse(RAW_WORDS.into(), "convert it to photons first");
            }
        }
        let Compression::Sz3 { bound } = settings.compression else { continue };
        let whole_numbers = layout.pixel.is_some_and(|pixel| pixel.name() != "float32");
        if layout.pixel.is_none() || layout.rows * layout.columns < sz3::PIXELS_MIN {
            return refuse("sz3 takes images of int16, uint16, int32, uint32 and float32".into(), "choose a lossless codec");
        }
        if stacks.is_raw_words() {
            return refuse(RAW_WORDS.into(), "convert it to photons first");
        }
        if whole_numbers && bound.value() < 1.0 {
            let why = format!("its pixels are whole numbers: an error bound of {} allows no change", bound.value());
            return refuse(why, "give a bound of 1 or more, or choose bszstd");
        }
    }
    Ok(())
}

/// Whether a file that an earlier attempt finished is compared with its original again.
pub fn is_compared_again(source: &Path, settings: &Settings) -> bool {
    (settings.verify || settings.delete_source) && source.exists()
}

/// Whether an earlier attempt of the same repacking finished this file: with the same compression, from this very
/// source. If the source is gone, only its folder and name can be compared.
///
/// # Errors
/// When the target exists and is something else.
pub fn is_finished(source: &Path, target: &Path, settings: &Settings) -> Result<bool, Failure> {
    if !target.exists() {
        return Ok(false);
    }
    let record = Stacks::open(target)?.repacked();
    let why = match record {
        None => "it does not say of which file it is a copy".into(),
        Some(record) if record.compression != settings.words() => {
            format!("it was made with {}", record.compression)
        }
        Some(record) if source.exists() => {
            if record.source == record::name(source) && record.identity == identity::of(source)? {
                return Ok(true);
            }
            format!("it is not a copy of {0}, or {0} has changed since", source.display())
        }
        Some(record) => {
            if record.source == record::name(source) && record.folder == record::folder(source) {
                return Ok(true);
            }
            format!("it is a copy of {} in {}, not of {}, which is gone", record.source, record.folder, source.display())
        }
    };
    let what = format!("{} exists", target.display());
    Err(Failure::new(Exit::Io, what, why, "choose another folder or name after -o, or remove it"))
}
