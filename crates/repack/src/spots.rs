//! Copies in which the spots stay as they are, with what is around them, and the background gets coarser. The pixels
//! are changed here; a lossless codec packs them afterwards, so every reader of that codec reads the copy.
//!
//! 1. The spots of an image are found ([`Dispersion`]). Their rectangles, grown by the margin, stay; so do pixels that
//!    are masked or no measurements.
//! 2. All other counts are rounded within their Poisson error ([`Rounding`]).
//! 3. The spots are found again. Where one is there that was not there before, or one that is not as it was, its
//!    surroundings have to stay too, and the image is rounded again, at most [`ROUNDS_MAX`] times.
//! 4. In the end all spots must be as they were, without a new one, and the packed image must be smaller. Otherwise the
//!    image is stored as it is.

use konkordia_analysis::Plane;
use konkordia_analysis::dispersion::{Dispersion, SETTINGS_VERSION, Settings};
use konkordia_analysis::spot::{Rectangle, Spot, SpotList};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_kernels::Isa;
use konkordia_kernels::rounding::{Counts, Loss, Rounding, Whole};
use konkordia_kernels::stats::Measured;
use konkordia_sinks::hdf5::Reader;
use konkordia_sinks::hdf5::mirror::StackLayout;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::Path;

/// The widest margin, pixels.
pub const MARGIN_MAX_PX: usize = 1000;

/// How often an image is rounded at most.
pub const ROUNDS_MAX: usize = 10;

/// As many spots of an image are kept without a recipe, as with a recipe that says nothing about it.
const SPOTS_MAX: usize = 2000;

/// What stays and how far the rest may change.
#[derive(Clone, Debug)]
pub struct SpotCopy {
    /// How spots are found.
    pub finder: Settings,
    /// An image with more spots is stored as it is.
    pub spots_max: usize,
    /// Pixels around the rectangle of a spot that stay, on each side; at most [`MARGIN_MAX_PX`]. With
    /// [`Settings::reach_px`] or more every spot is found again as it was when the image is rounded once.
    pub margin_px: usize,
    /// How many Poisson errors a count of the background may move: above 0, at most
    /// [`konkordia_kernels::rounding::SIGMA_MAX`].
    pub background_sigma: f64,
    /// Rows and columns of the images.
    pub shape: [usize; 2],
    /// Type of their pixels.
    pub pixel: PixelType,
    /// Which pixels count.
    pub usable: Vec<bool>,
    /// Lowest and highest value that is a measurement.
    pub valid: (f64, f64),
}

/// How an image was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stored {
    /// With a coarser background.
    Rounded = 0,
    /// As it is: more spots than [`SpotCopy::spots_max`].
    TooManySpots = 1,
    /// As it is: the spots that are found were still others after [`ROUNDS_MAX`] rounds.
    SpotsChanged = 2,
    /// As it is: it did not become smaller.
    NotSmaller = 3,
    /// It has no pixels.
    Absent = 4,
}

/// What became of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpotReport {
    /// How it is stored.
    pub stored: Stored,
    /// Spots that were found in it.
    pub spots: u64,
    /// Those of them that are found as they were in what is stored.
    pub spots_unchanged: u64,
    /// What was lost.
    pub loss: Loss,
    /// Bytes of the packed image without loss.
    pub lossless_bytes: u64,
}

impl SpotReport {
    /// The report if the image is stored as it is after all.
    pub(crate) fn without_loss(self, stored: Stored) -> Self {
        let Loss { pixels, pixels_exact, sum_before, .. } = self.loss;
        let loss = Loss { pixels, pixels_exact, sum_before, ..Loss::default() };
        Self { stored, spots_unchanged: self.spots, loss, ..self }
    }
}

impl SpotCopy {
    /// For the files of a run of this program, with spots as DIALS finds them.
    ///
    /// # Errors
    /// The master cannot be read, or `background_sigma` is out of range.
    pub fn of_run(master: &Path, background_sigma: f64) -> Result<Self, Failure> {
        let reader = Reader::open(master)?;
        let summary = reader.summary();
        let shape = [summary.rows as usize, summary.columns as usize];
        let mask = reader.pixel_mask();
        let usable = mask.map_or_else(|| vec![true; shape[0] * shape[1]], |mask| mask.iter().map(|bits| *bits == 0).collect());
        let (pixel, finder) = (summary.pixel, Settings::default());
        let (spots_max, margin_px, valid) = (SPOTS_MAX, finder.reach_px(), summary.valid_range());
        let copy = Self { finder, spots_max, margin_px, background_sigma, shape, pixel, usable, valid };
        let fix = "correct travel.background_sigma";
        copy.check().map_err(|why| Failure::new(Exit::Configuration, "spots cannot be kept so", why, fix))?;
        Ok(copy)
    }

