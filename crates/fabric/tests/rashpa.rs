//! The demonstration of ESRF's prototype (EUCALL D5.2, 3.2.6) as a simulation that follows from one seed: six modules
//! send to four receivers, the whole image to the first, a region of it to the second, and every second image by turns
//! to the third and fourth. The links lose, repeat and reorder packets, and one of the two is pulled while blocks are
//! sent.

use konkordia_fabric::rashpa::assembly::{Assembly, Part, Shape};
use konkordia_fabric::rashpa::receiver::{DataReceiver, Use, Verdict};
use konkordia_fabric::rashpa::sender::{EventRing, Outgoing, ReceiveBuffer, Sender, ring_bytes};
use konkordia_fabric::rashpa::space::{AddressSpace, LocalBuffer};
use konkordia_fabric::rashpa::terms::*;
use konkordia_fabric::rashpa::transfer::{Dtp, Layout, Policy};
use konkordia_fabric::rdma_udp::Buffer;
use konkordia_sim::rng::{Rng, mix};
use std::collections::BTreeSet;

const MODULES: usize = 6;
const RECEIVERS: usize = 4;
const GEOMETRY: Geometry = Geometry { width: 64, height: 64, pixel_bytes: 2 };
const COLUMNS: u32 = 2;
const ROWS: u32 = 3;
const IMAGE: Region = Region { x: 0, y: 0, width: COLUMNS * GEOMETRY.width, height: ROWS * GEOMETRY.height };
const ROI: Region = Region { x: 40, y: 30, width: 60, height: 120 };
const RECORDS: u32 = 16;
const DELAY_MAX: u64 = 150;

/// One of the three receive buffers: what is sent there, and the slots at each of its receivers.
struct Target {
    region: Region,
    dataset: Dataset,
    slices: Slices,
    receivers: &'static [u16],
    slots_each: u32,
}

const fn every(step: u32) -> Slices {
    Slices { first: 0, count: None, step }
}

const TARGETS: [Target; 3] = [
    Target { region: IMAGE, dataset: Dataset::Image, slices: every(1), receivers: &[0], slots_each: 16 },
    Target { region: ROI, dataset: Dataset::RegionOfInterest, slices: every(1), receivers: &[1], slots_each: 32 },
    Target { region: IMAGE, dataset: Dataset::Image, slices: every(2), receivers: &[2, 3], slots_each: 10 },
];

impl Target {
    const fn row_bytes(&self) -> u64 {
        (self.region.width * GEOMETRY.pixel_bytes) as u64
    }

    const fn slot_bytes(&self) -> u64 {
        self.row_bytes() * self.region.height as u64
    }

    const fn bytes_each(&self) -> u64 {
        self.slot_bytes() * self.slots_each as u64
    }

    /// The part of a module: its pixels, and where in the slot they begin.
    fn part(&self, module: usize) -> Option<(Region, u64)> {
        let (left, top) = (module as u32 % COLUMNS * GEOMETRY.width, module as u32 / COLUMNS * GEOMETRY.height);
        let cut = |from: u32, length: u32, begin: u32, size: u32| {
            let (start, end) = (from.max(begin), (from + length).min(begin + size));
            (start < end).then(|| (start, end - start))
        };
        let (x, width) = cut(self.region.x, self.region.width, left, GEOMETRY.width)?;
        let (y, height) = cut(self.region.y, self.region.height, top, GEOMETRY.height)?;
        let offset = u64::from(y - self.region.y) * self.row_bytes() + u64::from((x - self.region.x) * GEOMETRY.pixel_bytes);
        Some((Region { x: x - left, y: y - top, width, height }, offset))
    }
}

/// The truth: both bytes of a pixel. None of them is 0, so a byte that was not written is seen.
fn pixel(slice: u64, x: u32, y: u32) -> [u8; 2] {
    let value = mix(slice << 40 | u64::from(y) << 20 | u64::from(x)).to_le_bytes();
    [value[0] | 1, value[1] | 1]
}

fn pixels(slice: u64, region: &Region) -> Vec<u8> {
    let rows = region.y..region.y + region.height;
    rows.flat_map(|y| (region.x..region.x + region.width).flat_map(move |x| pixel(slice, x, y))).collect()
}

