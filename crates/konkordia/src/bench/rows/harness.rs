//! Rows that are measured together: in each round every row does the same piece of work, so that a busy machine
//! disturbs all alike.

use super::{KernelRow, ROUNDS_MIN};
use crate::bench::spread::median;
use konkordia_kernels::isa::Isa;
use std::time::{Duration, Instant};

/// Something to be measured.
pub struct Row<'a> {
    /// What is done.
    pub name: &'static str,
    /// With which instruction set.
    pub isa: Isa,
    /// Index of the row that does the same work the plain way (the baseline); its own index if it is a baseline.
    pub plain: usize,
    /// Bytes of raw words that one sample does.
    pub raw_bytes: f64,
    /// Bits of output per pixel, where the row compresses.
    pub bits_per_pixel: Option<f64>,
    /// Was the output equal to the reference?
    pub verified: bool,
    /// There is one sample in so many rounds.
    pub every: usize,
    /// Does the work of a round.
    pub work: Box<dyn FnMut(usize) + 'a>,
}

/// Runs the rows in turn for about `budget` and gives the seconds of each sample.
pub fn seconds(rows: &mut [Row<'_>], budget: Duration) -> Vec<Vec<f64>> {
    let mut seconds: Vec<Vec<f64>> = rows.iter().map(|_| Vec::new()).collect();
    let start = Instant::now();
    let mut round = 0;
    while round < ROUNDS_MIN || start.elapsed() < budget {
        for (row, seconds) in rows.iter_mut().zip(&mut seconds).filter(|(row, _)| round % row.every == 0) {
            let start = Instant::now();
            (row.work)(round);
            seconds.push(start.elapsed().as_secs_f64());
        }
        round += 1;
    }
    seconds
}

/// Runs the rows in turn for about `budget` and gives their medians.
pub fn measure(mut rows: Vec<Row<'_>>, budget: Duration) -> Vec<KernelRow> {
    let mut seconds = seconds(&mut rows, budget);
    let rates: Vec<f64> = rows.iter().zip(&mut seconds).map(|(row, seconds)| row.raw_bytes / median(seconds) / 1e9).collect();
    let result = |(i, row): (usize, &Row<'_>)| KernelRow {
        name: row.name,
        isa: row.isa,
        gb_per_s_raw: rates[i],
        ratio_to_baseline: rates[i] / rates[row.plain],
        bits_per_pixel: row.bits_per_pixel,
        verified: row.verified,
    };
    rows.iter().enumerate().map(result).collect()
}
