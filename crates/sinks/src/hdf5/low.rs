//! The calls of libhdf5 that the high-level crates do not offer. More unsafe calls of libhdf5 are in
//! `objects.rs`, `text.rs` and `foreign_low.rs`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::ptr::null;
use std::sync::OnceLock;

use hdf5::file::LibraryVersion;
use hdf5::plist::FileAccess;
use hdf5::sync::sync;
use hdf5::{Dataset, File, Group, from_id, h5check};
use hdf5_sys::h5::hsize_t;
use hdf5_sys::h5ac::H5AC_cache_config_t;
use hdf5_sys::h5c::{H5C_cache_decr_mode, H5C_cache_flash_incr_mode, H5C_cache_incr_mode};
use hdf5_sys::h5d::{H5Dclose, H5Dcreate2, H5Dget_chunk_info_by_coord, H5Dget_space, H5Dread_chunk, H5Dset_extent};
use hdf5_sys::h5d::{H5Dread, H5Dwrite, H5Dwrite_chunk};
use hdf5_sys::h5f::{H5F_ACC_EXCL, H5F_ACC_RDONLY, H5F_ACC_RDWR, H5F_libver_t, H5Fcreate};
use hdf5_sys::h5f::{H5Fget_mdc_config, H5Fopen, H5Fset_mdc_config};
use hdf5_sys::h5g::{H5Gclose, H5Gcreate2};
use hdf5_sys::h5i::hid_t;
use hdf5_sys::h5p::H5Pset_small_data_block_size;
use hdf5_sys::h5p::{H5P_CRT_ORDER_TRACKED, H5Pset_attr_phase_change, H5Pset_link_creation_order, H5Pset_link_phase_change};
use hdf5_sys::h5p::{H5P_DEFAULT, H5Pclose, H5Pcreate, H5Pset_chunk, H5Pset_file_locking, H5Pset_fill_value, H5Pset_filter};
use hdf5_sys::h5s::{H5S_UNLIMITED, H5S_seloper_t, H5Sclose, H5Screate_simple, H5Sselect_hyperslab};
use hdf5_sys::h5t::H5T_NATIVE_DOUBLE;
use hdf5_sys::h5z::{H5Z_class2_t, H5Zregister};
use konkordia_core::pixel::PixelType;

use super::bounded::zeros_for;
use super::columns::{Column, ColumnType};
use super::driver::{CORE_GROWTH_BYTES, Driver};
use super::handoff::{self, ChunkWrites, Failed};
use super::packing::{self, BITSHUFFLE, LZ4, SZ3, ZSTD};
use super::spec::FileSpec;
use super::split_driver::SplitName;

/// A file is moved out of a spool once; what changes under its name more often than this is another program's doing.
const OPEN_TRIES: u32 = 4;

pub(crate) struct Owned(pub(crate) hid_t, pub(crate) unsafe extern "C" fn(hid_t) -> i32);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the id was returned by the matching create call in this module; it is closed once, under the library
        // lock.
        sync(|| unsafe { (self.1)(self.0) });
    }
}

/// Registers our filters with the library, which refuses to create data sets with unknown mandatory filters. Chunks are
/// written and read directly, so the filters themselves never run; they fail if they do.
fn register_filters() -> hdf5::Result<()> {
    unsafe extern "C" fn refuse(
        _: u32,
        _: usize,
        _: *const u32,
        _: usize,
        _: *mut usize,
        _: *mut *mut std::ffi::c_void,
    ) -> usize {
        0
    }
    static DONE: OnceLock<bool> = OnceLock::new();
    let done = *DONE.get_or_init(|| {
        let filters = [
            (BITSHUFFLE, c"bitshuffle; see https://github.com/kiyo-masui/bitshuffle"),
            (LZ4, c"lz4; see https://github.com/HDFGroup/hdf5_plugins"),
            (ZSTD, c"zstd; see https://github.com/aparamon/HDF5Plugin-Zstandard"),
            (SZ3, c"SZ3 compressor/decompressor for floating-point data."),
        ];
        filters.into_iter().all(|(id, name)| {
            let class = H5Z_class2_t {
                version: 1,
                id,
                encoder_present: 1,
                decoder_present: 1,
                name: name.as_ptr(),
                can_apply: None,
                set_local: None,
                filter: Some(refuse),
            };
            // SAFETY: the class is complete; the library copies it and the name is static.
            sync(|| unsafe { H5Zregister((&raw const class).cast()) }) >= 0
        })
    });
    if done { Ok(()) } else { Err("the compression filters cannot be registered".into()) }
}

