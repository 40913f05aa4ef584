//! Pictures as PNG: maps of a plane, histograms, and charts of points and lines. It needs no fonts of the system and
//! knows nothing of detectors but shapes and types. Read [`Picture`] first, then [`image::png`].
//!
//! All functions draw on a new [`Picture`]; [`Picture::write`] stores it, [`stacked`] puts several into one.
//!
//! ```
//! use konkordia_core::array::Element;
//! use konkordia_picture::image::{Pixels, png};
//!
//! let pixels = Pixels { element: Element::Uint8, columns: 4, bytes: &[0, 1, 2, 3, 4, 5, 6, 7] };
//! assert!(png(pixels, 64)?.starts_with(b"\x89PNG"));
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

pub mod frame;
pub mod image;
pub mod stack;

use embedded_graphics::mono_font::{MonoFont, MonoTextStyle, iso_8859_1};
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::{DrawTarget, Drawable, OriginDimensions, Pixel, Point, Primitive, RgbColor, Size};
use embedded_graphics::primitives::{Circle, Line, PrimitiveStyle, Rectangle};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use konkordia_core::failure::{Exit, Failure};
use std::path::Path;

const BLACK: Rgb888 = Rgb888::new(0x20, 0x20, 0x20);
const GRID: Rgb888 = Rgb888::new(0xE0, 0xE0, 0xE0);
/// Colour of values that are not finite.
const NOTHING: Rgb888 = Rgb888::new(0xA8, 0xA8, 0xA8);
/// Colours for the series of a chart, which colour-blind people can distinguish, too (Okabe and Ito).
const SERIES: [Rgb888; 8] = [
    Rgb888::new(0x00, 0x72, 0xB2),
    Rgb888::new(0xD5, 0x5E, 0x00),
    Rgb888::new(0x00, 0x9E, 0x73),
    Rgb888::new(0xCC, 0x79, 0xA7),
    Rgb888::new(0xE6, 0x9F, 0x00),
    Rgb888::new(0x56, 0xB4, 0xE9),
    Rgb888::new(0x80, 0x60, 0x40),
    Rgb888::new(0x40, 0x40, 0x40),
];
/// Colours of a map from low to high, dark to light without steps (after viridis).
const MAP: [[u8; 3]; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];
const SMALL: &MonoFont<'_> = &iso_8859_1::FONT_8X13;
const LARGE: &MonoFont<'_> = &iso_8859_1::FONT_9X18_BOLD;
const MARGIN: i32 = 16;
/// Longest side of a map in dots. In larger planes, several values are joined in one dot.
const MAP_SIDE_MAX: usize = 1024;
/// Side in dots up to which small maps are enlarged.
const MAP_SIDE_MIN: usize = 384;

/// Red, green and blue of 8 bits each, row by row from the top.
pub struct Picture {
    columns: u32,
    rows: u32,
    rgb: Vec<u8>,
}

impl OriginDimensions for Picture {
    fn size(&self) -> Size {
        Size::new(self.columns, self.rows)
    }
}

impl DrawTarget for Picture {
    type Color = Rgb888;
    type Error = std::convert::Infallible;
    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Self::Error> {
        for Pixel(at, colour) in pixels {
            self.set(at.x, at.y, colour);
        }
        Ok(())
    }
}

impl Picture {
    fn new(columns: i32, rows: i32) -> Self {
        let (columns, rows) = (columns.max(1) as u32, rows.max(1) as u32);
        Self { columns, rows, rgb: vec![0xFF; columns as usize * rows as usize * 3] }
    }

