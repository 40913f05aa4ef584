//! A module as the telegrams see it: which are accepted when, and from whom. It has one *master*, whoever sent
//! `comm-config` first; another one is refused until the first releases the module. Telegrams of the master come in
//! ascending numbers and in the order comm-config, ras-map, dtp-config, start, stop; a refusal names what is missing.

use super::links::LINKS_MAX;
use super::mastership::{Mastership, Refusal, reply};
use super::sender::{BadSetup, EventRing, ReceiveBuffer, Sender};
use super::space::AddressSpace;
use super::telegram::{Body, Code, ModuleCapabilities, Name, Peer, PeerKind, State, Status, Telegram};
use super::terms::{Geometry, LinkKind, ReceiverId};

/// What the master configured so far.
#[derive(Debug, Default)]
struct Session {
    peers: Vec<Peer>,
    map: Option<(AddressSpace, Vec<ReceiveBuffer>, Vec<EventRing>)>,
    sender: Option<Sender>,
    /// The number of the run that was started last.
    run: u32,
    is_running: bool,
}

/// A module and its master.
#[derive(Debug)]
pub struct ModuleControl {
    name: Name,
    capabilities: ModuleCapabilities,
    mastership: Mastership,
    session: Option<Session>,
    last_number: u32,
    runs: u64,
    departed: Vec<Name>,
}

impl ModuleControl {
    /// A module that nobody has configured.
    pub fn new(name: Name, capabilities: ModuleCapabilities) -> Self {
        Self {
            name,
            capabilities,
            mastership: Mastership::default(),
            session: None,
            last_number: 0,
            runs: 0,
            departed: Vec::new(),
        }
    }

    /// What it can do. Links that go up and down are noted here.
    pub const fn capabilities(&mut self) -> &mut ModuleCapabilities {
        &mut self.capabilities
    }

    /// True if somebody configures it.
    pub fn has_master(&self) -> bool {
        self.mastership.name().is_some()
    }

    /// How the others are reached, as the master said.
    pub fn peers(&self) -> &[Peer] {
        self.session.as_ref().map_or(&[], |session| &session.peers)
    }

    /// Runs that were started so far. One may be over before whoever sends has seen it: when its master has left.
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// The connection of a receiver that gave credits has ended; true if that is before all slices were sent.
    pub fn creditor_left(&mut self, name: &Name) -> bool {
        let is_running = self.running().is_some_and(|sender| !sender.is_finished());
        if is_running && !self.departed.contains(name) {
            self.departed.push(name.clone());
        }
        is_running
    }

    /// Receivers whose connection for credits has ended in the midst of the run, and did not come again.
    pub fn departed(&self) -> &[Name] {
        &self.departed
    }

    /// What sends, between start and stop.
    pub fn running(&mut self) -> Option<&mut Sender> {
        self.session.as_mut().filter(|session| session.is_running)?.sender.as_mut()
    }

    /// What sends, also behind stop: then only to end the run.
    pub fn sender(&mut self) -> Option<&mut Sender> {
        self.session.as_mut()?.sender.as_mut()
    }

    /// The connection of this sender of telegrams has ended. If it is the master, nothing is sent any more and the
    /// module is free: true then.
    pub fn left(&mut self, name: &Name) -> bool {
        let is_master = self.mastership.name() == Some(name);
        if is_master {
            self.mastership.release();
            self.session = None;
        }
        is_master
    }

    /// Does what a telegram says, and returns the answer.
    pub fn handle(&mut self, telegram: &Telegram) -> Telegram {
        let answer = self.answer(telegram);
        reply(answer, telegram.number, &self.name, &mut self.last_number)
    }

    fn answer(&mut self, telegram: &Telegram) -> Result<Body, Refusal> {
        match &telegram.body {
            Body::CapabilitiesRequest => return Ok(Body::ModuleCapabilities(self.capabilities.clone())),
            Body::StatusRequest => return Ok(Body::Status(self.status())),
            Body::Credit(credit) => {
                let run = self.session.as_ref().map_or(0, |session| session.run);
                let sender = self.running().ok_or((Code::Order, "credit comes after start, which was not done".to_owned()))?;
                if credit.run != run {
                    return Err((Code::Order, format!("a credit of run {}, and this is run {run}", credit.run)));
                }
                let takes = |grant: &super::telegram::Grant| sender.credit(credit.buffer, grant.slot, grant.fills);
                let taken = credit.grants.iter().map(takes).fold(true, |all, taken| all & taken);
                let reason = || (Code::Invalid, format!("a slot of {} that no transfer of this module has", credit.buffer));
                self.departed.retain(|name| *name != telegram.sender);
                return if taken { Ok(Body::Ack(telegram.number)) } else { Err(reason()) };
            }
            _ => {}
        }
        let geometry = self.geometry();
        if self.mastership.claim(telegram, &self.name, "module")? {
            self.session = None;
        }
        let session = self.session.get_or_insert_default();
        let capabilities = &self.capabilities;
        session.obey(&telegram.body, geometry, capabilities)?;
        if matches!(telegram.body, Body::Start(_)) {
            self.runs += 1;
            self.departed.clear();
        }
        if telegram.body == Body::Release {
            self.mastership.release();
            self.session = None;
        }
        Ok(Body::Ack(telegram.number))
    }

