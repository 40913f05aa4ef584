//! The side that has the images: it writes them into free slots, keeps them until they are on the disk of the writer,
//! and accounts for each.

use super::message::{Account, Message, PART_BYTES, Session, VERSION};
use super::record;
use super::record::pixels_of;
use super::violation::Violation;
use konkordia_core::image::CommittedImage;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Slots that a writer may offer.
const SLOTS_MAX: u32 = 1 << 16;
/// Images that may be under way to the disk of the writer: 40 MB of notes.
const UNDER_WAY_MAX: usize = 1 << 20;
/// Ranges of lost images that are named.
const NAMED_MAX: usize = 100;

/// How much is kept to be sent again. At least one image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Images.
    pub images: usize,
    /// Bytes of their pixels as they are packed.
    pub bytes: u64,
}

/// What became of the images of a run, as its sender counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Positions that were handed over.
    pub offered: u64,
    /// Positions between them that were not: the queue before the sender was full.
    pub skipped: u64,
    /// Positions that the writer has on its disk, as it says.
    pub durable: u64,
    /// Positions that the writer lacks after a break, and that were no longer kept.
    pub lost: u64,
    /// Positions that do not fit a slot of the writer.
    pub too_long: u64,
    /// Positions that were sent again after a break.
    pub again: u64,
    /// How often a link was ready for images.
    pub links: u64,
    /// The positions that are lost or too long, the first 100 ranges of them.
    pub missing: Vec<Range<u64>>,
}

/// What is to be done on the link.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send this message.
    Send(Vec<u8>),
    /// Write the pixels of this image without an event, then its head with the event.
    Write {
        /// Region of the writer.
        key: u64,
        /// Where the slot begins in it.
        slot_at: u64,
        /// Where the pixels belong in the slot.
        pixels_at: u64,
        /// Head and record, which belong at the beginning of the slot.
        head: Vec<u8>,
        /// The image.
        image: Arc<CommittedImage>,
        /// The event.
        slot: u32,
    },
}

/// What is known of the link.
enum Link {
    Down,
    /// `Hello` is sent.
    Greeted,
    /// The writer needs the start, of which so many bytes are sent; `None` if it does not need it.
    Begun(Option<usize>),
    Ready(Window),
}

/// The slots of the writer.
struct Window {
    key: u64,
    slot_bytes: u64,
    /// The number of the image in each slot that is not free.
    holds: Vec<Option<u64>>,
    /// The slot that was freed last is used first: its memory is in the caches.
    free: Vec<u32>,
    /// Bytes of the end that were sent; `None` before it has begun.
    end_sent: Option<usize>,
}

/// A position that is not known to be on the disk of the writer.
struct Entry {
    number: u64,
    has_pixels: bool,
    bytes: u64,
    /// `None` when it is no longer kept.
    image: Option<Arc<CommittedImage>>,
    was_sent: bool,
    /// The writer has taken it from its slot, over the present link.
    is_taken: bool,
}

/// Sends one run. It has no clock and no link: [`Sender::next_action`] says what to do, and the methods beside it what
/// has happened.
pub struct Sender {
    session: Session,
    start: Arc<[u8]>,
    slot_bytes: u64,
    kept_max: Kept,
    link: Link,
    /// The writer has once had the start.
    has_begun: bool,
    entries: VecDeque<Entry>,
    /// Index of the next entry to be written over this link.
    next: usize,
    kept: Kept,
    /// One past the newest position that was handed over, and that was ever sent.
    offered_end: u64,
    sent_end: u64,
    account: Account,
    counts: Counts,
    outbox: VecDeque<Message>,
    end: Option<Arc<[u8]>>,
    failure: Option<String>,
    closed: Option<(Account, String)>,
    has_ended: bool,
}

impl Sender {
    /// A run of this name. `start` is what the writer needs before the first image, and `slot_bytes` the largest image
    /// with its record.
    pub fn new(session: Session, start: Arc<[u8]>, slot_bytes: u64, kept_max: Kept) -> Self {
        Self {
            session,
            start,
            slot_bytes,
            kept_max,
            link: Link::Down,
            has_begun: false,
            entries: VecDeque::new(),
            next: 0,
            kept: Kept { images: 0, bytes: 0 },
            offered_end: 0,
            sent_end: 0,
            account: Account::default(),
            counts: Counts::default(),
            outbox: VecDeque::new(),
            end: None,
            failure: None,
            closed: None,
            has_ended: false,
        }
    }

    /// A link is there: the session is begun over it, or taken up again.
    pub fn connected(&mut self) {
        self.disconnected();
        let (version, session, has_begun) = (VERSION, self.session, self.has_begun);
        let start_bytes = self.start.len() as u64;
        self.outbox.push_back(Message::Hello { version, session, start_bytes, slot_bytes: self.slot_bytes, has_begun });
        self.link = Link::Greeted;
    }

