//! Chunks of images, written into their file while libhdf5 is not locked (docs/decisions/0031).
//!
//! libhdf5 serves one thread at a time, whatever the file, and nearly all the time of `H5Dwrite_chunk` is the `pwrite`
//! of the chunk. So a file that takes images has a driver of ours. It is libhdf5's driver `sec2`, function by function,
//! except `write`: when libhdf5 writes the very bytes that its thread has announced here, the driver notes only where
//! they belong, and the thread writes them when libhdf5 has returned.
//!
//! Meanwhile the index that libhdf5 has in its memory names a chunk that is not in the file. Therefore:
//! - libhdf5 writes nothing else into this file before the chunk is there. The driver waits for chunks of other
//!   threads, and writes that of its own thread first. So the index in the file is never ahead of the data.
//! - libhdf5 does not learn that a chunk could not be written. After [`Failed::Data`] the caller has to remove the
//!   chunk from the index.
//!
//! `sec2` does not learn either that the file grew. It compares the length that it knows with that of the format, and
//! sets the length of the file if they differ: once more than needed, to the right length. It reads where libhdf5 says.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use hdf5::plist::FileAccess;
use hdf5::sync::sync;
use hdf5::{Dataset, h5check};
use hdf5_sys::h5::{HADDR_UNDEF, haddr_t, herr_t};
use hdf5_sys::h5f::H5F_ACC_RDONLY;
use hdf5_sys::h5fd::{H5FDclose, H5FDopen, H5FDregister};
use hdf5_sys::h5i::hid_t;
use hdf5_sys::h5p::{H5P_DEFAULT, H5Pset_driver};

use super::error::Error;

/// Who writes the bytes of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkWrites {
    /// The calling thread, when it has left libhdf5: other threads may use libhdf5 meanwhile.
    #[default]
    OutsideLock,
    /// libhdf5, for which all other threads wait. For comparison.
    InsideLock,
}

/// Why a chunk is not in the file.
#[derive(Debug)]
pub(crate) enum Failed {
    /// libhdf5 refused it.
    Library(hdf5::Error),
    /// libhdf5 has it in its index, but it could not be written.
    Data(io::Error),
}

impl Failed {
    /// The error for people: the same, whoever wrote.
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> Error {
        match self {
            Self::Library(error) => Error::hdf5(operation, path, error),
            Self::Data(error) => Error::io(operation, path, &error),
        }
    }
}

/// Has files that are opened with this list written through the driver.
pub(crate) fn choose(access: &FileAccess) -> hdf5::Result<()> {
    let id = driver()?.id;
    // SAFETY: a valid property list and the id of a driver, which needs no more information.
    h5check(sync(|| unsafe { H5Pset_driver(access.id(), id, null()) }))?;
    Ok(())
}

/// Has `store` give `bytes` to libhdf5 as the chunk of a data set, whose file was opened with [`choose`], and writes
/// them with `put` at the offset that it is given, unless libhdf5 has written them. Returns this offset.
pub(crate) fn write(
    // Keeps the file open.
    _: &Dataset,
    bytes: &[u8],
    writes: ChunkWrites,
    store: impl FnOnce() -> hdf5::Result<()>,
    put: impl FnOnce(&File, &[u8], u64) -> io::Result<()>,
) -> Result<u64, Failed> {
    let _announced = Announced::new(bytes, writes);
    let stored = store();
    let place = CHUNK.get().and_then(|chunk| chunk.place);
    // Also after an error of libhdf5, whose index may have the chunk nevertheless.
    if let Some(place) = place.filter(|place| place.is_left) {
        // SAFETY: the descriptor is that of the file of the data set, which is open as long as the data set is. It is
        // not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(place.descriptor) });
        put(&file, bytes, place.offset).map_err(Failed::Data)?;
    }
    stored.map_err(Failed::Library)?;
    let place = place.ok_or_else(|| Failed::Library("libhdf5 wrote the chunk past the driver".into()))?;
    Ok(place.offset)
}

/// A chunk that a thread is about to write.
#[derive(Clone, Copy)]
struct Chunk {
    /// Its bytes, which are borrowed while it is announced.
    bytes: *const c_void,
    length: usize,
    writes: ChunkWrites,
    place: Option<Place>,
}

