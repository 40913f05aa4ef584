//! Rescues what can still be read of a data file that was cut or damaged after it was closed. Its bytes are searched
//! for nodes of the chunk index, which say where the chunk of each image lies; nothing is needed that only libhdf5
//! could follow. A chunk counts if it begins as it should and, if its checksum is known, if that is right.

use konkordia_core::output::temporary_path;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::checksum;
use super::columns::{Columns, ImageStatus};
use super::constant::{LostBudget, MissingChunk};
use super::datafile::{Closed, DataFile, remove};
use super::error::{Context, Error};
use super::journal::Place;
use super::low;
use super::packing::{HEAD_BYTES, begins_right};
use super::rows::{Agreement, Row, Rows};
use super::spec::FileSpec;

const DOING: &str = "rescue the images of the data file";
/// Bytes searched at a time.
const BLOCK: usize = 4 << 20;
/// A node of the chunk index (version 1) has at most 64 children, each with a key of at most 64 bytes: together less
/// than this.
const NODE_BYTES_MAX: usize = 8 << 10;
const CHILDREN_MAX: usize = 64;
const NODE_HEADER: usize = 24;
/// Beginning of a node: kind 1 (chunks), level 0 (leaf).
const SIGNATURE: &[u8] = b"TREE\x01\x00";
/// Bytes read at a time where a block cannot be read as a whole.
const PAGE: usize = 4096;

/// Where chunks may lie, by image of the file and piece of the image. An image has several places if a node was moved.
type Index = BTreeMap<(u64, usize), Vec<Place>>;

/// A data file that cannot be read as it is.
pub(super) struct Damaged<'a> {
    pub(super) path: &'a Path,
    pub(super) number: u64,
    /// Images that should be in it, if known.
    pub(super) images: Option<u64>,
    pub(super) spec: &'a FileSpec,
    pub(super) columns: &'a Columns,
    /// Searched for its columns if the file itself has none that can be read.
    pub(super) master: &'a Path,
}

/// The result of a rescue.
pub(super) struct Rescued {
    pub(super) closed: Closed,
    /// Images, by position in the run, that had pixels (or may have had pixels) and have none now.
    pub(super) lost: Vec<u64>,
    /// Images whose bytes were taken as they are, because no checksum of them is left.
    pub(super) unverified: u64,
    /// The file as it was.
    pub(super) kept: PathBuf,
}

/// What is left of a damaged data file.
pub(super) struct Remains<'a> {
    raw: std::fs::File,
    found: Index,
    /// The rows of its images in the file itself and in the master.
    own: Option<Rows>,
    master: Option<Rows>,
    missing: Option<MissingChunk>,
    spec: &'a FileSpec,
    columns: &'a Columns,
}

/// What is left of one image.
pub(super) enum Image {
    Pixels {
        chunks: Vec<Vec<u8>>,
        row: Vec<u8>,
        /// Whether a checksum shows that these are the bytes that were written.
        is_verified: bool,
    },
    /// The image had no pixels; its row.
    Without(Vec<u8>),
    /// The image had pixels, which cannot be read.
    Lost,
    /// No row says anything of the image, and there are no bytes.
    Unknown,
}

impl<'a> Remains<'a> {
    /// Searches the file. Its rows and those of the master are read for at most `images` images.
    pub(super) fn of(damaged: &Damaged<'a>, images: Option<u64>) -> Result<Self, Error> {
        let raw = std::fs::File::open(damaged.path).context(DOING, damaged.path)?;
        let found = index(&raw, damaged.spec).context(DOING, damaged.path)?;
        let (spec, columns) = (damaged.spec, damaged.columns);
        let images = images.unwrap_or_else(|| u64::from(spec.images_per_file));
        let read = |path: &Path, first| Rows::of(&low::open_file(path).ok()?, columns, first, images);
        // A master that was made while the file was away says nothing of its images.
        let master = read(damaged.master, damaged.first()).filter(|rows| !rows.is_nothing());
        let own = read(damaged.path, 0);
        Ok(Self { raw, found, own, master, missing: MissingChunk::of(spec), spec, columns })
    }

