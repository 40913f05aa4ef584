//! What all benches do with their results: print them, and compare them with a recorded run.
//!
//! A recorded run is what a bench printed with `--json`, or a table of `benches/record/`, whose lines are
//! `commit,time,bench,figure,value`. The name of a figure is its path in the JSON, as `scripts/flatten-json` makes it.

use super::args::OutputArgs;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the results of a bench go.
pub struct Output {
    is_json: bool,
    record: Option<Record>,
}

/// A recorded run.
struct Record {
    /// File, call and machine, for people.
    name: String,
    figures: BTreeMap<String, f64>,
}

impl Output {
    /// For the bench `bench`; reads the record before anything is measured.
    ///
    /// # Errors
    /// If the record cannot be read, or has no call of this bench.
    pub fn open(args: &OutputArgs, bench: &str) -> Result<Self, Failure> {
        let record = args.compare.as_deref().map(|path| Record::read(path, bench)).transpose()?;
        Ok(Self { is_json: args.json, record })
    }

    /// Prints `report` for programs, or `text` (which may be empty) for people, and the comparison.
    pub fn print(&self, mut report: Value, text: &str) {
        let compared = self.record.as_ref().map(|record| record.compare(&report));
        if self.is_json {
            if let Some(compared) = compared {
                report["compared"] = compared.to_json();
            }
            return console::json(&report, false);
        }
        let compared = compared.map(|compared| compared.to_text());
        let parts = [text, compared.as_deref().unwrap_or_default()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if !parts.is_empty() {
            console::to_stdout(&parts.join("\n\n"));
        }
    }
}

impl Record {
    /// `path` is a file of JSON, or `FILE.csv`, or `FILE.csv:NAME` for a call that has another name than the bench.
    fn read(path: &Path, bench: &str) -> Result<Self, Failure> {
        let (file, call) = match path.to_str().and_then(|text| text.rsplit_once(".csv:")) {
            Some((file, call)) if !path.exists() => (PathBuf::from(format!("{file}.csv")), call.to_string()),
            _ => (path.to_path_buf(), bench.to_string()),
        };
        let text = std::fs::read_to_string(&file).map_err(|error| Failure::io("cannot read the record", &file, &error))?;
        if file.extension().is_some_and(|extension| extension == "csv") {
            Self::of_csv(&file, &text, &call)
        } else {
            Self::of_json(&file, &text)
        }
    }

    fn of_json(file: &Path, text: &str) -> Result<Self, Failure> {
        let report: Value = serde_json::from_str(text).map_err(|error| {
            let fix = "give what this bench has printed with --json, or a table of benches/record/ (FILE.csv)";
            Failure::new(Exit::Usage, format!("{} is no record", file.display()), error.to_string(), fix)
        })?;
        let cpu = report["machine"]["cpu"].as_str().unwrap_or("unknown machine");
        Ok(Self { name: format!("{}, {cpu}", file.display()), figures: figures(&report) })
    }

    fn of_csv(file: &Path, text: &str, bench: &str) -> Result<Self, Failure> {
        let mut calls: BTreeMap<&str, (String, BTreeMap<String, f64>)> = BTreeMap::new();
        for line in text.lines().skip(1) {
            let [commit, time, name, figure, value] = line.splitn(5, ',').collect::<Vec<_>>()[..] else { continue };
            let call = format!("{commit} {time}");
            let newest = calls.entry(name).or_default();
            // A later call of a bench replaces an earlier one.
            if newest.0 != call {
                *newest = (call, BTreeMap::new());
            }
            if let (Ok(value), false) = (value.parse::<f64>(), is_of_machine(figure)) {
                newest.1.insert(figure.into(), value);
            }
        }
        let names: Vec<&str> = calls.keys().copied().collect();
        let missing = || {
            let why = format!("it has {}", names.join(", "));
            Failure::new(
                Exit::Usage,
                format!("{} has no call of {bench}", file.display()),
                why,
                "name one of them: FILE.csv:NAME",
            )
        };
        let (call, figures) = calls.get(bench).ok_or_else(missing)?;
        Ok(Self { name: format!("{}, {bench} at {call}", file.display()), figures: figures.clone() })
    }

    fn compare(&self, report: &Value) -> Comparison<'_> {
        let now = figures(report);
        let both = self.figures.iter().filter_map(|(figure, recorded)| Some((figure.as_str(), *recorded, *now.get(figure)?)));
        let (same, rows): (Vec<_>, Vec<_>) = both.partition(|(_, recorded, now)| recorded == now);
        let known = same.len() + rows.len();
        Comparison {
            record: &self.name,
            same: same.len(),
            only_recorded: self.figures.len() - known,
            only_now: now.len() - known,
            rows,
        }
    }
}

