//! Images between their messages and the sinks: their order, what workers do to them, their commit one after the other,
//! and the ledger.

use super::control::Notice;
use super::control::SeriesControl;
use super::event::ImagePart;
use super::merge::Pending;
use super::pull::Receipt;
use super::sum::{Summer, start_of_sums};
use super::transform::Transform;
use super::work::{Done, Job};
use crate::output_queue::OutputQueues;
use crossbeam_channel::{Receiver, Sender};
use konkordia_core::geometry::Orientation;
use konkordia_core::image::CommittedImage;
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::order::{Order, OrderSpec, Ready, Verdict};
use konkordia_core::series::SeriesLedger;
use std::collections::VecDeque;
use std::sync::Arc;

/// A commit that takes longer has waited for a sink.
const SLOW_NS: u64 = 5_000_000;

/// A part that has its place.
pub(crate) struct Held {
    pub part: Box<ImagePart>,
    pub receipt: Receipt,
    pub received_ns: u64,
}

/// The worker pool, as the sort thread sees it.
pub(crate) struct WorkerPool {
    pub jobs: Sender<Job>,
    pub done: Receiver<Done>,
    /// Images that may be at the workers or wait to be committed behind one that is.
    pub images_max: usize,
}

enum State {
    Working,
    Done(CommittedImage),
}

/// An image that has left the order and is not committed.
struct Entry {
    number: u64,
    state: State,
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

/// See the top of this module. Used by one thread only.
pub(crate) struct Images {
    control: Arc<SeriesControl>,
    output_queues: Arc<OutputQueues>,
    missing: MissingPolicy,
    parts_per_image: u32,
    window_images: u64,
    pub order: Order,
    /// Parts by number modulo window, then by part.
    slots: Vec<Option<Held>>,
    worker_pool: Option<WorkerPool>,
    queue: VecDeque<Entry>,
    /// Ticket of the front of the queue; tickets below are of images that were thrown away.
    front_ticket: u64,
    /// Adapts the start of a series to what the workers make of its images.
    transform: Option<Box<dyn Transform>>,
    /// How this series asks its images to be turned.
    turn: Orientation,
    /// Makes sums of the images that are committed.
    summer: Option<Summer>,
    /// The ledger of this series. Messages that come between two series count in the second.
    pub ledger: SeriesLedger,
    pub committed: u64,
    pub committed_bytes: u64,
    /// When the last image was committed.
    pub committed_ns: u64,
    /// When a sink last blocked the commit for long.
    slow_ns: Option<u64>,
    /// Bytes and messages to be given back, by upstream.
    gives: Vec<(u64, u64)>,
    /// A start that waits for those of other upstreams; it is announced before anything else of its series.
    pub pending: Option<Pending>,
    /// The start of this series was announced.
    pub is_announced: bool,
    /// Upstream and reason of the first image of this series that cannot be read.
    pub unreadable: Option<(usize, String)>,
}

/// Bounds of [`Images`].
pub(crate) struct ImagesSpec {
    pub order: OrderSpec,
    pub missing: MissingPolicy,
    pub upstreams: usize,
    pub transform: Option<Box<dyn Transform>>,
    pub summing: Option<Summer>,
}

impl Images {
    pub fn new(
        spec: ImagesSpec,
        control: Arc<SeriesControl>,
        output_queues: Arc<OutputQueues>,
        worker_pool: Option<WorkerPool>,
    ) -> Self {
        let (parts, window) = (spec.order.parts_per_image, spec.order.window_images);
        let upstreams = vec![Default::default(); spec.upstreams];
        let places = parts as usize * window as usize;
        Self {
            control,
            output_queues,
            missing: spec.missing,
            parts_per_image: parts,
            window_images: window,
            order: Order::new(spec.order),
            slots: std::iter::repeat_with(|| None).take(places).collect(),
            worker_pool,
            queue: VecDeque::new(),
            front_ticket: 0,
            ledger: SeriesLedger {
                upstreams,
                parts_per_image: u64::from(parts),
                frames_per_image: spec.summing.as_ref().map_or(1, |summer| u64::from(summer.frames())),
                ..SeriesLedger::default()
            },
            transform: spec.transform,
            turn: Orientation::UPRIGHT,
            summer: spec.summing,
            committed: 0,
            committed_bytes: 0,
            committed_ns: 0,
            slow_ns: None,
            gives: vec![(0, 0); spec.upstreams],
            pending: None,
            is_announced: false,
            unreadable: None,
        }
    }

    /// Announces the series, if that has not been done.
    pub fn announce(&mut self) {
        let Some(mut start) = self.pending.take().map(Pending::merged) else { return };
        self.turn = start.turn;
        // The start describes the images that leave, so it passes through the same steps in the same order.
        if let Some(transform) = &self.transform {
            transform.start(&mut start);
        }
        start_of_sums(&mut start, self.summer.as_ref().map_or(1, Summer::frames));
        let start = Arc::new(start);
        let control = &self.control;
        self.output_queues.start(&start, &|| control.is_cancelling());
        self.control.notify(Notice::Started(start));
        self.is_announced = true;
    }

