//! The shapes that people draw, as they come and are kept, and what is wrong with them.

use konkordia_config::recipe::{REGIONS_MAX, RegionForm, RegionKeys};
use konkordia_core::user_mask::MaskShape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// Shapes of a mask.
const SHAPES_MAX: usize = 256;
/// Corners of a polygon.
const POINTS_MAX: usize = 1000;
/// Letters of the name of a region.
const NAME_MAX: usize = 64;
/// Places and sizes, as in recipes.
const NUMBER_MAX: f64 = 1e6;
/// Rows of the highest image.
const ROWS_MAX: usize = 1 << 16;
/// Rows that the edges of all polygons may cross, all together: finding the pixels takes a second at most.
const CROSSINGS_MAX: u64 = 1 << 22;

/// What people draw. Positions count from the outer corner of the first pixel; a pixel belongs to a shape if its centre
/// is in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrawnShapes {
    /// Pixels in one of these are masked: rectangles, circles and polygons.
    #[schema(max_items = 256)]
    pub mask: Vec<DrawnShape>,
    /// Regions whose pixels are summed: rectangles, circles, rings and sectors.
    #[schema(max_items = 64)]
    pub regions: Vec<DrawnRegion>,
}

/// A region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrawnRegion {
    /// Its name; it replaces a region of the recipe that has the same.
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
    /// Its shape.
    pub shape: DrawnShape,
}

/// A shape in the image, in pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "form", rename_all = "snake_case", deny_unknown_fields)]
pub enum DrawnShape {
    /// All between two columns and two rows.
    Rectangle {
        /// Left border.
        #[schema(minimum = -1e6, maximum = 1e6)]
        column: f64,
        /// Upper border.
        #[schema(minimum = -1e6, maximum = 1e6)]
        row: f64,
        /// Width.
        #[schema(exclusive_minimum = 0, maximum = 1e6)]
        columns: f64,
        /// Height.
        #[schema(exclusive_minimum = 0, maximum = 1e6)]
        rows: f64,
    },
    /// All within a radius of a point.
    Circle {
        /// Column of the centre.
        #[schema(minimum = -1e6, maximum = 1e6)]
        x_px: f64,
        /// Row of the centre.
        #[schema(minimum = -1e6, maximum = 1e6)]
        y_px: f64,
        /// Radius.
        #[schema(exclusive_minimum = 0, maximum = 1e6)]
        radius_px: f64,
    },
    /// All that a closed line encloses an odd number of times.
    Polygon {
        /// Its corners, x and y; the last is joined to the first.
        #[schema(min_items = 3, max_items = 1000)]
        points: Vec<[f64; 2]>,
    },
    /// All between two radii.
    Ring {
        /// Column of the centre; without it that of the beam.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = -1e6, maximum = 1e6)]
        x_px: Option<f64>,
        /// Row of the centre; without it that of the beam.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = -1e6, maximum = 1e6)]
        y_px: Option<f64>,
        /// Inner radius.
        #[schema(minimum = 0, maximum = 1e6)]
        inner_radius_px: f64,
        /// Outer radius.
        #[schema(exclusive_minimum = 0, maximum = 1e6)]
        radius_px: f64,
    },
    /// A part of a ring.
    Sector {
        /// Column of the centre; without it that of the beam.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = -1e6, maximum = 1e6)]
        x_px: Option<f64>,
        /// Row of the centre; without it that of the beam.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = -1e6, maximum = 1e6)]
        y_px: Option<f64>,
        /// Inner radius.
        #[schema(minimum = 0, maximum = 1e6)]
        inner_radius_px: f64,
        /// Outer radius.
        #[schema(exclusive_minimum = 0, maximum = 1e6)]
        radius_px: f64,
        /// Where it begins, from the direction of increasing columns towards that of increasing rows.
        #[schema(minimum = -360, maximum = 360)]
        from_deg: f64,
        /// How far it reaches from there.
        #[schema(exclusive_minimum = 0, maximum = 360)]
        width_deg: f64,
    },
}

/// A number with its name, from `low` on (above it if `low` is 0 and `is_size`).
fn number(name: &str, value: f64, (low, high): (f64, f64), is_size: bool) -> Result<(), String> {
    let is_good = (low..=high).contains(&value) && !(is_size && value <= 0.0);
    let limits = if is_size { format!("above 0 and at most {high}") } else { format!("from {low} to {high}") };
    if is_good { Ok(()) } else { Err(format!("{name} is {value}; it must be {limits}")) }
}

fn place(name: &str, value: f64) -> Result<(), String> {
    number(name, value, (-NUMBER_MAX, NUMBER_MAX), false)
}

fn size(name: &str, value: f64) -> Result<(), String> {
    number(name, value, (0.0, NUMBER_MAX), true)
}

fn ring(x_px: Option<f64>, y_px: Option<f64>, inner: f64, outer: f64) -> Result<(), String> {
    x_px.map_or(Ok(()), |x| place("x_px", x))?;
    y_px.map_or(Ok(()), |y| place("y_px", y))?;
    size("radius_px", outer)?;
    number("inner_radius_px", inner, (0.0, NUMBER_MAX), false)?;
    if inner < outer { Ok(()) } else { Err(format!("inner_radius_px is {inner}, which is not below radius_px ({outer})")) }
}

