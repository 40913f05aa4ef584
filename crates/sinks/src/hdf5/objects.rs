//! Copies objects from file to file as they are, and creates data sets like others: calls of libhdf5 that the
//! high-level crate does not offer.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char};
use std::mem::{MaybeUninit, transmute};
use std::ptr::{null, null_mut};

use hdf5::plist::DatasetCreate;
use hdf5::sync::sync;
use hdf5::types::TypeDescriptor as D;
use hdf5::{Dataset, Group, Location, h5check};
use hdf5_sys::h5::{H5_index_t, H5_iter_order_t, hsize_t};
use hdf5_sys::h5a::{H5Aclose, H5Acreate2, H5Aget_name, H5Aget_space, H5Aget_type, H5Aopen_by_idx};
use hdf5_sys::h5a::{H5Aread, H5Awrite};
use hdf5_sys::h5d::H5D_fill_value_t;
use hdf5_sys::h5d::{H5D_layout_t, H5Dclose, H5Dcreate2, H5Dget_space, H5Dget_type, H5Dopen2, H5Dread, H5Dwrite};
use hdf5_sys::h5i::hid_t;
use hdf5_sys::h5l::{H5L_info2_t, H5L_type_t, H5Lget_info2, H5Lget_val, H5Lunpack_elink_val};
use hdf5_sys::h5o::{H5O_INFO_BASIC, H5O_info2_t, H5O_token_t, H5O_type_t, H5Ocopy, H5Oget_info_by_name3};
use hdf5_sys::h5p::H5Pget_virtual_count;
use hdf5_sys::h5p::{H5P_DEFAULT, H5Pclose, H5Pcopy, H5Pcreate, H5Pget_external_count, H5Pget_fill_value, H5Pget_layout};
use hdf5_sys::h5p::{H5Pfill_value_defined, H5Premove_filter, H5Pset_fill_value, H5Pset_filter, H5Pset_virtual};
use hdf5_sys::h5p::{H5Pget_virtual_dsetname, H5Pget_virtual_filename, H5Pget_virtual_srcspace, H5Pget_virtual_vspace};
use hdf5_sys::h5s::H5Sselect_hyperslab;
use hdf5_sys::h5s::{H5S_ALL, H5S_sel_type, H5Sclose, H5Screate_simple, H5Sget_select_bounds, H5Sget_select_type};
use hdf5_sys::h5s::{H5S_UNLIMITED, H5S_seloper_t, H5Sget_simple_extent_ndims, H5Sget_simple_extent_npoints};
use hdf5_sys::h5t::{H5T_class_t, H5Tclose, H5Tcopy, H5Tdetect_class, H5Tget_size, H5Treclaim};

use super::low::Owned;
use super::packing::Filter;
use super::text;

/// What kind of link a name in a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// An object of this file.
    Hard,
    /// Another path of this file.
    Soft(String),
    /// An object of another file: file, path.
    External(String, String),
}

/// Identifies an object of a file, whatever names it has.
pub(crate) type Token = [u8; 16];

/// The object that `name` in `group` refers to, and whether that is a group.
pub(crate) fn object(group: &Group, name: &str) -> hdf5::Result<(Token, bool)> {
    let name = c(name)?;
    let mut info = MaybeUninit::<H5O_info2_t>::zeroed();
    // SAFETY: an open id, a terminated string and an output of the type that the library fills, for which zeros are
    // valid too; a token is 16 bytes without further structure.
    sync(|| unsafe {
        h5check(H5Oget_info_by_name3(group.id(), name.as_ptr(), info.as_mut_ptr(), H5O_INFO_BASIC, H5P_DEFAULT))?;
        let info = info.assume_init();
        Ok((transmute::<H5O_token_t, Token>(info.token), info.type_ == H5O_type_t::H5O_TYPE_GROUP))
    })
}

