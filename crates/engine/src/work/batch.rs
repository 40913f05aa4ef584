//! How many frames a worker takes at a time.

/// Frames of which a worker does one strip before it goes on to the next strip, so that the strip's constants stay in
/// its cache.
pub(crate) const BATCH_FRAMES: u64 = 8;
