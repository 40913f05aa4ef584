//! One stack of images in a file that a driver of libhdf5 itself writes, without all that belongs to a run. It is there
//! to compare drivers; runs are written by [`super::Writer`].

use std::path::{Path, PathBuf};

use hdf5::{Dataset, File};
use konkordia_core::pixel::PixelType;

use super::driver::Driver;
use super::error::{Context, Error};
use super::low;

/// Name of the stack in the file.
const STACK: &str = "images";

/// A file with one stack of square images, each one chunk, not compressed.
pub struct DriverFile {
    path: PathBuf,
    file: File,
    stack: Dataset,
    edge: usize,
    image_bytes: usize,
    images: u64,
}

impl DriverFile {
    /// Creates the file, which must not exist.
    ///
    /// # Errors
    /// It exists, or cannot be created.
    pub fn create(path: &Path, driver: Driver, pixel: PixelType, edge: usize) -> Result<Self, Error> {
        let create = || {
            let file = low::create_file_by(driver, path)?;
            let stack = low::create_images(&file, STACK, pixel, [&[edge, edge], &[edge, edge]], None, None)?;
            Ok::<_, hdf5::Error>((file, stack))
        };
        let (file, stack) = create().context("create the file", path)?;
        Ok(Self { path: path.to_owned(), file, stack, edge, image_bytes: edge * edge * pixel.bytes(), images: 0 })
    }

    /// Appends an image.
    ///
    /// # Errors
    /// libhdf5 cannot write it.
    ///
    /// # Panics
    /// If `pixels` has not the bytes of an image.
    pub fn append(&mut self, pixels: &[u8]) -> Result<(), Error> {
        assert_eq!(pixels.len(), self.image_bytes, "one whole image");
        let append = || {
            low::set_extent(&self.stack, self.images + 1, &[self.edge, self.edge])?;
            low::write_chunk(&self.stack, &[self.images, 0, 0], pixels)
        };
        append().context("write an image", &self.path)?;
        self.images += 1;
        Ok(())
    }

    /// Replaces `out` by the pixels of an image of this open file.
    ///
    /// # Errors
    /// There is no such image, or libhdf5 cannot read it.
    pub fn read(&self, image: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        read(&self.stack, &self.path, (image, self.image_bytes), out)
    }

    /// Closes the file. One of [`Driver::Core`] with a backing store is written now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn close(self) -> Result<(), Error> {
        let Self { path, file, stack, .. } = self;
        drop(stack);
        file.close().context("close the file", &path)
    }

    /// Calls `look` with the pixels of each image of a closed file, in order.
    ///
    /// # Errors
    /// It is no such file, or cannot be read.
    pub fn read_all(path: &Path, mut look: impl FnMut(u64, &[u8])) -> Result<(), Error> {
        let open = || {
            let file = low::open_file(path)?;
            file.dataset(STACK)
        };
        let stack = open().context("read the file", path)?;
        let shape = stack.shape();
        let image_bytes = shape[1..].iter().product::<usize>() * stack.dtype().context("read the file", path)?.size();
        let mut pixels = Vec::new();
        for image in 0..shape[0] as u64 {
            read(&stack, path, (image, image_bytes), &mut pixels)?;
            look(image, &pixels);
        }
        Ok(())
    }
}

fn read(stack: &Dataset, path: &Path, (image, image_bytes): (u64, usize), out: &mut Vec<u8>) -> Result<(), Error> {
    let found = low::read_chunk(stack, &[image, 0, 0], image_bytes as u64, out);
    let found = found.and_then(|found| found.ok_or_else(|| format!("image {image} was never written").into()));
    found.context("read an image", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVERS: [Driver; 3] = [Driver::Sec2, Driver::Core { backing_store: true }, Driver::Core { backing_store: false }];

    fn image(number: u8) -> Vec<u8> {
        (0..2 * 20 * 20).map(|byte| (byte as u8).wrapping_mul(3).wrapping_add(number)).collect()
    }

    #[test]
    fn every_driver_gives_the_images_back() {
        let folder = tempfile::tempdir().unwrap();
        for driver in DRIVERS {
            let path = folder.path().join(format!("{driver:?}.h5"));
            let mut file = DriverFile::create(&path, driver, PixelType::Uint16, 20).unwrap();
            (0..5).for_each(|number| file.append(&image(number)).unwrap());
            let mut pixels = Vec::new();
            for number in 0..5 {
                file.read(number.into(), &mut pixels).unwrap();
                assert_eq!(pixels, image(number), "{driver:?}");
            }
            assert!(file.read(5, &mut pixels).is_err());
            file.close().unwrap();
            if driver == (Driver::Core { backing_store: false }) {
                assert!(!path.exists(), "nothing of it is on the disk");
                continue;
            }
            let mut count = 0;
            DriverFile::read_all(&path, |number, pixels| {
                assert_eq!(pixels, image(number as u8), "{driver:?}");
                count += 1;
            })
            .unwrap();
            assert_eq!(count, 5);
            assert!(DriverFile::create(&path, driver, PixelType::Uint16, 20).is_err(), "files are not replaced");
        }
    }
}
