//! The links of a simulated module: a UDP socket for each, with faults of the link, and an account of what the link did
//! with the packets to each receiver. A datagram has the whole segment as its payload: ordinary sockets cannot choose
//! the ports of each packet, which RDMA over UDP does.

use konkordia_core::failure::reason;
use konkordia_fabric::rashpa::sender::Outgoing;
use konkordia_fabric::rashpa::telegram::{Peer, PeerKind};
use konkordia_sim::rng::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

/// Largest number of packets by which a packet is delayed.
const REORDER_PACKETS_MAX: u64 = 16;
/// Packets of a slice that are sent before a link is pulled.
const PACKETS_BEFORE_PULL: u32 = 3;

/// The faults of the links.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that it is sent twice.
    pub duplicate: f64,
    /// Probability that it is delayed.
    pub reorder: f64,
}

/// What the links did with the packets to one receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowCounts {
    /// Packets, by their numbers.
    pub numbers: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost by a link that was pulled.
    pub lost_by_pull: u64,
    /// Lost because the system could not send them.
    pub failed: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Delayed.
    pub reordered: u64,
    /// Handed to the system.
    pub delivered: u64,
    /// All numbers from this one on were lost.
    pub behind_newest: u64,
}

impl FlowCounts {
    /// Lost behind the newest packet that was sent: a receiver cannot know of them.
    fn lost_behind_newest(&self) -> u64 {
        self.numbers - self.behind_newest
    }

    fn all_lost(&self) -> u64 {
        self.lost + self.lost_by_pull + self.failed
    }

    fn to_json(self, receiver: u16) -> Value {
        json!({
            "receiver": receiver, "packets": self.numbers, "lost": self.all_lost(), "lost_by_chance": self.lost,
            "lost_by_pull": self.lost_by_pull, "send_errors": self.failed, "lost_behind_newest": self.lost_behind_newest(),
            "duplicated": self.duplicated, "reordered": self.reordered, "delivered": self.delivered,
        })
    }
}

/// A packet that is delayed.
struct Held {
    due: u64,
    link: usize,
    receiver: u16,
    segment: Vec<u8>,
}

/// The links of a run.
pub struct Wire<'a> {
    sockets: &'a [UdpSocket],
    to: BTreeMap<u16, Vec<SocketAddr>>,
    faults: Faults,
    rng: Rng,
    sent: u64,
    held: Vec<Held>,
    dark: Vec<bool>,
    /// A link that is pulled after so many packets.
    pulled_after: Option<(usize, u32)>,
    flows: BTreeMap<u16, FlowCounts>,
    by_link: Vec<u64>,
    /// Links that cannot be used, and why, since they were last asked for.
    pub broken: Vec<(usize, String)>,
}

impl<'a> Wire<'a> {
    /// Links to the receivers among `peers`.
    pub fn new(sockets: &'a [UdpSocket], peers: &[Peer], faults: Faults, rng: Rng) -> Self {
        let mut to: BTreeMap<u16, Vec<SocketAddr>> = BTreeMap::new();
        for peer in peers.iter().filter(|peer| peer.kind == PeerKind::Receiver) {
            if let Ok(address) = peer.address.as_str().parse() {
                to.entry(peer.id).or_default().push(address);
            }
        }
        let links = sockets.len();
        let (dark, by_link) = (vec![false; links], vec![0; links]);
        let (flows, held, broken) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { sockets, to, faults, rng, sent: 0, held, dark, pulled_after: None, flows, by_link, broken }
    }

    /// Pulls a link after some more packets.
    pub const fn pull(&mut self, link: u8) {
        self.pulled_after = Some((link as usize, PACKETS_BEFORE_PULL));
    }

    /// Plugs a link in.
    pub fn plug(&mut self, link: u8) {
        if let Some(dark) = self.dark.get_mut(usize::from(link)) {
            *dark = false;
        }
    }

    /// Sends a packet, or does with it what its link does.
    pub fn send(&mut self, packet: Outgoing<'_>) {
        let (link, receiver) = (usize::from(packet.link.0), packet.receiver.0);
        self.sent += 1;
        if let Some((pulled, after)) = &mut self.pulled_after {
            *after -= 1;
            if *after == 0 {
                if let Some(dark) = self.dark.get_mut(*pulled) {
                    *dark = true;
                }
                self.pulled_after = None;
            }
        }
        let Faults { loss, duplicate, reorder } = self.faults;
        let (is_lost, is_twice) = (self.rng.chance(loss), self.rng.chance(duplicate));
        let flow = self.flows.entry(receiver).or_default();
        flow.numbers += 1;
        if self.dark[link] {
            flow.lost_by_pull += 1;
        } else if is_lost {
            flow.lost += 1;
        } else {
            flow.behind_newest = flow.numbers;
            flow.duplicated += u64::from(is_twice);
            for _ in 0..1 + u32::from(is_twice) {
                let delay = 1 + self.rng.below(REORDER_PACKETS_MAX);
                if self.rng.chance(reorder) {
                    self.flows.entry(receiver).or_default().reordered += 1;
                    self.held.push(Held { due: self.sent + delay, link, receiver, segment: packet.segment.to_vec() });
                } else {
                    self.hand_over(link, receiver, packet.segment);
                }
            }
        }
        self.release(self.sent);
    }

    fn release(&mut self, now: u64) {
        while let Some(at) = self.held.iter().position(|held| held.due <= now) {
            let Held { link, receiver, segment, .. } = self.held.remove(at);
            self.hand_over(link, receiver, &segment);
        }
    }

    /// Sends all that is delayed.
    pub fn flush(&mut self) {
        self.release(u64::MAX);
    }

    fn hand_over(&mut self, link: usize, receiver: u16, segment: &[u8]) {
        let addresses = self.to.get(&receiver).map_or(&[][..], Vec::as_slice);
        let sent = match addresses.get(link % addresses.len().max(1)) {
            Some(address) => self.sockets[link].send_to(segment, address).map_err(|error| reason(&error)),
            None => Err(format!("receiver {receiver} has no address")),
        };
        let flow = self.flows.entry(receiver).or_default();
        match sent {
            Ok(_) => {
                flow.delivered += 1;
                self.by_link[link] += 1;
            }
            Err(why) => {
                flow.failed += 1;
                if self.broken.iter().all(|(other, _)| *other != link) {
                    self.broken.push((link, why));
                }
            }
        }
    }

    /// What the links did.
    pub fn to_json(&self) -> (Value, Value) {
        let flows: Vec<Value> = self.flows.iter().map(|(receiver, flow)| flow.to_json(*receiver)).collect();
        let links = self.by_link.iter().enumerate().map(|(link, packets)| json!({ "link": link, "packets": packets }));
        (flows.into(), links.collect::<Vec<_>>().into())
    }

    /// Packets of all receivers by their numbers, and those that the links cannot account for.
    pub fn numbers(&self) -> (u64, u64) {
        let all = self.flows.values().map(|flow| flow.numbers).sum();
        let known =
            self.flows.values().map(|flow| (flow.delivered + flow.all_lost()).saturating_sub(flow.duplicated)).sum::<u64>();
        (all, known.abs_diff(all))
    }
}
