//! The ring of each pixel, and which values of a ring stand out.

use super::bits::Bits;
use super::settings::{Panel, Settings};
use konkordia_core::pixel::Pixel;
use konkordia_kernels::Isa;
use konkordia_kernels::radial::{self, Listed, Moments, RealMoments, RingCounts, SLOTS, ValueRange, WholeMoments, Window};
use konkordia_kernels::stats::Measured;

use crate::plane::Plane;

/// Times that mean and spread of a ring are computed, each time without what stands out.
const ITERATIONS: usize = 5;

/// Before the first time, values of a larger size are left out.
const VALUE_MAX: f64 = 1e9;

/// The lowest value that has a slot of its own, if values below zero are measurements: noise about zero.
const LOWEST_SLOT: i64 = -8;

/// Pixels between two looks at whether the list gets too long.
const BLOCK: usize = 1 << 14;

/// Of so many pixels, one may be listed. If more of them are above the threshold, only those are listed whose values
/// have no slot, and a second pass finds those that stand out. If more of them have no slot, each iteration is a pass.
const LISTED_SHARE: usize = 4;

/// The ring of each pixel. Ring 0 holds the pixels that are not used.
#[derive(Clone, Debug)]
pub struct RingMap {
    /// Ring of each pixel.
    pub of_pixel: Vec<u16>,
    /// Number of rings, with ring 0.
    pub count: usize,
    /// True if no ring but ring 0 has more pixels than a counter of 16 bits can count.
    pub is_countable: bool,
}

impl RingMap {
    /// The ring of a pixel is its distance from the beam, rounded. Pixels are used if they are usable, lie in a panel,
    /// have a distance that is a number, and lie between the least and the greatest radius.
    ///
    /// # Errors
    /// If two panels overlap, or if the rings do not fit into 16 bits.
    pub fn new(
        settings: &Settings,
        radius_px: &[f32],
        usable: &[bool],
        columns: usize,
        panels: &[Panel],
    ) -> Result<Self, String> {
        let mut in_region = vec![false; radius_px.len()];
        for panel in panels {
            for row in panel.y_px..panel.y_px + panel.rows {
                for pixel in &mut in_region[row * columns + panel.x_px..][..panel.columns] {
                    if std::mem::replace(pixel, true) {
                        return Err(format!("peakfinder8: the panel {panel:?} overlaps with another one"));
                    }
                }
            }
        }
        let is_used = |n: usize| {
            let radius_px = f64::from(radius_px[n]);
            let in_range = radius_px > settings.radius_min_px && radius_px < settings.radius_max_px;
            usable[n] && in_region[n] && in_range && radius_px.is_finite()
        };
        let whole_px = |n: usize| f64::from(radius_px[n].round_ties_even());
        let used = || (0..radius_px.len()).filter(|&n| is_used(n)).map(whole_px);
        let first_px = used().fold(f64::INFINITY, f64::min);
        let last_px = used().fold(f64::NEG_INFINITY, f64::max);
        if last_px - first_px >= f64::from(u16::MAX) {
            return Err(format!("peakfinder8: pixels {first_px} to {last_px} px from the beam are too many rings"));
        }
        let ring = |n: usize| if is_used(n) { (whole_px(n) - first_px) as u16 + 1 } else { 0 };
        let of_pixel: Vec<u16> = (0..radius_px.len()).map(ring).collect();
        let count = usize::from(of_pixel.iter().copied().max().unwrap_or(0)) + 1;
        let mut pixels = vec![0u32; count];
        of_pixel.iter().for_each(|&ring| pixels[usize::from(ring)] += 1);
        let is_countable = pixels.iter().skip(1).all(|&pixels| pixels <= u32::from(u16::MAX));
        Ok(Self { of_pixel, count, is_countable })
    }
}

/// A value without a slot of its own.
#[derive(Clone, Copy, Debug)]
struct Rest {
    ring: u16,
    value: i64,
}

/// Number, sum and sum of squares of small values, less the value of the first slot.
type SlotMoments = Moments<i64, i64>;

