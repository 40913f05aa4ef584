//! Writes a file again with another compression. Every object is copied as it is; only the image stacks get a new
//! filter, and their chunks are copied one by one. So the metadata of any program survive, and files keep their
//! structure. Callers do the compressing, chunk by chunk.
//!
//! An image stack is a chunked data set in a group that is called `data` or has class NXdata. Each of its chunks is one
//! whole image: rows and columns are the last two dimensions, and all others are 1 in a chunk. Links to other files and
//! virtual data sets are copied with the files renamed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hdf5::types::FixedAscii;
use hdf5::{Dataset, File, Group};
use konkordia_core::pixel::PixelType;

use super::datafile::{COLUMNS, DESCRIPTION, STACK};
use super::error::{Context, Error, ErrorKind};
use super::journal::refuse_if_alive;
use super::low::{self, Format};
use super::mappings::Mappings;
use super::mirror_sums::{self, Sums};
use super::names::{journal_path, temporary_path};
use super::nexus::{self, attribute_text};
use super::objects::{self, Link, Token};
use super::packing;
use super::reader::pixel_of;
use super::spec::{Compression, PIXELS_MAX};

pub use super::mirror_sums::Verifier;

const READ: &str = "read the file to be repacked";
const WRITE: &str = "write the repacked file";
/// Files whose groups are nested deeper than this are refused.
const DEPTH_MAX: usize = 64;
/// Group that records how a file was repacked, in every repacked file.
pub const RECORD: &str = "/entry/konkordia/repack";
/// A compressed chunk is never longer than twice its image plus this.
const CHUNK_EXTRA: u64 = 4096;

/// One image stack.
#[derive(Clone, Debug, PartialEq)]
pub struct StackLayout {
    /// Path in the file.
    pub name: String,
    /// Chunks: the number of images, times the number of channels if there are several.
    pub images: u64,
    /// Image rows.
    pub rows: usize,
    /// Image columns.
    pub columns: usize,
    /// Bytes of a pixel.
    pub element_bytes: usize,
    /// Type of a pixel, little endian; `None` for other types.
    pub dtype: Option<PixelType>,
    /// The same, if it is one of the types that this program converts to.
    pub pixel: Option<PixelType>,
    /// How its chunks are compressed.
    pub compression: Compression,
    /// The pixel of images that have no chunk, little endian; only in files of this program.
    pub fill: Option<Vec<u8>>,
    /// Sizes of the dimensions before rows and columns.
    leading: Vec<u64>,
}

impl StackLayout {
    /// Bytes of one decoded image.
    pub fn image_bytes(&self) -> usize {
        self.rows * self.columns * self.element_bytes
    }

    /// Positions of the stack. An image with several channels has several chunks at its position.
    pub(super) fn positions(&self) -> u64 {
        self.leading.first().copied().unwrap_or(0)
    }

    fn offset(&self, mut image: u64) -> Vec<u64> {
        let mut offset = vec![0; self.leading.len() + 2];
        for (at, size) in self.leading.iter().enumerate().rev() {
            offset[at] = image % size;
            image /= size;
        }
        offset
    }
}

/// A file opened to read its image stacks.
pub struct Stacks {
    path: PathBuf,
    file: File,
    found: Vec<(StackLayout, Dataset)>,
    /// Index of the stack by object; an object may have several names.
    index: HashMap<Token, usize>,
    /// Virtual data sets, stacks, and groups with something below them that cannot simply be copied as a whole.
    special: HashSet<Token>,
    /// Other files that this one points to, by the names that it gives them.
    names: Vec<String>,
}

/// What was found under a name.
enum Found {
    Stack(Box<StackLayout>),
    /// A virtual data set or an external link.
    Pointer(Vec<String>),
}