    const fn geometry(&self) -> Geometry {
        let ModuleCapabilities { width, height, pixel_bytes, .. } = self.capabilities;
        Geometry { width, height, pixel_bytes }
    }

    fn status(&mut self) -> Status {
        let state = match &self.session {
            None => State::Free,
            Some(session) if session.is_running && session.sender.as_ref().is_some_and(Sender::is_finished) => State::Finished,
            Some(session) if session.is_running => State::Running,
            Some(session) if session.sender.is_some() => State::Ready,
            Some(_) => State::Claimed,
        };
        let sent = self.session.as_ref().and_then(|session| session.sender.as_ref()).map(Sender::sent).unwrap_or_default();
        let (blocks, skipped, unsent, packets) = (sent.blocks, sent.skipped, sent.unsent, sent.packets + sent.events);
        Status { module: self.capabilities.module, state, blocks, skipped, unsent, packets }
    }
}

/// By which links of the module a receiver is reached, and whether that is memory which both have: the links of the
/// kind by which the master says that the receiver is reached.
fn reach(peers: &[Peer], capabilities: &ModuleCapabilities, receiver: ReceiverId) -> (u32, bool) {
    let peer = peers.iter().find(|peer| peer.kind == PeerKind::Receiver && peer.id == receiver.0);
    let kind = peer.map_or(LinkKind::RdmaUdp, |peer| peer.link_kind);
    let links = capabilities.links.iter().enumerate().take(LINKS_MAX).filter(|(_, link)| link.kind == kind);
    (links.map(|(n, _)| 1 << n).sum(), kind == LinkKind::Shm)
}

impl Session {
    fn obey(&mut self, body: &Body, geometry: Geometry, capabilities: &ModuleCapabilities) -> Result<(), Refusal> {
        let name = body.element();
        let missing = |step: &str| (Code::Order, format!("{name} comes after {step}, which was not done; do that first"));
        let invalid = |why: &dyn std::fmt::Display| (Code::Invalid, why.to_string());
        if self.is_running && !matches!(body, Body::Stop) {
            return Err((Code::Order, format!("{name} is not possible while the module sends; stop it first")));
        }
        match body {
            Body::CommConfig(peers) => (self.peers, self.map, self.sender) = (peers.clone(), None, None),
            Body::RasMap(map) => {
                let entries: Vec<_> = map.entries.iter().map(|entry| entry.0).collect();
                let entries_max = (capabilities.entries_max as usize).min(1 << 16);
                let space = AddressSpace::from_map(map.bytes, &entries, entries_max).map_err(|why| invalid(&why))?;
                let buffers = map.buffers.iter().map(|buffer| buffer.0).collect();
                let rings = map.rings.iter().map(|ring| ring.0).collect();
                (self.map, self.sender) = (Some((space, buffers, rings)), None);
            }
            Body::DtpConfig(transfers) => {
                let (space, buffers, rings) = self.map.as_ref().ok_or_else(|| missing("ras-map"))?;
                let dtps: Vec<_> = transfers.iter().map(|transfer| transfer.0).collect();
                let channels = capabilities.channels_max;
                if let Some(dtp) = dtps.iter().find(|dtp| dtp.channel >= channels) {
                    return Err(invalid(&format!("{}: the module has {channels} channels, numbered from 0", dtp.id)));
                }
                let module = (capabilities.module, geometry, capabilities.links.len());
                let sender = Sender::new(module, space.clone(), buffers, rings, &dtps);
                let mut sender = sender.map_err(|why: BadSetup| invalid(&why))?;
                for ring in rings {
                    let (links, is_direct) = reach(&self.peers, capabilities, ring.receiver);
                    sender.use_links(ring.receiver, links, is_direct);
                }
                self.sender = Some(sender);
            }
            Body::Start(run) => {
                self.map.as_ref().ok_or_else(|| missing("ras-map"))?;
                self.sender.as_ref().ok_or_else(|| missing("dtp-config"))?;
                (self.run, self.is_running) = (*run, true);
            }
            Body::Stop if !self.is_running => return Err(missing("start")),
            Body::Stop => self.is_running = false,
            Body::Release => {}
            _ => return Err((Code::Unsupported, format!("{name} is not for a module"))),
        }
        Ok(())
    }
}
