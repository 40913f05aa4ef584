//! What can still be read of a data file that was cut or damaged after it was closed. Its bytes are searched for nodes of the chunk index, which
//! say where the chunk of which image lies; nothing that only libhdf5 could follow is needed. A chunk counts if it begins as it should and, where
//! its checksum is known, if that is right.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hdf5::File;

use super::checksum::{self, CHECKSUM};
use super::columns::{Columns, ImageStatus};
use super::constant::MissingChunk;
use super::datafile::{COLUMNS, Closed, DataFile, remove};
use super::error::{Context, Error};
use super::journal::Place;
use super::low;
use super::names::temporary_path;
use super::packing::{HEAD_BYTES, begins_right};
use super::reader::column_bytes;
use super::spec::FileSpec;

const DOING: &str = "rescue the images of the data file";
/// Bytes searched at a time.
const BLOCK: usize = 4 << 20;
/// A node of the chunk index (version 1) has at most 64 children, each with a key of at most 64 bytes: less than this.
const NODE_BYTES_MAX: usize = 8 << 10;
const CHILDREN_MAX: usize = 64;
const NODE_HEADER: usize = 24;

/// Where chunks may lie, by image of the file and piece of the image; an image of which a node was moved has several.
type Index = BTreeMap<(u64, usize), Vec<Place>>;

/// A data file that cannot be read as it is.
pub(super) struct Damaged<'a> {
    pub(super) path: &'a Path,
    pub(super) number: u64,
    /// Images that belong into it, if that is known.
    pub(super) images: Option<u64>,
    pub(super) spec: &'a FileSpec,
    pub(super) columns: &'a Columns,
    /// Its columns are looked for there where the file itself has none that can be read.
    pub(super) master: &'a Path,
}

/// What came of it.
pub(super) struct Rescued {
    pub(super) closed: Closed,
    /// Images, by position in the run, that had pixels (or may have had) and have none now.
    pub(super) lost: Vec<u64>,
    /// The file as it was.
    pub(super) kept: PathBuf,
}

/// Rows of columns as a file has them.
pub(super) struct Rows {
    rows: Vec<Vec<u8>>,
    has_sums: bool,
}

impl Rows {
    /// Rows `first..first + images` of a data file or master; `None` where a column is missing or too short.
    pub(super) fn of(file: &File, columns: &Columns, first: u64, images: u64) -> Option<Self> {
        let group = file.group(COLUMNS).ok()?;
        let has_sums = group.link_exists(CHECKSUM);
        let mut rows = vec![vec![0; columns.row_bytes]; images as usize];
        for column in columns.list.iter().filter(|column| has_sums || column.name != CHECKSUM) {
            let bytes = column_bytes(&group, column).ok()?;
            let of_column = bytes.chunks_exact(column.bytes()).skip(first as usize);
            let filled = rows.iter_mut().zip(of_column).map(|(row, value)| {
                row[column.offset..column.offset + value.len()].copy_from_slice(value);
            });
            if filled.count() as u64 != images {
                return None;
            }
        }
        Some(Self { rows, has_sums })
    }
}

