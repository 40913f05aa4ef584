//! The mask that people draw over the image: shapes whose pixels are to be left out. Positions count from the outer
//! corner of the first pixel, so its centre is at 0.5. A pixel is masked if its centre lies in a shape.

/// NXmx pixel mask: masked by the user.
pub const NXMX_USER: u32 = 1 << 8;

/// One shape. Its numbers are finite; it may reach beyond the image, where it is cut off.
#[derive(Clone, Debug, PartialEq)]
pub enum MaskShape {
    /// Borders included.
    Rectangle {
        /// Where it begins in a row.
        column: f64,
        /// Where it begins in a column.
        row: f64,
        /// Its width.
        columns: f64,
        /// Its height.
        rows: f64,
    },
    /// Border included.
    Circle {
        /// Column of its centre.
        x_px: f64,
        /// Row of its centre.
        y_px: f64,
        /// Its radius.
        radius_px: f64,
    },
    /// Corners (x, y), the last joined to the first. A point is inside if a line from it to the right crosses an odd
    /// number of edges (the even-odd rule): where a polygon crosses itself, what is enclosed twice is outside. Upper
    /// and left borders belong to it, lower and right ones do not, so polygons side by side share no pixel.
    Polygon(Vec<[f64; 2]>),
}

/// Pixels of one row that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    row: usize,
    first: usize,
    end: usize,
}

/// Of `count` pixels in a line, those whose centres are from `low` to `high`, both included.
fn between(low: f64, high: f64, count: usize) -> (usize, usize) {
    // Casts of negative numbers give 0, those of large ones the largest integer.
    ((low - 0.5).ceil().max(0.0) as usize, ((high - 0.5).floor() + 1.0).max(0.0).min(count as f64) as usize)
}

/// Where the edge from `a` to `b` crosses the centres of a row.
fn crossing(a: [f64; 2], b: [f64; 2], y: f64) -> f64 {
    a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
}

/// The edges of a polygon.
fn edges(points: &[[f64; 2]]) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
    points.iter().enumerate().map(|(n, a)| (*a, points[(n + 1) % points.len()]))
}

impl MaskShape {
    /// True if the point is in it.
    pub fn has(&self, x: f64, y: f64) -> bool {
        match self {
            Self::Rectangle { column, row, columns, rows } => {
                (*column..=column + columns).contains(&x) && (*row..=row + rows).contains(&y)
            }
            Self::Circle { x_px, y_px, radius_px } => (x - x_px).powi(2) + (y - y_px).powi(2) <= radius_px.powi(2),
            Self::Polygon(points) => {
                let is_crossed = |(a, b): &([f64; 2], [f64; 2])| (a[1] <= y) != (b[1] <= y) && x < crossing(*a, *b, y);
                edges(points).filter(is_crossed).count() % 2 == 1
            }
        }
    }

    /// Adds its pixels in an image of so many rows and columns. What overlaps is there several times.
    fn spans(&self, [rows, columns]: [usize; 2], out: &mut Vec<Span>) {
        let mut add = |row, first, end: usize| {
            let end = end.min(columns);
            if first < end {
                out.push(Span { row, first, end });
            }
        };
        match self {
            Self::Rectangle { column, row, columns: width, rows: height } => {
                let (first, end) = between(*column, column + width, columns);
                let (top, bottom) = between(*row, row + height, rows);
                (top..bottom).for_each(|row| add(row, first, end));
            }
            Self::Circle { x_px, y_px, radius_px } => {
                // One more on each side, against rounding; what is too much goes again.
                let (top, bottom) = between(y_px - radius_px - 1.0, y_px + radius_px + 1.0, rows);
                for row in top..bottom {
                    let y = row as f64 + 0.5;
                    let half = (radius_px.powi(2) - (y - y_px).powi(2)).max(0.0).sqrt() + 1.0;
                    let (mut first, mut end) = between(x_px - half, x_px + half, columns);
                    while first < end && !self.has(first as f64 + 0.5, y) {
                        first += 1;
                    }
                    while first < end && !self.has(end as f64 - 0.5, y) {
                        end -= 1;
                    }
                    add(row, first, end);
                }
            }
            Self::Polygon(points) => {
                let mut crossings = Vec::new();
                for (a, b) in edges(points) {
                    let up_to = |y: f64| ((y - 0.5).ceil().max(0.0) as usize).min(rows);
                    let of = |row: usize| (row, crossing(a, b, row as f64 + 0.5));
                    crossings.extend((up_to(a[1].min(b[1]))..up_to(a[1].max(b[1]))).map(of));
                }
                // A closed line crosses each row an even number of times.
                crossings.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
                for pair in crossings.chunks_exact(2) {
                    let to = |x: f64| (x - 0.5).ceil().max(0.0) as usize;
                    add(pair[0].0, to(pair[0].1), to(pair[1].1));
                }
            }
        }
    }

