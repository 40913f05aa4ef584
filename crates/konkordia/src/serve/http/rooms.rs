//! Places for connections: how many there are, for whom some are kept, and who leaves when all are taken.
//!
//! A connection over which nobody has shown who he is can always be sent away, whatever it does: idle ones and halves of requests keep nobody out. One of
//! somebody who may look or command leaves only for another such, and only while nothing goes on over it.

use crate::serve::security::rate::network;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Addresses that are remembered because somebody with a token came from there: 1024 x 17 bytes.
const KNOWN_MAX: usize = 1024;

/// Who comes from where people with a token come from has so long for a first request before it counts as a stranger's.
const NEW: Duration = Duration::from_secs(1);

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Altogether.
    pub all: usize,
    /// From one address (IPv6: from one network).
    pub per_address: usize,
    /// Of all: only for loopback, and for addresses from which somebody with a token came before.
    pub kept: usize,
}

/// Connections that are open.
#[derive(Clone)]
pub struct Rooms {
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
    /// When its last request began, ns since `began`; 0 = there was none.
    asked_ns: AtomicU64,
    /// Somebody who may look or command uses it.
    is_known: AtomicBool,
    /// A request has come whole and is being carried out.
    pub is_working: AtomicBool,
    /// An answer without end goes over it.
    is_streaming: AtomicBool,
    /// The peer takes an answer slowly.
    pub is_sending: AtomicBool,
    was_sent_away: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rooms {
    /// With so many places.
    pub fn new(places: Places) -> Self {
        Self { places, open: Arc::default() }
    }

    /// A place for a connection from there; another one may have to leave for it. `None` = there is none.
    pub fn enter(&self, address: IpAddr) -> Option<Room> {
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
        Some(Room(seat))
    }

    /// Connections that have a place.
    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.open).seats.len()
    }
}

