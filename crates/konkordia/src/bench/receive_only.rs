//! `konkordia bench pipeline --receive-only`: the cost of receiving without conversion. A run receives, assembles,
//! counts and discards frames: all but the last few are warm-up, which is not converted. Beside it, in turns and from
//! the same sender, a plain loop calls the same source and counts datagrams. What the run takes more than the loop is
//! the cost of assembling.

use super::args::BenchPipelineArgs;
use super::frames::in_folder;
use super::output::Output;
use super::pipeline::{Bench, SENDER_REACHES, search};
use super::spread::Spread;
use super::threads::{self, Used, Watch};
use crate::console;
use crate::simulate::send::{Pace, Senders, Sent, send};
use konkordia_acquire::machine;
use konkordia_acquire::run::arm::{self, Ports};
use konkordia_core::failure::{Exit, Failure, reason};
use konkordia_core::ports::Source;
use konkordia_core::text;
use konkordia_engine::control::Control;
use konkordia_sources::udp::UdpReceiver;
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Frames at the end that become images; a run without any image has no file.
const IMAGES_KEPT: u64 = 10;
/// Without a rate, the repeats have this part of the highest rate that neither of the two loses data at.
const RATE_FRACTION: f64 = 0.8;
/// Longest wait of the plain loop for a datagram, as that of a run.
const WAIT: Duration = Duration::from_millis(2);
/// How often the threads are looked at, as in a run.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The plain loop ends when nothing has come for so long after the last packet was sent.
const QUIET: Duration = Duration::from_millis(200);

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// The receivers of a run.
    Run,
    /// Loops that count datagrams.
    Plain,
}

impl Receiver {
    const BOTH: [Self; 2] = [Self::Run, Self::Plain];

    /// What its threads are called in [`threads`].
    const fn role(self) -> &'static str {
        match self {
            Self::Run => "rx",
            Self::Plain => "plain",
        }
    }

    /// For people.
    const fn name(self) -> &'static str {
        match self {
            Self::Run => "receive only",
            Self::Plain => "plain loop",
        }
    }
}

/// How the frames of an attempt ended.
#[derive(Clone, Copy, Debug)]
struct Frames {
    skipped: u64,
    kept: u64,
    packets_missing: u64,
}

/// One attempt of one receiver.
#[derive(Clone, Debug)]
struct Attempt {
    rate_hz: f64,
    sent: Sent,
    /// Frames that were to be sent.
    frames: u64,
    packets_received: u64,
    kernel_dropped: u64,
    /// What became of the frames; the plain loop knows none.
    counted: Option<Frames>,
    /// Processor time of the receiving threads; `None` if the attempt was too short.
    used: Option<Used>,
}

impl Attempt {
    fn packets_lost(&self) -> u64 {
        self.sent.packets.saturating_sub(self.packets_received)
    }

    /// Did every packet come, and is every frame counted with all of them?
    fn lossless(&self) -> bool {
        let is_whole = |counted: &Frames| counted.packets_missing == 0 && counted.skipped + counted.kept == self.frames;
        self.packets_received == self.sent.packets && self.counted.as_ref().is_none_or(is_whole)
    }

    fn sent_hz(&self) -> f64 {
        self.sent.images as f64 / self.sent.seconds.max(1e-9)
    }

    /// Lossless, with a sender that was as fast as it was asked to be.
    fn is_good(&self) -> bool {
        self.lossless() && self.sent_hz() >= self.rate_hz * SENDER_REACHES
    }

    fn to_json(&self) -> Value {
        json!({
            "rate_hz": self.rate_hz, "sent_hz": self.sent_hz(), "frames": self.frames,
            "packets_sent": self.sent.packets,
            "packets_received": self.packets_received, "packets_lost": self.packets_lost(),
            "kernel_dropped": self.kernel_dropped,
            "frames_skipped": self.counted.map(|c| c.skipped), "frames_kept": self.counted.map(|c| c.kept),
            "packets_missing": self.counted.map(|c| c.packets_missing), "lossless": self.lossless(),
            "cores": self.used.map(|used| used.cores), "image_us": self.used.map(|used| used.image_us),
        })
    }
}

/// All attempts of one receiver.
struct Found {
    receiver: Receiver,
    /// Attempts of the search; none if the rate was given.
    searched: Vec<Attempt>,
    repeats: Vec<Attempt>,
}

impl Found {
    fn highest_hz(&self) -> Option<f64> {
        self.searched.iter().filter(|attempt| attempt.lossless()).map(Attempt::sent_hz).max_by(f64::total_cmp)
    }

    fn spread(&self, figure: impl Fn(Used) -> f64) -> Spread {
        Spread::of(self.repeats.iter().filter_map(|attempt| attempt.used).map(figure))
    }