    fn slot(&self, number: u64, part: u32) -> usize {
        (number % self.window_images) as usize * self.parts_per_image as usize + part as usize
    }

    /// Puts a part in its place, and moves the window on if need be. A refused part (`held` is `None`) only ends the
    /// wait for it.
    pub fn place(&mut self, number: u64, part: u32, now_ns: u64, held: Option<Held>) -> (Verdict, Option<Held>) {
        let is_refused = held.is_none();
        let enter = |order: &mut Order| match is_refused {
            true => order.on_refused(number, part, now_ns),
            false => order.on_part(number, part, now_ns),
        };
        let mut verdict = enter(&mut self.order);
        if verdict == Verdict::Beyond {
            self.order.advance_for(number);
            self.pump(number - self.window_images + 1);
            verdict = enter(&mut self.order);
        }
        if verdict != Verdict::Placed {
            return (verdict, held);
        }
        if held.is_some() {
            let slot = self.slot(number, part);
            self.slots[slot] = held;
        }
        (verdict, None)
    }

    /// Until this time incomplete images wait whatever their age: after a sink has blocked everything, their missing
    /// parts may still wait in front of the pull threads.
    pub fn patient_until(&self, wait_ns: u64) -> u64 {
        self.slow_ns.map_or(0, |slow_ns| slow_ns.saturating_add(wait_ns))
    }

    /// Releases the memory of a message that is not kept any longer, with the next [`Self::settle`].
    pub fn drop_message(&mut self, receipt: Receipt) {
        let give = &mut self.gives[receipt.upstream];
        *give = (give.0 + receipt.bytes, give.1 + 1);
    }

    /// Returns all released memory to the in-flight budgets, and wakes readers.
    pub fn settle(&mut self) {
        for (pull, give) in self.control.pulls.iter().zip(&mut self.gives) {
            if give.1 > 0 {
                pull.budget.give(give.0, give.1);
                *give = (0, 0);
            }
        }
        self.output_queues.flush();
    }

    /// Images at the workers, or behind one that is.
    pub fn working(&self) -> usize {
        self.queue.len()
    }

    /// Where finished images come back.
    pub fn done(&self) -> Option<&Receiver<Done>> {
        self.worker_pool.as_ref().map(|worker_pool| &worker_pool.done)
    }

    /// Moves images on as far as possible; waits for workers only until the order has come to `until`.
    pub fn pump(&mut self, until: u64) {
        self.absorb();
        loop {
            let is_full = self.worker_pool.as_ref().is_some_and(|worker_pool| self.queue.len() >= worker_pool.images_max);
            if is_full {
                if self.order.next() >= until {
                    return;
                }
                self.settle();
                let Some(Ok(done)) = self.done().map(Receiver::recv) else { return };
                self.take_done(done);
                self.commit_front();
                continue;
            }
            // A cancelled series is not handed on gap by gap.
            if self.control.is_cancelling() {
                return;
            }
            let Some(ready) = self.order.pop() else { return };
            self.leave(ready);
            self.commit_front();
        }
    }

    /// Takes what the workers have finished.
    fn absorb(&mut self) {
        while let Some(Ok(done)) = self.done().map(Receiver::try_recv) {
            self.take_done(done);
        }
        self.commit_front();
    }

    /// Waits until everything that has left the order is committed.
    pub fn drain(&mut self) {
        self.pump(u64::MAX);
        while !self.queue.is_empty() {
            let Some(Ok(done)) = self.done().map(Receiver::recv) else { return };
            self.take_done(done);
            self.commit_front();
        }
    }

