//! Numbers and tables for people.

/// Bytes for people, for example 1.5 MiB.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = if n == 0 { 0 } else { (n.ilog2() / 10).min(4) };
    if power == 0 {
        format!("{n} B")
    } else {
        format!("{:.1} {}", n as f64 / f64::from(power * 10).exp2(), UNITS[power as usize])
    }
}

/// A count for people, for example 1 234 567.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Aligns columns: the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(c, text)| {
            let w = widths[c];
            if c == 0 { format!("{text:<w$}") } else { format!("{text:>w$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!((bytes(0), bytes(1023), bytes(1536)), ("0 B".into(), "1023 B".into(), "1.5 KiB".into()));
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!((count(7), count(1234), count(1234567)), ("7".into(), "1 234".into(), "1 234 567".into()));
        let rows = [vec!["a".to_string(), "1".into()], vec!["bcd".into(), "22".into()]];
        assert_eq!(table(&rows), "a     1\nbcd  22");
    }
}
