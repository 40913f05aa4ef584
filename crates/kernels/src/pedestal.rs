//! Pedestals from dark frames: mean and noise of every pixel in one pass, in integers, robust against the odd photon.
//!
//! The first [`FIRST_FRAMES`] frames are kept. For each pixel, the median of their words and the median distance from
//! it (MAD) set the gate, which is the range of accepted words: median - h to median + h, where h is 12 MAD (8 standard
//! deviations of normal noise), at least [`GATE_ADU_MIN`]. Then the first and all later frames are summed. Words inside
//! the gate are summed exactly, as integers relative to its lower end. All other words are counted by their kind. A
//! pixel with fewer than [`USABLE_MIN`] usable words among the first frames has the whole range as its gate.
//!
//! Pixels are independent of each other, so any division of the pixels among accumulators, and of the frames among
//! calls, gives the same result.

/// Frames that set the gates.
pub const FIRST_FRAMES: usize = 32;
/// Words of the expected stage that a pixel needs among the first frames for a gate of its own.
pub const USABLE_MIN: usize = 8;
/// Least distance of the ends of the gate from the median, in ADU.
pub const GATE_ADU_MIN: u16 = 10;
/// Half of the gate in units of the MAD.
const GATE_MADS: u16 = 12;
/// Frames that are collected after the first ones before they are summed, so that the sums are read from memory once
/// per batch.
const BATCH_FRAMES: usize = 8;
/// Frames summed in one pass. 32 bits hold the sum of their squares: 16 x 16383^2 is less than 2^32.
const PASS_FRAMES: usize = 16;
/// Pixels summed together; their sums of one pass fit into the first-level cache.
const RUN: usize = 512;
/// Pixels sorted together.
const LANES: usize = 32;
/// Stands for a word that is not usable. It is larger than any ADC value, so sorting puts it last.
const UNUSABLE: i16 = i16::MAX;

/// Bits 15-14 of the words of each stage.
const GAIN_BITS: [u16; 3] = [0x0000, 0x4000, 0xC000];
/// Lowest and highest ADC value that is a measurement: G1 and G2 with ADC 0 and the word 0xFFFF are special.
const LOWEST: [u16; 3] = [0, 1, 1];
const HIGHEST: [u16; 3] = [0x3FFF, 0x3FFF, 0x3FFE];

/// Sums of one gain stage (and storage cell) over dark frames.
pub struct PedestalAccumulator {
    pixels: usize,
    stage: usize,
    /// Frames added.
    frames: u64,
    /// Whole frames that are not summed yet; the first [`FIRST_FRAMES`] stay here until the gates are set.
    waiting: Vec<u16>,
    /// One per pixel once the gates are set, else empty.
    gates: Vec<Gate>,
    sums: Vec<Sum>,
    kinds: Vec<Kinds>,
}

/// Accepts ADC values from `low` to `low + width`.
#[derive(Clone, Copy)]
struct Gate {
    low: u16,
    width: u16,
}

/// Sums over the accepted words, relative to the lower end of the gate. Bounds: 2^32 frames x 2^14 ADU = 2^46; squares
/// 2^60.
#[derive(Clone, Copy, Default)]
struct Sum {
    of: u64,
    of_squares: u64,
}

/// Words that were not accepted, by kind.
#[derive(Clone, Copy, Default)]
struct Kinds {
    outside: u32,
    wrong_stage: u32,
    missing: u32,
    illegal: u32,
}

/// The result for each pixel. The counts of a pixel add up to the number of frames.
#[derive(Clone, Debug, PartialEq)]
pub struct PedestalPlanes {
    /// Mean in ADU; NaN without an accepted word.
    pub mean_adu: Vec<f32>,
    /// Standard deviation in ADU (with n - 1); NaN with fewer than two accepted words.
    pub rms_adu: Vec<f32>,
    /// Accepted words: those that made the mean.
    pub count: Vec<u32>,
    /// Words of the expected stage outside the gate: light, or a noisy pixel; and G2 with ADC 0 where G2 is expected.
    pub outside: Vec<u32>,
    /// Words of another legal stage.
    pub wrong_stage: Vec<u32>,
    /// Words 0xFFFF.
    pub missing: Vec<u32>,
    /// Words with gain 10, and G1 with ADC 0.
    pub illegal: Vec<u32>,
    /// Frames added.
    pub frames: u64,
}

impl PedestalAccumulator {
    /// For `pixels` pixels whose words are expected to be of stage `stage` (0, 1 or 2; high gain is 0). Needs 64 bytes
    /// per pixel while it collects the first frames, 100 at the moment when they are summed, and 52 afterwards.
    ///
    /// # Panics
    /// If the stage is not 0, 1 or 2.
    pub fn new(pixels: usize, stage: u8) -> Self {
        assert!(stage < 3, "stages are 0, 1 and 2");
        Self {
            pixels,
            stage: stage.into(),
            frames: 0,
            waiting: Vec::with_capacity(pixels * FIRST_FRAMES),
            gates: Vec::new(),
            sums: Vec::new(),
            kinds: Vec::new(),
        }
    }

