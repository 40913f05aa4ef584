//! `konkordia import` and `konkordia export`: images between the files of this program and those of others.
//! `konkordia_exchange` does it.

pub mod args;

use crate::console;
use crate::run::signals;
use args::{ExportArgs, ImportArgs};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::text;
use konkordia_exchange::export::{self, Export};
use konkordia_exchange::import::{Compared, Done, Import, Progress};
use serde_json::{Value, json};

/// `konkordia import INPUT... -o OUT`
pub fn import(args: &ImportArgs) -> Result<Exit, Failure> {
    let request = args.request()?;
    let stop = signals::stop_flag()?;
    if args.watch {
        let done = shown(args.quiet || args.json, |show| args.watched().run(&request, &stop, show))?;
        report_import(args, &done, None);
        return Ok(done.exit());
    }
    let import = Import::open(request)?;
    announce(args, &import);
    if args.dry_run {
        return Ok(if import.series().gaps() == 0 { Exit::Complete } else { Exit::Incomplete });
    }
    let done = shown(args.quiet || args.json, |show| import.run(&stop, show))?;
    let compared = (args.verify && !done.stopped).then(|| {
        if !args.quiet && !args.json {
            console::to_stderr("verifying: every image is decoded and compared with its original");
        }
        shown(args.quiet || args.json, |show| import.verify(&stop, show))
    });
    let compared = compared.transpose()?;
    report_import(args, &done, compared.as_ref());
    if let Some(compared) = compared {
        compared.judge()?;
        if !compared.is_whole {
            return Ok(Exit::Interrupted);
        }
    }
    Ok(done.exit())
}

/// Prints what was found.
fn announce(args: &ImportArgs, import: &Import) {
    let (series, spec) = (import.series(), import.spec());
    if args.json {
        let event = json!({
            "event": "found", "kind": series.kind, "files": series.files.len(), "images": series.items.len(),
            "positions": series.positions, "lost": series.gaps(), "first_number": series.first_number,
            "rows": spec.rows, "columns": spec.columns, "pixel": spec.pixel.name(), "master": import.master(),
            "unreadable": series.unreadable.iter().map(Failure::detail).collect::<Vec<_>>(),
            "notes": import.notes().iter().map(|(name, text)| format!("{name} {text}")).collect::<Vec<_>>(),
        });
        return console::json(&event, true);
    }
    if !args.quiet {
        let rows = [
            (
                "input",
                format!(
                    "{} {} file(s), {} image(s)",
                    text::count(series.files.len() as u64),
                    series.kind,
                    text::count(series.items.len() as u64)
                ),
            ),
            ("image", format!("{} x {} pixels, {}, {}", spec.rows, spec.columns, spec.pixel, spec.compression.name())),
            ("file", import.master().display().to_string()),
        ];
        console::to_stderr(&rows.map(|(name, value)| format!("  {name:<6} {value}")).join("\n"));
    }
    if series.gaps() > 0 {
        console::note(&format!(
            "{} numbers are missing and become lost images: {}",
            text::count(series.gaps()),
            series.gaps_in_words()
        ));
    }
    import.notes().iter().for_each(|(name, text)| console::note(&format!("{name} {text}")));
}

fn report_import(args: &ImportArgs, done: &Done, compared: Option<&Compared>) {
    if args.json {
        let value = json!({
            "event": "report", "master": done.file.master, "data_files": done.file.data_files, "positions": done.file.images,
            "complete": done.complete, "lost": done.lost, "images_kept": done.images_kept, "stopped": done.stopped,
            "pixel_bytes": done.pixel_bytes, "chunk_bytes": done.file.chunk_bytes, "headers_lacking": done.lacking,
            "unreadable": done.unreadable.iter().map(Failure::detail).collect::<Vec<_>>(),
            "compared": compared.map_or(Value::Null, |c| json!({
                "images": c.images, "different": c.different, "first_different": c.first_different, "whole": c.is_whole,
            })),
        });
        return console::json(&value, true);
    }
    done.unreadable.iter().for_each(|failure| console::note(&failure.detail()));
    if done.lacking > 0 {
        console::note(&format!("{} values are not in the headers where the mapping looks for them", text::count(done.lacking)));
    }
    let ratio = done.pixel_bytes as f64 / done.file.chunk_bytes.max(1) as f64;
    let mut lines = vec![
        format!("file      {}", done.file.master.display()),
        format!(
            "images    {} written, {} kept from before, {} lost, of {} positions",
            text::count(done.complete.saturating_sub(done.images_kept.min(done.complete))),
            text::count(done.images_kept),
            text::count(done.lost),
            text::count(done.file.images)
        ),
        format!("pixels    {} in {}, 1 : {ratio:.1}", text::bytes(done.pixel_bytes), text::bytes(done.file.chunk_bytes)),
    ];
    lines.extend(compared.map(|c| format!("compared  {} images, {} differ", text::count(c.images), text::count(c.different))));
    if done.stopped {
        lines.push("stopped   the same command with --resume goes on from here".into());
    }
    console::to_stdout(&lines.join("\n"));
}

/// `konkordia export FILE -o OUT --format KIND`
pub fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    let export = Export::open(args.request())?;
    let stop = signals::stop_flag()?;
    if !args.json && !args.quiet {
        let facts = export.facts();
        let [rows, columns] = facts.shape;
        console::to_stderr(&format!("  {} images of {rows} x {columns} pixels, {}", text::count(export.images()), facts.pixel));
    }
    let done = shown(args.quiet || args.json, |show| export.run(&stop, show))?;
    report_export(args, &export, &done);
    Ok(done.exit())
}

fn report_export(args: &ExportArgs, export: &Export, done: &export::Done) {
    let first = export.path(args.images.map_or(0, |(from, _)| from));
    if args.json {
        let value = json!({
            "event": "report", "format": args.format.name(), "first_file": first, "written": done.written, "kept": done.kept,
            "lost": done.lost, "compared": done.compared, "marked_pixels": done.marked_pixels,
            "pixel_bytes": done.pixel_bytes, "stopped": done.stopped,
        });
        return console::json(&value, true);
    }
    let mut lines = vec![format!(
        "{} images written ({} and so on), {} files kept, {} compared, {} images are lost and have no file",
        text::count(done.written),
        first.display(),
        text::count(done.kept),
        text::count(done.compared),
        text::count(done.lost)
    )];
    if done.marked_pixels > 0 {
        lines.push(format!(
            "{} pixels are no measurement: -1 where the mask says so, -2 elsewhere",
            text::count(done.marked_pixels)
        ));
    }
    if done.stopped {
        lines.push("stopped; files that are whole are kept: the same command with --resume goes on".into());
    }
    console::to_stdout(&lines.join("\n"));
}

/// Does `work` while a line shows its progress.
fn shown<T>(quiet: bool, work: impl FnOnce(&mut dyn FnMut(&Progress)) -> T) -> T {
    let mut line = console::Progress::new(quiet);
    let done = work(&mut |progress| line.update(|| text_of(progress)));
    line.end();
    done
}

fn text_of(progress: &Progress) -> String {
    let seconds = progress.started.elapsed().as_secs_f64();
    let rate = progress.bytes as f64 / seconds / 1e6;
    let done = text::count(progress.images_done);
    if progress.images == 0 {
        return format!("{done} images");
    }
    let left = seconds / progress.images_done.max(1) as f64 * progress.images.saturating_sub(progress.images_done) as f64;
    format!("{done} of {} images, {rate:.0} MB/s of pixels, {left:.0} s left", text::count(progress.images))
}
