//! Trains of European XFEL through the whole engine without sockets: simulated trains lose, repeat, delay and damage
//! packets; every pixel, every bitmap and every header is compared with a naive reference, and every sum is checked.

#[path = "common/frames.rs"]
mod frames;

use frames::{Collector, Packet, Reference, lossy};
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::TileRecord;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::{Compression, Plan, Recipe};
use konkordia_core::setup::{Finding, Means, What};
use konkordia_core::tile::{TileFormat, XfelDetector};
use konkordia_engine::run::{PixelConstants, RunOutcome};
use konkordia_sim::fault::FaultModel;
use konkordia_sim::xfel_train::{DATA_BYTES, END_BYTES, HEADER_BYTES, TrainModel};
use konkordia_wire::formats::PacketFormat;
use std::collections::BTreeMap;

fn read(model: &TrainModel, datagram: &[u8]) -> Packet {
    let number = |at: usize| u32::from_le_bytes(datagram[at..at + 4].try_into().unwrap());
    let (last, whole) = (model.packets() - 1, model.train_bytes());
    let is_packet = datagram.len() >= END_BYTES && {
        let word = number(datagram.len() - 4);
        let n = (word & 0x3FFF_FFFF) as usize;
        let bytes = DATA_BYTES.min(whole.saturating_sub(n * DATA_BYTES));
        let marks = u32::from(n == 0) << 31 | u32::from(n == last) << 30;
        n <= last && datagram.len() == bytes + END_BYTES && word & 0xC000_0000 == marks
    };
    if !is_packet {
        return None;
    }
    let train = u64::from(number(datagram.len() - 8) - model.first_frame);
    let n = (number(datagram.len() - 4) & 0x3FFF_FFFF) as usize;
    Some((train, n, datagram[..datagram.len() - END_BYTES].to_vec()))
}

/// The words of a train, missing where no packet came.
fn words(reference: &Reference, model: &TrainModel, train: u64) -> Vec<u16> {
    let mut bytes = vec![0xFF; model.train_bytes()];
    for (n, data) in reference.frames.get(&train).into_iter().flatten() {
        bytes[n * DATA_BYTES..][..data.len()].copy_from_slice(data);
    }
    bytes[HEADER_BYTES..][..model.pixel_bytes()].chunks(2).map(|w| u16::from_le_bytes([w[0], w[1]])).collect()
}

struct Case {
    model: TrainModel,
    trains: u64,
    faults: FaultModel,
    compression: Compression,
    workers: usize,
}

fn plan(case: &Case) -> Plan {
    let tile = TileFormat::xfel_train(XfelDetector::Lpd, case.model.images as u32).unwrap();
    let geometry = ImageGeometry::stacked(tile, case.model.modules as u32).unwrap();
    let numbers = (case.model.first_frame, case.trains);
    Plan { slots: 32, packed_slots: 32, ..frames::plan(geometry, Recipe::Raw, case.compression, numbers, case.workers) }
}

/// Sends the trains of all modules over the link.
fn send(case: &Case) -> (Vec<Vec<Vec<u8>>>, Vec<Reference>) {
    let model = &case.model;
    let datagrams = |module, train| model.datagrams(module, train);
    frames::send((model.modules, case.trains), &case.faults, datagrams, |datagram| read(model, datagram))
}

/// The columns of a tile, by name.
fn columns(plan: &Plan, record: &TileRecord) -> BTreeMap<String, u64> {
    let columns = PacketFormat::of(plan.geometry.format()).description().columns;
    columns.iter().map(|column| (column.name.to_string(), record.header.value(column.value))).collect()
}

