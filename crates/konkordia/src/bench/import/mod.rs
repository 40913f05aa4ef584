//! `konkordia bench import`: what perftest and the OSU micro-benchmarks have printed, beside ours by message size. The
//! text is read in `parse.rs`; `bench net` and `bench rdma` print the same tables with `--import`.

mod parse;

pub use parse::{Imported, Row};

use super::fabric_args::BenchImportArgs;
use crate::console;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longer files are none of these programs.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A figure of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Ours {
    pub name: String,
    pub bytes: u64,
    pub gigabytes_per_s: f64,
    pub latency_us: f64,
}

/// `konkordia bench import`
pub fn command(args: &BenchImportArgs) -> Result<Exit, Failure> {
    let imported = read_all(&args.files)?;
    let ours = args.ours.as_deref().map_or(Ok(Vec::new()), read_ours)?;
    if args.json {
        let tables: Vec<Value> = imported.iter().map(Imported::to_json).collect();
        let own = |o: &Ours| json!({ "name": o.name, "bytes": o.bytes, "gigabytes_per_second": o.gigabytes_per_s, "latency_us": o.latency_us });
        console::json(&json!({ "bench": "import", "imported": tables, "ours": ours.iter().map(own).collect::<Vec<_>>() }), true);
    } else {
        console::to_stdout(&to_text(&imported, &ours).join("\n\n"));
    }
    Ok(Exit::Complete)
}

