//! `konkordia bench net`: latency, bandwidth and message rate against message size for TCP, datagrams, the patterns of
//! ZeroMQ and links that write into memory. The methods are those of the OSU micro-benchmarks: half of the time of a
//! message and its answer, many messages one after the other followed by one answer, and the latter over several
//! connections at once. REQ and REP take turns, so their window is one message.
//!
//! Messages are numbered in their first bytes. Each end checks the numbers of all messages, and every byte of those of
//! the warm-up and of the last one of each repeat.

mod pairs;
mod windows;

use super::args::{BenchNetArgs, NetTransport, PACKET_BYTES_MAX};
use super::crossover::{self, Crossover, Way};
use super::import::{self, Imported};
use super::links::{Link, open_far, open_near};
use super::output::Output;
use super::peer::{self, OtherProcess, Peer, failed};
use super::spread::Spread;
use crate::console::Progress;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_picture::{Axis, Series};
use pairs::Ways;
use serde_json::{Value, json};
use std::io;
use windows::{Plan, answer_each, answer_windows, fill, ping};

/// The largest message, if none are named.
const BYTES_MAX: usize = 4 << 20;
/// What others report.
const OTHERS: &str = "EUCALL D5.2 (ELI-ALPS): 6317 MB/s from host to host by MPI over InfiniBand, of 8 GB/s that PCIe allows; best from 16 KiB on with MPI, \
                      from 2 KiB with verbs\nPonsard et al. 2020: ZeroMQ below 6 Gb/s with REQ and REP, slightly more with PUSH and PULL, below 10 Gb/s";

/// `konkordia bench net`
pub fn command(args: &BenchNetArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    if let Some(address) = args.listen {
        return peer::listen("net", address, serve, args.output.json);
    }
    let imported = import::read_all(&args.import)?;
    let output = Output::open(&args.output, "net")?;
    let sizes = match (args.sizes.is_empty(), args.quick) {
        (false, _) => args.sizes.clone(),
        (true, true) => vec![1, 1024, 65536],
        (true, false) => std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= BYTES_MAX).collect(),
    };
    let repeats = if args.quick { 2 } else { args.repeats.max(1) };
    let ways = Ways::new(&args.pairs);
    let most = ways.links();
    let (transports, not_here) = chosen(args)?;
    // libfabric crashes if one end of shared memory is closed while the other one of the same process uses it.
    let is_apart = args.to.is_none() && transports.iter().any(|transport| transport.link().is_some());
    let other = is_apart.then(|| OtherProcess::start("net")).transpose()?;
    let rows = peer::with_peer("net", args.to.or(other.as_ref().map(|other| other.address)), serve, |peer| {
        let mut rows = Vec::new();
        let mut progress = Progress::new(args.output.json);
        for &transport in &transports {
            let mut link = open_near(peer, transport, 0)?;
            let mut more = (1..most).map(|n| open_near(peer, transport, n)).collect::<Result<Vec<_>, _>>()?;
            for &bytes in sizes.iter().filter(|bytes| transport != NetTransport::Udp || **bytes <= PACKET_BYTES_MAX) {
                progress.update(|| format!("{}, {bytes} bytes", transport.name()));
                let plan = Plan::new(transport, bytes, args.window, args.quick);
                let mut found = Vec::new();
                for _ in 0..repeats {
                    found.push((measure(peer, &mut link, &plan)?, ways.measure(peer, &mut link, &mut more, &plan)?));
                }
                let (repeats, ways) = found.into_iter().unzip();
                rows.push(Row { plan, repeats, ways });
            }
            // Some kinds of links wait until the other end leaves too: both ends do so in the same order.
            peer.tell(&json!({ "test": "close" }))?;
            drop(link);
            drop(more);
        }
        progress.end();
        Ok(rows)
    })?;
    let verified = rows.iter().all(Row::verified);
    let network = peer::network(args.to);
    if let Some(png) = &args.png {
        draw(&rows, &network, &imported).write(png)?;
    }
    let report = json!({
        "bench": "net", "machine": machine::facts(), "network": network, "repeats": repeats,
        "rows": rows.iter().map(|row| row.to_json(&ways)).collect::<Vec<_>>(), "pairs": args.pairs,
        "crossovers": { "bandwidth": crossover::to_json(&crossovers(&rows, false)), "latency": crossover::to_json(&crossovers(&rows, true)) },
        "imported": imported.iter().map(Imported::to_json).collect::<Vec<_>>(), "others": OTHERS, "verified": verified, "not_measured": not_here,
    });
    let mut text = to_text(&rows, &ways, &network, repeats, &imported);
    not_here.iter().for_each(|line| text += &format!("\n{line}"));
    output.print(report, &text);
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// What is measured, and a line for each transport that is not, with the reason. One that was named has to be possible.
fn chosen(args: &BenchNetArgs) -> Result<(Vec<NetTransport>, Vec<String>), Failure> {
    let why_not = |transport: NetTransport| -> Option<String> {
        if transport.is_of_one_host() && args.to.is_some_and(|to| !to.ip().is_loopback()) {
            return Some("both ends have to be on one host".into());
        }
        transport.link()?.check().err().map(|error| error.to_string())
    };
    if args.transports.is_empty() {
        let (mut here, mut not_here) = (Vec::new(), Vec::new());
        for transport in NetTransport::ALL {
            match why_not(transport) {
                None => here.push(transport),
                Some(why) => not_here.push(format!("not measured: {}: {why}", transport.name())),
            }
        }
        return Ok((here, not_here));
    }
    for transport in &args.transports {
        if let Some(why) = why_not(*transport) {
            let what = format!("{} cannot be measured here", transport.name());
            return Err(Failure::new(Exit::Unreachable, what, why, "mend this, or leave it out of --transports"));
        }
    }
    Ok((args.transports.clone(), Vec::new()))
}

