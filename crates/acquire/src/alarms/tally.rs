//! What alarms need of the results of images: sums since the run began, and extremes since the last look.

use konkordia_core::image::{CommittedImage, Packets};
use konkordia_core::results::{self, OfPixels, PixelPlace, ResultKind, analysis};
use konkordia_core::series::SeriesStart;
use konkordia_core::sls_header::SlsHeader;
use konkordia_engine::output_queue::ImageObserver;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counted of the images of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Images with results of analysis, and those among them that were analysed.
    pub with_analysis: u64,
    /// See above.
    pub analysed: u64,
    /// Hits.
    pub hits: u64,
    /// Stored spots.
    pub spots: u64,
    /// Those on rings of ice.
    pub ice_spots: u64,
    /// Images in which the place of the beam was seen.
    pub beam_images: u64,
    /// Sum of their shifts of the beam, x and y in pixels.
    pub beam_shifts_px: [f64; 2],
    /// When the pedestals of the run were taken, seconds since 1970.
    pub pedestals_taken_s: Option<u64>,
    /// By how many ADU a tenth of the tracked pedestals have moved at least, from the first snapshot to the newest.
    pub pedestal_drift_adu: Option<f64>,
    /// The highest pixel value since the last look.
    pub value_max: Option<f64>,
    /// Most saturated pixels of an image since the last look.
    pub saturated_max: Option<u64>,
    /// Most pixels that are neither valid nor missing nor saturated, beyond the fewest of the run, since the last look.
    pub invalid_max: Option<u64>,
}

#[derive(Default)]
struct State {
    tally: Tally,
    places: Places,
    pixels: u64,
    /// The fewest unusable pixels of an image of the run.
    unusable_min: u64,
    pedestals: Pedestals,
}

/// Where the results stand that are looked at.
#[derive(Clone, Copy, Default)]
struct Places {
    pixels: Option<PixelPlace>,
    is_analysed: Option<usize>,
    is_hit: Option<usize>,
    spots: Option<usize>,
    ice_spots: Option<usize>,
    beam_shift: Option<[usize; 2]>,
}

/// Pixels of a snapshot of the pedestals that are compared.
const PEDESTALS_COMPARED: usize = 4096;

/// The first snapshot of the tracked pedestals of a run, for each storage cell.
#[derive(Default)]
struct Pedestals {
    first: BTreeMap<u32, Vec<f32>>,
    moved: Vec<f32>,
}

impl Pedestals {
    /// How far nine tenths of the pedestals have moved at most since the first snapshot; `None` without a later one.
    fn drift_adu(&mut self, packets: &Packets) -> Option<f64> {
        let plane = packets.pedestals.as_ref()?;
        let step = plane.len().div_ceil(PEDESTALS_COMPARED).max(1);
        // Storage cells have pedestals of their own (bits 8 to 11 of the DAQ info).
        let cell = SlsHeader::from(packets.header()?).daq_info >> 8 & 15;
        let Some(first) = self.first.get(&cell) else {
            self.first.insert(cell, plane.iter().step_by(step).copied().collect());
            return None;
        };
        let moved = first.iter().zip(plane.iter().step_by(step)).map(|(first, now)| (now - first).abs());
        self.moved.clear();
        self.moved.extend(moved.filter(|moved| moved.is_finite()));
        let tenth = self.moved.len().checked_sub(1)? * 9 / 10;
        Some(f64::from(*self.moved.select_nth_unstable_by(tenth, f32::total_cmp).1))
    }
}

/// Counts what leaves for the outputs. Written by the thread that hands images over, read by the actor.
#[derive(Default)]
pub struct ResultsTally(Mutex<State>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ResultsTally {
    /// The sums of the run, and the extremes since the last call.
    pub fn take(&self) -> Tally {
        let mut state = lock(&self.0);
        let now = state.tally;
        (state.tally.value_max, state.tally.saturated_max, state.tally.invalid_max) = (None, None, None);
        now
    }
}

impl ImageObserver for ResultsTally {
    fn start(&self, start: &SeriesStart) {
        let place = |kind: ResultKind| results::place(&start.results, kind.name);
        let places = Places {
            pixels: PixelPlace::find(&start.results),
            is_analysed: place(analysis::IS_ANALYSED),
            is_hit: place(analysis::IS_HIT),
            spots: place(analysis::STORED_SPOTS),
            ice_spots: place(analysis::SPOTS_ON_ICE),
            beam_shift: place(analysis::BEAM_SHIFT_X).zip(place(analysis::BEAM_SHIFT_Y)).map(<[usize; 2]>::from),
        };
        let pixels = start.image_size.map_or(0, |[rows, columns]| rows.saturating_mul(columns));
        let tally = Tally { pedestals_taken_s: start.pedestals_taken_s, ..Tally::default() };
        *lock(&self.0) = State { tally, places, pixels, unusable_min: u64::MAX, ..State::default() };
    }

    fn image(&self, image: &CommittedImage) {
        let mut state = lock(&self.0);
        let State { tally, places, pixels, unusable_min, pedestals } = &mut *state;
        if let Some(drift) = image.packets.as_ref().and_then(|packets| pedestals.drift_adu(packets)) {
            tally.pedestal_drift_adu = Some(drift);
        }
        if !image.results.is_there() {
            return;
        }
        let bits = image.results.bits();
        let number = |at: Option<usize>| at.map_or(0, |at| bits[at]);
        if places.is_analysed.is_some() {
            tally.with_analysis += 1;
            tally.analysed += number(places.is_analysed);
            tally.hits += number(places.is_hit);
            tally.spots += number(places.spots);
            tally.ice_spots += number(places.ice_spots);
        }
        if let Some(shift) = places.beam_shift.map(|at| at.map(|at| f64::from_bits(bits[at])))
            && number(places.is_analysed) == 1
            && shift.iter().all(|shift| shift.is_finite())
        {
            tally.beam_images += 1;
            (0..2).for_each(|axis| tally.beam_shifts_px[axis] += shift[axis]);
        }
        let Some(place) = places.pixels else { return };
        // Where the analysis makes them, they stand behind its own first result, and images without it have none.
        if places.is_analysed.is_some_and(|at| at < place.begin() && bits[at] == 0) {
            return;
        }
        let OfPixels { valid, missing, saturated, highest } = place.read(bits);
        tally.saturated_max = tally.saturated_max.max(Some(saturated));
        let higher = |value: f64| tally.value_max.is_none_or(|before| value > before);
        if let Some(value) = highest.filter(|value| higher(*value)) {
            tally.value_max = Some(value);
        }
        let unusable = pixels.saturating_sub(valid + missing + saturated);
        // Pixels that did not come may be unusable ones.
        if missing == 0 {
            *unusable_min = unusable.min(*unusable_min);
            tally.invalid_max = tally.invalid_max.max(Some(unusable - *unusable_min));
        }
    }
}
