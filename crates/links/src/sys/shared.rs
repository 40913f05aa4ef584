//! Memory that several programs of one host have mapped. There is never a reference to its bytes, only copies, and
//! words that are read and written as a whole.

use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Neither side can make the file shorter, which would end a program that touches its memory.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A sealed file without a name, mapped. The memory is freed when the last program has let it go.
pub(crate) struct Shared {
    file: File,
    start: NonNull<u8>,
    length_bytes: usize,
}

// SAFETY: the mapping has no thread affinity; its bytes are reached by copies and by atomic words only.
unsafe impl Send for Shared {}
// SAFETY: as above. Copies of several threads into the same bytes leave some of each, as those of other programs do.
unsafe impl Sync for Shared {}

fn done(code: libc::c_int) -> io::Result<libc::c_int> {
    if code < 0 { Err(Error::last_os_error()) } else { Ok(code) }
}

impl Shared {
    /// A new file of `length_bytes` zeros; pages are taken when they are touched.
    pub(crate) fn create(length_bytes: usize) -> io::Result<Self> {
        // SAFETY: the name ends with a zero; the call makes a file and touches no memory.
        let fd = done(unsafe { libc::memfd_create(c"konkordia".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
        // SAFETY: the call above has made it, and nobody else has it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(length_bytes as u64)?;
        // SAFETY: `fd` is open; the call touches no memory.
        done(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
        Self::map(file)
    }

    /// The file of another program; it must have the seals of [`Self::create`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: `file` is open; the call touches no memory. It fails for files that cannot have seals.
        let seals = done(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        if seals & needed != needed {
            return Err(Error::new(ErrorKind::InvalidData, "its size is not sealed"));
        }
        Self::map(file)
    }

    fn map(file: File) -> io::Result<Self> {
        let length_bytes = usize::try_from(file.metadata()?.len()).map_err(|_| ErrorKind::OutOfMemory)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length_bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::other("mmap gave a null address"))?;
        let shared = Self { file, start, length_bytes };
        // SAFETY: the range was mapped above; the advice changes no content, and its failure changes only speed.
        unsafe { libc::madvise(shared.start.as_ptr().cast(), length_bytes, libc::MADV_HUGEPAGE) };
        Ok(shared)
    }

    /// Takes all pages now, so that none is missing later.
    pub(crate) fn populate(&self) -> io::Result<()> {
        // SAFETY: the range is what was mapped. The call touches pages and changes no bytes.
        let code = unsafe { libc::madvise(self.start.as_ptr().cast(), self.length_bytes, libc::MADV_POPULATE_WRITE) };
        match done(code) {
            // Kernels before 5.14 do not have it; pages are taken one by one then.
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// The number by which this program has the file open.
    pub(crate) fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn is_inside(&self, offset_bytes: usize, bytes: usize) -> bool {
        offset_bytes.checked_add(bytes).is_some_and(|end| end <= self.length_bytes)
    }

    /// Copies bytes out; `false` if they do not lie in it.
    pub(crate) fn read(&self, offset_bytes: usize, into: &mut [u8]) -> bool {
        let is_inside = self.is_inside(offset_bytes, into.len());
        if is_inside {
            // SAFETY: the range is mapped (line above), and the file cannot become shorter (seals). `into` is memory of
            // this program alone. Others may write meanwhile; bytes have no invalid values.
            unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset_bytes), into.as_mut_ptr(), into.len()) }
        }
        is_inside
    }

    /// Copies bytes into it; `false` if they do not fit there.
    pub(crate) fn write(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        let is_inside = self.is_inside(offset_bytes, bytes.len());
        if is_inside {
            // SAFETY: as in `read`, the other way round.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset_bytes), bytes.len()) }
        }
        is_inside
    }

    /// As [`Self::write`], past the caches where the processor can: for bytes that nobody reads soon. They are in
    /// memory when it returns.
    pub(crate) fn write_past_caches(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        let is_inside = self.is_inside(offset_bytes, bytes.len());
        if is_inside {
            // SAFETY: as in `write`.
            unsafe { past_caches::copy(bytes, self.start.as_ptr().add(offset_bytes)) }
        }
        is_inside
    }

    /// Writes zeros past the caches; `false` if they do not fit there.
    pub(crate) fn clear(&self, offset_bytes: usize, bytes: usize) -> bool {
        let is_inside = self.is_inside(offset_bytes, bytes);
        if is_inside {
            // SAFETY: as in `write`.
            unsafe { past_caches::clear(self.start.as_ptr().add(offset_bytes), bytes) }
        }
        is_inside
    }

    /// A word, by a multiple of 8; `None` if it does not lie in it.
    pub(crate) fn word(&self, offset_bytes: usize) -> Option<&AtomicU64> {
        if !offset_bytes.is_multiple_of(8) || !self.is_inside(offset_bytes, 8) {
            return None;
        }
        // SAFETY: the word is mapped as long as `self` lives and aligned (mappings begin at pages; line above). All who
        // look at it in the meantime do so by atomic operations, or by copies of which nothing is concluded.
        Some(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset_bytes).cast()) })
    }

    /// Holds the byte at `offset_bytes` of the file until this program ends or lets the memory go; `false` if another
    /// program holds it.
    pub(crate) fn hold(&self, offset_bytes: usize) -> io::Result<bool> {
        let lock = byte(offset_bytes);
        // SAFETY: `lock` is a whole structure that outlives the call.
        match done(unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Does another program, or another mapping of this one, hold this byte?
    pub(crate) fn is_held(&self, offset_bytes: usize) -> io::Result<bool> {
        let mut lock = byte(offset_bytes);
        // SAFETY: `lock` is a whole structure that outlives the call, which may write it.
        done(unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) })?;
        Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK)
    }
}

