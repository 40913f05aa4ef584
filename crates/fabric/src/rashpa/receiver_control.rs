//! A data receiver as the telegrams see it: which are accepted when, and from whom. As a module it has one master. Its
//! telegrams come in the order comm-config, buffer-define, receive-config, start, stop; a refusal names what is
//! missing. Its memory is one range of bytes that the caller owns; local buffers are laid out in it one after another.

use super::assembly::{Assembly, Part, Shape};
use super::mastership::{Mastership, Refusal, reply};
use super::receiver::{DataReceiver, Use};
use super::sender::ring_bytes;
use super::shared;
use super::telegram::{
    Body, BufferPlace, BufferWish, BuffersDefined, Code, Name, Peer, PeerKind, ReceiveConfig, ReceivedPart, ReceivedSlots,
    ReceiverCapabilities, ReceiverStatus, State, Telegram,
};
use super::terms::{LinkKind, MemoryKind, ModuleId, Slices};
use super::transfer::Policy;
use crate::rdma_udp::Buffer;
use konkordia_wire::rashpa_event::SLOTS_MAX;

/// Blocks (slots times modules) that a receiver keeps account of at most; each takes 32 bytes.
pub const BLOCKS_MAX: u64 = 1 << 22;
/// Bytes of a pixel at most.
pub const PIXEL_BYTES_MAX: u32 = 8;

/// A receiver that is set up: it takes packets.
#[derive(Debug)]
pub struct Reception {
    /// Takes the packets. Its assemblies are in the order of the slots of the configuration, its senders in that of the
    /// modules.
    pub data: DataReceiver,
    /// The number of the run, as the master gave it; 0 before start.
    pub run: u32,
    /// What comes into which buffer.
    pub config: ReceiveConfig,
    /// The modules, by their numbers as senders.
    pub modules: Vec<ModuleId>,
    /// Where the first slot of each assembly begins in the memory.
    pub begins: Vec<u64>,
    /// Where the queue of each module begins in the memory, and its entries, if its buffer for events has room for one.
    pub queues: Vec<Option<(u64, u32)>>,
}

impl Reception {
    /// Bytes of a slot of an assembly.
    pub fn slot_bytes(&self, assembly: usize) -> u64 {
        slot_bytes(&self.config.slots[assembly]).unwrap_or(0)
    }

    /// What the modules bring into the slots of an assembly.
    pub fn parts(&self, assembly: usize) -> impl Iterator<Item = &ReceivedPart> {
        let transfer = self.config.slots[assembly].transfer;
        self.config.parts.iter().filter(move |part| part.transfer == transfer)
    }
}

fn slot_bytes(slots: &ReceivedSlots) -> Option<u64> {
    (u64::from(slots.width) * u64::from(slots.height)).checked_mul(slots.pixel_bytes.into())
}

#[derive(Debug, Default)]
struct Session {
    peers: Vec<Peer>,
    /// With its place in the memory.
    buffers: Vec<Buffer>,
    reception: Option<Reception>,
    state: Running,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Running {
    #[default]
    No,
    Yes,
    /// Stopped by the master; what is on its way is still taken.
    Stopping,
}

/// A receiver and its master.
#[derive(Debug)]
pub struct ReceiverControl {
    name: Name,
    capabilities: ReceiverCapabilities,
    mastership: Mastership,
    session: Option<Session>,
    last_number: u32,
}

impl ReceiverControl {
    /// A receiver that nobody has configured.
    pub fn new(name: Name, capabilities: ReceiverCapabilities) -> Self {
        Self { name, capabilities, mastership: Mastership::default(), session: None, last_number: 0 }
    }

    /// What takes packets, between start and [`Self::finish`].
    pub fn running(&mut self) -> Option<&mut Reception> {
        self.session.as_mut().filter(|session| session.state != Running::No)?.reception.as_mut()
    }

    /// True when the master has stopped the run, and [`Self::finish`] is to be called when nothing comes any more.
    pub fn is_stopping(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.state == Running::Stopping)
    }

