//! Puts images in order that arrive in any order, in one part or in several. The window and the waiting time are
//! bounded, so that a lost message becomes a gap and never a stall. [`Order`] keeps track of numbers only: the caller
//! keeps the pixels, at number modulo window. [`Numbers`] finds out whether every message of a series has come.

/// Bounds of an [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderSpec {
    /// Parts that make an image, 1 to [`PARTS_MAX`].
    pub parts_per_image: u32,
    /// Size of the window in images, counted from the next one to leave; 1 to [`WINDOW_IMAGES_MAX`].
    pub window_images: u64,
    /// Longest time that an image waits for its own parts or for the images before it.
    pub wait_ns: u64,
}

/// Most parts of an image, and so most upstreams of a stream: each has a bit of a word.
pub const PARTS_MAX: u32 = 64;

/// Largest window; [`Order`] keeps 24 bytes per image.
pub const WINDOW_IMAGES_MAX: u64 = 1 << 20;

/// What happens to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The part has its place: the caller keeps it.
    Placed,
    /// The part came before.
    Duplicate,
    /// The image of the part has left the window.
    Late,
    /// The part is ahead of the window: call [`Order::advance_for`], take what [`Order::pop`] returns, and try again.
    Beyond,
}

/// A position that leaves the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The position, from 0. Positions leave in order, each once.
    pub number: u64,
    /// Bit n is set if part n is missing; in a gap the bits of all parts are set.
    pub missing_parts: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    here: u64,
    /// Parts that came but cannot be used; nothing waits for them.
    refused: u64,
    /// When the first part came.
    first_ns: u64,
}

impl Slot {
    fn is_empty(&self) -> bool {
        self.here | self.refused == 0
    }
}

/// See the top of this module.
pub struct Order {
    spec: OrderSpec,
    all: u64,
    slots: Box<[Slot]>,
    /// The next position to leave.
    next: u64,
    /// Positions below this one leave, complete or not.
    released: u64,
    /// One past the furthest position of which a part came.
    seen_end: u64,
    /// Before this time no position has waited too long.
    check_ns: u64,
}

impl Order {
    /// An order for one series.
    ///
    /// # Panics
    /// If the bounds are not those of [`OrderSpec`].
    pub fn new(spec: OrderSpec) -> Self {
        assert!((1..=PARTS_MAX).contains(&spec.parts_per_image), "an image has 1 to 64 parts");
        assert!((1..=WINDOW_IMAGES_MAX).contains(&spec.window_images), "a window has 1 to 2^20 images");
        let all = u64::MAX >> (PARTS_MAX - spec.parts_per_image);
        let slots = vec![Slot::default(); spec.window_images as usize].into_boxed_slice();
        Self { spec, all, slots, next: 0, released: 0, seen_end: 0, check_ns: u64::MAX }
    }

    /// Empties the window for the next series.
    pub fn reset(&mut self) {
        self.slots.fill(Slot::default());
        (self.next, self.released, self.seen_end, self.check_ns) = (0, 0, 0, u64::MAX);
    }

    fn index(&self, number: u64) -> usize {
        (number % self.spec.window_images) as usize
    }

