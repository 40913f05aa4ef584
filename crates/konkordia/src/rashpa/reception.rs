//! A run of a receiver: packets to their places, images to whoever reads them, credits to the modules, and the account.

use super::args::ReceiverArgs;
use super::credits::CreditLine;
use super::memory::Memory;
use super::pixels::{self, Compared};
use super::queues::Queues;
use super::telegrams::lock;
use crate::console;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::text;
use konkordia_fabric::rashpa::assembly::Image;
use konkordia_fabric::rashpa::receiver::Verdict;
use konkordia_fabric::rashpa::receiver_control::{ReceiverControl, Reception};
use konkordia_fabric::rashpa::shared;
use konkordia_fabric::rashpa::telegram::{Name, PeerKind, ReceivedSlots};
use konkordia_fabric::rashpa::terms::LinkKind;
use konkordia_links::shm;
use konkordia_wire::rashpa_event::{Kind, RECORD_BYTES, Record};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// When all modules have told their end, what is on its way still comes within this time.
const BEHIND_END: Duration = Duration::from_millis(200);
/// Looks at empty queues before the receiver sleeps, and how long it sleeps then.
const LOOKS: u32 = 16;
const NAP: Duration = Duration::from_micros(50);

/// What is known of the packets of a run.
pub struct State {
    /// The numbers of the modules as senders, by the addresses of their links.
    senders: BTreeMap<SocketAddr, usize>,
    packets: u64,
    bytes: u64,
    last_packet: Instant,
    /// For each module: its last packet, and true if its flow was drained since.
    flows: Vec<(Instant, bool)>,
    /// For each module and transfer: how many slices it told to be done, at its end.
    ends: BTreeMap<(usize, u8), u64>,
    /// For each transfer: the same of the module that told most, also before its end.
    due: BTreeMap<u8, u64>,
    links_down: u64,
    links_up: u64,
}

/// What became of the images of a transfer.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    compared: Compared,
    /// Bytes of which the receiver said that they did not come.
    missing: u64,
    written: u64,
}

/// What became of the images of a run so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Whole ones.
    pub whole: u64,
    /// Those of which something or all is missing.
    pub incomplete: u64,
    /// Packets that were lost, and bytes that nobody sent.
    pub wrong: u64,
    /// Bytes that were compared and are right.
    pub equal: u64,
}

impl Tally {
    /// How many have come to an end.
    pub const fn taken(&self) -> u64 {
        self.whole + self.incomplete
    }
}

/// A run.
pub struct Run<'a> {
    args: &'a ReceiverArgs,
    control: &'a Mutex<ReceiverControl>,
    /// What is known of the packets.
    pub state: State,
    /// What modules tell that have written into shared memory.
    queues: Option<Queues>,
    /// Looks that have found nothing.
    looks: u32,
    lines: Vec<CreditLine>,
    reads: Vec<Read>,
}

impl State {
    /// Takes a datagram of a link of a module.
    pub fn take(&mut self, reception: &mut Reception, datagram: &[u8], from: SocketAddr, memory: &mut [u8]) {
        let sender = self.senders.get(&from).copied().unwrap_or(usize::MAX);
        self.count(sender, datagram.len());
        let verdict = reception.data.receive(sender, datagram, memory, &mut |_, _| {});
        self.judged(reception, sender, verdict);
    }

    /// Takes what a module says that it has written into shared memory.
    fn take_entry(&mut self, reception: &mut Reception, sender: usize, entry: &shm::Entry, memory: &shm::Memory) {
        let (header, payload_bytes) = shared::read(entry);
        self.count(sender, payload_bytes);
        let read = |at: u64| {
            let mut record = [0; RECORD_BYTES];
            memory.read(usize::try_from(at).unwrap_or(usize::MAX), &mut record);
            record
        };
        let verdict = reception.data.written(sender, (&header, payload_bytes), read, &mut |_, _| {});
        self.judged(reception, sender, verdict);
    }

