//! Paths inside the files of a run.

/// Path of the image stack in a data file.
pub(crate) const STACK: &str = "/entry/data/data";
/// Group of the per-image columns, in data files and in the master.
pub(crate) const COLUMNS: &str = "/entry/konkordia/images";
/// Run description, in data files and in the master.
pub(crate) const DESCRIPTION: &str = "/entry/konkordia/run_description";
/// This program's group in the master.
pub(crate) const OWN: &str = "/entry/konkordia";
/// The pixel mask in the master.
pub(crate) const MASK: &str = "/entry/instrument/detector/pixel_mask";
/// The mask as the run had it, in data files.
pub(crate) const MASK_OF_DATA: &str = "/entry/konkordia/pixel_mask";
