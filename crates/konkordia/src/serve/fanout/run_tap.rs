//! Images of a run over UDP on their way to those who look and to streams: joined to chunks once, if anybody wants them.

use bytes::Bytes;
use konkordia_core::array::{Element, Packing, Shape};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Plan, STRIPS_MAX};
use konkordia_core::ports::{CommittedImage, Sink, SinkError};
use konkordia_core::series::{Array, Channel, ImageTimes, SeriesImage};
use konkordia_engine::outlet::Outlets;
use konkordia_kernels::bitshuffle::ElementSize;
use konkordia_kernels::codec::{self, Framing};
use konkordia_kernels::isa::Isa;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Images by state, counted as they are committed.
#[derive(Debug, Default)]
pub struct ImageCounts {
    /// Complete.
    pub complete: AtomicU64,
    /// Some packets are missing.
    pub partial: AtomicU64,
    /// No packet came.
    pub lost: AtomicU64,
    /// Left out by policy.
    pub discarded: AtomicU64,
}

impl ImageCounts {
    fn enter(&self, status: ImageStatus) {
        let counter = match status {
            ImageStatus::Complete => &self.complete,
            ImageStatus::Partial => &self.partial,
            ImageStatus::Lost => &self.lost,
            ImageStatus::Discarded => &self.discarded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Hands the images of one run to the outlets.
pub struct RunTap {
    outlets: Arc<Outlets>,
    counts: Arc<ImageCounts>,
    /// The run is being cancelled: nobody is waited for.
    give_up: Arc<AtomicBool>,
    began: Instant,
    framing: Framing,
    compression: Compression,
    shape: Option<Shape>,
    element: Element,
    image_bytes: usize,
    name: Arc<str>,
}

/// The element of these pixels.
pub const fn element_of(pixel: PixelType) -> Element {
    match pixel {
        PixelType::Uint8 => Element::Uint8,
        PixelType::Uint16 => Element::Uint16,
        PixelType::Uint32 => Element::Uint32,
        PixelType::Uint64 => Element::Uint64,
        PixelType::Int8 => Element::Int8,
        PixelType::Int16 => Element::Int16,
        PixelType::Int32 => Element::Int32,
        PixelType::Int64 => Element::Int64,
        PixelType::Float32 => Element::Float32,
        PixelType::Float64 => Element::Float64,
    }
}

impl RunTap {
    /// For the images of `plan`. `began` is the zero of their times.
    pub fn new(plan: &Plan, outlets: Arc<Outlets>, counts: Arc<ImageCounts>, give_up: Arc<AtomicBool>, began: Instant) -> Self {
        let (rows, columns) = (u64::from(plan.geometry.rows()), u64::from(plan.geometry.columns()));
        Self {
            outlets,
            counts,
            give_up,
            began,
            framing: Framing::new(plan.compression, plan.image_bytes()),
            compression: plan.compression,
            shape: Shape::new(&[rows, columns]),
            element: element_of(plan.pixel),
            image_bytes: plan.image_bytes(),
            name: "".into(),
        }
    }

    /// The chunk as streams can carry it: one of their packings, or plain.
    fn pixels(&mut self, strips: &[&[u8]]) -> Result<(Packing, Bytes), SinkError> {
        let mut parts: [&[u8]; STRIPS_MAX + 2] = [&[]; STRIPS_MAX + 2];
        let count = self.framing.join(strips, &mut parts);
        let chunk = parts[..count].concat();
        let packing = match self.compression {
            Compression::None => Packing::None,
            Compression::Bslz4 => Packing::BitshuffleLz4,
            Compression::Bszstd { .. } => Packing::BitshuffleZstd,
            Compression::Lz4 => Packing::Lz4,
            Compression::Zstd { .. } | Compression::Gzip { .. } | Compression::Sz3 { .. } => {
                let element = match self.element.bits() {
                    8 => ElementSize::One,
                    16 => ElementSize::Two,
                    32 => ElementSize::Four,
                    _ => ElementSize::Eight,
                };
                let mut plain = vec![0; self.image_bytes];
                codec::decompress(self.compression, Isa::detect(), &chunk, element, &mut plain).map_err(|error| SinkError {
                    what: "an image that was just packed cannot be unpacked for the ring of the newest images".into(),
                    why: error.to_string(),
                    fix: "please report this: it is a mistake in konkordia".into(),
                })?;
                return Ok((Packing::None, plain.into()));
            }
        };
        Ok((packing, chunk.into()))
    }

    fn image(&mut self, image: &CommittedImage<'_>) -> Result<SeriesImage, SinkError> {
        let number = image.image;
        let lost = SeriesImage { status: image.head.status, ..SeriesImage::lost(number) };
        let Some(shape) = self.shape.filter(|_| !image.strips.is_empty()) else { return Ok(lost) };
        let (packing, piece) = self.pixels(image.strips)?;
        let array = Array { shape, element: self.element, packing, pieces: vec![piece] };
        let header = image.tiles.iter().find(|t| t.packets > 0).map(|t| t.header).unwrap_or_default();
        let start_ns = header.timestamp_100ns.saturating_mul(100);
        let extra = serde_json::json!({ "frame_number": header.frame_number, "status": image.head.status.name() });
        Ok(SeriesImage {
            channels: vec![Channel { name: Arc::clone(&self.name), array }],
            times: (start_ns > 0).then_some(ImageTimes { start_ns, stop_ns: 0, real_ns: 0 }),
            header_json: extra.to_string().into(),
            received_ns: self.began.elapsed().as_nanos() as u64,
            ..lost
        })
    }
}

impl Sink for RunTap {
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        self.counts.enter(image.head.status);
        if self.outlets.is_unused() {
            return Ok(());
        }
        let image = Arc::new(self.image(image)?);
        let give_up = Arc::clone(&self.give_up);
        self.outlets.image(&image, &|| give_up.load(Ordering::Acquire));
        self.outlets.flush();
        Ok(())
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SinkError> {
        Ok(())
    }
}
