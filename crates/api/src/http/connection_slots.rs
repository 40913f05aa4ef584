//! Limits for connections: how many there may be, for whom some are reserved, and which one is closed when all places
//! are taken.
//!
//! A connection without a valid token may be closed whatever it does, so that idle connections and unfinished requests
//! keep nobody out. A connection with a valid token is closed only while it is idle, and only for a connection from
//! this machine or from an address from which a token came before. Connections from this machine and from such
//! addresses are never closed for a connection from elsewhere.

use crate::security::rate::network;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Addresses that are remembered because a valid token came from there: 1024 x 17 bytes.
const KNOWN_MAX: usize = 1024;

/// A new connection from this machine or such an address has this long for its first request, before it counts as one
/// without a token.
const NEW: Duration = Duration::from_secs(1);

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Altogether.
    pub all: usize,
    /// From one address (IPv6: from one network).
    pub per_address: usize,
    /// Of all: reserved for loopback, and for addresses from which a valid token came before.
    pub kept: usize,
}

/// Connections that are open.
#[derive(Clone)]
pub struct ConnectionSlots {
    places: Places,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    seats: HashMap<u64, Arc<Seat>>,
    entered: u64,
    /// Newest last.
    known: VecDeque<IpAddr>,
}

/// What is known of one connection.
pub struct Seat {
    number: u64,
    address: IpAddr,
    is_near: bool,
    open: Arc<Mutex<Open>>,
    began: Instant,
    /// When its last request began, ns since `began`; 0 = there was no request.
    asked_ns: AtomicU64,
    /// Its last request came from a sender with a role.
    is_known: AtomicBool,
    /// A complete request is being carried out.
    pub is_working: AtomicBool,
    /// An answer without end is being sent.
    is_streaming: AtomicBool,
    /// The peer takes an answer slowly.
    pub is_sending: AtomicBool,
    was_sent_away: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectionSlots {
    /// With these limits.
    pub fn new(places: Places) -> Self {
        Self { places, open: Arc::default() }
    }

    /// A place for a connection from this address; another connection may be closed for it. `None` = no place is free.
    pub fn enter(&self, address: IpAddr) -> Option<ConnectionSlot> {
        let is_near = address.to_canonical().is_loopback();
        let address = network(address);
        let mut open = lock(&self.open);
        let is_known = is_near || open.known.contains(&address);
        let of_address = open.seats.values().filter(|seat| seat.address == address).count();
        if of_address >= self.places.per_address && !open.send_one_away(is_known, |seat| seat.address == address) {
            return None;
        }
        let all = if is_known { self.places.all } else { self.places.all.saturating_sub(self.places.kept).max(1) };
        if open.seats.len() >= all && !open.send_one_away(is_known, |_| true) {
            return None;
        }
        open.entered += 1;
        let seat = Arc::new(Seat {
            number: open.entered,
            address,
            is_near,
            open: Arc::clone(&self.open),
            began: Instant::now(),
            asked_ns: AtomicU64::new(0),
            is_known: AtomicBool::new(false),
            is_working: AtomicBool::new(false),
            is_streaming: AtomicBool::new(false),
            is_sending: AtomicBool::new(false),
            was_sent_away: AtomicBool::new(false),
            reader: Mutex::new(None),
        });
        open.seats.insert(seat.number, Arc::clone(&seat));
        Some(ConnectionSlot(seat))
    }

    /// Connections that have a place.
    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.open).seats.len()
    }
}

impl Open {
    /// Closes a connection to free a place. Connections without a token go first, and of these the ones of the address
    /// that has the most. Then comes the one whose last request is the oldest.
    fn send_one_away(&mut self, is_known: bool, is_meant: impl Fn(&Seat) -> bool) -> bool {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for seat in self.seats.values().filter(|seat| !seat.is_known()) {
            *of_address.entry(seat.address).or_default() += 1;
        }
        let is_friend = |seat: &Seat| seat.is_near || self.known.contains(&seat.address);
        // Two new connections must not close each other while others are idle.
        let counts = |seat: &Seat| seat.is_known() || (is_friend(seat) && seat.is_new());
        let may_leave = |seat: &&Arc<Seat>| {
            is_meant(seat) && if is_known { !counts(seat) || seat.rests() } else { !seat.is_known() && !is_friend(seat) }
        };
        let rank = |seat: &&Arc<Seat>| {
            let same_address = of_address.get(&seat.address).copied().unwrap_or(0);
            (counts(seat), is_friend(seat), Reverse(same_address), seat.last_asked())
        };
        let Some(seat) = self.seats.values().filter(may_leave).min_by_key(rank).cloned() else { return false };
        self.seats.remove(&seat.number);
        seat.send_away();
        true
    }
}

impl Seat {
    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// It is too new to have sent a request.
    fn is_new(&self) -> bool {
        self.asked_ns.load(Ordering::Relaxed) == 0 && self.began.elapsed() < NEW
    }

    /// It is idle.
    fn rests(&self) -> bool {
        !(self.is_working.load(Ordering::Relaxed)
            || self.is_streaming.load(Ordering::Relaxed)
            || self.is_sending.load(Ordering::Relaxed))
    }

    fn last_asked(&self) -> (Instant, u64) {
        let passed = std::time::Duration::from_nanos(self.asked_ns.load(Ordering::Relaxed));
        (self.began + passed, self.number)
    }

    /// A request has arrived; `is_known` = its sender has a role.
    pub fn asks(&self, is_known: bool) {
        self.asked_ns.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.is_known.store(is_known, Ordering::Relaxed);
        if !is_known || self.is_near {
            return;
        }
        let mut open = lock(&self.open);
        if open.known.back() == Some(&self.address) {
            return;
        }
        open.known.retain(|known| *known != self.address);
        if open.known.len() == KNOWN_MAX {
            open.known.pop_front();
        }
        open.known.push_back(self.address);
    }

