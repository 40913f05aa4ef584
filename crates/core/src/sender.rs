//! Who may send to a stream. A UDP port takes what anybody sends to it, and the header does not say which detector it is: two detectors of one
//! module both call it module 0. [`SenderFilter`] takes the packets of one sender and refuses those of others, so that no image is made of two.
//!
//! A sender is an address and a port, because a second program on the same machine differs in nothing else. It is learned for each stream of
//! each run, from the packets by which the stream begins ([`crate::first_packets`]). Another one may follow when the first has been silent for
//! so long that it was no pause between frames: a detector or a bridge that was started again has another port. What comes from the other one
//! first is held back ([`crate::doubt`]). If the first one sends again, both are alive: it alone is taken from then on, and [`SenderFilter::is_contested`]
//! says that images may hold packets of both.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The source address and port of a datagram.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Sender {
    /// IPv6, or IPv4 mapped into it.
    ip: [u8; 16],
    port: u16,
}

impl Sender {
    /// Of datagrams that came from no network.
    pub const NONE: Self = Self { ip: [0; 16], port: 0 };

    /// The address; one of IPv4 is written as such.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.ip).to_canonical(), self.port)
    }
}

impl From<SocketAddr> for Sender {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: address.port() }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// Strangers that are told apart.
const STRANGERS: usize = 4;

/// Whose packets a stream did not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// Each with its packets; 0 = nobody.
    by_sender: [(Sender, u64); STRANGERS],
    /// Packets of further ones.
    others: u64,
}

impl Strangers {
    /// Counts one packet.
    pub fn count(&mut self, sender: Sender) {
        match self.by_sender.iter_mut().find(|known| known.1 == 0 || known.0 == sender) {
            Some(known) => *known = (sender, known.1 + 1),
            None => self.others += 1,
        }
    }

    /// The first few, with the packets of each.
    pub fn list(&self) -> impl Iterator<Item = (Sender, u64)> {
        self.by_sender.iter().copied().filter(|known| known.1 > 0)
    }

    /// Packets of all.
    pub fn packets(&self) -> u64 {
        self.list().map(|known| known.1).sum::<u64>() + self.others
    }

    /// The one of whom most packets came.
    pub fn first(&self) -> Option<Sender> {
        self.list().max_by_key(|known| known.1).map(|known| known.0)
    }
}

/// Whose packets a stream takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Senders {
    /// Everybody's.
    #[default]
    Any,
    /// One sender's: the one by which the stream begins.
    Learned,
    /// Those of these addresses; `None` = from any port of it.
    Listed(Vec<(IpAddr, Option<u16>)>),
}

impl Senders {
    fn lists(&self, sender: Sender) -> bool {
        let (ip, port) = (sender.address().ip(), sender.port);
        match self {
            Self::Listed(list) => list.iter().any(|(listed, only)| *listed == ip && only.is_none_or(|only| only == port)),
            _ => true,
        }
    }
}

/// What becomes of a packet by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Taken.
    Own,
    /// Not of this run.
    Stranger,
    /// Perhaps of a sender that follows the one which is silent.
    Follower,
}

/// So long a sender is silent, at least, before another may follow, and one on the same machine; and so many times the longest pause that it ever
/// made, up to the last of these.
const SILENT_NS: u64 = 1_000_000_000;
const SILENT_NS_NEAR: u64 = 250_000_000;
const PAUSES: u64 = 4;
const SILENT_NS_MAX: u64 = 10_000_000_000;

/// A sender of whom few packets began a stream is certain to be the own one when it was heard in so many batches.
const CERTAIN_BATCHES: u32 = 8;

/// The judge of the senders of one stream.
#[derive(Clone, Debug)]
pub struct SenderFilter {
    rule: Senders,
    takes_any: bool,
    /// Whose packets are taken.
    own: Option<Sender>,
    /// Whose packets were taken first; `None` while it is not certain that the stream is the own one's.
    first: Option<Sender>,
    /// Batches in which the own one was heard.
    heard_batches: u32,
    is_heard: bool,
    last_ns: u64,
    pause_ns_max: u64,
    /// Time of the last batch.
    now_ns: u64,
    is_contested: bool,
}

impl SenderFilter {
    /// A stream from which nothing has come.
    pub fn new(rule: Senders) -> Self {
        let takes_any = rule == Senders::Any;
        Self {
            rule,
            takes_any,
            own: None,
            first: None,
            heard_batches: 0,
            is_heard: false,
            last_ns: 0,
            pause_ns_max: 0,
            now_ns: 0,
            is_contested: false,
        }
    }

