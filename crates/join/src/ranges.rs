//! Sets of trigger numbers as ranges: mostly a few, however long the run is.

use std::collections::BTreeMap;

/// Trigger numbers as ranges without gaps. Beyond a number of ranges the lowest are forgotten.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// First number of each range, and its last one.
    ranges: BTreeMap<u64, u64>,
    ranges_max: usize,
    /// Ranges that were forgotten.
    pub forgotten: u64,
}

impl Ranges {
    /// An empty set of at most so many ranges.
    ///
    /// # Panics
    /// If it could hold none.
    pub fn new(ranges_max: usize) -> Self {
        assert!(ranges_max > 0, "a set holds at least one range");
        Self { ranges: BTreeMap::new(), ranges_max, forgotten: 0 }
    }

    /// True if it has this number.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Adds a number; false if it was there.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let before = number.checked_sub(1).filter(|before| self.contains(*before));
        let first = before.and_then(|before| self.ranges.range(..=before).next_back()).map_or(number, |(first, _)| *first);
        let behind = number.checked_add(1).and_then(|behind| self.ranges.remove(&behind));
        self.ranges.insert(first, behind.unwrap_or(number));
        if self.ranges.len() > self.ranges_max {
            self.ranges.pop_first();
            self.forgotten += 1;
        }
        true
    }

    /// First and last number of each range, from the lowest on.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if it has no number.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// The numbers of a list of any length: how many, the first and the last that were added, and the first ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// How many.
    pub count: u64,
    /// The number that was added first, and the one that was added last.
    pub ends: Option<(u64, u64)>,
    /// The first ranges, in the order in which they were added.
    pub ranges: Vec<(u64, u64)>,
    /// There are ranges behind these.
    pub has_more: bool,
}

impl Noted {
    /// Ranges that are kept.
    pub const RANGES_MAX: usize = 10;

    /// Adds a number.
    pub fn add(&mut self, number: u64) {
        self.count += 1;
        self.ends = Some((self.ends.map_or(number, |(first, _)| first), number));
        let follows = self.ranges.last_mut().filter(|(_, last)| !self.has_more && last.checked_add(1) == Some(number));
        if let Some((_, last)) = follows {
            *last = number;
        } else if self.ranges.len() < Self::RANGES_MAX {
            self.ranges.push((number, number));
        } else {
            self.has_more = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_sim::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_have_what_a_set_has() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (mut ranges, mut set) = (Ranges::new(1000), BTreeSet::new());
            for _ in 0..300 {
                let number = rng.below(200);
                assert_eq!(ranges.insert(number), set.insert(number));
            }
            assert!((0..=200).all(|number| ranges.contains(number) == set.contains(&number)));
            let spread: Vec<u64> = ranges.iter().flat_map(|(first, last)| first..=last).collect();
            assert_eq!(spread, set.into_iter().collect::<Vec<_>>());
            assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.1 + 1 < b.0), "they do not touch");
        }
    }

    #[test]
    fn the_ends_of_the_numbers_are_numbers() {
        let mut ranges = Ranges::new(10);
        for number in [u64::MAX, 0, u64::MAX - 1, 1] {
            assert!(ranges.insert(number) && !ranges.insert(number));
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 1), (u64::MAX - 1, u64::MAX)]);
    }

    #[test]
    fn the_lowest_of_too_many_ranges_is_forgotten() {
        let mut ranges = Ranges::new(3);
        (0..5).for_each(|n| _ = ranges.insert(10 * n));
        assert_eq!((ranges.len(), ranges.forgotten, ranges.contains(10), ranges.contains(20)), (3, 2, false, true));
    }

    #[test]
    fn a_list_is_noted_by_its_first_ranges() {
        let mut noted = Noted::default();
        (5..9).for_each(|number| noted.add(number));
        (0..10).for_each(|n| noted.add(100 + 2 * n));
        noted.add(119);
        assert_eq!((noted.count, noted.ends, noted.has_more), (15, Some((5, 119)), true));
        assert_eq!((noted.ranges.len(), noted.ranges[0], noted.ranges[9]), (10, (5, 8), (116, 116)));
    }
}
