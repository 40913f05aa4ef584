//! Memory that others may write or read: regions of bytes with an address, by key. This is where it is decided whether
//! an access is allowed; no memory is touched here. Who finds a place gets the region and the offset in it, checked.
//!
//! A key is a region's number and how often that number was given, mixed with a number that the owner chooses. So a key
//! that was revoked is not given again for 65 535 registrations under the same number, and numbers are used in
//! turn. Keys are no secret: who can send packets can try them all.
//!
//! Rules: InfiniBand Architecture Specification, volume 1, 10.6.3 (memory keys, protection domains, revocation).

use std::collections::VecDeque;
use std::fmt;

/// Number of a region: its place in the table. Protocols with buffer ids of their own use it as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u16);

impl RegionId {
    /// A number as it came from the wire; whether there is such a region shows when it is used.
    pub const fn new(id: u16) -> Self {
        Self(id)
    }

    /// As a number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// By which others name a region (R_Key).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u32);

impl Key {
    /// A key as it came from the wire.
    pub const fn new(key: u32) -> Self {
        Self(key)
    }

    /// As a number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Which queue pairs may use a region: those of the same domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProtectionDomain(pub u32);

/// What others may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Write only.
    Write,
    /// Read only.
    Read,
    /// Both.
    WriteAndRead,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Bytes are to be written.
    Write,
    /// Bytes are to be read.
    Read,
}

impl Rights {
    /// Whether they include an access.
    pub const fn allow(self, access: Access) -> bool {
        matches!((self, access), (Self::WriteAndRead, _) | (Self::Write, Access::Write) | (Self::Read, Access::Read))
    }
}

/// A region of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Address of the first byte, as others count.
    pub base: u64,
    /// Bytes; at least 1.
    pub length_bytes: u64,
    /// What others may do.
    pub rights: Rights,
    /// Who may use it.
    pub domain: ProtectionDomain,
}

impl Region {
    /// Offset of `address`, if so many bytes from there on are inside. Nothing overflows.
    fn offset(&self, address: u64, length_bytes: u64) -> Option<u64> {
        let room = self.length_bytes.checked_sub(length_bytes)?;
        address.checked_sub(self.base).filter(|offset| *offset <= room)
    }
}

/// Where bytes may go or come from: inside of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region.
    pub region: RegionId,
    /// Offset in it, in bytes.
    pub offset_bytes: u64,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key was never given.
    UnknownKey,
    /// The key was revoked.
    RevokedKey,
    /// The region is of another protection domain.
    OtherDomain,
    /// The region may not be accessed like that.
    NoRight,
    /// Not all bytes are inside of the region.
    OutOfBounds,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "no region was ever given this key",
            Self::RevokedKey => "the key was revoked",
            Self::OtherDomain => "the region belongs to another protection domain",
            Self::NoRight => "the region may not be accessed like that",
            Self::OutOfBounds => "not all bytes are inside of the region",
        })
    }
}

impl std::error::Error for Refusal {}

/// Why a region is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRegistered {
    /// The table is full; it holds so many regions.
    Full(usize),
    /// It has no bytes, or its end is beyond the last address.
    Range,
}

impl fmt::Display for NotRegistered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(regions) => {
                write!(f, "all {regions} regions of the table are in use; revoke one, or make a larger table")
            }
            Self::Range => f.write_str("the region has no bytes, or ends beyond the last address of 64 bits"),
        }
    }
}

impl std::error::Error for NotRegistered {}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    region: Option<Region>,
    /// How often this number was given, modulo 2^16.
    generation: u16,
    /// How often, up to 2^16: which generations were given.
    given: u32,
}

/// The regions of a receiver. Nothing allocates after construction.
#[derive(Debug)]
pub struct Regions {
    entries: Vec<Entry>,
    /// Numbers without a region; that which was freed longest ago is taken first.
    free: VecDeque<u16>,
    mix: u32,
}

