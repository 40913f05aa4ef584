//! How runs end, and what a stream that is dead, late, damaged or hostile does to the others. Tiny EIGER tiles from
//! scripted sources; a run that does not end within its time fails the test instead of hanging it. The second half
//! tests what the first packets of a stream decide.

use konkordia_core::affinity::Affinity;
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::CommittedImage;
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{AnalysisPlan, Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{Sink, SinkError, Source};
use konkordia_core::sender::{Sender, Senders};
use konkordia_core::series::Ended;
use konkordia_core::setup::{Means, Ports, SetupRules, What};
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{self, Armed, Consumers, PixelConstants, RunFailure, RunOutcome, RunParts, WorkerKind};
use konkordia_kernels::Isa;
use konkordia_sources::udp::{UdpReceiver, UdpSender};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Packets of a tile at 4 bit.
const PACKETS: u32 = 16;

fn plan(streams: u32, images: Option<u64>) -> Plan {
    plan_of(TileFormat::eiger(4).unwrap(), streams, images)
}

fn plan_of(format: TileFormat, streams: u32, images: Option<u64>) -> Plan {
    Plan {
        geometry: ImageGeometry::stacked(format, streams).unwrap(),
        recipe: Recipe::Raw,
        pixel: PixelType::Uint16,
        compression: Compression::None,
        processing: Processing::default(),
        frames: images,
        first_frame: FirstFrame::Number(1),
        missing: MissingPolicy::Keep,
        slots: 16,
        packed_slots: 16,
        lossless_source: false,
        analysis: AnalysisPlan::default(),
        // Those of sockets do.
        fills_slots: true,
        window_images: 8,
        deadline_ns: 200_000_000,
        stall_timeout_ns: 400_000_000,
        start_timeout_ns: 5_000_000_000,
        workers: 1,
        gpu: None,
        affinity: Affinity::default(),
        setup: konkordia_core::setup::SetupRules::default(),
    }
}

fn datagram(frame: u64, packet: u32) -> Vec<u8> {
    let mut d = vec![0x11; 48 + 4096];
    d[0..8].copy_from_slice(&frame.to_le_bytes());
    d[12..16].copy_from_slice(&packet.to_le_bytes());
    (d[46], d[47]) = (1, 2);
    d
}

/// What a scripted source does at one call.
enum Step {
    Packets(u64, Range<u32>),
    /// One datagram as it is.
    Sent(Vec<u8>),
    /// Waits; the source was empty.
    Pause(u64),
    /// Raises this to the first number and waits until another source has set it to the second; the source was empty at
    /// the start.
    RaiseAndAwait(Arc<AtomicU64>, u64, u64),
    Fail,
    Panic,
}
use Step::{Packets, Pause};

struct Script(VecDeque<Step>);

/// When a thread of these tests last got its processor much later than it should, in ms since [`BEGAN`].
static LATE_MS: AtomicU64 = AtomicU64::new(0);
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// A delay longer than this counts.
const LATE: Duration = Duration::from_millis(8);

/// Sleeps, and records if the machine lets it sleep much longer.
fn pause(time: Duration) {
    let (began, until) = (*BEGAN, Instant::now() + time);
    std::thread::sleep(time);
    if until.elapsed() > LATE {
        LATE_MS.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// Runs a test that needs detectors that send at the same time and a committer that keeps up with them. A machine that
/// gives a thread no processor for a while breaks that, and a failure then proves nothing: the test is run again. A
/// failure while every thread was in time counts.
fn in_time(test: impl Fn()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The threads of the engine do not say when they are late, so as many threads as there are processors watch for
        // delays.
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    pause(Duration::from_millis(1));
                }
            });
        }
        let run = || {
            let mut left = 9;
            loop {
                let since_ms = BEGAN.elapsed().as_millis() as u64;
                match std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) {
                    Err(_) if left > 0 && LATE_MS.load(Ordering::Relaxed) >= since_ms => left -= 1,
                    result => return result,
                }
            }
        };
        let result = run();
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

