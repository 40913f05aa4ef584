//! Packets of the simulated detector, which shares no code with the channel, lost, doubled and in any order.

use super::*;
use konkordia_core::tile::XfelDetector;
use konkordia_sim::xfel_train::{DATA_BYTES, TrainModel};
use proptest::prelude::*;

const TIMEOUT_US: u64 = 1000;

fn spec() -> TrainSpec {
    TrainSpec { detector: XfelDetector::Lpd, images_max: 2 }
}

fn channel(open_max: usize, buffers: usize) -> Channel {
    Channel::new(spec(), open_max, TIMEOUT_US, buffers)
}

fn give_back(channel: &mut Channel, train: ModuleTrain) {
    channel.give_back(train.bytes, train.arrived);
}

/// The bytes of a train with zeros where packets were not sent.
fn with_gaps(mut bytes: Vec<u8>, is_sent: impl Fn(usize) -> bool) -> Vec<u8> {
    for (packet, data) in bytes.chunks_mut(DATA_BYTES).enumerate() {
        if !is_sent(packet) {
            data.fill(0);
        }
    }
    bytes
}

#[test]
fn a_whole_train_is_its_bytes() {
    let model = TrainModel::lpd(2, 1);
    let mut channel = channel(2, 2);
    for datagram in model.datagrams(0, 5) {
        assert_eq!(channel.take(&datagram, 0), Verdict::Placed);
    }
    let train = channel.pop().unwrap();
    assert_eq!((train.train_id, train.frame_number, train.is_complete()), (model.train_id(5), 6, true));
    assert!(!train.is_id_inferred && train.bytes[..train.length_bytes().unwrap()] == model.train(0, 5));
    assert_eq!(channel.take(&model.datagrams(0, 5)[3], 0), Verdict::Late);
    assert_eq!(channel.counts().complete, 1);
}

#[test]
fn a_train_with_bytes_of_a_train_builder_and_fewer_images_is_taken() {
    let model = TrainModel::lpd(1, 1);
    let mut bytes = model.train(0, 0);
    let end = bytes.len() - 32;
    bytes[52] = 40;
    bytes.splice(end..end, [7; 40]);
    let mut channel = channel(1, 1);
    let (mut packet, count) = (Vec::new(), konkordia_wire::xfel_train::packets_of(bytes.len()));
    for n in 0..count {
        konkordia_wire::xfel_train::write_packet(&bytes, 9, n, &mut packet);
        assert_eq!(channel.take(&packet, 0), Verdict::Placed);
    }
    let train = channel.pop().unwrap();
    let found = konkordia_wire::xfel_train::Train::new_checked(&train.bytes[..train.length_bytes().unwrap()], 131_072).unwrap();
    assert_eq!((found.builder_specific(), found.images()), (&[7; 40][..], 1));
}

#[test]
fn nothing_of_an_earlier_train_is_left_where_packets_are_missing() {
    let model = TrainModel::lpd(2, 1);
    let mut channel = channel(1, 1);
    model.datagrams(0, 0).iter().for_each(|datagram| assert_eq!(channel.take(datagram, 0), Verdict::Placed));
    let train = channel.pop().unwrap();
    give_back(&mut channel, train);
    for datagram in model.datagrams(0, 1).iter().skip(1).step_by(2) {
        assert_eq!(channel.take(datagram, 10), Verdict::Placed);
    }
    channel.tick(10 + TIMEOUT_US - 1);
    assert!(channel.pop().is_none());
    channel.tick(10 + TIMEOUT_US);
    let train = channel.pop().unwrap();
    // Packet 0 is missing: the id follows from that of the train before.
    assert_eq!((train.train_id, train.is_id_inferred, train.numbers), (model.train_id(1), true, None));
    let end = model.train_bytes();
    assert!(train.bytes[..end] == with_gaps(model.train(0, 1), |packet| packet % 2 == 1));
    assert_eq!(channel.counts().partial, 1);
}