impl Stacks {
    /// Opens a file and finds its image stacks.
    ///
    /// # Errors
    /// If it cannot be read, is being written, has checksums that cannot be read, or holds a stack with filters or
    /// chunks that this program does not know.
    pub fn open(path: &Path) -> Result<Self, Error> {
        std::fs::metadata(path).context(READ, path)?;
        let journal = journal_path(path);
        if journal.exists() {
            refuse_if_alive(&journal)?;
            let cause = "its writer was killed: there is a journal beside it";
            return Err(Error::new(ErrorKind::Damaged, READ, path, cause));
        }
        let file = low::open_file(path).context(READ, path)?;
        if nexus::read_text(&file, "/entry/konkordia/state").is_some_and(|state| state == "writing") {
            let cause = "the run is still being written, or its writer was killed";
            return Err(Error::new(ErrorKind::Damaged, READ, path, cause)
                .with_hint("wait for the end of the run, or run `konkordia repair FILE`"));
        }
        refuse_damaged_mappings(path)?;
        mirror_sums::refuse_unreadable(&file)
            .map_err(|why| Error::new(ErrorKind::Damaged, READ, path, why).with_hint(mirror_sums::FIX))?;
        let (index, special) = (HashMap::new(), HashSet::new());
        let mut stacks = Self { path: path.to_owned(), file, found: Vec::new(), index, special, names: Vec::new() };
        stacks.walk()?;
        stacks.names.sort();
        stacks.names.dedup();
        Ok(stacks)
    }

    /// Visits each group once, starting at the root and going down: hard links may lead back to groups above.
    fn walk(&mut self) -> Result<(), Error> {
        let root = self.file.group("/").context(READ, &self.path)?;
        let at_root = objects::object(&root, ".").context(READ, &self.path)?.0;
        let mut seen = HashSet::from([at_root]);
        let mut open = VecDeque::from([(root, at_root, 0)]);
        // The groups in which an object has a name.
        let mut holders: HashMap<Token, Vec<Token>> = HashMap::new();
        let mut special = vec![at_root];
        while let Some((group, holder, depth)) = open.pop_front() {
            // The library lists them in an order that depends on how they are stored; sorting gives the copy its stacks
            // in the order of the original.
            let mut names = group.member_names().context(READ, &self.path)?;
            names.sort();
            for name in names {
                let found = self.look(&group, &name)?;
                if objects::link(&group, &name).context(READ, &self.path)? != Link::Hard {
                    if let Some(Found::Pointer(files)) = found {
                        self.names.extend(files);
                        special.push(holder);
                    }
                    continue;
                }
                let (object, is_group) = objects::object(&group, &name).context(READ, &self.path)?;
                holders.entry(object).or_default().push(holder);
                match found {
                    Some(Found::Stack(layout)) if !self.index.contains_key(&object) => {
                        self.index.insert(object, self.found.len());
                        self.found.push((*layout, group.dataset(&name).context(READ, &self.path)?));
                        special.push(object);
                    }
                    Some(Found::Pointer(files)) => {
                        self.names.extend(files);
                        special.push(object);
                    }
                    None if is_group && seen.insert(object) => {
                        if depth == DEPTH_MAX {
                            let cause = format!("groups are nested deeper than {DEPTH_MAX} levels");
                            return Err(Error::new(ErrorKind::Invalid, READ, &self.path, cause));
                        }
                        open.push_back((group.group(&name).context(READ, &self.path)?, object, depth + 1));
                    }
                    _ => {}
                }
            }
        }
        // An object with several names is copied once only if each of the groups that name it is copied member by
        // member.
        special.extend(holders.values().filter(|groups| groups.len() > 1).flatten());
        // A group that holds something special is special itself.
        while let Some(object) = special.pop() {
            if self.special.insert(object) {
                special.extend(holders.get(&object).into_iter().flatten());
            }
        }
        Ok(())
    }

    /// Recognises objects that cannot simply be copied.
    fn look(&self, group: &Group, name: &str) -> Result<Option<Found>, Error> {
        match objects::link(group, name).context(READ, &self.path)? {
            Link::External(file, _) => return Ok(Some(Found::Pointer(vec![file]))),
            Link::Soft(_) => return Ok(None),
            Link::Hard => {}
        }
        let Ok(dataset) = group.dataset(name) else { return Ok(None) };
        if objects::is_virtual(&dataset) {
            let sources = objects::virtual_sources(&dataset).context(READ, &self.path)?;
            let files = sources.into_iter().map(|(file, _)| file).filter(|file| file != ".");
            return Ok(Some(Found::Pointer(files.collect())));
        }
        let class = class(group);
        let holds_images = group.name().ends_with("/data") || class.as_deref() == Some("NXdata");
        // The layout of MAX IV has its images among the fields of the detector.
        let among_fields = class.as_deref() == Some("NXdetector") && is_stack(&dataset);
        if holds_images && dataset.name() == STACK && dataset.ndim() == 2 {
            let error = Error::new(ErrorKind::Invalid, READ, &self.path, format!("{STACK}: its images have one dimension"));
            return Err(error.with_hint("repack takes images of rows and columns; convert others with h5repack"));
        }
        if !(holds_images || among_fields) || dataset.ndim() < 3 || !dataset.is_chunked() {
            return Ok(None);
        }
        self.layout(&dataset).map(|layout| Some(Found::Stack(Box::new(layout))))
    }

