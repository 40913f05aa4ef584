//! The veto and sparse images: counts and lists of pixels above a level are those of the CPU.

use konkordia_gpu::emulator::{Argument, Grid, Order, launch};
use konkordia_kernels::above::{Value, collect, count};
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
        for (level, order) in
            [(390.0, Order::Parallel(2)), (100.0, Order::Down), (-1.0, Order::Mixed(4)), (f32::NAN, Order::Parallel(2))]
        {
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
    launch("keep_images", Grid { x: 1, y: 1 }, Order::Parallel(2), &arguments).expect("no fault");
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

/// Places of the rows, columns and values of one image; room that was not used holds what it held before.
type Sparse<P> = (Vec<u32>, Vec<u32>, Vec<P>);

/// The sparse image of the CPU: row after row into what room is left.
fn expected<P: Value>(image: &[P], usable: &[bool], columns: usize, level: P, room: usize) -> Sparse<P> {
    let (mut places, mut out, mut values) = (vec![0], vec![u32::MAX; room], vec![P::MISSING; room]);
    let mut found = 0;
    for (row, usable) in image.chunks(columns).zip(usable.chunks(columns)) {
        let from = found.min(room);
        found += collect(Isa::Scalar, row, usable, level, P::VALID_MAX, &mut out[from..], &mut values[from..]);
        places.push(found as u32);
    }
    (places, out, values)
}

/// Those of `images` images by the kernels.
fn sparse<P: OutputPixel>(all: &[P], usable: &[bool], columns: usize, level: P, room: usize, order: Order) -> Vec<Sparse<P>> {
    let (rows, images) = (usable.len() / columns, all.len() / usable.len());
    let usable: Vec<u8> = usable.iter().map(|usable| u8::from(*usable)).collect();
    let name = P::TYPE.name();
    let (mut counts, mut places) = (vec![0u32; rows * images], vec![0u32; (rows + 1) * images]);
    let (mut out, mut values) = (vec![u32::MAX; room * images], vec![P::MISSING; room * images]);
    let grid = Grid { x: rows as u32, y: images as u32 };
    let pixels = || [Argument::read(all), Argument::read(&usable), Argument::number(level), Argument::number(P::VALID_MAX)];
    let count = pixels().into_iter().chain([Argument::write(&mut counts), Argument::number(columns as u32)]);
    launch(&format!("row_counts_{name}"), grid, order, &count.collect::<Vec<_>>()).expect("no fault");
    let place = [Argument::read(&counts), Argument::number(rows as u32), Argument::write(&mut places)];
    launch("row_places", Grid { x: images as u32, y: 1 }, order, &place).expect("no fault");
    let collected = pixels().into_iter().chain([
        Argument::read(&places),
        Argument::write(&mut out),
        Argument::write(&mut values),
        Argument::number(columns as u32),
        Argument::number(room as u32),
    ]);
    launch(&format!("collect_{name}"), grid, order, &collected.collect::<Vec<_>>()).expect("no fault");
    let image = |n: usize| {
        let rows = places[n * (rows + 1)..][..rows + 1].to_vec();
        (rows, out[n * room..][..room].to_vec(), values[n * room..][..room].to_vec())
    };
    (0..images).map(image).collect()
}

/// Images of so many rows and columns above a level, with no room, too little, and more than enough.
fn check_sparse<P: OutputPixel + Value>((rows, columns, images): (usize, usize, usize), level: f32, order: Order) {
    let mut numbers = Numbers(0x5BA2_0000_1234_5679);
    let level = P::from_photons(level);
    let all: Vec<P> = (0..rows * columns * images).map(|_| numbers.pixel()).collect();
    let usable: Vec<bool> = (0..rows * columns).map(|n| n % 11 != 3).collect();
    let most = all.chunks(usable.len()).map(|image| count(Isa::Scalar, image, &usable, level, P::VALID_MAX)).max();
    let most = most.unwrap_or(0) as usize;
    for room in [0, most / 2, most + 3] {
        let found = sparse(&all, &usable, columns, level, room, order);
        for (image, ours) in all.chunks(usable.len()).zip(found) {
            let theirs = expected(image, &usable, columns, level, room);
            assert_eq!(ours, theirs, "{rows} x {columns} pixels above {level:?}, room for {room}");
        }
    }
}

fn check_sparse_sizes<P: OutputPixel + Value>() {
    check_sparse::<P>((1, 1, 1), -1.0, Order::Parallel(2));
    check_sparse::<P>((3, 255, 2), 350.0, Order::Mixed(8));
    check_sparse::<P>((2, 256, 1), 100.0, Order::Down);
    check_sparse::<P>((2, 600, 2), 100.0, Order::Parallel(2));
}

#[test]
fn sparse_images_are_those_of_the_cpu_whatever_room_there_is() {
    check_sparse_sizes::<i16>();
    check_sparse_sizes::<u16>();
    check_sparse_sizes::<i32>();
    check_sparse_sizes::<u32>();
    check_sparse_sizes::<f32>();
}

/// The sum of the rows goes on from one round of threads to the next.
#[test]
fn a_sparse_image_of_more_rows_than_threads_is_that_of_the_cpu() {
    check_sparse::<i16>((260, 9, 1), 200.0, Order::Mixed(2));
}
