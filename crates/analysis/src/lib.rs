//! What an image shows: Bragg spots, the powder profile, sums of regions, hit or empty. It never reads files, clocks or
//! configurations and starts no thread: an image comes as a [`Plane`], results go into memory of the caller. Read
//! [`Plane`] first, then [`analyser::Analyser`], which does all that is asked of an image.
//!
//! ```
//! use konkordia_analysis::Plane;
//! use konkordia_analysis::dispersion::{Dispersion, Settings};
//! use konkordia_analysis::spot::SpotList;
//! use konkordia_kernels::Isa;
//!
//! // A spot of 3 x 3 pixels on a background of 3 and 4.
//! let mut pixels: Vec<u16> = (0..40 * 50).map(|n| 3 + n % 3 % 2).collect();
//! for (x, y) in (20..23).flat_map(|x| (10..13).map(move |y| (x, y))) {
//!     pixels[y * 50 + x] = 100;
//! }
//! let mut finder = Dispersion::new(Settings::default(), &vec![true; pixels.len()], 40, 50)?;
//! let mut list = SpotList::new(100);
//! finder.find(Isa::detect(), &Plane::own(&pixels, 50), &mut list);
//! assert_eq!((list.found, list.spots[0].x_px, list.spots[0].y_px), (1, 21.0, 11.0));
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

pub mod analyser;
pub mod azimuthal;
pub mod beam;
pub mod components;
pub mod crystfel;
pub mod dispersion;
pub mod figures;
pub mod geometry;
pub mod model;
pub mod ordered;
pub mod peakfinder8;
pub mod pixels;
pub mod plane;
pub mod poni;
pub mod regions;
pub mod resolution;
pub mod rule;
pub mod salt;
pub mod sparse;
pub mod spot;

pub use plane::Plane;
