//! What links by libfabric, by verbs and by shared memory have in common: a [`Device`] writes, and a connection over
//! TCP carries the rest.
//!
//! Order, which devices and the connection do not keep between them:
//! - A message says how many events were made before it. It is held back until they are there. Writes without an event
//!   that stand before it have been delivered before it is sent.
//! - A write begins when the other side has taken all messages before it.
//! - Where a device does not keep the order of writes, an event is written alone: all before it has arrived, and what
//!   comes behind waits for it.
//!
//! End: a side that is dropped says so when the other side has everything, and waits a while for the answer. Who has
//! answered does not call the device any more: some devices touch memory of the other side, which is gone then.

use crate::control::{Control, HEAD_BYTES, differ, same};
use crate::device::{Completion, Device, Place};
use crate::tcp::{STUCK, TcpLink};
use crate::{Arrival, Link, LinkError, MESSAGE_BYTES_MAX, Region, RemoteAddress};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

/// Events and messages that wait for [`Link::poll`] while this side writes; more are left where they are.
const ARRIVED_MAX: usize = 1 << 16;
/// Messages among them; they may be long.
const MESSAGES_MAX: usize = 256;
/// Regions that the other side may have.
const REGIONS_MAX: usize = 1 << 16;
/// How long a write waits for the region that it names: its key may have come faster on another way.
const ANNOUNCED: Duration = Duration::from_secs(2);
/// How long the end of the connection may come behind what the device noticed of it.
const SHOWN: Duration = Duration::from_millis(500);
/// How long a side that ends waits for the answer of the other side.
const LEAVES: Duration = STUCK;
/// The connection is looked at in every so many steps while the device has something.
const LOOK_EVERY: u32 = 16;

/// A link by a device.
pub(crate) struct RemoteLink<D: Device> {
    name: String,
    control: TcpLink,
    device: D,
    regions: Vec<Region>,
    theirs: HashMap<u64, (Place, u64)>,
    free_slots: Vec<usize>,
    /// Is an event among the writes that have not been delivered?
    is_event_under_way: bool,
    /// Were there writes since the last event?
    is_unmarked: bool,
    events_made: u64,
    events_taken: u64,
    messages_made: u64,
    messages_taken: u64,
    events_seen: u64,
    events_told: u64,
    messages_seen: u64,
    held: Option<(u64, Vec<u8>, Instant)>,
    arrived: VecDeque<Arrival>,
    messages_waiting: usize,
    happened: Vec<Completion>,
    fault: Option<String>,
    /// This side has said that it ends.
    is_leaving: bool,
    is_other_leaving: bool,
    /// The device is not called any more.
    is_over: bool,
    /// There was an error, so that nothing is left to wait for.
    is_broken: bool,
    steps: u32,
}

impl<D: Device> RemoteLink<D> {
    /// Introduces both sides to each other; both have to do this at the same time.
    pub(crate) fn meet(control: TcpLink, kind: &str, mut device: D, timeout: Duration) -> Result<Self, LinkError> {
        let mut control = control.with_longer_messages(HEAD_BYTES);
        let name = format!("{kind} {}", control.other());
        let broken = |why: String| LinkError::Broken { link: name.clone(), why };
        let address = device.address().to_vec();
        control.send(&Control::Hello { kind: kind.into(), address }.encode())?;
        let Some(Arrival::Message(hello)) = control.poll(timeout)? else {
            return Err(broken(format!("it did not introduce itself within {} s", timeout.as_secs())));
        };
        match Control::decode(&hello).map_err(|why| broken(format!("{why}; {}", same(kind))))? {
            Control::Hello { kind: theirs, .. } if theirs != kind => {
                return Err(broken(differ(&theirs, kind)));
            }
            Control::Hello { address, .. } => {
                let io = |why| LinkError::Io { link: name.clone(), source: Error::other(why) };
                device.meet(&address).map_err(io)?;
            }
            _ => return Err(broken("it did not introduce itself".into())),
        }
        Ok(Self {
            name,
            control,
            device,
            regions: Vec::new(),
            theirs: HashMap::new(),
            free_slots: (0..D::SLOTS).collect(),
            is_event_under_way: false,
            is_unmarked: false,
            events_made: 0,
            events_taken: 0,
            messages_made: 0,
            messages_taken: 0,
            events_seen: 0,
            events_told: 0,
            messages_seen: 0,
            held: None,
            arrived: VecDeque::new(),
            messages_waiting: 0,
            happened: Vec::new(),
            fault: None,
            is_leaving: false,
            is_other_leaving: false,
            is_over: false,
            is_broken: false,
            steps: 0,
        })
    }

