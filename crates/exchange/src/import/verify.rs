//! Reads the files back and compares every pixel with the originals.

use super::job::Import;
use super::one::One;
use super::request::bytes_of;
use crate::parallel::Progress;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ledger::ImageStatus;
use konkordia_kernels::codec::decode;
use konkordia_repack::pipeline;
use konkordia_sinks::hdf5::Reader;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Images that were compared.
    pub images: u64,
    /// Images with other pixels than their original.
    pub different: u64,
    /// The first of them.
    pub first_different: Option<u64>,
    /// True if all images with pixels were compared.
    pub is_whole: bool,
}

impl Import {
    /// Compares the files with their originals.
    ///
    /// # Errors
    /// A file, or an original, cannot be read any more.
    pub fn verify(&self, stop: &AtomicBool, show: &mut dyn FnMut(&Progress)) -> Result<Compared, Failure> {
        let master = self.master();
        let states = Reader::open(&master)?.column("status").unwrap_or_default();
        let is_there = |position: u64| states.get(position as usize) == Some(&(ImageStatus::Complete as u64));
        let wanted: Vec<_> = self.series.items.iter().filter(|item| is_there(item.position)).copied().collect();
        let (mut progress, mut found) = (Progress::new(wanted.len() as u64), Compared::default());
        let mut items = wanted.into_iter();
        let image_bytes = bytes_of(self.form);
        pipeline::run(
            self.request.workers(),
            || Ok(items.next().filter(|_| !stop.load(Ordering::Acquire))),
            || (One::new(self.form, self.request.compression), Reader::open(&master)),
            |(one, reader), item| {
                let path = &self.series.files[item.file as usize];
                let original = one.pixels(path, item.nth, &self.request.reading(), self.form)?;
                let reader = reader.as_ref().map_err(|error| Failure::from(error.clone()))?;
                let copy = reader.read_image(item.position, &decode)?;
                Ok((item.position, original.array.pieces.concat() == copy))
            },
            |(position, is_same): (u64, bool)| {
                found.images += 1;
                if !is_same {
                    found.different += 1;
                    found.first_different.get_or_insert(position);
                }
                progress.add(image_bytes);
                show(&progress);
                Ok::<(), Failure>(())
            },
        )?;
        found.is_whole = found.images == progress.images;
        Ok(found)
    }
}

impl Compared {
    /// The failure if images differ.
    ///
    /// # Errors
    /// There are images with other pixels.
    pub fn judge(&self) -> Result<(), Failure> {
        let Some(first) = self.first_different else { return Ok(()) };
        let what =
            format!("{} of {} images differ from their originals, the first is image {first}", self.different, self.images);
        let fix = "keep the originals; look for a failing disk or memory, otherwise report this";
        Err(Failure::new(Exit::Incomplete, what, "pixels were compared one by one", fix))
    }
}
