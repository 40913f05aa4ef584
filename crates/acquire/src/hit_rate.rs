//! Hits over time and over the raster of a run, as data for plots. Bounded, whatever the length of the run.

use crate::bins::{Bins, Merge};
use crate::handle::{HitRate, RasterHits};
use konkordia_core::image::CommittedImage;
use konkordia_core::results::{self, ResultKind, analysis, indexing, metadata};
use konkordia_core::series::SeriesStart;
use konkordia_engine::output_queue::ImageObserver;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bins of time.
const BINS_MAX: usize = 600;
/// Width of the bins at the beginning of a run.
const FIRST_BIN_NS: u64 = 1_000_000_000;
/// Most places of a raster.
const PLACES_MAX: usize = 1 << 16;

/// Analysed images, hits, and indexed ones.
type Counts = [u64; 3];

impl Merge for Counts {
    fn merge(&mut self, behind: &Self) {
        self.iter_mut().zip(behind).for_each(|(count, other)| *count += other);
    }
}

/// Where the results stand that are counted.
#[derive(Clone, Copy)]
struct Places {
    is_analysed: usize,
    is_hit: usize,
    is_indexed: Option<usize>,
    /// Row and column.
    raster: Option<[usize; 2]>,
}

#[derive(Default)]
struct State {
    series: u64,
    places: Option<Places>,
    /// When the first image was received.
    began_ns: Option<u64>,
    /// In nanoseconds since then.
    bins: Bins<Counts>,
    /// By row and column.
    raster: BTreeMap<[u64; 2], Counts>,
    beyond_raster: u64,
}

/// Counts what leaves for the outputs. Written by the thread that hands images over, read by servers.
#[derive(Default)]
pub struct HitTally(Mutex<State>);

fn lock(mutex: &Mutex<State>) -> MutexGuard<'_, State> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn add(&mut self, places: Places, image: &CommittedImage) {
        let bits = image.results.bits();
        if bits[places.is_analysed] == 0 {
            return;
        }
        let add = |counts: &mut Counts| {
            counts[0] += 1;
            counts[1] += bits[places.is_hit];
            counts[2] += places.is_indexed.map_or(0, |at| bits[at]);
        };
        let began_ns = *self.began_ns.get_or_insert(image.received_ns);
        // Images that wait for each other may be received a little before the first.
        let since_ns = image.received_ns.saturating_sub(began_ns);
        add(self.bins.at(since_ns, BINS_MAX));
        let Some(place) = places.raster.map(|at| at.map(|at| bits[at])) else { return };
        if self.raster.len() < PLACES_MAX || self.raster.contains_key(&place) {
            add(self.raster.entry(place).or_default());
        } else {
            self.beyond_raster += 1;
        }
    }
}

impl HitTally {
    /// The counts of the newest run or series.
    pub fn read(&self, detector: &str) -> HitRate {
        let state = lock(&self.0);
        let of_bins = |n: usize| state.bins.all.iter().map(|counts| counts[n]).collect();
        let at = |n: usize| state.raster.keys().map(|place| place[n]).collect();
        let there = |n: usize| state.raster.values().map(|counts| counts[n]).collect();
        let is_indexed = state.places.is_some_and(|places| places.is_indexed.is_some());
        let has_raster = state.places.is_some_and(|places| places.raster.is_some());
        HitRate {
            detector: detector.into(),
            series: state.series,
            bin_s: state.bins.width.max(FIRST_BIN_NS) as f64 / 1e9,
            analysed: of_bins(0),
            hits: of_bins(1),
            indexed: if is_indexed { of_bins(2) } else { Vec::new() },
            raster: has_raster.then(|| RasterHits {
                row: at(0),
                column: at(1),
                analysed: there(0),
                hits: there(1),
                indexed: if is_indexed { there(2) } else { Vec::new() },
                not_counted: state.beyond_raster,
            }),
        }
    }
}