/// Which releases of HDF5 can read the file. Object headers have version 1, except that of the root: neggia reads past
/// the end of a header of version 2 that ends in a gap of less than a message (docs/decisions/0008).
#[derive(Clone, Copy)]
pub(crate) enum Format {
    /// HDF5 1.8: superblock 2 and the B-tree chunk index that neggia knows (docs/decisions/0003).
    V18,
    /// As V18, for chunks that may be smaller than 2 KiB: each gets its own space at the end of the file.
    V18SmallChunks,
    /// As V18, but virtual data sets (HDF5 1.10) are allowed.
    V18WithVirtual,
}

fn access(format: Option<Format>) -> hdf5::Result<FileAccess> {
    access_with(format, Driver::Sec2)
}

fn access_with(format: Option<Format>, driver: Driver) -> hdf5::Result<FileAccess> {
    let mut builder = FileAccess::build();
    match format {
        Some(Format::V18 | Format::V18SmallChunks) => builder.libver_bounds(LibraryVersion::V18, LibraryVersion::V18),
        Some(Format::V18WithVirtual) => builder.libver_bounds(LibraryVersion::V18, LibraryVersion::V110),
        None => builder.libver_bounds(LibraryVersion::Earliest, LibraryVersion::V110),
    };
    if let Driver::Core { backing_store } = driver {
        builder.core_options(CORE_GROWTH_BYTES, backing_store);
    }
    let access = builder.finish()?;
    // SAFETY: a valid property list. Without locks the writer can neither refuse a reader nor be disturbed by one.
    h5check(sync(|| unsafe { H5Pset_file_locking(access.id(), 0, 1) }))?;
    if matches!(format, Some(Format::V18SmallChunks)) {
        // SAFETY: a valid property list.
        h5check(sync(|| unsafe { H5Pset_small_data_block_size(access.id(), 0) }))?;
    }
    Ok(access)
}

fn name_of(path: &Path) -> hdf5::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| "zero byte in a file name".into())
}

// The builder of the high-level crate copies the access list without its locking property, hence these direct calls.

pub(crate) fn create_file(path: &Path, format: Format) -> hdf5::Result<File> {
    create_with(&access(Some(format))?, path, format)
}

/// As [`create_file`], by a driver of libhdf5.
pub(crate) fn create_file_by(driver: Driver, path: &Path) -> hdf5::Result<File> {
    create_with(&access_with(Some(Format::V18), driver)?, path, Format::V18)
}

/// As [`create_file`], for a file that takes images by [`hand_off_chunk`].
pub(crate) fn create_data_file(path: &Path, format: Format) -> hdf5::Result<File> {
    let access = access(Some(format))?;
    handoff::choose(&access)?;
    create_with(&access, path, format)
}

fn create_with(access: &FileAccess, path: &Path, format: Format) -> hdf5::Result<File> {
    register_filters()?;
    let name = name_of(path)?;
    let newest =
        if matches!(format, Format::V18WithVirtual) { H5F_libver_t::H5F_LIBVER_V110 } else { H5F_libver_t::H5F_LIBVER_V18 };
    // SAFETY: a terminated name and open lists; the new id is given to exactly one `File`.
    sync(|| unsafe {
        let creation = Owned(h5check(H5Pcreate(*hdf5::globals::H5P_FILE_CREATE))?, H5Pclose);
        // The root is the one object with a header of version 2. What it holds is stored elsewhere, so that its header
        // has no gap. The message about its links has to make room for one about attributes; with the creation order it
        // is long enough to leave no gap behind.
        h5check(H5Pset_link_creation_order(creation.0, H5P_CRT_ORDER_TRACKED))?;
        h5check(H5Pset_link_phase_change(creation.0, 0, 0))?;
        h5check(H5Pset_attr_phase_change(creation.0, 0, 0))?;
        let file: File = from_id(h5check(H5Fcreate(name.as_ptr(), H5F_ACC_EXCL, creation.0, access.id()))?)?;
        h5check(H5Fset_libver_bounds(file.id(), H5F_libver_t::H5F_LIBVER_EARLIEST, newest))?;
        Ok(file)
    })
}