fn c(text: &str) -> hdf5::Result<CString> {
    CString::new(text).map_err(|_| "zero byte in a name".into())
}

/// The kind of link that `name` in `group` is.
pub(crate) fn link(group: &Group, name: &str) -> hdf5::Result<Link> {
    let name = c(name)?;
    // SAFETY: terminated strings and outputs that are valid for writes; the value is as long as the library said.
    sync(|| unsafe {
        let mut info = H5L_info2_t::default();
        h5check(H5Lget_info2(group.id(), name.as_ptr(), &raw mut info, H5P_DEFAULT))?;
        if info.type_ == H5L_type_t::H5L_TYPE_HARD {
            return Ok(Link::Hard);
        }
        let size = *info.u.val_size();
        let mut value = vec![0u8; size + 1];
        h5check(H5Lget_val(group.id(), name.as_ptr(), value.as_mut_ptr().cast(), size, H5P_DEFAULT))?;
        let text = |at: *const c_char| CStr::from_ptr(at).to_string_lossy().into_owned();
        if info.type_ == H5L_type_t::H5L_TYPE_SOFT {
            return Ok(Link::Soft(text(value.as_ptr().cast())));
        }
        let (mut flags, mut file, mut object) = (0, null(), null());
        h5check(H5Lunpack_elink_val(value.as_ptr().cast(), size, &raw mut flags, &raw mut file, &raw mut object))?;
        Ok(Link::External(text(file), text(object)))
    })
}

/// Copies an object with everything below it; links stay links.
pub(crate) fn copy(from: &Group, to: &Group, name: &str) -> hdf5::Result<()> {
    let name = c(name)?;
    // SAFETY: open ids and terminated strings.
    h5check(sync(|| unsafe { H5Ocopy(from.id(), name.as_ptr(), to.id(), name.as_ptr(), H5P_DEFAULT, H5P_DEFAULT) }))?;
    Ok(())
}

/// Whether a type contains references: in its members, elements or sequences.
fn has_references(kind: hid_t) -> hdf5::Result<bool> {
    // SAFETY: an open type.
    sync(|| unsafe { Ok(h5check(H5Tdetect_class(kind, H5T_class_t::H5T_REFERENCE))? > 0) })
}

/// Removes attributes with references from a copied object and everything below it, because the library copies them as
/// addresses in the old file.
pub(crate) fn remove_references(group: &Group, name: &str) -> hdf5::Result<()> {
    let mut seen = HashSet::from([object(group, name)?.0]);
    let mut open = vec![(group.clone(), name.to_owned())];
    while let Some((parent, name)) = open.pop() {
        let inner = parent.group(&name).ok();
        if let Some(inner) = &inner {
            for name in inner.member_names()? {
                if link(inner, &name)? == Link::Hard && seen.insert(object(inner, &name)?.0) {
                    open.push((inner.clone(), name));
                }
            }
        }
        let dataset = if inner.is_none() { parent.dataset(&name).ok() } else { None };
        let Some(at) = inner.as_deref().or_else(|| dataset.as_ref().map(|dataset| dataset as &Location)) else { continue };
        for name in at.attr_names()? {
            if has_references(at.attr(&name)?.dtype()?.id())? {
                at.delete_attr(&name)?;
            }
        }
    }
    Ok(())
}

/// Largest data set that is created again instead of being copied with its header.
const PLAIN_BYTES_MAX: usize = 1 << 30;

