//! Where the chunks of the images of a file lie, so that they can be read without libhdf5.

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File};
use konkordia_core::pixel::PixelType;

use super::error::{Context, Error, ErrorKind};
use super::low;
use super::objects;
use super::others::OthersFile;
use super::reader::{Reader, pixel_of};
use super::spec::{IMAGES_PER_FILE_MAX, PIXELS_MAX};
use super::stacks::Stacks;

const DOING: &str = "find the images of";
/// Where files of other programs keep images that are not divided into chunks.
const UNDIVIDED: [&str; 2] = ["/entry/data/data", "/entry/instrument/detector/data"];

/// A chunk in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// Offset in the file.
    pub address: u64,
    /// Its bytes; 0 = it was never written.
    pub bytes: u64,
    /// It is stored without the filter of its data set.
    pub is_plain: bool,
}

const NOTHING: StoredChunk = StoredChunk { address: 0, bytes: 0, is_plain: false };

/// The images of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPart {
    /// The file.
    pub path: PathBuf,
    /// Number of its first image.
    pub first_image: u64,
    /// Images.
    pub images: u64,
    /// The chunks of the first image in the order of its pixels, then those of the next one.
    pub chunks: Vec<StoredChunk>,
}

/// The images of a file in which they are not divided into chunks, and not packed.
#[derive(Clone, Debug, PartialEq)]
pub struct Undivided {
    /// Rows and columns.
    pub shape: [u64; 2],
    /// Type of a pixel.
    pub pixel: PixelType,
    /// Where they are.
    pub part: StoredPart,
}

/// The images of a run. `most`: more chunks are an error.
///
/// # Errors
/// An index of chunks cannot be read, or they are too many.
pub fn of_run(reader: &Reader, most: usize) -> Result<Vec<StoredPart>, Error> {
    let mut left = most;
    let part = |(first_image, images, stack, file, path): (u64, u64, &Dataset, &File, &Path)| {
        let chunks = chunks(stack, file, path, &mut left)?;
        Ok(StoredPart { path: path.to_owned(), first_image, images, chunks })
    };
    reader.parts().map(part).collect()
}

/// The images of a file of another program, of stacks of the shape of the first one.
///
/// # Errors
/// As [`of_run`].
pub fn of_others(others: &OthersFile, most: usize) -> Result<Vec<StoredPart>, Error> {
    let (mut left, mut parts) = (most, Vec::new());
    for (placed, stack, file) in others.counted() {
        let path = placed.path.clone();
        let chunks = chunks(stack, file, &path, &mut left)?;
        let channels = placed.layout.channels();
        let (first_image, images) = (placed.first_image.unwrap_or(0) / channels, placed.layout.images / channels);
        parts.push(StoredPart { path, first_image, images, chunks });
    }
    Ok(parts)
}

/// The chunks of one stack of a file.
pub struct NamedChunks {
    /// Path of the stack.
    pub name: String,
    /// Its dimensions before rows and columns.
    pub leading: Vec<u64>,
    /// One for each image, in their order.
    pub chunks: Vec<StoredChunk>,
}

/// The chunks of all stacks in one file.
///
/// # Errors
/// The file cannot be read, or has more than `most` chunks.
pub fn of_file(path: &Path, most: usize) -> Result<Vec<NamedChunks>, Error> {
    let (stacks, mut left) = (Stacks::open(path)?, most);
    let named = stacks.found.iter().map(|(layout, stack)| {
        let chunks = chunks(stack, stacks.file(), path, &mut left)?;
        Ok(NamedChunks { name: layout.name.clone(), leading: layout.leading.clone(), chunks })
    });
    named.collect()
}

/// Those of one data set; it takes as many from `left`.
pub(super) fn chunks(stack: &Dataset, file: &File, path: &Path, left: &mut usize) -> Result<Vec<StoredChunk>, Error> {
    let refuse = |cause: String| Error::new(ErrorKind::Invalid, DOING, path, format!("{}: {cause}", stack.name()));
    if file.userblock() != 0 {
        return Err(refuse("it lies behind a user block".into()).with_hint("remove it with h5unjam"));
    }
    let (shape, chunk) = (stack.shape(), stack.chunk().unwrap_or_default());
    if chunk.len() != shape.len() || chunk.contains(&0) {
        return Err(refuse(format!("it has no chunks of its shape {shape:?}")));
    }
    let along: Vec<usize> = shape.iter().zip(&chunk).map(|(size, chunk)| size.div_ceil(*chunk)).collect();
    let many = along.iter().try_fold(1usize, |product, many| product.checked_mul(*many)).filter(|many| *many <= *left);
    let many = many.ok_or_else(|| refuse(format!("it has more chunks than are listed ({:?})", along)))?;
    *left -= many;
    let mut found = vec![NOTHING; many];
    let visit = stack.chunks_visit(|seen| {
        let place = seen.offset.iter().zip(&chunk).zip(&along).try_fold(0usize, |place, ((offset, chunk), along)| {
            let here = usize::try_from(*offset).ok()? / chunk;
            (here < *along).then_some(place * along + here)
        });
        // The library says so where it has no place for a chunk.
        if let Some(found) = place.and_then(|place| found.get_mut(place)).filter(|_| seen.addr != u64::MAX) {
            *found = StoredChunk { address: seen.addr, bytes: seen.size, is_plain: seen.filter_mask != 0 };
        }
        0
    });
    visit.context(DOING, path)?;
    Ok(found)
}