    fn count(&mut self, sender: usize, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
        self.last_packet = Instant::now();
        if let Some(flow) = self.flows.get_mut(sender) {
            *flow = (self.last_packet, false);
        }
    }

    fn judged(&mut self, reception: &Reception, sender: usize, verdict: Verdict) {
        match verdict {
            Verdict::Event(record) => self.note(reception, sender, &record),
            Verdict::Placed | Verdict::NoEvent(_) | Verdict::SlotNotFree | Verdict::ForeignRing | Verdict::Refused(_) => {}
        }
    }

    fn note(&mut self, reception: &Reception, sender: usize, record: &Record) {
        let slots = reception.config.slots.iter().find(|slots| slots.transfer.0 == record.dtp);
        let told = match (record.kind, slots) {
            (Kind::End, Some(_)) => {
                self.ends.insert((sender, record.dtp), record.count);
                record.count
            }
            (Kind::BlockDone | Kind::BlockSkipped, Some(slots)) => {
                let first = record.generation.saturating_mul(slots.slots.into());
                first.saturating_add(u64::from(record.slot) + 1)
            }
            (Kind::LinkDown | Kind::LinkUp, _) => {
                let count = if record.kind == Kind::LinkDown { &mut self.links_down } else { &mut self.links_up };
                *count += 1;
                return;
            }
            _ => return,
        };
        let due = self.due.entry(record.dtp).or_default();
        *due = (*due).max(told);
    }

    /// Have all modules told the end of all that they bring?
    fn is_ended(&self, reception: &Reception) -> bool {
        (0..reception.modules.len()).all(|sender| self.has_told_end(reception, sender))
    }

    fn has_told_end(&self, reception: &Reception, sender: usize) -> bool {
        let mut parts = reception.config.parts.iter().filter(|part| reception.modules.get(sender) == Some(&part.module));
        parts.all(|part| self.ends.contains_key(&(sender, part.transfer.0)))
    }
}

impl<'a> Run<'a> {
    /// A run that the manager has started; `None` if it has not.
    pub fn begin(
        args: &'a ReceiverArgs,
        name: &Name,
        control: &'a Mutex<ReceiverControl>,
        memory: &mut Memory,
    ) -> Result<Option<Self>, Failure> {
        let mut guard = lock(control);
        let (peers, is_shared) = (guard.peers().to_vec(), guard.link_kind() == LinkKind::Shm);
        let Some(reception) = guard.running() else { return Ok(None) };
        memory.begin(is_shared)?;
        let queues = if is_shared { Some(Queues::new(memory.shared(), reception)?) } else { None };
        let mut senders = BTreeMap::new();
        let mut lines = Vec::new();
        for (sender, module) in reception.modules.iter().enumerate() {
            let of_module = || peers.iter().filter(|peer| peer.kind == PeerKind::Module && peer.id == module.0);
            senders.extend(of_module().filter_map(|peer| Some((peer.address.as_str().parse().ok()?, sender))));
            let Some(telegrams) = of_module().find_map(|peer| peer.telegrams.clone()) else { continue };
            let line = CreditLine::open(reception.run, *module, telegrams.as_str().to_owned(), name.clone());
            lines.push(line.map_err(|error| {
                Failure::new(Exit::Io, "cannot start a thread", reason(&error), "raise the limit (ulimit -u)")
            })?);
        }
        let now = Instant::now();
        let state = State {
            senders,
            packets: 0,
            bytes: 0,
            last_packet: now,
            flows: vec![(now, false); reception.modules.len()],
            ends: BTreeMap::new(),
            due: BTreeMap::new(),
            links_down: 0,
            links_up: 0,
        };
        let reads = vec![Read::default(); reception.begins.len()];
        if let Some(queues) = &queues {
            queues.open(memory.shared());
        }
        Ok(Some(Self { args, control, state, queues, looks: 0, lines, reads }))
    }

