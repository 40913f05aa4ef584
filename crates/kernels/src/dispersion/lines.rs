//! How rows and sums of columns lie in memory: [`PAD`] columns, those of the image filled up to whole blocks of
//! [`BLOCK`], and again [`PAD`] columns. What is beside the image counts nowhere.

/// Columns that are handled together.
pub const BLOCK: usize = 32;

/// Columns before and after those of the image: at least the half width of every window.
pub const PAD: usize = BLOCK;

/// Columns of a row in memory.
pub fn padded(columns: usize) -> usize {
    columns.next_multiple_of(BLOCK) + 2 * PAD
}

/// Which pixels count, and which values are large.
#[derive(Clone, Copy, Debug)]
pub struct Range<P, V> {
    /// Lowest value that is a measurement.
    pub low: P,
    /// Highest value that is a measurement.
    pub high: P,
    /// Pixels from this value on are measurements, but do not count in windows; `None`: all count.
    pub uncounted_from: Option<P>,
    /// Values below this one are large.
    pub small_min: V,
    /// Values above this one are large.
    pub small_max: V,
}

/// The rows under a window.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a, V> {
    /// All rows in memory, one after the other.
    pub values: &'a [V],
    /// Length of one of them.
    pub length: usize,
    /// Which of them lie under the window, from top to bottom.
    pub slots: &'a [usize],
}

/// A row of which the index of dispersion is tested.
#[derive(Debug)]
pub struct Row<'a> {
    /// For each block of the image: not 0 if the window has large values there.
    pub is_wide: &'a [u8],
    /// For each column in memory, see [`super::load`].
    pub flags: &'a [u8],
    /// What masked pixels become: 1 if they are not background.
    pub masked: u8,
    /// The result, for each column in memory of which there is a block: 1 if the pixel is not background, otherwise 0.
    pub above: &'a mut [u8],
}

/// Sums over the rows under a window, for each column in memory.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Pixels that count.
    pub counts: Vec<u8>,
    /// Their sum. Wraps around where there are large values; once these have left, it is right again.
    pub sums: Vec<i32>,
    /// The sum of their squares, likewise.
    pub squares: Vec<i32>,
    /// The sum in double precision, only where it is needed and until the window goes on.
    pub wide_sums: Vec<f64>,
    /// The sum of the squares, likewise.
    pub wide_squares: Vec<f64>,
}

impl Columns {
    /// For images with this number of columns, before the first row.
    pub fn new(columns: usize) -> Self {
        let length = padded(columns);
        Self {
            counts: vec![0; length],
            sums: vec![0; length],
            squares: vec![0; length],
            wide_sums: vec![0.0; length],
            wide_squares: vec![0.0; length],
        }
    }

    /// As before the first row.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.sums.fill(0);
        self.squares.fill(0);
    }
}
