//! `konkordia bench gpu`: copies to and from a GPU, how long a batch takes from its submission to its end, and batches
//! a second, in every way to launch. Every image that comes back is compared with that of the processor, which does the
//! same work on one core as the baseline. Without a GPU the bench says why, and has no rows.

use super::args::BenchGpuArgs;
use super::output::Output;
use crate::console::Progress;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::frame_header::FrameHeader;
use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_gpu::device::cuda::Cuda;
use konkordia_gpu::device::{Device, DeviceError, Number};
use konkordia_gpu::measure::{self, Transfer, Way};
use konkordia_gpu::pipeline::{
    Above, Batch, Calibration, LaunchBy, Outcome, Output as Returned, Pipeline, Received, Spec, Tables,
};
use konkordia_kernels::{Constants, ElementSize, Isa, above, codec, convert};
use konkordia_memory::ring::{RawFrames, Ring, RingSpec};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Rows and columns of images: a module, four megapixels, and the size of Ponsard et al. 2020.
const SIZES: [(&str, u32, u32); 3] = [("500K", 512, 1024), ("4M", 4096, 1024), ("2070 x 2167", 2167, 2070)];
/// Photons above which a pixel counts.
const LEVEL: i16 = 2;
/// Different frames.
const FRAMES: usize = 4;

/// Ways to launch, and whether the device reads frames from a ring, as it does in runs.
const WAYS: [(LaunchBy, bool); 5] = [
    (LaunchBy::Plain, false),
    (LaunchBy::Plain, true),
    (LaunchBy::WaitValue, false),
    (LaunchBy::Graph, false),
    (LaunchBy::Persistent, false),
];

fn way_name((launch, reads_ring): (LaunchBy, bool)) -> String {
    format!("{}{}", launch.name(), if reads_ring { " from the ring" } else { "" })
}

/// What a row of the pipeline gives.
struct Row {
    size: &'static str,
    way: (LaunchBy, bool),
    output: &'static str,
    images_per_s: f64,
    words_gb_per_s: f64,
    /// Median and 99th percentile, from the submission of a batch to its end.
    latency_us: [f64; 2],
}

/// The baseline: one core.
struct Core {
    size: &'static str,
    output: &'static str,
    images_per_s: f64,
}

/// Frames, constants, and what the processor makes of them.
struct Scene {
    rows: u32,
    columns: u32,
    words: Vec<Vec<u16>>,
    pedestal: Vec<f32>,
    factor: Vec<f32>,
    calibration: Calibration<'static>,
    usable: Vec<u8>,
    may_count: Vec<bool>,
    images: Vec<Vec<i16>>,
    chunks: Vec<Vec<u8>>,
    counts: Vec<u32>,
    /// An image with fewer pixels above the level is rejected: half of them.
    least: u32,
    /// The frames as a receiver of one tile leaves them.
    ring: Ring,
    received: RawFrames,
    source: Vec<u32>,
}

/// All that was measured.
#[derive(Default)]
struct Found {
    device: String,
    transfers: Vec<Transfer>,
    rows: Vec<Row>,
    cores: Vec<Core>,
    wrong: u64,
    /// Rows that the device did not do, and why.
    failed: Vec<(String, DeviceError)>,
}

/// `konkordia bench gpu`
pub fn command(args: &BenchGpuArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "gpu")?;
    let mut progress = Progress::new(args.output.json);
    let found = measured(args, &mut progress);
    progress.end();
    let facts = machine::facts();
    let found = match found {
        Ok(found) => found,
        Err(why) => {
            let report = json!({
                "bench": "gpu", "machine": facts, "device": null, "cause": format!("{:?}", why.cause), "why": why.to_string(),
                "rows": [], "verified": null,
            });
            output.print(report, &format!("bench gpu: nothing was measured: {why}"));
            return Ok(Exit::Complete);
        }
    };
    let verified = found.wrong == 0;
    let report = json!({
        "bench": "gpu", "machine": facts, "device": found.device, "frames": args.frames,
        "transfers": found.transfers.iter().map(transfer_json).collect::<Vec<_>>(),
        "rows": found.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        "baseline": found.cores.iter().map(|core| json!({
            "size": core.size, "output": core.output, "images_per_second": core.images_per_s,
        })).collect::<Vec<_>>(),
        "failed": found.failed.iter().map(|(row, why)| json!({ "row": row, "why": why.to_string() })).collect::<Vec<_>>(),
        "wrong_images": found.wrong, "verified": verified,
    });
    output.print(report, &found.to_text());
    let exit = if found.failed.is_empty() { Exit::Complete } else { Exit::Incomplete };
    Ok(if verified { exit } else { Exit::Bug })
}

