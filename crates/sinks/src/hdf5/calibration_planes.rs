//! Planes of numbers and masks as other programs store them (jungfrau_utils: `/gains` and `/pixel_mask`), read with
//! their shape.

use std::path::Path;

use hdf5::Dataset;
use hdf5::types::TypeDescriptor;

use super::bounded::ReadAll;
use super::error::{Context, Error, ErrorKind};
use super::low;

/// Most values that are read: 6 planes of 256 modules.
const VALUES_MAX: usize = 6 * 256 * 512 * 1024;

/// Values with their shape, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Planes<T> {
    /// Lengths of the axes, the slowest first.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Vec<T>,
}

/// The data set `name` as float32, whatever number type it has.
///
/// # Errors
/// If the file cannot be read or has no such data set of numbers.
pub fn read_floats(path: &Path, name: &str) -> Result<Planes<f32>, Error> {
    let data = open(path, name)?.ok_or_else(|| lacks(path, name))?;
    let values = data.read_all::<f32>().context("read the planes", path)?;
    Ok(Planes { shape: data.shape(), values })
}

/// The data set `name` as a mask: booleans or integers, 0 = good; an integer that does not fit 32 bits becomes bit 31.
/// `None` if there is no such data set.
///
/// # Errors
/// If the file cannot be read or the data set holds neither booleans nor integers.
pub fn read_mask(path: &Path, name: &str) -> Result<Option<Planes<u32>>, Error> {
    let doing = "read the pixel mask";
    let Some(data) = open(path, name)? else { return Ok(None) };
    let kind = data.dtype().and_then(|t| t.to_descriptor()).context(doing, path)?;
    let values = match kind {
        TypeDescriptor::Boolean => data.read_all::<bool>().context(doing, path)?.into_iter().map(u32::from).collect(),
        TypeDescriptor::Integer(_) | TypeDescriptor::Unsigned(_) => {
            let narrow = |v: i64| u32::try_from(v).unwrap_or(1 << 31);
            data.read_all::<i64>().context(doing, path)?.into_iter().map(narrow).collect()
        }
        other => {
            let why = format!("'{name}' holds {other}, not booleans or whole numbers");
            return Err(Error::new(ErrorKind::Invalid, doing, path, why));
        }
    };
    Ok(Some(Planes { shape: data.shape(), values }))
}

fn lacks(path: &Path, name: &str) -> Error {
    let hint = "give a file of jungfrau_utils: gains and pedestals are both in '/gains'";
    Error::new(ErrorKind::Invalid, "read the planes", path, format!("there is no data set '{name}'")).with_hint(hint)
}

fn open(path: &Path, name: &str) -> Result<Option<Dataset>, Error> {
    let doing = "read the planes";
    std::fs::metadata(path).context(doing, path)?;
    let file = low::open_file(path).map_err(|error| {
        let error = Error::hdf5(doing, path, error);
        let hint = "the file is not HDF5 or is damaged; planes without a header are read with [calibration] kind = \"files\"";
        Error::new(ErrorKind::Invalid, doing, path, error.cause).with_hint(hint)
    })?;
    if !file.link_exists(name) {
        return Ok(None);
    }
    let data = file.dataset(name).context(doing, path)?;
    if data.size() > VALUES_MAX {
        let why = format!("'{name}' has {} values, more than 6 planes of 256 modules", data.size());
        return Err(Error::new(ErrorKind::Invalid, doing, path, why));
    }
    Ok(Some(data))
}
