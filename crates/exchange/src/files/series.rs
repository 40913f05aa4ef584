//! Which files make a series, and which image of it each of their images is.

use super::failures::{Form, mixed, other_form, wrong};
use super::opened::{Opened, Reading, SUFFIXES};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_sources::directory::natural;
use konkordia_wire::files::Name;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Images that a series may have, lost ones included.
const POSITIONS_MAX: u64 = 1 << 32;
/// A series may have so many positions for each file, or [`SPAN_MAX`] if that is more.
const SPAN_PER_FILE: u64 = 1000;
const SPAN_MAX: u64 = 100_000;

/// How images find their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the last number in the name of their file; numbers that are missing are lost images.
    Number,
    /// One after the other, as the files are named or given.
    Files,
}

/// One image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its file, in [`Series::files`].
    pub file: u32,
    /// Its number in the file, from 0.
    pub nth: u64,
    /// Its position in the series, from 0.
    pub position: u64,
}

/// The images of a series, in the order of their positions.
#[derive(Clone, Debug)]
pub struct Series {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Their images.
    pub items: Vec<Item>,
    /// Positions, lost images included.
    pub positions: u64,
    /// How they were found.
    pub order: Order,
    /// The number in the name of the file of position 0; 0 without numbers.
    pub first_number: u64,
    /// Kind of the first file.
    pub kind: &'static str,
    /// Files that could not be read, with reasons: their images are lost.
    pub unreadable: Vec<Failure>,
    /// SHA-256 over names, sizes and times of change.
    pub identity: String,
}

impl Series {
    /// Finds the images of files and folders. `order`: `None` = by number if each file has one image and all names
    /// differ only in their number, else one after the other. With `skips` a file that cannot be read is a lost image.
    ///
    /// # Errors
    /// A file cannot be read, files do not belong together, images differ in size or type, numbers are twice there or
    /// too far apart, or there is no image.
    pub fn find(inputs: &[PathBuf], reading: &Reading, order: Option<Order>, skips: bool) -> Result<Self, Failure> {
        let files = listed(inputs, reading)?;
        let (mut counts, mut unreadable, mut kind, mut first_form) = (Vec::new(), Vec::new(), None, None);
        for path in &files {
            match Opened::open(path, reading) {
                Ok(opened) => {
                    let of_first = *kind.get_or_insert(opened.kind());
                    if of_first != opened.kind() {
                        return Err(mixed(path, &format!("it is {}, the first file is {of_first}", opened.kind())));
                    }
                    for nth in 0..opened.count() {
                        check_form(path, nth, opened.form(nth), &mut first_form)?;
                    }
                    counts.push(Some(opened.count()));
                }
                Err(failure) if skips && failure.exit == Exit::Configuration => {
                    unreadable.push(failure);
                    counts.push(None);
                }
                Err(failure) => return Err(failure),
            }
        }
        let kind = kind.ok_or_else(|| nothing(inputs, &unreadable))?;
        let order = order.unwrap_or_else(|| usual_order(&files, &counts));
        let (items, first_number) = match order {
            Order::Number => by_number(&files, &counts)?,
            Order::Files => (one_after_the_other(&counts), 0),
        };
        let after = |item: &Item| item.position + 1;
        let positions = match order {
            Order::Number => last_number(&files)? + 1 - first_number,
            Order::Files => items.last().map_or(0, after),
        };
        let identity = identity(&files)?;
        Ok(Self { files, items, positions, order, first_number, kind, unreadable, identity })
    }

    /// Positions without an image.
    pub fn gaps(&self) -> u64 {
        self.positions - self.items.len() as u64
    }

    /// The numbers that are missing, in words, the first ones of them.
    pub fn gaps_in_words(&self) -> String {
        const SHOWN: usize = 8;
        let (mut next, mut words, mut ranges) = (0, String::new(), 0);
        let ends = self.items.iter().map(|item| item.position).chain([self.positions]);
        for position in ends {
            if position > next {
                ranges += 1;
                let (from, to) = (next + self.first_number, position - 1 + self.first_number);
                if ranges <= SHOWN {
                    let separator = if ranges > 1 { ", " } else { "" };
                    let _ =
                        if from == to { write!(words, "{separator}{from}") } else { write!(words, "{separator}{from} to {to}") };
                }
            }
            next = position + 1;
        }
        if ranges > SHOWN { format!("{words} and {} more", ranges - SHOWN) } else { words }
    }
}

