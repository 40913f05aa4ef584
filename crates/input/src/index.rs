//! An index of the frames of each tile, sorted by frame number, and notes on frames that are missing in some tiles or
//! in all.

use std::sync::Arc;

/// Where a tile of a frame lies in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Frame number.
    pub frame: u64,
    /// Byte offset in the file, or position in the stack.
    pub at: u64,
    /// Number of the file.
    pub file: u32,
}

/// The frames of one tile.
#[derive(Clone, Debug)]
pub struct TileIndex {
    /// Name for messages, for example "port 3".
    pub name: String,
    places: Arc<Vec<Place>>,
}

impl TileIndex {
    /// An index of frames in the order of the files.
    pub fn new(name: String, places: Vec<Place>) -> Self {
        Self { name, places: Arc::new(places) }
    }

    /// The frames; after [`TileIndex::settle`] in ascending order.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Sorts by frame number and keeps the first of frames with the same number. Adds a note for each of the two that
    /// was needed.
    pub fn settle(&mut self, notes: &mut Vec<String>) {
        let places = Arc::make_mut(&mut self.places);
        let out_of_order = places.windows(2).filter(|w| w[1].frame < w[0].frame).count();
        if out_of_order > 0 {
            places.sort_by_key(|p| p.frame);
            notes.push(format!("{}: frames are not in order ({out_of_order} steps back); they were sorted by number", self.name));
        }
        let before = places.len();
        places.dedup_by_key(|p| p.frame);
        let doubled = before - places.len();
        if doubled > 0 {
            notes.push(format!("{}: {doubled} frames repeat an earlier frame number; the first of each is used", self.name));
        }
    }

    /// Keeps the frames from `from` to `to`, both included.
    pub fn restrict(&mut self, from: u64, to: u64) {
        Arc::make_mut(&mut self.places).retain(|p| (from..=to).contains(&p.frame));
    }
}

/// All frame numbers that any tile has, ascending. The tiles must be settled.
pub fn union(tiles: &[TileIndex]) -> Vec<u64> {
    let Some(longest) = tiles.iter().max_by_key(|t| t.places.len()) else { return Vec::new() };
    let mut all: Vec<u64> = longest.places.iter().map(|p| p.frame).collect();
    for tile in tiles {
        // Nearly always every frame is there already.
        let more: Vec<u64> = absent(tile.places.iter().map(|p| p.frame), &all);
        if !more.is_empty() {
            all.extend(more);
            all.sort_unstable();
        }
    }
    all
}

/// Those of `wanted` that are not in `there`; both ascend.
fn absent(wanted: impl Iterator<Item = u64>, there: &[u64]) -> Vec<u64> {
    let mut at = 0;
    let is_absent = |frame: &u64| {
        while there.get(at).is_some_and(|t| t < frame) {
            at += 1;
        }
        there.get(at) != Some(frame)
    };
    wanted.filter(is_absent).collect()
}

/// Adds notes on tiles that lack frames which others have, and on the number of frames in the span (both ends included)
/// that no tile has.
pub fn missing_notes(tiles: &[TileIndex], numbers: &[u64], (first, last): (u64, u64), notes: &mut Vec<String>) {
    for tile in tiles {
        let there: Vec<u64> = tile.places.iter().map(|p| p.frame).collect();
        let lacks = absent(numbers.iter().copied(), &there);
        if let Some(first) = lacks.first() {
            notes.push(format!(
                "{}: {} of {} frames are missing, the first is frame {first}; this part of those images will be missing",
                tile.name,
                lacks.len(),
                numbers.len()
            ));
        }
    }
    let holes = last - first + 1 - numbers.len() as u64;
    if holes > 0 {
        notes.push(format!("{holes} frame numbers between {first} and {last} are in no file; these images will be lost images"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(name: &str, frames: &[u64]) -> TileIndex {
        let place = |(n, frame): (usize, &u64)| Place { frame: *frame, at: n as u64, file: 0 };
        TileIndex::new(name.into(), frames.iter().enumerate().map(place).collect())
    }

    #[test]
    fn frames_are_sorted_and_counted_once() {
        let mut t = tile("a", &[5, 3, 3, 4, 9]);
        let mut notes = Vec::new();
        t.settle(&mut notes);
        let frames: Vec<(u64, u64)> = t.places().iter().map(|p| (p.frame, p.at)).collect();
        assert_eq!(frames, [(3, 1), (4, 3), (5, 0), (9, 4)], "the first of two stays");
        assert!(notes[0].contains("1 steps back") && notes[1].contains("1 frames repeat an earlier"), "{notes:?}");
        t.restrict(4, 5);
        assert_eq!(t.places().len(), 2);
    }

    #[test]
    fn what_one_tile_lacks_is_said() {
        let tiles = [tile("a", &[1, 2, 4]), tile("b", &[2, 5]), tile("c", &[])];
        let numbers = union(&tiles);
        assert_eq!(numbers, [1, 2, 4, 5]);
        let mut notes = Vec::new();
        missing_notes(&tiles, &numbers, (1, 5), &mut notes);
        assert_eq!(notes.len(), 4);
        assert!(notes[0].starts_with("a: 1 of 4") && notes[0].contains("frame 5"), "{notes:?}");
        assert!(notes[1].starts_with("b: 2 of 4") && notes[2].starts_with("c: 4 of 4"), "{notes:?}");
        assert!(notes[3].starts_with("1 frame numbers between 1 and 5"), "{notes:?}");
    }
}
