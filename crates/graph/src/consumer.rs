//! The side that takes images: each number once, whatever is sent twice.

use crate::account::Taken;
use crate::message::{Message, VERSION};
use crate::producer::HEARTBEAT_MS;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Messages that wait to be sent, over all links; more are left out, and the producer asks again.
const OUTBOX_MAX: usize = 1 << 16;

/// What a message of a producer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Work on this image.
    Take(u64),
    /// Nothing to work on.
    Nothing,
    /// The producer does not work with this consumer, and says why.
    Refused(String),
    /// This producer has no further images.
    Ended,
}

/// An image that is not finished.
struct Entry {
    /// The links over which it came, and to which its end is said.
    links: Vec<usize>,
    is_passed: bool,
}

/// Takes the images of one edge, from one or more producers.
pub struct Consumer {
    stage: String,
    member: String,
    epoch: u64,
    window: u32,
    links: usize,
    entries: BTreeMap<u64, Entry>,
    /// Finished images from `floor` on.
    done: BTreeSet<u64>,
    floor: u64,
    heartbeat_at_ms: u64,
    is_blocked: bool,
    taken: Taken,
    outbox: VecDeque<(usize, Message)>,
}

impl Consumer {
    /// A member of a stage with links to so many producers, each of which may send `window` images ahead.
    pub fn new(stage: &str, member: &str, epoch: u64, window: u32, links: usize) -> Self {
        assert!(window > 0, "a consumer takes something");
        let (stage, member) = (stage.to_owned(), member.to_owned());
        let mut made = Self {
            stage,
            member,
            epoch,
            window,
            links,
            entries: BTreeMap::new(),
            done: BTreeSet::new(),
            floor: 0,
            heartbeat_at_ms: 0,
            is_blocked: false,
            taken: Taken::default(),
            outbox: VecDeque::new(),
        };
        (0..links).for_each(|link| made.greet(link));
        made
    }

    /// One producer more. Returns the number of its link.
    pub fn add_link(&mut self) -> usize {
        self.links += 1;
        self.greet(self.links - 1);
        self.links - 1
    }

    fn greet(&mut self, link: usize) {
        let of_link = |entry: &&Entry| entry.links.contains(&link) && !entry.is_passed;
        let pending = self.entries.values().filter(of_link).count() as u32;
        let (stage, member, epoch) = (self.stage.clone(), self.member.clone(), self.epoch);
        let credits = self.window.saturating_sub(pending);
        self.say(link, Message::Hello { version: VERSION, stage, member, epoch, credits, pending });
    }

    fn say(&mut self, link: usize, message: Message) {
        if self.outbox.len() < OUTBOX_MAX {
            self.outbox.push_back((link, message));
        }
    }

    /// A producer has sent this message.
    pub fn arrived(&mut self, link: usize, message: Message) -> Verdict {
        match message {
            Message::Ask => self.greet(link),
            Message::Work { id, floor, .. } => return self.work(link, id, floor),
            Message::Query { id } => self.query(link, id),
            Message::Heartbeat { floor, .. } => self.raise(floor),
            Message::Refused { why } => return Verdict::Refused(why),
            Message::End => {
                self.say(link, Message::Bye);
                return Verdict::Ended;
            }
            Message::Hello { .. } | Message::Passed { .. } | Message::Done { .. } | Message::Nack { .. } | Message::Bye => {
                self.taken.dropped += 1;
            }
        }
        Verdict::Nothing
    }

    fn raise(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.done = self.done.split_off(&floor);
        }
    }

    fn work(&mut self, link: usize, id: u64, floor: u64) -> Verdict {
        self.raise(floor);
        if id < self.floor || self.done.contains(&id) {
            self.taken.doubled += 1;
            self.say(link, Message::Done { id });
            return Verdict::Nothing;
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            self.taken.doubled += 1;
            let is_passed = entry.is_passed;
            if !entry.links.contains(&link) {
                entry.links.push(link);
            }
            if is_passed {
                self.say(link, Message::Passed { id });
            }
            return Verdict::Nothing;
        }
        // Twice the window, because greetings and images may cross.
        let pending = self.entries.values().filter(|entry| !entry.is_passed).count();
        if pending >= 2 * self.window as usize * self.links {
            self.taken.dropped += 1;
            return Verdict::Nothing;
        }
        self.taken.taken += 1;
        self.entries.insert(id, Entry { links: vec![link], is_passed: false });
        Verdict::Take(id)
    }

    /// An answer was lost, or the stages behind take long.
    fn query(&mut self, link: usize, id: u64) {
        if id < self.floor || self.done.contains(&id) {
            self.say(link, Message::Done { id });
        } else if self.entries.get(&id).is_some_and(|entry| entry.is_passed) {
            self.say(link, Message::Passed { id });
        }
    }

    /// The own work on this image is finished.
    pub fn passed(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| !entry.is_passed) else { return };
        entry.is_passed = true;
        let links = entry.links.clone();
        links.into_iter().for_each(|link| self.say(link, Message::Passed { id }));
    }

    /// The image is on the disk of the last stage, or nobody wants more of it.
    pub fn done(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.taken.done += 1;
        if id >= self.floor {
            self.done.insert(id);
        }
        entry.links.into_iter().for_each(|link| self.say(link, Message::Done { id }));
    }

    /// The stage cannot work on this image. It may come again.
    pub fn refuse(&mut self, id: u64, why: &str) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.taken.refused += 1;
        entry.links.into_iter().for_each(|link| self.say(link, Message::Nack { id, why: why.to_owned() }));
    }

    /// The stage waits for the stage behind it, or does so no more.
    pub fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Says that it is still there, every [`HEARTBEAT_MS`].
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms >= self.heartbeat_at_ms {
            self.heartbeat_at_ms = now_ms + HEARTBEAT_MS;
            let is_blocked = self.is_blocked;
            (0..self.links).for_each(|link| self.say(link, Message::Heartbeat { is_blocked, floor: 0 }));
        }
    }

    /// What to send next, and over which link.
    pub fn next_message(&mut self) -> Option<(usize, Message)> {
        self.outbox.pop_front()
    }

    /// Takes no more: the producers send the open images to others.
    pub fn leave(&mut self) {
        (0..self.links).for_each(|link| self.say(link, Message::Bye));
    }

    /// All images with smaller numbers are finished in the whole graph.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Images that are not finished.
    pub fn open(&self) -> usize {
        self.entries.len()
    }

    /// What was counted.
    pub fn account(&self) -> &Taken {
        &self.taken
    }

    /// The sum that does not hold, in words.
    pub fn imbalance(&self) -> Option<String> {
        let Taken { taken, done, refused, .. } = &self.taken;
        let open = self.entries.len() as u64;
        (*taken != done + refused + open)
            .then(|| format!("{taken} images were taken, but {done} done, {refused} refused and {open} open (a bug)"))
    }
}
