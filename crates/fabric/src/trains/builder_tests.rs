//! Trains of several modules, from the packets of the simulated detector.

use super::*;
use konkordia_core::tile::XfelDetector;
use konkordia_sim::xfel_train::{DATA_BYTES, HEADER_BYTES, TrainModel};

const MODULES: usize = 4;
const TIMEOUT_US: u64 = 200_000;

fn spec(is_ordered: bool) -> BuilderSpec {
    let train = TrainSpec { detector: XfelDetector::Lpd, images_max: 2 };
    BuilderSpec { train, modules: MODULES, open_max: 3, timeout_us: TIMEOUT_US, is_ordered }
}

/// Channels and a builder, as the program joins them.
struct World {
    spec: BuilderSpec,
    channels: Vec<Channel>,
    builder: Builder,
    refused: usize,
}

impl World {
    fn new(is_ordered: bool) -> Self {
        let spec = spec(is_ordered);
        let channels = (0..MODULES).map(|_| Channel::new(spec.train, 2, TIMEOUT_US, 8)).collect();
        Self { spec, channels, builder: Builder::new(spec), refused: 0 }
    }

    /// Sends the packets of a train of a module that `keep` keeps.
    fn send(&mut self, model: &TrainModel, module: usize, train: u64, now_us: u64, keep: impl Fn(usize) -> bool) {
        let datagrams = model.datagrams(module, train);
        for (_, datagram) in datagrams.iter().enumerate().filter(|(packet, _)| keep(*packet)) {
            self.channels[module].take(datagram, now_us);
        }
        self.hand_on(module, now_us);
    }

    fn hand_on(&mut self, module: usize, now_us: u64) {
        while let Some(train) = self.channels[module].pop() {
            if let Some(train) = self.builder.offer(module, train, now_us) {
                self.refused += 1;
                self.channels[module].give_back(train.bytes, train.arrived);
            }
        }
    }

    fn tick(&mut self, now_us: u64) {
        for module in 0..MODULES {
            self.channels[module].tick(now_us);
            self.hand_on(module, now_us);
        }
        self.builder.tick(now_us);
    }

    fn built(&mut self) -> Vec<BuiltTrain> {
        std::iter::from_fn(|| self.builder.pop()).collect()
    }
}

fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect()
}

#[test]
fn modules_in_any_order_become_one_train() {
    let model = TrainModel::lpd(2, MODULES);
    let mut world = World::new(false);
    for module in [2, 0, 3, 1] {
        assert!(world.built().is_empty());
        world.send(&model, module, 7, 0, |_| true);
    }
    let built = world.built();
    assert_eq!((built.len(), built[0].train_id, built[0].images, built[0].is_complete()), (1, model.train_id(7), 2, true));
    for module in 0..MODULES {
        let train = built[0].module(module, &world.spec.train).unwrap();
        assert!(words(train.all_images()) == model.pixels(module, 7));
        assert_eq!((train.pulse_id(1), train.cell_id(1), train.header().link_id()), (Some(4), Some(1), model.link_id(module)));
    }
}

#[test]
fn a_lost_module_leaves_a_gap_at_its_place_after_the_time_out() {
    let model = TrainModel::lpd(1, MODULES);
    let mut world = World::new(false);
    for module in [0, 1, 3] {
        world.send(&model, module, 0, 0, |_| true);
    }
    world.tick(TIMEOUT_US - 1);
    assert!(world.built().is_empty());
    world.tick(TIMEOUT_US);
    let built = world.built().remove(0);
    assert_eq!(built.flags, [0, 0, flags::MISSING, 0]);
    assert!(built.module(2, &world.spec.train).is_none() && built.module(3, &world.spec.train).is_some());
    // It comes after all, and is not taken.
    world.send(&model, 2, 0, TIMEOUT_US + 1, |_| true);
    let counts = world.builder.counts();
    assert_eq!((counts.late, counts.modules_missing, counts.incomplete, counts.complete, world.refused), (1, 1, 1, 0, 1));
}

