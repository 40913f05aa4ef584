//! All roles of the rings under loom, which runs a model in every order of its threads (up to a number of preemptions)
//! and with every value that a load may see. loom has at most five threads, so each model has the roles that touch the
//! same bytes or wake each other in threads of their own, and some threads play two roles.
//!
//! There are models of memory, in which sleeps end by their time-outs, and models of waking, in which a sleep lasts
//! until somebody ends it, so that a lost wake-up is a deadlock (`sync.rs` says why). The last test leaves out one part
//! of the rings after the other and expects a model to fail.
//!
//! `scripts/check-memory loom` runs them; KONKORDIA_SLOW=1 allows more preemptions, and gives each model five minutes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use konkordia_core::frame_header::FrameHeader;
use konkordia_core::image::{ImageHead, TileRecord};
use loom::thread::{spawn, yield_now};

use crate::ring::{Committer, FrameReader, ImageReader, Monitor, Ring, RingSpec, SnapshotSpec, TileWriter, Worker};
use crate::sync::{LEFT_OUT, Part, SLEEPS_UNTIL_WOKEN};

const PAYLOAD: usize = 64;

/// A ring and how long it is used. The images are as many as fit into `frames`, each the sum of `sum` of them.
#[derive(Clone)]
struct Case {
    slots: u64,
    packed_slots: u64,
    tiles: usize,
    workers: usize,
    frame_readers: usize,
    frames: u64,
    /// Frames that are received before the other threads start, so that there are fewer orders to try.
    received: u64,
    /// 0: no frame becomes an image.
    sum: u64,
    snapshot_every: Option<u64>,
    /// The source fills lent places, and expects each payload one frame later than it belongs.
    fills: bool,
    /// See [`Patience`].
    patience: u32,
}

const SMALL: Case = Case {
    slots: 2,
    packed_slots: 1,
    tiles: 1,
    workers: 1,
    frame_readers: 0,
    frames: 3,
    received: 0,
    sum: 0,
    snapshot_every: None,
    fills: false,
    patience: 2,
};

impl Case {
    /// A ring that has received the first frames.
    fn ring(&self) -> Ring {
        let mut ring = self.empty_ring();
        for (tile, writer) in ring.receivers.iter_mut().enumerate() {
            for frame in 0..self.received {
                assert!(writer.claim(frame));
                place(writer, tile, frame, self);
            }
            writer.seal_below(self.received);
        }
        ring
    }

    fn empty_ring(&self) -> Ring {
        let snapshot = self.snapshot_every.map(|every_images| SnapshotSpec {
            every_images,
            slots: self.packed_slots / every_images + 2,
            strip_pixels: vec![1; self.workers],
        });
        Ring::new(RingSpec {
            slots: self.slots,
            packed_slots: self.packed_slots,
            tiles: self.tiles,
            tile_bytes: PAYLOAD,
            sections: 1,
            payload_bytes: PAYLOAD,
            strip_bytes_max: vec![8; self.workers],
            strip_numbers: 1,
            shares: vec![1; self.workers],
            frame_readers: self.frame_readers,
            snapshot,
            reserved_pages: false,
        })
        .expect("the kernel gives a few pages")
    }

    fn images(&self) -> u64 {
        self.frames.checked_div(self.sum).unwrap_or(0)
    }

    /// Images of which `frame` is the last frame or a later one belongs to.
    fn images_below(&self, frame: u64) -> u64 {
        frame.checked_div(self.sum).unwrap_or(0)
    }
}

/// What the packet of a frame holds.
fn payload(frame: u64, tile: usize) -> [u8; PAYLOAD] {
    [(16 * frame + tile as u64 + 1) as u8; PAYLOAD]
}

/// The packet of frame 1 never arrives at the second tile.
fn arrives(frame: u64, tile: usize) -> bool {
    (frame, tile) != (1, 1)
}

/// What a strip of an image holds: the first byte of its last frame's first tile.
fn packed(case: &Case, image: u64) -> u8 {
    payload((image + 1) * case.sum - 1, 0)[0]
}

/// A sleep that the model ends as `SLEEPS_UNTIL_WOKEN` says.
const SLEEP: Duration = Duration::ZERO;

thread_local! {
    /// Roles that came to their end in at least one order.
    static ENDED: RefCell<HashSet<&'static str>> = RefCell::default();
    /// Roles that gave up in at least one order.
    static GAVE_UP: RefCell<HashSet<&'static str>> = RefCell::default();
}

/// How often a role finds nothing to do before it gives up. In the models of memory nobody waits for ever: loom could
/// let two that wait look again and again, and never come to the one for which they wait.
struct Patience {
    role: &'static str,
    left: u32,
}

