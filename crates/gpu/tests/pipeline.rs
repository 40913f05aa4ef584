//! The schedule of batches on the emulated device: thousands of orders, each of which a seed repeats. Whatever fails
//! and when, each image comes once, in order, and is that of the CPU.

#[path = "common/kernels.rs"]
mod kernels;
#[path = "common/scene.rs"]
mod scene;

use kernels::CpuExecutor;
use konkordia_core::pixel::PixelType;
use konkordia_gpu::device::emulated::{Emulated, Fault, Nature};
use konkordia_gpu::device::{Cause, DeviceError};
use konkordia_gpu::pipeline::{LaunchBy, Output, Pipeline, Spec};
use scene::{Came, Numbers, Scene};

type Device = Emulated<CpuExecutor>;

/// What a run is; all of it comes from a seed.
struct Run {
    spec: Spec,
    nature: Nature,
    /// Frames of each batch.
    batches: Vec<u32>,
    seed: u64,
    /// The device may take the words from the ring, and can.
    in_ring: [bool; 2],
}

/// What was seen of a run.
#[derive(Default)]
struct Seen {
    came: Vec<Came>,
    /// Images of batches that the CPU did after the failure.
    handed_back: u64,
    failure: Option<DeviceError>,
    out_bytes: u64,
}

impl Run {
    fn of(scene: &Scene, seed: u64, fault: Option<Fault>) -> Self {
        let mut numbers = Numbers::new(seed + 1);
        let launch = LaunchBy::ALL[seed as usize % 4];
        let room = [2, 20, 72][numbers.below(3) as usize];
        let output = [Output::Pixels, Output::Chunks, Output::Sparse { room }][(seed as usize / 4) % 3];
        let is_sparse = matches!(output, Output::Sparse { .. });
        let least = (is_sparse || numbers.below(4) > 0).then(|| [0, 1, 8, 30, 1000][numbers.below(5) as usize]);
        let frames = 1 + numbers.below(3) as u32;
        let first = if numbers.below(2) == 0 { 0 } else { u32::MAX - numbers.below(6) as u32 };
        let spec = Spec { first, ..scene.spec(launch, output, least, frames) };
        let batches = (0..1 + numbers.below(14)).map(|_| if numbers.below(3) == 0 { 1 } else { frames }).collect();
        let fault = fault.map(|fault| (numbers.below(260), fault));
        let in_ring = [numbers.below(2) == 0, numbers.below(4) > 0];
        let nature = Nature { fault, reads_frames: in_ring[1], ..Nature::sound(seed) };
        Self { spec, nature, batches, seed, in_ring }
    }

