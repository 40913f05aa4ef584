//! Reading whole tables of files that may be damaged: what a file claims to hold is no reason to ask for memory.

use hdf5::{Container, H5Type};

/// Most bytes of a table that is read whole, and of an image: more than any needs, and little enough that asking for
/// them does not end the process.
pub(crate) const BYTES_MAX: usize = 2 << 30;

/// Zeros for the pixels of an image; `None` if the file claims that they are more than any detector has.
pub(crate) fn zeros(bytes: usize) -> Option<Vec<u8>> {
    (bytes <= BYTES_MAX).then(|| vec![0; bytes])
}

/// Zeros for `values` values of `bytes` bytes each.
///
/// # Errors
/// They are more than any table of ours has.
pub(crate) fn zeros_for(values: usize, bytes: usize) -> hdf5::Result<Vec<u8>> {
    let all = values.checked_mul(bytes).and_then(zeros);
    all.ok_or_else(|| format!("it claims to hold {values} values of {bytes} bytes").into())
}

/// As `read_raw`, for files that may be damaged.
pub(crate) trait ReadAll {
    /// All values of a table or an attribute, in order.
    ///
    /// # Errors
    /// It cannot be read, or claims to be larger than any table of ours.
    fn read_all<T: H5Type>(&self) -> hdf5::Result<Vec<T>>;
}

impl ReadAll for Container {
    fn read_all<T: H5Type>(&self) -> hdf5::Result<Vec<T>> {
        let shape = self.shape();
        let bytes = shape.iter().try_fold(size_of::<T>(), |product, length| product.checked_mul(*length));
        if bytes.is_none_or(|bytes| bytes > BYTES_MAX) {
            return Err(format!("it claims to hold {shape:?} values").into());
        }
        self.read_raw()
    }
}
