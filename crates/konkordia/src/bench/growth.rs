//! `konkordia bench growth`: does an image cost more in a long run than in a short one? Runs of 10 to ten million small
//! images come over ZeroMQ and go through the stream path into files, one run after the other in one process. For each
//! the bench says the time of an image, the time of closing the files, and what the run added to the memory of the
//! process.

use super::args::BenchGrowthArgs;
use super::frames::in_folder;
use super::output::Output;
use super::pipeline::resident_bytes;
use super::stream::{Received, Setting, Sink, receive};
use crate::console::Progress;
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use serde_json::{Value, json};

/// `konkordia bench growth`
pub fn command(args: &BenchGrowthArgs) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "growth")?;
    konkordia_sources::zmq::keep_memory_of_messages();
    let setting = Setting { size: args.size, sink: Sink::File, upstreams: 1, io_threads: 1 };
    in_folder(args.dir.as_deref(), |folder| {
        // What every run needs is there before the first one that counts.
        receive(folder, setting, args.images.iter().copied().min().unwrap_or(1))?;
        let mut rows = Vec::new();
        let mut progress = Progress::new(args.output.json);
        for &images in &args.images {
            progress.update(|| format!("{} images", text::count(images)));
            let before = resident_bytes();
            let received = receive(folder, setting, images)?;
            rows.push(Row { images, received, memory_bytes: (before, resident_bytes()) });
        }
        progress.end();
        let verified = rows.iter().all(|row| row.received.is_right);
        let lines: Vec<Value> = rows.iter().map(Row::to_json).collect();
        let report = json!({
            "bench": "growth", "machine": machine::facts(), "network": "loopback", "image_bytes": args.size, "rows": lines,
            "verified": verified,
        });
        output.print(report, &to_text(args.size, &rows));
        Ok(if verified { Exit::Complete } else { Exit::Bug })
    })
}

/// A run of so many images.
struct Row {
    images: u64,
    received: Received,
    /// Resident memory of the process before and after the run.
    memory_bytes: (u64, u64),
}

impl Row {
    fn image_us(&self) -> f64 {
        1e6 / self.received.rate_hz
    }

    fn added_bytes(&self) -> u64 {
        self.memory_bytes.1.saturating_sub(self.memory_bytes.0)
    }

    fn to_json(&self) -> Value {
        json!({
            "name": format!("{} images", self.images), "images": self.images, "rate_hz": self.received.rate_hz,
            "image_us": self.image_us(), "closing_ms": self.received.closing_seconds * 1e3,
            "memory_added_bytes": self.added_bytes(), "resident_bytes": self.memory_bytes.1, "verified": self.received.is_right,
        })
    }

    fn line(&self) -> Vec<String> {
        vec![
            text::count(self.images),
            format!("{:.0}", self.received.rate_hz),
            format!("{:.1} us", self.image_us()),
            format!("{:.1} ms", self.received.closing_seconds * 1e3),
            text::bytes(self.added_bytes()),
            text::bytes(self.memory_bytes.1),
            if self.received.is_right { "whole" } else { "WRONG" }.into(),
        ]
    }
}

fn to_text(size: u64, rows: &[Row]) -> String {
    let head = ["images of a run", "images/s", "of an image", "closing", "memory added", "memory", "output"];
    let head = head.map(str::to_string).to_vec();
    let table = text::table(&std::iter::once(head).chain(rows.iter().map(Row::line)).collect::<Vec<_>>());
    format!(
        "{}\nimages of {} over ZeroMQ on loopback, the generator on the same cores; one process for all runs, one after the \
         other\n\n{table}\n\nthe time of an image includes creating and closing the files; closing: from the end of the series \
         until the files are closed; memory added: resident memory after the run less that before it",
        machine::line(),
        text::bytes(size)
    )
}
