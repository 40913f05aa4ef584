//! `konkordia repack`, and the archive copy after a run or a conversion.

use crate::console;
use crate::repack_args::RepackArgs;
use crate::run::signals;
use konkordia_acquire::analysis::tasks;
use konkordia_analysis::analyser::SpotMethod;
use konkordia_config::archive_copy::{ArchiveCopy, ArchiveLoss};
use konkordia_config::recipe::Recipe;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::output::Overwrite;
use konkordia_core::text;
use konkordia_input::images::Images;
use konkordia_repack::archive_copy::{compression, make};
use konkordia_repack::spots::SpotCopy;
use konkordia_repack::{Progress, Settings, repack};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// `konkordia repack FILE -o OUT`
pub fn command(args: &RepackArgs) -> Result<Exit, Failure> {
    let compression = args.compression()?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.workers.map_or(processors, usize::from);
    let spots = args.keeps_spots().then(|| spots(args)).transpose()?;
    let settings =
        Settings { compression, spots, workers, verify: args.verify, delete_source: args.delete_source, notes: Vec::new() };
    let stop = signals::stop_flag()?;
    let started = Instant::now();
    let outcome = shown(args.quiet || args.json, |show| repack(&args.file, &args.output, &settings, &stop, show))?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        let value = json!({
            "master": outcome.master, "files": outcome.files, "kept": outcome.kept, "complete": outcome.complete, "seconds": seconds,
            "compression": settings.words(), "verified": outcome.complete && outcome.compared.is_all(),
            "compared": {"files": outcome.compared.files, "images": outcome.compared.images, "files_not_compared": outcome.compared.files_not_compared},
            "totals": outcome.totals.to_json(compression),
        });
        console::json(&value, false);
    } else {
        console::to_stdout(&outcome.totals.to_text(&outcome, compression, seconds, args.verify));
    }
    if !outcome.complete {
        console::to_stderr("stopped; finished files are kept, and the same command goes on from there");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Complete)
}

/// How spots are found without a recipe: as DIALS finds them.
const RECIPE: &str = "[spots]\nmethod = \"dispersion\"\n";

/// What `--compression spots` keeps. Mask and valid values come from the file, the settings of the finder from the
/// recipe.
fn spots(args: &RepackArgs) -> Result<SpotCopy, Failure> {
    let recipe = match &args.recipe {
        Some(path) => Recipe::load(path)?,
        None => Recipe::parse(RECIPE, Path::new("the recipe of this program"))?,
    };
    let wrong = |what: &str, why: String, fix: &str| Failure::new(Exit::Usage, what, why, fix);
    // Nothing else of the recipe matters here; regions, for example, may need a geometry.
    let only_spots = Recipe { spots: recipe.spots, ..Recipe::default() };
    let tasks = tasks::of(&only_spots, None).map_err(|why| wrong("this recipe cannot be followed", why, "correct the recipe"))?;
    let Some(task) = tasks.spots else {
        let why = "it has no table [spots]".to_owned();
        return Err(wrong("the recipe does not say how spots are found", why, "add [spots] with method = \"dispersion\""));
    };
    let SpotMethod::Dispersion(finder) = task.method else {
        let why = "peakfinder8 compares pixels with whole rings, which a coarser background changes".to_owned();
        let fix = "set method = \"dispersion\" in [spots], or give no recipe";
        return Err(wrong("spots are kept only as \"dispersion\" finds them", why, fix));
    };
    let facts = Images::open(std::slice::from_ref(&args.file), None)?.facts;
    if facts.channels > 1 {
        let (what, why) =
            ("images with several channels have no spots to keep", format!("they have {} channels", facts.channels));
        return Err(Failure::new(Exit::Usage, what, why, "choose another compression"));
    }
    let copy = SpotCopy {
        margin_px: args.margin_px.unwrap_or_else(|| finder.reach_px()),
        finder,
        spots_max: task.spots_max,
        background_sigma: args.background_sigma.unwrap_or(1.0),
        shape: facts.shape,
        pixel: facts.pixel,
        usable: facts.usable,
        valid: facts.valid,
    };
    let fix = "correct --background-sigma, --margin-px or the recipe";
    copy.check().map_err(|why| wrong("spots cannot be kept so", why, fix))?;
    Ok(copy)
}

/// Does `work` while a line shows its progress.
pub fn shown<T>(quiet: bool, work: impl FnOnce(&mut dyn FnMut(&Progress)) -> T) -> T {
    let mut line = console::Progress::new(quiet);
    let done = work(&mut |progress| line.update(|| text_of(progress)));
    line.end();
    done
}

fn text_of(progress: &Progress) -> String {
    let seconds = progress.started.elapsed().as_secs_f64();
    let (done, images) = (progress.images_done, progress.images);
    let left = seconds / done as f64 * (images - done) as f64;
    let rate = progress.bytes as f64 / seconds / 1e6;
    format!("{} of {} images, {rate:.0} MB/s of pixels, {left:.0} s left", text::count(done), text::count(images))
}

/// Makes the copy and reports it. A failure changes neither the run nor its exit code.
pub fn archive_copy(archive_copy: &ArchiveCopy, overwrite: Overwrite, master: &Path, quiet: bool, as_json: bool) {
    let made = shown(quiet || as_json, |show| make(archive_copy, overwrite, master, show));
    let compression = compression(archive_copy);
    let event = |rest: Value| {
        let mut event = match archive_copy.loss {
            ArchiveLoss::Sz3(bound) => json!({"event": "travel", "error_bound": bound.value()}),
            ArchiveLoss::Spots(sigma) => json!({"event": "travel", "background_sigma": sigma}),
        };
        if let (Some(event), Value::Object(rest)) = (event.as_object_mut(), rest) {
            event.extend(rest);
        }
        console::json(&event, true);
    };
    match made {
        Ok(outcome) if as_json => {
            event(json!({"master": outcome.master, "files": outcome.files, "totals": outcome.totals.to_json(compression)}));
        }
        Ok(outcome) => console::to_stdout(&format!("archive   {}: {}", outcome.master.display(), outcome.totals.loss_text())),
        Err(failure) => {
            if as_json {
                event(json!({"error": failure.what, "why": failure.why}));
            }
            console::to_stderr(&format!("the run is not affected, but its archive copy could not be made\n{failure}"));
        }
    }
}
