//! `konkordia rashpa module`: a simulated detector module.

use super::args::ModuleArgs;
use super::pixels;
use super::telegrams::{lock, serve};
use super::wire::{Faults, Wire};
use crate::console;
use crate::run::signals;
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::text;
use konkordia_fabric::rashpa::control::ModuleControl;
use konkordia_fabric::rashpa::sender::{BadSlice, Sender, Sent};
use konkordia_fabric::rashpa::telegram::{Capability, Link, ModuleCapabilities, Name, Transform};
use konkordia_fabric::rashpa::terms::{DtpId, LinkId, LinkKind, ModuleId};
use konkordia_sim::rng::Rng;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the state is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How often the end of a run is told: each of these events may be lost.
const ENDS: u32 = 3;
/// A link that could not be used is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Receivers that share their memory are ready for a run within this time.
const READY: Duration = Duration::from_secs(10);
/// Shared memory has no packets; this lets through what a transfer may have.
const SHARED_MTU_BYTES: u32 = 1 << 17;
/// Rows of the translation table, and data channels.
const ENTRIES_MAX: u32 = 1024;
const CHANNELS_MAX: u8 = 16;

/// A name for telegrams.
pub fn name(text: &str) -> Result<Name, Failure> {
    Name::new(text).map_err(|why| Failure::new(Exit::Bug, "a member has no name", why.to_string(), "please report this"))
}

/// The addresses of the links.
pub fn addresses(links: &[IpAddr]) -> Result<Vec<IpAddr>, Failure> {
    let addresses = if links.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { links.to_vec() };
    match addresses.iter().find(|address| address.is_unspecified()) {
        Some(any) => {
            let why = "members know each other by these addresses";
            Err(Failure::new(Exit::Usage, format!("{any} cannot be a link"), why, "give the address of a network card"))
        }
        None => Ok(addresses),
    }
}

/// A link as telegrams describe it.
pub fn link(n: usize, address: std::net::SocketAddr, mtu_bytes: u32) -> Result<Link, Failure> {
    Ok(Link { id: LinkId(n as u8), kind: LinkKind::RdmaUdp, address: name(&address.to_string())?, mtu_bytes, is_up: true })
}

/// The link of number `n` by shared memory. A module has no memory to share, so its address is a word.
pub fn shared_link(n: usize, address: &str) -> Result<Link, Failure> {
    Ok(Link { id: LinkId(n as u8), kind: LinkKind::Shm, address: name(address)?, mtu_bytes: SHARED_MTU_BYTES, is_up: true })
}

fn open(args: &ModuleArgs) -> Result<(Vec<UdpSocket>, ModuleCapabilities), Failure> {
    let (mut sockets, mut links) = (Vec::new(), Vec::new());
    for (n, address) in addresses(&args.link)?.into_iter().enumerate() {
        let bind = || {
            let socket = UdpSocket::bind((address, 0))?;
            Ok((socket.local_addr()?, socket))
        };
        let (at, socket) = bind().map_err(|error: std::io::Error| {
            let fix = "give an address of this machine";
            Failure::new(Exit::Io, format!("cannot send from {address}"), reason(&error), fix)
        })?;
        links.push(link(n, at, args.mtu)?);
        sockets.push(socket);
    }
    links.push(shared_link(links.len(), "shm")?);
    let capabilities = ModuleCapabilities {
        module: ModuleId(args.id),
        width: args.width,
        height: args.height,
        pixel_bytes: args.pixel_bytes,
        channels_max: CHANNELS_MAX,
        entries_max: ENTRIES_MAX,
        links,
        transforms: vec![Capability { kind: Transform::Region }],
    };
    Ok((sockets, capabilities))
}