/// Copies a data set that is stored in one piece by creating it again, so that its header has the form of our files;
/// false if that is not possible.
pub(crate) fn copy_plain(from: &Dataset, to: &Group, name: &str) -> hdf5::Result<bool> {
    let (list, name) = (from.dcpl()?, c(name)?);
    // SAFETY: open ids under the library lock; the buffer holds all values of the type, and what the library allocated
    // for them in it is given back to it; each id obtained here is closed once by its owner.
    sync(|| unsafe {
        let kind = Owned(h5check(H5Dget_type(from.id()))?, H5Tclose);
        // A copy of the type, because the file may have it as a named type.
        let kind = Owned(h5check(H5Tcopy(kind.0))?, H5Tclose);
        let in_one = matches!(H5Pget_layout(list.id()), H5D_layout_t::H5D_CONTIGUOUS | H5D_layout_t::H5D_COMPACT);
        let bytes = from.size().saturating_mul(H5Tget_size(kind.0));
        if !in_one || H5Pget_external_count(list.id()) != 0 || bytes > PLAIN_BYTES_MAX || has_references(kind.0)? {
            return Ok(false);
        }
        let new = Owned(h5check(H5Pcopy(list.id()))?, H5Pclose);
        create(to, &name, &kind, from, new.0)?;
        if bytes == 0 {
            return Ok(true);
        }
        // In units of 64 bits, to align the pointers of texts.
        let mut buffer = vec![0u64; bytes.div_ceil(8)];
        h5check(H5Dread(from.id(), kind.0, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer.as_mut_ptr().cast()))?;
        let made = Owned(h5check(H5Dopen2(to.id(), name.as_ptr(), H5P_DEFAULT))?, H5Dclose);
        let written = H5Dwrite(made.0, kind.0, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer.as_ptr().cast());
        let space = Owned(h5check(H5Dget_space(from.id()))?, H5Sclose);
        H5Treclaim(kind.0, space.0, H5P_DEFAULT, buffer.as_mut_ptr().cast());
        h5check(written).map(|_| true)
    })
}

/// Copies all attributes except those with references, which would point nowhere. Texts that readers look for get the
/// string type that all of them read.
pub(crate) fn copy_attributes(from: &Location, to: &Location) -> hdf5::Result<()> {
    copy_all_attributes(from, to)?;
    for name in ["NX_class", "units"] {
        let Ok(attribute) = to.attr(name) else { continue };
        let is_variable = matches!(attribute.dtype()?.to_descriptor(), Ok(D::VarLenUnicode | D::VarLenAscii));
        if let Some(value) = text::read_attribute(to, name).filter(|_| is_variable && attribute.is_scalar()) {
            drop(attribute);
            to.delete_attr(name)?;
            text::write_attribute(to, name, &value)?;
        }
    }
    Ok(())
}

fn copy_all_attributes(from: &Location, to: &Location) -> hdf5::Result<()> {
    let many = from.attr_names()?.len();
    // SAFETY: open ids; each id obtained here is closed once by its owner.
    sync(|| unsafe {
        for n in 0..many {
            let here = c".".as_ptr();
            let (index, order) = (H5_index_t::H5_INDEX_NAME, H5_iter_order_t::H5_ITER_INC);
            let id = h5check(H5Aopen_by_idx(from.id(), here, index, order, n as hsize_t, H5P_DEFAULT, H5P_DEFAULT))?;
            copy_attribute(&Owned(id, H5Aclose), to)?;
        }
        Ok(())
    })
}

fn copy_attribute(attribute: &Owned, to: &Location) -> hdf5::Result<()> {
    // SAFETY: open ids under the library lock; the buffer holds all values of the type, and what the library allocated
    // for them in it is given back to it.
    sync(|| unsafe {
        let length = H5Aget_name(attribute.0, 0, null_mut());
        let mut name = vec![0u8; usize::try_from(length).map_err(|_| "an attribute without name")? + 1];
        H5Aget_name(attribute.0, name.len(), name.as_mut_ptr().cast());
        let kind = Owned(h5check(H5Aget_type(attribute.0))?, H5Tclose);
        if has_references(kind.0)? {
            return Ok(());
        }
        let space = Owned(h5check(H5Aget_space(attribute.0))?, H5Sclose);
        let values = usize::try_from(H5Sget_simple_extent_npoints(space.0)).unwrap_or(0);
        let made = H5Acreate2(to.id(), name.as_ptr().cast(), kind.0, space.0, H5P_DEFAULT, H5P_DEFAULT);
        let made = Owned(h5check(made)?, H5Aclose);
        if values == 0 {
            return Ok(());
        }
        // In units of 64 bits, to align the pointers of texts.
        let mut buffer = vec![0u64; (values * H5Tget_size(kind.0)).div_ceil(8)];
        h5check(H5Aread(attribute.0, kind.0, buffer.as_mut_ptr().cast()))?;
        let written = H5Awrite(made.0, kind.0, buffer.as_ptr().cast());
        H5Treclaim(kind.0, space.0, H5P_DEFAULT, buffer.as_mut_ptr().cast());
        h5check(written).map(drop)
    })
}