    /// How many rows its edges cross, at most, in an image of `rows_max` rows: what it costs to find its pixels.
    pub fn crossings(&self, rows_max: usize) -> u64 {
        let Self::Polygon(points) = self else { return rows_max as u64 };
        let of = |y: f64| y.clamp(0.0, rows_max as f64);
        edges(points).map(|(a, b)| (of(a[1]) - of(b[1])).abs() as u64 + 1).sum()
    }
}

/// All shapes of a mask.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserMask(Vec<MaskShape>);

impl UserMask {
    /// Of these shapes; `None` if there is none.
    pub fn new(shapes: Vec<MaskShape>) -> Option<Self> {
        (!shapes.is_empty()).then_some(Self(shapes))
    }

    /// True if the pixel is masked.
    pub fn has(&self, column: u64, row: u64) -> bool {
        self.0.iter().any(|shape| shape.has(column as f64 + 0.5, row as f64 + 0.5))
    }

    /// Each masked pixel once.
    fn spans(&self, size: [usize; 2]) -> Vec<Span> {
        let mut all = Vec::new();
        self.0.iter().for_each(|shape| shape.spans(size, &mut all));
        all.sort_unstable();
        let mut joined: Vec<Span> = Vec::new();
        for span in all {
            match joined.last_mut() {
                Some(last) if last.row == span.row && span.first <= last.end => last.end = last.end.max(span.end),
                _ => joined.push(span),
            }
        }
        joined
    }

    /// Number of masked pixels of an image of so many rows and columns.
    pub fn pixels(&self, size: [usize; 2]) -> u64 {
        self.spans(size).iter().map(|span| (span.end - span.first) as u64).sum()
    }

