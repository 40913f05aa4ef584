//! Results of all images of a run against their number, as data for plots. Bounded, whatever the length of the run.

use crate::bins::{Bins, Merge};
use crate::handle::{ResultName, ResultPlot};
use konkordia_core::image::CommittedImage;
use konkordia_core::results::{self, ResultKind, analysis};
use konkordia_core::series::SeriesStart;
use konkordia_engine::output_queue::ImageObserver;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bins.
const BINS_MAX: usize = 1024;

/// One result of the images of a bin.
#[derive(Clone, Copy, Default)]
struct Numbers {
    count: u64,
    sum: f64,
    low: f64,
    high: f64,
}

/// Images with numbers that follow each other.
#[derive(Clone, Default)]
struct Bin {
    images: u64,
    /// Those without results, because they are lost.
    without: u64,
    /// Those with results, but not those of the analysis.
    not_analysed: u64,
    /// When the first of them was received.
    received_ns: Option<u64>,
    /// For each kind of result.
    numbers: Vec<Numbers>,
}

#[derive(Default)]
struct State {
    series: u64,
    /// Results that are one number, with their place among the numbers of an image.
    kinds: Vec<(ResultKind, usize)>,
    /// Where the analysis says whether there was one. What it says of the image stands behind, and is 0 if not.
    is_analysed: Option<usize>,
    /// By the number of the image.
    bins: Bins<Bin>,
    /// What the analysis says of its lists: names, and JSON.
    texts: Vec<(String, String)>,
}

/// Gathers what leaves for the outputs. Written by the thread that hands images over, read by servers.
#[derive(Default)]
pub struct ResultHistory(Mutex<State>);

fn lock(mutex: &Mutex<State>) -> MutexGuard<'_, State> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Numbers {
    fn add(&mut self, number: f64) {
        if !number.is_nan() {
            self.merge(Self { count: 1, sum: number, low: number, high: number });
        }
    }

    fn merge(&mut self, other: Self) {
        if self.count == 0 || other.count == 0 {
            *self = if self.count == 0 { other } else { *self };
            return;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
    }
}

impl Merge for Bin {
    fn merge(&mut self, other: &Self) {
        self.images += other.images;
        self.without += other.without;
        self.not_analysed += other.not_analysed;
        self.received_ns = self.received_ns.or(other.received_ns);
        self.numbers.resize(self.numbers.len().max(other.numbers.len()), Numbers::default());
        self.numbers.iter_mut().zip(&other.numbers).for_each(|(mine, other)| mine.merge(*other));
    }
}

impl State {
    /// What the analysis says under this name.
    fn said<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        let text = self.texts.iter().find(|(other, _)| other == name).map(|(_, text)| text)?;
        serde_json::from_str(text).ok()
    }

    fn add(&mut self, image: &CommittedImage) {
        let bin = self.bins.at(image.number, BINS_MAX);
        bin.images += 1;
        if !image.results.is_there() {
            bin.without += 1;
            return;
        }
        bin.received_ns = bin.received_ns.or(Some(image.received_ns));
        bin.numbers.resize(self.kinds.len(), Numbers::default());
        let bits = image.results.bits();
        let missing_from = self.is_analysed.filter(|at| bits[*at] == 0);
        bin.not_analysed += u64::from(missing_from.is_some());
        for (numbers, (kind, place)) in bin.numbers.iter_mut().zip(&self.kinds) {
            if missing_from.is_none_or(|at| *place <= at) {
                numbers.add(kind.number.number(bits[*place]).to_f64());
            }
        }
    }
}

impl ResultHistory {
    /// One result of the images of the newest run or series; without a name, the names alone. `None` if there is no
    /// result of this name.
    pub fn read(&self, detector: &str, result: Option<&str>) -> Option<ResultPlot> {
        let state = lock(&self.0);
        let name =
            |kind: &ResultKind| ResultName { name: kind.name.into(), unit: kind.unit.into(), meaning: kind.meaning.into() };
        let mut plot = ResultPlot {
            detector: detector.into(),
            series: state.series,
            results: state.kinds.iter().map(|(kind, _)| name(kind)).collect(),
            bin_images: state.bins.width.max(1),
            ..ResultPlot::default()
        };
        let Some(result) = result else {
            plot.profile_unit = state.said("analysis_profile_unit");
            plot.profile_axis = state.said("analysis_profile_axis").unwrap_or_default();
            plot.regions = state.said("analysis_regions").unwrap_or_default();
            plot.cake_azimuth_deg = state.said("analysis_cake_azimuth_deg").unwrap_or_default();
            return Some(plot);
        };
        let place = state.kinds.iter().position(|(kind, _)| kind.name == result)?;
        let began_ns = state.bins.all.iter().find_map(|bin| bin.received_ns);
        plot.result = Some(result.into());
        let is_of_analysis = state.is_analysed.is_some_and(|at| state.kinds[place].1 > at);
        for (n, bin) in state.bins.all.iter().enumerate().filter(|(_, bin)| bin.images > 0) {
            let numbers = bin.numbers.get(place).copied().unwrap_or_default();
            let known = |number: f64| (numbers.count > 0 && number.is_finite()).then_some(number);
            plot.first_image.push(n as u64 * state.bins.width);
            plot.images.push(bin.images);
            plot.without.push(bin.without + if is_of_analysis { bin.not_analysed } else { 0 });
            plot.mean.push(known(numbers.sum / numbers.count as f64));
            plot.lowest.push(known(numbers.low));
            plot.highest.push(known(numbers.high));
            let since = bin.received_ns.zip(began_ns).map(|(at, began)| at.saturating_sub(began) as f64 / 1e9);
            plot.time_s.push(since);
        }
        Some(plot)
    }
}