    /// # Errors
    /// Says which setting is out of range.
    pub fn check(&self) -> Result<(), String> {
        Rounding::new(self.background_sigma)?;
        if self.margin_px > MARGIN_MAX_PX {
            return Err(format!("the margin is {} px; it is at most {MARGIN_MAX_PX} px", self.margin_px));
        }
        Dispersion::new(self.finder.clone(), &self.usable, self.shape[0], self.shape[1]).map(|_| ())
    }

    /// Says why images of this layout are not those for which this was made.
    pub(crate) fn refuses(&self, layout: &StackLayout) -> Option<String> {
        let takes = [PixelType::Int16, PixelType::Uint16, PixelType::Int32, PixelType::Uint32];
        if !layout.pixel.is_some_and(|pixel| takes.contains(&pixel)) {
            let is = layout.dtype.map_or_else(|| format!("of {} bytes", layout.element_bytes), |dtype| dtype.to_string());
            return Some(format!("it takes counts of int16, uint16, int32 and uint32; the pixels are {is}"));
        }
        let ([rows, columns], pixel) = (self.shape, self.pixel);
        let is_same = [layout.rows, layout.columns] == self.shape && layout.pixel == Some(pixel);
        let (name, r, c) = (&layout.name, layout.rows, layout.columns);
        (!is_same).then(|| format!("{name} has {r} x {c} pixels; spots are looked for in {rows} x {columns} pixels of {pixel}"))
    }

    /// The settings in a few words that differ if anything differs: as they stand in the record.
    pub fn words(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(format!("{:?} {} {:?} {}", self.finder, self.spots_max, self.valid, SETTINGS_VERSION));
        hasher.update(self.usable.iter().map(|usable| u8::from(*usable)).collect::<Vec<u8>>());
        let hash: String = hasher.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("spots, background within {} sigma, margin {} px, finder {hash}", self.background_sigma, self.margin_px)
    }

    /// The settings of the finder, for programs.
    pub fn finder_json(&self) -> Value {
        let s = &self.finder;
        json!({
            "version": SETTINGS_VERSION, "half_window_px": s.half_window_px, "sigma_background": s.sigma_background,
            "sigma_strong": s.sigma_strong, "count_min": s.count_min, "gain": s.gain, "threshold": s.global_threshold,
            "pixels_min": s.pixels_min, "pixels_max": s.pixels_max, "extended": s.extended, "spots_max": self.spots_max,
        })
    }
}

/// Makes images coarser, one after the other; one for each thread.
pub struct Keeper<'a> {
    copy: &'a SpotCopy,
    isa: Isa,
    finder: Dispersion,
    rounding: Rounding,
    before: SpotList,
    after: SpotList,
    is_exact: Vec<u8>,
}

impl<'a> Keeper<'a> {
    /// # Panics
    /// If [`SpotCopy::check`] finds a fault.
    pub fn new(copy: &'a SpotCopy, isa: Isa) -> Self {
        let [rows, columns] = copy.shape;
        let finder = Dispersion::new(copy.finder.clone(), &copy.usable, rows, columns).expect("the settings were checked");
        let rounding = Rounding::new(copy.background_sigma).expect("the settings were checked");
        let list = || SpotList::new(copy.spots_max);
        Self { copy, isa, finder, rounding, before: list(), after: list(), is_exact: Vec::new() }
    }

    /// Makes an image coarser (its bytes, little-endian) and says what that did. `None` instead of the new bytes if the
    /// image has to be stored as it is.
    ///
    /// # Panics
    /// If the image has another size, or pixels of a type that [`SpotCopy`] does not take.
    pub fn coarsen(&mut self, bytes: &[u8]) -> (Option<Vec<u8>>, SpotReport) {
        match self.copy.pixel {
            PixelType::Int16 => self.coarsen_as::<i16, 2>(bytes, i16::from_le_bytes, i16::to_le_bytes),
            PixelType::Uint16 => self.coarsen_as::<u16, 2>(bytes, u16::from_le_bytes, u16::to_le_bytes),
            PixelType::Int32 => self.coarsen_as::<i32, 4>(bytes, i32::from_le_bytes, i32::to_le_bytes),
            PixelType::Uint32 => self.coarsen_as::<u32, 4>(bytes, u32::from_le_bytes, u32::to_le_bytes),
            other => unreachable!("images of {other} are refused before they come here"),
        }
    }

    /// True if `after` is what [`Self::coarsen`] may have made of `before`: equal, or equal where it must be and within
    /// the limits elsewhere.
    ///
    /// # Panics
    /// As [`Self::coarsen`].
    pub fn is_copy(&mut self, before: &[u8], after: &[u8]) -> bool {
        before == after
            || match self.copy.pixel {
                PixelType::Int16 => self.is_copy_as::<i16, 2>([before, after], i16::from_le_bytes),
                PixelType::Uint16 => self.is_copy_as::<u16, 2>([before, after], u16::from_le_bytes),
                PixelType::Int32 => self.is_copy_as::<i32, 4>([before, after], i32::from_le_bytes),
                PixelType::Uint32 => self.is_copy_as::<u32, 4>([before, after], u32::from_le_bytes),
                other => unreachable!("images of {other} are refused before they come here"),
            }
    }

