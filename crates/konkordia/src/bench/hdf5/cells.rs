//! Rows of the tables of this bench.

use konkordia_core::text;

/// A row of a table: what it is about, rates, and whether all was read back.
pub fn cells(first: Vec<String>, rates: &[f64], verified: bool) -> Vec<String> {
    let rates = rates.iter().map(|value| format!("{value:.2}"));
    first.into_iter().chain(rates).chain([if verified { "equal" } else { "WRONG" }.to_owned()]).collect()
}

/// A table with this head.
pub fn table(head: &[&str], lines: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|&name| name.to_owned()).collect();
    text::table(&std::iter::once(head).chain(lines).collect::<Vec<Vec<String>>>())
}
