//! `konkordia bench udp`: the lowest rate at which datagrams are lost, as in Table 1 of Ponsard et al. 2020. Numbered
//! packets go to one buffer or to many in turn, the rate is halved until no number is missing, and then narrowed by
//! bisection. The receiver copies each packet to its buffer, as an assembler does; at the end of each attempt every
//! buffer must hold a packet that belongs there.
//!
//! Rates count the bytes of the payload. The sender sends bursts of up to 64 KiB, each at its time. Packets of an
//! attempt that come late or again are told by the number of the attempt in each packet.

use super::args::{BenchUdpArgs, PACKET_BYTES_MAX, PACKET_BYTES_MIN, UdpBackend, UdpWait};
use super::output::Output;
use super::peer::{self, Peer, failed, filling};
use super::spread::Spread;
use crate::console::Progress;
use crate::simulate::send;
use clap::ValueEnum;
use konkordia_acquire::machine;
use konkordia_core::backend::Receive;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ports::Source;
use konkordia_core::sender::Sender;
use konkordia_core::text;
use konkordia_picture::{Axis, Series};
use konkordia_sources::backend;
use konkordia_sources::udp::UdpSender;
use serde_json::{Value, json};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A row of Table 1 of Ponsard et al. 2020: bytes of a packet (theirs have 8246 where ours have 8240), destination
/// addresses, and the lowest rates with drops in Gb/s: plain socket, tuned kernel, VMA.
type PaperRow = (usize, usize, Option<f64>, f64, f64);
const PAPER: [PaperRow; 6] = [
    (2048, 1, Some(7.2), 10.9, 26.7),
    (4096, 1, Some(9.1), 22.8, 51.2),
    (8240, 1, Some(9.8), 36.7, 77.0),
    (2048, 100_000, None, 11.0, 26.1),
    (4096, 100_000, None, 23.1, 45.0),
    (8240, 100_000, None, 27.4, 39.7),
];
/// What others report.
const OTHERS: &str = "paper: Ponsard et al. 2020, Table 1: 10 000 000 packets, ConnectX-5 of 100 Gb/s, lowest rate with drops; its conclusion: plain \
                      socket 9 Gb/s (with drops), VMA about 26, RDMA 100\na vendor's table of 2026: kernel UDP, unpaced, 34.5 Gb/s with 48 % \
                      lost\nEUCALL D5.2: an FPGA that writes into host memory over PCIe, 5.6 GB/s at 4096 bytes, 6.1 GB/s at 8192 and 16384, \
                      below 1 % of a processor";
/// The search ends when the bounds are this close to each other, or below this rate in Gb/s.
const CLOSE: f64 = 1.05;
const GBIT_PER_S_MIN: f64 = 0.01;
/// An attempt has fewer packets if they would take longer than this.
const ATTEMPT_SECONDS_MAX: f64 = 10.0;
/// How long a waiting receiver waits at once, and how long it must be quiet after the last packet was sent.
const WAIT: Duration = Duration::from_millis(10);
const QUIET: Duration = Duration::from_millis(100);
/// Bytes of the numbers at the beginning of a packet (attempt, number) and of the check at its end.
const HEAD_BYTES: usize = 16;
const CHECK_BYTES: usize = 8;