    /// The caller of the pipeline: submits, polls and waits in an order of its own.
    fn go(&self, scene: &Scene) -> Result<Seen, DeviceError> {
        let pixels = scene.images[0].len();
        let device = Device::new(CpuExecutor::new(pixels), self.nature);
        let mut pipeline = Pipeline::arm(device, self.spec.clone(), &scene.tables(self.in_ring[0]))?;
        let takes_words = pipeline.takes_words();
        assert_eq!(takes_words, self.in_ring == [true; 2]);
        assert_eq!(pipeline.not_taken().map(|why| why.cause), (self.in_ring == [true, false]).then_some(Cause::Unsupported));
        let (mut seen, mut numbers, mut submitted) = (Seen::default(), Numbers::new(self.seed + 77), 0);
        let armed = pipeline.device().counts();
        let starts: Vec<u64> = self.batches.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + u64::from(*n)))).collect();
        let context = format!("seed {}, {:?} {:?}", self.seed, self.spec.launch, self.spec.output);
        while seen.failure.is_none() && (submitted < self.batches.len() || pipeline.in_flight() > 0) {
            let credits = pipeline.credits();
            assert_eq!(credits as u64 + pipeline.in_flight(), self.spec.credits() as u64, "{context}");
            if submitted < self.batches.len() && numbers.below(3) > 0 {
                let frames = self.batches[submitted];
                let is_accepted =
                    pipeline.submit(submitted as u64, frames, |given| scene.fill(takes_words, starts[submitted], given));
                assert_eq!(is_accepted, credits > 0, "{context}");
                submitted += usize::from(is_accepted);
            }
            let came = &mut seen.came;
            let moved = pipeline.poll(|batch| {
                assert_eq!(starts[batch.number as usize], came.len() as u64, "{context}: in order");
                assert_eq!(batch.frames, self.batches[batch.number as usize]);
                for n in 0..batch.frames {
                    came.push(scene.check(&self.spec, came.len() as u64, (batch, n), &context));
                }
            });
            match moved {
                Ok(true) => {}
                Ok(false) => pipeline.pause(),
                Err(why) => seen.failure = Some(why),
            }
            let in_flight = if seen.failure.is_some() { 0 } else { pipeline.in_flight() };
            let images = starts.get(submitted).copied().unwrap_or_else(|| self.batches.iter().map(|n| u64::from(*n)).sum());
            let on_their_way = if in_flight == 0 { 0 } else { images - seen.came.len() as u64 };
            assert!(pipeline.account().balances(in_flight, on_their_way), "{context}: {}", pipeline.account());
        }
        // What the device did not finish is done elsewhere, and what was not submitted too.
        let mut next = seen.came.len() as u64;
        for (back, number) in
            pipeline.unfinished().zip(starts.iter().position(|start| *start == next).into_iter().flat_map(|n| n as u64..))
        {
            assert_eq!((back.number, back.frames), (number, self.batches[number as usize]), "{context}: handed back in order");
            let mut given = vec![0u64; back.given.len().div_ceil(8)];
            let given: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut given)[..back.given.len()];
            scene.fill(takes_words, next, given);
            assert!(given == back.given, "{context}: what was given for batch {number} is still there");
            next += u64::from(back.frames);
        }
        seen.handed_back = next - seen.came.len() as u64;
        assert_eq!(seen.handed_back, pipeline.account().images_handed_back, "{context}");
        let expected = starts.get(submitted).copied().unwrap_or_else(|| self.batches.iter().map(|n| u64::from(*n)).sum());
        assert_eq!(next, expected, "{context}: nothing is lost");
        assert_eq!(pipeline.credits() == 0, seen.failure.is_some(), "{context}");
        seen.out_bytes = pipeline.device().counts().out_bytes - armed.out_bytes;
        if seen.failure.is_none() && self.nature.fault.is_none() {
            self.check_end(&mut pipeline, &context);
        } else if seen.failure.is_some() {
            assert!(!pipeline.submit(0, 1, |_| panic!("a device that failed takes nothing")));
            assert_eq!(pipeline.poll(|_| panic!("nor gives")).err(), seen.failure);
        }
        Ok(seen)
    }

    fn check_end(&self, pipeline: &mut Pipeline<Device>, context: &str) {
        pipeline.close();
        for _ in 0..20_000 {
            if pipeline.device().is_idle() {
                return;
            }
            pipeline.pause();
        }
        panic!("{context}: the streams do not come to their end");
    }

    /// Bytes that have to come back for this.
    fn expected_bytes(&self, came: &[Came]) -> u64 {
        let frames = self.spec.frames as usize;
        let numbers = match self.spec.output {
            Output::Pixels => 0,
            Output::Chunks => 1,
            Output::Sparse { .. } => self.spec.rows as usize + 1,
        };
        // The statistics of one strip with six numbers of 64 bits: images have 72 pixels.
        let meta = self.batches.len() * frames * (1 + 4 * numbers + 48);
        let bytes = |came: &Came| match (*came, self.spec.output) {
            (Came::Rejected, _) => 0,
            (Came::Kept(bytes), _) => bytes,
            // Only the device knows that there is no room.
            (Came::Overflowed, Output::Sparse { room }) if self.spec.launch == LaunchBy::Graph => room as usize * 6,
            (Came::Overflowed, _) => 0,
        };
        (meta + came.iter().map(bytes).sum::<usize>()) as u64
    }
}

fn scene() -> Scene {
    Scene::new(3, 24, 7, 5)
}

/// Seeds of a test; the long lanes have more.
fn seeds(count: u64) -> std::ops::Range<u64> {
    if std::env::var_os("KONKORDIA_SLOW").is_some_and(|slow| slow == "1") { 0..20 * count } else { 0..count }
}

#[test]
fn every_order_gives_the_images_of_the_cpu_and_rejected_ones_stay_on_the_device() {
    let scene = scene();
    let (mut kept, mut rejected, mut overflowed) = (0, 0, 0);
    for seed in seeds(3000) {
        let run = Run::of(&scene, seed, None);
        let seen = run.go(&scene).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(seen.failure, None, "seed {seed}");
        assert_eq!(seen.came.len() as u32, run.batches.iter().sum::<u32>(), "seed {seed}");
        if run.batches.iter().all(|frames| *frames == run.spec.frames) {
            assert_eq!(seen.out_bytes, run.expected_bytes(&seen.came), "seed {seed}, {:?}", run.spec.launch);
        }
        kept += seen.came.iter().filter(|came| matches!(came, Came::Kept(_))).count();
        rejected += seen.came.iter().filter(|came| **came == Came::Rejected).count();
        overflowed += seen.came.iter().filter(|came| **came == Came::Overflowed).count();
    }
    assert!(kept > 1000 && rejected > 1000 && overflowed > 100, "{kept} kept, {rejected} rejected, {overflowed} without room");
}