/// Images that were never written, among those that the file says to have: an empty file does not.
const IMAGES_MAX: usize = IMAGES_PER_FILE_MAX as usize;

/// Images that lie one after the other in the file, as programs write them that neither divide nor pack them.
///
/// # Errors
/// The file cannot be read.
pub fn undivided(path: &Path) -> Result<Option<Undivided>, Error> {
    let file = low::open_file(path).context(DOING, path)?;
    let stacks = UNDIVIDED.iter().filter(|name| is_own(&file, name)).filter_map(|name| file.dataset(name).ok());
    Ok(stacks.filter_map(|stack| of_undivided(&stack, &file, path)).next())
}

/// Whether each part of a path is an object of this file, and no link.
fn is_own(file: &File, path: &str) -> bool {
    let Ok(mut group) = file.group("/") else { return false };
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    names.iter().enumerate().all(|(n, name)| {
        let is_hard = group.link_exists(name) && objects::link(&group, name).is_ok_and(|link| link == objects::Link::Hard);
        if is_hard && n + 1 < names.len() {
            match group.group(name) {
                Ok(next) => group = next,
                Err(_) => return false,
            }
        }
        is_hard
    })
}

fn of_undivided(stack: &Dataset, file: &File, path: &Path) -> Option<Undivided> {
    let &[images, rows, columns] = &stack.shape()[..] else { return None };
    if images > IMAGES_MAX || !(1..=PIXELS_MAX).contains(&rows.saturating_mul(columns)) || file.userblock() != 0 {
        return None;
    }
    let is_in_one = !stack.is_chunked() && !objects::is_virtual(stack) && !objects::is_outside(stack);
    let kind = stack.dtype().ok().filter(|kind| is_in_one && kind.byte_order() != hdf5::datatype::ByteOrder::BigEndian)?;
    let pixel = pixel_of(&kind.to_descriptor().ok()?)?;
    let (first, bytes) = (stack.offset()?, (rows * columns * pixel.bytes()) as u64);
    let chunk = |n: u64| StoredChunk { address: first.saturating_add(n.saturating_mul(bytes)), bytes, is_plain: false };
    let (images, chunks) = (images as u64, (0..images as u64).map(chunk).collect());
    let part = StoredPart { path: path.to_owned(), first_image: 0, images, chunks };
    Some(Undivided { shape: [rows as u64, columns as u64], pixel, part })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn chunks_and_undivided_images_lie_where_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let file = File::create(&path).unwrap();
        file.create_group("entry/data").unwrap();
        let words: Vec<u16> = (0..3 * 4 * 8).collect();
        file.new_dataset::<u16>().shape((3, 4, 8)).create("entry/data/data").unwrap().write_raw(&words).unwrap();
        let pieces = file.new_dataset::<u16>().chunk((1, 2, 8)).shape((4.., 4, 8)).create("pieces").unwrap();
        for (n, piece) in words.chunks(16).enumerate() {
            let bytes: Vec<u8> = piece.iter().flat_map(|word| word.to_le_bytes()).collect();
            low::write_chunk(&pieces, &[n as u64 / 2, n as u64 % 2 * 2, 0], &bytes).unwrap();
        }
        drop((pieces, file));
        let bytes = std::fs::File::open(&path).unwrap();
        let words_at = |chunk: &StoredChunk| {
            let mut found = vec![0; chunk.bytes as usize];
            bytes.read_exact_at(&mut found, chunk.address).unwrap();
            found.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect::<Vec<_>>()
        };
        let found = undivided(&path).unwrap().expect("images");
        assert_eq!((found.shape, found.pixel, found.part.images), ([4, 8], PixelType::Uint16, 3));
        assert_eq!(words_at(&found.part.chunks[2]), words[64..]);
        let file = low::open_file(&path).unwrap();
        let (stack, mut left) = (file.dataset("pieces").unwrap(), 100);
        let chunks = chunks(&stack, &file, &path, &mut left).unwrap();
        assert_eq!((chunks.len(), left), (8, 92));
        assert_eq!((words_at(&chunks[0]), words_at(&chunks[3])), (words[..16].to_vec(), words[48..64].to_vec()));
        assert_eq!((chunks[6], chunks[7]), (NOTHING, NOTHING), "never written");
        assert!(super::chunks(&stack, &file, &path, &mut 7).is_err(), "too many");
    }
}
