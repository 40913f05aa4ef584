//! Memory with an address by which other programs of the host find it.

use crate::sys::shared::Shared;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Before the memory: what it is, and the number that its address has too.
const HEAD_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"KONKSHM1");
const OWNER: usize = 0;

/// Memory that programs of one host share.
pub struct Memory {
    shared: Shared,
    pub(super) address: Address,
}

/// Where another program finds the memory: `PROCESS/FILE/NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    process: u32,
    pub(super) file: i32,
    /// Not to be guessed: a file that came into the place of the right one has another.
    pub(super) number: u64,
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

    /// Opens the memory of another program. Pages are taken when they are touched, or by [`Self::populate`].
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

    /// As [`Self::write`], past the caches: for bytes that the other program does not read soon.
    #[inline]
    pub fn write_past_caches(&self, offset_bytes: usize, bytes: &[u8]) -> bool {
        offset_bytes.checked_add(HEAD_BYTES).is_some_and(|at| self.shared.write_past_caches(at, bytes))
    }

    /// Writes zeros; `false` if they do not fit there.
    pub fn clear(&self, offset_bytes: usize, bytes: usize) -> bool {
        offset_bytes.checked_add(HEAD_BYTES).is_some_and(|at| self.shared.clear(at, bytes))
    }

    /// The number at a multiple of 8; what its writer wrote before is seen after it. `None` if it does not lie in it.
    pub fn load(&self, offset_bytes: usize) -> Option<u64> {
        Some(self.word(offset_bytes)?.load(Ordering::Acquire))
    }

    /// Writes a number at a multiple of 8, behind all that was written before; `false` if it does not lie there.
    pub fn store(&self, offset_bytes: usize, value: u64) -> bool {
        self.word(offset_bytes).map(|word| word.store(value, Ordering::Release)).is_some()
    }

    /// A word, by a multiple of 8; `None` if it does not lie in it.
    pub(super) fn word(&self, offset_bytes: usize) -> Option<&AtomicU64> {
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
        assert!(there.store(88, 5) && !there.store(100, 5) && !there.store(4, 5) && !there.store(usize::MAX - 7, 5));
        assert_eq!((here.load(88), here.load(96), here.load(usize::MAX - 7)), (Some(5), None, None));
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
