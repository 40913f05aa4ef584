//! A world with a clock of its own for the tests of the rules: messages come at their times, workers and sinks take as
//! long as they are ordered to.

use super::Rules;
use super::io::{Action, Done, Ending, Incoming, Job, Receipt};
use super::membership::SenderQuirks;
use super::spec::RulesSpec;
use crate::series::notice::{Command, Notice};
use crate::series::spec::{Join, SeriesSpec};
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::geometry::{Orientation, Placement};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::protocol::Protocol;
use konkordia_core::series::{SeriesEnd, SeriesStart};
use konkordia_sim::rng::Rng;
use konkordia_wire::message::{Event, ImagePart, Read, SeriesKey};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const MS: u64 = 1_000_000;
/// Bytes of every message.
const BYTES: u64 = 100;

/// What happens to the rules.
#[derive(Debug)]
pub(super) enum Input {
    Message(usize, Result<Read, String>),
    Closed(usize, Option<String>),
    Command(Command),
}

/// One series as a sink sees it.
#[derive(Debug)]
pub(super) struct Seen {
    pub start: SeriesStart,
    pub begin_ns: u64,
    pub images: Vec<CommittedImage>,
    /// Parts that workers could not read, by position.
    pub unreadable: BTreeMap<u64, u64>,
    pub end: Option<(u64, Arc<SeriesEnd>)>,
}

impl Seen {
    /// One letter per position.
    pub fn states(&self) -> String {
        let letter = |image: &CommittedImage| match image.status {
            ImageStatus::Complete => 'c',
            ImageStatus::Partial => 'p',
            ImageStatus::Lost => '-',
            ImageStatus::Discarded => 'd',
            ImageStatus::Vetoed => 'v',
        };
        self.images.iter().map(letter).collect()
    }
}

pub(super) struct World {
    pub rules: Rules,
    pub now_ns: u64,
    /// What comes, by time and order.
    inputs: BTreeMap<(u64, u64), Input>,
    order: u64,
    turns: u64,
    last_received_ns: u64,
    /// Jobs by the time at which they are finished, and order.
    jobs: BTreeMap<(u64, u64), Job>,
    rng: Rng,
    /// Longest time that a worker takes for an image, and a sink.
    pub work_ns: u64,
    pub sink_ns: u64,
    /// One of so many parts cannot be read by the worker; 0 = none.
    pub unreadable: u64,
    /// Every action with its time, as text.
    pub trace: Vec<String>,
    pub seen: Vec<Seen>,
    /// Ends of arms that no series followed.
    pub arms: Vec<Arc<SeriesEnd>>,
    pub notices: Vec<Notice>,
    fed: Vec<u64>,
    given_back: Vec<u64>,
    /// Messages that the ledgers of ended series count, by upstream.
    counted: Vec<u64>,
}

pub(super) fn quirks(protocol: Protocol, join: &Join, upstreams: usize) -> SenderQuirks {
    SenderQuirks {
        upstreams,
        is_modular: join.is_modular(),
        is_sequenced: upstreams > 1 && protocol.has_message_numbers() && *join == Join::Balanced,
        has_start: protocol.has_start(),
        has_end: protocol.has_end(),
    }
}

/// Modules one below the other.
pub(super) fn modules(upstreams: usize) -> Join {
    let place = |n: usize| Placement { row: 2 * n as u32, column: 0, orientation: Orientation::UPRIGHT };
    Join::PerModule { placements: (0..upstreams).map(place).collect(), rows: 2 * upstreams as u32, columns: 3 }
}

pub(super) fn start(series: u64, number: Option<u64>, planned: Option<u64>) -> Result<Read, String> {
    let start = SeriesStart { series, images_planned: planned, store: true, ..SeriesStart::default() };
    Ok(Read { message_number: number, event: Event::Start(SeriesKey(series), Box::new(start)) })
}

