//! A file, opened: what it is by how it begins, and its images one by one.

use super::content::Content;
use super::failures::wrong;
use super::unpack::{self, Unpack};
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::Failure;
use konkordia_wire::blob::Blob;
use konkordia_wire::stream::Bounds;
use konkordia_wire::{cbf, edf, files, spe, tiff};
use serde_json::Map;
use std::path::{Path, PathBuf};

/// Ends of the names of files that are looked for in a folder.
pub const SUFFIXES: [&str; 10] =
    [".cbf", ".tif", ".tiff", ".edf", ".spe", ".cbf.gz", ".tif.gz", ".tiff.gz", ".edf.gz", ".spe.gz"];

/// Plain pixels without a header of a known kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawForm {
    /// Rows, columns.
    pub shape: [u64; 2],
    /// Type of one pixel.
    pub element: Element,
    /// True if the pixels are big-endian.
    pub is_big_endian: bool,
    /// Bytes in front of the first image of each file.
    pub skip: u64,
}

impl std::str::FromStr for RawForm {
    type Err = String;

    /// `ROWSxCOLUMNS:TYPE`, and if need be `:big` and `:skip=BYTES`.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "rows, columns and type are expected, for example 512x1024:uint16, and perhaps :big or :skip=4096";
        let mut words = text.split(':');
        let (shape, element) = words.next().zip(words.next()).ok_or(expected)?;
        let edge = |text: &str| text.trim().parse::<u64>().ok().filter(|edge| (1..=1 << 20).contains(edge));
        let (rows, columns) = shape.split_once('x').and_then(|(r, c)| edge(r).zip(edge(c))).ok_or(expected)?;
        let element = Element::from_name(element).filter(|element| element.pixel().is_some()).ok_or(expected)?;
        let mut form = Self { shape: [rows, columns], element, is_big_endian: false, skip: 0 };
        for word in words {
            match word.strip_prefix("skip=") {
                Some(bytes) => form.skip = bytes.parse().map_err(|_| expected)?,
                None if word == "big" => form.is_big_endian = true,
                None => return Err(expected.into()),
            }
        }
        Ok(form)
    }
}

/// What is read, and how large it may be.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Take files as plain pixels.
    pub raw: Option<RawForm>,
    /// Limits.
    pub bounds: Bounds,
}

impl Default for Reading {
    /// Images up to 1 GiB, texts up to 16 MiB.
    fn default() -> Self {
        Self { raw: None, bounds: Bounds { text_bytes_max: 16 << 20, ..Bounds::default() } }
    }
}

enum Frames {
    /// One image; the file is checked when it is read.
    Cbf,
    Tiff(Vec<tiff::Page>),
    Edf(Vec<edf::Frame>),
    Spe(spe::Stack),
    Raw(RawForm, u64),
}

/// A file whose images have been found.
pub struct Opened {
    path: PathBuf,
    content: Content,
    frames: Frames,
    bounds: Bounds,
}

impl Opened {
    /// Opens a file and finds its images. Of CBF files only the beginning is looked at.
    ///
    /// # Errors
    /// It cannot be read, is of no known kind, or is damaged.
    pub fn open(path: &Path, reading: &Reading) -> Result<Self, Failure> {
        Self::of(path, Content::open(path)?, reading)
    }

