//! Texts in files. A text of ASCII letters is stored with fixed length and a zero byte at the end, the only kind that
//! every reader takes: the plug-in durin (XDS) reads neither UTF-8 texts of variable length nor the last letter of a
//! text without a zero byte after it. Texts with other letters, which only people write, are stored as UTF-8 of
//! variable length. All kinds are read: files of older releases have only the latter.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::ptr::null;

use hdf5::sync::sync;
use hdf5::types::{TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5::{Attribute, Container, Dataset, Group, Location, Result, h5check};
use hdf5_sys::h5::hsize_t;
use hdf5_sys::h5a::{H5Aclose, H5Acreate2, H5Aread, H5Awrite};
use hdf5_sys::h5d::{H5Dclose, H5Dcreate2, H5Dwrite};
use hdf5_sys::h5p::H5P_DEFAULT;
use hdf5_sys::h5s::{H5S_ALL, H5S_class_t, H5Sclose, H5Screate, H5Screate_simple};
use hdf5_sys::h5t::{H5Tclose, H5Tcopy, H5Tset_size};

use super::bounded::{ReadAll, zeros_for};
use super::foreign_low::raw_values;
use super::low::Owned;

/// Largest size of an attribute of fixed-length texts: it has to fit into the header of its object, which holds 64 KiB.
const ATTRIBUTE_BYTES_MAX: usize = 32 << 10;
/// Largest size of a list of fixed-length texts, all as long as the longest.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Most bytes, and most texts, that are read: a damaged file must not make this program allocate more.
const READ_MAX: usize = 64 << 20;

/// One text, or a list of them.
#[derive(Clone, Copy)]
enum Shape {
    Scalar,
    List(usize),
}

/// Texts of one length.
struct Fixed {
    /// Bytes of each, with the zero byte.
    width: usize,
    bytes: Vec<u8>,
    shape: Shape,
}

impl Fixed {
    /// `None` if some letter is not ASCII, or the texts take more than `most` bytes.
    fn of(values: &[&str], shape: Shape, most: usize) -> Option<Self> {
        let width = values.iter().map(|value| value.len()).max()? + 1;
        let total = width.checked_mul(values.len()).filter(|total| *total <= most)?;
        let mut bytes = Vec::with_capacity(total);
        for value in values {
            let end = bytes.len() + width;
            // A zero byte would end the text for every reader.
            bytes.extend(value.bytes().filter(|byte| *byte != 0));
            bytes.resize(end, 0);
        }
        values.iter().all(|value| value.is_ascii()).then_some(Self { width, bytes, shape })
    }

    /// Creates an attribute or a data set of this name.
    fn create(&self, at: &Location, name: &str, is_attribute: bool) -> Result<()> {
        let name = CString::new(name).map_err(|_| "zero byte in a name")?;
        let length = if let Shape::List(length) = self.shape { length as hsize_t } else { 1 };
        // SAFETY: open ids and a terminated name; each id obtained here is closed once by its owner; `bytes` has
        // `width` bytes for each value of the space.
        sync(|| unsafe {
            // Zero-terminated ASCII.
            let kind = Owned(h5check(H5Tcopy(*hdf5::globals::H5T_C_S1))?, H5Tclose);
            h5check(H5Tset_size(kind.0, self.width))?;
            let space = Owned(
                h5check(match self.shape {
                    Shape::Scalar => H5Screate(H5S_class_t::H5S_SCALAR),
                    Shape::List(_) => H5Screate_simple(1, &raw const length, null()),
                })?,
                H5Sclose,
            );
            let (default, bytes) = (H5P_DEFAULT, self.bytes.as_ptr().cast());
            if is_attribute {
                let made = Owned(h5check(H5Acreate2(at.id(), name.as_ptr(), kind.0, space.0, default, default))?, H5Aclose);
                return h5check(H5Awrite(made.0, kind.0, bytes)).map(drop);
            }
            let made = H5Dcreate2(at.id(), name.as_ptr(), kind.0, space.0, default, default, default);
            let made = Owned(h5check(made)?, H5Dclose);
            h5check(H5Dwrite(made.0, kind.0, H5S_ALL, H5S_ALL, default, bytes)).map(drop)
        })
    }
}

/// A string of variable length, without the zero bytes that it cannot hold.
fn unicode(text: &str) -> Result<VarLenUnicode> {
    text.replace('\0', "").parse().map_err(|_| "text that HDF5 cannot store".into())
}

fn unicodes(values: &[String]) -> Result<Vec<VarLenUnicode>> {
    values.iter().map(|value| unicode(value)).collect()
}

fn list(values: &[String], most: usize) -> Option<Fixed> {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    Fixed::of(&values, Shape::List(values.len()), most)
}

/// Writes an attribute of one text.
pub(super) fn write_attribute(at: &Location, name: &str, value: &str) -> Result<()> {
    match Fixed::of(&[value], Shape::Scalar, ATTRIBUTE_BYTES_MAX) {
        Some(fixed) => fixed.create(at, name, true),
        None => at.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&unicode(value)?),
    }
}

/// Writes an attribute of a list of texts.
pub(super) fn write_attributes(at: &Location, name: &str, values: &[String]) -> Result<()> {
    match list(values, ATTRIBUTE_BYTES_MAX) {
        Some(fixed) => fixed.create(at, name, true),
        None => at.new_attr_builder().with_data(&unicodes(values)?).create(name).map(drop),
    }
}

/// Writes a data set of one text.
pub(super) fn write(parent: &Group, name: &str, value: &str) -> Result<()> {
    match Fixed::of(&[value], Shape::Scalar, READ_MAX) {
        Some(fixed) => fixed.create(parent, name, false),
        None => parent.new_dataset::<VarLenUnicode>().create(name)?.write_scalar(&unicode(value)?),
    }
}