    /// Frames added so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Adds one or more whole frames, one after the other.
    ///
    /// # Panics
    /// If `raw` is not a whole number of frames, or more than 2^32 - 1 frames are added.
    pub fn add(&mut self, raw: &[u16]) {
        if self.pixels == 0 {
            return;
        }
        assert!(raw.len().is_multiple_of(self.pixels), "whole frames of {} pixels", self.pixels);
        for frame in raw.chunks_exact(self.pixels) {
            self.frames += 1;
            assert!(self.frames <= u64::from(u32::MAX), "counts have 32 bits");
            self.waiting.extend_from_slice(frame);
            let limit = if self.gates.is_empty() { FIRST_FRAMES } else { BATCH_FRAMES };
            if self.waiting.len() == limit * self.pixels {
                self.settle();
            }
        }
    }

    /// Mean, noise and counts.
    pub fn finish(mut self) -> PedestalPlanes {
        self.settle();
        let mean = |(sum, (gate, count)): (&Sum, (&Gate, &u32))| match *count {
            0 => f32::NAN,
            count => (f64::from(gate.low) + sum.of as f64 / f64::from(count)) as f32,
        };
        let rms = |(sum, count): (&Sum, &u32)| {
            let n = u128::from(*count);
            if n < 2 {
                return f32::NAN;
            }
            // Exact: n times the sum of the squares less the square of the sum.
            let difference = n * u128::from(sum.of_squares) - u128::from(sum.of) * u128::from(sum.of);
            (difference as f64 / (n * (n - 1)) as f64).sqrt() as f32
        };
        let frames = self.frames as u32;
        let count = |k: &Kinds| frames - k.outside - k.wrong_stage - k.missing - k.illegal;
        let count: Vec<u32> = self.kinds.iter().map(count).collect();
        PedestalPlanes {
            mean_adu: self.sums.iter().zip(self.gates.iter().zip(&count)).map(mean).collect(),
            rms_adu: self.sums.iter().zip(&count).map(rms).collect(),
            outside: self.kinds.iter().map(|k| k.outside).collect(),
            wrong_stage: self.kinds.iter().map(|k| k.wrong_stage).collect(),
            missing: self.kinds.iter().map(|k| k.missing).collect(),
            illegal: self.kinds.iter().map(|k| k.illegal).collect(),
            frames: self.frames,
            count,
        }
    }

    /// Sums the waiting frames. If there are no gates yet, sets them first.
    fn settle(&mut self) {
        let first = self.gates.is_empty();
        if first {
            self.gates = gates(&self.waiting, self.pixels, self.stage);
            self.sums = vec![Sum::default(); self.pixels];
            self.kinds = vec![Kinds::default(); self.pixels];
        }
        for frames in self.waiting.chunks(PASS_FRAMES * self.pixels.max(1)) {
            for from in (0..self.pixels).step_by(RUN) {
                let run = from..(from + RUN).min(self.pixels);
                let (gates, sums, kinds) = (&self.gates[run.clone()], &mut self.sums[run.clone()], &mut self.kinds[run]);
                sum_run(frames, self.pixels, from, self.stage, gates, sums, kinds);
            }
        }
        self.waiting.clear();
        if first {
            self.waiting.shrink_to(self.pixels * BATCH_FRAMES);
        }
    }
}

/// Adds the words of a run of pixels, from `from` on, of at most [`PASS_FRAMES`] frames.
fn sum_run(frames: &[u16], pixels: usize, from: usize, stage: usize, gates: &[Gate], sums: &mut [Sum], kinds: &mut [Kinds]) {
    let count = gates.len();
    let (mut of, mut of_squares, mut inside) = ([0u32; RUN], [0u32; RUN], [0u16; RUN]);
    for frame in frames.chunks_exact(pixels) {
        let words = &frame[from..from + count];
        let sums = of[..count].iter_mut().zip(&mut of_squares[..count]).zip(&mut inside[..count]);
        for (((of, of_squares), inside), (&word, gate)) in sums.zip(words.iter().zip(gates)) {
            // The XOR turns a word of another stage into at least 0x4000, which is above every gate.
            let above = (word ^ GAIN_BITS[stage]).wrapping_sub(gate.low);
            let counts = above <= gate.width;
            let above = if counts { u32::from(above) } else { 0 };
            *of += above;
            *of_squares += above * above;
            *inside += u16::from(counts);
        }
    }
    let passed = (frames.len() / pixels) as u16;
    for i in 0..count {
        sums[i].of += u64::from(of[i]);
        sums[i].of_squares += u64::from(of_squares[i]);
        if inside[i] != passed {
            frames.chunks_exact(pixels).for_each(|frame| classify(frame[from + i], stage, gates[i], &mut kinds[i]));
        }
    }
}

/// Counts a word that lies outside the gate by its kind.
fn classify(word: u16, stage: usize, gate: Gate, kinds: &mut Kinds) {
    if (word ^ GAIN_BITS[stage]).wrapping_sub(gate.low) <= gate.width {
        return;
    }
    *match word {
        0xFFFF => &mut kinds.missing,
        0x4000 | 0x8000..=0xBFFF => &mut kinds.illegal,
        _ if word & 0xC000 == GAIN_BITS[stage] => &mut kinds.outside,
        _ => &mut kinds.wrong_stage,
    } += 1;
}

