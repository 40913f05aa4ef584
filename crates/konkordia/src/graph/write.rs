//! The stage that writes a file.

use super::image::{About, Image};
use super::read::kind_of;
use super::work::{Order, Report, Reports};
use crossbeam_channel::Receiver;
use konkordia_acquire::image_writer::{Beside, ImageFiles, ImageWriter, PackedImage, pack};
use konkordia_core::failure::Failure;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::Compression;
use konkordia_core::results::ResultKind;
use konkordia_graph::file::Stage;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Columns of results that no part of Konkordia makes.
const OWN_RESULTS_MAX: usize = 64;

/// Writes a file, in the order of the numbers.
pub struct FileOfImages {
    output: PathBuf,
    compression: Compression,
    writer: Option<ImageWriter>,
    /// Results of the images in the file.
    kinds: Vec<ResultKind>,
    /// Images that came before an older one: at most as many as the stage that reads keeps.
    early: BTreeMap<u64, zmq::Message>,
    /// One past the newest number that was written, or that is finished otherwise.
    next: u64,
    /// Images from the floor on that cannot be written, and why.
    refused: BTreeMap<u64, String>,
}

impl FileOfImages {
    /// The file of a stage.
    pub fn new(stage: &Stage) -> Self {
        Self {
            output: PathBuf::from(&stage.file),
            compression: stage.packing().unwrap_or(Compression::BSLZ4),
            writer: None,
            kinds: Vec::new(),
            early: BTreeMap::new(),
            next: 0,
            refused: BTreeMap::new(),
        }
    }

    /// Takes images until the end.
    pub fn write(mut self, orders: &Receiver<Order>, reports: &Reports) {
        let outcome = self.all(orders, reports);
        let broken = outcome.as_ref().err().map(|failure| failure.what.clone());
        let closed = self.writer.map_or(Ok(()), |writer| writer.close(broken));
        reports.end(outcome.and(closed));
    }

    fn all(&mut self, orders: &Receiver<Order>, reports: &Reports) -> Result<(), Failure> {
        loop {
            match orders.recv() {
                Ok(Order::Image(id, _)) if id < self.next => {
                    let known = self.refused.get(&id).map(|why| Report::Refused(id, why.clone()));
                    reports.say(known.unwrap_or(Report::Done(id)));
                }
                Ok(Order::Image(id, image)) => {
                    self.early.insert(id, image);
                    reports.say(Report::Kept(id));
                }
                Ok(Order::Floor(floor)) => {
                    self.next = self.next.max(floor);
                    self.refused = self.refused.split_off(&floor);
                }
                Ok(Order::End) | Err(_) => break,
            }
            while let Some((&first, _)) = self.early.first_key_value()
                && first <= self.next
            {
                self.next = self.next.max(first + 1);
                self.one(first, reports)?;
            }
        }
        while let Some((&first, _)) = self.early.first_key_value() {
            self.one(first, reports)?;
        }
        Ok(())
    }

    fn one(&mut self, id: u64, reports: &Reports) -> Result<(), Failure> {
        let Some(bytes) = self.early.remove(&id) else { return Ok(()) };
        match Image::decode(&bytes).and_then(|image| Ok((self.form(&image)?, image))) {
            Ok((compression, image)) => match self.append(id, compression, &image)? {
                Ok(()) => {
                    reports.say(Report::Done(id));
                }
                Err(why) => self.refuse(id, why, reports),
            },
            Err(why) => self.refuse(id, why, reports),
        }
        Ok(())
    }

    /// How the chunk of an image is packed.
    fn form(&self, image: &Image<'_>) -> Result<Compression, String> {
        Ok(image.about.compression()?.unwrap_or(self.compression))
    }

    /// Writes an image, or says why it does not fit the file.
    fn append(&mut self, id: u64, compression: Compression, image: &Image<'_>) -> Result<Result<(), String>, Failure> {
        if self.writer.is_none() {
            match self.open(compression, image) {
                Ok(open) => self.writer = Some(open?),
                Err(why) => return Ok(Err(why)),
            }
        }
        let Some(writer) = &mut self.writer else { return Ok(Ok(())) };
        let files = writer.files();
        if (files.shape, files.pixel) != (image.shape, image.pixel) {
            let (shape, pixel) = (files.shape, files.pixel);
            return Ok(Err(format!("it is {:?} {}, and the file has images of {shape:?} {pixel}", image.shape, image.pixel)));
        }
        if files.compression != compression {
            return Ok(Err("it is packed in another way than the images of the file".into()));
        }
        let results = match numbers(&self.kinds, image) {
            Ok(results) => results,
            Err(why) => return Ok(Err(why)),
        };
        let chunk = match image.about.packing {
            Some(_) => image.pixels.to_vec(),
            None => pack(compression, image.pixel, image.pixels)?,
        };
        let status = if image.about.partial { ImageStatus::Partial } else { ImageStatus::Complete };
        writer.append_packed(id, PackedImage { chunk, status, results: &results }).map(Ok)
    }

