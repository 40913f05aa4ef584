//! `konkordia bench blocks`: nanoseconds and cycles of the steps of one block of 8 KiB, which are those of a worker.
//!
//! A few blocks of one frame are done again and again, so that words, constants and pixels stay in the first two
//! caches, and memory is no limit. Cycles are those of the time-stamp counter, which has one rate whatever the core
//! does: a core that runs faster than its nominal frequency makes more cycles of its own than are shown.

use super::args::{BenchBlocksArgs, BlockStep};
use super::output::Output;
use super::rows::block::{BLOCKS, Bench, Scene};
use super::spread::Spread;
use super::{caches, frames};
use konkordia_acquire::machine;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_doctor::counters::timestamp_counter;
use konkordia_kernels::Isa;
use konkordia_kernels::fused::block_pixels;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// A step with an instruction set, and what it took.
struct Row {
    step: BlockStep,
    isa: Isa,
    ns: Vec<f64>,
    /// Of the time-stamp counter; empty where there is none.
    cycles: Vec<f64>,
    verified: bool,
}

/// `konkordia bench blocks`
pub fn command(args: &BenchBlocksArgs) -> Result<Exit, Failure> {
    if let Some(isa) = args.isa.iter().find(|isa| !isa.is_available()) {
        let names: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
        let (what, why) = (format!("{isa} cannot be measured"), format!("this machine has {}", names.join(", ")));
        return Err(Failure::new(Exit::Usage, what, why, "leave it out of --isa"));
    }
    frames::with_folder(|folder| measure(args, folder))
}

fn measure(args: &BenchBlocksArgs, folder: &Path) -> Result<Exit, Failure> {
    let output = Output::open(&args.output, "blocks")?;
    let frames = frames::load_some(&args.frames, 1, folder)?;
    let scene = Scene::new(&frames.raw[0], &frames.constants.view());
    let mut bench = Bench::new(&scene);
    let isas = if args.isa.is_empty() { Isa::available() } else { &args.isa };
    let mut rows = Vec::new();
    for &isa in isas {
        for &step in &args.step {
            let verified = bench.verify(step, isa);
            rows.push(Row { step, isa, ns: Vec::new(), cycles: Vec::new(), verified });
        }
    }
    // All rows in turn, so that a busy machine disturbs them alike.
    for _ in 0..args.repeats {
        rows.iter_mut().for_each(|row| row.repeat(&mut bench, args.blocks));
    }
    let verified = rows.iter().all(|row| row.verified);
    let report = json!({
        "machine": machine::facts(), "frames": frames.source, "blocks": args.blocks, "repeats": args.repeats,
        "block_pixels": block_pixels::<i16>(), "different_blocks": BLOCKS, "bytes_in_use": scene.bytes_in_use(),
        "cycles": "of the time-stamp counter", "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(), "verified": verified,
    });
    let [first, second, _] = caches::levels_bytes();
    let head = format!(
        "{}\n{} blocks of 8 KiB of a frame ({}), {} KiB with their constants; first cache {} KiB, second {} KiB; one core\n\
         median (lowest .. highest) of {} repeats of {} blocks; cycles are those of the time-stamp counter, not of the core",
        machine::line(),
        BLOCKS,
        frames.source,
        scene.bytes_in_use() >> 10,
        first >> 10,
        second >> 10,
        args.repeats,
        args.blocks
    );
    output.print(report, &format!("{head}\n\n{}", table(&rows)));
    Ok(if verified { Exit::Complete } else { Exit::Bug })
}

impl Row {
    fn repeat(&mut self, bench: &mut Bench<'_>, blocks: u32) {
        let (start, before) = (Instant::now(), timestamp_counter());
        bench.run(self.step, self.isa, blocks as usize);
        let (after, elapsed) = (timestamp_counter(), start.elapsed());
        self.ns.push(elapsed.as_secs_f64() * 1e9 / f64::from(blocks));
        if let Some((before, after)) = before.zip(after) {
            self.cycles.push(after.wrapping_sub(before) as f64 / f64::from(blocks));
        }
    }

    fn spreads(&self) -> [Spread; 2] {
        [&self.ns, &self.cycles].map(|values| Spread::of(values.iter().copied()))
    }

    fn to_json(&self) -> Value {
        let [ns, cycles] = self.spreads();
        json!({
            "step": self.step.name(), "instruction_set": self.isa.name(), "nanoseconds_per_block": ns.to_json(),
            "cycles_per_block": cycles.to_json(), "verified": self.verified,
        })
    }
}

fn table(rows: &[Row]) -> String {
    let head = ["step", "instructions", "ns/block", "cycles/block", "cycles/pixel", "output"].map(str::to_string).to_vec();
    let line = |row: &Row| {
        let [ns, cycles] = row.spreads();
        let per_pixel = cycles.median / block_pixels::<i16>() as f64;
        vec![
            row.step.name().into(),
            row.isa.name().into(),
            ns.to_text(0),
            cycles.to_text(0),
            if per_pixel.is_finite() { format!("{per_pixel:.3}") } else { "-".into() },
            if row.verified { "equal".into() } else { "WRONG".into() },
        ]
    };
    text::table(&std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>())
}
