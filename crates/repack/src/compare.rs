//! Reads a written file back and compares every image with the original.

use super::pipeline;
use super::progress::Show;
use super::recode::{decode, fills};
use super::settings::Settings;
use super::spots::Keeper;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Compression;
use konkordia_kernels::{Isa, sz3};
use konkordia_sinks::hdf5::mirror::{StackLayout, Stacks};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A chunk before and after.
struct Pair {
    stack: usize,
    image: u64,
    stored: [Option<bool>; 2],
    bytes: [Vec<u8>; 2],
}

/// What was read back and compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Files with images.
    pub files: u64,
    /// Images in them.
    pub images: u64,
    /// Files that were not compared.
    pub files_not_compared: u64,
}

impl Compared {
    /// One file that was not compared.
    pub const NOT: Self = Self { files: 0, images: 0, files_not_compared: 1 };

    /// Adds the counts of another file.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.images += other.images;
        self.files_not_compared += other.files_not_compared;
    }

    /// Whether something was compared, and no file left out.
    pub fn is_all(&self) -> bool {
        self.images > 0 && self.files_not_compared == 0
    }
}

/// The properties that two stacks must share to be compared image by image.
fn shape(layout: &StackLayout) -> (&str, u64, [usize; 3], Option<PixelType>) {
    (&layout.name, layout.images, [layout.rows, layout.columns, layout.element_bytes], layout.pixel)
}

/// Compares all images of `copy` with `source`. The copy may still have a temporary name; messages call it `target.0`.
/// `None` after Ctrl-C.
///
/// # Errors
/// An image differs, or a file cannot be read. If an image differs, the failure names the copy, which must not be used,
/// and `target.1` is its fix.
pub(crate) fn all(
    source: &Stacks,
    copy: &Path,
    target: (&Path, &str),
    settings: &Settings,
    stop: &AtomicBool,
    show: &mut Show<'_>,
) -> Result<Option<Compared>, Failure> {
    let (target, fix) = target;
    let copy = Stacks::open(copy)?;
    if !source.layouts().map(shape).eq(copy.layouts().map(shape)) {
        let what = format!("{} does not have the same images as {}", target.display(), source.path().display());
        return Err(Failure::new(Exit::Incomplete, what, "names, shapes or types of its stacks differ", fix));
    }
    let layouts: Vec<(StackLayout, StackLayout)> = source.layouts().cloned().zip(copy.layouts().cloned()).collect();
    let mut images = layouts.iter().enumerate().flat_map(|(n, (layout, _))| (0..layout.images).map(move |image| (n, image)));
    let read = || -> Result<Option<Pair>, Failure> {
        let Some((stack, image)) = images.next().filter(|_| !stop.load(Ordering::Acquire)) else { return Ok(None) };
        let mut bytes = [Vec::new(), Vec::new()];
        let stored = [source.read(stack, image, &mut bytes[0])?, copy.read(stack, image, &mut bytes[1])?];
        Ok(Some(Pair { stack, image, stored, bytes }))
    };
    let negative_is_exact = !source.is_ours();
    let work = |(pixels, keeper): &mut ([Vec<u8>; 2], Option<Keeper<'_>>), pair: Pair| {
        let (before, after) = &layouts[pair.stack];
        let same = equal(pixels, [before, after], &pair, settings.compression, negative_is_exact, keeper.as_mut());
        same.map(|()| before.image_bytes()).map_err(|why| {
            let what = format!("image {} of {} differs from the original", pair.image, target.display());
            Failure::new(Exit::Incomplete, what, why, fix)
        })
    };
    pipeline::run(
        settings.workers,
        read,
        || ([Vec::new(), Vec::new()], settings.spots.as_ref().map(|spots| Keeper::new(spots, Isa::detect()))),
        work,
        |bytes| {
            show.image(bytes);
            Ok(())
        },
    )?;
    let images = layouts.iter().map(|(layout, _)| layout.images).sum();
    let compared = Compared { files: u64::from(images > 0), images, files_not_compared: 0 };
    Ok((!stop.load(Ordering::Acquire)).then_some(compared))
}

fn equal(
    pixels: &mut [Vec<u8>; 2],
    layouts: [&StackLayout; 2],
    pair: &Pair,
    compression: Compression,
    negative_is_exact: bool,
    keeper: Option<&mut Keeper<'_>>,
) -> Result<(), String> {
    if pair.stored == [None, None] {
        return Ok(());
    }
    for side in 0..2 {
        pixels[side].resize(layouts[side].image_bytes(), 0);
        match (pair.stored[side], &layouts[0].fill) {
            (Some(stored), _) => decode(layouts[side], Isa::detect(), stored, &pair.bytes[side], &mut pixels[side])?,
            (None, Some(fill)) if side == 0 && fills(compression) => {
                pixels[0].chunks_exact_mut(fill.len()).for_each(|p| p.copy_from_slice(fill))
            }
            _ => return Err("it exists in only one of the two files".into()),
        }
    }
    let right = match (compression, layouts[0].pixel, keeper) {
        (_, _, Some(keeper)) => keeper.is_copy(&pixels[0], &pixels[1]),
        (Compression::Sz3 { bound }, Some(pixel), None) => {
            sz3::compare(pixel, &pixels[0], &pixels[1], bound, negative_is_exact).is_some()
        }
        _ => pixels[0] == pixels[1],
    };
    right.then_some(()).ok_or_else(|| "its pixels differ".into())
}
