//! `konkordia coincide`: whether the images of several detectors have the same trigger numbers.

pub mod args;

use crate::console;
use args::CoincideArgs;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::text;
use konkordia_sinks::hdf5::Reader;
use serde_json::{Value, json};
use std::path::Path;

/// Ranges of numbers that are named.
const NAMED_MAX: usize = 10;

/// `konkordia coincide`
pub fn command(args: &CoincideArgs) -> Result<Exit, Failure> {
    let lists = args.files.iter().map(|file| numbers(file, &args.by)).collect::<Result<Vec<_>, _>>()?;
    let found = Found::of(lists);
    if args.json {
        console::json(&found.to_json(args), false);
    } else {
        console::to_stdout(&found.to_text(args));
    }
    Ok(if found.all_coincide() { Exit::Complete } else { Exit::Incomplete })
}

/// The trigger number of each image of a file; `None` where it is not known.
fn numbers(path: &Path, column: &str) -> Result<Vec<Option<u64>>, Failure> {
    let reader = Reader::open(path)?;
    let images = usize::try_from(reader.summary().images).unwrap_or(usize::MAX);
    let refused = |why: String| {
        let what = format!("{} says no trigger numbers", path.display());
        Failure::new(Exit::Usage, what, why, "name a column of whole numbers of /entry/konkordia/images: --by pulse_id")
    };
    let numbers = reader.column(column).ok_or_else(|| refused(format!("it has no column \"{column}\" of whole numbers")))?;
    // A column by tile: that of the first tile whose packet came.
    let tiles = numbers.len().checked_div(images).unwrap_or(0);
    if tiles * images != numbers.len() || (tiles == 0 && images > 0) {
        return Err(refused(format!("its column \"{column}\" has {} numbers for {images} images", numbers.len())));
    }
    let mut first: Vec<_> =
        numbers.chunks_exact(tiles.max(1)).map(|tiles| tiles.iter().copied().find(|number| *number != 0)).collect();
    // Frames may be counted from 0, and an image that was seen has its number.
    if let Some(status) = reader.column("status").filter(|_| column == "frame_number") {
        let is_seen = |status: &u64| *status != ImageStatus::Lost as u64;
        first.iter_mut().zip(&status).filter(|(_, status)| is_seen(status)).for_each(|(number, _)| *number = number.or(Some(0)));
    }
    Ok(first)
}

/// What was found of one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct OfFile {
    images: u64,
    /// Images whose number is not known, for example because they are lost.
    unknown: u64,
    /// Images whose number an earlier image of the file has too.
    again: u64,
    /// Numbers that others have and this file has not, as ranges from first to last.
    missing: Vec<(u64, u64)>,
    missing_count: u64,
    /// What must be added to the numbers of this file, so that far more of them are those of the first file.
    shift: Option<(i128, u64)>,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    files: Vec<OfFile>,
    /// Numbers that all files have.
    common: u64,
    /// Numbers that any file has.
    all: u64,
}

impl Found {
    fn of(lists: Vec<Vec<Option<u64>>>) -> Self {
        let mut sorted = Vec::new();
        let mut files = Vec::new();
        for numbers in lists {
            let images = numbers.len() as u64;
            let mut list: Vec<u64> = numbers.into_iter().flatten().collect();
            let known = list.len() as u64;
            list.sort_unstable();
            list.dedup();
            let again = known - list.len() as u64;
            files.push(OfFile { images, unknown: images - known, again, ..OfFile::default() });
            sorted.push(list);
        }
        let mut all = sorted.concat();
        all.sort_unstable();
        all.dedup();
        let mut found = Self { all: all.len() as u64, ..Self::default() };
        let is_in = |list: &[u64], number: &u64| list.binary_search(number).is_ok();
        found.common = all.iter().filter(|number| sorted.iter().all(|list| is_in(list, number))).count() as u64;
        for (file, list) in files.iter_mut().zip(&sorted) {
            for number in all.iter().filter(|number| !is_in(list, number)) {
                file.missing_count += 1;
                match file.missing.last_mut() {
                    Some((_, last)) if *last + 1 == *number => *last = *number,
                    _ => file.missing.push((*number, *number)),
                }
            }
            file.shift = shift(&sorted[0], list);
        }
        found.files = files;
        found
    }

    /// True if every number is in every file, once.
    fn all_coincide(&self) -> bool {
        self.common == self.all && self.files.iter().all(|file| file.again == 0)
    }

