//! The master of a whole image, of which several hosts receive parts. Each part has files of its own; the whole has a
//! master and nothing else, which shows the pixels of the parts by one virtual data set.
//!
//! Whoever closes the files of a part makes the master of what is there by then, so nobody waits for a part that never
//! comes, and the last one to close makes the final one. What a part lacks (images, or all of it) reads as missing;
//! parts that are absent are marked in the pixel mask. Images are put side by side by their frame number, because the
//! first image of each part is the first that its host has seen.

use std::path::{Path, PathBuf};

use hdf5::Group;
use konkordia_core::output::{Layout, PartOfImage, temporary_path};

use super::bounded::ReadAll;
use super::columns::{Column, Columns, ImageStatus};
use super::datafile::{Closed, remove};
use super::error::{Context, Error, ErrorKind};
use super::extra_column::ExtraColumn;
use super::ledger::read_ledger;
use super::low::{self, Format};
use super::master::{self, Parts, Rectangle};
use super::names::{existing, master_file_name, master_path};
use super::nexus::{group, number, read_text, text};
use super::paths::{COLUMNS, DESCRIPTION, MASK};
use super::spec::{FileSpec, IMAGES_PER_FILE_MAX, LedgerRecord, StreamRecord};

const DOING: &str = "make the master of the whole image";
/// Images whose columns are in memory at a time.
const BATCH_IMAGES: u64 = 4096;
/// Clocks of hosts may differ by so much.
const CLOCKS_DIFFER_MAX_S: u64 = 60;
/// In the mask of the whole image: the part is absent, so its pixels do not answer.
const ABSENT: u32 = 1 << 1;
/// In the mask: no pixel of the detector is here.
const GAP: u32 = 1;

/// What [`compose`] made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The master of the whole image.
    pub master: PathBuf,
    /// Positions in it.
    pub images: u64,
    /// Numbers of the parts that are absent.
    pub absent: Vec<u32>,
    /// Parts that are not closed: their host still writes, or was killed.
    pub open: Vec<u32>,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl Whole {
    /// What is not in it, in words; empty if all parts are closed and in it.
    pub fn lacks(&self) -> String {
        let list = |numbers: &[u32], what: &str| {
            let parts: Vec<String> = numbers.iter().map(u32::to_string).collect();
            (!parts.is_empty()).then(|| format!("part {} {what}", parts.join(", ")))
        };
        let all = [list(&self.absent, "is absent"), list(&self.open, "is not closed")];
        all.into_iter().flatten().chain(self.notes.iter().cloned()).collect::<Vec<_>>().join("; ")
    }
}

/// A part whose files were found.
struct Source {
    part: PartOfImage,
    spec: FileSpec,
    columns: Columns,
    files: Vec<Closed>,
    mask: Vec<u32>,
    ledger: Option<LedgerRecord>,
    state: String,
    end: Option<String>,
    /// Frame number that image 0 has, and frames from one image to the next; `None` if no image has pixels.
    frames: Option<(i128, i128)>,
    /// Position of its image 0 in the whole.
    offset: u64,
}

/// The prefix of the whole image, and the part that the prefix names.
fn whole_prefix<'a>(prefix: &'a str, part: &PartOfImage) -> Option<&'a str> {
    prefix.strip_suffix(&part.suffix()).filter(|whole| !whole.is_empty())
}

