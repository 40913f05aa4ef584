//! Makes the plan of a run from the configuration, with every limit of its memory.

use super::model::{CalibrationFiles, Config};
use super::spool::Spool;
use konkordia_core::affinity::{Affinity, Cpus, cpus_text};
use konkordia_core::backend::{Backend, Receive};
use konkordia_core::geometry::{Orientation, Placement};
use konkordia_core::plan::{AnalysisPlan, BlockSize, FirstFrame, GpuPlan, Plan, Recipe};
use konkordia_core::text;
use konkordia_core::tile::{RemotePages, TileFormat};
use serde_json::{Value, json};

/// Fewest and most images of the ring.
const SLOTS: (u64, u64) = (16, 4096);

/// The plan of this configuration. It cannot fail, because [`Config::parse`] has reported every error. Which processors
/// `auto` stands for depends on the machine and is left open.
pub fn plan(config: &Config) -> Plan {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let streams = config.geometry.placements().len();
    let mut processing = config.options.processing;
    processing.selection.images_max = config.images;
    let mut plan = Plan {
        geometry: config.geometry.clone(),
        recipe: config.recipe,
        pixel: config.pixel,
        compression: config.compression,
        processing,
        frames: config.images.and_then(|images| processing.selection.frames_for(images)),
        first_frame: config.first_frame,
        missing: config.missing,
        // The memory of one slot is computed for as many as there are at least.
        slots: SLOTS.0,
        packed_slots: SLOTS.0,
        lossless_source: false,
        analysis: AnalysisPlan::default(),
        // Packet rings and AF_XDP lend their own memory.
        fills_slots: matches!(config.receive, Receive::Auto | Receive::Only(Backend::Socket)),
        window_images: 1,
        deadline_ns: config.deadline_ns,
        stall_timeout_ns: config.stall_timeout_ns,
        start_timeout_ns: config.start_timeout_ns,
        workers: workers(config, processors, streams),
        gpu: config.gpu,
        affinity: Affinity {
            receivers: Affinity::one_each(config.pin_streams.named()),
            workers: Affinity::one_each(config.pin_workers.named()),
            priority: config.priority,
            reserved_pages: config.reserved_pages,
            ..Affinity::default()
        },
        setup: config.setup.clone(),
    };
    let ring: u64 = plan.memory().iter().filter(|item| item.what.starts_with("ring")).map(|item| item.bytes).sum();
    let slot_bytes = (ring / plan.slots).max(1);
    plan.slots = (config.buffer_bytes / slot_bytes).clamp(SLOTS.0, SLOTS.1);
    plan.packed_slots = plan.slots;
    plan.window_images = config.window_images.min(plan.slots / 2);
    plan
}

/// Worker threads: those of the GPU, and of the processor if not all is done by the GPU.
fn workers(config: &Config, processors: usize, streams: usize) -> usize {
    let of_processor = || config.workers.unwrap_or_else(|| workers_for(processors, streams));
    config.gpu.map_or_else(of_processor, |gpu| gpu.workers + if gpu.share_percent < 100 { of_processor() } else { 0 })
}

/// Workers where the configuration names no number: one for each processor that receives nothing. At least two where
/// there are two processors: a single worker waits for the one processor on which it runs, also while another is free.
fn workers_for(processors: usize, streams: usize) -> usize {
    processors.saturating_sub(streams).max(2).min(processors)
}

/// The plan in words, with the sum of its memory.
pub fn describe(config: &Config, plan: &Plan) -> String {
    let (g, format) = (&plan.geometry, plan.geometry.format());
    let streams = plan.streams();
    let mut rows = vec![
        (
            "detector",
            format!(
                "{} {} module(s), {} stream(s) of {} x {} pixels, {} bit",
                config.modules,
                format.kind.name(),
                streams,
                format.rows,
                format.columns,
                format.bits
            ),
        ),
        ("packets", format!("{} per image, each {} bytes", text::count(plan.packets_per_image()), format.datagram_bytes())),
        ("ports", config.listens_at()),
        (
            "image",
            format!(
                "{} x {} pixels (rows x columns), {} {}, {}",
                g.rows(),
                g.columns(),
                plan.pixel,
                unit(config),
                plan.compression.words()
            ),
        ),
        ("tiles", tiles(plan)),
        ("images", plan.images().map_or("until stopped".into(), text::count)),
        ("first frame", first_frame(plan.first_frame)),
        ("file", config.directory.join(format!("{}_master.h5", config.prefix)).display().to_string()),
        ("threads", format!("{streams} stream(s), {} worker(s){}", plan.workers, gpu(plan))),
        ("ring", format!("{} images, window {} images", plan.slots, plan.window_images)),
    ];
    if let Some(pages) = format.remote {
        let numbers = match streams {
            1 => format!("queue pair {}", pages.queue_pair),
            _ => format!("queue pairs {} to {}", pages.queue_pair, pages.queue_pair + streams as u32 - 1),
        };
        let RemotePages { key, address, pages, .. } = pages;
        let size = text::count(format.page_bytes());
        rows.push((
            "to be written",
            format!("{numbers}, key {key}, from address {address:#x} on: {pages} pages of {size} bytes"),
        ));
    }
    rows.extend(config.spool.as_ref().map(|spool| ("spool", spool.to_text())));
    rows.extend(plan.affinity.to_text().map(|text| ("placement", text)));
    let memory = plan.memory();
    rows.push(("memory", text::bytes(memory.iter().map(|m| m.bytes).sum())));
    let mut lines: Vec<String> = rows.into_iter().map(|(name, value)| format!("  {name:<12} {value}")).collect();
    lines.extend(memory.iter().map(|m| format!("  {:<12} {:>10}  {}", "", text::bytes(m.bytes), m.what)));
    lines.join("\n")
}