/// `konkordia bench udp`
pub fn command(args: &BenchUdpArgs) -> Result<Exit, Failure> {
    if let Some(address) = args.listen {
        return peer::listen("udp", address, serve, args.output.json);
    }
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    let output = Output::open(&args.output, "udp")?;
    let (packets, repeats) = if args.quick { (2000, 2) } else { (args.packets, args.repeats.max(1)) };
    let mut rows = Vec::new();
    let attempts = peer::with_peer("udp", args.to, serve, |peer| {
        let mut bench = Bench { peer, attempts: 0, close: if args.quick { 1.5 } else { CLOSE } };
        for setting in settings(args, packets) {
            let mut progress = Progress::new(args.output.json);
            let mut found = Vec::new();
            for repeat in 0..repeats {
                progress.update(|| format!("{}, repeat {}", setting.name(), repeat + 1));
                found.push(bench.search(&setting)?);
            }
            progress.end();
            rows.push(Row { setting, found });
        }
        Ok(bench.attempts)
    })?;
    let verified = rows.iter().all(Row::verified);
    let network = peer::network(args.to);
    if let Some(png) = &args.png {
        draw(&rows).write(png)?;
    }
    let report = json!({
        "bench": "udp", "machine": machine::facts(), "network": network, "packets": packets, "repeats": repeats, "attempts": attempts,
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "others": OTHERS, "verified": verified,
    });
    output.print(report, &to_text(&rows, &network, packets, repeats));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// How packets are received.
#[derive(Clone, Copy, Debug)]
struct Setting {
    packet_bytes: usize,
    buffers: usize,
    backend: UdpBackend,
    wait: UdpWait,
    packets: u64,
    receive_buffer_bytes: usize,
}

fn settings(args: &BenchUdpArgs, packets: u64) -> Vec<Setting> {
    let receive_buffer_bytes = args.receive_buffer_mib << 20;
    let mut all = Vec::new();
    for &backend in &args.backend {
        for &wait in &args.wait {
            for &buffers in &args.buffers {
                // So that a quick attempt fills each of them.
                let buffers = if args.quick { buffers.min(16) } else { buffers };
                for &packet_bytes in &args.sizes {
                    all.push(Setting { packet_bytes, buffers, backend, wait, packets, receive_buffer_bytes });
                }
            }
        }
    }
    all
}

/// The name of a choice on the command line.
fn name_of(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or(String::new(), |value| value.get_name().into())
}

impl Setting {
    fn name(&self) -> String {
        let (backend, wait) = (name_of(self.backend), name_of(self.wait));
        format!("{} bytes, {} buffer(s), {backend}, {wait}", self.packet_bytes, self.buffers)
    }

    fn paper(&self) -> Option<(Option<f64>, f64, f64)> {
        let found = PAPER.iter().find(|row| (row.0, row.1) == (self.packet_bytes, self.buffers));
        found.map(|row| (row.2, row.3, row.4))
    }

    /// What the other end needs to know of an attempt.
    fn order(&self, attempt: u64, packets: u64) -> Value {
        json!({
            "attempt": attempt, "packets": packets, "packet_bytes": self.packet_bytes, "buffers": self.buffers, "backend": name_of(self.backend),
            "wait": name_of(self.wait), "receive_buffer_bytes": self.receive_buffer_bytes,
        })
    }
}

/// What came of one rate.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Rate that the sender reached.
    gbit_per_s: f64,
    packets: u64,
    lost: u64,
    /// Processor time of the receiving thread, of a core.
    core: Option<f64>,
    verified: bool,
}

/// The attempts of one search, the first of them unpaced.
struct Found(Vec<Attempt>);

impl Found {
    /// The highest rate of which nothing was lost.
    fn loss_free(&self) -> Option<Attempt> {
        self.0.iter().filter(|a| a.lost == 0).copied().max_by(|a, b| a.gbit_per_s.total_cmp(&b.gbit_per_s))
    }

    /// The lowest rate of which something was lost, in Gb/s.
    fn drops_from(&self) -> Option<f64> {
        self.0.iter().filter(|a| a.lost > 0).map(|a| a.gbit_per_s).min_by(f64::total_cmp)
    }
}

/// The sending end.
struct Bench<'a> {
    peer: &'a mut Peer,
    attempts: u64,
    close: f64,
}