/// Which values of each ring stand out, for one image after the other.
#[derive(Clone, Debug)]
pub struct RingStatistics {
    threshold: f64,
    snr_min: f64,
    /// Values between these limits do not stand out.
    pub ranges: Vec<ValueRange>,
    /// Mean of each ring.
    pub means: Vec<f64>,
    /// Mean of all pixels that do not stand out; `None` if there is none.
    pub background: Option<f64>,
    counts: Vec<RingCounts>,
    /// Pixels that may stand out: those above the threshold, and a few others.
    listed: Vec<Listed>,
    listed_max: usize,
    rest: Vec<Rest>,
    /// Moments of the small values, and the slots to which they belong.
    slots: Vec<((usize, usize), SlotMoments)>,
    whole: Vec<WholeMoments>,
    real: Vec<RealMoments>,
}

impl RingStatistics {
    /// Takes its memory.
    pub fn new(settings: &Settings, rings: &RingMap) -> Self {
        let (count, listed_max) = (rings.count, rings.of_pixel.len() / LISTED_SHARE + BLOCK);
        Self {
            threshold: settings.threshold,
            snr_min: settings.snr_min,
            ranges: vec![ValueRange { above: 0.0, below: 0.0 }; count],
            means: vec![0.0; count],
            background: None,
            counts: vec![RingCounts::default(); count],
            listed: Vec::with_capacity(listed_max),
            listed_max,
            rest: Vec::with_capacity(listed_max),
            slots: vec![Default::default(); count],
            whole: vec![WholeMoments::default(); count],
            real: vec![RealMoments::default(); count],
        }
    }

    /// Finds the limits and the mean of each ring, and marks the pixels that stand out.
    pub fn find<P: Measured>(&mut self, isa: Isa, plane: &Plane<'_, P>, rings: &RingMap, marked: &mut Bits) {
        marked.clear();
        self.ranges.fill(ValueRange { above: -VALUE_MAX, below: VALUE_MAX });
        if P::TYPE.is_float() {
            self.read_floats(plane, rings);
            let all = self.real[1..].iter().fold((0, 0.0), |(count, sum), ring| (count + ring.count, sum + ring.sum));
            self.background = (all.0 > 0).then(|| all.1 / all.0 as f64);
            return self.mark_all(plane, rings, marked);
        }
        let base = (plane.low.to_f64() as i64).max(LOWEST_SLOT);
        let window = Window::new(plane.low, plane.high, base, self.threshold);
        if self.count(isa, plane, rings, &window) {
            self.use_counts(base, &window);
            self.set_whole_background();
            return self.mark_listed(&window, marked);
        }
        let window = Window::new(plane.low, plane.high, base, f64::INFINITY);
        if self.count(isa, plane, rings, &window) {
            self.use_counts(base, &window);
        } else {
            self.read_integers(plane, rings);
        }
        self.set_whole_background();
        self.mark_all(plane, rings, marked);
    }

    fn set_whole_background(&mut self) {
        let all = self.whole[1..].iter().fold((0, 0), |(count, sum), ring| (count + ring.count, sum + i128::from(ring.sum)));
        self.background = (all.0 > 0).then(|| all.1 as f64 / all.0 as f64);
    }

    fn mark_listed(&self, window: &Window, marked: &mut Bits) {
        for listed in &self.listed {
            if window.value(listed.word) as f64 > self.ranges[usize::from(listed.ring)].below {
                marked.set(listed.position as usize);
            }
        }
    }

    fn mark_all<P: Measured>(&self, plane: &Plane<'_, P>, rings: &RingMap, marked: &mut Bits) {
        for (n, (&pixel, &ring)) in plane.pixels.iter().zip(&rings.of_pixel).enumerate() {
            if ring != 0 && plane.is_valid(pixel) && pixel.to_f64() > self.ranges[usize::from(ring)].below {
                marked.set(n);
            }
        }
    }

    /// Counts all pixels; false if that is not possible, or if too many of them would be listed.
    fn count<P: Measured>(&mut self, isa: Isa, plane: &Plane<'_, P>, rings: &RingMap, window: &Window) -> bool {
        if !rings.is_countable {
            return false;
        }
        self.counts.fill(RingCounts::default());
        self.listed.clear();
        let blocks = plane.pixels.chunks(BLOCK).zip(rings.of_pixel.chunks(BLOCK));
        for (block, (pixels, rings)) in blocks.enumerate() {
            radial::count(isa, pixels, rings, block * BLOCK, window, &mut self.counts, &mut self.listed);
            if self.listed.len() > plane.pixels.len() / LISTED_SHARE {
                return false;
            }
        }
        true
    }