fn measured(args: &BenchGpuArgs, progress: &mut Progress) -> Result<Found, DeviceError> {
    let mut device = Cuda::open(args.device)?;
    let mut found = Found { device: device.name().to_owned(), ..Found::default() };
    let (copies, rounds) = if args.quick { (1, 1) } else { (20, 9) };
    let sizes: Vec<usize> = (12..=if args.quick { 16 } else { 26 }).step_by(2).map(|bits| 1 << bits).collect();
    progress.update(|| "copies".into());
    let (transfers, is_equal) = measure::transfers(&mut device, &sizes, copies, rounds)?;
    found.transfers = transfers;
    found.wrong += u64::from(!is_equal);
    drop(device);
    for (size, rows, columns) in SIZES {
        let scene = if args.quick { Scene::new(8, 64) } else { Scene::new(rows, columns) };
        for (name, output) in [("pixels", Returned::Pixels), ("chunks", Returned::Chunks)] {
            found.cores.push(Core { size, output: name, images_per_s: scene.on_one_core(output, span(args)) });
            for way in WAYS {
                progress.update(|| format!("{size}, {name}, {}", way_name(way)));
                match pipeline_row(args, &scene, size, (name, output), way) {
                    Ok((row, wrong)) => {
                        found.rows.push(row);
                        found.wrong += wrong;
                    }
                    Err(why) => found.failed.push((format!("{size}, {name}, {}", way_name(way)), why)),
                }
            }
        }
    }
    Ok(found)
}

fn span(args: &BenchGpuArgs) -> Duration {
    Duration::from_secs_f64(if args.quick { 0.001 } else { args.seconds.clamp(0.01, 3600.0) })
}

fn pipeline_row(
    args: &BenchGpuArgs,
    scene: &Scene,
    size: &'static str,
    (name, output): (&'static str, Returned),
    way: (LaunchBy, bool),
) -> Result<(Row, u64), DeviceError> {
    let device = Cuda::open(args.device)?;
    let mut pipeline = Pipeline::arm(device, scene.spec(args.frames, output, way.0), &scene.tables(way.1))?;
    if let Some(why) = pipeline.not_taken() {
        return Err(why.clone());
    }
    let frames = u64::from(args.frames);
    let mut wrong = 0;
    let mut fill = |number: u64, given: &mut [u8]| scene.fill(way.1, number * frames, given);
    let mut done = |batch: &Batch<'_>| {
        let images = (batch.number * frames..).zip(0..batch.frames);
        wrong += images.filter(|(image, n)| !scene.is_right(*image, &batch.outcome(*n))).count() as u64;
    };
    let count = if args.quick { 5 } else { 200 };
    let times = measure::latencies(&mut pipeline, count, &mut fill, &mut done)?;
    let timed = measure::throughput(&mut pipeline, span(args), 10, &mut fill, &mut done)?;
    pipeline.close();
    let us = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let images_per_s = (timed.batches * frames) as f64 / timed.elapsed.as_secs_f64().max(1e-9);
    let words_gb_per_s = images_per_s * scene.words[0].len() as f64 * 2e-9;
    Ok((Row { size, way, output: name, images_per_s, words_gb_per_s, latency_us: [us(0.5), us(0.99)] }, wrong))
}

/// Frames in a ring, each in one packet.
fn received(frames: &[Vec<u16>]) -> Ring {
    let bytes = size_of_val(&frames[0][..]);
    let spec = RingSpec {
        slots: frames.len() as u64,
        packed_slots: 1,
        tiles: 1,
        tile_bytes: bytes,
        sections: 1,
        payload_bytes: bytes,
        strip_bytes_max: vec![64],
        strip_numbers: 0,
        shares: vec![1],
        frame_readers: 0,
        snapshot: None,
        reserved_pages: false,
    };
    let mut ring = Ring::new(spec).expect("memory for four frames");
    for (n, words) in (0..).zip(frames) {
        let receiver = &mut ring.receivers[0];
        assert!(receiver.claim(n), "there is a slot for each frame");
        receiver.open(n, FrameHeader::default());
        receiver.place(n, 0, bytemuck::cast_slice(words));
        receiver.seal_below(n + 1);
    }
    ring
}