    /// Do the modules write into memory that they share with this receiver?
    pub const fn is_shared(&self) -> bool {
        self.queues.is_some()
    }

    /// Takes some of what the modules have written; sleeps a moment if there is nothing for a while.
    pub fn take_shared(&mut self, memory: &Memory) {
        let Self { queues: Some(queues), state, control, looks, .. } = self else { return };
        let memory = memory.shared();
        let mut guard = lock(control);
        let Some(reception) = guard.running() else { return };
        if queues.take(memory, &mut |sender, entry| state.take_entry(reception, sender, entry, memory)) > 0 {
            *looks = 0;
            return;
        }
        for sender in queues.gone(memory, |sender| state.has_told_end(reception, sender)) {
            reception.data.drain(sender, &mut |_, _| {});
        }
        drop(guard);
        *looks += 1;
        if *looks > LOOKS {
            std::thread::sleep(NAP);
        } else {
            std::thread::yield_now();
        }
    }

    /// No further module begins to write.
    pub fn close(&self, memory: &Memory) {
        if let Some(queues) = &self.queues {
            queues.close(memory.shared());
        }
    }

    /// True when the manager has stopped the run and nothing comes any more, or at Ctrl-C.
    pub fn is_over(&self, control: &Mutex<ReceiverControl>, is_interrupted: bool) -> bool {
        let mut guard = lock(control);
        let is_stopping = guard.is_stopping();
        let Some(reception) = guard.running() else { return true };
        let silent = self.state.last_packet.elapsed();
        let is_ended = self.state.is_ended(reception) && silent >= BEHIND_END;
        is_interrupted || (is_stopping && (is_ended || silent.as_secs_f64() >= self.args.silence.max(1.0)))
    }

    /// Ends the flows of modules that were silent, reads what is ready, and gives credits.
    pub fn serve(&mut self, memory: &mut Memory) -> Result<(), Failure> {
        let mut guard = lock(self.control);
        let Some(reception) = guard.running() else { return Ok(()) };
        for (sender, (last, is_drained)) in self.state.flows.iter_mut().enumerate() {
            if !*is_drained && last.elapsed().as_secs_f64() >= self.args.silence {
                reception.data.drain(sender, &mut |_, _| {});
                *is_drained = true;
            }
        }
        for index in 0..reception.begins.len() {
            let slots = reception.config.slots[index].clone();
            while let Some(image) = reception.data.assembly(index).and_then(|assembly| assembly.take()) {
                self.reads[index].read(self.args, reception, index, &image, memory)?;
                let released = reception.data.assembly(index).map(|assembly| assembly.release(image.slot));
                debug_assert_eq!(released, Some(Ok(())), "it was taken");
            }
            while let Some(credit) = reception.data.assembly(index).and_then(|assembly| assembly.next_credit()) {
                self.lines.iter().for_each(|line| line.grant(slots.buffer, credit.slot, credit.fills));
            }
        }
        Ok(())
    }

    /// What became of the images so far.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let mut guard = lock(self.control);
        let Some(reception) = guard.running() else { return tally };
        for (index, read) in self.reads.iter().enumerate() {
            let counts = reception.data.assembly_counts(index).unwrap_or_default();
            tally.whole += counts.whole;
            tally.incomplete += counts.partial + counts.empty;
            tally.wrong += read.compared.different;
            tally.equal += read.compared.equal;
        }
        let lost = (0..reception.modules.len()).filter_map(|sender| reception.data.losses(sender));
        tally.wrong += lost.map(|losses| losses.lost).sum::<u64>();
        tally
    }

    /// Takes all that did not come for lost, and reads what is left.
    pub fn drain(&mut self, memory: &mut Memory) -> Result<(), Failure> {
        if let Some(reception) = lock(self.control).running() {
            (0..reception.modules.len()).for_each(|sender| reception.data.drain(sender, &mut |_, _| {}));
        }
        self.serve(memory)
    }

    /// Prints the account.
    pub fn report(&self, kernel_dropped: u64, is_interrupted: bool) -> Exit {
        let mut guard = lock(self.control);
        let Some(reception) = guard.running() else { return Exit::Interrupted };
        let account = Account::of(self, reception, kernel_dropped);
        let is_ended = self.state.is_ended(reception);
        if self.args.json {
            console::json(&account.to_json(self, is_ended), true);
        } else {
            console::to_stdout(&account.to_text(self.args.id));
        }
        match (is_interrupted && !is_ended, account.is_whole() && is_ended) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Complete,
            (false, false) => Exit::Incomplete,
        }
    }
}

