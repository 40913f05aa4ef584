//! Bytes of messages in flight, by upstream: a source waits when its share is used up, which holds back the sender.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What a message takes beside its bytes, at most: its books, and its header as it was read.
const MESSAGE_BYTES: u64 = 1024;

/// The share of one upstream in the bytes that may be in flight, and what it has handed over. Each has its own, so that an upstream that is
/// ahead never takes the room of those it has to wait for.
#[derive(Debug)]
pub(crate) struct Share {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Messages that need no memory any more: committed or refused.
    finished: AtomicU64,
    /// Numbers of messages that could not be used, oldest first; a folder must keep their files.
    refused: Mutex<Vec<u64>>,
    has_waiter: AtomicBool,
    gate: Mutex<()>,
    room: Condvar,
}

impl Share {
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            refused: Mutex::default(),
            has_waiter: AtomicBool::new(false),
            gate: Mutex::new(()),
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

    /// Messages of so many bytes that there is room for.
    pub fn room_messages(&self, bytes: u64) -> usize {
        usize::try_from(self.room_bytes() / (bytes + MESSAGE_BYTES)).unwrap_or(usize::MAX)
    }

    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Message `sequence` of this upstream (from 0) could not be used; to be said before its room is given back.
    pub fn refuse(&self, sequence: u64) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(sequence);
    }

    /// Was message `sequence` refused? Forgets older ones.
    pub fn was_refused(&self, sequence: u64) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let found = refused.contains(&sequence);
        refused.retain(|other| *other > sequence);
        found
    }

    /// Takes room, also beyond the limit: messages that have come are here already.
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

    /// Wakes who waits here, whatever for.
    pub fn wake(&self) {
        if self.has_waiter.load(Ordering::SeqCst) {
            let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.room.notify_all();
        }
    }

    /// Waits until `is_enough`, at most `timeout`; true if so. For the thread of the upstream only.
    pub fn wait(&self, timeout: Duration, is_enough: impl Fn(&Self) -> bool) -> bool {
        if is_enough(self) {
            return true;
        }
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // The flag is set before the state is looked at again, and read after the state was changed: one of the two sees the other.
        self.has_waiter.store(true, Ordering::SeqCst);
        if !is_enough(self) {
            gate = self.room.wait_timeout(gate, timeout).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.has_waiter.store(false, Ordering::SeqCst);
        drop(gate);
        is_enough(self)
    }
}