/// Creates a group in a file of [`create_file`]: its header has version 1, and its links are stored as in files with
/// superblock 2.
pub(crate) fn create_group(parent: &Group, name: &str) -> hdf5::Result<Group> {
    let name_c = CString::new(name).map_err(|_| "zero byte in a name")?;
    // SAFETY: open ids and a terminated name; each id got here is closed once.
    sync(|| unsafe {
        let creation = Owned(h5check(H5Pcreate(*hdf5::globals::H5P_GROUP_CREATE))?, H5Pclose);
        // Without this it would be a group of HDF5 1.6, which neggia finds only in files with superblock 0.
        h5check(H5Pset_link_creation_order(creation.0, H5P_CRT_ORDER_TRACKED))?;
        H5Gclose(h5check(H5Gcreate2(parent.id(), name_c.as_ptr(), H5P_DEFAULT, creation.0, H5P_DEFAULT))?);
        Ok::<_, hdf5::Error>(())
    })?;
    parent.group(name)
}

/// Opens a file to read it. Another file, or a link to one, may take its place meanwhile, as when it moves out of a
/// spool: the library finds two files under one name then, and refuses both.
pub(crate) fn open_file(path: &Path) -> hdf5::Result<File> {
    register_filters()?;
    let access = access(None)?;
    let name = match SplitName::of(path) {
        Some(split) => split.set(&access)?,
        None => name_of(path)?,
    };
    let identity = || std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino())).ok();
    for _ in 1..OPEN_TRIES {
        let before = identity();
        let opened = open_named(&name, &access);
        if opened.is_ok() || identity() == before {
            return opened;
        }
    }
    open_named(&name, &access)
}

fn open_named(name: &CStr, access: &FileAccess) -> hdf5::Result<File> {
    // SAFETY: a terminated name and an open list; the new id is given to exactly one `File`.
    sync(|| unsafe { from_id(h5check(H5Fopen(name.as_ptr(), H5F_ACC_RDONLY, access.id()))?) })
}

/// Opens a file to append images to it by [`hand_off_chunk`], or creates it, in the earliest format that its content
/// allows.
pub(crate) fn open_to_append(path: &Path) -> hdf5::Result<File> {
    register_filters()?;
    let (access, name) = (access(None)?, name_of(path)?);
    handoff::choose(&access)?;
    // SAFETY: a terminated name and an open list; the new id is given to exactly one `File`.
    sync(|| unsafe {
        let id = if path.exists() {
            H5Fopen(name.as_ptr(), H5F_ACC_RDWR, access.id())
        } else {
            H5Fcreate(name.as_ptr(), H5F_ACC_EXCL, H5P_DEFAULT, access.id())
        };
        from_id(h5check(id)?)
    })
}

/// Keeps what the library knows of the file in its memory, so that it writes nothing of it before the next flush: some
/// 400 bytes for each chunk. It forgets nothing either before [`release_metadata`].
pub(crate) fn hold_metadata(file: &File) -> hdf5::Result<()> {
    set_metadata_cache(file, false, 2 << 20)
}

/// Makes the library forget what it knows of the file, but for some 20 nodes of the index that it used last. To be
/// called after a flush: what was not written would be written now. What is needed later is read again.
pub(crate) fn release_metadata(file: &File) -> hdf5::Result<()> {
    set_metadata_cache(file, true, RELEASED_BYTES)?;
    // The library forgets when it is next asked for something.
    file.group("/")?;
    hold_metadata(file)
}

/// What [`release_metadata`] leaves, as bytes in the file; in memory it takes about seven times as many.
const RELEASED_BYTES: usize = 64 << 10;