#[test]
fn overlapping_trains_are_kept_apart_and_the_oldest_makes_room() {
    let model = TrainModel::lpd(1, 1);
    let mut channel = channel(2, 3);
    let trains: Vec<_> = (0..3).map(|train| model.datagrams(0, train)).collect();
    for (first, second) in trains[0].iter().zip(&trains[1]).take(8) {
        assert_eq!([first, second].map(|datagram| channel.take(datagram, 0)), [Verdict::Placed; 2]);
    }
    assert_eq!(channel.open(), 2);
    assert_eq!(channel.take(&trains[2][0], 0), Verdict::Placed);
    let first = channel.pop().unwrap();
    assert_eq!((first.train_id, first.packets_arrived), (model.train_id(0), 8));
    assert_eq!(channel.take(&trains[0][9], 0), Verdict::Late);
    trains[1][8..].iter().for_each(|datagram| assert_eq!(channel.take(datagram, 0), Verdict::Placed));
    let second = channel.pop().unwrap();
    assert!(second.is_complete() && second.bytes[..model.train_bytes()] == model.train(0, 1));
}

#[test]
fn a_slow_consumer_costs_whole_trains() {
    let model = TrainModel::lpd(1, 1);
    let mut channel = channel(1, 1);
    model.datagrams(0, 0).iter().for_each(|datagram| assert_eq!(channel.take(datagram, 0), Verdict::Placed));
    let held = channel.pop().unwrap();
    let (second, third) = (model.datagrams(0, 1), model.datagrams(0, 2));
    assert_eq!(channel.take(&second[0], 1), Verdict::NoRoom);
    give_back(&mut channel, held);
    // There is room again, but the train has begun without.
    assert_eq!(channel.take(&second[1], 2), Verdict::NoRoom);
    third.iter().for_each(|datagram| assert_eq!(channel.take(datagram, 3), Verdict::Placed));
    assert_eq!(channel.pop().unwrap().train_id, model.train_id(2));
    assert_eq!(channel.counts().of(Verdict::NoRoom), 2);
}

#[test]
fn a_wrong_magic_and_another_detector_cost_their_own_train_only() {
    let model = TrainModel::lpd(1, 1);
    let other = TrainModel { image_pixels: 2 * 512 * 128, specific_bytes: 5408, first_frame: 50, ..TrainModel::lpd(1, 1) };
    let more = TrainModel { first_frame: 60, ..TrainModel::lpd(3, 1) };
    let mut channel = channel(2, 2);
    let mut damaged = model.datagrams(0, 0);
    damaged[0][2] ^= 1;
    assert_eq!(channel.take(&damaged[1], 0), Verdict::Placed);
    assert_eq!(channel.take(&damaged[0], 0), Verdict::WrongMagic);
    assert_eq!(channel.take(&damaged[2], 0), Verdict::WrongMagic);
    for stranger in [&other, &more] {
        let datagrams = stranger.datagrams(0, 0);
        assert_eq!([0, 1].map(|n| channel.take(&datagrams[n], 0)), [Verdict::OtherDetector; 2]);
    }
    model.datagrams(0, 1).iter().for_each(|datagram| assert_eq!(channel.take(datagram, 0), Verdict::Placed));
    assert_eq!(channel.pop().unwrap().train_id, model.train_id(1));
    assert_eq!((channel.counts().refused, channel.counts().complete, channel.open()), (3, 1, 0));
}

#[test]
fn packets_beyond_the_end_are_malformed() {
    let model = TrainModel::lpd(1, 1);
    let (mut channel, datagrams) = (channel(1, 1), model.datagrams(0, 0));
    let last = datagrams.len() - 1;
    assert_eq!(channel.take(&datagrams[0], 0), Verdict::Placed);
    let marked = |datagram: &[u8], word: u32| [&datagram[..datagram.len() - 4], &word.to_le_bytes()].concat();
    // The last mark in the middle, no last mark at the end, a number behind the end, and one far behind it.
    for (packet, word) in [(3, 3 | 1 << 30), (3, last as u32 + 1), (3, 0x3FFF_FFFF), (3, 1 << 31 | 3)] {
        assert_eq!(channel.take(&marked(&datagrams[packet], word), 0), Verdict::Malformed, "{word:x}");
    }
    assert_eq!(channel.take(&marked(&datagrams[last], last as u32), 0), Verdict::Malformed);
    assert_eq!([&[][..], &[0; 8], &[0; 8193]].map(|datagram| channel.take(datagram, 0)), [Verdict::Malformed; 3]);
    assert_eq!(channel.counts().of(Verdict::Malformed), 8);
}