/// What a GPU does, in words.
fn gpu(plan: &Plan) -> String {
    let words = |gpu: GpuPlan| {
        let part = if gpu.share_percent < 100 { format!("{} % of ", gpu.share_percent) } else { String::new() };
        format!(", {} of them for GPU {}, which makes {part}every image", gpu.workers, gpu.ordinal)
    };
    plan.gpu.map_or(String::new(), words)
}

/// Orientation of the tiles, double pixels and partial readout, in words.
fn tiles(plan: &Plan) -> String {
    let g = &plan.geometry;
    let is_upright = |p: &&Placement| p.orientation == Orientation::UPRIGHT;
    let turned = g.placements().len() - g.placements().iter().filter(is_upright).count();
    let lie =
        if turned == 0 { "all upright".to_string() } else { format!("{turned} of {} flipped or turned", g.placements().len()) };
    let rows = if g.format().is_partial() {
        format!("; partial readout of {} rows of a module", g.format().module_rows())
    } else {
        String::new()
    };
    format!("{lie}; double pixels: {}{rows}", g.double_pixels().name())
}

fn first_frame(first: FirstFrame) -> String {
    match first {
        FirstFrame::Auto => "the first frame of which several packets arrive".into(),
        FirstFrame::Number(n) => n.to_string(),
    }
}

/// Unit of the pixels, as the file names it. A pixel counts steps of this unit ([`super::processing::Step`]).
pub fn unit(config: &Config) -> &'static str {
    match config.recipe {
        Recipe::JungfrauPhotons => config.options.step.unit(),
        Recipe::Counts => "count",
        Recipe::Raw => "ADU",
    }
}

/// On which processors each thread that receives or works may run, and where memory is; `null` = the kernel decides.
fn placement(plan: &Plan) -> Value {
    let affinity = &plan.affinity;
    let on = |name: &str, list: &[Cpus], n: usize| (format!("{name}-{n}"), json!(Affinity::nth(list, n).map(cpus_text)));
    let receivers = (0..plan.streams()).map(|n| on("rx", &affinity.receivers, n));
    let workers = (0..plan.workers).map(|n| on("work", &affinity.workers, n));
    json!({
        "threads": receivers.chain(workers).collect::<serde_json::Map<_, _>>(), "memory_node": affinity.memory_node,
        "priority": affinity.priority.to_string(), "reserved_pages": affinity.reserved_pages, "why": affinity.why,
    })
}

/// What a detector that writes by RDMA has to know; null for others. Each stream has the next queue pair.
pub fn remote(format: &TileFormat) -> Value {
    format.remote.map_or(Value::Null, |pages| {
        json!({
            "queue_pair": pages.queue_pair, "key": pages.key, "address": pages.address, "pages": pages.pages,
            "page_bytes": format.page_bytes(), "path_mtu": format.payload_bytes,
        })
    })
}

/// The plan as JSON.
pub fn to_json(config: &Config, plan: &Plan) -> Value {
    let (g, format) = (&plan.geometry, plan.geometry.format());
    let memory: serde_json::Map<String, Value> = plan.memory().iter().map(|m| (m.what.to_string(), json!(m.bytes))).collect();
    json!({
        "detector": format.kind.name(), "modules": config.modules, "streams": plan.streams(), "bits": format.bits,
        "packets_per_image": plan.packets_per_image(), "address": config.address.to_string(), "first_port": config.first_port, "memory": remote(format),
        "image_rows": g.rows(), "image_columns": g.columns(), "double_pixels": g.double_pixels().name(), "dtype": plan.pixel.name(), "unit": unit(config),
        "compression": plan.compression.name(), "compression_level": plan.compression.level(), "compression_block_bytes": plan.compression.block().map(BlockSize::bytes),
        "images": plan.images(), "frames_per_image": config.options.processing.selection.sum_frames, "images_per_file": config.images_per_file, "slots": plan.slots, "window_images": plan.window_images, "workers": plan.workers, "gpu": plan.gpu.map(|gpu| json!({ "number": gpu.ordinal, "workers": gpu.workers, "share_percent": gpu.share_percent })),
        "placement": placement(plan),
        "master": config.directory.join(format!("{}_master.h5", config.prefix)),
        "calibration": config.calibration.as_ref().map(CalibrationFiles::to_json),
        "spool": config.spool.as_ref().map(Spool::to_json), "memory_bytes": memory, "memory_bytes_total": plan.memory().iter().map(|m| m.bytes).sum::<u64>(),
    })
}
