//! Writes a run again with its images in one place: all in one file, or its structure in one file and its pixels in
//! others. Chunks are copied as they are. Also writes a further master of the same data files.
//!
//! The stack of all images is `/entry/data/data`. Everything else is copied from the master; data files hold nothing
//! else that the master has not, which is checked before.

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File, Group};

use super::error::{Context, Error, ErrorKind};
use super::header::{address, settle};
use super::low::{self, Format};
use super::mirror::{Members, copy_groups, replace_text};
use super::nexus::{self, attribute_text};
use super::objects::{self, Link};
use super::packing;
use super::paths::{DESCRIPTION, STACK};
use super::sealed::{Part, Sealed};
use super::spec::Layout;
use super::split_bytes::{SplitStack, complete};
use super::stacks::{StackLayout, Stacks};

const WRITE: &str = "write the file in another layout";
const READ: &str = "read the run to change its layout";
/// Group of the images.
const DATA: &str = "/entry/data";
/// What a data file may hold: everything of it is in the master too.
const KNOWN: [&str; 6] =
    ["/entry", "/entry/data", STACK, "/entry/konkordia", "/entry/konkordia/run_description", "/entry/konkordia/pixel_mask"];

/// A run whose images are in one file or in several.
pub struct Run {
    /// The file that was named.
    main: Stacks,
    /// Its data files, in order; empty if it holds its images itself.
    parts: Vec<Stacks>,
    /// One for each stack: all images of the run.
    layouts: Vec<StackLayout>,
}

impl Run {
    /// Opens a file and the data files that it names.
    ///
    /// # Errors
    /// It cannot be read, has no images, or data files of different form, or data files with something that the master
    /// has not.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let main = Stacks::open(path)?;
        let own: Vec<StackLayout> = main.layouts().cloned().collect();
        let names = data_files(&main).context(READ, path)?;
        let refuse = |cause: String, hint: &str| Err(Error::new(ErrorKind::Invalid, READ, path, cause).with_hint(hint));
        if !own.is_empty() {
            if names.is_empty() {
                return Ok(Self { main, parts: Vec::new(), layouts: own });
            }
            return refuse("it has images of its own and points to others".into(), "repack the data files one by one");
        }
        if names.is_empty() {
            return refuse("it has no images".into(), "name a master, or a file with images");
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        let parts = names.iter().map(|name| Stacks::open(&directory.join(name))).collect::<Result<Vec<_>, _>>()?;
        let form = |layout: &StackLayout| {
            (layout.rows, layout.columns, layout.element_bytes, layout.pixel, layout.compression, layout.leading[1..].to_vec())
        };
        let mut whole: Option<StackLayout> = None;
        for part in &parts {
            let file = part.path();
            let wrong = |cause: String| {
                let hint = "change the layout of files of one run only; repack others one by one";
                Err(Error::new(ErrorKind::Invalid, READ, file, cause).with_hint(hint))
            };
            let [layout] = &part.layouts().collect::<Vec<_>>()[..] else { return wrong("it has not one stack of images".into()) };
            if let Some(name) = unknown(part).context(READ, file)? {
                return wrong(format!("it holds {name}, which the master has not"));
            }
            match &mut whole {
                None => whole = Some((*layout).clone()),
                Some(whole) if form(whole) == form(layout) => {
                    whole.leading[0] += layout.leading[0];
                    whole.images += layout.images;
                }
                Some(_) => return wrong("its images have another shape, type or compression than those before".into()),
            }
        }
        let layouts = whole.into_iter().map(|layout| StackLayout { name: STACK.into(), ..layout }).collect();
        Ok(Self { main, parts, layouts })
    }

    /// Its stacks.
    pub fn layouts(&self) -> &[StackLayout] {
        &self.layouts
    }

    /// The file that was named.
    pub fn path(&self) -> &Path {
        self.main.path()
    }

