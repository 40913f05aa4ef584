//! Writes a run again in another layout: all in one file, structure and pixels apart, pixels in pieces of constant
//! size, or a master with the virtual data set or the links alone. Chunks are copied as they are, read back, and
//! compared. Nothing has its final name before that.

use crate::files::{place, prefix_of};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::{Layout, temporary_path};
use konkordia_sinks::hdf5::SplitName;
use konkordia_sinks::hdf5::mirror::Stacks;
use konkordia_sinks::hdf5::one_file::Run;
use konkordia_sinks::hdf5::split_bytes::{SplitChunk, SplitStack};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// How the files of a run are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLayout {
    /// Everything in one file.
    Single,
    /// The structure in `X.meta.h5`, the pixels in `X.raw_1.h5`.
    Split,
    /// The structure in `X.meta.h5`, the pixels in pieces `X.raw_1.h5`, `X.raw_2.h5` ... of so many bytes.
    Family {
        /// Bytes of each piece but the last.
        piece_bytes: u64,
    },
}

/// What was written.
pub struct Laid {
    /// The file to open.
    pub main: PathBuf,
    /// All files.
    pub files: Vec<PathBuf>,
    /// Images, each read back and compared byte by byte.
    pub images: u64,
    /// Bytes of the chunks.
    pub bytes: u64,
    /// Bytes of a piece of a family, as `memb_size` of the driver has to be; 0 otherwise.
    pub piece_bytes: u64,
}

/// A folder for files that are not whole yet; it is gone afterwards.
struct Workshop(PathBuf);