/// Makes the master of the whole image, of the parts that lie beside `part_master` by now.
///
/// # Errors
/// [`ErrorKind::Invalid`] if these are no files of a part, or if the parts contradict each other; otherwise what
/// cannot be read or written. The files of the parts are never changed.
pub fn compose(part_master: &Path) -> Result<Whole, Error> {
    let wrong = |cause: String| Error::new(ErrorKind::Invalid, DOING, part_master, cause);
    let file = low::open_file(part_master).context(DOING, part_master)?;
    let described = read_text(&file, DESCRIPTION).ok_or_else(|| wrong("it is no master of Konkordia".into()))?;
    drop(file);
    let spec = FileSpec::from_text(&described).map_err(wrong)?;
    let Some(part) = spec.part else {
        let why = "its configuration has no table [part], so its images are whole already";
        return Err(wrong(why.into()).with_hint("give the master of a part"));
    };
    let Some(prefix) = whole_prefix(&spec.prefix, &part) else {
        return Err(wrong(format!("its name does not end with {}_master.h5", part.suffix())));
    };
    let directory = part_master.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // One after the other, so that nobody renames an older state over a newer one. Where the file system has no locks,
    // the names of temporary files are still different.
    let lock = std::fs::File::open(directory).context(DOING, directory)?;
    let _ = lock.lock();
    let (mut sources, mut notes) = (Vec::new(), Vec::new());
    for number in 1..=part.of {
        let other = format!("{prefix}{}", PartOfImage::suffix_of(number));
        sources.extend(Source::read(directory, &other, number)?);
    }
    notes.extend(leave_out_older(&mut sources, part.number));
    agree(&sources, &part).map_err(wrong)?;
    align(&mut sources).map_err(wrong)?;
    let images = sources.iter().map(|source| source.offset + source.images()).max().unwrap_or(0);
    let absent: Vec<u32> = (1..=part.of).filter(|number| sources.iter().all(|source| source.part.number != *number)).collect();
    let open = sources.iter().filter(|source| source.state == master::State::Writing.name()).map(|source| source.part.number);
    let open = open.collect();
    let spec = whole_spec(&sources, (directory, prefix), images, !absent.is_empty());
    let master = publish(&spec, &sources, images, &absent)?;
    Ok(Whole { master, images, absent, open, notes })
}

impl Source {
    /// The part of this prefix; `None` if it has no master.
    fn read(directory: &Path, prefix: &str, number: u32) -> Result<Option<Self>, Error> {
        let path = master_path(directory, prefix);
        if !path.exists() {
            return Ok(None);
        }
        let wrong = |cause: String| Error::new(ErrorKind::Invalid, DOING, &path, cause);
        let file = low::open_file(&path).context(DOING, &path)?;
        let described = read_text(&file, DESCRIPTION).ok_or_else(|| wrong("it has no description of its run".into()))?;
        let spec = FileSpec::from_text(&described).map_err(wrong)?;
        let Some(part) = spec.part.filter(|part| part.number == number) else {
            return Err(wrong(format!("it is not part {number}")).with_hint("move it away, or give the run another name"));
        };
        let mask = file.dataset(MASK).and_then(|mask| mask.read_all::<u32>()).context(DOING, &path)?;
        if mask.len() != spec.pixels() {
            return Err(wrong("its pixel mask has another size than its images".into()));
        }
        let columns = Columns::new(&spec);
        let (ledger, state) = (read_ledger(&file), read_text(&file, "/entry/konkordia/state").unwrap_or_default());
        let mut source = Self {
            end: read_text(&file, "/entry/end_time"),
            files: closed(directory, prefix)?,
            frames: None,
            offset: 0,
            part,
            spec,
            columns,
            mask,
            ledger,
            state,
        };
        source.frames = source.first_frame()?;
        Ok(Some(source))
    }

    fn images(&self) -> u64 {
        let ipf = u64::from(self.spec.images_per_file);
        self.files.last().map_or(0, |last| (last.number - 1) * ipf + last.images)
    }

    /// The rows of a column for images `first..first + count` of the part; zeros where it has none.
    fn rows(&self, column: &Column, first: u64, count: u64) -> Result<Vec<u8>, Error> {
        let ipf = u64::from(self.spec.images_per_file);
        let mut bytes = vec![0; count as usize * column.bytes()];
        for file in &self.files {
            let begin = (file.number - 1) * ipf;
            let (from, to) = (first.max(begin), (first + count).min(begin + file.stored));
            if from >= to {
                continue;
            }
            let Some(columns) = file.columns().context(DOING, &file.path)? else { continue };
            let read = columns.dataset(&column.name).and_then(|data| low::read_rows(&data, column, from - begin, to - from));
            let at = (from - first) as usize * column.bytes();
            let read = read.context(DOING, &file.path)?;
            bytes[at..at + read.len()].copy_from_slice(&read);
        }
        Ok(bytes)
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns.list.iter().find(|column| column.name == name)
    }