    /// Sets [`NXMX_USER`] of the masked pixels, row by row; a mask that is empty, because no bit is set, gets its
    /// length.
    pub fn mark(&self, mask: &mut Vec<u32>, [rows, columns]: [usize; 2]) {
        let spans = self.spans([rows, columns]);
        if mask.is_empty() && !spans.is_empty() {
            mask.resize(rows * columns, 0);
        }
        for Span { row, first, end } in spans {
            if let Some(pixels) = mask.get_mut(row * columns + first..row * columns + end) {
                pixels.iter_mut().for_each(|bits| *bits |= NXMX_USER);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the mask says of each pixel, by code that knows no spans and no sorting.
    fn naive(shapes: &[MaskShape], [rows, columns]: [usize; 2]) -> Vec<u32> {
        let mut mask = vec![0; rows * columns];
        for (at, bits) in mask.iter_mut().enumerate() {
            let (x, y) = ((at % columns) as f64 + 0.5, (at / columns) as f64 + 0.5);
            for shape in shapes {
                let has = match shape {
                    MaskShape::Rectangle { column, row, columns, rows } => {
                        x >= *column && x <= column + columns && y >= *row && y <= row + rows
                    }
                    MaskShape::Circle { x_px, y_px, radius_px } => {
                        (x - x_px) * (x - x_px) + (y - y_px) * (y - y_px) <= radius_px * radius_px
                    }
                    MaskShape::Polygon(points) => {
                        let mut inside = false;
                        for n in 0..points.len() {
                            let (a, b) = (points[n], points[(n + 1) % points.len()]);
                            let crosses = (a[1] <= y && b[1] > y) || (b[1] <= y && a[1] > y);
                            inside ^= crosses && a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0]) > x;
                        }
                        inside
                    }
                };
                *bits |= if has { 256 } else { 0 };
            }
        }
        mask
    }

    fn check(shapes: Vec<MaskShape>, size: [usize; 2]) {
        let expected = naive(&shapes, size);
        let mask = UserMask::new(shapes).unwrap();
        let mut found = vec![2; size[0] * size[1]];
        mask.mark(&mut found, size);
        assert_eq!(found, expected.iter().map(|bits| bits | 2).collect::<Vec<_>>(), "{mask:?} in {size:?}");
        assert_eq!(mask.pixels(size), expected.iter().filter(|bits| **bits != 0).count() as u64);
        for (at, bits) in expected.iter().enumerate() {
            assert_eq!(mask.has((at % size[1]) as u64, (at / size[1]) as u64), *bits != 0);
        }
        let mut none = Vec::new();
        mask.mark(&mut none, size);
        assert_eq!(none, if expected.iter().any(|bits| *bits != 0) { expected } else { Vec::new() });
    }

    #[test]
    fn a_pixel_is_masked_if_its_centre_is_in_a_shape() {
        let rectangle = |column, row, columns, rows| MaskShape::Rectangle { column, row, columns, rows };
        let circle = |x_px, y_px, radius_px| MaskShape::Circle { x_px, y_px, radius_px };
        assert_eq!(UserMask::new(vec![rectangle(2.0, 1.0, 3.0, 4.0)]).unwrap().pixels([11, 13]), 12);
        assert_eq!(UserMask::new(vec![circle(5.5, 5.5, 1.0)]).unwrap().pixels([11, 13]), 5);
        let shapes = [
            rectangle(2.0, 1.0, 3.0, 4.0),
            rectangle(-3.0, -3.0, 5.0, 1e6),
            rectangle(2.4, 3.6, 0.2, 0.2),
            rectangle(-9.0, 0.0, 3.0, 4.0),
            circle(6.0, 5.0, 3.0),
            circle(5.5, 5.5, 5.0),
            circle(40.0, 5.0, 3.0),
            circle(-1e6, 3.0, 1e6 + 3.5),
            circle(6.1, 5.1, 0.3),
        ];
        for shape in &shapes {
            check(vec![shape.clone()], [11, 13]);
        }
        check(shapes.to_vec(), [7, 1]);
        check(shapes.to_vec(), [1, 31]);
        assert_eq!(UserMask::new(Vec::new()), None);
    }

    #[test]
    fn what_a_polygon_encloses_twice_is_outside() {
        let square = |a: f64, b: f64| [[a, a], [b, a], [b, b], [a, b]];
        // Two squares in one line, the second inside of the first: a frame.
        let frame = MaskShape::Polygon([square(1.0, 9.0), square(3.0, 7.0)].concat());
        assert!(!frame.has(5.2, 5.1) && frame.has(8.5, 2.5));
        check(vec![frame], [11, 13]);
        // Neighbours share no pixel and leave none out.
        let (left, right) =
            ([[0.0, 0.0], [5.5, 0.0], [5.5, 11.0], [0.0, 11.0]], [[5.5, 0.0], [13.0, 0.0], [13.0, 11.0], [5.5, 11.0]]);
        let of = |points: [[f64; 2]; 4]| UserMask::new(vec![MaskShape::Polygon(points.to_vec())]).unwrap().pixels([11, 13]);
        assert_eq!((of(left), of(right)), (5 * 11, 8 * 11));
        // No area: no pixel.
        check(vec![MaskShape::Polygon(vec![[1.5, 1.5], [9.5, 9.5], [5.5, 5.5]])], [11, 13]);
    }

    fn number() -> impl Strategy<Value = f64> {
        // Many lie on centres and borders of pixels.
        prop_oneof![(-20i32..40).prop_map(|n| f64::from(n) / 2.0), -20.0..40.0f64, Just(-1e6), Just(1e6)]
    }

    fn shape() -> impl Strategy<Value = MaskShape> {
        let edge = || number().prop_map(f64::abs);
        prop_oneof![
            (number(), number(), edge(), edge()).prop_map(|(column, row, columns, rows)| MaskShape::Rectangle {
                column,
                row,
                columns,
                rows
            }),
            (number(), number(), edge()).prop_map(|(x_px, y_px, radius_px)| MaskShape::Circle { x_px, y_px, radius_px }),
            prop::collection::vec([number(), number()], 3..12).prop_map(MaskShape::Polygon),
        ]
    }

    proptest! {
        #[test]
        fn masks_are_what_naive_code_says(shapes in prop::collection::vec(shape(), 1..5), rows in 1usize..29, columns in 1usize..37) {
            check(shapes, [rows, columns]);
        }
    }
}