/// The files: those that were named, and of folders those with usual names, in natural order.
fn listed(inputs: &[PathBuf], reading: &Reading) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for input in inputs {
        if !input.is_dir() {
            files.push(input.clone());
            continue;
        }
        let cannot = |error: std::io::Error| Failure::io("cannot read the folder", input, &error);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(input).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
            let is_wanted = reading.raw.is_some() || SUFFIXES.iter().any(|end| name.ends_with(end));
            if is_wanted && !name.starts_with('.') && entry.path().is_file() {
                found.push(entry.path());
            }
        }
        found.sort_by(|a, b| natural(a.as_os_str().as_bytes(), b.as_os_str().as_bytes()));
        files.append(&mut found);
    }
    if files.len() > u32::MAX as usize {
        return Err(Failure::new(Exit::Usage, "there are too many files", files.len().to_string(), "import a part of them"));
    }
    Ok(files)
}

fn check_form(path: &Path, nth: u64, form: Option<Form>, first: &mut Option<Form>) -> Result<(), Failure> {
    match (form, &first) {
        (Some(form), Some(first)) if form != *first => Err(other_form(path, nth, form, *first)),
        (Some(form), None) => {
            *first = Some(form);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn nothing(inputs: &[PathBuf], unreadable: &[Failure]) -> Failure {
    let names: Vec<String> = inputs.iter().take(3).map(|path| path.display().to_string()).collect();
    let why = match unreadable.first() {
        Some(failure) => failure.detail(),
        None => format!("in a folder, files are taken whose names end in {}", SUFFIXES[..5].join(", ")),
    };
    Failure::new(Exit::Configuration, format!("there are no images in {}", names.join(", ")), why, "name the files")
}

fn name_of(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| wrong(path, "its name is not UTF-8"))
}

/// By number, where names have numbers that say the order.
fn usual_order(files: &[PathBuf], counts: &[Option<u64>]) -> Order {
    let is_single = counts.iter().all(|count| count.is_none_or(|count| count == 1));
    let has_number = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        stem.chars().any(|c| c.is_ascii_digit())
    };
    if is_single && files.len() > 1 && files.iter().all(has_number) { Order::Number } else { Order::Files }
}

fn one_after_the_other(counts: &[Option<u64>]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut position = 0;
    for (file, count) in counts.iter().enumerate() {
        for nth in 0..count.unwrap_or(0) {
            items.push(Item { file: file as u32, nth, position: position + nth });
        }
        // A file that cannot be read counts as one image.
        position += count.unwrap_or(1);
    }
    items
}

/// The number of each file. All names are alike but for it.
fn numbers(files: &[PathBuf]) -> Result<Vec<u64>, Failure> {
    let mut first: Option<(String, String, String)> = None;
    let mut numbers = Vec::with_capacity(files.len());
    for path in files {
        let text = name_of(path)?;
        let name = Name::read(&text).map_err(|refusal| wrong(path, refusal.why))?;
        match &first {
            None => first = Some((name.before.to_owned(), name.after.to_owned(), text.clone())),
            Some((before, after, other)) if (before.as_str(), after.as_str()) != (name.before, name.after) => {
                let why = format!("its name differs from {other} in more than the number, so they are different series");
                let mut failure = mixed(path, &why);
                failure.fix = "import one series at a time, or give --order files to take the images one after the other".into();
                return Err(failure);
            }
            Some(_) => {}
        }
        numbers.push(name.number);
    }
    Ok(numbers)
}

fn last_number(files: &[PathBuf]) -> Result<u64, Failure> {
    Ok(numbers(files)?.into_iter().max().unwrap_or(0))
}

fn by_number(files: &[PathBuf], counts: &[Option<u64>]) -> Result<(Vec<Item>, u64), Failure> {
    if let Some(n) = counts.iter().position(|count| count.is_some_and(|count| count > 1)) {
        let why = format!(
            "{} holds {} images, so the numbers of files are not those of images",
            files[n].display(),
            counts[n].unwrap_or(0)
        );
        return Err(Failure::new(Exit::Usage, "images cannot be numbered by their files", why, "give --order files"));
    }
    let numbers = numbers(files)?;
    let mut sorted: Vec<(u64, u32)> = numbers.iter().copied().zip(0u32..).collect();
    sorted.sort_unstable();
    if let Some(two) = sorted.windows(2).find(|two| two[0].0 == two[1].0) {
        let (a, b) = (&files[two[0].1 as usize], &files[two[1].1 as usize]);
        return Err(mixed(b, &format!("it has the same number as {}", a.display())));
    }
    let (first, last) = (sorted.first().map_or(0, |one| one.0), sorted.last().map_or(0, |one| one.0));
    let most = (files.len() as u64).saturating_mul(SPAN_PER_FILE).clamp(SPAN_MAX, POSITIONS_MAX);
    if last - first >= most {
        let why = format!(
            "{} files have numbers from {first} to {last}; nearly all images would be lost",
            text::count(files.len() as u64)
        );
        let fix = "leave out the files with other numbers, or give --order files";
        return Err(Failure::new(Exit::Configuration, "the numbers of the files lie too far apart", why, fix));
    }
    let item = |(number, file): (u64, u32)| counts[file as usize].map(|_| Item { file, nth: 0, position: number - first });
    Ok((sorted.into_iter().filter_map(item).collect(), first))
}

fn identity(files: &[PathBuf]) -> Result<String, Failure> {
    let mut all = String::new();
    for path in files {
        let metadata = path.metadata().map_err(|error| Failure::io("cannot read the input", path, &error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(all, "{name}\n{}\n{}.{:09}", metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    }
    Ok(format!("sha256:{}", konkordia_input::sha256(all.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, usize)]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let paths = files.iter().map(|(name, bytes)| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![0; *bytes]).unwrap();
            path
        });
        let paths = paths.collect();
        (folder, paths)
    }

    fn find(files: &[(&str, usize)], order: Option<Order>) -> Result<Series, String> {
        let (_folder, paths) = folder(files);
        let reading = Reading { raw: Some("2x3:uint16".parse().unwrap()), ..Reading::default() };
        Series::find(&paths, &reading, order, false).map_err(|failure| failure.to_string())
    }

    #[test]
    fn missing_numbers_are_gaps() {
        let series = find(&[("a_7.raw", 12), ("a_10.raw", 12), ("a_5.raw", 12)], None).unwrap();
        assert_eq!(series.items.iter().map(|item| (item.file, item.position)).collect::<Vec<_>>(), [(2, 0), (0, 2), (1, 5)]);
        assert_eq!((series.positions, series.gaps(), series.first_number), (6, 3, 5));
        assert_eq!(series.gaps_in_words(), "6, 8 to 9");
    }

    #[test]
    fn files_with_several_images_follow_each_other() {
        let series = find(&[("a_2.raw", 24), ("a_1.raw", 12)], None).unwrap();
        assert_eq!(
            series.items.iter().map(|i| (i.file, i.nth, i.position)).collect::<Vec<_>>(),
            [(0, 0, 0), (0, 1, 1), (1, 0, 2)]
        );
        assert_eq!((series.order, series.positions, series.gaps()), (Order::Files, 3, 0));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let why = |files: &[(&str, usize)], order| find(files, order).unwrap_err();
        assert!(why(&[("a_1.raw", 12), ("b_2.raw", 12)], None).contains("differs from a_1.raw in more than the number"));
        assert!(why(&[("a_1.raw", 12), ("a_01.raw", 12)], None).contains("same number"));
        assert!(why(&[("a_1.raw", 12), ("a_900000.raw", 12)], None).contains("from 1 to 900000"));
        assert!(why(&[("a_1.raw", 24), ("a_2.raw", 12)], Some(Order::Number)).contains("holds 2 images"));
        assert!(why(&[], None).contains("no images"));
        assert!(why(&[("a_99999999999999999999999.raw", 12), ("a_1.raw", 12)], None).contains("too large"));
        let (_folder, mut paths) = folder(&[("a_1.raw", 12)]);
        paths.push("/nowhere/a_2.raw".into());
        let reading = Reading { raw: Some("2x3:uint16".parse().unwrap()), ..Reading::default() };
        assert!(Series::find(&paths, &reading, None, true).unwrap_err().to_string().contains("/nowhere/a_2.raw"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_lost_image_if_that_is_wanted() {
        let (_folder, paths) = folder(&[("a_1.raw", 12), ("a_2.raw", 11), ("a_3.raw", 12), ("a_4.raw", 5)]);
        let reading = Reading { raw: Some("2x3:uint16".parse().unwrap()), ..Reading::default() };
        let series = Series::find(&paths, &reading, None, true).unwrap();
        assert_eq!((series.positions, series.items.len(), series.unreadable.len()), (4, 2, 2));
        assert!(Series::find(&paths, &reading, None, false).is_err());
        let series = Series::find(&paths[..3], &reading, Some(Order::Files), true).unwrap();
        assert_eq!((series.positions, series.items[1].position), (3, 2));
    }
}