    /// Reads the numbers of the frames of the first and the last image that have pixels.
    fn first_frame(&self) -> Result<Option<(i128, i128)>, Error> {
        let (Some(status), Some(frame)) = (self.column("status"), self.column("frame_number")) else { return Ok(None) };
        // Position and frame number of both.
        let mut first: Option<(u64, u64)> = None;
        let mut last = None;
        let mut begin = 0;
        while begin < self.images() {
            let count = BATCH_IMAGES.min(self.images() - begin);
            let (states, frames) = (self.rows(status, begin, count)?, self.rows(frame, begin, count)?);
            for (n, (state, frame)) in states.iter().zip(frames.as_chunks::<8>().0).enumerate() {
                if ImageStatus::from_u8(*state).is_some_and(|status| status.has_pixels()) {
                    let here = (begin + n as u64, u64::from_le_bytes(*frame));
                    first.get_or_insert(here);
                    last = Some(here);
                }
            }
            begin += count;
        }
        let (Some((image, frame)), Some((last_image, last_frame))) = (first, last) else { return Ok(None) };
        let images = i128::from(last_image - image).max(1);
        let step = ((i128::from(last_frame) - i128::from(frame)) / images).max(1);
        Ok(Some((i128::from(frame) - i128::from(image) * step, step)))
    }
}

/// The data files of a part that are closed.
fn closed(directory: &Path, prefix: &str) -> Result<Vec<Closed>, Error> {
    let found = existing(directory, prefix).context(DOING, directory)?;
    let mut files = Vec::new();
    for (number, path, has_data, has_journal) in found {
        if !has_data || has_journal {
            continue;
        }
        let states = low::open_file(&path).and_then(|file| file.dataset(&format!("{COLUMNS}/status")));
        let images = states.context(DOING, &path)?.shape().first().copied().unwrap_or(0) as u64;
        files.push(Closed::whole(number, path, images));
    }
    Ok(files)
}

/// Removes the parts of an older run of the same name: they were closed before the part that was closed now began.
fn leave_out_older(sources: &mut Vec<Source>, own: u32) -> Vec<String> {
    let begin = sources.iter().find(|source| source.part.number == own).and_then(|own| own.spec.metadata.start_time.clone());
    let Some(begin) = begin else { return Vec::new() };
    let is_older = |source: &Source| {
        let seconds = |moment: &Option<String>| moment.as_deref().and_then(konkordia_core::moment::unix_s);
        match (seconds(&source.end), seconds(&Some(begin.clone()))) {
            (Some(end), Some(begin)) => source.part.number != own && end + CLOCKS_DIFFER_MAX_S < begin,
            _ => false,
        }
    };
    let notes = sources.iter().filter(|source| is_older(source)).map(|source| {
        let ended = source.end.clone().unwrap_or_default();
        format!("part {} is of an older run, which ended at {ended}: it is left out", source.part.number)
    });
    let notes = notes.collect();
    sources.retain(|source| !is_older(source));
    notes
}

/// Why these cannot be parts of one image, in words.
fn agree(sources: &[Source], own: &PartOfImage) -> Result<(), String> {
    let Some(first) = sources.first() else { return Ok(()) };
    for source in sources {
        let (a, b) = (&first.spec, &source.spec);
        let facts = [
            (
                "the size of the whole image",
                (own.of, own.image_rows, own.image_columns)
                    == (source.part.of, source.part.image_rows, source.part.image_columns),
            ),
            (
                "the type of the pixels",
                a.pixel == b.pixel && a.raw_words == b.raw_words && a.scale == b.scale && a.unit == b.unit,
            ),
            ("the packets", a.bitmap_words() == b.bitmap_words() && a.frame_columns == b.frame_columns && a.series == b.series),
            (
                "energy or distance",
                a.metadata.energy_kev == b.metadata.energy_kev
                    && a.metadata.detector_distance_m == b.metadata.detector_distance_m,
            ),
            ("the beam centre", is_same_beam(first, source)),
        ];
        let differs = facts.iter().find(|(_, is_same)| !is_same);
        if let Some((what, _)) = differs {
            return Err(format!("{what} of part {} differs from that of part {}", source.part.number, first.part.number));
        }
        if let Some(problem) = source.part.problem(b.rows, b.columns) {
            return Err(format!("part {}: {problem}", source.part.number));
        }
        let overlaps = |other: &&Source| {
            let apart = |a: (u32, u32), b: (u32, u32)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
            other.part.number < source.part.number
                && !apart((other.part.row, other.spec.rows), (source.part.row, b.rows))
                && !apart((other.part.column, other.spec.columns), (source.part.column, b.columns))
        };
        if let Some(other) = sources.iter().find(overlaps) {
            return Err(format!("parts {} and {} lie over each other in the image", other.part.number, source.part.number));
        }
    }
    Ok(())
}

