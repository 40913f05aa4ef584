//! EXCALIBUR through the whole engine without sockets: simulated FEMs lose, repeat, delay and damage packets; every
//! pixel, every bitmap and every header is compared with a naive reference, and every sum is checked.

#[path = "common/frames.rs"]
mod frames;

use frames::{Packet, Reference, lossy};
use konkordia_core::geometry::{DoublePixels, ImageGeometry, Orientation, Placement, Quarter};
use konkordia_core::image::TileRecord;
use konkordia_core::ledger::ImageStatus;
use konkordia_core::plan::{Compression, Plan, Recipe};
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{PixelConstants, RunOutcome};
use konkordia_sim::excalibur::{
    ExcaliburModel, HEADER_BYTES, PRIMARY_BYTES, STRIPE_COLUMNS, STRIPE_ROWS, SUBFRAME_PACKETS, TRAILER_BYTES,
};
use konkordia_sim::fault::FaultModel;

const STRIPE_PIXELS: usize = STRIPE_ROWS * STRIPE_COLUMNS;
/// Data bytes of a tail packet, with its trailer.
const TAIL_BYTES: usize = 4296;

fn read(model: &ExcaliburModel, datagram: &[u8]) -> Packet {
    let number = |at: usize| u32::from_le_bytes(datagram[at..at + 4].try_into().unwrap());
    let is_packet = datagram.len() >= HEADER_BYTES && {
        let n = (number(4) & 0x3FFF_FFFF) as usize;
        let marks = u32::from(n == 0) << 31 | u32::from(n == 65) << 30;
        n <= 65 && number(4) & 0xC000_0000 == marks && datagram.len() == 8 + if n == 65 { TAIL_BYTES } else { 8000 }
    };
    if !is_packet {
        return None;
    }
    let (counter, n) = (number(0), (number(4) & 0x3FFF_FFFF) as usize);
    let frame = u64::from(counter / 2 - model.first_frame);
    Some((frame, counter as usize % 2 * SUBFRAME_PACKETS + n, datagram[HEADER_BYTES..].to_vec()))
}

/// The counts of a frame where they are seen in the image, missing where no packet came.
fn counts(reference: &Reference, fem: usize, frame: u64) -> Vec<u16> {
    let mut counts = vec![0xFFFF; STRIPE_PIXELS];
    let order = ExcaliburModel::sent_order(fem);
    for (packet, data) in reference.frames.get(&frame).into_iter().flatten() {
        let (subframe, n) = (packet / SUBFRAME_PACKETS, packet % SUBFRAME_PACKETS);
        let pixels = &data[..data.len() - if n == 65 { TRAILER_BYTES } else { 0 }];
        let first = (subframe * STRIPE_PIXELS + n * PRIMARY_BYTES) / 2;
        for (at, word) in order[first..].iter().zip(pixels.chunks(2)) {
            counts[*at] = u16::from_le_bytes([word[0], word[1]]);
        }
    }
    counts
}

struct Case {
    model: ExcaliburModel,
    frames: u64,
    faults: FaultModel,
    compression: Compression,
    workers: usize,
}

fn plan(case: &Case) -> Plan {
    let upside_down = Orientation::new(false, false, Quarter::Deg180);
    let orientation = |fem: usize| if fem % 2 == 1 { upside_down } else { Orientation::UPRIGHT };
    let placement = |fem| Placement { row: 256 * fem as u32, column: 0, orientation: orientation(fem) };
    let placements = (0..case.model.fems).map(placement).collect();
    let geometry = ImageGeometry::new(TileFormat::excalibur(), placements, None, DoublePixels::Keep).unwrap();
    frames::plan(geometry, Recipe::Counts, case.compression, (case.model.first_frame, case.frames), case.workers)
}

fn check(case: &Case) -> (RunOutcome, Vec<ImageStatus>) {
    let (plan, model) = (plan(case), &case.model);
    let sent = frames::send(
        (model.fems, case.frames),
        &case.faults,
        |fem, frame| model.datagrams(fem, frame),
        |datagram| read(model, datagram),
    );
    let header = |frame: u64, fem: usize, record: &TileRecord, came: &[usize]| {
        let has_trailer = came.contains(&65) || came.contains(&131);
        let trailer = if has_trailer { u64::from(model.first_frame) + frame + 1 } else { 0 };
        assert_eq!(record.header.fields[0], trailer, "frame {frame}, FEM {fem}");
    };
    let words = |references: &[Reference], frame: u64| {
        references.iter().enumerate().flat_map(|(fem, reference)| counts(reference, fem, frame)).collect()
    };
    frames::check(&plan, PixelConstants::Mask(vec![0; plan.geometry.pixels()]), sent, header, words)
}

fn case(seed: u64) -> Case {
    Case {
        model: ExcaliburModel { seed, first_frame: 3, ..ExcaliburModel::new(2) },
        frames: 6,
        faults: FaultModel { seed, ..FaultModel::default() },
        compression: Compression::BSLZ4,
        workers: 2,
    }
}

#[test]
fn without_faults_every_frame_is_the_image() {
    for (fems, compression) in [(2, Compression::BSLZ4), (1, Compression::None), (3, Compression::Zstd { level: 1 })] {
        let model = ExcaliburModel::new(fems);
        let (outcome, states) = check(&Case { model, compression, ..case(1) });
        assert!(states.iter().all(|status| *status == ImageStatus::Complete), "{fems} FEMs");
        assert!(outcome.is_success() && outcome.findings.is_empty(), "{:?}", outcome.findings);
    }
}

/// Tail packets are among the lost ones: they are shorter, and have the trailer.
#[test]
fn lost_packets_are_written_as_missing() {
    let mut partial = 0;
    for seed in 1..=4 {
        let (outcome, states) = check(&Case { faults: lossy(seed), ..case(seed) });
        partial += states.iter().filter(|status| **status == ImageStatus::Partial).count();
        assert!(!outcome.is_complete());
    }
    assert!(partial > 12, "only {partial} frames lost packets");
}

#[test]
fn damaged_packets_are_refused_and_counted() {
    for seed in 1..=2 {
        let faults = FaultModel { seed, truncate: 0.05, loss: 0.01, ..FaultModel::default() };
        let (outcome, _) = check(&Case { faults, ..case(seed) });
        assert!(outcome.ledger.streams.iter().map(|stream| stream.malformed.iter().sum::<u64>()).sum::<u64>() > 0);
    }
}

/// The trailer may come before the other packets of its subframe, once, twice, or not at all.
#[test]
fn the_trailer_is_found_whenever_it_comes() {
    let faults = FaultModel { seed: 3, reorder: 0.5, reorder_packets_max: 16, loss: 0.4, ..FaultModel::default() };
    check(&Case { faults, frames: 12, ..case(3) });
}

/// The number of workers changes nothing.
#[test]
fn one_worker_and_three_do_the_same() {
    for workers in [1, 3] {
        check(&Case { workers, faults: FaultModel { seed: 5, loss: 0.05, ..FaultModel::default() }, ..case(5) });
    }
}
