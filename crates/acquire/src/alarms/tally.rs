//! What alarms need of the results of images: sums since the run began, and extremes since the last look.

use konkordia_core::image::CommittedImage;
use konkordia_core::results::{self, OfPixels, PixelPlace, ResultKind, analysis};
use konkordia_core::series::SeriesStart;
use konkordia_engine::output_queue::ImageObserver;
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
}

/// Where the results stand that are looked at.
#[derive(Clone, Copy, Default)]
struct Places {
    pixels: Option<PixelPlace>,
    is_analysed: Option<usize>,
    is_hit: Option<usize>,
    spots: Option<usize>,
    ice_spots: Option<usize>,
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
        };
        let pixels = start.image_size.map_or(0, |[rows, columns]| rows.saturating_mul(columns));
        *lock(&self.0) = State { places, pixels, unusable_min: u64::MAX, ..State::default() };
    }

    fn image(&self, image: &CommittedImage) {
        if !image.results.is_there() {
            return;
        }
        let bits = image.results.bits();
        let mut state = lock(&self.0);
        let State { tally, places, pixels, unusable_min } = &mut *state;
        let number = |at: Option<usize>| at.map_or(0, |at| bits[at]);
        if places.is_analysed.is_some() {
            tally.with_analysis += 1;
            tally.analysed += number(places.is_analysed);
            tally.hits += number(places.is_hit);
            tally.spots += number(places.spots);
            tally.ice_spots += number(places.ice_spots);
        }
        let Some(place) = places.pixels else { return };
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
