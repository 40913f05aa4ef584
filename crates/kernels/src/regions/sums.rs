//! The types of regions and of their sums.

/// Pixels `first..end` of the image, all of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first.
    pub first: usize,
    /// Behind the last.
    pub end: usize,
}

/// What a region shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegionSums {
    /// Pixels whose value is in the range.
    pub pixels: u64,
    /// Their sum. Sums of integers are exact as far as a double goes; floats are added in a fixed order.
    pub sum: f64,
    /// The highest of them; minus infinity without any.
    pub highest: f64,
    /// The sums of value times column and of value times row.
    pub moments: [f64; 2],
}
