//! The command line of `konkordia repack`.

use clap::{Args, ValueEnum};
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::plan::{Compression, ErrorBound, WrongCodec};
use std::path::PathBuf;

/// Layouts of the files of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutChoice {
    /// Everything in OUT.h5
    Single,
    /// Structure in OUT.meta.h5, pixels in OUT.raw_1.h5 (the split driver of HDF5)
    Split,
    /// Structure in OUT.meta.h5, pixels in pieces OUT.raw_1.h5, OUT.raw_2.h5 ... (the family driver of HDF5)
    Family,
    /// Master and data files; the master has only the virtual data set
    Vds,
    /// Master and data files; the master has only the links
    Links,
}

impl LayoutChoice {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Split => "split",
            Self::Family => "family",
            Self::Vds => "vds",
            Self::Links => "links",
        }
    }
}

/// Smaller pieces would be more files than directories like.
const PIECE_BYTES_MIN: u64 = 4096;

/// A number of bytes, with k, M or G for powers of 1000.
fn piece_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) => (
            digits,
            match &text[digits.len()..] {
                "k" => 1000,
                "M" => 1_000_000,
                _ => 1_000_000_000,
            },
        ),
        None => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| (PIECE_BYTES_MIN..1 << 60).contains(bytes))
        .ok_or_else(|| format!("a number of bytes from {PIECE_BYTES_MIN} on is expected, such as 4000000000, 650M, 2G"))
}

/// `konkordia repack`
#[derive(Debug, Args)]
pub struct RepackArgs {
    /// Master file (its data files are repacked too), one data file, or a file that holds its images itself
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Existing folder, or folder and first part of the file names: OUT_master.h5, OUT_data_000001.h5 and so on
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Compression: bslz4, bszstd, lz4, zstd, gzip or none, with options as in bszstd,level=5,block=64k; lossy: sz3, or
    /// spots (exact spots, coarser background)
    #[arg(long, value_name = "NAME", required_unless_present = "layout")]
    pub compression: Option<String>,
    /// Layout of the files; chunks are copied as they are
    #[arg(long, value_name = "NAME")]
    pub layout: Option<LayoutChoice>,
    /// With --layout family: bytes of a piece, such as 4000000000, 650M, 2G [default: 2^30]
    #[arg(long, value_name = "BYTES", value_parser = piece_bytes)]
    pub piece_size: Option<u64>,
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
        let given = self.compression.as_deref().unwrap_or("none");
        let (name, options) = given.split_once(',').unwrap_or((given, ""));
        if name.trim() == "sz3" {
            if !options.is_empty() {
                let why = "sz3 takes no options behind its name";
                return wrong(format!("unknown options '{options}' of sz3"), why, "give --error-bound 2, for example");
            }
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
        let compression = lossless(given, self.compression_level, ", sz3, spots")?;
        if self.error_bound.is_some() {
            let why = format!("{} is lossless", compression.name());
            return wrong("--error-bound without sz3".into(), &why, "leave --error-bound out, or choose --compression sz3");
        }
        Ok(compression)
    }

    /// Whether the background is to become coarser.
    pub fn keeps_spots(&self) -> bool {
        self.compression.as_deref() == Some("spots")
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
        lossless(self.packed_with.as_deref().unwrap_or("bszstd"), self.compression_level, "")
    }
}

/// The compression without loss that a text names, with its options. `others` are names that would do too.
///
/// # Errors
/// There is none of this name, or an option or the level is wrong.
pub fn lossless(text: &str, level: Option<u8>, others: &str) -> Result<Compression, Failure> {
    Compression::parse(text, level.map(i64::from)).map_err(|WrongCodec { what, fix }| {
        let names = Compression::NAMES.join(", ");
        let fix = if fix.ends_with(&names) { format!("{fix}{others}") } else { fix };
        Failure::new(Exit::Usage, what, "", fix)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_pieces() {
        assert_eq!((piece_bytes("650M"), piece_bytes("2G"), piece_bytes("4096")), (Ok(650_000_000), Ok(2_000_000_000), Ok(4096)));
        for wrong in ["", "k", "-1", "0", "4095", "1.5M", "20kB", "99999999999999999999", "3ä", "9999999999G"] {
            assert!(piece_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