/// The gate of every pixel from the first frames.
fn gates(frames: &[u16], pixels: usize, stage: usize) -> Vec<Gate> {
    let network = sorting_network();
    let mut gates = Vec::with_capacity(pixels);
    let mut rows = [[UNUSABLE; LANES]; FIRST_FRAMES];
    for from in (0..pixels).step_by(LANES) {
        let count = LANES.min(pixels - from);
        let mut usable = [0usize; LANES];
        for (row, frame) in rows.iter_mut().zip(frames.chunks_exact(pixels)) {
            for (lane, &word) in frame[from..from + count].iter().enumerate() {
                let adc = word ^ GAIN_BITS[stage];
                let good = adc >= LOWEST[stage] && adc <= HIGHEST[stage];
                row[lane] = if good { adc as i16 } else { UNUSABLE };
                usable[lane] += usize::from(good);
            }
        }
        sort(&network, &mut rows);
        let median: [i16; LANES] = std::array::from_fn(|lane| rows[usable[lane] / 2 % FIRST_FRAMES][lane]);
        for row in &mut rows {
            for (value, median) in row.iter_mut().zip(median) {
                *value = if *value == UNUSABLE { UNUSABLE } else { (*value - median).abs() };
            }
        }
        sort(&network, &mut rows);
        for lane in 0..count {
            let mad = rows[usable[lane] / 2 % FIRST_FRAMES][lane];
            gates.push(gate(usable[lane], median[lane] as u16, mad as u16, stage));
        }
        rows = [[UNUSABLE; LANES]; FIRST_FRAMES];
    }
    gates
}

fn gate(usable: usize, median: u16, mad: u16, stage: usize) -> Gate {
    let (lowest, highest) = (LOWEST[stage], HIGHEST[stage]);
    if usable < USABLE_MIN {
        return Gate { low: lowest, width: highest - lowest };
    }
    let half = mad.saturating_mul(GATE_MADS).max(GATE_ADU_MIN);
    let low = median.saturating_sub(half).max(lowest);
    Gate { low, width: median.saturating_add(half).min(highest) - low }
}

/// Batcher's odd-even merge sort for [`FIRST_FRAMES`] rows, as pairs of rows to be put in order.
fn sorting_network() -> Vec<(usize, usize)> {
    const { assert!(FIRST_FRAMES.is_power_of_two()) }
    let mut pairs = Vec::new();
    let mut part = 1;
    while part < FIRST_FRAMES {
        let mut step = part;
        while step >= 1 {
            for start in (step % part..FIRST_FRAMES - step).step_by(2 * step) {
                for i in start..(start + step).min(FIRST_FRAMES - step) {
                    if i / (2 * part) == (i + step) / (2 * part) {
                        pairs.push((i, i + step));
                    }
                }
            }
            step /= 2;
        }
        part *= 2;
    }
    pairs
}

/// Sorts each lane; the compiler vectorises the loop over the lanes.
fn sort(network: &[(usize, usize)], rows: &mut [[i16; LANES]; FIRST_FRAMES]) {
    for &(a, b) in network {
        let (low, high) = (rows[a], rows[b]);
        for lane in 0..LANES {
            rows[a][lane] = low[lane].min(high[lane]);
            rows[b][lane] = low[lane].max(high[lane]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_sorts_every_lane() {
        let network = sorting_network();
        assert_eq!(network.len(), 191, "Batcher's count for 32");
        let mut rows = [[0i16; LANES]; FIRST_FRAMES];
        for (r, row) in rows.iter_mut().enumerate() {
            for (lane, value) in row.iter_mut().enumerate() {
                *value = ((r * 7919 + lane * 104_729 + r * r * lane) % 1000) as i16;
            }
        }
        let mut expected: Vec<Vec<i16>> = (0..LANES).map(|lane| rows.iter().map(|row| row[lane]).collect()).collect();
        expected.iter_mut().for_each(|lane| lane.sort());
        sort(&network, &mut rows);
        assert!((0..LANES).all(|lane| rows.iter().map(|row| row[lane]).eq(expected[lane].iter().copied())));
    }

    #[test]
    fn gates_stay_in_the_range_of_the_stage() {
        for stage in 0..3 {
            for median in [0u16, 1, 5, 8000, 16380, 16382, 16383] {
                for mad in [0u16, 1, 2000, 16383] {
                    let median = median.clamp(LOWEST[stage], HIGHEST[stage]);
                    let gate = gate(32, median, mad, stage);
                    assert!(gate.low >= LOWEST[stage] && gate.low <= median);
                    assert!(gate.low + gate.width <= HIGHEST[stage] && gate.low + gate.width >= median);
                }
            }
            assert_eq!(gate(7, 100, 1, stage).width, HIGHEST[stage] - LOWEST[stage]);
        }
    }
}