/// The beam centre in the whole image, x and y.
fn beam(source: &Source) -> [Option<f64>; 2] {
    let m = &source.spec.metadata;
    [m.beam_center_x_px.map(|x| x + f64::from(source.part.column)), m.beam_center_y_px.map(|y| y + f64::from(source.part.row))]
}

fn is_same_beam(a: &Source, b: &Source) -> bool {
    beam(a).iter().zip(beam(b)).all(|pair| match pair {
        (Some(a), Some(b)) => (a - b).abs() < 1e-6,
        (a, b) => a.is_none() && b.is_none(),
    })
}

/// Finds the position of each part in the whole by the numbers of its frames.
fn align(sources: &mut [Source]) -> Result<(), String> {
    // A part of one image does not show the step.
    let step = sources.iter().filter_map(|source| source.frames).map(|(_, step)| step).max().unwrap_or(1);
    let Some(origin) = sources.iter().filter_map(|source| source.frames).map(|(first, _)| first).min() else { return Ok(()) };
    for source in sources {
        let Some((first, _)) = source.frames else { continue };
        let ahead = first - origin;
        if ahead % step != 0 {
            let number = source.part.number;
            return Err(format!(
                "images of part {number} begin at frames between those of other parts: every image has {step} frames"
            ));
        }
        source.offset = u64::try_from(ahead / step).unwrap_or(0);
    }
    Ok(())
}

fn whole_spec(sources: &[Source], (directory, prefix): (&Path, &str), images: u64, is_absent: bool) -> FileSpec {
    let first = &sources[0];
    let (rows, columns) = (first.part.image_rows, first.part.image_columns);
    let outside = if is_absent { ABSENT } else { GAP };
    let mut mask = vec![outside; rows as usize * columns as usize];
    let mut tiles = Vec::new();
    for source in sources {
        let (row, column) = (source.part.row, source.part.column);
        for (n, line) in source.mask.chunks_exact(source.spec.columns as usize).enumerate() {
            let at = (row as usize + n) * columns as usize + column as usize;
            mask[at..at + line.len()].copy_from_slice(line);
        }
        tiles.extend(source.spec.tiles.iter().map(|tile| super::spec::TileInfo {
            row: tile.row + row,
            column: tile.column + column,
            ..tile.clone()
        }));
    }
    let mut metadata = first.spec.metadata.clone();
    [metadata.beam_center_x_px, metadata.beam_center_y_px] = beam(first);
    let starts = sources.iter().filter_map(|source| source.spec.metadata.start_time.clone());
    metadata.start_time = starts.min();
    let is_selection = |column: &&ExtraColumn| ExtraColumn::SELECTION.contains(&column.name.as_str());
    FileSpec {
        directory: directory.to_owned(),
        prefix: prefix.to_owned(),
        images_per_file: (images.clamp(1, u64::from(IMAGES_PER_FILE_MAX))) as u32,
        rows,
        columns,
        layout: Layout::Virtual,
        pixel_mask: mask,
        tiles,
        metadata,
        extra_columns: first.spec.extra_columns.iter().filter(is_selection).cloned().collect(),
        pedestal_snapshots: false,
        part: None,
        parts: first.part.of,
        xds: None,
        ..first.spec.clone()
    }
}