impl Regions {
    /// Room for so many regions. `mix` makes the keys of different runs differ; any number will do.
    ///
    /// # Panics
    /// `regions_max` is 0 or more than 65 536.
    pub fn new(regions_max: usize, mix: u32) -> Self {
        assert!((1..=1 << 16).contains(&regions_max), "a table of {regions_max} regions; 1 to 65536 are possible");
        let free = (0..regions_max).map(|id| id as u16).collect();
        Self { entries: vec![Entry::default(); regions_max], free, mix }
    }

    /// Registers a region; others may access it from now on, with the key.
    ///
    /// # Errors
    /// The table is full, or the region is none.
    pub fn register(&mut self, region: Region) -> Result<(RegionId, Key), NotRegistered> {
        let is_range = region.length_bytes > 0 && region.base.checked_add(region.length_bytes - 1).is_some();
        if !is_range {
            return Err(NotRegistered::Range);
        }
        let id = self.free.pop_front().ok_or(NotRegistered::Full(self.entries.len()))?;
        let entry = &mut self.entries[usize::from(id)];
        entry.generation = entry.generation.wrapping_add(1);
        entry.given = (entry.given + 1).min(1 << 16);
        entry.region = Some(region);
        let key = Key((u32::from(entry.generation) << 16 | u32::from(id)) ^ self.mix);
        Ok((RegionId(id), key))
    }

    /// From now on nobody may access the region. Returns it, or `None` if there is none of this number.
    pub fn revoke(&mut self, id: RegionId) -> Option<Region> {
        let region = self.entries.get_mut(usize::from(id.0))?.region.take()?;
        self.free.push_back(id.0);
        Some(region)
    }

    /// The region of this number; `None` if there is none.
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        self.entries.get(usize::from(id.0))?.region.as_ref()
    }

    /// Regions that are registered.
    pub fn registered(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The entry that a key names, and how many registrations ago the key was given.
    fn entry(&self, key: Key) -> Result<(RegionId, &Region), Refusal> {
        let plain = key.0 ^ self.mix;
        let id = plain as u16;
        let entry = self.entries.get(usize::from(id)).ok_or(Refusal::UnknownKey)?;
        let age = entry.generation.wrapping_sub((plain >> 16) as u16);
        if u32::from(age) >= entry.given {
            return Err(Refusal::UnknownKey);
        }
        match &entry.region {
            Some(region) if age == 0 => Ok((RegionId(id), region)),
            _ => Err(Refusal::RevokedKey),
        }
    }

    /// Where `length_bytes` at `address` of the region with this key are, for a queue pair of `domain`.
    ///
    /// # Errors
    /// The first check that fails, in the order key, domain, right, bounds.
    #[inline]
    pub fn find(
        &self,
        key: Key,
        address: u64,
        length_bytes: u64,
        access: Access,
        domain: ProtectionDomain,
    ) -> Result<Place, Refusal> {
        let (id, region) = self.entry(key)?;
        if region.domain != domain {
            return Err(Refusal::OtherDomain);
        }
        if !region.rights.allow(access) {
            return Err(Refusal::NoRight);
        }
        let offset_bytes = region.offset(address, length_bytes).ok_or(Refusal::OutOfBounds)?;
        Ok(Place { region: id, offset_bytes })
    }

    /// Where `length_bytes` at an offset of the region with this number are: for protocols that name buffers by number,
    /// and for the owner's own buffers. The number says nothing of how often it was given.
    ///
    /// # Errors
    /// The first check that fails, in the order number, right, bounds.
    #[inline]
    pub fn find_by_id(&self, id: RegionId, offset_bytes: u64, length_bytes: u64, access: Access) -> Result<Place, Refusal> {
        let entry = self.entries.get(usize::from(id.0)).filter(|entry| entry.given > 0).ok_or(Refusal::UnknownKey)?;
        let region = entry.region.as_ref().ok_or(Refusal::RevokedKey)?;
        if !region.rights.allow(access) {
            return Err(Refusal::NoRight);
        }
        let is_inside = region.length_bytes.checked_sub(length_bytes).is_some_and(|room| offset_bytes <= room);
        if is_inside { Ok(Place { region: id, offset_bytes }) } else { Err(Refusal::OutOfBounds) }
    }
}

#[cfg(test)]
#[path = "regions_tests.rs"]
mod tests;
