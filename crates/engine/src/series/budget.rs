//! Bytes of messages in flight, by upstream: a source waits when its share is used up, which holds back the sender.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The share of one upstream in the bytes that may be in flight, and what it has handed over. Each has its own, so that an upstream that is
/// ahead never takes the room of those it has to wait for.
#[derive(Debug)]
pub(crate) struct Share {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Messages that need no memory any more: committed or refused.
    finished: AtomicU64,
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

    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Takes room, also beyond the limit: messages that have come are here already.
    pub fn take(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Gives room back.
    pub fn give(&self, bytes: u64, messages: u64) {
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
