//! How many frames a worker takes at a time.

use std::time::Duration;

/// Frames of which a worker does one strip before it goes on to the next strip, so that the strip's constants stay in
/// its cache.
pub(crate) const BATCH_FRAMES: u64 = 8;

/// A worker that finds fewer frames than this waits for more, as long as its last batch took and at most
/// [`GATHER_MAX`]. So the constants are fetched for several frames and threads are woken less often where that matters,
/// and an image is at most twice as late as the work on it takes.
pub(crate) const GATHERED_FRAMES: u64 = 4;

/// After less work than this a worker does not wait: the kernel would let it sleep for longer.
pub(crate) const GATHER_MIN: Duration = Duration::from_micros(100);

/// Longest wait for more frames.
pub(crate) const GATHER_MAX: Duration = Duration::from_millis(1);