    /// All files of it that hold images or name them.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.main).chain(&self.parts).map(Stacks::path)
    }

    /// Files that it names beside its data files: the snapshots of its pedestals.
    pub fn others(&self) -> Vec<PathBuf> {
        let own: Vec<&Path> = self.files().collect();
        self.main.linked_files().into_iter().filter(|path| !own.contains(&path.as_path())).collect()
    }

    /// As [`Stacks::read`], with images counted through all data files.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, stack: usize, image: u64, out: &mut Vec<u8>) -> Result<Option<bool>, Error> {
        let mut left = image;
        for part in &self.parts {
            let images = part.layouts().map(|layout| layout.images).sum();
            if left < images {
                return part.read(0, left, out);
            }
            left -= images;
        }
        self.main.read(stack, left, out)
    }

    /// Creates `target` with everything of the run and stacks without chunks.
    ///
    /// # Errors
    /// As [`super::mirror::Mirror::create`].
    pub fn create(&self, target: &Path) -> Result<OneFile, Error> {
        let (part, file) = Part::create(target, Format::V18WithVirtual, WRITE)?;
        let stacks = self.fill(&file).context(WRITE, target)?;
        Ok(OneFile { part, file, stacks, layouts: self.layouts.clone(), time_s: self.main.time_s() })
    }

    fn fill(&self, file: &File) -> hdf5::Result<Vec<Dataset>> {
        let mut found: Vec<Option<Dataset>> = self.main.layouts().map(|_| None).collect();
        let is_left = |at: &str, link: &Link, is_virtual: bool| {
            let is_pointer = is_virtual || matches!(link, Link::External(_, path) if path == STACK);
            !self.parts.is_empty() && at.starts_with(DATA) && is_pointer
        };
        let members = Members { rename: &str::to_owned, compression: None, is_left: &is_left };
        copy_groups(&self.main, file.group("/")?, &members, &mut found)?;
        if let (Some(first), Some(layout)) = (self.parts.first(), self.layouts.first()) {
            let (from, to) = (&first.found[0].1, file.group(DATA)?);
            let shape = [layout.rows as u32, layout.columns as u32];
            let filter = packing::filter_of(layout.compression, layout.element_bytes, layout.pixel, shape);
            let made = objects::create_longer_stack(from, &to, "data", filter.as_ref(), layout.leading[0])?;
            objects::copy_attributes(from, &made)?;
            for name in ["image_nr_low", "image_nr_high"] {
                if made.attr(name).is_ok() {
                    made.delete_attr(name)?;
                }
            }
            signal(&to, "data")?;
            return Ok(vec![made]);
        }
        found.into_iter().collect::<Option<_>>().ok_or_else(|| "a stack that was found is not found again".into())
    }

    /// Writes another master of the same data files to `target`: with the virtual data set alone, or with the links
    /// alone. `rename` gives the name of a data file as seen from there.
    ///
    /// # Errors
    /// The run has no data files, `target` exists, I/O.
    pub fn master(&self, target: &Path, layout: Layout, rename: &dyn Fn(&str) -> String) -> Result<Sealed, Error> {
        if self.parts.is_empty() {
            let cause = "its images are in the file itself, so a master would have nothing to point to";
            return Err(Error::new(ErrorKind::Invalid, WRITE, self.path(), cause).with_hint("name the master of a run"));
        }
        let (part, file) = Part::create(target, Format::V18WithVirtual, WRITE)?;
        let doing = || -> hdf5::Result<()> {
            let names = data_files(&self.main)?;
            let is_left = |at: &str, link: &Link, is_virtual: bool| {
                at.starts_with(DATA) && (is_virtual || matches!(link, Link::External(_, path) if path == STACK))
            };
            let members = Members { rename, compression: None, is_left: &is_left };
            copy_groups(&self.main, file.group("/")?, &members, &mut [])?;
            if let Some(text) = nexus::read_text(&file, DESCRIPTION) {
                let line = |line: &str| {
                    if line.starts_with("layout = ") { format!("layout = {}\n", layout.name()) } else { format!("{line}\n") }
                };
                replace_text(&file, DESCRIPTION, &text.lines().map(line).collect::<String>())?;
            }
            let data = file.group(DATA)?;
            if layout == Layout::Links {
                for (n, name) in names.iter().enumerate() {
                    data.link_external(&rename(name), STACK, &format!("data_{:06}", n + 1))?;
                }
                return signal(&data, "data_000001");
            }
            let sources: Vec<(String, &Dataset)> =
                names.iter().zip(&self.parts).map(|(name, part)| (rename(name), &part.found[0].1)).collect();
            let made = objects::create_virtual_of(&sources, STACK, &data, "data")?;
            if let Some(units) = nexus::read_attribute(&self.parts[0].found[0].1, "units") {
                attribute_text(&made, "units", &units)?;
            }
            signal(&data, "data")
        };
        let done = doing().and_then(|()| file.flush()).and_then(|()| file.close());
        done.and_then(|()| settle(part.path(), self.main.time_s())).context(WRITE, target)?;
        part.seal()
    }
}

