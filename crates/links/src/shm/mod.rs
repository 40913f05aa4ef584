//! Memory of one program that others of the same host write into. The one who makes it tells its [`Memory::address`];
//! who opens that may write everywhere in it, so its bytes are believed no more than those of a packet.
//!
//! The memory is a file without a name (`memfd`), which others reach by `/proc/PID/fd/NUMBER`: both programs have to
//! run on one host and belong to one user. Its size is sealed, so that nobody can end the other program by making it
//! shorter. Each side holds a lock of the file as long as it lives, by which the other one sees that it has gone, also
//! when it was killed.
//!
//! [`Writer`] and [`Reader`] are the ends of a queue in such memory: what was written is told there. [`Listener`] and
//! [`connect`] make a [`Link`] of both.

mod device;
mod queue;

pub use queue::{Broken, ENTRY_BYTES, Entry, Reader, Writer, queue_bytes};

use crate::remote::RemoteLink;
use crate::sys::shared::Shared;
use crate::{Link, LinkError, tcp};
use device::SharedMemory;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Before the memory: what it is, and the number that its address has too.
const HEAD_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"KONKSHM1");
const OWNER: usize = 0;
/// Name of the kind of link.
pub(crate) const KIND: &str = "shm";

/// Memory that programs of one host share.
pub struct Memory {
    shared: Shared,
    address: Address,
}

/// Where another program finds the memory: `PROCESS/FILE/NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    process: u32,
    file: i32,
    /// Not to be guessed: a file that came into the place of the right one has another.
    number: u64,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{:016x}", self.process, self.file, self.number)
    }
}

impl Address {
    fn of(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (process, file, number) = (parts.next()?, parts.next()?, parts.next()?);
        let number = u64::from_str_radix(number, 16).ok()?;
        let address = Self { process: process.parse().ok()?, file: file.parse().ok()?, number };
        (parts.next().is_none() && address.to_string() == text).then_some(address)
    }
}

impl Memory {
    /// Makes memory of `length_bytes` zeros, and holds it.
    ///
    /// # Errors
    /// The system has no such memory.
    pub fn create(length_bytes: usize) -> Result<Self> {
        let all = length_bytes.checked_add(HEAD_BYTES).ok_or(ErrorKind::OutOfMemory)?;
        let shared = Shared::create(all)?;
        let number = RandomState::new().build_hasher().finish();
        let words = [shared.word(0), shared.word(8)];
        for (word, value) in words.into_iter().zip([MAGIC, number]) {
            word.ok_or(ErrorKind::OutOfMemory)?.store(value, Ordering::Release);
        }
        if !shared.hold(OWNER)? {
            return Err(Error::other("somebody holds memory that was just made"));
        }
        let address = Address { process: std::process::id(), file: shared.number(), number };
        Ok(Self { shared, address })
    }

    /// Opens the memory of another program, and takes all its pages.
    ///
    /// # Errors
    /// It cannot be reached, is something else, or its owner has gone.
    pub fn open(address: &str) -> Result<Self> {
        let wrong = |why: &str| Error::new(ErrorKind::InvalidData, format!("{address}: {why}"));
        let address = Address::of(address).ok_or_else(|| wrong("that is no address of shared memory"))?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", address.process, address.file));
        let shared = Shared::open(&path).map_err(|error| {
            let why = format!("{}: {error}; both programs have to run on one host, by the same user", path.display());
            Error::new(error.kind(), why)
        })?;
        let word = |at| shared.word(at).map(|word| word.load(Ordering::Acquire));
        if word(0) != Some(MAGIC) || word(8) != Some(address.number) {
            return Err(wrong("another program has this number by now, or it is no memory of Konkordia"));
        }
        let memory = Self { shared, address };
        if memory.is_owner_gone()? {
            return Err(wrong("its owner has gone"));
        }
        memory.shared.populate()?;
        Ok(memory)
    }

    /// What others give to [`Self::open`].
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Its size.
    pub fn length_bytes(&self) -> usize {
        self.shared.length_bytes() - HEAD_BYTES
    }

    /// Takes all pages now, so that none is missing later.
    ///
    /// # Errors
    /// The system has not so much memory.
    pub fn populate(&self) -> Result<()> {
        self.shared.populate()
    }

