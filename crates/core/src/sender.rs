//! The senders from which a stream takes packets. A UDP port receives what anybody sends to it, and the packet header
//! does not identify the detector: two detectors of one module each both call it module 0. [`SenderFilter`] takes the
//! packets of one sender and refuses those of all others, so that no image is made of packets of two detectors.
//!
//! A sender is an address and a port, because two programs on one machine differ in the port only. Each stream of each
//! run learns its sender from the packets with which the stream begins ([`crate::first_packets`]). Another sender may
//! take over when the first one has been silent for longer than a pause between frames: a detector or a bridge that was
//! restarted has another port. The first packets of the new sender are held back ([`crate::far_ahead`]). If the first
//! sender then sends again, both are alive. From then on the stream takes the packets of the first sender only, and
//! [`SenderFilter::is_contested`] reports that images may hold packets of both.

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
    /// Datagrams that did not come from a network.
    pub const NONE: Self = Self { ip: [0; 16], port: 0 };

    /// The address; an IPv4 address is written as IPv4.
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

/// Number of other senders that are counted separately.
const STRANGERS: usize = 4;

/// The other senders whose packets a stream refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherSenders {
    /// Each sender with its number of packets; an entry with 0 packets is free.
    by_sender: [(Sender, u64); STRANGERS],
    /// Packets of all further senders.
    others: u64,
}

impl OtherSenders {
    /// Counts one packet.
    pub fn count(&mut self, sender: Sender) {
        match self.by_sender.iter_mut().find(|known| known.1 == 0 || known.0 == sender) {
            Some(known) => *known = (sender, known.1 + 1),
            None => self.others += 1,
        }
    }

    /// The first few senders, with the number of packets of each.
    pub fn list(&self) -> impl Iterator<Item = (Sender, u64)> {
        self.by_sender.iter().copied().filter(|known| known.1 > 0)
    }

    /// Packets of all other senders.
    pub fn packets(&self) -> u64 {
        self.list().map(|known| known.1).sum::<u64>() + self.others
    }

    /// The sender of the most packets.
    pub fn first(&self) -> Option<Sender> {
        self.list().max_by_key(|known| known.1).map(|known| known.0)
    }
}

/// The senders from which a stream takes packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Senders {
    /// Any sender.
    #[default]
    Any,
    /// One sender: the one with which the stream begins.
    Learned,
    /// These addresses; port `None` = any port of the address.
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

/// What happens to a packet because of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is taken.
    Own,
    /// It is refused: it comes from another sender.
    OtherSender,
    /// It is held back: its sender may be the new sender of the stream.
    NextSender,
}

/// How long a sender must be silent before another one may take over: `PAUSES` times its longest pause so far, but at
/// least `SILENT_NS` (`SILENT_NS_NEAR` if the other one is on the same machine) and at most `SILENT_NS_MAX`.
const SILENT_NS: u64 = 1_000_000_000;
const SILENT_NS_NEAR: u64 = 250_000_000;
const PAUSES: u64 = 4;
const SILENT_NS_MAX: u64 = 10_000_000_000;

/// A sender with which a stream began on few packets counts as certain after packets in this many batches.
const CERTAIN_BATCHES: u32 = 8;

/// Decides for one stream which senders' packets are taken.
#[derive(Clone, Debug)]
pub struct SenderFilter {
    rule: Senders,
    takes_any: bool,
    /// The sender whose packets are taken; with a list of senders, the one that was accepted last.
    own: Option<Sender>,
    /// The sender whose packets were taken first; `None` while it is not certain that the stream belongs to `own`.
    first: Option<Sender>,
    /// Batches that held packets of `own`.
    own_batches: u32,
    /// The batch that is being judged holds packets of `own`.
    is_in_batch: bool,
    last_ns: u64,
    pause_ns_max: u64,
    /// Time of the last batch.
    now_ns: u64,
    is_contested: bool,
}

impl SenderFilter {
    /// For a stream that has not received anything.
    pub fn new(rule: Senders) -> Self {
        let takes_any = rule == Senders::Any;
        Self {
            rule,
            takes_any,
            own: None,
            first: None,
            own_batches: 0,
            is_in_batch: false,
            last_ns: 0,
            pause_ns_max: 0,
            now_ns: 0,
            is_contested: false,
        }
    }

