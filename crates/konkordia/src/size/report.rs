//! The answers of `konkordia size` for people, for pages and for programs, and as a picture.

use super::args::ModelArgs;
use super::scale::Case;
use super::sizing::{Line, Request, Sizing, short};
use super::stages::{Placement, Platform, STAGES};
use konkordia_core::text;
use konkordia_picture::{Axis, Picture, Series, chart, stacked};
use konkordia_sim::presets::PRESETS;
use serde_json::{Value, json};

/// What was asked and what came of it.
pub struct Answer<'a> {
    /// What was asked.
    pub request: &'a Request,
    /// The lines.
    pub sizing: &'a Sizing,
    /// The models, if there are any.
    pub cases: &'a [Case],
    /// What the models assume.
    pub args: &'a ModelArgs,
}

/// The number of a line with its unit.
fn needed(line: &Line) -> String {
    let Some(value) = line.value else { return "no figure".into() };
    format!("{}{} {}", sign(line), short(value), line.unit).trim_end().to_string()
}

impl Answer<'_> {
    fn title(&self) -> String {
        let Request { detector, rate_hz, codec, headroom, stall_s, .. } = self.request;
        format!(
            "{}: {}; {} Hz, file {}, headroom {}, stalls of {} s",
            detector.name,
            detector.description,
            short(*rate_hz),
            codec.name(),
            short(*headroom),
            short(*stall_s)
        )
    }

    /// For people: the sources are numbered below the table.
    pub fn text(&self) -> String {
        let mut out = vec![self.title(), String::new()];
        out.extend(numbered(&self.sizing.lines));
        if !self.cases.is_empty() {
            out.extend([String::new(), self.assumptions(), text::table(&self.case_rows())]);
        }
        out.join("\n")
    }

    /// For pages: the lines, or the models if there are any.
    pub fn markdown(&self) -> String {
        if !self.cases.is_empty() {
            return [self.assumptions(), String::new(), aligned(&self.case_rows(), true)].join("\n");
        }
        [self.title(), String::new(), lines_of_page(&self.sizing.lines)].join("\n")
    }

    /// The best placement of the stages with its lines, and all of them.
    pub fn stages(&self, all: &[Placement], platform: &Platform, as_markdown: bool) -> String {
        let best = all.first().filter(|placement| placement.missing().next().is_none());
        let mut out = vec![format!("{}, {}", self.title(), platform.name), String::new()];
        match best {
            Some(best) => {
                let places = STAGES.iter().zip(best.places).map(|(stage, place)| format!("{stage}: {}", place.name()));
                out.extend([format!("fewest hosts, then devices: {}", places.collect::<Vec<_>>().join(", ")), String::new()]);
                if as_markdown { out.push(lines_of_page(&best.lines)) } else { out.extend(numbered(&best.lines)) }
            }
            None => out.push("no placement has all its figures: see the last column".into()),
        }
        let mut head: Vec<String> = STAGES.map(String::from).to_vec();
        head.extend(["hosts", "boards", "GPUs", "cores", "memory, GB/s", "remark"].map(String::from));
        let row = |placement: &Placement| {
            let mut row: Vec<String> = placement.places.map(|place| place.name().to_string()).to_vec();
            let number = |name: &str| placement.value(name).map_or("no figure".into(), short);
            row.extend(["hosts", "boards", "gpus", "cores", "memory_traffic"].map(number));
            row.push(placement.missing().next().map_or(String::new(), |line| line.rests_on.clone()));
            row
        };
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(all.iter().map(row)).collect();
        out.extend([String::new(), aligned(&rows, as_markdown)]);
        out.join("\n")
    }

    /// The same for programs, the best placement first.
    pub fn stages_json(&self, all: &[Placement], platform: &Platform) -> Value {
        let one = |placement: &Placement| {
            let places: serde_json::Map<String, Value> =
                STAGES.iter().zip(placement.places).map(|(stage, place)| (stage.to_string(), json!(place.name()))).collect();
            json!({ "stages": places, "lines": placement.lines.iter().map(line_json).collect::<Vec<_>>() })
        };
        let mut json = self.to_json();
        json["platform"] = json!({
            "name": platform.name, "fpga_link_gb_per_s": platform.fpga_link_gb_per_s,
            "gpu_link_gb_per_s": platform.gpu_link_gb_per_s, "gpu_memory_gb_per_s": platform.gpu_memory_gb_per_s,
            "source": platform.source,
        });
        json["placements"] = all.iter().map(one).collect();
        json
    }

    fn assumptions(&self) -> String {
        let (args, model) = (self.args, &self.cases[0].model);
        let every = |length_ms: f64, every_s: f64| match length_ms {
            0.0 => "none".to_string(),
            _ => format!("{} ms every {} s", short(length_ms), short(every_s)),
        };
        format!(
            "Model of {} at {} Hz{}: {} s of images at {}, {} streams, {} workers, ring of {} frames, pool of {} images, spread of a step {} of its mean, pauses of a \
             thread: {}, stalls of the disk: {}, seed {}",
            self.request.detector.name,
            short(self.request.rate_hz),
            if args.runs > 1 { format!(", one of {} runs", args.runs) } else { String::new() },
            short(args.seconds),
            if args.random { "random times" } else { "equal distances" },
            model.streams,
            model.workers,
            model.slots,
            model.pool_images,
            short(args.spread),
            every(args.pause_ms, args.pause_every),
            every(args.disk_stall_ms, args.disk_stall_every),
            args.seed
        )
    }

    /// Head and rows of the table of models.
    fn case_rows(&self) -> Vec<Vec<String>> {
        let mut head: Vec<String> =
            ["each step has", "images", "not whole", "first loss", "latency p99"].map(String::from).to_vec();
        head.extend(self.cases[0].outcome.fills.iter().map(|fill| fill.name.to_string()));
        let row = |case: &Case| {
            let outcome = &case.outcome;
            let mut row = vec![
                case.name.clone(),
                text::count(outcome.images),
                format!("{:.2} %", outcome.loss() * 100.0),
                outcome.first_loss_s.map_or("none".into(), |at| format!("{} s", short(at))),
                format!("{:.1} ms", outcome.latency_s[1] * 1e3),
            ];
            row.extend(outcome.fills.iter().map(|fill| format!("{} of {}", short(fill.images_max), short(fill.capacity))));
            row
        };
        std::iter::once(head).chain(self.cases.iter().map(row)).collect()
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let Request { detector, rate_hz, codec, headroom, stall_s, .. } = self.request;
        let cases: Vec<Value> = self.cases.iter().map(case_json).collect();
        json!({
            "detector": detector.name, "rate_hz": rate_hz, "compression": codec.name(), "headroom": headroom, "stall_s": stall_s,
            "bits_per_pixel": self.sizing.bits_per_pixel,
            "lines": self.sizing.lines.iter().map(line_json).collect::<Vec<_>>(),
            "model": if cases.is_empty() { Value::Null } else { json!({ "assumptions": self.assumptions(), "cases": cases }) },
        })
    }
}

