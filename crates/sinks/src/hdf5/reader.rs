//! Reads a run back: what is in it, and the bytes of single chunks.

use std::path::{Path, PathBuf};

use hdf5::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5::{Dataset, File};
use konkordia_core::pixel::PixelType;
use konkordia_core::results::analysis;
use konkordia_core::series::Ended;

use super::bounded::{BYTES_MAX, ReadAll};
use super::columns::ImageStatus;
use super::decode::Decode;
use super::error::{Context, Error, ErrorKind};
use super::header::address;
use super::ledger::{NOT_RECEIVED, REFUSED, UNWRITTEN, read_ledger, totals};
use super::low;
use super::names::{data_file_name, master_path, parse};
use super::nexus::{read_number, read_text};
use super::objects;
use super::packing;
use super::paths::{COLUMNS, DESCRIPTION, MASK, MASK_OF_DATA, OWN, STACK};
use super::pedestals::Snapshots;
use super::repack_losses::losses_of_files;
use super::series_info::{DIMENSIONS_MAX, PIECES_MAX, chunk_shape, chunk_start};
use super::spec::{Compression, FileSpec, IMAGES_PER_FILE_MAX, LedgerRecord, PIXELS_MAX, PartOfImage};
use super::split_bytes::is_in_chunks;

/// A master that names more data files than this is damaged.
const DATA_FILES_MAX: u64 = 1 << 20;

/// A data file as the master names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFileSummary {
    /// Its path.
    pub path: PathBuf,
    /// Number in the file name, from 1.
    pub number: u64,
    /// Position in the run of its first image.
    pub first_image: u64,
    /// Images in it; `None` if it cannot be read.
    pub images: Option<u64>,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// What is in a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The file that was opened.
    pub path: PathBuf,
    /// Images, lost ones included.
    pub images: u64,
    /// Image rows.
    pub rows: u64,
    /// Image columns.
    pub columns: u64,
    /// All dimensions of an image, slowest first; rows and columns are the last two, and an image of one dimension has
    /// one row.
    pub image_shape: Vec<u64>,
    /// Chunks of one image, in the order of its pixels.
    pub pieces: usize,
    /// Type of a pixel.
    pub pixel: PixelType,
    /// How chunks are compressed.
    pub compression: Compression,
    /// The run description stored by the writer; `None` in files of other programs.
    pub spec: Option<FileSpec>,
    /// Photon energy, keV.
    pub energy_kev: Option<f64>,
    /// Sample to detector, metres.
    pub detector_distance_m: Option<f64>,
    /// Beam on the image, (fast, slow), pixels.
    pub beam_center_px: Option<(f64, f64)>,
    /// Pixel edge, metres.
    pub pixel_size_m: Option<f64>,
    /// Hash of the calibration, empty without one.
    pub calibration_hash: String,
    /// "writing", "closed" or "repaired"; "data file" when a data file was opened.
    pub state: String,
    /// How `konkordia repack` has changed pixels, last time first; empty if they are as they were written.
    pub losses: Vec<String>,
    /// Why the run ended; `None` without a ledger.
    pub ended: Option<String>,
    /// Counters of the run, by name.
    pub ledger: Vec<(String, u64)>,
    /// Images by status: lost, complete, partial, discarded; only those in readable data files.
    pub images_by_status: [u64; ImageStatus::COUNT],
    /// Images in data files that are absent or cannot be read.
    pub images_file_missing: u64,
    /// Snapshots of the pedestals, if the run has them and their file can be read.
    pub pedestals: Option<Snapshots>,
    /// Data files.
    pub data_files: Vec<DataFileSummary>,
}

impl Summary {
    /// Lowest and highest value that is a measurement.
    pub fn valid_range(&self) -> (f64, f64) {
        let said = self.spec.as_ref().map_or((None, None), |spec| (spec.underload, spec.saturation));
        self.pixel.valid_range(said.0, said.1)
    }

    /// A counter of the ledger, 0 if the ledger has none of this name.
    pub fn total(&self, name: &str) -> u64 {
        // In the ledger of a series the counters of images have no prefix.
        let short = name.strip_prefix("images_").unwrap_or(name);
        self.ledger.iter().find(|(found, _)| found == name || found == short).map_or(0, |(_, n)| *n)
    }