    /// What distinguishes senders while a stream begins; `None` if packets of this sender are never taken.
    pub fn identity(&self, sender: Sender) -> Option<Sender> {
        match &self.rule {
            Senders::Any => Some(Sender::NONE),
            Senders::Learned => Some(sender),
            Senders::Listed(_) => self.rule.lists(sender).then_some(Sender::NONE),
        }
    }

    /// Notes that the stream begins, or goes on, with packets of this identity.
    pub fn learn(&mut self, identity: Sender, now_ns: u64) {
        if self.rule != Senders::Learned {
            return;
        }
        self.first.get_or_insert(identity);
        (self.own, self.last_ns, self.now_ns) = (Some(identity), now_ns, now_ns);
    }

    /// Decides about one packet of a stream that has begun, from its sender.
    #[inline]
    pub fn admit(&mut self, sender: Sender) -> Admission {
        if self.takes_any || self.own == Some(sender) {
            self.is_in_batch = true;
            return Admission::Own;
        }
        self.admit_other(sender)
    }

    #[cold]
    fn admit_other(&mut self, sender: Sender) -> Admission {
        if let Senders::Listed(_) = self.rule {
            if !self.rule.lists(sender) {
                return Admission::OtherSender;
            }
            // The next packets of this sender are taken without searching the list.
            self.own = Some(sender);
            return Admission::Own;
        }
        match self.first {
            _ if self.own.is_none() => {
                (self.own, self.is_in_batch) = (Some(sender), true);
                Admission::Own
            }
            Some(first) if first == sender => {
                (self.own, self.is_in_batch, self.is_contested) = (Some(sender), true, true);
                Admission::Own
            }
            // The few packets with which the stream began may be those of another sender.
            None => Admission::NextSender,
            Some(_) if self.is_silent_for(sender) => Admission::NextSender,
            Some(_) => Admission::OtherSender,
        }
    }

