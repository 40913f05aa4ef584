//! Pedestals that follow the drift, and storage cells.

use crate::harness::{Constants, Recording, Scene, constants, losses, random_word, run_within};
use konkordia_core::geometry::{DoublePixels, Orientation, Placement, Quarter};
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Plan, Processing};
use konkordia_core::process::{TrackedFrames, Tracking};
use konkordia_core::selection::{Keep, Marked, Selection};
use konkordia_engine::run;
use konkordia_kernels::Isa;
use konkordia_sim::reference::JungfrauConstants;
use konkordia_sim::rng::Rng;

fn tracked(frames: TrackedFrames, selection: Selection) -> Processing {
    Processing { selection, tracking: Some(Tracking { window_frames: 16, frames, snapshot_images: 3 }), ..Processing::default() }
}

/// Two half modules whose pedestals drift by 2 ADU per frame; a few packets of each.
fn drifting() -> Recording {
    let sends = |frame, stream, packet| {
        let is_lost = frame == 9 || frame == 20 && stream == 1;
        !is_lost && !(18..=61).contains(&packet)
    };
    let mut rng = Rng::new(4);
    let scene = Scene { interfaces: 2, frames: 40, faults: losses(4), sends, ..Scene::default() };
    scene.record(|frame, _| match random_word(&mut rng) {
        word @ 0x100..0x3000 => word + 2 * frame as u16,
        word => word,
    })
}

#[test]
fn pedestals_follow_frame_by_frame_alike_for_any_workers_and_instruction_set() {
    let recording = drifting();
    let constants = constants(&recording);
    let selection = Selection { keep: Keep::EveryNth(2), darks: Marked::Every(5), ..Selection::default() };
    for frames in [TrackedFrames::All, TrackedFrames::Darks] {
        let processing = tracked(frames, selection);
        let plan = Plan { processing, pixel: PixelType::Float32, compression: Compression::BSLZ4, ..recording.plan() };
        let first = recording.check(&Plan { workers: 1, packed_slots: 3, ..plan.clone() }, &constants);
        for (workers, packed_slots) in [(2, 1), (5, 2), (5, 8)] {
            let (_, seen) = recording.run(&Plan { workers, packed_slots, ..plan.clone() }, &constants);
            assert!(seen == first, "{workers} workers, {packed_slots} images");
        }
        for isa in Isa::available() {
            let (mut parts, collector) = recording.parts(&plan, &constants);
            parts.isa = *isa;
            run_within(60, run::arm(parts).unwrap());
            assert!(collector.take() == first, "{isa}");
        }
    }
}

#[test]
fn only_dark_frames_move_pedestals_where_only_they_may() {
    let recording = drifting();
    let constants = constants(&recording);
    let plan = |selection| Plan { processing: tracked(TrackedFrames::Darks, selection), ..recording.plan() };
    let untouched: Vec<u32> = constants.sets[0].pedestals[0].iter().map(|p| p.to_bits()).collect();
    let seen = recording.check(&plan(Selection::default()), &constants);
    assert!(seen.iter().filter(|s| s.image % 3 == 0).all(|s| s.pedestals == untouched));
    // Warm-up frames that are dark move the pedestals. Others do not, unless all frames do.
    let warmup = |warmup_is_dark| Selection { warmup_frames: 20, warmup_is_dark, ..Selection::default() };
    assert!(recording.check(&plan(warmup(false)), &constants)[0].pedestals == untouched);
    assert!(recording.check(&plan(warmup(true)), &constants)[0].pedestals != untouched);
    let all = Plan { processing: tracked(TrackedFrames::All, warmup(false)), ..recording.plan() };
    assert!(recording.check(&all, &constants)[0].pedestals != untouched);
}

/// Also in sums, in images that are not written, and in tiles that lie sideways with split double pixels.
#[test]
fn tracking_goes_with_sums_discarded_images_and_split_pixels() {
    let recording = drifting();
    let constants = constants(&recording);
    let sums = tracked(TrackedFrames::All, Selection { sum_frames: 5, warmup_frames: 3, ..Selection::default() });
    recording.check(&Plan { processing: sums, packed_slots: 1, ..recording.plan() }, &constants);
    let processing = tracked(TrackedFrames::All, Selection::default());
    let missing = MissingPolicy::Discard;
    let seen = recording.check(&Plan { processing, missing, ..recording.plan() }, &constants);
    assert!(seen.iter().all(|s| s.chunk.is_empty()) && !seen[3].pedestals.is_empty());
    let sideways = Placement { row: 3, column: 0, orientation: Orientation::new(true, false, Quarter::Deg270) };
    let plan = recording.plan_at(vec![sideways, Placement::at(1, 260)], DoublePixels::Split);
    for processing in [sums, processing] {
        recording.check(&Plan { processing, workers: 5, ..plan.clone() }, &constants);
    }
}