    fn layout(&self, dataset: &Dataset) -> Result<StackLayout, Error> {
        let wrong = |what: String| {
            let hint = "repack takes stacks of whole images in chunks of bslz4, bszstd, lz4, zstd, gzip or none; convert others with h5repack";
            Error::new(ErrorKind::Invalid, READ, &self.path, format!("{}: {what}", dataset.name())).with_hint(hint)
        };
        let (shape, chunk) = (dataset.shape(), dataset.chunk().unwrap_or_default());
        let before = shape.len() - 2;
        if !is_stack(dataset) {
            return Err(wrong(format!("its chunks of {chunk:?} are not images of {shape:?}")));
        }
        let (rows, columns) = (shape[before], shape[before + 1]);
        if rows.saturating_mul(columns) > PIXELS_MAX {
            return Err(wrong(format!("images of {rows} x {columns} pixels are too large")));
        }
        let filters = low::filters(dataset).context(READ, &self.path)?;
        let compression = packing::compression(&filters).ok_or_else(|| wrong(format!("unknown filters {filters:?}")))?;
        let kind = dataset.dtype().context(READ, &self.path)?;
        let little = kind.byte_order() != hdf5::datatype::ByteOrder::BigEndian;
        let pixel = kind.to_descriptor().ok().and_then(|kind| pixel_of(&kind));
        let pixel = pixel.filter(|_| little);
        let fill = pixel
            .filter(|_| self.is_ours())
            .map(|pixel| low::fill_value(dataset, pixel))
            .transpose()
            .context(READ, &self.path)?;
        let leading: Vec<u64> = shape[..before].iter().map(|&size| size as u64).collect();
        Ok(StackLayout {
            name: dataset.name(),
            images: leading.iter().product(),
            rows,
            columns,
            element_bytes: kind.size(),
            dtype: pixel,
            pixel: pixel.filter(|pixel| PixelType::CONVERTED.contains(pixel)),
            compression,
            fill,
            leading,
        })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The stacks, in the order in which they are written.
    pub fn layouts(&self) -> impl ExactSizeIterator<Item = &StackLayout> {
        self.found.iter().map(|(layout, _)| layout)
    }

    pub(super) fn layout_of(&self, stack: usize) -> Option<&StackLayout> {
        self.found.get(stack).map(|(layout, _)| layout)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The files that it points to, beside it or where their names say.
    pub fn linked_files(&self) -> Vec<PathBuf> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        self.names.iter().map(|name| directory.join(name)).collect()
    }

    /// Whether this program wrote it, so that the special values of `core::pixel` hold.
    pub fn is_ours(&self) -> bool {
        nexus::read_text(&self.file, DESCRIPTION).is_some()
    }

    /// Whether it has checksums of its images; files of earlier versions have none.
    pub fn has_checksums(&self) -> bool {
        mirror_sums::has_any(&self.file)
    }

    /// Checks a data file that a master with checksums names: masters have checksums only if all of their data files
    /// had them.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it has per-image columns and no checksums.
    pub fn must_have_checksums(&self) -> Result<(), Error> {
        if self.has_checksums() || !self.file.link_exists(COLUMNS) {
            return Ok(());
        }
        let cause = "the checksums of its images are gone: the master has them";
        Err(Error::new(ErrorKind::Damaged, READ, &self.path, cause).with_hint(mirror_sums::FIX))
    }

    /// Whether its pixels are detector words without conversion.
    pub fn is_raw_words(&self) -> bool {
        nexus::read_text(&self.file, DESCRIPTION).is_some_and(|text| text.lines().any(|line| line == "raw_words = true"))
    }

    /// The record of the repacking in this file; `None` if it is absent or incomplete.
    pub fn repacked(&self) -> Option<Repacked> {
        let text = |name: &str| {
            let value = self.file.dataset(&format!("{RECORD}/{name}")).ok()?.read_scalar::<FixedAscii<TEXT>>().ok()?;
            Some(value.as_str().to_owned())
        };
        Some(Repacked {
            compression: text("compression")?,
            source: text("source")?,
            folder: text("source_folder")?,
            identity: text("source_identity")?,
        })
    }

    /// Replaces `out` by the chunk of an image of stack `stack`. `None` = there is no chunk, the fill value holds.
    /// Otherwise the result says whether the chunk is compressed: where the filter is optional, libhdf5 stores data
    /// that do not shrink uncompressed.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, stack: usize, image: u64, out: &mut Vec<u8>) -> Result<Option<bool>, Error> {
        let (layout, dataset) = &self.found[stack];
        let most = 2 * layout.image_bytes() as u64 + CHUNK_EXTRA;
        low::read_stored_chunk(dataset, &layout.offset(image), most, out).context(READ, &self.path)
    }
}

