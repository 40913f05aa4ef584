//! Runs with a GPU: an emulated device, whose streams go on in an order that comes from a seed, with the kernels of the
//! processor. Every conformance test of workers runs with it too (`harness.rs`); here are codecs, types, and failures.

use crate::harness::{Recording, Scene, Seen, constants, losses, run_within};
use crate::kernels::CpuExecutor;
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Orientation, Placement, Quarter};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, GpuPlan, Plan, Processing, TrackedFrames, Tracking};
use konkordia_core::process::{Arithmetic, Negative};
use konkordia_engine::run::{self, ArmError, RunOutcome, WorkerKind};
use konkordia_gpu::device::emulated::{Emulated, Fault, Nature};
use konkordia_gpu::device::{Cause, DeviceError};
use konkordia_gpu::pipelines::{AnyPipeline, ArmPipelines, Gpu, Part};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Devices of this nature, one for each pipeline, each with a seed of its own.
#[derive(Debug)]
pub struct EmulatedGpu {
    pub nature: Nature,
    /// Pinned memory that was asked for.
    pinned_bytes: AtomicUsize,
}

impl EmulatedGpu {
    pub fn new(nature: Nature) -> Self {
        Self { nature, pinned_bytes: AtomicUsize::new(0) }
    }
}

impl ArmPipelines for EmulatedGpu {
    fn arm(&self, parts: &[Part]) -> Result<Vec<Box<dyn AnyPipeline>>, DeviceError> {
        let pipeline = |(n, part): (u64, &Part)| {
            self.pinned_bytes.fetch_add(part.spec.memory_bytes().1, Ordering::Relaxed);
            let nature = Nature { seed: self.nature.seed + n, ..self.nature };
            let device = Emulated::new(CpuExecutor::new(part.spec.pixels()), nature);
            part.arm(device).map(|pipeline| Box::new(pipeline) as Box<dyn AnyPipeline>)
        };
        (0..).zip(parts).map(pipeline).collect()
    }
}

const ALL_STRIPS: GpuPlan = GpuPlan { ordinal: 0, workers: GpuPlan::WORKERS, share_percent: 100, reads_ring: true };

fn with_gpu(plan: &Plan) -> Plan {
    Plan { workers: ALL_STRIPS.workers, gpu: Some(ALL_STRIPS), ..plan.clone() }
}

fn run(recording: &Recording, plan: &Plan, nature: Nature) -> (RunOutcome, Vec<Seen>) {
    let (mut parts, collector) = recording.parts(&with_gpu(plan), &constants(recording));
    parts.workers = WorkerKind::Gpu(Arc::new(EmulatedGpu::new(nature)));
    let outcome = run_within(120, run::arm(parts).unwrap());
    (outcome, collector.take())
}

#[test]
fn chunks_and_pixels_of_every_type_and_codec_are_those_of_the_processor() {
    let recording = Scene { frames: 3, modules: 2, faults: losses(71), ..Scene::default() }.record_random();
    // With a gap, and with pixels beyond the last eight of the image.
    let turned = |row, column, rotate| Placement { row, column, orientation: Orientation { flip_rows: false, rotate } };
    let places = vec![turned(1, 0, Quarter::Deg0), turned(2, 1033, Quarter::Deg180)];
    let stacked = recording.plan();
    let apart =
        Plan { geometry: ImageGeometry::new(recording.format, places, None, DoublePixels::Keep).unwrap(), ..recording.plan() };
    assert!(!apart.geometry.pixels().is_multiple_of(8));
    let offset = Processing { negative: Negative::Offset(7), ..Processing::default() };
    for plan in [stacked, apart] {
        for pixel in [PixelType::Int16, PixelType::Uint16, PixelType::Int32, PixelType::Uint32, PixelType::Float32] {
            recording.check(&Plan { pixel, compression: Compression::BSLZ4, ..plan.clone() }, &constants(&recording));
        }
        for compression in [Compression::BSZSTD, Compression::Zstd { level: 3 }] {
            recording.check(&Plan { compression, ..plan.clone() }, &constants(&recording));
        }
        for pixel in [PixelType::Int16, PixelType::Uint16, PixelType::Int32, PixelType::Uint32] {
            in_integers(&recording, &Plan { pixel, compression: Compression::BSLZ4, ..plan.clone() });
        }
        recording.check(&Plan { processing: offset, compression: Compression::BSLZ4, ..plan }, &constants(&recording));
    }
}

