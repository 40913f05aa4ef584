//! What measures also compares, and counts right: on the emulated device, whose times mean nothing.

#[path = "common/kernels.rs"]
mod kernels;
#[path = "common/scene.rs"]
#[allow(dead_code, reason = "the bytes that come back are counted by other tests")]
mod scene;

use kernels::CpuExecutor;
use konkordia_gpu::device::emulated::{Emulated, Fault, Nature};
use konkordia_gpu::measure::{Way, latencies, throughput, transfers};
use konkordia_gpu::pipeline::{Batch, LaunchBy, Output, Pipeline};
use scene::Scene;
use std::time::Duration;

#[test]
fn copies_are_compared_in_both_directions() {
    let mut device = Emulated::new(CpuExecutor::new(72), Nature::sound(4));
    let (found, is_equal) = transfers(&mut device, &[1, 77, 4096], 3, 5).expect("a sound device");
    assert!(is_equal);
    let seen: Vec<_> = found.iter().map(|transfer| (transfer.bytes, transfer.way)).collect();
    let expected = [1, 77, 4096].map(|bytes| [(bytes, Way::In), (bytes, Way::Out)]).concat();
    assert_eq!(seen, expected);
    assert_eq!(device.counts().in_bytes, 15 * (1 + 77 + 4096));
    let nature = Nature { fault: Some((9, Fault::Operation)), ..Nature::sound(4) };
    transfers(&mut Emulated::new(CpuExecutor::new(72), nature), &[4096], 3, 5).expect_err("the device fails");
}

#[test]
fn every_batch_comes_once() {
    let scene = Scene::new(3, 24, 7, 5);
    for launch in LaunchBy::ALL {
        let spec = scene.spec(launch, Output::Chunks, Some(8), 2);
        let device = Emulated::new(CpuExecutor::new(72), Nature::sound(4));
        let mut pipeline = Pipeline::arm(device, spec.clone(), &scene.tables(false)).expect("a sound device");
        let (mut came, mut filled) = (Vec::new(), Vec::new());
        let mut fill = |number: u64, words: &mut [u8]| {
            filled.push(number);
            scene.fill(false, 2 * number, words);
        };
        let mut done = |batch: &Batch<'_>| {
            came.push(batch.number);
            for n in 0..2 {
                scene.check(&spec, 2 * batch.number + u64::from(n), (batch, n), "measured");
            }
        };
        let times = latencies(&mut pipeline, 9, &mut fill, &mut done).expect("a sound device");
        assert!(times.len() == 9 && times.is_sorted() && times[0] > Duration::ZERO, "{launch:?}");
        let timed = throughput(&mut pipeline, Duration::from_micros(300), 20, &mut fill, &mut done).expect("a sound device");
        assert!(timed.batches >= 20 && timed.elapsed >= Duration::from_micros(300), "{launch:?}: {timed:?}");
        let expected: Vec<u64> = (0..9).chain(0..timed.batches).collect();
        assert_eq!((&came, &filled), (&expected, &expected), "{launch:?}");
    }
}