    /// The link is gone. What the writer has taken and not brought to its disk may be needed again.
    pub fn disconnected(&mut self) {
        self.link = Link::Down;
        self.outbox.clear();
        self.next = 0;
        self.entries.iter_mut().for_each(|entry| entry.is_taken = false);
    }

    /// True if another image can be handed over: it can be kept.
    pub fn has_room(&mut self) -> bool {
        let is_full = |kept: &Kept, max: &Kept| kept.images > 0 && (kept.images >= max.images || kept.bytes >= max.bytes);
        while is_full(&self.kept, &self.kept_max) {
            // Only what the writer has taken is forgotten: it is lost only if the writer ends now.
            let Some(oldest) = self.entries.iter_mut().find(|entry| entry.image.is_some()).filter(|entry| entry.is_taken) else {
                return false;
            };
            oldest.image = None;
            self.kept = Kept { images: self.kept.images - 1, bytes: self.kept.bytes - oldest.bytes };
        }
        self.entries.len() < UNDER_WAY_MAX
    }

    /// Hands over the next position. Positions come in order; some may be left out.
    ///
    /// # Panics
    /// If positions go back, or after the end.
    pub fn offer(&mut self, image: &Arc<CommittedImage>) {
        assert!(image.number >= self.offered_end && self.end.is_none(), "images come in order, and before the end");
        let (has_pixels, bytes) = (image.status.has_pixels(), pixels_of(image).len() as u64);
        self.counts.skipped += image.number - self.offered_end;
        self.counts.offered += 1;
        self.offered_end = image.number + 1;
        self.account.add(has_pixels, bytes);
        self.kept = Kept { images: self.kept.images + 1, bytes: self.kept.bytes + bytes };
        let (number, image) = (image.number, Some(Arc::clone(image)));
        self.entries.push_back(Entry { number, has_pixels, bytes, image, was_sent: false, is_taken: false });
    }

    /// No further image comes. `end` is what the writer needs to close its files.
    pub fn end(&mut self, end: Arc<[u8]>) {
        self.end.get_or_insert(end);
    }

    /// What to do now on the link, if there is anything.
    pub fn next_action(&mut self) -> Option<Action> {
        if let Some(message) = self.outbox.pop_front() {
            return Some(Action::Send(message.encode()));
        }
        match &mut self.link {
            Link::Down | Link::Greeted => None,
            Link::Begun(sent) => part(&self.start, sent.as_mut()?),
            Link::Ready(window) if window.end_sent.is_some() => part(self.end.as_ref()?, window.end_sent.as_mut()?),
            Link::Ready(_) => self.next_image().or_else(|| self.begin_end()),
        }
    }

    fn next_image(&mut self) -> Option<Action> {
        while self.failure.is_none() {
            let Link::Ready(window) = &mut self.link else { return None };
            let entry = self.entries.get_mut(self.next)?;
            let Some(image) = &entry.image else {
                self.next += 1;
                continue;
            };
            if window.free.is_empty() {
                return None;
            }
            let (head, pixels_at) = record::encode(image);
            if pixels_at as u64 + entry.bytes > window.slot_bytes {
                self.counts.too_long += 1;
                self.lose(self.next);
                continue;
            }
            let slot = window.free.pop()?;
            window.holds[slot as usize] = Some(entry.number);
            self.counts.again += u64::from(std::mem::replace(&mut entry.was_sent, true));
            self.sent_end = self.sent_end.max(entry.number + 1);
            self.next += 1;
            let slot_at = u64::from(slot) * window.slot_bytes;
            let image = Arc::clone(image);
            return Some(Action::Write { key: window.key, slot_at, pixels_at: pixels_at as u64, head, image, slot });
        }
        None
    }

    /// The end follows when every image is in the hands of the writer, or when it takes none any more.
    fn begin_end(&mut self) -> Option<Action> {
        let Link::Ready(window) = &mut self.link else { return None };
        let end = self.end.as_ref()?;
        if self.next < self.entries.len() && self.failure.is_none() {
            return None;
        }
        window.end_sent = Some(0);
        Some(Action::Send(Message::End { account: self.account, end_bytes: end.len() as u64 }.encode()))
    }