/// Sets how many bytes of metadata the library keeps, or that it keeps all.
fn set_metadata_cache(file: &File, forgets: bool, bytes: usize) -> hdf5::Result<()> {
    let mut config = H5AC_cache_config_t { version: 1, ..H5AC_cache_config_t::default() };
    // SAFETY: an open file, and a structure of the version that it names.
    h5check(sync(|| unsafe { H5Fget_mdc_config(file.id(), &raw mut config) }))?;
    config.evictions_enabled = forgets.into();
    config.set_initial_size = 1;
    config.initial_size = bytes;
    config.min_size = RELEASED_BYTES;
    config.incr_mode = H5C_cache_incr_mode::H5C_incr__off;
    config.flash_incr_mode = H5C_cache_flash_incr_mode::H5C_flash_incr__off;
    config.decr_mode = H5C_cache_decr_mode::H5C_decr__off;
    // SAFETY: an open file, and a structure of the version that it names.
    h5check(sync(|| unsafe { H5Fset_mdc_config(file.id(), &raw const config) }))?;
    Ok(())
}

fn pixel_type(pixel: PixelType) -> hid_t {
    use hdf5::globals as g;
    match pixel {
        PixelType::Int16 => *g::H5T_STD_I16LE,
        PixelType::Int32 => *g::H5T_STD_I32LE,
        PixelType::Uint16 => *g::H5T_STD_U16LE,
        PixelType::Uint32 => *g::H5T_STD_U32LE,
        PixelType::Float32 => *g::H5T_IEEE_F32LE,
        PixelType::Int8 => *g::H5T_STD_I8LE,
        PixelType::Int64 => *g::H5T_STD_I64LE,
        PixelType::Uint8 => *g::H5T_STD_U8LE,
        PixelType::Uint64 => *g::H5T_STD_U64LE,
        PixelType::Float64 => *g::H5T_IEEE_F64LE,
    }
}

fn column_type(kind: ColumnType) -> hid_t {
    use hdf5::globals as g;
    match kind {
        ColumnType::U8 => *g::H5T_STD_U8LE,
        ColumnType::U16 => *g::H5T_STD_U16LE,
        ColumnType::U32 => *g::H5T_STD_U32LE,
        ColumnType::U64 => *g::H5T_STD_U64LE,
        ColumnType::I64 => *g::H5T_STD_I64LE,
        ColumnType::F64 => *g::H5T_IEEE_F64LE,
    }
}

fn creation_list(chunk: &[hsize_t]) -> hdf5::Result<Owned> {
    // SAFETY: the class is a library constant; `chunk` outlives the call and its length is passed.
    sync(|| unsafe {
        let list = h5check(H5Pcreate(*hdf5::globals::H5P_DATASET_CREATE))?;
        let list = Owned(list, H5Pclose);
        h5check(H5Pset_chunk(list.0, chunk.len() as i32, chunk.as_ptr()))?;
        Ok(list)
    })
}

fn create_growing(parent: &Group, name: &str, kind: hid_t, row: &[hsize_t], list: &Owned) -> hdf5::Result<Dataset> {
    let dims: Vec<hsize_t> = std::iter::once(0).chain(row.iter().copied()).collect();
    let most: Vec<hsize_t> = std::iter::once(H5S_UNLIMITED).chain(row.iter().copied()).collect();
    let name_c = CString::new(name).map_err(|_| "zero byte in a name")?;
    // SAFETY: the arrays have the same length, the string is terminated, the ids are open.
    sync(|| unsafe {
        let space = Owned(h5check(H5Screate_simple(dims.len() as i32, dims.as_ptr(), most.as_ptr()))?, H5Sclose);
        let id = H5Dcreate2(parent.id(), name_c.as_ptr(), kind, space.0, H5P_DEFAULT, list.0, H5P_DEFAULT);
        H5Dclose(h5check(id)?);
        Ok::<_, hdf5::Error>(())
    })?;
    parent.dataset(name)
}

/// Creates the image stack: (0.., shape of an image), chunk = one image or one of its pieces, fill = *missing*.
pub(crate) fn create_stack(parent: &Group, name: &str, spec: &FileSpec) -> hdf5::Result<Dataset> {
    let fill = spec.pixel.missing_le_bytes();
    let filter = packing::filter(spec.compression, spec.pixel, [spec.rows, spec.columns]);
    create_images(parent, name, spec.pixel, [&spec.image_shape(), &spec.chunk_shape()], Some(&fill), filter.as_ref())
}