    /// To be called with the time after each batch of packets.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) {
        if self.is_in_batch {
            let since_ns = now_ns.saturating_sub(self.last_ns);
            // There is no pause before the first packet.
            if self.own_batches > 0 {
                self.pause_ns_max = self.pause_ns_max.max(since_ns);
            }
            (self.last_ns, self.is_in_batch) = (now_ns, false);
            self.own_batches = self.own_batches.saturating_add(1);
            if self.own_batches >= CERTAIN_BATCHES {
                self.first = self.first.or(self.own());
            }
        }
        self.now_ns = now_ns;
    }

    /// True if the own sender has been silent for so long that `other` may take over.
    fn is_silent_for(&self, other: Sender) -> bool {
        let is_near = self.own.is_some_and(|own| own.ip == other.ip);
        let least = if is_near { SILENT_NS_NEAR } else { SILENT_NS };
        let silent_ns = self.pause_ns_max.saturating_mul(PAUSES).clamp(least, SILENT_NS_MAX);
        // A packet in this batch ends the silence, although its time is noted only after the batch.
        !self.is_in_batch && self.now_ns.saturating_sub(self.last_ns) >= silent_ns
    }

    /// The sender whose packets are taken, if the stream learned one.
    pub fn own(&self) -> Option<Sender> {
        self.own.filter(|_| self.rule == Senders::Learned)
    }

    /// True if a second sender took over while the first one was still alive: images may hold packets of both.
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
    fn another_machine_and_another_port_are_other_senders_while_the_own_one_is_alive() {
        let own = sender("10.0.0.1:50000");
        let mut filter = learned(own);
        for ms in 0..5000 {
            assert_eq!(filter.admit(own), Admission::Own);
            filter.tick(ms * 1_000_000);
            for other in ["10.0.0.2:50000", "10.0.0.1:50001"] {
                assert_eq!(filter.admit(sender(other)), Admission::OtherSender);
            }
        }
        assert!(!filter.is_contested());
    }

    /// Frames come every 2 s: the pause between them is not silence, even before its length is known.
    #[test]
    fn a_slow_detector_is_not_silent_between_its_frames() {
        let (own, other) = (sender("10.0.0.1:50000"), sender("10.0.0.2:50000"));
        let mut filter = learned(own);
        for frame in 1..9 {
            filter.admit(own);
            filter.tick(frame * 2 * S);
            filter.tick(frame * 2 * S + 999_999_999);
            assert_eq!(filter.admit(other), Admission::OtherSender);
            if frame > 1 {
                filter.tick(frame * 2 * S + 7 * S);
                assert_eq!(filter.admit(other), Admission::OtherSender);
            }
        }
        filter.tick(16 * S + 8 * S);
        assert_eq!(filter.admit(other), Admission::NextSender);
    }

    /// The fuzz target `far_ahead` found this.
    #[test]
    fn a_sender_with_a_packet_in_this_batch_is_not_silent() {
        let (own, other) = (sender("10.0.0.1:50000"), sender("10.0.0.1:50001"));
        let mut filter = learned(own);
        filter.tick(20 * S);
        assert_eq!((filter.admit(own), filter.admit(other)), (Admission::Own, Admission::OtherSender));
        filter.tick(20 * S);
        assert_eq!(filter.admit(other), Admission::OtherSender);
    }

    #[test]
    fn a_sender_that_was_started_again_follows_and_the_first_one_may_take_the_stream_back() {
        let (own, other) = (sender("10.0.0.1:50000"), sender("10.0.0.1:50001"));
        let mut filter = learned(own);
        filter.tick(SILENT_NS_NEAR - 1);
        assert_eq!(filter.admit(other), Admission::OtherSender);
        filter.tick(SILENT_NS_NEAR);
        assert_eq!(filter.admit(other), Admission::NextSender);
        let elsewhere = sender("10.0.0.2:50000");
        filter.tick(SILENT_NS - 1);
        assert_eq!(filter.admit(elsewhere), Admission::OtherSender);
        filter.tick(SILENT_NS);
        assert_eq!(filter.admit(elsewhere), Admission::NextSender);
        filter.learn(other, SILENT_NS);
        assert_eq!((filter.admit(other), filter.own(), filter.is_contested()), (Admission::Own, Some(other), false));
        assert_eq!(filter.admit(own), Admission::Own, "it was first");
        assert_eq!((filter.admit(other), filter.is_contested()), (Admission::OtherSender, true));
    }

    /// If the stream began on packets too few to decide on its sender, another sender that goes on sending is not
    /// refused.
    #[test]
    fn few_packets_do_not_take_a_stream() {
        let (stray, own) = (sender("10.0.0.2:1"), sender("10.0.0.1:1"));
        let mut filter = SenderFilter::new(Senders::Learned);
        assert_eq!((filter.admit(stray), filter.admit(own)), (Admission::Own, Admission::NextSender));
        filter.learn(own, 0);
        assert_eq!(
            (filter.admit(own), filter.admit(stray), filter.is_contested()),
            (Admission::Own, Admission::OtherSender, false)
        );
        let mut filter = SenderFilter::new(Senders::Learned);
        for ms in 1..=u64::from(CERTAIN_BATCHES) {
            filter.admit(own);
            assert_eq!(filter.admit(stray), Admission::NextSender);
            filter.tick(ms * 1_000_000);
        }
        assert_eq!(filter.admit(stray), Admission::OtherSender);
    }

    #[test]
    fn other_senders_are_named_and_counted_and_take_no_room() {
        let mut other_senders = OtherSenders::default();
        assert_eq!((other_senders.packets(), other_senders.first()), (0, None));
        for port in [1, 2, 2, 3, 4, 5, 6, 2] {
            other_senders.count(sender(&format!("10.0.0.1:{port}")));
        }
        assert_eq!((other_senders.packets(), other_senders.list().count()), (8, STRANGERS));
        assert_eq!(other_senders.first(), Some(sender("10.0.0.1:2")));
    }

    #[test]
    fn a_list_is_what_it_says() {
        let list = vec![("10.0.0.1".parse().unwrap(), None), ("10.0.0.2".parse().unwrap(), Some(7))];
        let mut filter = SenderFilter::new(Senders::Listed(list));
        for _ in 0..2 {
            assert_eq!(filter.admit(sender("10.0.0.1:1")), Admission::Own);
            assert_eq!(filter.admit(sender("10.0.0.1:2")), Admission::Own);
            assert_eq!(filter.admit(sender("10.0.0.2:7")), Admission::Own);
            assert_eq!(filter.admit(sender("10.0.0.2:8")), Admission::OtherSender);
            assert_eq!(filter.admit(sender("10.0.0.3:7")), Admission::OtherSender);
        }
        assert_eq!((filter.identity(sender("10.0.0.3:7")), filter.identity(sender("10.0.0.2:7"))), (None, Some(Sender::NONE)));
        let mut any = SenderFilter::new(Senders::Any);
        assert_eq!((any.admit(Sender::NONE), any.admit(sender("10.0.0.3:7"))), (Admission::Own, Admission::Own));
    }
}
