//! The command line of `konkordia card`.

use clap::{Args, ValueEnum};
use konkordia_core::pixel::PixelType;
use std::net::IpAddr;
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
    /// Calibration file of `konkordia pedestal`, or a folder with pedestal_g0.f32, pedestal_g1.f32, pedestal_g2.f32 and
    /// gain_adu_per_kev.f32 [default: as the configuration says]
    #[arg(long, value_name = "FILE|DIR")]
    pub calibration: Option<PathBuf>,
    /// Photon energy in keV [default: as the configuration says]
    #[arg(long, value_name = "KEV")]
    pub energy_kev: Option<f64>,
    /// Where the card puts the packets: a program of the bridge, a file or the name of one that comes with Konkordia
    /// (docs/bridge.md) [default: made of the detector of the configuration, without one jungfrau-1]
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
    /// Configuration of the detector; its geometry, calibration and energy count where no option says them
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to which the detector sends, that of the card
    #[arg(long, value_name = "ADDRESS")]
    pub address: IpAddr,
    /// UDP port of the first tile [default: as the program says]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Type of the pixels that the card makes
    #[arg(long, value_enum, default_value_t = PixelArg::Int16)]
    pub pixel: PixelArg,
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
    /// For programs: the address of the memory and the account as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