fn module_image(slice: u64, module: usize) -> Vec<u8> {
    let (x, y) = (module as u32 % COLUMNS * GEOMETRY.width, module as u32 / COLUMNS * GEOMETRY.height);
    pixels(slice, &Region { x, y, width: GEOMETRY.width, height: GEOMETRY.height })
}

struct Computer {
    receiver: DataReceiver,
    memory: Vec<u8>,
    /// Images that are read at the moment: slot, and until which slice.
    reading: Vec<(u32, u64)>,
    seen: BTreeSet<u64>,
    missing_bytes: u64,
    losses: BTreeSet<(usize, u64)>,
    packets: u64,
}

/// A packet on its way: when it arrives, its place in the order, receiver, module, bytes.
type Flying = (u64, u64, usize, usize, Vec<u8>);

struct Wire {
    rng: Rng,
    now: u64,
    flying: BTreeSet<Flying>,
    pulled: bool,
    lost: BTreeSet<(usize, usize, u64)>,
    lost_by_pulling: u64,
    repeated: u64,
}

impl Wire {
    fn send(&mut self, module: usize, packet: Outgoing<'_>) {
        self.now += 1;
        let receiver = usize::from(packet.receiver.0);
        let sequence = u32::from_be_bytes(packet.segment[8..12].try_into().expect("4 bytes"));
        let cut = self.pulled && packet.link == LinkId(1);
        if cut || self.rng.chance(0.002) {
            self.lost_by_pulling += u64::from(cut);
            assert!(self.lost.insert((receiver, module, u64::from(sequence))));
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(0.01));
        self.repeated += copies - 1;
        for copy in 0..copies {
            let delay = if self.rng.chance(0.05) { self.rng.below(DELAY_MAX) } else { 0 };
            self.flying.insert((self.now + delay, self.now * 2 + copy, receiver, module, packet.segment.to_vec()));
        }
    }

    fn deliver(&mut self, computers: &mut [Computer], all: bool) {
        while self.flying.first().is_some_and(|(due, ..)| all || *due <= self.now) {
            let Some((_, _, receiver, module, segment)) = self.flying.pop_first() else { return };
            let Computer { receiver, memory, losses, packets, .. } = &mut computers[receiver];
            *packets += 1;
            let mut lost = |module, run| enter(losses, module, run);
            let verdict = receiver.receive(module, &segment, memory, &mut lost);
            let is_good = matches!(verdict, Verdict::Placed | Verdict::Event(_));
            assert!(
                is_good || matches!(verdict, Verdict::Refused(konkordia_fabric::rdma_udp::Refusal::Duplicate)),
                "{verdict:?}"
            );
        }
    }
}

fn enter(losses: &mut BTreeSet<(usize, u64)>, module: usize, run: std::ops::Range<u64>) {
    run.for_each(|position| assert!(losses.insert((module, position)), "reported twice"));
}

/// Who is where: target by target, then the rings of the modules.
fn target_of(receiver: usize) -> (usize, usize) {
    let found = TARGETS
        .iter()
        .enumerate()
        .find_map(|(n, target)| Some((n, target.receivers.iter().position(|id| usize::from(*id) == receiver)?)));
    found.expect("each receiver has a target")
}

fn computer(receiver: usize) -> Computer {
    let (index, place) = target_of(receiver);
    let target = &TARGETS[index];
    let slots = target.slots_each * target.receivers.len() as u32;
    let (first_slot, slots_here) = (target.slots_each * place as u32, target.slots_each);
    let shape = Shape { slots, first_slot, slots_here, slot_bytes: target.slot_bytes(), slices: target.slices };
    let part = |module| {
        let block_bytes =
            target.part(module).map_or(0, |(region, _)| u64::from(region.width * region.height * GEOMETRY.pixel_bytes));
        Part { dtp: index as u8, block_bytes }
    };
    let assembly = Assembly::new(shape, &(0..MODULES).map(part).collect::<Vec<_>>());
    let mut data = DataReceiver::new(MODULES, 1 + MODULES, vec![assembly]);
    let slots = Buffer { id: 1, bytes: target.bytes_each(), unit_bytes: 2, local_offset: 0 };
    data.add(slots, Use::Slots { assembly: 0, offset: 0 }).expect("a buffer");
    for module in 0..MODULES {
        let offset = target.bytes_each() + ring_bytes(RECORDS) * module as u64;
        data.add_ring(BufferId(10 + module as u16), RECORDS, offset, module).expect("a ring");
    }
    let memory = vec![0; (target.bytes_each() + ring_bytes(RECORDS) * MODULES as u64) as usize];
    let (reading, seen, losses) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    Computer { receiver: data, memory, reading, seen, missing_bytes: 0, losses, packets: 0 }
}

