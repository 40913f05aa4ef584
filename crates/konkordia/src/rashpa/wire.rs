//! The links of a simulated module: UDP sockets, and memory that it shares with receivers; with faults of the link, and
//! an account of what the link did with the packets to each receiver. A datagram has the whole segment as its payload:
//! ordinary sockets cannot choose the ports of each packet, which RDMA over UDP does.

use super::direct::{Direct, NotWritten};
use crate::console;
use konkordia_core::failure::reason;
use konkordia_fabric::rashpa::sender::{Outgoing, Sender};
use konkordia_fabric::rashpa::telegram::{Peer, PeerKind};
use konkordia_fabric::rashpa::terms::{LinkKind, ReceiverId};
use konkordia_sim::rng::Rng;
use konkordia_wire::rdma_udp::Header;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

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

/// How a receiver is reached.
enum Target {
    Udp(Vec<SocketAddr>),
    Direct(Box<Direct>),
    /// Not at all, any more or from the beginning.
    Gone,
}

/// So many packets in a second at most.
struct Pace {
    packet: Duration,
    next: Instant,
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
    header: Header,
    /// What [`Wire::hand_over`] takes.
    bytes: Vec<u8>,
}

/// The links of a run.
pub struct Wire<'a> {
    sockets: &'a [UdpSocket],
    to: BTreeMap<u16, Target>,
    pace: Option<Pace>,
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
    /// Receivers that cannot be reached, or have gone, and why.
    pub gone: BTreeMap<u16, String>,
}

impl<'a> Wire<'a> {
    /// Links to the receivers among `peers`: the sockets first, then one for all shared memory. `packet_rate` is the
    /// number of packets in a second, if that is limited.
    pub fn new(
        sockets: &'a [UdpSocket],
        (peers, sender): (&[Peer], Option<&Sender>),
        (faults, rng): (Faults, Rng),
        packet_rate: Option<u32>,
    ) -> Self {
        let links = sockets.len() + 1;
        let pace = packet_rate.map(|rate| Pace { packet: Duration::from_secs(1) / rate.max(1), next: Instant::now() });
        let (dark, by_link) = (vec![false; links], vec![0; links]);
        let (flows, held, broken, to, gone) = (BTreeMap::new(), Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut wire =
            Self { sockets, to, pace, faults, rng, sent: 0, held, dark, pulled_after: None, flows, by_link, broken, gone };
        for peer in peers.iter().filter(|peer| peer.kind == PeerKind::Receiver) {
            if peer.link_kind == LinkKind::Shm {
                wire.open(peer, sender);
            } else if let Ok(address) = peer.address.as_str().parse() {
                match wire.to.entry(peer.id).or_insert_with(|| Target::Udp(Vec::new())) {
                    Target::Udp(addresses) => addresses.push(address),
                    Target::Direct(_) | Target::Gone => {}
                }
            }
        }
        wire
    }

    /// Opens the memory of a receiver.
    fn open(&mut self, peer: &Peer, sender: Option<&Sender>) {
        let ring = sender.and_then(|sender| sender.rings().find(|ring| ring.receiver == ReceiverId(peer.id)));
        let Some((sender, ring)) = sender.zip(ring) else { return };
        match Direct::open(peer.address.as_str(), ring, sender) {
            Ok(direct) => _ = self.to.insert(peer.id, Target::Direct(Box::new(direct))),
            Err(why) => self.give_up(peer.id, why),
        }
    }

    /// Nothing is written to a receiver any more.
    fn give_up(&mut self, receiver: u16, why: String) {
        console::note(&format!("receiver {receiver} is not written any more: {why}"));
        self.to.insert(receiver, Target::Gone);
        self.gone.insert(receiver, why);
    }

    /// Are all receivers that share their memory ready for the run?
    pub fn is_ready(&self) -> bool {
        self.to.values().all(|target| !matches!(target, Target::Direct(direct) if !direct.is_ready() && !direct.is_gone()))
    }

    /// Gives those up that are not ready.
    pub fn give_up_unready(&mut self) {
        let is_late = |target: &Target| matches!(target, Target::Direct(direct) if !direct.is_ready());
        let late: Vec<u16> = self.to.iter().filter(|(_, target)| is_late(target)).map(|(receiver, _)| *receiver).collect();
        late.into_iter().for_each(|receiver| self.give_up(receiver, "it was not ready for the run in time".to_owned()));
    }

    /// Looks whether the receivers that share their memory are still there.
    pub fn look(&mut self) {
        let is_gone = |target: &Target| matches!(target, Target::Direct(direct) if direct.is_gone());
        let gone: Vec<u16> = self.to.iter().filter(|(_, target)| is_gone(target)).map(|(receiver, _)| *receiver).collect();
        for receiver in gone {
            self.give_up(receiver, "it has left its shared memory: its program has ended".to_owned());
        }
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
        if let Some(Pace { packet, next }) = &mut self.pace {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            *next = Instant::now() + *packet;
        }
        // Receivers that share their memory get the payload alone.
        let bytes = if packet.segment.is_empty() { packet.payload } else { packet.segment };
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
                    let (due, bytes) = (self.sent + delay, bytes.to_vec());
                    self.held.push(Held { due, link, receiver, header: packet.header, bytes });
                } else {
                    self.hand_over(link, receiver, &packet.header, bytes);
                }
            }
        }
        self.release(self.sent);
    }

    fn release(&mut self, now: u64) {
        while let Some(at) = self.held.iter().position(|held| held.due <= now) {
            let Held { link, receiver, header, bytes, .. } = self.held.remove(at);
            self.hand_over(link, receiver, &header, &bytes);
        }
    }

    /// Sends all that is delayed.
    pub fn flush(&mut self) {
        self.release(u64::MAX);
    }

    /// `bytes` is a segment for receivers by UDP, and the payload for those that share their memory.
    fn hand_over(&mut self, link: usize, receiver: u16, header: &Header, bytes: &[u8]) {
        let sent = match self.to.get_mut(&receiver) {
            Some(Target::Udp(addresses)) => {
                let address = addresses[link % addresses.len()];
                self.sockets[link].send_to(bytes, address).map(|_| ()).map_err(|error| Some(reason(&error)))
            }
            // A full queue is a lost packet; the link is as it was.
            Some(Target::Direct(direct)) => direct.write(header, bytes).map_err(|why| match why {
                NotWritten::Full => None,
                NotWritten::NoPlace => Some(format!("receiver {receiver} has not the place that the map says")),
            }),
            Some(Target::Gone) => Err(None),
            None => Err(Some(format!("receiver {receiver} has no address"))),
        };
        let flow = self.flows.entry(receiver).or_default();
        match sent {
            Ok(()) => {
                flow.delivered += 1;
                self.by_link[link] += 1;
            }
            Err(why) => {
                flow.failed += 1;
                if let Some(why) = why.filter(|_| self.broken.iter().all(|(other, _)| *other != link)) {
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
