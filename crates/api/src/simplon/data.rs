//! `/data/FILE`: the files of runs that have ended since the service began, as far as they lie in the output folder. No
//! other file can be named: a name is looked up in the list of them, and never becomes a path.

use super::shared::{Shared, Simplon};
use crate::http::audit::AuditBody;
use crate::http::machine::look;
use crate::http::problem::Problem;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use konkordia_acquire::handle::{Detector, FileEntry, FileState};
use konkordia_core::failure::reason;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, SeekFrom};
use std::path::{Path as FilePath, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncSeekExt, ReadBuf};
use tokio_stream::Stream;

/// Bytes handed to the connection at once.
const PIECE_BYTES: usize = 1 << 20;
const MASTER: &str = "_master.h5";

/// Names of all files, as they are asked for.
///
/// # Errors
/// The disk does not answer.
pub async fn names(simplon: &Arc<Simplon>) -> Result<Vec<String>, Problem> {
    let detector = Arc::clone(&simplon.port.detector);
    Ok(look(&simplon.port.shared, move || listed(&*detector)).await?.into_keys().collect())
}

/// The files by their names, which count from the output folder. Links are followed: what lies outside of that folder
/// is not among them. Asks the file system.
fn listed(detector: &dyn Detector) -> BTreeMap<String, PathBuf> {
    let folder =
        detector.configuration()["output"]["directory"].as_str().and_then(|folder| FilePath::new(folder).canonicalize().ok());
    let Some(folder) = folder else { return BTreeMap::new() };
    let mut masters: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for (place, name) in detector.files().iter().filter_map(|entry| of_entry(entry, &folder)) {
        masters.entry(place).or_default().insert(name);
    }
    let mut found = BTreeMap::new();
    for (place, masters) in masters {
        let Ok(entries) = std::fs::read_dir(&place) else { continue };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        for name in names.filter(|name| is_of_run(name, &masters)) {
            let Ok(path) = place.join(&name).canonicalize() else { continue };
            let is_inside = path.starts_with(&folder) && path.is_file();
            let below = place.strip_prefix(&folder).ok().and_then(|below| below.join(&name).to_str().map(str::to_owned));
            if let (true, Some(below)) = (is_inside, below) {
                found.insert(below, path);
            }
        }
    }
    found
}

/// Folder and name of the master of a run that has ended.
fn of_entry(entry: &FileEntry, folder: &FilePath) -> Option<(PathBuf, String)> {
    if entry.state == FileState::Writing || entry.master.is_empty() {
        return None;
    }
    let master = FilePath::new(&entry.master);
    let place = master.parent()?.canonicalize().ok()?;
    let name = master.file_name()?.to_str()?.to_owned();
    place.starts_with(folder).then_some((place, name))
}

/// True for a master, and for the data files of one: PREFIX_data_000001.h5.
fn is_of_run(name: &str, masters: &BTreeSet<String>) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = || {
        let (prefix, number) = name.strip_suffix(".h5")?.rsplit_once("_data_")?;
        is_number(number).then_some(prefix)
    };
    masters.contains(name) || prefix().is_some_and(|prefix| masters.contains(&format!("{prefix}{MASTER}")))
}

async fn find(simplon: &Arc<Simplon>, name: &str) -> Result<PathBuf, Problem> {
    let (detector, wanted) = (Arc::clone(&simplon.port.detector), name.to_string());
    let found = look(&simplon.port.shared, move || listed(&*detector).remove(&wanted)).await?;
    found.ok_or_else(|| {
        let hint = "filewriter/api/1.8.0/status/files lists the files of runs that have ended";
        let shown: String = name.chars().take(200).collect();
        Problem::new("no_file", format!("{shown:?} is no file of '{}'", simplon.port.detector.name()), hint)
    })
}

