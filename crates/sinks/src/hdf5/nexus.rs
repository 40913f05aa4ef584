//! Small helpers that write NeXus groups, fields and attributes.

use hdf5::plist::dataset_create::{AllocTime, FillTime};
use hdf5::{Dataset, Group, H5Type, Location, Result};

use super::{low, text};

pub(crate) fn group(parent: &Group, name: &str, class: &str) -> Result<Group> {
    let group = low::create_group(parent, name)?;
    attribute_text(&group, "NX_class", class)?;
    Ok(group)
}

pub(crate) fn attribute_text(location: &Location, name: &str, value: &str) -> Result<()> {
    text::write_attribute(location, name, value)
}

pub(crate) fn attribute_texts(location: &Location, name: &str, values: &[String]) -> Result<()> {
    text::write_attributes(location, name, values)
}

pub(crate) fn text(parent: &Group, name: &str, value: &str) -> Result<()> {
    text::write(parent, name, value)
}

pub(crate) fn texts(parent: &Group, name: &str, values: &[String]) -> Result<()> {
    text::write_list(parent, name, values)
}

/// Writes a scalar field, with its unit unless that is empty.
pub(crate) fn number<T: H5Type>(parent: &Group, name: &str, value: T, units: &str) -> Result<()> {
    let field = parent.new_dataset::<T>().create(name)?;
    field.write_scalar(&value)?;
    if units.is_empty() { Ok(()) } else { attribute_text(&field, "units", units) }
}

pub(crate) fn numbers<T: H5Type>(parent: &Group, name: &str, values: &[T]) -> Result<()> {
    parent.new_dataset_builder().with_data(values).create(name).map(drop)
}

/// From this size on, a mask without any set bit is written as a hole in the file.
const HOLE_BYTES_MIN: usize = 1 << 20;

/// Whether a mask (empty if no bit is set) is written as a hole.
pub(crate) fn is_hole(mask: &[u32], (rows, columns): (usize, usize)) -> bool {
    mask.is_empty() && 4 * rows * columns >= HOLE_BYTES_MIN
}

/// Writes a mask, contiguous as XDS requires it; `mask` is empty if no bit is set. A large mask without bits takes
/// space in the file but no time: nothing of it is written, and what was never written reads as zero.
pub(crate) fn mask(parent: &Group, name: &str, shape: (usize, usize), mask: &[u32]) -> Result<()> {
    if is_hole(mask, shape) {
        let builder = parent.new_dataset::<u32>().alloc_time(Some(AllocTime::Early)).fill_time(FillTime::Never);
        return builder.shape(shape).create(name).map(drop);
    }
    let made = parent.new_dataset::<u32>().shape(shape).create(name)?;
    if mask.is_empty() { made.write_raw(&vec![0u32; shape.0 * shape.1]) } else { made.write_raw(mask) }
}

/// Writes several numbers of one kind, with their unit.
pub(crate) fn quantities<T: H5Type>(parent: &Group, name: &str, values: &[T], units: &str) -> Result<()> {
    let field = parent.new_dataset_builder().with_data(values).create(name)?;
    attribute_text(&field, "units", units)
}

/// Writes a translation: `value` metres along `vector`, after `offset` metres, on top of `depends_on`.
pub(crate) fn translation(
    parent: &Group,
    name: &str,
    value: f64,
    vector: [f64; 3],
    offset: [f64; 3],
    depends_on: &str,
) -> Result<()> {
    let field = parent.new_dataset::<f64>().create(name)?;
    field.write_scalar(&value)?;
    transformation(&field, "translation", "m", vector, offset, depends_on)
}

/// Makes a field an element of a chain of transformations.
pub(crate) fn transformation(
    field: &Dataset,
    kind: &str,
    units: &str,
    vector: [f64; 3],
    offset: [f64; 3],
    depends_on: &str,
) -> Result<()> {
    attribute_text(field, "units", units)?;
    attribute_text(field, "transformation_type", kind)?;
    attribute_text(field, "depends_on", depends_on)?;
    attribute_text(field, "offset_units", "m")?;
    field.new_attr_builder().with_data(&vector).create("vector")?;
    field.new_attr_builder().with_data(&offset).create("offset")?;
    Ok(())
}

/// Turns a name into one that a data set or a group can have.
pub(crate) fn plain(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).take(100).collect();
    if name.is_empty() { "_".into() } else { name }
}

pub(crate) fn read_attribute(location: &Location, name: &str) -> Option<String> {
    text::read_attribute(location, name)
}

pub(crate) fn read_text(parent: &Group, path: &str) -> Option<String> {
    text::read(&parent.dataset(path).ok()?)
}

pub(crate) fn read_texts(parent: &Group, path: &str) -> Option<Vec<String>> {
    text::read_list(&parent.dataset(path).ok()?)
}

pub(crate) fn read_number(parent: &Group, path: &str) -> Option<f64> {
    parent.dataset(path).ok()?.read_scalar::<f64>().ok()
}
