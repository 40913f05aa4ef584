//! The results of an image: workers leave those of each strip in the ring, and they are put together here.

use konkordia_core::plan::Plan;
use konkordia_core::results::PIXEL_RESULTS;
use konkordia_kernels::stats::{PixelStats, STATS_NUMBERS, Wide};

const _: () = assert!(STATS_NUMBERS == PIXEL_RESULTS, "each number of the statistics is a result");

/// Numbers that workers leave with each strip.
pub(crate) fn numbers_of_strip(plan: &Plan) -> usize {
    if plan.has_pixel_results() { STATS_NUMBERS } else { 0 }
}

/// Writes the results of an image, from the numbers of its strips in their order.
pub(crate) fn fill(plan: &Plan, strips: impl Iterator<Item = [u64; STATS_NUMBERS]>, results: &mut [u64]) {
    if plan.pixel.is_float() { merge::<f64>(strips, results) } else { merge::<i64>(strips, results) }
}

fn merge<W: Wide>(strips: impl Iterator<Item = [u64; STATS_NUMBERS]>, results: &mut [u64]) {
    let mut image = PixelStats::<W>::default();
    strips.for_each(|bits| image.merge(&PixelStats::from_bits(bits)));
    // Without a valid pixel there is no lowest and no highest value.
    (image.min, image.max) = image.range().unwrap_or_default();
    results[..STATS_NUMBERS].copy_from_slice(&image.bits());
}
