//! What an image shows: Bragg spots, the powder profile, sums of regions, hit or empty. It never reads files, clocks or
//! configurations and starts no thread: an image comes as a [`Plane`], results go into memory of the caller. Read
//! [`Plane`] first, then [`analyser::Analyser`], which does all that is asked of an image.
#![forbid(unsafe_code)]

pub mod analyser;
pub mod azimuthal;
pub mod components;
pub mod dispersion;
pub mod geometry;
pub mod ordered;
pub mod peakfinder8;
pub mod plane;
pub mod poni;
pub mod regions;
pub mod resolution;
pub mod sparse;
pub mod spot;

pub use plane::Plane;