/// `konkordia rashpa module`
pub fn command(args: &ModuleArgs) -> Result<Exit, Failure> {
    let (sockets, capabilities) = open(args)?;
    // The last one is shared memory.
    if let Some(at) = args.pull.iter().chain(&args.plug).find(|at| usize::from(at.link) > sockets.len()) {
        let why = format!("it has links 0 to {}, of which the last one is shared memory", sockets.len());
        return Err(Failure::new(
            Exit::Usage,
            format!("the module has no link {}", at.link),
            why,
            "give --link once for each link",
        ));
    }
    let member = name(&format!("module-{}", args.id))?;
    let control = Arc::new(Mutex::new(ModuleControl::new(member.clone(), capabilities)));
    let interrupted = signals::stop_flag()?;
    let address = serve(args.listen, &member, &control)?;
    console::to_stderr(&format!("module {} takes telegrams at {address}; Ctrl-C ends it", args.id));
    let mut exit = Exit::Complete;
    let mut runs = 0;
    while !interrupted.load(Ordering::Acquire) {
        // A run that is over already has an account too.
        if lock(&control).runs() == runs {
            std::thread::sleep(LOOK);
            continue;
        }
        runs = lock(&control).runs();
        let mut run = Run::new(args, &sockets, &control);
        run.wait_for_receivers(&control, &interrupted);
        run.send(&control, &interrupted)?;
        exit = run.report(interrupted.load(Ordering::Acquire));
        // The manager may still ask how the run was, and releases the module then.
        while args.once && lock(&control).has_master() && !interrupted.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
        }
        if args.once {
            break;
        }
    }
    Ok(exit)
}

/// A run of the module.
struct Run<'a> {
    args: &'a ModuleArgs,
    wire: Wire<'a>,
    image: Vec<u8>,
    begun: Instant,
    next_slice: u64,
    ends_told: u32,
    sent: Sent,
    positions: Vec<(DtpId, u64)>,
    is_finished: bool,
    /// Links that are down, and since when.
    down: Vec<(LinkId, Instant)>,
    link_changes: Vec<Value>,
    /// Those whose connection for credits has ended in the midst of the run.
    departed: Vec<String>,
}