/// Reads the tables of all files.
///
/// # Errors
/// A file cannot be read, or is not the output of one of these programs.
pub fn read_all(files: &[PathBuf]) -> Result<Vec<Imported>, Failure> {
    let tables = files.iter().map(|file| {
        let name = file.file_name().map_or_else(|| file.display().to_string(), |name| name.to_string_lossy().into_owned());
        parse::parse(&name, &read(file)?).map_err(|wrong| wrong.failure(file))
    });
    Ok(tables.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn read(path: &Path) -> Result<String, Failure> {
    let cannot = |error: &std::io::Error| Failure::io("cannot read what another program has printed", path, error);
    let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it has more than {}", text::bytes(FILE_BYTES_MAX));
        let fix = "give the text that ib_write_bw, ib_write_lat, ib_send_bw, ib_send_lat or a program of OSU has printed";
        return Err(Failure::new(Exit::Usage, format!("{} is not imported", path.display()), why, fix));
    }
    // Other bytes can stand in lines that are passed over only.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Our own figures, from what `bench net` or `bench rdma` has printed with `--json`.
fn read_ours(path: &Path) -> Result<Vec<Ours>, Failure> {
    let wrong = |why: String| {
        let fix = "give what `konkordia bench net --json` or `konkordia bench rdma --json` has printed";
        Failure::new(Exit::Usage, format!("{} has no figures of ours", path.display()), why, fix)
    };
    let report: Value = serde_json::from_str(&read(path)?).map_err(|error| wrong(error.to_string()))?;
    let rows = if report["bench"] == "rdma" { &report["sizes"]["rows"] } else { &report["rows"] };
    let own = |row: &Value| {
        let median = |figure: &str| row[figure]["median"].as_f64().unwrap_or(f64::NAN);
        let bytes = row["bytes"].as_u64()?;
        let name = row["name"].as_str()?.replace(&format!(", {bytes} bytes"), "");
        Some(Ours { name, bytes, gigabytes_per_s: median("gigabytes_per_second"), latency_us: median("latency_us") })
    };
    let found: Vec<Ours> = rows.as_array().into_iter().flatten().filter_map(own).collect();
    if found.is_empty() { Err(wrong("it has no rows with sizes".into())) } else { Ok(found) }
}

/// A line of a chart: its name, and a figure for each size.
pub type Line = (String, Vec<(f64, f64)>);

/// Ours, then the imported ones, as far as they have the figure.
pub fn lines(ours: &[Ours], imported: &[Imported], own: &dyn Fn(&Ours) -> f64, other: &dyn Fn(&Row) -> Option<f64>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in ours.iter().filter(|row| own(row).is_finite()) {
        let point = (row.bytes as f64, own(row));
        match lines.iter_mut().find(|(name, _)| *name == row.name) {
            Some((_, points)) => points.push(point),
            None => lines.push((row.name.clone(), vec![point])),
        }
    }
    for table in imported {
        let points: Vec<_> = table.rows.iter().filter_map(|row| Some((row.bytes as f64, other(row)?))).collect();
        if !points.is_empty() {
            lines.push((table.name.clone(), points));
        }
    }
    lines
}

/// Ours of a figure, and theirs.
type Figures = (&'static str, usize, fn(&Ours) -> f64, fn(&Row) -> Option<f64>);

/// For people: a table of each figure that an imported program has, with a column for each way. None of no imported
/// tables.
pub fn to_text(imported: &[Imported], ours: &[Ours]) -> Vec<String> {
    const NONE: fn(&Ours) -> f64 = |_| f64::NAN;
    let figures: [Figures; 5] = [
        ("GB/s", 3, |o| o.gigabytes_per_s, |row| row.gigabytes_per_s),
        ("us", 2, |o| o.latency_us, |row| row.latency_us),
        ("us, p99", 2, NONE, |row| row.latency_p99_us),
        ("us, p99.9", 2, NONE, |row| row.latency_p999_us),
        ("messages/s", 0, |o| o.gigabytes_per_s * 1e9 / o.bytes as f64, |row| row.messages_per_s),
    ];
    let tables =
        figures.iter().filter(|(.., other)| imported.iter().flat_map(|table| &table.rows).any(|row| other(row).is_some()));
    let mut parts: Vec<String> = tables
        .map(|(name, digits, own, other)| {
            let lines = lines(ours, imported, own, other);
            let mut sizes: Vec<u64> =
                lines.iter().flat_map(|(_, points)| points.iter().map(|(bytes, _)| *bytes as u64)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let head = std::iter::once((*name).to_string()).chain(lines.iter().map(|(name, _)| name.clone())).collect();
            let line = |bytes: &u64| -> Vec<String> {
                let of = |points: &[(f64, f64)]| points.iter().find(|point| point.0 as u64 == *bytes).map(|point| point.1);
                let cells = lines.iter().map(|(_, points)| of(points).map_or("-".into(), |value| format!("{value:.digits$}")));
                std::iter::once(text::bytes(*bytes)).chain(cells).collect()
            };
            text::table(&std::iter::once(head).chain(sizes.iter().map(line)).collect::<Vec<Vec<String>>>())
        })
        .collect();
    if !parts.is_empty() {
        let of = |table: &Imported| format!("{}: {}", table.name, table.program);
        let own = if ours.is_empty() { "" } else { "\nthe other columns: ours; software links, no card" };
        parts.push(format!(
            "imported, as the programs have printed it:\n{}{own}",
            imported.iter().map(of).collect::<Vec<_>>().join("\n")
        ));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported() -> Imported {
        let text = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 64  1000  1.0  0.8  1.5\n";
        parse::parse("a.txt", text).unwrap().remove(0)
    }

    #[test]
    fn tables_have_ours_and_theirs_by_size() {
        let ours = [("udp", 64, 0.25), ("udp", 128, 0.5)].map(|(name, bytes, rate)| Ours {
            name: name.into(),
            bytes,
            gigabytes_per_s: rate,
            latency_us: f64::NAN,
        });
        let parts = to_text(&[imported()], &ours);
        assert_eq!(parts.len(), 3, "{parts:?}");
        let rows: Vec<Vec<&str>> = parts[0].lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["64", "B", "0.250", "0.100"]) && rows.contains(&vec!["128", "B", "0.500", "-"]), "{rows:?}");
        assert!(parts[1].contains("1500000") && parts[2].contains("no card"));
        assert!(to_text(&[], &ours).is_empty());
    }

    #[test]
    fn our_own_figures_are_those_of_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.json");
        let row = json!({ "name": "tcp, 8 bytes", "bytes": 8, "gigabytes_per_second": { "median": 2.0 }, "latency_us": { "median": 9.0 } });
        std::fs::write(&path, json!({ "bench": "net", "rows": [row] }).to_string()).unwrap();
        let expected = Ours { name: "tcp".into(), bytes: 8, gigabytes_per_s: 2.0, latency_us: 9.0 };
        assert_eq!(read_ours(&path).unwrap(), [expected]);
        std::fs::write(&path, "{}").unwrap();
        assert!(read_ours(&path).unwrap_err().fix.contains("--json"));
    }
}