impl Workshop {
    fn new(path: PathBuf) -> Result<Self, Failure> {
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(|error| Failure::io("cannot create", &path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Most pieces of a family: readers have all of them open at once, of the 1024 files that a process mostly may.
const MOST_PIECES: u64 = 900;

/// Refuses a family that readers could not open.
fn openable(run: &Run, folder: &Path, prefix: &str, layout: FileLayout) -> Result<(), Failure> {
    let FileLayout::Family { piece_bytes } = layout else { return Ok(()) };
    let stem = folder.join(prefix);
    if stem.as_os_str().as_encoded_bytes().contains(&b'%') {
        let what = format!("{} cannot be a family", stem.display());
        let why = "its path has a '%', and the driver of HDF5 takes the path of a family for a format";
        return Err(Failure::new(Exit::Usage, what, why, "choose another folder or name after -o"));
    }
    let size = |path: &Path| path.metadata().map(|facts| facts.len()).map_err(|error| Failure::io("cannot read", path, &error));
    let bytes = run.files().map(size).sum::<Result<u64, _>>()?;
    if bytes.div_ceil(piece_bytes) > MOST_PIECES {
        let what = format!("{} would become {} pieces", run.path().display(), bytes.div_ceil(piece_bytes));
        let why = format!("readers open all pieces at once, and mostly cannot open more than {MOST_PIECES}");
        let fix = format!("give --piece-size {}M or more", bytes.div_ceil(MOST_PIECES).div_ceil(1_000_000));
        return Err(Failure::new(Exit::Usage, what, why, fix));
    }
    Ok(())
}

/// The name under which an output is made before it is whole: a hidden folder beside it.
fn workshop(folder: &Path, prefix: &str) -> PathBuf {
    folder.join(format!(".{prefix}.layout.part"))
}

/// Writes the run of `file` to `output` (an existing folder, or a folder and the first part of the names) in another
/// layout. `show` is called with the bytes of each chunk. `None` after Ctrl-C; nothing is left then.
///
/// # Errors
/// The run cannot be read or has no one form; a file with the name of the output exists; I/O; what was read back
/// differs. Nothing is left of the output then.
pub fn change(
    file: &Path,
    output: &Path,
    layout: FileLayout,
    stop: &AtomicBool,
    show: &mut dyn FnMut(u64),
) -> Result<Option<Laid>, Failure> {
    let run = Run::open(file)?;
    let (folder, prefix) = place(output, &prefix_of(file)?)?;
    let taken = finals(&folder, &prefix, layout).into_iter().find(|path| path.symlink_metadata().is_ok());
    if let Some(taken) = taken {
        let fix = "choose another folder or name after -o, or remove it";
        return Err(Failure::new(Exit::Io, format!("{} exists", taken.display()), "the output would have this name", fix));
    }
    openable(&run, &folder, &prefix, layout)?;
    let shop = Workshop::new(workshop(&folder, &prefix))?;
    let Some(laid) = written(&run, &shop.0, &prefix, layout, stop, show)? else { return Ok(None) };
    if !compared(&run, &laid.main, stop, show)? {
        return Ok(None);
    }
    others(&run, &folder)?;
    let to = |path: &PathBuf| folder.join(path.file_name().unwrap_or_default());
    // The structure last: without it nobody takes the others for whole.
    for path in laid.files.iter().filter(|path| **path != laid.main).chain([&laid.main]) {
        fs::rename(path, to(path)).map_err(|error| Failure::io("cannot rename to", &to(path), &error))?;
    }
    let synced = File::open(&folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Failure::io("cannot bring to the disk", &folder, &error))?;
    Ok(Some(Laid { main: to(&laid.main), files: laid.files.iter().map(to).collect(), ..laid }))
}

/// Names of the output that must not be taken.
fn finals(folder: &Path, prefix: &str, layout: FileLayout) -> Vec<PathBuf> {
    let name = SplitName::new(&folder.join(prefix));
    match layout {
        FileLayout::Single => vec![folder.join(format!("{prefix}.h5"))],
        FileLayout::Split | FileLayout::Family { .. } => vec![name.meta(), name.raw(0), name.raw(1), name.raw(2)],
    }
}

/// Writes the files into a folder.
fn written(
    run: &Run,
    folder: &Path,
    prefix: &str,
    layout: FileLayout,
    stop: &AtomicBool,
    show: &mut dyn FnMut(u64),
) -> Result<Option<Laid>, Failure> {
    let name = SplitName::new(&folder.join(prefix));
    let main = if layout == FileLayout::Single { folder.join(format!("{prefix}.h5")) } else { name.meta() };
    let mut one = run.create(&main)?;
    let mut raw = match layout {
        FileLayout::Single => None,
        FileLayout::Split => Some(Pieces::new(name.clone(), u64::MAX)),
        FileLayout::Family { piece_bytes } => Some(Pieces::new(name.clone(), piece_bytes)),
    };
    let headers = one.headers()?;
    let (mut stacks, mut bytes, mut total) = (Vec::new(), Vec::new(), 0);
    for (n, form) in run.layouts().iter().enumerate() {
        let mut chunks = Vec::new();
        for image in 0..form.images {
            if stop.load(Ordering::Acquire) {
                return Ok(None);
            }
            let Some(is_packed) = run.read(n, image, &mut bytes)? else { continue };
            match &mut raw {
                None if is_packed => one.write(n, image, &bytes)?,
                None => return Err(plain(run.path(), image)),
                Some(raw) => {
                    let (start, length) = (form.offset(image), bytes.len() as u32);
                    chunks.push(SplitChunk { start, offset: raw.append(&bytes)?, bytes: length, is_plain: !is_packed });
                }
            }
            total += bytes.len() as u64;
            show(bytes.len() as u64);
        }
        stacks.push(SplitStack { header: headers[n], chunk: chunk_of(&form.offset(0), form.rows, form.columns), chunks });
    }
    let images = run.layouts().iter().map(|form| form.images).sum();
    let Some(raw) = raw else {
        one.seal(None)?.publish()?;
        return Ok(Some(Laid { files: vec![main.clone()], main, images, bytes: total, piece_bytes: 0 }));
    };
    let mut files = raw.finish()?;
    let (mut begin, mut driver, mut piece_bytes) = (0, ".raw_1.h5", 0);
    if let FileLayout::Family { piece_bytes: most } = layout {
        // The driver counts from 0: the first member is empty, and pixels begin behind it.
        piece_bytes = most.min(total.max(1));
        (begin, driver) = (piece_bytes, ".raw_%%d.h5");
        File::create_new(name.raw(0)).map_err(|error| Failure::io("cannot create", &name.raw(0), &error))?;
        files.push(name.raw(0));
    }
    stacks.iter_mut().flat_map(|stack| &mut stack.chunks).for_each(|chunk| chunk.offset += begin);
    one.seal(Some((&stacks, begin + total, driver)))?.publish()?;
    files.push(main.clone());
    Ok(Some(Laid { main, files, images, bytes: total, piece_bytes }))
}

/// The shape of a chunk: one image.
fn chunk_of(start: &[u64], rows: usize, columns: usize) -> Vec<u64> {
    let mut shape = vec![1; start.len() - 2];
    shape.extend([rows as u64, columns as u64]);
    shape
}

fn plain(file: &Path, image: u64) -> Failure {
    let what = format!("image {image} of {} was stored without its filter", file.display());
    let fix = "give --compression too: the images are packed again then";
    Failure::new(Exit::Configuration, what, "its program did not pack it because it would not shrink", fix)
}

/// Files of constant size, one after the other.
struct Pieces {
    name: SplitName,
    piece_bytes: u64,
    files: Vec<PathBuf>,
    open: Option<File>,
    /// Bytes so far.
    end: u64,
}

impl Pieces {
    fn new(name: SplitName, piece_bytes: u64) -> Self {
        Self { name, piece_bytes, files: Vec::new(), open: None, end: 0 }
    }

    /// Appends a chunk, which may go on in the next piece; returns where it begins.
    fn append(&mut self, mut bytes: &[u8]) -> Result<u64, Failure> {
        let begin = self.end;
        while !bytes.is_empty() {
            if self.open.is_none() {
                let path = self.name.raw(self.files.len() as u64 + 1);
                self.open = Some(File::create_new(&path).map_err(|error| Failure::io("cannot create", &path, &error))?);
                self.files.push(path);
            }
            let left = self.piece_bytes - self.end % self.piece_bytes;
            let (now, rest) = bytes.split_at(left.min(bytes.len() as u64) as usize);
            if let (Some(file), Some(path)) = (&mut self.open, self.files.last()) {
                file.write_all(now).map_err(|error| Failure::io("cannot write", path, &error))?;
            }
            self.end += now.len() as u64;
            bytes = rest;
            if self.end.is_multiple_of(self.piece_bytes) {
                self.close()?;
            }
        }
        Ok(begin)
    }

    fn close(&mut self) -> Result<(), Failure> {
        if let (Some(file), Some(path)) = (self.open.take(), self.files.last()) {
            file.sync_all().map_err(|error| Failure::io("cannot write", path, &error))?;
        }
        Ok(())
    }

    /// The files, on the disk; at least one.
    fn finish(mut self) -> Result<Vec<PathBuf>, Failure> {
        self.close()?;
        if self.files.is_empty() {
            let path = self.name.raw(1);
            File::create_new(&path).map_err(|error| Failure::io("cannot create", &path, &error))?;
            self.files.push(path);
        }
        Ok(self.files)
    }
}

/// Reads every chunk back through the library and compares its bytes. False after Ctrl-C.
fn compared(run: &Run, copy: &Path, stop: &AtomicBool, show: &mut dyn FnMut(u64)) -> Result<bool, Failure> {
    let copy = Stacks::open(copy)?;
    let differs = |why: String| {
        let what = format!("the copy of {} in another layout differs from it", run.path().display());
        let fix = "the copy was removed, the original is unchanged; look for a failing disk or memory, otherwise report this";
        Failure::new(Exit::Incomplete, what, why, fix)
    };
    let forms: Vec<_> = copy.layouts().cloned().collect();
    let same = |n: usize| {
        let (a, b) = (&run.layouts()[n], &forms[n]);
        (a.images, a.rows, a.columns, a.element_bytes, a.compression)
            == (b.images, b.rows, b.columns, b.element_bytes, b.compression)
    };
    if forms.len() != run.layouts().len() || !(0..forms.len()).all(same) {
        return Err(differs("shapes or types of its stacks differ".into()));
    }
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (n, form) in forms.iter().enumerate() {
        for image in 0..form.images {
            if stop.load(Ordering::Acquire) {
                return Ok(false);
            }
            let stored = [run.read(n, image, &mut before)?, copy.read(n, image, &mut after)?];
            if stored[0] != stored[1] || (stored[0].is_some() && before != after) {
                return Err(differs(format!("image {image} of {}", form.name)));
            }
            show(after.len() as u64);
        }
    }
    Ok(true)
}

/// Brings files that the run names beside its images to the output: the snapshots of its pedestals.
fn others(run: &Run, folder: &Path) -> Result<(), Failure> {
    for path in run.others().iter().filter(|path| path.is_file()) {
        let target = folder.join(path.file_name().unwrap_or_default());
        if target.exists() {
            continue;
        }
        let part = temporary_path(&target);
        let copied = fs::copy(path, &part).and_then(|_| File::open(&part)?.sync_all()).and_then(|()| fs::rename(&part, &target));
        copied.map_err(|error| {
            let _ = fs::remove_file(&part);
            Failure::io("cannot write", &target, &error)
        })?;
    }
    Ok(())
}

/// Gives a master, whose data files lie beside it, only the virtual data set or only the links. It is replaced when the
/// new one is on the disk.
///
/// # Errors
/// It has no data files, is still being written, or cannot be replaced; then it is as it was.
pub fn point(master: &Path, layout: Layout) -> Result<(), Failure> {
    let run = Run::open(master)?;
    let name = format!(".{}.layout", master.file_name().unwrap_or_default().to_string_lossy());
    let other = master.with_file_name(name);
    let _ = fs::remove_file(&other);
    run.master(&other, layout, &str::to_owned)?.publish()?;
    fs::rename(&other, master).map_err(|error| {
        let _ = fs::remove_file(&other);
        Failure::io("cannot replace", master, &error)
    })
}
