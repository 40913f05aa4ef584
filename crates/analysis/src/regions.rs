//! Named regions of an image: sum, mean, highest pixel and centre of mass of each. A region is a list of stretches of
//! rows, made before the run, so that its shape costs nothing per image.

use crate::plane::Plane;
use konkordia_kernels::Isa;
use konkordia_kernels::regions::{self, RegionSums, Stretch};
use konkordia_kernels::stats::Measured;

/// The shape of a region, in pixels. The centre of a pixel is an integer; a pixel belongs to the region if its centre
/// does, borders included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// From the first to the last column, and from the first to the last row.
    Box {
        /// First column.
        x0_px: f64,
        /// First row.
        y0_px: f64,
        /// Last column.
        x1_px: f64,
        /// Last row.
        y1_px: f64,
    },
    /// All within a radius of a point.
    Circle {
        /// Column of the centre.
        x_px: f64,
        /// Row of the centre.
        y_px: f64,
        /// Radius.
        radius_px: f64,
    },
    /// All between two radii.
    Ring {
        /// Column of the centre.
        x_px: f64,
        /// Row of the centre.
        y_px: f64,
        /// Inner radius.
        inner_px: f64,
        /// Outer radius.
        outer_px: f64,
    },
    /// All between two radii and between two angles. Angles are counted from the direction of increasing columns
    /// towards that of increasing rows.
    Sector {
        /// Column of the centre.
        x_px: f64,
        /// Row of the centre.
        y_px: f64,
        /// Inner radius.
        inner_px: f64,
        /// Outer radius.
        outer_px: f64,
        /// Where it begins, degrees.
        from_deg: f64,
        /// How far it reaches from there, degrees, up to 360.
        width_deg: f64,
    },
}

impl Shape {
    /// True if the region has this point.
    pub fn has(&self, x: f64, y: f64) -> bool {
        let radius = |x0: f64, y0: f64| (x - x0).hypot(y - y0);
        match *self {
            Self::Box { x0_px, y0_px, x1_px, y1_px } => (x0_px..=x1_px).contains(&x) && (y0_px..=y1_px).contains(&y),
            Self::Circle { x_px, y_px, radius_px } => radius(x_px, y_px) <= radius_px,
            Self::Ring { x_px, y_px, inner_px, outer_px } => (inner_px..=outer_px).contains(&radius(x_px, y_px)),
            Self::Sector { x_px, y_px, inner_px, outer_px, from_deg, width_deg } => {
                let angle = ((y - y_px).atan2(x - x_px).to_degrees() - from_deg).rem_euclid(360.0);
                (inner_px..=outer_px).contains(&radius(x_px, y_px)) && angle <= width_deg
            }
        }
    }
}

/// A region of images of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Its name.
    pub name: String,
    columns: usize,
    stretches: Vec<Stretch>,
}

/// What a region shows in an image. Only usable pixels that hold a measurement count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionValues {
    /// Pixels that count.
    pub pixels: u64,
    /// Their sum.
    pub sum: f64,
    /// The highest one; `None` if there is none.
    pub maximum: Option<f64>,
    /// Column and row of the centre of mass; `None` if the sum is not above 0.
    pub center_px: Option<(f64, f64)>,
}

impl RegionValues {
    /// Mean of the pixels that count.
    pub fn mean(&self) -> Option<f64> {
        (self.pixels > 0).then(|| self.sum / self.pixels as f64)
    }
}

impl Region {
    /// The usable pixels of a shape.
    pub fn new(name: impl Into<String>, shape: &Shape, columns: usize, usable: &[bool]) -> Self {
        Self::of(name, columns, usable, |x, y| shape.has(x as f64, y as f64))
    }

    /// The usable pixels, by column and row, for which a condition is true, for example between two resolutions.
    ///
    /// # Panics
    /// If `usable` is not a whole number of rows.
    pub fn of(name: impl Into<String>, columns: usize, usable: &[bool], has: impl Fn(usize, usize) -> bool) -> Self {
        assert!(columns > 0 && usable.len().is_multiple_of(columns));
        let mut stretches: Vec<Stretch> = Vec::new();
        for (at, _) in usable.iter().enumerate().filter(|(at, usable)| **usable && has(at % columns, at / columns)) {
            match stretches.last_mut() {
                Some(last) if last.end == at && !at.is_multiple_of(columns) => last.end = at + 1,
                _ => stretches.push(Stretch { first: at, end: at + 1 }),
            }
        }
        Self { name: name.into(), columns, stretches }
    }