/// Writes the columns of the whole into files of their own, and the master of them and of the parts.
fn publish(spec: &FileSpec, sources: &[Source], images: u64, absent: &[u32]) -> Result<PathBuf, Error> {
    let columns = Columns::new(spec);
    let (ipf, mut files, mut by_status) = (u64::from(spec.images_per_file), Vec::new(), [0; ImageStatus::COUNT]);
    let mut made = Ok(());
    for n in 0..images.div_ceil(ipf) {
        let path = temporary_path(&spec.directory.join(format!("{}_columns_{n}.{}", spec.prefix, std::process::id())));
        let count = ipf.min(images - n * ipf);
        files.push(Closed::whole(n + 1, path.clone(), count));
        made = write_columns(&path, &columns, sources, (n * ipf, count), &mut by_status);
        if made.is_err() {
            break;
        }
    }
    let published = made.and_then(|()| {
        let rectangles: Vec<Rectangle> = sources.iter().flat_map(rectangles).collect();
        let write = |parts: &Group| write_parts(parts, sources, absent);
        let ledger = ledger(sources, images, by_status, absent);
        master::publish_whole(spec, &columns, &files, &ledger, &Parts { rectangles: &rectangles, write: &write })
    });
    for file in &files {
        let _ = remove(&file.path);
    }
    published
}

fn rectangles(source: &Source) -> impl Iterator<Item = Rectangle> {
    let ipf = u64::from(source.spec.images_per_file);
    source.files.iter().filter(|file| file.images > 0).map(move |file| Rectangle {
        file: file.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        from: 0,
        images: file.images,
        to: source.offset + (file.number - 1) * ipf,
        at: [source.part.row, source.part.column],
        size: [source.spec.rows, source.spec.columns],
    })
}

/// Writes the columns of images `first..first + count` of the whole; counts their states.
fn write_columns(
    path: &Path,
    columns: &Columns,
    sources: &[Source],
    (first, count): (u64, u64),
    by_status: &mut [u64; ImageStatus::COUNT],
) -> Result<(), Error> {
    let file = low::create_file(path, Format::V18WithVirtual).context(DOING, path)?;
    let target = group(&file, "entry", "NXentry")
        .and_then(|entry| group(&entry, "konkordia", "NXcollection"))
        .and_then(|own| group(&own, "images", "NXcollection"))
        .context(DOING, path)?;
    // Images of the whole have no chunks of their own, and so no checksums.
    for column in columns.list.iter().filter(|column| column.name != super::checksum::CHECKSUM) {
        let dataset = low::create_column(&target, column, u32::MAX).context(DOING, path)?;
        low::set_extent(&dataset, count, &column.shape).context(DOING, path)?;
        let mut done = 0;
        while done < count {
            let batch = BATCH_IMAGES.min(count - done);
            let rows = whole_rows(column, sources, first + done, batch)?;
            if column.name == "status" {
                rows.iter().for_each(|status| by_status[usize::from(*status)] += 1);
            }
            low::write_rows(&dataset, column, done, &rows).context(DOING, path)?;
            done += batch;
        }
    }
    file.flush().and_then(|()| file.close()).context(DOING, path)
}

/// Rows of a column of the whole: the numbers of all tiles side by side; of what is one number for the image, that of
/// the first part that has pixels; the state of all parts.
fn whole_rows(column: &Column, sources: &[Source], first: u64, count: u64) -> Result<Vec<u8>, Error> {
    let mut rows = vec![0; count as usize * column.bytes()];
    let mut filled = vec![false; count as usize];
    let mut states: Vec<Vec<u8>> = Vec::new();
    let mut at = 0;
    for source in sources {
        let (Some(own), Some(status)) = (source.column(&column.name), source.column("status")) else { continue };
        // Images of the whole that this part has, and where they are in it.
        let (begin, end) = (first.max(source.offset), (first + count).min(source.offset + source.images()));
        let there = end.saturating_sub(begin);
        let skip = (begin.max(first) - first) as usize;
        let from = begin - source.offset;
        let (values, status) = if there > 0 {
            (source.rows(own, from, there)?, source.rows(status, from, there)?)
        } else {
            (Vec::new(), Vec::new())
        };
        let width = own.bytes();
        let is_per_tile = !column.shape.is_empty();
        for n in 0..there as usize {
            let (image, value) = (skip + n, &values[n * width..(n + 1) * width]);
            let to = image * column.bytes() + if is_per_tile { at } else { 0 };
            let has_pixels = ImageStatus::from_u8(status[n]).is_some_and(|status| status.has_pixels());
            if is_per_tile || (has_pixels && !std::mem::replace(&mut filled[image], true)) {
                rows[to..to + width].copy_from_slice(value);
            }
        }
        if is_per_tile {
            at += width;
        }
        let mut all = vec![ImageStatus::Lost as u8; count as usize];
        all[skip.min(count as usize)..][..status.len()].copy_from_slice(&status);
        states.push(all);
    }
    if column.name == "status" {
        let of = sources.first().map_or(0, |source| source.part.of as usize);
        for (n, state) in rows.iter_mut().enumerate() {
            let parts: Vec<u8> = states.iter().map(|part| part[n]).collect();
            *state = whole_status(&parts, of) as u8;
        }
    }
    Ok(rows)
}