#[test]
fn trains_come_in_the_order_of_their_ids_and_lost_ones_are_counted() {
    let model = TrainModel::lpd(1, MODULES);
    let mut world = World::new(false);
    for module in 0..MODULES {
        world.send(&model, module, 1, 0, |_| true);
    }
    // Train 2 waits for a module, so train 5 waits too.
    (0..3).for_each(|module| world.send(&model, module, 2, 0, |_| true));
    (0..MODULES).for_each(|module| world.send(&model, module, 5, 10, |_| true));
    assert_eq!(world.built().iter().map(|train| train.train_id).collect::<Vec<_>>(), [model.train_id(1)]);
    world.tick(TIMEOUT_US);
    let built: Vec<_> = world.built().iter().map(|train| (train.train_id - model.train_id(0), train.lost_before)).collect();
    assert_eq!(built, [(2, 0), (5, 2)]);
    assert_eq!(world.builder.counts().lost, 2);
}

#[test]
fn more_trains_than_may_be_open_close_the_lowest() {
    let model = TrainModel::lpd(1, MODULES);
    let mut world = World::new(false);
    (0..4).for_each(|train| world.send(&model, 1, train, 0, |_| true));
    let built = world.built();
    assert_eq!((built.len(), built[0].train_id), (1, model.train_id(0)));
    assert_eq!(built[0].flags.iter().filter(|flags| **flags == flags::MISSING).count(), 3);
}

#[test]
fn a_module_that_comes_twice_is_kept_once() {
    let model = TrainModel::lpd(1, MODULES);
    let again = TrainModel { first_frame: 1000, ..model };
    let mut world = World::new(false);
    world.send(&model, 0, 0, 0, |_| true);
    // Another frame number with the same id; three in turn, so that the channel believes it.
    for train in 0..3 {
        let mut datagrams = again.datagrams(0, train);
        datagrams[0][16..24].copy_from_slice(&(model.train_id(train)).to_le_bytes());
        datagrams.iter().for_each(|datagram| {
            world.channels[0].take(datagram, 0);
        });
        world.hand_on(0, 0);
    }
    world.builder.finish();
    assert!(world.builder.counts().duplicate + world.builder.counts().placed == 4);
    (1..MODULES).for_each(|module| world.send(&model, module, 0, 0, |_| true));
    assert_eq!(world.builder.counts().late, 3);
}

/// The first and the last packet, which hold the header and the lists, some in the middle, and all but one.
#[test]
fn a_module_with_missing_packets_is_a_whole_train_that_says_what_is_missing() {
    let model = TrainModel::lpd(2, MODULES);
    let last = model.packets() - 1;
    type Case<'a> = (&'a str, &'a dyn Fn(usize) -> bool, u32);
    let cases: [Case<'_>; 5] = [
        ("header", &|packet| packet != 0, flags::PARTIAL | flags::HEADER_INFERRED),
        ("lists", &|packet| packet != last, flags::PARTIAL | flags::LISTS_INFERRED),
        ("middle", &|packet| packet != 16 && packet != 17, flags::PARTIAL),
        ("both ends", &|packet| packet != 0 && packet != last, flags::PARTIAL | flags::HEADER_INFERRED | flags::LISTS_INFERRED),
        ("all but one", &|packet| packet == 5, flags::PARTIAL | flags::HEADER_INFERRED | flags::LISTS_INFERRED),
    ];
    for (name, keep, expected) in cases {
        for is_ordered in [false, true] {
            let mut world = World::new(is_ordered);
            for module in 0..MODULES {
                world.send(&model, module, 0, 0, |_| true);
                world.send(&model, module, 1, 0, |packet| module != 1 || keep(packet));
            }
            world.tick(TIMEOUT_US);
            world.tick(2 * TIMEOUT_US);
            let built = world.built().pop().unwrap();
            assert_eq!((built.train_id, &built.flags[..]), (model.train_id(1), &[0, expected, 0, 0][..]), "{name}");
            let train = built.module(1, &world.spec.train).unwrap();
            assert_eq!((train.header().train_id(), train.pulse_id(1), train.images()), (model.train_id(1), Some(4), 2));
            check_pixels(&model, &built, &train, keep, is_ordered);
        }
    }
}

