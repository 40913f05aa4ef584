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
    fn what_has_no_room_is_counted() {
        let mut list = SpotList::new(2);
        let memory = list.spots.as_ptr();
        (0..5).for_each(|n| list.push(Spot { x_px: f64::from(n), ..Spot::default() }));
        assert_eq!((list.spots.len(), list.found, list.dropped()), (2, 5, 3));
        list.clear();
        assert_eq!((list.spots.len(), list.found, list.dropped(), list.spots.as_ptr()), (0, 0, 0, memory));
    }
}