impl Damaged<'_> {
    fn first(&self) -> u64 {
        (self.number - 1) * u64::from(self.spec.images_per_file)
    }

    /// Writes the file anew with what can be read and keeps the old one beside it; `None` if nothing can be read, and nothing was touched.
    pub(super) fn rescue(&self) -> Result<Option<Rescued>, Error> {
        let raw = std::fs::File::open(self.path).context(DOING, self.path)?;
        let found = index(&raw, self.spec).context(DOING, self.path)?;
        let Some((last, _)) = found.keys().max().copied() else { return Ok(None) };
        let images = self.images.unwrap_or(last + 1);
        let rows = self.rows(images);
        let part = temporary_path(self.path);
        if part.exists() {
            remove(&part)?;
        }
        let made = DataFile::create_hdf5(self.spec, self.columns, self.number, self.first(), part.clone(), None);
        let made = made.and_then(|file| self.copy(&raw, &found, rows.as_ref(), images, file));
        let lost = match made {
            Ok(lost) if (lost.len() as u64) < images => lost,
            other => {
                let _ = std::fs::remove_file(&part);
                return other.map(|_| None);
            }
        };
        std::fs::File::open(&part).and_then(|file| file.sync_all()).context(DOING, &part)?;
        let kept = keep(self.path)?;
        std::fs::rename(&part, self.path).context(DOING, self.path)?;
        let closed = Closed { number: self.number, path: self.path.to_owned(), images, readable: true };
        Ok(Some(Rescued { closed, lost, kept }))
    }

    /// The rows of columns, from the file itself or else from the master.
    fn rows(&self, images: u64) -> Option<Rows> {
        let own = low::open_file(self.path).ok().and_then(|file| Rows::of(&file, self.columns, 0, images));
        own.or_else(|| Rows::of(&low::open_file(self.master).ok()?, self.columns, self.first(), images))
    }

    /// Copies what can be read; gives the images that are lost by it.
    fn copy(
        &self,
        raw: &std::fs::File,
        found: &Index,
        rows: Option<&Rows>,
        images: u64,
        mut file: DataFile,
    ) -> Result<Vec<u64>, Error> {
        let mut missing = MissingChunk::of(self.spec);
        let nothing = vec![0; self.columns.row_bytes];
        let mut lost = Vec::new();
        for local in 0..images {
            let row = rows.map(|rows| rows.rows[local as usize].as_slice());
            let has_pixels = row.and_then(|row| self.columns.status(row)).is_some_and(ImageStatus::has_pixels);
            // A row of zeros is that of a lost image, or of one of which nothing is known.
            if let Some(row) = row.filter(|row| !has_pixels && **row != *nothing) {
                file.write(local, &[], row)?;
                continue;
            }
            let written = rows.filter(|rows| has_pixels && rows.has_sums).zip(row).map(|(_, row)| self.columns.checksum(row));
            let chunks = self.chunks(raw, found, local, written);
            let chunks = chunks
                .filter(|chunks| !chunks.iter().all(|chunk| missing.as_ref().is_some_and(|missing| chunk == missing.bytes())));
            let Some(chunks) = chunks else {
                if has_pixels || row.is_none() {
                    lost.push(self.first() + local);
                }
                file.write(local, &[], &nothing)?;
                continue;
            };
            let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let mut row = row.filter(|_| has_pixels).map_or_else(|| self.columns.unknown_row(), <[u8]>::to_vec);
            self.columns.set_checksum(&mut row, checksum::of(parts.iter().copied()));
            file.write(local, &parts, &row)?;
        }
        if let Some(missing) = &mut missing {
            file.fill_lost(missing);
        }
        file.flush()?;
        file.close()?;
        Ok(lost)
    }

    /// The chunks of an image, if all of them can be read and their checksum is the one given.
    fn chunks(&self, raw: &std::fs::File, found: &Index, local: u64, written: Option<u32>) -> Option<Vec<Vec<u8>>> {
        let is_right = |chunks: &[Vec<u8>]| written.is_none_or(|sum| sum == checksum::of(chunks.iter().map(Vec::as_slice)));
        let of_piece =
            |piece| found.get(&(local, piece)).into_iter().flatten().filter_map(|place| chunk_at(raw, *place, self.spec));
        if self.spec.pieces() == 1 {
            return of_piece(0).map(|chunk| vec![chunk]).find(|chunks| is_right(chunks));
        }
        let chunks: Option<Vec<Vec<u8>>> = (0..self.spec.pieces()).map(|piece| of_piece(piece).next()).collect();
        chunks.filter(|chunks| is_right(chunks))
    }
}

/// The chunk at this offset with this size, if it can be one.
pub(super) fn chunk_at(file: &std::fs::File, (offset, size): Place, spec: &FileSpec) -> Option<Vec<u8>> {
    let most = 12 + 64 + 2 * spec.piece_bytes() as u64;
    let mut chunk = vec![0; usize::try_from(size).ok().filter(|_| size <= most)?];
    file.read_exact_at(&mut chunk, offset).ok()?;
    let head = &chunk[..chunk.len().min(HEAD_BYTES)];
    begins_right(spec.compression, spec.piece_bytes(), chunk.len(), head).then_some(chunk)
}

/// Gives the file a second name, under which it stays as it is when another file takes its first one.
pub(super) fn keep(path: &Path) -> Result<PathBuf, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = (1..).map(|n| if n == 1 { format!("{name}.damaged") } else { format!("{name}.damaged{n}") });
    let kept = names.map(|name| path.with_file_name(name)).find(|kept| !kept.exists()).expect("names do not end");
    let linked = std::fs::hard_link(path, &kept).or_else(|_| std::fs::rename(path, &kept));
    linked.context("keep the damaged file", &kept)?;
    Ok(kept)
}

/// Searches a file for nodes of the index of its image stack.
pub(super) fn index(file: &std::fs::File, spec: &FileSpec) -> std::io::Result<Index> {
    let length = file.metadata()?.len();
    let starts: Vec<Vec<u64>> = spec.chunk_starts();
    let rank = 1 + spec.image_shape().len();
    let most = 12 + 64 + 2 * spec.piece_bytes() as u64;
    let mut found = Index::new();
    let mut block = vec![0; BLOCK + NODE_BYTES_MAX];
    let mut at = 0;
    while at < length {
        let bytes = (length - at).min(block.len() as u64) as usize;
        file.read_exact_at(&mut block[..bytes], at)?;
        for begin in memchr_tree(&block[..bytes.min(BLOCK)]) {
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

/// Where leaves of indices of chunks begin.
fn memchr_tree(bytes: &[u8]) -> impl Iterator<Item = usize> {
    // Signature, kind (1: chunks), level (0: leaf).
    bytes.windows(6).enumerate().filter(|(_, window)| *window == b"TREE\x01\x00").map(|(at, _)| at)
}

/// Offsets and places of the chunks that a leaf names, whatever data set it belongs to.
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