    /// What tells senders apart where a stream begins; `None` if packets of this one are never taken.
    pub fn identity(&self, sender: Sender) -> Option<Sender> {
        match &self.rule {
            Senders::Any => Some(Sender::NONE),
            Senders::Learned => Some(sender),
            Senders::Listed(_) => self.rule.lists(sender).then_some(Sender::NONE),
        }
    }

    /// The stream begins with packets of this identity, or goes on with them.
    pub fn learn(&mut self, identity: Sender, now_ns: u64) {
        if self.rule != Senders::Learned {
            return;
        }
        self.first.get_or_insert(identity);
        (self.own, self.last_ns, self.now_ns) = (Some(identity), now_ns, now_ns);
    }

    /// Judges the sender of one packet of a stream that has begun.
    #[inline]
    pub fn admit(&mut self, sender: Sender) -> Admission {
        if self.takes_any || self.own == Some(sender) {
            self.is_heard = true;
            return Admission::Own;
        }
        self.admit_other(sender)
    }

    #[cold]
    fn admit_other(&mut self, sender: Sender) -> Admission {
        if let Senders::Listed(_) = self.rule {
            if !self.rule.lists(sender) {
                return Admission::Stranger;
            }
            // The next ones of it need no look at the list.
            self.own = Some(sender);
            return Admission::Own;
        }
        match self.first {
            _ if self.own.is_none() => {
                (self.own, self.is_heard) = (Some(sender), true);
                Admission::Own
            }
            Some(first) if first == sender => {
                (self.own, self.is_heard, self.is_contested) = (Some(sender), true, true);
                Admission::Own
            }
            // The few packets that began the stream may be another's.
            None => Admission::Follower,
            Some(_) if self.is_silent_for(sender) => Admission::Follower,
            Some(_) => Admission::Stranger,
        }
    }