/// What came of one repeat.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Median, 99 % and 99.9 % of half the time of a message and its answer.
    latency_us: [f64; 3],
    messages_per_s: f64,
    /// Messages and answers that did not come; possible with datagrams only.
    lost: usize,
    verified: bool,
}

/// One repeat at the near end.
fn measure(peer: &mut Peer, link: &mut Box<dyn Link>, plan: &Plan) -> Result<Measured, Failure> {
    let broken = |error: io::Error| failed(&format!("{}, {} bytes", plan.transport.name(), plan.bytes), &error);
    peer.tell(
        &json!({ "test": "latency", "bytes": plan.bytes, "count": plan.warm_up() + plan.rounds, "compared": plan.warm_up() }),
    )?;
    let (mut times_us, near_right) = ping(&mut **link, plan).map_err(broken)?;
    let latency_is_right = peer.answer()?["right"] == true && near_right;
    let lost = usize::from(times_us.len() < plan.rounds);
    peer.tell(&json!({ "test": "bandwidth", "bytes": plan.bytes, "window": plan.window, "count": plan.windows + 1 }))?;
    let (messages_per_s, lost_there) = fill(&mut **link, plan).map_err(broken)?;
    let verified = peer.answer()?["right"] == true && latency_is_right;
    times_us.sort_by(f64::total_cmp);
    let quantile = |part: f64| times_us.get(((times_us.len() as f64 * part) as usize).min(times_us.len().saturating_sub(1)));
    let latency_us = [0.5, 0.99, 0.999].map(|part| quantile(part).copied().unwrap_or(f64::NAN));
    Ok(Measured { latency_us, messages_per_s, lost: lost + lost_there, verified })
}

