//! `konkordia archive`: bags of folders of runs for ten years.

pub mod args;
mod packer;
mod texts;

use crate::console;
use crate::repack_args::lossless;
use crate::run::signals;
use args::ArchiveArgs;
use konkordia_archive::{Damage, Made, Options, Report, Restored, is_date};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::Compression;
use konkordia_core::text;
use konkordia_repack::{Settings, budget};
use packer::Files;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// `konkordia archive FOLDER -o BAG`, `konkordia archive --check BAG`, `konkordia archive --restore BAG -o FOLDER`
pub fn command(args: &ArchiveArgs) -> Result<Exit, Failure> {
    if !args.from.is_dir() {
        let what = format!("{} is not a folder", args.from.display());
        return Err(Failure::new(Exit::Usage, what, "", "name the folder of the runs, or that of the bag"));
    }
    let stop = signals::stop_flag()?;
    match &args.output {
        None => check(args, &stop),
        Some(output) if args.restore => restore(args, output, &stop),
        Some(output) => make(args, output, &stop),
    }
}

/// Does `work` while a line shows how many bytes were read.
fn shown<T>(args: &ArchiveArgs, work: impl FnOnce(&mut dyn FnMut(u64)) -> T) -> T {
    let mut line = console::Progress::new(args.quiet || args.json);
    let (mut bytes, started) = (0u64, Instant::now());
    let done = work(&mut |count| {
        bytes += count;
        line.update(|| {
            let rate = bytes as f64 / started.elapsed().as_secs_f64().max(1e-9) / 1e6;
            format!("{} read, {rate:.0} MB/s", text::bytes(bytes))
        });
    });
    line.end();
    done
}

fn make(args: &ArchiveArgs, bag: &Path, stop: &AtomicBool) -> Result<Exit, Failure> {
    let (started, processors) = (Instant::now(), std::thread::available_parallelism().map_or(1, usize::from));
    let compression = compression(args)?;
    let settings = Settings {
        compression,
        spots: None,
        workers: args.workers.map_or(processors, usize::from),
        verify: true,
        delete_source: false,
        notes: notes(args)?,
    };
    let options = Options {
        software: konkordia_core::SOFTWARE.into(),
        packing: settings.words(),
        date: args.date.clone(),
        fields: fields(args)?,
        texts: texts::all(),
    };
    // A bag lies in a folder that exists, whatever this one was called with.
    let bag = std::path::absolute(bag).map_err(|error| Failure::io("cannot use", bag, &error))?;
    let mut files = Files::new(&settings, stop, args.quiet || args.json);
    let made = shown(args, |show| konkordia_archive::make(&args.from, &bag, &options, &mut files, stop, show))?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        console::json(&made_json(&made, &bag, &options.packing, files.images(), seconds), false);
    } else {
        console::to_stdout(&made_text(&made, &bag, &options.packing, files.images(), seconds));
    }
    Ok(Exit::Complete)
}

/// The compression asked for.
fn compression(args: &ArchiveArgs) -> Result<Compression, Failure> {
    let compression = lossless(&args.compression, args.level, "")?;
    if let Some(budget_s) = args.cpu_s_per_gb {
        if !matches!(compression, Compression::Bszstd { .. }) || budget_s.is_nan() || budget_s <= 0.0 {
            let why = "a budget is above 0 and chooses among the levels of bszstd";
            let what = format!("--cpu-s-per-gb {budget_s} with {}", args.compression);
            return Err(Failure::new(Exit::Usage, what, why, "leave it out, or choose bszstd"));
        }
        let Some(file) = packer::first_with_images(&args.from)? else { return Ok(compression) };
        let cost = budget::level(&file, budget_s)?;
        if !args.quiet && !args.json {
            let fix = format!("give --level {} to get the same bytes again", cost.level);
            console::note(&format!("bszstd level {} takes {:.1} s for 10^9 bytes of pixels; {fix}", cost.level, cost.s_per_gb));
        }
        return Ok(compression.with_level(cost.level).unwrap_or(compression));
    }
    Ok(compression)
}

/// What each file says of its licence and its end.
fn notes(args: &ArchiveArgs) -> Result<Vec<(&'static str, String)>, Failure> {
    for date in args.keep_until.iter().chain(&args.date) {
        if !is_date(date) {
            let fix = "write it as YYYY-MM-DD, for example 2036-12-31";
            return Err(Failure::new(Exit::Usage, format!("'{date}' is not a date"), "", fix));
        }
    }
    let license = args.license.iter().map(|name| ("license", name.clone()));
    Ok(license.chain(args.keep_until.iter().map(|date| ("keep_until", date.clone()))).collect())
}

