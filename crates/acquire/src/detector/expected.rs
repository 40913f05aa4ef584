//! Compares what a sender announces with what the driver has asked the detector for.

use crate::control_driver::Expected;
use konkordia_core::series::SeriesStart;

/// Numbers that differ by less than this share are the same. Detectors round times to their clock.
const TOLERANCE: f64 = 1e-3;

/// Each difference in words, as "count time: 0.002 s announced, 0.001 s asked for". What one of them does not say is no
/// difference.
pub fn differences(expected: &Expected, start: &SeriesStart) -> Vec<String> {
    let [rows, columns] = start.image_size.map_or([None; 2], |size| size.map(Some));
    let facts = &start.facts;
    let counts = [
        ("series", Some(start.series), expected.series),
        ("images", start.images_planned, expected.images),
        ("rows", rows, expected.rows),
        ("columns", columns, expected.columns),
    ];
    let numbers = [
        ("count time", facts.count_time_s, expected.count_time_s, " s"),
        ("frame time", facts.frame_time_s, expected.frame_time_s, " s"),
        ("energy", facts.energy_kev, expected.energy_kev, " keV"),
    ];
    let count = |(name, announced, asked): (&str, Option<u64>, Option<u64>)| {
        let (announced, asked) = (announced?, asked?);
        (announced != asked).then(|| format!("{name}: {announced} announced, {asked} asked for"))
    };
    let number = |(name, announced, asked, unit): (&str, Option<f64>, Option<f64>, &str)| {
        let (announced, asked) = (announced?, asked?);
        let is_same = (announced - asked).abs() <= TOLERANCE * asked.abs();
        (!is_same).then(|| format!("{name}: {announced}{unit} announced, {asked}{unit} asked for"))
    };
    counts.into_iter().filter_map(count).chain(numbers.into_iter().filter_map(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::experiment::Metadata;

    #[test]
    fn only_what_both_say_can_differ() {
        let facts = Metadata { count_time_s: Some(0.001_000_5), energy_kev: Some(12.4), ..Metadata::default() };
        let start =
            SeriesStart { series: 3, images_planned: Some(10), image_size: Some([512, 1024]), facts, ..SeriesStart::default() };
        let asked = Expected {
            series: Some(3),
            images: Some(10),
            count_time_s: Some(0.001),
            frame_time_s: Some(1.0),
            ..Expected::default()
        };
        assert_eq!(differences(&asked, &start), Vec::<String>::new());
        let other = Expected { images: Some(11), columns: Some(1030), energy_kev: Some(12.0), ..asked };
        let words = [
            "images: 10 announced, 11 asked for",
            "columns: 1024 announced, 1030 asked for",
            "energy: 12.4 keV announced, 12 keV asked for",
        ];
        assert_eq!(differences(&other, &start), words);
        assert_eq!(differences(&other, &SeriesStart { series: 3, ..SeriesStart::default() }), Vec::<String>::new());
    }
}
