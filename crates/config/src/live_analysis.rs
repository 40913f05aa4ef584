//! `[analysis]`: images are analysed while they are measured.

use super::diagnostics::Diagnostics;
use super::read::Document;
use std::path::PathBuf;

/// The checked keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveAnalysis {
    /// The recipe, which is read when a run is armed or a series begins.
    pub recipe: PathBuf,
    /// Threads; `None` = half of the processors, at least 1.
    pub workers: Option<usize>,
    /// Images that may wait to be analysed or be in work.
    pub queue_images: usize,
}

/// Reads the table. `is_raw`: the images are words of the detector, which are not analysed.
pub(super) fn read(
    document: &Document,
    d: &mut Diagnostics,
    is_raw: bool,
    resolve: &dyn Fn(&str) -> PathBuf,
) -> Option<LiveAnalysis> {
    let table = document.table("analysis");
    table.span.as_ref()?;
    if is_raw {
        let fix = "remove [analysis], or choose another dtype in [processing]";
        d.add(table.span.clone(), "[analysis] with dtype = \"raw\"", "words of the detector are no photons", fix);
    }
    let Some(recipe) = table.text("recipe") else {
        d.add(table.span.clone(), "[analysis] has no recipe", "", "add recipe = \"FILE.toml\" (docs/analysis.md)");
        return None;
    };
    let whole = |key: &str| table.integer(key).map(|n| n as usize);
    Some(LiveAnalysis { recipe: resolve(recipe), workers: whole("workers"), queue_images: whole("queue_images").unwrap_or(16) })
}
