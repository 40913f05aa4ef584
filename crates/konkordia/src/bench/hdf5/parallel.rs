//! Several runs at the same time, whose chunks are written inside and outside the lock of libhdf5
//! (docs/decisions/0031-file-data-outside-the-hdf5-lock.md).

use super::args::BenchHdf5Args;
use super::cells::{cells, table};
use super::files::{Frames, PLAIN_NOISE_BITS, PREFIX, Run, clear, is_right, rate};
use crate::bench::spread::median;
use konkordia_core::failure::Failure;
use konkordia_core::plan::Compression;
use konkordia_sinks::hdf5::ChunkWrites;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Runs uncompressed, with the data of one run in all: GB/s, median of the repeats.
pub struct Parallel {
    writers: u32,
    edge: usize,
    /// libhdf5 writes the chunks, which locks out the other runs.
    pub inside: f64,
    /// The threads of the runs write them.
    pub outside: f64,
    /// Outside over inside, median of the ratios of the repeats.
    ratio: f64,
    pub verified: bool,
}

impl Parallel {
    /// So many runs of frames with this edge.
    pub fn measure(args: &BenchHdf5Args, folder: &Path, edge: usize, writers: u32) -> Result<Self, Failure> {
        let frames = Frames::new(edge, PLAIN_NOISE_BITS);
        let images = frames.images_in(args.bytes().div_ceil(writers as usize));
        let prefixes: Vec<String> = (0..writers).map(|n| format!("{PREFIX}_{n}")).collect();
        let mut rates: [Vec<f64>; 3] = Default::default();
        let mut verified = true;
        for repeat in 0..args.rounds() {
            let mut once = [0.0; 2];
            for (rate, writes) in once.iter_mut().zip([ChunkWrites::InsideLock, ChunkWrites::OutsideLock]) {
                *rate = together(args.sync, folder, &prefixes, (&frames, images), writes)?;
                if repeat == 0 {
                    for prefix in &prefixes {
                        verified &= is_right((folder, prefix), &frames, images)?;
                    }
                }
                clear(folder)?;
            }
            let [inside, outside] = once;
            rates.iter_mut().zip([inside, outside, outside / inside]).for_each(|(rates, rate)| rates.push(rate));
        }
        let [inside, outside, ratio] = rates.map(|mut rates| median(&mut rates));
        Ok(Self { writers, edge, inside, outside, ratio, verified })
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "writers": self.writers, "edge_pixels": self.edge, "inside_lock_gb_per_s": self.inside,
            "outside_lock_gb_per_s": self.outside, "outside_of_inside": self.ratio, "verified": self.verified,
        })
    }
}

/// Writes a run with each prefix at the same time; GB/s of all, from the first image to the last one.
fn together(
    sync: bool,
    folder: &Path,
    prefixes: &[String],
    (frames, images): (&Frames, usize),
    writes: ChunkWrites,
) -> Result<f64, Failure> {
    let runs = prefixes.iter().map(|prefix| Run::new((folder, prefix), frames, Compression::None, sync));
    let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
    runs.iter_mut().for_each(|run| run.set_chunk_writes(writes));
    let write = |run: &mut Run| (0..images).try_for_each(|n| run.write(n, frames.image(n)));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = runs.iter_mut().map(|run| scope.spawn(move || write(run))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread of a run does not panic"))
    })?;
    let rate = rate(prefixes.len() * images * frames.bytes(), begin);
    runs.into_iter().try_for_each(|run| run.finish(1).map(drop))?;
    Ok(rate)
}

/// For people.
pub fn to_text(rows: &[Parallel]) -> String {
    let lines = rows.iter().map(|row| cells(vec![row.writers.to_string()], &[row.inside, row.outside, row.ratio], row.verified));
    let edge = rows.first().map_or(0, |row| row.edge);
    let head = ["runs", "inside the lock GB/s", "outside GB/s", "outside / inside", "read back"];
    let table = table(&head, lines);
    format!("frames of {edge} x {edge}, runs at the same time, chunks written inside and outside the lock of libhdf5\n\n{table}")
}