impl Source for Script {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        match self.0.pop_front() {
            None => pause(timeout),
            Some(Step::Pause(ms)) => pause(Duration::from_millis(ms)),
            Some(Step::RaiseAndAwait(flag, set, awaited)) => {
                flag.fetch_max(set, Ordering::AcqRel);
                while flag.load(Ordering::Acquire) != awaited {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Some(Step::Fail) => return Err(io::Error::other("the script says so")),
            Some(Step::Panic) => panic!("the script says so"),
            Some(Step::Sent(datagram)) => {
                take(&datagram, Sender::NONE);
                return Ok(1);
            }
            Some(Step::Packets(frame, packets)) => {
                packets.clone().for_each(|p| take(&datagram(frame, p), Sender::NONE));
                return Ok(packets.len());
            }
        }
        Ok(0)
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

fn script(steps: impl IntoIterator<Item = Step>) -> Box<dyn Source> {
    Box::new(Script(steps.into_iter().collect()))
}

/// The first frames of the run, from 1 on, whole, with a pause after each.
fn frames(count: u64, pause_ms: u64) -> impl Iterator<Item = Step> {
    (1..=count).flat_map(move |frame| [Packets(frame, 0..PACKETS), Pause(pause_ms)])
}

/// Waits at one image; panics at another.
#[derive(Default)]
struct Slow {
    at: Option<(u64, Duration)>,
    panics_at: Option<u64>,
}

impl Sink for Slow {
    fn image(&mut self, image: &Arc<CommittedImage>) -> Result<(), SinkError> {
        assert!(self.panics_at != Some(image.number), "the test says so");
        if let Some((_, pause)) = self.at.filter(|at| at.0 == image.number) {
            std::thread::sleep(pause);
        }
        Ok(())
    }
}

fn armed(plan: Plan, sources: Vec<Box<dyn Source>>, sink: Slow) -> Armed {
    let sinks: Vec<Box<dyn Sink>> = vec![Box::new(sink)];
    run::arm(RunParts {
        plan: Arc::new(plan),
        sources,
        constants: PixelConstants::None,
        sinks,
        consumers: Consumers::default(),
        frame_sinks: vec![],
        isa: Isa::detect(),
        workers: WorkerKind::default(),
    })
    .unwrap()
}

/// Fails the test if the run does not end, or if its ledger does not balance although no thread of it panicked.
fn run_within(seconds: u64, armed: Armed) -> RunOutcome {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        // After a time-out nothing listens any more.
        let _ = done.send(armed.run());
    });
    match result.recv_timeout(Duration::from_secs(seconds)) {
        Ok(outcome) => {
            if !outcome.has_panicked() {
                assert_eq!(outcome.ledger.imbalances(), []);
            }
            outcome
        }
        Err(why) => panic!("the run did not end within {seconds} s, or panicked: {why}"),
    }
}

#[test]
fn an_absurd_frame_number_does_not_make_a_run_without_end_endless() {
    let steps = [Packets(1, 0..PACKETS), Packets(u64::MAX - 3, 0..5), Packets(1 << 63, 0..5), Packets(2, 0..PACKETS)];
    let outcome = run_within(20, armed(plan(1, None), vec![script(steps)], Slow::default()));
    assert_eq!((outcome.images, outcome.ledger.images.complete, outcome.ledger.total().foreign), (2, 2, 10));
}

/// The run uses the largest frame number to mark that it has no first frame yet.
#[test]
fn the_first_frame_cannot_be_the_largest_number() {
    let plan = Plan { first_frame: FirstFrame::Auto, ..plan(1, Some(1)) };
    let steps = [Packets(u64::MAX, 0..2), Packets(7, 0..PACKETS)];
    let outcome = run_within(20, armed(plan, vec![script(steps)], Slow::default()));
    let total = outcome.ledger.total();
    assert_eq!((outcome.first_frame, total.foreign, total.duplicate, total.placed), (Some(7), 2, 0, 16));
}

#[test]
fn no_images_are_taken_when_none_are_planned() {
    let outcome = run_within(20, armed(plan(2, Some(0)), vec![script(frames(3, 0)), script([])], Slow::default()));
    assert!(outcome.ended == Ended::Finished);
    assert_eq!((outcome.images, outcome.ledger.images.expected, outcome.ledger.total().placed), (0, 0, 0));
}

/// Many more images than the ring has slots come within one deadline.
#[test]
fn a_dead_stream_does_not_fill_the_ring() {
    in_time(|| {
        let plan = Plan { deadline_ns: 1_500_000_000, stall_timeout_ns: 5_000_000_000, ..plan(2, Some(200)) };
        let outcome = run_within(60, armed(plan, vec![script(frames(200, 3)), script([])], Slow::default()));
        let images = outcome.ledger.images;
        assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
        assert!(images.partial > 190, "{images:?}");
    });
}

/// As before, with foreign datagrams on the dead stream's port all the time.
#[test]
fn stray_packets_on_a_dead_stream_do_not_hold_the_run_up() {
    in_time(|| {
        let receiver = UdpReceiver::bind("127.0.0.1:0".parse().unwrap(), 1 << 20).unwrap();
        let mut sender = UdpSender::connect(receiver.local_addr().unwrap()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    sender.send(b"hello").unwrap();
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            let outcome =
                run_within(60, armed(plan(2, Some(60)), vec![script(frames(60, 5)), Box::new(receiver)], Slow::default()));
            stop.store(true, Ordering::Relaxed);
            assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
            assert!(outcome.ledger.images.partial > 50, "{:?}", outcome.ledger.images);
        });
    });
}

