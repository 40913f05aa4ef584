//! Writes files again with another compression. Pixels do not change (with sz3: within an error bound; with spots: only
//! in the background), and a copy that is not whole never has its final name.
//! Read [`repack`] first, then [`archive_copy::make`].
//!
//! ```no_run
//! use konkordia_core::plan::Compression;
//! use konkordia_repack::{Settings, repack};
//! use std::sync::atomic::AtomicBool;
//!
//! let compression = Compression::from_name("bszstd").expect("a codec of this name");
//! let (workers, notes) = (2, Vec::new());
//! let settings = Settings { compression, spots: None, workers, verify: true, delete_source: false, notes };
//! let stop = AtomicBool::new(false);
//! let outcome = repack("run_master.h5".as_ref(), "archive".as_ref(), &settings, &stop, &mut |_| ())?;
//! println!("{}: {} images compared", outcome.master.display(), outcome.compared.images);
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
#![forbid(unsafe_code)]

pub mod archive_copy;
pub mod budget;
pub mod compare;
mod files;
mod identity;
pub mod layout;
pub mod pipeline;
mod progress;
mod recode;
pub mod record;
mod settings;
mod spot_totals;
pub mod spots;

use compare::Compared;
use files::Job;
use konkordia_core::failure::{Exit, Failure};
use konkordia_sinks::hdf5::mirror::{Mirror, Sealed, Stacks, Verifier};
pub use progress::Progress;
use progress::Show;
use recode::{Chunk, Recoder};
pub use record::Outcome;
use record::Totals;
pub use settings::Settings;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Writes `file`, and all files that it points to, to `output`: an existing folder, or a folder and the first part of
/// the file names.
///
/// `stop` ends it after the current image; `show` is called after each image.
///
/// # Errors
/// A file cannot be read, written, compared or deleted. Finished files stay; nothing is left of an unfinished one.
pub fn repack(
    file: &Path,
    output: &Path,
    settings: &Settings,
    stop: &AtomicBool,
    show: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Failure> {
    let job = Job::new(file, output, settings)?;
    let (mut files, mut kept) = (Vec::new(), Vec::new());
    let (mut totals, mut compared) = (Totals::default(), Compared::default());
    let progress = Progress { images_done: 0, images: job.images, bytes: 0, started: Instant::now() };
    let mut show = Show { progress, show };
    for (source, target) in &job.files {
        if files::is_finished(source, target, settings)? {
            let Some(own) = again(source, target, settings, stop, &mut show)? else { break };
            compared.add(&own);
            kept.push(target.clone());
        } else {
            let Some((own, read_again)) = anew(&job, source, target, settings, stop, &mut show)? else { break };
            totals.add(&own);
            compared.add(&read_again);
            files.push(target.clone());
        }
    }
    let complete = files.len() + kept.len() == job.files.len();
    let master = job.files.last().map(|(_, target)| target.clone()).unwrap_or_default();
    Ok(Outcome { master, files, kept, totals, compared, complete })
}

/// Writes one file alone to `folder`, under its own name. The files that it points to were repacked before and have
/// taken the place of their originals. False after `stop`.
///
/// # Errors
/// As [`repack`].
pub fn repack_alone(file: &Path, folder: &Path, settings: &Settings, stop: &AtomicBool) -> Result<bool, Failure> {
    let job = Job::alone(file, folder, settings)?;
    let progress = Progress { images_done: 0, images: job.images, bytes: 0, started: Instant::now() };
    let mut show = Show { progress, show: &mut |_| () };
    let target = folder.join(file.file_name().unwrap_or_default());
    if files::is_finished(file, &target, settings)? {
        return Ok(again(file, &target, settings, stop, &mut show)?.is_some());
    }
    Ok(anew(&job, file, &target, settings, stop, &mut show)?.is_some())
}

/// Handles a file that an earlier attempt finished. It is not known whether that attempt compared the file, or whether
/// the file has changed since. So it is compared here, if that was asked for or if the original is to be deleted.
/// `None` after Ctrl-C.
fn again(
    source: &Path,
    target: &Path,
    settings: &Settings,
    stop: &AtomicBool,
    show: &mut Show<'_>,
) -> Result<Option<Compared>, Failure> {
    if !files::is_compared_again(source, settings) {
        return Ok(Some(Compared::NOT));
    }
    let identity = identity::of(source)?;
    let stacks = Stacks::open(source)?;
    let fix = "keep the original, remove this copy and repack again; look for a failing disk or memory";
    let Some(compared) = compare::all(&stacks, target, (target, fix), settings, stop, show)? else { return Ok(None) };
    drop(stacks);
    delete(source, &identity, settings)?;
    Ok(Some(compared))
}

/// Writes a file. With `verify` it gets its final name only after the comparison. `None` after Ctrl-C; then nothing is
/// left of the file.
fn anew(
    job: &Job,
    source: &Path,
    target: &Path,
    settings: &Settings,
    stop: &AtomicBool,
    show: &mut Show<'_>,
) -> Result<Option<(Totals, Compared)>, Failure> {
    let identity = identity::of(source)?;
    let stacks = Stacks::open(source)?;
    let Some((totals, sealed)) = one(job, &stacks, target, &identity, settings, stop, show)? else { return Ok(None) };
    let mut compared = Compared::NOT;
    if settings.verify {
        let fix = "the copy was removed, the original is unchanged; look for a failing disk or memory, otherwise report this";
        match compare::all(&stacks, sealed.path(), (target, fix), settings, stop, show)? {
            Some(all) => compared = all,
            None => return Ok(None),
        }
    }
    drop(stacks);
    identity::unchanged(source, &identity)?;
    sealed.publish()?;
    delete(source, &identity, settings)?;
    Ok(Some((totals, compared)))
}

/// Deletes an original if that is asked for, and if it is the file that was copied.
fn delete(source: &Path, identity: &str, settings: &Settings) -> Result<(), Failure> {
    if !settings.delete_source {
        return Ok(());
    }
    identity::unchanged(source, identity)?;
    std::fs::remove_file(source).map_err(|error| Failure::io("cannot delete", source, &error))
}

/// Writes one file under its temporary name.
fn one(
    job: &Job,
    stacks: &Stacks,
    target: &Path,
    identity: &str,
    settings: &Settings,
    stop: &AtomicBool,
    show: &mut Show<'_>,
) -> Result<Option<(Totals, Sealed)>, Failure> {
    let rename = |name: &str| job.rename(name);
    let mut mirror = Mirror::create(stacks, target, settings.compression, &rename, &job.prefix)?;
    let layouts: Vec<_> = stacks.layouts().cloned().collect();
    let negative_is_exact = !stacks.is_ours();
    let mut totals = Totals::default();
    let mut images = layouts.iter().enumerate().flat_map(|(n, layout)| (0..layout.images).map(move |image| (n, image)));
    let mut verifiers: Vec<_> = (0..layouts.len()).map(|stack| Verifier::new(stacks, stack)).collect();
    let read = || -> Result<Option<Chunk>, Failure> {
        let Some((stack, image)) = images.next().filter(|_| !stop.load(Ordering::Acquire)) else { return Ok(None) };
        let mut bytes = Vec::new();
        let stored = stacks.read(stack, image, &mut bytes)?;
        verifiers[stack].pass(image, &bytes).map_err(|(image, why)| changed(stacks.path(), image, why))?;
        Ok(Some(Chunk { stack, image, stored, bytes }))
    };
    let damaged = |why: String| {
        let what = format!("cannot decode an image of {}", stacks.path().display());
        Failure::new(Exit::Incomplete, what, why, "the file is damaged: recover it from a copy; `konkordia check` says more")
    };
    pipeline::run(
        settings.workers,
        read,
        || Recoder::new(settings, negative_is_exact),
        |recoder, chunk: Chunk| recoder.recode(&layouts[chunk.stack], chunk).map_err(damaged),
        |recoded| {
            let layout = &layouts[recoded.stack];
            if let Some(chunk) = &recoded.chunk {
                mirror.write(recoded.stack, recoded.image, chunk)?;
            }
            totals.image(layout, &recoded, settings);
            show.image(layout.image_bytes());
            Ok(())
        },
    )?;
    if stop.load(Ordering::Acquire) {
        return Ok(None);
    }
    let copies: Vec<PathBuf> = job.files.iter().map(|(_, copy)| copy.clone()).filter(|copy| copy != target).collect();
    let sealed = mirror.seal(&totals.record(stacks.path(), identity, settings), &copies)?;
    Ok(Some((totals, sealed)))
}

/// The failure for an image whose bytes do not match their checksum.
fn changed(file: &Path, image: u64, why: String) -> Failure {
    let what = format!("image {image} of {} is damaged", file.display());
    let fix = "recover the file from a copy; `konkordia check FILE` names all images that are damaged. \
               This file was not copied; the copies of earlier files are complete";
    Failure::new(Exit::Incomplete, what, why, fix)
}