    /// The writer has sent this message.
    ///
    /// # Errors
    /// It must not have: the link is of no further use.
    pub fn arrived(&mut self, message: &[u8]) -> Result<(), Violation> {
        let wrong = |what: &str| Err(Violation(what.into()));
        match (Message::decode(message)?, &mut self.link) {
            (Message::Refused { why }, _) => {
                self.failure.get_or_insert(why);
                self.has_ended = true;
            }
            (Message::Failed { why }, _) => drop(self.failure.get_or_insert(why)),
            (Message::Begin { wants_start }, Link::Greeted) => self.link = Link::Begun(wants_start.then_some(0)),
            (Message::Ready { key, slots, slot_bytes, taken_end, durable_end }, Link::Begun(_)) => {
                let is_possible = durable_end <= taken_end && taken_end <= self.sent_end;
                if !(1..=SLOTS_MAX).contains(&slots) || !is_possible {
                    return wrong("its slots are none, or it has images that were not sent");
                }
                let (holds, free) = (vec![None; slots as usize], (0..slots).collect());
                self.link = Link::Ready(Window { key, slot_bytes, holds, free, end_sent: None });
                self.ready(taken_end, durable_end);
            }
            (Message::Free { slot }, Link::Ready(window)) => {
                let Some(number) = window.holds.get_mut(slot as usize).and_then(Option::take) else {
                    return wrong("it frees a slot that is free");
                };
                window.free.push(slot);
                if let Ok(at) = self.entries.binary_search_by_key(&number, |entry| entry.number) {
                    self.entries[at].is_taken = true;
                }
            }
            (Message::Durable { end }, Link::Ready(_)) => {
                if end > self.sent_end {
                    return wrong("it says that an image is on its disk that was not sent");
                }
                self.durable(end);
            }
            (Message::Closed { account, durable_end, file, failure }, Link::Ready(_) | Link::Begun(_)) => {
                self.durable(durable_end.min(self.sent_end));
                if !failure.is_empty() {
                    self.failure.get_or_insert(failure);
                }
                self.closed = Some((account, file));
                self.has_ended = true;
            }
            _ => return wrong("a message that does not belong here"),
        }
        Ok(())
    }

    /// The writer is ready, and has the images before `taken_end`.
    fn ready(&mut self, taken_end: u64, durable_end: u64) {
        self.counts.links += 1;
        self.has_begun = true;
        self.durable(durable_end);
        let mut at = 0;
        while let Some(entry) = self.entries.get(at) {
            if entry.image.is_none() && entry.number >= taken_end {
                self.counts.lost += 1;
                self.lose(at);
            } else {
                at += 1;
            }
        }
        self.next = 0;
    }

    /// The images before `end` are on the disk of the writer.
    fn durable(&mut self, end: u64) {
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.number < end) {
            self.forget(&entry);
            self.counts.durable += 1;
            self.next = self.next.saturating_sub(1);
        }
    }

    fn forget(&mut self, entry: &Entry) {
        if entry.image.is_some() {
            self.kept = Kept { images: self.kept.images - 1, bytes: self.kept.bytes - entry.bytes };
        }
    }

    /// The writer will not have the image of this entry.
    fn lose(&mut self, at: usize) {
        let Some(entry) = self.entries.remove(at) else { return };
        self.forget(&entry);
        self.account.images -= u64::from(entry.has_pixels);
        self.account.bytes -= entry.bytes;
        let missing = &mut self.counts.missing;
        if let Some(last) = missing.last_mut().filter(|last| last.end == entry.number) {
            last.end += 1;
        } else if missing.len() < NAMED_MAX {
            missing.push(entry.number..entry.number + 1);
        }
    }

    /// True while the writer takes images.
    pub fn is_ready(&self) -> bool {
        matches!(self.link, Link::Ready(_))
    }

    /// The writer has closed its files, or takes no more of this session.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Why the writer takes no more images, as it says.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What became of the images so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Positions that the writer has not confirmed.
    pub fn unconfirmed(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The images that the writer should have.
    pub fn account(&self) -> Account {
        self.account
    }

    /// When the writer has closed its files: what it has counted, and its file.
    pub fn closed(&self) -> Option<(Account, &str)> {
        self.closed.as_ref().map(|(account, file)| (*account, file.as_str()))
    }

    /// The first sum of the sender that does not hold, or the difference between both sides when the writer has closed
    /// its files; in words.
    pub fn imbalance(&self) -> Option<String> {
        let counts = &self.counts;
        let sum = counts.durable + counts.lost + counts.too_long + self.unconfirmed();
        if counts.offered != sum || counts.offered + counts.skipped != self.offered_end {
            return Some(format!("{} positions were handed over, and {sum} accounted for (a bug)", counts.offered));
        }
        self.closed.as_ref().and_then(|(written, _)| Account::differs(self.account, *written))
    }
}

/// The next part of a text of which `sent` bytes were sent.
fn part(text: &[u8], sent: &mut usize) -> Option<Action> {
    let rest = &text[*sent..];
    let bytes = rest[..rest.len().min(PART_BYTES)].to_vec();
    *sent += bytes.len();
    (!bytes.is_empty()).then(|| Action::Send(Message::Part { bytes }.encode()))
}