fn module(module: usize) -> Sender {
    let mut space = AddressSpace::new(RECEIVERS);
    let mut buffers = Vec::new();
    for (n, target) in TARGETS.iter().enumerate() {
        let base = space.bytes();
        for id in target.receivers {
            let (receiver, buffer, bytes) = (ReceiverId(*id), BufferId(1), target.bytes_each());
            space.append(LocalBuffer { receiver, buffer, bytes, address: 0, key: 0, unit_bytes: 2 }).expect("it fits");
        }
        buffers.push(ReceiveBuffer { id: ReceiveBufferId(n as u16), base, bytes: space.bytes() - base });
    }
    let ring = |receiver| EventRing {
        receiver: ReceiverId(receiver as u16),
        buffer: BufferId(10 + module as u16),
        records: RECORDS,
        address: 0,
    };
    let dtps = TARGETS.iter().enumerate().filter_map(|(n, target)| {
        let (region, block_offset) = target.part(module)?;
        let slots = target.slots_each * target.receivers.len() as u32;
        let layout = Layout { slots, slot_bytes: target.slot_bytes(), block_offset, row_pitch_bytes: target.row_bytes() };
        let (id, buffer, dataset) = (DtpId(n as u8), ReceiveBufferId(n as u16), target.dataset);
        let slices = target.slices;
        Some(Dtp { id, channel: 0, dataset, slices, region, buffer, layout, policy: Policy::Credit, packet_bytes: 96 })
    });
    let dtps: Vec<Dtp> = dtps.collect();
    let rings: Vec<EventRing> = (0..RECEIVERS).map(ring).collect();
    Sender::new((ModuleId(module as u16), GEOMETRY, 2), space, &buffers, &rings, &dtps).expect("it fits together")
}

/// Reads what is ready, and gives free what was read for long enough; the credits go to all modules.
fn read(computers: &mut [Computer], modules: &mut [Sender], rng: &mut Rng, slice: u64) {
    for (n, computer) in computers.iter_mut().enumerate() {
        let (index, place) = target_of(n);
        let target = &TARGETS[index];
        let assembly = computer.receiver.assembly(0).expect("there is one");
        while let Some(image) = assembly.take() {
            let truth = pixels(image.slice, &target.region);
            let local_slot = u64::from(image.slot - target.slots_each * place as u32);
            let bytes = &mut computer.memory[(local_slot * target.slot_bytes()) as usize..][..truth.len()];
            let wrong = bytes.iter().zip(&truth).filter(|(byte, truth)| byte != truth);
            let missing: Vec<u8> = wrong.map(|(byte, _)| *byte).collect();
            assert!(missing.iter().all(|byte| *byte == 0), "slice {}: bytes that were never sent", image.slice);
            assert_eq!(missing.len() as u64, image.missing_bytes, "slice {}", image.slice);
            assert!(computer.seen.insert(image.slice), "slice {} came twice", image.slice);
            computer.missing_bytes += image.missing_bytes;
            bytes.fill(0);
            // The reader of the region is slow now and then, so its slots run out.
            let pause = if n == 1 && rng.chance(0.3) { 40 } else { 2 };
            computer.reading.push((image.slot, slice + pause));
        }
        computer.reading.retain(|(slot, until)| {
            if *until <= slice {
                assembly.release(*slot).expect("it was taken");
            }
            *until > slice
        });
        while let Some(credit) = assembly.next_credit() {
            for module in modules.iter_mut() {
                module.credit(ReceiveBufferId(index as u16), credit.slot, credit.fills);
            }
        }
    }
}

const SLICES: u64 = 300;

