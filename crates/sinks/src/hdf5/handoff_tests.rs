//! What other threads and readers see while a chunk is written outside the lock of libhdf5, and what stays of a chunk
//! that could not be written.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use hdf5::{Dataset, File};
use konkordia_core::pixel::PixelType;

use super::error::ErrorKind;
use super::handoff::{self, ChunkWrites, Failed};
use super::low::{self, Format};

/// Pixels of an image, of one byte each.
const PIXELS: usize = 5000;
const FILL: u8 = 255;

/// A file that takes images.
struct Growing {
    file: File,
    stack: Dataset,
}

impl Growing {
    fn create(path: &Path) -> Self {
        let file = low::create_data_file(path, Format::V18).unwrap();
        let stack = low::create_images(&file, "a", PixelType::Uint8, [&[PIXELS], &[PIXELS]], Some(&[FILL]), None).unwrap();
        file.flush().unwrap();
        Self { file, stack }
    }

    /// Appends an image whose pixels are its number.
    fn append(&self, image: u64, put: impl FnOnce(&fs::File, &[u8], u64) -> io::Result<()>) -> Result<u64, Failed> {
        let bytes = [image as u8; PIXELS];
        self.set_images(image + 1);
        let store = || low::write_chunk(&self.stack, &[image, 0], &bytes);
        handoff::write(&self.stack, &bytes, ChunkWrites::OutsideLock, store, put)
    }

    fn set_images(&self, images: u64) {
        low::set_extent(&self.stack, images, &[PIXELS]).unwrap();
    }
}

fn put(file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// The first pixel of each image, as a reader of the file gets it, and whether all pixels of an image are equal.
fn read(path: &Path) -> Vec<(u8, bool)> {
    let stack = low::open_file(path).and_then(|file| file.dataset("a")).unwrap();
    if stack.shape()[0] == 0 {
        return Vec::new();
    }
    let pixels = stack.read_raw::<u8>().unwrap();
    pixels.chunks(PIXELS).map(|image| (image[0], image.iter().all(|pixel| *pixel == image[0]))).collect()
}

fn whole(numbers: impl IntoIterator<Item = u8>) -> Vec<(u8, bool)> {
    numbers.into_iter().map(|number| (number, true)).collect()
}

#[test]
fn while_a_chunk_is_written_other_files_go_on_and_its_own_is_not_flushed() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let folder = tempfile::tempdir().unwrap();
    let [slow_path, quick_path] = ["slow.h5", "quick.h5"].map(|name| folder.path().join(name));
    let (slow, quick) = (Growing::create(&slow_path), Growing::create(&quick_path));
    let (begin, has_begun) = mpsc::channel();
    let (release, is_released) = mpsc::channel();
    let order = Mutex::new(Vec::new());
    let (slow, order) = (&slow, &order);
    let seen = std::thread::scope(|scope| {
        scope.spawn(move || {
            let held_back = |file: &fs::File, bytes: &[u8], offset: u64| {
                begin.send(()).unwrap();
                is_released.recv_timeout(PATIENCE).unwrap();
                order.lock().unwrap().push("written");
                put(file, bytes, offset)
            };
            slow.append(0, held_back).unwrap();
        });
        has_begun.recv_timeout(PATIENCE).unwrap();
        for image in 0..10 {
            quick.append(image, put).unwrap();
        }
        quick.file.flush().unwrap();
        let seen = (read(&quick_path), read(&slow_path));
        scope.spawn(move || {
            slow.file.flush().unwrap();
            order.lock().unwrap().push("flushed");
        });
        // A flush that does not wait would be done in this time.
        std::thread::sleep(Duration::from_millis(100));
        release.send(()).unwrap();
        seen
    });
    assert_eq!(seen, (whole(0..10), Vec::new()));
    assert_eq!(*order.lock().unwrap(), ["written", "flushed"]);
    assert_eq!(read(&slow_path), whole([0]));
}

#[test]
fn libhdf5_writes_no_index_before_the_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5");
    let growing = Growing::create(&path);
    growing.set_images(1);
    let bytes = [7; PIXELS];
    // As if libhdf5 had no more room for the index in its memory.
    let store = || {
        low::write_chunk(&growing.stack, &[0, 0], &bytes)?;
        growing.file.flush()?;
        assert_eq!(read(&path), whole([7]));
        Ok(())
    };
    let put = |_: &fs::File, _: &[u8], _: u64| -> io::Result<()> { panic!("it was written with the index") };
    let offset = handoff::write(&growing.stack, &bytes, ChunkWrites::OutsideLock, store, put).unwrap();
    drop(growing);
    assert_eq!(fs::read(&path).unwrap()[offset as usize..][..PIXELS], bytes);
}

#[test]
fn a_chunk_that_could_not_be_written_is_taken_out_of_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5");
    // The first image, and one behind others.
    for good in [0, 3] {
        let growing = Growing::create(&path);
        for image in 0..good {
            growing.append(image, put).unwrap();
        }
        growing.file.flush().unwrap();
        let half = |file: &fs::File, bytes: &[u8], offset: u64| -> io::Result<()> {
            file.write_all_at(&bytes[..PIXELS / 2], offset)?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        };
        let failed = growing.append(good, half).unwrap_err();
        assert!(matches!(failed, Failed::Data(_)));
        let error = failed.at("write an image", &path);
        assert_eq!(error.kind, ErrorKind::DiskFull);
        // The same words as when libhdf5 writes.
        let library = hdf5::Error::from("file write failed: errno = 28, error message = 'x'");
        assert_eq!(Failed::Library(library).at("write an image", &path).to_string(), error.to_string());
        growing.set_images(good);
        growing.set_images(good + 1);
        growing.file.flush().unwrap();
        let before: Vec<u8> = (0..good as u8).collect();
        assert_eq!(read(&path), whole([&before[..], &[FILL]].concat()));
        // The file takes further images.
        growing.append(good + 1, put).unwrap();
        drop(growing);
        assert_eq!(read(&path), whole([&before[..], &[FILL, good as u8 + 1]].concat()));
        fs::remove_file(&path).unwrap();
    }
}
