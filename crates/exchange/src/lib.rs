//! Series of files of other programs into the files of Konkordia ([`import`]), and images of HDF5 files out again
//! ([`export`]): TIFF, CBF, EDF, SPE and plain pixels in; CBF, TIFF and EDF out. It reads and writes files only, prints
//! nothing, and never replaces or deletes a file that it has not made. Read [`files::Series`] and [`import::Import`]
//! first, then [`export::Export`].
//!
//! ```no_run
//! use konkordia_exchange::import::{Import, Request};
//! use std::sync::atomic::AtomicBool;
//!
//! let request = Request { input: vec!["thau".into()], output: "out/thau".into(), ..Request::default() };
//! let import = Import::open(request)?;
//! println!("{} images, {} numbers are missing", import.series().items.len(), import.series().gaps());
//! let done = import.run(&AtomicBool::new(false), &mut |_| ())?;
//! println!("{}", done.file.master.display());
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
#![forbid(unsafe_code)]

mod ended;
pub mod export;
pub mod files;
pub mod import;
pub mod mapping;
mod pack;
mod parallel;