impl Patience {
    fn of(role: &'static str, case: &Case) -> Self {
        Self { role, left: if SLEEPS_UNTIL_WOKEN.get() { u32::MAX } else { case.patience + u32::from(is_slow()) } }
    }

    fn is_over(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            GAVE_UP.with_borrow_mut(|roles| roles.insert(self.role));
        }
        self.left == 0
    }

    fn end(self) {
        ENDED.with_borrow_mut(|roles| roles.insert(self.role));
    }
}

fn place(writer: &mut TileWriter, tile: usize, frame: u64, case: &Case) {
    let header = FrameHeader { frame_number: frame + 1, ..FrameHeader::default() };
    if case.fills {
        let guess = frame + u64::from(writer.has_room(frame + 1));
        writer.lend(guess, 0..1).copy_from_slice(&payload(frame, tile));
        if arrives(frame, tile) {
            let filled = writer.filled(0, PAYLOAD);
            writer.open(frame, header);
            writer.settle(frame, 0, filled);
        }
    } else if arrives(frame, tile) {
        writer.open(frame, header);
        writer.place(frame, 0, &payload(frame, tile));
    }
}

/// A receiver of a source that can wait.
fn receive(mut writer: TileWriter, tile: usize, case: &Case) {
    let mut patience = Patience::of("receiver", case);
    for frame in case.received..case.frames {
        while !writer.has_room(frame) {
            if patience.is_over() {
                return;
            }
            yield_now();
        }
        assert!(writer.claim(frame), "there is room for frame {frame}");
        place(&mut writer, tile, frame, case);
        writer.seal_below(frame + 1);
    }
    patience.end();
}

/// A receiver that loses the frames for which there is no slot. What was decided for each frame.
fn receive_or_lose(mut writer: TileWriter, tile: usize, case: &Case) -> Vec<bool> {
    let take = |frame| {
        let has_slot = writer.claim(frame);
        if has_slot {
            place(&mut writer, tile, frame, case);
        }
        writer.seal_below(frame + 1);
        has_slot
    };
    (case.received..case.frames).map(take).collect()
}

fn assert_tile(found: Option<(&TileRecord, &[u8])>, frame: u64, tile: usize) {
    assert_eq!(found.is_some(), arrives(frame, tile), "frame {frame}, tile {tile}");
    let Some((record, bytes)) = found else { return };
    assert_eq!((record.header.frame_number, record.packets), (frame + 1, 1));
    assert_eq!(bytes, payload(frame, tile), "frame {frame}, tile {tile}");
}

/// Looks at all tiles of a frame, and packs the image that ends with it.
fn work(mut worker: Worker, strip: usize, case: &Case) {
    let mut patience = Patience::of("worker", case);
    while worker.next() < case.frames {
        let frame = worker.next();
        if worker.wait(1, SLEEP) == 0 {
            if patience.is_over() {
                return;
            }
            continue;
        }
        let end = case.images_below(frame + 1);
        if end > case.images_below(frame) {
            while !worker.has_room(end - 1) {
                if patience.is_over() {
                    return;
                }
                worker.wait_for_room(SLEEP);
            }
            worker.pack(end - 1, strip, |worker, out| {
                (0..case.tiles).for_each(|tile| assert_tile(worker.tile(frame, tile), frame, tile));
                out[0] = packed(case, end - 1);
                1
            });
            worker.set_numbers(end - 1, strip, &[end]);
            if let Some(pixels) = worker.snapshot(end - 1, strip) {
                pixels[0] = end as f32;
            }
        }
        // A worker holds the frame until here.
        (0..case.tiles).for_each(|tile| assert_tile(worker.tile(frame, tile), frame, tile));
        worker.finish(1, end);
    }
    patience.end();
}

fn commit_one(committer: &mut Committer, case: &Case) {
    let frame = committer.next();
    let tiles = 0..case.tiles;
    let records: Vec<TileRecord> = tiles.map(|tile| committer.record(tile).copied().unwrap_or_default()).collect();
    for (tile, record) in records.iter().enumerate() {
        assert_eq!(u64::from(record.packets), u64::from(arrives(frame, tile)), "frame {frame}, tile {tile}");
    }
    if case.images_below(frame + 1) > case.images_below(frame) {
        let head = ImageHead { first_frame: frame + 1 - case.sum, frames: case.sum as u32, ..ImageHead::default() };
        committer.publish(head, &records);
    }
    committer.pass();
}

