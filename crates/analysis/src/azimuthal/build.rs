//! Makes the matrix of pixels and bins.

use konkordia_kernels::azimuthal::{CHUNK, Extra, Lost, ONE, fixed};

use super::grid::Grid;
use super::polygon::Polygon;
use super::settings::Splitting;
use crate::geometry::Geometry;

/// Pixels without a bin that a stretch may contain one after the other.
const GAP: usize = 32;
/// Points along each edge of a pixel that stand for it where it is no polygon: at the beam.
const POINTS: usize = 16;
/// Most pixels of an image, for which sums of shares are exact.
const PIXELS_MAX: usize = 1 << 26;
/// Most further bins of pixels, per pixel of the image.
const EXTRAS_PER_PIXEL: usize = 8;

/// Pixels that lie one after the other in the image and, without gaps, in the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First pixel in the image.
    pub(super) pixel: usize,
    /// First pixel in the matrix.
    pub(super) at: usize,
    /// Number of pixels.
    pub(super) count: usize,
    /// First chunk.
    pub(super) chunk: usize,
}

/// First bins of all pixels in the matrix. Pixels without a bin have the bin after the last one.
#[derive(Clone, Debug)]
pub enum Bins {
    /// Numbers of at most 16 bits.
    Narrow(Vec<u16>),
    /// Other numbers.
    Wide(Vec<u32>),
}

/// The matrix.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub(super) stretches: Vec<Stretch>,
    pub(super) bins: Bins,
    /// Shares of the first bin and of the next; empty without splitting.
    pub(super) shares: Vec<[f32; 2]>,
    /// Normalisation of each pixel; empty without corrections.
    pub(super) weights: Vec<f32>,
    /// First extra of each chunk, and the end; empty without splitting.
    pub(super) chunks: Vec<u32>,
    pub(super) extras: Vec<Extra>,
    /// What all pixels together add to each bin.
    pub(super) full: Vec<Lost>,
}

impl Matrix {
    /// # Errors
    /// If the image has too many pixels, or the bins are too narrow to store the shares of all pixels.
    pub(super) fn new(geometry: &Geometry, grid: &Grid, usable: &[bool]) -> Result<Self, String> {
        if usable.len() > PIXELS_MAX {
            let pixels = usable.len();
            return Err(format!("azimuthal integration: an image of {pixels} pixels is too large; {PIXELS_MAX} are possible"));
        }
        let mut builder = Builder::new(grid, usable.len());
        let mut shares = Vec::new();
        let mut corners = Corners::new(geometry, grid);
        for (row, usable) in usable.chunks(geometry.columns.max(1)).enumerate() {
            if grid.settings.splitting != Splitting::None {
                corners.next_row(geometry, grid, row);
            }
            for column in usable.iter().enumerate().filter(|(_, is_usable)| **is_usable).map(|(column, _)| column) {
                let (x, y) = (column as f64 + 0.5, row as f64 + 0.5);
                shares.clear();
                match grid.settings.splitting {
                    Splitting::None => {
                        let azimuth = if grid.has_azimuth() { grid.azimuth_bins(geometry, x, y) } else { 0.0 };
                        let bin = grid.bin_of(grid.radius_bins(geometry, x, y), azimuth);
                        shares.extend(bin.map(|bin| (bin, 1.0)));
                    }
                    Splitting::BoundingBox => {
                        let center = [grid.radius_bins(geometry, x, y), grid.azimuth_bins(geometry, x, y)];
                        of_polygon(grid, &corners.rectangle(grid, column, center), &mut shares);
                    }
                    Splitting::Full => match corners.polygon(grid, column) {
                        Some(polygon) => of_polygon(grid, &polygon, &mut shares),
                        None => of_points(geometry, grid, [x, y], &mut shares),
                    },
                }
                if !shares.is_empty() {
                    builder.push(row * geometry.columns + column, &shares, weight(geometry, grid, x, y))?;
                }
            }
        }
        Ok(builder.finish())
    }
}

/// Product of the corrections of a pixel.
fn weight(geometry: &Geometry, grid: &Grid, x_px: f64, y_px: f64) -> f32 {
    let solid_angle = if grid.settings.solid_angle { geometry.solid_angle(x_px, y_px) } else { 1.0 };
    let polarization = grid.settings.polarization.map_or(1.0, |factor| geometry.polarization(x_px, y_px, factor));
    (solid_angle * polarization) as f32
}

/// Radius and azimuth, in bins, of the corners of a row of pixels: above and below it.
struct Corners {
    above: Vec<[f64; 2]>,
    below: Vec<[f64; 2]>,
}

impl Corners {
    fn new(geometry: &Geometry, grid: &Grid) -> Self {
        let mut corners = Self { above: Vec::new(), below: Vec::new() };
        if grid.settings.splitting != Splitting::None {
            corners.below = vec![[0.0; 2]; geometry.columns + 1];
            corners.above = corners.below.clone();
            corners.fill(geometry, grid, 0);
        }
        corners
    }