    /// Ends a run: all that was on its way has come or is lost.
    pub const fn finish(&mut self) {
        if let Some(session) = &mut self.session {
            session.state = Running::No;
        }
    }

    /// By which kind of link the modules write into it, as the master said.
    pub fn link_kind(&self) -> LinkKind {
        let own = |peer: &&Peer| peer.kind == PeerKind::Receiver && peer.id == self.capabilities.receiver.0;
        self.peers().iter().find(own).map_or(LinkKind::RdmaUdp, |peer| peer.link_kind)
    }

    /// True if somebody configures it.
    pub fn has_master(&self) -> bool {
        self.mastership.name().is_some()
    }

    /// How the others are reached, as the master said.
    pub fn peers(&self) -> &[Peer] {
        self.session.as_ref().map_or(&[], |session| &session.peers)
    }

    /// The connection of this sender of telegrams has ended. If it is the master, its run is stopped and the receiver
    /// is free when it is over: true then.
    pub fn left(&mut self, name: &Name) -> bool {
        let is_master = self.mastership.name() == Some(name);
        if is_master {
            self.mastership.release();
            match &mut self.session {
                Some(session) if session.state != Running::No => session.state = Running::Stopping,
                session => *session = None,
            }
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
            Body::CapabilitiesRequest => return Ok(Body::ReceiverCapabilities(self.capabilities.clone())),
            Body::StatusRequest => return Ok(Body::ReceiverStatus(self.status())),
            _ => {}
        }
        if self.mastership.name().is_none() && self.running().is_some() {
            return Err((Code::Order, format!("{} is ending the run of a master that has left; try again", self.name.as_str())));
        }
        if self.mastership.claim(telegram, &self.name, "receiver")? {
            self.session = None;
        }
        let session = self.session.get_or_insert_default();
        let answer = session.obey(&telegram.body, &self.capabilities)?;
        if telegram.body == Body::Release {
            self.mastership.release();
            self.session = None;
        }
        Ok(answer.unwrap_or(Body::Ack(telegram.number)))
    }

    fn status(&self) -> ReceiverStatus {
        let session = self.session.as_ref();
        let state = match session {
            _ if self.mastership.name().is_none() => State::Free,
            Some(session) if session.state != Running::No => State::Running,
            Some(session) if session.reception.is_some() => State::Ready,
            _ => State::Claimed,
        };
        let mut status = ReceiverStatus { receiver: self.capabilities.receiver, state, ..ReceiverStatus::default() };
        let Some(reception) = session.and_then(|session| session.reception.as_ref()) else { return status };
        status.packets = reception.data.verdicts().packets();
        let lost = (0..reception.modules.len()).filter_map(|module| reception.data.losses(module));
        status.lost = lost.map(|losses| losses.lost).sum();
        for counts in (0..reception.begins.len()).filter_map(|n| reception.data.assembly_counts(n)) {
            status.whole += counts.whole;
            status.partial += counts.partial;
            status.empty += counts.empty;
        }
        status
    }
}

fn invalid(why: impl Into<String>) -> Refusal {
    (Code::Invalid, why.into())
}

impl Session {
    /// The answer, if it is another one than "done".
    fn obey(&mut self, body: &Body, capabilities: &ReceiverCapabilities) -> Result<Option<Body>, Refusal> {
        let name = body.element();
        let missing = |step: &str| (Code::Order, format!("{name} comes after {step}, which was not done; do that first"));
        if self.state != Running::No && !matches!(body, Body::Stop) {
            return Err((Code::Order, format!("{name} is not possible while the receiver takes packets; stop it first")));
        }
        match body {
            Body::CommConfig(peers) => *self = Self { peers: peers.clone(), ..Self::default() },
            Body::BufferDefine(wishes) => {
                let buffers = lay_out(wishes, capabilities)?;
                let place =
                    |buffer: &Buffer| BufferPlace { id: super::terms::BufferId(buffer.id), address: buffer.local_offset, key: 0 };
                let places = buffers.iter().map(place).collect();
                (self.buffers, self.reception) = (buffers, None);
                return Ok(Some(Body::BufferDefined(BuffersDefined { receiver: capabilities.receiver, buffers: places })));
            }
            Body::ReceiveConfig(_) if self.buffers.is_empty() => return Err(missing("buffer-define")),
            Body::ReceiveConfig(config) => self.reception = Some(reception(config, &self.buffers)?),
            Body::Start(run) => {
                let old = self.reception.as_ref().ok_or_else(|| missing("receive-config"))?;
                // Each run begins with empty slots and its own account.
                self.reception = Some(Reception { run: *run, ..reception(&old.config, &self.buffers)? });
                self.state = Running::Yes;
            }
            Body::Stop if self.state != Running::Yes => return Err(missing("start")),
            Body::Stop => self.state = Running::Stopping,
            Body::Release => {}
            _ => return Err((Code::Unsupported, format!("{name} is not for a receiver"))),
        }
        Ok(None)
    }
}