/// Pixels, marks of missing ones and states of module 1, from the bytes that were sent.
fn check_pixels(
    model: &TrainModel,
    built: &BuiltTrain,
    train: &konkordia_wire::xfel_train::Train<'_>,
    keep: &dyn Fn(usize) -> bool,
    is_ordered: bool,
) {
    let mut bytes = model.train(1, 1);
    let mut marks = vec![0u8; bytes.len()];
    for (packet, data) in bytes.chunks_mut(DATA_BYTES).enumerate().filter(|(packet, _)| !keep(*packet)) {
        data.fill(0);
        marks[packet * DATA_BYTES..][..data.len()].fill(1);
    }
    for image in 0..2 {
        let at = HEADER_BYTES + image * 131_072;
        let (wire, lost) = (words(&bytes[at..][..131_072]), &marks[at..][..131_072]);
        let place = |pixel: usize| {
            if is_ordered { order::wire_place(XfelDetector::Lpd, pixel / 256, pixel % 256) } else { pixel }
        };
        let expected: Vec<u16> = (0..65536).map(|pixel| wire[place(pixel)]).collect();
        assert!(words(train.image(image).unwrap()) == expected);
        let lost: Vec<u8> = (0..65536).map(|pixel| lost[2 * place(pixel)]).collect();
        let found = built.modules[1].as_ref().unwrap().missing.iter().find(|(n, _)| *n == image);
        assert!(found.map_or(vec![0; 65536], |(_, marks)| marks.clone()) == lost);
        assert_eq!(train.status(image).unwrap() & IMAGE_INCOMPLETE != 0, lost.contains(&1));
    }
}

#[test]
fn a_module_with_another_number_of_images_is_left_out_and_said() {
    let (two, one) = (TrainModel::lpd(2, MODULES), TrainModel::lpd(1, MODULES));
    let mut world = World::new(false);
    (0..3).for_each(|module| world.send(&two, module, 0, 0, |_| true));
    world.send(&one, 3, 0, 0, |_| true);
    let built = world.built().remove(0);
    assert_eq!((built.images, built.flags, built.left_out.len()), (2, vec![0, 0, 0, flags::OTHER_COUNT], 1));
    assert_eq!(world.builder.counts().left_out, 1);
}

#[test]
fn without_lists_of_any_module_nothing_is_made_up() {
    let model = TrainModel::lpd(1, MODULES);
    let mut world = World::new(false);
    world.send(&model, 0, 0, 0, |packet| packet != 16);
    world.tick(TIMEOUT_US);
    world.tick(2 * TIMEOUT_US);
    let built = world.built().remove(0);
    assert_eq!((built.flags[0], built.modules.iter().flatten().count()), (flags::NO_LISTS, 0));
}

#[test]
fn other_pulses_and_a_wrong_end_are_said() {
    let model = TrainModel::lpd(1, MODULES);
    let mut world = World::new(false);
    for module in 0..MODULES {
        let mut bytes = model.train(module, 0);
        let end = bytes.len();
        match module {
            2 => bytes[end - 1] ^= 1,
            3 => bytes[HEADER_BYTES + 131_072 + 32] ^= 1,
            _ => (),
        }
        let mut packet = Vec::new();
        for n in 0..konkordia_wire::xfel_train::packets_of(end) {
            konkordia_wire::xfel_train::write_packet(&bytes, 1, n, &mut packet);
            assert_eq!(world.channels[module].take(&packet, 0), Verdict::Placed);
        }
        world.hand_on(module, 0);
    }
    assert_eq!(world.built().remove(0).flags, [0, 0, flags::NO_END, flags::PULSES_DIFFER]);
}