/// A thread that gets no processor for a while finds many images in its socket afterwards. All of them came after it
/// had last read the socket.
#[test]
fn what_came_after_the_socket_was_seen_empty_is_not_sealed() {
    // 1: the second stream has found its socket empty. 2: the first stream has sent 40 images.
    let stage = Arc::new(AtomicU64::new(0));
    let plan = Plan { slots: 64, deadline_ns: 5_000_000_000, stall_timeout_ns: 5_000_000_000, ..plan(2, Some(41)) };
    let first = [Step::RaiseAndAwait(stage.clone(), 0, 1)].into_iter().chain(frames(40, 0));
    let first = first.chain([Step::RaiseAndAwait(stage.clone(), 2, 2), Packets(41, 0..PACKETS)]);
    let second = [Step::RaiseAndAwait(stage, 1, 2)].into_iter().chain((1..=41).map(|frame| Packets(frame, 0..PACKETS)));
    let outcome = run_within(20, armed(plan, vec![script(first), script(second)], Slow::default()));
    assert_eq!((outcome.ledger.images.complete, outcome.ledger.total().late), (41, 0));
}

/// A sink that hangs does not mean that the detector has stopped.
#[test]
fn a_sink_that_hangs_is_not_a_stall() {
    let sink = Slow { at: Some((0, Duration::from_millis(1200))), ..Slow::default() };
    let outcome = run_within(20, armed(plan(1, Some(100)), vec![script(frames(100, 20))], sink));
    assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
    assert!(outcome.ledger.total().no_slot > 0 && outcome.ledger.images.complete > 20);
}

#[test]
fn a_source_that_fails_ends_the_run_and_what_did_not_come_was_not_received() {
    let sources = vec![script(frames(3, 0).chain([Step::Fail])), script(frames(3, 0))];
    let outcome = run_within(20, armed(plan(2, Some(6)), sources, Slow::default()));
    assert!(matches!(outcome.failure, Some(RunFailure::Source(0, _))), "{:?}", outcome.ended);
    let images = outcome.ledger.images;
    assert_eq!((images.expected, images.complete, images.lost, outcome.images), (3, 3, 0, 3));
    assert_eq!((images.not_taken, images.not_received, outcome.ledger.frames.packets_missing), (0, 3, 0));
    assert!(!outcome.ledger.is_complete());
}