/// The naive run has no integers, so the images are compared with those of the processor.
fn in_integers(recording: &Recording, plan: &Plan) {
    let processing = Processing { arithmetic: Arithmetic::Fixed, ..Processing::default() };
    let (plan, mut constants) = (Plan { processing, ..plan.clone() }, constants(recording));
    for high_gain in [false, true] {
        constants.sets[0].high_gain = high_gain;
        let (_, expected) = recording.run(&plan, &constants);
        let (mut parts, collector) = recording.parts(&with_gpu(&plan), &constants);
        parts.workers = WorkerKind::Gpu(Arc::new(EmulatedGpu::new(Nature::sound(9))));
        let outcome = run_within(120, run::arm(parts).unwrap());
        assert!(collector.take() == expected, "{}, high gain {high_gain}: other images", plan.pixel);
        assert!(outcome.gpu.is_some_and(|gpu| gpu.strips > 0 && gpu.failure.is_none()));
    }
}

#[test]
fn frames_that_are_not_complete_are_done_by_the_processor_and_counted() {
    let recording =
        Scene { frames: 12, sends: |frame, _, packet| frame % 3 > 0 || packet > 0, ..Scene::default() }.record_random();
    let plan = Plan { compression: Compression::BSLZ4, ..recording.plan() };
    let (outcome, seen) = run(&recording, &plan, Nature::sound(5));
    assert_eq!(seen, recording.check(&plan, &constants(&recording)));
    let (gpu, strips) = (outcome.gpu.expect("there is one"), plan.strips().count() as u64);
    assert_eq!((gpu.strips, gpu.strips_by_processor, gpu.warning()), (8 * strips, 4 * strips, None));
}

/// Wherever an operation fails, whatever the order: every image is that of the processor, and the user hears why.
#[test]
fn a_device_that_fails_in_the_run_costs_no_image() {
    let recording = Scene { frames: 24, ..Scene::default() }.record_random();
    let plan = Plan { compression: Compression::BSLZ4, ..recording.plan() };
    let strips = 24 * plan.strips().count() as u64;
    let expected = recording.check(&plan, &constants(&recording));
    let mut given_up = 0;
    for (seed, fault) in (0..36).zip([Fault::Operation, Fault::Uncorrectable, Fault::Hang].into_iter().cycle()) {
        // Some take the words from the ring, and some cannot.
        let nature = Nature { fault: Some((10 + 11 * seed, fault)), reads_frames: seed % 4 > 0, ..Nature::sound(seed) };
        let (outcome, seen) = run(&recording, &plan, nature);
        assert!(outcome.is_success(), "{fault:?} {seed}: {:?}", outcome.ended);
        assert!(seen == expected, "{fault:?} {seed}: other images");
        let gpu = outcome.gpu.expect("there is one");
        assert_eq!(gpu.strips + gpu.strips_by_processor, strips, "{fault:?} {seed}: every strip was made once");
        // Where the fault lies behind the last operation, nothing was given up.
        assert_eq!(gpu.failure.is_some(), gpu.strips_by_processor > 0, "{fault:?} {seed}");
        assert_eq!((gpu.reads_ring, gpu.copies_because.is_some()), (seed % 4 > 0, seed % 4 == 0), "{fault:?} {seed}");
        let part = match gpu.failure {
            Some(_) => "the processor made the other images: ",
            None => "frames are copied for the GPU, because it cannot read the ring: ",
        };
        given_up += u32::from(gpu.failure.is_some());
        assert!(gpu.warning().is_none_or(|warning| warning.contains(part)), "{fault:?} {seed}");
    }
    assert!(given_up > 24, "{given_up} of 36 devices failed");
}