impl Read {
    /// Looks at an image, and leaves its slot empty: what does not come into it next time is 0.
    fn read(
        &mut self,
        args: &ReceiverArgs,
        reception: &Reception,
        index: usize,
        image: &Image,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let slots = &reception.config.slots[index];
        let bytes = reception.slot_bytes(index) as usize;
        let begin = reception.begins[index] as usize + (image.slot - slots.first_slot) as usize * bytes;
        self.missing += image.missing_bytes;
        if args.check.is_none() && args.output.is_none() {
            memory.clear(begin, bytes);
            return Ok(());
        }
        let slot = memory.slot(begin, bytes);
        if let Some(seed) = args.check {
            for part in reception.parts(index) {
                let found = pixels::compare(slot, part, (seed, image.slice), slots.width, slots.pixel_bytes);
                self.compared.equal += found.equal;
                self.compared.missing += found.missing;
                self.compared.different += found.different;
            }
        }
        if let Some(folder) = &args.output {
            let path = folder.join(format!("transfer-{}-{:06}.npy", slots.transfer.0, image.slice));
            write_npy(&path, slots, slot).map_err(|error| Failure::io("cannot write", &path, &error))?;
            self.written += 1;
        }
        memory.clear(begin, bytes);
        Ok(())
    }
}

/// Writes an image as NumPy does: format 1.0, rows one after another. Pixels of a number of bytes that NumPy has no
/// number for are written as bytes, with one dimension more.
fn write_npy(path: &Path, slots: &ReceivedSlots, pixels: &[u8]) -> std::io::Result<()> {
    let (height, width, bytes) = (slots.height, slots.width, slots.pixel_bytes);
    let (kind, shape) = match bytes {
        1 => ("|u1".to_owned(), format!("({height}, {width})")),
        2 | 4 | 8 => (format!("<u{bytes}"), format!("({height}, {width})")),
        _ => ("|u1".to_owned(), format!("({height}, {width}, {bytes})")),
    };
    let mut head = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version and length are 10 bytes; all is padded to a multiple of 64, with a new line at the end.
    let padded = (10 + head.len() + 1).next_multiple_of(64) - 10;
    head.extend(std::iter::repeat_n(' ', padded - 1 - head.len()));
    head.push('\n');
    let length = (head.len() as u16).to_le_bytes();
    std::fs::write(path, [b"\x93NUMPY\x01\x00", &length[..], head.as_bytes(), pixels].concat())
}

/// The account of a run.
struct Account {
    packets: Value,
    modules: Vec<Value>,
    transfers: Vec<Value>,
    lost: u64,
    whole: u64,
    partial: u64,
    empty: u64,
    open: u64,
    different: u64,
    received: u64,
    kernel_dropped: u64,
    balances: bool,
}