/// Creates a growing stack of images; the shapes of an image and of a chunk are given without the dimension that counts
/// images.
pub(crate) fn create_images(
    parent: &Group,
    name: &str,
    pixel: PixelType,
    [image, chunk]: [&[usize]; 2],
    fill: Option<&[u8]>,
    filter: Option<&packing::Filter>,
) -> hdf5::Result<Dataset> {
    assert!(fill.is_none_or(|fill| fill.len() == pixel.bytes()), "one value of the type");
    let image: Vec<hsize_t> = image.iter().map(|&size| size as hsize_t).collect();
    let chunk: Vec<hsize_t> = std::iter::once(1).chain(chunk.iter().map(|&size| size as hsize_t)).collect();
    register_filters()?;
    let list = creation_list(&chunk)?;
    // SAFETY: `fill` holds one value of the type given (asserted above); the values outlive the call and their length
    // is passed.
    sync(|| unsafe {
        if let Some(fill) = fill {
            h5check(H5Pset_fill_value(list.0, pixel_type(pixel), fill.as_ptr().cast()))?;
        }
        if let Some((id, flags, values)) = &filter {
            h5check(H5Pset_filter(list.0, *id, *flags, values.len(), values.as_ptr()))?;
        }
        Ok::<_, hdf5::Error>(())
    })?;
    create_growing(parent, name, pixel_type(pixel), &image, &list)
}

/// Creates a per-image column: (0.., shape of one image's values).
pub(crate) fn create_column(parent: &Group, column: &Column, images_per_file: u32) -> hdf5::Result<Dataset> {
    let per_chunk = super::columns::Columns::rows_per_chunk(column, images_per_file);
    let row: Vec<hsize_t> = column.shape.iter().map(|&n| n as hsize_t).collect();
    let chunk: Vec<hsize_t> = std::iter::once(per_chunk).chain(row.iter().copied()).collect();
    create_growing(parent, &column.name, column_type(column.kind), &row, &creation_list(&chunk)?)
}

/// Changes the number of images (or rows of a column) of a growing data set.
pub(crate) fn set_extent(dataset: &Dataset, length: u64, row: &[usize]) -> hdf5::Result<()> {
    let dims: Vec<hsize_t> = std::iter::once(length).chain(row.iter().map(|&n| n as hsize_t)).collect();
    // SAFETY: `dims` has as many entries as the data set has dimensions: it was created with 1 + row.len().
    h5check(sync(|| unsafe { H5Dset_extent(dataset.id(), dims.as_ptr()) }))?;
    Ok(())
}

/// Writes one chunk as it is; `start` has one number per dimension.
pub(crate) fn write_chunk(dataset: &Dataset, start: &[u64], bytes: &[u8]) -> hdf5::Result<()> {
    let offset: &[hsize_t] = start;
    assert_eq!(offset.len(), dataset.ndim(), "one number per dimension");
    // SAFETY: one offset per dimension: asserted above; the library reads bytes.len() bytes and keeps none.
    let code =
        sync(|| unsafe { H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, 0, offset.as_ptr(), bytes.len(), bytes.as_ptr().cast()) });
    h5check(code)?;
    Ok(())
}

/// As [`write_chunk`], for a file of [`create_data_file`] or [`open_to_append`]: the bytes are written without the lock
/// of the library. Returns where they are in the file.
pub(crate) fn hand_off_chunk(dataset: &Dataset, start: &[u64], bytes: &[u8], writes: ChunkWrites) -> Result<u64, Failed> {
    let store = || write_chunk(dataset, start, bytes);
    handoff::write(dataset, bytes, writes, store, |file, bytes, offset| file.write_all_at(bytes, offset))
}

unsafe extern "C" {
    /// Of libhdf5 (H5Fpublic.h, since 1.10.2), like the other one; the bindings leave them out.
    fn H5Fset_libver_bounds(file: hid_t, low: H5F_libver_t, high: H5F_libver_t) -> i32;
    /// Of libhdf5 (H5Dpublic.h, since 1.10.2): looks up one chunk, where `H5Dget_chunk_info_by_coord` walks through all
    /// of them.
    fn H5Dget_chunk_storage_size(dataset: hid_t, offset: *const hsize_t, bytes: *mut hsize_t) -> i32;
}

