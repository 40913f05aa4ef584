//! Where what is in memory: buffers, address space, transfers and receptions, generated from the description of a
//! system and from what its members say that they can do. One local buffer at each receiver for each transfer, and one
//! for the events of each module.

use super::description::{Description, ModuleEntry, TransferWish};
use super::sender::{EventRing, ReceiveBuffer, ring_bytes};
use super::shared;
use super::space::{AddressSpace, LocalBuffer};
use super::telegram::{
    BufferPlace, BufferWish, Link, Map, MapEntry, ModuleCapabilities, ModuleRing, Peer, PeerKind, ReceiveBufferEntry,
    ReceiveConfig, ReceivedPart, ReceivedSlots, ReceiverCapabilities, RingEntry, TransferEntry,
};
use super::terms::{BufferId, Geometry, LinkKind, MemoryKind, ModuleId, ReceiveBufferId, ReceiverId, Region};
use super::transfer::{Dtp, Layout, Transfer};
use konkordia_wire::rashpa_event::{RECORD_BYTES, SLOTS_MAX};
use konkordia_wire::rdma_udp::header_bytes;
use std::collections::BTreeMap;

/// Local buffers begin at multiples of a cache line.
const ALIGN_BYTES: u32 = 64;
/// Headers of IPv4, of UDP, and of RDMA over UDP in a datagram.
const HEADERS_BYTES: u32 = 20 + 8 + header_bytes(true) as u32;

/// Why there is no plan: what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPlan(pub String);

fn bad<T>(why: String) -> Result<T, BadPlan> {
    Err(BadPlan(why))
}

/// What the members of a system can do.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Of modules.
    pub modules: BTreeMap<ModuleId, ModuleCapabilities>,
    /// Of receivers.
    pub receivers: BTreeMap<ReceiverId, ReceiverCapabilities>,
}

/// The links of a member that can be used: up, and of this kind.
fn usable(links: &[Link], kind: LinkKind) -> impl Iterator<Item = &Link> {
    links.iter().filter(move |link| link.is_up && link.kind == kind)
}

/// Name of a kind of link, for people.
const fn kind_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Pcie => "PCI Express",
        LinkKind::Roce => "RoCEv2",
        LinkKind::RdmaUdp => "RDMA over UDP",
        LinkKind::Ofi => "libfabric",
        LinkKind::Shm => "shared memory",
    }
}

impl Facts {
    /// Does each receiver have a link of its kind that can be used, and each module one of each of these kinds?
    ///
    /// # Errors
    /// [`BadPlan`]: the first member without one.
    pub fn check_links(&self, description: &Description) -> Result<(), BadPlan> {
        for entry in &description.receivers {
            let receivers = self.receivers.get(&entry.id).map(|receiver| (entry.id.to_string(), &receiver.links));
            let modules = self.modules.iter().map(|(id, module)| (id.to_string(), &module.links));
            let without = modules.chain(receivers).find(|(_, links)| usable(links, entry.link).next().is_none());
            if let Some((who, _)) = without {
                let kind = kind_name(entry.link);
                return bad(format!("{who} has no link of {kind} that is up; plug one in, or take it out of the system"));
            }
        }
        Ok(())
    }

    /// How each member is reached.
    pub fn peers(&self, description: &Description) -> Vec<Peer> {
        let peer = |kind, id, telegrams: &super::telegram::Name, link: &Link| Peer {
            kind,
            id,
            link: link.id,
            link_kind: link.kind,
            address: link.address.clone(),
            telegrams: Some(telegrams.clone()),
            ..Peer::default()
        };
        let mut peers = Vec::new();
        for entry in &description.modules {
            let links = self.modules.get(&entry.id).map_or(&[][..], |module| &module.links);
            peers.extend(links.iter().map(|link| peer(PeerKind::Module, entry.id.0, &entry.telegrams, link)));
        }
        for entry in &description.receivers {
            let links = self.receivers.get(&entry.id).map_or(&[][..], |receiver| &receiver.links);
            let of_kind = links.iter().filter(|link| link.kind == entry.link);
            peers.extend(of_kind.map(|link| peer(PeerKind::Receiver, entry.id.0, &entry.telegrams, link)));
        }
        peers
    }

    /// Bytes of a packet on the link of this kind that carries the smallest ones.
    fn mtu_bytes(&self, kind: LinkKind) -> u32 {
        let modules = self.modules.values().flat_map(|module| usable(&module.links, kind));
        let receivers = self.receivers.values().flat_map(|receiver| usable(&receiver.links, kind));
        modules.chain(receivers).map(|link| link.mtu_bytes).min().unwrap_or(0)
    }
}

