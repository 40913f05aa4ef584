//! `konkordia bench net`: latency and bandwidth against message size for TCP, datagrams and the patterns of ZeroMQ. The
//! methods are those of the OSU micro-benchmarks: half of the time of a message and its answer, and many messages one
//! after the other followed by one answer. REQ and REP take turns, so their window is one message.
//!
//! Messages are numbered in their first bytes. Each end checks the numbers of all messages, and every byte of the last
//! message of each repeat.

use super::args::{BenchNetArgs, NetTransport, PACKET_BYTES_MAX};
use super::links::{Link, open_far, open_near};
use super::output::Output;
use super::peer::{self, Peer, failed, filling};
use super::spread::Spread;
use crate::console::Progress;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_picture::{Axis, Series};
use serde_json::{Value, json};
use std::io;
use std::time::Instant;

/// The largest message, if none are named.
const BYTES_MAX: usize = 4 << 20;
/// Bytes of the answer to a window: the number of messages that came.
const ANSWER_BYTES: usize = 8;
/// Messages and answers of a repeat: so much data, but no fewer and no more.
const LATENCY_BYTES: usize = 16 << 20;
const ROUNDS: (usize, usize) = (20, 1000);
/// Windows of a repeat.
const BANDWIDTH_BYTES: usize = 64 << 20;
const WINDOWS: (usize, usize) = (2, 50);
/// Bytes of a window: so much may wait in the queues of ZeroMQ.
const WINDOW_BYTES_MAX: usize = 256 << 20;
/// What others report.
const OTHERS: &str = "EUCALL D5.2 (ELI-ALPS): 6317 MB/s from host to host by MPI over InfiniBand, of 8 GB/s that PCIe allows; best from 16 KiB on with MPI, \
                      from 2 KiB with verbs\nPonsard et al. 2020: ZeroMQ below 6 Gb/s with REQ and REP, slightly more with PUSH and PULL, below 10 Gb/s";

/// `konkordia bench net`
pub fn command(args: &BenchNetArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    if let Some(address) = args.listen {
        return peer::listen("net", address, serve, args.output.json);
    }
    let output = Output::open(&args.output, "net")?;
    let sizes = match (args.sizes.is_empty(), args.quick) {
        (false, _) => args.sizes.clone(),
        (true, true) => vec![1, 1024, 65536],
        (true, false) => std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= BYTES_MAX).collect(),
    };
    let repeats = if args.quick { 2 } else { args.repeats.max(1) };
    let rows = peer::with_peer("net", args.to, serve, |peer| {
        let mut rows = Vec::new();
        let mut progress = Progress::new(args.output.json);
        for &transport in &args.transports {
            let mut link = open_near(peer, transport)?;
            for &bytes in sizes.iter().filter(|bytes| transport != NetTransport::Udp || **bytes <= PACKET_BYTES_MAX) {
                progress.update(|| format!("{}, {bytes} bytes", transport.name()));
                let plan = Plan::new(transport, bytes, args.window, args.quick);
                let repeats = (0..repeats).map(|_| measure(peer, &mut *link, &plan)).collect::<Result<Vec<_>, _>>()?;
                rows.push(Row { plan, repeats });
            }
        }
        progress.end();
        Ok(rows)
    })?;
    let verified = rows.iter().all(Row::verified);
    let network = peer::network(args.to);
    if let Some(png) = &args.png {
        draw(&rows, &network).write(png)?;
    }
    let report = json!({
        "bench": "net", "machine": machine::facts(), "network": network, "repeats": repeats,
        "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "others": OTHERS, "verified": verified,
    });
    output.print(report, &to_text(&rows, &network, repeats));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// What is sent for one row.
#[derive(Clone, Copy, Debug)]
struct Plan {
    transport: NetTransport,
    bytes: usize,
    /// Messages with an answer each; a tenth more come first and do not count.
    rounds: usize,
    window: usize,
    /// Windows; one more comes first and does not count.
    windows: usize,
}