fn commit(mut committer: Committer, case: &Case) {
    let mut patience = Patience::of("committer", case);
    while committer.next() < case.frames {
        if committer.wait(SLEEP) {
            commit_one(&mut committer, case);
        } else if patience.is_over() {
            return;
        }
    }
    patience.end();
}

fn take(mut reader: ImageReader, case: &Case) {
    let mut patience = Patience::of("reader of images", case);
    while reader.next() < case.images() {
        if !reader.wait(SLEEP) {
            if patience.is_over() {
                return;
            }
            continue;
        }
        reader.take(|view| {
            assert_eq!(view.head.first_frame, view.image * case.sum);
            assert_eq!(view.records[0].header.frame_number, (view.image + 1) * case.sum);
            for strip in 0..view.strips() {
                assert_eq!(view.strip(strip), [packed(case, view.image)], "image {}", view.image);
                assert_eq!(view.numbers(strip).collect::<Vec<_>>(), [view.image + 1]);
                let has_snapshot = case.snapshot_every.is_some_and(|every| view.image.is_multiple_of(every));
                assert_eq!(view.snapshot(strip), has_snapshot.then_some(&[(view.image + 1) as f32][..]));
            }
        });
    }
    patience.end();
}

/// Reads raw frames beside the workers.
fn copy(mut reader: FrameReader, case: &Case) {
    let mut patience = Patience::of("reader of raw frames", case);
    while reader.next() < case.frames {
        if !reader.wait(SLEEP) {
            if patience.is_over() {
                return;
            }
            continue;
        }
        for _begin_and_end in 0..2 {
            (0..case.tiles).for_each(|tile| assert_tile(reader.tile(tile), reader.next(), tile));
        }
        reader.pass();
    }
    patience.end();
}

/// Watches a run until its end: what is behind never overtakes what is ahead.
fn watch(monitor: &Monitor, case: &Case) {
    let mut before = (0, 0);
    for _look in 0..2 {
        let seen = (monitor.committed(), monitor.taken());
        assert!(seen.0 >= before.0 && seen.1 >= before.1, "cursors only move up");
        assert!(seen.0 <= monitor.received() && seen.1 <= monitor.published());
        assert!(monitor.slots_used() <= case.slots);
        before = seen;
    }
}

/// Starts a role in a thread of its own.
fn beside(case: &Arc<Case>, role: impl FnOnce(&Case) + Send + 'static) {
    let case = Arc::clone(case);
    spawn(move || role(&case));
}

/// Receivers, a worker, the committer, and perhaps a reader of raw frames; the first slot is used twice.
fn frames_of(case: Case) {
    let ring = case.ring();
    let worker = ring.workers.into_iter().next().unwrap();
    let committer = ring.committer;
    let shared = Arc::new(case);
    for (tile, receiver) in ring.receivers.into_iter().enumerate() {
        beside(&shared, move |case| receive(receiver, tile, case));
    }
    for reader in ring.frame_readers {
        beside(&shared, move |case| copy(reader, case));
    }
    beside(&shared, move |case| work(worker, 0, case));
    commit(committer, &shared);
}

fn frames() {
    frames_of(Case { tiles: 2, received: 2, ..SMALL });
}

/// As `frames`, with sources that fill lent places: before the frame is opened, and in the slot of the next frame as
/// soon as that is free.
fn filled_frames() {
    frames_of(Case { tiles: 2, received: 2, fills: true, ..SMALL });
}

fn raw_frames() {
    frames_of(Case { frame_readers: 1, received: 2, ..SMALL });
}

/// A receiver, two workers, the committer and the reader of images, which share one slot of images.
fn images_of(case: Case) {
    let ring = case.ring();
    let receiver = ring.receivers.into_iter().next().unwrap();
    let (committer, reader) = (ring.committer, ring.image_reader);
    let shared = Arc::new(case);
    for (strip, worker) in ring.workers.into_iter().enumerate() {
        beside(&shared, move |case| work(worker, strip, case));
    }
    beside(&shared, move |case| commit(committer, case));
    beside(&shared, move |case| take(reader, case));
    receive(receiver, 0, &shared);
}

fn images() {
    images_of(Case { workers: 2, frames: 2, received: 2, sum: 1, ..SMALL });
}

/// Images that are sums of frames: their ring is slower than that of the frames.
fn sums() {
    images_of(Case { slots: 4, frames: 4, received: 3, sum: 2, ..SMALL });
}

/// Snapshots, whose slots are used again later than those of the images.
fn snapshots() {
    images_of(Case { slots: 5, frames: 5, received: 5, sum: 1, snapshot_every: Some(2), patience: 5, ..SMALL });
}