    fn is_copy_as<P: Measured + Whole, const N: usize>(
        &mut self,
        [before, after]: [&[u8]; 2],
        of: impl Fn([u8; N]) -> P,
    ) -> bool {
        let [before, after] = [before, after].map(|bytes| typed(bytes, &of));
        let range = self.look(&before, true);
        let counts = Counts { pixels: &before, columns: self.copy.shape[1], is_exact: &self.is_exact, range };
        let is_within = self.before.dropped() == 0 && self.rounding.compare(&counts, &after).is_some();
        self.look(&after, false);
        is_within && self.before == self.after
    }

    fn coarsen_as<P: Measured + Whole, const N: usize>(
        &mut self,
        bytes: &[u8],
        of: impl Fn([u8; N]) -> P,
        le: impl Fn(P) -> [u8; N],
    ) -> (Option<Vec<u8>>, SpotReport) {
        let pixels: Vec<P> = typed(bytes, &of);
        let range = self.look(&pixels, true);
        let spots = self.before.found;
        let loss = self.loss(&pixels, &pixels, range);
        let stored = Stored::TooManySpots;
        let as_it_is = SpotReport { stored, spots, spots_unchanged: spots, loss, lossless_bytes: 0 };
        if self.before.dropped() > 0 {
            return (None, as_it_is);
        }
        let mut rounded = vec![P::default(); pixels.len()];
        for _ in 0..ROUNDS_MAX {
            let counts = Counts { pixels: &pixels, columns: self.copy.shape[1], is_exact: &self.is_exact, range };
            self.rounding.round(&counts, &mut rounded);
            self.look(&rounded, false);
            if self.before == self.after {
                let report = SpotReport { stored: Stored::Rounded, loss: self.loss(&pixels, &rounded, range), ..as_it_is };
                return (Some(rounded.into_iter().flat_map(le).collect()), report);
            }
            self.keep_changed();
        }
        (None, SpotReport { stored: Stored::SpotsChanged, ..as_it_is })
    }

    /// What was lost.
    fn loss<P: Measured + Whole>(&self, before: &[P], after: &[P], range: (P, P)) -> Loss {
        let counts = Counts { pixels: before, columns: self.copy.shape[1], is_exact: &self.is_exact, range };
        self.rounding.compare(&counts, after).expect("no pixel moves further than is allowed")
    }

    /// Marks the surroundings of spots that are in one list only.
    fn keep_changed(&mut self) {
        let [before, after] = [&self.before, &self.after].map(|list| list.spots.iter().map(bits).collect::<HashSet<_>>());
        let lost = self.before.spots.iter().filter(|spot| !after.contains(&bits(spot)));
        let new = self.after.spots.iter().filter(|spot| !before.contains(&bits(spot)));
        let margin_px = self.copy.margin_px.max(self.copy.finder.reach_px());
        for spot in lost.chain(new) {
            spot.rectangle.grown(margin_px, self.copy.shape).mark(&mut self.is_exact, self.copy.shape[1]);
        }
    }

    /// Finds spots, those of the image before or after; before, it also marks what must stay. Gives the lowest and
    /// highest measurement.
    fn look<P: Measured + Whole>(&mut self, pixels: &[P], is_before: bool) -> (P, P) {
        let [_, columns] = self.copy.shape;
        let (low, high) = self.copy.valid;
        let end = |value: f64| P::of_wide((value as i64).clamp(P::LOWEST, P::HIGHEST));
        let plane = Plane::new(pixels, columns, end(low.ceil()), end(high.floor()));
        let list = if is_before { &mut self.before } else { &mut self.after };
        self.finder.find(self.isa, &plane, list);
        if is_before {
            self.is_exact.clear();
            self.is_exact.extend(self.copy.usable.iter().map(|usable| u8::from(!*usable)));
            for spot in &list.spots {
                spot.rectangle.grown(self.copy.margin_px, self.copy.shape).mark(&mut self.is_exact, columns);
            }
        }
        (plane.low, plane.high)
    }
}

/// All that is known of a spot, in numbers that can be compared exactly.
fn bits(spot: &Spot) -> ([u64; 6], Rectangle, u32) {
    let numbers = [spot.x_px, spot.y_px, spot.intensity, spot.maximum, spot.background, spot.snr];
    (numbers.map(f64::to_bits), spot.rectangle, spot.pixels)
}

fn typed<P, const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> P) -> Vec<P> {
    bytes.as_chunks::<N>().0.iter().map(|pixel| of(*pixel)).collect()
}