/// Names the data set that readers show.
fn signal(data: &Group, name: &str) -> hdf5::Result<()> {
    if data.attr("signal").is_ok() {
        data.delete_attr("signal")?;
    }
    attribute_text(data, "signal", name)
}

/// The data files that a master names, in order: those of its links, or of its virtual data set.
fn data_files(main: &Stacks) -> hdf5::Result<Vec<String>> {
    let Ok(data) = main.file().group(DATA) else { return Ok(Vec::new()) };
    let mut names = data.member_names()?;
    names.sort();
    let (mut linked, mut mapped) = (Vec::new(), Vec::new());
    for name in names {
        match objects::link(&data, &name)? {
            Link::External(file, path) if path == STACK && name.starts_with("data_") => linked.push(file),
            Link::Hard => {
                let Ok(dataset) = data.dataset(&name) else { continue };
                if objects::is_virtual(&dataset) {
                    let sources = objects::virtual_sources(&dataset)?;
                    mapped.extend(sources.into_iter().filter(|(file, path)| path == STACK && file != ".").map(|(file, _)| file));
                }
            }
            _ => {}
        }
    }
    Ok(if linked.is_empty() { mapped } else { linked })
}

/// A name in a data file that the master has not.
fn unknown(part: &Stacks) -> hdf5::Result<Option<String>> {
    let mut open = vec![(part.file().group("/")?, String::new())];
    while let Some((group, above)) = open.pop() {
        for name in group.member_names()? {
            let path = format!("{above}/{name}");
            let is_known = KNOWN.contains(&path.as_str());
            if !is_known && !["/entry/konkordia/images", "/entry/konkordia/repack"].iter().any(|own| path.starts_with(own)) {
                return Ok(Some(path));
            }
            if is_known && let Ok(inner) = group.group(&name) {
                open.push((inner, path));
            }
        }
    }
    Ok(None)
}

/// A file while it is written, with all images or with the structure alone.
pub struct OneFile {
    part: Part,
    file: File,
    stacks: Vec<Dataset>,
    layouts: Vec<StackLayout>,
    /// Time of its objects.
    time_s: u32,
}

impl OneFile {
    /// Writes the chunk of an image as it is; the chunks of a stack come in order.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, stack: usize, image: u64, chunk: &[u8]) -> Result<(), Error> {
        let start = self.layouts[stack].offset(image);
        low::write_chunk(&self.stacks[stack], &start, chunk).context(WRITE, self.part.target())
    }

    /// Where the object header of each stack lies in the file.
    ///
    /// # Errors
    /// The library does not say so.
    pub fn headers(&self) -> Result<Vec<u64>, Error> {
        let header = |stack: &Dataset| -> hdf5::Result<u64> {
            let name = stack.name();
            let (group, name) = name.rsplit_once('/').ok_or("a data set without a path")?;
            let (token, _) = objects::object(&self.file.group(if group.is_empty() { "/" } else { group })?, name)?;
            Ok(address(token))
        };
        self.stacks.iter().map(header).collect::<hdf5::Result<_>>().context(WRITE, self.part.target())
    }

    /// Closes the file and brings it to the disk. With `split` it becomes the structure of a split file, whose pixels
    /// end at `raw_bytes` and are called `raw_name` by the driver.
    ///
    /// # Errors
    /// I/O; nothing is left behind then.
    pub fn seal(self, split: Option<(&[SplitStack], u64, &str)>) -> Result<Sealed, Error> {
        let Self { part, file, stacks, time_s, .. } = self;
        drop(stacks);
        let closed = file.flush().and_then(|()| file.close()).and_then(|()| settle(part.path(), time_s));
        closed.context(WRITE, part.target())?;
        let sealed = part.seal()?;
        if let Some((stacks, raw_bytes, raw_name)) = split {
            complete(sealed.path(), stacks, raw_bytes, raw_name).context(WRITE, sealed.path())?;
        }
        Ok(sealed)
    }
}
