//! `konkordia bench rdma`: what it costs to write into the memory of another host by RoCEv2 and RDMA over UDP, both in
//! software, beside plain datagrams. The methods are those of perftest (`ib_write_bw`, `ib_write_lat`, `ib_send_bw`).
//! No network card takes part: every table says so. Beside them, RASHPA over memory that both ends share.
//!
//! Operations take turns, so that what disturbs one disturbs all. A repeat comes first that does not count; over
//! sockets it compares every byte of every message at the moment it is whole. In the others every message is counted,
//! and those that lie in memory at the end are compared.

mod ends;
mod ladder;
mod memory;
mod protocol;
mod rashpa;
mod rates;
mod shipped;
mod sizes;

use super::fabric_args::{BenchRdmaArgs, RdmaOperation, RdmaPart};
use super::import::{self, Imported};
use super::output::Output;
use super::peer;
use crate::console::Progress;
use ends::Wait;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_picture::{Axis, Picture, Series};
use ladder::Ladder;
use serde_json::{Value, json};
use std::path::Path;

/// The largest message, if none are named.
const BYTES_MAX: usize = 4 << 20;
/// Messages of a ladder.
const LADDER_MESSAGES: u64 = 2000;
/// Addresses of a quick run, at most.
const QUICK_ADDRESSES: usize = 64;

/// `konkordia bench rdma`
pub fn command(args: &BenchRdmaArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    if let Some(address) = args.listen {
        return peer::listen("rdma", address, ends::serve, args.output.json);
    }
    if args.to.is_some() && args.parts != RdmaPart::ALL && has(args, RdmaPart::Ladder) {
        return Err(ladder::refused());
    }
    if args.png.is_some() && !has(args, RdmaPart::Sizes) && (args.to.is_some() || !has(args, RdmaPart::Ladder)) {
        return Err(Failure::new(
            Exit::Usage,
            "there is nothing to draw",
            "the picture shows sizes and, without --to, the ladder; --parts names neither",
            "add them to --parts, or leave out --png",
        ));
    }
    let imported = import::read_all(&args.import)?;
    let output = Output::open(&args.output, "rdma")?;
    let mut progress = Progress::new(args.output.json);
    let measured = measure(args, &mut |what| progress.update(|| what))?;
    progress.end();
    if let Some(png) = &args.png {
        draw(&measured, &imported, png)?;
    }
    let verified = measured.verified();
    output.print(measured.to_json(args, &imported), &measured.to_text(args, &imported));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// What came of all parts.
#[derive(Default)]
struct All {
    memory: Vec<memory::Row>,
    icrc: Vec<memory::Icrc>,
    rates: Vec<rates::Row>,
    sizes: Vec<sizes::Row>,
    ladders: Vec<Ladder>,
    shipped: Vec<shipped::Row>,
    rashpa: Vec<rashpa::Row>,
}

fn has(args: &BenchRdmaArgs, part: RdmaPart) -> bool {
    args.parts.contains(&part)
}

fn repeats(args: &BenchRdmaArgs) -> u32 {
    if args.quick { 2 } else { args.repeats }
}

fn sizes_of(args: &BenchRdmaArgs) -> Vec<usize> {
    match (args.sizes.is_empty(), args.quick) {
        (false, _) => args.sizes.clone(),
        (true, true) => vec![1, 1024, 65536],
        (true, false) => std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n <= BYTES_MAX).collect(),
    }
}

fn measure(args: &BenchRdmaArgs, tell: &mut dyn FnMut(String)) -> Result<All, Failure> {
    let (repeats, count) = (repeats(args), if args.quick { 200 } else { u64::from(args.count) });
    let most = if args.quick { QUICK_ADDRESSES } else { usize::MAX };
    let mut addresses: Vec<usize> = args.addresses.iter().map(|addresses| *addresses.min(&most)).collect();
    addresses.dedup();
    let mut all = All::default();
    if has(args, RdmaPart::Memory) {
        tell("packets in memory".into());
        all.memory = memory::measure(&args.operations, &args.packets, &addresses, count, repeats)?;
    }
    if has(args, RdmaPart::Icrc) {
        tell("iCRC".into());
        all.icrc = memory::icrc(&args.packets, repeats, args.quick)?;
    }
    if has(args, RdmaPart::Rates) || has(args, RdmaPart::Sizes) {
        (all.rates, all.sizes) = peer::with_peer("rdma", args.to, ends::serve, |peer| {
            let settings =
                rates::Settings { operations: &args.operations, packets: &args.packets, addresses: &addresses, count, repeats };
            let rates = if has(args, RdmaPart::Rates) { settings.measure(peer, &mut *tell)? } else { Vec::new() };
            if !has(args, RdmaPart::Sizes) {
                return Ok((rates, Vec::new()));
            }
            let plan = (repeats, args.quick);
            Ok((rates, sizes::measure_all(peer, &args.operations, &sizes_of(args), plan, &mut *tell)?))
        })?;
    }
    if has(args, RdmaPart::Ladder) && args.to.is_none() {
        let packet_bytes = args.packets.iter().copied().max().unwrap_or(1);
        for wait in Wait::ALL {
            for &operation in args.operations.iter().filter(|operation| **operation != RdmaOperation::Write) {
                tell(format!("the stages of {}, {}", operation.name(), wait.name()));
                let messages = if args.quick { 20 } else { LADDER_MESSAGES };
                all.ladders.push(ladder::measure(operation, packet_bytes, wait, messages)?);
            }
        }
    }
    if has(args, RdmaPart::Shipped) && args.to.is_none() {
        all.shipped = shipped::measure(count, repeats, tell)?;
    }
    if has(args, RdmaPart::Rashpa) && args.to.is_none() {
        tell("RASHPA over shared memory".into());
        all.rashpa = rashpa::measure(repeats, args.quick)?;
    }
    Ok(all)
}

