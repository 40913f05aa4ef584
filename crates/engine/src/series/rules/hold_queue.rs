//! The hold queue: messages of one upstream that cannot be judged or placed yet.

use super::io::Incoming;
use konkordia_wire::message::{Event, Read};
use std::collections::{BTreeMap, VecDeque};

/// What a message waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The end of the series, or images of its own upstream before it.
    #[default]
    End,
    /// A header that another upstream may bring.
    Header,
    /// Upstreams that are behind: its image is ahead of the window.
    Window,
}

/// Messages of one upstream that wait. Messages behind one that waits for an end or for a header wait too, because they
/// may be of another series. Images ahead of the window let later images pass that are not ahead.
#[derive(Default)]
pub(crate) struct HoldQueue {
    held: VecDeque<Incoming>,
    /// What the first of them waits for.
    waits: Waits,
    /// Images ahead of the window, by number of the image and of the message; they came before all that is held.
    ahead: BTreeMap<(u64, u64), Incoming>,
    /// Nothing more comes.
    pub is_closed: bool,
}

fn is_image(incoming: &Incoming) -> bool {
    matches!(incoming.read, Ok(Read { event: Event::Part(_), .. }))
}

impl HoldQueue {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.ahead.is_empty()
    }

    pub fn len(&self) -> usize {
        self.held.len() + self.ahead.len()
    }

    /// True if this message, which has just come, may be judged now. It must not overtake messages that may be of
    /// another series.
    pub fn may_pass(&self, incoming: &Incoming) -> bool {
        self.held.is_empty() && (self.ahead.is_empty() || is_image(incoming))
    }

    /// Keeps a message that may not pass.
    pub fn push(&mut self, incoming: Incoming) {
        if self.held.is_empty() {
            self.waits = Waits::End;
        }
        self.held.push_back(incoming);
    }

    /// Keeps a message that was judged and has to wait; `image` is the position of its image, where it has one. True if
    /// the messages behind it have to wait too.
    pub fn put(&mut self, waits: Waits, image: Option<u64>, incoming: Incoming) -> bool {
        if let (Waits::Window, Some(image)) = (waits, image) {
            self.ahead.insert((image, incoming.receipt.sequence), incoming);
            return false;
        }
        self.waits = waits;
        self.held.push_front(incoming);
        true
    }

    /// The lowest image that is ahead of the window.
    pub fn first_ahead(&self) -> Option<u64> {
        self.ahead.first_key_value().map(|((image, _), _)| *image)
    }

    /// Numbers of the images that are ahead of the window.
    pub fn numbers_ahead(&self) -> impl Iterator<Item = u64> {
        self.ahead.keys().map(|(image, _)| *image)
    }

    pub fn pop_ahead(&mut self) -> Option<Incoming> {
        self.ahead.pop_first().map(|(_, incoming)| incoming)
    }

    /// The next message that is held, unless images before it wait.
    pub fn pop_held(&mut self) -> Option<Incoming> {
        let may_pass = self.ahead.is_empty() || is_image(self.held.front()?);
        if may_pass { self.held.pop_front() } else { None }
    }

    /// Since when it waits for something that may never come: a header, or images of other upstreams.
    pub fn since_ns(&self) -> Option<u64> {
        let first = match self.ahead.first_key_value() {
            Some((_, first)) => Some(first),
            None => self.held.front().filter(|_| self.waits == Waits::Header),
        };
        first.map(|incoming| incoming.received_ns)
    }

    /// More messages wait for a header than images may wait for each other.
    pub fn is_crowded(&self, images: u64) -> bool {
        self.waits == Waits::Header && self.ahead.is_empty() && self.held.len() as u64 > images
    }
}