    fn sent_hz(&self) -> Spread {
        Spread::of(self.repeats.iter().map(Attempt::sent_hz))
    }

    fn sum(&self, count: impl Fn(&Attempt) -> u64) -> u64 {
        self.repeats.iter().map(count).sum()
    }

    fn to_json(&self) -> Value {
        let all = |attempts: &[Attempt]| attempts.iter().map(Attempt::to_json).collect::<Vec<_>>();
        json!({
            "image_us": self.spread(|used| used.image_us).to_json(), "cores": self.spread(|used| used.cores).to_json(),
            "sent_hz": self.sent_hz().to_json(), "packets_lost": self.sum(Attempt::packets_lost),
            "packets_received": self.sum(|attempt| attempt.packets_received),
            "highest_loss_free_hz": self.highest_hz(), "attempts": all(&self.repeats), "searched": all(&self.searched),
        })
    }

    fn row(&self) -> Vec<String> {
        let not_whole = self.repeats.iter().filter(|attempt| !attempt.lossless()).count();
        vec![
            self.receiver.name().into(),
            self.sent_hz().to_text(0),
            self.spread(|used| used.image_us).to_text(1),
            self.spread(|used| used.cores).to_text(3),
            text::count(self.sum(|attempt| attempt.packets_received)),
            text::count(self.sum(Attempt::packets_lost)),
            if not_whole == 0 { "none".into() } else { format!("{not_whole} of {}", self.repeats.len()) },
            self.highest_hz().map_or("-".into(), |hz| format!("{hz:.0} Hz")),
        ]
    }
}

/// Both receivers with one number of modules.
struct Comparison {
    modules: u32,
    packets_per_image: u64,
    rate_hz: f64,
    run: Found,
    plain: Found,
}

impl Comparison {
    fn lossless(&self) -> bool {
        self.run.repeats.iter().chain(&self.plain.repeats).all(Attempt::lossless)
    }

    /// Processor time of an image in the run, of that in the plain loop; each repeat with its own.
    fn ratio(&self) -> Spread {
        let pairs = self.run.repeats.iter().zip(&self.plain.repeats);
        Spread::of(pairs.filter_map(|(run, plain)| Some(run.used?.image_us / plain.used?.image_us)))
    }

    fn to_json(&self) -> Value {
        json!({
            "modules": self.modules, "packets_per_image": self.packets_per_image, "rate_hz": self.rate_hz,
            "lossless": self.lossless(),
            "receive_only": self.run.to_json(), "plain": self.plain.to_json(), "ratio": self.ratio().to_json(),
        })
    }

    fn to_text(&self, repeats: usize) -> String {
        let head = [
            "",
            "us of an image",
            "cores",
            "packets received",
            "packets lost",
            "attempts with loss",
            "highest rate without loss",
        ];
        let rows = [head.map(str::to_string).to_vec(), self.run.row(), self.plain.row()];
        format!(
            "\n{} module(s) at {:.0} Hz, {repeats} repeat(s): processor time of the receiving threads, median \
             (lowest .. highest)\n{}\nreceive only / plain loop: {}",
            self.modules,
            self.rate_hz,
            text::table(&rows),
            self.ratio().to_text(2)
        )
    }
}

/// `konkordia bench pipeline --receive-only`
pub fn command(args: &BenchPipelineArgs) -> Result<Exit, Failure> {
    in_folder(args.run.dir.as_deref(), |folder| measure(args, folder))
}

fn measure(args: &BenchPipelineArgs, folder: &Path) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "receive-only")?;
    let repeats = args.repeats.max(1);
    if !args.output.json {
        let network = "network: loopback (software stand-in), sender on the same processors";
        console::to_stdout(&format!("{}\n{network}", machine::line()));
    }
    let mut compared = Vec::new();
    for &modules in &args.modules {
        let bench = Bench::new(&args.run, folder, modules)?;
        let receive_buffer_bytes = args.run.receive_buffer_mib << 20;
        let mut bench = ReceiveBench { bench, seconds: args.seconds, receive_buffer_bytes };
        let one = bench.compare(modules, args.rate, repeats)?;
        if !args.output.json {
            console::to_stdout(&one.to_text(repeats));
        }
        compared.push(one);
    }
    let lossless = compared.iter().all(Comparison::lossless);
    let report = json!({
        "bench": "receive-only", "machine": machine::facts(), "network": "loopback",
        "seconds": args.seconds, "repeats": repeats, "lossless": lossless,
        "results": compared.iter().map(Comparison::to_json).collect::<Vec<_>>(),
    });
    // People have seen the tables of each number of modules.
    output.print(report, "");
    Ok(if lossless { Exit::Complete } else { Exit::Incomplete })
}