/// A file of mappings holds no images; larger files are not searched.
const MAPPINGS_FILE_BYTES_MAX: u64 = 1 << 30;

/// libhdf5 can crash when it opens a virtual data set whose mappings are damaged.
fn refuse_damaged_mappings(path: &Path) -> Result<(), Error> {
    let bytes = std::fs::metadata(path).context(READ, path)?.len();
    if bytes <= MAPPINGS_FILE_BYTES_MAX && Mappings::of(path).context(READ, path)?.damaged > 0 {
        return Err(Error::new(ErrorKind::Damaged, READ, path, "the mappings of a virtual data set are damaged"));
    }
    Ok(())
}

/// The file of which another one is the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repacked {
    /// How the chunks were compressed, in words.
    pub compression: String,
    /// Name of the source.
    pub source: String,
    /// Folder in which the source was.
    pub folder: String,
    /// Distinguishes the source from other files of its name.
    pub identity: String,
}

/// Size of a text in the record, in bytes.
const TEXT: usize = 256;

fn class(group: &Group) -> Option<String> {
    nexus::read_attribute(group, "NX_class")
}

/// The value of one entry of the record.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordValue {
    /// A count.
    Count(u64),
    /// A number, with its unit.
    Number(f64, &'static str),
    /// A text of at most 255 ASCII characters.
    Text(String),
}

/// The temporary name of a file while it is written. Nothing stays under it unless the file gets its own name.
struct Part {
    path: PathBuf,
    /// Identity of that file: device and inode. Another program may have put another file there.
    file: (u64, u64),
}