impl Bench<'_> {
    fn search(&mut self, setting: &Setting) -> Result<Found, Failure> {
        let unpaced = self.attempt(setting, f64::INFINITY)?;
        let mut attempts = vec![unpaced];
        let (mut good, mut bad) =
            if unpaced.lost > 0 { (0.0, unpaced.gbit_per_s) } else { (unpaced.gbit_per_s, unpaced.gbit_per_s) };
        while bad > GBIT_PER_S_MIN && bad > self.close * good {
            let rate = if good == 0.0 { bad / 2.0 } else { f64::sqrt(good * bad) };
            let attempt = self.attempt(setting, rate)?;
            if attempt.lost == 0 {
                good = rate
            } else {
                bad = rate
            }
            attempts.push(attempt);
        }
        Ok(Found(attempts))
    }

    fn attempt(&mut self, setting: &Setting, gbit_per_s: f64) -> Result<Attempt, Failure> {
        self.attempts += 1;
        let bits = setting.packet_bytes as f64 * 8.0;
        let packets = setting.packets.min((ATTEMPT_SECONDS_MAX * gbit_per_s * 1e9 / bits) as u64).max(1);
        let ready = self.peer.ask(&setting.order(self.attempts, packets))?;
        let port = ready["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
        let to = SocketAddr::new(self.peer.other, port);
        let mut sender = UdpSender::connect(to).map_err(|error| failed(&format!("cannot send to {to}"), &error))?;
        let seconds = send_all(&mut sender, setting.packet_bytes, self.attempts, packets, bits / (gbit_per_s * 1e9))?;
        let result = self.peer.ask(&json!({ "sent": packets }))?;
        let number = |name: &str| result[name].as_u64().unwrap_or(u64::MAX);
        Ok(Attempt {
            gbit_per_s: packets as f64 * bits / seconds / 1e9,
            packets,
            lost: packets.saturating_sub(number("arrived")),
            core: result["core"].as_f64(),
            verified: result["right"] == true && number("arrived") <= packets,
        })
    }
}

/// Sends all packets of an attempt, each burst at its time; returns the seconds that it took.
fn send_all(
    sender: &mut UdpSender,
    packet_bytes: usize,
    attempt: u64,
    packets: u64,
    seconds_per_packet: f64,
) -> Result<f64, Failure> {
    let burst = (PACKET_BYTES_MAX / packet_bytes).clamp(1, 64) as u64;
    let mut buffer = filling(packet_bytes).repeat(burst as usize);
    let start = Instant::now();
    for first in (0..packets).step_by(burst as usize) {
        let count = burst.min(packets - first);
        let bytes = &mut buffer[..count as usize * packet_bytes];
        bytes.chunks_exact_mut(packet_bytes).zip(first..).for_each(|(packet, number)| stamp(packet, attempt, number));
        send::wait_until(start, first as f64 * seconds_per_packet);
        sender.send_segments(bytes, packet_bytes).map_err(|error| send::failed(&error))?;
    }
    // The last burst has its time too, or few packets would seem faster than they were asked to be.
    send::wait_until(start, packets as f64 * seconds_per_packet);
    Ok(start.elapsed().as_secs_f64())
}

fn stamp(packet: &mut [u8], attempt: u64, number: u64) {
    let check = packet.len() - CHECK_BYTES;
    packet[..8].copy_from_slice(&attempt.to_le_bytes());
    packet[8..HEAD_BYTES].copy_from_slice(&number.to_le_bytes());
    packet[check..].copy_from_slice(&check_of(attempt, number).to_le_bytes());
}