/// Bytes of the chunk at `offset`, of any data set; 0 when it was never written.
pub(crate) fn dataset_chunk_bytes(dataset: &Dataset, offset: &[hsize_t]) -> hdf5::Result<u64> {
    assert_eq!(offset.len(), dataset.ndim(), "one number per dimension");
    let mut size = 0;
    // SAFETY: `offset` has one entry per dimension (asserted above) and the output is valid for writes.
    let asked = h5check(sync(|| unsafe { H5Dget_chunk_storage_size(dataset.id(), offset.as_ptr(), &raw mut size) }));
    if asked.is_ok() {
        return Ok(size);
    }
    // The call fails where there is no chunk; the walk through all chunks tells that apart from damage.
    let (mut mask, mut address) = (0u32, u64::MAX);
    // SAFETY: `offset` has one entry per dimension (asserted above) and the outputs are valid for writes.
    h5check(sync(|| unsafe {
        H5Dget_chunk_info_by_coord(dataset.id(), offset.as_ptr(), &raw mut mask, &raw mut address, &raw mut size)
    }))?;
    Ok(if address == u64::MAX { 0 } else { size })
}

/// Replaces `out` by the bytes of the chunk at `offset` (one number per dimension) as stored; `None` if it was never
/// written. The result says whether the filter was applied to the chunk. A chunk of more than `most` bytes is an error.
pub(crate) fn read_stored_chunk(dataset: &Dataset, offset: &[u64], most: u64, out: &mut Vec<u8>) -> hdf5::Result<Option<bool>> {
    let size = dataset_chunk_bytes(dataset, offset)?;
    if size == 0 {
        return Ok(None);
    }
    if size > most {
        return Err(format!("the chunk at {offset:?} says {size} bytes, more than {most}").into());
    }
    out.clear();
    out.resize(size as usize, 0);
    let mut mask = 0u32;
    assert_eq!(offset.len(), dataset.ndim(), "one number per dimension");
    // SAFETY: one offset per dimension (asserted above); `out` has the size that the library gave for this chunk, and
    // nobody writes this file through this process.
    let read = || unsafe { H5Dread_chunk(dataset.id(), H5P_DEFAULT, offset.as_ptr(), &raw mut mask, out.as_mut_ptr().cast()) };
    h5check(sync(read))?;
    if mask != 0 {
        // A filter that is optional may be left out for a single chunk. Of several filters, all or none are.
        let all = filters(dataset)?.len();
        if all > 1 && mask.trailing_ones() < all as u32 {
            return Err(format!("the chunk at {offset:?} was stored without some of its {all} filters").into());
        }
    }
    Ok(Some(mask == 0))
}

/// As [`read_stored_chunk`], for a chunk that must have been stored with its filter.
pub(crate) fn read_chunk(dataset: &Dataset, offset: &[u64], most: u64, out: &mut Vec<u8>) -> hdf5::Result<Option<()>> {
    match read_stored_chunk(dataset, offset, most, out)? {
        None => Ok(None),
        Some(true) => Ok(Some(())),
        Some(false) => Err("the chunk was stored without its filter".into()),
    }
}

/// Selects rows `start..start + count` of one column and passes type, memory space and file space to `transfer`, with
/// the library locked.
fn transfer_rows(
    dataset: &Dataset,
    column: &Column,
    start: u64,
    count: usize,
    transfer: impl FnOnce(hid_t, hid_t, hid_t) -> i32,
) -> hdf5::Result<()> {
    let row = column.shape.iter();
    let starts: Vec<hsize_t> = std::iter::once(start).chain(row.clone().map(|_| 0)).collect();
    let counts: Vec<hsize_t> = std::iter::once(count as hsize_t).chain(row.map(|&n| n as hsize_t)).collect();
    assert_eq!(counts.len(), dataset.ndim(), "one number per dimension");
    // SAFETY: `starts` and `counts` have one entry per dimension (asserted above) and outlive the calls.
    sync(|| unsafe {
        let space = Owned(h5check(H5Dget_space(dataset.id()))?, H5Sclose);
        let select = H5S_seloper_t::H5S_SELECT_SET;
        h5check(H5Sselect_hyperslab(space.0, select, starts.as_ptr(), null(), counts.as_ptr(), null()))?;
        let memory = Owned(h5check(H5Screate_simple(counts.len() as i32, counts.as_ptr(), null()))?, H5Sclose);
        h5check(transfer(column_type(column.kind), memory.0, space.0))?;
        Ok(())
    })
}

