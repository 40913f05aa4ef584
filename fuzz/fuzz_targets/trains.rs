//! Any datagrams to the channels of a train builder: each gets one verdict, nothing panics, every train of a module
//! that comes out of the builder is a train, and bytes of packets that did not arrive are zero.
#![no_main]

use konkordia_core::tile::XfelDetector;
use konkordia_fabric::trains::{Builder, BuilderSpec, Channel, TrainSpec};
use konkordia_wire::xfel_train::{PAYLOAD_BYTES, write_packet};
use libfuzzer_sys::fuzz_target;

const TIMEOUT_US: u64 = 100;

/// Hands trains of all channels to the builder, and checks what it gives.
fn build(channels: &mut [Channel], builder: &mut Builder, now_us: u64, spec: &TrainSpec) {
    for (module, channel) in channels.iter_mut().enumerate() {
        while let Some(train) = channel.pop() {
            if let Some(train) = builder.offer(module, train, now_us) {
                channel.give_back(train.bytes, train.arrived);
            }
        }
    }
    builder.tick(now_us);
    while let Some(built) = builder.pop() {
        for (module, train) in built.modules.iter().enumerate() {
            let Some(found) = train else { continue };
            let whole = built.module(module, spec).expect("a train that is handed on is one");
            assert_eq!((whole.header().train_id(), whole.images()), (built.train_id, built.images));
            assert!(found.missing.iter().all(|(image, marks)| *image < built.images && marks.contains(&1)));
        }
        let trains = built.modules.into_iter().enumerate().filter_map(|(module, train)| Some((module, train?)));
        for (module, train) in trains.chain(built.left_out) {
            channels[module].give_back(train.bytes, train.arrived);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let spec = TrainSpec { detector: XfelDetector::Lpd, images_max: 1 };
    let mut channels: Vec<_> = (0..2).map(|_| Channel::new(spec, 2, TIMEOUT_US, 3)).collect();
    let mut builder =
        Builder::new(BuilderSpec { train: spec, modules: 2, open_max: 2, timeout_us: TIMEOUT_US, is_ordered: true });
    // A train whose header the input may change.
    let shape = spec.shape(1, 0);
    let end = shape.sections().map_or(0, |at| at.end);
    let (mut train, mut packet, mut now_us) = (vec![1; end], Vec::new(), 0);
    for step in data.chunks(8) {
        let [module, frame, number, kind, at, value, time, ..] = *step else { continue };
        let numbers = konkordia_wire::xfel_train::TrainNumbers { train_id: frame.into(), ..Default::default() };
        konkordia_wire::xfel_train::write_header(&mut train, &numbers, &shape);
        write_packet(&train, u32::from(frame), usize::from(number) % end.div_ceil(PAYLOAD_BYTES), &mut packet);
        if kind % 4 == 0 {
            let place = packet.len() - 1 - usize::from(at) % 8;
            packet[place] ^= value;
        }
        if kind % 8 == 1 {
            packet[usize::from(at) % 64] ^= value;
        }
        if kind % 16 == 2 {
            packet.truncate(packet.len() * usize::from(value) / 256);
        }
        now_us += u64::from(time);
        let channel = &mut channels[usize::from(module) % 2];
        let before = channel.counts().verdicts.iter().sum::<u64>();
        channel.take(&packet, now_us);
        assert_eq!(channel.counts().verdicts.iter().sum::<u64>(), before + 1);
        channels.iter_mut().for_each(|channel| channel.tick(now_us));
        build(&mut channels, &mut builder, now_us, &spec);
    }
    channels.iter_mut().for_each(Channel::finish);
    build(&mut channels, &mut builder, now_us, &spec);
    builder.finish();
    build(&mut channels, &mut builder, now_us, &spec);
});