/// A transfer with its place in slots.
#[derive(Clone, Debug)]
struct Target {
    wish: TransferWish,
    region: Region,
    buffer: ReceiveBufferId,
    local: BufferId,
}

/// The plan of a system.
#[derive(Clone, Debug)]
pub struct Plan {
    modules: Vec<(ModuleEntry, Geometry, ModuleCapabilities)>,
    targets: Vec<Target>,
    pixel_bytes: u32,
    event_records: u32,
    /// Receivers that share their memory with the modules.
    shared: Vec<ReceiverId>,
}

/// The address space with its receive buffers.
#[derive(Clone, Debug)]
pub struct Space {
    space: AddressSpace,
    buffers: Vec<ReceiveBuffer>,
    /// Where the rings of events begin in the memory of their receivers.
    rings: BTreeMap<(ReceiverId, BufferId), u64>,
}

impl Target {
    const fn row_bytes(&self, pixel_bytes: u32) -> u64 {
        self.region.width as u64 * pixel_bytes as u64
    }

    /// At most 2^96, so as u128.
    const fn slot_bytes(&self, pixel_bytes: u32) -> u128 {
        self.row_bytes(pixel_bytes) as u128 * self.region.height as u128
    }
}

/// What two ranges have in common: where it begins, and how long it is.
fn common((a, a_length): (u32, u32), (b, b_length): (u32, u32)) -> Option<(u32, u32)> {
    let start = a.max(b);
    let end = (u64::from(a) + u64::from(a_length)).min(u64::from(b) + u64::from(b_length));
    let length = end.checked_sub(start.into()).filter(|length| *length > 0)?;
    Some((start, length as u32))
}

impl Plan {
    /// Finds out where everything belongs.
    ///
    /// # Errors
    /// [`BadPlan`]: the first thing that does not fit together.
    pub fn new(description: &Description, facts: &Facts) -> Result<Self, BadPlan> {
        let mut modules = Vec::with_capacity(description.modules.len());
        for entry in &description.modules {
            let Some(can) = facts.modules.get(&entry.id) else {
                return bad(format!("{} has not said what it can do", entry.id));
            };
            let geometry = Geometry { width: can.width, height: can.height, pixel_bytes: can.pixel_bytes };
            let is_far = entry.x.checked_add(can.width).is_none() || entry.y.checked_add(can.height).is_none();
            if is_far || geometry.image_bytes() == 0 {
                return bad(format!("{} has no pixels, or lies beyond column or row 2^32; check x and y", entry.id));
            }
            modules.push((entry.clone(), geometry, can.clone()));
        }
        let pixel_bytes = modules.first().map_or(0, |(_, geometry, _)| geometry.pixel_bytes);
        if let Some((entry, geometry, _)) = modules.iter().find(|(_, geometry, _)| geometry.pixel_bytes != pixel_bytes) {
            let bytes = geometry.pixel_bytes;
            return bad(format!("{} has pixels of {bytes} bytes, others of {pixel_bytes}; all have to be equal", entry.id));
        }
        check_overlap(&modules)?;
        let right = modules.iter().map(|(entry, geometry, _)| entry.x + geometry.width).max().unwrap_or(0);
        let below = modules.iter().map(|(entry, geometry, _)| entry.y + geometry.height).max().unwrap_or(0);
        let all = Region { x: 0, y: 0, width: right, height: below };
        let target = |(n, wish): (usize, &TransferWish)| Target {
            wish: wish.clone(),
            region: wish.region.unwrap_or(all),
            buffer: ReceiveBufferId(n as u16),
            local: BufferId(n as u16 + 1),
        };
        let targets: Vec<Target> = description.transfers.iter().enumerate().map(target).collect();
        let shared = description.receivers.iter().filter(|entry| entry.link == LinkKind::Shm).map(|entry| entry.id).collect();
        let plan = Self { modules, targets, pixel_bytes, event_records: description.event_records, shared };
        for target in &plan.targets {
            let kinds = description.receivers.iter().filter(|entry| target.wish.receivers.contains(&entry.id));
            let mtu_bytes = kinds.map(|entry| facts.mtu_bytes(entry.link)).min().unwrap_or(0);
            plan.check(target, right, below, mtu_bytes)?;
        }
        Ok(plan)
    }