    /// Images by what happened to them, in the words of the ledger: those in the files, those whose file is missing,
    /// those that came but are not in the files because these could not be written, and those that were planned and
    /// have no place in the files.
    pub fn image_counts(&self) -> Vec<(&'static str, u64)> {
        let in_files = [1, 2, 0, 3, 4].map(|status| (ImageStatus::NAMES[status], self.images_by_status[status]));
        let planned = [("not received", self.total(NOT_RECEIVED)), ("not taken", self.total("images_not_taken"))];
        // An image that does not fit the file has a place in it, as a lost image.
        let unwritten = self.total(UNWRITTEN).saturating_sub(self.total(REFUSED));
        let beside = [("file missing", self.images_file_missing), ("not written", unwritten)];
        in_files.into_iter().chain(beside).chain(planned).collect()
    }

    /// Every image is there and complete, and no error ended the run. Planned images after a stop of the run ("not
    /// taken") do not count.
    pub fn is_complete(&self) -> bool {
        let has_failed = self.ended.as_ref().is_some_and(|ended| ended.starts_with(Ended::Failed.name()));
        !has_failed && self.image_counts().iter().all(|(name, n)| *n == 0 || matches!(*name, "complete" | "not taken"))
    }
}

/// An open run: the master, or one data file alone.
pub struct Reader {
    path: PathBuf,
    file: File,
    parts: Vec<Part>,
    /// Of a master of a whole image: the parts that can be read.
    of_image: Vec<PartOfWhole>,
    /// It is a master, and holds the images of the run itself.
    holds_images: bool,
    summary: Summary,
}

/// A part of a whole image.
struct PartOfWhole {
    reader: Reader,
    /// Position in the whole of its first image.
    first: u64,
    /// Where it lies in the whole image.
    row: usize,
    column: usize,
}

struct Part {
    first: u64,
    images: u64,
    stack: Dataset,
    /// Where each chunk of an image begins; the first number is that of the image.
    starts: Vec<Vec<u64>>,
    file: File,
    path: PathBuf,
}

/// Opens a file and says what is in it.
///
/// # Errors
/// If it cannot be opened or holds no images of a known kind.
pub fn inspect(path: &Path) -> Result<Summary, Error> {
    Reader::open(path).map(|reader| reader.summary)
}

/// The name of the stack of all images: of a master that of its virtual data set, from its link alone.
pub(super) fn virtual_name(master: &File) -> Option<String> {
    ["/entry/data/images", "/entry/data/data"].into_iter().find(|name| master.link_exists(name)).map(str::to_owned)
}

/// Where things are in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// All images as one stack; a master whose layout is links has none.
    pub images: Option<String>,
    /// The mask.
    pub mask: Option<&'static str>,
    /// The group of the lists of spots.
    pub spots: Option<&'static str>,
}

