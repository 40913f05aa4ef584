//! Sources that write payloads to their places themselves: whatever they guess, every verdict, ledger and byte is that
//! of the same packets in datagrams.

use crate::harness::{Constants, Recording, Scene, Seen, constants, losses, run_within};
use konkordia_core::plan::{Plan, Processing};
use konkordia_core::ports::{FillingSource, Source, TilePlaces};
use konkordia_core::selection::Selection;
use konkordia_core::sender::Sender;
use konkordia_engine::run::{self, RunOutcome};
use konkordia_sim::fault::FaultModel;
use konkordia_sim::rng::Rng;
use konkordia_sources::memory::MemorySource;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const BATCH: usize = 50;
const HEAD_BYTES: usize = 48;
const PAYLOAD_BYTES: usize = 8192;

/// What a source expects of the next packets.
#[derive(Clone, Copy)]
enum Guess {
    /// They go on where the newest one was; now and then something else.
    GoesOn,
    /// The frame of the next one, and any packets of it: as a file knows its frames.
    KnowsFrames,
    /// It leaves the guess to the receiver, as a socket does.
    Receiver,
}

/// Hands out recorded datagrams. It writes the payloads of the next few to where it expects them, before it looks at
/// their headers.
struct Guessing {
    datagrams: Arc<Vec<Vec<u8>>>,
    next: usize,
    guess: Guess,
    /// Frame and packet that follow the newest one.
    expected: (u64, u16),
    packets: u16,
    rng: Rng,
    /// Payloads that were written to lent places, and those of them whose place was right.
    filled: Arc<[AtomicUsize; 2]>,
}

fn frame_of(datagram: &[u8]) -> u64 {
    u64::from_le_bytes(datagram[..8].try_into().unwrap())
}

fn packet_of(datagram: &[u8]) -> u16 {
    u16::from_le_bytes(datagram[12..14].try_into().unwrap())
}

/// Its payload fits into the place of a packet.
fn fits(datagram: &[u8]) -> bool {
    (HEAD_BYTES..=HEAD_BYTES + PAYLOAD_BYTES).contains(&datagram.len())
}

impl Guessing {
    fn below(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end
    }

    /// Frame and first packet of the places that it asks for.
    fn guess(&mut self, next: &[u8]) -> (u64, u16) {
        let packets = u64::from(self.packets);
        match (self.guess, self.below(8)) {
            (Guess::KnowsFrames, 0..6) => (frame_of(next), packet_of(next) % self.packets),
            (Guess::KnowsFrames, _) => (frame_of(next), self.below(packets) as u16),
            (_, 0) => (self.expected.0 + 1, 0),
            (_, 1) => (self.expected.0, self.below(packets) as u16),
            (_, 2) => (self.expected.0, self.expected.1.saturating_sub(1)),
            _ => self.expected,
        }
    }

    /// Hands out the datagrams from `at` on, with a loan if there is one for them; returns how many.
    fn hand_out(&mut self, at: usize, most: usize, places: &mut dyn TilePlaces) -> usize {
        let datagrams = Arc::clone(&self.datagrams);
        let wanted = most.min(1 + self.below(20) as usize);
        let run: Vec<&Vec<u8>> = datagrams[at..at + wanted].iter().take_while(|datagram| fits(datagram)).collect();
        let Some(next) = run.first() else {
            places.take(&datagrams[at], Sender::NONE);
            return 1;
        };
        let (mut frame, mut first) = self.guess(next);
        let mut count = run.len().min(usize::from(self.packets - first));
        let bytes = if let Guess::Receiver = self.guess {
            places.lend_next().map(|next| {
                (frame, first) = (self.expected.0, next.packets.start);
                count = run.len().min(next.packets.len());
                assert_eq!((next.head_bytes, next.payload_bytes), (HEAD_BYTES, PAYLOAD_BYTES));
                assert_eq!(next.places.len(), next.packets.len() * PAYLOAD_BYTES);
                next.places
            })
        } else {
            places.lend(frame, first..first + count as u16)
        };
        let Some(bytes) = bytes else {
            places.take(next, Sender::NONE);
            return 1;
        };
        for (place, datagram) in bytes.chunks_mut(PAYLOAD_BYTES).zip(&run) {
            place[..datagram.len() - HEAD_BYTES].copy_from_slice(&datagram[HEAD_BYTES..]);
        }
        // One of them comes in a piece after all.
        let whole = self.below(40) as usize;
        for (packet, (n, datagram)) in (first..).zip(run[..count].iter().enumerate()) {
            if n == whole {
                places.take(datagram, Sender::NONE);
                continue;
            }
            let is_right = (frame, packet) == (frame_of(datagram), packet_of(datagram));
            self.filled[0].fetch_add(1, Ordering::Relaxed);
            self.filled[1].fetch_add(usize::from(is_right), Ordering::Relaxed);
            places.filled(packet, &datagram[..HEAD_BYTES], datagram.len() - HEAD_BYTES, Sender::NONE);
        }
        count
    }
}

