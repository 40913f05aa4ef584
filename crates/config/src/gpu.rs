//! `[processing] workers = "gpu"` and what belongs to it.

use super::diagnostics::Diagnostics;
use super::read::Document;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{GpuPlan, Processing, Recipe};

/// What a GPU does in runs that make such images; `None` if there is none to be, or if it cannot, which is reported.
pub(super) fn read(
    document: &Document,
    d: &mut Diagnostics,
    recipe: Recipe,
    pixel: PixelType,
    processing: &Processing,
) -> Option<GpuPlan> {
    let t = document.table("processing");
    let workers = t.text("workers").unwrap_or_default();
    let with_processor = workers == "gpu+cpu";
    if !with_processor && t.has("gpu_share_percent") {
        let why = "without other workers a GPU makes all of each image, or nothing";
        let fix = "write workers = \"gpu+cpu\", or remove the line";
        d.add(t.span("gpu_share_percent"), "processing.gpu_share_percent: the workers are not \"gpu+cpu\"", why, fix);
    }
    if !workers.starts_with("gpu") {
        for key in ["gpu_number", "gpu_input"].into_iter().filter(|key| t.has(key)) {
            let fix = "write workers = \"gpu\" or \"gpu+cpu\", or remove the line";
            d.add(t.span(key), format!("processing.{key}: the workers are no GPU"), "no GPU is used", fix);
        }
        return None;
    }
    if let Err(why) = GpuPlan::check(recipe, pixel, processing) {
        let fix = "remove workers, so that the processor makes the images, or change what a GPU cannot do";
        d.add(t.span("workers"), format!("processing.workers: \"{workers}\" cannot make these images"), why, fix);
        return None;
    }
    Some(GpuPlan {
        ordinal: t.integer("gpu_number").unwrap_or(0) as u32,
        workers: GpuPlan::WORKERS,
        share_percent: if with_processor { t.integer("gpu_share_percent").unwrap_or(50) as u32 } else { 100 },
        reads_ring: t.text("gpu_input") != Some("copy"),
    })
}

/// Whole images of a stream are made by their sender.
pub(super) fn refuse_in_streams(document: &Document, d: &mut Diagnostics) {
    let t = document.table("processing");
    if let Some(workers) = t.text("workers").filter(|workers| workers.starts_with("gpu")) {
        let why = "a GPU converts words of a JUNGFRAU, and a stream has images";
        d.add(t.span("workers"), format!("processing.workers: \"{workers}\" is not for streams"), why, "remove the line");
    }
}