/// Where libhdf5 wants the bytes of a chunk.
#[derive(Clone, Copy)]
struct Place {
    /// Address of what libhdf5 knows of the file: only to tell files apart.
    file: usize,
    descriptor: RawFd,
    offset: u64,
    /// The thread still has to write them. Then the file is in [`UNWRITTEN`].
    is_left: bool,
}

thread_local! {
    static CHUNK: Cell<Option<Chunk>> = const { Cell::new(None) };
}

/// The file of each chunk that was left to a thread and is not written yet.
static UNWRITTEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// A chunk was written, or never will be.
static WRITTEN: Condvar = Condvar::new();

fn unwritten() -> MutexGuard<'static, Vec<usize>> {
    UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_longer_left(file: usize) {
    let mut files = unwritten();
    let at = files.iter().position(|unwritten| *unwritten == file);
    files.swap_remove(at.expect("a chunk that was left to a thread is in the list"));
    drop(files);
    WRITTEN.notify_all();
}

/// While this lives, the driver knows the chunk of this thread.
struct Announced;

impl Announced {
    fn new(bytes: &[u8], writes: ChunkWrites) -> Self {
        CHUNK.set(Some(Chunk { bytes: bytes.as_ptr().cast(), length: bytes.len(), writes, place: None }));
        Self
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Some(place) = CHUNK.take().and_then(|chunk| chunk.place).filter(|place| place.is_left) {
            no_longer_left(place.file);
        }
    }
}

/// `H5FD_MEM_DRAW`: the content of data sets.
const CONTENT: c_int = 3;

/// The function `write` of the driver.
///
/// # Safety
/// To be called by libhdf5 only, with a file that `sec2` has opened, and `length` readable bytes.
unsafe extern "C" fn write_or_leave(
    file: *mut c_void,
    kind: c_int,
    list: hid_t,
    offset: haddr_t,
    length: usize,
    bytes: *const c_void,
) -> herr_t {
    let Some(driver) = DRIVER.get() else { return -1 };
    let id = file as usize;
    match CHUNK.get() {
        Some(chunk) if chunk.place.is_none() && kind == CONTENT && (length, bytes) == (chunk.length, chunk.bytes) => {
            let mut descriptor = null_mut();
            // SAFETY: the file is one of `sec2`, which gives the address of its descriptor.
            if unsafe { (driver.handle)(file, H5P_DEFAULT, &raw mut descriptor) } < 0 {
                return -1;
            }
            // SAFETY: as above.
            let descriptor = unsafe { *descriptor.cast::<c_int>() };
            let is_left = chunk.writes == ChunkWrites::OutsideLock;
            CHUNK.set(Some(Chunk { place: Some(Place { file: id, descriptor, offset, is_left }), ..chunk }));
            if is_left {
                unwritten().push(id);
                return 0;
            }
        }
        Some(chunk @ Chunk { place: Some(place), .. }) if place.is_left && place.file == id => {
            // libhdf5 writes the index while it takes the chunk.
            // SAFETY: the bytes are borrowed while the chunk is announced, which it is.
            let code = unsafe { (driver.write)(file, CONTENT, list, place.offset, chunk.length, chunk.bytes) };
            if code < 0 {
                return code;
            }
            CHUNK.set(Some(Chunk { place: Some(Place { is_left: false, ..place }), ..chunk }));
            no_longer_left(id);
        }
        _ => {}
    }
    // Threads that have to write a chunk need no lock of libhdf5 for it.
    drop(WRITTEN.wait_while(unwritten(), |files| files.contains(&id)));
    // SAFETY: the arguments are those that libhdf5 has for `sec2`.
    unsafe { (driver.write)(file, kind, list, offset, length, bytes) }
}

