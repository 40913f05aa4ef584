//! Images between their messages and the sinks: their order, which of them workers have, their commit one after the
//! other, sums, and the ledger.

use super::io::{Action, Done, Job, Receipt};
use super::spec::RulesSpec;
use super::sum::Sum;
use crate::series::merge::Pending;
use konkordia_core::geometry::Orientation;
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::order::{Order, OrderSpec, Ready, Verdict};
use konkordia_core::series::SeriesLedger;
use konkordia_wire::message::ImagePart;
use std::collections::VecDeque;

/// A commit that takes longer has waited for a sink.
const SLOW_NS: u64 = 5_000_000;

/// A part that has its place.
pub(crate) struct Held {
    pub part: Box<ImagePart>,
    pub receipt: Receipt,
    pub received_ns: u64,
}

/// An image that has left the order and is not committed.
struct Entry {
    number: u64,
    /// `None` while a worker has it.
    image: Option<CommittedImage>,
    missing_parts: u64,
    /// One for each part that came.
    receipts: Receipts,
}

/// The receipts of an image, mostly one, which takes no memory of its own.
#[derive(Default)]
struct Receipts {
    first: Option<(u32, Receipt)>,
    more: Vec<(u32, Receipt)>,
}

impl Receipts {
    fn push(&mut self, part: u32, receipt: Receipt) {
        match self.first {
            None => self.first = Some((part, receipt)),
            Some(_) => self.more.push((part, receipt)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &(u32, Receipt)> {
        self.first.iter().chain(&self.more)
    }
}

/// See the top of this module.
pub(crate) struct Images {
    missing: MissingPolicy,
    parts_per_image: u32,
    window_images: u64,
    pub order: Order,
    /// Parts by number modulo window, then by part.
    slots: Vec<Option<Held>>,
    work_images_max: Option<usize>,
    queue: VecDeque<Entry>,
    /// Ticket of the front of the queue; tickets below are of images that were thrown away.
    front_ticket: u64,
    /// How this series asks its images to be turned.
    turn: Orientation,
    sum: Option<Sum>,
    /// The ledger of this series. Messages that come between two series count in the second.
    pub ledger: SeriesLedger,
    /// When the last image was committed.
    pub committed_ns: u64,
    /// When a sink last blocked the commit for long.
    slow_ns: Option<u64>,
    /// Bytes and messages to be given back, by upstream.
    gives: Vec<(u64, u64)>,
    /// A start that waits for those of other upstreams; it is announced before anything else of its series.
    pub pending: Option<Pending>,
    /// Upstream and reason of the first image of this series that cannot be read.
    pub unreadable: Option<(usize, String)>,
}

impl Images {
    pub fn new(spec: &RulesSpec, upstreams: usize) -> Self {
        let parts_per_image = if spec.join.is_modular() { upstreams as u32 } else { 1 };
        let window_images = spec.window_images;
        let places = parts_per_image as usize * window_images as usize;
        Self {
            missing: spec.missing,
            parts_per_image,
            window_images,
            order: Order::new(OrderSpec { parts_per_image, window_images, wait_ns: spec.wait_ns }),
            slots: std::iter::repeat_with(|| None).take(places).collect(),
            work_images_max: spec.work_images_max,
            queue: VecDeque::new(),
            front_ticket: 0,
            turn: Orientation::UPRIGHT,
            sum: (spec.sum_frames > 1).then(|| Sum::new(spec.sum_frames, spec.missing)),
            ledger: SeriesLedger {
                upstreams: vec![Default::default(); upstreams],
                parts_per_image: u64::from(parts_per_image),
                frames_per_image: u64::from(spec.sum_frames),
                ..SeriesLedger::default()
            },
            committed_ns: 0,
            slow_ns: None,
            gives: vec![(0, 0); upstreams],
            pending: None,
            unreadable: None,
        }
    }

    /// Announces the series, if that has not been done.
    pub fn announce(&mut self, actions: &mut VecDeque<Action>) {
        if let Some(start) = self.pending.take().map(Pending::merged) {
            self.turn = start.turn;
            actions.push_back(Action::Start(Box::new(start)));
        }
    }

    fn slot(&self, number: u64, part: u32) -> usize {
        (number % self.window_images) as usize * self.parts_per_image as usize + part as usize
    }

    /// Puts a part in its place. A refused part (`held` is `None`) only ends the wait for it. If it is ahead of the
    /// window, the window begins to move on, and the part comes back.
    pub fn place(&mut self, number: u64, part: u32, now_ns: u64, held: Option<Held>) -> (Verdict, Option<Held>) {
        let verdict = match held {
            None => self.order.on_refused(number, part, now_ns),
            Some(_) => self.order.on_part(number, part, now_ns),
        };
        match verdict {
            Verdict::Placed if held.is_some() => {
                let slot = self.slot(number, part);
                self.slots[slot] = held;
                return (verdict, None);
            }
            Verdict::Beyond => self.order.advance_for(number),
            Verdict::Placed | Verdict::Duplicate | Verdict::Late => {}
        }
        (verdict, held)
    }

    /// Until this time incomplete images wait whatever their age: after a sink has blocked everything, their missing
    /// parts may still wait in front of the pull threads.
    pub fn patient_until(&self, wait_ns: u64) -> u64 {
        self.slow_ns.map_or(0, |slow_ns| slow_ns.saturating_add(wait_ns))
    }

    /// A commit that began at `before_ns` has ended now.
    pub fn on_committed(&mut self, before_ns: u64, now_ns: u64) {
        self.committed_ns = now_ns;
        if now_ns.saturating_sub(before_ns) > SLOW_NS {
            self.slow_ns = Some(now_ns);
        }
    }

    /// The pixels of the image that was added last could not be added.
    pub fn on_not_added(&mut self) {
        if let Some(sum) = &mut self.sum {
            sum.no_pixels();
        }
    }

    /// Releases the memory of a message that is not kept any longer.
    pub fn drop_message(&mut self, receipt: Receipt) {
        let give = &mut self.gives[receipt.upstream];
        *give = (give.0 + receipt.bytes, give.1 + 1);
    }

    /// Memory that was released since the last call: upstream, bytes, messages.
    pub fn released(&mut self) -> impl Iterator<Item = (usize, u64, u64)> {
        let gives = self.gives.iter_mut().enumerate().filter(|(_, give)| give.1 > 0);
        gives.map(|(upstream, give)| {
            let (bytes, messages) = std::mem::take(give);
            (upstream, bytes, messages)
        })
    }

    /// Images at the workers, or behind one that is.
    pub fn working(&self) -> usize {
        self.queue.len()
    }

    /// True if no further image may leave before one has come back from the workers.
    pub fn is_full(&self) -> bool {
        self.work_images_max.is_some_and(|most| self.queue.len() >= most)
    }

    /// Moves one image on, if one can. With `is_held` none leaves the order: a cancelled series is not handed on gap by
    /// gap.
    pub fn advance(&mut self, is_held: bool, actions: &mut VecDeque<Action>) -> bool {
        if let Some((sum, has_blanks)) = self.sum.as_mut().and_then(Sum::take) {
            self.ledger.images.enter(sum.status, sum.store);
            actions.push_back(Action::CommitSum(sum, has_blanks));
            return true;
        }
        if let Some(Entry { image: Some(_), .. }) = self.queue.front() {
            let Some(Entry { image: Some(image), receipts, .. }) = self.queue.pop_front() else { return false };
            self.front_ticket += 1;
            receipts.iter().for_each(|(_, receipt)| self.drop_message(*receipt));
            self.commit(image, actions);
            return true;
        }
        if is_held || self.is_full() {
            return false;
        }
        let Some(ready) = self.order.pop() else { return false };
        self.leave(ready, actions);
        true
    }

    /// A position leaves the order: it goes to a worker, or directly to the queue of images to be committed.
    fn leave(&mut self, ready: Ready, actions: &mut VecDeque<Action>) {
        let Ready { number, missing_parts } = ready;
        let mut receipts = Receipts::default();
        let mut image = CommittedImage::lost(number);
        image.missing_parts = missing_parts;
        let mut parts = Vec::new();
        for part in 0..self.parts_per_image {
            let slot = self.slot(number, part);
            let Some(held) = self.slots[slot].take() else {
                parts.extend((self.parts_per_image > 1).then(Vec::new));
                continue;
            };
            let is_first = receipts.first.is_none();
            receipts.push(part, held.receipt);
            let of_part = *held.part;
            if is_first {
                (image.received_ns, image.frame) = (held.received_ns, of_part.number);
                (image.times, image.header_json, image.store) = (of_part.times, of_part.header_json, of_part.store);
            }
            image.received_ns = image.received_ns.min(held.received_ns);
            image.store &= of_part.store;
            let is_whole = missing_parts == 0 && !of_part.is_partial && image.status != ImageStatus::Partial;
            image.status = if is_whole { ImageStatus::Complete } else { ImageStatus::Partial };
            if self.parts_per_image > 1 {
                parts.push(of_part.channels);
            } else {
                image.channels = of_part.channels;
            }
        }
        self.enqueue(image, parts, receipts, actions);
    }

    fn enqueue(
        &mut self,
        mut image: CommittedImage,
        parts: Vec<Vec<Channel>>,
        receipts: Receipts,
        actions: &mut VecDeque<Action>,
    ) {
        if image.status == ImageStatus::Partial && self.missing != MissingPolicy::Keep {
            image.status = ImageStatus::Discarded;
            image.channels = Vec::new();
        }
        let (number, missing_parts) = (image.number, image.missing_parts);
        let image = if self.work_images_max.is_some() && image.status.has_pixels() {
            let ticket = self.front_ticket + self.queue.len() as u64;
            actions.push_back(Action::Work(Job { ticket, image, parts, turn: self.turn }));
            None
        } else {
            Some(image)
        };
        self.queue.push_back(Entry { number, image, missing_parts, receipts });
    }

    /// A worker has finished an image. Returns messages that could not be used after all: upstream and number.
    pub fn take_done(&mut self, done: Done) -> Vec<(usize, u64)> {
        let entry = done.ticket.checked_sub(self.front_ticket).and_then(|index| self.queue.get_mut(index as usize));
        let Some(entry) = entry else { return Vec::new() };
        let (mut image, mut refused) = (done.image, Vec::new());
        // A part that cannot be read does not count as placed.
        for (part, receipt) in entry.receipts.iter().filter(|(part, _)| done.unreadable & 1 << part != 0) {
            let upstream = &mut self.ledger.upstreams[receipt.upstream];
            (upstream.placed, upstream.malformed) = (upstream.placed - 1, upstream.malformed + 1);
            refused.push((receipt.upstream, receipt.sequence));
            entry.missing_parts |= 1 << part;
            if let (None, Some(why)) = (&self.unreadable, &done.why) {
                self.unreadable = Some((receipt.upstream, why.clone()));
            }
        }
        image.missing_parts = entry.missing_parts;
        if done.unreadable != 0 {
            let is_lost = entry.missing_parts.count_ones() == self.parts_per_image;
            image.status = match self.missing {
                _ if is_lost => ImageStatus::Lost,
                MissingPolicy::Keep => ImageStatus::Partial,
                MissingPolicy::Discard | MissingPolicy::CompleteOnly => ImageStatus::Discarded,
            };
            if image.status != ImageStatus::Partial {
                image.channels = Vec::new();
            }
        }
        entry.image = Some(image);
        refused
    }

    fn commit(&mut self, image: CommittedImage, actions: &mut VecDeque<Action>) {
        self.announce(actions);
        if self.sum.is_none() {
            self.ledger.enter(&image);
            actions.push_back(Action::Commit(image));
            return;
        }
        let is_added = self.enter_frame(&image);
        actions.push_back(Action::Add(image, is_added));
    }

    /// Adds an image of the sender to the sum, without its pixels. True if these have to be added too.
    fn enter_frame(&mut self, frame: &CommittedImage) -> bool {
        self.ledger.enter_frame(frame);
        let Some(sum) = &mut self.sum else { return false };
        let is_added = sum.add(frame);
        self.ledger.frames_unfinished = u64::from(sum.frames());
        is_added
    }

    /// Throws away everything that is not committed; what has parts counts as discarded, gaps count as lost. Sinks see
    /// none of it.
    pub fn discard(&mut self) {
        self.front_ticket += self.queue.len() as u64;
        while let Some(entry) = self.queue.pop_front() {
            entry.receipts.iter().for_each(|(_, receipt)| self.drop_message(*receipt));
            self.discard_one(entry.number, entry.missing_parts);
        }
        self.order.finish(None);
        while let Some(Ready { number, missing_parts }) = self.order.pop() {
            for part in 0..self.parts_per_image {
                let slot = self.slot(number, part);
                if let Some(held) = self.slots[slot].take() {
                    self.drop_message(held.receipt);
                }
            }
            self.discard_one(number, missing_parts);
        }
    }

    fn discard_one(&mut self, number: u64, missing_parts: u64) {
        let has_parts = missing_parts.count_ones() < self.parts_per_image;
        let status = if has_parts { ImageStatus::Discarded } else { ImageStatus::Lost };
        let image = CommittedImage { status, missing_parts, ..CommittedImage::lost(number) };
        if self.sum.is_none() {
            return self.ledger.enter(&image);
        }
        self.enter_frame(&image);
        if let Some((mut sum, _)) = self.sum.as_mut().and_then(Sum::take) {
            if sum.status.has_pixels() {
                sum.status = ImageStatus::Discarded;
            }
            self.ledger.images.enter(sum.status, sum.store);
        }
    }

    /// Prepares for the next series. Returns the ledger of this one; a new one begins.
    pub fn reset(&mut self) -> SeriesLedger {
        self.order.reset();
        self.unreadable = None;
        if let Some(sum) = &mut self.sum {
            sum.reset();
        }
        let next = SeriesLedger {
            upstreams: vec![Default::default(); self.ledger.upstreams.len()],
            parts_per_image: self.ledger.parts_per_image,
            frames_per_image: self.ledger.frames_per_image,
            ..SeriesLedger::default()
        };
        std::mem::replace(&mut self.ledger, next)
    }
}