fn line_json(line: &Line) -> Value {
    json!({
        "name": line.name, "what": line.what, "value": line.value, "unit": line.unit, "is_at_least": line.is_at_least,
        "formula": line.formula, "rests_on": line.rests_on,
    })
}

/// Lines for people, and below them on what they rest.
fn numbered(lines: &[Line]) -> Vec<String> {
    let mut sources: Vec<&str> = Vec::new();
    let width = |of: fn(&Line) -> String| lines.iter().map(|line| of(line).chars().count()).max().unwrap_or(0);
    let (what, number) = (width(|line| line.what.to_string()), width(needed));
    let mut out = Vec::new();
    for line in lines {
        let place = sources.iter().position(|source| *source == line.rests_on).unwrap_or_else(|| {
            sources.push(&line.rests_on);
            sources.len() - 1
        });
        let reference = format!("[{}]", place + 1);
        let formula = if line.formula.is_empty() { reference } else { format!("= {} {reference}", line.formula) };
        out.push(format!("{:<what$}  {:>number$}  {formula}", line.what, needed(line)));
    }
    out.push(String::new());
    out.extend(sources.iter().zip(1..).map(|(source, n)| format!("[{n}] {source}")));
    out
}

/// Lines for pages.
fn lines_of_page(lines: &[Line]) -> String {
    let head = ["what", "needed", "formula", "rests on"].map(String::from).to_vec();
    let row = |line: &Line| vec![line.what.into(), needed(line), line.formula.clone(), line.rests_on.clone()];
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(lines.iter().map(row)).collect();
    aligned(&rows, true)
}

fn case_json(case: &Case) -> Value {
    let outcome = &case.outcome;
    let utilisation: serde_json::Map<String, Value> =
        case.utilisations().into_iter().map(|(step, part)| (step.to_string(), json!(part))).collect();
    let buffers: Vec<Value> = outcome
        .fills
        .iter()
        .map(|fill| json!({ "name": fill.name, "capacity": fill.capacity, "images_max": fill.images_max, "over_time": fill.over_time }))
        .collect();
    json!({
        "name": case.name, "headroom": case.headroom, "images": outcome.images, "whole": outcome.whole,
        "partial": outcome.partial, "lost": outcome.lost, "refused": outcome.refused, "loss": outcome.loss(),
        "loss_without_buffers": case.expected_loss(), "first_loss_s": outcome.first_loss_s, "seconds": outcome.seconds,
        "ring_images_mean": outcome.ring_mean,
        "latency_s": { "p50": outcome.latency_s[0], "p99": outcome.latency_s[1], "max": outcome.latency_s[2] },
        "utilisation": utilisation, "workers": case.model.workers, "buffers": buffers,
    })
}