impl Scene {
    /// Frames with a few photons; each has more than the one before it.
    fn new(rows: u32, columns: u32) -> Self {
        let pixels = (rows * columns) as usize;
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % end
        };
        let mut plane = |low: f32, width: u64| (0..pixels).map(|_| low + below(width) as f32).collect::<Vec<f32>>();
        let pedestal = [plane(2800.0, 300), plane(14_800.0, 200), plane(14_300.0, 200)].concat();
        let factor: Vec<f32> = [0.024, -0.75, -9.0].into_iter().flat_map(|factor| std::iter::repeat_n(factor, pixels)).collect();
        let photons =
            |below: &mut dyn FnMut(u64) -> u64, n: usize| if below(400) < 4 * (n as u64 + 1) { 41 * below(12) } else { 0 };
        let words: Vec<Vec<u16>> = (0..FRAMES)
            .map(|n| pedestal[..pixels].iter().map(|p| (*p as u64 + below(20) + photons(&mut below, n)) as u16).collect())
            .collect();
        let ring = received(&words);
        let mut new = Self {
            rows,
            columns,
            words,
            calibration: Calibration::Float { pedestal: pedestal.clone().into(), factor: factor.clone().into() },
            pedestal,
            factor,
            usable: vec![1; pixels],
            may_count: vec![true; pixels],
            images: Vec::new(),
            chunks: Vec::new(),
            counts: Vec::new(),
            least: 0,
            received: ring.workers[0].raw_frames(),
            ring,
            source: (0..rows * columns).collect(),
        };
        for n in 0..FRAMES {
            let (mut image, mut chunk) = (vec![0; pixels], Vec::new());
            let count = new.work(Isa::Scalar, n, &mut image, Some(&mut chunk));
            new.images.push(image);
            new.chunks.push(chunk);
            new.counts.push(count);
        }
        new.least = new.counts[FRAMES / 2];
        new
    }

    /// The work of a frame on the processor; its pixels above the level.
    fn work(&self, isa: Isa, n: usize, image: &mut [i16], chunk: Option<&mut Vec<u8>>) -> u32 {
        let pixels = image.len();
        let (pedestal, factor) = (&self.pedestal, &self.factor);
        let constants = Constants {
            pedestal: [&pedestal[..pixels], &pedestal[pixels..2 * pixels], &pedestal[2 * pixels..]],
            factor: [&factor[..pixels], &factor[pixels..2 * pixels], &factor[2 * pixels..]],
        };
        convert::jungfrau(isa, &self.words[n], &constants, image);
        let count = above::count(isa, image, &self.may_count, LEVEL, i16::VALID_MAX) as u32;
        if let Some(chunk) = chunk {
            *chunk = codec::compress(Compression::BSLZ4, isa, ElementSize::Two, bytemuck::cast_slice(image), 1 << 17);
        }
        count
    }

    /// Images a second of one core, with the fastest instructions.
    fn on_one_core(&self, output: Returned, span: Duration) -> f64 {
        let (began, mut images, mut image) = (Instant::now(), 0, vec![0; self.words[0].len()]);
        let mut chunk = Vec::new();
        while images == 0 || began.elapsed() < span {
            let n = images % FRAMES;
            let is_kept = self.counts[n] >= self.least;
            let packs = is_kept && output == Returned::Chunks;
            std::hint::black_box(self.work(Isa::detect(), n, &mut image, packs.then_some(&mut chunk)));
            images += 1;
        }
        images as f64 / began.elapsed().as_secs_f64()
    }

    fn spec(&self, frames: u32, output: Returned, launch: LaunchBy) -> Spec {
        Spec {
            rows: self.rows,
            columns: self.columns,
            frames,
            pixel: PixelType::Int16,
            high_gain: false,
            above: Some(Above { level: Number::I16(LEVEL), high: Number::I16(i16::VALID_MAX), least: self.least }),
            output,
            // As in a run.
            stats_of: Some(1 << 16),
            launch,
            patience: Duration::from_secs(10),
            first: 0,
        }
    }

    fn tables(&self, reads_ring: bool) -> Tables<'_> {
        let received = reads_ring.then_some(Received { frames: &self.received, source: &self.source });
        Tables { calibration: &self.calibration, usable: &self.usable, received }
    }

    fn fill(&self, reads_ring: bool, first: u64, given: &mut [u8]) {
        if reads_ring {
            let begin = |n: u64| self.ring.workers[0].frame_start(n % FRAMES as u64) as u64 / 2;
            let begins: &mut [u64] = bytemuck::cast_slice_mut(given);
            return begins.iter_mut().zip(first..).for_each(|(to, n)| *to = begin(n));
        }
        let words = given;
        for (n, words) in (first..).zip(words.chunks_exact_mut(2 * self.words[0].len())) {
            words.copy_from_slice(bytemuck::cast_slice(&self.words[n as usize % FRAMES]));
        }
    }

    fn is_right(&self, image: u64, outcome: &Outcome<'_>) -> bool {
        let n = image as usize % FRAMES;
        let is_kept = self.counts[n] >= self.least;
        match outcome {
            Outcome::Rejected => !is_kept,
            Outcome::Pixels(bytes) => is_kept && *bytes == bytemuck::cast_slice::<i16, u8>(&self.images[n]),
            Outcome::Chunk(bytes) => is_kept && *bytes == self.chunks[n],
            Outcome::Sparse { .. } | Outcome::Overflow { .. } => false,
        }
    }
}

