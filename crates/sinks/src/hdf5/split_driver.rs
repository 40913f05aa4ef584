//! Opens files whose structure and pixels lie apart: `X.meta.h5` with `X.raw_1.h5` (HDF5's split driver), or with
//! pieces of constant size `X.raw_1.h5`, `X.raw_2.h5` and so on (the split driver, with the family driver for the
//! pixels).
//!
//! The family driver counts its members from 0. Our pieces begin with 1, so the file `X.raw_0.h5` is empty and the
//! pixels begin behind it. The size of a member is that of `X.raw_1.h5`. Where no piece is there, the split driver
//! opens the structure alone.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hdf5::h5check;
use hdf5::plist::FileAccess;
use hdf5::sync::sync;
use hdf5_sys::h5p::{H5P_DEFAULT, H5Pset_fapl_family, H5Pset_fapl_split};

/// Ending of the file with the structure.
pub const META: &str = ".meta.h5";

/// The files of one split file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitName {
    /// Everything before the endings.
    stem: PathBuf,
}

impl SplitName {
    /// That of a file with the structure; `None` if the name has not its ending.
    pub fn of(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(META).filter(|stem| !stem.is_empty())?;
        Some(Self { stem: path.with_file_name(stem) })
    }

    /// Those that are called `stem` before their endings.
    pub fn new(stem: &Path) -> Self {
        Self { stem: stem.to_owned() }
    }

    fn with(&self, ending: &str) -> PathBuf {
        let mut name = self.stem.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.stem.with_file_name(name)
    }

    /// The file with the structure.
    pub fn meta(&self) -> PathBuf {
        self.with(META)
    }

    /// Piece `number` of the pixels, from 1; 0 is the empty member of a family.
    pub fn raw(&self, number: u64) -> PathBuf {
        self.with(&format!(".raw_{number}.h5"))
    }

    /// Whether the pixels are in pieces of constant size.
    pub fn is_family(&self) -> bool {
        self.raw(0).exists()
    }

    /// Bytes of a piece of a family; 0 if the first one is not there.
    pub fn piece_bytes(&self) -> u64 {
        self.raw(1).metadata().map_or(0, |facts| facts.len())
    }

    /// The pieces that are there, in order, without a gap.
    pub fn pieces(&self) -> Vec<PathBuf> {
        (1..).map(|number| self.raw(number)).take_while(|path| path.exists()).collect()
    }

    /// Makes `access` one for these files. Returns the name that the library must be given.
    pub(super) fn set(&self, access: &FileAccess) -> hdf5::Result<CString> {
        let name = CString::new(self.stem.as_os_str().as_bytes()).map_err(|_| "zero byte in a file name")?;
        let is_family = self.is_family() && self.piece_bytes() > 0;
        // The drivers take names as formats of printf.
        if is_family && name.as_bytes().contains(&b'%') {
            return Err("a file in pieces must have no '%' in its path: the driver of HDF5 takes the path for a format".into());
        }
        let member = FileAccess::build().finish()?;
        let (meta, one, many) = (c".meta.h5", c".raw_1.h5", c".raw_%%d.h5");
        // SAFETY: valid property lists and terminated strings; the library copies them.
        sync(|| unsafe {
            let mut raw = (one, H5P_DEFAULT);
            if is_family {
                h5check(H5Pset_fapl_family(member.id(), self.piece_bytes(), H5P_DEFAULT))?;
                raw = (many, member.id());
            }
            h5check(H5Pset_fapl_split(access.id(), meta.as_ptr(), H5P_DEFAULT, raw.0.as_ptr(), raw.1))
        })?;
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_pieces() {
        let name = SplitName::of(Path::new("/d/run01.meta.h5")).expect("it is the structure of a split file");
        assert_eq!(name.meta(), Path::new("/d/run01.meta.h5"));
        assert_eq!((name.raw(1), name.raw(12)), (PathBuf::from("/d/run01.raw_1.h5"), PathBuf::from("/d/run01.raw_12.h5")));
        assert_eq!(name, SplitName::new(Path::new("/d/run01")));
        assert!(SplitName::of(Path::new("/d/run01_master.h5")).is_none() && SplitName::of(Path::new(".meta.h5")).is_none());
    }
}