    fn broken(&self, why: String) -> LinkError {
        LinkError::Broken { link: self.name.clone(), why }
    }

    fn refused(&self, why: String) -> LinkError {
        LinkError::Refused { link: self.name.clone(), why }
    }

    /// The device cannot go on. If the other side has gone, that is the reason.
    fn failed(&mut self, why: String) -> LinkError {
        let end = Instant::now() + SHOWN;
        loop {
            match self.control.poll(end.saturating_duration_since(Instant::now())) {
                Ok(Some(_)) if Instant::now() < end => {}
                Ok(_) => return LinkError::Io { link: self.name.clone(), source: Error::other(why) },
                Err(error) => return error,
            }
        }
    }

    /// Takes what the device has.
    fn take_completions(&mut self) -> bool {
        if self.is_over || self.arrived.len() >= ARRIVED_MAX {
            return false;
        }
        let mut happened = std::mem::take(&mut self.happened);
        let looked = self.device.completions(&mut happened);
        let any = !happened.is_empty();
        for completion in happened.drain(..) {
            match completion {
                Completion::Written(slot) => self.free_slots.push(slot),
                Completion::Event(event) => {
                    self.events_seen += 1;
                    self.arrived.push_back(Arrival::Event(event));
                }
                Completion::Failed(why) => self.fault = Some(why),
            }
        }
        self.happened = happened;
        if self.free_slots.len() == D::SLOTS {
            self.is_event_under_way = false;
        }
        if let Err(why) = looked {
            self.fault.get_or_insert(why);
        }
        any
    }

    /// Makes one step; says whether anything happened.
    fn progress(&mut self) -> Result<bool, LinkError> {
        let progress = self.advance();
        self.is_broken |= progress.is_err();
        progress
    }

    fn advance(&mut self) -> Result<bool, LinkError> {
        if self.is_over {
            return Err(LinkError::Closed { link: self.name.clone() });
        }
        let mut any = self.take_completions();
        if let Some(why) = self.fault.clone() {
            return Err(self.failed(why));
        }
        self.steps = self.steps.wrapping_add(1);
        let has_room = self.held.is_none() && self.messages_waiting < MESSAGES_MAX && self.arrived.len() < ARRIVED_MAX;
        if has_room && (!any || self.steps.is_multiple_of(LOOK_EVERY)) {
            match self.control.poll(Duration::ZERO)? {
                None => {}
                Some(Arrival::Message(bytes)) => {
                    self.hear(&bytes)?;
                    any = true;
                }
                Some(Arrival::Event(_)) => return Err(self.broken("an event on a connection without regions".into())),
            }
        }
        any |= self.release()?;
        if self.device.events_ahead_max().is_some_and(|max| self.events_seen - self.events_told >= max / 4) {
            self.tell_taken()?;
        }
        if self.is_other_leaving && !any && self.held.is_none() && self.free_slots.len() == D::SLOTS {
            self.is_over = true;
            if !self.is_leaving {
                self.control.send(&Control::Leaving.encode())?;
            }
        }
        Ok(any)
    }

    /// Hands out the message that is held back, if the events before it are there.
    fn release(&mut self) -> Result<bool, LinkError> {
        let Some((events_before, message, since)) = self.held.take() else { return Ok(false) };
        if events_before <= self.events_seen {
            self.arrived.push_back(Arrival::Message(message));
            self.messages_waiting += 1;
            self.messages_seen += 1;
            self.tell_taken()?;
            return Ok(true);
        }
        if since.elapsed() > STUCK {
            let lost = events_before - self.events_seen;
            return Err(self.broken(format!("{lost} of its writes with events did not arrive")));
        }
        self.held = Some((events_before, message, since));
        Ok(false)
    }

