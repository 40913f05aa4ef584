//! The only source of random numbers: xoshiro256++ (Blackman and Vigna, 2019) seeded through SplitMix64, with normal
//! and Poisson variates.
//!
//! Every image, module and link derives its own generator by [`Rng::keyed`], so a result does not depend on the order
//! of the calls.

use std::sync::LazyLock;

/// Layers of the ziggurat.
const LAYERS: usize = 128;
/// Start of the tail of the ziggurat for 128 layers, and the area of a layer (Doornik 2005, "An improved ziggurat
/// method").
const TAIL_START: f64 = 3.442_619_855_899;
const LAYER_AREA: f64 = 9.912_563_035_262_17e-3;
/// Means below this are sampled by inversion, above by rejection.
const INVERSION_MAX: f64 = 12.0;
/// Inversion never counts further: P(k >= 128 | mean 12) is far below the resolution of a draw.
const INVERSION_STEPS: usize = 128;

struct Tables {
    edge: [f64; LAYERS + 1],
    ratio: [f64; LAYERS],
    reciprocal: [f64; INVERSION_STEPS],
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let mut edge = [0.0; LAYERS + 1];
    let density = (-0.5 * TAIL_START * TAIL_START).exp();
    edge[0] = LAYER_AREA / density;
    edge[1] = TAIL_START;
    let mut height = density;
    for i in 2..LAYERS {
        edge[i] = (-2.0 * (LAYER_AREA / edge[i - 1] + height).ln()).sqrt();
        height = (-0.5 * edge[i] * edge[i]).exp();
    }
    let ratio = std::array::from_fn(|i| edge[i + 1] / edge[i]);
    let reciprocal = std::array::from_fn(|k| 1.0 / k.max(1) as f64);
    Tables { edge, ratio, reciprocal }
});

/// One step of SplitMix64: a bijective mix of all bits, also used as the hash of Miller indices.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Deterministic random numbers.
#[derive(Clone)]
pub struct Rng {
    state: [u64; 4],
    tables: &'static Tables,
}

impl Rng {
    /// A generator from one seed.
    pub fn new(seed: u64) -> Self {
        Self::keyed(seed, &[])
    }

    /// A generator for one purpose: equal (seed, key) give equal numbers, any other key gives unrelated ones.
    pub fn keyed(seed: u64, key: &[u64]) -> Self {
        let mut hash = mix(seed);
        for &part in key {
            hash = mix(hash ^ mix(part));
        }
        let state = std::array::from_fn(|i| mix(hash.wrapping_add(i as u64)));
        Self { state, tables: &TABLES }
    }

    /// 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), 53 bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform integer in 0 .. `end` (multiply-shift; the bias is below `end` / 2^64).
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// True with this probability. Draws even for 0 and 1, so that switching one fault off does not shift the others.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Standard normal variate (ziggurat).
    #[inline]
    pub fn normal(&mut self) -> f64 {
        loop {
            let bits = self.next_u64();
            let layer = (bits & 127) as usize;
            let u = (bits >> 11) as f64 * (2.0 / (1u64 << 53) as f64) - 1.0;
            if u.abs() < self.tables.ratio[layer] {
                return u * self.tables.edge[layer];
            }
            if let Some(value) = self.normal_edge(layer, u) {
                return value;
            }
        }
    }

    #[cold]
    fn normal_edge(&mut self, layer: usize, u: f64) -> Option<f64> {
        if layer == 0 {
            loop {
                let x = (1.0 - self.uniform()).ln() / TAIL_START;
                let y = (1.0 - self.uniform()).ln();
                if -2.0 * y >= x * x {
                    return Some(if u < 0.0 { x - TAIL_START } else { TAIL_START - x });
                }
            }
        }
        let (outer, inner) = (self.tables.edge[layer], self.tables.edge[layer + 1]);
        let x = u * outer;
        let f0 = (-0.5 * (outer * outer - x * x)).exp();
        let f1 = (-0.5 * (inner * inner - x * x)).exp();
        (f1 + self.uniform() * (f0 - f1) < 1.0).then_some(x)
    }

    /// Poisson variate of the given mean (0 for means that are not positive).
    #[inline]
    pub fn poisson(&mut self, mean: f64) -> u32 {
        if mean >= INVERSION_MAX {
            return self.poisson_rejection(mean);
        }
        if mean <= 0.0 || mean.is_nan() {
            return 0;
        }
        let mut rest = self.uniform();
        let mut probability = (-mean).exp();
        let mut k = 0;
        while rest >= probability && k + 1 < INVERSION_STEPS {
            rest -= probability;
            k += 1;
            probability *= mean * self.tables.reciprocal[k];
        }
        k as u32
    }

