//! Opens finished files for those who want their images.

use super::cache::Kept;
use super::place;
use crate::http::problem::Problem;
use crate::http::state::Shared;
use crate::http::turns;
use konkordia_acquire::handle::{Detector, FileImages, ImageRing};
use std::sync::Arc;
use std::time::Instant;

/// The images of a finished file of this detector, in the form of the ring. Nobody else may wait for it long: one file
/// is looked at at a time, for at most 20 s.
///
/// # Errors
/// There is no such file, it is not one of this detector, it is still being written, or holds no images that can be
/// offered.
pub async fn open(shared: &Shared, detector: &Arc<dyn Detector>, path: &str) -> Result<Arc<dyn ImageRing>, Problem> {
    Ok(kept(shared, detector, path).await?.images.clone())
}

/// As [`open`], with what else is known of the file.
pub async fn kept(shared: &Shared, detector: &Arc<dyn Detector>, path: &str) -> Result<Arc<Kept>, Problem> {
    let cache = &shared.files;
    let key = (detector.name().to_owned(), path.to_owned());
    if let Some(kept) = cache.seen(&key, Instant::now()) {
        return kept;
    }
    let looking = turns::turn(&cache.looks, 1).await?;
    let found = (Arc::clone(detector), path.to_owned());
    let found = tokio::task::spawn_blocking(move || {
        let _looking = looking;
        place::find(&*found.0, &found.1)
    });
    let (master, identity) = found.await.map_err(|_| Problem::bug("the service made a mistake with this path"))??;
    if let Some(kept) = cache.find(&master, &identity, &key, Instant::now()) {
        return kept;
    }
    let reading = turns::turn(&cache.reads, 1).await?;
    // Somebody else may have asked for the same file just before.
    if let Some(kept) = cache.find(&master, &identity, &key, Instant::now()) {
        return kept;
    }
    let path = master.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let _reading = reading;
        FileImages::open(&path).map_err(|failure| place::problem(&failure)).and_then(place::inside)
    });
    let opened = opened.await.map_err(|_| Problem::bug("the service made a mistake with this file"))?;
    let kept = opened.map(|images| Arc::new(Kept::new(Arc::new(images))));
    cache.keep(master, identity, key, &kept, Instant::now());
    kept
}

/// Says that an image of a file cannot be had.
pub fn none(ring: &dyn ImageRing, path: &str, number: Option<u64>) -> Problem {
    let images = ring.numbers().0.len();
    let detail = match (images, number) {
        (0, _) => format!("{path} has no images"),
        (_, Some(number)) if number < images as u64 => {
            format!("image {number} of {path} cannot be read: its data file is gone, was changed or is damaged")
        }
        _ => format!("{path} has the images 0 to {}", images - 1),
    };
    Problem::new("no_image", detail, "GET /api/v1/file says what is in the file; `konkordia check` says what is wrong with it")
}
