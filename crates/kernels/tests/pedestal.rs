//! Pedestals from dark frames against two passes in double precision, with photons, wrong stages and missing words
//! among the dark ones.

use konkordia_kernels::pedestal::{FIRST_FRAMES, GATE_ADU_MIN, PedestalAccumulator, PedestalPlanes, USABLE_MIN};
use std::time::Instant;

/// Uniform numbers from a seed.
struct Draw(u64);
impl Draw {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

fn run(frames: &[Vec<u16>], pixels: usize, stage: u8) -> PedestalPlanes {
    let mut accumulator = PedestalAccumulator::new(pixels, stage);
    frames.iter().for_each(|frame| accumulator.add(frame));
    accumulator.finish()
}

/// What the rules of the module give, with sorted lists and two passes.
struct Naive {
    mean: f64,
    rms: f64,
    counts: [u32; 5],
}

fn naive(words: &[u16], stage: usize) -> Naive {
    let bits = [0u16, 0x4000, 0xC000][stage];
    let usable = |word: u16| word & 0xC000 == bits && !matches!(word, 0xFFFF | 0x4000 | 0xC000);
    let mut first: Vec<i32> = words.iter().take(FIRST_FRAMES).filter(|w| usable(**w)).map(|w| i32::from(w & 0x3FFF)).collect();
    first.sort();
    let (mut low, mut high) = (0, 16383);
    if first.len() >= USABLE_MIN {
        let median = first[first.len() / 2];
        let mut distances: Vec<i32> = first.iter().map(|x| (x - median).abs()).collect();
        distances.sort();
        let half = (12 * distances[distances.len() / 2]).max(GATE_ADU_MIN.into());
        (low, high) = (median - half, median + half);
    }
    let mut counts = [0u32; 5];
    let mut kept = Vec::new();
    for &word in words {
        let adc = i32::from(word & 0x3FFF);
        let kind = match word {
            0xFFFF => 3,
            _ if word == 0x4000 || word >> 14 == 2 => 4,
            _ if word & 0xC000 != bits => 2,
            _ if usable(word) && adc >= low && adc <= high => 0,
            _ => 1,
        };
        counts[kind] += 1;
        if kind == 0 {
            kept.push(f64::from(adc));
        }
    }
    let n = kept.len() as f64;
    let mean = kept.iter().sum::<f64>() / n;
    let rms = if kept.len() < 2 { f64::NAN } else { (kept.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt() };
    Naive { mean, rms, counts }
}

fn close(ours: f32, naive: f64) -> bool {
    naive.is_nan() && ours.is_nan() || (f64::from(ours) - naive).abs() <= 1e-6 * naive.abs().max(1.0)
}

fn check(frames: &[Vec<u16>], pixels: usize, stage: u8) -> PedestalPlanes {
    let planes = run(frames, pixels, stage);
    for i in 0..pixels {
        let words: Vec<u16> = frames.iter().map(|frame| frame[i]).collect();
        let naive = naive(&words, stage.into());
        assert!(close(planes.mean_adu[i], naive.mean), "pixel {i}: mean {} not {}", planes.mean_adu[i], naive.mean);
        assert!(close(planes.rms_adu[i], naive.rms), "pixel {i}: rms {} not {}", planes.rms_adu[i], naive.rms);
        let counts = [planes.count[i], planes.outside[i], planes.wrong_stage[i], planes.missing[i], planes.illegal[i]];
        assert_eq!(counts, naive.counts, "pixel {i}");
        assert_eq!(counts.iter().sum::<u32>() as usize, frames.len());
    }
    planes
}

/// Words of every kind, for good pixels and for bad ones.
fn frames(seed: u64, count: usize, pixels: usize, stage: usize) -> Vec<Vec<u16>> {
    let bits = [0u16, 0x4000, 0xC000][stage];
    let mut draw = Draw(seed);
    let mut word = |pixel: usize| {
        let adc = match pixel % 7 {
            0 => 3.0 + 9.0 * draw.normal(),
            1 => 16380.0 + 9.0 * draw.normal(),
            2 => 16383.0 * draw.uniform(),
            3 => 5000.0,
            _ => 2000.0 + pixel as f64 + 8.0 * draw.normal(),
        };
        let adc = adc.round().clamp(0.0, 16383.0) as u16;
        let chance = draw.uniform();
        match () {
            () if chance < 0.02 => bits | (adc + 508).min(16383),
            () if chance < 0.04 => 0xFFFF,
            () if chance < 0.06 => 0x8000 | adc,
            () if chance < 0.08 => 0x4000 | adc,
            () if chance < 0.10 => 0xC000 | adc,
            () if chance < 0.12 => adc,
            () if pixel % 11 == 5 && chance < 0.9 => 0xFFFF,
            () => bits | adc,
        }
    };
    (0..count).map(|_| (0..pixels).map(&mut word).collect()).collect()
}

#[test]
fn mean_noise_and_counts_are_those_of_two_passes() {
    for stage in 0..3 {
        for (count, pixels) in
            [(0, 10), (1, 7), (5, 40), (8, 31), (31, 70), (32, 70), (33, 520), (100, 33), (147, 1101), (40, 1), (3, 0)]
        {
            check(&frames(count as u64, count, pixels, stage), pixels, stage as u8);
        }
    }
}

#[test]
fn any_division_of_pixels_and_frames_gives_the_same() {
    let (pixels, all) = (1301, frames(3, 75, 1301, 0));
    let whole = run(&all, pixels, 0);
    let mut joined = PedestalAccumulator::new(pixels, 0);
    for group in all.chunks(13) {
        joined.add(&group.concat());
    }
    assert_eq!(joined.frames(), 75);
    let debug = |planes: &PedestalPlanes| format!("{planes:?}");
    assert_eq!(debug(&joined.finish()), debug(&whole));
    for (first, last) in [(0, 1), (1, 514), (514, 1301)] {
        let part: Vec<Vec<u16>> = all.iter().map(|frame| frame[first..last].to_vec()).collect();
        let part = run(&part, last - first, 0);
        let bits = |plane: &[f32]| plane.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
        assert_eq!(bits(&part.mean_adu), bits(&whole.mean_adu[first..last]));
        assert_eq!(bits(&part.rms_adu), bits(&whole.rms_adu[first..last]));
        assert_eq!(part.outside, whole.outside[first..last]);
        assert_eq!(part.wrong_stage, whole.wrong_stage[first..last]);
    }
}

/// Noise of 8 ADU and photons of 508 ADU on three percent of the words: mean and noise are those of the dark.
#[test]
fn photons_do_not_move_the_pedestal() {
    let (pixels, count) = (2000, 1000);
    let mut draw = Draw(77);
    let truth = |pixel: usize| 2000.0 + 0.61 * pixel as f64;
    let mut photons = 0;
    let frames: Vec<Vec<u16>> = (0..count)
        .map(|_| {
            let mut word = |pixel| {
                let light = if draw.uniform() < 0.03 { 508.0 } else { 0.0 };
                photons += u32::from(light > 0.0);
                (truth(pixel) + 8.0 * draw.normal() + light).round() as u16
            };
            (0..pixels).map(&mut word).collect()
        })
        .collect();
    let planes = run(&frames, pixels, 0);
    let (mut far, mut noise) = (0, 0.0);
    for pixel in 0..pixels {
        let error = 8.0 / f64::from(planes.count[pixel]).sqrt();
        far += usize::from((f64::from(planes.mean_adu[pixel]) - truth(pixel)).abs() > 4.0 * error);
        noise += f64::from(planes.rms_adu[pixel]) / pixels as f64;
    }
    let outside: u32 = planes.outside.iter().sum();
    println!("{photons} photons, {outside} words outside; {far} of {pixels} means off by 4 errors; mean noise {noise:.3} ADU");
    assert!(far <= pixels / 1000);
    // Rounding to whole ADU adds 1/12 to the variance.
    assert!((noise - (64.0f64 + 1.0 / 12.0).sqrt()).abs() < 0.05);
    assert!(outside >= photons && outside < photons + photons / 100);
}

/// The largest sums that a pass of 32-bit numbers can meet.
#[test]
fn the_whole_range_does_not_overflow() {
    let mut all = vec![vec![0xFFFFu16; 5]; FIRST_FRAMES];
    all.extend(vec![vec![16383u16; 5]; 200]);
    all.extend(vec![vec![0u16; 5]; 200]);
    let planes = check(&all, 5, 0);
    assert_eq!((planes.mean_adu[0], planes.count[0], planes.missing[0]), (8191.5, 400, 32));
}

/// Prints the speed and does not judge it.
#[test]
fn frames_of_a_module() {
    let (pixels, count) = (512 * 1024, 56);
    let mut draw = Draw(1);
    let noise: Vec<u16> = (0..pixels + 4096).map(|_| (2500.0 + 8.0 * draw.normal()).round() as u16).collect();
    let mut accumulator = PedestalAccumulator::new(pixels, 0);
    let mut seconds = Vec::new();
    for frame in 0..count {
        let start = Instant::now();
        accumulator.add(&noise[frame * 64 % 4096..][..pixels]);
        seconds.push(start.elapsed().as_secs_f64());
    }
    let first: f64 = seconds[..FIRST_FRAMES].iter().sum();
    let later: f64 = seconds[FIRST_FRAMES..].iter().sum();
    println!("first {FIRST_FRAMES} frames {:.0} ms, then {:.0} frames/s", first * 1e3, (count - FIRST_FRAMES) as f64 / later);
    assert_eq!(accumulator.finish().frames, count as u64);
}