/// The bytes of a file, or of a range of it.
pub async fn read(
    State(simplon): Shared,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let path = find(&simplon, &name).await?;
    let unreadable = |error: &io::Error| Problem::new("bad_file", format!("{name} cannot be read: {}", reason(error)), "");
    let mut file = File::open(&path).await.map_err(|error| unreadable(&error))?;
    let bytes = file.metadata().await.map_err(|error| unreadable(&error))?.len();
    let asked = headers.get(header::RANGE).and_then(|range| range.to_str().ok()).and_then(|range| part(range, bytes));
    let mut response =
        Response::builder().header(header::CONTENT_TYPE, "application/x-hdf5").header(header::ACCEPT_RANGES, "bytes");
    let (first, end) = match asked {
        None => (0, bytes),
        Some(Ok((first, end))) => {
            let range = format!("bytes {first}-{}/{bytes}", end - 1);
            response = response.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, range);
            (first, end)
        }
        Some(Err(NotInFile)) => {
            let range = [(header::CONTENT_RANGE, format!("bytes */{bytes}"))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range, format!("{name} has {bytes} bytes")).into_response());
        }
    };
    file.seek(SeekFrom::Start(first)).await.map_err(|error| unreadable(&error))?;
    let body = if method == Method::HEAD { Body::empty() } else { Body::from_stream(Pieces { file, left: end - first }) };
    let response = response.header(header::CONTENT_LENGTH, end - first).body(body);
    response.map_err(|_| Problem::bug("the headers of the file do not fit"))
}

/// The range begins behind the end of the file.
#[derive(Debug, PartialEq, Eq)]
struct NotInFile;

/// First byte and end of the one range in a header; `None` for everything that is answered with the whole file.
fn part(range: &str, bytes: u64) -> Option<Result<(u64, u64), NotInFile>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, end) = match (first.trim(), last.trim()) {
        ("", last) => (bytes.saturating_sub(last.parse().ok()?), bytes),
        (first, "") => (first.parse().ok()?, bytes),
        (first, last) => (first.parse().ok()?, last.parse::<u64>().ok()?.saturating_add(1).min(bytes)),
    };
    Some(if first < end { Ok((first, end)) } else { Err(NotInFile) })
}

/// The bytes of a file, one piece at a time.
struct Pieces {
    file: File,
    left: u64,
}

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut piece = vec![0; self.left.min(PIECE_BYTES as u64) as usize];
        if piece.is_empty() {
            return Poll::Ready(None);
        }
        let mut buffer = ReadBuf::new(&mut piece);
        match Pin::new(&mut self.file).poll_read(context, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
            Poll::Ready(Ok(())) => {}
        }
        let count = buffer.filled().len();
        if count == 0 {
            return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        piece.truncate(count);
        self.left -= count as u64;
        Poll::Ready(Some(Ok(piece.into())))
    }
}

/// Deletes a file.
pub async fn remove(State(simplon): Shared, Path(name): Path<String>) -> Result<(StatusCode, Extension<AuditBody>), Problem> {
    let path = find(&simplon, &name).await?;
    let removed = look(&simplon.port.shared, move || std::fs::remove_file(&path)).await?;
    removed.map_err(|error| {
        Problem::new("refused", format!("{name} cannot be deleted: {}", reason(&error)), "look at its folder")
    })?;
    Ok((StatusCode::NO_CONTENT, simplon.audit(json!({ "file": name }))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_masters_and_their_data_files_are_files_of_a_run() {
        let masters = BTreeSet::from(["run_7_master.h5".to_string(), "single.h5".into()]);
        for name in ["run_7_master.h5", "run_7_data_000001.h5", "single.h5"] {
            assert!(is_of_run(name, &masters), "{name}");
        }
        for name in
            ["run_7_data_.h5", "run_7_data_x.h5", "run_8_data_000001.h5", "run_7.toml", "single_data_000001.h5", "_data_1.h5"]
        {
            assert!(!is_of_run(name, &masters), "{name}");
        }
    }

    #[test]
    fn one_range_of_bytes_is_understood_and_everything_else_is_the_whole_file() {
        assert_eq!(part("bytes=0-9", 100), Some(Ok((0, 10))));
        assert_eq!(part("bytes=90-", 100), Some(Ok((90, 100))));
        assert_eq!(part("bytes=-10", 100), Some(Ok((90, 100))));
        assert_eq!(part("bytes=-1000", 100), Some(Ok((0, 100))));
        assert_eq!(part("bytes=90-1000", 100), Some(Ok((90, 100))));
        for nowhere in ["bytes=100-", "bytes=9-8", "bytes=-0", "bytes=0-18446744073709551615"] {
            let is_all = nowhere.starts_with("bytes=0-");
            assert_eq!(part(nowhere, 100), Some(if is_all { Ok((0, 100)) } else { Err(NotInFile) }), "{nowhere}");
        }
        for odd in ["bytes=a-b", "bytes=0-1,5-6", "lines=1-2", "bytes", ""] {
            assert_eq!(part(odd, 100), None, "{odd}");
        }
        assert_eq!(part("bytes=0-0", 0), Some(Err(NotInFile)));
    }
}