impl Part {
    fn is_ours(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|facts| (facts.dev(), facts.ino()) == self.file)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A file that is whole and on the disk, but does not have its name yet.
pub struct Sealed {
    target: PathBuf,
    part: Part,
}

impl Sealed {
    /// Where the file is until [`Sealed::publish`]; it is removed if it is dropped before that.
    pub fn path(&self) -> &Path {
        &self.part.path
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], I/O errors; nothing is left behind then.
    pub fn publish(self) -> Result<(), Error> {
        if self.target.exists() {
            return Err(Error::new(ErrorKind::Exists, WRITE, &self.target, "the file exists now")
                .with_hint("choose another name, or remove the old file"));
        }
        if !self.part.is_ours() {
            let cause = "another process is writing the same file";
            return Err(Error::new(ErrorKind::Exists, WRITE, &self.target, cause).with_hint("run one repacking at a time"));
        }
        std::fs::rename(&self.part.path, &self.target).context(WRITE, &self.target)?;
        let directory = self.target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Makes the name durable; on a file system that cannot do this it becomes durable with the next sync.
        let _ = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

/// A copy while it is written.
pub struct Mirror {
    target: PathBuf,
    part: Part,
    /// `None` once it is sealed.
    file: Option<File>,
    stacks: Vec<Dataset>,
    layouts: Vec<StackLayout>,
    /// Checksums of the chunks that it gets, if the source has checksums.
    sums: Option<Sums>,
}

/// Renames a file in a link: from the old name to the new one.
pub type Rename<'a> = dyn Fn(&str) -> String + 'a;

impl Mirror {
    /// Creates `target` (under another name until [`Sealed::publish`]) with everything of `source` except the chunks of
    /// its stacks. `prefix` is the new prefix of files of this program.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], I/O errors; nothing is left behind then.
    pub fn create(
        source: &Stacks,
        target: &Path,
        compression: Compression,
        rename: &Rename<'_>,
        prefix: &str,
    ) -> Result<Self, Error> {
        if target.exists() {
            return Err(Error::new(ErrorKind::Exists, WRITE, target, "the file exists")
                .with_hint("choose another name, or remove the old file"));
        }
        let part = temporary_path(target);
        if part.exists() {
            std::fs::remove_file(&part).context(WRITE, &part)?;
        }
        let file = low::create_file(&part, Format::V18WithVirtual).context(WRITE, target)?;
        let facts = std::fs::metadata(&part).context(WRITE, &part)?;
        let mut mirror = Self {
            target: target.to_owned(),
            part: Part { path: part, file: (facts.dev(), facts.ino()) },
            file: Some(file),
            stacks: Vec::new(),
            layouts: source.layouts().cloned().collect(),
            sums: Sums::new(source),
        };
        mirror.fill(source, compression, rename, prefix)?;
        Ok(mirror)
    }

    fn fill(&mut self, source: &Stacks, compression: Compression, rename: &Rename<'_>, prefix: &str) -> Result<(), Error> {
        let file = self.file.as_ref().expect("it is not sealed");
        let doing = || -> hdf5::Result<Vec<Dataset>> {
            let (from, to) = (source.file.group("/")?, file.group("/")?);
            let mut stacks: Vec<Option<Dataset>> = source.layouts().map(|_| None).collect();
            copy_groups(source, from, to, compression, rename, &mut stacks)?;
            change_description(file, compression, prefix)?;
            stacks.into_iter().collect::<Option<_>>().ok_or_else(|| "a stack that was found is not found again".into())
        };
        self.stacks = doing().context(WRITE, &self.target)?;
        assert_eq!(self.stacks.len(), self.layouts.len(), "every stack has its like");
        Ok(())
    }

    /// Writes the chunk of an image of stack `stack`; the chunks of a stack come in order.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, stack: usize, image: u64, chunk: &[u8]) -> Result<(), Error> {
        if let Some(sums) = &mut self.sums {
            sums.pass(stack, image, chunk);
        }
        low::write_chunk(&self.stacks[stack], &self.layouts[stack].offset(image), chunk).context(WRITE, &self.target)
    }

    /// Adds the record and the checksums, and brings everything to the disk. `data_files` are the copies that this file
    /// points to.
    ///
    /// # Errors
    /// If that fails; nothing is left behind then.
    pub fn seal(mut self, record: &[(&str, RecordValue)], data_files: &[PathBuf]) -> Result<Sealed, Error> {
        let file = self.file.take().expect("sealed once");
        self.stacks.clear();
        let summed = match &self.sums {
            Some(sums) => sums.store(&file),
            None => mirror_sums::take_over(&file, data_files),
        };
        summed.context(WRITE, &self.target)?;
        write_record(&file, record).and_then(|()| file.flush()).and_then(|()| file.close()).context(WRITE, &self.target)?;
        let bytes = std::fs::File::open(&self.part.path).context(WRITE, &self.part.path)?;
        bytes.sync_all().context(WRITE, &self.part.path)?;
        let Self { target, part, .. } = self;
        Ok(Sealed { target, part })
    }
}

/// Copies everything below the root, each object once. An object with several names keeps all of them, even if a group
/// contains itself.
fn copy_groups(
    source: &Stacks,
    from: Group,
    to: Group,
    compression: Compression,
    rename: &Rename<'_>,
    stacks: &mut [Option<Dataset>],
) -> hdf5::Result<()> {
    let mut paths = HashMap::from([(objects::object(&from, ".")?.0, "/".to_owned())]);
    let mut open = VecDeque::from([(from, to, String::new())]);
    while let Some((from, to, at)) = open.pop_front() {
        objects::copy_attributes(&from, &to)?;
        // The members of the copy are listed in the order in which they are created.
        let mut names = from.member_names()?;
        names.sort();
        for name in names {
            match objects::link(&from, &name)? {
                Link::Soft(path) => {
                    to.link_soft(&path, &name)?;
                    continue;
                }
                Link::External(file, path) => {
                    to.link_external(&rename(&file), &path, &name)?;
                    continue;
                }
                Link::Hard => {}
            }
            let (object, is_group) = objects::object(&from, &name)?;
            if let Some(path) = paths.get(&object) {
                to.link_hard(path, &name)?;
                continue;
            }
            let path = format!("{at}/{name}");
            if is_group {
                // Each group is created new, whatever it holds: a copy would keep the form of its header (decision
                // 0008).
                open.push_back((from.group(&name)?, low::create_group(&to, &name)?, path.clone()));
            } else if let Some(&n) = source.index.get(&object) {
                stacks[n] = Some(stack(source, n, &from.dataset(&name)?, &to, &name, compression)?);
            } else if source.special.contains(&object) {
                let dataset = from.dataset(&name)?;
                let made = objects::create_virtual_like(&dataset, &to, &name, rename)?;
                objects::copy_attributes(&dataset, &made)?;
            } else if !copy_dataset(&from, &to, &name)? {
                objects::copy(&from, &to, &name)?;
                objects::remove_references(&to, &name)?;
            }
            paths.insert(object, path);
        }
    }
    Ok(())
}

/// Creates a data set again in the copy, with its attributes; false if it has to be copied as it is.
fn copy_dataset(from: &Group, to: &Group, name: &str) -> hdf5::Result<bool> {
    let Ok(dataset) = from.dataset(name) else { return Ok(false) };
    if !objects::copy_plain(&dataset, to, name)? {
        return Ok(false);
    }
    let made = to.dataset(name)?;
    objects::copy_attributes(&dataset, &made)?;
    Ok(true)
}

/// True if each image of rows and columns is one chunk.
fn is_stack(dataset: &Dataset) -> bool {
    let (shape, chunk) = (dataset.shape(), dataset.chunk().unwrap_or_default());
    let Some(before) = shape.len().checked_sub(2).filter(|before| *before > 0 && chunk.len() == shape.len()) else {
        return false;
    };
    chunk[..before].iter().all(|&size| size == 1) && chunk[before..] == shape[before..]
}

fn stack(
    source: &Stacks,
    n: usize,
    dataset: &Dataset,
    to: &Group,
    name: &str,
    compression: Compression,
) -> hdf5::Result<Dataset> {
    let layout = &source.found[n].0;
    let shape = [layout.rows as u32, layout.columns as u32];
    let filter = packing::filter_of(compression, layout.element_bytes, layout.pixel, shape);
    let made = objects::create_stack_like(dataset, to, name, filter.as_ref())?;
    objects::copy_attributes(dataset, &made)?;
    Ok(made)
}

/// Updates the descriptions in files of this program, which state their compression and prefix.
fn change_description(file: &File, compression: Compression, prefix: &str) -> hdf5::Result<()> {
    if let Some(text) = nexus::read_text(file, DESCRIPTION) {
        let described = |line: &&str| !line.starts_with("compression") && !line.starts_with("prefix = ");
        let mut changed: Vec<String> = text.lines().filter(described).map(str::to_owned).collect();
        let mut put = |key: &str, value: &str| changed.push(format!("{key} = {value}"));
        put("prefix", prefix);
        put("compression", compression.name());
        if let Some(level) = compression.level() {
            put("compression_level", &level.to_string());
        }
        if let Compression::Sz3 { bound } = compression {
            put("compression_error_bound", &format!("{:?}", bound.value()));
        }
        changed.push(String::new());
        replace_text(file, DESCRIPTION, &changed.join("\n"))?;
    }
    // The name that DECTRIS masters use.
    let of_detector = "/entry/instrument/detector/detectorSpecific/compression";
    if file.dataset(of_detector).is_ok() {
        replace_text(file, of_detector, compression.name())?;
    }
    Ok(())
}

fn replace_text(file: &File, path: &str, value: &str) -> hdf5::Result<()> {
    let (parent, name) = path.rsplit_once('/').expect("a path from the root");
    let parent = file.group(parent)?;
    parent.unlink(name)?;
    nexus::text(&parent, name, value)
}

fn write_record(file: &File, record: &[(&str, RecordValue)]) -> hdf5::Result<()> {
    let mut group = file.group("/")?;
    for name in RECORD.split('/').filter(|name| !name.is_empty()) {
        if group.link_exists(name) && name == "repack" {
            // The file was repacked before: only the last time is recorded.
            group.unlink(name)?;
        }
        group = match group.group(name) {
            Ok(inner) => inner,
            Err(_) => nexus::group(&group, name, if name == "entry" { "NXentry" } else { "NXcollection" })?,
        };
    }
    attribute_text(&group, "description", "how this file was made from another, by `konkordia repack`")?;
    for (name, value) in record {
        match value {
            RecordValue::Count(value) => nexus::number(&group, name, *value, "")?,
            RecordValue::Number(value, unit) => nexus::number(&group, name, *value, unit)?,
            RecordValue::Text(text) => {
                let plain: String = text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
                let value = FixedAscii::<TEXT>::from_ascii(&plain.as_bytes()[..plain.len().min(TEXT - 1)])
                    .map_err(|_| "a text that is not ASCII")?;
                group.new_dataset::<FixedAscii<TEXT>>().create(*name)?.write_scalar(&value)?;
            }
        }
    }
    Ok(())
}