    /// One past the last image of which there are bytes or a row.
    pub(super) fn end(&self) -> u64 {
        let rows = self.own.as_ref().map_or(0, Rows::len);
        self.found.keys().max().map_or(0, |(last, _)| last + 1).max(rows)
    }

    /// What is left of an image. The bytes decide which row is believed, whatever state the row gives.
    pub(super) fn image(&self, local: u64) -> Image {
        let [own, master] = [&self.own, &self.master].map(|rows| rows.as_ref().and_then(|rows| rows.get(local)));
        let rows = || [own, master].into_iter().flatten();
        let is_missing = |chunks: &Vec<Vec<u8>>| {
            self.missing.as_ref().is_some_and(|missing| chunks.iter().all(|chunk| chunk == missing.bytes()))
        };
        let mut unverified = None;
        for chunks in self.chunks(local) {
            let sum = checksum::of(chunks.iter().map(Vec::as_slice));
            let [of_own, of_master] =
                [own, master].map(|row| row.map_or(Agreement::Nothing, |row| row.agrees(self.columns, sum)));
            let is_right = of_own.max(of_master) >= Agreement::Checksum;
            if (is_right && !is_missing(&chunks)) || of_own.max(of_master) == Agreement::Both {
                let (best, other) = if of_own >= of_master { (own, master) } else { (master, own) };
                let other = other.filter(|_| of_own == of_master);
                let mut row = best.map_or_else(Vec::new, |best| best.completed(other, self.columns));
                if of_own.max(of_master) == Agreement::Checksum {
                    // The state was damaged in both rows.
                    self.columns.set_status(&mut row, ImageStatus::Partial);
                }
                return Image::Pixels { chunks, row, is_verified: true };
            }
            if !is_missing(&chunks) {
                unverified = unverified.or(Some((chunks, sum)));
            }
        }
        let said = rows().find(|row| row.has_pixels(self.columns)).or_else(|| rows().find(|row| !row.is_nothing()));
        let Some((chunks, sum)) = unverified.filter(|_| rows().all(|row| row.is_nothing() || !row.has_sum)) else {
            return match said {
                _ if rows().any(|row| row.has_pixels(self.columns)) => Image::Lost,
                Some(row) => Image::Without(self.without(row)),
                None if rows().next().is_some() => Image::Without(vec![0; self.columns.row_bytes]),
                None => Image::Unknown,
            };
        };
        match said {
            Some(row) if !row.has_pixels(self.columns) => Image::Without(self.without(row)),
            said => {
                let mut row = said.map_or_else(|| self.columns.unknown_row(), |row| row.bytes.to_vec());
                self.columns.set_checksum(&mut row, sum);
                Image::Pixels { chunks, row, is_verified: false }
            }
        }
    }

    /// The row of an image of which nothing is stored yet.
    fn without(&self, row: Row<'_>) -> Vec<u8> {
        let mut row = row.bytes.to_vec();
        self.columns.set_checksum(&mut row, 0);
        row
    }

    /// The candidates for the chunks of an image.
    fn chunks(&self, local: u64) -> impl Iterator<Item = Vec<Vec<u8>>> {
        let of_piece = move |piece| {
            let places = self.found.get(&(local, piece)).into_iter().flatten();
            places.filter_map(|place| chunk_at(&self.raw, *place, self.spec))
        };
        let pieces = self.spec.pieces();
        let single = (pieces == 1).then(|| of_piece(0).map(|chunk| vec![chunk]));
        let several: Option<Vec<Vec<u8>>> =
            if pieces == 1 { None } else { (0..pieces).map(|piece| of_piece(piece).next()).collect() };
        single.into_iter().flatten().chain(several)
    }
}

