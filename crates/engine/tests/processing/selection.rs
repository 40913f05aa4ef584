//! Which frames become images, and when a run has enough of them.

use crate::harness::{Collector, Recording, Scene, Seen, constants, losses, run_within};
use konkordia_core::plan::{FirstFrame, Plan, Processing};
use konkordia_core::ports::Source;
use konkordia_core::selection::{Flag, Keep, Marked, Selection};
use konkordia_core::sender::Sender;
use konkordia_core::series::Ended;
use konkordia_engine::run::{self};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DARK: u32 = 1 << 31;
const WANTED: u32 = 1 << 30;

/// Frames 3, 7, 11 ... are dark; two of three frames are wanted.
fn flags(frame: u64) -> u32 {
    (if frame % 4 == 3 { DARK } else { 0 }) | if frame.is_multiple_of(3) { 0 } else { WANTED } | 3 << 8
}

fn recording(frames: u64) -> Recording {
    // Frame 9 is lost after a frame that is not dark, frame 12 after one that is, frames 17 and 18 in a row, and frame
    // 22 after one that is not wanted.
    let sends = |frame, _, packet| ![9, 12, 17, 18, 22].contains(&frame) && packet > 125;
    Scene { frames, faults: losses(3), sends, daq_info: flags, ..Scene::default() }.record_random()
}

fn with(recording: &Recording, selection: Selection) -> Plan {
    Plan { processing: Processing { selection, ..Processing::default() }, ..recording.plan() }
}

/// The frames whose flags satisfy `wanted`; a frame without a packet counts as the frame before it did.
fn frames_by_flags(recording: &Recording, frames: u64, wanted: impl Fn(u32) -> bool) -> Vec<u64> {
    // Frame 0 of a run has the number 1 on the wire.
    let number = |datagram: &[u8]| u64::from_le_bytes(datagram[..8].try_into().unwrap());
    let came = |frame: u64| recording.streams.iter().any(|stream| stream.iter().any(|bytes| number(bytes) == frame + 1));
    let mut newest = false;
    let mut is_selected = |frame: u64| {
        if came(frame) {
            newest = wanted(flags(frame));
        }
        newest
    };
    (0..frames).filter(|&frame| is_selected(frame)).collect()
}

fn first_frames(seen: &[Seen]) -> Vec<u64> {
    seen.iter().map(|s| s.head.first_frame).collect()
}

#[test]
fn frames_are_selected_by_place_and_by_flag_and_added() {
    let recording = recording(30);
    let constants = constants(&recording);
    let check = |selection| first_frames(&recording.check(&with(&recording, selection), &constants));
    let plain = Selection::default();
    let flag = |mask| Flag { mask, set: true };
    let (every, by_flag) = (Marked::Every(5), Marked::Flag(flag(DARK)));
    assert_eq!(check(Selection { warmup_frames: 26, ..plain }), [26, 27, 28, 29]);
    assert!(check(Selection { warmup_frames: 40, warmup_is_dark: false, ..plain }).is_empty());
    assert_eq!(check(Selection { darks: every, warmup_frames: 2, keep: Keep::EveryNth(7), ..plain }), [2, 10, 19, 28]);
    // 9 counts as 8 did (bright), 12 as 11 did (dark).
    let bright = check(Selection { darks: by_flag, ..plain });
    assert!(bright.contains(&9) && !bright.contains(&12) && bright.contains(&17), "{bright:?}");
    let kept = check(Selection { keep: Keep::Flag(flag(WANTED)), ..plain });
    assert_eq!(kept, frames_by_flags(&recording, 30, |flags| flags & WANTED != 0));
    // 12 counts as 11 did (wanted), 22 as 21 did (not wanted, though 22 itself would have been).
    assert!(kept.contains(&12) && !kept.contains(&22) && flags(22) & WANTED != 0, "{kept:?}");
    assert_eq!(bright, frames_by_flags(&recording, 30, |flags| flags & DARK == 0));
    check(Selection { keep: Keep::Flag(Flag { mask: WANTED, set: false }), sum_frames: 3, ..plain });
    check(Selection { darks: by_flag, keep: Keep::Flag(flag(WANTED)), warmup_frames: 4, sum_frames: 2, ..plain });
    check(Selection { darks: every, keep: Keep::EveryNth(2), sum_frames: 4, images_max: Some(2), ..plain });
    assert_eq!(check(Selection { darks: every, sum_frames: 10, ..plain }), [0, 12]);
}