impl ImageObserver for HitTally {
    fn start(&self, start: &SeriesStart) {
        let place = |kind: ResultKind| results::place(&start.results, kind.name);
        let decided = place(analysis::IS_ANALYSED).zip(place(analysis::IS_HIT));
        let raster = place(metadata::RASTER_ROW).zip(place(metadata::RASTER_COLUMN)).map(<[usize; 2]>::from);
        let is_indexed = place(indexing::IS_INDEXED);
        let places = decided.map(|(is_analysed, is_hit)| Places { is_analysed, is_hit, is_indexed, raster });
        *lock(&self.0) = State { series: start.series, places, bins: Bins::new(FIRST_BIN_NS), ..State::default() };
    }

    fn image(&self, image: &CommittedImage) {
        let mut state = lock(&self.0);
        if let Some(places) = state.places.filter(|_| image.results.is_there()) {
            state.add(places, image);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::results::ImageResults;

    const KINDS: [ResultKind; 4] = [metadata::RASTER_COLUMN, metadata::RASTER_ROW, analysis::IS_ANALYSED, analysis::IS_HIT];

    fn tally(kinds: &[ResultKind]) -> HitTally {
        let tally = HitTally::default();
        tally.start(&SeriesStart { series: 7, results: kinds.to_vec(), ..SeriesStart::default() });
        tally
    }

    fn add(tally: &HitTally, received_s: u64, numbers: [u64; 4]) {
        let mut results = ImageResults::new(KINDS.to_vec().into());
        results.fill().copy_from_slice(&numbers);
        tally.image(&CommittedImage {
            results,
            received_ns: 5_000_000_000 + received_s * 1_000_000_000,
            ..CommittedImage::lost(0)
        });
    }

    #[test]
    fn bins_grow_wider_and_keep_every_image() {
        let tally = tally(&KINDS);
        for second in 0..5000 {
            add(&tally, second, [second % 10, 3, 1, u64::from(second % 5 == 0)]);
        }
        add(&tally, 5000, [0, 0, 0, 0]);
        tally.image(&CommittedImage::lost(9));
        let rate = tally.read("d");
        assert_eq!((rate.series, rate.bin_s, rate.analysed.len()), (7, 16.0, 313));
        assert_eq!((rate.analysed.iter().sum::<u64>(), rate.hits.iter().sum::<u64>()), (5000, 1000));
        assert_eq!((rate.analysed[0], rate.hits[0], rate.analysed[312]), (16, 4, 8));
        let raster = rate.raster.unwrap();
        assert_eq!((raster.column[9], raster.row[9], raster.analysed[9], raster.hits[5]), (9, 3, 500, 500));
    }

    #[test]
    fn a_raster_has_a_bound_and_says_what_is_beyond() {
        let tally = tally(&KINDS);
        for place in 0..PLACES_MAX as u64 + 3 {
            add(&tally, 0, [place, 0, 1, 0]);
        }
        add(&tally, 0, [0, 0, 1, 1]);
        let raster = tally.read("d").raster.unwrap();
        assert_eq!((raster.row.len(), raster.not_counted, raster.analysed[0], raster.hits[0]), (PLACES_MAX, 3, 2, 1));
    }

    #[test]
    fn indexed_images_are_counted_where_there_is_an_indexing_program() {
        let kinds = [analysis::IS_ANALYSED, analysis::IS_HIT, metadata::RASTER_ROW, metadata::RASTER_COLUMN];
        let tally = HitTally::default();
        let all: Vec<_> = kinds.into_iter().chain([indexing::IS_INDEXED]).collect();
        tally.start(&SeriesStart { results: all.clone(), ..SeriesStart::default() });
        for n in 0..3000u64 {
            let mut results = ImageResults::new(all.clone().into());
            results.fill().copy_from_slice(&[1, 1, 0, n % 2, u64::from(n % 3 == 0)]);
            tally.image(&CommittedImage { results, received_ns: n * 1_000_000_000, ..CommittedImage::lost(0) });
        }
        let rate = tally.read("d");
        assert_eq!((rate.indexed.iter().sum::<u64>(), rate.indexed.len()), (1000, rate.hits.len()));
        assert_eq!(rate.raster.unwrap().indexed, [500, 500]);
    }

    #[test]
    fn without_analysis_there_is_nothing() {
        let tally = tally(&KINDS[..2]);
        add(&tally, 0, [0, 0, 1, 1]);
        let rate = tally.read("d");
        assert!(rate.analysed.is_empty() && rate.indexed.is_empty() && rate.raster.is_none());
    }
}
