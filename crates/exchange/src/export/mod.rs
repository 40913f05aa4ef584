//! Images of HDF5 files as CBF, TIFF or EDF files, one file for each image or one for all: in parallel. Nothing is
//! replaced: files that are there are refused, or, to go on after an interruption, compared and kept.

mod header;
mod one;
mod plan;
mod stack;

pub use crate::parallel::Progress;
use crate::parallel::all_processors;
use konkordia_core::failure::Failure;
use konkordia_repack::pipeline;
use one::{Exported, Writes};
pub use plan::{Done, Export, Format, Request};
use std::sync::atomic::{AtomicBool, Ordering};

impl Export {
    /// Writes the files. `stop` ends it behind the images that are being worked on; `show` is called after each image.
    ///
    /// # Errors
    /// An image cannot be read, a file cannot be written, or one that is there has other pixels. What was finished
    /// before stays.
    pub fn run(&self, stop: &AtomicBool, show: &mut dyn FnMut(&Progress)) -> Result<Done, Failure> {
        let workers = self.request.workers.unwrap_or_else(all_processors).max(1);
        if self.request.one_file {
            return stack::run(self, workers, stop, show);
        }
        let mut done = Done { lost: self.lost, ..Done::default() };
        let (mut progress, mut numbers) = (Progress::new(self.images()), self.numbers.iter().copied());
        let image_bytes = self.image_bytes();
        pipeline::run(
            workers,
            || Ok(numbers.next().filter(|_| !stop.load(Ordering::Acquire))),
            || Writes::open(self),
            |writes, image| writes.image(self, image),
            |one: Exported| {
                done.add(&one, image_bytes);
                progress.add(image_bytes);
                show(&progress);
                Ok::<(), Failure>(())
            },
        )?;
        done.stopped = done.written + done.kept < self.images();
        Ok(done)
    }
}