/// The far end: opens links and answers, as it is told.
fn serve(peer: &mut Peer) -> Result<(), Failure> {
    let mut links: Vec<Box<dyn Link>> = Vec::new();
    while let Some(order) = peer.hear()? {
        if order["test"] == "close" {
            links.clear();
            continue;
        }
        if !order["open"].is_null() {
            links.push(open_far(peer, &order)?);
            continue;
        }
        let count = |name: &str| order[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        if order["test"] == "ways" {
            let (right, lost) =
                pairs::serve(&mut links, &order).map_err(|error| failed(&format!("a test has failed: {order}"), &error))?;
            peer.tell(&json!({ "right": right, "lost": lost }))?;
            continue;
        }
        let Some(link) = links.first_mut() else {
            return Err(Failure::new(
                Exit::Usage,
                "a test without a link",
                order.to_string(),
                "start the same version at both ends",
            ));
        };
        let done = if order["test"] == "latency" {
            answer_each(&mut **link, count("bytes"), count("count"), count("compared"))
        } else {
            answer_windows(&mut **link, count("bytes"), count("window"), count("count"))
        };
        let right = done.map_err(|error| failed(&format!("a test has failed: {order}"), &error))?;
        peer.tell(&json!({ "right": right }))?;
    }
    Ok(())
}

/// All repeats of one transport and size.
struct Row {
    plan: Plan,
    repeats: Vec<Measured>,
    /// Of each repeat, of each of [`Ways`].
    ways: Vec<Vec<pairs::Measured>>,
}

impl Row {
    fn verified(&self) -> bool {
        self.repeats.iter().all(|repeat| repeat.verified) && self.ways.iter().flatten().all(|way| way.verified)
    }

    fn lost(&self) -> usize {
        let pairs = self.ways.iter().flatten().map(|way| way.lost);
        self.repeats.iter().map(|repeat| repeat.lost).chain(pairs).sum()
    }

    /// Of the repeats in which something was measured.
    fn spread(&self, value: impl Fn(&Measured) -> f64) -> Spread {
        Spread::of(self.repeats.iter().map(value).filter(|value| value.is_finite() && *value > 0.0))
    }

    fn latency_us(&self) -> Spread {
        self.spread(|repeat| repeat.latency_us[0])
    }

    fn gigabytes_per_s(&self) -> Spread {
        self.spread(|repeat| repeat.messages_per_s * self.plan.bytes as f64 / 1e9)
    }

    /// Messages per second of one of [`Ways`].
    fn messages_per_s(&self, way: usize) -> Spread {
        let rates = self.ways.iter().filter_map(|ways| ways.get(way)).filter(|way| way.lost == 0).map(|way| way.messages_per_s);
        Spread::of(rates.filter(|rate| rate.is_finite() && *rate > 0.0))
    }

    fn to_json(&self, ways: &Ways) -> Value {
        let Plan { transport, bytes, rounds, window, windows } = self.plan;
        json!({
            "name": format!("{}, {bytes} bytes", transport.name()), "bytes": bytes, "rounds": rounds, "window": window, "windows": windows,
            "latency_us": self.latency_us().to_json(), "latency_p99_us": self.spread(|repeat| repeat.latency_us[1]).to_json(),
            "latency_p999_us": self.spread(|repeat| repeat.latency_us[2]).to_json(),
            "messages_per_second": self.spread(|repeat| repeat.messages_per_s).to_json(),
            "gigabytes_per_second": self.gigabytes_per_s().to_json(), "lost": self.lost(), "verified": self.verified(),
            "ways": ways.names().enumerate().map(|(n, name)| json!({ "way": name, "messages_per_second": self.messages_per_s(n).to_json() })).collect::<Vec<_>>(),
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

/// From which size on one transport is faster than another, by bandwidth or by latency.
fn crossovers(rows: &[Row], is_latency: bool) -> Vec<Crossover> {
    let figure = |row: &Row| if is_latency { -row.latency_us().median } else { row.gigabytes_per_s().median };
    let way = |transport: NetTransport| {
        let own = rows.iter().filter(|row| row.plan.transport == transport);
        let figures = own.map(|row| (row.plan.bytes as u64, figure(row))).filter(|(_, figure)| figure.is_finite());
        Way { name: transport.name().into(), figures: figures.collect() }
    };
    crossover::crossovers(&transports(rows).into_iter().map(way).collect::<Vec<_>>())
}

/// Our figures, for comparison with imported ones.
fn ours(rows: &[Row]) -> Vec<import::Ours> {
    let own = |row: &Row| import::Ours {
        name: row.plan.transport.name().into(),
        bytes: row.plan.bytes as u64,
        gigabytes_per_s: row.gigabytes_per_s().median,
        latency_us: row.latency_us().median,
    };
    rows.iter().map(own).collect()
}

fn to_text(rows: &[Row], ways: &Ways, network: &str, repeats: usize, imported: &[Imported]) -> String {
    let latency = table(rows, "latency, us", |row| row.latency_us().to_short_text(1));
    let slow = [(1, "p99, us"), (2, "p99.9, us")]
        .map(|(n, name)| table(rows, name, |row| row.spread(|repeat| repeat.latency_us[n]).to_short_text(1)))
        .join("\n\n");
    let of_ways: Vec<String> = ways
        .names()
        .enumerate()
        .map(|(n, name)| table(rows, &format!("messages/s, {name}"), |row| row.messages_per_s(n).to_short_text(0)))
        .collect();
    let bandwidth = table(rows, "GB/s", |row| row.gigabytes_per_s().to_short_text(3));
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
    let beside = import::to_text(imported, &ours(rows)).iter().map(|part| format!("\n\n{part}")).collect::<String>();
    format!(
        "{}\nnetwork: {network}; host memory (device memory: not yet)\nmedian ± median of the distances from it, of {repeats}; latency: half of the \
         time of a message and its answer; GB/s: windows of messages, each window with one answer; messages/s: the same, over several connections \
         at once\n\n{latency}\n\n{slow}\n\n{bandwidth}\n\n{}\n\nhalf of the highest GB/s: {}\nby GB/s: {}\nby latency: {}\n{checked}; {lost} \
         lost\n{OTHERS}{beside}",
        machine::line(),
        of_ways.join("\n\n"),
        halves.join(", "),
        crossover::to_text(&crossovers(rows, false)),
        crossover::to_text(&crossovers(rows, true)),
    )
}

/// Latency above, bandwidth below; ours and what was imported.
fn draw(rows: &[Row], network: &str, imported: &[Imported]) -> konkordia_picture::Picture {
    let ours = ours(rows);
    let chart = |title: &str, label: &str, own: &dyn Fn(&import::Ours) -> f64, other: &dyn Fn(&import::Row) -> Option<f64>| {
        let lines = import::lines(&ours, imported, own, other);
        let series: Vec<Series<'_>> =
            lines.iter().map(|(name, points)| Series { name, points: points.clone(), line: true }).collect();
        let (x, y) = (Axis { label: "bytes of a message", log: true }, Axis { label, log: true });
        konkordia_picture::chart(title, &x, &y, &series)
    };
    let place = network.split(' ').next().unwrap_or_default();
    konkordia_picture::stacked(&[
        chart(&format!("Latency, {place}"), "us", &|row| row.latency_us, &|row| row.latency_us),
        chart(&format!("Bandwidth, {place}"), "GB/s", &|row| row.gigabytes_per_s, &|row| row.gigabytes_per_s),
    ])
}
