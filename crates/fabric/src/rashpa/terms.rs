//! The entities of RASHPA (EUCALL D5.2, 3.2.2) as types. The *system manager* configures; *data receivers* own memory;
//! *detector modules* write into it. A *data slice* is a numbered interval of time, a *dataset* a class of data, and a
//! *data block* what one module has of one dataset in one slice.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty), $word:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    )+};
}

ids! {
    /// A detector module.
    ModuleId(u16), "module";
    /// A data receiver.
    ReceiverId(u16), "receiver";
    /// A link of a module or receiver.
    LinkId(u8), "link";
    /// A local buffer: memory of one receiver. Unique in its receiver, not 0; with RDMA over UDP it is the destination
    /// port.
    BufferId(u16), "local buffer";
    /// A receive buffer: a list of local buffers, maybe of several receivers.
    ReceiveBufferId(u16), "receive buffer";
    /// A data transfer process: what is sent, where to and how.
    DtpId(u8), "transfer";
}

/// A class of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dataset {
    /// The pixels of the module.
    Image,
    /// A rectangle of them.
    RegionOfInterest,
    /// What else the module has to say of a slice.
    Metadata,
}

/// The memory of a local buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Ordinary pages.
    Ram,
    /// Huge pages.
    HugePages,
    /// Memory of a graphics card.
    Gpu,
}

/// How a link carries writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// PCI Express over a cable.
    Pcie,
    /// RoCEv2.
    Roce,
    /// RDMA over UDP.
    RdmaUdp,
    /// libfabric.
    Ofi,
    /// Memory that programs of one host share.
    Shm,
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// The pixels of a module, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes of a pixel.
    pub pixel_bytes: u32,
}

impl Geometry {
    /// Bytes of an image of the module. At most 2^72, so as u128.
    pub const fn image_bytes(&self) -> u128 {
        self.width as u128 * self.height as u128 * self.pixel_bytes as u128
    }

    /// True if the region has a pixel and lies in the module.
    pub const fn contains(&self, region: &Region) -> bool {
        let right = region.x as u64 + region.width as u64;
        let below = region.y as u64 + region.height as u64;
        region.width > 0 && region.height > 0 && right <= self.width as u64 && below <= self.height as u64
    }
}

/// The slices of a transfer: `first`, `first + step`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slices {
    /// The first one.
    pub first: u64,
    /// How many; `None` for no end.
    pub count: Option<u64>,
    /// Each how many-th; not 0.
    pub step: u32,
}

impl Slices {
    /// Place of `slice` among the slices of the transfer, from 0; `None` if it is none of them.
    pub const fn position(&self, slice: u64) -> Option<u64> {
        let Some(behind) = slice.checked_sub(self.first) else { return None };
        let Some(rest) = behind.checked_rem(self.step as u64) else { return None };
        let position = behind / self.step as u64;
        match self.count {
            _ if rest != 0 => None,
            Some(count) if position >= count => None,
            _ => Some(position),
        }
    }

    /// The slice at a place; `None` beyond the end.
    pub fn at(&self, position: u64) -> Option<u64> {
        let is_one = self.count.is_none_or(|count| position < count);
        is_one.then(|| position.checked_mul(self.step.into())?.checked_add(self.first)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_their_positions_belong_together() {
        let slices = Slices { first: 10, count: Some(3), step: 4 };
        let positions: Vec<_> = (0..30).filter_map(|slice| Some((slice, slices.position(slice)?))).collect();
        assert_eq!(positions, [(10, 0), (14, 1), (18, 2)]);
        assert_eq!([0, 1, 2, 3].map(|position| slices.at(position)), [Some(10), Some(14), Some(18), None]);
        let endless = Slices { count: None, ..slices };
        assert_eq!((endless.at(u64::MAX), endless.position(u64::MAX - 1)), (None, Some((u64::MAX - 11) / 4)));
        assert_eq!(Slices { step: 0, ..slices }.position(11), None);
    }

    #[test]
    fn a_region_lies_in_its_module() {
        let geometry = Geometry { width: 8, height: 4, pixel_bytes: 2 };
        let region = |x, y, width, height| geometry.contains(&Region { x, y, width, height });
        assert!(region(0, 0, 8, 4) && region(7, 3, 1, 1));
        assert!(!region(1, 0, 8, 4) && !region(0, 1, 8, 4) && !region(0, 0, 0, 1) && !region(u32::MAX, 0, u32::MAX, 1));
    }
}
