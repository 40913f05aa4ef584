//! The one call of libhdf5 for foreign files that the high-level crate does not offer: values without conversion.
#![allow(unsafe_code)]

use hdf5::sync::sync;
use hdf5::{Dataset, h5check};
use hdf5_sys::h5d::H5Dread;
use hdf5_sys::h5p::H5P_DEFAULT;
use hdf5_sys::h5s::H5S_ALL;

/// All values of a table as stored, `bytes` bytes each. They are not converted, because a conversion would cut a string
/// at a zero byte inside it.
pub(super) fn raw_values(table: &Dataset, bytes: usize) -> hdf5::Result<Vec<u8>> {
    let kind = table.dtype()?;
    if kind.size() != bytes {
        return Err(format!("values of {} bytes instead of {bytes}", kind.size()).into());
    }
    let mut out = vec![0u8; table.size() * bytes];
    // SAFETY: `out` holds as many values of the table's own type as the table has (the size was checked), and any bytes
    // are a value of u8.
    h5check(sync(|| unsafe { H5Dread(table.id(), kind.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.as_mut_ptr().cast()) }))?;
    Ok(out)
}
