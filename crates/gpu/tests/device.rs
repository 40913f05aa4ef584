//! The pipeline on a GPU, if there is one (`make test-gpu`): every way to launch, every output, and images of real
//! sizes.

#[path = "common/scene.rs"]
mod scene;
#[path = "../../../tests/skip.rs"]
mod skip;

use konkordia_gpu::device::cuda::Cuda;
use konkordia_gpu::device::{Cause, Device};
use konkordia_gpu::measure;
use konkordia_gpu::pipeline::{LaunchBy, Output, Pipeline};
use scene::Scene;
use std::time::Duration;

/// The first GPU, or the test counts as skipped. A machine with a driver and a device, and without a compiler, fails.
#[track_caller]
fn gpu() -> Option<Cuda> {
    match Cuda::open(0) {
        Ok(device) => Some(device),
        Err(why) if [Cause::NoDriver, Cause::NoDevice].contains(&why.cause) => {
            skip::skipped(&why.to_string());
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn check(scene: &Scene, in_ring: bool, launch: LaunchBy, output: Output, least: u32, batches: u64) {
    let device = Cuda::open(0).unwrap_or_else(|why| panic!("{why}"));
    let mut spec = scene.spec(launch, output, Some(least), 2);
    (spec.patience, spec.first) = (Duration::from_secs(20), u32::MAX - 5);
    let mut pipeline =
        Pipeline::arm(device, spec.clone(), &scene.tables(in_ring)).unwrap_or_else(|why| panic!("{launch:?}: {why}"));
    // A device that cannot take words from the ring says so in the report of a run; here it is looked at.
    assert_eq!(pipeline.not_taken(), None, "{launch:?}");
    let mut came = 0;
    let mut fill = |number: u64, given: &mut [u8]| scene.fill(in_ring, 2 * number, given);
    let mut done = |batch: &konkordia_gpu::pipeline::Batch<'_>| {
        for n in 0..batch.frames {
            scene.check(&spec, came, (batch, n), &format!("{launch:?} {output:?}, image {came}"));
            came += 1;
        }
    };
    let timed = measure::throughput(&mut pipeline, Duration::ZERO, batches, &mut fill, &mut done);
    let timed = timed.unwrap_or_else(|why| panic!("{launch:?} {output:?}: {why}"));
    assert_eq!((timed.batches, came), (batches, 2 * batches), "{launch:?} {output:?}");
    assert!(pipeline.account().balances(0, 0), "{}", pipeline.account());
    pipeline.close();
}

#[track_caller]
fn check_all(scene: &Scene, least: u32, batches: u64) {
    if gpu().is_none() {
        return;
    }
    for launch in LaunchBy::ALL {
        for output in [Output::Pixels, Output::Chunks, Output::Sparse { room: 20 }, Output::Sparse { room: 1 << 18 }] {
            [false, true].into_iter().for_each(|in_ring| check(scene, in_ring, launch, output, least, batches));
        }
    }
}

#[test]
fn small_images_are_those_of_the_cpu() {
    check_all(&Scene::new(3, 24, 7, 5), 8, 100);
}

#[test]
fn images_of_a_module_are_those_of_the_cpu() {
    let scene = Scene::new(512, 1024, 6, 5);
    let mut counts = scene.counts.clone();
    counts.sort_unstable();
    check_all(&scene, counts[counts.len() / 2], 20);
}

#[test]
fn copies_bring_the_bytes_back() {
    let Some(mut device) = gpu() else { return };
    let (found, is_equal) = measure::transfers(&mut device, &[1, 4096, 1 << 20], 3, 3).expect("a sound device");
    assert!(is_equal && found.len() == 6);
}

#[test]
fn more_memory_than_there_is_is_refused() {
    let Some(mut device) = gpu() else { return };
    let why = device.allocate(1 << 50).expect_err("no device has so much");
    assert_eq!(why.cause, Cause::OutOfMemory, "{why}");
}