/// Two receivers that race for the slot which the committer gives back, and lose what finds none.
fn claims() {
    let case = Case { tiles: 2, frames: 4, received: 2, ..SMALL };
    let mut ring = case.ring();
    ring.workers[0].finish(1, 0);
    let shared = Arc::new(case);
    let answers = Arc::new(Mutex::new(Vec::new()));
    for (tile, writer) in ring.receivers.into_iter().enumerate() {
        let (case, answers) = (Arc::clone(&shared), Arc::clone(&answers));
        spawn(move || {
            let decided = receive_or_lose(writer, tile, &case);
            let mut answers = answers.lock().unwrap();
            answers.push(decided);
            assert!(answers.iter().all(|other| *other == answers[0]), "the receivers disagree: {answers:?}");
        });
    }
    ring.committer.pass();
}

/// A watcher beside all other roles; some share a thread.
fn watched() {
    let case = Case { frames: 2, sum: 1, ..SMALL };
    let ring = case.ring();
    let (receiver, worker) = (ring.receivers.into_iter().next().unwrap(), ring.workers.into_iter().next().unwrap());
    let (committer, reader, monitor) = (ring.committer, ring.image_reader, ring.monitor);
    let shared = Arc::new(case);
    beside(&shared, move |case| receive(receiver, 0, case));
    beside(&shared, move |case| work(worker, 0, case));
    beside(&shared, move |case| commit(committer, case));
    beside(&shared, move |case| take(reader, case));
    watch(&monitor, &shared);
}

/// Everybody who sleeps is woken: two workers and a reader of raw frames by a receiver, the committer by the workers.
fn woken_for_frames() {
    let case = Case { frames: 2, workers: 2, frame_readers: 1, ..SMALL };
    let ring = case.ring();
    let receiver = ring.receivers.into_iter().next().unwrap();
    let (committer, reader) = (ring.committer, ring.frame_readers.into_iter().next().unwrap());
    let shared = Arc::new(case);
    for (strip, worker) in ring.workers.into_iter().enumerate() {
        beside(&shared, move |case| work(worker, strip, case));
    }
    beside(&shared, move |case| commit(committer, case));
    beside(&shared, move |case| copy(reader, case));
    receive(receiver, 0, &shared);
}

/// Two receivers that seal a frame at the same moment: one of them wakes the worker. The same for two workers and the
/// committer.
fn woken_by_the_last() {
    let case = Case { frames: 1, tiles: 2, workers: 2, ..SMALL };
    let ring = case.ring();
    let committer = ring.committer;
    let shared = Arc::new(case);
    for (tile, receiver) in ring.receivers.into_iter().enumerate() {
        beside(&shared, move |case| receive(receiver, tile, case));
    }
    for (strip, worker) in ring.workers.into_iter().enumerate() {
        beside(&shared, move |case| work(worker, strip, case));
    }
    commit(committer, &shared);
}

/// As above, for the reader of images and for workers that wait for room.
fn woken_for_images() {
    images_of(Case { workers: 2, frames: 2, sum: 1, ..SMALL });
}

/// One of the scenes above, and how it is run.
#[derive(Clone, Copy)]
struct Model {
    scene: fn(),
    /// See `SLEEPS_UNTIL_WOKEN`.
    is_of_waking: bool,
    /// How often a thread is interrupted where it could go on: in `make test`, and in the slow lane.
    preemptions: (usize, usize),
}

const fn of_memory(scene: fn(), preemptions: (usize, usize)) -> Model {
    Model { scene, is_of_waking: false, preemptions }
}

const fn of_waking(scene: fn()) -> Model {
    Model { scene, is_of_waking: true, preemptions: (1, 2) }
}

const FRAMES: Model = of_memory(frames, (1, 2));
const FILLED_FRAMES: Model = of_memory(filled_frames, (1, 2));
const RAW_FRAMES: Model = of_memory(raw_frames, (1, 2));
const IMAGES: Model = of_memory(images, (1, 3));
const SUMS: Model = of_memory(sums, (1, 2));
const SNAPSHOTS: Model = of_memory(snapshots, (1, 2));
const CLAIMS: Model = of_memory(claims, (4, 8));
const WATCHED: Model = of_memory(watched, (1, 2));
const WOKEN_FOR_FRAMES: Model = of_waking(woken_for_frames);
const WOKEN_BY_THE_LAST: Model = of_waking(woken_by_the_last);
const WOKEN_FOR_IMAGES: Model = of_waking(woken_for_images);

fn is_slow() -> bool {
    std::env::var_os("KONKORDIA_SLOW").is_some_and(|v| v == "1")
}

/// The slow lane ends a model here: those of waking have more orders than can be tried in half an hour.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(300);