    fn check(&self, target: &Target, right: u32, below: u32, mtu_bytes: u32) -> Result<(), BadPlan> {
        let (id, region) = (target.wish.id, target.region);
        let is_inside = common((region.x, region.width), (0, right)) == Some((region.x, region.width))
            && common((region.y, region.height), (0, below)) == Some((region.y, region.height));
        if !is_inside {
            return bad(format!("{id}: its region has no pixels, or is not inside of the image of {right} x {below} pixels"));
        }
        let slots = u64::from(target.wish.slots) * target.wish.receivers.len() as u64;
        let bytes = target.slot_bytes(self.pixel_bytes) * u128::from(target.wish.slots);
        if slots > SLOTS_MAX.into() || bytes > 1 << 48 {
            return bad(format!("{id}: its slots are more than {SLOTS_MAX}, or larger than 2^48 bytes; give fewer slots"));
        }
        if target.wish.packet_bytes.saturating_add(HEADERS_BYTES) > mtu_bytes {
            let most = mtu_bytes.saturating_sub(HEADERS_BYTES);
            return bad(format!(
                "{id}: its packets do not fit into a link with {mtu_bytes} bytes; packet_bytes may be {most} at most"
            ));
        }
        Ok(())
    }

    /// The pixels of a module that belong to a target, and where in the slot they begin.
    fn part(&self, target: &Target, (entry, geometry): (&ModuleEntry, &Geometry)) -> Option<(Region, u64)> {
        let region = target.region;
        let (x, width) = common((region.x, region.width), (entry.x, geometry.width))?;
        let (y, height) = common((region.y, region.height), (entry.y, geometry.height))?;
        let row = u64::from(y - region.y) * target.row_bytes(self.pixel_bytes);
        let offset = row + u64::from(x - region.x) * u64::from(self.pixel_bytes);
        Some((Region { x: x - entry.x, y: y - entry.y, width, height }, offset))
    }

    fn ring(&self, module: usize) -> BufferId {
        BufferId((self.targets.len() + 1 + module) as u16)
    }

    /// Records of each ring of events of a receiver. Over shared memory, as many writes can wait for it.
    fn records(&self, receiver: ReceiverId) -> u32 {
        if self.shared.contains(&receiver) { self.event_records.max(shared::ENTRIES_MIN) } else { self.event_records }
    }

    fn slot_bytes(&self, target: &Target) -> u64 {
        // At most 2^48, by `check`.
        target.slot_bytes(self.pixel_bytes) as u64
    }

    /// R1: the local buffers of a receiver.
    pub fn wishes(&self, receiver: ReceiverId) -> Vec<BufferWish> {
        let wish = |id, bytes, unit_bytes| BufferWish { id, bytes, align_bytes: ALIGN_BYTES, kind: MemoryKind::Ram, unit_bytes };
        let targets = self.targets.iter().filter(|target| target.wish.receivers.contains(&receiver));
        let slots =
            targets.map(|target| wish(target.local, self.slot_bytes(target) * u64::from(target.wish.slots), self.pixel_bytes));
        let records = self.records(receiver);
        let queue_bytes = if self.shared.contains(&receiver) { shared::queue_bytes(records) } else { 0 };
        let bytes = ring_bytes(records) + queue_bytes;
        let rings = (0..self.modules.len()).map(|module| wish(self.ring(module), bytes, RECORD_BYTES as u32));
        slots.chain(rings).collect()
    }

    /// R2: the address space, from where the receivers made their buffers.
    ///
    /// # Errors
    /// [`BadPlan`]: a buffer was not made, or shares memory with another one.
    pub fn space(&self, made: &BTreeMap<ReceiverId, Vec<BufferPlace>>) -> Result<Space, BadPlan> {
        let entries_max = self.modules.iter().map(|(_, _, can)| can.entries_max as usize).min().unwrap_or(0);
        let (mut space, mut buffers) = (AddressSpace::new(entries_max), Vec::with_capacity(self.targets.len()));
        for target in &self.targets {
            let base = space.bytes();
            for receiver in &target.wish.receivers {
                let places = made.get(receiver).map_or(&[][..], Vec::as_slice);
                let Some(place) = places.iter().find(|place| place.id == target.local) else {
                    return bad(format!("{receiver} has not made {}; define the buffers (R1) once more", target.local));
                };
                let local = LocalBuffer {
                    receiver: *receiver,
                    buffer: target.local,
                    bytes: self.slot_bytes(target) * u64::from(target.wish.slots),
                    address: place.address,
                    key: place.key,
                    unit_bytes: self.pixel_bytes,
                };
                space.append(local).map_err(|why| BadPlan(why.to_string()))?;
            }
            buffers.push(ReceiveBuffer { id: target.buffer, base, bytes: space.bytes() - base });
        }
        let places = made.iter().flat_map(|(receiver, places)| places.iter().map(|place| ((*receiver, place.id), place.address)));
        Ok(Space { space, buffers, rings: places.collect() })
    }