    /// The bytes of a PNG file.
    pub fn png(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.columns, self.rows);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&self.rgb));
        written.expect("memory takes every byte and the sizes agree");
        bytes
    }

    /// Writes a PNG file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        std::fs::write(path, self.png()).map_err(|error| Failure::io("cannot write the picture", path, &error))
    }

    fn set(&mut self, x: i32, y: i32, colour: Rgb888) {
        if x >= 0 && y >= 0 && (x as u32) < self.columns && (y as u32) < self.rows {
            let at = 3 * (y as usize * self.columns as usize + x as usize);
            self.rgb[at..at + 3].copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
        }
    }

    fn text(&mut self, text: &str, x: i32, y: i32, align: Alignment, font: &MonoFont<'_>) {
        let style = TextStyleBuilder::new().alignment(align).baseline(Baseline::Middle).build();
        let Ok(_) = Text::with_text_style(text, Point::new(x, y), MonoTextStyle::new(font, BLACK), style).draw(self);
    }

    fn line(&mut self, from: (i32, i32), to: (i32, i32), colour: Rgb888, width: u32) {
        let line = Line::new(Point::new(from.0, from.1), Point::new(to.0, to.1));
        let Ok(()) = line.into_styled(PrimitiveStyle::with_stroke(colour, width)).draw(self);
    }

    fn fill(&mut self, x: i32, y: i32, columns: i32, rows: i32, colour: Rgb888) {
        let size = Size::new(columns.max(0) as u32, rows.max(0) as u32);
        let Ok(()) = Rectangle::new(Point::new(x, y), size).into_styled(PrimitiveStyle::with_fill(colour)).draw(self);
    }

    fn frame(&mut self, area: Area) {
        let size = Size::new(area.columns as u32 + 2, area.rows as u32 + 2);
        let rectangle = Rectangle::new(Point::new(area.x - 1, area.y - 1), size);
        let Ok(()) = rectangle.into_styled(PrimitiveStyle::with_stroke(BLACK, 1)).draw(self);
    }
}

/// Puts pictures below each other.
pub fn stacked(pictures: &[Picture]) -> Picture {
    let columns = pictures.iter().map(|p| p.columns).max().unwrap_or(1);
    let rows: u32 = pictures.iter().map(|p| p.rows).sum();
    let mut all = Picture::new(columns as i32, rows as i32);
    let mut first = 0;
    for picture in pictures {
        for (row, line) in picture.rgb.chunks_exact(3 * picture.columns as usize).enumerate() {
            let at = 3 * (first + row) * columns as usize;
            all.rgb[at..at + line.len()].copy_from_slice(line);
        }
        first += picture.rows as usize;
    }
    all
}

/// Part of a picture.
#[derive(Clone, Copy)]
struct Area {
    x: i32,
    y: i32,
    columns: i32,
    rows: i32,
}

/// A plane of values as colours.
pub struct HeatMap<'a> {
    /// Text above the map.
    pub title: &'a str,
    /// Unit of the values, below the bar of colours.
    pub unit: &'a str,
    /// Rows of the plane; row 0 is drawn at the top.
    pub rows: usize,
    /// Columns of the plane.
    pub columns: usize,
    /// Row by row; values that are not finite are drawn grey.
    pub values: &'a [f32],
    /// Values of the lowest and the highest colour; `None` = from the 1st to the 99th percentile.
    pub range: Option<(f32, f32)>,
}