type WriteCall = unsafe extern "C" fn(*mut c_void, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t;
type HandleCall = unsafe extern "C" fn(*mut c_void, hid_t, *mut *mut c_void) -> herr_t;
/// A function that is only copied.
type Call = Option<unsafe extern "C" fn()>;

/// `H5FD_class_t` of HDF5 1.14 (H5FDdevelop.h); that of the bindings lacks `version` and the calls for several pieces.
/// [`Class::is_sec2`] recognises the layout.
#[repr(C)]
#[derive(Clone, Copy)]
struct Class {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    address_max: haddr_t,
    close_degree: c_int,
    terminate: Call,
    /// `sb_size`, `sb_encode`, `sb_decode`.
    superblock: [Call; 3],
    access_bytes: usize,
    /// `fapl_get`, `fapl_copy`, `fapl_free`.
    access: [Call; 3],
    transfer_bytes: usize,
    /// `dxpl_copy`, `dxpl_free`.
    transfer: [Call; 2],
    /// `open`, `close`, `cmp`, `query`.
    files: [Call; 4],
    /// `get_type_map`, `alloc`, `free`, `get_eoa`, `set_eoa`, `get_eof`.
    space: [Call; 6],
    handle: Option<HandleCall>,
    read: Call,
    write: Option<WriteCall>,
    /// `read_vector`, `write_vector`, `read_selection`, `write_selection`; without them libhdf5 calls `read` and
    /// `write`.
    several: [Call; 4],
    /// `flush`, `truncate`, `lock`, `unlock`, `del`, `ctl`.
    others: [Call; 6],
    free_lists: [c_int; 7],
}

impl Class {
    /// Whether this is the class of `sec2` in the layout that is known here: what it has at the beginning, in the
    /// middle and at the end.
    fn is_sec2(&self) -> bool {
        let is_begun = self.version == 1 && self.value == 0 && !self.name.is_null();
        // SAFETY: in a class of this version the name is a terminated text.
        let is_named = is_begun && unsafe { CStr::from_ptr(self.name) } == c"sec2";
        let has_calls = self.handle.is_some() && self.write.is_some() && self.files.iter().all(Option::is_some);
        let has_no_more = self.access_bytes == 0 && self.transfer_bytes == 0 && self.several.iter().all(Option::is_none);
        // H5FD_FLMAP_DICHOTOMY
        is_named && has_calls && has_no_more && self.free_lists == [1, 1, 1, 3, 3, 1, 1]
    }
}

struct Driver {
    id: hid_t,
    /// These two are those of `sec2`.
    write: WriteCall,
    handle: HandleCall,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Numbers below 256 are libhdf5's own.
const NUMBER: c_int = 511;

/// The driver, registered when it is first asked for. (Not within a lock of [`DRIVER`], because threads that have
/// libhdf5 locked use it.)
fn driver() -> hdf5::Result<&'static Driver> {
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let sec2 = class_of_sec2()?;
    let (true, Some(write), Some(handle)) = (sec2.is_sec2(), sec2.write, sec2.handle) else {
        return Err("this libhdf5 has drivers of another form than HDF5 1.14".into());
    };
    // The end of this driver is not that of `sec2`.
    let (name, terminate) = (c"konkordia".as_ptr(), None);
    let class = Class { value: NUMBER, name, terminate, write: Some(write_or_leave), ..sec2 };
    // SAFETY: the class has the layout of libhdf5 (checked above) and its name is static; libhdf5 copies the rest.
    let id = h5check(sync(|| unsafe { H5FDregister((&raw const class).cast()) }))?;
    Ok(DRIVER.get_or_init(|| Driver { id, write, handle }))
}

/// A file that was opened with `sec2` leads to its class. No public function does.
fn class_of_sec2() -> hdf5::Result<Class> {
    let access = FileAccess::build().sec2().finish()?;
    // SAFETY: a terminated name and an open list; an open file names its class, which is copied here.
    sync(|| unsafe {
        let file = H5FDopen(c"/dev/null".as_ptr(), H5F_ACC_RDONLY, access.id(), HADDR_UNDEF);
        let code: herr_t = if file.is_null() { -1 } else { 0 };
        h5check(code)?;
        let class = (*file).cls.cast::<Class>().read();
        h5check(H5FDclose(file))?;
        Ok(class)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// The numbers are the sums of the fields in H5FDdevelop.h, where a pointer has 8 bytes.
    #[test]
    fn the_class_has_the_layout_of_libhdf5() {
        assert_eq!(hdf5::library_version().0, 1);
        assert_eq!(hdf5::library_version().1, 14);
        let class = class_of_sec2().unwrap();
        assert!(class.is_sec2());
        assert_eq!((offset_of!(Class, files), offset_of!(Class, handle), offset_of!(Class, write)), (120, 200, 216));
        assert_eq!((offset_of!(Class, free_lists), size_of::<Class>()), (304, 336));
        let mut other = class;
        other.free_lists.rotate_left(1);
        assert!(!other.is_sec2());
    }
}
