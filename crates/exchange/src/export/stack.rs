//! All images in one TIFF file.

use super::one::{Exported, New, Writes, differs, texts, tiff_writer};
use super::plan::{Done, Export, exists};
use crate::files::{Opened, Reading, Unpack};
use crate::parallel::Progress;
use konkordia_core::failure::{Exit, Failure};
use konkordia_repack::pipeline;
use konkordia_wire::tiff::{self, Writer};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes the file, or compares it if it is there. Stopped before its end, nothing is left of it.
pub fn run(export: &Export, workers: usize, stop: &AtomicBool, show: &mut dyn FnMut(&Progress)) -> Result<Done, Failure> {
    let path = export.path(0);
    let mut done = Done { lost: export.lost, ..Done::default() };
    if path.symlink_metadata().is_ok() {
        if !export.request.resume {
            return Err(exists(&path));
        }
        done.kept = export.images();
        done.compared = compare(export, &path, workers, stop, show)?;
        done.stopped = done.compared < done.kept;
        return Ok(done);
    }
    let writer = tiff_writer(export, export.images());
    let writer = writer.ok_or_else(|| Failure::new(Exit::Usage, "TIFF has no such pixels", "", "choose another --format"))?;
    let new = New::create(&path)?;
    let first = tiff::first_bytes(writer.is_big());
    let mut end = first.len() as u64;
    new.write(&[first])?;
    let mut progress = Progress::new(export.images());
    let mut numbers = export.numbers.iter().copied();
    let bytes = export.image_bytes();
    pipeline::run(
        workers,
        || Ok(numbers.next().filter(|_| !stop.load(Ordering::Acquire))),
        || Writes::open(export),
        |writes, image| Ok((image, writes.pixels(export, image)?)),
        |(image, (pixels, marked_pixels))| {
            let at = if progress.images_done == 0 { end } else { Writer::next_page(end) };
            let padding = vec![0; (at - end) as usize];
            let description = export.header.tiff(image);
            let head = writer.head(at, &texts(&description), progress.images_done + 1 == export.images());
            end = at + head.len() as u64 + pixels.len() as u64;
            new.write(&[padding, head, pixels])?;
            done.add(&Exported { was_there: false, is_compared: false, marked_pixels }, bytes);
            progress.add(bytes);
            show(&progress);
            Ok::<(), Failure>(())
        },
    )?;
    if done.written < export.images() {
        done.stopped = true;
        return Ok(done);
    }
    if export.request.verify {
        done.compared = compare(export, &new.path, workers, stop, show)?;
        if done.compared < export.images() {
            done.stopped = true;
            return Ok(done);
        }
    }
    new.publish(&path)?;
    Ok(done)
}

/// Compares all pages; returns how many were compared, which are fewer after a stop.
fn compare(
    export: &Export,
    path: &Path,
    workers: usize,
    stop: &AtomicBool,
    show: &mut dyn FnMut(&Progress),
) -> Result<u64, Failure> {
    let opened = Opened::open(path, &Reading::default()).map_err(|failure| differs(path, failure.detail()))?;
    if opened.count() != export.images() {
        return Err(differs(path, format!("it has {} pages for {} images", opened.count(), export.images())));
    }
    let mut pages = export.numbers.iter().copied().enumerate();
    let mut progress = Progress::new(export.images());
    let bytes = export.image_bytes();
    pipeline::run(
        workers,
        || Ok(pages.next().filter(|_| !stop.load(Ordering::Acquire))),
        || (Writes::open(export), Unpack::default()),
        |(writes, unpack), (page, image)| {
            let (pixels, _) = writes.pixels(export, image)?;
            let found = opened.read(page as u64, unpack).map_err(|failure| differs(path, failure.detail()))?;
            if found.array.pieces.concat() == pixels {
                Ok(())
            } else {
                Err(differs(path, format!("page {page} has other pixels")))
            }
        },
        |()| {
            progress.add(bytes);
            show(&progress);
            Ok::<(), Failure>(())
        },
    )?;
    Ok(progress.images_done)
}