/// Draws a map with title and bar of colours. Large planes are drawn smaller: a dot is then the mean of the finite
/// values in its square.
pub fn heat_map(map: &HeatMap<'_>) -> Picture {
    assert_eq!(map.values.len(), map.rows * map.columns, "one value per row and column");
    let side = map.rows.max(map.columns).max(1);
    let join = side.div_ceil(MAP_SIDE_MAX);
    let enlarge = (MAP_SIDE_MIN / side).clamp(1, 64);
    let (rows, columns) = (map.rows.div_ceil(join), map.columns.div_ceil(join));
    let area = Area { x: MARGIN, y: 40, columns: (columns * enlarge) as i32, rows: (rows * enlarge) as i32 };
    let bar = Area { x: area.x + area.columns + 24, columns: 20, ..area };
    let text_columns = 9 * map.title.chars().count() as i32 + 2 * MARGIN;
    let mut picture = Picture::new((bar.x + bar.columns + 104).max(text_columns), (area.y + area.rows).max(180) + 32);
    let (low, high) = map.range.unwrap_or_else(|| percentiles(map.values, 0.01, 0.99));
    picture.text(map.title, MARGIN, 20, Alignment::Left, LARGE);
    for row in 0..rows {
        for column in 0..columns {
            let colour = colour_of(mean_of_square(map, row * join, column * join, join), low, high);
            let (x, y, side) = (area.x + (column * enlarge) as i32, area.y + (row * enlarge) as i32, enlarge as i32);
            if side == 1 { picture.set(x, y, colour) } else { picture.fill(x, y, side, side, colour) }
        }
    }
    picture.frame(area);
    let bar = Area { rows: bar.rows.max(140), ..bar };
    for row in 0..bar.rows {
        let part = 1.0 - row as f32 / (bar.rows - 1) as f32;
        picture.fill(bar.x, bar.y + row, bar.columns, 1, colour_of(part, 0.0, 1.0));
    }
    picture.frame(bar);
    for step in 0..=4 {
        let value = f64::from(low) + f64::from(high - low) * f64::from(step) / 4.0;
        let y = bar.y + (bar.rows - 1) * (4 - step) / 4;
        picture.text(&number(value), bar.x + bar.columns + 6, y, Alignment::Left, SMALL);
    }
    picture.text(map.unit, bar.x, bar.y + bar.rows + 16, Alignment::Left, SMALL);
    let size = format!("{} rows x {} columns; grey: no value", map.rows, map.columns);
    if area.columns > 320 {
        picture.text(&size, area.x, area.y + area.rows + 16, Alignment::Left, SMALL);
    }
    picture
}

/// Draws marked pixels as squares of 3 x 3, because single pixels of a large map are not visible.
pub fn marked_map(title: &str, columns: usize, marked: &[bool]) -> Picture {
    let rows = marked.len() / columns.max(1);
    let mut values = vec![0.0f32; marked.len()];
    for (pixel, _) in marked.iter().enumerate().filter(|(_, marked)| **marked) {
        let (row, column) = (pixel / columns, pixel % columns);
        for r in row.saturating_sub(1)..(row + 2).min(rows) {
            values[r * columns..][column.saturating_sub(1)..(column + 2).min(columns)].fill(1.0);
        }
    }
    heat_map(&HeatMap { title, unit: "", rows, columns, values: &values, range: Some((0.0, 1.0)) })
}

fn mean_of_square(map: &HeatMap<'_>, row: usize, column: usize, side: usize) -> f32 {
    let (mut sum, mut count) = (0.0f64, 0u32);
    for row in row..(row + side).min(map.rows) {
        for value in &map.values[row * map.columns..][column..(column + side).min(map.columns)] {
            if value.is_finite() {
                sum += f64::from(*value);
                count += 1;
            }
        }
    }
    (sum / f64::from(count)) as f32
}

/// Red, green and blue at a place in the scale of colours, 0 to 1; grey if it is not finite.
pub fn map_colour(place: f32) -> [u8; 3] {
    let colour = colour_of(place, 0.0, 1.0);
    [colour.r(), colour.g(), colour.b()]
}

fn colour_of(value: f32, low: f32, high: f32) -> Rgb888 {
    if !value.is_finite() {
        return NOTHING;
    }
    let part = if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 };
    let place = part * (MAP.len() - 1) as f32;
    let index = (place as usize).min(MAP.len() - 2);
    let mix = |channel: usize| {
        let (from, to) = (f32::from(MAP[index][channel]), f32::from(MAP[index + 1][channel]));
        (from + (to - from) * (place - index as f32)).round() as u8
    };
    Rgb888::new(mix(0), mix(1), mix(2))
}

/// The values below which the fractions `low` and `high` (0 to 1) of the finite values lie; (0, 1) if there are none.
pub fn percentiles(values: &[f32], low: f64, high: f64) -> (f32, f32) {
    konkordia_core::percentile::percentiles(values, low, high).unwrap_or((0.0, 1.0))
}