/// The buffers over time for each case, and the loss against the headroom.
pub fn draw(cases: &[Case]) -> Picture {
    let time = Axis { label: "time (s)", log: false };
    let percent = Axis { label: "full (%)", log: false };
    let names = cases.first().map(|case| case.outcome.fills.iter().map(|fill| fill.name).collect::<Vec<_>>()).unwrap_or_default();
    let mut pictures = Vec::new();
    for (place, name) in names.into_iter().enumerate() {
        let series: Vec<Series<'_>> = cases
            .iter()
            .map(|case| {
                let fill = &case.outcome.fills[place];
                let step = case.outcome.seconds / fill.over_time.len() as f64;
                let at = |(n, images): (usize, &f64)| ((n as f64 + 0.5) * step, images / fill.capacity * 100.0);
                Series { name: &case.name, points: fill.over_time.iter().enumerate().map(at).collect(), line: true }
            })
            .collect();
        pictures.push(chart(&format!("{name}: the most in each interval"), &time, &percent, &series));
    }
    let loss = |case: &Case| Some((case.headroom?, case.outcome.loss() * 100.0));
    let points = cases.iter().filter_map(loss).collect();
    let series = [Series { name: "model", points, line: true }];
    let headroom = Axis { label: "headroom: capacity of each step / what it needs", log: false };
    pictures.push(chart("images that are not whole", &headroom, &Axis { label: "lost (%)", log: false }, &series));
    stacked(&pictures)
}

/// One row for each detector, with the lines that most depend on it.
pub fn summary(answers: &[(Request, Sizing)], as_markdown: bool) -> String {
    const COLUMNS: [(&str, &str); 12] = [
        ("pixels", "GB/s"),
        ("streams", "streams"),
        ("ports", "ports"),
        ("cores_receive", "cores: receive"),
        ("cores_work", "work"),
        ("cores_join", "join"),
        ("cores_file", "file"),
        ("runs", "runs"),
        ("memory_traffic", "memory, GB/s"),
        ("buffers", "buffers, GiB"),
        ("file", "file, GB/s"),
        ("per_hour", "TB an hour"),
    ];
    let head = ["detector", "Hz", "file"].into_iter().chain(COLUMNS.iter().map(|(_, head)| *head)).chain(["hosts"]);
    let mut rows: Vec<Vec<String>> = vec![head.map(String::from).collect()];
    for (request, sizing) in answers {
        let cell = |name: &str| match sizing.lines.iter().find(|line| line.name == name) {
            Some(line) => line.value.map_or("no figure".into(), |value| sign(line) + &short(value)),
            None => "-".into(),
        };
        let mut row = vec![request.detector.name.to_string(), short(request.rate_hz), request.codec.name().to_string()];
        row.extend(COLUMNS.iter().map(|(name, _)| *name).chain(["hosts"]).map(cell));
        rows.push(row);
    }
    aligned(&rows, as_markdown)
}

fn sign(line: &Line) -> String {
    if line.is_at_least { "at least ".into() } else { String::new() }
}

/// A table for people or for pages; the first row is its head.
fn aligned(rows: &[Vec<String>], as_markdown: bool) -> String {
    if !as_markdown {
        return text::table(rows);
    }
    let row = |cells: &Vec<String>| format!("| {} |", cells.join(" | "));
    let mut lines: Vec<String> = rows.iter().map(row).collect();
    lines.insert(1, "|---".repeat(rows[0].len()) + "|");
    lines.join("\n")
}

/// The detectors with a name.
pub fn list(as_markdown: bool) -> String {
    let head = ["name", "detector", "image", "rate", "pixels", "published", "streams", "source"].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(PRESETS.iter().map(preset_row)).collect();
    aligned(&rows, as_markdown)
}

fn preset_row(preset: &konkordia_sim::presets::DetectorPreset) -> Vec<String> {
    vec![
        preset.name.into(),
        preset.description.into(),
        format!("{} x {}, {} bit", preset.rows, preset.columns, preset.bits),
        format!("{} Hz", short(preset.frame_hz)),
        format!("{} GB/s", short(preset.bytes_per_second() / 1e9)),
        preset.published_gb_per_s.map_or(String::new(), |gb| format!("{} GB/s", short(gb))),
        preset.streams().to_string(),
        preset.source.into(),
    ]
}