/// Gives each buffer its place in the memory.
fn lay_out(wishes: &[BufferWish], capabilities: &ReceiverCapabilities) -> Result<Vec<Buffer>, Refusal> {
    let ram = capabilities.memory.iter().filter(|memory| memory.kind == MemoryKind::Ram);
    let room: u64 = ram.map(|memory| memory.bytes).fold(0, u64::saturating_add);
    let mut buffers: Vec<Buffer> = Vec::with_capacity(wishes.len());
    let mut end = 0_u64;
    for wish in wishes {
        if wish.kind != MemoryKind::Ram {
            return Err((Code::Unsupported, format!("{}: this receiver has ordinary memory only (ram)", wish.id)));
        }
        if wish.id.0 == 0 || wish.bytes == 0 || wish.unit_bytes == 0 || wish.align_bytes == 0 {
            return Err(invalid(format!("{} needs an id from 1 on, bytes, an alignment, and units of bytes", wish.id)));
        }
        if buffers.iter().any(|other| other.id == wish.id.0) {
            return Err(invalid(format!("{} is defined twice", wish.id)));
        }
        let begin = end.checked_next_multiple_of(wish.align_bytes.into());
        let last = begin.and_then(|begin| begin.checked_add(wish.bytes)).filter(|last| *last <= room);
        let (Some(local_offset), Some(last)) = (begin, last) else {
            let more = wish.bytes;
            return Err(invalid(format!(
                "{} of {more} bytes does not fit: the receiver has {room} bytes, {end} are taken",
                wish.id
            )));
        };
        buffers.push(Buffer { id: wish.id.0, bytes: wish.bytes, unit_bytes: wish.unit_bytes, local_offset });
        end = last;
    }
    Ok(buffers)
}