/// Text for people: what carries the packets.
fn label(args: &BenchRdmaArgs) -> String {
    match args.to {
        None => "software link, loopback, no card; host memory".into(),
        Some(to) => format!("software link to {to}, no card; host memory"),
    }
}

impl All {
    fn verified(&self) -> bool {
        self.memory.iter().all(|row| row.verified)
            && self.rates.iter().all(rates::Row::verified)
            && self.sizes.iter().all(|row| row.verified)
            && self.ladders.iter().all(|ladder| ladder.verified)
            && self.shipped.iter().all(shipped::Row::verified)
            && self.rashpa.iter().all(|row| row.verified)
    }

    fn to_json(&self, args: &BenchRdmaArgs, imported: &[Imported]) -> Value {
        let ladder = rates::ladder(&self.rates);
        json!({
            "bench": "rdma", "machine": machine::facts(), "label": label(args), "repeats": repeats(args),
            "memory": self.memory.iter().map(|row| row.to_json(&self.memory)).collect::<Vec<_>>(),
            "icrc": self.icrc.iter().map(memory::Icrc::to_json).collect::<Vec<_>>(),
            "shipped": shipped::to_json(&self.shipped),
            "rates": rates::to_json(&self.rates), "sizes": sizes::to_json(&self.sizes),
            "rashpa": self.rashpa.iter().map(rashpa::Row::to_json).collect::<Vec<_>>(),
            "ladders": self.ladders.iter().map(Ladder::to_json).collect::<Vec<_>>(),
            "rate_ladder": ladder.iter().map(|(name, rate)| json!({ "name": name, "gigabits_per_second": rate })).collect::<Vec<_>>(),
            "imported": imported.iter().map(Imported::to_json).collect::<Vec<_>>(),
            "others": rates::OTHERS, "verified": self.verified(),
        })
    }

    fn to_text(&self, args: &BenchRdmaArgs, imported: &[Imported]) -> String {
        let label = label(args);
        let mut parts = vec![format!(
            "{}\n{label}; device memory: not yet\nmedian ± median of the distances from it, of {} repeats",
            machine::line(),
            repeats(args)
        )];
        let mut add = |is_there: bool, part: &dyn Fn() -> String| {
            if is_there {
                parts.push(format!("[{label}] {}", part()));
            }
        };
        add(!self.memory.is_empty(), &|| memory::to_text(&self.memory));
        add(!self.icrc.is_empty(), &|| memory::icrc_text(&self.icrc));
        add(!self.rates.is_empty(), &|| rates::to_text(&self.rates));
        let steps = rates::ladder(&self.rates);
        let step = |(name, rate): &(String, f64)| format!("{rate:6.1} Gb/s  {name}");
        add(!self.rates.is_empty(), &|| {
            format!("the ladder of Ponsard et al. 2020, and ours:\n{}", steps.iter().map(step).collect::<Vec<_>>().join("\n"))
        });
        add(!self.sizes.is_empty(), &|| sizes::to_text(&self.sizes));
        add(!self.ladders.is_empty(), &|| ladder::to_text(&self.ladders));
        add(!self.shipped.is_empty(), &|| shipped::to_text(&self.shipped));
        add(!self.rashpa.is_empty(), &|| rashpa::to_text(&self.rashpa));
        parts.extend(import::to_text(imported, &self.figures()));
        parts.join("\n\n")
    }

    /// Of our operations, for comparison with imported ones: bandwidth and latency by size, where a thread waits as
    /// perftest does, by polling.
    fn figures(&self) -> Vec<import::Ours> {
        let own = self.sizes.iter().filter(|row| row.wait == Wait::Polling);
        own.map(|row| import::Ours {
            name: row.name.to_string(),
            bytes: row.bytes as u64,
            gigabytes_per_s: row.gigabytes_per_s.median,
            latency_us: row.latency_us[0].median,
        })
        .collect()
    }
}

/// Bandwidth above, then latency, then the ladder, as far as they were measured.
fn draw(all: &All, imported: &[Imported], png: &Path) -> Result<(), Failure> {
    let ours = all.figures();
    let mut pictures: Vec<Picture> = Vec::new();
    if !ours.is_empty() {
        let chart =
            |title: &str, label: &str, own: &dyn Fn(&import::Ours) -> f64, other: &dyn Fn(&import::Row) -> Option<f64>| {
                let lines = import::lines(&ours, imported, own, other);
                let series: Vec<Series<'_>> =
                    lines.iter().map(|(name, points)| Series { name, points: points.clone(), line: true }).collect();
                let (x, y) = (Axis { label: "bytes of a message", log: true }, Axis { label, log: true });
                konkordia_picture::chart(title, &x, &y, &series)
            };
        pictures.push(chart("Bandwidth, software link", "GB/s", &|row| row.gigabytes_per_s, &|row| row.gigabytes_per_s));
        pictures.push(chart("Latency, software link", "us", &|row| row.latency_us, &|row| row.latency_us));
    }
    pictures.extend(ladder::draw(&all.ladders));
    konkordia_picture::stacked(&pictures).write(png)
}