#[test]
fn a_file_that_holds_more_than_enough_is_left_at_once() {
    let recording = recording(30);
    let constants = constants(&recording);
    let selection = Selection { images_max: Some(3), sum_frames: 2, warmup_frames: 5, ..Selection::default() };
    let started = Instant::now();
    for (workers, packed_slots) in [(1, 1), (2, 8), (5, 2)] {
        let plan = Plan { workers, packed_slots, ..with(&recording, selection) };
        assert_eq!(first_frames(&recording.check(&plan, &constants)), [5, 7, 9]);
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// A detector that sends the same frame again and again until it is switched off.
struct Endless {
    datagrams: Vec<Vec<u8>>,
    frame: u64,
    is_off: Arc<AtomicBool>,
}

impl Endless {
    fn boxed(one_frame: &Recording) -> (Box<dyn Source>, Arc<AtomicBool>) {
        let is_off = Arc::new(AtomicBool::new(false));
        (Box::new(Self { datagrams: one_frame.streams[0].to_vec(), frame: 0, is_off: is_off.clone() }), is_off)
    }
}

impl Source for Endless {
    fn receive(&mut self, _timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(1));
        if self.is_off.load(Ordering::Relaxed) {
            return Ok(0);
        }
        self.frame += 1;
        for datagram in &mut self.datagrams {
            datagram[..8].copy_from_slice(&self.frame.to_le_bytes());
            take(datagram, Sender::NONE);
        }
        Ok(self.datagrams.len())
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

#[test]
fn a_run_ends_when_it_has_enough_although_frames_go_on() {
    let one_frame = Scene { frames: 1, sends: |_, _, packet| packet < 4, ..Scene::default() }.record_random();
    let constants = constants(&one_frame);
    let selection = Selection { images_max: Some(20), sum_frames: 3, darks: Marked::Every(10), ..Selection::default() };
    let mut plan = Plan { packed_slots: 1, frames: None, lossless_source: false, ..with(&one_frame, selection) };
    plan.first_frame = FirstFrame::Auto;
    let (mut parts, collector) = one_frame.parts(&plan, &constants);
    parts.sources = vec![Endless::boxed(&one_frame).0];
    let outcome = run_within(20, run::arm(parts).unwrap());
    assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
    let images = outcome.ledger.images;
    // On a busy machine some frames are refused, and images may be lost.
    assert_eq!((outcome.images, images.expected, outcome.ledger.written + images.lost, collector.take().len()), (20, 20, 20, 20));
    assert_eq!((outcome.ledger.frames.kept, outcome.ledger.frames.unfinished, outcome.ledger.frames.absent), (60, 0, 0));
    assert!(outcome.ledger.frames.dark >= 6);
}

/// The sink cannot keep up with a detector that does not wait: whole frames are refused, and sums remain sums of whole
/// frames.
#[test]
fn a_slow_sink_and_a_stop_in_the_middle_of_a_sum_leave_the_ledger_balanced() {
    for (packed_slots, sum_frames) in [(1, 1), (1, 4), (2, 7)] {
        let one_frame = Scene { frames: 1, sends: |_, _, packet| packet < 4, ..Scene::default() }.record_random();
        let constants = constants(&one_frame);
        let selection = Selection { sum_frames, ..Selection::default() };
        let plan = Plan {
            packed_slots,
            frames: None,
            lossless_source: false,
            slots: 4,
            window_images: 2,
            ..with(&one_frame, selection)
        };
        let (mut parts, _) = one_frame.parts(&plan, &constants);
        let slow = Collector { pause: Duration::from_millis(10), ..Collector::default() };
        let (source, is_off) = Endless::boxed(&one_frame);
        parts.sources = vec![source];
        parts.sinks = vec![Box::new(slow.clone()), Box::new(Collector::default())];
        let armed = run::arm(parts).unwrap();
        let control = armed.control();
        let stop = std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_secs(20);
            while control.progress().images_written < 3 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            control.stop();
            is_off.store(true, Ordering::Relaxed);
        });
        let outcome = run_within(20, armed);
        stop.join().unwrap();
        let images = outcome.ledger.images;
        assert!(outcome.ended == Ended::Stopped, "{:?}", outcome.ended);
        assert_eq!((outcome.ledger.written, slow.take().len() as u64), (images.complete + images.partial, outcome.images));
        assert_eq!(outcome.ledger.frames.kept, outcome.images * u64::from(sum_frames));
        assert_eq!(outcome.ledger.frames.unfinished, outcome.ledger.frames.passed % u64::from(sum_frames));
    }
}