fn time_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl<'a> Run<'a> {
    fn new(args: &'a ModuleArgs, sockets: &'a [UdpSocket], control: &Mutex<ModuleControl>) -> Self {
        let faults = Faults { loss: args.loss, duplicate: args.duplicate, reorder: args.reorder };
        let rng = Rng::keyed(args.seed, &[0x7261_7368, args.id.into()]);
        let wire = {
            let mut control = lock(control);
            let peers = control.peers().to_vec();
            Wire::new(sockets, (&peers, control.sender().as_deref()), (faults, rng), args.packet_rate)
        };
        let bytes = args.width as usize * args.height as usize * args.pixel_bytes as usize;
        Self {
            args,
            wire,
            image: vec![0; bytes],
            begun: Instant::now(),
            next_slice: 0,
            ends_told: 0,
            sent: Sent::default(),
            positions: Vec::new(),
            is_finished: false,
            down: Vec::new(),
            link_changes: Vec::new(),
            departed: Vec::new(),
        }
    }

    /// Receivers that share their memory empty it before a run, so nothing is written before they say so.
    fn wait_for_receivers(&mut self, control: &Mutex<ModuleControl>, interrupted: &AtomicBool) {
        let end = Instant::now() + READY;
        while !self.wire.is_ready() && lock(control).running().is_some() && !interrupted.load(Ordering::Acquire) {
            if Instant::now() >= end {
                self.wire.give_up_unready();
            }
            std::thread::sleep(LOOK);
        }
        self.begun = Instant::now();
    }

    /// Sends slices until the master stops the run.
    fn send(&mut self, control: &Mutex<ModuleControl>, interrupted: &AtomicBool) -> Result<(), Failure> {
        let (id, seed) = (self.args.id, self.args.seed);
        pixels::fill(&mut self.image, (seed, id, 0), self.args.width, self.args.pixel_bytes);
        loop {
            let due = self.begun + Duration::from_secs(1).mul_f64(self.next_slice as f64 / f64::from(self.args.rate));
            let is_due = Instant::now() >= due;
            {
                let mut control = lock(control);
                let is_over = interrupted.load(Ordering::Acquire) || control.running().is_none();
                let Some(sender) = control.sender() else { break };
                if is_over || sender.is_finished() {
                    self.end(sender);
                } else if is_due {
                    self.slice(sender).map_err(|why| {
                        Failure::new(Exit::Bug, "a slice cannot be sent", why.to_string(), "please report this")
                    })?;
                }
                self.note(sender);
                self.departed = control.departed().iter().map(|name| name.as_str().to_owned()).collect();
                if is_over {
                    break;
                }
            }
            if is_due && !self.is_finished {
                if self.args.packet_rate.is_some() {
                    // A slice may have taken long: whoever asks or gives credits comes in between.
                    std::thread::sleep(LOOK);
                }
                self.next_slice += 1;
                pixels::fill(&mut self.image, (seed, id, self.next_slice), self.args.width, self.args.pixel_bytes);
            } else {
                std::thread::sleep(LOOK.min(due.saturating_duration_since(Instant::now()).max(Duration::from_micros(100))));
            }
        }
        self.wire.flush();
        Ok(())
    }

    /// Sends the next slice; links that are to be pulled are pulled in the middle of it.
    fn slice(&mut self, sender: &mut Sender) -> Result<(), BadSlice> {
        let slice = self.next_slice;
        for at in self.args.plug.iter().filter(|at| at.slice == slice) {
            self.wire.plug(at.link);
            self.set_link(sender, LinkId(at.link), true, "plugged in");
        }
        for at in self.args.pull.iter().filter(|at| at.slice + 1 == slice) {
            self.set_link(sender, LinkId(at.link), false, "pulled");
        }
        self.wire.look();
        let now = Instant::now();
        while let Some(at) = self.down.iter().position(|(_, since)| now.duration_since(*since) >= TRY_AGAIN) {
            let (link, _) = self.down.remove(at);
            self.set_link(sender, link, true, "tried again");
        }
        for at in self.args.pull.iter().filter(|at| at.slice == slice) {
            self.wire.pull(at.link);
        }
        sender.slice(slice, &self.image, time_ns(), &mut |packet| self.wire.send(packet))?;
        for (link, why) in std::mem::take(&mut self.wire.broken) {
            let link = LinkId(link as u8);
            self.down.push((link, now));
            self.set_link(sender, link, false, &why);
        }
        Ok(())
    }

    /// Notes that a link is up or down: the module goes on with those that are up, and tells the receivers.
    fn set_link(&mut self, sender: &mut Sender, link: LinkId, is_up: bool, why: &str) {
        if sender.is_up(link) == is_up {
            return;
        }
        sender.set_link(link, is_up, time_ns(), &mut |packet| self.wire.send(packet));
        let state = if is_up { "up" } else { "down" };
        let (id, slice) = (self.args.id, self.next_slice);
        self.link_changes.push(json!({ "link": link.0, "slice": slice, "state": state, "why": why }));
        console::note(&format!("module {id}: {link} is {state} at slice {slice} ({why})"));
    }

    /// Tells the end of the run, several times.
    fn end(&mut self, sender: &mut Sender) {
        while self.ends_told < ENDS {
            self.ends_told += 1;
            sender.end(time_ns(), &mut |packet| self.wire.send(packet));
        }
        self.wire.flush();
    }

    /// Keeps what was sent: when the master releases the module, the sender is gone.
    fn note(&mut self, sender: &Sender) {
        self.sent = sender.sent();
        self.is_finished = sender.is_finished();
        self.positions.clear();
        self.positions.extend(sender.positions());
    }

    /// Receivers that have gone in the midst of the run, and how that was seen.
    fn left(&self) -> Vec<String> {
        let departed = self.departed.iter().map(|name| format!("{name} has left: its connection for credits has ended"));
        let gone = self.wire.gone.iter().map(|(receiver, why)| format!("receiver {receiver} is not written any more: {why}"));
        departed.chain(gone).collect()
    }

    /// Prints the account of the run.
    fn report(&self, is_interrupted: bool) -> Exit {
        let Sent { blocks, skipped, unsent, packets, events, unsent_events } = self.sent;
        let (receivers, links) = self.wire.to_json();
        let (numbers, unaccounted) = self.wire.numbers();
        let due: u64 = self.positions.iter().map(|(_, position)| position).sum();
        let balances = blocks + skipped + unsent == due && numbers == packets + events && unaccounted == 0;
        let left = self.left();
        if self.args.json {
            let report = json!({
                "event": "rashpa-module", "module": self.args.id, "finished": self.is_finished, "blocks": blocks,
                "skipped": skipped, "unsent": unsent, "packets": packets, "events": events, "unsent_events": unsent_events,
                "receivers": receivers, "links": links, "link_changes": self.link_changes, "balances": balances,
                "left": left,
            });
            console::json(&report, true);
        } else {
            left.iter().for_each(|who| console::to_stdout(&format!("module {}: {who}", self.args.id)));
            console::to_stdout(&format!(
                "module {}: {} blocks sent, {} skipped (no credit), {} unsent (no link); {} packets and {} events; the account {}",
                self.args.id,
                text::count(blocks),
                text::count(skipped),
                text::count(unsent),
                text::count(packets),
                text::count(events),
                if balances { "balances" } else { "DOES NOT BALANCE" },
            ));
        }
        match (is_interrupted && !self.is_finished, balances && skipped == 0 && unsent == 0 && left.is_empty()) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Complete,
            (false, false) => Exit::Incomplete,
        }
    }
}
