//! Measured figures: those that the program carries, and those of files that are given. A file is what
//! `konkordia bench ... --json` printed, or a record of `scripts/record`.

use konkordia_core::failure::{Exit, Failure};
use serde_json::Value;
use std::path::Path;

/// The newest figures in `benches/record/`, each with its machine; `scripts/figures` writes this file.
const SHIPPED: &str = include_str!("figures.csv");

/// A measured number and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The number; its unit is that of the figure asked for.
    pub value: f64,
    /// Bench, commit or file, and machine.
    pub source: String,
}

/// Figures of one call of a bench.
#[derive(Clone, Debug)]
struct Call {
    source: String,
    /// By their path in the JSON of the bench, as in the records.
    figures: Vec<(String, f64)>,
}

impl Call {
    fn figure(&self, path: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| known == path).map(|(_, value)| *value)
    }
}

/// What a role of threads did in `bench pipeline`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Role {
    /// Processors that it kept busy.
    pub cores: f64,
    /// Processor time of an image.
    pub image_s: f64,
    /// Standard deviation of that, 0 where it is not known.
    pub spread_s: f64,
    /// Part of the time in which its threads waited for a processor.
    pub waiting: f64,
    /// Mean length of such a wait.
    pub wait_s: f64,
}

/// The attempt of `bench pipeline` with the highest rate without loss, of those that have the times of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Where it is from.
    pub source: String,
    /// JUNGFRAU modules, one stream each.
    pub modules: f64,
    /// Images per second.
    pub rate_hz: f64,
    /// GB/s of datagrams, with their headers.
    pub datagram_gb_per_s: f64,
    /// Bits of a pixel in the file.
    pub bits_per_pixel: Option<f64>,
    /// Threads that receive.
    pub receive: Role,
    /// Workers.
    pub work: Role,
    /// The thread that joins strips.
    pub join: Role,
    /// The thread of the file.
    pub file: Role,
    /// Processors of all others but the simulated detector.
    pub rest_cores: f64,
    /// Processor time of an image in the simulated detector.
    pub sender_s: f64,
}

/// All figures; the first that has a number is asked.
#[derive(Clone, Debug)]
pub struct Records {
    calls: Vec<Call>,
}

impl Records {
    /// Those that the program carries.
    pub fn shipped() -> Self {
        let mut records = Self { calls: Vec::new() };
        records.add_csv(SHIPPED, "");
        records
    }

    /// None.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { calls: Vec::new() }
    }

    /// Puts the figures of a file before all others.
    ///
    /// # Errors
    /// The file cannot be read, or has no figures.
    pub fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::io("cannot read", path, &e))?;
        let before = self.calls.len();
        if text.trim_start().starts_with("commit,") {
            let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            self.add_csv(&text, folder.as_deref().unwrap_or("an unknown machine"));
        } else {
            for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
                let value = value.map_err(|e| not_a_record(path, &e.to_string()))?;
                self.add_json(&value, &path.display().to_string());
            }
        }
        if self.calls.len() == before { Err(not_a_record(path, "there are no figures in it")) } else { Ok(()) }
    }

    /// Lines `commit,time,bench,figure,value`, in the file that the program carries with the machine before them. Later
    /// lines are newer.
    fn add_csv(&mut self, text: &str, machine: &str) {
        let mut lines = text.lines();
        let has_machine = lines.next().is_some_and(|head| head.starts_with("machine,"));
        let mut last = None;
        for line in lines {
            let (machine, line) = if has_machine { line.split_once(',').unwrap_or_default() } else { (machine, line) };
            let words: Vec<&str> = line.splitn(5, ',').collect();
            let [commit, time, bench, figure, value] = words[..] else { continue };
            let Some(value) = number(value) else { continue };
            if last != Some((commit, time, bench)) {
                last = Some((commit, time, bench));
                let source = format!("`{bench}` at {commit}, {machine}");
                self.calls.insert(0, Call { source, figures: Vec::new() });
            }
            self.calls[0].figures.push((figure.to_string(), value));
        }
    }

    fn add_json(&mut self, value: &Value, file: &str) {
        let machine = &value["machine"];
        let cpu = machine["cpu"].as_str().unwrap_or("an unknown processor");
        let source = format!("{file}, {cpu}, {} processors", machine["processors"].as_u64().unwrap_or(0));
        let mut figures = Vec::new();
        flatten(value, &mut Vec::new(), &mut figures);
        if !figures.is_empty() {
            self.calls.insert(0, Call { source, figures });
        }
    }

    /// The figure with this path.
    pub fn figure(&self, path: &str) -> Option<Figure> {
        let found = self.calls.iter().find_map(|call| Some((call, call.figure(path)?)));
        found.map(|(call, value)| Figure { value, source: call.source.clone() })
    }

    /// A figure of the kernels: `row` with the widest instruction set that the record has.
    pub fn kernel(&self, row: &str, member: &str) -> Option<Figure> {
        let of = |call: &Call| {
            ["avx512", "avx2", "scalar"].iter().find_map(|isa| {
                let value = call.figure(&format!("rows.{row}/{isa}.{member}"))?;
                Some(Figure { value, source: format!("{}, {isa}", call.source) })
            })
        };
        self.calls.iter().find_map(of)
    }

    /// Of the rows whose size is the figure `size`, the one that is nearest to `wanted`: its size and its figure
    /// `value`. `{}` in both stands for the name of the row.
    pub fn nearest(&self, size: &str, value: &str, wanted: f64) -> Option<(f64, Figure)> {
        let (begin, end) = size.split_once("{}")?;
        let of = |call: &Call| {
            let rows = call.figures.iter().filter_map(|(path, of_row)| {
                let name = path.strip_prefix(begin)?.strip_suffix(end)?;
                Some((*of_row, call.figure(&value.replace("{}", name))?))
            });
            // Sizes differ by factors.
            let distance = |row: &(f64, f64)| (row.0 / wanted).ln().abs();
            let (of_row, value) = rows.min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
            Some((of_row, Figure { value, source: call.source.clone() }))
        };
        self.calls.iter().find_map(of)
    }

    /// What the threads of a run did.
    pub fn pipeline(&self) -> Option<Pipeline> {
        self.calls.iter().find_map(pipeline_of)
    }

    /// The newest record of `bench pipeline`, whether it has the times of threads or not.
    pub fn newest_run(&self) -> Option<&str> {
        let is_run = |call: &&Call| call.figures.iter().any(|(path, _)| path.starts_with("results.0.attempts."));
        self.calls.iter().find(is_run).map(|call| call.source.as_str())
    }

    /// Without the times of threads in runs.
    #[cfg(test)]
    pub fn without_threads(mut self) -> Self {
        for call in &mut self.calls {
            call.figures.retain(|(path, _)| !path.contains(".threads."));
        }
        self
    }
}