/// Writes a data set of a list of texts.
pub(super) fn write_list(parent: &Group, name: &str, values: &[String]) -> Result<()> {
    match list(values, LIST_BYTES_MAX) {
        Some(fixed) => fixed.create(parent, name, false),
        None => parent.new_dataset_builder().with_data(&unicodes(values)?).create(name).map(drop),
    }
}

/// The only text of an attribute; `None` if it holds something else.
pub(super) fn read_attribute(at: &Location, name: &str) -> Option<String> {
    let attribute = at.attr(name).ok()?;
    let raw = |bytes| raw_attribute(&attribute, bytes);
    only(read_all(&attribute, raw)?)
}

/// The only text of a data set; `None` if it holds something else.
pub(super) fn read(dataset: &Dataset) -> Option<String> {
    only(read_list(dataset)?)
}

/// The texts of a data set; `None` if it holds something else.
pub(super) fn read_list(dataset: &Dataset) -> Option<Vec<String>> {
    read_all(dataset, |bytes| raw_values(dataset, bytes))
}

fn only(mut texts: Vec<String>) -> Option<String> {
    if texts.len() == 1 { texts.pop() } else { None }
}

/// All texts, whatever string type holds them; `None` if one of them is not UTF-8. The types of the library take UTF-8
/// for granted, but a damaged file may hold anything.
fn read_all(from: &Container, raw: impl FnOnce(usize) -> Result<Vec<u8>>) -> Option<Vec<String>> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let many = Some(from.size()).filter(|size| *size <= READ_MAX)?;
    match from.dtype().ok()?.to_descriptor().ok()? {
        TypeDescriptor::VarLenUnicode => from.read_all::<VarLenUnicode>().ok()?.iter().map(|one| text(one.as_bytes())).collect(),
        TypeDescriptor::VarLenAscii => from.read_all::<VarLenAscii>().ok()?.iter().map(|one| text(one.as_bytes())).collect(),
        TypeDescriptor::FixedAscii(width) | TypeDescriptor::FixedUnicode(width) => {
            many.checked_mul(width).filter(|bytes| *bytes <= READ_MAX)?;
            let end = |one: &[u8]| one.iter().position(|byte| *byte == 0).unwrap_or(one.len());
            raw(width).ok()?.chunks_exact(width).map(|one| text(&one[..end(one)])).collect()
        }
        _ => None,
    }
}

/// All values of an attribute as stored, `bytes` bytes each.
fn raw_attribute(attribute: &Attribute, bytes: usize) -> Result<Vec<u8>> {
    let kind = attribute.dtype()?;
    let mut out = zeros_for(attribute.size(), bytes)?;
    assert_eq!(kind.size(), bytes, "the width that the type says");
    // SAFETY: `out` holds as many values of the attribute's own type as it has (asserted above), and any bytes are a
    // value of u8.
    h5check(sync(|| unsafe { H5Aread(attribute.id(), kind.id(), out.as_mut_ptr().cast()) }))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_those_of_ascii_letters_are_of_fixed_length() {
        let folder = tempfile::tempdir().unwrap();
        let file = hdf5::File::create(folder.path().join("a.h5")).unwrap();
        let long = "x".repeat(ATTRIBUTE_BYTES_MAX);
        for (n, value) in ["", "m", "NXdetector", "a\nb", "µm", "Ångström", &long].into_iter().enumerate() {
            let name = format!("text_{n}");
            write_attribute(&file, &name, value).unwrap();
            write(&file, &name, value).unwrap();
            assert_eq!(read_attribute(&file, &name).as_deref(), Some(value));
            let dataset = file.dataset(&name).unwrap();
            assert_eq!(read(&dataset).as_deref(), Some(value));
            let fixed = TypeDescriptor::FixedAscii(value.len() + 1);
            let wanted = if value.is_ascii() { fixed } else { TypeDescriptor::VarLenUnicode };
            assert_eq!(dataset.dtype().unwrap().to_descriptor().unwrap(), wanted, "{value}");
            let wanted = if value.len() < ATTRIBUTE_BYTES_MAX { wanted } else { TypeDescriptor::VarLenUnicode };
            assert_eq!(file.attr(&name).unwrap().dtype().unwrap().to_descriptor().unwrap(), wanted, "{value}");
        }
        // A zero byte ends a text for every reader: it is left out.
        write(&file, "zero", "a\0b").unwrap();
        assert_eq!(read(&file.dataset("zero").unwrap()).unwrap(), "ab");
    }

    #[test]
    fn lists_come_back_in_every_kind() {
        let folder = tempfile::tempdir().unwrap();
        let file = hdf5::File::create(folder.path().join("a.h5")).unwrap();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        let huge = [vec!["y".repeat(LIST_BYTES_MAX)], words(&["", "b"])].concat();
        for (n, values) in [words(&[]), words(&["a", "", "longer"]), words(&["a", "ä"]), huge].into_iter().enumerate() {
            let name = format!("list_{n}");
            write_list(&file, &name, &values).unwrap();
            assert_eq!(read_list(&file.dataset(&name).unwrap()), Some(values.clone()));
            assert_eq!(read(&file.dataset(&name).unwrap()), None, "a list is no text");
            if n == 1 {
                write_attributes(&file, &name, &values).unwrap();
                assert_eq!(file.attr(&name).unwrap().shape(), [3]);
            }
        }
        file.new_dataset::<u32>().create("number").unwrap();
        assert_eq!(read(&file.dataset("number").unwrap()), None, "a number is no text");
    }
}