fn check_of(attempt: u64, number: u64) -> u64 {
    ((attempt << 40) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The number in a packet of this attempt, if its check is right.
fn number_of(packet: &[u8], attempt: u64) -> Option<u64> {
    let (head, rest) = packet.split_first_chunk::<8>()?;
    let (number, _) = rest.split_first_chunk::<8>()?;
    let check = packet.last_chunk::<CHECK_BYTES>()?;
    let number = u64::from_le_bytes(*number);
    let is_right = u64::from_le_bytes(*head) == attempt && u64::from_le_bytes(*check) == check_of(attempt, number);
    is_right.then_some(number)
}

/// The account of the packets of an attempt, by their numbers.
struct Account {
    attempt: u64,
    packet_bytes: usize,
    buffers: usize,
    has_arrived: Vec<bool>,
    arrived: u64,
    duplicates: u64,
    /// Of another attempt, of another length, without a right check, or with a number that was not sent.
    damaged: u64,
}

impl Account {
    fn new(attempt: u64, packets: usize, packet_bytes: usize, buffers: usize) -> Self {
        Self { attempt, packet_bytes, buffers, has_arrived: vec![false; packets], arrived: 0, duplicates: 0, damaged: 0 }
    }

    /// Counts a packet and copies it to its place in `memory`, which has the buffers one after the other.
    fn take(&mut self, packet: &[u8], memory: &mut [u8]) {
        let number = number_of(packet, self.attempt).filter(|_| packet.len() == self.packet_bytes);
        let number = number.and_then(|number| usize::try_from(number).ok());
        match number.and_then(|number| Some((number, self.has_arrived.get_mut(number)?))) {
            None => self.damaged += 1,
            Some((_, true)) => self.duplicates += 1,
            Some((number, has_arrived)) => {
                *has_arrived = true;
                self.arrived += 1;
                let at = number % self.buffers * self.packet_bytes;
                memory[at..at + self.packet_bytes].copy_from_slice(packet);
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.arrived == self.has_arrived.len() as u64
    }

    /// True if nothing was damaged or came twice, and every buffer to which a packet belongs that arrived holds one of
    /// these, whole.
    fn is_right(&self, memory: &[u8]) -> bool {
        let mut is_used = vec![false; self.buffers];
        self.has_arrived
            .iter()
            .enumerate()
            .filter(|(_, has)| **has)
            .for_each(|(number, _)| is_used[number % self.buffers] = true);
        let filling = filling(self.packet_bytes);
        let middle = HEAD_BYTES..self.packet_bytes - CHECK_BYTES;
        let is_right = |(index, packet): (usize, &[u8])| {
            let number = number_of(packet, self.attempt).and_then(|number| usize::try_from(number).ok());
            let belongs = number.is_some_and(|n| n % self.buffers == index && self.has_arrived.get(n) == Some(&true));
            belongs && packet[middle.clone()] == filling[middle.clone()]
        };
        let counted = self.has_arrived.iter().filter(|has| **has).count() as u64 == self.arrived;
        let packets = memory.chunks_exact(self.packet_bytes).take(self.buffers).enumerate();
        self.damaged == 0 && self.duplicates == 0 && counted && packets.filter(|(index, _)| is_used[*index]).all(is_right)
    }
}

/// The receiving end: one attempt after the other.
fn serve(peer: &mut Peer) -> Result<(), Failure> {
    // Kept from attempt to attempt, so that its pages are there.
    let mut memory = Vec::new();
    while let Some(order) = peer.hear()? {
        let count = |name: &str| order[name].as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let parts = (count("packets"), count("packet_bytes"), count("buffers"), count("receive_buffer_bytes"));
        let (Some(packets), Some(packet_bytes @ PACKET_BYTES_MIN..=PACKET_BYTES_MAX), Some(buffers), Some(receive_buffer_bytes)) =
            parts
        else {
            return Err(Failure::new(
                Exit::Usage,
                "an attempt cannot be made",
                order.to_string(),
                "start the same version at both ends",
            ));
        };
        let polls = order["wait"] == name_of(UdpWait::Polling).as_str();
        let address = SocketAddr::new(peer.own, 0);
        let cannot = |error: io::Error| failed("cannot receive", &error);
        // Those of runs have the same names there; the other one is `recv`.
        let of_runs = order["backend"].as_str().and_then(Receive::from_name);
        let (mut source, port) = if let Some(receive) = of_runs {
            let opened = backend::open(receive, &[address], receive_buffer_bytes)?;
            let stream = opened.streams.into_iter().next().expect("one stream for one address");
            (stream.source, stream.address.port())
        } else {
            let source = Recv::bind(address, packet_bytes, polls).map_err(cannot)?;
            let port = source.socket.local_addr().map_err(cannot)?.port();
            (Box::new(source) as Box<dyn Source>, port)
        };
        make_room(&mut memory, buffers.saturating_mul(packet_bytes))?;
        let mut account = Account::new(order["attempt"].as_u64().unwrap_or_default(), packets, packet_bytes, buffers);
        let is_sent = AtomicBool::new(false);
        let wait = if polls { Duration::ZERO } else { WAIT };
        let core = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&mut *source, wait, &mut account, &mut memory, &is_sent));
            // Also when the other end is gone, or the receiver would wait for ever.
            let sent = peer.tell(&json!({ "port": port })).and_then(|()| peer.answer());
            is_sent.store(true, Ordering::Release);
            let core = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.and_then(|_| core.map_err(cannot))
        })?;
        let is_right = account.is_right(&memory);
        peer.tell(&json!({ "arrived": account.arrived, "right": is_right, "core": core }))?;
    }
    Ok(())
}

