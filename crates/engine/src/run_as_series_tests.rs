//! Whatever compression a run uses, a stream gets pixels in a form that it can name.

use super::*;
use crate::output_queue::{Item, OnFull, OutputQueueSpec, Service};
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{FirstFrame, Processing, Recipe};
use konkordia_core::ports::{FrameHeader, ImageHead, TileRecord};
use konkordia_core::tile::TileFormat;
use konkordia_kernels::codec::{Packer, piece_bound};
use konkordia_kernels::transform::{UnpackScratch, unpack};
use std::time::Duration;

fn plan(compression: Compression) -> Plan {
    Plan {
        geometry: ImageGeometry::stacked(TileFormat::eiger(16).unwrap(), 2).unwrap(),
        recipe: Recipe::Counts,
        pixel: PixelType::Uint16,
        compression,
        processing: Processing::default(),
        frames: Some(9),
        first_frame: FirstFrame::Auto,
        missing: MissingPolicy::Keep,
        slots: 8,
        packed_slots: 8,
        lossless_source: false,
        window_images: 1,
        deadline_ns: 1,
        stall_timeout_ns: 1,
        start_timeout_ns: 1,
        workers: 1,
        pin_receivers: vec![],
        pin_workers: vec![],
        setup: konkordia_core::setup::SetupRules::default(),
    }
}

/// The strips that the workers of a run make.
fn strips(plan: &Plan, image: &[u8]) -> Vec<Vec<u8>> {
    let (block, codec) = (plan.compression.block_bytes(), plan.compression);
    let strip_bytes = plan.blocks_per_strip() * block;
    let piece = if codec.is_by_strip() { strip_bytes } else { block };
    let mut packer = Packer::new(codec, Isa::detect(), piece);
    let mut out = vec![0; piece_bound(codec, piece)];
    let strip = |strip: &[u8]| {
        let pieces = strip.chunks(piece).flat_map(|piece| {
            let written = packer.pack_bytes(ElementSize::Two, piece, &mut out);
            out[..written].to_vec()
        });
        pieces.collect()
    };
    image.chunks(strip_bytes).map(strip).collect()
}

#[test]
fn images_of_every_compression_reach_a_stream_with_their_pixels() {
    let all = [
        Compression::None,
        Compression::Bslz4,
        Compression::Bszstd { level: 1 },
        Compression::Lz4,
        Compression::Zstd { level: 1 },
        Compression::Gzip { level: 1 },
    ];
    for compression in all {
        let plan = plan(compression);
        let output_queues = Arc::new(OutputQueues::new(None));
        let service = Service::Reliable { on_full: OnFull::Skip };
        let mut reader = output_queues.add(OutputQueueSpec { name: "s".into(), service, queue_images: 9, queue_bytes: u64::MAX });
        let start = SeriesStart { series: 7, ..SeriesStart::default() };
        let mut series = RunAsSeries::new(&plan, Isa::detect(), start, Arc::clone(&output_queues), || true);
        let image: Vec<u8> = (0..plan.image_bytes() / 2).flat_map(|n| ((n * n / 5) as u16).to_le_bytes()).collect();
        let strips = strips(&plan, &image);
        let strips: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
        let whole = TileRecord { packets: plan.geometry.format().packets() as u16, ..TileRecord::default() };
        let tiles = [whole, TileRecord { packets: 1, header: FrameHeader::default(), ..whole }];
        let head = |status| ImageHead { status, first_frame: 0, frames: 1, frames_complete: 0 };
        let lost = CommittedImage { image: 0, head: head(ImageStatus::Lost), tiles: &tiles, strips: &[], pedestals: &[] };
        let partial = CommittedImage { image: 1, head: head(ImageStatus::Partial), strips: &strips, ..lost };
        series.write(&lost).unwrap();
        series.write(&partial).unwrap();
        let mut items = Vec::new();
        assert!(reader.take(Duration::ZERO, &mut items));
        let [Item::Start(start), Item::Image(lost), Item::Image(partial)] = &items[..] else { panic!("{items:?}") };
        assert_eq!((start.series, start.images_planned, start.element), (7, Some(9), Some(Element::Uint16)));
        assert!(lost.channels.is_empty() && lost.status == ImageStatus::Lost);
        let array = &partial.channels[0].array;
        assert_eq!((partial.missing_parts, array.shape.dimensions()), (0b10, &start.image_size.unwrap()[..]));
        let mut out = vec![0; image.len()];
        let mut scratch = UnpackScratch::new(Isa::detect());
        unpack::array(array.packing, array.element, &array.pieces[0], &mut out, &mut scratch).unwrap();
        assert!(out == image, "{compression:?}");
        assert_eq!(array.packing == Packing::None, matches!(compression.name(), "none" | "zstd" | "gzip"));
        drop(reader);
        assert!(output_queues.list().is_empty());
    }
}