impl ImageObserver for ResultHistory {
    fn start(&self, start: &SeriesStart) {
        let singles = start.results.iter().filter(|kind| kind.is_single());
        let kinds = singles.filter_map(|kind| Some((*kind, results::place(&start.results, kind.name)?))).collect();
        let is_analysed = results::place(&start.results, analysis::IS_ANALYSED.name);
        let texts = start.notes.iter().filter(|(name, _)| name.starts_with("analysis_")).cloned().collect();
        *lock(&self.0) = State { series: start.series, kinds, is_analysed, bins: Bins::new(1), texts };
    }

    fn image(&self, image: &CommittedImage) {
        let mut state = lock(&self.0);
        if state.bins.width > 0 {
            state.add(image);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::results::{ImageResults, metadata};

    const KINDS: [ResultKind; 2] = [analysis::SPOTS, analysis::RESOLUTION];

    fn add(history: &ResultHistory, number: u64, spots: u64, resolution: f64) {
        let mut results = ImageResults::new(KINDS.to_vec().into());
        results.fill().copy_from_slice(&[spots, resolution.to_bits()]);
        history.image(&CommittedImage { results, received_ns: 9 + number * 1_000_000, ..CommittedImage::lost(number) });
    }

    fn history() -> ResultHistory {
        let history = ResultHistory::default();
        history.start(&SeriesStart { series: 7, results: KINDS.to_vec(), ..SeriesStart::default() });
        history
    }

    #[test]
    fn every_image_is_in_one_bin_however_many_there_are() {
        let history = history();
        for number in 0..5000 {
            match number % 10 {
                0 => history.image(&CommittedImage::lost(number)),
                last => add(&history, number, last, if last == 5 { f64::NAN } else { 2.0 }),
            }
        }
        let spots = history.read("d", Some("spots")).unwrap();
        assert_eq!((spots.series, spots.bin_images, spots.first_image.len()), (7, 8, 625));
        assert_eq!((spots.images.iter().sum::<u64>(), spots.without.iter().sum::<u64>()), (5000, 500));
        assert_eq!(
            (spots.first_image[1], spots.mean[0], spots.lowest[0], spots.highest[0]),
            (8, Some(4.0), Some(1.0), Some(7.0))
        );
        assert!((spots.time_s[2].unwrap() - 0.015).abs() < 1e-9);
        let resolution = history.read("d", Some("resolution_angstrom")).unwrap();
        assert!(resolution.mean.iter().all(|mean| *mean == Some(2.0)), "NaN is no number");
    }

    #[test]
    fn what_was_not_analysed_has_no_results_of_the_analysis() {
        let kinds = vec![metadata::ANGLE, analysis::IS_ANALYSED, analysis::SPOTS];
        let history = ResultHistory::default();
        history.start(&SeriesStart { results: kinds.clone(), ..SeriesStart::default() });
        for (number, is_analysed, spots) in [(0, 1, 7), (1, 0, 0), (2, 1, 9)] {
            let mut results = ImageResults::new(kinds.clone().into());
            results.fill().copy_from_slice(&[f64::to_bits(number as f64), is_analysed, spots]);
            history.image(&CommittedImage { results, ..CommittedImage::lost(number) });
        }
        let [angle, spots] = ["angle_deg", "spots"].map(|name| history.read("d", Some(name)).unwrap());
        assert_eq!((angle.mean, angle.without), (vec![Some(0.0), Some(1.0), Some(2.0)], vec![0, 0, 0]));
        assert_eq!((spots.mean, spots.without), (vec![Some(7.0), None, Some(9.0)], vec![0, 1, 0]));
    }

    #[test]
    fn without_a_name_there_are_the_names() {
        let history = history();
        let names = history.read("d", None).unwrap();
        assert_eq!(names.results.iter().map(|result| result.name.as_str()).collect::<Vec<_>>(), ["spots", "resolution_angstrom"]);
        assert!(names.first_image.is_empty() && names.result.is_none());
        assert!(history.read("d", Some("no such result")).is_none());
        add(&history, 3, 5, f64::NAN);
        let resolution = history.read("d", Some("resolution_angstrom")).unwrap();
        assert_eq!((resolution.first_image, resolution.mean), (vec![3], vec![None]));
        assert!(ResultHistory::default().read("d", None).unwrap().results.is_empty());
    }

    #[test]
    fn lists_have_their_axis_and_names() {
        let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let notes = vec![
            text("analysis_profile_unit", "\"1/angstrom\""),
            text("analysis_profile_axis", "[0.5, 1.5]"),
            text("analysis_regions", "[\"beam\"]"),
        ];
        let history = ResultHistory::default();
        history.start(&SeriesStart { notes, ..SeriesStart::default() });
        let names = history.read("d", None).unwrap();
        assert_eq!(
            (names.profile_unit.as_deref(), names.profile_axis, names.regions),
            (Some("1/angstrom"), vec![0.5, 1.5], vec!["beam".into()])
        );
        assert!(names.cake_azimuth_deg.is_empty());
    }
}