fn pipeline_of(call: &Call) -> Option<Pipeline> {
    let attempts = call.figures.iter().filter_map(|(path, _)| path.strip_suffix(".threads.work.cores"));
    let rate = |attempt: &&str| call.figure(&format!("{attempt}.rate_hz")).unwrap_or(0.0);
    let lossless = |attempt: &&str| call.figure(&format!("{attempt}.lossless")) == Some(1.0);
    let attempt = attempts.filter(lossless).max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let (result, _) = attempt.split_once(".attempts.")?;
    let of = |name: &str| call.figure(&format!("{attempt}.{name}"));
    let role = |role: &str| {
        let of = |name: &str| of(&format!("threads.{role}.{name}"));
        Some(Role {
            cores: of("cores")?,
            image_s: of("image_us")? * 1e-6,
            spread_s: of("image_spread_us").unwrap_or(0.0) * 1e-6,
            waiting: of("waiting").unwrap_or(0.0),
            wait_s: of("wait_us").unwrap_or(0.0) * 1e-6,
        })
    };
    Some(Pipeline {
        source: call.source.clone(),
        modules: call.figure(&format!("{result}.modules"))?,
        rate_hz: of("rate_hz")?,
        datagram_gb_per_s: of("gigabytes_per_second")?,
        bits_per_pixel: of("bits_per_pixel"),
        receive: role("rx")?,
        work: role("work")?,
        join: role("join")?,
        file: role("out")?,
        rest_cores: ["commit", "sync", "rest"].iter().filter_map(|name| Some(role(name)?.cores)).sum(),
        sender_s: role("simulate").map_or(0.0, |role| role.image_s),
    })
}

/// Each number and truth value with its path, as `scripts/flatten-json` prints them. An element of an array is called
/// by its text members where it has any, else by its position.
fn flatten(value: &Value, path: &mut Vec<String>, out: &mut Vec<(String, f64)>) {
    let mut deeper = |name: String, value: &Value, out: &mut Vec<(String, f64)>| {
        path.push(name);
        flatten(value, path, out);
        path.pop();
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| deeper(name.clone(), member, out)),
        Value::Array(elements) => {
            for (position, element) in elements.iter().enumerate() {
                let members = element.as_object().into_iter().flatten();
                let texts: Vec<&str> = members.filter_map(|(_, member)| member.as_str()).collect();
                let name = if texts.is_empty() { position.to_string() } else { texts.join("/") };
                deeper(name, element, out);
            }
        }
        Value::Bool(is) => out.push((name_of(path), f64::from(u8::from(*is)))),
        Value::Number(number) => out.extend(number.as_f64().map(|number| (name_of(path), number))),
        Value::Null | Value::String(_) => {}
    }
}

fn name_of(path: &[String]) -> String {
    path.join(".").replace(',', ";")
}