/// The state given to a thread outlives it: its ledger, and the sink that must still be closed.
#[test]
fn a_thread_that_panics_ends_the_run_with_what_is_known() {
    let source = script(frames(3, 0).chain([Step::Panic]));
    let outcome = run_within(20, armed(plan(2, None), vec![source, script(frames(9, 1))], Slow::default()));
    let Some(RunFailure::Panicked(panic)) = &outcome.failure else { panic!("{:?}", outcome.ended) };
    assert_eq!((&*panic.thread, outcome.ended_name()), ("rx-0", "program error"));
    assert!(panic.why.contains("the script says so"), "{panic}");
    assert_eq!((outcome.ledger.streams.len(), outcome.ledger.streams[0].placed, outcome.sinks.len()), (2, 48, 1));
    assert_eq!(outcome.ledger.streams[0].received, outcome.ledger.streams[0].verdicts());

    let sink = Slow { panics_at: Some(2), ..Slow::default() };
    let outcome = run_within(20, armed(plan(2, None), vec![script(frames(9, 1)), script(frames(9, 1))], sink));
    let Some(RunFailure::Panicked(panic)) = &outcome.failure else { panic!("{:?}", outcome.ended) };
    assert_eq!((&*panic.thread, outcome.sinks.len()), ("out-file", 1));
    let images = outcome.ledger.images;
    assert!(outcome.ledger.written == 2 && outcome.ledger.unwritten >= 1, "{images:?}");
    assert_eq!(outcome.ledger.written + outcome.ledger.unwritten, images.complete + images.partial);
    assert_eq!(run::end_of_run(&outcome).ended.name(), "failed");
}

/// Images that were committed before the panic are good, and the sink takes them.
#[test]
fn what_was_committed_before_a_panic_is_still_written() {
    // The sink is busy with the first image until the receiver has panicked.
    let sink = Slow { at: Some((0, Duration::from_millis(800))), ..Slow::default() };
    let source = script(frames(5, 1).chain([Pause(300), Step::Panic]));
    let outcome = run_within(20, armed(plan(1, None), vec![source], sink));
    assert!(outcome.has_panicked(), "{:?}", outcome.ended);
    let images = outcome.ledger.images;
    assert_eq!((outcome.ledger.written, outcome.ledger.unwritten), (images.complete, 0), "{images:?}");
    assert!(outcome.ledger.written >= 4, "{images:?}");
}

/// A source that is never empty, as when the processors do not keep up: that is when people need to see the drops.
struct Flood;

impl Source for Flood {
    fn receive(&mut self, _timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        std::thread::sleep(Duration::from_millis(1));
        take(b"hello", Sender::NONE);
        Ok(1)
    }

    fn dropped(&mut self) -> u64 {
        5
    }
}

#[test]
fn drops_are_shown_while_the_socket_is_never_empty() {
    let armed = armed(plan(1, None), vec![Box::new(Flood)], Slow::default());
    let control = armed.control();
    let watch = std::thread::spawn(move || {
        let start = Instant::now();
        while control.progress().packets.kernel_dropped == 0 && start.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = control.progress().packets.kernel_dropped;
        control.stop();
        seen
    });
    run_within(20, armed);
    assert_eq!(watch.join().unwrap(), 5);
}

