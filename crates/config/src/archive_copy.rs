//! `[travel]`: a small lossy archive copy of the run, made after the run.

use super::diagnostics::Diagnostics;
use super::read::{Document, Table};
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::{ErrorBound, Recipe};
use std::path::{Path, PathBuf};

/// What the archive copy may lose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArchiveLoss {
    /// Packed with SZ3: the largest error of a pixel.
    Sz3(ErrorBound),
    /// Bragg spots stay, the background is rounded: how many of its Poisson errors a pixel may move.
    Spots(f64),
}

/// Place of the archive copy, and what it may lose.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchiveCopy {
    /// Folder of the copy, resolved.
    pub directory: PathBuf,
    /// First part of its file names.
    pub prefix: String,
    /// What it may lose.
    pub loss: ArchiveLoss,
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
    let loss = loss(t, d, pixel)?;
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
    Some(ArchiveCopy { directory, prefix: name, loss })
}

/// What the copy may lose. The keys of the other compression are refused: they would have no effect.
fn loss(t: &Table, d: &mut Diagnostics, pixel: PixelType) -> Option<ArchiveLoss> {
    let is_spots = t.text("compression") == Some("spots");
    let (other, why) = if is_spots {
        ("error_bound", "spots keeps pixels within their own Poisson error, not within one bound for all")
    } else {
        ("background_sigma", "sz3 keeps all pixels within one error bound")
    };
    if let Some(span) = t.span(other) {
        d.add(Some(span), format!("travel.{other} has no effect"), why, "remove it, or choose the other travel.compression");
        return None;
    }
    if is_spots && pixel == PixelType::Float32 {
        let why = "spots rounds whole numbers, and float32 pixels are none";
        d.add(t.span("compression"), "travel.compression: not with float32 pixels", why, "choose sz3");
        return None;
    }
    if is_spots {
        return Some(ArchiveLoss::Spots(t.number("background_sigma").unwrap_or(1.0)));
    }
    let asked = t.number("error_bound").unwrap_or(2.0);
    if pixel != PixelType::Float32 && asked < 1.0 {
        let what = format!("travel.error_bound: {asked} is too small for {pixel} pixels");
        d.add(t.span("error_bound"), what, "they are whole numbers: a bound below 1 allows no error", "give 1 or more");
        return None;
    }
    ErrorBound::new(asked).map(ArchiveLoss::Sz3)
}
