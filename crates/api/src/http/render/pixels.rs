//! The pixels of an image, as answers take them.

use crate::http::problem::Problem;
use konkordia_acquire::handle::{PixelPlane, SharedPlanes};

/// The pixels of a channel, which all answers with this image share. Their bytes come from outside, so they are checked
/// against the shape.
///
/// # Errors
/// If the bytes do not agree with shape, type and packing.
pub fn plane(planes: &SharedPlanes, channel: usize) -> Result<PixelPlane<'_>, Problem> {
    planes.plane(channel).map_err(Problem::bad_pixels)
}
