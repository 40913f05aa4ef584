//! Areas of polygons inside of rectangles (Sutherland and Hodgman, Commun. ACM 17 (1974) 32).

/// More corners than a quadrilateral can have after four cuts.
const CORNERS_MAX: usize = 24;

/// A polygon with few corners.
#[derive(Clone, Copy, Debug)]
pub struct Polygon {
    corners: [[f64; 2]; CORNERS_MAX],
    count: usize,
}

impl Polygon {
    /// A quadrilateral.
    pub(super) fn new(corners: [[f64; 2]; 4]) -> Self {
        let mut polygon = Self { corners: [[0.0; 2]; CORNERS_MAX], count: 0 };
        corners.into_iter().for_each(|corner| polygon.push(corner));
        polygon
    }

    fn push(&mut self, corner: [f64; 2]) {
        if let Some(place) = self.corners.get_mut(self.count) {
            *place = corner;
            self.count += 1;
        }
    }

    fn corners(&self) -> &[[f64; 2]] {
        &self.corners[..self.count]
    }

    /// Corners and their next ones.
    fn edges(&self) -> impl Iterator<Item = ([f64; 2], [f64; 2])> {
        let corners = self.corners();
        corners.iter().zip(corners.iter().cycle().skip(1)).map(|(a, b)| (*a, *b))
    }

    /// Lowest and highest coordinate along an axis.
    pub(super) fn span(&self, axis: usize) -> [f64; 2] {
        let wider = |[low, high]: [f64; 2], corner: &[f64; 2]| [low.min(corner[axis]), high.max(corner[axis])];
        self.corners().iter().fold([f64::INFINITY, f64::NEG_INFINITY], wider)
    }

    /// Its area, with the sign of its direction.
    pub(super) fn area(&self) -> f64 {
        // Relative to a corner, so that large coordinates do not cost digits.
        let [x0, y0] = self.corners[0]; // [0, 0] if there is no corner
        let twice = self.edges().map(|(a, b)| (a[0] - x0) * (b[1] - y0) - (b[0] - x0) * (a[1] - y0));
        0.5 * twice.sum::<f64>()
    }

    /// The area between two coordinates of the first axis, with the sign of [`Self::area`]: what
    /// `between(0, low, high).area()` gives, by integrals along the edges.
    pub(super) fn area_between(&self, low: f64, high: f64) -> f64 {
        let [_, y0] = self.corners[0];
        let below = |(a, b): ([f64; 2], [f64; 2])| {
            let (from, to) = (a[0].clamp(low, high), b[0].clamp(low, high));
            if from == to {
                return 0.0;
            }
            let slope = (b[1] - a[1]) / (b[0] - a[0]);
            let middle = a[1] - y0 + slope * (0.5 * (from + to) - a[0]);
            middle * (from - to)
        };
        self.edges().map(below).sum()
    }

    /// The part between two coordinates of an axis.
    pub(super) fn between(&self, axis: usize, low: f64, high: f64) -> Self {
        self.above(axis, low, 1.0).above(axis, high, -1.0)
    }

    /// The polygon moved along an axis.
    pub(super) fn moved(&self, axis: usize, by: f64) -> Self {
        let mut moved = *self;
        moved.corners[..moved.count].iter_mut().for_each(|corner| corner[axis] += by);
        moved
    }

    /// The part above a coordinate of an axis, or below it if `sign` is -1.
    fn above(&self, axis: usize, limit: f64, sign: f64) -> Self {
        let mut cut = Self { corners: [[0.0; 2]; CORNERS_MAX], count: 0 };
        let height = |corner: [f64; 2]| sign * (corner[axis] - limit);
        for (a, b) in self.edges() {
            let (height_a, height_b) = (height(a), height(b));
            if height_a >= 0.0 {
                cut.push(a);
            }
            if (height_a >= 0.0) != (height_b >= 0.0) {
                let part = height_a / (height_a - height_b);
                let mut crossing = [0, 1].map(|n| a[n] + part * (b[n] - a[n]));
                crossing[axis] = limit;
                cut.push(crossing);
            }
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_square() {
        let square = Polygon::new([[0.5, 0.25], [2.5, 0.25], [2.5, 2.25], [0.5, 2.25]]);
        assert_eq!(square.area(), 4.0);
        assert_eq!((square.span(0), square.span(1)), ([0.5, 2.5], [0.25, 2.25]));
        assert_eq!(square.between(0, 0.0, 1.0).area(), 1.0);
        assert_eq!(square.between(0, 1.0, 2.0).between(1, 2.0, 3.0).area(), 0.25);
        assert_eq!(square.between(0, 3.0, 4.0).area(), 0.0);
        assert_eq!(square.moved(1, 1.0).between(1, 3.0, 4.0).area(), 0.5);
        let reversed = Polygon::new([[0.5, 2.25], [2.5, 2.25], [2.5, 0.25], [0.5, 0.25]]);
        assert_eq!((reversed.area(), reversed.between(0, 0.0, 1.0).area()), (-4.0, -1.0));
    }

    #[test]
    fn parts_of_a_polygon_make_the_whole() {
        for corners in [
            [[0.2, 0.1], [3.7, 1.9], [2.2, 4.4], [-1.3, 2.6]],
            // Not convex.
            [[0.0, 0.0], [4.0, 0.3], [1.0, 1.0], [0.3, 4.0]],
            // A line.
            [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]],
        ] {
            let polygon = Polygon::new(corners);
            let cells = (-3..6).flat_map(|x| (-3..6).map(move |y| (f64::from(x), f64::from(y))));
            let parts = cells.map(|(x, y)| polygon.between(0, x, x + 1.0).between(1, y, y + 1.0).area());
            assert!((parts.sum::<f64>() - polygon.area()).abs() < 1e-12, "{corners:?}");
            for x in (-4..10).map(f64::from) {
                let cut = polygon.between(0, 0.5 * x, 0.5 * x + 1.3).area();
                assert!((polygon.area_between(0.5 * x, 0.5 * x + 1.3) - cut).abs() < 1e-12, "{corners:?} {x}");
            }
        }
    }
}