/// One stream sends a whole tile far ahead and falls silent, while another stream goes on: nothing moves, and nothing
/// is lost but what did not come. If both streams send frames there, the detector has jumped.
#[test]
fn one_stream_alone_moves_no_other() {
    in_time(|| {
        let strays = frames(3, 3).chain([Packets(90, 0..PACKETS)]);
        let sources = vec![script(frames(100, 5)), script(strays)];
        let outcome = run_within(30, armed(plan(2, Some(100)), sources, Slow::default()));
        let streams = &outcome.ledger.streams;
        assert_eq!((streams[0].placed, streams[1].placed, streams[1].foreign), (1600, 48, 16));
        assert_eq!((outcome.ledger.images.complete, outcome.ledger.images.partial), (3, 97));

        // Both have sent ten frames before one of them jumps.
        let gone = |stage: &Arc<AtomicU64>| {
            let wait = Step::RaiseAndAwait(Arc::clone(stage), 0, 1);
            frames(10, 1).chain([wait]).chain((60..=100).flat_map(|frame| [Packets(frame, 0..PACKETS), Pause(1)]))
        };
        for late_ms in [0, 20, 300] {
            let late = (1..=10).flat_map(|frame| [Packets(frame, 0..PACKETS), Pause(1)]);
            let stage = Arc::new(AtomicU64::new(0));
            let late = late.chain([Step::RaiseAndAwait(Arc::clone(&stage), 1, 1), Pause(late_ms)]);
            let late = late.chain((60..=100).flat_map(|frame| [Packets(frame, 0..PACKETS), Pause(1)]));
            let plan = Plan { slots: 128, stall_timeout_ns: 3_000_000_000, ..plan(2, Some(100)) };
            let outcome = run_within(30, armed(plan, vec![script(gone(&stage)), script(late)], Slow::default()));
            let (total, images) = (outcome.ledger.total(), outcome.ledger.images);
            assert_eq!((images.complete, images.lost, total.foreign, total.no_slot), (51, 49, 0, 0), "{late_ms} ms: {total:?}");
        }
    });
}

/// Frames behind a gap are whole from the first packet on, also where fewer packets than a tile come and nothing
/// follows.
#[test]
fn the_first_and_the_only_frame_behind_a_gap_are_taken() {
    in_time(|| {
        for (packets, status) in [(0..PACKETS, (3, 0)), (0..PACKETS / 2, (2, 1))] {
            let steps = frames(2, 1).chain([Packets(50, packets), Pause(400)]);
            let plan = Plan { stall_timeout_ns: 1_000_000_000, ..plan(1, Some(50)) };
            let outcome = run_within(20, armed(plan, vec![script(steps)], Slow::default()));
            let images = outcome.ledger.images;
            assert_eq!((images.complete, images.partial, images.lost), (status.0, status.1, 47), "{:?}", outcome.ledger.total());
            assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
        }
    });
}

/// A plan with which packets that contradict the configuration are not placed.
fn strict(format: TileFormat, streams: u32, images: Option<u64>) -> Plan {
    let setup = SetupRules {
        is_strict: true,
        ports_per_module: format.tiles_per_module,
        ports: Ports::Unknown,
        senders: Senders::Learned,
    };
    Plan { setup, first_frame: FirstFrame::Auto, ..plan_of(format, streams, images) }
}

/// A detector that is counting already sends 8-bit pixels where 16 bits are configured, and the run begins in the
/// middle of a frame, of which packets are lost, too. Two 8-bit counts would be taken for one 16-bit pixel.
#[test]
fn half_tiles_are_refused_when_the_run_begins_in_the_middle_of_a_frame() {
    let format = TileFormat::eiger(16).unwrap();
    for (from, until) in [(20, 32), (20, 31), (0, 31), (31, 32)] {
        for first_frame in [FirstFrame::Auto, FirstFrame::Number(1)] {
            let frames = (6..20).flat_map(|frame| [Packets(frame, 0..32), Pause(1)]);
            let steps = [Packets(5, from..until)].into_iter().chain(frames);
            let plan = Plan { first_frame, start_timeout_ns: 1_000_000_000, ..strict(format, 1, Some(10)) };
            let outcome = run_within(20, armed(plan, vec![script(steps)], Slow::default()));
            assert_eq!(outcome.ledger.total().placed, 0, "{from} to {until}, {first_frame:?}");
            assert!(outcome.ended == Ended::NoData, "{:?}", outcome.ended);
            let means = Means::BitsOrRows { bits: 8, rows: 128 };
            assert_eq!(outcome.findings[0].what, What::Packets { seen: 32, expected: 64, means });
        }
    }
}