#[test]
fn one_wrong_id_is_not_believed_and_three_that_agree_are() {
    let model = TrainModel::lpd(1, 1);
    let mut channel = channel(1, 1);
    let id_of = |channel: &mut Channel, model: &TrainModel, train: u64, id: u64| {
        let mut datagrams = model.datagrams(0, train);
        datagrams[0][16..24].copy_from_slice(&id.to_le_bytes());
        datagrams.iter().for_each(|datagram| assert_eq!(channel.take(datagram, 0), Verdict::Placed));
        let train = channel.pop().unwrap();
        let found = (train.train_id, train.is_id_inferred);
        give_back(channel, train);
        found
    };
    assert_eq!(id_of(&mut channel, &model, 0, 100), (100, false));
    assert_eq!(id_of(&mut channel, &model, 1, 1 << 60), (101, true));
    assert_eq!(id_of(&mut channel, &model, 2, 102), (102, false));
    let ids = [203, 204, 205, 206].map(|id| id_of(&mut channel, &model, id - 200, id));
    assert_eq!(ids, [(103, true), (104, true), (205, false), (206, false)]);
}

#[test]
fn a_train_without_a_header_and_without_one_before_is_counted() {
    let model = TrainModel::lpd(1, 1);
    let mut channel = channel(1, 1);
    model.datagrams(0, 0).iter().skip(1).for_each(|datagram| assert_eq!(channel.take(datagram, 0), Verdict::Placed));
    channel.finish();
    assert_eq!((channel.pop().is_none(), channel.counts().unidentified), (true, 1));
}

#[derive(Clone, Debug)]
struct Packet {
    train: u64,
    packet: usize,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Two trains at a time, packets in any order, some lost and some doubled, against a plain list of what was sent.
    #[test]
    fn what_arrived_is_at_its_place(order in proptest::collection::vec((0u64..2, 0usize..17), 0..80)) {
        let model = TrainModel::lpd(1, 1);
        let trains = [model.datagrams(0, 0), model.datagrams(0, 1)];
        prop_assert_eq!(trains[0].len(), 17);
        let mut channel = channel(2, 2);
        let mut sent = [[false; 17]; 2];
        for Packet { train, packet } in order.iter().map(|&(train, packet)| Packet { train, packet }) {
            let was_complete = sent[train as usize].iter().all(|sent| *sent);
            let verdict = channel.take(&trains[train as usize][packet], 0);
            let was_sent = std::mem::replace(&mut sent[train as usize][packet], true);
            let expected = match (was_complete, was_sent) {
                (true, _) => Verdict::Late,
                (false, true) => Verdict::Duplicate,
                (false, false) => Verdict::Placed,
            };
            prop_assert_eq!(verdict, expected);
        }
        channel.finish();
        let mut found = 0;
        while let Some(train) = channel.pop() {
            let n = (train.frame_number - 1) as usize;
            let bytes = with_gaps(model.train(0, n as u64), |packet| sent[n][packet]);
            prop_assert!(train.bytes[..bytes.len()] == bytes);
            prop_assert_eq!(train.train_id, model.train_id(n as u64));
            found += 1;
        }
        prop_assert_eq!(found + channel.counts().unidentified, sent.iter().filter(|sent| sent.contains(&true)).count() as u64);
        prop_assert_eq!(channel.counts().verdicts.iter().sum::<u64>(), order.len() as u64);
    }

    /// Any datagrams: each gets a verdict, and no train that comes out is longer than its buffer.
    #[test]
    fn any_datagrams_are_counted(
        datagrams in proptest::collection::vec((0usize..8200, 0u32..4, any::<u32>(), any::<u64>()), 0..60)
    ) {
        let mut channel = channel(2, 3);
        for (n, (bytes, frame, word, fill)) in datagrams.iter().enumerate() {
            let mut datagram = fill.to_le_bytes().repeat(bytes.div_ceil(8));
            datagram.truncate(*bytes);
            if n % 3 == 0 && datagram.len() >= 64 {
                datagram[..8].copy_from_slice(&konkordia_wire::xfel_train::MAGIC_BEGIN.to_le_bytes());
            }
            datagram.extend(frame.to_le_bytes());
            datagram.extend((word & 0xC000_003F).to_le_bytes());
            channel.take(&datagram, 100 * n as u64);
            channel.tick(100 * n as u64);
        }
        channel.finish();
        while let Some(train) = channel.pop() {
            prop_assert!(train.length_bytes().is_none_or(|bytes| bytes <= train.bytes.len()));
        }
        prop_assert_eq!(channel.counts().verdicts.iter().sum::<u64>(), datagrams.len() as u64);
    }
}
