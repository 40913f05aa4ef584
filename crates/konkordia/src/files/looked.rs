//! What a file says about its images, for `konkordia check`.

use konkordia_sinks::hdf5::Summary;

/// What the file says about its images; empty if it cannot be read.
#[derive(Default)]
pub struct Looked {
    /// Images in it.
    pub images: Option<u64>,
    /// Every image is there and complete.
    pub is_complete: bool,
    /// Number of images by status, if the file records it.
    pub by_status: Option<Vec<(&'static str, u64)>>,
}

impl Looked {
    /// What the summary of a file of Konkordia says.
    pub fn at(summary: &Summary) -> Self {
        let (is_complete, by_status) = (summary.is_complete(), Some(summary.image_counts()));
        Self { images: Some(summary.images), is_complete, by_status }
    }
}
