//! The tables that perftest and the OSU micro-benchmarks print.
//!
//! Facts relied on (linux-rdma/perftest, `perftest_parameters.h`; OSU micro-benchmarks 5 to 7, `osu_util.c` and the
//! programs of pt2pt; output of OSU 7.0 that was run here): a head names the columns, and each line below that
//! begins with a digit is a row. perftest's head begins with `#bytes`, and the unit of a column stands in brackets
//! behind it; its MB/sec are 2^20 bytes per second, and its peak is 0 where the test ran for a time. OSU's head is
//! `# Size` and the columns behind it, two spaces or more apart; its MB/s are 10^6 bytes per second, and its
//! latencies are half of the time there and back. Lines of a table that do not begin with a digit are remarks, for
//! example that the frequency of the processor is not at its highest.

use konkordia_core::failure::{Exit, Failure};
use serde_json::{Value, json};
use std::path::Path;

/// A line of a table, in the units of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    pub bytes: u64,
    pub gigabytes_per_s: Option<f64>,
    pub messages_per_s: Option<f64>,
    /// The typical one (the median) of perftest, the mean of OSU.
    pub latency_us: Option<f64>,
    pub latency_p99_us: Option<f64>,
    pub latency_p999_us: Option<f64>,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Name of the file; a later table of it also has its number.
    pub name: String,
    /// As it calls itself.
    pub program: String,
    pub rows: Vec<Row>,
}

impl Imported {
    /// For programs.
    pub fn to_json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "bytes": row.bytes, "gigabytes_per_second": row.gigabytes_per_s, "messages_per_second": row.messages_per_s,
                "latency_us": row.latency_us, "latency_p99_us": row.latency_p99_us, "latency_p999_us": row.latency_p999_us,
            })
        };
        json!({ "name": self.name, "program": self.program, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

/// Why a text is not imported, and the number of the line from 1 on; 0 if it is none of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub line: usize,
    pub why: String,
}

impl Wrong {
    /// For the user.
    pub fn failure(self, path: &Path) -> Failure {
        let what = match self.line {
            0 => format!("{} is not imported", path.display()),
            line => format!("{}, line {line}, is not imported", path.display()),
        };
        let fix = "give the unchanged text that ib_write_bw, ib_write_lat, ib_send_bw, ib_send_lat, osu_latency, osu_bw, osu_bibw or osu_mbw_mr has printed";
        Failure::new(Exit::Usage, what, self.why, fix)
    }
}

/// What a column has, as a factor to the unit of ours.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    GigabytesPerS(f64),
    MessagesPerS(f64),
    LatencyUs,
    /// Taken only where there is no typical latency.
    MeanLatencyUs,
    LatencyP99Us,
    LatencyP999Us,
    /// `Pass` or `Fail`.
    Validation,
    Other,
}

/// The column of a name in the head; names differ in upper and lower case from version to version.
fn column(name: &str) -> Column {
    let name = name.to_ascii_lowercase().replace(' ', "");
    let is_latency = name.contains("(us)") || name.contains("[usec]");
    match name.as_str() {
        "bwaverage[mb/sec]" => Column::GigabytesPerS(1_048_576.0 / 1e9),
        "bwaverage[gb/sec]" => Column::GigabytesPerS(0.125),
        "bandwidth(mb/s)" | "mb/s" => Column::GigabytesPerS(1e-3),
        "msgrate[mpps]" => Column::MessagesPerS(1e6),
        "messages/s" => Column::MessagesPerS(1.0),
        "t_typical[usec]" | "latency(us)" | "avglatency(us)" => Column::LatencyUs,
        "t_avg[usec]" => Column::MeanLatencyUs,
        "validation" => Column::Validation,
        _ if is_latency && name.starts_with("99.9%") => Column::LatencyP999Us,
        _ if is_latency && (name.starts_with("99%") || name.starts_with("p99tail")) => Column::LatencyP99Us,
        _ => Column::Other,
    }
}

/// The columns behind the size, if a line is a head.
fn head(line: &str) -> Option<Vec<Column>> {
    let trimmed = line.trim();
    if let Some(rest) = trimmed.strip_prefix("#bytes") {
        return Some(perftest_columns(rest));
    }
    let rest = trimmed.strip_prefix('#')?.trim_start().strip_prefix("Size")?;
    let names = rest.split("  ").flat_map(|part| part.split('\t')).map(str::trim).filter(|name| !name.is_empty());
    Some(names.map(column).collect())
}