/// Makes `memory` as large as this, with pages that were touched.
///
/// # Errors
/// It would take more than half of the memory that is free.
pub fn make_room(memory: &mut Vec<u8>, bytes: usize) -> Result<(), Failure> {
    let available = machine::bytes_after(Path::new("/proc/meminfo"), "MemAvailable").unwrap_or(u64::MAX);
    if bytes > memory.len() && bytes as u64 > available / 2 {
        let why = format!("they need {}, and {} are free", text::bytes(bytes as u64), text::bytes(available));
        return Err(Failure::new(Exit::Usage, "there is no memory for the buffers", why, "give fewer --buffers"));
    }
    // Not 0, or the pages would be made only when they are written to.
    memory.resize(bytes.max(memory.len()), 1);
    Ok(())
}

/// Receives until all packets are there, or all were sent and it is quiet. Returns what this thread used of a core.
fn receive(
    source: &mut dyn Source,
    wait: Duration,
    account: &mut Account,
    memory: &mut [u8],
    is_sent: &AtomicBool,
) -> io::Result<Option<f64>> {
    let (start, before) = (Instant::now(), processor_ns());
    let mut quiet_since = None;
    while !account.is_whole() {
        // Looked at before the socket: what was sent before must be seen.
        let is_last = is_sent.load(Ordering::Acquire);
        let count = source.receive(wait, &mut |packet, _| account.take(packet, memory))?;
        if count > 0 || !is_last {
            quiet_since = None;
        } else if quiet_since.get_or_insert_with(Instant::now).elapsed() > QUIET {
            break;
        }
    }
    let used = before.zip(processor_ns()).map(|(before, after)| (after - before) as f64 / 1e9);
    Ok(used.map(|seconds| seconds / start.elapsed().as_secs_f64()))
}

/// Processor time of this thread so far, if the kernel counts it.
pub fn processor_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// The plain way: a call of `recv` for each datagram, with the receive buffer that every socket has.
struct Recv {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

impl Recv {
    fn bind(address: SocketAddr, packet_bytes: usize, polls: bool) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(polls)?;
        socket.set_read_timeout(Some(WAIT))?;
        // One byte more, so that a longer datagram is seen to be longer.
        Ok(Self { socket, buffer: vec![0; packet_bytes + 1] })
    }
}

