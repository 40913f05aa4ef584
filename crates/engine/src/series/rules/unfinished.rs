//! What the rules have begun and not finished: it goes on with the next step, or when workers have finished images.

use super::images::Held;
use super::io::{Incoming, Receipt};
use konkordia_core::series::Ended;

/// What is to be done before the next event, the first of these first. Each of them may have to wait for workers, and
/// goes on from where it was.
#[derive(Default)]
pub(super) struct Unfinished {
    /// A part ahead of the window, which moves on.
    pub placing: Option<Placing>,
    /// A part was placed: is the series complete?
    pub checks_end: bool,
    /// The series that is being received ends when its images are committed.
    pub closing: Option<Closing>,
    /// A message that is judged again when that is done, and whether it may wait.
    pub again: Option<(Incoming, bool)>,
    /// A hold queue that is being opened.
    pub queue: Option<OneQueue>,
    /// The same for all hold queues.
    pub queues: Option<AllQueues>,
    /// What is left of a tick.
    pub tick: Option<Tick>,
}

/// A part whose place is ahead of the window.
pub(super) struct Placing {
    pub image: u64,
    pub part: u32,
    pub receipt: Receipt,
    pub received_ns: u64,
    pub is_malformed: bool,
    /// `None` if it is malformed.
    pub held: Option<Held>,
    /// The window was asked to move on.
    pub has_moved: bool,
}

/// The end of a series.
pub(super) struct Closing {
    pub ended: Ended,
    pub reason: String,
    pub planned: Option<u64>,
    /// Announced images that did not come are not missed.
    pub is_wanted: bool,
}

/// One hold queue that is being opened.
pub(super) struct OneQueue {
    pub upstream: usize,
    /// If not, the first message is taken whatever it waits for.
    pub is_patient: bool,
    /// Images ahead of the window are done.
    pub is_past_ahead: bool,
    /// One of the messages behind those was taken.
    pub has_taken: bool,
}

impl OneQueue {
    pub fn new(upstream: usize, is_patient: bool) -> Self {
        Self { upstream, is_patient, is_past_ahead: false, has_taken: false }
    }
}

/// All hold queues, one after the other, as often as that changes something.
pub(super) struct AllQueues {
    pub upstream: usize,
    pub is_changed: bool,
    /// The next image when the round began.
    pub next: u64,
}

/// What is left of a tick: the next stage, and the time that counts for time-outs.
#[derive(Clone, Copy)]
pub(super) struct Tick {
    pub stage: Stage,
    pub at_ns: u64,
}

/// The stages of a tick, in order.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// Messages that are held.
    Held,
    /// Images that wait for others, and messages that wait for those before them.
    Waiting,
    /// Images that wait for nothing any more leave.
    Leave,
    /// The series may then be complete.
    Complete,
    /// The hold queue of this upstream.
    Expire(usize),
    /// The time-out for the first image.
    Start,
    /// The time-outs for the end and for silence.
    End,
    /// Have all sources come to their end?
    Over,
    /// Then the series ends, and held messages may be a series of their own.
    CloseOver,
    ExpireOver(usize),
    /// The service is going down.
    Shutdown,
}