    /// An answer without end is being sent until the guard is dropped.
    pub fn streams(self: &Arc<Self>) -> Streaming {
        self.is_streaming.store(true, Ordering::Relaxed);
        Streaming(Arc::clone(self))
    }

    fn send_away(&self) {
        self.was_sent_away.store(true, Ordering::Release);
        let reader = lock(&self.reader).take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// True if it has lost its place; otherwise `reader` is woken when it does.
    pub fn was_sent_away(&self, reader: &Waker) -> bool {
        let mut kept = lock(&self.reader);
        if !kept.as_ref().is_some_and(|old| old.will_wake(reader)) {
            *kept = Some(reader.clone());
        }
        drop(kept);
        self.was_sent_away.load(Ordering::Acquire)
    }
}

/// See [`Seat::streams`].
pub struct Streaming(Arc<Seat>);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.is_streaming.store(false, Ordering::Relaxed);
    }
}

/// The place of one connection; dropping it frees the place.
pub struct ConnectionSlot(pub Arc<Seat>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.0.open).seats.remove(&self.0.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection_slots(all: usize, per_address: usize, kept: usize) -> ConnectionSlots {
        ConnectionSlots::new(Places { all, per_address, kept })
    }

    fn at(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn is_gone(room: &ConnectionSlot) -> bool {
        room.0.was_sent_away(Waker::noop())
    }

    #[test]
    fn places_are_given_back() {
        let connection_slots = connection_slots(3, 2, 0);
        let held: Vec<ConnectionSlot> = [1, 1, 2].map(|n| connection_slots.enter(at(n)).unwrap()).into();
        assert_eq!(connection_slots.count(), 3);
        drop(held);
        assert_eq!(connection_slots.count(), 0);
    }

    #[test]
    fn idle_unknown_connections_leave_for_the_next_many_of_one_address_first() {
        let connection_slots = connection_slots(8, 8, 2);
        let same_address: Vec<ConnectionSlot> = (0..5).map(|_| connection_slots.enter(at(1)).unwrap()).collect();
        let single = connection_slots.enter(at(2)).unwrap();
        // Six places are for unknown senders: the oldest connection of the address with the most is closed.
        let next = connection_slots.enter(at(3)).unwrap();
        assert!(is_gone(&same_address[0]) && !is_gone(&same_address[1]) && !is_gone(&single) && !is_gone(&next));
        // Two more are reserved for this machine.
        let near: Vec<ConnectionSlot> = (0..2).map(|_| connection_slots.enter("127.0.0.1".parse().unwrap()).unwrap()).collect();
        assert_eq!((same_address.iter().filter(|room| is_gone(room)).count(), connection_slots.count()), (1, 8));
        let third = connection_slots.enter("127.0.0.1".parse().unwrap()).unwrap();
        assert!(is_gone(&same_address[1]) && connection_slots.count() == 8);
        // An unknown sender never takes the place of a local connection, however idle that is.
        let others: Vec<ConnectionSlot> = (10..20).filter_map(|n| connection_slots.enter(at(n))).collect();
        assert_eq!(others.len(), 10);
        assert!(near.iter().chain([&third]).all(|room| !is_gone(room)));
    }

    #[test]
    fn who_has_a_token_is_not_sent_away_by_unknown_ones() {
        let connection_slots = connection_slots(4, 4, 1);
        let known: Vec<ConnectionSlot> = (0..3).map(|_| connection_slots.enter(at(1)).unwrap()).collect();
        known.iter().for_each(|room| room.0.asks(true));
        assert!(connection_slots.enter(at(2)).is_none(), "three places are for strangers, and those who have them may stay");
        // A known address gets the fourth place; after that, its connection that was idle for the longest time is
        // closed.
        let fourth = connection_slots.enter(at(1)).unwrap();
        known[0].0.is_working.store(true, Ordering::Relaxed);
        let streaming = known[1].0.streams();
        fourth.0.asks(true);
        let fifth = connection_slots.enter(at(1)).unwrap();
        assert_eq!(known.iter().map(is_gone).collect::<Vec<_>>(), [false, false, true]);
        fifth.0.asks(true);
        known[0].0.is_working.store(false, Ordering::Relaxed);
        drop(streaming);
        known.iter().for_each(|room| room.0.is_sending.store(true, Ordering::Relaxed));
        drop((fourth, fifth));
        assert_eq!(connection_slots.count(), 2);
    }

    #[test]
    fn two_that_come_at_once_send_those_away_that_rest_and_not_each_other() {
        let connection_slots = connection_slots(3, 3, 0);
        let resting: Vec<ConnectionSlot> = (0..3).map(|_| connection_slots.enter(at(1)).unwrap()).collect();
        resting.iter().for_each(|room| room.0.asks(true));
        let new: Vec<ConnectionSlot> = (0..2).map(|_| connection_slots.enter(at(1)).unwrap()).collect();
        assert_eq!(
            (resting.iter().filter(|room| is_gone(room)).count(), new.iter().filter(|room| is_gone(room)).count()),
            (2, 0)
        );
    }

    #[test]
    fn those_who_are_busy_are_the_last_to_stay() {
        let connection_slots = connection_slots(2, 2, 0);
        let busy: Vec<ConnectionSlot> = (0..2).map(|_| connection_slots.enter(at(1)).unwrap()).collect();
        for room in &busy {
            room.0.asks(true);
            room.0.is_working.store(true, Ordering::Relaxed);
        }
        assert!(connection_slots.enter(at(1)).is_none());
        // Without a token no work protects a connection.
        busy[1].0.asks(false);
        assert!(connection_slots.enter(at(1)).is_some() && is_gone(&busy[1]));
    }
}