    fn fill(&mut self, geometry: &Geometry, grid: &Grid, line: usize) {
        for (column, corner) in self.below.iter_mut().enumerate() {
            let (x, y) = (column as f64, line as f64);
            *corner = [grid.radius_bins(geometry, x, y), grid.azimuth_bins(geometry, x, y)];
        }
    }

    /// Goes on to this row, after the row before it.
    fn next_row(&mut self, geometry: &Geometry, grid: &Grid, row: usize) {
        std::mem::swap(&mut self.above, &mut self.below);
        self.fill(geometry, grid, row + 1);
    }

    /// The corners of a pixel of the row, one after the other.
    fn of_pixel(&self, column: usize) -> [[f64; 2]; 4] {
        [self.above[column], self.above[column + 1], self.below[column + 1], self.below[column]]
    }

    /// The rectangle around a centre that holds the corners of a pixel of the row.
    fn rectangle(&self, grid: &Grid, column: usize, center: [f64; 2]) -> Polygon {
        let turn = grid.turn_bins();
        let mut half = [0.0f64; 2];
        for corner in self.of_pixel(column) {
            let [radius, azimuth] = [0, 1].map(|n| corner[n] - center[n]);
            half = [half[0].max(radius.abs()), half[1].max((azimuth - turn * (azimuth / turn).round()).abs())];
        }
        let [mut low, high] = [-1.0, 1.0].map(|sign| [0, 1].map(|n| center[n] + sign * half[n]));
        // Radii below 0 do not exist.
        low[0] = low[0].max(grid.zero_bins());
        Polygon::new([low, [high[0], low[1]], high, [low[0], high[1]]])
    }

    /// A pixel of the row as a polygon; `None` if the beam goes through it, where it is none.
    fn polygon(&self, grid: &Grid, column: usize) -> Option<Polygon> {
        let mut corners = self.of_pixel(column);
        let turn = grid.turn_bins();
        let first = corners[0][1];
        for n in 1..4 {
            // The azimuth next to that of the corner before.
            let step = corners[n][1] - corners[n - 1][1];
            corners[n][1] -= turn * (step / turn).round();
        }
        let is_closed = (corners[3][1] - first).abs() <= 0.5 * turn;
        let span = corners.iter().fold([first; 2], |[low, high], c| [low.min(c[1]), high.max(c[1])]);
        // At most half a turn: more is only possible at the beam.
        let is_polygon = is_closed && span[1] - span[0] < turn * (0.5 - 1e-9);
        (is_polygon && corners.as_flattened().iter().all(|number| number.is_finite())).then(|| Polygon::new(corners))
    }
}

/// The bins of a polygon with their shares of its area.
fn of_polygon(grid: &Grid, polygon: &Polygon, shares: &mut Vec<(usize, f64)>) {
    let bins = grid.settings.bins;
    let area = polygon.area();
    let [low, high] = polygon.span(0);
    // 0 and the number of bins, also of huge numbers.
    let (first, last) = (low.floor().max(0.0), high.floor().min(bins as f64 - 1.0));
    if first > last {
        return;
    }
    if area == 0.0 {
        // A line or a point: its middle.
        let [from, to] = polygon.span(1);
        shares.extend(grid.bin_of(0.5 * (low + high), 0.5 * (from + to)).map(|bin| (bin, 1.0)));
        return;
    }
    if !grid.has_azimuth() {
        if low >= first && high <= first + 1.0 {
            shares.push((first as usize, 1.0));
            return;
        }
        for bin in first as usize..=last as usize {
            push_share(shares, bin, polygon.area_between(bin as f64, bin as f64 + 1.0) / area);
        }
        return;
    }
    let (rows, turn) = (grid.settings.azimuth_bins, grid.turn_bins());
    let [from, to] = polygon.span(1);
    // Turned so that it begins in the first turn; what lies beyond the end of the turn is at its beginning too.
    let home = -turn * (from / turn).floor();
    for by in [home, home - turn] {
        let first_row = (from + by).floor().max(0.0);
        let last_row = (to + by).floor().min(rows as f64 - 1.0);
        if first_row > last_row {
            continue;
        }
        let moved = polygon.moved(1, by);
        for row in first_row as usize..=last_row as usize {
            let part = moved.between(1, row as f64, row as f64 + 1.0);
            for bin in first as usize..=last as usize {
                let share = part.between(0, bin as f64, bin as f64 + 1.0).area() / area;
                push_share(shares, row * bins + bin, share);
            }
        }
    }
    shares.sort_by_key(|(bin, _)| *bin);
}

fn push_share(shares: &mut Vec<(usize, f64)>, bin: usize, share: f64) {
    if share > 0.0 {
        shares.push((bin, share));
    }
}