impl Reader {
    /// Opens the master or a data file. Data files that cannot be opened are listed without a number of images.
    ///
    /// # Errors
    /// If the file cannot be opened, or holds no image stack of a known kind.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let doing = "read the file";
        refuse_empty(path, doing)?;
        let file = low::open_file(path).map_err(|error| damaged(Error::hdf5(doing, path, error)))?;
        let spec = read_text(&file, DESCRIPTION).and_then(|text| FileSpec::from_text(&text).ok());
        let is_data = path.file_name().and_then(|n| n.to_str()).and_then(parse).is_some_and(|(_, number)| number.is_some());
        let of_image =
            spec.as_ref().filter(|spec| spec.parts > 0).map_or_else(Vec::new, |spec| parts_of_whole(path, &file, spec));
        let holds_images = !is_data && of_image.is_empty() && holds_images(path, &file);
        let listed = if is_data || holds_images { own_part(path) } else { linked_parts(path, &file, spec.as_ref()) };
        let mut parts = Vec::new();
        let mut data_files = Vec::new();
        for (number, first, part_path) in listed {
            let part = open_part(&part_path, first);
            data_files.push(DataFileSummary {
                path: part_path,
                number,
                first_image: first,
                images: part.as_ref().ok().map(|part| part.images),
                problem: part.as_ref().err().map(|error| error.cause.clone()),
            });
            parts.extend(part);
        }
        let summary = summarise(path, &file, spec, &parts, data_files, is_data)?;
        Ok(Self { path: path.to_owned(), file, parts, of_image, holds_images, summary })
    }

    /// What is in the run.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The account of the run with the counters of each stream; `None` if the file has none, as data files have.
    pub fn ledger(&self) -> Option<LedgerRecord> {
        read_ledger(&self.file)
    }

    /// Replaces `out` by the bytes of one image's chunk as stored. Returns false for an image without chunk (all pixels
    /// *missing*).
    ///
    /// # Errors
    /// If the image does not exist or has several chunks, or its data file cannot be read.
    pub fn read_chunk(&self, image: u64, out: &mut Vec<u8>) -> Result<bool, Error> {
        if self.summary.pieces != 1 {
            let cause = format!("its images have {} chunks each", self.summary.pieces);
            let error = Error::new(ErrorKind::Invalid, "read an image as one chunk", &self.path, cause);
            return Err(error.with_hint("read its pixels instead"));
        }
        self.read_piece(image, 0, out)
    }

    /// As [`Self::read_chunk`] for chunk `piece` of an image.
    ///
    /// # Errors
    /// If the image or the chunk does not exist, or its data file cannot be read.
    pub fn read_piece(&self, image: u64, piece: usize, out: &mut Vec<u8>) -> Result<bool, Error> {
        let doing = "read an image";
        if self.is_of_parts() {
            let cause = "its images are put together of parts, so they have no chunks of their own";
            return Err(Error::new(ErrorKind::Invalid, doing, &self.path, cause).with_hint("read its pixels, or the parts"));
        }
        let Some(part) = self.parts.iter().find(|part| image.checked_sub(part.first).is_some_and(|local| local < part.images))
        else {
            let cause = format!("image {image} of {} (counted from 0) is in no readable data file", self.summary.images);
            return Err(Error::new(ErrorKind::Invalid, doing, &self.path, cause).with_hint("choose an image that exists"));
        };
        // A chunk is never much larger than its pixels. The overhead is largest in bslz4: a header of 12 bytes, and for
        // each block of 8 KiB 4 bytes, 16 bytes and 1/255 of the block.
        let raw = self.image_bytes() as u64 / self.summary.pieces.max(1) as u64;
        let Some(start) = part.starts.get(piece) else {
            let cause = format!("image {image} has {} chunks, not chunk {piece}", part.starts.len());
            return Err(Error::new(ErrorKind::Invalid, doing, &part.path, cause));
        };
        let start = [&[image - part.first], &start[1..]].concat();
        let found = low::read_chunk(&part.stack, &start, 12 + 64 + raw + raw / 64, out);
        found.map(|some| some.is_some()).context(doing, &part.path)
    }

    /// The pixels of one image, little endian, decoded by `decode`.
    ///
    /// # Errors
    /// As [`Self::read_chunk`], and [`ErrorKind::Damaged`] if the chunk does not decode.
    pub fn read_image(&self, image: u64, decode: &Decode<'_>) -> Result<Vec<u8>, Error> {
        if self.is_of_parts() {
            return self.read_whole(image, decode);
        }
        let element = self.summary.pixel.bytes();
        let piece_bytes = self.image_bytes() / self.summary.pieces.max(1);
        if self.image_bytes() > BYTES_MAX {
            return Err(Error::new(ErrorKind::Damaged, "read an image of", &self.path, "it claims to be larger than any image"));
        }
        let mut out = Vec::new();
        for piece in 0..self.summary.pieces {
            let pixels = self.read_pixels(image, piece, piece_bytes, decode)?;
            if self.summary.pieces == 1 {
                return Ok(pixels.unwrap_or_else(|| self.summary.pixel.missing_le_bytes().repeat(piece_bytes / element)));
            }
            match pixels {
                Some(pixels) => out.extend(pixels),
                None => out.extend(self.summary.pixel.missing_le_bytes().repeat(piece_bytes / element)),
            }
        }
        Ok(out)
    }

    /// Whether this is the master of a whole image, whose pixels are in the files of its parts.
    pub(crate) fn is_of_parts(&self) -> bool {
        self.summary.spec.as_ref().is_some_and(|spec| spec.parts > 0)
    }

    /// Whether it is a master that holds the images of the run itself.
    pub(crate) fn holds_images(&self) -> bool {
        self.holds_images
    }

    /// The parts of a whole image that can be read.
    pub(crate) fn parts_of_image(&self) -> impl Iterator<Item = &Self> {
        self.of_image.iter().map(|part| &part.reader)
    }

    /// An image whose pixels are in the files of its parts; what a part lacks is missing.
    fn read_whole(&self, image: u64, decode: &Decode<'_>) -> Result<Vec<u8>, Error> {
        let (columns, element) = (self.summary.columns as usize, self.summary.pixel.bytes());
        if image >= self.summary.images {
            let cause = format!("there is no image {image} (counted from 0) of {}", self.summary.images);
            return Err(Error::new(ErrorKind::Invalid, "read an image", &self.path, cause));
        }
        let mut out = self.summary.pixel.missing_le_bytes().repeat(self.image_bytes() / element);
        for part in &self.of_image {
            let own = part.reader.summary();
            let is_inside =
                part.row + own.rows as usize <= self.summary.rows as usize && part.column + own.columns as usize <= columns;
            let Some(number) = image.checked_sub(part.first).filter(|number| *number < own.images && is_inside) else { continue };
            // A data file that is gone is named by `check`; here its images are missing.
            if !part.reader.parts.iter().any(|file| number.checked_sub(file.first).is_some_and(|local| local < file.images)) {
                continue;
            }
            let pixels = part.reader.read_image(number, decode)?;
            for (line, from) in pixels.chunks_exact(own.columns as usize * element).enumerate() {
                let at = ((part.row + line) * columns + part.column) * element;
                out[at..at + from.len()].copy_from_slice(from);
            }
        }
        Ok(out)
    }

    /// Bytes of the pixels of one image.
    pub(crate) fn image_bytes(&self) -> usize {
        let shape = self.summary.image_shape.iter();
        shape.fold(self.summary.pixel.bytes(), |product, length| product.saturating_mul(*length as usize))
    }

    /// The pixels of one chunk; `None` if it was never written.
    fn read_pixels(&self, image: u64, piece: usize, bytes: usize, decode: &Decode<'_>) -> Result<Option<Vec<u8>>, Error> {
        let mut chunk = Vec::new();
        if !self.read_piece(image, piece, &mut chunk)? {
            return Ok(None);
        }
        let mut out = vec![0; bytes];
        self.decode_piece(image, &chunk, &mut out, decode)?;
        Ok(Some(out))
    }

    /// Decodes a chunk of an image into `out`, which is as long as its pixels.
    pub(crate) fn decode_piece(&self, image: u64, chunk: &[u8], out: &mut [u8], decode: &Decode<'_>) -> Result<(), Error> {
        let wrong = |cause: String| {
            let hint = "the image is lost; recover the file from a copy";
            Error::new(ErrorKind::Damaged, "decode an image", &self.path, format!("image {image}: {cause}")).with_hint(hint)
        };
        if self.summary.compression == Compression::None {
            if chunk.len() != out.len() {
                return Err(wrong(format!("{} bytes instead of {}", chunk.len(), out.len())));
            }
            out.copy_from_slice(chunk);
            return Ok(());
        }
        decode(self.summary.compression, chunk, self.summary.pixel.bytes(), out).map_err(wrong)
    }

    /// One per-image column as numbers, row after row; `None` if the file has no such column.
    pub fn column(&self, name: &str) -> Option<Vec<u64>> {
        self.file.group(COLUMNS).ok()?.dataset(name).ok()?.read_all::<u64>().ok()
    }

    /// The mask of the image, row by row: 0 = the pixel counts. `None` if the file has none of the size of its images.
    pub fn pixel_mask(&self) -> Option<Vec<u32>> {
        let pixels = self.summary.rows as usize * self.summary.columns as usize;
        let read = |place: &str| {
            let mask = self.file.dataset(place).ok()?;
            // The size first, so that a wrong one costs no memory.
            (mask.size() == pixels).then(|| mask.read_raw::<u32>().ok()).flatten()
        };
        // Data files keep the mask at another place.
        [MASK, MASK_OF_DATA].into_iter().find_map(read)
    }

    /// Where in the file images, mask and lists of spots are, for programs that must be told.
    pub fn places(&self) -> Places {
        let has = |name: &&str| self.file.link_exists(name);
        let spots = format!("{COLUMNS}/{}", analysis::STORED_SPOTS.name);
        Places {
            images: virtual_name(&self.file),
            mask: self.pixel_mask().and([MASK, MASK_OF_DATA].into_iter().find(has)),
            spots: Some(COLUMNS).filter(|_| has(&spots.as_str())),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Open data files as (first image, images, stack, file, path).
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, u64, &Dataset, &File, &Path)> {
        self.parts.iter().map(|p| (p.first, p.images, &p.stack, &p.file, p.path.as_path()))
    }
}