    fn to_json(&self, args: &CoincideArgs) -> Value {
        let files = self.files.iter().zip(&args.files).map(|(file, path)| {
            json!({
                "file": path, "images": file.images, "without_number": file.unknown, "repeated": file.again,
                "missing": file.missing_count, "missing_ranges": file.missing.iter().take(NAMED_MAX).collect::<Vec<_>>(),
                "shift": file.shift.map(|(shift, coincide)| json!({ "add": shift as i64, "coincide": coincide })),
            })
        });
        json!({
            "event": "coincide", "by": args.by, "numbers": self.all, "in_all_files": self.common,
            "all_coincide": self.all_coincide(), "files": files.collect::<Vec<_>>(),
        })
    }

    fn to_text(&self, args: &CoincideArgs) -> String {
        let count = text::count;
        let mut lines = Vec::new();
        for (file, path) in self.files.iter().zip(&args.files) {
            lines.push(path.display().to_string());
            let mut line = format!("  {} images", count(file.images));
            let mut add = |images: u64, what: &str| {
                if images > 0 {
                    line += &format!(", {} {what}", count(images));
                }
            };
            add(file.unknown, "without a number (lost, or not said)");
            add(file.again, "with the number of an earlier one");
            lines.push(line);
            if file.missing_count > 0 {
                let name = |(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
                let named: Vec<String> = file.missing.iter().take(NAMED_MAX).map(name).collect();
                let more = if file.missing.len() > NAMED_MAX { ", ..." } else { "" };
                lines.push(format!("  {} numbers of others are missing: {}{more}", count(file.missing_count), named.join(", ")));
            }
            if let Some((shift, coincide)) = file.shift {
                let coincide = count(coincide);
                lines.push(format!(
                    "  with {shift:+} its numbers would coincide with those of the first file in {coincide} images"
                ));
            }
        }
        let (common, all) = (count(self.common), count(self.all));
        lines.push(format!("{common} of {all} numbers ({}) are in all files", args.by));
        lines.join("\n")
    }
}

/// If two detectors began to count at different triggers: what must be added to the numbers of the second one, and how
/// many then coincide. Only if these are most of them, and twice as many as without.
fn shift(first: &[u64], second: &[u64]) -> Option<(i128, u64)> {
    let coincide = |shift: i128| {
        let shifted = second.iter().filter_map(|number| u64::try_from(i128::from(*number) + shift).ok());
        shifted.filter(|number| first.binary_search(number).is_ok()).count()
    };
    let at = |list: &[u64], end: bool| if end { list.last() } else { list.first() }.map(|number| i128::from(*number));
    // If both fit as well, the first numbers belong together.
    let shifts = [true, false].map(|end| Some(at(first, end)? - at(second, end)?));
    let best = shifts.into_iter().flatten().max_by_key(|shift| coincide(*shift)).filter(|shift| *shift != 0)?;
    let (with, most) = (coincide(best), first.len().min(second.len()));
    (2 * with > most && with > 2 * coincide(0)).then_some((best, with as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_repeated_and_unknown_numbers_are_told_apart() {
        let known = |numbers: &[u64]| numbers.iter().copied().map(Some).collect::<Vec<_>>();
        let holes = vec![Some(1), None, Some(3), Some(3), Some(9), None];
        let found = Found::of(vec![known(&[1, 2, 3, 4, 5, 9]), holes, known(&[9, 5, 4, 3, 2, 1])]);
        assert_eq!((found.all, found.common, found.all_coincide()), (6, 3, false));
        let of = |n: usize| (found.files[n].unknown, found.files[n].again, found.files[n].missing_count);
        assert_eq!([of(0), of(1), of(2)], [(0, 0, 0), (2, 1, 3), (0, 0, 0)]);
        assert_eq!(found.files[1].missing, [(2, 2), (4, 5)]);
        assert!(Found::of(vec![known(&[4, 5]), known(&[5, 4])]).all_coincide());
        assert!(!Found::of(vec![known(&[4, 5]), known(&[5, 4, 4])]).all_coincide());
        assert!(Found::of(vec![vec![], vec![]]).all_coincide());
    }

    #[test]
    fn a_detector_that_began_to_count_elsewhere_is_told() {
        let first: Vec<u64> = (1..=100).collect();
        let known = |numbers: &[u64]| numbers.iter().copied().map(Some).collect::<Vec<_>>();
        let of = |second: Vec<u64>| Found::of(vec![known(&first), known(&second)]).files[1].shift;
        assert_eq!(of((61..=160).collect()), Some((-60, 100)));
        assert_eq!(of((11..=110).collect()), None, "most coincide as they are");
        assert_eq!(of((901..=999).collect()), Some((-900, 99)));
        // The last ones coincide.
        assert_eq!(of((905..=1000).chain([3]).collect()), Some((-900, 96)));
        assert_eq!(of(vec![]), None);
    }
}
