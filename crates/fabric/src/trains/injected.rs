//! Numbers that others say about a train. Those of [`Injected`] wait for it by its id.

use std::collections::BTreeMap;

/// Most numbers of one train, and most bytes of their names.
const NUMBERS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;

/// Adds a number to those of a train, or replaces the one with this name. False if the train has as many as it may
/// have, or the name is not one of letters, digits and `_` (ASCII): names become those of data sets and keys.
pub fn put_number(numbers: &mut Vec<(String, f64)>, name: &str, value: f64) -> bool {
    if let Some(known) = numbers.iter_mut().find(|(known, _)| known == name) {
        known.1 = value;
        return true;
    }
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    let is_taken = is_name && numbers.len() < NUMBERS_MAX;
    if is_taken {
        numbers.push((name.to_owned(), value));
    }
    is_taken
}

/// Numbers by train id.
#[derive(Debug)]
pub struct Injected {
    trains_max: usize,
    trains: BTreeMap<u64, Vec<(String, f64)>>,
    /// Numbers that were refused ([`put_number`]).
    pub refused: u64,
    /// Numbers whose train was built before them, or that had to make room for later ones.
    pub late: u64,
    last_taken: Option<u64>,
}

impl Injected {
    /// Keeps the numbers of at most `trains_max` trains.
    pub fn new(trains_max: usize) -> Self {
        Self { trains_max, trains: BTreeMap::new(), refused: 0, late: 0, last_taken: None }
    }

    /// Notes a number; a later one with the same name replaces it.
    pub fn put(&mut self, train_id: u64, name: &str, value: f64) {
        if self.last_taken.is_some_and(|last| train_id <= last) {
            self.late += 1;
            return;
        }
        let numbers = self.trains.entry(train_id).or_default();
        self.refused += u64::from(!put_number(numbers, name, value));
        while self.trains.len() > self.trains_max {
            self.late += self.trains.pop_first().map_or(0, |(_, numbers)| numbers.len() as u64);
        }
    }

    /// The numbers of a train; those of trains before it are forgotten.
    pub fn take(&mut self, train_id: u64) -> Vec<(String, f64)> {
        let later = self.trains.split_off(&(train_id.saturating_add(1)));
        let mut found = std::mem::replace(&mut self.trains, later);
        let own = found.remove(&train_id).unwrap_or_default();
        self.late += found.values().map(|numbers| numbers.len() as u64).sum::<u64>();
        self.last_taken = Some(train_id);
        own
    }
}
