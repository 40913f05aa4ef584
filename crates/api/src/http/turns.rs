//! Waiting for a turn and for memory, so that requests for images cannot take more than they may.

use super::problem::Problem;
use super::state::Shared;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest time that a request waits for its turn.
const TURN: Duration = Duration::from_secs(10);

/// Waits until there is memory for the pixels of an image and for what is made of them: twice the sum of its packed and
/// its unpacked bytes.
///
/// # Errors
/// If there never is, or not soon.
pub async fn memory(shared: &Shared, (packed, unpacked): (u64, u64)) -> Result<OwnedSemaphorePermit, Problem> {
    let mib = (unpacked.saturating_add(packed) >> 19) + 1;
    let all = shared.settings.limits.image_memory_mib;
    let mib = u32::try_from(mib).ok().filter(|mib| *mib <= all).ok_or_else(|| {
        let detail = format!("giving this image takes {mib} MiB of memory, {all} MiB are allowed for all images together");
        Problem::new("bad_image", detail, "read the file instead")
    })?;
    turn(&shared.image_mib, mib).await
}

/// Waits for a permit.
///
/// # Errors
/// If it does not come soon.
pub async fn turn(semaphore: &Arc<Semaphore>, many: u32) -> Result<OwnedSemaphorePermit, Problem> {
    let waited = tokio::time::timeout(TURN, Arc::clone(semaphore).acquire_many_owned(many)).await;
    let busy =
        || Problem::new("busy", "too many images are asked for at once", "ask for fewer, or for smaller ones").retry_after(1);
    waited.map_err(|_| busy())?.map_err(|_| busy())
}
