//! Sums of frames.

use crate::harness::{Recording, Scene, constants, losses};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, Plan, Processing};
use konkordia_core::process::Negative;
use konkordia_core::selection::Selection;

fn plan(recording: &Recording, sum_frames: u32) -> Plan {
    let selection = Selection { sum_frames, ..Selection::default() };
    Plan { processing: Processing { selection, ..Processing::default() }, ..recording.plan() }
}

#[test]
fn pixels_are_the_sums_of_rounded_frames_for_every_type() {
    // Frame 4 is lost, and so are 14 and 15.
    let sends = |frame, _, packet| ![4, 14, 15].contains(&frame) && !(40..=120).contains(&packet);
    let recording = Scene { frames: 17, faults: losses(1), sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    for (sum_frames, pixels) in [(1, &PixelType::CONVERTED[..2]), (2, &PixelType::CONVERTED[..]), (7, &[PixelType::Int16])] {
        for &pixel in pixels {
            let seen = recording.check(&Plan { pixel, ..plan(&recording, sum_frames) }, &constants);
            assert_eq!(seen.len(), 17 / sum_frames as usize);
            let has = |status| seen.iter().any(|s| s.status == status);
            assert!(has(ImageStatus::Partial) && (has(ImageStatus::Lost) || sum_frames != 2));
        }
    }
}

/// A run of 69 frames of a few packets each: one image, and five frames that make none.
#[test]
fn sums_of_64_frames_are_the_same_for_any_workers_and_any_room() {
    let sends = |frame, _, packet| frame != 30 && !(20..=125).contains(&packet);
    let recording = Scene { frames: 69, faults: losses(2), sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let first = recording.check(&Plan { workers: 1, ..plan(&recording, 64) }, &constants);
    assert_eq!(first.len(), 1);
    for (workers, packed_slots) in [(1, 1), (2, 1), (5, 1), (5, 2)] {
        let (outcome, seen) = recording.run(&Plan { workers, packed_slots, ..plan(&recording, 64) }, &constants);
        assert_eq!(outcome.ledger.frames.unfinished, 5);
        assert!(seen == first, "{workers} workers, {packed_slots} images");
    }
    recording.check(&Plan { pixel: PixelType::Float32, ..plan(&recording, 64) }, &constants);
}

#[test]
fn complete_sums_are_complete_and_others_are_held_back_where_the_policy_says_so() {
    let sends = |frame, _, packet| frame != 6 || packet != 9;
    let recording = Scene { frames: 11, sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    for missing in [MissingPolicy::Keep, MissingPolicy::Discard, MissingPolicy::CompleteOnly] {
        let compression = Compression::BSLZ4;
        let seen = recording.check(&Plan { missing, compression, packed_slots: 1, ..plan(&recording, 3) }, &constants);
        let held_back = if missing == MissingPolicy::Keep { ImageStatus::Partial } else { ImageStatus::Discarded };
        let states: Vec<_> = seen.iter().map(|s| s.status).collect();
        assert_eq!(states, [ImageStatus::Complete, ImageStatus::Complete, held_back]);
        // The record of a sum has only the packets that came in every frame.
        let packets = if missing == MissingPolicy::CompleteOnly { 0 } else { 127 };
        assert_eq!((seen[1].tiles[0].packets, seen[2].tiles[0].packets), (128, packets));
        assert_eq!(seen[1].tiles[0].header.frame_number, 4);
    }
}

/// The header of a sum is that of its first frame of which a packet came.
#[test]
fn a_sum_that_begins_with_a_lost_frame_has_the_header_of_the_next() {
    let sends = |frame, _, packet| frame != 0 && packet < 3;
    let recording = Scene { frames: 4, sends, ..Scene::default() }.record_random();
    let seen = recording.check(&plan(&recording, 2), &constants(&recording));
    assert_eq!(seen.iter().map(|s| s.tiles[0].header.frame_number).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(seen.iter().map(|s| s.tiles[0].packets).collect::<Vec<_>>(), [0, 3]);
    assert_eq!((seen[0].head.first_frame, seen[1].head.first_frame), (0, 2));
}

#[test]
fn counts_below_zero_are_kept_clamped_or_shifted() {
    let sends = |_, _, packet| packet < 18;
    let recording = Scene { frames: 3, sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    for pixel in PixelType::CONVERTED {
        for negative in [Negative::Clamp, Negative::Offset(100), Negative::Offset(-3), Negative::Offset(40_000)] {
            let plan = |sum_frames| {
                let mut plan = Plan { pixel, frames: Some(3), ..plan(&recording, sum_frames) };
                plan.processing.negative = negative;
                plan
            };
            recording.check(&plan(3), &constants);
            if matches!(negative, Negative::Clamp | Negative::Offset(100)) {
                recording.check(&plan(1), &constants);
            }
        }
    }
}