impl DrawnShape {
    /// What is wrong with its numbers, in words.
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Rectangle { column, row, columns, rows } => {
                place("column", *column)?;
                place("row", *row)?;
                size("columns", *columns)?;
                size("rows", *rows)
            }
            Self::Circle { x_px, y_px, radius_px } => {
                place("x_px", *x_px)?;
                place("y_px", *y_px)?;
                size("radius_px", *radius_px)
            }
            Self::Polygon { points } => {
                if !(3..=POINTS_MAX).contains(&points.len()) {
                    return Err(format!("it has {} points; a polygon has 3 to {POINTS_MAX}", points.len()));
                }
                let mut all = points.iter().enumerate();
                all.try_for_each(|(n, [x, y])| {
                    place(&format!("x of point {n}"), *x).and_then(|()| place(&format!("y of point {n}"), *y))
                })
            }
            Self::Ring { x_px, y_px, inner_radius_px, radius_px } => ring(*x_px, *y_px, *inner_radius_px, *radius_px),
            Self::Sector { x_px, y_px, inner_radius_px, radius_px, from_deg, width_deg } => {
                ring(*x_px, *y_px, *inner_radius_px, *radius_px)?;
                number("from_deg", *from_deg, (-360.0, 360.0), false)?;
                number("width_deg", *width_deg, (0.0, 360.0), true)
            }
        }
    }

    /// As a part of a mask; `None` for rings and sectors, which may be about a beam that is not known.
    fn for_mask(&self) -> Option<MaskShape> {
        Some(match self.clone() {
            Self::Rectangle { column, row, columns, rows } => MaskShape::Rectangle { column, row, columns, rows },
            Self::Circle { x_px, y_px, radius_px } => MaskShape::Circle { x_px, y_px, radius_px },
            Self::Polygon { points } => MaskShape::Polygon(points),
            Self::Ring { .. } | Self::Sector { .. } => return None,
        })
    }

    /// As a region of a recipe, where the centre of the first pixel is 0; `None` for polygons.
    fn for_region(&self) -> Option<RegionForm> {
        let at = |x: Option<f64>, y: Option<f64>| (x.map(|x| x - 0.5), y.map(|y| y - 0.5));
        Some(match *self {
            Self::Rectangle { column, row, columns, rows } => {
                RegionForm::Box([column - 0.5, row - 0.5, column + columns - 0.5, row + rows - 0.5])
            }
            Self::Circle { x_px, y_px, radius_px } => {
                RegionForm::Round { center_px: at(Some(x_px), Some(y_px)), radii_px: (0.0, radius_px), sector_deg: None }
            }
            Self::Ring { x_px, y_px, inner_radius_px, radius_px } => {
                RegionForm::Round { center_px: at(x_px, y_px), radii_px: (inner_radius_px, radius_px), sector_deg: None }
            }
            Self::Sector { x_px, y_px, inner_radius_px, radius_px, from_deg, width_deg } => RegionForm::Round {
                center_px: at(x_px, y_px),
                radii_px: (inner_radius_px, radius_px),
                sector_deg: Some((from_deg, width_deg)),
            },
            Self::Polygon { .. } => return None,
        })
    }
}

impl DrawnShapes {
    /// The parts of the mask and the regions.
    ///
    /// # Errors
    /// What is wrong with them first, in words, with its place.
    pub(super) fn parts(&self) -> Result<(Vec<MaskShape>, Vec<RegionKeys>), String> {
        let few = |what: &str, count: usize, most: usize| {
            if count > most { Err(format!("{what} has {count} shapes; at most {most} are possible")) } else { Ok(()) }
        };
        few("mask", self.mask.len(), SHAPES_MAX)?;
        few("regions", self.regions.len(), REGIONS_MAX)?;
        let of_mask = |(n, shape): (usize, &DrawnShape)| {
            shape.check().map_err(|why| format!("mask[{n}]: {why}"))?;
            let kinds = "masks are made of rectangles, circles and polygons";
            shape.for_mask().ok_or_else(|| format!("mask[{n}]: rings and sectors are for regions; {kinds}"))
        };
        let mask: Vec<MaskShape> = self.mask.iter().enumerate().map(of_mask).collect::<Result<_, _>>()?;
        let crossings: u64 =
            mask.iter().filter(|shape| matches!(shape, MaskShape::Polygon(_))).map(|shape| shape.crossings(ROWS_MAX)).sum();
        if crossings > CROSSINGS_MAX {
            return Err(format!(
                "the edges of the polygons cross {crossings} rows in all; at most {CROSSINGS_MAX} are possible: draw them with fewer points"
            ));
        }
        let mut names = BTreeSet::new();
        let of_region = |(n, region): (usize, &DrawnRegion)| {
            let wrong = |why: String| format!("regions[{n}]: {why}");
            let name = region.name.trim();
            if name.is_empty() || name.chars().count() > NAME_MAX || name.chars().any(char::is_control) {
                return Err(wrong(format!("its name is {name:?}; a name has 1 to {NAME_MAX} letters")));
            }
            if !names.insert(name.to_owned()) {
                return Err(wrong(format!("another region is called {name:?} too")));
            }
            region.shape.check().map_err(wrong)?;
            let kinds = "regions are rectangles, circles, rings and sectors";
            let form = region.shape.for_region().ok_or_else(|| wrong(format!("a polygon can only be masked; {kinds}")))?;
            Ok(RegionKeys { name: name.to_owned(), form })
        };
        Ok((mask, self.regions.iter().enumerate().map(of_region).collect::<Result<_, _>>()?))
    }
}
