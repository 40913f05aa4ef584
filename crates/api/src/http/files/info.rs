//! What is in a file.

use super::cache::Kept;
use super::opening::kept as of_path;
use super::place;
use crate::http::extract::Query;
use crate::http::problem::Problem;
use crate::http::state::Shared;
use crate::http::turns;
use axum::Json;
use axum::extract::State;
use konkordia_acquire::handle::{FileCheck, TreeEntry, check_file};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Which file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FileQuery {
    /// Name of the detector; may be left out if there is only one.
    #[param(example = "eiger")]
    detector: Option<String>,
    /// Its path: of a file in `/api/v1/files`, or of one below the output folder of the detector, from which relative
    /// paths count.
    #[param(example = "lyso/run03_master.h5")]
    file: String,
    /// Check it first: read and unpack every image, as `konkordia check` does. Takes as long as that.
    #[param(example = false)]
    #[serde(default)]
    check: bool,
}

/// What is in a file.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileInfo {
    /// The file, without links.
    pub master: String,
    /// Detector.
    pub detector: String,
    /// Images in it, lost ones included.
    pub images: u64,
    /// Rows of an image.
    pub rows: u64,
    /// Columns of an image.
    pub columns: u64,
    /// Channels of an image, by name; empty if it has only one without a name.
    pub channels: Vec<String>,
    /// Type of a pixel as numpy writes it.
    pub dtype: String,
    /// `none`, `lz4`, `bslz4`, `bszstd`, `zstd`, `gzip` or `sz3`.
    pub compression: String,
    /// Bytes of the images as they are stored.
    pub packed_bytes: u64,
    /// Bytes of their pixels.
    pub unpacked_bytes: u64,
    /// Pixels over what is stored of them; absent if nothing is.
    pub ratio: Option<f64>,
    /// Length of the master and its data files.
    pub disk_bytes: u64,
    /// What a check found; null while it was not run since the file was last changed.
    pub checks: Option<FileChecks>,
    /// Names of the results that each of its images has, spots among them; empty if it has none.
    pub results: Vec<String>,
    /// Why it has none; null if it has some.
    pub no_results: Option<String>,
    /// Data files that are missing or cannot be read.
    pub problems: Vec<String>,
    /// What is in the master.
    pub tree: Vec<TreeEntry>,
    /// There is more in the master than the tree shows.
    pub tree_is_cut: bool,
}

/// What a check found.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileChecks {
    /// The file and all its images can be read, and are as they were written.
    pub is_valid: bool,
    /// Every image of the run is there and complete.
    pub is_whole: bool,
    /// What was found, as text.
    pub notes: Vec<String>,
}

/// What is in a finished file: size, compression, the tree of the master, and whether it is whole.
#[utoipa::path(get, path = "/api/v1/file", tag = "data", params(FileQuery), responses(
    (status = 200, description = "Of this file", body = FileInfo, example = json!({
        "master": "/data/lyso/run03_master.h5", "detector": "eiger", "images": 1000, "rows": 2164, "columns": 2068, "channels": [], "dtype": "uint32",
        "compression": "bslz4", "packed_bytes": 1790000000, "unpacked_bytes": 17900000000_u64, "ratio": 10.0, "disk_bytes": 1812000000,
        "checks": {"is_valid": true, "is_whole": true, "notes": []}, "results": ["is_analysed", "nPeaks", "peakXPosRaw", "peakYPosRaw", "spots"], "no_results": null, "problems": [],
        "tree": [{"path": "/entry", "kind": "group"}, {"path": "/entry/data/data_000001", "kind": "link", "target": "run03_data_000001.h5:/entry/data/data"}],
        "tree_is_cut": false}))))]
pub async fn file(State(shared): State<Arc<Shared>>, Query(query): Query<FileQuery>) -> Result<Json<FileInfo>, Problem> {
    let detector = shared.detector(query.detector.as_deref())?;
    let mut kept = of_path(&shared, &detector, &query.file).await?;
    if !is_as_looked_at(&shared, &kept).await? {
        kept = of_path(&shared, &detector, &query.file).await?;
    }
    let check = if query.check { Some(checked(&shared, &kept).await?) } else { kept.check.get().cloned() };
    let (index, (packed_bytes, unpacked_bytes)) = (kept.images.index(), kept.images.bytes());
    let of_parts = index.parts.iter().filter(|part| part.path != index.master).map(|part| part.identity.bytes);
    let [rows, columns] = index.shape.last_chunk().copied().unwrap_or([1, index.shape.first().copied().unwrap_or(0)]);
    let (results, no_results) = match kept.images.results() {
        Ok(names) => (names.into_iter().map(Into::into).collect(), None),
        Err(why) => (Vec::new(), Some(why.into())),
    };
    Ok(Json(FileInfo {
        master: index.master.display().to_string(),
        detector: detector.name().into(),
        images: index.images,
        rows,
        columns,
        channels: index.channels.iter().filter(|name| !name.is_empty()).cloned().collect(),
        dtype: index.dtype.clone(),
        compression: index.packing.clone(),
        packed_bytes,
        unpacked_bytes,
        ratio: (packed_bytes > 0).then(|| unpacked_bytes as f64 / packed_bytes as f64),
        disk_bytes: index.identity.bytes + of_parts.sum::<u64>(),
        checks: check.map(|FileCheck { is_valid, is_whole, notes }| FileChecks { is_valid, is_whole, notes }),
        results,
        no_results,
        problems: index.problems.clone(),
        tree: index.tree.clone(),
        tree_is_cut: index.tree_is_cut,
    }))
}

async fn is_as_looked_at(shared: &Shared, kept: &Arc<Kept>) -> Result<bool, Problem> {
    let (looking, images) = (turns::turn(&shared.files.looks, 1).await?, Arc::clone(&kept.images));
    let looked = tokio::task::spawn_blocking(move || {
        let _looking = looking;
        images.is_as_looked_at()
    });
    looked.await.map_err(|_| Problem::bug("the service made a mistake with this file"))
}

/// What a check finds; one file is checked at a time.
async fn checked(shared: &Shared, kept: &Arc<Kept>) -> Result<FileCheck, Problem> {
    let check = || async {
        let turn = turns::turn(&shared.files.checks, 1).await?;
        let master = kept.images.index().master.clone();
        let checked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            check_file(&master).map_err(|failure| place::problem(&failure))
        });
        checked.await.map_err(|_| Problem::bug("the service made a mistake with this file"))?
    };
    kept.check.get_or_try_init(check).await.cloned()
}
