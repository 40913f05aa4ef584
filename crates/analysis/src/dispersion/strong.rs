//! The strong pixels of a row, and what is kept of those of a spot.

use super::rows::Around;
use super::settings::Settings;
use crate::components::Group;
use crate::spot::{Rectangle, Spot};

/// Sums over the strong pixels of a spot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strong {
    pixels: u32,
    /// Number of the first pixel in the image.
    first: u64,
    sum: f64,
    sum_x: f64,
    sum_y: f64,
    background: f64,
    maximum: f64,
    peak: [usize; 2],
    rectangle: Rectangle,
}

impl Strong {
    /// A pixel, if it is strong: `value` is its value and `around` the background.
    pub fn test(settings: &Settings, value: f64, around: Around, [row, column]: [usize; 2], columns: usize) -> Option<Self> {
        let Around { count, sum } = around;
        // Also false for NaN.
        let is_possible = value > settings.global_threshold && sum >= 0.0;
        if !is_possible {
            return None;
        }
        let mean = if count >= 2.0 { sum / count } else { 0.0 };
        let is_strong = if settings.extended {
            value >= mean + settings.sigma_strong * (settings.gain * mean).sqrt()
        } else {
            count * value - sum > settings.sigma_strong * (settings.gain * sum * count).sqrt()
        };
        is_strong.then_some(Self {
            pixels: 1,
            first: row as u64 * columns as u64 + column as u64,
            sum: value,
            sum_x: value * column as f64,
            sum_y: value * row as f64,
            background: mean,
            maximum: value,
            peak: [row, column],
            rectangle: Rectangle::of_pixel(column, row),
        })
    }

    /// Number of the first pixel in the image.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The spot, if the filters let it pass.
    pub fn spot(&self, settings: &Settings) -> Option<Spot> {
        if self.pixels < settings.pixels_min || self.pixels > settings.pixels_max {
            return None;
        }
        let (x_px, y_px) = (self.sum_x / self.sum, self.sum_y / self.sum);
        let (away_x, away_y) = (self.peak[1] as f64 - x_px, self.peak[0] as f64 - y_px);
        let is_near = (away_x * away_x + away_y * away_y).sqrt() <= settings.peak_distance_max_px;
        let deviation = (settings.gain * self.background.max(1.0)).sqrt();
        is_near.then(|| Spot {
            x_px,
            y_px,
            intensity: self.sum,
            maximum: self.maximum,
            background: self.background / f64::from(self.pixels),
            snr: (self.sum - self.background) / deviation,
            pixels: self.pixels,
            rectangle: self.rectangle,
        })
    }
}

impl Group for Strong {
    fn join(&mut self, other: &Self) {
        // The first of the highest pixels is the peak.
        if other.maximum > self.maximum || (other.maximum == self.maximum && other.peak < self.peak) {
            (self.maximum, self.peak) = (other.maximum, other.peak);
        }
        self.pixels = self.pixels.saturating_add(other.pixels);
        self.first = self.first.min(other.first);
        self.sum += other.sum;
        self.sum_x += other.sum_x;
        self.sum_y += other.sum_y;
        self.background += other.background;
        self.rectangle = self.rectangle.around(other.rectangle);
    }
}
