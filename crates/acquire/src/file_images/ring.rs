//! The images of a file as the ring offers images.

use super::ask;
use super::index::{CHUNKS_MAX, FileIdentity, FileIndex, PartIndex};
use super::pixels::{Chunk, Form};
use super::results::StoredRows;
use crate::image_ring::{ImageRing, RingImage};
use konkordia_core::array::{Element, Packing, Shape};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::results::ImageResults;
use konkordia_core::series::{ChannelStart, SeriesStart};
use konkordia_engine::plane::SharedPlanes;
use konkordia_sinks::hdf5::FileSpec;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Most bytes of the pixels of one channel: more than any detector has.
const CHANNEL_BYTES_MAX: u64 = 2 << 30;
/// Most images: their numbers are listed.
const IMAGES_MAX: u64 = 4 << 20;
/// A file is opened without waiting, should it be a pipe, and not through a link (O_NONBLOCK | O_NOFOLLOW).
const OPEN_FLAGS: i32 = 0o4000 | 0o400_000;

/// The images of one finished file.
pub struct FileImages {
    index: FileIndex,
    form: Form,
    packing: Packing,
    start: Arc<SeriesStart>,
    names: Vec<Arc<str>>,
    /// The results of the images, or why there are none.
    results: Result<StoredRows, String>,
    /// Largest image: packed bytes, and unpacked ones.
    most: (u64, u64),
    /// A file was found to be another one than that which was looked at.
    is_outdated: AtomicBool,
    /// The image that was read last, as long as somebody holds it: who looks at it too need not unpack it again.
    last: Mutex<(u64, Weak<SharedPlanes>)>,
}

