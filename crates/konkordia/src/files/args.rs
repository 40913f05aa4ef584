//! The command lines of the verbs that look at files.

use clap::Args;
use std::path::PathBuf;

/// `konkordia inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A master or data file
    pub file: PathBuf,
    /// Statistics of this image, counted from 0
    #[arg(long, value_name = "N")]
    pub image: Option<u64>,
    /// Draw an image (--image, or the first one) on a logarithmic scale; grey: no measurement
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// Write a geometry for CrystFEL into a new file: `indexamajig -g FILE.geom`, with `--peaks=cxi` for the stored
    /// spots
    #[arg(long, value_name = "FILE.geom")]
    pub geom: Option<PathBuf>,
    /// For the service: where the bytes of each image lie, as JSON
    #[arg(long, hide = true, conflicts_with_all = ["image", "png", "geom"])]
    pub index: bool,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia repair`
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// A master or data file
    #[arg(required_unless_present = "spool", conflicts_with = "spool")]
    pub file: Option<PathBuf>,
    /// Finish the runs that are left in this spool (key spool_directory): repair their files and move them to
    /// where they belong
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// With --spool: move the files to this folder instead
    #[arg(long, value_name = "FOLDER", requires = "spool")]
    pub to: Option<PathBuf>,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `konkordia check`
#[derive(Debug, Args)]
pub struct FileArgs {
    /// A master or data file, or the structure of a split file (FILE.meta.h5)
    pub file: PathBuf,
    /// Read no image: check a file whose pixels are not here (on tape, for example)
    #[arg(long)]
    pub structure: bool,
    /// For programs: the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