    /// A position leaves the order: it goes to a worker, or directly to the queue of images to be committed.
    fn leave(&mut self, ready: Ready) {
        let Ready { number, missing_parts } = ready;
        let mut entry =
            Entry { number, state: State::Done(CommittedImage::lost(number)), missing_parts, receipts: Receipts::default() };
        let mut image = CommittedImage::lost(number);
        let mut parts = Vec::new();
        for part in 0..self.parts_per_image {
            let slot = self.slot(number, part);
            let Some(held) = self.slots[slot].take() else {
                parts.extend((self.parts_per_image > 1).then(Vec::new));
                continue;
            };
            let is_first = entry.receipts.first.is_none();
            entry.receipts.push(part, held.receipt);
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
        self.enqueue(entry, image, parts);
    }

    fn enqueue(&mut self, mut entry: Entry, mut image: CommittedImage, parts: Vec<Vec<konkordia_core::image::Channel>>) {
        image.missing_parts = entry.missing_parts;
        if image.status == ImageStatus::Partial && self.missing != MissingPolicy::Keep {
            image.status = ImageStatus::Discarded;
            image.channels = Vec::new();
        }
        match &self.worker_pool {
            Some(worker_pool) if image.status.has_pixels() => {
                let ticket = self.front_ticket + self.queue.len() as u64;
                entry.state = State::Working;
                // There is room for as many jobs as may be in the queue.
                let _ = worker_pool.jobs.send(Job { ticket, image, parts, turn: self.turn });
            }
            _ => entry.state = State::Done(image),
        }
        self.queue.push_back(entry);
    }

    pub fn take_done(&mut self, done: Done) {
        let Some(index) = done.ticket.checked_sub(self.front_ticket) else { return };
        let parts_per_image = self.parts_per_image;
        let Some(entry) = self.queue.get_mut(index as usize) else { return };
        let mut image = done.image;
        // A part that cannot be read does not count as placed.
        for (part, receipt) in entry.receipts.iter().filter(|(part, _)| done.unreadable & 1 << part != 0) {
            let upstream = &mut self.ledger.upstreams[receipt.upstream];
            (upstream.placed, upstream.malformed) = (upstream.placed - 1, upstream.malformed + 1);
            self.control.pulls[receipt.upstream].budget.refuse(receipt.sequence);
            entry.missing_parts |= 1 << part;
            if let (None, Some(why)) = (&self.unreadable, &done.why) {
                self.unreadable = Some((receipt.upstream, why.clone()));
            }
        }
        image.missing_parts = entry.missing_parts;
        if done.unreadable != 0 {
            let is_lost = entry.missing_parts.count_ones() == parts_per_image;
            image.status = match self.missing {
                _ if is_lost => ImageStatus::Lost,
                MissingPolicy::Keep => ImageStatus::Partial,
                MissingPolicy::Discard | MissingPolicy::CompleteOnly => ImageStatus::Discarded,
            };
            if image.status != ImageStatus::Partial {
                image.channels = Vec::new();
            }
        }
        entry.state = State::Done(image);
    }

    pub fn commit_front(&mut self) {
        while let Some(Entry { state: State::Done(_), .. }) = self.queue.front() {
            let Some(Entry { state: State::Done(image), receipts, .. }) = self.queue.pop_front() else { return };
            self.front_ticket += 1;
            self.commit(image);
            receipts.iter().for_each(|(_, receipt)| self.drop_message(*receipt));
        }
    }

    fn commit(&mut self, image: CommittedImage) {
        self.announce();
        let Some(image) = self.account(image, false) else {
            self.committed_ns = self.control.now_ns();
            return;
        };
        let image = Arc::new(image);
        let control = &self.control;
        let before_ns = control.now_ns();
        self.output_queues.image(&image, &|| control.is_cancelling());
        self.committed_ns = control.now_ns();
        if self.committed_ns - before_ns > SLOW_NS {
            self.slow_ns = Some(self.committed_ns);
        }
        if image.status.has_pixels() {
            control.latency.count(self.committed_ns.saturating_sub(image.received_ns));
        }
        self.committed += 1;
        self.committed_bytes += image.packed_bytes();
    }

    /// Counts the image of the next position in the ledger. Returns what leaves: the image itself, or the sum of which
    /// it is the last. With `is_discarded` a sum with pixels counts as discarded.
    fn account(&mut self, image: CommittedImage, is_discarded: bool) -> Option<CommittedImage> {
        let Some(summer) = &mut self.summer else {
            self.ledger.enter(&image);
            return Some(image);
        };
        self.ledger.enter_frame(&image);
        let sum = summer.add(&image);
        self.ledger.frames_unfinished = u64::from(summer.added());
        let mut sum = sum?;
        if is_discarded && sum.status.has_pixels() {
            sum.status = ImageStatus::Discarded;
        }
        self.ledger.enter_image(&sum);
        Some(sum)
    }

    /// Throws away everything that is not committed; what has parts counts as discarded, gaps count as lost. Sinks see
    /// none of it.
    pub fn discard(&mut self) {
        self.front_ticket += self.queue.len() as u64;
        let parts_per_image = self.parts_per_image;
        while let Some(entry) = self.queue.pop_front() {
            self.discard_one(entry.number, entry.missing_parts);
            entry.receipts.iter().for_each(|(_, receipt)| self.drop_message(*receipt));
        }
        self.order.finish(None);
        while let Some(Ready { number, missing_parts }) = self.order.pop() {
            for part in 0..parts_per_image {
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
        self.account(CommittedImage { status, missing_parts, ..CommittedImage::lost(number) }, true);
    }

    /// Prepares for the next series. Returns the ledger of this one; a new one begins.
    pub fn reset(&mut self) -> SeriesLedger {
        self.order.reset();
        self.is_announced = false;
        self.unreadable = None;
        if let Some(summer) = &mut self.summer {
            summer.reset();
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
