//! The command line of `konkordia repack`.

use clap::Args;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{Compression, ErrorBound};
use std::path::PathBuf;

/// `konkordia repack`
#[derive(Debug, Args)]
pub struct RepackArgs {
    /// Master file (its data files are repacked too), one data file, or a file that holds its images itself
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Existing folder, or folder and first part of the file names: OUT_master.h5, OUT_data_000001.h5 and so on
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Compression: bslz4, bszstd, lz4, zstd, gzip or none; lossy: sz3, or spots (exact spots, coarser background)
    #[arg(long, value_name = "NAME")]
    pub compression: String,
    /// Compression level; higher = smaller files, slower: bszstd and zstd 1 to 22, gzip 1 to 9 [default: 1]
    #[arg(long, value_name = "N")]
    pub compression_level: Option<u8>,
    /// Largest allowed error of a pixel with sz3, in units of the image
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    pub error_bound: Option<f64>,
    /// With spots: how many of its Poisson errors a pixel of the background may move, at most 2 [default: 1]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub background_sigma: Option<f64>,
    /// With spots: pixels around each spot that stay as they are [default: as far as the finder looks]
    #[arg(long, value_name = "N")]
    pub margin_px: Option<usize>,
    /// With spots: recipe that says how spots are found, by method = "dispersion" (docs/analysis.md)
    #[arg(long, value_name = "FILE.toml")]
    pub recipe: Option<PathBuf>,
    /// With spots: the lossless compression that follows [default: bszstd]
    #[arg(long, value_name = "NAME")]
    pub packed_with: Option<String>,
    /// Threads that compress [default: all processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Read each copy back and compare every pixel with the original
    #[arg(long)]
    pub verify: bool,
    /// Delete each original as soon as its copy is on the disk (with --verify: and compared)
    #[arg(long)]
    pub delete_source: bool,
    /// No progress line
    #[arg(short, long)]
    pub quiet: bool,
    /// For programs: write the result as JSON to stdout
    #[arg(long)]
    pub json: bool,
}

impl RepackArgs {
    /// The compression asked for.
    ///
    /// # Errors
    /// When name, level or bound are wrong or do not go together.
    pub fn compression(&self) -> Result<Compression, Failure> {
        let wrong = |what: String, why: &str, fix: &str| Err(Failure::new(Exit::Usage, what, why, fix));
        if self.keeps_spots() {
            return self.compression_of_spots();
        }
        if let Some(option) = self.option_of_spots() {
            let why = "it says how spots are kept and the background gets coarser";
            return wrong(format!("{option} without spots"), why, "leave it out, or choose --compression spots");
        }
        if self.compression == "sz3" {
            let Some(bound) = self.error_bound else {
                let why = "sz3 is lossy: give the largest allowed error of a pixel";
                return wrong("sz3 has no error bound".into(), why, "add --error-bound 2, for example");
            };
            if self.compression_level.is_some() {
                return wrong("sz3 has no levels".into(), "the error bound determines the size", "leave --compression-level out");
            }
            if self.delete_source {
                let why = "sz3 is lossy: the original would be gone";
                return wrong("--delete-source with sz3".into(), why, "leave --delete-source out, or choose bszstd");
            }
            return bound_of(bound).map(|bound| Compression::Sz3 { bound });
        }
        let compression = lossless(&self.compression, ", sz3, spots")?;
        if self.error_bound.is_some() {
            let why = format!("{} is lossless", compression.name());
            return wrong("--error-bound without sz3".into(), &why, "leave --error-bound out, or choose --compression sz3");
        }
        self.with_level(compression)
    }

    /// Whether the background is to become coarser.
    pub fn keeps_spots(&self) -> bool {
        self.compression == "spots"
    }

    /// An option that belongs to spots and was given.
    fn option_of_spots(&self) -> Option<&'static str> {
        let given = [
            ("--background-sigma", self.background_sigma.is_some()),
            ("--margin-px", self.margin_px.is_some()),
            ("--recipe", self.recipe.is_some()),
            ("--packed-with", self.packed_with.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// The lossless compression that follows.
    fn compression_of_spots(&self) -> Result<Compression, Failure> {
        let wrong = |what: &str, why: &str, fix: &str| Err(Failure::new(Exit::Usage, what, why, fix));
        if self.error_bound.is_some() {
            let why = "spots keeps pixels within their own Poisson error, not within one bound for all";
            return wrong("--error-bound with spots", why, "give --background-sigma instead, or choose --compression sz3");
        }
        if self.delete_source {
            let why = "spots is lossy: the original would be gone";
            return wrong("--delete-source with spots", why, "leave --delete-source out, or choose bszstd");
        }
        self.with_level(lossless(self.packed_with.as_deref().unwrap_or("bszstd"), "")?)
    }

    fn with_level(&self, compression: Compression) -> Result<Compression, Failure> {
        let wrong = |what: String, why: &str, fix: &str| Err(Failure::new(Exit::Usage, what, why, fix));
        let Some(level) = self.compression_level else { return Ok(compression) };
        compression.with_level(level).map_or_else(
            || {
                let why = compression.level_max().map_or("it has no levels".into(), |most| format!("it has levels 1 to {most}"));
                wrong(format!("{} has no level {level}", compression.name()), &why, "correct the level, or leave it out")
            },
            Ok,
        )
    }
}

/// The compression without loss of this name. `others` are names that would do too.
fn lossless(name: &str, others: &str) -> Result<Compression, Failure> {
    Compression::from_name(name).ok_or_else(|| {
        let fix = format!("choose one of {}{others}", Compression::NAMES.join(", "));
        Failure::new(Exit::Usage, format!("unknown compression '{name}'"), "", fix)
    })
}

/// A number as an error bound.
///
/// # Errors
/// The number is not above 0, or too large.
pub fn bound_of(value: f64) -> Result<ErrorBound, Failure> {
    ErrorBound::new(value).ok_or_else(|| {
        let why =
            format!("a bound is above 0 and at most {}; for lossless files there are better codecs than sz3", ErrorBound::MAX);
        Failure::new(Exit::Usage, format!("invalid error bound {value}"), why, "give a bound of 1 or more, or choose bszstd")
    })
}
