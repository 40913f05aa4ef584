//! A module as the telegrams see it: which are accepted when, and from whom. It has one *master*, whoever sent
//! `comm-config` first; another one is refused until the first releases the module. Telegrams of the master come in
//! ascending numbers and in the order comm-config, ras-map, dtp-config, start, stop; a refusal names what is missing.

use super::sender::{BadSetup, EventRing, ReceiveBuffer, Sender};
use super::space::AddressSpace;
use super::telegram::{Body, Code, ModuleCapabilities, Nack, Name, Sentence, State, Status, Telegram};
use super::terms::Geometry;

/// What the master configured so far.
#[derive(Debug)]
struct Session {
    master: Name,
    last_number: u32,
    map: Option<(AddressSpace, Vec<ReceiveBuffer>, Vec<EventRing>)>,
    sender: Option<Sender>,
    is_running: bool,
}

/// A module and its master.
#[derive(Debug)]
pub struct ModuleControl {
    name: Name,
    capabilities: ModuleCapabilities,
    session: Option<Session>,
    next_number: u32,
}

/// Why a telegram is refused: the kind, and the sentence.
type Refusal = (Code, String);

impl ModuleControl {
    /// A module that nobody has configured.
    pub const fn new(name: Name, capabilities: ModuleCapabilities) -> Self {
        Self { name, capabilities, session: None, next_number: 0 }
    }

    /// What sends, between start and stop.
    pub fn running(&mut self) -> Option<&mut Sender> {
        self.session.as_mut().filter(|session| session.is_running)?.sender.as_mut()
    }

    /// Does what a telegram says, and returns the answer.
    pub fn handle(&mut self, telegram: &Telegram) -> Telegram {
        let number = telegram.number;
        let body = self
            .answer(telegram)
            .unwrap_or_else(|(code, reason)| Body::Nack(Nack { number, code, reason: Sentence::lossy(&reason) }));
        self.next_number = self.next_number.wrapping_add(1);
        Telegram { number: self.next_number, sender: self.name.clone(), body }
    }

    fn answer(&mut self, telegram: &Telegram) -> Result<Body, Refusal> {
        match &telegram.body {
            Body::CapabilitiesRequest => return Ok(Body::ModuleCapabilities(self.capabilities.clone())),
            Body::StatusRequest => return Ok(Body::Status(self.status())),
            Body::Credit(credit) => {
                let sender = self.running().ok_or((Code::Order, "credit comes after start, which was not done".to_owned()))?;
                let takes = |grant: &super::telegram::Grant| sender.credit(credit.buffer, grant.slot, grant.fills);
                let taken = credit.grants.iter().map(takes).fold(true, |all, taken| all & taken);
                let reason = || (Code::Invalid, format!("a slot of {} that no transfer of this module has", credit.buffer));
                return if taken { Ok(Body::Ack(telegram.number)) } else { Err(reason()) };
            }
            _ => {}
        }
        let geometry = self.geometry();
        self.claim(telegram)?;
        let Some(session) = self.session.as_mut() else {
            let name = telegram.body.element();
            return Err((Code::Order, format!("{name} comes after comm-config, which was not done; do that first")));
        };
        let capabilities = &self.capabilities;
        session.obey(&telegram.body, geometry, capabilities)?;
        if telegram.body == Body::Release {
            self.session = None;
        }
        Ok(Body::Ack(telegram.number))
    }

    const fn geometry(&self) -> Geometry {
        let ModuleCapabilities { width, height, pixel_bytes, .. } = self.capabilities;
        Geometry { width, height, pixel_bytes }
    }

    /// Checks whose telegram it is; the first `comm-config` makes its sender the master.
    fn claim(&mut self, telegram: &Telegram) -> Result<(), Refusal> {
        match &mut self.session {
            Some(session) if session.master != telegram.sender => {
                let master = session.master.as_str();
                Err((
                    Code::Master,
                    format!("{} is configured by {master}; it has to release the module first", self.name.as_str()),
                ))
            }
            Some(session) if telegram.number <= session.last_number => {
                let last = session.last_number;
                Err((Code::Number, format!("telegram {} comes after telegram {last}; numbers have to rise", telegram.number)))
            }
            Some(session) => {
                session.last_number = telegram.number;
                Ok(())
            }
            None => {
                if matches!(telegram.body, Body::CommConfig(_)) {
                    let (master, last_number) = (telegram.sender.clone(), telegram.number);
                    self.session = Some(Session { master, last_number, map: None, sender: None, is_running: false });
                }
                Ok(())
            }
        }
    }

    fn status(&mut self) -> Status {
        let state = match &self.session {
            None => State::Free,
            Some(session) if session.is_running => State::Running,
            Some(session) if session.sender.is_some() => State::Ready,
            Some(_) => State::Claimed,
        };
        let sent = self.session.as_ref().and_then(|session| session.sender.as_ref()).map(Sender::sent).unwrap_or_default();
        let (blocks, skipped, unsent, packets) = (sent.blocks, sent.skipped, sent.unsent, sent.packets + sent.events);
        Status { module: self.capabilities.module, state, blocks, skipped, unsent, packets }
    }
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
            Body::CommConfig(_) => (self.map, self.sender) = (None, None),
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
                self.sender = Some(sender.map_err(|why: BadSetup| invalid(&why))?);
            }
            Body::Start => {
                self.map.as_ref().ok_or_else(|| missing("ras-map"))?;
                self.sender.as_ref().ok_or_else(|| missing("dtp-config"))?;
                self.is_running = true;
            }
            Body::Stop if !self.is_running => return Err(missing("start")),
            Body::Stop => self.is_running = false,
            Body::Release => {}
            _ => return Err((Code::Unsupported, format!("{name} is not for a module"))),
        }
        Ok(())
    }
}
