//! The one call of libhdf5 for foreign files that the high-level crate does not offer: values without conversion.
#![allow(unsafe_code)]

use hdf5::sync::sync;
use hdf5::{Dataset, h5check};
use hdf5_sys::h5d::H5Dread;
use hdf5_sys::h5p::H5P_DEFAULT;
use hdf5_sys::h5s::H5S_ALL;

use super::bounded::zeros_for;

/// All values of a table as stored, `bytes` bytes each. They are not converted, because a conversion would cut a string
/// at a zero byte inside it.
pub(super) fn raw_values(table: &Dataset, bytes: usize) -> hdf5::Result<Vec<u8>> {
    let kind = table.dtype()?;
    if kind.size() != bytes {
        return Err(format!("values of {} bytes instead of {bytes}", kind.size()).into());
    }
    let mut out = zeros_for(table.size(), bytes)?;
    // SAFETY: `out` holds as many values of the table's own type as the table has (the size was checked), and any bytes
    // are a value of u8.
    h5check(sync(|| unsafe { H5Dread(table.id(), kind.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.as_mut_ptr().cast()) }))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_claims_too_much_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = hdf5::File::create(folder.path().join("a.h5")).unwrap();
        for (name, values) in [("large", 1usize << 42), ("larger_than_memory_can_be", 1 << 61)] {
            let table = file.new_dataset::<u64>().chunk(1024).shape(values..).create(name).unwrap();
            let error = raw_values(&table, 8).expect_err(name).to_string();
            assert!(error.contains("claims to hold"), "{error}");
        }
        let table = file.new_dataset_builder().with_data(&[1u64, 2]).create("right").unwrap();
        assert_eq!(raw_values(&table, 8).unwrap().len(), 16);
        assert!(raw_values(&table, 4).is_err());
    }
}