/// The same for programs.
pub fn list_json() -> Value {
    let one = |preset: &konkordia_sim::presets::DetectorPreset| {
        json!({
            "name": preset.name, "description": preset.description, "rows": preset.rows, "columns": preset.columns,
            "bits": preset.bits, "frame_hz": preset.frame_hz, "streams": preset.streams(),
            "bytes_per_second": preset.bytes_per_second(), "published_gb_per_s": preset.published_gb_per_s,
            "source": preset.source,
        })
    };
    json!({ "detectors": PRESETS.iter().map(one).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::records::Records;
    use crate::size::scale::at_headrooms;
    use crate::size::sizing::{Codec, Host, size};
    use konkordia_sim::presets::preset;

    fn answered(check: impl Fn(&Answer<'_>)) {
        let args = ModelArgs {
            at_headroom: vec![0.5, 2.0],
            seconds: 1.0,
            spread: 0.1,
            pause_ms: 5.0,
            pause_every: 0.5,
            disk_stall_ms: 0.0,
            disk_stall_every: 10.0,
            kernel_cache: 0.0,
            receive_buffer_mib: 256.0,
            slots: Some(64),
            workers: None,
            runs: 1,
            processors: None,
            random: false,
            seed: 1,
            png: None,
        };
        let host = Host { cores: 64.0, ports: 4.0, memory_gib: 512.0, memory_gb_per_s: None, disk_gb_per_s: None };
        let detector = *preset("jungfrau-4m").unwrap();
        let (codec, port_gbit) = (Codec::Bslz4, 100.0);
        let request =
            Request { detector, rate_hz: 1100.0, codec, bits_per_pixel: None, headroom: 1.5, stall_s: 0.2, port_gbit, host };
        let sizing = size(&request, &Records::shipped());
        let cases = at_headrooms(&request, &sizing, &args);
        check(&Answer { request: &request, sizing: &sizing, cases: &cases, args: &args });
    }

    #[test]
    fn text_page_and_json_say_the_same() {
        answered(|answer| {
            let (text, page, json) = (answer.text(), answer.markdown(), answer.to_json());
            let lines = Answer { cases: &[], ..*answer }.markdown();
            for line in &answer.sizing.lines {
                assert!(text.contains(&needed(line)) && lines.contains(&needed(line)), "{line:?}");
                assert!(text.contains(&line.rests_on) && lines.contains(&line.rests_on), "{line:?}");
            }
            assert_eq!(json["lines"].as_array().unwrap().len(), answer.sizing.lines.len());
            let cases = json["model"]["cases"].as_array().unwrap();
            assert_eq!((cases.len(), cases[1]["buffers"].as_array().unwrap().len()), (2, 5));
            assert!(cases[0]["loss"].as_f64().unwrap() > 0.1 && cases[0]["loss_without_buffers"] == 0.5, "{cases:?}");
            // Every row of a table has as many cells as its head.
            let both = [lines.as_str(), &page].join("\n");
            let cells: Vec<usize> = both.lines().filter(|l| l.starts_with('|')).map(|l| l.matches('|').count()).collect();
            assert!(cells.iter().all(|count| [5, 11].contains(count)), "{page}");
            assert!(text.contains("[1] ") && page.contains("pauses of a thread: 5 ms every 0.5 s"), "{text}");
        });
    }

    #[test]
    fn the_picture_has_a_chart_for_each_buffer_and_one_for_the_loss() {
        answered(|answer| assert!(draw(answer.cases).png().starts_with(b"\x89PNG")));
        assert!(draw(&[]).png().starts_with(b"\x89PNG"));
    }

    #[test]
    fn the_list_has_all_detectors() {
        for text in [list(false), list(true), list_json().to_string()] {
            assert!(PRESETS.iter().all(|preset| text.contains(preset.name) && text.contains(preset.source)), "{text}");
        }
        assert_eq!(list(true).lines().count(), PRESETS.len() + 2);
    }

    #[test]
    fn the_summary_has_a_row_for_each_detector() {
        answered(|answer| {
            let unknown = size(answer.request, &Records::none());
            let answers = [(*answer.request, answer.sizing.clone()), (*answer.request, unknown)];
            let page = summary(&answers, true);
            assert_eq!(page.lines().count(), 4, "{page}");
            let cells: Vec<&str> = page.lines().nth(2).unwrap().split(" | ").collect();
            assert_eq!((cells.len(), cells[1], cells[3], cells[4]), (16, "1100", "9.227", "8"), "{page}");
            assert!(summary(&answers, false).contains("no figure"));
        });
    }
}
