//! Checks a bag: is every file there and unchanged, and if not, what of it has changed?

use crate::hash::{self, Show};
use crate::info::{self, INFO};
use crate::manifest::{self, MANIFEST, Sums, TAG_MANIFEST};
use crate::paths::{self, CHUNKS, PAYLOAD};
use crate::sums::{self, Chunk};
use konkordia_core::failure::{Exit, Failure};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// One thing that is wrong with a bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, as the manifest names it.
    pub file: String,
    /// Data set in the file; empty if the damage is not in one.
    pub dataset: String,
    /// Image, as in [`Chunk::image`]; empty if the damage is not in an image.
    pub image: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Files that were compared with their sum, those that describe the bag included.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong; empty if the bag is complete and unchanged.
    pub damages: Vec<Damage>,
}

impl Report {
    fn push(&mut self, file: &str, what: impl Into<String>, fix: &str) {
        let (dataset, image) = (String::new(), String::new());
        self.damages.push(Damage { file: file.into(), dataset, image, what: what.into(), fix: fix.into() });
    }
}

const COPY: &str = "bring this file back from another copy of the bag";
const IMAGE: &str = "bring this file back from another copy of the bag; all images that are not named here are unchanged";

/// Compares every file of a bag with its sum, and names what has changed: the image, where the bag has the sums of
/// chunks.
///
/// # Errors
/// The folder is no bag, its manifest cannot be read, a file cannot be read, or `stop`. A file that has changed or is
/// missing is no error, but part of the report.
pub fn check(bag: &Path, stop: &AtomicBool, show: Show<'_>) -> Result<Report, Failure> {
    info::declared(bag)?;
    let payload = manifest::read(bag, MANIFEST)?;
    let mut report = Report::default();
    let tags = match manifest::read(bag, TAG_MANIFEST) {
        Ok(tags) => tags,
        Err(failure) => {
            report.push(
                TAG_MANIFEST,
                failure.detail(),
                "bring it back from another copy; until then the manifest itself is not checked",
            );
            Sums::new()
        }
    };
    if bag.join("fetch.txt").exists() {
        report.push("fetch.txt", "the bag leaves out files that are elsewhere", "get a bag that holds its files");
    }
    for (file, sum) in &tags {
        one(bag, file, sum, None, &mut report, stop, show)?;
    }
    for (file, sum) in &payload {
        if !file.starts_with(&format!("{PAYLOAD}/")) {
            report.push(file, "the manifest names a file outside of the payload", "get another copy of the bag");
            continue;
        }
        let chunks = chunks_of(bag, file, &tags)?;
        one(bag, file, sum, chunks.as_deref(), &mut report, stop, show)?;
    }
    unknown(bag, &payload, &mut report)?;
    if let Ok(fields) = info::read(bag, INFO)
        && let Some((bytes, files)) = info::oxum(&fields)
    {
        let found = payload.len() as u64;
        if found != files {
            report.push(INFO, format!("Payload-Oxum says {files} files and {bytes} bytes, the manifest {found} files"), COPY);
        }
    }
    Ok(report)
}

/// The sums of the chunks of a file; `None` if the bag has none, or they have changed themselves.
fn chunks_of(bag: &Path, file: &str, tags: &Sums) -> Result<Option<Vec<Chunk>>, Failure> {
    let name = format!("{CHUNKS}/{file}.tsv");
    let path = paths::inside(bag, &name)?;
    let Some(sum) = tags.get(&name) else { return Ok(None) };
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    Ok((hash::of_bytes(text.as_bytes()) == *sum).then(|| sums::from_text(&text)).flatten())
}

/// Checks one file.
fn one(
    bag: &Path,
    file: &str,
    sum: &str,
    chunks: Option<&[Chunk]>,
    report: &mut Report,
    stop: &AtomicBool,
    show: Show<'_>,
) -> Result<(), Failure> {
    let path = paths::inside(bag, file)?;
    match path.metadata() {
        Ok(facts) if facts.is_file() => {}
        Ok(_) => {
            report.push(file, "it is not a file", COPY);
            return Ok(());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            report.push(file, "it is missing", COPY);
            return Ok(());
        }
        Err(error) => return Err(Failure::io("cannot read", &path, &error)),
    }
    let ranges = chunks.unwrap_or_default();
    let (found, bytes, crcs) = hash::of_file(&path, ranges, None, stop, show)?;
    report.files += 1;
    report.bytes += bytes;
    if found == *sum {
        return Ok(());
    }
    let before = report.damages.len();
    for (chunk, _) in ranges.iter().zip(crcs).filter(|(chunk, crc)| chunk.crc32 != *crc || chunk.end() > bytes) {
        let what = if chunk.end() > bytes { "the file ends before it" } else { "its bytes have changed" };
        let image = if chunk.image == "-" { String::new() } else { chunk.image.clone() };
        let (what, fix) = (what.into(), IMAGE.into());
        report.damages.push(Damage { file: file.into(), dataset: chunk.dataset.clone(), image, what, fix });
    }
    if report.damages.len() == before {
        let what = match chunks {
            Some([_, ..]) => "its bytes have changed outside of the images: in its structure, or in small values",
            Some([]) => "its bytes have changed",
            None => "its bytes have changed (the bag has no sums of its chunks)",
        };
        report.push(file, what, COPY);
    }
    Ok(())
}

/// Names files of the payload that the manifest does not have.
fn unknown(bag: &Path, payload: &Sums, report: &mut Report) -> Result<(), Failure> {
    let mut found = BTreeSet::new();
    let mut open = vec![PAYLOAD.to_owned()];
    while let Some(folder) = open.pop() {
        let path = bag.join(&folder);
        let failed = |error| Failure::io("cannot read", &path, &error);
        let entries = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder == PAYLOAD => {
                report.push(PAYLOAD, "the folder of the payload is missing", "bring it back from another copy of the bag");
                return Ok(());
            }
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().map_err(failed)?.is_dir() {
                open.push(name);
            } else {
                found.insert(name);
            }
        }
    }
    for file in found.iter().filter(|file| !payload.contains_key(*file)) {
        report.push(file, "the manifest does not name it", "move it out of the bag, or make a new bag with it");
    }
    Ok(())
}

/// The failure of a bag that is not whole.
pub(crate) fn not_whole(bag: &Path, report: &Report) -> Failure {
    let first = report.damages.first().map_or(String::new(), |damage| format!("{}: {}", damage.file, damage.what));
    let what = format!("{} is not whole: {} damages", bag.display(), report.damages.len());
    Failure::new(Exit::Incomplete, what, first, "`konkordia archive --check BAG` names all of them")
}