/// How often values fall into equal bins.
pub struct Histogram<'a> {
    /// Text above the bars.
    pub title: &'a str,
    /// Quantity and unit, below the bars.
    pub x_label: &'a str,
    /// Lower edge of the first bin.
    pub from: f64,
    /// Upper edge of the last bin.
    pub to: f64,
    /// Values in each bin, see [`bins`].
    pub counts: &'a [u64],
    /// Logarithmic height of the bars.
    pub log: bool,
}

/// Counts the values in `count` equal bins from `from` to `to`; values outside are left out.
pub fn bins(values: &[f32], from: f64, to: f64, count: usize) -> Vec<u64> {
    let mut counts = vec![0; count];
    for &value in values {
        let place = (f64::from(value) - from) / (to - from) * count as f64;
        if place >= 0.0 && place <= count as f64 {
            counts[(place as usize).min(count - 1)] += 1;
        }
    }
    counts
}

/// Draws a histogram.
pub fn histogram(histogram: &Histogram<'_>) -> Picture {
    let most = histogram.counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let x = Axis { label: histogram.x_label, log: false };
    let y = Axis { label: "count", log: histogram.log };
    let y_range = if histogram.log { (0.5, most * 1.5) } else { (0.0, most * 1.05) };
    let (mut picture, area) = axes(histogram.title, (&x, (histogram.from, histogram.to)), (&y, y_range), 0);
    let bar = f64::from(area.columns) / histogram.counts.len().max(1) as f64;
    for (index, &count) in histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (from, to) = ((index as f64 * bar) as i32, ((index + 1) as f64 * bar) as i32);
        let height = (place(count as f64, y_range, histogram.log) * f64::from(area.rows)).round() as i32;
        picture.fill(area.x + from, area.y + area.rows - height, (to - from).max(1), height, SERIES[0]);
    }
    picture
}

/// An axis of a chart.
pub struct Axis<'a> {
    /// Quantity and unit.
    pub label: &'a str,
    /// Logarithmic; values that are not above 0 are then left out.
    pub log: bool,
}

/// Points or a line of a chart.
pub struct Series<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// x and y; points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// Joined by a line, without marks; otherwise marks only.
    pub line: bool,
}

/// Draws points and lines over two axes, with a legend; the ranges are those of the points.
pub fn chart(title: &str, x: &Axis<'_>, y: &Axis<'_>, series: &[Series<'_>]) -> Picture {
    let usable = |point: &&(f64, f64)| {
        let good = |value: f64, log: bool| value.is_finite() && (!log || value > 0.0);
        good(point.0, x.log) && good(point.1, y.log)
    };
    let all = || series.iter().flat_map(|s| s.points.iter().filter(usable));
    let (x_range, y_range) = (range(all().map(|p| p.0), x.log), range(all().map(|p| p.1), y.log));
    let legend = series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0) as i32 * 8 + 48;
    let (mut picture, area) = axes(title, (x, x_range), (y, y_range), legend);
    for (index, series) in series.iter().enumerate() {
        let colour = SERIES[index % SERIES.len()];
        let dot = |point: &(f64, f64)| {
            let across = place(point.0, x_range, x.log) * f64::from(area.columns);
            let up = place(point.1, y_range, y.log) * f64::from(area.rows);
            (area.x + across.round() as i32, area.y + area.rows - up.round() as i32)
        };
        let dots: Vec<(i32, i32)> = series.points.iter().filter(usable).map(dot).collect();
        let row = area.y + 12 + 18 * index as i32;
        let sample = area.x + area.columns + 16;
        if series.line {
            dots.windows(2).for_each(|pair| picture.line(pair[0], pair[1], colour, 2));
            picture.line((sample, row), (sample + 20, row), colour, 2);
        } else {
            let mark =
                |at: (i32, i32)| Circle::with_center(Point::new(at.0, at.1), 7).into_styled(PrimitiveStyle::with_fill(colour));
            for at in dots.into_iter().chain([(sample + 10, row)]) {
                let Ok(()) = mark(at).draw(&mut picture);
            }
        }
        picture.text(series.name, sample + 28, row, Alignment::Left, SMALL);
    }
    picture
}