    /// R3: the map for a module, by its place in the description.
    pub fn map(&self, module: usize, space: &Space, receivers: &[ReceiverId]) -> Map {
        let buffer = self.ring(module);
        let ring = |&receiver: &ReceiverId| {
            let address = space.rings.get(&(receiver, buffer)).copied().unwrap_or(0);
            EventRing { receiver, buffer, records: self.records(receiver), address }
        };
        Map {
            bytes: space.space.bytes(),
            entries: space.space.entries().iter().copied().map(MapEntry).collect(),
            buffers: space.buffers.iter().copied().map(ReceiveBufferEntry).collect(),
            rings: receivers.iter().map(|receiver| RingEntry(ring(receiver))).collect(),
        }
    }

    /// D1: the transfers of a module, by its place in the description.
    ///
    /// # Errors
    /// [`BadPlan`]: one of them cannot be executed.
    pub fn transfers(&self, module: usize, space: &Space) -> Result<Vec<TransferEntry>, BadPlan> {
        let (entry, geometry, can) = &self.modules[module];
        let mut transfers = Vec::new();
        for (n, target) in self.targets.iter().enumerate() {
            let Some((region, block_offset)) = self.part(target, (entry, geometry)) else { continue };
            let wish = &target.wish;
            let dtp = Dtp {
                id: wish.id,
                channel: (n % usize::from(can.channels_max.max(1))) as u8,
                dataset: wish.dataset,
                slices: wish.slices,
                region,
                buffer: target.buffer,
                layout: Layout {
                    slots: wish.slots * wish.receivers.len() as u32,
                    slot_bytes: self.slot_bytes(target),
                    block_offset,
                    row_pitch_bytes: target.row_bytes(self.pixel_bytes),
                },
                policy: wish.policy,
                packet_bytes: wish.packet_bytes,
            };
            let range = space.buffers[n].range();
            Transfer::new(dtp, *geometry, &space.space, range).map_err(|why| BadPlan(format!("{}, {why}", entry.id)))?;
            transfers.push(TransferEntry(dtp));
        }
        Ok(transfers)
    }

    /// D2: what comes into the buffers of a receiver.
    pub fn reception(&self, receiver: ReceiverId) -> ReceiveConfig {
        let mut config = ReceiveConfig::default();
        for target in &self.targets {
            let wish = &target.wish;
            let Some(place) = wish.receivers.iter().position(|id| *id == receiver) else { continue };
            config.slots.push(ReceivedSlots {
                transfer: wish.id,
                buffer: target.buffer,
                local: target.local,
                slots: wish.slots * wish.receivers.len() as u32,
                first_slot: wish.slots * place as u32,
                slots_here: wish.slots,
                width: target.region.width,
                height: target.region.height,
                pixel_bytes: self.pixel_bytes,
                first_slice: wish.slices.first,
                slices: wish.slices.count,
                step: wish.slices.step,
                policy: wish.policy,
            });
            for (entry, geometry, _) in &self.modules {
                let Some((Region { x, y, width, height }, block_offset)) = self.part(target, (entry, geometry)) else { continue };
                config.parts.push(ReceivedPart { transfer: wish.id, module: entry.id, x, y, width, height, block_offset });
            }
        }
        let ring = |(n, (entry, ..)): (usize, &(ModuleEntry, Geometry, ModuleCapabilities))| ModuleRing {
            module: entry.id,
            buffer: self.ring(n),
            records: self.records(receiver),
        };
        config.rings = self.modules.iter().enumerate().map(ring).collect();
        config
    }
}

/// Two modules at one place would write the same bytes.
fn check_overlap(modules: &[(ModuleEntry, Geometry, ModuleCapabilities)]) -> Result<(), BadPlan> {
    for (n, (entry, geometry, _)) in modules.iter().enumerate() {
        let shares = |(other, size, _): &&(ModuleEntry, Geometry, ModuleCapabilities)| {
            common((entry.x, geometry.width), (other.x, size.width)).is_some()
                && common((entry.y, geometry.height), (other.y, size.height)).is_some()
        };
        if let Some((other, ..)) = modules[..n].iter().find(shares) {
            return bad(format!("{} and {} have pixels at the same place of the image; check x and y", other.id, entry.id));
        }
    }
    Ok(())
}