    /// Opens the file for images like this one, with what is known of them.
    fn open(&mut self, compression: Compression, image: &Image<'_>) -> Result<Result<ImageWriter, Failure>, String> {
        let known = image.about.file()?;
        let mask = image.mask()?;
        self.kinds = kinds(&image.about)?;
        let mut metadata = known.metadata;
        if !image.pixel.is_float() {
            let whole = |value: f64| value.is_finite().then_some(value);
            metadata.underload_value = metadata.underload_value.or(known.underload.and_then(whole).map(|value| value as i64));
            let most = known.saturation.and_then(whole).filter(|value| *value > 0.0);
            metadata.saturation_value = metadata.saturation_value.or(most.map(|value| value as u64));
        }
        let files = ImageFiles {
            output: self.output.clone(),
            overwrite: false,
            shape: image.shape,
            pixel: image.pixel,
            compression,
            images_per_file: 1000,
            images: None,
            mask,
            metadata,
        };
        let beside = Beside {
            results: self.kinds.clone().into(),
            notes: known.conversion,
            scale: known.scale,
            calibration_hash: known.calibration_hash,
        };
        Ok(ImageWriter::open_with(files, beside))
    }

    fn refuse(&mut self, id: u64, why: String, reports: &Reports) {
        self.refused.insert(id, why.clone());
        reports.say(Report::Refused(id, why));
    }
}

/// The kinds of the results of an image. Names that nobody knows are those of a program of a user; they stay in memory
/// as long as this process, which writes one file.
fn kinds(about: &About) -> Result<Vec<ResultKind>, String> {
    let mut own = 0;
    let kind = |(name, number, length): &(String, String, usize)| {
        if let Some(known) = kind_of(name, number, *length) {
            return Ok(known);
        }
        own += 1;
        let number = ColumnType::from_name(number).ok_or_else(|| format!("'{number}' is no type of numbers"))?;
        let (unit, meaning) = ("", "made by a program of a user");
        let name = Box::leak(name.clone().into_boxed_str());
        Ok(ResultKind { name, number, length: *length, unit, meaning, counted_by: None })
    };
    let kinds = about.results.iter().map(kind).collect::<Result<Vec<_>, String>>()?;
    let is_twice = |(nth, kind): (usize, &ResultKind)| kinds[..nth].iter().any(|other| other.name == kind.name);
    if own > OWN_RESULTS_MAX || kinds.iter().enumerate().any(is_twice) {
        return Err(format!("it has {own} results of its own or a name twice; {OWN_RESULTS_MAX} different ones are possible"));
    }
    Ok(kinds)
}

/// The numbers of an image in the order of the columns. A result that is missing is NaN or 0.
fn numbers(kinds: &[ResultKind], image: &Image<'_>) -> Result<Vec<u64>, String> {
    let results = &image.about.results;
    let is_same = |kind: &ResultKind, result: &(String, String, usize)| {
        kind.name == result.0 && kind.number.name() == result.1 && kind.length == result.2
    };
    if kinds.len() == results.len() && kinds.iter().zip(results).all(|(kind, result)| is_same(kind, result)) {
        return Ok(image.numbers.clone());
    }
    if let Some((name, ..)) = results.iter().find(|result| !kinds.iter().any(|kind| is_same(kind, result))) {
        return Err(format!("the file has no column for its result '{name}': each image must have those of the first one"));
    }
    let mut out = Vec::with_capacity(konkordia_core::results::numbers(kinds));
    for kind in kinds {
        let at = results.iter().position(|result| is_same(kind, result));
        match at {
            Some(at) => {
                let first: usize = results[..at].iter().map(|(.., length)| length).sum();
                out.extend_from_slice(&image.numbers[first..first + kind.length]);
            }
            None if kind.number == ColumnType::F64 => out.extend(std::iter::repeat_n(f64::NAN.to_bits(), kind.length)),
            None => out.extend(std::iter::repeat_n(0, kind.length)),
        }
    }
    Ok(out)
}