/// Whether the data set is virtual: it only points to others.
pub(crate) fn is_virtual(dataset: &Dataset) -> bool {
    // SAFETY: an open list.
    dataset.dcpl().is_ok_and(|list| sync(|| unsafe { H5Pget_layout(list.id()) }) == H5D_layout_t::H5D_VIRTUAL)
}

/// Whether the values of the data set lie in files of other formats.
pub(crate) fn is_outside(dataset: &Dataset) -> bool {
    // SAFETY: an open list.
    dataset.dcpl().map_or(true, |list| sync(|| unsafe { H5Pget_external_count(list.id()) }) != 0)
}

/// The files that a virtual data set points to, each with the path in it.
pub(crate) fn virtual_sources(dataset: &Dataset) -> hdf5::Result<Vec<(String, String)>> {
    let list = dataset.dcpl()?;
    (0..virtual_count(&list)?).map(|n| Ok((virtual_text(&list, n, true)?, virtual_text(&list, n, false)?))).collect()
}

fn virtual_count(list: &DatasetCreate) -> hdf5::Result<usize> {
    let mut count = 0;
    // SAFETY: an open list and an output that is valid for writes.
    h5check(sync(|| unsafe { H5Pget_virtual_count(list.id(), &raw mut count) }))?;
    Ok(count)
}

fn virtual_text(list: &DatasetCreate, n: usize, of_file: bool) -> hdf5::Result<String> {
    // SAFETY: the buffer has the length given, one more than the library asked for.
    sync(|| unsafe {
        let get = if of_file { H5Pget_virtual_filename } else { H5Pget_virtual_dsetname };
        let length = usize::try_from(get(list.id(), n, null_mut(), 0)).map_err(|_| "a mapping without name")?;
        let mut text = vec![0u8; length + 1];
        get(list.id(), n, text.as_mut_ptr().cast(), text.len());
        text.truncate(length);
        Ok(String::from_utf8_lossy(&text).into_owned())
    })
}

/// Creates the same virtual data set, with the files renamed.
pub(crate) fn create_virtual_like(
    from: &Dataset,
    to: &Group,
    name: &str,
    rename: &dyn Fn(&str) -> String,
) -> hdf5::Result<Dataset> {
    let (old, name_c) = (from.dcpl()?, c(name)?);
    // SAFETY: open ids and terminated strings; each id obtained here is closed once by its owner.
    sync(|| unsafe {
        let list = Owned(h5check(H5Pcreate(*hdf5::globals::H5P_DATASET_CREATE))?, H5Pclose);
        let kind = Owned(h5check(H5Dget_type(from.id()))?, H5Tclose);
        let mut defined = H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED;
        h5check(H5Pfill_value_defined(old.id(), &raw mut defined))?;
        if defined == H5D_fill_value_t::H5D_FILL_VALUE_USER_DEFINED {
            let mut fill = vec![0u64; H5Tget_size(kind.0).div_ceil(8)];
            h5check(H5Pget_fill_value(old.id(), kind.0, fill.as_mut_ptr().cast()))?;
            h5check(H5Pset_fill_value(list.0, kind.0, fill.as_ptr().cast()))?;
        }
        for n in 0..virtual_count(&old)? {
            let (file, object) = (c(&rename(&virtual_text(&old, n, true)?))?, c(&virtual_text(&old, n, false)?)?);
            let whole = Owned(h5check(H5Pget_virtual_vspace(old.id(), n))?, H5Sclose);
            let part = source_space(&whole, Owned(h5check(H5Pget_virtual_srcspace(old.id(), n))?, H5Sclose))?;
            h5check(H5Pset_virtual(list.0, whole.0, file.as_ptr(), object.as_ptr(), part.0))?;
        }
        create(to, &name_c, &kind, from, list.0)
    })?;
    to.dataset(name)
}

