//! The outputs of the program for committed images: NeXus HDF5 files, written so that a killed run loses at most the
//! last second, and ZeroMQ messages. It never computes a pixel (chunks arrive compressed, decoders arrive as callbacks)
//! and starts one kind of thread, which brings files to the disk. Read [`hdf5::Writer`] first, then
//! [`hdf5::spec::FileSpec`]; docs/formats.md has every path of the files.
//!
//! ```
//! use konkordia_core::array::{Array, Element, Packing, Shape};
//! use konkordia_core::image::{Channel, CommittedImage};
//! use konkordia_core::ledger::ImageStatus;
//! use konkordia_core::ports::Sink;
//! use konkordia_core::series::{Ended, SeriesEnd, SeriesLedger, SeriesStart};
//! use konkordia_sinks::hdf5::{Compression, FileSink, FileSpec, Reader, SeriesFileSpec};
//! use std::sync::Arc;
//!
//! // A series of one image of 2 x 3 pixels, written and read back.
//! let folder = tempfile::tempdir()?;
//! let file = FileSpec { directory: folder.path().into(), prefix: "run".into(), ..FileSpec::default() };
//! let spec = SeriesFileSpec { file, ..SeriesFileSpec::default() };
//! let mut sink = FileSink::of_series(Box::new(move |_| Ok(Some(spec.clone().into()))));
//! sink.start(&Arc::new(SeriesStart { store: true, ..SeriesStart::default() }))?;
//! let array = Array {
//!     shape: Shape::new(&[2, 3]).expect("two dimensions"),
//!     element: Element::Uint16,
//!     packing: Packing::None,
//!     pieces: vec![vec![7; 12].into()],
//! };
//! let channels = vec![Channel { name: "".into(), array }];
//! sink.image(&Arc::new(CommittedImage { status: ImageStatus::Complete, channels, ..CommittedImage::lost(0) }))?;
//! let (ended, reason, ledger) = (Ended::Finished, String::new(), SeriesLedger::default());
//! sink.end(&Arc::new(SeriesEnd { ended, reason, ledger }))?;
//!
//! let reader = Reader::open(&folder.path().join("run_master.h5"))?;
//! // `konkordia_kernels::codec::decode` for compressed images.
//! let decode = |_: Compression, _: &[u8], _: usize, _: &mut [u8]| Err("not compressed".to_string());
//! assert_eq!(reader.read_image(0, &decode)?, [7; 12]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod clock;
pub mod durable;
pub mod hdf5;
#[allow(unsafe_code)]
mod sys;
pub mod zmq;
