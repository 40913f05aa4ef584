//! A Bragg spot, and a list of spots with a bound.

/// A group of neighbouring pixels that stand out of their surroundings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spot {
    /// Position along the fast axis, weighted with its pixels as they are; the centre of a pixel is an integer.
    pub x_px: f64,
    /// Position along the slow axis, likewise.
    pub y_px: f64,
    /// Sum of the pixels, in the unit of the pixels: less their background with peakfinder8, as they are with
    /// dispersion.
    pub intensity: f64,
    /// Highest pixel, in the unit of the pixels, with its background.
    pub maximum: f64,
    /// Background of one pixel.
    pub background: f64,
    /// Intensity above background divided by the standard deviation of the background, as the method means it.
    pub snr: f64,
    /// Number of pixels.
    pub pixels: u32,
    /// The smallest rectangle around its pixels.
    pub rectangle: Rectangle,
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rectangle {
    /// Column and row of the first pixel.
    pub first_px: [u32; 2],
    /// Column and row of the last pixel.
    pub last_px: [u32; 2],
}

impl Rectangle {
    /// One pixel.
    pub fn of_pixel(column: usize, row: usize) -> Self {
        let at = [column as u32, row as u32];
        Self { first_px: at, last_px: at }
    }

    /// The smallest rectangle around this one and another.
    pub fn around(self, other: Self) -> Self {
        let first = |n: usize| self.first_px[n].min(other.first_px[n]);
        let last = |n: usize| self.last_px[n].max(other.last_px[n]);
        Self { first_px: [first(0), first(1)], last_px: [last(0), last(1)] }
    }

    /// With so many pixels more on each side, but not beyond an image of these rows and columns.
    pub fn grown(self, margin_px: usize, [rows, columns]: [usize; 2]) -> Self {
        let margin = u32::try_from(margin_px).unwrap_or(u32::MAX);
        let ends = [columns, rows].map(|length| (length as u32).saturating_sub(1));
        let last = |n: usize| self.last_px[n].saturating_add(margin).min(ends[n]);
        Self { first_px: self.first_px.map(|first| first.saturating_sub(margin)), last_px: [last(0), last(1)] }
    }

    /// Marks its pixels in an image of this number of columns.
    ///
    /// # Panics
    /// If it is not inside the image.
    pub fn mark(self, marks: &mut [u8], columns: usize) {
        let [first, last] = [self.first_px, self.last_px].map(|at| at.map(|px| px as usize));
        for row in first[1]..=last[1] {
            marks[row * columns + first[0]..=row * columns + last[0]].fill(1);
        }
    }
}

/// The spots of an image, in the order of their first pixels (row by row). At most `spots_max` are kept; all are
/// counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpotList {
    /// Those that are kept.
    pub spots: Vec<Spot>,
    /// Number of spots that were found.
    pub found: u64,
    spots_max: usize,
}

impl SpotList {
    /// An empty list that keeps at most `spots_max`; it takes its memory here.
    pub fn new(spots_max: usize) -> Self {
        Self { spots: Vec::with_capacity(spots_max), found: 0, spots_max }
    }

    /// How many spots it keeps at most.
    pub fn spots_max(&self) -> usize {
        self.spots_max
    }

    /// Forgets all spots.
    pub fn clear(&mut self) {
        self.spots.clear();
        self.found = 0;
    }

    /// Counts a spot, and keeps it if there is room.
    pub fn push(&mut self, spot: Spot) {
        self.found += 1;
        if self.spots.len() < self.spots_max {
            self.spots.push(spot);
        }
    }

    /// Spots that were found and not kept.
    pub fn dropped(&self) -> u64 {
        self.found - self.spots.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_grows_and_stays_inside_the_image() {
        let rectangle = [(4, 1), (3, 2), (5, 2)].map(|(x, y)| Rectangle::of_pixel(x, y)).into_iter().reduce(Rectangle::around);
        let expected = Rectangle { first_px: [3, 1], last_px: [5, 2] };
        assert_eq!(rectangle, Some(expected));
        assert_eq!(expected.grown(2, [4, 9]), Rectangle { first_px: [1, 0], last_px: [7, 3] });
        assert_eq!(expected.grown(usize::MAX, [4, 9]), Rectangle { first_px: [0, 0], last_px: [8, 3] });
        let mut marks = [0; 28];
        expected.mark(&mut marks, 7);
        let marked: Vec<usize> = (0..28).filter(|n| marks[*n] != 0).collect();
        assert_eq!(marked, [10, 11, 12, 17, 18, 19]);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut list = SpotList::new(2);
        let memory = list.spots.as_ptr();
        (0..5).for_each(|n| list.push(Spot { x_px: f64::from(n), ..Spot::default() }));
        assert_eq!((list.spots.len(), list.found, list.dropped()), (2, 5, 3));
        list.clear();
        assert_eq!((list.spots.len(), list.found, list.dropped(), list.spots.as_ptr()), (0, 0, 0, memory));
    }
}
