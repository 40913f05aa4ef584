//! What the caller says of the files: their format, and which frames are wanted.

/// Format of the input files; without it the content decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Acquisition of the slsReceiver: its JSON master, or data files beside it
    SlsRaw,
    /// Records of header (48 bytes), packet mask (64 bytes) and pixels, without a master
    Raw112,
    /// Records of header (48 bytes) and pixels
    Raw48,
    /// Records of frame number and bunch id (16 bytes) and pixels
    Raw16,
    /// Plain uint16 words without headers: frames of modules x 512 x 1024 pixels
    U16,
    /// HDF5: a run of Konkordia with dtype = "raw", files of the slsReceiver or of SwissFEL
    Hdf5,
}

impl Format {
    /// All of them, with their names and what they are.
    pub const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::SlsRaw, "sls-raw", "Acquisition of the slsReceiver: its JSON master, or data files beside it"),
        (Self::Raw112, "raw112", "Records of header (48 bytes), packet mask (64 bytes) and pixels, without a master"),
        (Self::Raw48, "raw48", "Records of header (48 bytes) and pixels"),
        (Self::Raw16, "raw16", "Records of frame number and bunch id (16 bytes) and pixels"),
        (Self::U16, "u16", "Plain uint16 words without headers: frames of modules x 512 x 1024 pixels"),
        (Self::Hdf5, "hdf5", "HDF5: a run of Konkordia with dtype = \"raw\", files of the slsReceiver or of SwissFEL"),
    ];
}

/// What the files do not say themselves, and which frames are wanted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Format of the files.
    pub format: Option<Format>,
    /// Modules of plain words; 1 if not given.
    pub modules: Option<u32>,
    /// Which detector of a SwissFEL file; needed only if there are several.
    pub detector: Option<String>,
    /// The configuration places each tile, in the order of the ports: they are not ordered by their headers.
    pub in_port_order: bool,
    /// Only frames with these numbers, both ends included.
    pub frames: Option<(u64, u64)>,
}