    /// Told the time after each batch of packets.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) {
        if self.is_heard {
            let since_ns = now_ns.saturating_sub(self.last_ns);
            // Before its first packet nobody made a pause.
            if self.heard_batches > 0 {
                self.pause_ns_max = self.pause_ns_max.max(since_ns);
            }
            (self.last_ns, self.is_heard) = (now_ns, false);
            self.heard_batches = self.heard_batches.saturating_add(1);
            if self.heard_batches >= CERTAIN_BATCHES {
                self.first = self.first.or(self.own());
            }
        }
        self.now_ns = now_ns;
    }

    /// True if the own sender has been silent for so long that this one may follow.
    fn is_silent_for(&self, other: Sender) -> bool {
        let is_near = self.own.is_some_and(|own| own.ip == other.ip);
        let least = if is_near { SILENT_NS_NEAR } else { SILENT_NS };
        let silent_ns = self.pause_ns_max.saturating_mul(PAUSES).clamp(least, SILENT_NS_MAX);
        self.now_ns.saturating_sub(self.last_ns) >= silent_ns
    }

    /// Whose packets are taken, where it is one sender's.
    pub fn own(&self) -> Option<Sender> {
        self.own.filter(|_| self.rule == Senders::Learned)
    }

    /// True if packets of one sender were taken for those of another that is alive: images may hold packets of both.
    pub fn is_contested(&self) -> bool {
        self.is_contested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn sender(text: &str) -> Sender {
        Sender::from(text.parse::<SocketAddr>().unwrap())
    }

    fn learned(own: Sender) -> SenderFilter {
        let mut filter = SenderFilter::new(Senders::Learned);
        filter.learn(filter.identity(own).unwrap(), 0);
        filter
    }

    #[test]
    fn an_address_is_written_as_it_is() {
        assert_eq!(sender("10.0.0.1:50000").to_string(), "10.0.0.1:50000");
        assert_eq!(sender("[::ffff:10.0.0.1]:50000"), sender("10.0.0.1:50000"));
        assert_eq!(sender("[fd00::1]:7").to_string(), "[fd00::1]:7");
    }

    #[test]
    fn another_machine_and_another_port_are_strangers_while_the_own_sender_is_alive() {
        let own = sender("10.0.0.1:50000");
        let mut filter = learned(own);
        for ms in 0..5000 {
            assert_eq!(filter.admit(own), Admission::Own);
            filter.tick(ms * 1_000_000);
            for other in ["10.0.0.2:50000", "10.0.0.1:50001"] {
                assert_eq!(filter.admit(sender(other)), Admission::Stranger);
            }
        }
        assert!(!filter.is_contested());
    }

    /// Frames every 2 s: the pause between them is no silence, also before it is known how long they are.
    #[test]
    fn a_slow_detector_is_not_silent_between_its_frames() {
        let (own, other) = (sender("10.0.0.1:50000"), sender("10.0.0.2:50000"));
        let mut filter = learned(own);
        for frame in 1..9 {
            filter.admit(own);
            filter.tick(frame * 2 * S);
            filter.tick(frame * 2 * S + 999_999_999);
            assert_eq!(filter.admit(other), Admission::Stranger);
            if frame > 1 {
                filter.tick(frame * 2 * S + 7 * S);
                assert_eq!(filter.admit(other), Admission::Stranger);
            }
        }
        filter.tick(16 * S + 8 * S);
        assert_eq!(filter.admit(other), Admission::Follower);
    }

    #[test]
    fn a_sender_that_was_started_again_follows_and_the_first_one_may_take_the_stream_back() {
        let (own, other) = (sender("10.0.0.1:50000"), sender("10.0.0.1:50001"));
        let mut filter = learned(own);
        filter.tick(SILENT_NS_NEAR - 1);
        assert_eq!(filter.admit(other), Admission::Stranger);
        filter.tick(SILENT_NS_NEAR);
        assert_eq!(filter.admit(other), Admission::Follower);
        let elsewhere = sender("10.0.0.2:50000");
        filter.tick(SILENT_NS - 1);
        assert_eq!(filter.admit(elsewhere), Admission::Stranger);
        filter.tick(SILENT_NS);
        assert_eq!(filter.admit(elsewhere), Admission::Follower);
        filter.learn(other, SILENT_NS);
        assert_eq!((filter.admit(other), filter.own(), filter.is_contested()), (Admission::Own, Some(other), false));
        assert_eq!(filter.admit(own), Admission::Own, "it was first");
        assert_eq!((filter.admit(other), filter.is_contested()), (Admission::Stranger, true));
    }

    /// Where the first packets of a stream were too few to say whose it is, nobody is refused who goes on.
    #[test]
    fn few_packets_do_not_take_a_stream() {
        let (stray, own) = (sender("10.0.0.2:1"), sender("10.0.0.1:1"));
        let mut filter = SenderFilter::new(Senders::Learned);
        assert_eq!((filter.admit(stray), filter.admit(own)), (Admission::Own, Admission::Follower));
        filter.learn(own, 0);
        assert_eq!((filter.admit(own), filter.admit(stray), filter.is_contested()), (Admission::Own, Admission::Stranger, false));
        let mut filter = SenderFilter::new(Senders::Learned);
        for ms in 1..=u64::from(CERTAIN_BATCHES) {
            filter.admit(own);
            assert_eq!(filter.admit(stray), Admission::Follower);
            filter.tick(ms * 1_000_000);
        }
        assert_eq!(filter.admit(stray), Admission::Stranger);
    }

    #[test]
    fn strangers_are_named_and_counted_and_take_no_room() {
        let mut strangers = Strangers::default();
        assert_eq!((strangers.packets(), strangers.first()), (0, None));
        for port in [1, 2, 2, 3, 4, 5, 6, 2] {
            strangers.count(sender(&format!("10.0.0.1:{port}")));
        }
        assert_eq!((strangers.packets(), strangers.list().count()), (8, STRANGERS));
        assert_eq!(strangers.first(), Some(sender("10.0.0.1:2")));
    }

    #[test]
    fn a_list_is_what_it_says() {
        let list = vec![("10.0.0.1".parse().unwrap(), None), ("10.0.0.2".parse().unwrap(), Some(7))];
        let mut filter = SenderFilter::new(Senders::Listed(list));
        for _ in 0..2 {
            assert_eq!(filter.admit(sender("10.0.0.1:1")), Admission::Own);
            assert_eq!(filter.admit(sender("10.0.0.1:2")), Admission::Own);
            assert_eq!(filter.admit(sender("10.0.0.2:7")), Admission::Own);
            assert_eq!(filter.admit(sender("10.0.0.2:8")), Admission::Stranger);
            assert_eq!(filter.admit(sender("10.0.0.3:7")), Admission::Stranger);
        }
        assert_eq!((filter.identity(sender("10.0.0.3:7")), filter.identity(sender("10.0.0.2:7"))), (None, Some(Sender::NONE)));
        let mut any = SenderFilter::new(Senders::Any);
        assert_eq!((any.admit(Sender::NONE), any.admit(sender("10.0.0.3:7"))), (Admission::Own, Admission::Own));
    }
}