impl Plan {
    fn new(transport: NetTransport, bytes: usize, window: usize, is_quick: bool) -> Self {
        let window = if transport == NetTransport::ZmqReq { 1 } else { window.min((WINDOW_BYTES_MAX / bytes).max(1)) };
        let (rounds, windows) = if is_quick {
            (ROUNDS.0, WINDOWS.0)
        } else if window == 1 {
            // Windows of one message are as many as rounds.
            let rounds = (LATENCY_BYTES / bytes).clamp(ROUNDS.0, ROUNDS.1);
            (rounds, rounds)
        } else {
            ((LATENCY_BYTES / bytes).clamp(ROUNDS.0, ROUNDS.1), (BANDWIDTH_BYTES / (bytes * window)).clamp(WINDOWS.0, WINDOWS.1))
        };
        Self { transport, bytes, rounds, window, windows }
    }

    /// Messages that do not count.
    fn warm_up(&self) -> usize {
        self.rounds.div_ceil(10)
    }
}

/// What came of one repeat.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Median and 99th percentile of half the time of a message and its answer.
    latency_us: (f64, f64),
    messages_per_s: f64,
    /// Messages and answers that did not come; possible with datagrams only.
    lost: usize,
    verified: bool,
}

fn stamp(message: &mut [u8], number: usize) {
    let bytes = message.len().min(8);
    message[..bytes].copy_from_slice(&(number as u64).to_le_bytes()[..bytes]);
}

/// Is it the message with this number? Its other bytes are compared too where `filling` is given.
fn is_right(message: &[u8], bytes: usize, number: usize, filling: Option<&[u8]>) -> bool {
    let head = bytes.min(8);
    message.len() == bytes
        && message[..head] == (number as u64).to_le_bytes()[..head]
        && filling.is_none_or(|filling| message[head..] == filling[head..])
}

/// One repeat at the near end.
fn measure(peer: &mut Peer, link: &mut dyn Link, plan: &Plan) -> Result<Measured, Failure> {
    let broken = |error: io::Error| failed(&format!("{}, {} bytes", plan.transport.name(), plan.bytes), &error);
    peer.tell(&json!({ "test": "latency", "bytes": plan.bytes, "count": plan.warm_up() + plan.rounds }))?;
    let (mut times_us, near_right) = ping(link, plan).map_err(broken)?;
    let latency_is_right = peer.answer()?["right"] == true && near_right;
    let lost = usize::from(times_us.len() < plan.rounds);
    peer.tell(&json!({ "test": "bandwidth", "bytes": plan.bytes, "window": plan.window, "count": plan.windows + 1 }))?;
    let (messages_per_s, lost_there) = fill(link, plan).map_err(broken)?;
    let verified = peer.answer()?["right"] == true && latency_is_right;
    times_us.sort_by(f64::total_cmp);
    let quantile = |part: f64| times_us.get(((times_us.len() as f64 * part) as usize).min(times_us.len().saturating_sub(1)));
    let latency_us = (quantile(0.5).copied().unwrap_or(f64::NAN), quantile(0.99).copied().unwrap_or(f64::NAN));
    Ok(Measured { latency_us, messages_per_s, lost: lost + lost_there, verified })
}

/// Messages and answers in turn: half of each time, and whether the answers were right. It ends with the first answer
/// that does not come.
fn ping(link: &mut dyn Link, plan: &Plan) -> io::Result<(Vec<f64>, bool)> {
    let filling = filling(plan.bytes);
    let mut message = filling.clone();
    let (mut times_us, mut right) = (Vec::with_capacity(plan.rounds), true);
    let count = plan.warm_up() + plan.rounds;
    for number in 0..count {
        stamp(&mut message, number);
        let begin = Instant::now();
        link.send(&message)?;
        let whole = (number + 1 == count).then_some(&filling[..]);
        if link.receive(plan.bytes, &mut |answer| right &= is_right(answer, plan.bytes, number, whole))? == 0 {
            break;
        }
        if number >= plan.warm_up() {
            times_us.push(begin.elapsed().as_secs_f64() / 2.0 * 1e6);
        }
    }
    Ok((times_us, right))
}

