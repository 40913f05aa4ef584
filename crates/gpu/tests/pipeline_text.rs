//! The pipeline with the text of the kernels, as a GPU runs it: fewer orders than `pipeline.rs`, all kernels.

#[path = "common/scene.rs"]
mod scene;

use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_gpu::device::Number;
use konkordia_gpu::device::emulated::{Emulated, Executor, Nature, TextExecutor};
use konkordia_gpu::emulator::Order;
use konkordia_gpu::pipeline::{Above, Batch, LaunchBy, Outcome, Output, Pipeline, Spec};
use scene::{Came, Scene};

/// All frames of a run of three batches, in their order.
fn all<T>(
    executor: impl Executor,
    scene: &Scene,
    in_ring: bool,
    spec: &Spec,
    seed: u64,
    mut each: impl FnMut(u64, (&Batch<'_>, u32)) -> T,
) -> Vec<T> {
    let device = Emulated::new(executor, Nature::sound(seed));
    let mut pipeline = Pipeline::arm(device, spec.clone(), &scene.tables(in_ring)).expect("a sound device");
    let (mut came, mut submitted, frames) = (Vec::new(), 0, u64::from(spec.frames));
    while (came.len() as u64) < 3 * frames {
        if submitted < 3 && pipeline.submit(submitted, spec.frames, |given| scene.fill(in_ring, submitted * frames, given)) {
            submitted += 1;
        }
        let moved = pipeline.poll(|batch| (0..batch.frames).for_each(|n| came.push(each(came.len() as u64, (batch, n)))));
        if !moved.expect("a sound device") {
            pipeline.pause();
        }
    }
    pipeline.close();
    came
}

#[test]
fn the_text_of_the_kernels_gives_the_images_of_the_cpu_in_every_way_to_launch() {
    // Images of one block, and of two with pixels beyond the last one.
    for (scene, frames) in [(Scene::new(3, 24, 5, 5), 2), (Scene::new(1, 4101, 4, 6), 1)] {
        let mut counts = scene.counts.clone();
        counts.sort_unstable();
        let least = counts[counts.len() / 2];
        // Words that are brought, and words that are taken from the ring.
        for (seed, launch) in LaunchBy::ALL.into_iter().chain(LaunchBy::ALL).enumerate() {
            let outputs = [Output::Chunks, Output::Pixels, Output::Sparse { room: 3000 }];
            for output in outputs.into_iter().take(if frames == 1 { 1 } else { 3 }) {
                let spec = scene.spec(launch, output, Some(least), frames);
                let executor = TextExecutor { order: Order::Mixed(seed as u64) };
                let check = |n, frame: (&Batch<'_>, u32)| scene.check(&spec, n, frame, &format!("{launch:?} {output:?} {n}"));
                let came = all(executor, &scene, seed < LaunchBy::ALL.len(), &spec, seed as u64, check);
                assert!(came.contains(&Came::Rejected) && came.iter().any(|came| *came != Came::Rejected), "{came:?}");
            }
        }
    }
}

#[test]
fn pixels_of_every_type_come_back() {
    let scene = Scene::new(3, 24, 5, 5);
    for pixel in PixelType::CONVERTED {
        let number = |photons: f32, highest: bool| match pixel {
            PixelType::Int16 => Number::I16(if highest { i16::VALID_MAX } else { photons as i16 }),
            PixelType::Uint16 => Number::U16(if highest { u16::VALID_MAX } else { photons as u16 }),
            PixelType::Int32 => Number::I32(if highest { i32::VALID_MAX } else { photons as i32 }),
            PixelType::Uint32 => Number::U32(if highest { u32::VALID_MAX } else { photons as u32 }),
            PixelType::Float32 => Number::F32(if highest { f32::VALID_MAX } else { photons }),
            other => panic!("words are not converted to {other}"),
        };
        let above = Above { level: number(4.0, false), high: number(0.0, true), least: 8 };
        for (output, launch) in [
            (Output::Pixels, LaunchBy::Plain),
            (Output::Chunks, LaunchBy::Graph),
            (Output::Sparse { room: 72 }, LaunchBy::WaitValue),
        ] {
            let spec = Spec { pixel, above: Some(above), ..scene.spec(launch, output, Some(8), 2) };
            let sizes =
                all(TextExecutor { order: Order::Up }, &scene, false, &spec, 9, |n, (batch, at)| match batch.outcome(at) {
                    Outcome::Rejected => 0,
                    Outcome::Pixels(bytes) => {
                        let photons: Vec<f32> = bytes.chunks_exact(pixel.bytes()).map(|bytes| value(pixel, bytes)).collect();
                        let image = &scene.images[n as usize % scene.images.len()];
                        // Where both types have the count; the tests of the kernels compare all values of all types.
                        let is_same = |(a, b): (&f32, &i16)| !(0..1000).contains(b) || (a.round() - f32::from(*b)).abs() <= 1.0;
                        assert!(photons.iter().zip(image).all(is_same), "{pixel:?}");
                        bytes.len()
                    }
                    Outcome::Chunk(bytes) => {
                        assert_eq!(bytes[..8], (spec.image_bytes() as u64).to_be_bytes());
                        bytes.len()
                    }
                    Outcome::Sparse { columns, values, .. } => {
                        assert!(values.chunks_exact(pixel.bytes()).all(|bytes| value(pixel, bytes) > 4.0));
                        assert_eq!(values.len(), columns.len() * pixel.bytes());
                        values.len()
                    }
                    other @ Outcome::Overflow { .. } => panic!("{other:?} with room for all pixels"),
                });
            assert!(sizes.contains(&0) && sizes.iter().any(|bytes| *bytes > 0), "{pixel:?} {output:?}: {sizes:?}");
        }
    }
}

fn value(pixel: PixelType, bytes: &[u8]) -> f32 {
    let two = |bytes: &[u8]| <[u8; 2]>::try_from(bytes).expect("two bytes");
    let four = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).expect("four bytes");
    match pixel {
        PixelType::Int16 => i16::from_ne_bytes(two(bytes)).into(),
        PixelType::Uint16 => u16::from_ne_bytes(two(bytes)).into(),
        PixelType::Int32 => i32::from_ne_bytes(four(bytes)) as f32,
        PixelType::Uint32 => u32::from_ne_bytes(four(bytes)) as f32,
        PixelType::Float32 => f32::from_ne_bytes(four(bytes)),
        other => panic!("words are not converted to {other}"),
    }
}
