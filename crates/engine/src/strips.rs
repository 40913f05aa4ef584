//! Joins the strips of each committed image to one chunk, in a buffer that sinks may hold, and hands the image on. The
//! slot in the ring of strips is free then.

use crate::control::Control;
use crate::hand_over::HandOver;
use crate::image_pool::ImagePool;
use crate::results;
use konkordia_core::image::{CommittedImage, ImageHead, ImageTimes, TileRecord};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::plan::{Plan, STRIPS_MAX};
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::DetectorKind;
use konkordia_kernels::codec::Framing;
use konkordia_memory::ring::{ImageReader, ImageView};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it is tried again while sinks hold all images.
const GRAIN: Duration = Duration::from_micros(500);

/// Hands on images until the end of the run; if the run has failed, only those that are committed.
pub(crate) fn run(control: &Control, plan: &Plan, mut reader: ImageReader, mut pool: ImagePool, hand_over: &mut HandOver) {
    let output_queues = Arc::clone(hand_over.output_queues());
    let mut framing = Framing::new(plan.compression, plan.image_bytes());
    while reader.next() < control.images_end.load(Ordering::Acquire) {
        let has_failed = control.has_failed();
        if !reader.wait(if has_failed { Duration::ZERO } else { Duration::from_millis(50) }) {
            if has_failed {
                break;
            }
            continue;
        }
        let image = loop {
            // A preview may hold images, but nobody waits for it.
            if let Some(image) = take(&mut reader, &mut pool, plan, &mut framing) {
                break image;
            }
            if !output_queues.preview().is_some_and(|preview| preview.give_back()) {
                let began = Instant::now();
                std::thread::sleep(GRAIN);
                let waited = began.elapsed();
                control.pool_waited_ns.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
                output_queues.note_wait(waited);
            }
        };
        hand_over.lend(image);
        output_queues.flush();
    }
}

/// Takes the next image out of the ring; `None` if there is no free image for it.
fn take(reader: &mut ImageReader, pool: &mut ImagePool, plan: &Plan, framing: &mut Framing) -> Option<Arc<CommittedImage>> {
    let mut free = pool.free()?;
    reader.take(|view| {
        if view.head.status.has_pixels() {
            let (mut strips, mut parts): ([&[u8]; STRIPS_MAX], [&[u8]; STRIPS_MAX + 2]) = ([&[]; _], [&[]; _]);
            let count = view.strips();
            strips[..count].iter_mut().enumerate().for_each(|(n, strip)| *strip = view.strip(n));
            let count = framing.join(&strips[..count], &mut parts);
            parts[..count].iter().for_each(|part| free.append(part));
        }
        // All strips of an image have a snapshot, or none.
        if view.snapshot(0).is_some() {
            free.set_pedestals((0..view.strips()).filter_map(|strip| view.snapshot(strip)));
        }
        describe(free.image(), view, plan);
        free.image().results.clear();
        if view.head.status.has_pixels() && plan.has_pixel_results() {
            let strips = (0..view.strips()).map(|strip| numbers(view, strip));
            results::fill(plan, strips, free.image().results.fill());
        }
    });
    Some(free.finish())
}

/// What the worker left with a strip.
fn numbers<const N: usize>(view: &ImageView<'_>, strip: usize) -> [u64; N] {
    let mut numbers = view.numbers(strip);
    std::array::from_fn(|_| numbers.next().expect("the ring has as many numbers as the workers leave"))
}

fn describe(image: &mut CommittedImage, view: &ImageView<'_>, plan: &Plan) {
    let ImageHead { status, first_frame, frames, frames_complete } = *view.head;
    (image.number, image.frame, image.status) = (view.image, view.image, status);
    image.received_ns = TileRecord::first_received_ns(view.records).unwrap_or(0);
    (image.times, image.missing_parts) = (None, 0);
    let Some(packets) = &mut image.packets else { return };
    (packets.first_frame, packets.frames, packets.frames_complete) = (first_frame, frames, frames_complete);
    if status == ImageStatus::Discarded && plan.missing == MissingPolicy::CompleteOnly {
        packets.tiles.fill(TileRecord::default());
    } else {
        packets.tiles.copy_from_slice(view.records);
    }
    let format = plan.geometry.format();
    let header = packets.header().filter(|_| status.has_pixels() && format.kind == DetectorKind::Jungfrau);
    image.times = header.map(SlsHeader::from).map(|header| {
        let (start_ns, real_ns) = (header.timestamp_100ns.saturating_mul(100), u64::from(header.exposure_length) * 100);
        ImageTimes { start_ns, stop_ns: start_ns.saturating_add(real_ns), real_ns }
    });
}

#[cfg(test)]
#[path = "strips_tests.rs"]
mod tests;
