//! The file in which shapes survive a restart. It is replaced as a whole, so there is an old or a new one at any time.

use super::drawing::Drawing;
use super::form::DrawnShapes;
use konkordia_core::failure::{Exit, Failure};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The form of the file.
const VERSION: u32 = 1;
/// Most bytes that are read: far more than shapes can have.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    konkordia_shapes: u32,
    changed_by: Option<String>,
    changed_at: Option<String>,
    shapes: DrawnShapes,
}

/// Reads the file; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Drawing>, Failure> {
    let mut text = Vec::new();
    // A pipe or a device could keep the service from starting.
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other,
    };
    let read = metadata.and_then(|metadata| {
        if !metadata.is_file() {
            return Err(std::io::Error::other("it is no file"));
        }
        File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)
    });
    let fix = "correct or remove the file and restart the service; the next change of the shapes replaces it";
    let wrong = |why: String| {
        let what = format!("the drawn mask and regions in {} cannot be read, and there are none now", path.display());
        Failure::new(Exit::Configuration, what, why, fix)
    };
    read.map_err(|error| wrong(konkordia_core::failure::reason(&error)))?;
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if kept.konkordia_shapes != VERSION {
        return Err(wrong(format!("it is of form {}, this program reads form {VERSION}", kept.konkordia_shapes)));
    }
    Drawing::new(kept.shapes, kept.changed_by, kept.changed_at).map(Some).map_err(wrong)
}

/// Replaces the file. When this returns, it survives a power cut.
pub(super) fn write(path: &Path, drawing: &Drawing) -> Result<(), Failure> {
    let Drawing { changed_by, changed_at, shapes, .. } = drawing;
    let (changed_by, changed_at, shapes) = (changed_by.clone(), changed_at.clone(), shapes.clone());
    let kept = Kept { konkordia_shapes: VERSION, changed_by, changed_at, shapes };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = serde_json::to_vec_pretty(&kept).map_err(std::io::Error::other).and_then(|text| {
        let mut file = File::create(&beside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Failure::io("the shapes cannot be kept in", path, &error)
    })?;
    let _ = path.parent().map(|folder| File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}