/// Fields of `bag-info.txt`.
fn fields(args: &ArchiveArgs) -> Result<Vec<(String, String)>, Failure> {
    let mut fields = Vec::new();
    fields.extend(args.license.iter().map(|name| ("License".to_owned(), name.clone())));
    fields.extend(args.keep_until.iter().map(|date| ("Retention-Until".to_owned(), date.clone())));
    for info in &args.info {
        match info.split_once(':') {
            Some((label, value)) if !label.trim().is_empty() && !label.contains(['\n', '\r']) => {
                fields.push((label.trim().to_owned(), value.trim().to_owned()));
            }
            _ => {
                let fix = "write it as --info \"Contact-Name: Ada Lovelace\"";
                return Err(Failure::new(Exit::Usage, format!("'{info}' is not a field"), "it has no label", fix));
            }
        }
    }
    Ok(fields)
}

fn made_json(made: &Made, bag: &Path, packing: &str, images: u64, seconds: f64) -> Value {
    json!({
        "bag": bag, "files": made.files, "bytes_before": made.bytes_before, "bytes": made.bytes, "images": images, "chunks": made.chunks,
        "packing": packing, "date": made.date, "seconds": seconds,
        "copied": made.copied.iter().map(|(file, why)| json!({ "file": file, "why": why })).collect::<Vec<_>>(),
    })
}

fn made_text(made: &Made, bag: &Path, packing: &str, images: u64, seconds: f64) -> String {
    let mut lines = vec![format!(
        "{}: {} files in {seconds:.1} s, {packing}; {} became {}; {} images compared, {} chunks with a sum",
        bag.display(),
        text::count(made.files),
        text::bytes(made.bytes_before),
        text::bytes(made.bytes),
        text::count(images),
        text::count(made.chunks),
    )];
    lines.extend(made.copied.iter().map(|(file, why)| format!("copied as it is: {file} ({why})")));
    lines.join("\n")
}

fn check(args: &ArchiveArgs, stop: &AtomicBool) -> Result<Exit, Failure> {
    let report = shown(args, |show| konkordia_archive::check(&args.from, stop, show))?;
    if args.json {
        let mut value = report_json(&report);
        value["bag"] = json!(args.from);
        console::json(&value, false);
    } else {
        console::to_stdout(&report_text(&args.from, &report));
    }
    Ok(if report.damages.is_empty() { Exit::Complete } else { Exit::Incomplete })
}

fn report_json(report: &Report) -> Value {
    let damage = |damage: &Damage| {
        let Damage { file, dataset, image, what, fix } = damage;
        let named = |text: &String| if text.is_empty() { Value::Null } else { json!(text) };
        json!({ "file": file, "dataset": named(dataset), "image": named(image), "what": what, "fix": fix })
    };
    json!({
        "whole": report.damages.is_empty(), "files": report.files, "bytes": report.bytes,
        "damages": report.damages.iter().map(damage).collect::<Vec<_>>(),
    })
}

fn report_text(bag: &Path, report: &Report) -> String {
    let damage = |damage: &Damage| {
        let place = [(" ", &damage.dataset), (" image ", &damage.image)];
        let place: String =
            place.into_iter().filter(|(_, text)| !text.is_empty()).map(|(word, text)| format!("{word}{text}")).collect();
        format!("error: {}\n  in:  {}{place}\n  fix: {}", damage.what, damage.file, damage.fix)
    };
    let mut lines: Vec<String> = report.damages.iter().map(damage).collect();
    let verdict = if report.damages.is_empty() { "whole" } else { "NOT whole" };
    let (files, bytes) = (text::count(report.files), text::bytes(report.bytes));
    lines.push(format!("{} is {verdict}: {files} files, {bytes}, {} damages", bag.display(), report.damages.len()));
    lines.join("\n")
}

fn restore(args: &ArchiveArgs, output: &Path, stop: &AtomicBool) -> Result<Exit, Failure> {
    let output = std::path::absolute(output).map_err(|error| Failure::io("cannot use", output, &error))?;
    let restored = shown(args, |show| konkordia_archive::restore(&args.from, &output, stop, show))?;
    let Restored { files, kept, bytes, report } = &restored;
    if args.json {
        let mut value = report_json(report);
        value["restored"] = json!({ "folder": output, "files": files, "kept": kept, "bytes": bytes });
        console::json(&value, false);
    } else {
        if !report.damages.is_empty() {
            console::to_stdout(&report_text(&args.from, report));
        }
        let kept = if *kept == 0 { String::new() } else { format!(", {} were there already", text::count(*kept)) };
        let (files, bytes) = (text::count(*files), text::bytes(*bytes));
        console::to_stdout(&format!("{}: {files} files restored and compared{kept}, {bytes}", output.display()));
    }
    Ok(if report.damages.is_empty() { Exit::Complete } else { Exit::Incomplete })
}