/// While the run waits, the detector is set correctly.
#[test]
fn a_stream_that_was_refused_begins_with_the_first_frame_that_shows_the_tile() {
    in_time(|| {
        let format = TileFormat::eiger(8).unwrap();
        for sent in [16, 64] {
            let wrong = (1..20).flat_map(|frame| [Packets(frame, 0..sent), Pause(1)]);
            let right = (20..40).flat_map(|frame| [Packets(frame, 0..32), Pause(1)]);
            let outcome = run_within(20, armed(strict(format, 1, Some(10)), vec![script(wrong.chain(right))], Slow::default()));
            assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
            let (first, total) = (outcome.first_frame.unwrap(), outcome.ledger.total());
            assert!((20..24).contains(&first) && total.placed >= 9 * 32, "{sent}: from frame {first}, {total:?}");
            assert_eq!(outcome.findings, [], "what came in the end is right");
        }
    });
}

fn of_module(module_id: u16, frame: u64, packet: u32) -> Vec<u8> {
    let mut d = datagram(frame, packet);
    d[32..34].copy_from_slice(&module_id.to_le_bytes());
    d
}

#[test]
fn one_stray_packet_does_not_take_a_stream() {
    in_time(|| {
        for first_frame in [FirstFrame::Auto, FirstFrame::Number(1)] {
            let steps = [Step::Sent(of_module(7, 1, 3)), Pause(400)].into_iter().chain(frames(10, 1));
            let plan = Plan { first_frame, ..strict(TileFormat::eiger(4).unwrap(), 1, Some(10)) };
            let outcome = run_within(20, armed(plan, vec![script(steps)], Slow::default()));
            let (total, images) = (outcome.ledger.total(), outcome.ledger.images);
            assert_eq!((total.placed, total.foreign, images.complete), (160, 1, 10), "{first_frame:?}");
        }
    });
}

/// A packet, followed by this many pauses, each as long as a receiver waits.
fn spread(packet: Step, pauses: usize) -> impl Iterator<Item = Step> {
    [packet].into_iter().chain((0..pauses).map(|_| Pause(2)))
}

/// As [`stray_packets_on_a_dead_stream_do_not_hold_the_run_up`], with packets of the right form that all have the
/// same frame number.
#[test]
fn packets_of_one_frame_on_a_dead_stream_do_not_hold_the_run_up() {
    in_time(|| {
        for frame in [1, 7, 1 << 40] {
            let strays = (0..60).flat_map(move |packet| spread(Packets(frame, packet % 16..packet % 16 + 1), 15));
            let sources = vec![script(frames(200, 3)), script(strays)];
            let outcome = run_within(20, armed(strict(TileFormat::eiger(4).unwrap(), 2, Some(200)), sources, Slow::default()));
            assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
            let total = outcome.ledger.total();
            assert!(
                outcome.ledger.images.partial > 190 && total.no_slot == 0,
                "frame {frame}: {:?}, {total:?}",
                outcome.ledger.images
            );
        }
    });
}

/// They do not prolong a run of few images, either.
#[test]
fn packets_of_one_frame_on_a_dead_stream_do_not_keep_a_short_run() {
    in_time(|| {
        let strays = (0..300).flat_map(|packet| spread(Packets(3, packet % 4..packet % 4 + 1), 25));
        let plan = Plan { stall_timeout_ns: 10_000_000_000, ..strict(TileFormat::eiger(16).unwrap(), 2, Some(5)) };
        let whole = (1..6).flat_map(|frame| [Packets(frame, 0..64), Pause(3)]);
        let sources = vec![script(whole), script(strays)];
        let start = Instant::now();
        let outcome = run_within(20, armed(plan, sources, Slow::default()));
        assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    });
}

