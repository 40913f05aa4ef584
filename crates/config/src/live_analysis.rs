//! `[analysis]`: images are analysed while they are measured.

use super::diagnostics::Diagnostics;
use super::read::Document;
use std::path::PathBuf;
use std::time::Duration;

/// The checked keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveAnalysis {
    /// The recipe, which is read when a run is armed or a series begins.
    pub recipe: PathBuf,
    /// The channel of images with several; `None` = the first.
    pub channel: Option<String>,
    /// Threads; `None` = half of the processors, at least 2.
    pub workers: Option<usize>,
    /// Images that may wait to be analysed or be in work.
    pub queue_images: usize,
    /// To whom spots are handed over.
    pub indexing: Option<Indexing>,
}

/// A program that indexes images from their spots (`[indexing]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexing {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Stored spots that an image must have.
    pub spots_min: u64,
    /// Longest time for an answer.
    pub answer_timeout: Duration,
}

/// Reads the table. `is_raw`: the images are words of the detector, which are not analysed.
pub(super) fn read(
    document: &Document,
    d: &mut Diagnostics,
    is_raw: bool,
    resolve: &dyn Fn(&str) -> PathBuf,
) -> Option<LiveAnalysis> {
    let table = document.table("analysis");
    if table.span.is_none() {
        let indexing = document.table("indexing").span.clone();
        if indexing.is_some() {
            d.add(
                indexing,
                "[indexing] without [analysis]",
                "there are no spots to hand over",
                "add [analysis] with a recipe that has [spots]",
            );
        }
        return None;
    }
    if is_raw {
        let fix = "remove [analysis], or choose another dtype in [processing]";
        d.add(table.span.clone(), "[analysis] with dtype = \"raw\"", "words of the detector are no photons", fix);
    }
    let Some(recipe) = table.text("recipe") else {
        d.add(table.span.clone(), "[analysis] has no recipe", "", "add recipe = \"FILE.toml\" (docs/analysis.md)");
        return None;
    };
    let whole = |key: &str| table.integer(key).map(|n| n as usize);
    let queue_images = whole("queue_images").unwrap_or(16);
    Some(LiveAnalysis {
        recipe: resolve(recipe),
        channel: table.text("channel").map(str::to_owned),
        workers: whole("workers"),
        queue_images,
        indexing: indexing(document, d),
    })
}

fn indexing(document: &Document, d: &mut Diagnostics) -> Option<Indexing> {
    let table = document.table("indexing");
    table.span.as_ref()?;
    let program = table.texts("program");
    if program.is_empty() {
        d.add(table.span.clone(), "[indexing] has no program", "", "add program = [\"/path/to/program\"] (docs/indexing.md)");
        return None;
    }
    let whole = |key: &str, own: i64| table.integer(key).unwrap_or(own) as u64;
    let answer_timeout = Duration::from_millis(whole("answer_timeout_ms", 1000));
    Some(Indexing { program, spots_min: whole("spots_min", 10), answer_timeout })
}