/// From the lowest to the highest value, with a margin.
fn range(values: impl Iterator<Item = f64>, log: bool) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    match (low <= high, log) {
        (false, false) => (0.0, 1.0),
        (false, true) => (1.0, 10.0),
        (true, true) => (low / 1.3, high * 1.3),
        (true, false) if low == high => (low - 1.0, high + 1.0),
        (true, false) => (low - (high - low) * 0.05, high + (high - low) * 0.05),
    }
}

/// Where a value lies in its range, 0 to 1.
fn place(value: f64, range: (f64, f64), log: bool) -> f64 {
    let part = if log { (value / range.0).ln() / (range.1 / range.0).ln() } else { (value - range.0) / (range.1 - range.0) };
    part.clamp(0.0, 1.0)
}

/// Draws title, grid, numbers and labels; returns the area for the data.
fn axes(title: &str, x: (&Axis<'_>, (f64, f64)), y: (&Axis<'_>, (f64, f64)), legend: i32) -> (Picture, Area) {
    let area = Area { x: 84, y: 64, columns: 640, rows: 420 };
    let text_columns = 9 * title.chars().count() as i32 + 2 * MARGIN;
    let columns = (area.x + area.columns + 2 * MARGIN + legend).max(text_columns);
    let mut picture = Picture::new(columns, area.y + area.rows + 64);
    picture.text(title, MARGIN, 20, Alignment::Left, LARGE);
    for value in ticks(x.1, x.0.log) {
        let at = area.x + (place(value, x.1, x.0.log) * f64::from(area.columns)).round() as i32;
        picture.line((at, area.y), (at, area.y + area.rows), GRID, 1);
        picture.text(&number(value), at, area.y + area.rows + 14, Alignment::Center, SMALL);
    }
    for value in ticks(y.1, y.0.log) {
        let at = area.y + area.rows - (place(value, y.1, y.0.log) * f64::from(area.rows)).round() as i32;
        picture.line((area.x, at), (area.x + area.columns, at), GRID, 1);
        picture.text(&number(value), area.x - 8, at, Alignment::Right, SMALL);
    }
    picture.frame(area);
    picture.text(x.0.label, area.x + area.columns / 2, area.y + area.rows + 38, Alignment::Center, SMALL);
    picture.text(y.0.label, MARGIN, 48, Alignment::Left, SMALL);
    (picture, area)
}

/// Round numbers within a range, for the axis. Logarithmic: 1, 2 and 5 of each decade, or 1 only if there are many
/// decades. Otherwise equal steps.
fn ticks(range: (f64, f64), log: bool) -> Vec<f64> {
    if log {
        let (first, last) = (range.0.log10().floor() as i32, range.1.log10().ceil() as i32);
        let multiples: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = (first..=last).flat_map(|decade| multiples.iter().map(move |m| m * 10f64.powi(decade)));
        return all.filter(|v| *v >= range.0 && *v <= range.1).collect();
    }
    let rough = (range.1 - range.0) / 6.0;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * decade).find(|step| *step >= rough).unwrap_or(rough);
    let first = (range.0 / step).ceil() as i64;
    let last = (range.1 / step).floor() as i64;
    (first..=last.min(first + 20)).map(|index| index as f64 * step).collect()
}