    /// Copies bytes out; `false` if they do not lie in it.
    #[inline]
    pub fn read(&self, offset_bytes: usize, into: &mut [u8]) -> bool {
        offset_bytes.checked_add(HEAD_BYTES).is_some_and(|at| self.shared.read(at, into))
    }

    /// Copies bytes into it; `false` if they do not fit there.
    #[inline]
    pub fn write(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        offset_bytes.checked_add(HEAD_BYTES).is_some_and(|at| self.shared.write(at, bytes))
    }

    /// Writes zeros; `false` if they do not fit there.
    pub fn clear(&self, offset_bytes: usize, bytes: usize) -> bool {
        offset_bytes.checked_add(HEAD_BYTES).is_some_and(|at| self.shared.clear(at, bytes))
    }

    fn word(&self, offset_bytes: usize) -> Option<&std::sync::atomic::AtomicU64> {
        self.shared.word(offset_bytes.checked_add(HEAD_BYTES)?)
    }

    /// Has the program that made it ended? It is asked of those that have opened it.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_owner_gone(&self) -> Result<bool> {
        Ok(!self.shared.is_held(OWNER)?)
    }

    /// Holds the byte at this offset as long as this program has the memory; `false` if another one holds it. Nothing
    /// is written.
    ///
    /// # Errors
    /// The system does not do that.
    pub fn hold(&self, offset_bytes: usize) -> Result<bool> {
        self.shared.hold(offset_bytes.saturating_add(HEAD_BYTES))
    }

    /// Does another program hold this byte?
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_held(&self, offset_bytes: usize) -> Result<bool> {
        self.shared.is_held(offset_bytes.saturating_add(HEAD_BYTES))
    }
}

/// Waits for other programs of this host to connect.
pub struct Listener {
    control: tcp::Listener,
}

impl Listener {
    /// Listens at `address`, over TCP; port 0 takes a free one. Writes come by shared memory.
    pub fn bind(address: SocketAddr) -> std::result::Result<Self, LinkError> {
        Ok(Self { control: tcp::Listener::bind(address)? })
    }

    /// The address at which it listens.
    pub fn local_addr(&self) -> std::result::Result<SocketAddr, LinkError> {
        self.control.local_addr()
    }

    /// The next program that connects, if one does in time. An error is about that program, or about the memory.
    pub fn accept(&self, timeout: Duration) -> std::result::Result<Option<Box<dyn Link>>, LinkError> {
        self.control.accept(timeout)?.map(|control| meet(control, timeout)).transpose()
    }
}

/// Connects to a [`Listener`], which must accept at the same time.
pub fn connect(address: SocketAddr, timeout: Duration) -> std::result::Result<Box<dyn Link>, LinkError> {
    meet(tcp::connect(address, timeout)?, timeout)
}

pub(crate) fn meet(control: tcp::TcpLink, timeout: Duration) -> std::result::Result<Box<dyn Link>, LinkError> {
    let io = |source| LinkError::Io { link: format!("shm {}", control.other()), source };
    let device = SharedMemory::new().map_err(io)?;
    Ok(Box::new(RemoteLink::meet(control, KIND, device, timeout)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_its_address_and_nothing_else_is_taken_for_it() {
        let here = Memory::create(100).unwrap();
        let address = here.address();
        let there = Memory::open(&address).unwrap();
        assert!(there.write(99, &[7]) && !there.write(100, &[7]) && there.length_bytes() == 100);
        let mut byte = [0];
        assert!(here.read(99, &mut byte) && byte == [7] && !here.read(usize::MAX, &mut byte));
        let says = |address: &str, part: &str| {
            let why = Memory::open(address).err().expect("refused").to_string();
            assert!(why.contains(part), "{why}");
        };
        says("x", "no address");
        says(&format!("{address}/1"), "no address");
        says(&format!("+{address}"), "no address");
        says(&format!("{}/1000000/0000000000000000", std::process::id()), "by the same user");
        let (file, number) = (here.address.file, !here.address.number);
        says(&format!("{}/{file}/{number:016x}", std::process::id()), "another program");
        assert!(!there.is_owner_gone().unwrap());
        drop(here);
        assert!(there.is_owner_gone().unwrap());
        says(&there.address.to_string(), "");
    }
}