impl Row {
    fn to_json(&self) -> Value {
        json!({
            "size": self.size, "launch": self.way.0.name(), "reads_ring": self.way.1, "output": self.output,
            "images_per_second": self.images_per_s, "words_gigabytes_per_second": self.words_gb_per_s,
            "latency_us": self.latency_us[0], "latency_us_p99": self.latency_us[1],
        })
    }
}

fn way(way: Way) -> &'static str {
    match way {
        Way::In => "to the device",
        Way::Out => "to the host",
    }
}

fn transfer_gb_per_s(transfer: &Transfer) -> f64 {
    transfer.bytes as f64 / transfer.each.as_secs_f64().max(1e-9) / 1e9
}

fn transfer_json(transfer: &Transfer) -> Value {
    json!({
        "bytes": transfer.bytes, "way": way(transfer.way), "microseconds": transfer.each.as_secs_f64() * 1e6,
        "gigabytes_per_second": transfer_gb_per_s(transfer),
    })
}

impl Found {
    fn to_text(&self) -> String {
        let words = |row: [&str; 4]| row.map(str::to_string).to_vec();
        let copies = self.transfers.iter().map(|transfer| {
            let us = transfer.each.as_secs_f64() * 1e6;
            let rate = format!("{:.2}", transfer_gb_per_s(transfer));
            vec![format!("{} KiB", transfer.bytes >> 10), way(transfer.way).into(), format!("{us:.1}"), rate]
        });
        let copies = text::table(&std::iter::once(words(["copy", "way", "us", "GB/s"])).chain(copies).collect::<Vec<_>>());
        let rows = self.rows.iter().map(|row| {
            let [median, high] = row.latency_us;
            vec![
                row.size.into(),
                format!("{}, {}", row.output, way_name(row.way)),
                format!("{:.0} ({:.2} GB/s)", row.images_per_s, row.words_gb_per_s),
                format!("{median:.0} .. {high:.0}"),
            ]
        });
        let cores = self.cores.iter().map(|core| {
            let rate = format!("{:.0}", core.images_per_s);
            vec![core.size.into(), format!("{}, one core of the processor", core.output), rate, "-".into()]
        });
        let head = words(["size", "work", "images/s", "us of a batch: median .. p99"]);
        let table = text::table(&std::iter::once(head).chain(cores).chain(rows).collect::<Vec<_>>());
        let verdict =
            if self.wrong == 0 { "every image is that of the processor".into() } else { format!("WRONG: {} images", self.wrong) };
        let failed: String = self.failed.iter().map(|(row, why)| format!("\nno row for {row}: {why}")).collect();
        format!("{}\n{}\n\n{copies}\n\n{table}\n\n{verdict}{failed}", machine::line(), self.device)
    }
}