/// Makes what takes the packets.
fn reception(config: &ReceiveConfig, buffers: &[Buffer]) -> Result<Reception, Refusal> {
    let modules: Vec<ModuleId> = config.rings.iter().map(|ring| ring.module).collect();
    if (1..modules.len()).any(|n| modules[..n].contains(&modules[n])) {
        return Err(invalid("a module has two rings of events; give each module one"));
    }
    let find = |id: super::terms::BufferId| {
        let found = buffers.iter().find(|buffer| buffer.id == id.0);
        found.copied().ok_or_else(|| invalid(format!("{id} was not defined; define it (buffer-define) first")))
    };
    let blocks = config.slots.iter().map(|slots| u64::from(slots.slots_here) * modules.len() as u64).sum::<u64>();
    if blocks > BLOCKS_MAX {
        return Err(invalid(format!("{blocks} blocks (slots times modules) are more than {BLOCKS_MAX}; use fewer slots")));
    }
    let mut assemblies = Vec::with_capacity(config.slots.len());
    let mut begins = Vec::with_capacity(config.slots.len());
    for slots in &config.slots {
        let buffer = find(slots.local)?;
        assemblies.push(assembly(config, slots, &modules, buffer.bytes)?);
        begins.push(buffer.local_offset);
    }
    let is_known = |part: &&ReceivedPart| config.slots.iter().any(|slots| slots.transfer == part.transfer);
    if let Some(part) = config.parts.iter().find(|part| !is_known(part)) {
        return Err(invalid(format!("a part of {} belongs to {}, which has no slots here", part.module, part.transfer)));
    }
    let mut data = DataReceiver::new(modules.len(), buffers.len(), assemblies);
    for (index, slots) in config.slots.iter().enumerate() {
        data.add(find(slots.local)?, Use::Slots { assembly: index, offset: 0 }).map_err(|why| invalid(why.to_string()))?;
    }
    let mut queues = Vec::with_capacity(config.rings.len());
    for (sender, ring) in config.rings.iter().enumerate() {
        let buffer = find(ring.buffer)?;
        let has_queue = ring_bytes(ring.records) + shared::queue_bytes(ring.records) <= buffer.bytes;
        queues.push(has_queue.then(|| (buffer.local_offset + ring_bytes(ring.records), ring.records)));
        if ring.records == 0 || ring_bytes(ring.records) > buffer.bytes {
            return Err(invalid(format!("the ring of {} has no records, or does not fit into {}", ring.module, ring.buffer)));
        }
        let added = data.add_ring(ring.buffer, ring.records, buffer.local_offset, sender);
        added.map_err(|why| invalid(why.to_string()))?;
    }
    Ok(Reception { data, run: 0, config: config.clone(), modules, begins, queues })
}

fn assembly(config: &ReceiveConfig, slots: &ReceivedSlots, modules: &[ModuleId], room: u64) -> Result<Assembly, Refusal> {
    let id = slots.transfer;
    if slots.policy != Policy::Credit {
        let why = "this receiver reads slots with credits only, not in free run; write policy = \"credit\"";
        return Err((Code::Unsupported, format!("{id}: {why}")));
    }
    if config.slots.iter().filter(|other| other.transfer == id).count() > 1 {
        return Err(invalid(format!("{id} has slots in two local buffers of one receiver")));
    }
    let here = u64::from(slots.first_slot) + u64::from(slots.slots_here);
    if slots.slots_here == 0 || here > slots.slots.into() || slots.slots > SLOTS_MAX || slots.step == 0 {
        return Err(invalid(format!("{id}: its slots here are not a part of its slots, or its step is 0")));
    }
    let bytes = slot_bytes(slots).filter(|bytes| *bytes > 0 && slots.pixel_bytes <= PIXEL_BYTES_MAX);
    let bytes = bytes.filter(|bytes| bytes.checked_mul(slots.slots_here.into()).is_some_and(|all| all <= room));
    let bytes = bytes.ok_or_else(|| invalid(format!("{id}: its slots have no bytes, or do not fit into {}", slots.local)))?;
    let mut blocks = vec![Part { dtp: id.0, block_bytes: 0 }; modules.len()];
    for part in config.parts.iter().filter(|part| part.transfer == id) {
        let sender = modules.iter().position(|module| *module == part.module);
        let sender =
            sender.ok_or_else(|| invalid(format!("{} brings a part of {id}, but has no ring of events", part.module)))?;
        let pixel = u128::from(slots.pixel_bytes);
        let row = u128::from(part.width) * pixel;
        let end =
            u128::from(part.block_offset) + u128::from(part.height.saturating_sub(1)) * u128::from(slots.width) * pixel + row;
        if part.width == 0 || part.height == 0 || part.width > slots.width || end > bytes.into() || blocks[sender].block_bytes > 0
        {
            return Err(invalid(format!(
                "the part of {} in {id} has no pixels, comes twice, or does not fit into a slot",
                part.module
            )));
        }
        blocks[sender].block_bytes = u64::from(part.width) * u64::from(part.height) * u64::from(slots.pixel_bytes);
    }
    let slices = Slices { first: slots.first_slice, count: slots.slices, step: slots.step };
    let ReceivedSlots { slots, first_slot, slots_here, .. } = *slots;
    Ok(Assembly::new(Shape { slots, first_slot, slots_here, slot_bytes: bytes, slices }, &blocks))
}
