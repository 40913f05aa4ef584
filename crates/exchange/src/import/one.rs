//! One image: read, checked against the others, packed.

use super::request::{Form, form_of};
use crate::files::{Content, Opened, Reading, Unpack, other_form, wrong};
use crate::pack::Pack;
use bytes::Bytes;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::ImageTimes;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Compression;
use konkordia_sinks::hdf5::{SeriesRecord, Writer};
use konkordia_wire::files::File;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A packed image, and what belongs to it.
pub struct Made {
    pub chunk: Vec<u8>,
    pub said: Map<String, Value>,
    pub extra: Vec<u64>,
    pub times: Option<ImageTimes>,
    /// Keys that its header lacks.
    pub lacking: u64,
}

/// Makes images; one for each thread.
pub struct One {
    unpack: Unpack,
    pack: Option<Pack>,
    /// The file of the image before, where files have several.
    open: Option<(PathBuf, Opened)>,
}

impl One {
    pub fn new((element, [rows, columns]): Form, compression: Compression) -> Self {
        let image_bytes = rows * columns * u64::from(element.bits()) / 8;
        Self { unpack: Unpack::default(), pack: Pack::new(compression, element, image_bytes as usize), open: None }
    }

    /// Image `nth` of a file, packed.
    pub fn make(&mut self, path: &Path, nth: u64, reading: &Reading, form: Form) -> Result<Made, Failure> {
        let file = self.pixels(path, nth, reading, form)?;
        self.packed(path, file)
    }

    /// As [`Self::make`], of a file whose bytes are in memory.
    pub fn make_of(&mut self, path: &Path, bytes: Bytes, reading: &Reading, form: Form) -> Result<Made, Failure> {
        let content = Content::of_bytes(bytes).map_err(|why| wrong(path, why))?;
        let opened = Opened::of(path, content, reading)?;
        if opened.count() != 1 {
            return Err(wrong(
                path,
                format!("it holds {} images; a folder that is watched has one in each file", opened.count()),
            ));
        }
        let file = opened.read(0, &mut self.unpack)?;
        check(path, 0, &file, form)?;
        self.packed(path, file)
    }

    /// Image `nth` of a file, of the form of the others.
    pub fn pixels(&mut self, path: &Path, nth: u64, reading: &Reading, form: Form) -> Result<File, Failure> {
        if self.open.as_ref().is_none_or(|(open, _)| open != path) {
            self.open = Some((path.to_owned(), Opened::open(path, reading)?));
        }
        let Some((_, opened)) = &self.open else { return Err(wrong(path, "it is not open")) };
        let file = opened.read(nth, &mut self.unpack)?;
        check(path, nth, &file, form)?;
        Ok(file)
    }

    fn packed(&mut self, path: &Path, file: File) -> Result<Made, Failure> {
        let pack = self.pack.as_mut().ok_or_else(|| {
            let what = format!("the pixels of {} cannot be packed", path.display());
            Failure::new(Exit::Usage, what, "", "choose --compression none")
        })?;
        let chunk = match &file.array.pieces[..] {
            [one] => pack.pack(one),
            pieces => pack.pack(&pieces.concat()),
        };
        Ok(Made { chunk, said: file.said, extra: Vec::new(), times: None, lacking: 0 })
    }
}

fn check(path: &Path, nth: u64, file: &File, (element, size): Form) -> Result<(), Failure> {
    let (own, own_size) = form_of(file);
    if (own, own_size) == (element, size) { Ok(()) } else { Err(other_form(path, nth, (own_size, own), (size, element))) }
}

/// Writes an image; positions before it that were not written are lost.
pub fn write(writer: &mut Writer, position: u64, made: &Made) -> Result<(), Failure> {
    let pieces = [&made.chunk[..]];
    let record = SeriesRecord {
        index: position,
        status: ImageStatus::Complete,
        pieces: &pieces,
        times: made.times,
        parts_missing: 0,
        extra: &made.extra,
    };
    Ok(writer.write_series(&record)?)
}
