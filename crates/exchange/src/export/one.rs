//! One image as one file.

use super::plan::{Done, Export, Format, exists};
use crate::files::{Opened, Reading, Unpack};
use konkordia_core::array::Element;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_input::images::Images;
use konkordia_kernels::byte_offset;
use konkordia_wire::tiff::{self, Texts};
use konkordia_wire::{cbf, edf};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// In CBF files of a Pilatus: a gap between modules, and a pixel that is of no use.
const GAP: i32 = -1;
const NO_USE: i32 = -2;

/// What became of an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exported {
    pub was_there: bool,
    pub is_compared: bool,
    pub marked_pixels: u64,
}

/// Reads images and writes files; one for each thread.
pub struct Writes {
    images: Result<Images, Failure>,
    unpack: Unpack,
}

impl Writes {
    pub fn open(export: &Export) -> Self {
        let input = std::slice::from_ref(&export.request.input);
        Self { images: Images::open(input, export.request.channel.as_deref()), unpack: Unpack::default() }
    }

    /// The pixels of an image as they are to stand in a file, and how many of them are marks.
    pub fn pixels(&self, export: &Export, image: u64) -> Result<(Vec<u8>, u64), Failure> {
        let images = self.images.as_ref().map_err(Clone::clone)?;
        let missing = || {
            let facts = &export.facts;
            facts.pixel.missing_le_bytes().repeat(facts.shape[0] * facts.shape[1])
        };
        let pixels = images.read(image)?.unwrap_or_else(missing);
        if export.request.format != Format::Cbf {
            return Ok((pixels, 0));
        }
        signed(&pixels, export, image)
    }

    /// Writes the file of an image, or compares it if it is there.
    pub fn image(&mut self, export: &Export, image: u64) -> Result<Exported, Failure> {
        let path = export.path(image);
        let (pixels, marked_pixels) = self.pixels(export, image)?;
        if path.symlink_metadata().is_ok() {
            if !export.request.resume {
                return Err(exists(&path));
            }
            self.compare(&path, &pixels)?;
            return Ok(Exported { was_there: true, is_compared: true, marked_pixels });
        }
        let parts = parts(export, image, pixels.clone())?;
        let new = New::create(&path)?;
        new.write(&parts)?;
        if export.request.verify {
            self.compare(&new.path, &pixels)?;
        }
        new.publish(&path)?;
        Ok(Exported { was_there: false, is_compared: export.request.verify, marked_pixels })
    }

    /// Compares the one image of a file.
    fn compare(&mut self, path: &Path, pixels: &[u8]) -> Result<(), Failure> {
        let read = Opened::open(path, &Reading::default()).and_then(|opened| opened.read(0, &mut self.unpack));
        let found = read.map_err(|failure| differs(path, failure.detail()))?;
        if found.array.pieces.concat() == pixels { Ok(()) } else { Err(differs(path, "its pixels are not those of the image")) }
    }
}

/// The failure for a file that does not hold what it should.
pub fn differs(path: &Path, why: impl Into<String>) -> Failure {
    let fix = "move this file away; look for a failing disk or memory if it was written just now";
    Failure::new(Exit::Incomplete, format!("{} differs from its image", path.display()), why, fix)
}

/// The parts of a file.
fn parts(export: &Export, image: u64, pixels: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
    let size = export.facts.shape.map(|edge| edge as u64);
    let element = Element::from(export.facts.pixel);
    let impossible = || {
        let what = format!("pixels of type {} cannot stand in such a file", export.facts.pixel);
        Failure::new(Exit::Usage, what, "", "choose another --format")
    };
    Ok(match export.request.format {
        Format::Cbf => {
            let mut packed = Vec::with_capacity(pixels.len() / 3);
            byte_offset::encode(&pixels, &mut packed);
            let head = cbf::head(&export.header.name, &export.header.pilatus(image), size, &packed);
            vec![head, packed, cbf::tail()]
        }
        Format::Edf => vec![edf::head(size, element, &export.header.edf(image)).ok_or_else(impossible)?, pixels],
        Format::Tiff => {
            let description = export.header.tiff(image);
            let writer = tiff_writer(export, 1).ok_or_else(impossible)?;
            let first = tiff::first_bytes(writer.is_big());
            let head = writer.head(first.len() as u64, &texts(&description), true);
            vec![first, head, pixels]
        }
    })
}