/// Refuses an empty file, which is what an interrupted copy leaves.
fn refuse_empty(path: &Path, doing: &'static str) -> Result<(), Error> {
    if std::fs::metadata(path).context(doing, path)?.len() > 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Damaged, doing, path, "it is empty (0 bytes)").with_hint("bring back a whole copy of the file"))
}

fn damaged(mut error: Error) -> Error {
    let is_of_a_run = || error.path.file_name().and_then(|name| name.to_str()).and_then(parse).is_some();
    match error.kind {
        ErrorKind::Io | ErrorKind::Damaged => error.kind = ErrorKind::Damaged,
        ErrorKind::NotHdf5 if is_of_a_run() => {}
        _ => return error,
    }
    error.hint = "if a run of konkordia was killed here, `konkordia repair FILE` makes it readable".into();
    error
}

/// Whether a file that is no data file has the stack of a data file, in chunks.
fn holds_images(path: &Path, file: &File) -> bool {
    let Ok(data) = file.group("/entry/data") else { return false };
    let is_own = data.link_exists("data") && objects::link(&data, "data").is_ok_and(|link| link == objects::Link::Hard);
    is_own && objects::object(&data, "data").is_ok_and(|(token, _)| is_in_chunks(path, address(token)))
}

/// A data file opened alone counts its images from 0.
fn own_part(path: &Path) -> Vec<(u64, u64, PathBuf)> {
    let number = path.file_name().and_then(|n| n.to_str()).and_then(parse).and_then(|(_, number)| number).unwrap_or(1);
    vec![(number, 0, path.to_owned())]
}

