//! How runs end, and what a stream that is dead, late, damaged or hostile does to the others. Tiny EIGER tiles from scripted sources; a run
//! that does not end within its time fails the test instead of hanging it.

use konkordia_core::geometry::ImageGeometry;
use konkordia_core::ledger::MissingPolicy;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{Compression, FirstFrame, Plan, Processing, Recipe};
use konkordia_core::ports::{CommittedImage, Sink, SinkError, Source};
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{self, Armed, Ended, PixelConstants, RunOutcome, RunParts};
use konkordia_kernels::Isa;
use konkordia_sources::udp::{UdpReceiver, UdpSender};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Packets of a tile at 4 bit.
const PACKETS: u32 = 16;

fn plan(streams: u32, images: Option<u64>) -> Plan {
    Plan {
        geometry: ImageGeometry::stacked(TileFormat::eiger(4).unwrap(), streams).unwrap(),
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
        window_images: 8,
        deadline_ns: 200_000_000,
        stall_timeout_ns: 400_000_000,
        start_timeout_ns: 5_000_000_000,
        workers: 1,
        pin_receivers: vec![],
        pin_workers: vec![],
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
    /// Waits, and was empty.
    Pause(u64),
    /// Raises this to the first number and waits until another source has set it to the second; was empty at the start.
    RaiseAndAwait(Arc<AtomicU64>, u64, u64),
    Fail,
    Panic,
}
use Step::{Packets, Pause};

struct Script(VecDeque<Step>);

impl Source for Script {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        match self.0.pop_front() {
            None => std::thread::sleep(timeout),
            Some(Step::Pause(ms)) => std::thread::sleep(Duration::from_millis(ms)),
            Some(Step::RaiseAndAwait(flag, set, awaited)) => {
                flag.fetch_max(set, Ordering::AcqRel);
                while flag.load(Ordering::Acquire) != awaited {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Some(Step::Fail) => return Err(io::Error::other("the script says so")),
            Some(Step::Panic) => panic!("the script says so"),
            Some(Step::Packets(frame, packets)) => {
                packets.clone().for_each(|p| take(&datagram(frame, p)));
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

/// Frames of the run from 1 on, whole, with a pause after each.
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
    fn write(&mut self, image: &CommittedImage<'_>) -> Result<(), SinkError> {
        assert!(self.panics_at != Some(image.image), "the test says so");
        if let Some((_, pause)) = self.at.filter(|at| at.0 == image.image) {
            std::thread::sleep(pause);
        }
        Ok(())
    }

    fn tick(&mut self, _now_ns: u64) -> Result<(), SinkError> {
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
        frame_sinks: vec![],
        isa: Isa::detect(),
    })
    .unwrap()
}

/// `None` if a thread of the run panicked. Fails the test if the run does not end.
fn run_within(seconds: u64, armed: Armed) -> Option<RunOutcome> {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        // After a time-out nobody listens any more.
        let _ = done.send(armed.run());
    });
    match result.recv_timeout(Duration::from_secs(seconds)) {
        Ok(outcome) => {
            assert_eq!(outcome.ledger.imbalances(), []);
            Some(outcome)
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => None,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the run did not end within {seconds} s"),
    }
}

#[test]
fn an_absurd_frame_number_does_not_make_a_run_without_end_endless() {
    let steps = [Packets(1, 0..PACKETS), Packets(u64::MAX - 3, 0..5), Packets(1 << 63, 0..5), Packets(2, 0..PACKETS)];
    let outcome = run_within(20, armed(plan(1, None), vec![script(steps)], Slow::default())).unwrap();
    assert_eq!((outcome.images, outcome.ledger.images.complete, outcome.ledger.total().foreign), (2, 2, 10));
}

/// The largest frame number is also how the run says that it has no first frame yet.
#[test]
fn the_first_frame_cannot_be_the_largest_number() {
    let plan = Plan { first_frame: FirstFrame::Auto, ..plan(1, Some(1)) };
    let steps = [Packets(u64::MAX, 0..2), Packets(7, 0..PACKETS)];
    let outcome = run_within(20, armed(plan, vec![script(steps)], Slow::default())).unwrap();
    let total = outcome.ledger.total();
    assert_eq!((outcome.first_frame, total.foreign, total.duplicate, total.placed), (Some(7), 2, 0, 16));
}

#[test]
fn no_images_are_taken_when_none_are_planned() {
    let outcome = run_within(20, armed(plan(2, Some(0)), vec![script(frames(3, 0)), script([])], Slow::default())).unwrap();
    assert!(matches!(outcome.ended, Ended::Finished));
    assert_eq!((outcome.images, outcome.ledger.images.expected, outcome.ledger.total().placed), (0, 0, 0));
}

/// Within one deadline come many more images than the ring has slots.
#[test]
fn a_dead_stream_does_not_fill_the_ring() {
    let plan = Plan { deadline_ns: 1_500_000_000, stall_timeout_ns: 5_000_000_000, ..plan(2, Some(200)) };
    let outcome = run_within(60, armed(plan, vec![script(frames(200, 3)), script([])], Slow::default())).unwrap();
    let images = outcome.ledger.images;
    assert!(matches!(outcome.ended, Ended::Finished), "{:?}", outcome.ended);
    assert!(images.partial > 190, "{images:?}");
}

/// As before, with other people's datagrams on the dead stream's port at all times.
#[test]
fn stray_traffic_on_a_dead_stream_does_not_hold_the_run_up() {
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
        let outcome = run_within(60, armed(plan(2, Some(60)), vec![script(frames(60, 5)), Box::new(receiver)], Slow::default()));
        stop.store(true, Ordering::Relaxed);
        let outcome = outcome.unwrap();
        assert!(matches!(outcome.ended, Ended::Finished), "{:?}", outcome.ended);
        assert!(outcome.ledger.images.partial > 50, "{:?}", outcome.ledger.images);
    });
}

/// A thread that gets no processor for a while finds many images in its socket afterwards, all of which came after it had last looked.
#[test]
fn what_came_after_the_socket_was_seen_empty_is_not_sealed() {
    // 1: the second stream has found its socket empty. 2: the first stream has sent 40 images.
    let stage = Arc::new(AtomicU64::new(0));
    let plan = Plan { slots: 64, deadline_ns: 5_000_000_000, stall_timeout_ns: 5_000_000_000, ..plan(2, Some(41)) };
    let first = [Step::RaiseAndAwait(stage.clone(), 0, 1)].into_iter().chain(frames(40, 0));
    let first = first.chain([Step::RaiseAndAwait(stage.clone(), 2, 2), Packets(41, 0..PACKETS)]);
    let second = [Step::RaiseAndAwait(stage, 1, 2)].into_iter().chain((1..=41).map(|frame| Packets(frame, 0..PACKETS)));
    let outcome = run_within(20, armed(plan, vec![script(first), script(second)], Slow::default())).unwrap();
    assert_eq!((outcome.ledger.images.complete, outcome.ledger.total().late), (41, 0));
}

/// A disk that hangs is not a detector that has stopped.
#[test]
fn a_sink_that_hangs_is_not_a_stall() {
    let sink = Slow { at: Some((0, Duration::from_millis(1200))), ..Slow::default() };
    let outcome = run_within(20, armed(plan(1, Some(100)), vec![script(frames(100, 20))], sink)).unwrap();
    assert!(matches!(outcome.ended, Ended::Finished), "{:?}", outcome.ended);
    assert!(outcome.ledger.total().no_slot > 0 && outcome.ledger.images.complete > 20);
}

#[test]
fn a_source_that_fails_ends_the_run_and_what_did_not_come_was_not_received() {
    let sources = vec![script(frames(3, 0).chain([Step::Fail])), script(frames(3, 0))];
    let outcome = run_within(20, armed(plan(2, Some(6)), sources, Slow::default())).unwrap();
    assert!(matches!(outcome.ended, Ended::SourceError(0, _)), "{:?}", outcome.ended);
    let images = outcome.ledger.images;
    assert_eq!((images.expected, images.complete, images.lost, outcome.images), (3, 3, 0, 3));
    assert_eq!((images.not_taken, images.not_received, images.packets_missing), (0, 3, 0));
    assert!(!outcome.ledger.is_complete());
}

#[test]
fn a_thread_that_panics_ends_the_run() {
    let source = script(frames(3, 0).chain([Step::Panic]));
    assert!(run_within(20, armed(plan(2, None), vec![source, script(frames(9, 1))], Slow::default())).is_none());
    let sink = Slow { panics_at: Some(2), ..Slow::default() };
    assert!(run_within(20, armed(plan(2, None), vec![script(frames(9, 1)), script(frames(9, 1))], sink)).is_none());
}

/// Never empty, as when the processors do not keep up: just then people want to see the drops.
struct Flood;

impl Source for Flood {
    fn receive(&mut self, _timeout: Duration, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        std::thread::sleep(Duration::from_millis(1));
        take(b"hello");
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
        while control.progress().kernel_dropped == 0 && start.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let seen = control.progress().kernel_dropped;
        control.stop();
        seen
    });
    run_within(20, armed).unwrap();
    assert_eq!(watch.join().unwrap(), 5);
}