/// Stores that go to memory and take no line of a cache. A line that is written as a whole is not read before.
mod past_caches {
    /// Bytes of a line.
    const LINE_BYTES: usize = 64;

    /// Bytes before the first whole line, and bytes of whole lines.
    fn lines(start: usize, bytes: usize) -> (usize, usize) {
        let head = (start.wrapping_neg() % LINE_BYTES).min(bytes);
        (head, (bytes - head) / LINE_BYTES * LINE_BYTES)
    }

    /// Copies `bytes` to `to`.
    ///
    /// # Safety
    /// As many bytes can be written there, and they are other memory.
    pub(super) unsafe fn copy(bytes: &[u8], to: *mut u8) {
        let (head, body) = lines(to as usize, bytes.len());
        let from = bytes.as_ptr();
        // SAFETY: head, body and rest are parts of both ranges; `stream` gets whole lines that begin at one.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            stream(to.add(head), body, Some(from.add(head)));
            std::ptr::copy_nonoverlapping(from.add(head + body), to.add(head + body), bytes.len() - head - body);
        }
    }

    /// Writes `bytes` zeros at `to`.
    ///
    /// # Safety
    /// As many bytes can be written there.
    pub(super) unsafe fn clear(to: *mut u8, bytes: usize) {
        let (head, body) = lines(to as usize, bytes);
        // SAFETY: as in `copy`.
        unsafe {
            std::ptr::write_bytes(to, 0, head);
            stream(to.add(head), body, None);
            std::ptr::write_bytes(to.add(head + body), 0, bytes - head - body);
        }
    }

    /// Whole lines, from `from` or zeros.
    ///
    /// # Safety
    /// `to` is the beginning of a line, `bytes` a multiple of a line, and both ranges are as in [`copy`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn stream(to: *mut u8, bytes: usize, from: Option<*const u8>) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};
        const WORD_BYTES: usize = size_of::<__m128i>();
        // SAFETY: every x86-64 has SSE2. Each word lies in both ranges, and those that are written are aligned. The
        // fence orders these stores before all that follow.
        unsafe {
            for at in (0..bytes).step_by(WORD_BYTES) {
                let word = from.map_or(_mm_setzero_si128(), |from| _mm_loadu_si128(from.add(at).cast()));
                _mm_stream_si128(to.add(at).cast(), word);
            }
            _mm_sfence();
        }
    }

    /// As above, through the caches.
    ///
    /// # Safety
    /// As above.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn stream(to: *mut u8, bytes: usize, from: Option<*const u8>) {
        // SAFETY: the ranges are those of the caller.
        unsafe {
            match from {
                Some(from) => std::ptr::copy_nonoverlapping(from, to, bytes),
                None => std::ptr::write_bytes(to, 0, bytes),
            }
        }
    }
}