/// An image without pixels; one that is `wide` is of another shape than the others.
pub(super) fn image(series: u64, message: Option<u64>, number: u64, is_wide: bool) -> Result<Read, String> {
    let shape = Shape::new(&[2, if is_wide { 4 } else { 3 }]).unwrap();
    let array = Array { shape, element: Element::Uint16, packing: Packing::None, pieces: vec![Bytes::new()] };
    let part = ImagePart {
        series: SeriesKey(series),
        number,
        channels: vec![Channel { name: "".into(), array }],
        store: true,
        is_partial: false,
        times: None,
        header_json: Bytes::new(),
        start: None,
    };
    Ok(Read { message_number: message, event: Event::Part(Box::new(part)) })
}

pub(super) fn end(series: u64, number: Option<u64>) -> Result<Read, String> {
    Ok(Read { message_number: number, event: Event::End(SeriesKey(series)) })
}

impl World {
    pub fn new(spec: &SeriesSpec, upstreams: usize, work_images_max: Option<usize>, seed: u64) -> Self {
        let quirks = quirks(spec.protocol, &spec.join, upstreams);
        Self {
            rules: Rules::new(RulesSpec::of(spec, work_images_max), quirks),
            now_ns: 0,
            inputs: BTreeMap::new(),
            order: 0,
            turns: 0,
            last_received_ns: 0,
            jobs: BTreeMap::new(),
            rng: Rng::new(seed),
            work_ns: 0,
            sink_ns: 0,
            unreadable: 0,
            trace: Vec::new(),
            seen: Vec::new(),
            arms: Vec::new(),
            notices: Vec::new(),
            fed: vec![0; upstreams],
            given_back: vec![0; upstreams],
            counted: vec![0; upstreams],
        }
    }

    /// Something will happen at this time.
    pub fn at(&mut self, at_ns: u64, input: Input) {
        self.order += 1;
        self.inputs.insert((at_ns, self.order), input);
    }

    /// A message will come.
    pub fn message(&mut self, at_ns: u64, upstream: usize, read: Result<Read, String>) {
        self.at(at_ns, Input::Message(upstream, read));
    }

    /// Lets time pass until `until_ns`, or until nothing more can happen.
    pub fn run(&mut self, until_ns: u64) {
        loop {
            let input = self.inputs.first_key_value().map(|(at, _)| at.0);
            let job = self.jobs.first_key_value().map(|(at, _)| at.0);
            // What came while something else was done is read before time-outs are looked at.
            let waiting = input.filter(|at_ns| *at_ns <= self.now_ns);
            let next = waiting.or([input, job, self.rules.deadline_ns()].into_iter().flatten().min());
            let Some(at_ns) = next.filter(|at_ns| *at_ns <= until_ns) else {
                self.now_ns = self.now_ns.max(if until_ns == u64::MAX { 0 } else { until_ns });
                return;
            };
            self.now_ns = self.now_ns.max(at_ns);
            self.turns += 1;
            assert!(self.turns < 1_000_000, "the rules ask for the same time again and again");
            if input == Some(at_ns) {
                let Some(((received_ns, _), input)) = self.inputs.pop_first() else { return };
                self.feed(received_ns, input);
            } else if job == Some(at_ns) {
                self.finish_job();
            }
            // As long as messages wait to be read, time stands still for time-outs.
            let is_read = self.inputs.first_key_value().is_none_or(|(at, _)| at.0 > self.now_ns);
            self.rules.tick(self.now_ns, if is_read { self.now_ns } else { self.last_received_ns });
            self.carry_out();
        }
    }

    fn feed(&mut self, received_ns: u64, input: Input) {
        match input {
            Input::Message(upstream, read) => {
                let receipt = Receipt { upstream, bytes: BYTES, sequence: self.fed[upstream] };
                self.fed[upstream] += 1;
                self.last_received_ns = received_ns;
                self.rules.on_message(Incoming { read, receipt, received_ns }, self.now_ns);
            }
            Input::Closed(upstream, failure) => self.rules.on_closed(upstream, failure),
            Input::Command(command) => {
                self.rules.set_cancelling(matches!(command, Command::Cancel(_)));
                self.rules.on_command(command, self.now_ns);
            }
        }
        self.carry_out();
        self.rules.set_cancelling(false);
    }

