//! The command line of `konkordia analyse`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `konkordia analyse`
#[derive(Debug, Args)]
pub struct AnalyseArgs {
    /// A master or data file (HDF5), or CBF files, each with one image
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What to look for (docs/analysis.md) [default: spots by peakfinder8, and a profile of 1000 bins in q]
    #[arg(long, value_name = "FILE.toml")]
    pub recipe: Option<PathBuf>,
    /// Geometry of the detector by pyFAI, instead of what the files say
    #[arg(long, value_name = "FILE.poni")]
    pub poni: Option<PathBuf>,
    /// The channel that is analysed, of images with several (files of Konkordia) [default: the first]
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    /// Only these images, counted from 0, for example 100:199, 100: or :199
    #[arg(long, value_name = "FROM:TO", value_parser = crate::convert::args::frame_range)]
    pub images: Option<(u64, u64)>,
    /// Writes the results of all images into this file (HDF5, docs/analysis.md); it must not exist yet
    #[arg(short, long, value_name = "FILE.h5")]
    pub output: Option<PathBuf>,
    /// Writes the spots of all images into this file, as a reflection table of DIALS (docs/analysis.md); it must not
    /// exist yet
    #[arg(long, value_name = "FILE.refl")]
    pub reflections: Option<PathBuf>,
    /// How the images of --reflections belong together [default: a rotation if the files say that the sample turns]
    #[arg(long, value_enum, value_name = "KIND", requires = "reflections")]
    pub frames: Option<FramesChoice>,
    /// Threads that analyse; results do not depend on their number [default: all processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// No progress line
    #[arg(short, long)]
    pub quiet: bool,
    /// For programs: one line of JSON for the settings, one for each image with its spots and profile, one for all
    #[arg(long)]
    pub json: bool,
}

/// How images belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FramesChoice {
    /// Each is an experiment of its own
    Stills,
    /// All are one experiment
    Rotation,
}