    /// As [`Self::open`], of a file whose bytes are in memory.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn of(path: &Path, content: Content, reading: &Reading) -> Result<Self, Failure> {
        let frames = frames(&content, reading).map_err(|why| wrong(path, why))?;
        Ok(Self { path: path.to_owned(), content, frames, bounds: reading.bounds })
    }

    /// Number of images.
    pub fn count(&self) -> u64 {
        match &self.frames {
            Frames::Cbf => 1,
            Frames::Tiff(pages) => pages.len() as u64,
            Frames::Edf(frames) => frames.len() as u64,
            Frames::Spe(stack) => stack.frames,
            Frames::Raw(_, frames) => *frames,
        }
    }

    /// The kind, in words.
    pub fn kind(&self) -> &'static str {
        match &self.frames {
            Frames::Cbf => "CBF",
            Frames::Tiff(_) => "TIFF",
            Frames::Edf(_) => "EDF",
            Frames::Spe(_) => "SPE",
            Frames::Raw(..) => "raw",
        }
    }

    /// Rows, columns and type of image `nth`, if they are known before it is read.
    pub fn form(&self, nth: u64) -> Option<([u64; 2], Element)> {
        match &self.frames {
            Frames::Cbf => None,
            Frames::Tiff(pages) => pages.get(nth as usize).map(|page| (page.edges(), page.element)),
            Frames::Edf(frames) => frames.get(nth as usize).map(|frame| (edges(frame.shape), frame.element)),
            Frames::Spe(stack) => Some((edges(stack.shape), stack.element)),
            Frames::Raw(form, _) => Some((form.shape, form.element)),
        }
    }

    /// Image `nth`, from 0: its pixels, not packed and little-endian, and what the file says of it.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged there.
    pub fn read(&self, nth: u64, unpack: &mut Unpack) -> Result<files::File, Failure> {
        self.image(nth, unpack).map_err(|why| wrong(&self.path, why))
    }

    fn image(&self, nth: u64, unpack: &mut Unpack) -> Result<files::File, String> {
        let lost = || format!("there is no image {nth} in it");
        match &self.frames {
            Frames::Cbf => {
                let whole = self.content.whole(self.bounds.image_bytes_max * 4)?;
                let (array, contents) =
                    files::cbf_pixels(&whole, &self.bounds, unpack.unpacker()).map_err(|refusal| refusal.why)?;
                Ok(files::of_cbf(array, &contents))
            }
            Frames::Tiff(pages) => {
                let page = pages.get(nth as usize).ok_or_else(lost)?;
                let pixels = unpack.page(page, &self.content)?;
                let texts: Vec<(&str, &str)> = page.texts.iter().map(|(name, text)| (*name, &**text)).collect();
                Ok(files::of_tiff(array(page.shape, page.element, pixels.into()), &texts))
            }
            Frames::Edf(frames) => {
                let frame = frames.get(nth as usize).ok_or_else(lost)?;
                let pixels = self.content.read(frame.at, frame.bytes as usize)?.into_owned();
                let pixels = unpack::little_endian(pixels, frame.element, frame.is_big_endian);
                Ok(files::of_edf(array(frame.shape, frame.element, pixels.into()), &frame.header))
            }
            Frames::Spe(stack) => {
                let at = spe::HEADER_BYTES as u64 + nth * stack.frame_bytes;
                let pixels = self.content.read(at, stack.frame_bytes as usize)?.into_owned();
                let mut file = plain(array(stack.shape, stack.element, pixels.into()));
                file.facts.count_time_s = stack.exposure_s;
                if !stack.date.is_empty() {
                    file.said.insert("date".into(), stack.date.clone().into());
                }
                Ok(file)
            }
            Frames::Raw(form, _) => {
                let bytes = raw_bytes(form);
                let pixels = self.content.read(form.skip + nth * bytes, bytes as usize)?.into_owned();
                let pixels = unpack::little_endian(pixels, form.element, form.is_big_endian);
                let shape = Shape::new(&form.shape).ok_or("an image without pixels")?;
                Ok(plain(array(shape, form.element, pixels.into())))
            }
        }
    }
}

fn frames(content: &Content, reading: &Reading) -> Result<Frames, String> {
    if let Some(form) = reading.raw {
        let bytes = raw_bytes(&form);
        let there = content.bytes().saturating_sub(form.skip);
        let [rows, columns] = form.shape;
        let is = format!("an image of {rows} x {columns} {} has {bytes} bytes", form.element.name());
        if bytes > reading.bounds.image_bytes_max {
            return Err(format!("{is}, more than the {} that are accepted", reading.bounds.image_bytes_max));
        }
        return match (there / bytes, there % bytes) {
            (0, _) => Err(format!("{is}, but the file has {there}")),
            (frames, 0) => Ok(Frames::Raw(form, frames)),
            (frames, left) => Err(format!("{is}; after {frames} images {left} bytes are left over")),
        };
    }
    let head = content.read(0, content.bytes().min(8) as usize)?;
    if head.starts_with(cbf::MAGIC) {
        return Ok(Frames::Cbf);
    }
    if tiff::MAGICS.iter().any(|magic| head.starts_with(magic)) {
        return tiff::pages(content, &reading.bounds).map(Frames::Tiff);
    }
    if head.starts_with(b"{") {
        return edf::frames(content, &reading.bounds).map(Frames::Edf);
    }
    if spe::Stack::is_spe(content) {
        return spe::Stack::parse(content, &reading.bounds).map(Frames::Spe);
    }
    if head.is_empty() {
        return Err("it is empty (0 bytes)".into());
    }
    Err("it is not a CBF, TIFF, EDF or SPE file (unknown first bytes); plain pixels need --raw".into())
}

