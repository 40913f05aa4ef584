//! The image stacks of a file that is repacked.
//!
//! An image stack is a chunked data set in a group that is called `data` or has class NXdata. Each of its chunks is one
//! whole image: rows and columns are the last two dimensions, and all others are 1 in a chunk.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

use hdf5::types::FixedAscii;
use hdf5::{Dataset, File, Group};
use konkordia_core::pixel::PixelType;

use super::checksum::{self, CHECKSUM};
use super::error::{Context, Error, ErrorKind};
use super::journal::refuse_if_alive;
use super::low;
use super::mappings::Mappings;
use super::names::journal_path;
use super::nexus;
use super::objects::{self, Link, Token};
use super::packing;
use super::paths::{COLUMNS, DESCRIPTION, STACK};
use super::reader::pixel_of;
use super::repack_losses::RECORD;
use super::spec::{Compression, PIXELS_MAX};

const READ: &str = "read the file to be repacked";
/// Files whose groups are nested deeper than this are refused.
const DEPTH_MAX: usize = 64;
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
    pub(super) leading: Vec<u64>,
}

impl StackLayout {
    /// Bytes of one decoded image.
    pub fn image_bytes(&self) -> usize {
        self.rows.saturating_mul(self.columns).saturating_mul(self.element_bytes)
    }

    /// Channels of an image, each of which is a chunk.
    pub fn channels(&self) -> u64 {
        self.leading.iter().skip(1).product::<u64>().max(1)
    }

    /// Positions of the stack. An image with several channels has several chunks at its position.
    pub(super) fn positions(&self) -> u64 {
        self.leading.first().copied().unwrap_or(0)
    }

    /// Index of the first pixel of an image in each dimension of its stack.
    pub fn offset(&self, mut image: u64) -> Vec<u64> {
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
    pub(super) found: Vec<(StackLayout, Dataset)>,
    /// Index of the stack by object; an object may have several names.
    pub(super) index: HashMap<Token, usize>,
    /// Virtual data sets, stacks, and groups with something below them that cannot simply be copied as a whole.
    pub(super) special: HashSet<Token>,
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
        refuse_unreadable_checksums(&file)
            .map_err(|why| Error::new(ErrorKind::Damaged, READ, path, why).with_hint(FIX_CHECKSUMS))?;
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
            let hint = "repack takes stacks of whole images in chunks of bslz4, bszstd, lz4, zstd, gzip or none, and of filters with a plug-in in the folders of HDF5_PLUGIN_PATH; convert others with h5repack";
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

    /// When the file was changed last, seconds since 1970; 0 if that is not known.
    pub(super) fn time_s(&self) -> u32 {
        let changed = std::fs::metadata(&self.path).and_then(|facts| facts.modified()).ok();
        let since = changed.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(0))
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
        has_checksums(&self.file)
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
        Err(Error::new(ErrorKind::Damaged, READ, &self.path, cause).with_hint(FIX_CHECKSUMS))
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
pub(super) const TEXT: usize = 256;

fn class(group: &Group) -> Option<String> {
    nexus::read_attribute(group, "NX_class")
}

/// True if each image of rows and columns is one chunk.
fn is_stack(dataset: &Dataset) -> bool {
    let (shape, chunk) = (dataset.shape(), dataset.chunk().unwrap_or_default());
    let Some(before) = shape.len().checked_sub(2).filter(|before| *before > 0 && chunk.len() == shape.len()) else {
        return false;
    };
    chunk[..before].iter().all(|&size| size == 1) && chunk[before..] == shape[before..]
}

/// Whether a file of this program has the column of checksums.
fn has_checksums(file: &File) -> bool {
    file.group(COLUMNS).is_ok_and(|columns| columns.link_exists(CHECKSUM))
}

/// What to do where checksums are damaged.
const FIX_CHECKSUMS: &str = "bring back a whole copy of the file; \
                              if there is none, `konkordia repair FILE` compares its images with the checksums of the master";

/// Refuses a file whose checksums cannot be read: nothing would show that its chunks have changed, and the copy would
/// get checksums of the changed chunks. The error says why.
fn refuse_unreadable_checksums(file: &File) -> Result<(), String> {
    if !has_checksums(file) {
        return Ok(());
    }
    let rows = |name: &str| file.dataset(name).ok()?.shape().first().copied();
    let images = rows(STACK).or_else(|| rows(&format!("{COLUMNS}/status"))).unwrap_or(0);
    let stored = checksum::stored(file, images as u64);
    stored.map(drop).map_err(|why| format!("the checksums of its images cannot be read: {why}"))
}
