//! peakfinder8 pixel by pixel, as the module says it, without thought of speed.

use super::settings::{Panel, Settings};
use crate::plane::Plane;
use crate::spot::{Rectangle, Spot};
use konkordia_kernels::stats::Measured;
use std::collections::BTreeMap;

/// Mean, highest value and lowest value, of each ring.
type Limits = BTreeMap<i64, (f64, f64, f64)>;

pub struct Oracle<'a, P> {
    pub settings: &'a Settings,
    pub radius_px: &'a [f32],
    pub usable: &'a [bool],
    pub panels: &'a [Panel],
    pub plane: &'a Plane<'a, P>,
}

impl<P: Measured> Oracle<'_, P> {
    fn value(&self, n: usize) -> f64 {
        self.plane.pixels[n].to_f64()
    }

    fn ring(&self, n: usize) -> i64 {
        self.radius_px[n].round_ties_even() as i64
    }

    fn is_used(&self, n: usize) -> bool {
        let radius_px = f64::from(self.radius_px[n]);
        let (x, y) = (n % self.plane.columns, n / self.plane.columns);
        self.usable[n]
            && self.plane.is_valid(self.plane.pixels[n])
            && radius_px > self.settings.radius_min_px
            && radius_px < self.settings.radius_max_px
            && radius_px.is_finite()
            && self.panels.iter().any(|panel| panel.contains(x, y))
    }

    fn limits(&self) -> Limits {
        self.values_of_rings().iter().map(|(&ring, values)| (ring, self.limits_of(values, 5))).collect()
    }

    /// Mean of the values of which the last limits were made.
    pub fn background_of_all(&self) -> Option<f64> {
        let mut inside = Vec::new();
        for values in self.values_of_rings().values() {
            let (_, above, below) = self.limits_of(values, 4);
            inside.extend(values.iter().copied().filter(|&v| v > above && v < below));
        }
        (!inside.is_empty()).then(|| inside.iter().sum::<f64>() / inside.len() as f64)
    }

    fn values_of_rings(&self) -> BTreeMap<i64, Vec<f64>> {
        let mut rings: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        for n in (0..self.plane.pixels.len()).filter(|&n| self.is_used(n)) {
            rings.entry(self.ring(n)).or_default().push(self.value(n));
        }
        rings
    }

    fn limits_of(&self, values: &[f64], iterations: usize) -> (f64, f64, f64) {
        let (mut mean, mut above, mut below) = (0.0, -1e9, 1e9);
        for _ in 0..iterations {
            let inside: Vec<f64> = values.iter().copied().filter(|&v| v > above && v < below).collect();
            if inside.is_empty() {
                (mean, above, below) = (0.0, f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
                continue;
            }
            let variance;
            if P::TYPE.is_float() {
                let n = inside.len() as f64;
                mean = inside.iter().fold(0.0, |sum, v| sum + v) / n;
                variance = (inside.iter().fold(0.0, |sum, v| sum + v * v) / n - mean * mean).max(0.0);
            } else {
                let (n, sum) = (inside.len() as i128, inside.iter().map(|&v| v as i128).sum::<i128>());
                mean = sum as f64 / n as f64;
                let squares: i128 = inside.iter().map(|&v| (v as i128) * (v as i128)).sum();
                variance = (n * squares - sum * sum) as f64 / (n * n) as f64;
            }
            above = mean - self.settings.snr_min * variance.sqrt();
            below = (mean + self.settings.snr_min * variance.sqrt()).max(self.settings.threshold);
        }
        (mean, above, below)
    }

    pub fn find(&self) -> Vec<Spot> {
        let limits = self.limits();
        let mut seen = vec![false; self.plane.pixels.len()];
        let mut spots = Vec::new();
        for n in 0..seen.len() {
            let (x, y) = ((n % self.plane.columns) as i64, (n / self.plane.columns) as i64);
            for panel in self.panels {
                let [left, top, width, height] = [panel.x_px, panel.y_px, panel.columns, panel.rows].map(|v| v as i64);
                let is_inside = x > left && x < left + width - 1 && y > top && y < top + height - 1;
                if is_inside && !seen[n] && self.stands_out(&limits, n) {
                    let pixels = self.group(&limits, &mut seen, panel, n);
                    spots.extend(self.spot(&limits, panel, &pixels));
                }
            }
        }
        spots
    }

    fn stands_out(&self, limits: &Limits, n: usize) -> bool {
        self.is_used(n) && self.value(n) > limits[&self.ring(n)].2
    }

    fn group(&self, limits: &Limits, seen: &mut [bool], panel: &Panel, first: usize) -> Vec<usize> {
        let mut group = vec![first];
        seen[first] = true;
        let mut done = 0;
        while done < group.len() {
            let (x, y) = ((group[done] % self.plane.columns) as i64, (group[done] / self.plane.columns) as i64);
            for (dy, dx) in [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)] {
                let (x, y) = ((x + dx) as usize, (y + dy) as usize);
                let n = y.wrapping_mul(self.plane.columns).wrapping_add(x);
                if panel.contains(x, y) && !seen[n] && self.stands_out(limits, n) {
                    seen[n] = true;
                    group.push(n);
                }
            }
            done += 1;
        }
        group
    }

    fn centre(&self, group: &[usize], weight: impl Fn(usize) -> f64) -> (f64, f64, f64) {
        group.iter().fold((0.0, 0.0, 0.0), |(sum, x, y), &n| {
            let (column, row) = ((n % self.plane.columns) as f64, (n / self.plane.columns) as f64);
            (sum + weight(n), x + weight(n) * column, y + weight(n) * row)
        })
    }

    /// Mean, standard deviation and maximum of the surroundings.
    fn background(&self, limits: &Limits, panel: &Panel, x: i64, y: i64) -> (f64, f64, f64) {
        let reach = 2 * i64::from(self.settings.local_background_radius_px);
        let mut values = Vec::new();
        for dy in -reach..reach {
            for dx in -reach..reach {
                let (x, y) = ((x + dx) as usize, (y + dy) as usize);
                let n = y.wrapping_mul(self.plane.columns).wrapping_add(x);
                let is_near = dx * dx + dy * dy <= reach * reach && panel.contains(x, y);
                if is_near && self.is_used(n) && self.value(n) < limits[&self.ring(n)].2 {
                    values.push(self.value(n));
                }
            }
        }
        let n = y as usize * self.plane.columns + x as usize;
        let highest = values.iter().copied().fold(0.0, f64::max);
        if values.is_empty() {
            let mean = if self.is_used(n) { limits[&self.ring(n)].0 } else { 0.0 };
            return (mean, 0.01, highest);
        }
        let count = values.len() as f64;
        let mean = values.iter().fold(0.0, |sum, v| sum + v) / count;
        let variance = values.iter().fold(0.0, |sum, v| sum + v * v) / count - mean * mean;
        (mean, if variance >= 0.0 { variance.sqrt() } else { 0.01 }, highest)
    }

    fn spot(&self, limits: &Limits, panel: &Panel, group: &[usize]) -> Option<Spot> {
        let count = group.len() as u32;
        if count < self.settings.pixels_min || count > self.settings.pixels_max {
            return None;
        }
        let (sum, x, y) = self.centre(group, |n| (self.value(n) - limits[&self.ring(n)].0).abs());
        if sum < 1e-10 {
            return None;
        }
        let (x, y) = ((x / sum).round_ties_even() as i64, (y / sum).round_ties_even() as i64);
        let (mean, sigma, highest) = self.background(limits, panel, x, y);
        let intensity = group.iter().fold(0.0, |sum, &n| sum + (self.value(n) - mean));
        let maximum = group.iter().map(|&n| self.value(n)).fold(0.0, f64::max);
        let (sum, x, y) = self.centre(group, |n| self.value(n));
        if sum.abs() < 1e-10 {
            return None;
        }
        let (x_px, y_px) = (x / sum.abs(), y / sum.abs());
        let snr = if sigma > 1e-10 { intensity / sigma } else { 0.0 };
        let inside = |at: f64, first: usize, length: usize| at >= first as f64 && at <= (first + length - 1) as f64;
        let above = (maximum - mean).max(0.0);
        let is_spot = snr >= self.settings.snr_min
            && above >= highest - mean
            && above <= self.settings.pixel_max
            && inside(x_px, panel.x_px, panel.columns)
            && inside(y_px, panel.y_px, panel.rows);
        let at = |n: &usize| [(n % self.plane.columns) as u32, (n / self.plane.columns) as u32];
        let first_px = [0, 1].map(|axis| group.iter().map(|n| at(n)[axis]).min().unwrap_or(0));
        let rectangle = Rectangle { first_px, last_px: [0, 1].map(|axis| group.iter().map(|n| at(n)[axis]).max().unwrap_or(0)) };
        is_spot.then_some(Spot { x_px, y_px, intensity, maximum, background: mean, snr, pixels: count, rectangle })
    }
}
