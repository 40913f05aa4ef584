//! Series of known content.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, CommittedImage, ImageTimes};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::Sink;
use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart, UpstreamLedger};
use konkordia_sinks::hdf5::{FileSink, FileSpec, Overwrite, SeriesFileSpec};

use super::{bslz4, literals};

pub const STORED: [Element; 10] = [
    Element::Uint8,
    Element::Uint16,
    Element::Uint32,
    Element::Uint64,
    Element::Int8,
    Element::Int16,
    Element::Int32,
    Element::Int64,
    Element::Float32,
    Element::Float64,
];

/// Value of a pixel: differs in every image, place and channel.
pub fn number(image: u64, channel: u64, at: u64) -> u64 {
    (image * 31 + channel * 57 + at * 3) % 101
}

/// Pixels that differ in every image, place and channel.
pub fn pixels(element: Element, shape: &[u64], image: u64, channel: u64) -> Vec<u8> {
    let pixel = element.pixel().unwrap();
    (0..shape.iter().product::<u64>()).flat_map(|at| pixel.le_bytes(number(image, channel, at) as f64)).collect()
}

pub fn array(element: Element, shape: &[u64], pieces: usize, packing: Packing, raw: &[u8]) -> Array {
    let element_bytes = element.bits() as usize / 8;
    let pack = |piece: &[u8]| match packing {
        Packing::None => Bytes::copy_from_slice(piece),
        Packing::Lz4Block => {
            let mut block = Vec::new();
            literals(piece, &mut block);
            Bytes::from(block.split_off(4))
        }
        _ => Bytes::from(bslz4(piece, element_bytes)),
    };
    let pieces = raw.chunks(raw.len() / pieces).map(pack).collect();
    Array { shape: Shape::new(shape).unwrap(), element, packing, pieces }
}

pub struct Kind {
    pub element: Element,
    pub shape: Vec<u64>,
    pub channels: u64,
    pub pieces: usize,
    pub packing: Packing,
}

impl Kind {
    pub fn raw(&self, number: u64) -> Vec<u8> {
        (0..self.channels).flat_map(|channel| pixels(self.element, &self.shape, number, channel)).collect()
    }

    pub fn image(&self, number: u64) -> Arc<CommittedImage> {
        let channel = |n| Channel {
            name: format!("threshold_{}", n + 1).into(),
            array: array(self.element, &self.shape, self.pieces, self.packing, &pixels(self.element, &self.shape, number, n)),
        };
        Arc::new(CommittedImage {
            status: ImageStatus::Complete,
            channels: (0..self.channels).map(channel).collect(),
            times: Some(ImageTimes { start_ns: number * 1000, stop_ns: number * 1000 + 900, real_ns: 900 }),
            ..CommittedImage::lost(number)
        })
    }
}

pub fn file_sink(directory: &Path, prefix: &str, images_per_file: u32) -> FileSink {
    let (directory, prefix) = (directory.to_owned(), prefix.to_owned());
    FileSink::of_series(Box::new(move |start| {
        let (directory, prefix, overwrite) = (directory.clone(), prefix.clone(), Overwrite::Replace);
        let file = FileSpec { directory, prefix, images_per_file, overwrite, ..FileSpec::default() };
        let clock: Option<fn() -> String> = Some(|| "2026-11-21T12:00:09Z".into());
        let spec = SeriesFileSpec { file, clock, ..SeriesFileSpec::default() };
        Ok((start.filename.as_deref() != Some("")).then(|| spec.into()))
    }))
}

pub fn end_of(images: &[Arc<CommittedImage>]) -> Arc<SeriesEnd> {
    let placed = images.iter().filter(|image| image.status == ImageStatus::Complete).count() as u64;
    let upstream = UpstreamLedger { received: placed + 2, placed, control: 2, ..UpstreamLedger::default() };
    let mut ledger = SeriesLedger { upstreams: vec![upstream], parts_per_image: 1, ..SeriesLedger::default() };
    images.iter().for_each(|image| ledger.enter(image));
    Arc::new(SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger })
}

pub fn write(sink: &mut dyn Sink, start: SeriesStart, images: &[Arc<CommittedImage>]) {
    sink.start(&Arc::new(start)).unwrap();
    for image in images {
        sink.image(image).unwrap();
        sink.tick(image.number * 150_000_000).unwrap();
    }
    sink.end(&end_of(images)).unwrap();
}

pub fn start() -> SeriesStart {
    SeriesStart { store: true, series: 7, ..SeriesStart::default() }
}

/// Position 3 is lost, 5 is not to be stored.
pub fn images(kind: &Kind) -> Vec<Arc<CommittedImage>> {
    let image = |number| match number {
        3 => Arc::new(CommittedImage::lost(3)),
        5 => Arc::new(CommittedImage { store: false, ..(*kind.image(5)).clone() }),
        _ => kind.image(number),
    };
    (0..10).map(image).collect()
}