#[test]
fn what_a_gpu_cannot_do_is_refused_at_arm() {
    let recording = Scene { frames: 2, ..Scene::default() }.record_random();
    let refused = |plan: Plan, constants, nature| {
        let (mut parts, _) = recording.parts(&plan, constants);
        parts.workers = WorkerKind::Gpu(Arc::new(EmulatedGpu::new(nature)));
        match run::arm(parts).map(|_| ()) {
            Err(ArmError::Gpu { why, fix }) => {
                assert!(fix.ends_with("remove [processing] workers: the processor makes the same images"), "{fix}");
                why
            }
            other => panic!("{other:?}"),
        }
    };
    let (plan, one, sound) = (with_gpu(&recording.plan()), constants(&recording), Nature::sound(1));
    let tracking = Some(Tracking { window_frames: 9, frames: TrackedFrames::All, snapshot_images: 0 });
    let tracked = Plan { processing: Processing { tracking, ..Processing::default() }, ..plan.clone() };
    assert!(refused(tracked, &one, sound).contains("does not follow the drift"));
    let mut cells = constants(&recording);
    cells.sets.push(cells.sets[0].clone());
    cells.gates.push(cells.gates[0].clone());
    assert!(refused(plan.clone(), &cells, sound).contains("several storage cells"));
    let small = Nature { memory_bytes: 1 << 20, ..sound };
    assert!(refused(plan.clone(), &one, small).contains("memory"));
    // A plan with a GPU and workers without one, and the other way round.
    let (parts, _) = recording.parts(&plan, &one);
    assert!(matches!(run::arm(parts), Err(ArmError::Plan(_))));
    let (mut parts, _) = recording.parts(&recording.plan(), &one);
    parts.workers = WorkerKind::Gpu(Arc::new(EmulatedGpu::new(sound)));
    assert!(matches!(run::arm(parts), Err(ArmError::Plan(_))));
}

#[test]
fn the_memory_of_a_gpu_is_in_the_sum_of_the_plan() {
    let recording = Scene { frames: 1, modules: 2, ..Scene::default() }.record_random();
    for (pixel, compression) in
        [(PixelType::Int16, Compression::BSLZ4), (PixelType::Float32, Compression::BSLZ4), (PixelType::Int32, Compression::None)]
    {
        for (workers, share_percent) in [(3, 100), (5, 30), (5, 70)] {
            let gpu = Some(GpuPlan { share_percent, ..ALL_STRIPS });
            let plan = Plan { pixel, compression, workers, gpu, ..recording.plan() };
            let (mut parts, _) = recording.parts(&plan, &constants(&recording));
            let device = Arc::new(EmulatedGpu::new(Nature::sound(1)));
            parts.workers = WorkerKind::Gpu(Arc::<EmulatedGpu>::clone(&device));
            drop(run::arm(parts).unwrap());
            let asked = device.pinned_bytes.load(Ordering::Relaxed) as f64;
            let planned = plan.memory().iter().find(|item| item.what.contains("GPU")).unwrap().bytes as f64;
            // With shares, each worker may have a strip more.
            let most = if share_percent == 100 { 1.01 } else { 1.6 };
            assert!(asked <= planned && planned <= most * asked, "{pixel}, {share_percent} %: {asked} of {planned}");
        }
    }
}

/// On a machine without a driver the cause is said, and what to do; elsewhere the same run is made by its GPU.
#[test]
fn a_gpu_of_this_machine_is_used_or_the_run_is_refused_with_the_cause() {
    let recording = Scene { frames: 2, ..Scene::default() }.record_random();
    let plan = Plan { compression: Compression::BSLZ4, ..recording.plan() };
    let (mut parts, collector) = recording.parts(&with_gpu(&plan), &constants(&recording));
    parts.workers = WorkerKind::Gpu(Arc::new(Gpu(0)));
    match run::arm(parts) {
        Ok(armed) => {
            let outcome = run_within(120, armed);
            assert_eq!(collector.take(), recording.check(&plan, &constants(&recording)));
            assert_eq!(outcome.gpu.map(|gpu| (gpu.strips_by_processor, gpu.failure)), Some((0, None)));
        }
        Err(ArmError::Gpu { fix, .. }) => {
            let causes =
                [Cause::NoDriver, Cause::DriverTooOld, Cause::NoDevice, Cause::Busy, Cause::OutOfMemory, Cause::NoCompiler];
            let error = |cause| DeviceError::new(cause, "", "", "").advice;
            assert!(causes.into_iter().any(|cause| fix.starts_with(error(cause))), "{fix}");
        }
        Err(other) => panic!("{other}"),
    }
}