impl Open {
    /// Frees a place for somebody. Strangers go first, those of the address that has the most before others, then the one that has asked nothing for
    /// the longest time.
    fn send_one_away(&mut self, is_known: bool, is_meant: impl Fn(&Seat) -> bool) -> bool {
        let mut strangers: HashMap<IpAddr, usize> = HashMap::new();
        for seat in self.seats.values().filter(|seat| !seat.is_known()) {
            *strangers.entry(seat.address).or_default() += 1;
        }
        let is_friend = |seat: &Seat| seat.is_near || self.known.contains(&seat.address);
        // Two that come at once must not send each other away while others rest.
        let counts = |seat: &Seat| seat.is_known() || (is_friend(seat) && seat.is_new());
        let may_leave = |seat: &&Arc<Seat>| {
            is_meant(seat) && if is_known { !counts(seat) || seat.rests() } else { !seat.is_known() && !is_friend(seat) }
        };
        let rank = |seat: &&Arc<Seat>| {
            let crowd = strangers.get(&seat.address).copied().unwrap_or(0);
            (counts(seat), is_friend(seat), Reverse(crowd), seat.last_asked())
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

    /// It had no time yet for a request.
    fn is_new(&self) -> bool {
        self.asked_ns.load(Ordering::Relaxed) == 0 && self.began.elapsed() < NEW
    }

    /// Nothing goes on over it.
    fn rests(&self) -> bool {
        !(self.is_working.load(Ordering::Relaxed)
            || self.is_streaming.load(Ordering::Relaxed)
            || self.is_sending.load(Ordering::Relaxed))
    }

    fn last_asked(&self) -> (Instant, u64) {
        let passed = std::time::Duration::from_nanos(self.asked_ns.load(Ordering::Relaxed));
        (self.began + passed, self.number)
    }

    /// A request has come, of somebody who may look or command or of a stranger.
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

    /// An answer without end goes over it until the guard is dropped.
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

    /// True if it has lost its place; else `reader` is woken when it does.
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

/// The place of one connection, given back when it is dropped.
pub struct Room(pub Arc<Seat>);

impl Drop for Room {
    fn drop(&mut self) {
        lock(&self.0.open).seats.remove(&self.0.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(all: usize, per_address: usize, kept: usize) -> Rooms {
        Rooms::new(Places { all, per_address, kept })
    }

    fn at(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn is_gone(room: &Room) -> bool {
        room.0.was_sent_away(Waker::noop())
    }

    #[test]
    fn places_are_given_back() {
        let rooms = rooms(3, 2, 0);
        let held: Vec<Room> = [1, 1, 2].map(|n| rooms.enter(at(n)).unwrap()).into();
        assert_eq!(rooms.count(), 3);
        drop(held);
        assert_eq!(rooms.count(), 0);
    }

    #[test]
    fn idle_strangers_leave_for_the_next_the_crowd_first() {
        let rooms = rooms(8, 8, 2);
        let crowd: Vec<Room> = (0..5).map(|_| rooms.enter(at(1)).unwrap()).collect();
        let single = rooms.enter(at(2)).unwrap();
        // Six places are for strangers: the oldest of the crowd leaves.
        let next = rooms.enter(at(3)).unwrap();
        assert!(is_gone(&crowd[0]) && !is_gone(&crowd[1]) && !is_gone(&single) && !is_gone(&next));
        // Two more are kept for this machine.
        let near: Vec<Room> = (0..2).map(|_| rooms.enter("127.0.0.1".parse().unwrap()).unwrap()).collect();
        assert_eq!((crowd.iter().filter(|room| is_gone(room)).count(), rooms.count()), (1, 8));
        let third = rooms.enter("127.0.0.1".parse().unwrap()).unwrap();
        assert!(is_gone(&crowd[1]) && rooms.count() == 8);
        // A stranger never takes the place of one from here, however idle.
        let others: Vec<Room> = (10..20).filter_map(|n| rooms.enter(at(n))).collect();
        assert_eq!(others.len(), 10);
        assert!(near.iter().chain([&third]).all(|room| !is_gone(room)));
    }

    #[test]
    fn who_has_a_token_is_not_sent_away_by_strangers() {
        let rooms = rooms(4, 4, 1);
        let known: Vec<Room> = (0..3).map(|_| rooms.enter(at(1)).unwrap()).collect();
        known.iter().for_each(|room| room.0.asks(true));
        assert!(rooms.enter(at(2)).is_none(), "three places are for strangers, and those who have them may stay");
        // From an address that is known the fourth place is free; then the one that has rested longest leaves.
        let fourth = rooms.enter(at(1)).unwrap();
        known[0].0.is_working.store(true, Ordering::Relaxed);
        let streaming = known[1].0.streams();
        fourth.0.asks(true);
        let fifth = rooms.enter(at(1)).unwrap();
        assert_eq!(known.iter().map(is_gone).collect::<Vec<_>>(), [false, false, true]);
        fifth.0.asks(true);
        known[0].0.is_working.store(false, Ordering::Relaxed);
        drop(streaming);
        known.iter().for_each(|room| room.0.is_sending.store(true, Ordering::Relaxed));
        drop((fourth, fifth));
        assert_eq!(rooms.count(), 2);
    }

    #[test]
    fn two_that_come_at_once_send_those_away_that_rest_and_not_each_other() {
        let rooms = rooms(3, 3, 0);
        let resting: Vec<Room> = (0..3).map(|_| rooms.enter(at(1)).unwrap()).collect();
        resting.iter().for_each(|room| room.0.asks(true));
        let new: Vec<Room> = (0..2).map(|_| rooms.enter(at(1)).unwrap()).collect();
        assert_eq!(
            (resting.iter().filter(|room| is_gone(room)).count(), new.iter().filter(|room| is_gone(room)).count()),
            (2, 0)
        );
    }

    #[test]
    fn those_who_are_busy_are_the_last_to_stay() {
        let rooms = rooms(2, 2, 0);
        let busy: Vec<Room> = (0..2).map(|_| rooms.enter(at(1)).unwrap()).collect();
        for room in &busy {
            room.0.asks(true);
            room.0.is_working.store(true, Ordering::Relaxed);
        }
        assert!(rooms.enter(at(1)).is_none());
        // Without a token nobody is busy with anything that counts.
        busy[1].0.asks(false);
        assert!(rooms.enter(at(1)).is_some() && is_gone(&busy[1]));
    }
}
