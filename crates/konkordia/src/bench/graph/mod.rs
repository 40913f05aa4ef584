//! `konkordia bench graph`: what the rules of [graphs](crate::graph) cost. `konkordia graph run` runs in processes of
//! its own, as users start it; images are made by a stage `pattern`, and each is compared by a stage `discard`.
//!
//! - An edge beside plain PUSH and PULL of ZeroMQ with the same images, compared as well, one after the other.
//! - Images per second against the number of processes, whose work is to sleep: more of them than cores have room.
//! - Processes that are killed or stopped all the time: what is lost, and how long others take to have their images.

mod faults;
mod runs;

use super::args::BenchGraphArgs;
use super::output::Output;
use super::peer::{self, OtherProcess, Peer};
use super::spread::Spread;
use crate::console::Progress;
use faults::Fault;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_picture::{Axis, Series};
use runs::{Folder, Shape};
use serde_json::{Value, json};

/// What others report.
const OTHERS: &str = "CRACEN (Fig. 37): throughput grows linearly with the workers until the network is full";
/// Time of the sleeping work for an image, in ms.
const WORK_MS: f64 = 20.0;

/// An edge beside PUSH and PULL.
struct Edge {
    transport: &'static str,
    size: &'static str,
    shape: Shape,
    /// Images per second.
    graph: Spread,
    plain: Spread,
    /// Of each pair of runs.
    ratio: Spread,
}

/// `konkordia bench graph`
pub fn command(args: &BenchGraphArgs) -> Result<Exit, Failure> {
    args.png.as_deref().map_or(Ok(()), konkordia_picture::png_path)?;
    if let Some(address) = args.listen {
        return peer::listen("graph", address, serve, args.output.json);
    }
    let output = Output::open(&args.output, "graph")?;
    let folder = Folder::new()?;
    let repeats = if args.quick { 1 } else { args.repeats.max(1) };
    let mut progress = Progress::new(args.output.json);
    let sizes = [("1 MiB", Shape { shape: [512, 1024], images: 4000 }), ("64 bytes", Shape { shape: [1, 32], images: 300_000 })];
    let mut edges = Vec::new();
    for transport in ["ipc", "tcp"] {
        for (name, shape) in sizes {
            progress.update(|| format!("{transport}, {name}"));
            let shape = if args.quick { Shape { images: 200, ..shape } } else { shape };
            edges.push(edge(&folder, (transport, name), shape, repeats)?);
        }
    }
    let mut scaling = Vec::new();
    for workers in [1, 2, 4, 8, 16].into_iter().take(if args.quick { 2 } else { 5 }) {
        progress.update(|| format!("{workers} processes"));
        let images = if args.quick { 20 } else { 250 } * workers;
        scaling.push((workers, runs::waiting(&folder, workers, images, WORK_MS)?.per_second()));
    }
    let mut found = Vec::new();
    for fault in [Fault::Kill, Fault::Stop] {
        let times = if args.quick { 2 } else { args.faults };
        progress.update(|| format!("{} {times} times", fault.name()));
        found.push(faults::measure(&folder, fault, times, (WORK_MS, if args.quick { 1.0 } else { 5.0 }))?);
    }
    progress.end();
    if let Some(png) = &args.png {
        draw(&scaling).write(png)?;
    }
    let verified = found.iter().all(faults::Found::verified);
    let report = json!({
        "bench": "graph", "machine": machine::facts(), "repeats": repeats, "network": peer::network(None),
        "edges": edges.iter().map(Edge::to_json).collect::<Vec<_>>(),
        "scaling": scaling.iter().map(|(workers, rate)| json!({
            "workers": workers, "images_per_second": rate, "of_linear": rate / ideal(*workers),
        })).collect::<Vec<_>>(),
        "faults": found.iter().map(faults::Found::to_json).collect::<Vec<_>>(),
        "others": OTHERS, "verified": verified,
    });
    output.print(report, &to_text(&edges, &scaling, &found));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

/// Images per second of processes that do nothing but sleep.
fn ideal(workers: u64) -> f64 {
    workers as f64 * 1e3 / WORK_MS
}

/// The other end: pushes images.
fn serve(peer: &mut Peer) -> Result<(), Failure> {
    while let Some(told) = peer.hear()? {
        runs::push(&told)?;
        peer.tell(&json!({ "pushed": true }))?;
    }
    Ok(())
}

/// An edge and plain ZeroMQ, in turns.
fn edge(folder: &Folder, (transport, size): (&'static str, &'static str), shape: Shape, repeats: usize) -> Result<Edge, Failure> {
    let other = OtherProcess::start("graph")?;
    let (mut graph, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        plain.push(peer::with_peer("graph", Some(other.address), serve, |peer| runs::plain(peer, folder, transport, shape))?);
        graph.push(runs::edge(folder, transport, shape)?.per_second());
    }
    let ratio = Spread::of(graph.iter().zip(&plain).map(|(graph, plain)| graph / plain));
    Ok(Edge { transport, size, shape, graph: Spread::of(graph), plain: Spread::of(plain), ratio })
}

fn draw(scaling: &[(u64, f64)]) -> konkordia_picture::Picture {
    let measured = scaling.iter().map(|(workers, rate)| (*workers as f64, *rate)).collect();
    let linear = scaling.iter().map(|(workers, _)| (*workers as f64, ideal(*workers))).collect();
    let (x, y) = (Axis { label: "processes", log: true }, Axis { label: "images per second", log: true });
    let series =
        [Series { name: "linear", points: linear, line: true }, Series { name: "measured", points: measured, line: false }];
    konkordia_picture::chart("Processes that sleep 20 ms for an image (in place of a core's work)", &x, &y, &series)
}

impl Edge {
    fn to_json(&self) -> Value {
        json!({
            "transport": self.transport, "size": self.size, "bytes": self.shape.bytes(), "images": self.shape.images,
            "graph_per_second": self.graph.to_json(), "plain_per_second": self.plain.to_json(), "graph_of_plain": self.ratio.to_json(),
        })
    }
}

fn to_text(edges: &[Edge], scaling: &[(u64, f64)], found: &[faults::Found]) -> String {
    let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let mut one = vec![row(&["edge", "bytes of an image", "graph, images/s", "PUSH and PULL, images/s", "graph / plain"])];
    for edge in edges {
        let bytes = edge.shape.bytes().to_string();
        let (graph, plain) = (edge.graph.to_text(0), edge.plain.to_text(0));
        one.push(vec![edge.transport.to_owned(), bytes, graph, plain, edge.ratio.to_text(2)]);
    }
    let mut two = vec![row(&["processes that sleep 20 ms", "images/s", "of linear"])];
    for (workers, rate) in scaling {
        two.push(vec![workers.to_string(), format!("{rate:.0}"), format!("{:.2}", rate / ideal(*workers))]);
    }
    let mut three = vec![row(&faults::HEAD)];
    three.extend(found.iter().map(faults::Found::to_row));
    format!(
        "Stages in processes of their own, {}\n\n{}\n\n{}\n\n{}\n\nothers: {OTHERS}",
        peer::network(None),
        text::table(&one),
        text::table(&two),
        text::table(&three)
    )
}