/// Sends the same frames to one receiver or the other.
struct ReceiveBench<'a> {
    bench: Bench<'a>,
    seconds: f64,
    receive_buffer_bytes: usize,
}

impl ReceiveBench<'_> {
    fn compare(&mut self, modules: u32, rate_hz: Option<f64>, repeats: usize) -> Result<Comparison, Failure> {
        let mut found = Receiver::BOTH.map(|receiver| Found { receiver, searched: Vec::new(), repeats: Vec::new() });
        let rate_hz = match rate_hz {
            Some(rate_hz) => rate_hz,
            None => {
                for of in &mut found {
                    of.searched = search(Attempt::is_good, &mut |rate_hz| self.attempt(of.receiver, rate_hz))?;
                }
                let highest_hz = found.iter().map(|of| of.highest_hz().unwrap_or(0.0)).fold(f64::INFINITY, f64::min);
                (RATE_FRACTION * highest_hz).max(1.0)
            }
        };
        for repeat in 0..repeats {
            // Neither of the two is always the first.
            for turn in 0..found.len() {
                let of = &mut found[(repeat + turn) % Receiver::BOTH.len()];
                of.repeats.push(self.attempt(of.receiver, rate_hz)?);
            }
        }
        let [run, plain] = found;
        Ok(Comparison { modules, packets_per_image: self.packets_per_image(), rate_hz, run, plain })
    }

    fn packets_per_image(&self) -> u64 {
        (self.bench.feed.streams() * self.bench.feed.packets_per_tile()) as u64
    }

    fn attempt(&mut self, receiver: Receiver, rate_hz: f64) -> Result<Attempt, Failure> {
        let frames = ((rate_hz * self.seconds) as u64).max(2 * IMAGES_KEPT);
        let attempt = match receiver {
            Receiver::Run => self.run(rate_hz, frames),
            Receiver::Plain => self.plain(rate_hz, frames),
        }?;
        let verdict = match (attempt.lossless(), attempt.is_good()) {
            (false, _) => "lost data",
            (true, false) => "sender at its limit",
            (true, true) => "loss-free",
        };
        console::to_stderr(&format!("  {}, {rate_hz:.0} Hz: {verdict}", receiver.name()));
        Ok(attempt)
    }

    /// A run of which all frames but the last are skipped.
    fn run(&mut self, rate_hz: f64, frames: u64) -> Result<Attempt, Failure> {
        let more = format!("[frames]\nwarmup_frames = {}\nwarmup = \"skip\"\n", frames - IMAGES_KEPT);
        let config = self.bench.config(IMAGES_KEPT, &more)?;
        let prepared = arm::prepare(&config, Ports::Free, console::note)?;
        let (mut watch, begun, packets_per_image) = (Watch::default(), Instant::now(), self.packets_per_image());
        let mut look = |control: &Control| {
            watch.look(begun.elapsed(), control.progress().packets.received / packets_per_image, threads::now());
        };
        let (outcome, sent, _) = self.bench.carry_out(&config, prepared, &[(rate_hz, frames)], &mut look)?;
        let sent = sent[0];
        let (counted, total) = (outcome.ledger.frames, outcome.ledger.total());
        Ok(Attempt {
            rate_hz,
            sent,
            frames,
            packets_received: total.received,
            kernel_dropped: total.kernel_dropped,
            counted: Some(Frames {
                skipped: counted.skipped,
                kept: counted.kept,
                packets_missing: counted.packets_missing + counted.absent * packets_per_image,
            }),
            used: watch.used(Receiver::Run.role()),
        })
    }

    /// One plain loop for each stream.
    fn plain(&mut self, rate_hz: f64, frames: u64) -> Result<Attempt, Failure> {
        let bind = |_| UdpReceiver::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), self.receive_buffer_bytes);
        let receivers = (0..self.bench.feed.streams()).map(bind).collect::<io::Result<Vec<_>>>();
        let receivers = receivers.map_err(|error| failed(&error))?;
        let addresses = receivers.iter().map(UdpReceiver::local_addr).collect::<io::Result<Vec<_>>>();
        let mut senders = Senders::connect(&addresses.map_err(|error| failed(&error))?, &[])?;
        let (packets_per_image, feed) = (self.packets_per_image(), &mut self.bench.feed);
        let counts: Vec<AtomicU64> = receivers.iter().map(|_| AtomicU64::new(0)).collect();
        let received = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        let is_over = &AtomicBool::new(false);
        let mut watch = Watch::default();
        let (sent, dropped) = std::thread::scope(|scope| {
            // The loops end whatever happens here.
            let _end = EndOnDrop(is_over);
            let mut loops = Vec::new();
            for (n, (mut receiver, count)) in receivers.into_iter().zip(&counts).enumerate() {
                let of_thread = move || discard(&mut receiver, count, is_over);
                let named = std::thread::Builder::new().name(format!("plain-{n}"));
                loops.push(named.spawn_scoped(scope, of_thread).map_err(|error| failed(&error))?);
            }
            let named = std::thread::Builder::new().name("simulate".into());
            let sending = move || send(feed, &mut senders, &Pace::at(rate_hz), 0..frames, &mut |_| true);
            let sender = named.spawn_scoped(scope, sending).map_err(|error| failed(&error))?;
            let begun = Instant::now();
            loop {
                std::thread::sleep(LOOK_INTERVAL);
                if sender.is_finished() {
                    break;
                }
                watch.look(begun.elapsed(), received() / packets_per_image, threads::now());
            }
            let sent = joined(sender)?;
            wait_until_quiet(&received, sent.packets);
            is_over.store(true, Ordering::Relaxed);
            let dropped = loops.into_iter().map(joined).sum::<io::Result<u64>>().map_err(|error| failed(&error))?;
            Ok::<_, Failure>((sent, dropped))
        })?;
        let (packets_received, used) = (received(), watch.used(Receiver::Plain.role()));
        Ok(Attempt { rate_hz, sent, frames, packets_received, kernel_dropped: dropped, counted: None, used })
    }
}