    fn finish_job(&mut self) {
        let ((at_ns, _), job) = self.jobs.pop_first().expect("the rules wait for a worker that has something to do");
        self.now_ns = self.now_ns.max(at_ns);
        let Job { ticket, mut image, parts, .. } = job;
        let here = parts.iter().enumerate().filter(|(_, part)| !part.is_empty()).fold(0, |bits, (n, _)| bits | 1 << n);
        let here: u64 = if parts.is_empty() { 1 } else { here };
        let is_hit = self.unreadable > 0 && self.rng.below(self.unreadable) == 0;
        let unreadable = if is_hit { here & self.rng.next_u64() } else { 0 };
        if unreadable != 0 {
            let seen = self.seen.last_mut().expect("workers get images of a series that was announced");
            seen.unreadable.insert(image.number, unreadable);
        }
        if unreadable == here {
            image = CommittedImage::lost(image.number);
        }
        self.rules.on_done(Done { ticket, image, unreadable, why: (unreadable != 0).then(|| "it is damaged".into()) });
    }

    fn carry_out(&mut self) {
        loop {
            while let Some(action) = self.rules.poll() {
                self.trace.push(format!("{} {action:?}", self.now_ns));
                let newest = &self.trace[self.trace.len().saturating_sub(8)..];
                assert!(self.trace.len() < 2_000_000, "there is no end to {newest:#?}");
                self.act(action);
            }
            for (upstream, bytes, messages) in self.rules.released() {
                assert_eq!(bytes, messages * BYTES);
                self.given_back[upstream] += messages;
            }
            if !self.rules.waits_for_work() {
                return;
            }
            self.finish_job();
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start(start) => {
                assert!(self.seen.last().is_none_or(|seen| seen.end.is_some()), "the series before has ended");
                let (images, unreadable) = (Vec::new(), BTreeMap::new());
                self.seen.push(Seen { start: *start, begin_ns: self.now_ns, images, unreadable, end: None });
            }
            Action::Work(job) => {
                self.order += 1;
                let at_ns = self.now_ns + self.rng.below(self.work_ns + 1);
                self.jobs.insert((at_ns, self.order), job);
            }
            Action::Commit(image) | Action::CommitSum(image, _) => {
                let seen = self.seen.last_mut().expect("it was announced");
                assert!(seen.end.is_none() && image.number == seen.images.len() as u64, "every position once, in order");
                assert_eq!(
                    image.status.has_pixels(),
                    image.status == ImageStatus::Complete || image.status == ImageStatus::Partial
                );
                seen.images.push(image);
                self.pass_time();
            }
            Action::Add(..) => self.pass_time(),
            Action::End(end, what) => {
                assert_eq!(end.ledger.imbalances(), [], "{:#?}", end.ledger);
                self.counted.iter_mut().zip(&end.ledger.upstreams).for_each(|(all, upstream)| *all += upstream.received);
                match what {
                    Ending::Series => self.seen.last_mut().expect("it was announced").end = Some((self.now_ns, end)),
                    Ending::Arm => self.arms.push(end),
                }
            }
            Action::Refuse(upstream, sequence) => assert!(sequence < self.fed[upstream]),
            Action::Notify(notice) => self.notices.push(notice),
            Action::Publish => {}
        }
    }

    fn pass_time(&mut self) {
        let before_ns = self.now_ns;
        self.now_ns += self.rng.below(self.sink_ns + 1);
        self.rules.on_committed(before_ns, self.now_ns);
    }

    /// Nothing is left: every series has ended, every message was counted once, and its memory was given back.
    pub fn assert_at_rest(&self) {
        assert!(self.inputs.is_empty() && self.jobs.is_empty() && !self.rules.has_series());
        assert!(self.seen.iter().all(|seen| seen.end.is_some()));
        let between = self.rules.ledger().upstreams.iter().map(|upstream| upstream.received);
        let counted: Vec<u64> = self.counted.iter().zip(between).map(|(ended, between)| ended + between).collect();
        assert_eq!((&counted, &self.given_back), (&self.fed, &self.fed));
        assert!((0..self.fed.len()).all(|upstream| self.rules.held(upstream) == 0));
        assert_eq!((self.rules.waiting(), self.rules.deadline_ns()), ((0, 0), None));
    }
}
