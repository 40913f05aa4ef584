//! How the files of a run are written: what becomes of older files, and how a master names the images.

/// What to do when files of this run exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Refuse to start.
    #[default]
    Refuse,
    /// Remove the master and all data files of the same prefix at create.
    Replace,
}

/// How the master names the images. fabio adds up every member of `/entry/data` whose name starts with "data", so it
/// counts images twice if a virtual data set called `data` stands beside links `data_000001`. XDS (neggia) needs the
/// links; most NeXus readers follow `@signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Links `data_000001` and so on, and the virtual data set `images`, named by `@signal`: right in every reader
    /// tested.
    #[default]
    Both,
    /// Only the virtual data set, called `data`. Not for XDS or ALBULA.
    Virtual,
    /// Only the links. Not for DIALS when there is more than one data file.
    Links,
}

impl Layout {
    /// Name in configurations and in the files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Virtual => "virtual",
            Self::Links => "links",
        }
    }

    /// Name, in `/entry/data`, of the one data set that has all images; `None` if there are only links.
    pub const fn stack(self) -> Option<&'static str> {
        match self {
            Self::Both => Some("images"),
            Self::Virtual => Some("data"),
            Self::Links => None,
        }
    }

    /// The layout of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Both, Self::Virtual, Self::Links].into_iter().find(|layout| layout.name() == name)
    }
}
