//! `[travel]`: a small lossy copy of the run, made when it is over.

use super::diagnostics::Diagnostics;
use super::read::Document;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{ErrorBound, Recipe};
use std::path::{Path, PathBuf};

/// What is made and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Travel {
    /// Folder of the copy, resolved.
    pub directory: PathBuf,
    /// First part of its names.
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
) -> Option<Travel> {
    let t = document.table("travel");
    if !t.flag("enabled").unwrap_or(false) {
        return None;
    }
    if recipe == Recipe::Raw {
        let why = "words of the detector have the gain in their highest bits: an error there is no small one";
        d.add(t.span("enabled"), "travel.enabled: not with dtype = \"raw\"", why, "convert the words, or remove [travel]");
        return None;
    }
    let asked = t.number("error_bound").unwrap_or(2.0);
    if pixel != PixelType::Float32 && asked < 1.0 {
        let what = format!("travel.error_bound: {asked} is no error at all for {pixel}");
        d.add(t.span("error_bound"), what, "its pixels are whole numbers", "give 1 or more");
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
            "the copy must not lie over the run",
            "give another name; put the folder into travel.directory",
        );
        return None;
    }
    Some(Travel { directory, prefix: name, bound: ErrorBound::new(asked)? })
}