/// The parts of a whole image that can be read, as its master places them.
fn parts_of_whole(path: &Path, file: &File, spec: &FileSpec) -> Vec<PartOfWhole> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let open = |number: u32| {
        let place = |name: &str| read_number(file, &format!("{OWN}/parts/part_{number}/{name}")).map(|value| value as u64);
        let (first, row, column) = (place("first_image")?, place("row")? as usize, place("column")? as usize);
        let own = master_path(directory, &format!("{}{}", spec.prefix, PartOfImage::suffix_of(number)));
        let reader = Reader::open(&own).ok().filter(|reader| !reader.is_of_parts())?;
        (reader.summary.pixel == spec.pixel).then_some(PartOfWhole { reader, first, row, column })
    };
    (1..=spec.parts.min(PartOfImage::PARTS_MAX)).filter_map(open).collect()
}

/// Data files from the run description and the links: (number, first image, path).
fn linked_parts(path: &Path, file: &File, spec: Option<&FileSpec>) -> Vec<(u64, u64, PathBuf)> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let links = file.group("/entry/data").and_then(|group| group.member_names()).unwrap_or_default();
    let mut numbers: Vec<u64> =
        links.iter().filter_map(|name| name.strip_prefix("data_")).filter_map(|digits| digits.parse().ok()).collect();
    let prefix = path.file_name().and_then(|n| n.to_str()).and_then(parse).map_or("", |(prefix, _)| prefix);
    let Some(spec) = spec.filter(|spec| spec.parts == 0) else { return Vec::new() };
    if numbers.is_empty() {
        // A virtual data set has no links: all data files from 1 to the last one belong to it, absent ones included.
        let images = read_number(file, "/entry/instrument/detector/detectorSpecific/nimages").unwrap_or(0.0) as u64;
        numbers = (1..=images.div_ceil(u64::from(spec.images_per_file)).min(DATA_FILES_MAX)).collect();
    }
    numbers.sort_unstable();
    let first = |number: u64| number.saturating_sub(1).saturating_mul(u64::from(spec.images_per_file));
    numbers.into_iter().map(|n| (n, first(n), directory.join(data_file_name(prefix, n)))).collect()
}