/// Sets a flag when it goes out of scope.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The plain loop: takes all datagrams and counts them. Returns how many the kernel dropped.
fn discard(receiver: &mut UdpReceiver, count: &AtomicU64, is_over: &AtomicBool) -> io::Result<u64> {
    let mut datagrams = 0;
    while !is_over.load(Ordering::Relaxed) {
        datagrams += receiver.receive(WAIT, &mut |_, _| ())? as u64;
        count.store(datagrams, Ordering::Relaxed);
    }
    Ok(receiver.dropped())
}

/// Waits until all `packets` have come, or none comes any more.
fn wait_until_quiet(received: &dyn Fn() -> u64, packets: u64) {
    let (mut before, mut since) = (received(), Instant::now());
    while before < packets && since.elapsed() < QUIET {
        std::thread::sleep(WAIT);
        let now = received();
        if now > before {
            (before, since) = (now, Instant::now());
        }
    }
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(Exit::Io, "the plain loop cannot receive", reason(error), "look at the system log (dmesg)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(packets_received: u64, counted: Option<Frames>) -> Attempt {
        let sent = Sent { images: 100, packets: 12_800, bytes: 0, seconds: 1.0 };
        Attempt { rate_hz: 100.0, sent, frames: 100, packets_received, kernel_dropped: 0, counted, used: None }
    }

    #[test]
    fn nothing_is_lost_only_if_all_packets_came_and_all_frames_are_counted() {
        let counted = |skipped, packets_missing| Some(Frames { skipped, kept: 10, packets_missing });
        assert!(attempt(12_800, counted(90, 0)).is_good() && attempt(12_800, None).is_good());
        for bad in [attempt(12_799, None), attempt(12_800, counted(89, 0)), attempt(12_800, counted(90, 1))] {
            assert!(!bad.lossless() && !bad.is_good(), "{bad:?}");
        }
        assert_eq!(attempt(12_000, None).packets_lost(), 800);
        let slow = Attempt { rate_hz: 200.0, ..attempt(12_800, None) };
        assert!(slow.lossless() && !slow.is_good());
    }

    #[test]
    fn a_repeat_is_compared_with_the_plain_loop_beside_it() {
        let with = |image_us: f64| Attempt { used: Some(Used { cores: 0.1, image_us }), ..attempt(12_800, None) };
        let found = |receiver, us: [f64; 3]| {
            let repeats = us.map(with).to_vec();
            Found { receiver, searched: vec![with(1.0)], repeats }
        };
        let (run, plain) = (found(Receiver::Run, [3.0, 4.0, 9.0]), found(Receiver::Plain, [2.0, 2.0, 3.0]));
        let compared = Comparison { modules: 1, packets_per_image: 128, rate_hz: 100.0, run, plain };
        assert_eq!(compared.ratio(), Spread { median: 2.0, lowest: 1.5, highest: 3.0, deviation: 0.5 });
        let report = compared.to_json();
        assert_eq!((&report["plain"]["packets_received"], &report["lossless"]), (&json!(38_400), &json!(true)));
        assert_eq!(report["receive_only"]["highest_loss_free_hz"], 100.0);
        assert!(compared.to_text(3).contains("receive only / plain loop: 2.00 (1.50 .. 3.00)"));
    }
}