/// The state of an image of which so many parts have these states; parts beyond them are absent.
fn whole_status(parts: &[u8], of: usize) -> ImageStatus {
    let states: Vec<ImageStatus> = parts.iter().filter_map(|state| ImageStatus::from_u8(*state)).collect();
    if states.len() == of && states.iter().all(|state| *state == ImageStatus::Complete) {
        return ImageStatus::Complete;
    }
    if states.iter().any(|state| state.has_pixels()) {
        return ImageStatus::Partial;
    }
    states.into_iter().find(|state| *state != ImageStatus::Lost).unwrap_or(ImageStatus::Lost)
}

/// What is known of each part, with links to what only its own files say.
fn write_parts(parts: &Group, sources: &[Source], absent: &[u32]) -> hdf5::Result<()> {
    for source in sources {
        let PartOfImage { number: n, row, column, .. } = source.part;
        let own = group(parts, &format!("part_{n}"), "NXcollection")?;
        text(&own, "state", &source.state)?;
        let first_frame = source.frames.map_or(0, |(first, _)| i64::try_from(first).unwrap_or(0));
        number(&own, "row", row, "")?;
        number(&own, "column", column, "")?;
        number(&own, "rows", source.spec.rows, "")?;
        number(&own, "columns", source.spec.columns, "")?;
        number(&own, "images", source.images(), "")?;
        number(&own, "first_image", source.offset, "")?;
        number(&own, "first_frame", first_frame, "")?;
        own.link_external(&master_file_name(&source.spec.prefix), "/entry", "entry")?;
    }
    for n in absent {
        text(&group(parts, &format!("part_{n}"), "NXcollection")?, "state", "absent")?;
    }
    Ok(())
}

/// One account of all parts: packets are added up, images are counted in the whole.
fn ledger(sources: &[Source], images: u64, by_status: [u64; ImageStatus::COUNT], absent: &[u32]) -> LedgerRecord {
    let mut totals: Vec<(String, u64)> = Vec::new();
    let mut streams: Vec<StreamRecord> = Vec::new();
    for source in sources {
        let Some(ledger) = &source.ledger else { continue };
        for (name, value) in ledger.totals.iter().filter(|(name, _)| !name.starts_with("images_")) {
            match totals.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += value,
                None => totals.push((name.clone(), *value)),
            }
        }
        let named = |stream: &StreamRecord| StreamRecord {
            name: format!("part {}: {}", source.part.number, stream.name),
            ..stream.clone()
        };
        streams.extend(ledger.streams.iter().map(named));
    }
    let names = ["images_lost", "images_complete", "images_partial", "images_discarded", "images_vetoed"];
    totals.extend(names.iter().zip(by_status).map(|(name, count)| ((*name).to_owned(), count)));
    totals.extend([("images_in_files".into(), images), ("parts_absent".into(), absent.len() as u64)]);
    let own = "images_in_files = images_lost + images_complete + images_partial + images_discarded + images_vetoed";
    let first = sources.iter().filter_map(|source| source.ledger.as_ref()).next();
    let of_packets = first.into_iter().flat_map(|ledger| &ledger.balances).filter(|sum| !sum.contains("images_")).cloned();
    let ended = sources.iter().map(|source| {
        let ended = source.ledger.as_ref().map_or("its files are not closed", |ledger| ledger.ended.as_str());
        format!("part {}: {ended}", source.part.number)
    });
    let gone = absent.iter().map(|number| format!("part {number}: absent"));
    LedgerRecord {
        totals,
        streams,
        balances: of_packets.chain([own.into()]).collect(),
        latency: Vec::new(),
        ended: ended.chain(gone).collect::<Vec<_>>().join("; "),
        end_time: sources.iter().filter_map(|source| source.end.clone()).max(),
        images_expected: images,
    }
}