fn open_part(path: &Path, first: u64) -> Result<Part, Error> {
    let doing = "read the data file";
    refuse_empty(path, doing)?;
    let file = low::open_file(path).context(doing, path)?;
    let stack = file.dataset(STACK).context(doing, path)?;
    let shape = stack.shape();
    let wide = |shape: &[usize]| shape.iter().map(|&size| size as u64).collect::<Vec<u64>>();
    let chunk = if stack.is_chunked() { stack.chunk().unwrap_or_default() } else { Vec::new() };
    let is_stack = (2..=1 + DIMENSIONS_MAX).contains(&shape.len()) && chunk.len() == shape.len() && chunk[0] == 1;
    if !is_stack {
        return Err(Error::new(ErrorKind::Damaged, doing, path, format!("{STACK} is not a stack of images, one per chunk")));
    }
    let pixels = shape[1..].iter().fold(1usize, |product, &size| product.saturating_mul(size));
    if shape[0] > IMAGES_PER_FILE_MAX as usize || !(1..=PIXELS_MAX).contains(&pixels) {
        return Err(Error::new(ErrorKind::Damaged, doing, path, format!("{STACK} has the impossible shape {shape:?}")));
    }
    let (image, chunk) = (wide(&shape[1..]), wide(&chunk[1..]));
    let pieces = pixels as u64 / chunk.iter().product::<u64>().max(1);
    if pieces > u64::from(PIECES_MAX) || chunk_shape(&image, pieces as u32).as_ref() != Some(&chunk) {
        let cause = format!("{STACK}: chunks of {chunk:?} do not divide images of {image:?} into consecutive parts");
        return Err(Error::new(ErrorKind::Damaged, doing, path, cause));
    }
    let starts = (0..pieces as usize).map(|piece| [&[0], &chunk_start(&image, &chunk, piece)[..]].concat()).collect();
    Ok(Part { first, images: shape[0] as u64, stack, starts, file, path: path.to_owned() })
}