/// Windows of messages, each with one answer: messages per second, and how many did not come. It ends with the first
/// window that is not whole.
fn fill(link: &mut dyn Link, plan: &Plan) -> io::Result<(f64, usize)> {
    let mut message = filling(plan.bytes);
    let (mut begin, mut messages) = (Instant::now(), 0);
    for window in 0..=plan.windows {
        if window == 1 {
            begin = Instant::now();
        }
        for number in 0..plan.window {
            stamp(&mut message, window * plan.window + number);
            link.send(&message)?;
        }
        let mut arrived = 0;
        let mut look = |answer: &[u8]| arrived = answer.first_chunk::<8>().map_or(0, |count| u64::from_le_bytes(*count) as usize);
        link.receive(ANSWER_BYTES, &mut look)?;
        if arrived < plan.window {
            return Ok((messages as f64 / begin.elapsed().as_secs_f64(), plan.window - arrived));
        }
        messages = window * plan.window;
    }
    Ok((messages as f64 / begin.elapsed().as_secs_f64(), 0))
}

/// The far end: opens links and answers, as it is told.
fn serve(peer: &mut Peer) -> Result<(), Failure> {
    let mut link: Option<Box<dyn Link>> = None;
    while let Some(order) = peer.hear()? {
        if !order["open"].is_null() {
            // The sockets of the last transport first.
            drop(link.take());
            link = Some(open_far(peer, &order)?);
            continue;
        }
        let count = |name: &str| order[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let Some(link) = &mut link else {
            return Err(Failure::new(
                Exit::Usage,
                "a test without a link",
                order.to_string(),
                "start the same version at both ends",
            ));
        };
        let done = if order["test"] == "latency" {
            answer_each(&mut **link, count("bytes"), count("count"))
        } else {
            answer_windows(&mut **link, count("bytes"), count("window"), count("count"))
        };
        let right = done.map_err(|error| failed(&format!("a test has failed: {order}"), &error))?;
        peer.tell(&json!({ "right": right }))?;
    }
    Ok(())
}

/// Answers each message with one of the same size and number; true if all that came were right. It ends when one does
/// not come.
fn answer_each(link: &mut dyn Link, bytes: usize, count: usize) -> io::Result<bool> {
    let filling = filling(bytes);
    let mut answer = filling.clone();
    let mut right = true;
    for number in 0..count {
        let whole = (number + 1 == count).then_some(&filling[..]);
        if link.receive(bytes, &mut |message| right &= is_right(message, bytes, number, whole))? == 0 {
            break;
        }
        stamp(&mut answer, number);
        link.send(&answer)?;
    }
    Ok(right)
}

/// Answers each window with the number of its messages; true if all that came were right, in any order. It ends with
/// the first window that is not whole.
fn answer_windows(link: &mut dyn Link, bytes: usize, window: usize, count: usize) -> io::Result<bool> {
    let filling = filling(bytes);
    let mut right = true;
    for first in (0..count * window).step_by(window.max(1)) {
        let (mut arrived, mut next) = (0, first);
        while arrived < window {
            let look = &mut |message: &[u8]| {
                let whole = (next + 1 == count * window).then_some(&filling[..]);
                // Messages of a window that were lost or overtaken do not make the others wrong.
                let number = (next..first + window).chain(first..next).find(|n| is_right(message, bytes, *n, whole));
                right &= number.is_some();
                next = number.map_or(next, |number| number + 1);
            };
            let came = link.receive(bytes, look)?;
            if came == 0 {
                break;
            }
            arrived += came;
        }
        link.send(&(arrived as u64).to_le_bytes())?;
        if arrived < window {
            break;
        }
    }
    Ok(right)
}

/// All repeats of one transport and size.
struct Row {
    plan: Plan,
    repeats: Vec<Measured>,
}

impl Row {
    fn verified(&self) -> bool {
        self.repeats.iter().all(|repeat| repeat.verified)
    }

    fn lost(&self) -> usize {
        self.repeats.iter().map(|repeat| repeat.lost).sum()
    }

    /// Of the repeats in which something was measured.
    fn spread(&self, value: impl Fn(&Measured) -> f64) -> Spread {
        Spread::of(self.repeats.iter().map(value).filter(|value| value.is_finite() && *value > 0.0))
    }

    fn latency_us(&self) -> Spread {
        self.spread(|repeat| repeat.latency_us.0)
    }

    fn gigabytes_per_s(&self) -> Spread {
        self.spread(|repeat| repeat.messages_per_s * self.plan.bytes as f64 / 1e9)
    }

    fn to_json(&self) -> Value {
        let Plan { transport, bytes, rounds, window, windows } = self.plan;
        json!({
            "name": format!("{}, {bytes} bytes", transport.name()), "bytes": bytes, "rounds": rounds, "window": window, "windows": windows,
            "latency_us": self.latency_us().to_json(), "latency_p99_us": self.spread(|repeat| repeat.latency_us.1).to_json(),
            "messages_per_second": self.spread(|repeat| repeat.messages_per_s).to_json(),
            "gigabytes_per_second": self.gigabytes_per_s().to_json(), "lost": self.lost(), "verified": self.verified(),
        })
    }
}

/// Transports in the order of their rows.
fn transports(rows: &[Row]) -> Vec<NetTransport> {
    NetTransport::ALL.into_iter().filter(|transport| rows.iter().any(|row| row.plan.transport == *transport)).collect()
}

/// A table of one figure: a line for each size, a column for each transport.
fn table(rows: &[Row], figure: &str, value: impl Fn(&Row) -> String) -> String {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.plan.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let transports = transports(rows);
    let names = transports.iter().map(|transport| transport.name().to_string());
    let head: Vec<String> = std::iter::once(figure.to_string()).chain(names).collect();
    let line = |bytes: &usize| -> Vec<String> {
        let of = |transport: &NetTransport| rows.iter().find(|row| (row.plan.transport, row.plan.bytes) == (*transport, *bytes));
        let cells = transports.iter().map(|transport| of(transport).map_or("-".into(), &value));
        std::iter::once(text::bytes(*bytes as u64)).chain(cells).collect()
    };
    text::table(&std::iter::once(head).chain(sizes.iter().map(line)).collect::<Vec<_>>())
}

fn to_text(rows: &[Row], network: &str, repeats: usize) -> String {
    let latency = table(rows, "latency, us", |row| row.latency_us().to_text(1));
    let bandwidth = table(rows, "GB/s", |row| row.gigabytes_per_s().to_text(3));
    let half = |transport: NetTransport| {
        let own = || rows.iter().filter(move |row| row.plan.transport == transport);
        let most = own().map(|row| row.gigabytes_per_s().median).fold(0.0, f64::max);
        let first = own().find(|row| row.gigabytes_per_s().median >= most / 2.0)?;
        Some(format!("{} from {}", transport.name(), text::bytes(first.plan.bytes as u64)))
    };
    let halves: Vec<String> = transports(rows).into_iter().filter_map(half).collect();
    let wrong: Vec<String> = rows.iter().filter(|row| !row.verified()).map(|row| format!("WRONG: {:?}", row.plan)).collect();
    let lost: usize = rows.iter().map(Row::lost).sum();
    let checked = if wrong.is_empty() { "all messages that came were right".to_string() } else { wrong.join("\n") };
    format!(
        "{}\nnetwork: {network}\nmedian (lowest .. highest) of {repeats}; latency: half of the time of a message and its answer; GB/s: windows of \
         messages, each window with one answer\n\n{latency}\n\n{bandwidth}\n\nhalf of the highest GB/s: {}\n{checked}; {lost} lost\n{OTHERS}",
        machine::line(),
        halves.join(", ")
    )
}

/// Latency above, bandwidth below.
fn draw(rows: &[Row], network: &str) -> konkordia_picture::Picture {
    let chart = |title: &str, label: &str, value: &dyn Fn(&Row) -> f64| {
        let points = |transport: NetTransport| -> Vec<(f64, f64)> {
            let own = rows.iter().filter(|row| row.plan.transport == transport);
            own.map(|row| (row.plan.bytes as f64, value(row))).collect()
        };
        let lines = transports(rows).into_iter().map(|t| Series { name: t.name(), points: points(t), line: true });
        let (x, y) = (Axis { label: "bytes of a message", log: true }, Axis { label, log: true });
        konkordia_picture::chart(title, &x, &y, &lines.collect::<Vec<_>>())
    };
    let place = network.split(' ').next().unwrap_or_default();
    konkordia_picture::stacked(&[
        chart(&format!("Latency, {place}"), "us", &|row: &Row| row.latency_us().median),
        chart(&format!("Bandwidth, {place}"), "GB/s", &|row: &Row| row.gigabytes_per_s().median),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Gives out prepared messages and keeps what is sent.
    struct Prepared {
        messages: VecDeque<Vec<u8>>,
        sent: Vec<Vec<u8>>,
    }

    impl Link for Prepared {
        fn send(&mut self, message: &[u8]) -> io::Result<()> {
            self.sent.push(message.to_vec());
            Ok(())
        }

        fn receive(&mut self, _: usize, look: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
            let message = self.messages.pop_front();
            message.iter().for_each(|message| look(message));
            Ok(usize::from(message.is_some()))
        }
    }

    fn prepared(bytes: usize, numbers: &[usize]) -> Prepared {
        let message = |number: &usize| {
            let mut message = filling(bytes);
            stamp(&mut message, *number);
            message
        };
        Prepared { messages: numbers.iter().map(message).collect(), sent: Vec::new() }
    }

    #[test]
    fn wrong_messages_are_noticed() {
        for bytes in [1, 7, 8, 100] {
            let mut good = prepared(bytes, &[0, 1, 2]);
            assert!(answer_each(&mut good, bytes, 3).unwrap());
            assert_eq!(prepared(bytes, &[0, 1, 2]).messages, good.sent);
            assert!(!answer_each(&mut prepared(bytes, &[0, 2, 1]), bytes, 3).unwrap());
            assert!(!answer_each(&mut prepared(bytes + 1, &[0, 1, 2]), bytes, 3).unwrap());
        }
        // A byte of the last message.
        let mut changed = prepared(100, &[0, 1]);
        changed.messages[1][99] ^= 1;
        assert!(!answer_each(&mut changed, 100, 2).unwrap());
    }

    #[test]
    fn windows_are_answered_with_what_came() {
        let arrived = |link: &Prepared| link.sent.iter().map(|answer| answer[0]).collect::<Vec<_>>();
        let mut good = prepared(16, &[0, 1, 2, 3, 4, 5]);
        assert!(answer_windows(&mut good, 16, 3, 2).unwrap());
        assert_eq!(arrived(&good), [3, 3]);
        // One is overtaken, and the last one is lost.
        let mut short = prepared(16, &[1, 0, 2, 3, 4]);
        assert!(answer_windows(&mut short, 16, 3, 2).unwrap());
        assert_eq!(arrived(&short), [3, 2]);
        assert!(!answer_windows(&mut prepared(16, &[0, 1, 7]), 16, 3, 2).unwrap());
    }

    #[test]
    fn the_near_end_counts_what_is_lost() {
        let plan = Plan { transport: NetTransport::Udp, bytes: 16, rounds: 4, window: 3, windows: 2 };
        let (times_us, right) = ping(&mut prepared(16, &[0, 1, 2]), &plan).unwrap();
        assert_eq!((times_us.len(), right), (2, true));
        let mut answers = prepared(8, &[]);
        answers.messages = [3u64, 2].map(|n| n.to_le_bytes().to_vec()).into();
        assert_eq!(fill(&mut answers, &plan).unwrap().1, 1);
        assert_eq!(answers.sent.len(), 6);
    }
}