fn check(case: &Case) -> (RunOutcome, Vec<ImageStatus>) {
    let (plan, model) = (plan(case), &case.model);
    let header = |train: u64, module: usize, record: &TileRecord, came: &[usize]| {
        let has_header = came.first() == Some(&0);
        let said = columns(&plan, record);
        let expected = [
            ("train_id", model.train_id(train)),
            ("data_id", model.data_id(train)),
            ("link_id", model.link_id(module)),
            ("image_count", model.images as u64),
        ];
        for (name, value) in expected {
            assert_eq!(said[name], if has_header { value } else { 0 }, "{name} of train {train}, module {module}");
        }
    };
    let words =
        |references: &[Reference], train: u64| references.iter().flat_map(|reference| words(reference, model, train)).collect();
    frames::check(&plan, PixelConstants::None, send(case), header, words)
}

fn case(seed: u64) -> Case {
    Case {
        model: TrainModel { seed, ..TrainModel::lpd(1, 2) },
        trains: 12,
        faults: FaultModel { seed, ..FaultModel::default() },
        compression: Compression::BSLZ4,
        workers: 2,
    }
}

#[test]
fn without_faults_every_train_is_complete() {
    for (images, modules, compression) in
        [(1, 2, Compression::BSLZ4), (3, 1, Compression::None), (2, 1, Compression::Zstd { level: 1 })]
    {
        let model = TrainModel::lpd(images, modules);
        let (outcome, states) = check(&Case { model, compression, ..case(1) });
        assert!(states.iter().all(|status| *status == ImageStatus::Complete), "{images} images, {modules} modules");
        assert!(outcome.is_success() && outcome.findings.is_empty(), "{:?}", outcome.findings);
    }
}

#[test]
fn lost_packets_are_written_as_missing() {
    let mut partial = 0;
    for seed in 1..=6 {
        let (outcome, states) = check(&Case { faults: lossy(seed), ..case(seed) });
        partial += states.iter().filter(|status| **status == ImageStatus::Partial).count();
        assert!(!outcome.is_complete());
    }
    assert!(partial > 20, "only {partial} trains lost packets");
}

#[test]
fn damaged_packets_are_refused_and_counted() {
    for seed in 1..=4 {
        let faults = FaultModel { seed, truncate: 0.05, loss: 0.01, ..FaultModel::default() };
        let (outcome, _) = check(&Case { faults, ..case(seed) });
        assert!(outcome.ledger.streams.iter().map(|stream| stream.malformed.iter().sum::<u64>()).sum::<u64>() > 0);
    }
}

/// The first packet of a train has its header. It may come behind the others, or not at all.
#[test]
fn the_header_is_that_of_packet_0_whenever_it_comes() {
    let faults = FaultModel { seed: 3, reorder: 0.5, reorder_packets_max: 16, loss: 0.1, ..FaultModel::default() };
    check(&Case { faults, ..case(3) });
}

/// The number of workers changes nothing.
#[test]
fn one_worker_and_three_do_the_same() {
    for workers in [1, 3] {
        check(&Case { workers, faults: FaultModel { seed: 5, loss: 0.05, ..FaultModel::default() }, ..case(5) });
    }
}

/// Trains of another length than the configured one are named, and longer ones are not placed.
#[test]
fn another_number_of_images_is_a_finding() {
    for (sends, configured) in [(1, 2), (2, 1), (1, 3)] {
        let model = TrainModel { images: sends, ..case(1).model };
        let sent = send(&Case { model, ..case(1) }).0;
        let plan = plan(&Case { model: TrainModel { images: configured, ..model }, ..case(1) });
        let expected = plan.geometry.format().packets();
        let outcome = frames::run(&plan, PixelConstants::None, sent, Collector::default());
        assert_eq!(outcome.ledger.imbalances(), []);
        let is_it = |finding: &&Finding| matches!(finding.what, What::Packets { .. });
        let found = outcome.findings.iter().find(is_it).map(|finding| (finding.what, finding.streams, finding.is_wrong));
        let what = What::Packets { seen: model.packets() as u32, expected, means: Means::Images(sends as u32) };
        assert_eq!(found, Some((what, 2, true)), "{sends} images, {configured} configured: {:?}", outcome.findings);
    }
}
