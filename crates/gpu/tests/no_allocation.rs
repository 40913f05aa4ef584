//! After it is armed a pipeline allocates nothing: neither on the host, which an allocator counts, nor on the device,
//! which refuses it.

#[path = "../../../tests/counting.rs"]
mod counting;
#[path = "common/kernels.rs"]
mod kernels;
#[path = "common/scene.rs"]
#[allow(dead_code, reason = "images are compared by other tests")]
mod scene;

use kernels::CpuExecutor;
use konkordia_gpu::device::emulated::{Emulated, Nature};
use konkordia_gpu::device::{Cause, Device};
use konkordia_gpu::pipeline::{LaunchBy, Output, Pipeline};
use scene::Scene;

#[test]
fn batches_allocate_nothing() {
    let scene = Scene::new(3, 24, 7, 5);
    for launch in LaunchBy::ALL {
        for output in [Output::Pixels, Output::Chunks, Output::Sparse { room: 20 }] {
            for in_ring in [false, true] {
                let device = Emulated::new(CpuExecutor::new(72), Nature::sound(3));
                let spec = scene.spec(launch, output, Some(8), 2);
                let mut pipeline = Pipeline::arm(device, spec, &scene.tables(in_ring)).expect("a sound device");
                let (mut batches, mut done, before) = (0, 0, counting::of_this_thread());
                while done < 200 {
                    if batches < 200 && pipeline.submit(batches, 2, |given| scene.fill(in_ring, 2 * batches, given)) {
                        batches += 1;
                    }
                    if !pipeline.poll(|batch| done += u64::from(batch.number == done)).expect("a sound device") {
                        pipeline.pause();
                    }
                }
                assert_eq!(counting::of_this_thread() - before, 0, "{launch:?} {output:?} {in_ring}");
            }
        }
    }
}

#[test]
fn a_sealed_device_gives_no_memory() {
    let mut device = Emulated::new(CpuExecutor::new(72), Nature::sound(3));
    device.allocate(8).expect("before it is sealed");
    device.seal();
    let errors = [
        device.allocate(8).map(drop),
        device.allocate_pinned(8).map(drop),
        device.register(&Scene::new(3, 24, 2, 5).ring.workers[0].raw_frames()).map(drop),
        device.flag(0).map(drop),
        device.stream().map(drop),
        device.event().map(drop),
        device.graph(&[]).map(drop),
    ];
    assert!(errors.iter().all(|result| matches!(result, Err(why) if why.cause == Cause::Request)), "{errors:?}");
}