/// The part of a source that a mapping takes. If that is all of it, the file does not say how much that is; it is then
/// as much as the mapping fills.
fn source_space(whole: &Owned, part: Owned) -> hdf5::Result<Owned> {
    // SAFETY: open ids under the library lock; the bounds have one entry per dimension.
    sync(|| unsafe {
        if H5Sget_select_type(part.0) != H5S_sel_type::H5S_SEL_ALL {
            return Ok(part);
        }
        let rank = usize::try_from(H5Sget_simple_extent_ndims(whole.0)).unwrap_or(0);
        let (mut start, mut end) = (vec![0; rank], vec![0; rank]);
        h5check(H5Sget_select_bounds(whole.0, start.as_mut_ptr(), end.as_mut_ptr()))?;
        // "All" is stored without dimensions, so only the number of values has to agree.
        let filled: Vec<hsize_t> = start.iter().zip(&end).map(|(start, end)| end - start + 1).collect();
        Ok(Owned(h5check(H5Screate_simple(rank as i32, filled.as_ptr(), null()))?, H5Sclose))
    })
}

/// Creates a data set of the same shape, type, chunk shape and fill value with another filter and without any chunk.
pub(crate) fn create_stack_like(from: &Dataset, to: &Group, name: &str, filter: Option<&Filter>) -> hdf5::Result<Dataset> {
    let (old, name_c) = (from.dcpl()?, c(name)?);
    // SAFETY: open ids and terminated strings; each id obtained here is closed once by its owner; the filter's values
    // outlive the call.
    sync(|| unsafe {
        let list = Owned(h5check(H5Pcopy(old.id()))?, H5Pclose);
        // Filter 0 means all filters.
        h5check(H5Premove_filter(list.0, 0))?;
        if let Some((id, flags, values)) = filter {
            h5check(H5Pset_filter(list.0, *id, *flags, values.len(), values.as_ptr()))?;
        }
        let kind = Owned(h5check(H5Dget_type(from.id()))?, H5Tclose);
        create(to, &name_c, &kind, from, list.0)
    })?;
    to.dataset(name)
}

/// As [`create_stack_like`], with `images` along the first dimension, which may grow.
pub(crate) fn create_longer_stack(
    from: &Dataset,
    to: &Group,
    name: &str,
    filter: Option<&Filter>,
    images: u64,
) -> hdf5::Result<Dataset> {
    let (old, name_c) = (from.dcpl()?, c(name)?);
    let mut shape: Vec<hsize_t> = from.shape().iter().map(|&size| size as hsize_t).collect();
    let mut most = shape.clone();
    (shape[0], most[0]) = (images, H5S_UNLIMITED);
    // SAFETY: as in `create_stack_like`; both shapes have one entry per dimension.
    sync(|| unsafe {
        let list = Owned(h5check(H5Pcopy(old.id()))?, H5Pclose);
        h5check(H5Premove_filter(list.0, 0))?;
        if let Some((id, flags, values)) = filter {
            h5check(H5Pset_filter(list.0, *id, *flags, values.len(), values.as_ptr()))?;
        }
        let kind = Owned(h5check(H5Dget_type(from.id()))?, H5Tclose);
        let space = Owned(h5check(H5Screate_simple(shape.len() as i32, shape.as_ptr(), most.as_ptr()))?, H5Sclose);
        let id = H5Dcreate2(to.id(), name_c.as_ptr(), kind.0, space.0, H5P_DEFAULT, list.0, H5P_DEFAULT);
        H5Dclose(h5check(id)?);
        Ok::<_, hdf5::Error>(())
    })?;
    to.dataset(name)
}

