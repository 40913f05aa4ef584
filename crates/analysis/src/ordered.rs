//! Spots that are found in any order, handed out in the order of their first pixels.

use crate::spot::{Spot, SpotList};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Debug)]
struct Found {
    first: u64,
    spot: Spot,
}

impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.first.cmp(&other.first)
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first
    }
}

impl Eq for Found {}

/// Those of the spots of an image whose first pixels come first.
#[derive(Clone, Debug, Default)]
pub struct Ordered {
    kept: BinaryHeap<Found>,
    found: u64,
    spots_max: usize,
}

impl Ordered {
    /// Begins an image of which at most `spots_max` spots are kept; takes memory only if that is more than ever before.
    pub fn start(&mut self, spots_max: usize) {
        self.kept.clear();
        self.kept.reserve(spots_max);
        (self.found, self.spots_max) = (0, spots_max);
    }

    /// Counts a spot with this first pixel (its number in the image), and keeps it if it is early enough.
    pub fn push(&mut self, first: u64, spot: Spot) {
        self.found += 1;
        if self.kept.len() < self.spots_max {
            self.kept.push(Found { first, spot });
        } else if let Some(mut last) = self.kept.peek_mut()
            && first < last.first
        {
            *last = Found { first, spot };
        }
    }

    /// Ends the image: the list becomes what was found.
    pub fn give(&mut self, list: &mut SpotList) {
        list.clear();
        let mut sorted = std::mem::take(&mut self.kept).into_sorted_vec();
        sorted.iter().for_each(|found| list.push(found.spot));
        list.found = self.found;
        sorted.clear();
        self.kept = sorted.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ones_are_kept_in_their_order() {
        let mut ordered = Ordered::default();
        for (spots_max, expected) in
            [(0, vec![]), (1, vec![0.0]), (4, vec![0.0, 1.0, 2.0, 3.0]), (9, (0..7).map(f64::from).collect())]
        {
            let mut list = SpotList::new(spots_max);
            list.push(Spot::default());
            ordered.start(list.spots_max());
            for first in [5u32, 3, 6, 0, 2, 4, 1] {
                ordered.push(first.into(), Spot { x_px: first.into(), ..Spot::default() });
            }
            ordered.give(&mut list);
            assert_eq!(list.spots.iter().map(|spot| spot.x_px).collect::<Vec<_>>(), expected);
            assert_eq!((list.found, list.dropped()), (7, 7 - expected.len() as u64));
        }
    }
}