/// The writer of a TIFF file with so many pages.
pub fn tiff_writer(export: &Export, pages: u64) -> Option<tiff::Writer> {
    const TEXT_BYTES_MAX: u64 = 8192;
    let shape = export.facts.shape.map(|edge| edge as u32);
    let writer = tiff::Writer::new(shape, export.facts.pixel.into(), pages, TEXT_BYTES_MAX)?;
    Some(if export.request.big { writer.big() } else { writer })
}

/// The texts of a page.
pub fn texts(description: &str) -> Texts<'_> {
    Texts { description, software: konkordia_core::SOFTWARE, date: "" }
}

/// The pixels as signed 32-bit numbers, with the marks of a Pilatus where there is no measurement: -1 where the mask
/// says so, -2 elsewhere. Numbers below zero of signed pixels stay as they are, if they are no special values.
fn signed(pixels: &[u8], export: &Export, image: u64) -> Result<(Vec<u8>, u64), Failure> {
    let (pixel, usable, marks) = (export.facts.pixel, &export.facts.usable, &export.marks[..]);
    let is_special = |value: i64| marks.contains(&(value as f64));
    let mut out = Vec::with_capacity(pixels.len() / pixel.bytes() * 4);
    let mut marked = 0;
    for (n, bytes) in pixels.chunks_exact(pixel.bytes()).enumerate() {
        let value = whole(pixel, bytes);
        let value = if is_special(value) {
            marked += 1;
            if usable.get(n) == Some(&false) { GAP } else { NO_USE }
        } else {
            i32::try_from(value).map_err(|_| {
                let [_, columns] = export.facts.shape;
                let what = format!("image {image} cannot become a CBF file");
                let why =
                    format!("pixel ({}, {}) is {value}, which does not fit signed 32-bit numbers", n / columns, n % columns);
                Failure::new(Exit::Configuration, what, why, "choose --format tiff or edf")
            })?
        };
        out.extend_from_slice(&value.to_le_bytes());
    }
    Ok((out, marked))
}

fn whole(pixel: PixelType, bytes: &[u8]) -> i64 {
    let mut wide = [if !pixel.is_unsigned() && bytes.last().is_some_and(|high| *high >= 128) { 0xFF } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    // Numbers beyond the signed ones do not fit anyway.
    if pixel == PixelType::Uint64 {
        i64::try_from(u64::from_le_bytes(wide)).unwrap_or(i64::MAX)
    } else {
        i64::from_le_bytes(wide)
    }
}

/// A file that gets its name when it is whole.
pub struct New {
    pub path: PathBuf,
    file: File,
    is_published: std::cell::Cell<bool>,
}

impl New {
    pub fn create(target: &Path) -> Result<Self, Failure> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = File::create(&path).map_err(|error| Failure::io("cannot write", &path, &error))?;
        Ok(Self { path, file, is_published: std::cell::Cell::new(false) })
    }

    pub fn write(&self, parts: &[Vec<u8>]) -> Result<(), Failure> {
        let mut file = &self.file;
        let written = parts.iter().try_for_each(|part| file.write_all(part));
        written.map_err(|error| Failure::io("cannot write", &self.path, &error))
    }

    /// Gives the file its name, unless there is one of this name.
    pub fn publish(self, target: &Path) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| Failure::io("cannot write", target, &error);
        self.file.sync_data().map_err(cannot)?;
        match std::fs::hard_link(&self.path, target) {
            Ok(()) => std::fs::remove_file(&self.path).map_err(cannot)?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(exists(target)),
            // Some file systems have no links.
            Err(_) if target.symlink_metadata().is_ok() => return Err(exists(target)),
            Err(_) => std::fs::rename(&self.path, target).map_err(cannot)?,
        }
        self.is_published.set(true);
        Ok(())
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if !self.is_published.get() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Done {
    /// Counts one more image.
    pub(super) fn add(&mut self, one: &Exported, bytes: u64) {
        self.written += u64::from(!one.was_there);
        self.kept += u64::from(one.was_there);
        self.compared += u64::from(one.is_compared);
        self.marked_pixels += one.marked_pixels;
        self.pixel_bytes += bytes;
    }
}
