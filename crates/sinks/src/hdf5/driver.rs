//! Drivers of libhdf5 itself. Runs are written by the driver of [`super::handoff`].

/// By so many bytes a file of [`Driver::Core`] grows in memory at once.
pub const CORE_GROWTH_BYTES: usize = 64 << 20;

/// Drivers of libhdf5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `H5FD_SEC2`: each call of libhdf5 is one of the system. The usual one.
    Sec2,
    /// `H5FD_CORE`: the whole file is in the memory of this process.
    Core {
        /// The file is also written to its path, when it is closed. Otherwise it is lost then.
        backing_store: bool,
    },
}