/// JUNGFRAU that reads 8 rows: two packets, and one on each of two interfaces.
#[test]
fn the_only_frame_of_a_tiny_tile_is_taken() {
    for interfaces in [1, 2] {
        let format = TileFormat::jungfrau(interfaces).unwrap().with_rows(8).unwrap();
        let stream = |n: usize| {
            let first = format.of_tile(n).first_packet;
            let packets = (first..first + format.packets()).map(|packet| {
                let mut d = datagram(1, packet);
                d.resize(48 + 8192, 0);
                (d[46], d[47]) = (3, 2);
                Step::Sent(d)
            });
            script(packets)
        };
        let plan = Plan { start_timeout_ns: 1_500_000_000, ..strict(format, interfaces, Some(1)) };
        let outcome = run_within(20, armed(plan, (0..interfaces as usize).map(stream).collect(), Slow::default()));
        assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
        assert_eq!(outcome.ledger.images.complete, 1, "{interfaces} interfaces");
    }
}

/// Neither late packets of the previous run, whose numbers are beyond this tile, nor damaged ones decide with which
/// frame the run begins.
#[test]
fn packets_beyond_the_tile_begin_no_run() {
    for old in [7, u64::MAX] {
        let strays = [20, 30, 40].map(|packet| Packets(old, packet..packet + 1));
        let steps = strays.into_iter().chain([Pause(300)]).chain(frames(3, 1));
        let armed = armed(strict(TileFormat::eiger(4).unwrap(), 1, Some(3)), vec![script(steps)], Slow::default());
        armed.control().expect_stragglers(5..8, 100);
        let outcome = run_within(20, armed);
        assert_eq!((outcome.first_frame, outcome.ledger.images.complete), (Some(1), 3), "frame {old}");
        assert_eq!(outcome.ledger.total().malformed.iter().sum::<u64>(), 3);
    }
}

/// The network may let a packet of the second frame overtake the first ones of the first.
#[test]
fn a_packet_that_overtook_the_first_frame_is_placed() {
    let steps = [Packets(9, 0..1), Packets(8, 0..PACKETS), Packets(9, 1..PACKETS)];
    let outcome = run_within(20, armed(strict(TileFormat::eiger(4).unwrap(), 1, Some(2)), vec![script(steps)], Slow::default()));
    assert_eq!((outcome.first_frame, outcome.ledger.images.complete, outcome.ledger.total().foreign), (Some(8), 2, 0));
}

/// Streams begin one after another, and what they publish of themselves is a little old.
#[test]
fn a_stream_that_begins_a_little_later_is_not_silent() {
    in_time(|| {
        let plan = Plan { stall_timeout_ns: 2_000_000_000, ..strict(TileFormat::eiger(4).unwrap(), 2, Some(40)) };
        let late = [Pause(150)].into_iter().chain(frames(40, 1));
        let armed = armed(plan.clone(), vec![script(frames(40, 3)), script(late)], Slow::default());
        let control = armed.control();
        let looker = std::thread::spawn(move || {
            let start = Instant::now();
            let mut findings = Vec::new();
            while start.elapsed() < Duration::from_millis(400) {
                findings.extend(konkordia_engine::setup::findings(&plan, &control));
                std::thread::sleep(Duration::from_millis(1));
            }
            findings
        });
        run_within(20, armed);
        assert_eq!(looker.join().unwrap(), []);
    });
}

/// A ring of strips with one slot, so that gaps are short.
const GAP_IMAGES: u64 = 1 << 16;

fn with_short_gaps(plan: Plan) -> Plan {
    let plan = Plan { packed_slots: 4, stall_timeout_ns: 60_000_000_000, ..plan };
    assert_eq!(plan.gap_part_images(), GAP_IMAGES);
    plan
}