impl FileImages {
    /// Has another process look at the file at this path, which has no links. Takes long: not for async threads.
    ///
    /// # Errors
    /// The file holds no images that can be offered, is damaged or is still being written.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        Self::new(ask::index(path)?).map_err(|why| {
            let what = format!("the images of {} cannot be offered", path.display());
            Failure::new(Exit::Incomplete, what, why, "run `konkordia check FILE` on this machine")
        })
    }

    /// The images of an index, which may have come from a hostile file.
    ///
    /// # Errors
    /// It contradicts itself; in words.
    pub fn new(mut index: FileIndex) -> Result<Self, String> {
        let element = Element::from_name(&index.dtype).filter(|element| element.pixel().is_some());
        let element = element.ok_or_else(|| format!("pixels of type {}", index.dtype))?;
        let packing = Packing::from_name(&index.packing).ok_or_else(|| format!("chunks packed as {}", index.packing))?;
        let shape = Shape::new(&index.shape).ok_or_else(|| format!("images of shape {:?}", index.shape))?;
        let form = Form { shape, element, missing: std::mem::take(&mut index.missing) };
        if form.missing.len() != element.bits() as usize / 8 {
            return Err("the value of a missing pixel has another type".into());
        }
        let piece_bytes = form.piece_bytes(index.pieces).ok_or("the chunks do not divide an image")? as u64;
        let unpacked = piece_bytes.saturating_mul(index.pieces as u64);
        if unpacked > CHANNEL_BYTES_MAX || index.images > IMAGES_MAX || !(1..=64).contains(&index.channels.len()) {
            return Err("it claims to have more pixels, images or channels than any detector".into());
        }
        let packed = look_through(&index, 2 * piece_bytes + 4096)?;
        let most = (packed, unpacked.saturating_mul(index.channels.len() as u64));
        let start = Arc::new(start_of(&index, element));
        let names = index.channels.iter().map(|name| name.as_str().into()).collect();
        let results = std::mem::replace(&mut index.results, Err(String::new()));
        let results = results.and_then(|found| {
            StoredRows::new(found, index.identity.bytes).map_err(|why| format!("the results in the file cannot be used: {why}"))
        });
        let (is_outdated, last) = (AtomicBool::new(false), Mutex::new((0, Weak::new())));
        Ok(Self { index, form, packing, start, names, results, most, is_outdated, last })
    }

    /// What is known of the file.
    pub fn index(&self) -> &FileIndex {
        &self.index
    }

    /// True once a file of it was found to be gone or changed: it must be looked at again.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Acquire)
    }

    /// Whether all its files are those that were looked at. Asks the file system: not for async threads.
    pub fn is_as_looked_at(&self) -> bool {
        let is_same = |path: &Path, identity| FileIdentity::at(path).as_ref() == Some(identity);
        let parts = &self.index.parts;
        let is_same =
            is_same(&self.index.master, &self.index.identity) && parts.iter().all(|part| is_same(&part.path, &part.identity));
        self.is_outdated.fetch_or(!is_same, Ordering::AcqRel);
        is_same
    }

    /// Chunks that the index has.
    pub fn chunks(&self) -> usize {
        let of_results = self.results.as_ref().map_or(0, StoredRows::chunks);
        self.index.parts.iter().map(|part| part.lengths.len()).sum::<usize>() + of_results
    }

    /// Names of the results that its images have, or why they have none, in words.
    ///
    /// # Errors
    /// They have none.
    pub fn results(&self) -> Result<Vec<&str>, &str> {
        self.results.as_ref().map(|rows| rows.names().collect()).map_err(String::as_str)
    }

    /// Bytes of all chunks, and of the pixels in them.
    pub fn bytes(&self) -> (u64, u64) {
        let lengths = || self.index.parts.iter().flat_map(|part| &part.lengths).filter(|length| **length > 0);
        let piece = self.form.piece_bytes(self.index.pieces).unwrap_or(0) as u64;
        (lengths().sum(), piece.saturating_mul(lengths().count() as u64))
    }

    /// The image, read from the disk.
    ///
    /// # Errors
    /// There is none of this number, or its file is gone, was changed or is damaged; in words.
    pub fn read(&self, number: u64) -> Result<CommittedImage, String> {
        if number >= self.index.images {
            return Err(match self.index.images {
                0 => "the file has no images".into(),
                images => format!("the file has the images 0 to {}", images - 1),
            });
        }
        let lost = CommittedImage::lost(number);
        let state = self.index.states.get(number as usize).and_then(|state| ImageStatus::from_u8(*state));
        let holds = |part: &&PartIndex| number.checked_sub(part.first_image).is_some_and(|local| local < part.images);
        let Some(part) = self.index.parts.iter().find(holds) else {
            return Err(self.index.problems.first().cloned().unwrap_or_else(|| "no data file has it".into()));
        };
        // In some files lost images are filled with the missing value: as in the ring, they have no pixels.
        if let Some(status) = state.filter(|status| !status.has_pixels()) {
            return Ok(CommittedImage { status, ..lost });
        }
        let chunks = self.chunks_of(part, number - part.first_image)?;
        if chunks.iter().all(Option::is_none) {
            return if state.is_some() { Err("its pixels are gone from the file".into()) } else { Ok(lost) };
        }
        let mut chunks = chunks.into_iter();
        let channels = self.names.iter().map(|name| {
            let chunks = chunks.by_ref().take(self.index.pieces).collect();
            Ok(Channel { name: Arc::clone(name), array: self.form.array(chunks)? })
        });
        let channels = channels.collect::<Result<_, String>>()?;
        let status = state.unwrap_or(ImageStatus::Complete);
        Ok(CommittedImage { status, channels, results: self.results_of(number), ..lost })
    }

    /// Without them the image is given all the same.
    fn results_of(&self, number: u64) -> ImageResults {
        let Ok(rows) = &self.results else { return ImageResults::default() };
        let found = open_as(&self.index.master, &self.index.identity).and_then(|file| rows.read(&file, number));
        found.unwrap_or_else(|_| {
            self.is_outdated.store(true, Ordering::Release);
            ImageResults::default()
        })
    }

    fn chunks_of(&self, part: &PartIndex, local: u64) -> Result<Vec<Chunk>, String> {
        let each = self.index.chunks_per_image();
        let first = local as usize * each;
        let places = part.addresses[first..first + each].iter().zip(&part.lengths[first..first + each]);
        if places.clone().all(|(_, length)| *length == 0) {
            return Ok(vec![None; each]);
        }
        let file = open_as(&part.path, &part.identity).inspect_err(|_| self.is_outdated.store(true, Ordering::Release))?;
        let read = |(n, (address, length)): (usize, (&u64, &u64))| {
            if *length == 0 {
                return Ok(None);
            }
            let mut bytes = vec![0; *length as usize];
            let cannot = |error: std::io::Error| format!("{}: {}", part.path.display(), konkordia_core::failure::reason(&error));
            file.read_exact_at(&mut bytes, *address).map_err(cannot)?;
            let is_plain = part.plain.binary_search(&((first + n) as u64)).is_ok();
            Ok(Some((bytes.into(), if is_plain { Packing::None } else { self.packing })))
        };
        places.enumerate().map(read).collect()
    }
}

