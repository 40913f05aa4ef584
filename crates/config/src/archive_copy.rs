//! `[travel]`: a small lossy archive copy of the run, made after the run.

use super::diagnostics::Diagnostics;
use super::read::Document;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{ErrorBound, Recipe};
use std::path::{Path, PathBuf};

/// Place and error bound of the archive copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveCopy {
    /// Folder of the copy, resolved.
    pub directory: PathBuf,
    /// First part of its file names.
    pub prefix: String,
    /// Largest error of a pixel.
    pub bound: ErrorBound,
}

/// Reads the table; `directory` and `prefix` are those of the main file.
pub fn read(
    document: &Document,
    d: &mut Diagnostics,
    resolve: &dyn Fn(&str) -> PathBuf,
    (recipe, pixel): (Recipe, PixelType),
    (directory, prefix): (&Path, &str),
) -> Option<ArchiveCopy> {
    let t = document.table("travel");
    if !t.flag("enabled").unwrap_or(false) {
        return None;
    }
    if recipe == Recipe::Raw {
        let why = "raw words have the gain stage in their highest bits, so a small error can change the stage";
        d.add(t.span("enabled"), "travel.enabled: not with dtype = \"raw\"", why, "convert the words, or remove [travel]");
        return None;
    }
    let asked = t.number("error_bound").unwrap_or(2.0);
    if pixel != PixelType::Float32 && asked < 1.0 {
        let what = format!("travel.error_bound: {asked} is too small for {pixel} pixels");
        d.add(t.span("error_bound"), what, "they are whole numbers: a bound below 1 allows no error", "give 1 or more");
        return None;
    }
    let directory = t.text("directory").map_or_else(|| directory.to_owned(), resolve);
    let name = t.text("prefix").map_or_else(|| format!("{prefix}_travel"), str::to_owned);
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']) && name.len() <= 200;
    if !plain || name == prefix {
        let what = format!("travel.prefix: \"{name}\" is not a plain file name of its own");
        d.add(
            t.span("prefix"),
            what,
            "the copy must not overwrite the run",
            "give another name; put the folder into travel.directory",
        );
        return None;
    }
    Some(ArchiveCopy { directory, prefix: name, bound: ErrorBound::new(asked)? })
}