/// Writes `bytes` (rows of one column, little endian) to rows `start..`.
pub(crate) fn write_rows(dataset: &Dataset, column: &Column, start: u64, bytes: &[u8]) -> hdf5::Result<()> {
    let count = bytes.len() / column.bytes();
    assert_eq!(count * column.bytes(), bytes.len(), "whole rows only");
    transfer_rows(dataset, column, start, count, |kind, memory, space| {
        // SAFETY: `bytes` holds exactly `count` rows of the type (asserted above).
        unsafe { H5Dwrite(dataset.id(), kind, memory, space, H5P_DEFAULT, bytes.as_ptr().cast()) }
    })
}

/// Reads rows `start..start + count` of one column, packed little endian.
pub(crate) fn read_rows(dataset: &Dataset, column: &Column, start: u64, count: u64) -> hdf5::Result<Vec<u8>> {
    let shape = dataset.shape();
    if shape.get(1..) != Some(&column.shape) || start.checked_add(count).is_none_or(|end| end > shape[0] as u64) {
        return Err(format!("column {} has the shape {shape:?}", column.name).into());
    }
    let mut bytes = zeros_for(count as usize, column.bytes())?;
    if count > 0 {
        transfer_rows(dataset, column, start, count as usize, |kind, memory, space| {
            // SAFETY: `bytes` has room for exactly `count` rows of the type.
            unsafe { H5Dread(dataset.id(), kind, memory, space, H5P_DEFAULT, bytes.as_mut_ptr().cast()) }
        })?;
    }
    Ok(bytes)
}

/// Writes numbers into a data set of one dimension, from `start` on.
pub(crate) fn write_f64s(dataset: &Dataset, start: u64, values: &[f64]) -> hdf5::Result<()> {
    let count = values.len() as hsize_t;
    // SAFETY: one dimension, one start and one count; `values` holds exactly `count` numbers of the type.
    sync(|| unsafe {
        let space = Owned(h5check(H5Dget_space(dataset.id()))?, H5Sclose);
        let select = H5S_seloper_t::H5S_SELECT_SET;
        h5check(H5Sselect_hyperslab(space.0, select, &raw const start, null(), &raw const count, null()))?;
        let memory = Owned(h5check(H5Screate_simple(1, &raw const count, null()))?, H5Sclose);
        h5check(H5Dwrite(dataset.id(), *H5T_NATIVE_DOUBLE, memory.0, space.0, H5P_DEFAULT, values.as_ptr().cast()))?;
        Ok(())
    })
}

/// The filters of a data set as (id, flags, values).
pub(crate) fn filters(dataset: &Dataset) -> hdf5::Result<Vec<(i32, u32, Vec<u32>)>> {
    use hdf5_sys::h5p::{H5Pget_filter2, H5Pget_nfilters};
    let list = dataset.dcpl()?;
    let mut found = Vec::new();
    // SAFETY: the outputs are valid for writes and `many` says how many values fit.
    sync(|| unsafe {
        for i in 0..h5check(H5Pget_nfilters(list.id()))? {
            let (mut flags, mut many, mut values, mut config) = (0u32, 32usize, [0u32; 32], 0u32);
            let none = std::ptr::null_mut();
            let values_at = values.as_mut_ptr();
            let id = H5Pget_filter2(list.id(), i as u32, &raw mut flags, &raw mut many, values_at, 0, none, &raw mut config);
            found.push((h5check(id)?, flags, values[..many.min(32)].to_vec()));
        }
        Ok::<_, hdf5::Error>(())
    })?;
    Ok(found)
}

