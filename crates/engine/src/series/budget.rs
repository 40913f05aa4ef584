//! In-flight budgets: bytes of messages in flight, by upstream. A source waits when its budget is used up, which holds
//! back the sender.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What a message takes beside its bytes, at most: bookkeeping, and its header as decoded.
const MESSAGE_BYTES: u64 = 1024;

/// The in-flight budget of one upstream, and what the upstream has handed over. Each upstream has its own, so that one
/// that is ahead never takes the room of those that it has to wait for.
#[derive(Debug)]
pub(crate) struct InFlightBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Messages that need no memory any more: committed or refused.
    finished: AtomicU64,
    /// Numbers of messages that could not be used, oldest first; a folder must keep their files.
    refused: Mutex<Vec<u64>>,
    has_waiter: AtomicBool,
    hold_queue: Mutex<()>,
    room: Condvar,
}

impl InFlightBudget {
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            refused: Mutex::default(),
            has_waiter: AtomicBool::new(false),
            hold_queue: Mutex::new(()),
            room: Condvar::new(),
        }
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Acquire)
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    pub fn room_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes())
    }

    /// How many messages of so many bytes there is room for.
    pub fn room_messages(&self, bytes: u64) -> usize {
        usize::try_from(self.room_bytes() / (bytes + MESSAGE_BYTES)).unwrap_or(usize::MAX)
    }

    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Notes that message `sequence` of this upstream (from 0) could not be used. To be called before its room is given
    /// back.
    pub fn refuse(&self, sequence: u64) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(sequence);
    }

    /// True if message `sequence` was refused. Forgets it and older ones.
    pub fn was_refused(&self, sequence: u64) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let found = refused.contains(&sequence);
        refused.retain(|other| *other > sequence);
        found
    }

    /// Takes room, also beyond the limit: messages that have come are in memory already.
    pub fn take(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes + MESSAGE_BYTES, Ordering::AcqRel);
    }

    /// Gives room back.
    pub fn give(&self, bytes: u64, messages: u64) {
        let bytes = bytes + messages * MESSAGE_BYTES;
        let before = self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "nothing is given back twice");
        self.finished.fetch_add(messages, Ordering::AcqRel);
        self.wake();
    }

    /// Wakes the waiting thread, whatever it waits for.
    pub fn wake(&self) {
        if self.has_waiter.load(Ordering::SeqCst) {
            let _gate = self.hold_queue.lock().unwrap_or_else(PoisonError::into_inner);
            self.room.notify_all();
        }
    }

    /// Waits until `is_enough`, at most `timeout`; true if so. For the thread of the upstream only.
    pub fn wait(&self, timeout: Duration, is_enough: impl Fn(&Self) -> bool) -> bool {
        if is_enough(self) {
            return true;
        }
        let mut hold_queue = self.hold_queue.lock().unwrap_or_else(PoisonError::into_inner);
        // The waiter sets the flag before it reads the state again; the other thread changes the state before it reads
        // the flag. So one of the two sees the other.
        self.has_waiter.store(true, Ordering::SeqCst);
        if !is_enough(self) {
            hold_queue = self.room.wait_timeout(hold_queue, timeout).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.has_waiter.store(false, Ordering::SeqCst);
        drop(hold_queue);
        is_enough(self)
    }
}