    /// All iterations from the numbers of small values and the list of the others.
    fn use_counts(&mut self, base: i64, window: &Window) {
        self.rest.clear();
        for listed in &self.listed {
            let value = window.value(listed.word);
            if !window.has_slot(value) {
                self.rest.push(Rest { ring: listed.ring, value });
            }
        }
        debug_assert!(self.listed.len().max(self.rest.len()) <= self.listed_max, "no memory is taken here");
        self.slots.fill(Default::default());
        for _ in 0..ITERATIONS {
            for (ring, moments) in self.whole.iter_mut().enumerate().skip(1) {
                let slots = slots_of(&self.ranges[ring], base);
                let (known, small) = &mut self.slots[ring];
                if *known != slots {
                    (*known, *small) = (slots, slot_moments(&self.counts[ring], slots));
                }
                *moments = with_base(small, base);
            }
            for rest in &self.rest {
                if self.ranges[usize::from(rest.ring)].contains(rest.value as f64) {
                    let moments = &mut self.whole[usize::from(rest.ring)];
                    moments.count += 1;
                    moments.sum += rest.value;
                    moments.squares += i128::from(rest.value * rest.value);
                }
            }
            self.set_ranges(|statistics, ring| statistics.whole[ring].mean_and_sigma());
        }
    }

    fn read_integers<P: Pixel>(&mut self, plane: &Plane<'_, P>, rings: &RingMap) {
        for _ in 0..ITERATIONS {
            self.whole.fill(WholeMoments::default());
            let limits = [plane.low, plane.high];
            radial::add_whole(plane.pixels, &rings.of_pixel, limits, &self.ranges, &mut self.whole);
            if !self.set_ranges(|statistics, ring| statistics.whole[ring].mean_and_sigma()) {
                break;
            }
        }
    }

    fn read_floats<P: Pixel>(&mut self, plane: &Plane<'_, P>, rings: &RingMap) {
        for _ in 0..ITERATIONS {
            self.real.fill(RealMoments::default());
            let limits = [plane.low, plane.high];
            radial::add_real(plane.pixels, &rings.of_pixel, limits, &self.ranges, &mut self.real);
            if !self.set_ranges(|statistics, ring| statistics.real[ring].mean_and_sigma()) {
                break;
            }
        }
    }

    /// New limits from mean and standard deviation. False if all are as they were: then further iterations change
    /// nothing.
    fn set_ranges(&mut self, mean_and_sigma: impl Fn(&Self, usize) -> Option<(f64, f64)>) -> bool {
        let mut changed = false;
        for ring in 1..self.ranges.len() {
            let (mean, range) = match mean_and_sigma(self, ring) {
                Some((mean, sigma)) => {
                    let below = (mean + self.snr_min * sigma).max(self.threshold);
                    (mean, ValueRange { above: mean - self.snr_min * sigma, below })
                }
                None => (0.0, ValueRange { above: f64::from(f32::MIN_POSITIVE), below: f64::from(f32::MAX) }),
            };
            changed |= self.ranges[ring] != range;
            (self.means[ring], self.ranges[ring]) = (mean, range);
        }
        changed
    }
}

/// The slots of the small values in a range: from the first to before the last.
fn slots_of(range: &ValueRange, base: i64) -> (usize, usize) {
    let last = SLOTS as i64 - 1;
    let first = (range.above.floor() as i64 + 1).saturating_sub(base).clamp(0, last);
    let end = (range.below.ceil() as i64).saturating_sub(base).clamp(first, last);
    (first as usize, end as usize)
}

/// A ring has at most 2^16 - 1 pixels here, so that even their squares, at most 254 * 254 each, sum to less than 2^32.
fn slot_moments(counts: &RingCounts, (first, end): (usize, usize)) -> SlotMoments {
    let [mut count, mut sum, mut squares] = [0u32; 3];
    for (&number, slot) in counts.0[first..end].iter().zip(first as u32..) {
        let number = u32::from(number);
        count += number;
        sum += number * slot;
        squares += number * slot * slot;
    }
    SlotMoments { count: count.into(), sum: sum.into(), squares: squares.into() }
}

const _: () = assert!(u16::MAX as u64 * (SLOTS as u64 - 2).pow(2) <= u32::MAX as u64);

fn with_base(small: &SlotMoments, base: i64) -> WholeMoments {
    let [count, sum, base] = [small.count.cast_signed(), small.sum, base].map(i128::from);
    Moments {
        count: small.count,
        sum: (sum + count * base) as i64,
        squares: i128::from(small.squares) + 2 * base * sum + count * base * base,
    }
}