impl Account {
    fn of(run: &Run<'_>, reception: &Reception, kernel_dropped: u64) -> Self {
        let (verdicts, refusals) = (reception.data.verdicts(), reception.data.refusals());
        let packets = json!({
            "received": run.state.packets, "bytes": run.state.bytes, "placed": verdicts.placed, "duplicate": verdicts.duplicate,
            "late": verdicts.late, "malformed": verdicts.malformed, "unknown_sender": verdicts.unknown_sender,
            "unknown_buffer": verdicts.unknown_buffer, "revoked": verdicts.revoked, "out_of_bounds": verdicts.out_of_bounds,
            "no_event": refusals.no_event, "slot_not_free": refusals.slot_not_free, "foreign_ring": refusals.foreign_ring,
        });
        let mut account = Self {
            packets,
            modules: Vec::new(),
            transfers: Vec::new(),
            lost: 0,
            whole: 0,
            partial: 0,
            empty: 0,
            open: 0,
            different: 0,
            received: run.state.packets,
            kernel_dropped,
            balances: verdicts.packets() == run.state.packets,
        };
        let mut flows = (0, 0, 0);
        for (sender, module) in reception.modules.iter().enumerate() {
            let Some(counts) = reception.data.losses(sender) else { continue };
            account.lost += counts.lost;
            flows = (flows.0 + counts.new, flows.1 + counts.duplicate, flows.2 + counts.late);
            account.modules.push(json!({
                "module": module.0, "new": counts.new, "duplicate": counts.duplicate, "late": counts.late, "lost": counts.lost,
                "gaps": counts.gaps, "fault": run.queues.as_ref().and_then(|queues| queues.fault(sender)),
            }));
        }
        account.balances &= flows == (verdicts.placed, verdicts.duplicate, verdicts.late);
        (0..reception.begins.len()).for_each(|index| account.add_transfer(run, reception, index));
        account
    }

    fn add_transfer(&mut self, run: &Run<'_>, reception: &Reception, index: usize) {
        let (slots, read) = (&reception.config.slots[index], &run.reads[index]);
        let Some(counts) = reception.data.assembly_counts(index) else { return };
        let told = run.state.due.get(&slots.transfer.0).copied().unwrap_or(0);
        let (due, open) = reception.data.due_and_open(index, told);
        self.balances &= counts.whole + counts.partial + counts.empty + open == due;
        // What the receiver says is missing is what a comparison finds to be missing.
        let is_checked = run.args.check.is_some();
        self.balances &= !is_checked || (read.compared.missing == read.missing && read.compared.different == 0);
        self.whole += counts.whole;
        self.partial += counts.partial;
        self.empty += counts.empty;
        self.open += open;
        self.different += read.compared.different;
        self.transfers.push(json!({
            "transfer": slots.transfer.0, "slices": due, "whole": counts.whole, "partial": counts.partial, "empty": counts.empty,
            "open": open, "missing_bytes": counts.missing_bytes, "checked": is_checked, "bytes_equal": read.compared.equal,
            "bytes_missing": read.compared.missing, "bytes_different": read.compared.different, "written": read.written,
        }));
    }

    fn is_whole(&self) -> bool {
        self.balances && self.lost + self.partial + self.empty + self.open + self.different + self.kernel_dropped == 0
    }

    fn to_json(&self, run: &Run<'_>, is_ended: bool) -> Value {
        let credits: u64 = run.lines.iter().map(CreditLine::told).sum();
        json!({
            "event": "rashpa-receiver", "receiver": run.args.id, "ended": is_ended, "packets": self.packets,
            "kernel_dropped": self.kernel_dropped, "lost": self.lost, "modules": self.modules, "transfers": self.transfers,
            "links_down": run.state.links_down, "links_up": run.state.links_up, "credits": credits, "balances": self.balances,
        })
    }

    fn to_text(&self, id: u16) -> String {
        let compared =
            if self.different > 0 { format!("; {} bytes are WRONG", text::count(self.different)) } else { String::new() };
        format!(
            "receiver {id}: {} slices whole, {} with missing packets, {} empty, {} open; {} packets, {} lost, {} dropped by the kernel{compared}; \
             the account {}",
            text::count(self.whole),
            text::count(self.partial),
            text::count(self.empty),
            text::count(self.open),
            text::count(self.received),
            text::count(self.lost),
            text::count(self.kernel_dropped),
            if self.balances { "balances" } else { "DOES NOT BALANCE" },
        )
    }
}