    /// Number of its pixels.
    pub fn pixels(&self) -> usize {
        self.stretches.iter().map(|stretch| stretch.end - stretch.first).sum()
    }

    /// What it shows.
    ///
    /// # Panics
    /// If the image is smaller than the region was made for.
    pub fn look<P: Measured>(&self, isa: Isa, plane: &Plane<'_, P>) -> RegionValues {
        let range = (plane.low, plane.high);
        let RegionSums { pixels, sum, highest, moments: [x, y] } =
            regions::sum(isa, plane.pixels, self.columns, &self.stretches, range);
        RegionValues { pixels, sum, maximum: (pixels > 0).then_some(highest), center_px: (sum > 0.0).then(|| (x / sum, y / sum)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: usize = 37;
    const ROWS: usize = 23;

    fn shapes() -> [Shape; 6] {
        let (x_px, y_px) = (11.25, 9.5);
        [
            Shape::Box { x0_px: 3.0, y0_px: 5.0, x1_px: 30.5, y1_px: 7.0 },
            Shape::Circle { x_px, y_px, radius_px: 6.0 },
            Shape::Circle { x_px: -4.0, y_px: 40.0, radius_px: 3.0 },
            Shape::Ring { x_px, y_px, inner_px: 4.0, outer_px: 30.0 },
            Shape::Sector { x_px, y_px, inner_px: 0.0, outer_px: 20.0, from_deg: 300.0, width_deg: 90.0 },
            Shape::Sector { x_px, y_px, inner_px: 2.0, outer_px: 20.0, from_deg: -180.0, width_deg: 360.0 },
        ]
    }

    fn check<P: Measured>() {
        let pixel = |n: usize| match n % 19 {
            4 => P::MISSING,
            7 => P::SATURATED,
            _ => P::from_photons((n * 31 % 97) as f32),
        };
        let pixels: Vec<P> = (0..ROWS * COLUMNS).map(pixel).collect();
        let usable: Vec<bool> = (0..pixels.len()).map(|n| n % 23 != 5).collect();
        let plane = Plane::own(&pixels, COLUMNS);
        for shape in shapes() {
            let region = Region::new("a", &shape, COLUMNS, &usable);
            let (mut count, mut all, mut sum, mut maximum, mut mx, mut my) = (0, 0, 0.0, f64::MIN, 0.0, 0.0);
            for (n, pixel) in pixels.iter().enumerate() {
                let (x, y) = ((n % COLUMNS) as f64, (n / COLUMNS) as f64);
                if shape.has(x, y) && usable[n] {
                    all += 1;
                    if pixel.is_number() {
                        let value = pixel.to_f64();
                        (count, sum, maximum) = (count + 1, sum + value, maximum.max(value));
                        (mx, my) = (mx + value * x, my + value * y);
                    }
                }
            }
            let found = region.look(Isa::detect(), &plane);
            assert_eq!((region.pixels(), found.pixels, found.sum), (all, count, sum), "{shape:?}");
            assert_eq!(found.maximum, (count > 0).then_some(maximum), "{shape:?}");
            assert_eq!(found.mean(), (count > 0).then(|| sum / count as f64));
            match found.center_px {
                Some((x, y)) => assert!((x - mx / sum).abs() < 1e-9 && (y - my / sum).abs() < 1e-9, "{shape:?}"),
                None => assert!(sum <= 0.0),
            }
        }
    }

    #[test]
    fn regions_are_what_naive_code_says() {
        check::<i16>();
        check::<u16>();
        check::<i32>();
        check::<u32>();
        check::<f32>();
    }

    #[test]
    fn nothing_to_see_is_no_number() {
        let none = Region::new("none", &Shape::Circle { x_px: 0.0, y_px: 0.0, radius_px: f64::NAN }, 4, &[true; 8]);
        let values = none.look(Isa::detect(), &Plane::own(&[1i16; 8], 4));
        assert_eq!((values.pixels, values.mean(), values.maximum, values.center_px), (0, None, None, None));
        let masked = Region::of("masked", 4, &[false; 8], |_, _| true);
        assert_eq!(masked.look(Isa::detect(), &Plane::own(&[1i16; 8], 4)).pixels, 0);
        let negative = Region::of("negative", 4, &[true; 8], |_, _| true).look(Isa::detect(), &Plane::own(&[-1i16; 8], 4));
        assert_eq!((negative.sum, negative.center_px, negative.maximum), (-8.0, None, Some(-1.0)));
    }
}