    /// Transformed rejection (PTRS; Hörmann 1993, Insurance: Mathematics and Economics 12, 39).
    fn poisson_rejection(&mut self, mean: f64) -> u32 {
        let b = 0.931 + 2.53 * mean.sqrt();
        let a = -0.059 + 0.02483 * b;
        let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        let v_r = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let u = self.uniform() - 0.5;
            let v = self.uniform();
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + mean + 0.43).floor();
            if us >= 0.07 && v <= v_r {
                return k as u32;
            }
            if k < 0.0 || (us < 0.013 && v > us) {
                continue;
            }
            let left = (v * inverse_alpha / (a / (us * us) + b)).ln();
            if left <= k * mean.ln() - mean - ln_factorial(k) {
                return k as u32;
            }
        }
    }
}

/// Natural logarithm of k! (Stirling's series; for small k by the product).
fn ln_factorial(k: f64) -> f64 {
    if k < 16.0 {
        return (2..=k as u32).map(f64::from).product::<f64>().ln();
    }
    let r = 1.0 / k;
    (k + 0.5) * k.ln() - k + 0.5 * std::f64::consts::TAU.ln() + r * (1.0 / 12.0 - r * r * (1.0 / 360.0 - r * r / 1260.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean, variance and fourth central moment of `n` draws.
    fn moments(n: usize, mut draw: impl FnMut() -> f64) -> (f64, f64, f64) {
        let values: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let central = |p: i32| values.iter().map(|v| (v - mean).powi(p)).sum::<f64>() / n as f64;
        (mean, central(2), central(4))
    }

    #[test]
    fn normal_has_the_right_moments_and_tail() {
        let mut rng = Rng::new(1);
        let n = 1_000_000;
        let (mean, variance, fourth) = moments(n, || rng.normal());
        assert!(mean.abs() < 5e-3, "{mean}");
        assert!((variance - 1.0).abs() < 8e-3, "{variance}");
        assert!((fourth - 3.0).abs() < 0.06, "{fourth}");
        let beyond = (0..n).filter(|_| rng.normal().abs() > 3.5).count() as f64;
        let expected = n as f64 * 4.6526e-4;
        assert!((beyond - expected).abs() < 6.0 * expected.sqrt(), "{beyond} against {expected}");
    }

    #[test]
    fn poisson_has_the_right_moments_on_both_sides_of_the_switch() {
        let mut rng = Rng::new(2);
        for mean in [0.01, 0.7, 3.0, 11.9, 12.1, 40.0, 1000.0, 20_000.0] {
            let n = 200_000;
            let (m, v, _) = moments(n, || f64::from(rng.poisson(mean)));
            assert!((m - mean).abs() < 6.0 * (mean / n as f64).sqrt(), "mean {m} for {mean}");
            let sigma_v = ((2.0 * mean * mean + mean) / n as f64).sqrt();
            assert!((v - mean).abs() < 6.0 * sigma_v, "variance {v} for {mean}");
        }
        assert_eq!([rng.poisson(0.0), rng.poisson(-1.0), rng.poisson(f64::NAN)], [0, 0, 0]);
    }

    #[test]
    fn poisson_probabilities_follow_the_formula() {
        let mut rng = Rng::new(3);
        for mean in [2.5, 14.0] {
            let n = 400_000;
            let mut counts = [0u32; 64];
            (0..n).for_each(|_| counts[(rng.poisson(mean) as usize).min(63)] += 1);
            for (k, &count) in counts.iter().enumerate() {
                let expected = f64::from(n) * (k as f64 * f64::ln(mean) - mean - ln_factorial(k as f64)).exp();
                assert!(
                    (f64::from(count) - expected).abs() < 6.0 * expected.sqrt() + 6.0,
                    "mean {mean}, k {k}: {count} / {expected}"
                );
            }
        }
    }

    #[test]
    fn keys_separate_and_reproduce() {
        let draw = |seed, key: &[u64]| Rng::keyed(seed, key).next_u64();
        assert_eq!(draw(7, &[1, 2]), draw(7, &[1, 2]));
        let all = [draw(7, &[1, 2]), draw(7, &[2, 1]), draw(8, &[1, 2]), draw(7, &[1]), draw(7, &[]), draw(7, &[0])];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
        let mut rng = Rng::new(4);
        let mut seen = [0u32; 7];
        (0..70_000).for_each(|_| seen[rng.below(7) as usize] += 1);
        assert!(seen.iter().all(|&n| (9_400..10_600).contains(&n)), "{seen:?}");
    }
}