/// Creates a virtual data set of all images of `sources` (file, stack), one after the other. The stacks have the path
/// `path` in their files, and the type, fill value and image shape of the first one.
pub(crate) fn create_virtual_of(sources: &[(String, &Dataset)], path: &str, to: &Group, name: &str) -> hdf5::Result<Dataset> {
    let (path, name_c) = (c(path)?, c(name)?);
    let first = sources.first().ok_or("a virtual data set of nothing")?.1;
    let old = first.dcpl()?;
    let shape_of = |stack: &Dataset| stack.shape().iter().map(|&size| size as hsize_t).collect::<Vec<hsize_t>>();
    let mut whole = shape_of(first);
    whole[0] = sources.iter().map(|(_, stack)| shape_of(stack)[0]).sum();
    // SAFETY: open ids and terminated strings; each id obtained here is closed once by its owner; starts and counts
    // have one entry per dimension of the stacks, whose number of dimensions is checked.
    sync(|| unsafe {
        let list = Owned(h5check(H5Pcreate(*hdf5::globals::H5P_DATASET_CREATE))?, H5Pclose);
        let kind = Owned(h5check(H5Dget_type(first.id()))?, H5Tclose);
        let mut fill = vec![0u64; H5Tget_size(kind.0).div_ceil(8)];
        h5check(H5Pget_fill_value(old.id(), kind.0, fill.as_mut_ptr().cast()))?;
        h5check(H5Pset_fill_value(list.0, kind.0, fill.as_ptr().cast()))?;
        let mut begin = 0;
        let space = Owned(h5check(H5Screate_simple(whole.len() as i32, whole.as_ptr(), null()))?, H5Sclose);
        for (file, stack) in sources {
            let (file, shape) = (c(file)?, shape_of(stack));
            if shape[1..] != whole[1..] {
                return Err("the stacks have images of different shapes".into());
            }
            let mut start = vec![0; shape.len()];
            start[0] = begin;
            begin += shape[0];
            let select = H5S_seloper_t::H5S_SELECT_SET;
            h5check(H5Sselect_hyperslab(space.0, select, start.as_ptr(), null(), shape.as_ptr(), null()))?;
            let part = Owned(h5check(H5Screate_simple(shape.len() as i32, shape.as_ptr(), null()))?, H5Sclose);
            h5check(H5Pset_virtual(list.0, space.0, file.as_ptr(), path.as_ptr(), part.0))?;
        }
        let space = Owned(h5check(H5Screate_simple(whole.len() as i32, whole.as_ptr(), null()))?, H5Sclose);
        let id = H5Dcreate2(to.id(), name_c.as_ptr(), kind.0, space.0, H5P_DEFAULT, list.0, H5P_DEFAULT);
        H5Dclose(h5check(id)?);
        Ok::<_, hdf5::Error>(())
    })?;
    to.dataset(name)
}

/// Creates a data set of the shape of `from`.
fn create(to: &Group, name: &CString, kind: &Owned, from: &Dataset, list: hid_t) -> hdf5::Result<()> {
    // SAFETY: open ids and a terminated string; the new id is closed at once.
    sync(|| unsafe {
        let space = Owned(h5check(H5Dget_space(from.id()))?, H5Sclose);
        let id = H5Dcreate2(to.id(), name.as_ptr(), kind.0, space.0, H5P_DEFAULT, list, H5P_DEFAULT);
        H5Dclose(h5check(id)?);
        Ok(())
    })
}
