//! Series membership: is a message of the series that is being received, of an earlier one, or of the next?
//! [`super::taking`] acts on the answer.
//!
//! Messages of one upstream come in the order in which they were sent. Of several upstreams one may be ahead: its
//! messages of the next series wait until the others have come as far, and messages that come before their header wait
//! for the header.

use konkordia_core::order::Numbers;
use konkordia_wire::message::{Event, Read, SeriesKey};

/// Properties of the upstreams and of the protocol on which the rules depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderQuirks {
    pub upstreams: usize,
    /// Each upstream carries its own part of each image, with its own start and end.
    pub is_modular: bool,
    /// Several upstreams carry one stream, and [`super::reorder`] has put its messages in order.
    pub is_sequenced: bool,
    pub has_start: bool,
    pub has_end: bool,
}

impl SenderQuirks {
    /// True if no other upstream can bring what is missing: a message that does not fit now never will.
    fn is_alone(&self) -> bool {
        self.is_single() || self.is_modular
    }

    /// True if messages come in one order: what follows the next start is not of this series.
    pub fn is_single(&self) -> bool {
        self.upstreams == 1 || self.is_sequenced
    }

    pub fn all(&self) -> u64 {
        u64::MAX >> (64 - self.upstreams.clamp(1, 64))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Of this series.
    Take,
    /// Begins a series.
    Begin,
    /// Part of the protocol, without further meaning.
    Control,
    Duplicate,
    Late,
    /// Neither of this series nor of the next; why, for people.
    Foreign(&'static str),
    /// Of the next series: this one has to end first.
    Next,
    /// Perhaps of a series whose start another upstream is about to bring.
    Unannounced,
}

pub(crate) const NOT_ARMED: &str = "the detector is not armed";
pub(crate) const LEAVING: &str = "the service is going down";
const NO_HEADER: &str = "no series header was received before it";
const PAST: &str = "it belongs to a series that has ended";
const WRONG_END: &str = "it is the end message of a series that is not being received";

/// Received state of a series: which starts, ends and message numbers came. Bit n stands for upstream n.
#[derive(Default)]
pub(crate) struct Received {
    pub key: SeriesKey,
    pub started: u64,
    pub ended: u64,
    /// Upstreams that have gone on to the next series.
    pub over: u64,
    /// Message numbers; one for all, or one per upstream if they are modular. `None` before its start.
    pub numbers: Vec<Option<Numbers>>,
    /// Numbers of the ends that came.
    pub ends: Vec<Option<u64>>,
    /// Highest message number so far.
    pub highest: Option<u64>,
    /// Of the images: the highest number and the highest message number, one for all or one per upstream.
    furthest: Vec<Option<(u64, u64)>>,
}

impl Received {
    pub fn new(key: SeriesKey, upstreams: usize) -> Self {
        let numbers = std::iter::repeat_with(|| None).take(upstreams).collect();
        Self { key, numbers, ends: vec![None; upstreams], furthest: vec![None; upstreams], ..Self::default() }
    }

    fn is_it(&self, key: SeriesKey) -> bool {
        self.key == key && key.0 != 0
    }

    /// Number of the header of this upstream's messages, if it came and has one.
    pub fn header_number(&self, quirks: &SenderQuirks, upstream: usize) -> Option<u64> {
        self.numbers[Self::group(quirks, upstream)].as_ref().map(Numbers::start)
    }

    fn group(quirks: &SenderQuirks, upstream: usize) -> usize {
        if quirks.is_modular { upstream } else { 0 }
    }

    /// A start was taken.
    pub fn on_start(&mut self, quirks: &SenderQuirks, upstream: usize, number: Option<u64>, window: u64) {
        self.started |= 1 << upstream;
        self.numbers[Self::group(quirks, upstream)] = number.map(|number| Numbers::new(number, window));
        self.highest = self.highest.max(number);
    }

    /// A message of the series was taken, whether its content is of use or not.
    pub fn on_message(&mut self, quirks: &SenderQuirks, upstream: usize, number: Option<u64>) {
        if let (Some(numbers), Some(number)) = (&mut self.numbers[Self::group(quirks, upstream)], number) {
            numbers.on_number(number);
            self.highest = self.highest.max(Some(number));
        }
    }

    /// Image `image` of the series came in the message of this number.
    pub fn on_image(&mut self, quirks: &SenderQuirks, upstream: usize, image: u64, number: Option<u64>) {
        let (furthest, Some(number)) = (&mut self.furthest[Self::group(quirks, upstream)], number) else { return };
        let (last_image, last_number) = furthest.unwrap_or((image, number));
        *furthest = Some((last_image.max(image), last_number.max(number)));
    }

    /// How many images were sent, where ends have numbers: each number missing between the last image and the end
    /// counts as an image.
    pub fn sent(&self) -> Option<u64> {
        let of_group = |group: usize| {
            let (numbers, end) = (self.numbers[group].as_ref()?, self.ends[group]?);
            match self.furthest[group] {
                Some((image, number)) => image.checked_add(end.checked_sub(number)?),
                None => end.checked_sub(numbers.start())?.checked_sub(1),
            }
        };
        (0..self.numbers.len()).filter_map(of_group).max()
    }

    /// An end was taken.
    pub fn on_end(&mut self, quirks: &SenderQuirks, upstream: usize, number: Option<u64>) {
        self.ended |= 1 << upstream;
        let group = Self::group(quirks, upstream);
        if let (Some(numbers), Some(number)) = (&mut self.numbers[group], number) {
            numbers.set_end(number);
            self.ends[group] = Some(number);
        }
    }

    /// A message of the next series came.
    pub fn on_next(&mut self, quirks: &SenderQuirks, upstream: usize, read: &Read) {
        self.over |= 1 << upstream;
        let numbers = &mut self.numbers[Self::group(quirks, upstream)];
        if let (Some(numbers), Some(number), Event::Start(..)) = (numbers, read.message_number, &read.event)
            && number > numbers.start()
        {
            numbers.set_end(number - 1);
        }
    }

    /// True if no message of the series can still come. `has_all`: every announced image is there.
    pub fn is_whole(&self, quirks: &SenderQuirks, has_all: bool) -> bool {
        let mut numbers = self.numbers.iter().take(if quirks.is_modular { quirks.upstreams } else { 1 });
        if numbers.clone().any(Option::is_some) {
            return numbers.all(|numbers| numbers.as_ref().is_some_and(Numbers::is_whole));
        }
        (self.ended | self.over) == quirks.all() || (!quirks.is_modular && self.ended != 0 && has_all)
    }

    /// What becomes of a message while this series is received. `last` is the one before.
    pub fn judge(&self, quirks: &SenderQuirks, last: Option<&Self>, upstream: usize, read: &Read) -> Judgement {
        let bit = 1 << upstream;
        let group = Self::group(quirks, upstream);
        if let (Some(numbers), Some(number)) = (&self.numbers[group], read.message_number) {
            return self.judge_number(quirks, (numbers, self.ends[group]), number, &read.event);
        }
        let is_past = |key| last.is_some_and(|last| last.is_it(key) && key != self.key);
        match &read.event {
            Event::Other => Judgement::Control,
            Event::Start(key, _) if *key == self.key && self.started & bit == 0 && quirks.upstreams > 1 => {
                if quirks.is_modular {
                    Judgement::Take
                } else {
                    Judgement::Duplicate
                }
            }
            Event::Start(key, _) if is_past(*key) && last.is_some_and(|last| last.started & bit == 0) => Judgement::Foreign(PAST),
            Event::Start(..) => Judgement::Next,
            // With numbers, each upstream must first send its header, which says where they begin.
            Event::Part(_) if quirks.is_modular && read.message_number.is_some() => Judgement::Foreign(NO_HEADER),
            Event::Part(part) if part.series == self.key => match self.ended & bit {
                0 => Judgement::Take,
                _ if quirks.has_start => Judgement::Late,
                _ => Judgement::Next,
            },
            Event::Part(part) if is_past(part.series) && last.is_some_and(|last| last.ended & bit == 0) => {
                Judgement::Foreign(PAST)
            }
            Event::Part(_) if !quirks.has_start => Judgement::Next,
            Event::Part(_) if quirks.is_alone() => Judgement::Foreign(NO_HEADER),
            Event::End(key) if *key == self.key => {
                if self.ended & bit == 0 {
                    Judgement::Take
                } else {
                    Judgement::Duplicate
                }
            }
            Event::End(key) if is_past(*key) || quirks.is_alone() || !quirks.has_start => Judgement::Foreign(WRONG_END),
            Event::Part(_) | Event::End(_) => Judgement::Unannounced,
        }
    }

    fn judge_number(
        &self,
        quirks: &SenderQuirks,
        (numbers, end): (&Numbers, Option<u64>),
        number: u64,
        event: &Event,
    ) -> Judgement {
        let is_start = matches!(event, Event::Start(..));
        if number < numbers.start() {
            // A sender that was started again counts from the beginning.
            return if is_start && quirks.is_alone() { Judgement::Next } else { Judgement::Foreign(PAST) };
        }
        let is_behind = numbers.end().is_some_and(|end| number > end);
        match event {
            Event::Start(..) if number == numbers.start() => Judgement::Duplicate,
            Event::Start(..) => Judgement::Next,
            _ if number == numbers.start() => Judgement::Duplicate,
            _ if is_behind && quirks.is_alone() => Judgement::Foreign(NO_HEADER),
            _ if is_behind => Judgement::Next,
            Event::End(_) if end == Some(number) => Judgement::Duplicate,
            Event::Other => Judgement::Control,
            Event::End(_) | Event::Part(_) => Judgement::Take,
        }
    }

    /// What becomes of a message while no series is received and one may begin. `last` is the one before.
    pub fn judge_idle(quirks: &SenderQuirks, last: Option<&Self>, upstream: usize, read: &Read) -> Judgement {
        let bit = 1 << upstream;
        let is_last = |key| last.is_some_and(|last| last.is_it(key));
        // Of several upstreams a slow one may still bring messages of the last series; a single one does not.
        let is_past_number = |number: Option<u64>| match (number, last.and_then(|last| last.highest)) {
            (Some(number), Some(highest)) => number <= highest,
            _ => false,
        };
        match &read.event {
            Event::Other => Judgement::Control,
            Event::Start(key, _) => {
                let is_copy = is_last(*key) && last.is_some_and(|last| last.started & bit == 0);
                let is_old = is_copy || (!quirks.is_alone() && is_past_number(read.message_number));
                if quirks.upstreams > 1 && is_old { Judgement::Foreign(PAST) } else { Judgement::Begin }
            }
            Event::Part(part) if !quirks.has_start => {
                let is_late = quirks.has_end && is_last(part.series) && last.is_some_and(|last| last.ended & bit == 0);
                if is_late { Judgement::Foreign(PAST) } else { Judgement::Begin }
            }
            Event::Part(part) if is_last(part.series) || is_past_number(read.message_number) => Judgement::Foreign(PAST),
            Event::Part(_) if quirks.is_alone() => Judgement::Foreign(NO_HEADER),
            Event::End(key) if is_last(*key) || is_past_number(read.message_number) => Judgement::Foreign(PAST),
            Event::End(_) if quirks.is_alone() || !quirks.has_start => Judgement::Foreign(WRONG_END),
            Event::Part(_) | Event::End(_) => Judgement::Unannounced,
        }
    }
}