impl Damaged<'_> {
    fn first(&self) -> u64 {
        (self.number - 1) * u64::from(self.spec.images_per_file)
    }

    /// Writes the file again with what can be read, and keeps the old one beside it; `None` if nothing can be read, and
    /// then nothing was touched.
    pub(super) fn rescue(&self, budget: &mut LostBudget) -> Result<Option<Rescued>, Error> {
        // Takes effect only if the new file takes the place of the old one.
        let mut spent = *budget;
        let remains = Remains::of(self, self.images)?;
        let images = self.images.unwrap_or_else(|| remains.end());
        if remains.found.is_empty() {
            return Ok(None);
        }
        let part = temporary_path(self.path);
        if part.exists() {
            remove(&part)?;
        }
        let made = DataFile::create_hdf5(self.spec, self.columns, self.number, self.first(), part.clone(), None);
        let made = made.and_then(|file| self.copy(&remains, images, file, &mut spent)).and_then(|(lost, unverified)| {
            if lost.len() as u64 == images {
                return Ok(None);
            }
            std::fs::File::open(&part).and_then(|file| file.sync_all()).context(DOING, &part)?;
            let kept = keep(self.path)?;
            std::fs::rename(&part, self.path).context(DOING, self.path)?;
            *budget = spent;
            let closed = Closed::whole(self.number, self.path.to_owned(), images);
            Ok(Some(Rescued { closed, lost, unverified, kept }))
        });
        if !matches!(made, Ok(Some(_))) {
            let _ = std::fs::remove_file(&part);
        }
        made
    }

    /// Copies what can be read. Returns the images that are lost, and how many could not be compared with a checksum.
    fn copy(
        &self,
        remains: &Remains<'_>,
        images: u64,
        mut file: DataFile,
        budget: &mut LostBudget,
    ) -> Result<(Vec<u64>, u64), Error> {
        let nothing = vec![0; self.columns.row_bytes];
        let (mut lost, mut unverified) = (Vec::new(), 0);
        for local in 0..images {
            match remains.image(local) {
                Image::Pixels { chunks, row, is_verified } => {
                    let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
                    file.write(local, &parts, &row)?;
                    unverified += u64::from(!is_verified);
                }
                Image::Without(row) => file.write(local, &[], &row)?,
                Image::Lost | Image::Unknown => {
                    lost.push(self.first() + local);
                    file.write(local, &[], &nothing)?;
                }
            }
        }
        if let Some(missing) = &MissingChunk::of(self.spec) {
            file.fill_lost(missing, budget);
        }
        file.flush()?;
        file.close(None)?;
        Ok((lost, unverified))
    }
}

/// The chunk at this offset with this size, if it can be one.
pub(super) fn chunk_at(file: &std::fs::File, (offset, size): Place, spec: &FileSpec) -> Option<Vec<u8>> {
    let most = spec.chunk_bytes_max();
    let mut chunk = vec![0; usize::try_from(size).ok().filter(|_| size <= most)?];
    file.read_exact_at(&mut chunk, offset).ok()?;
    let head = &chunk[..chunk.len().min(HEAD_BYTES)];
    begins_right(spec.compression, spec.piece_bytes(), chunk.len(), head).then_some(chunk)
}

/// The names under which a file is kept as it was.
pub(super) fn kept_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = (1..).map(move |n| if n == 1 { format!("{name}.damaged") } else { format!("{name}.damaged{n}") });
    let path = path.to_owned();
    names.map(move |name| path.with_file_name(name))
}

/// Gives the file a second name, under which it stays unchanged when another file takes its first name.
pub(super) fn keep(path: &Path) -> Result<PathBuf, Error> {
    let kept = kept_names(path).find(|kept| !kept.exists()).expect("names do not end");
    let linked = std::fs::hard_link(path, &kept).or_else(|_| std::fs::rename(path, &kept));
    linked.context("keep the damaged file", &kept)?;
    Ok(kept)
}