/// The bins of a pixel by points in it, for a pixel that is no polygon.
fn of_points(geometry: &Geometry, grid: &Grid, [x_px, y_px]: [f64; 2], shares: &mut Vec<(usize, f64)>) {
    let offset = |n: usize| (n as f64 + 0.5) / POINTS as f64 - 0.5;
    for point in 0..POINTS * POINTS {
        let (x, y) = (x_px + offset(point % POINTS), y_px + offset(point / POINTS));
        let Some(bin) = grid.bin_of(grid.radius_bins(geometry, x, y), grid.azimuth_bins(geometry, x, y)) else { continue };
        let share = 1.0 / (POINTS * POINTS) as f64;
        match shares.iter_mut().find(|(of, _)| *of == bin) {
            Some((_, sum)) => *sum += share,
            None => shares.push((bin, share)),
        }
    }
    shares.sort_by_key(|(bin, _)| *bin);
}

struct Builder {
    stretches: Vec<Stretch>,
    bins: Vec<u32>,
    shares: Vec<[f32; 2]>,
    weights: Vec<f32>,
    chunks: Vec<u32>,
    extras: Vec<Extra>,
    full: Vec<Lost>,
    is_split: bool,
    has_weights: bool,
    extras_max: usize,
}

impl Builder {
    fn new(grid: &Grid, pixels: usize) -> Self {
        let is_split = grid.settings.splitting != Splitting::None;
        let has_weights = grid.settings.solid_angle || grid.settings.polarization.is_some();
        Self {
            stretches: Vec::new(),
            bins: Vec::with_capacity(pixels),
            shares: Vec::with_capacity(if is_split { pixels } else { 0 }),
            weights: Vec::with_capacity(if has_weights { pixels } else { 0 }),
            chunks: Vec::new(),
            extras: Vec::new(),
            // One for pixels without a bin, and one after it.
            full: vec![Lost::default(); grid.len() + 2],
            is_split,
            has_weights,
            extras_max: EXTRAS_PER_PIXEL * pixels + (1 << 20),
        }
    }

    /// Number of the bin of pixels that have none.
    fn nowhere(&self) -> usize {
        self.full.len() - 2
    }

    fn push(&mut self, pixel: usize, shares: &[(usize, f64)], weight: f32) -> Result<(), String> {
        let gap = self.stretches.last().map(|last| pixel - (last.pixel + last.count));
        match gap.filter(|gap| *gap <= GAP) {
            Some(gap) => (0..gap).for_each(|_| self.put(self.nowhere(), [0.0; 2], 0.0)),
            None => {
                let chunk = self.chunks.len();
                self.stretches.push(Stretch { pixel, at: self.bins.len(), count: 0, chunk });
            }
        }
        let (first, share) = shares[0];
        let next = shares.get(1).filter(|(bin, _)| *bin == first + 1);
        self.put(first, [share as f32, next.map_or(0.0, |(_, share)| *share as f32)], weight);
        let place = self.stretches.last().map_or(0, |last| last.count - 1);
        let extras = shares[if next.is_some() { 2 } else { 1 }..].iter();
        self.extras.extend(extras.map(|&(bin, share)| Extra {
            pixel: (place % CHUNK) as u32,
            bin: bin as u32,
            share: share as f32,
        }));
        if self.extras.len() > self.extras_max {
            return Err("azimuthal integration: bins are much narrower than pixels; take fewer bins".into());
        }
        let weight = f64::from(weight);
        for (n, &(bin, share)) in shares.iter().enumerate() {
            let share = f64::from(share as f32);
            debug_assert!(n == 0 || bin > shares[n - 1].0);
            self.full[bin].pixels += if self.is_split { fixed(share) } else { ONE };
            self.full[bin].weight += fixed(if self.has_weights { share * weight } else { share });
        }
        Ok(())
    }

    /// Adds a pixel to the last stretch.
    fn put(&mut self, bin: usize, shares: [f32; 2], weight: f32) {
        let Some(last) = self.stretches.last_mut() else { return };
        if last.count.is_multiple_of(CHUNK) {
            self.chunks.push(self.extras.len() as u32);
        }
        last.count += 1;
        self.bins.push(bin as u32);
        if self.is_split {
            self.shares.push(shares);
        }
        if self.has_weights {
            self.weights.push(weight);
        }
    }

    fn finish(mut self) -> Matrix {
        self.chunks.push(self.extras.len() as u32);
        let bins = match u16::try_from(self.nowhere()) {
            Ok(_) => Bins::Narrow(self.bins.iter().map(|&bin| bin as u16).collect()),
            Err(_) => Bins::Wide(self.bins),
        };
        Matrix {
            stretches: self.stretches,
            bins,
            shares: self.shares,
            weights: self.weights,
            chunks: self.chunks,
            extras: self.extras,
            full: self.full,
        }
    }
}