#[test]
fn whatever_fails_and_when_nothing_is_lost_and_nothing_comes_twice() {
    let scene = scene();
    for (fault, cause) in
        [(Fault::Operation, Cause::Operation), (Fault::Uncorrectable, Cause::Uncorrectable), (Fault::Hang, Cause::Hang)]
    {
        let (mut at_arm, mut in_run, mut handed_back) = (0, 0, 0);
        for seed in seeds(1200) {
            let run = Run::of(&scene, seed, Some(fault));
            match run.go(&scene) {
                Err(why) => {
                    at_arm += 1;
                    assert_eq!(why.cause, cause, "seed {seed}");
                }
                Ok(Seen { failure: Some(why), handed_back: back, .. }) => {
                    in_run += 1;
                    handed_back += back;
                    assert_eq!(why.cause, cause, "seed {seed}: {why}");
                }
                // The run was over before the operation.
                Ok(seen) => assert_eq!(seen.came.len() as u32, run.batches.iter().sum::<u32>(), "seed {seed}"),
            }
        }
        assert!(at_arm > 5 && in_run > 300 && handed_back > 1000, "{fault:?}: {at_arm} at arm, {in_run}, {handed_back} images");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scene = scene();
    for seed in 0..24 {
        let runs = [(); 2].map(|()| {
            let device = Device::new(CpuExecutor::new(72), Nature::sound(seed));
            let spec = Run::of(&scene, seed, None).spec;
            let mut pipeline = Pipeline::arm(device, spec, &scene.tables(false)).expect("a sound device");
            (0..3).for_each(|n| assert!(pipeline.submit(n, 1, |words| scene.fill(false, n, words))));
            (0..40).for_each(|_| {
                pipeline.poll(|_| {}).expect("a sound device");
                pipeline.pause();
            });
            (pipeline.device().counts(), pipeline.account())
        });
        assert_eq!(runs[0], runs[1], "seed {seed}");
    }
}

#[test]
fn too_little_memory_is_said_before_the_run() {
    let scene = scene();
    for launch in LaunchBy::ALL {
        for output in [Output::Pixels, Output::Chunks, Output::Sparse { room: 9 }] {
            let spec = scene.spec(launch, output, Some(1), 2);
            let (device_bytes, pinned_bytes) = spec.memory_bytes();
            let arm = |memory_bytes, pinned_bytes| {
                let nature = Nature { memory_bytes, pinned_bytes, ..Nature::sound(1) };
                Pipeline::arm(Device::new(CpuExecutor::new(72), nature), spec.clone(), &scene.tables(false)).map(drop)
            };
            // The bytes are exactly those of the sum; pinned memory also has the usable pixels on their way.
            assert_eq!(arm(device_bytes, pinned_bytes + 72), Ok(()), "{launch:?} {output:?}");
            for (memory, pinned) in [(device_bytes - 1, usize::MAX), (usize::MAX, pinned_bytes - 1), (0, 0)] {
                let why = arm(memory, pinned).expect_err("there is too little memory");
                assert_eq!(why.cause, Cause::OutOfMemory);
                assert!(why.to_string().contains("bytes are asked for and"), "{why}");
            }
        }
    }
}

#[test]
fn a_spec_that_makes_no_sense_is_refused_with_a_reason() {
    let scene = scene();
    let good = scene.spec(LaunchBy::Plain, Output::Sparse { room: 4 }, Some(1), 2);
    let cases = [
        (Spec { frames: 0, ..good.clone() }, "at least one frame"),
        (Spec { above: None, ..good.clone() }, "above a level"),
        (Spec { output: Output::Sparse { room: 0 }, ..good.clone() }, "room for a pixel"),
        (Spec { rows: 4, ..good.clone() }, "three planes"),
        (Spec { pixel: PixelType::Float32, ..good.clone() }, "the type of the pixels"),
        (Spec { pixel: PixelType::Int64, ..good.clone() }, "words are not converted to int64"),
    ];
    for (spec, expected) in cases {
        let device = Device::new(CpuExecutor::new(72), Nature::sound(1));
        let why = Pipeline::arm(device, spec, &scene.tables(false)).map(drop).expect_err(expected);
        assert!(why.cause == Cause::Request && why.why.contains(expected), "{why}");
    }
}