/// An exclusive lock of one byte.
fn byte(offset_bytes: usize) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset_bytes as libc::off_t,
        l_len: 1,
        l_pid: 0,
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the range is what `map` mapped, and the owner is gone, so nobody has a word of it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn again(shared: &Shared) -> Shared {
        Shared::open(Path::new(&format!("/proc/self/fd/{}", shared.number()))).unwrap()
    }

    #[test]
    fn both_mappings_see_the_same_bytes_and_none_beyond_the_end() {
        let here = Shared::create(8192).unwrap();
        here.populate().unwrap();
        let there = again(&here);
        assert_eq!(there.length_bytes(), 8192);
        assert!(there.write(8190, &[1, 2]) && !there.write(8191, &[1, 2]) && !there.write(usize::MAX, &[1]));
        let mut two = [0; 2];
        assert!(here.read(8190, &mut two) && !here.read(8191, &mut two) && two == [1, 2]);
        assert!(here.clear(8190, 2) && !here.clear(8190, 3) && there.read(8190, &mut two) && two == [0, 0]);
        there.word(8184).unwrap().store(7, Ordering::Release);
        assert_eq!(here.word(8184).unwrap().load(Ordering::Acquire), 7);
        assert!(here.word(8192).is_none() && here.word(4).is_none() && here.word(usize::MAX - 7).is_none());
    }

    #[test]
    fn past_the_caches_the_same_bytes_are_written_and_no_others() {
        let here = Shared::create(4096).unwrap();
        let there = again(&here);
        let bytes: Vec<u8> = (0..1000).map(|n| (n * 7 + 1) as u8).collect();
        let mut all = vec![0; 4096];
        for offset in [0, 1, 15, 16, 63, 64, 65, 100] {
            for length in [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500, 1000] {
                assert!(here.write(0, &[0xEE; 4096]));
                assert!(here.write_past_caches(offset, &bytes[..length]));
                assert!(there.read(0, &mut all));
                let (before, rest) = all.split_at(offset);
                let (inside, behind) = rest.split_at(length);
                assert!(inside == &bytes[..length] && before.iter().chain(behind).all(|byte| *byte == 0xEE), "{offset} {length}");
                assert!(here.clear(offset, length) && there.read(0, &mut all));
                let (before, rest) = all.split_at(offset);
                let (inside, behind) = rest.split_at(length);
                assert!(inside.iter().all(|byte| *byte == 0), "{offset} {length}");
                assert!(before.iter().chain(behind).all(|byte| *byte == 0xEE), "{offset} {length}");
            }
        }
        assert!(!here.write_past_caches(4000, &bytes) && !here.clear(4000, 97));
    }

    #[test]
    fn nobody_can_make_it_shorter_and_what_could_be_made_shorter_is_refused() {
        let here = Shared::create(8192).unwrap();
        assert!(again(&here).file.set_len(0).is_err() && here.file.set_len(1 << 20).is_err());
        assert!(Shared::open(Path::new("/dev/null")).is_err());
        assert!(Shared::open(&std::env::current_exe().unwrap()).is_err());
    }

    #[test]
    fn a_byte_is_held_until_the_mapping_is_let_go() {
        let here = Shared::create(4096).unwrap();
        let (one, other) = (again(&here), again(&here));
        assert!(!here.is_held(5).unwrap() && one.hold(5).unwrap());
        assert!(here.is_held(5).unwrap() && !here.is_held(6).unwrap() && !other.hold(5).unwrap());
        drop(one);
        assert!(!here.is_held(5).unwrap() && other.hold(5).unwrap());
    }
}
