//! The command line of `konkordia card`.

use clap::{Args, ValueEnum};
use konkordia_core::pixel::PixelType;
use std::path::PathBuf;

/// `--pixel`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PixelArg {
    /// Signed
    Int16,
    /// Unsigned
    Uint16,
}

impl PixelArg {
    /// The type.
    pub const fn pixel(self) -> PixelType {
        match self {
            Self::Int16 => PixelType::Int16,
            Self::Uint16 => PixelType::Uint16,
        }
    }
}

/// `konkordia card`
#[derive(Debug, Args)]
pub struct CardArgs {
    /// Folder and first part of the file names
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Existing files of this name are replaced
    #[arg(long)]
    pub overwrite: bool,
    /// Images to take [default: until nothing comes]
    #[arg(long, value_name = "N")]
    pub images: Option<u64>,
    /// Rows of an image
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub rows: u32,
    /// Columns of an image
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub columns: u32,
    /// Type of the pixels that the card makes
    #[arg(long, value_enum, default_value_t = PixelArg::Int16)]
    pub pixel: PixelArg,
    /// Tiles of a frame, each with packets of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub tiles: u8,
    /// Packets of a tile
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub tile_packets: u16,
    /// Frames that the shared memory holds
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub slots: u32,
    /// Number of the first frame, as the detector counts: image 0 of the file
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub first_frame: u64,
    /// A run in which nothing has come for so long is over
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub silence: f64,
    /// A card must begin within this time
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub timeout: f64,
    /// Images per data file
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub images_per_file: u32,
    /// Photon energy, for the file
    #[arg(long, value_name = "KEV")]
    pub energy_kev: Option<f64>,
    /// For programs: the address of the memory and the account as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
