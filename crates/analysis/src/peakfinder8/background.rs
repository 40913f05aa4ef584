//! The surroundings of a group, and whether the group is a spot.

use super::settings::{Panel, Settings};
use crate::plane::Plane;
use crate::spot::{Rectangle, Spot};
use konkordia_kernels::radial::ValueRange;
use konkordia_kernels::stats::Measured;

/// Standard deviation of a background of which it cannot be computed.
const SIGMA_UNKNOWN: f64 = 0.01;

/// Sums and standard deviations below this count as zero.
const NOTHING: f64 = 1e-10;

/// What is known of the rings of an image.
#[derive(Clone, Copy, Debug)]
pub struct Rings<'a> {
    /// Ring of each pixel.
    pub of_pixel: &'a [u16],
    /// Values that do not stand out, for each ring.
    pub ranges: &'a [ValueRange],
    /// Mean of each ring.
    pub means: &'a [f64],
}

/// The pixels around a pixel up to a radius, without those of the last row and column, as CrystFEL has it.
#[derive(Clone, Debug)]
pub struct Disc {
    radius_px: usize,
    /// Half the width of each row, from the top.
    half_widths_px: Vec<usize>,
}

impl Disc {
    /// Of this radius.
    pub fn new(radius_px: u32) -> Self {
        let half_width = |row: u32| (radius_px.pow(2) - row.abs_diff(radius_px).pow(2)).isqrt() as usize;
        Self { radius_px: radius_px as usize, half_widths_px: (0..2 * radius_px).map(half_width).collect() }
    }

    /// The rows of pixels around the pixel (x, y), as far as they are in the panel: first pixel, pixel after the last.
    fn rows<'a>(&'a self, x: usize, y: usize, columns: usize, panel: &'a Panel) -> impl Iterator<Item = (usize, usize)> + 'a {
        self.half_widths_px.iter().enumerate().filter_map(move |(n, &half_width)| {
            let row = (y + n).checked_sub(self.radius_px)?;
            let first = x.saturating_sub(half_width).max(panel.x_px);
            let end = (x + half_width.min(self.radius_px - 1) + 1).min(panel.x_px + panel.columns);
            let is_in = row >= panel.y_px && row < panel.y_px + panel.rows && first < end;
            is_in.then_some((row * columns + first, row * columns + end))
        })
    }
}

/// The pixels around a group that do not stand out.
struct Background {
    mean: f64,
    sigma: f64,
    maximum: f64,
}

fn background<P: Measured>(
    plane: &Plane<'_, P>,
    rings: &Rings<'_>,
    disc: &Disc,
    panel: &Panel,
    (x, y): (usize, usize),
) -> Background {
    let (mut count, mut sum, mut squares, mut maximum) = (0u32, 0.0, 0.0, 0.0f64);
    for (first, end) in disc.rows(x, y, plane.columns, panel) {
        for (&pixel, &ring) in plane.pixels[first..end].iter().zip(&rings.of_pixel[first..end]) {
            let value = pixel.to_f64();
            if ring != 0 && plane.is_valid(pixel) && value < rings.ranges[usize::from(ring)].below {
                count += 1;
                sum += value;
                squares += value * value;
                maximum = maximum.max(value);
            }
        }
    }
    if count == 0 {
        let mean = rings.means[usize::from(rings.of_pixel[y * plane.columns + x])];
        return Background { mean, sigma: SIGMA_UNKNOWN, maximum };
    }
    let mean = sum / f64::from(count);
    let variance = squares / f64::from(count) - mean * mean;
    Background { mean, sigma: if variance >= 0.0 { variance.sqrt() } else { SIGMA_UNKNOWN }, maximum }
}

/// The centre of pixels with weights; `None` if the weights sum to nothing.
fn centre(pixels: &[u32], columns: usize, weight: impl Fn(usize) -> f64) -> Option<(f64, f64)> {
    let (mut sum, mut sum_x, mut sum_y) = (0.0, 0.0, 0.0);
    for &pixel in pixels {
        let weight = weight(pixel as usize);
        sum += weight;
        sum_x += weight * (pixel as usize % columns) as f64;
        sum_y += weight * (pixel as usize / columns) as f64;
    }
    (sum.abs() >= NOTHING).then(|| (sum_x / sum.abs(), sum_y / sum.abs()))
}

/// True if a coordinate lies between the centres of the first and the last pixel.
fn is_within(at: f64, first: usize, length: usize) -> bool {
    at >= first as f64 && at <= (first + length - 1) as f64
}

/// The spot that a group is; `None` if it is none.
pub fn spot<P: Measured>(
    settings: &Settings,
    plane: &Plane<'_, P>,
    rings: &Rings<'_>,
    disc: &Disc,
    panel: &Panel,
    pixels: &[u32],
) -> Option<Spot> {
    let value = |pixel: usize| plane.pixels[pixel].to_f64();
    let above_ring = |pixel: usize| (value(pixel) - rings.means[usize::from(rings.of_pixel[pixel])]).abs();
    let (x, y) = centre(pixels, plane.columns, above_ring)?;
    let nearest = (x.round_ties_even() as usize, y.round_ties_even() as usize);
    // Rounding in the sums must not move the centre of the last pixels beyond the image.
    let nearest = (nearest.0.min(plane.columns - 1), nearest.1.min(plane.rows - 1));
    let around = background(plane, rings, disc, panel, nearest);
    let (mut intensity, mut maximum) = (0.0, 0.0f64);
    for &pixel in pixels {
        intensity += value(pixel as usize) - around.mean;
        maximum = maximum.max(value(pixel as usize));
    }
    let (x_px, y_px) = centre(pixels, plane.columns, value)?;
    let snr = if around.sigma > NOTHING { intensity / around.sigma } else { 0.0 };
    let above_background = (maximum - around.mean).max(0.0);
    let is_spot = snr >= settings.snr_min
        && above_background >= around.maximum - around.mean
        && above_background <= settings.pixel_max
        && is_within(x_px, panel.x_px, panel.columns)
        && is_within(y_px, panel.y_px, panel.rows);
    let place = |pixel: &u32| Rectangle::of_pixel(*pixel as usize % plane.columns, *pixel as usize / plane.columns);
    let rectangle = pixels.iter().map(place).reduce(Rectangle::around)?;
    let pixels = pixels.len() as u32;
    is_spot.then_some(Spot { x_px, y_px, intensity, maximum, background: around.mean, snr, pixels, rectangle })
}