fn number(text: &str) -> Option<f64> {
    match text {
        "true" => Some(1.0),
        "false" => Some(0.0),
        _ => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

fn not_a_record(path: &Path, why: &str) -> Failure {
    let fix = "give what `konkordia bench ... --json` printed, or a file of benches/record";
    Failure::new(Exit::Usage, format!("{} is not a record of benches", path.display()), why, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(files: &[(&str, String)]) -> Records {
        let folder = tempfile::tempdir().unwrap();
        let mut records = Records::shipped();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            records.add(&path).unwrap();
        }
        records
    }

    fn threads(work_us: f64) -> Value {
        let role = |role: &str, us: f64| json!({ "role": role, "threads": 1, "cores": us / 1e3, "image_us": us, "image_spread_us": us / 10.0, "waiting": 0.01, "wait_us": 50.0 });
        json!([
            role("simulate", 340.0),
            role("rx", 250.0),
            role("work", work_us),
            role("join", 20.0),
            role("out", 140.0),
            role("commit", 5.0)
        ])
    }

    #[test]
    fn the_program_carries_figures_with_their_machines() {
        let records = Records::shipped();
        let packing = records.kernel("the same; strip by strip", "gigabytes_raw_per_second").unwrap();
        assert!((0.5..50.0).contains(&packing.value), "{packing:?}");
        assert!(packing.source.contains("kernels-real") && packing.source.contains("-cores"), "{packing:?}");
        let (edge, write) = records.nearest("plain.{}.edge_pixels", "plain.{}.hdf5_gb_per_s", 3000.0).unwrap();
        assert!([2048.0, 4096.0].contains(&edge) && write.value > 0.1);
        assert_eq!(records.figure("no.such.figure"), None);
    }

    #[test]
    fn a_file_goes_before_what_the_program_carries() {
        let json = json!({ "machine": { "cpu": "Abacus", "processors": 3 }, "rows": [
            { "case": "the same, strip by strip", "isa": "avx2", "gigabytes_raw_per_second": 7.5, "verified": true } ] });
        let records = with(&[("k.json", json.to_string())]);
        let figure = records.kernel("the same; strip by strip", "gigabytes_raw_per_second").unwrap();
        assert_eq!(figure.value, 7.5);
        assert!(figure.source.contains("Abacus, 3 processors, avx2"), "{}", figure.source);
        assert_eq!(records.figure("rows.the same; strip by strip/avx2.verified").map(|f| f.value), Some(1.0));
        // Several documents, the last is asked first; and a record of scripts/record.
        let two = format!("{}\n{}", json!({ "a": 1 }), json!({ "a": 2, "list": [{ "b": 3 }] }));
        let csv = "commit,time,bench,figure,value\nc1,t1,x,a,4\nc1,t2,x,a,5\nc1,t2,x,is,true\n".to_string();
        let records = with(&[("two.json", two)]);
        assert_eq!((records.figure("a").unwrap().value, records.figure("list.0.b").unwrap().value), (2.0, 3.0));
        let records = with(&[("r.csv", csv)]);
        assert_eq!((records.figure("a").unwrap().value, records.figure("is").unwrap().value), (5.0, 1.0));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        assert_eq!(Records::shipped().add(&path).unwrap_err().exit, Exit::Io);
        for text in ["", "hello", "{", "{}", "commit,time,bench,figure,value\n", "{\"a\": \"text\"}"] {
            std::fs::write(&path, text).unwrap();
            assert!(Records::shipped().add(&path).unwrap_err().what.contains("not a record"), "{text}");
        }
    }

    #[test]
    fn the_attempt_with_the_highest_rate_without_loss_is_taken() {
        let attempt = |rate: f64, lossless: bool, work_us: f64| json!({ "rate_hz": rate, "lossless": lossless, "gigabytes_per_second": rate * 1.0547e-3, "bits_per_pixel": 3.4, "threads": threads(work_us) });
        let short = json!({ "rate_hz": 5000.0, "lossless": true, "gigabytes_per_second": 5.0, "threads": [] });
        let attempts = json!([attempt(500.0, true, 700.0), attempt(1100.0, true, 800.0), attempt(2000.0, false, 900.0), short]);
        let json =
            json!({ "machine": { "cpu": "Abacus", "processors": 2 }, "results": [{ "modules": 1, "attempts": attempts }] });
        let found = with(&[("p.json", json.to_string())]).pipeline().unwrap();
        assert_eq!((found.rate_hz, found.modules, found.bits_per_pixel), (1100.0, 1.0, Some(3.4)));
        assert!((found.work.cores - 0.8).abs() < 1e-12 && (found.work.spread_s - 8e-5).abs() < 1e-12);
        assert!((found.rest_cores - 0.005).abs() < 1e-12 && found.source.contains("Abacus"));
        assert!((found.sender_s - 3.4e-4).abs() < 1e-12);
    }

    #[test]
    fn a_run_without_the_times_of_threads_has_no_figures_of_them() {
        let attempts = json!([{ "rate_hz": 1100.0, "lossless": true, "gigabytes_per_second": 1.16, "threads": [] }]);
        let json =
            json!({ "machine": { "cpu": "Abacus", "processors": 2 }, "results": [{ "modules": 1, "attempts": attempts }] });
        let records = with(&[("p.json", json.to_string())]).without_threads();
        assert_eq!(records.pipeline(), None);
        assert!(records.newest_run().is_some_and(|source| source.contains("Abacus")), "{:?}", records.newest_run());
        assert_eq!(Records::none().newest_run(), None);
    }
}
