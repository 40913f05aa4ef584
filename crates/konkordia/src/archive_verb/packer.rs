//! How the files of a folder come into a bag, and where their chunks lie.

use crate::console;
use konkordia_archive::sums::Chunk;
use konkordia_archive::{Done, Kind, Packer};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_repack::{Settings, repack};
use konkordia_sinks::hdf5::mirror::Stacks;
use konkordia_sinks::hdf5::{ErrorKind, META, stored};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Chunks of one file that are listed.
const CHUNKS_MAX: usize = 1 << 26;

/// Packs the files of images again, as `konkordia repack --verify` does.
pub struct Files<'a> {
    settings: &'a Settings,
    stop: &'a AtomicBool,
    is_quiet: bool,
    images: u64,
}

impl<'a> Files<'a> {
    /// With the settings of a repacking.
    pub fn new(settings: &'a Settings, stop: &'a AtomicBool, is_quiet: bool) -> Self {
        Self { settings, stop, is_quiet, images: 0 }
    }

    /// Images that were packed and compared.
    pub fn images(&self) -> u64 {
        self.images
    }
}

/// Whether a file begins as HDF5 does.
fn is_hdf5(path: &Path) -> Result<bool, Failure> {
    let mut head = [0; 8];
    let mut file = File::open(path).map_err(|error| Failure::io("cannot read", path, &error))?;
    Ok(file.read_exact(&mut head).is_ok() && &head == b"\x89HDF\r\n\x1a\n")
}

fn kind(path: &Path) -> Result<Kind, Failure> {
    if !is_hdf5(path)? {
        return Ok(Kind::Copy("no HDF5"));
    }
    if path.to_string_lossy().ends_with(META) {
        return Ok(Kind::Copy("structure and pixels lie apart"));
    }
    match Stacks::open(path) {
        Ok(stacks) if stacks.layouts().len() > 0 || !stacks.linked_files().is_empty() => Ok(Kind::Pack(stacks.linked_files())),
        Ok(_) => Ok(Kind::Copy("no images")),
        Err(error) if error.kind == ErrorKind::Invalid => Ok(Kind::Copy("images in a form that is not packed again")),
        Err(error) => Err(error.into()),
    }
}

/// The first file below a folder that has images to measure on, in the order of their paths.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn first_with_images(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let failed = |error| Failure::io("cannot read", folder, &error);
    let mut entries = std::fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let (path, is) = (entry.path(), entry.file_type().map_err(failed)?);
        if is.is_dir() {
            if let Some(found) = first_with_images(&path)? {
                return Ok(Some(found));
            }
        } else if is.is_file()
            && matches!(kind(&path)?, Kind::Pack(_))
            && Stacks::open(&path).is_ok_and(|stacks| stacks.layouts().any(|layout| layout.images > 0))
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

impl Packer for Files<'_> {
    fn kind(&mut self, file: &Path) -> Result<Kind, Failure> {
        kind(file)
    }

    fn pack(&mut self, file: &Path, folder: &Path) -> Result<Done, Failure> {
        let mut line = console::Progress::new(self.is_quiet);
        let show = &mut |progress: &konkordia_repack::Progress| {
            let (done, images) = (text::count(progress.images_done), text::count(progress.images));
            line.update(|| format!("{}: {done} of {images} images", file.display()));
        };
        let outcome = repack(file, folder, self.settings, self.stop, show);
        line.end();
        let outcome = outcome?;
        if !outcome.complete {
            let fix = "give the same command again: it goes on from there";
            return Err(Failure::new(Exit::Interrupted, "stopped", "finished files are kept in the unfinished bag", fix));
        }
        self.images += outcome.compared.images;
        let mut sources = Stacks::open(file)?.linked_files();
        sources.push(file.to_owned());
        let target = |source: PathBuf| {
            let target = folder.join(source.file_name().unwrap_or_default());
            (source, target)
        };
        let what = format!("packed with {}; every pixel read again and compared", self.settings.words());
        Ok(Done { files: sources.into_iter().map(target).collect(), what })
    }

    fn chunks(&mut self, file: &Path) -> Result<Vec<Chunk>, Failure> {
        if !matches!(kind(file)?, Kind::Pack(_)) {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for stack in stored::of_file(file, CHUNKS_MAX)? {
            let images = (0..).zip(stack.chunks).filter(|(_, chunk)| chunk.bytes > 0);
            found.extend(images.map(|(n, chunk)| Chunk {
                dataset: stack.name.clone(),
                image: label(&stack.leading, n),
                offset: chunk.address,
                bytes: chunk.bytes,
                crc32: 0,
            }));
        }
        Ok(found)
    }
}

/// The name of image `n` of a stack: its index in each leading dimension.
fn label(leading: &[u64], mut n: u64) -> String {
    let mut parts = Vec::new();
    for size in leading.iter().rev() {
        parts.push((n % (*size).max(1)).to_string());
        n /= (*size).max(1);
    }
    parts.reverse();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_by_their_indices() {
        assert_eq!((label(&[10], 7), label(&[10, 3], 7), label(&[2, 3, 4], 23)), ("7".into(), "2,1".into(), "1,2,3".into()));
    }
}
