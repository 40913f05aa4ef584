//! HDF5 files. This is the only code of the project that calls libhdf5, for writing and for reading.
//!
//! A run is `<prefix>_master.h5` (NXmx, external links, virtual data set, ledger) and `<prefix>_data_000001.h5` and so
//! on (chunks and one row per image). While a data file grows, a journal beside it records every chunk; from it
//! [`repair::repair`] rebuilds what a killed process left behind (docs/decisions/0003-hdf5-crash-safety.md).
//!
//! [`FileSink`] takes committed images, of runs and of series; [`Writer`] takes chunks with their rows.

mod append;
mod bounded;
pub mod calibration;
pub mod calibration_planes;
pub mod calibration_reader;
mod channels;
pub mod check;
mod check_chunks;
mod checksum;
mod column_names;
mod columns;
mod constant;
mod continued;
mod datafile;
mod decode;
mod detector_place;
mod driver_file;
mod error;
mod experiment;
mod experiment_text;
mod extra_column;
pub mod extra_data;
mod fields;
mod file_sink;
pub mod foreign;
mod foreign_low;
mod goniometer;
mod handoff;
#[cfg(test)]
mod handoff_tests;
mod header;
mod image_times;
pub mod joined_table;
mod journal;
mod ledger;
mod look;
mod low;
mod mappings;
mod master;
pub mod mirror;
mod mirror_sums;
mod modules;
mod names;
mod nexus;
mod objects;
mod old_master;
pub mod one_file;
mod open_files;
pub mod others;
mod packing;
mod paths;
mod pedestals;
pub mod reader;
mod rebuild;
mod repack_losses;
pub mod repair;
mod rescue;
mod results_file;
mod results_sparse;
mod resume;
mod rows;
mod run_files;
mod sealed;
mod series_file;
mod series_form;
mod series_info;
mod series_state;
pub mod spec;
pub mod split_bytes;
mod split_driver;
mod stacks;
pub mod stored;
mod stored_results;
mod table;
mod text;
pub mod tree;
pub mod unknown;
pub mod whole;
mod writer;
mod xds;

pub use append::AppendSpec;
pub use check::{Finding, Severity, check, check_structure};
pub use checksum::{CHECKSUM, compare as compare_checksum};
pub use columns::{ImageRecord, ImageStatus, SeriesRecord};
pub use continued::Continued;
pub use decode::Decode;
pub use detector_place::DetectorPlace;
pub use driver_file::{CORE_GROWTH_BYTES, Driver, DriverFile};
pub use error::{Error, ErrorKind};
pub use extra_column::ExtraColumn;
pub use file_sink::{FileSink, SeriesTarget, SeriesTargets};
pub use handoff::ChunkWrites;
pub use names::{data_file_name, journal_path, master_file_name, master_path, pedestal_file_name};
pub use packing::decode_others_by;
pub use pedestals::Snapshots;
pub use reader::{Places, Reader, Summary, inspect};
pub use repair::{MissingImages, RepairReport, repair};
pub use results_file::{ResultsAbout, ResultsFile};
pub use run_files::{Positions, RunFiles};
pub use series_file::{SeriesFacts, SeriesFileSpec, facts_of_series, ledger_of_series, limits_of_series, spec_of_series};
pub use series_info::{ChannelInfo, SeriesInfo};
pub use series_state::{Names, SharedState};
pub use spec::{Compression, ErrorBound, FileSpec, Layout, LedgerRecord, Metadata, Overwrite, Scale, StreamRecord, TileInfo};
pub use split_driver::{META, SplitName};
pub use stored_results::{StoredColumn, StoredResults};
pub use writer::{FileReport, SpaceEstimate, Writer};
pub use xds::xds_problems_of;

pub use crate::sys::space::free_bytes;