/// Runs, and stops as soon as `images` are committed. Returns the most frames that ever waited for the committer, too.
fn stopped_at(images: u64, armed: Armed) -> (RunOutcome, u64) {
    let (control, slots) = (armed.control(), plan(1, None).slots);
    let watch = std::thread::spawn(move || {
        let (mut most, began) = (0, Instant::now());
        while control.progress().images_committed < images && began.elapsed() < Duration::from_secs(60) {
            let progress = control.progress();
            most = progress.images_seen.saturating_sub(progress.frames_committed).max(most);
            assert!(progress.slots_used <= slots, "{progress:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        control.stop();
        most
    });
    (run_within(90, armed), watch.join().unwrap())
}

/// All frames that have begun are committed before a run ends, so a second jump waits for the frames of the first one.
/// Before, jumps could follow one another until the run took hours to end.
#[test]
fn the_frames_of_many_jumps_do_not_pile_up() {
    let jumps = (1..=6).flat_map(|n| [Packets(n * 60_000, 0..PACKETS), Packets(n * 60_000 + 1, 0..PACKETS), Pause(1)]);
    let steps = frames(3, 1).chain(jumps).chain([Packets(10_000_000, 0..PACKETS), Packets(1_000_000_000, 0..PACKETS)]);
    let (outcome, most) = stopped_at(120_000, armed(with_short_gaps(plan(1, None)), vec![script(steps)], Slow::default()));
    assert!((60_000..=GAP_IMAGES + 16).contains(&most), "{most} frames waited");
    let (images, total) = (outcome.ledger.images, outcome.ledger.total());
    assert!(images.expected < 200_000 && images.complete >= 3, "{images:?}");
    assert!(total.foreign >= 2 * u64::from(PACKETS), "what is beyond every gap is not of this run: {total:?}");
}

/// Before, the frames between were all passed over, which took the better part of an hour.
#[test]
fn a_source_that_can_wait_passes_over_no_billion_frames() {
    let plan = Plan { lossless_source: true, ..with_short_gaps(plan(1, None)) };
    let steps = frames(3, 0).chain([Packets(1_000_000_000, 0..PACKETS), Packets(4, 0..PACKETS)]);
    let outcome = run_within(60, armed(plan, vec![script(steps)], Slow::default()));
    assert!(outcome.ended == Ended::Finished, "{:?}", outcome.ended);
    assert_eq!((outcome.images, outcome.ledger.images.complete, outcome.ledger.total().foreign), (4, 4, 16));
}

/// Where the plan has the frames of a long gap, they are committed; but a stop in the gap ends the run there.
#[test]
fn a_stop_does_not_wait_for_the_end_of_a_long_gap() {
    let plan = Plan { lossless_source: true, ..with_short_gaps(plan(1, Some(1_000_000_100))) };
    // A file is never empty before its end.
    let steps = [1, 2, 3, 1_000_000_000].map(|frame| Packets(frame, 0..PACKETS));
    let (outcome, most) = stopped_at(10_000, armed(plan, vec![script(steps)], Slow::default()));
    assert!(outcome.ended == Ended::Stopped && most <= GAP_IMAGES + 16, "{:?}, {most} frames waited", outcome.ended);
    let images = outcome.ledger.images;
    assert!((10_000..1_000_000).contains(&images.expected), "{images:?}");
    assert_eq!((images.complete, outcome.ledger.total().foreign), (3, 16));
}

#[test]
fn an_impossible_ring_is_named() {
    for (slots, window_images, why) in [(3, 1, "at least 4 slots"), (16, 9, "window_images"), (16, 0, "window_images")] {
        let parts = RunParts {
            plan: Arc::new(Plan { slots, window_images, ..plan(1, None) }),
            sources: vec![script([])],
            constants: PixelConstants::None,
            sinks: vec![Box::new(Slow::default())],
            consumers: Consumers::default(),
            frame_sinks: vec![],
            isa: Isa::detect(),
            workers: WorkerKind::default(),
        };
        let error = run::arm(parts).err().expect("it is refused").to_string();
        assert!(error.contains(why), "{error}");
    }
}