/// A number with about four leading digits, without zeros at its end.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        return format!("{value:.1e}");
    }
    let digits = if size == 0.0 { 0 } else { (3 - size.log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Checks that the path of a picture ends in `.png`.
///
/// # Errors
/// If `path` has another ending: other formats are not written.
pub fn png_path(path: &Path) -> Result<(), Failure> {
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png")) {
        return Ok(());
    }
    let what = format!("cannot draw into {}", path.display());
    Err(Failure::new(Exit::Usage, what, "pictures are written as PNG only", "give a name that ends in .png"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture as PNG readers see it: columns, rows, colours.
    fn back(picture: &Picture) -> (u32, u32, Vec<u8>) {
        let bytes = picture.png();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rgb).unwrap();
        (info.width, info.height, rgb)
    }

    fn has(picture: &Picture, colour: Rgb888) -> usize {
        picture.rgb.chunks_exact(3).filter(|c| **c == [colour.r(), colour.g(), colour.b()]).count()
    }

    #[test]
    fn a_map_shows_each_value_where_it_lies() {
        let mut values: Vec<f32> = (0..64 * 128).map(|i| (i / 128) as f32).collect();
        values[0] = f32::NAN;
        let map = HeatMap { title: "rows", unit: "ADU", rows: 64, columns: 128, values: &values, range: Some((0.0, 63.0)) };
        let picture = heat_map(&map);
        let (columns, rows, rgb) = back(&picture);
        assert_eq!((columns, rows), (picture.columns, picture.rows));
        assert_eq!(rgb, picture.rgb);
        let at = |row: usize, column: usize| {
            let (x, y) = (MARGIN as usize + 3 * column + 1, 40 + 3 * row + 1);
            rgb[3 * (y * columns as usize + x)..][..3].to_vec()
        };
        assert_eq!(at(0, 0), [NOTHING.r(), NOTHING.g(), NOTHING.b()]);
        assert_eq!(at(0, 1), MAP[0]);
        assert_eq!(at(63, 127), MAP[8]);
    }

    #[test]
    fn a_large_map_joins_values_and_an_empty_one_is_grey() {
        let values = vec![f32::NAN; 2000 * 3000];
        let picture = heat_map(&HeatMap { title: "", unit: "", rows: 2000, columns: 3000, values: &values, range: None });
        assert!(picture.columns < 1300 && picture.rows < 800);
        assert_eq!(has(&picture, NOTHING), 1000 * 667);
        let map = HeatMap { title: "", unit: "", rows: 2, columns: 2, values: &[1.0, f32::NAN, 3.0, 4.0], range: None };
        assert_eq!(mean_of_square(&map, 0, 0, 2), 8.0 / 3.0);
    }

    #[test]
    fn bins_and_percentiles() {
        assert_eq!(bins(&[0.0, 0.49, 0.5, 1.0, 1.01, -0.1, f32::NAN], 0.0, 1.0, 2), [2, 2]);
        let values: Vec<f32> = (0..=100).rev().map(|i| i as f32).chain([f32::NAN, f32::INFINITY]).collect();
        assert_eq!(percentiles(&values, 0.01, 0.99), (1.0, 99.0));
        assert_eq!(percentiles(&[], 0.01, 0.99), (0.0, 1.0));
        let picture = histogram(&Histogram { title: "h", x_label: "x", from: 0.0, to: 4.0, counts: &[1, 0, 5, 5], log: false });
        assert!(has(&picture, SERIES[0]) > 2 * 160 * 390);
        let picture = histogram(&Histogram { title: "h", x_label: "x", from: 0.0, to: 4.0, counts: &[0; 4], log: true });
        assert_eq!(has(&picture, SERIES[0]), 0);
    }

    #[test]
    fn charts_take_odd_points() {
        let odd = vec![(0.0, 1.0), (-1.0, 2.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)];
        let axis = |log| Axis { label: "a", log };
        for log in [false, true] {
            let series = |points, line| Series { name: "s", points, line };
            let good = vec![(1.0, 10.0), (2.0, 100.0), (100.0, 3.0)];
            let picture = chart("c", &axis(log), &axis(log), &[series(good, true), series(odd.clone(), false)]);
            assert!(has(&picture, SERIES[0]) > 300 && has(&picture, SERIES[1]) > 20);
            chart("none", &axis(log), &axis(log), &[]);
        }
    }

    #[test]
    fn numbers_are_short_and_ticks_round() {
        assert_eq!([0.0, 1.0, 0.25, 1234.5, 2.0e6, 0.0001].map(number), ["0", "1", "0.25", "1234", "2.0e6", "1.0e-4"]);
        assert_eq!(ticks((0.0, 100.0), false), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks((0.9, 60.0), true), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert!(png_path(Path::new("a.PNG")).is_ok() && png_path(Path::new("a.pdf")).is_err());
    }
}