/// The number given in the paper: pedestals rise by up to 100 ADU, here within 3 s at 1.1 kHz.
#[test]
fn a_drift_of_100_adu_in_3_s_is_followed_within_5_adu() {
    const FRAMES: u64 = 3300;
    const NOISE_ADU: f64 = 8.0;
    let truth = |frame: u64, pixel: usize| 2900.0 + (pixel % 211) as f64 + 100.0 * frame as f64 / FRAMES as f64;
    let mut rng = Rng::new(6);
    let sends = |_, _, packet| packet == 70;
    let scene = Scene { frames: FRAMES, sends, ..Scene::default() };
    let recording = scene.record(|frame, pixel| {
        // Every 300th word is a photon of some 500 ADU, which must not pull the pedestal.
        let photon = if rng.below(300) == 0 { 500.0 } else { 0.0 };
        (truth(frame, pixel) + photon + NOISE_ADU * rng.normal()).round() as u16
    });
    let pixels = recording.format.pixels() as usize;
    let pedestal = (0..pixels).map(|pixel| truth(0, pixel) as f32).collect();
    let sets = vec![JungfrauConstants {
        pedestals: [pedestal, vec![15000.0; pixels], vec![15000.0; pixels]],
        factors: [vec![0.002; pixels], vec![-0.06; pixels], vec![-0.7; pixels]],
        high_gain: false,
    }];
    let constants = Constants { sets, set_of_cell: [Some(0); 16], gates: vec![vec![5.0 * NOISE_ADU as f32; pixels]] };
    let tracking = Some(Tracking { window_frames: 128, frames: TrackedFrames::All, snapshot_images: 1 });
    let selection = Selection { keep: Keep::EveryNth(100), ..Selection::default() };
    let plan = Plan { processing: Processing { selection, tracking, ..Processing::default() }, ..recording.plan() };
    let (_, seen) = recording.run(&plan, &constants);
    assert_eq!(seen.len(), 33);
    for image in &seen {
        let frame = image.head.first_frame;
        let residual = |pixel: usize| f64::from(f32::from_bits(image.pedestals[pixel])) - truth(frame, pixel);
        let residuals: Vec<f64> = (70 * 4096..71 * 4096).map(residual).collect();
        let rms = (residuals.iter().map(|r| r * r).sum::<f64>() / residuals.len() as f64).sqrt();
        assert!(rms < 5.0, "residual after frame {frame}: {rms:.2} ADU");
        assert!(residuals.iter().all(|r| r.abs() < 9.0), "residual of one pixel after frame {frame}");
    }
}

/// Frames alternate between three storage cells: two with constants of their own, one without.
#[test]
fn each_storage_cell_has_its_own_constants_and_pedestals() {
    let sends = |frame, _, packet| packet < 3 && (frame != 6 || packet == 1) && frame != 7;
    let daq_info = |frame| [0, 5, 15][frame as usize % 3] << 8;
    let recording = Scene { frames: 18, daq_info, sends, ..Scene::default() }.record_random();
    let mut constants = constants(&recording);
    let mut other = constants.sets[0].clone();
    other.pedestals.iter_mut().flatten().for_each(|p| *p += 37.0);
    other.factors[0].iter_mut().for_each(|f| *f *= 1.5);
    constants.sets.push(other);
    constants.gates.push(constants.gates[0].iter().map(|g| g * 0.5).collect());
    constants.set_of_cell = [None; 16];
    (constants.set_of_cell[0], constants.set_of_cell[5]) = (Some(1), Some(0));
    let masked = f64::from(i16::MIN);
    let seen = recording.check(&recording.plan(), &constants);
    assert!(seen[2].pixels(&recording.plan()).iter().all(|p| *p == masked), "cell 15 has no constants");
    let selection = Selection { sum_frames: 2, ..Selection::default() };
    for processing in [tracked(TrackedFrames::All, Selection::default()), tracked(TrackedFrames::All, selection)] {
        for workers in [1, 5] {
            recording.check(&Plan { processing, workers, ..recording.plan() }, &constants);
        }
    }
}

/// No packet says which storage cell a lost frame had: the frame is missing, whatever constants there are.
#[test]
fn a_lost_frame_in_a_sum_is_missing_although_cell_0_has_no_constants() {
    let recording = Scene { frames: 4, sends: |frame, _, packet| frame != 1 && packet < 3, ..Scene::default() }.record_random();
    let mut constants = constants(&recording);
    constants.set_of_cell = [None; 16];
    constants.set_of_cell[3] = Some(0);
    let selection = Selection { sum_frames: 2, ..Selection::default() };
    let plan = Plan { processing: Processing { selection, ..Processing::default() }, ..recording.plan() };
    let seen = recording.check(&plan, &constants);
    let missing = f64::from(i16::MIN + 2);
    assert!(seen[0].pixels(&plan).iter().skip(1).take(90).all(|p| *p == missing));
}