/// Opens the file that was looked at, and no other one.
fn open_as(path: &Path, identity: &FileIdentity) -> Result<File, String> {
    let changed = || format!("{} is gone, or was changed since it was looked at", path.display());
    let file = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path).map_err(|_| changed())?;
    let found = file.metadata().map_err(|_| changed())?;
    if found.is_file() && FileIdentity::of(&found) == *identity { Ok(file) } else { Err(changed()) }
}

/// Checks what an index says of its parts; returns the packed bytes of the largest image.
fn look_through(index: &FileIndex, chunk_bytes_max: u64) -> Result<u64, String> {
    let each = index.chunks_per_image();
    let (mut most, mut all) = (0, 0_usize);
    for part in &index.parts {
        let name = part.path.display();
        let chunks = usize::try_from(part.images).ok().and_then(|images| images.checked_mul(each));
        all = all.saturating_add(part.addresses.len());
        if chunks != Some(part.addresses.len()) || part.addresses.len() != part.lengths.len() || all > CHUNKS_MAX {
            return Err(format!("{name}: its images and its chunks do not agree"));
        }
        if part.first_image.checked_add(part.images).is_none_or(|end| end > index.images) || !part.plain.is_sorted() {
            return Err(format!("{name}: its images are not among those of the file"));
        }
        for (address, length) in part.addresses.iter().zip(&part.lengths) {
            let end = address.checked_add(*length);
            if *length > 0 && (*length > chunk_bytes_max || end.is_none_or(|end| end > part.identity.bytes)) {
                return Err(format!("{name}: a chunk does not lie in the file, or is too large; the file was cut or is damaged"));
            }
        }
        let largest = part.lengths.chunks(each.max(1)).map(|lengths| lengths.iter().sum()).max();
        most = most.max(largest.unwrap_or(0));
    }
    Ok(most)
}

/// The start of the run or series of the file. A description that cannot be read costs the facts, not the images.
fn start_of(index: &FileIndex, element: Element) -> SeriesStart {
    let spec = FileSpec::from_text(&index.description).unwrap_or_default();
    let mut facts = spec.metadata;
    facts.saturation_value = facts.saturation_value.or(spec.saturation.filter(|value| *value >= 0.0).map(|value| value as u64));
    facts.underload_value = facts.underload_value.or(spec.underload.map(|value| value as i64));
    let series = spec.series.unwrap_or_default();
    let threshold = |n: usize| series.channels.get(n).and_then(|channel| channel.threshold_energy_ev);
    let channel = |(n, name): (usize, &String)| {
        let (name, threshold_energy_ev) = (name.clone(), threshold(n));
        ChannelStart { name, threshold_energy_ev, ..ChannelStart::default() }
    };
    SeriesStart {
        series: series.series,
        images_planned: Some(index.images),
        image_size: index.shape.last_chunk().copied(),
        element: Some(element),
        channels: index.channels.iter().enumerate().filter(|(_, name)| !name.is_empty()).map(channel).collect(),
        orientation: series.orientation,
        unique_id: series.unique_id,
        facts,
        store: true,
        ..SeriesStart::default()
    }
}

impl ImageRing for FileImages {
    fn get(&self, number: Option<u64>, _: Instant) -> Option<RingImage> {
        let number = number.or(self.index.images.checked_sub(1))?;
        let ring_image = |planes| RingImage { planes, run: None, facts: None };
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Some(last().clone()).filter(|(known, _)| *known == number).and_then(|(_, planes)| planes.upgrade());
        if let Some(planes) = known {
            return Some(ring_image(planes));
        }
        let planes = Arc::new(SharedPlanes::new(Arc::clone(&self.start), Arc::new(self.read(number).ok()?)));
        *last() = (number, Arc::downgrade(&planes));
        Some(ring_image(planes))
    }

    fn newest_bytes(&self) -> Option<(u64, u64)> {
        (self.index.images > 0).then_some(self.most)
    }

    fn forget_pixels(&self, _: Duration) {}

    fn newest_results(&self) -> Option<ImageResults> {
        None
    }

    fn numbers(&self) -> (Vec<u64>, Option<u64>) {
        ((0..self.index.images).collect(), None)
    }

