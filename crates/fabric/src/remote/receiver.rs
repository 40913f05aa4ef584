//! The side that writes the files: it offers slots, takes the images that come in order, and says what is on its disk.

use super::message::{Account, Message, Session, VERSION};
use super::record::Head;
use super::violation::Violation;
use bytes::Bytes;
use konkordia_core::image::CommittedImage;
use std::collections::VecDeque;

/// What a writer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the slots, in bytes.
    pub memory_bytes: u64,
    /// Slots at most.
    pub slots: u32,
    /// Bytes of the start, or of the end, of a run at most.
    pub text_bytes: u64,
}

/// What is to be done, besides sending messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToDo {
    /// Open the files of a run with this start, and register the slots; then [`Receiver::opened`].
    Open {
        /// The start.
        start: Vec<u8>,
        /// The session has begun before: the files of this run may be there already.
        is_resumed: bool,
        /// Slots to be registered, and bytes of each.
        slots: (u32, u64),
    },
    /// The session goes on over a new link: register the slots on it; then [`Receiver::attached`].
    Attach {
        /// Slots to be registered, and bytes of each.
        slots: (u32, u64),
    },
    /// Close the files with this end; then [`Receiver::closed`].
    Close {
        /// The end.
        end: Vec<u8>,
        /// What the sender has counted.
        account: Account,
    },
}

/// A slot whose image was taken, and the link over which it came: the slots of a link that is gone are free anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    link: u64,
    slot: u32,
}

/// What a slot held.
#[derive(Clone, Debug)]
pub enum Taken {
    /// The next image. When it is written, [`Receiver::free`].
    Image(Box<CommittedImage>, Held),
    /// An image that is there already, with this number; its slot is free again.
    Duplicate(u64),
}

/// How far the session is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No sender has said `Hello`.
    None,
    /// The start is coming.
    Starting(Vec<u8>),
    /// Files are being opened, or slots registered.
    Opening,
    Taking,
    /// The end is coming.
    Ending {
        end: Vec<u8>,
        end_bytes: usize,
        account: Account,
    },
    Closing {
        end: Vec<u8>,
        account: Account,
    },
    Closed,
    /// The sender does not get what it wants.
    Refused,
}

/// Takes one run. It has no clock and no link: what has happened are the methods, what to do is what they return, and
/// messages are in [`Receiver::next_message`].
pub struct Receiver {
    limits: Limits,
    session: Session,
    start_bytes: usize,
    slots: (u32, u64),
    is_resumed: bool,
    has_files: bool,
    state: State,
    taken_end: u64,
    durable_end: u64,
    /// The images that came, with those that were in the files before.
    account: Account,
    duplicates: u64,
    outbox: VecDeque<Message>,
    /// Counts links; `has_link` while the newest one is there.
    link: u64,
    has_link: bool,
    failure: Option<String>,
    result: Option<Message>,
}

