//! The veto: counts of pixels above a level are those of the CPU.

use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_kernels::above::{Value, count};
use konkordia_kernels::{Isa, OutputPixel};

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn pixel<P: OutputPixel>(&mut self) -> P {
        let special = [P::MISSING, P::MASKED, P::INVALID, P::SATURATED, P::VALID_MIN, P::VALID_MAX];
        match self.next() {
            word if (word >> 8).is_multiple_of(9) => special[word as usize % special.len()],
            word => P::from_photons((word % 400) as f32),
        }
    }
}

fn check<P: OutputPixel + Value>(name: &str) {
    let mut numbers = Numbers(0xAB0E_0000_1234_5679);
    for (pixels, images, grid) in [(1usize, 1usize, 1), (255, 3, 1), (257, 2, 2), (4099, 5, 3)] {
        for (level, order) in [(390.0, Order::Up), (100.0, Order::Down), (-1.0, Order::Mixed(4)), (f32::NAN, Order::Up)] {
            let level = P::from_photons(level);
            let all: Vec<P> = (0..pixels * images).map(|_| numbers.pixel()).collect();
            let usable: Vec<bool> = (0..pixels).map(|n| n % 11 != 3).collect();
            let expected: Vec<u32> =
                all.chunks(pixels).map(|image| count(Isa::Scalar, image, &usable, level, P::VALID_MAX) as u32).collect();
            let bytes: Vec<u8> = usable.iter().map(|usable| u8::from(*usable)).collect();
            let mut counts = vec![0u32; images];
            let arguments = [
                Argument::read(&all),
                Argument::read(&bytes),
                Argument::number(level),
                Argument::number(P::VALID_MAX),
                Argument::write(&mut counts),
                Argument::number(pixels as u32),
            ];
            launch(&format!("count_above_{name}"), Grid { x: grid, y: images as u32 }, order, &arguments).expect("no fault");
            drop(arguments);
            assert_eq!(counts, expected, "{name}, {pixels} pixels above {level:?}");
            check_keep(&counts);
        }
    }
}

fn check_keep(counts: &[u32]) {
    let least = counts[counts.len() / 2];
    let mut keep = vec![9u8; counts.len()];
    let arguments =
        [Argument::read(counts), Argument::write(&mut keep), Argument::number(least), Argument::number(counts.len() as u32)];
    launch("keep_images", Grid { x: 1, y: 1 }, Order::Up, &arguments).expect("no fault");
    drop(arguments);
    assert!(keep.iter().zip(counts).all(|(keep, count)| (*keep == 1) == (*count >= least) && *keep <= 1));
}

#[test]
fn counts_above_a_level_are_those_of_the_cpu() {
    check::<i16>("int16");
    check::<u16>("uint16");
    check::<i32>("int32");
    check::<u32>("uint32");
    check::<f32>("float32");
}