    fn tell_taken(&mut self) -> Result<(), LinkError> {
        self.events_told = self.events_seen;
        self.control.send(&Control::Taken { messages: self.messages_seen, events: self.events_seen }.encode())
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        match Control::decode(bytes).map_err(|why| self.broken(why))? {
            Control::Hello { .. } => return Err(self.broken("it introduced itself twice".into())),
            Control::Region { key, place, length_bytes } => {
                if self.theirs.len() >= REGIONS_MAX {
                    return Err(self.broken(format!("it has more than {REGIONS_MAX} regions")));
                }
                self.theirs.insert(key, (place, length_bytes));
            }
            Control::Message { events_before, message } => self.held = Some((events_before, message, Instant::now())),
            Control::Taken { messages, events } => {
                if messages > self.messages_made || events > self.events_made {
                    return Err(self.broken("it has taken more than was sent".into()));
                }
                (self.messages_taken, self.events_taken) = (messages, events);
            }
            Control::Leaving => self.is_other_leaving = true,
        }
        Ok(())
    }

    /// Makes progress until `is_ready`, and gives up when nothing happens any more.
    fn wait(&mut self, is_ready: impl Fn(&Self) -> bool) -> Result<(), LinkError> {
        let mut patience = Patience::new();
        while !is_ready(self) {
            self.step(&mut patience)?;
        }
        Ok(())
    }

    /// Lets the other side have everything, and says that this side ends.
    fn leave(&mut self) -> Result<(), LinkError> {
        self.wait(|link| link.free_slots.len() == D::SLOTS && link.messages_taken == link.messages_made)?;
        self.is_leaving = true;
        self.control.send(&Control::Leaving.encode())?;
        let end = Instant::now() + LEAVES;
        self.wait(|link| link.is_over || Instant::now() > end)
    }

    /// One step of a wait.
    fn step(&mut self, patience: &mut Patience) -> Result<(), LinkError> {
        if self.progress()? {
            *patience = Patience::new();
        } else if patience.since.elapsed() > STUCK {
            self.is_broken = true;
            let why = format!("the other side has taken nothing for {} s", STUCK.as_secs());
            return Err(LinkError::Io { link: self.name.clone(), source: Error::new(ErrorKind::TimedOut, why) });
        } else {
            patience.nap(STUCK);
        }
        Ok(())
    }

    /// The region of the other side with this key.
    fn theirs(&mut self, to: RemoteAddress, length: usize) -> Result<Place, LinkError> {
        let end = Instant::now() + ANNOUNCED;
        let mut patience = Patience::new();
        let (place, length_bytes) = loop {
            if let Some(known) = self.theirs.get(&to.key) {
                break *known;
            }
            let left = end.saturating_duration_since(Instant::now());
            if !self.progress()? {
                if left.is_zero() {
                    return Err(self.refused(format!("the other side has no region with key {:#x}", to.key)));
                }
                patience.nap(left);
            }
        };
        if to.offset_bytes.checked_add(length as u64).is_none_or(|end| end > length_bytes) {
            let at = to.offset_bytes;
            return Err(self.refused(format!("{length} bytes at {at} do not lie in a region of {length_bytes} bytes")));
        }
        Ok(Place { key: place.key, base: place.base.wrapping_add(to.offset_bytes) })
    }

    /// The other side takes no more when it ends: what is under way is finished, and the link is closed.
    fn ends_with_the_other(&mut self) -> Result<(), LinkError> {
        if self.is_other_leaving { self.wait(|_| false) } else { Ok(()) }
    }

    /// Writes what fits one slot.
    fn write_piece(&mut self, piece: &[u8], event: Option<u32>, to: Place) -> Result<(), LinkError> {
        self.ends_with_the_other()?;
        let keeps_order = self.device.keeps_order();
        let is_alone = event.is_some() && !keeps_order;
        self.wait(|link| match is_alone || (link.is_event_under_way && !keeps_order) {
            true => link.free_slots.len() == D::SLOTS,
            false => !link.free_slots.is_empty(),
        })?;
        if let Some(max) = self.device.events_ahead_max().filter(|_| event.is_some()) {
            self.wait(|link| link.events_made - link.events_taken < max)?;
        }
        let slot = self.free_slots.pop().expect("waited for above");
        let mut patience = Patience::new();
        loop {
            match self.device.write(slot, piece, event, to) {
                Ok(true) => break,
                Ok(false) => self.step(&mut patience)?,
                Err(why) => return Err(self.failed(why)),
            }
        }
        self.is_event_under_way |= event.is_some();
        self.is_unmarked = event.is_none();
        self.events_made += u64::from(event.is_some());
        Ok(())
    }
}