impl Receiver {
    /// A writer that waits for a sender.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            session: [0; 16],
            start_bytes: 0,
            slots: (0, 0),
            is_resumed: false,
            has_files: false,
            state: State::None,
            taken_end: 0,
            durable_end: 0,
            account: Account::default(),
            duplicates: 0,
            outbox: VecDeque::new(),
            link: 0,
            has_link: false,
            failure: None,
            result: None,
        }
    }

    /// The session, after its `Hello`.
    pub fn session(&self) -> Option<Session> {
        (self.state != State::None).then_some(self.session)
    }

    /// Begins the session, or goes on with it over a new link, with the first message of that link.
    ///
    /// # Errors
    /// The message is not the first one of a sender.
    pub fn hello(&mut self, message: &[u8]) -> Result<Option<ToDo>, Violation> {
        let Message::Hello { version, session, start_bytes, slot_bytes, has_begun } = Message::decode(message)? else {
            return Err(Violation("its first message is not that of a sender of images".into()));
        };
        self.disconnected();
        (self.link, self.has_link) = (self.link + 1, true);
        if version != VERSION {
            return Ok(self.refuse(format!("its version is {VERSION}, that of the sender {version}: install the same release")));
        }
        if self.has_files && session == self.session {
            return Ok(self.again());
        }
        let Limits { memory_bytes, slots, text_bytes } = self.limits;
        let fit = memory_bytes / slot_bytes.max(1);
        if slot_bytes == 0 || fit < 2 || start_bytes > text_bytes {
            let why = format!(
                "two images of {slot_bytes} bytes and a start of {start_bytes} bytes do not fit its memory of {memory_bytes} bytes (--memory)"
            );
            return Ok(self.refuse(why));
        }
        self.session = session;
        (self.slots, self.is_resumed) = ((fit.min(u64::from(slots)) as u32, slot_bytes), has_begun);
        self.start_bytes = start_bytes as usize;
        self.state = State::Starting(Vec::new());
        self.say(Message::Begin { wants_start: true });
        Ok(self.has_start())
    }

    /// The link is gone.
    pub fn disconnected(&mut self) {
        self.outbox.clear();
        self.has_link = false;
    }

    /// Sends a message, if there is a link: the first messages of the next one say the same.
    fn say(&mut self, message: Message) {
        if self.has_link {
            self.outbox.push_back(message);
        }
    }

    /// The session goes on.
    fn again(&mut self) -> Option<ToDo> {
        self.say(Message::Begin { wants_start: false });
        if let Some(closed) = self.result.clone() {
            self.say(closed);
            return None;
        }
        self.state = State::Opening;
        Some(ToDo::Attach { slots: self.slots })
    }

    fn has_start(&mut self) -> Option<ToDo> {
        let State::Starting(start) = &mut self.state else { return None };
        let start = (start.len() == self.start_bytes).then(|| std::mem::take(start))?;
        self.state = State::Opening;
        Some(ToDo::Open { start, is_resumed: self.is_resumed, slots: self.slots })
    }

    /// The session is not taken.
    pub fn refuse(&mut self, why: String) -> Option<ToDo> {
        self.state = State::Refused;
        self.say(Message::Refused { why });
        None
    }

    /// The files are open. They have all images before `taken_end` already; `durable_end` and `account` say what of
    /// them is on the disk, and how much it is. `key` is that of the region with the slots.
    pub fn opened(&mut self, key: u64, taken_end: u64, durable_end: u64, account: Account) {
        (self.has_files, self.taken_end, self.durable_end, self.account) = (true, taken_end, durable_end, account);
        self.attached(key);
    }

    /// The slots are registered on a new link.
    pub fn attached(&mut self, key: u64) {
        let ((slots, slot_bytes), (taken_end, durable_end)) = (self.slots, (self.taken_end, self.durable_end));
        self.say(Message::Ready { key, slots, slot_bytes, taken_end, durable_end });
        if let Some(why) = self.failure.clone() {
            self.say(Message::Failed { why });
        }
        self.state = State::Taking;
    }

    /// The sender has sent this message.
    ///
    /// # Errors
    /// It must not have: the link is of no further use.
    pub fn arrived(&mut self, message: &[u8]) -> Result<Option<ToDo>, Violation> {
        let too_long = || Err(Violation("more parts than it has announced".into()));
        match (Message::decode(message)?, &mut self.state) {
            (Message::Part { bytes }, State::Starting(start)) => {
                start.extend(bytes);
                if start.len() > self.start_bytes { too_long() } else { Ok(self.has_start()) }
            }
            (Message::End { account, end_bytes }, State::Taking) if end_bytes <= self.limits.text_bytes => {
                self.state = State::Ending { end: Vec::new(), end_bytes: end_bytes as usize, account };
                Ok(self.has_end())
            }
            (Message::Part { bytes }, State::Ending { end, end_bytes, .. }) => {
                end.extend(bytes);
                if end.len() > *end_bytes { too_long() } else { Ok(self.has_end()) }
            }
            _ => Err(Violation("a message that does not belong here".into())),
        }
    }

    fn has_end(&mut self) -> Option<ToDo> {
        let State::Ending { end, end_bytes, account } = &mut self.state else { return None };
        if end.len() < *end_bytes {
            return None;
        }
        let (end, account) = (std::mem::take(end), *account);
        self.state = State::Closing { end: end.clone(), account };
        Some(ToDo::Close { end, account })
    }

    /// Checks the event of a write and the head of its slot. Returns how much of the slot is to be read for
    /// [`Self::take`].
    ///
    /// # Errors
    /// No image can come now, or there is no such slot, or no image in it.
    pub fn head(&self, slot: u32, head: &[u8; super::record::HEAD_BYTES]) -> Result<Head, Violation> {
        if self.state != State::Taking || slot >= self.slots.0 {
            return Err(Violation(format!("it writes into slot {slot}, which was not offered to it")));
        }
        Head::new_checked(head, self.slots.1 as usize)
    }

    /// Takes the image of a slot.
    ///
    /// # Errors
    /// It is not the image that was sent.
    pub fn take(&mut self, slot: u32, head: &Head, bytes: &Bytes) -> Result<Taken, Violation> {
        if head.number < self.taken_end {
            self.duplicates += 1;
            self.say(Message::Free { slot });
            return Ok(Taken::Duplicate(head.number));
        }
        let image = head.image(bytes)?;
        self.taken_end = head.number + 1;
        self.account.add(image.status.has_pixels(), super::record::pixels_of(&image).len() as u64);
        Ok(Taken::Image(Box::new(image), Held { link: self.link, slot }))
    }

    /// The bytes of a slot are needed no longer.
    pub fn free(&mut self, held: Held) {
        if held.link == self.link {
            self.say(Message::Free { slot: held.slot });
        }
    }

    /// The images before this number are on the disk.
    pub fn durable(&mut self, end: u64) {
        let end = end.min(self.taken_end);
        if end > self.durable_end {
            self.durable_end = end;
            if self.state == State::Taking {
                self.say(Message::Durable { end });
            }
        }
    }

    /// Nothing can be written any more.
    pub fn failed(&mut self, why: &str) {
        if self.failure.is_none() {
            self.failure = Some(why.into());
            self.say(Message::Failed { why: why.into() });
        }
    }

    /// The files are closed, and hold this. Everything in them is on the disk unless there was a failure.
    pub fn closed(&mut self, account: Account, file: String) {
        let failure = self.failure.clone().unwrap_or_default();
        if failure.is_empty() {
            self.durable_end = self.taken_end;
        }
        let closed = Message::Closed { account, durable_end: self.durable_end, file, failure };
        self.say(closed.clone());
        (self.result, self.state) = (Some(closed), State::Closed);
    }

    /// The next message to be sent, if there is one.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front().map(|message| message.encode())
    }

    /// The files of the session are open: images have come or may come.
    pub fn is_open(&self) -> bool {
        self.has_files && self.result.is_none()
    }

    /// The sender got no for an answer.
    pub fn is_refused(&self) -> bool {
        self.state == State::Refused
    }

    /// Why nothing can be written any more.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What came, with what was in the files before.
    pub fn account(&self) -> Account {
        self.account
    }

    /// Images that came again after a break.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Bytes of each slot.
    pub fn slot_bytes(&self) -> u64 {
        self.slots.1
    }

    /// One past the newest image that came.
    pub fn taken_end(&self) -> u64 {
        self.taken_end
    }

    /// The images before this number are on the disk.
    pub fn durable_end(&self) -> u64 {
        self.durable_end
    }
}