    /// Part `part` of image `number` has come.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn on_part(&mut self, number: u64, part: u32, now_ns: u64) -> Verdict {
        self.enter(number, part, now_ns, false)
    }

    /// Part `part` of image `number` has come but cannot be used. It is not waited for any longer; a good copy of it is
    /// still taken.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn on_refused(&mut self, number: u64, part: u32, now_ns: u64) -> Verdict {
        self.enter(number, part, now_ns, true)
    }

    fn enter(&mut self, number: u64, part: u32, now_ns: u64, is_refused: bool) -> Verdict {
        assert!(part < self.spec.parts_per_image, "the caller knows how many parts there are");
        if number < self.next {
            return Verdict::Late;
        }
        if number - self.next >= self.spec.window_images {
            return Verdict::Beyond;
        }
        let index = self.index(number);
        let (slot, bit) = (&mut self.slots[index], 1 << part);
        if slot.here & bit != 0 || (is_refused && slot.refused & bit != 0) {
            return Verdict::Duplicate;
        }
        if slot.is_empty() {
            slot.first_ns = now_ns;
            self.check_ns = self.check_ns.min(now_ns.saturating_add(self.spec.wait_ns));
        }
        if is_refused {
            slot.refused |= bit;
        } else {
            slot.here |= bit;
            slot.refused &= !bit;
        }
        self.seen_end = self.seen_end.max(number + 1);
        Verdict::Placed
    }

    /// Moves the window so that `number` fits. Images that fall out of it leave with the parts that they have.
    pub fn advance_for(&mut self, number: u64) {
        self.released = self.released.max((number + 1).saturating_sub(self.spec.window_images));
    }

    /// Releases images that have waited too long, and all images before them.
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns < self.check_ns {
            return;
        }
        self.check_ns = u64::MAX;
        let mut kept = self.seen_end;
        // From the furthest position backwards: all positions before one that has waited too long leave with it.
        while kept > self.next.max(self.released) {
            let slot = &self.slots[self.index(kept - 1)];
            if !slot.is_empty() {
                let until = slot.first_ns.saturating_add(self.spec.wait_ns);
                if until <= now_ns {
                    break;
                }
                self.check_ns = self.check_ns.min(until);
            }
            kept -= 1;
        }
        self.released = self.released.max(kept);
    }

    /// Earliest time at which [`Self::tick`] has something to do; `None` if nothing waits.
    pub fn deadline_ns(&self) -> Option<u64> {
        (self.waiting() > 0 && self.check_ns < u64::MAX).then_some(self.check_ns)
    }

    /// The next position in order, if it is complete or is not waited for any longer. Its place is free afterwards.
    pub fn pop(&mut self) -> Option<Ready> {
        if self.next >= self.seen_end.max(self.released) {
            return None;
        }
        let index = self.index(self.next);
        let slot = self.slots[index];
        if self.next >= self.released && slot.here | slot.refused != self.all {
            return None;
        }
        self.slots[index] = Slot::default();
        let ready = Ready { number: self.next, missing_parts: self.all & !slot.here };
        self.next += 1;
        Some(ready)
    }

    /// Nothing more comes: releases all positions up to the furthest one seen, and gaps up to `expected` positions.
    pub fn finish(&mut self, expected: Option<u64>) {
        self.released = self.released.max(self.seen_end).max(expected.unwrap_or(0));
    }

    /// The next position to leave.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// One past the furthest position of which a part came.
    pub fn seen_end(&self) -> u64 {
        self.seen_end
    }

    /// Positions that were seen, or lie before one that was seen, and have not left.
    pub fn waiting(&self) -> u64 {
        self.seen_end.saturating_sub(self.next)
    }
}

/// The message numbers of one sender during one series, to find out whether every message between the start and the end
/// has come. The memory is bounded: numbers that are missing for longer than the window are given up, and the series is
/// then not whole.
pub struct Numbers {
    start: u64,
    end: Option<u64>,
    /// All numbers below have come or were given up.
    next: u64,
    seen_end: u64,
    has_gap: bool,
    /// One bit per message, at its number modulo the window.
    seen: Box<[u64]>,
}

impl Numbers {
    /// For a series whose start has this number; the window is in messages.
    pub fn new(start: u64, window: u64) -> Self {
        let words = (window.clamp(1, WINDOW_IMAGES_MAX) as usize).div_ceil(64);
        let next = start.saturating_add(1);
        Self { start, end: None, next, seen_end: next, has_gap: false, seen: vec![0; words].into_boxed_slice() }
    }

    /// Number of the start.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Number of the end, if that is known.
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    fn window(&self) -> u64 {
        self.seen.len() as u64 * 64
    }

    fn place(&self, number: u64) -> (usize, u64) {
        let bit = number % self.window();
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// A message with this number has come. False if one came before, or if the number is too old to tell.
    pub fn on_number(&mut self, number: u64) -> bool {
        if number < self.next {
            return false;
        }
        if number - self.next >= self.window() {
            self.give_up_to(number - self.window() + 1);
        }
        let (word, bit) = self.place(number);
        if self.seen[word] & bit != 0 {
            return false;
        }
        self.seen[word] |= bit;
        self.seen_end = self.seen_end.max(number.saturating_add(1));
        while self.take_next() {}
        true
    }

    fn take_next(&mut self) -> bool {
        let (word, bit) = self.place(self.next);
        let is_here = self.next < self.seen_end && self.seen[word] & bit != 0;
        if is_here {
            self.seen[word] &= !bit;
            self.next += 1;
        }
        is_here
    }

    fn give_up_to(&mut self, next: u64) {
        self.has_gap = true;
        while self.next < next.min(self.seen_end) {
            if !self.take_next() {
                self.next += 1;
            }
        }
        self.next = self.next.max(next);
    }

    /// The end of the series has this number: the end has come, or the start of the next series implies it.
    pub fn set_end(&mut self, number: u64) {
        self.end = Some(self.end.map_or(number, |end| end.min(number)));
    }

    /// Every message from the start to the end has come.
    pub fn is_whole(&self) -> bool {
        !self.has_gap && self.end.is_some_and(|end| self.next > end)
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