/// What became of the recorded figures.
struct Comparison<'a> {
    record: &'a str,
    /// Figures that differ: name, recorded, now.
    rows: Vec<(&'a str, f64, f64)>,
    /// Number of figures that are the same, such as settings.
    same: usize,
    only_recorded: usize,
    only_now: usize,
}

impl Comparison<'_> {
    fn to_json(&self) -> Value {
        let row = |(figure, recorded, now): &(&str, f64, f64)| json!({ "figure": figure, "recorded": recorded, "now": now, "ratio": now / recorded });
        json!({
            "record": self.record, "rows": self.rows.iter().map(row).collect::<Vec<_>>(), "same": self.same,
            "only_recorded": self.only_recorded, "only_now": self.only_now,
        })
    }

    fn to_text(&self) -> String {
        let head = ["figure", "recorded", "now", "ratio"].map(str::to_string).to_vec();
        let row = |(figure, recorded, now): &(&str, f64, f64)| {
            vec![(*figure).to_string(), format!("{recorded:.4}"), format!("{now:.4}"), format!("{:.3}", now / recorded)]
        };
        let table = text::table(&std::iter::once(head).chain(self.rows.iter().map(row)).collect::<Vec<_>>());
        let others =
            format!("{} more are the same, {} only in the record, {} only now", self.same, self.only_recorded, self.only_now);
        format!("compared with {}\n{table}\n{others}", self.record)
    }
}

/// The machine is named beside the figures; its numbers are none of them.
fn is_of_machine(figure: &str) -> bool {
    figure.starts_with("machine.")
}

/// All numbers of a report by their paths.
fn figures(report: &Value) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    walk(report, String::new(), &mut found);
    found.retain(|figure, _| !is_of_machine(figure));
    found
}

fn walk(value: &Value, path: String, found: &mut BTreeMap<String, f64>) {
    let below = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| walk(member, below(name), found)),
        Value::Array(elements) => {
            for (position, element) in elements.iter().enumerate() {
                // An element is called by its texts where it has any.
                let members = element.as_object().into_iter().flatten();
                let texts: Vec<&str> = members.filter_map(|(_, member)| member.as_str()).collect();
                let name = if texts.is_empty() { position.to_string() } else { texts.join("/") };
                walk(element, below(&name), found);
            }
        }
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                found.insert(path.replace(',', ";"), number);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: f64) -> Value {
        json!({
            "machine": { "cpu": "a processor", "processors": 2 }, "repeats": 5,
            "rows": [{ "name": "copy, 1 thread", "rate": rate, "verified": true }, { "rate": 7 }], "new": 1,
        })
    }

    #[test]
    fn figures_have_the_names_of_the_records() {
        let found = figures(&report(2.0));
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["new", "repeats", "rows.1.rate", "rows.copy; 1 thread.rate"]);
    }

    #[test]
    fn the_newest_call_of_a_table_is_compared() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("a.csv");
        let lines = [
            "commit,time,bench,figure,value",
            "aaa,1,mem,rows.copy; 1 thread.rate,1.0",
            "bbb,2,other,rows.copy; 1 thread.rate,9.0",
            "bbb,2,mem,machine.processors,64",
            "bbb,2,mem,repeats,5",
            "bbb,2,mem,verified,true",
            "bbb,2,mem,gone,3",
            "bbb,2,mem,rows.copy; 1 thread.rate,4.0",
        ];
        std::fs::write(&table, lines.join("\n")).unwrap();
        let record = Record::read(&table, "mem").unwrap();
        let now = report(2.0);
        let compared = record.compare(&now);
        assert_eq!(compared.rows, [("rows.copy; 1 thread.rate", 4.0, 2.0)]);
        assert_eq!((compared.same, compared.only_recorded, compared.only_now), (1, 1, 2));
        assert!(compared.to_text().contains("0.500") && compared.to_json()["rows"][0]["ratio"] == 0.5);
        let other = Record::read(&folder.path().join("a.csv:other"), "mem").unwrap();
        assert_eq!(other.figures.values().copied().collect::<Vec<_>>(), [9.0]);
        assert!(Record::read(&table, "net").is_err_and(|failure| failure.why.contains("mem, other")));
    }

    #[test]
    fn a_report_is_a_record_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, report(4.0).to_string()).unwrap();
        let record = Record::read(&path, "mem").unwrap();
        assert!(record.name.contains("a processor"));
        assert!(record.compare(&report(4.0)).rows.is_empty());
        std::fs::write(&path, "no JSON").unwrap();
        assert!(Record::read(&path, "mem").is_err_and(|failure| failure.fix.contains("--json")));
    }
}
