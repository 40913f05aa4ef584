//! The part of [`super::check()`] that reads every image: are its bytes those that were written, and do they decode?

use std::path::PathBuf;

use crc32fast::Hasher;

use super::check::{Report, Severity};
use super::checksum;
use super::columns::ImageStatus;
use super::decode::Decode;
use super::reader::Reader;
use super::spec::FileSpec;
use super::xds::xds_problems_of;

/// Buffers of [`Report::chunks`].
#[derive(Default)]
struct Buffers {
    chunk: Vec<u8>,
    pixels: Vec<u8>,
    /// Images of which nothing is stored.
    without_chunk: u64,
}

impl Report<'_> {
    /// Reads every image that can be reached.
    pub(super) fn chunks(&mut self, reader: &Reader, decode: &Decode<'_>) {
        let statuses = reader.column("status").unwrap_or_default();
        let status_of = |image: u64| statuses.get(image as usize).and_then(|s| ImageStatus::from_u8(*s as u8));
        let mut buffers =
            Buffers { pixels: vec![0; reader.image_bytes() / reader.summary().pieces.max(1)], ..Buffers::default() };
        let mut without: Vec<PathBuf> = Vec::new();
        let parts = reader.parts();
        let parts: Vec<_> = parts
            .map(|(first, images, _, file, path)| (first, images, checksum::stored(file, images), path.to_owned()))
            .collect();
        let of_run = checksum::stored(reader.file(), reader.summary().images).ok().flatten();
        for (first, images, own, path) in parts {
            let of_master = of_run.as_ref().filter(|_| path != reader.summary().path);
            let of_master = of_master.and_then(|sums| sums.get(range(first, images)?)).map(<[u32]>::to_vec);
            let why = match &own {
                Err(why) => Some(format!("cannot be read: {why}")),
                Ok(None) if of_master.is_some() => Some("are gone from the data file; the master has them".into()),
                Ok(_) => None,
            };
            if let Some(why) = why {
                let what = format!("the checksums of the images {why}");
                let fix = "bring back a whole copy of the data file; `konkordia repair FILE` rescues its images if there is none";
                self.push(Severity::Error, what, &path.to_string_lossy(), fix);
            }
            let is_old = matches!(own, Ok(None)) && of_master.is_none();
            let sums = own.ok().flatten().or(of_master);
            let is_written = |local| sums.as_ref().and_then(|sums: &Vec<u32>| sums.get(local as usize).copied());
            let wrong = (0..images).filter_map(|local| {
                let image = first.saturating_add(local);
                look(reader, image, status_of(image), is_written(local), decode, &mut buffers)
            });
            let wrong = wrong.collect();
            let fix = "recover the data file from a copy; these images are damaged or lost, the others are intact";
            self.list(wrong, &path.to_string_lossy(), fix);
            without.extend(is_old.then_some(path));
        }
        let is_for_xds = |spec: &FileSpec| spec.xds != Some(false) && xds_problems_of(spec).is_empty();
        if reader.summary().spec.as_ref().is_some_and(is_for_xds) && buffers.without_chunk > 0 {
            let n = buffers.without_chunk;
            let what = format!("XDS would misread it: neggia ends XDS at an image without a chunk; {n} image(s) have none");
            self.push(
                Severity::Warning,
                what,
                "/entry/data",
                "`konkordia repack FILE --compression bslz4 -o OUT` gives them one",
            );
        }
        if let Some(file) = without.first() {
            let what =
                format!("{} data file(s) without checksums: changed bits in their images cannot be detected", without.len());
            let fix = "nothing to do: an earlier version wrote them; every image was decoded";
            self.push(Severity::Warning, what, &file.to_string_lossy(), fix);
        }
    }
}

/// Positions in the run as an index range.
fn range(first: u64, images: u64) -> Option<std::ops::Range<usize>> {
    Some(usize::try_from(first).ok()?..usize::try_from(first.checked_add(images)?).ok()?)
}

/// What is wrong with one image.
fn look(
    reader: &Reader,
    image: u64,
    status: Option<ImageStatus>,
    written: Option<u32>,
    decode: &Decode<'_>,
    buffers: &mut Buffers,
) -> Option<String> {
    let mut hasher = Hasher::new();
    let (mut stored, mut undecoded) = (0, None);
    for piece in 0..reader.summary().pieces {
        match reader.read_piece(image, piece, &mut buffers.chunk) {
            Ok(false) => {}
            Ok(true) => {
                stored += 1;
                hasher.update(&buffers.chunk);
                let decoded = reader.decode_piece(image, &buffers.chunk, &mut buffers.pixels, decode);
                undecoded = undecoded.or(decoded.err().map(|error| error.cause));
            }
            Err(error) => return Some(format!("image {image}: {}", error.cause)),
        }
    }
    buffers.without_chunk += u64::from(stored == 0);
    if stored < reader.summary().pieces && status.is_some_and(ImageStatus::has_pixels) {
        return Some(format!("image {image}: {status:?}, but no pixels are stored"));
    }
    let found = hasher.finalize();
    match written.filter(|written| *written != found) {
        Some(written) => Some(format!("image {image}: {}", checksum::differs(found, written))),
        None => undecoded,
    }
}