impl<D: Device> Link for RemoteLink<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn register(&mut self, length_bytes: usize) -> Result<Region, LinkError> {
        let io = |why| LinkError::Io { link: self.name.clone(), source: Error::other(why) };
        let place = self.device.register(length_bytes).map_err(io)?;
        // As in `tcp`; the key of the library may be easy to guess, or the same for all regions.
        let key = RandomState::new().build_hasher().finish() | 1;
        self.control.send(&Control::Region { key, place, length_bytes: length_bytes as u64 }.encode())?;
        let region = Region { key, length_bytes };
        self.regions.push(region);
        Ok(region)
    }

    fn read(&self, region: Region, offset_bytes: usize, into: &mut [u8]) -> Result<(), LinkError> {
        let place = self.regions.iter().position(|known| known.key == region.key);
        match place.is_some_and(|place| self.device.read(place, offset_bytes, into)) {
            true => Ok(()),
            false => Err(self.refused(format!("{} bytes at {offset_bytes} are not in a region", into.len()))),
        }
    }

    fn write(&mut self, bytes: &[u8], to: RemoteAddress, event: Option<u32>) -> Result<(), LinkError> {
        let place = self.theirs(to, bytes.len())?;
        self.wait(|link| link.messages_taken == link.messages_made)?;
        let (mut left, mut base) = (bytes, place.base);
        while left.len() > D::SLOT_BYTES {
            let (piece, rest) = left.split_at(D::SLOT_BYTES);
            self.write_piece(piece, None, Place { key: place.key, base })?;
            (left, base) = (rest, base.wrapping_add(piece.len() as u64));
        }
        self.write_piece(left, event, Place { key: place.key, base })
    }

    fn send(&mut self, message: &[u8]) -> Result<(), LinkError> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(self.refused(format!("a message of {} bytes; {MESSAGE_BYTES_MAX} are allowed", message.len())));
        }
        self.ends_with_the_other()?;
        if self.is_unmarked {
            self.wait(|link| link.free_slots.len() == D::SLOTS)?;
            self.is_unmarked = false;
        }
        self.messages_made += 1;
        self.control.send(&Control::Message { events_before: self.events_made, message: message.to_vec() }.encode())
    }

    fn poll(&mut self, timeout: Duration) -> Result<Option<Arrival>, LinkError> {
        let end = Instant::now() + timeout;
        let mut patience = Patience::new();
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                self.messages_waiting -= usize::from(matches!(arrival, Arrival::Message(_)));
                return Ok(Some(arrival));
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.progress() {
                Ok(true) => patience = Patience::new(),
                Ok(false) if left.is_zero() => return Ok(None),
                Ok(false) => patience.nap(left),
                Err(error) => {
                    // What the other side wrote before its end is there, because it waits for that (`drop`).
                    while self.take_completions() {}
                    if self.arrived.is_empty() {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl<D: Device> Drop for RemoteLink<D> {
    /// If the other side has gone or is stuck, nobody is left to be told.
    fn drop(&mut self) {
        if !self.is_broken {
            let _gone = self.leave();
        }
    }
}

/// How long nothing has happened, and how long to sleep for that: not at all at first, then longer and longer.
struct Patience {
    since: Instant,
    looks: u32,
}

impl Patience {
    const LOOKS_BEFORE_SLEEP: u32 = 200;
    const SLEEP_MIN: Duration = Duration::from_micros(20);
    const SLEEP_MAX: Duration = Duration::from_micros(500);

    fn new() -> Self {
        Self { since: Instant::now(), looks: 0 }
    }

    fn nap(&mut self, left: Duration) {
        self.looks = self.looks.saturating_add(1);
        match self.looks.checked_sub(Self::LOOKS_BEFORE_SLEEP) {
            None => std::thread::yield_now(),
            Some(n) => std::thread::sleep((Self::SLEEP_MIN * (1 << (n / 16).min(5))).min(Self::SLEEP_MAX).min(left)),
        }
    }
}