impl Source for Recv {
    fn receive(&mut self, _timeout: Duration, take: &mut dyn FnMut(&[u8], Sender)) -> io::Result<usize> {
        match self.socket.recv(&mut self.buffer) {
            Ok(length) => {
                take(&self.buffer[..length], Sender::NONE);
                Ok(1)
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    fn dropped(&mut self) -> u64 {
        0
    }
}

/// All searches of one setting.
struct Row {
    setting: Setting,
    found: Vec<Found>,
}

impl Row {
    fn verified(&self) -> bool {
        self.found.iter().flat_map(|found| &found.0).all(|attempt| attempt.verified)
    }

    fn spread(&self, value: impl Fn(&Found) -> Option<f64>) -> Spread {
        Spread::of(self.found.iter().filter_map(value))
    }

    fn drops_from(&self) -> Spread {
        self.spread(Found::drops_from)
    }

    fn loss_free(&self) -> Spread {
        self.spread(|found| found.loss_free().map(|attempt| attempt.gbit_per_s))
    }

    fn core(&self) -> Spread {
        self.spread(|found| found.loss_free()?.core)
    }

    fn unpaced(&self) -> Spread {
        self.spread(|found| found.0.first().map(|attempt| attempt.gbit_per_s))
    }

    fn unpaced_lost(&self) -> Spread {
        self.spread(|found| found.0.first().map(|attempt| attempt.lost as f64 / attempt.packets as f64))
    }

    fn to_json(&self) -> Value {
        let paper =
            self.setting.paper().map(|(socket, tuned, vma)| json!({ "socket": socket, "tuned_kernel": tuned, "vma": vma }));
        json!({
            "name": self.setting.name(), "packet_bytes": self.setting.packet_bytes, "buffers": self.setting.buffers,
            "drops_from_gigabits_per_second": self.drops_from().to_json(), "loss_free_gigabits_per_second": self.loss_free().to_json(),
            "unpaced_gigabits_per_second": self.unpaced().to_json(), "unpaced_lost": self.unpaced_lost().to_json(),
            "core": self.core().to_json(), "paper_gigabits_per_second": paper, "verified": self.verified(),
        })
    }

    fn line(&self) -> Vec<String> {
        let setting = &self.setting;
        let paper = setting.paper().map_or(String::new(), |(socket, tuned, vma)| {
            format!("{}, {tuned}, {vma}", socket.map_or("-".into(), |socket| socket.to_string()))
        });
        let (drops_from, core) = (self.drops_from(), self.core().median);
        let core = if core.is_finite() { format!("{:.0} %", 100.0 * core) } else { "-".into() };
        vec![
            text::count(setting.packet_bytes as u64),
            text::count(setting.buffers as u64),
            format!("{}, {}", name_of(setting.backend), name_of(setting.wait)),
            if drops_from.median.is_finite() { drops_from.to_text(1) } else { "none".into() },
            self.loss_free().to_text(1),
            format!("{:.1}", self.unpaced().median),
            format!("{:.1} %", 100.0 * self.unpaced_lost().median),
            core,
            paper,
            if self.verified() { "whole".into() } else { "WRONG".into() },
        ]
    }
}

fn to_text(rows: &[Row], network: &str, packets: u64, repeats: usize) -> String {
    let head = [
        "bytes",
        "buffers",
        "receiver",
        "drops from Gb/s",
        "loss-free Gb/s",
        "unpaced Gb/s",
        "lost",
        "of a core",
        "paper: socket, tuned, VMA",
        "packets",
    ];
    let head = head.map(str::to_string).to_vec();
    let table = text::table(&std::iter::once(head).chain(rows.iter().map(Row::line)).collect::<Vec<_>>());
    format!(
        "{}\nnetwork: {network}\nat most {} packets in each attempt; median (lowest .. highest) of {repeats} searches\n\n{table}\n\nof a core: the \
         receiving thread at the highest loss-free rate; the kernel's own work on packets is not in it\n{OTHERS}",
        machine::line(),
        text::count(packets)
    )
}

/// The highest rates without loss against packet size, and the paper's lowest rates with drops.
fn draw(rows: &[Row]) -> konkordia_picture::Picture {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in rows {
        let Setting { packet_bytes, buffers, backend, wait, .. } = row.setting;
        let name = format!("{buffers} buffer(s), {}, {}", name_of(backend), name_of(wait));
        let point = (packet_bytes as f64, row.loss_free().median);
        match lines.iter_mut().find(|line| line.0 == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    let paper = |name: &str, buffers: usize, value: fn(&PaperRow) -> Option<f64>| {
        let rows = PAPER.iter().filter(|row| row.1 == buffers);
        (format!("paper, {name}"), rows.filter_map(|row| Some((row.0 as f64, value(row)?))).collect())
    };
    lines.push(paper("socket", 1, |row| row.2));
    lines.push(paper("tuned kernel", 1, |row| Some(row.3)));
    lines.push(paper("tuned kernel, 100 000", 100_000, |row| Some(row.3)));
    lines.push(paper("VMA", 1, |row| Some(row.4)));
    let series: Vec<Series<'_>> =
        lines.iter().map(|(name, points)| Series { name, points: points.clone(), line: true }).collect();
    let (x, y) = (Axis { label: "bytes of a packet", log: true }, Axis { label: "Gb/s", log: true });
    konkordia_picture::chart("Datagrams without loss; the paper: lowest rate with drops", &x, &y, &series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(attempt: u64, number: u64) -> Vec<u8> {
        let mut packet = filling(64);
        stamp(&mut packet, attempt, number);
        packet
    }

    #[test]
    fn every_packet_is_counted_once_and_lies_in_its_buffer() {
        let (mut account, mut memory) = (Account::new(7, 5, 64, 2), vec![1; 128]);
        for number in [0, 3, 1, 4] {
            account.take(&packet(7, number), &mut memory);
        }
        assert_eq!((account.arrived, account.damaged, account.duplicates), (4, 0, 0));
        assert!(account.is_right(&memory) && !account.is_whole());
        // A bit that changed, in the filling and in the number.
        for at in [30, 8] {
            memory[at] ^= 1;
            assert!(!account.is_right(&memory), "byte {at}");
            memory[at] ^= 1;
        }
        // A packet in the buffer of another.
        let (first, second) = memory.split_at_mut(64);
        first.swap_with_slice(second);
        assert!(!account.is_right(&memory));
    }

    #[test]
    fn what_does_not_belong_to_an_attempt_is_noticed() {
        let mut longer = packet(7, 1);
        longer.push(0);
        let mut changed = packet(7, 1);
        changed[8] ^= 1;
        for wrong in [packet(6, 1), packet(7, 5), longer, changed, vec![], vec![0; 20]] {
            let (mut account, mut memory) = (Account::new(7, 5, 64, 2), vec![1; 128]);
            account.take(&wrong, &mut memory);
            assert_eq!((account.arrived, account.damaged), (0, 1), "{wrong:?}");
            assert!(!account.is_right(&memory) && memory == [1; 128]);
        }
        let (mut account, mut memory) = (Account::new(7, 5, 64, 2), vec![1; 128]);
        (0..2).for_each(|_| account.take(&packet(7, 1), &mut memory));
        assert!(account.duplicates == 1 && !account.is_right(&memory));
    }

    #[test]
    fn the_search_looks_between_the_rates() {
        let attempt = |gbit_per_s: f64, lost: u64| Attempt { gbit_per_s, packets: 10, lost, core: None, verified: true };
        let found = Found(vec![attempt(8.0, 4), attempt(4.0, 0), attempt(5.6, 1), attempt(4.8, 0)]);
        assert_eq!((found.drops_from(), found.loss_free().map(|a| a.gbit_per_s)), (Some(5.6), Some(4.8)));
        let row = Row { setting: settings_of_a_test(), found: vec![found, Found(vec![attempt(9.0, 0)])] };
        assert_eq!((row.drops_from().median, row.loss_free().highest, row.unpaced_lost().highest), (5.6, 9.0, 0.4));
        assert!(row.line().contains(&"7.2, 10.9, 26.7".to_string()), "{:?}", row.line());
    }

    fn settings_of_a_test() -> Setting {
        let (backend, wait) = (UdpBackend::Socket, UdpWait::Blocking);
        Setting { packet_bytes: 2048, buffers: 1, backend, wait, packets: 10, receive_buffer_bytes: 1 << 20 }
    }
}
