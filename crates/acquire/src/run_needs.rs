//! What a run would need, as [`crate::dry_run`] finds out and servers pass on.

use konkordia_core::failure::Failure;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether an arm would be accepted, and what its run needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// Nothing is wrong. The state of the detector, its calibration and its ports are not looked at.
    pub ok: bool,
    /// What is wrong.
    pub problems: Vec<RequestProblem>,
    /// What the run needs, as far as it is known.
    pub needs: RunNeeds,
}

/// Something that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestProblem {
    /// `images`, `prefix`, or `metadata.` and a name; `disk` or `memory` if there is too little of it; `request` if it
    /// is about all of it, and `configuration` if it would be wrong with any request.
    #[schema(example = "prefix")]
    pub field: String,
    /// What is wrong and why.
    pub detail: String,
    /// What to do.
    pub hint: String,
}

impl RequestProblem {
    /// Something that went wrong with the part `field` of a request.
    pub fn of(field: impl Into<String>, failure: Failure) -> Self {
        Self { field: field.into(), detail: failure.detail(), hint: failure.fix }
    }
}

/// From what the size of the files is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SizeFrom {
    /// Images as small as those of the last run.
    LastRun,
    /// Images without compression: the files will not be larger.
    Uncompressed,
}

/// What a run needs. What is not known is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunNeeds {
    /// Images of the run; null: until stopped, or as many as the sender announces.
    pub images: Option<u64>,
    /// Time from the first to the last image, by the time from image to image.
    pub duration_s: Option<f64>,
    /// The file to open.
    pub file: Option<String>,
    /// Bytes of its files; 0 if none are written.
    pub file_bytes: Option<u64>,
    /// From what that is known.
    pub file_bytes_from: Option<SizeFrom>,
    /// Free space where they go.
    pub disk_free_bytes: Option<u64>,
    /// The files fit there.
    pub fits: Option<bool>,
    /// Memory of its buffers. Of a stream the most that messages on their way may take.
    pub memory_bytes: Option<u64>,
    /// Images per second, by the time from image to image.
    pub rate_hz: Option<f64>,
    /// Rows and columns of an image; null if its sender decides that.
    #[serde(default)]
    pub image_size: Option<[u32; 2]>,
    /// Type of its pixels in the file, as numpy calls it; null if its sender decides that.
    #[serde(default)]
    #[schema(example = "uint16")]
    pub dtype: Option<String>,
    /// Path in the file of the data set that has all images; null if no file is written, if it only has links to its
    /// data files, and where the sender decides.
    #[serde(default)]
    #[schema(example = "/entry/data/images")]
    pub dataset: Option<String>,
}
