//! Which level of `bszstd` a budget of processor time allows, measured on images of the file.

use crate::recode::{Chunk, Recoder};
use crate::settings::Settings;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{BlockSize, Compression};
use konkordia_sinks::hdf5::mirror::Stacks;
use std::path::Path;

/// Levels that are tried, from the fastest; from one to the next, files get noticeably smaller.
const LEVELS: [u8; 8] = [1, 3, 5, 7, 9, 12, 15, 19];
/// Bytes of pixels of the sample: at the highest levels it takes some seconds.
const SAMPLE_BYTES_MAX: usize = 16 << 20;
/// A level is measured at least for so long.
const MEASURED_S_MIN: f64 = 0.05;

/// A level, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Level of `bszstd`.
    pub level: u8,
    /// Processor time of this level for 10^9 bytes of pixels, seconds: unpacking and packing.
    pub s_per_gb: f64,
}

/// The highest of some levels of `bszstd` that takes at most `budget_s_per_gb` seconds of processor time for 10^9 bytes
/// of pixels here, on images of `file` (a master, or a file with images). The first level if none does.
///
/// # Errors
/// The file cannot be read or has no images, or this system does not say how much time a thread took.
pub fn level(file: &Path, budget_s_per_gb: f64) -> Result<Cost, Failure> {
    let main = Stacks::open(file)?;
    let with_images = if main.layouts().len() > 0 { main } else { first_linked(&main)? };
    let images = sample(&with_images)?;
    let mut best: Option<Cost> = None;
    for level in LEVELS {
        let cost = Cost { level, s_per_gb: measured(&with_images, &images, level)? };
        if best.is_some() && cost.s_per_gb > budget_s_per_gb {
            break;
        }
        best = Some(cost);
    }
    best.ok_or_else(|| no_images(file))
}

fn no_images(file: &Path) -> Failure {
    let what = format!("{} has no images to measure on", file.display());
    Failure::new(Exit::Usage, what, "", "give --level N instead of --cpu-s-per-gb")
}

fn first_linked(main: &Stacks) -> Result<Stacks, Failure> {
    let mut linked = main.linked_files().into_iter().filter_map(|path| Stacks::open(&path).ok());
    linked.find(|stacks| stacks.layouts().len() > 0).ok_or_else(|| no_images(main.path()))
}

/// Images of the first stack, spread over it.
fn sample(stacks: &Stacks) -> Result<Vec<Chunk>, Failure> {
    let Some(layout) = stacks.layouts().next().filter(|layout| layout.images > 0) else { return Err(no_images(stacks.path())) };
    let many = (SAMPLE_BYTES_MAX / layout.image_bytes().max(1)).clamp(1, 16) as u64;
    let mut images = Vec::new();
    for n in 0..many.min(layout.images) {
        let (image, mut bytes) = (n * layout.images / many.min(layout.images), Vec::new());
        let stored = stacks.read(0, image, &mut bytes)?;
        images.push(Chunk { stack: 0, image, stored, bytes });
    }
    Ok(images)
}

/// Processor time of one level for 10^9 bytes of pixels.
fn measured(stacks: &Stacks, images: &[Chunk], level: u8) -> Result<f64, Failure> {
    let compression = Compression::Bszstd { level, block: BlockSize::KIB_64 };
    let settings = Settings { compression, spots: None, workers: 1, verify: false, delete_source: false, notes: Vec::new() };
    let Some(layout) = stacks.layouts().next() else { return Err(no_images(stacks.path())) };
    let mut recoder = Recoder::new(&settings, !stacks.is_ours());
    let (begin, mut bytes) = (cpu_s()?, 0usize);
    loop {
        for Chunk { stack, image, stored, bytes: chunk } in images {
            let chunk = Chunk { stack: *stack, image: *image, stored: *stored, bytes: chunk.clone() };
            recoder.recode(layout, chunk).map_err(|why| {
                let what = format!("cannot pack an image of {}", stacks.path().display());
                Failure::new(Exit::Incomplete, what, why, "`konkordia check FILE` says whether it is damaged")
            })?;
            bytes += layout.image_bytes();
        }
        let took = cpu_s()? - begin;
        if took >= MEASURED_S_MIN {
            return Ok(took / bytes as f64 * 1e9);
        }
    }
}

/// Processor time of this thread so far, seconds.
fn cpu_s() -> Result<f64, Failure> {
    let path = Path::new("/proc/thread-self/schedstat");
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io("cannot read", path, &error))?;
    let nanoseconds: Option<f64> = text.split(' ').next().and_then(|number| number.parse().ok());
    nanoseconds.map(|number| number * 1e-9).ok_or_else(|| {
        let fix = "give --level N instead of --cpu-s-per-gb";
        Failure::new(Exit::Io, "this system does not say how much processor time a thread took", text, fix)
    })
}