fn summarise(
    path: &Path,
    file: &File,
    spec: Option<FileSpec>,
    parts: &[Part],
    data_files: Vec<DataFileSummary>,
    is_data: bool,
) -> Result<Summary, Error> {
    let doing = "read the file";
    let detector = "/entry/instrument/detector";
    let number = |name: &str| read_number(file, &format!("{detector}/{name}"));
    let (image_shape, pieces, pixel, compression) = match (parts.first(), &spec) {
        (Some(part), _) => {
            let shape = part.stack.shape();
            let filters = low::filters(&part.stack).context(doing, path)?;
            let compression = packing::compression(&filters).ok_or_else(|| unknown(path, format!("filters {filters:?}")))?;
            let kind = part.stack.dtype().and_then(|t| t.to_descriptor()).context(doing, path)?;
            let pixel = pixel_of(&kind).ok_or_else(|| unknown(path, format!("pixels of type {kind}")))?;
            (shape[1..].to_vec(), part.starts.len(), pixel, compression)
        }
        (None, Some(spec)) => (spec.image_shape(), spec.pieces(), spec.pixel, spec.compression),
        (None, None) => return Err(unknown(path, "no images and no run description".into())),
    };
    let nimages = number("detectorSpecific/nimages").map(|n| n as u64);
    let images = nimages.unwrap_or_else(|| parts.iter().map(|part| part.images).sum());
    let mut by_status = [0; ImageStatus::COUNT];
    let status = file.dataset(&format!("{COLUMNS}/status")).and_then(|d| d.read_all::<u8>()).unwrap_or_default();
    let range = |part: &Part| part.first as usize..part.first.saturating_add(part.images).min(status.len() as u64) as usize;
    let readable = parts.iter().filter_map(|part| status.get(range(part))).flatten();
    let of_parts = spec.as_ref().is_some_and(|spec| spec.parts > 0);
    let readable = readable.chain(status.iter().filter(|_| of_parts));
    readable.filter(|&&s| usize::from(s) < ImageStatus::COUNT).for_each(|&s| by_status[usize::from(s)] += 1);
    let ipf = spec.as_ref().map_or(0, |spec| u64::from(spec.images_per_file));
    let in_file = |part: &DataFileSummary| images.saturating_sub(part.first_image).min(ipf);
    let gone = |part: &DataFileSummary| in_file(part).saturating_sub(part.images.unwrap_or(0));
    let images_file_missing = data_files.iter().map(gone).sum();
    let text = |name: &str| read_text(file, &format!("/entry/konkordia/{name}"));
    let m = spec.as_ref().map(|spec| spec.metadata.clone()).unwrap_or_default();
    Ok(Summary {
        path: path.to_owned(),
        images,
        rows: if image_shape.len() > 1 { image_shape[image_shape.len() - 2] as u64 } else { 1 },
        columns: image_shape.last().map_or(0, |&columns| columns as u64),
        image_shape: image_shape.iter().map(|&size| size as u64).collect(),
        pieces,
        pixel,
        compression,
        energy_kev: read_number(file, "/entry/instrument/beam/incident_energy").map(|ev| ev / 1000.0).or(m.energy_kev),
        detector_distance_m: number("distance").or(m.detector_distance_m),
        beam_center_px: number("beam_center_x").zip(number("beam_center_y")).or(m.beam_center_x_px.zip(m.beam_center_y_px)),
        pixel_size_m: number("x_pixel_size").or(m.pixel_size_m.map(|[width, _]| width)),
        losses: losses_of_files(parts.iter().map(|part| &part.file)),
        calibration_hash: spec.as_ref().map(|spec| spec.calibration_hash.clone()).unwrap_or_default(),
        state: text("state").unwrap_or_else(|| if is_data { "data file".into() } else { "unknown".into() }),
        ended: text("ledger/ended"),
        ledger: totals(file),
        images_by_status: by_status,
        images_file_missing,
        pedestals: Snapshots::of_master(path, file),
        data_files,
        spec,
    })
}

fn unknown(path: &Path, what: String) -> Error {
    let hint = "this program reads the files that it writes; open others with h5py or silx";
    Error::new(ErrorKind::Damaged, "read the file", path, format!("{what}, not known to this program")).with_hint(hint)
}

pub(crate) fn pixel_of(kind: &TypeDescriptor) -> Option<PixelType> {
    Some(match kind {
        TypeDescriptor::Integer(IntSize::U2) => PixelType::Int16,
        TypeDescriptor::Integer(IntSize::U4) => PixelType::Int32,
        TypeDescriptor::Unsigned(IntSize::U2) => PixelType::Uint16,
        TypeDescriptor::Unsigned(IntSize::U4) => PixelType::Uint32,
        TypeDescriptor::Float(FloatSize::U4) => PixelType::Float32,
        TypeDescriptor::Integer(IntSize::U1) => PixelType::Int8,
        TypeDescriptor::Integer(IntSize::U8) => PixelType::Int64,
        TypeDescriptor::Unsigned(IntSize::U1) => PixelType::Uint8,
        TypeDescriptor::Unsigned(IntSize::U8) => PixelType::Uint64,
        TypeDescriptor::Float(FloatSize::U8) => PixelType::Float64,
        _ => return None,
    })
}