    fn no_analysis(&self) -> &str {
        match &self.results {
            Err(why) => why,
            Ok(_) if self.is_outdated() => "the file was changed since it was looked at; open it again",
            Ok(_) => "the images of the file were not analysed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images of 2 x 2 pixels of 16 bits behind four other bytes, the second one never written, and a third one in
    /// a file that is gone.
    fn index(folder: &Path) -> FileIndex {
        let path = folder.join("a.h5");
        std::fs::write(&path, b"head\x01\0\x02\0\x03\0\x04\0").unwrap();
        let identity = FileIdentity::at(&path).unwrap();
        let part = |name: &str, first_image, images, lengths: &[u64]| PartIndex {
            path: folder.join(name),
            identity,
            first_image,
            images,
            addresses: vec![4; lengths.len()],
            lengths: lengths.to_vec(),
            plain: Vec::new(),
        };
        FileIndex {
            master: path.clone(),
            identity,
            description: String::new(),
            images: 3,
            shape: vec![2, 2],
            channels: vec![String::new()],
            dtype: "uint16".into(),
            packing: "none".into(),
            pieces: 1,
            missing: vec![0xFF, 0xFF],
            states: vec![1, 0, 1],
            results: Err("there are none".into()),
            parts: vec![part("a.h5", 0, 2, &[8, 0]), part("gone.h5", 2, 1, &[8])],
            problems: Vec::new(),
            tree: Vec::new(),
            tree_is_cut: false,
        }
    }

    #[test]
    fn images_come_as_from_the_ring_and_only_from_the_file_that_was_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let images = FileImages::new(index(folder.path())).unwrap();
        let asked = Instant::now();
        let first = images.get(Some(0), asked).expect("image 0");
        let plane = first.planes.plane(0).unwrap();
        assert_eq!(
            (plane.bytes, plane.size(), first.planes.image().status),
            (&[1, 0, 2, 0, 3, 0, 4, 0][..], (2, 2), ImageStatus::Complete)
        );
        assert!(Arc::ptr_eq(&first.planes, &images.get(Some(0), asked).unwrap().planes), "it is shared while somebody holds it");
        let lost = images.get(Some(1), asked).expect("image 1");
        assert!(lost.planes.image().channels.is_empty() && lost.planes.image().status == ImageStatus::Lost);
        assert!(images.read(2).unwrap_err().contains("gone.h5 is gone") && images.read(3).unwrap_err().contains("0 to 2"));
        assert!(images.get(None, asked).is_none(), "the last one cannot be read");
        assert_eq!((images.numbers(), images.newest_bytes(), images.bytes()), ((vec![0, 1, 2], None), Some((8, 8)), (16, 16)));
        std::fs::write(folder.path().join("a.h5"), b"head\x09\0\x02\0\x03\0\x04\0").unwrap();
        std::fs::File::open(folder.path().join("a.h5")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(images.read(0).unwrap_err().contains("was changed") && images.is_outdated());
        assert!(!images.is_as_looked_at());
        std::fs::remove_file(folder.path().join("a.h5")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("a.h5")).unwrap();
        assert!(images.read(0).is_err(), "a link is not followed");
    }

    #[test]
    fn an_index_that_contradicts_itself_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        type Change = fn(&mut FileIndex);
        let changes: [(&str, Change); 13] = [
            ("type", |index| index.dtype = "uint128".into()),
            ("packed", |index| index.packing = "zip".into()),
            ("shape", |index| index.shape = vec![2, 0]),
            ("missing pixel", |index| index.missing.push(0)),
            ("divide", |index| index.pieces = 3),
            ("divide", |index| index.pieces = 0),
            ("channels", |index| index.channels.clear()),
            ("more pixels", |index| (index.shape, index.pieces) = (vec![1 << 20, 1 << 20], 1)),
            ("more pixels", |index| index.images = u64::MAX),
            ("do not agree", |index| index.parts[0].lengths.truncate(1)),
            ("not among", |index| index.parts[1].first_image = u64::MAX),
            ("lie in the file", |index| index.parts[0].addresses[0] = u64::MAX - 3),
            ("lie in the file", |index| index.parts[0].lengths[0] = 9),
        ];
        for (why, change) in changes {
            let mut index = index(folder.path());
            change(&mut index);
            let found = FileImages::new(index).err().unwrap_or_else(|| panic!("{why}: it was taken"));
            assert!(found.contains(why), "{why}: {found}");
        }
    }
}