/// Searches a file for nodes of the index of its image stack.
pub(super) fn index(file: &std::fs::File, spec: &FileSpec) -> std::io::Result<Index> {
    let length = file.metadata()?.len();
    let starts: Vec<Vec<u64>> = spec.chunk_starts();
    let rank = 1 + spec.image_shape().len();
    let most = spec.chunk_bytes_max();
    let mut found = Index::new();
    let mut block = vec![0; BLOCK + NODE_BYTES_MAX];
    let mut at = 0;
    while at < length {
        let bytes = (length - at).min(block.len() as u64) as usize;
        read_what_can_be_read(|into, at| file.read_exact_at(into, at), &mut block[..bytes], at);
        // A signature that begins in this block may end in the next one.
        for begin in leaves(&block[..bytes.min(BLOCK + SIGNATURE.len() - 1)]) {
            for (offsets, place) in entries(&block[begin..bytes], rank) {
                let piece = starts.iter().position(|start| *start == offsets[1..]);
                let fits = place.1 > 0 && place.1 <= most && place.0.checked_add(place.1).is_some_and(|end| end <= length);
                if let Some(piece) = piece.filter(|_| fits && offsets[0] < u64::from(spec.images_per_file)) {
                    let places = found.entry((offsets[0], piece)).or_default();
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
            }
        }
        at += BLOCK as u64;
    }
    Ok(found)
}

/// Reads a block of a file. Pages that the disk cannot read, for example in a bad sector, read as zeros.
fn read_what_can_be_read(read: impl Fn(&mut [u8], u64) -> std::io::Result<()>, block: &mut [u8], at: u64) {
    if read(block, at).is_ok() {
        return;
    }
    for (n, page) in block.chunks_mut(PAGE).enumerate() {
        if read(page, at + (n * PAGE) as u64).is_err() {
            page.fill(0);
        }
    }
}

/// Where leaves of chunk indices begin.
fn leaves(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(SIGNATURE.len()).enumerate().filter(|(_, window)| *window == SIGNATURE).map(|(at, _)| at)
}

/// Offsets and places of the chunks that a leaf names, whichever data set it belongs to.
fn entries(node: &[u8], rank: usize) -> Vec<(Vec<u64>, Place)> {
    let number =
        |at: usize, bytes: usize| node.get(at..at + bytes).map(|b| b.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b)));
    let used = number(6, 2).unwrap_or(0) as usize;
    // Size, filter mask, an offset for each dimension and one within the element, which is 0.
    let key_bytes = 8 + 8 * (rank + 1);
    let entry = |n: usize| {
        let at = NODE_HEADER + n * (key_bytes + 8);
        let offsets: Option<Vec<u64>> = (0..=rank).map(|axis| number(at + 8 + 8 * axis, 8)).collect();
        let (mut offsets, mask) = (offsets?, number(at + 4, 4)?);
        let is_chunk = mask == 0 && offsets.pop() == Some(0);
        is_chunk.then_some((offsets, (number(at + key_bytes, 8)?, number(at, 4)?)))
    };
    (0..used.min(CHILDREN_MAX)).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_across_the_border_of_a_block_are_found() {
        let spec = FileSpec { rows: 2, columns: 3, ..FileSpec::default() };
        let path = std::env::temp_dir().join(format!("konkordia-border-{}", std::process::id()));
        for before in 0..8 {
            let mut bytes = vec![0; BLOCK + NODE_BYTES_MAX];
            let mut node = [SIGNATURE, &[1, 0], &[0xFF; 16]].concat();
            let key = [5u64, 0, 0, 0].iter().flat_map(|offset| offset.to_le_bytes());
            node.extend([12, 0, 0, 0, 0, 0, 0, 0].into_iter().chain(key).chain(100u64.to_le_bytes()));
            bytes[BLOCK - before..][..node.len()].copy_from_slice(&node);
            std::fs::write(&path, &bytes).unwrap();
            let found = index(&std::fs::File::open(&path).unwrap(), &spec).unwrap();
            assert_eq!(found, Index::from([((5, 0), vec![(100, 12)])]), "{before} bytes before the border");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_sector_that_cannot_be_read_costs_its_page_only() {
        let bad = 5 * PAGE as u64 + 7;
        let disk = |into: &mut [u8], at: u64| {
            into.fill(1);
            if (at..at + into.len() as u64).contains(&bad) { Err(std::io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
        };
        let mut block = vec![2; 10 * PAGE + 100];
        read_what_can_be_read(disk, &mut block, 0);
        let page = |n: usize| block[n * PAGE..((n + 1) * PAGE).min(block.len())].iter().copied().max();
        assert_eq!((0..11).map(page).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1].map(Some));
    }
}
