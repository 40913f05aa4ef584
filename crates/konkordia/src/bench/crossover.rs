//! From which size on one way to send is faster than another.

use konkordia_core::text;
use serde_json::{Value, json};

/// One way: its name, and a figure for each size, in the order of the sizes; larger is better.
pub struct Way {
    pub name: String,
    pub figures: Vec<(u64, f64)>,
}

/// `faster` is better than `slower` at `from_bytes` and at every larger size that both have, and not at the next
/// smaller one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossover {
    pub faster: String,
    pub slower: String,
    pub from_bytes: u64,
    /// There is no smaller size.
    pub always: bool,
}

/// All pairs of which one is faster from some size on.
pub fn crossovers(ways: &[Way]) -> Vec<Crossover> {
    let pairs = ways.iter().flat_map(|one| ways.iter().map(move |other| (one, other)));
    pairs.filter_map(|(one, other)| of(one, other)).collect()
}

fn of(one: &Way, other: &Way) -> Option<Crossover> {
    let figure = |size: u64| other.figures.iter().find(|(bytes, _)| *bytes == size).map(|(_, figure)| *figure);
    let both: Vec<(u64, bool)> = one.figures.iter().filter_map(|(bytes, own)| Some((*bytes, *own > figure(*bytes)?))).collect();
    let better = both.iter().rev().take_while(|(_, is_better)| *is_better).count();
    let first = both.len() - better;
    both.get(first).map(|(bytes, _)| Crossover {
        faster: one.name.clone(),
        slower: other.name.clone(),
        from_bytes: *bytes,
        always: first == 0,
    })
}

/// For programs.
pub fn to_json(found: &[Crossover]) -> Value {
    found
        .iter()
        .map(|c| json!({ "name": format!("{} over {}", c.faster, c.slower), "from_bytes": c.from_bytes, "at_every_size": c.always }))
        .collect()
}

/// For people.
pub fn to_text(found: &[Crossover]) -> String {
    let line = |c: &Crossover| {
        let from = if c.always { "at every size".into() } else { format!("from {} on", text::bytes(c.from_bytes)) };
        format!("{} is faster than {} {from}", c.faster, c.slower)
    };
    if found.is_empty() {
        "no way is faster than another from a size on".into()
    } else {
        found.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &str, figures: &[(u64, f64)]) -> Way {
        Way { name: name.into(), figures: figures.to_vec() }
    }

    #[test]
    fn the_last_change_counts() {
        let one = way("one", &[(1, 5.0), (2, 1.0), (4, 5.0), (8, 5.0)]);
        let other = way("other", &[(1, 1.0), (2, 2.0), (4, 3.0), (8, 4.0)]);
        let short = way("short", &[(1, 9.0), (2, 9.0)]);
        let found = crossovers(&[one, other, short]);
        let lines: Vec<_> = found.iter().map(|c| (c.faster.as_str(), c.slower.as_str(), c.from_bytes, c.always)).collect();
        assert_eq!(lines, [("one", "other", 4, false), ("short", "one", 1, true), ("short", "other", 1, true)]);
        assert!(to_text(&found).starts_with("one is faster than other from 4 B on\nshort is faster than one at every size"));
        assert_eq!(to_json(&found)[0]["from_bytes"], 4);
    }

    #[test]
    fn equal_ways_do_not_cross() {
        let same = || way("same", &[(1, 5.0), (2, 6.0)]);
        assert!(crossovers(&[same(), same()]).is_empty());
        assert!(crossovers(&[same(), way("none", &[])]).is_empty());
    }
}