/// Runs a model in all orders with at most so many preemptions; says how many there were, or what failed.
fn check(model: Model, left_out: Option<Part>, preemptions: usize) -> Result<usize, String> {
    LEFT_OUT.set(left_out);
    SLEEPS_UNTIL_WOKEN.set(model.is_of_waking);
    ENDED.take();
    GAVE_UP.take();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.max_duration = is_slow().then_some(LONGEST);
    let orders = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&orders);
    let result = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            count.fetch_add(1, Relaxed);
            (model.scene)();
        });
    }));
    LEFT_OUT.set(None);
    match result {
        Ok(()) => Ok(orders.load(Relaxed)),
        Err(panic) => Err(match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.clone(),
            (_, Some(text)) => (*text).to_owned(),
            _ => "a panic without words".to_owned(),
        }),
    }
}

fn assert_holds(model: Model) {
    let preemptions = if is_slow() { model.preemptions.1 } else { model.preemptions.0 };
    let began = std::time::Instant::now();
    let orders = check(model, None, preemptions).unwrap_or_else(|why| panic!("{why}"));
    // A model in which a role always gave up would show nothing of what comes after it.
    let (gave_up, ended) = (GAVE_UP.take(), ENDED.take());
    assert!(gave_up.is_subset(&ended), "only these roles came to their end: {ended:?}");
    let elapsed = began.elapsed();
    let extent = if is_slow() && elapsed >= LONGEST { "cut off after" } else { "all" };
    println!("{extent} {orders} orders, at most {preemptions} preemptions, {:.1} s", elapsed.as_secs_f32());
}

#[test]
fn frames_are_whole() {
    assert_holds(FRAMES);
}

#[test]
fn frames_that_sources_fill_are_whole() {
    assert_holds(FILLED_FRAMES);
}

#[test]
fn raw_frames_are_whole() {
    assert_holds(RAW_FRAMES);
}

#[test]
fn images_are_whole() {
    assert_holds(IMAGES);
}

#[test]
fn sums_are_whole() {
    assert_holds(SUMS);
}

#[test]
fn snapshots_are_whole() {
    assert_holds(SNAPSHOTS);
}

#[test]
fn a_claim_holds_for_all_receivers() {
    assert_holds(CLAIMS);
}

#[test]
fn what_is_behind_never_overtakes() {
    assert_holds(WATCHED);
}

#[test]
fn who_sleeps_is_woken_for_frames() {
    assert_holds(WOKEN_FOR_FRAMES);
}

#[test]
fn of_several_who_finish_the_last_wakes() {
    assert_holds(WOKEN_BY_THE_LAST);
}

#[test]
fn who_sleeps_is_woken_for_images() {
    assert_holds(WOKEN_FOR_IMAGES);
}

/// Without any one of its parts the rings fail, and the models see it.
#[test]
fn a_part_that_is_left_out_is_noticed() {
    let (touched, stuck, stale) = ("Causality violation", "deadlock", "cursors only move up");
    let unready = "is not ready for the committer";
    for (part, model, expected) in [
        (Part::CursorRelease, FRAMES, touched),
        (Part::CursorRelease, IMAGES, unready),
        (Part::CursorAcquire, FRAMES, touched),
        (Part::CursorRelease, FILLED_FRAMES, touched),
        (Part::CursorAcquire, FILLED_FRAMES, touched),
        (Part::CursorAcquire, IMAGES, unready),
        (Part::RawHold, RAW_FRAMES, touched),
        (Part::ClaimRelease, CLAIMS, stale),
        (Part::ClaimAcquire, CLAIMS, stale),
        (Part::WakeWorkers, WOKEN_FOR_FRAMES, stuck),
        (Part::WakeFrameReaders, WOKEN_FOR_FRAMES, stuck),
        (Part::WakeCommitter, WOKEN_FOR_FRAMES, stuck),
        (Part::WakeImageReader, WOKEN_FOR_IMAGES, stuck),
        (Part::WakeForRoom, WOKEN_FOR_IMAGES, stuck),
        (Part::MoveFence, WOKEN_FOR_FRAMES, stuck),
        (Part::MoveFence, WOKEN_FOR_IMAGES, stuck),
        (Part::MoveFence, WOKEN_BY_THE_LAST, stuck),
        (Part::SleepFence, WOKEN_FOR_FRAMES, stuck),
        (Part::SleepFence, WOKEN_FOR_IMAGES, stuck),
    ] {
        let result = check(model, Some(part), 1);
        let why = result.expect_err(&format!("nobody noticed that {part:?} was left out"));
        assert!(why.contains(expected), "{part:?}: {why}");
    }
}