impl Source for Guessing {
    fn receive(&mut self, timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> std::io::Result<usize> {
        let rest = &self.datagrams[self.next..];
        rest.iter().take(BATCH).for_each(|datagram| take(datagram, Sender::NONE));
        let count = rest.len().min(BATCH);
        self.next += count;
        if count == 0 {
            std::thread::sleep(timeout);
        }
        Ok(count)
    }

    fn dropped(&mut self) -> u64 {
        0
    }

    fn filling(&mut self) -> Option<&mut dyn FillingSource> {
        Some(self)
    }
}

impl FillingSource for Guessing {
    fn receive_into(&mut self, timeout: Duration, places: &mut dyn TilePlaces) -> std::io::Result<usize> {
        let count = (self.datagrams.len() - self.next).min(BATCH);
        let mut handed = 0;
        while handed < count {
            let at = self.next + handed;
            let now = self.hand_out(at, count - handed, places);
            let newest = &self.datagrams[at + now - 1];
            if fits(newest) {
                self.expected = (frame_of(newest), packet_of(newest) + 1);
                if self.expected.1 >= self.packets {
                    self.expected = (self.expected.0 + 1, 0);
                }
            }
            handed += now;
        }
        self.next += count;
        if count == 0 {
            std::thread::sleep(timeout);
        }
        Ok(count)
    }
}

type Outcome = (RunOutcome, Vec<Seen>);

fn run_sources(recording: &Recording, plan: &Plan, constants: &Constants, sources: Vec<Box<dyn Source>>) -> Outcome {
    let (mut parts, collector) = recording.parts(plan, constants);
    parts.sources = sources;
    let outcome = run_within(60, run::arm(parts).unwrap());
    (outcome, collector.take())
}

/// Runs the same packets in datagrams and in places that are guessed, and compares everything. Returns the run with
/// datagrams.
fn compare(recording: &Recording, plan: &Plan, constants: &Constants, guess: Guess) -> Outcome {
    let copied = |datagrams: &Arc<Vec<Vec<u8>>>| -> Box<dyn Source> { Box::new(MemorySource::new(datagrams.to_vec(), BATCH)) };
    let copied = run_sources(recording, plan, constants, recording.streams.iter().map(copied).collect());
    for seed in 1..=5 {
        let filled = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let source = |(stream, datagrams): (usize, &Arc<Vec<Vec<u8>>>)| -> Box<dyn Source> {
            Box::new(Guessing {
                datagrams: datagrams.clone(),
                next: 0,
                guess,
                expected: (1, 0),
                packets: recording.format.packets() as u16,
                rng: Rng::new(seed * 100 + stream as u64),
                filled: filled.clone(),
            })
        };
        let (outcome, seen) = run_sources(recording, plan, constants, recording.streams.iter().enumerate().map(source).collect());
        let [filled, right] = [0, 1].map(|n| filled[n].load(Ordering::Relaxed));
        let all = outcome.ledger.total().received as usize;
        assert!(filled * 4 > all && right > 0 && right < filled, "{filled} of {all} packets were filled, {right} rightly");
        assert_eq!(outcome.ledger, copied.0.ledger, "seed {seed}");
        assert_eq!((outcome.findings, outcome.images), (copied.0.findings.clone(), copied.0.images), "seed {seed}");
        assert!(seen == copied.1, "the images differ, seed {seed}");
    }
    copied
}

/// Packets that are lost, doubled, damaged and out of order; frames 9 to 15 never come, so the stream seems to jump.
#[test]
fn whatever_is_guessed_the_packets_of_a_stream_have_their_verdicts_and_places() {
    let mut verdicts = (0, 0, 0, 0);
    for seed in 1..4 {
        let faults = FaultModel {
            loss: 0.01,
            duplicate: 0.02,
            reorder: 0.05,
            reorder_packets_max: 150,
            corrupt_header: 0.005,
            header_bytes: 0..48,
            foreign: 0.01,
            ..losses(seed)
        };
        let sends = |frame, _, _| !(9..16).contains(&frame);
        let recording = Scene { frames: 24, faults, sends, ..Scene::default() }.record_random();
        // There is a slot for every frame, so that none is refused, however slow the workers are.
        let plan = Plan { lossless_source: false, slots: 32, ..recording.plan() };
        let constants = constants(&recording);
        let (outcome, _) = compare(&recording, &plan, &constants, Guess::GoesOn);
        compare(&recording, &plan, &constants, Guess::Receiver);
        let total = outcome.ledger.total();
        verdicts.0 += total.placed;
        verdicts.1 += total.duplicate;
        verdicts.2 += total.foreign;
        verdicts.3 += total.malformed_total();
    }
    let (placed, duplicate, foreign, malformed) = verdicts;
    assert!(placed > 5000 && duplicate > 0 && foreign > 0 && malformed > 0, "{verdicts:?}");
}

/// Packets that come after their frame was sealed.
#[test]
fn late_packets_are_late_wherever_they_were_written() {
    let faults = FaultModel { reorder: 0.02, reorder_packets_max: 1000, ..losses(7) };
    let recording = Scene { frames: 24, faults, ..Scene::default() }.record_random();
    let plan = Plan { lossless_source: false, slots: 32, window_images: 2, ..recording.plan() };
    for guess in [Guess::GoesOn, Guess::Receiver] {
        let (outcome, _) = compare(&recording, &plan, &constants(&recording), guess);
        assert!(outcome.ledger.total().late > 0);
    }
}

/// Files, which wait for a slot in a ring of a few; two streams that lack other frames.
#[test]
fn files_that_fill_tiles_give_the_same_run_as_files_that_send_datagrams() {
    let sends = |frame, stream, _| (frame + stream as u64) % 7 != 3;
    let recording = Scene { interfaces: 2, frames: 40, faults: losses(5), sends, ..Scene::default() }.record_random();
    let constants = constants(&recording);
    let selection = Selection { sum_frames: 2, ..Selection::default() };
    for processing in [Processing::default(), Processing { selection, ..Processing::default() }] {
        let plan = Plan { slots: 4, packed_slots: 1, window_images: 2, processing, ..recording.plan() };
        let (outcome, seen) = compare(&recording, &plan, &constants, Guess::KnowsFrames);
        recording.compare(&plan, &constants, &outcome, &seen);
    }
}