/// perftest's names end with their unit in brackets; counts are one word.
fn perftest_columns(rest: &str) -> Vec<Column> {
    let (mut columns, mut name) = (Vec::new(), String::new());
    for word in rest.split_whitespace() {
        name.push_str(word);
        if word.ends_with(']') || word.starts_with('#') {
            columns.push(column(&name));
            name.clear();
        } else {
            name.push(' ');
        }
    }
    if !name.is_empty() {
        columns.push(column(&name));
    }
    columns
}

/// A line that names the program: `RDMA_Write BW Test`, `# OSU MPI Latency Test v7.3`.
fn title(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches('#').trim();
    let is_title = line.contains(" Test") && (line.starts_with("OSU") || line.ends_with(" Test"));
    is_title.then(|| line.to_string())
}

fn row(line: &str, columns: &[Column]) -> Result<Row, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() != columns.len() + 1 {
        return Err(format!("{} numbers, but the head has {} columns: {:?}", words.len(), columns.len() + 1, line.trim()));
    }
    let bytes = words[0].parse().map_err(|_| format!("{:?} is no size in bytes", words[0]))?;
    let (mut row, mut mean) = (Row { bytes, ..Row::default() }, None);
    for (word, column) in words[1..].iter().zip(columns) {
        if *column == Column::Validation {
            if !word.eq_ignore_ascii_case("pass") {
                return Err(format!("the program says of its own data: validation {word}"));
            }
            continue;
        }
        let value: f64 = word.parse().map_err(|_| format!("{word:?} is no number"))?;
        if !value.is_finite() || value < 0.0 {
            return Err(format!("{word} can be no figure of a bench"));
        }
        match column {
            Column::GigabytesPerS(factor) => row.gigabytes_per_s = Some(value * factor),
            Column::MessagesPerS(factor) => row.messages_per_s = Some(value * factor),
            Column::LatencyUs => row.latency_us = Some(value),
            Column::MeanLatencyUs => mean = Some(value),
            Column::LatencyP99Us => row.latency_p99_us = Some(value),
            Column::LatencyP999Us => row.latency_p999_us = Some(value),
            Column::Validation | Column::Other => {}
        }
    }
    row.latency_us = row.latency_us.or(mean);
    Ok(row)
}

/// Reads all tables of a text.
///
/// # Errors
/// A row does not suit its head, or there is no table.
pub fn parse(name: &str, text: &str) -> Result<Vec<Imported>, Wrong> {
    let mut tables: Vec<(Imported, Vec<Column>)> = Vec::new();
    let mut program = None;
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: String| Wrong { line: at + 1, why };
        if let Some(columns) = head(line) {
            if columns.iter().all(|column| matches!(column, Column::Other | Column::Validation)) {
                return Err(wrong(format!("no known column of bandwidth, message rate or latency: {:?}", line.trim())));
            }
            let name = if tables.is_empty() { name.into() } else { format!("{name} ({})", tables.len() + 1) };
            let program = program.take().unwrap_or_else(|| "a program that does not say its name".into());
            tables.push((Imported { name, program, rows: Vec::new() }, columns));
        } else if let Some(found) = title(line) {
            program = Some(found);
        } else if line.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            let Some((table, columns)) = tables.last_mut() else { continue };
            let row = row(line, columns).map_err(wrong)?;
            if table.rows.iter().any(|other| other.bytes == row.bytes) {
                return Err(wrong(format!("a second row of {} bytes in this table", row.bytes)));
            }
            table.rows.push(row);
        }
    }
    if tables.is_empty() {
        return Err(Wrong { line: 0, why: "it has no head of a table: neither \"#bytes\" nor \"# Size\"".into() });
    }
    if let Some((table, _)) = tables.iter().find(|(table, _)| table.rows.is_empty()) {
        return Err(Wrong { line: 0, why: format!("the table of {} has no rows", table.program) });
    }
    Ok(tables.into_iter().map(|(table, _)| table).collect())
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
