//! Sums of frames, their pixel types and counts below zero: those of the CPU.

mod common;

use common::{Numbers, difference};
use konkordia_core::process::Negative;
use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_kernels::OutputPixel;
use konkordia_kernels::finish::{Accumulator, Narrow, Signed, accumulate, narrow, negatives};

/// Special values, ends of ranges, and numbers whose sums are beside them.
fn edges(numbers: &mut Numbers) -> i32 {
    let ends = [i32::MIN, i32::MIN + 1, i32::MIN + 2, i32::MAX, -2_147_483_392, 2_147_483_392, 0, -1, 1, 1 << 29, -(1 << 29)];
    let narrow = [-32_768, -32_765, -32_766, 32_766, 32_767, 65_531, 65_532, 65_535, 1 << 30, -(1 << 30), 2_147_483_391];
    match numbers.below(4) {
        0 => ends[numbers.below(ends.len() as u64) as usize],
        1 => narrow[numbers.below(narrow.len() as u64) as usize],
        2 => numbers.next() as i32,
        _ => numbers.below(200) as i32 - 100,
    }
}

fn float_edges(numbers: &mut Numbers) -> f32 {
    let ends = [f32::NAN, f32::NEG_INFINITY, f32::MIN, f32::INFINITY, f32::MAX, -f32::MAX * 0.5, -0.0, 0.0, 1e38, -1.6e38];
    match numbers.below(3) {
        0 => ends[numbers.below(ends.len() as u64) as usize],
        _ => numbers.below(20_000) as f32 * 0.01 - 100.0,
    }
}

fn check_sums<A: Accumulator + bytemuck::Pod>(mut pixel: impl FnMut() -> A) {
    for (pixels, frames, order) in [(1, 1, Order::Parallel(2)), (257, 3, Order::Down), (3000, 5, Order::Mixed(8))] {
        let first: Vec<A> = (0..pixels).map(|_| pixel()).collect();
        let added: Vec<A> = (0..pixels * frames).map(|_| pixel()).collect();
        let mut expected = first.clone();
        added.chunks(pixels).for_each(|frame| accumulate(&mut expected, frame));
        let mut sum = first;
        let arguments =
            [Argument::write(&mut sum), Argument::read(&added), Argument::number(pixels as u32), Argument::number(frames as u32)];
        launch(&format!("accumulate_{}", A::TYPE.name()), Grid { x: 3, y: 1 }, order, &arguments).expect("no fault");
        assert_eq!(difference(&sum, &expected), None, "{pixels} pixels, {frames} frames");
    }
}

#[test]
fn sums_of_frames_are_those_of_the_cpu() {
    let mut numbers = Numbers(0x5005_0000_1234_5679);
    check_sums::<i32>(|| edges(&mut numbers));
    check_sums::<f32>(|| float_edges(&mut numbers));
}

fn check_narrow<P: Narrow + bytemuck::Pod>(numbers: &mut Numbers) {
    for (pixels, order) in [(1, Order::Parallel(2)), (255, Order::Down), (5000, Order::Mixed(2))] {
        let sums: Vec<i32> = (0..pixels).map(|_| edges(numbers)).collect();
        let (mut out, mut expected) = (vec![P::default(); pixels], vec![P::default(); pixels]);
        narrow(&sums, &mut expected);
        let arguments = [Argument::read(&sums), Argument::write(&mut out), Argument::number(pixels as u64)];
        launch(&format!("narrow_{}", P::TYPE.name()), Grid { x: 2, y: 1 }, order, &arguments).expect("no fault");
        assert_eq!(difference(&out, &expected), None, "{:?}, {pixels} pixels", P::TYPE);
    }
}

#[test]
fn sums_as_pixels_of_the_file_are_those_of_the_cpu() {
    let mut numbers = Numbers(0x4A22_0000_1234_5679);
    check_narrow::<i16>(&mut numbers);
    check_narrow::<u16>(&mut numbers);
    check_narrow::<i32>(&mut numbers);
    check_narrow::<u32>(&mut numbers);
}

fn check_negatives<P: OutputPixel + Signed>(numbers: &mut Numbers) {
    for (policy, is_offset, offset) in
        [(Negative::Clamp, 0u32, 0), (Negative::Offset(150), 1, 150), (Negative::Offset(-7), 1, -7)]
    {
        let images: Vec<P> = numbers.pixels(4000, 6);
        let (mut ours, mut expected) = (images.clone(), images);
        negatives(policy, &mut expected);
        let arguments = [
            Argument::write(&mut ours),
            Argument::number(is_offset),
            Argument::number(offset),
            Argument::number(expected.len() as u64),
        ];
        launch(&format!("negatives_{}", P::TYPE.name()), Grid { x: 2, y: 1 }, Order::Mixed(4), &arguments).expect("no fault");
        assert_eq!(difference(&ours, &expected), None, "{:?}, {policy:?}", P::TYPE);
    }
}

#[test]
fn counts_below_zero_become_those_of_the_cpu() {
    let mut numbers = Numbers(0x2E6A_0000_1234_5679);
    check_negatives::<i16>(&mut numbers);
    check_negatives::<u16>(&mut numbers);
    check_negatives::<i32>(&mut numbers);
    check_negatives::<u32>(&mut numbers);
    check_negatives::<f32>(&mut numbers);
}