/// The fill value of an image stack, little endian.
pub(crate) fn fill_value(dataset: &Dataset, pixel: PixelType) -> hdf5::Result<Vec<u8>> {
    let list = dataset.dcpl()?;
    let mut value = vec![0u8; pixel.bytes()];
    // SAFETY: `value` holds one value of the type given.
    h5check(sync(|| unsafe { hdf5_sys::h5p::H5Pget_fill_value(list.id(), pixel_type(pixel), value.as_mut_ptr().cast()) }))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdf5_sys::h5f::H5Fget_mdc_size;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    const OPENINGS: u64 = 3000;

    /// Bytes of the metadata that the library keeps of a file, as they are in the file.
    fn metadata_bytes(file: &File) -> usize {
        let (mut most, mut clean, mut now, mut entries) = (0, 0, 0, 0);
        // SAFETY: an open file, and outputs that are valid for writes.
        let code = sync(|| unsafe { H5Fget_mdc_size(file.id(), &raw mut most, &raw mut clean, &raw mut now, &raw mut entries) });
        h5check(code).unwrap();
        now
    }

    /// The index of 30 000 chunks has more than 1 MiB.
    #[test]
    fn metadata_are_held_until_they_are_released() {
        let folder = tempfile::tempdir().unwrap();
        let file = open_to_append(&folder.path().join("a.h5")).unwrap();
        hold_metadata(&file).unwrap();
        let stack = create_images(&file, "a", PixelType::Uint8, [&[4], &[4]], None, None).unwrap();
        let mut peaks = Vec::new();
        for round in 0..3 {
            for image in round * 30_000..(round + 1) * 30_000 {
                set_extent(&stack, image + 1, &[4]).unwrap();
                write_chunk(&stack, &[image, 0], &[image as u8; 4]).unwrap();
            }
            peaks.push(metadata_bytes(&file));
            file.flush().unwrap();
            assert!(metadata_bytes(&file) > 1 << 20, "a flush forgets nothing");
            release_metadata(&file).unwrap();
            let left = metadata_bytes(&file);
            assert!(left <= RELEASED_BYTES + (8 << 10), "{left} bytes are left");
        }
        assert!(peaks.iter().all(|peak| (1 << 20..4 << 20).contains(peak)), "{peaks:?}");
        let pixels = stack.read_raw::<u8>().unwrap();
        assert!(pixels.chunks(4).enumerate().all(|(image, pixels)| pixels == [image as u8; 4]));
    }

    /// While a file is opened, its name comes to lead to another file, by a link or directly. The moves are at all
    /// steps of the opening; at most two are in one, where a spool makes one, and none leads back.
    #[test]
    fn a_file_is_read_while_it_moves() {
        let folder = tempfile::tempdir().unwrap();
        let [name, link] = ["a.h5", "a.link"].map(|name| folder.path().join(name));
        let places = [0, 1, 2, 3, 4, 5].map(|n| folder.path().join(format!("{n}.h5")));
        places.iter().for_each(|path| create_file(path, Format::V18).and_then(File::close).unwrap());
        std::fs::hard_link(&places[5], &name).unwrap();
        let opened = AtomicU64::new(0);
        let refused: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0u64.. {
                    let seen = opened.load(Relaxed);
                    if seen == OPENINGS {
                        break;
                    }
                    let place = &places[turn as usize % places.len()];
                    let made = if turn % 2 == 0 { symlink(place, &link) } else { std::fs::hard_link(place, &link) };
                    let wait = Duration::from_micros(turn * 7 % 100);
                    made.map(|()| std::thread::sleep(wait)).and_then(|()| std::fs::rename(&link, &name)).unwrap();
                    while opened.load(Relaxed) == seen {
                        std::thread::yield_now();
                    }
                }
            });
            let open = |_| {
                let refused = open_file(&name).err();
                opened.fetch_add(1, Relaxed);
                refused
            };
            (0..OPENINGS).filter_map(open).collect()
        });
        assert!(refused.is_empty(), "{} times, for example {:?}", refused.len(), refused[0]);
        std::fs::remove_file(&name).unwrap();
        assert!(open_file(&name).is_err());
    }

    #[test]
    fn rows_that_a_file_only_claims_to_hold_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("a.h5")).unwrap();
        let column =
            Column { name: "frame_number".into(), kind: ColumnType::U64, shape: vec![], offset: 0, description: String::new() };
        for (name, rows) in [("large", 1usize << 42), ("larger_than_memory_can_be", 1 << 61)] {
            let table = file.new_dataset::<u64>().chunk(1024).shape(rows..).create(name).unwrap();
            let error = read_rows(&table, &column, 0, rows as u64).expect_err(name).to_string();
            assert!(error.contains("claims to hold"), "{error}");
            assert_eq!(read_rows(&table, &column, rows as u64 - 2, 2).unwrap(), [0; 16]);
        }
    }
}