#[test]
fn six_modules_send_to_four_receivers_while_a_link_is_pulled() {
    let mut modules: Vec<Sender> = (0..MODULES).map(module).collect();
    let mut computers: Vec<Computer> = (0..RECEIVERS).map(computer).collect();
    let (rng, flying, lost) = (Rng::new(16), BTreeSet::new(), BTreeSet::new());
    let mut wire = Wire { rng, now: 0, flying, pulled: false, lost, lost_by_pulling: 0, repeated: 0 };
    let mut rng = Rng::new(17);
    for slice in 0..SLICES {
        for (n, sender) in modules.iter_mut().enumerate() {
            // Pulled between modules 2 and 3 of slice 100; the modules learn of it with the next slice.
            wire.pulled = wire.pulled || (slice == 100 && n == 3);
            if slice == 200 {
                wire.pulled = false;
                sender.set_link(LinkId(1), true, slice, &mut |packet| wire.send(n, packet));
            } else if slice == 101 {
                sender.set_link(LinkId(1), false, slice, &mut |packet| wire.send(n, packet));
            }
            sender.slice(slice, &module_image(slice, n), slice, &mut |packet| wire.send(n, packet)).expect("in order");
            wire.deliver(&mut computers, false);
        }
        read(&mut computers, &mut modules, &mut rng, slice);
    }
    for _ in 0..3 {
        for (n, sender) in modules.iter_mut().enumerate() {
            sender.end(SLICES, &mut |packet| wire.send(n, packet));
        }
    }
    wire.deliver(&mut computers, true);
    for Computer { receiver, losses, .. } in &mut computers {
        (0..MODULES).for_each(|module| receiver.drain(module, &mut |module, run| enter(losses, module, run)));
    }
    // What remains is read, until nothing is ready any more.
    (SLICES..SLICES + 100).for_each(|slice| read(&mut computers, &mut modules, &mut rng, slice));
    check_accounts(&modules, &computers, &wire);
}

fn check_accounts(modules: &[Sender], computers: &[Computer], wire: &Wire) {
    assert!(wire.lost_by_pulling > 100 && wire.lost.len() as u64 > wire.lost_by_pulling + 100 && wire.repeated > 100);
    let mut packets = 0;
    let mut skipped = 0;
    for sender in modules {
        let sent = sender.sent();
        let due: u64 = TARGETS.iter().map(|target| SLICES / u64::from(target.slices.step)).sum();
        assert_eq!(sent.blocks + sent.skipped + sent.unsent, due, "one fate for each block");
        assert_eq!((sent.unsent, sent.unsent_events), (0, 0), "one link is always up");
        packets += sent.packets + sent.events;
        skipped += sent.skipped;
    }
    assert!(skipped > 0, "the slow reader ran out of slots");
    let delivered: u64 = computers.iter().map(|computer| computer.packets).sum();
    assert_eq!(packets + wire.repeated, delivered + wire.lost.len() as u64);
    for (n, computer) in computers.iter().enumerate() {
        // The events of loss are the injected losses, except behind the last packet of a flow that came.
        let newest = |module| computer.receiver.losses(module).map_or(0, |counts| counts.new + counts.lost);
        let injected = wire.lost.iter().filter(|(receiver, module, at)| *receiver == n && *at < newest(*module));
        assert_eq!(computer.losses, injected.map(|(_, module, at)| (*module, *at)).collect(), "receiver {n}");
        let (verdicts, refusals) = (computer.receiver.verdicts(), computer.receiver.refusals());
        assert_eq!(verdicts.packets(), computer.packets);
        assert_eq!(verdicts.placed + verdicts.duplicate, computer.packets, "nothing was late, foreign or outside");
        assert_eq!((refusals.no_event, refusals.slot_not_free, refusals.foreign_ring), (0, 0, 0));
    }
    for (n, target) in TARGETS.iter().enumerate() {
        let of_target = target.receivers.iter().map(|id| &computers[usize::from(*id)]);
        let seen: BTreeSet<u64> = of_target.clone().flat_map(|computer| &computer.seen).copied().collect();
        let counts: Vec<_> = of_target.map(|computer| computer.receiver.assembly_counts(0).expect("there is one")).collect();
        let whole: u64 = counts.iter().map(|counts| counts.whole).sum();
        let partial: u64 = counts.iter().map(|counts| counts.partial).sum();
        let empty: u64 = counts.iter().map(|counts| counts.empty).sum();
        assert_eq!(whole + partial, seen.len() as u64);
        assert_eq!(whole + partial + empty, SLICES / u64::from(target.slices.step), "one state for each slice of {n}");
        assert!(whole > 20 && partial > 20, "{n}: {whole} whole, {partial} partial, {empty} empty");
    }
}