fn raw_bytes(form: &RawForm) -> u64 {
    form.shape[0] * form.shape[1] * u64::from(form.element.bits()) / 8
}

fn edges(shape: Shape) -> [u64; 2] {
    match *shape.dimensions() {
        [rows, columns] => [rows, columns],
        _ => [1, shape.elements()],
    }
}

fn array(shape: Shape, element: Element, pixels: Bytes) -> Array {
    Array { shape, element, packing: Packing::None, pieces: vec![pixels] }
}

/// An image of which the file says nothing.
fn plain(array: Array) -> files::File {
    files::File { array, said: Map::new(), facts: Metadata::default(), threshold_ev: None, is_marked: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Files of fabio and tifffile, packed in several ways.
    const SEEDS: [&[u8]; 10] = [
        include_bytes!("../../../../fuzz/seeds/image_file/big"),
        include_bytes!("../../../../fuzz/seeds/image_file/cbf"),
        include_bytes!("../../../../fuzz/seeds/image_file/edf"),
        include_bytes!("../../../../fuzz/seeds/image_file/float"),
        include_bytes!("../../../../fuzz/seeds/image_file/lzw"),
        include_bytes!("../../../../fuzz/seeds/image_file/packbits"),
        include_bytes!("../../../../fuzz/seeds/image_file/spe"),
        include_bytes!("../../../../fuzz/seeds/image_file/tiff"),
        include_bytes!("../../../../fuzz/seeds/image_file/zlib"),
        include_bytes!("../../../../fuzz/seeds/image_file/zstd"),
    ];

    fn read_all(bytes: &[u8]) -> u64 {
        let bounds = Bounds { text_bytes_max: 4096, image_bytes_max: 1 << 16, ..Bounds::default() };
        let content = Content::from(Bytes::copy_from_slice(bytes));
        let Ok(opened) = Opened::of(Path::new("x"), content, &Reading { raw: None, bounds }) else { return 0 };
        let mut unpack = Unpack::default();
        let read = (0..opened.count().min(4)).filter_map(|nth| opened.read(nth, &mut unpack).ok());
        read.map(|file| file.array.pieces[0].len() as u64).inspect(|bytes| assert!(*bytes <= 1 << 16)).sum()
    }

    #[test]
    fn whole_files_are_read() {
        for (n, seed) in SEEDS.iter().enumerate() {
            assert!(read_all(seed) > 0, "seed {n}");
        }
    }

    proptest! {
        #[test]
        fn changed_and_cut_files_are_read_or_refused(
            which in 0..SEEDS.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            is_cut: bool,
        ) {
            let mut file = SEEDS[which].to_vec();
            for (at, byte) in &changes {
                let at = at.index(file.len());
                file[at] = *byte;
            }
            read_all(if is_cut { &file[..cut.index(file.len())] } else { &file });
        }
    }

    #[test]
    fn raw_forms_are_read() {
        let form: RawForm = "512x1024:uint16".parse().unwrap();
        assert_eq!((form.shape, form.element, form.is_big_endian, form.skip), ([512, 1024], Element::Uint16, false, 0));
        let form: RawForm = "2x3:float32:big:skip=100".parse().unwrap();
        assert_eq!((form.is_big_endian, form.skip), (true, 100));
        for bad in ["", "2x3", "2:uint8", "0x3:uint8", "2x3:mono12p", "2x3:uint8:little", "2x3:uint8:skip=x", "9999999x1:int8"] {
            assert!(bad.parse::<RawForm>().unwrap_err().contains("are expected"), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_and_where() {
        let why = |bytes: &[u8], raw: Option<&str>| {
            let reading = Reading { raw: raw.map(|raw| raw.parse().unwrap()), ..Reading::default() };
            let content = Content::from(Bytes::copy_from_slice(bytes));
            Opened::of(Path::new("a/b.x"), content, &reading).err().map(|failure| failure.to_string()).unwrap_or_default()
        };
        assert!(why(b"", None).contains("a/b.x") && why(b"", None).contains("empty"));
        assert!(why(b"hello world", None).contains("unknown first bytes"));
        assert!(why(&[0; 13], Some("2x3:uint16")).contains("after 1 images 1 bytes are left over"));
        assert!(why(&[0; 11], Some("2x3:uint16")).contains("has 12 bytes, but the file has 11"));
        assert!(why(&[0; 11], Some("1000000x1000000:uint16")).contains("more than the"));
        assert_eq!(why(&[0; 24], Some("2x3:uint16")), "");
    }
}
