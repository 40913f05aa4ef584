//! How the chunks of an image are packed, and how that is written in words: a name with options.

use crate::array::Packing;
use std::fmt;

/// How the chunks of the output image are packed; all but `Sz3` without loss. Levels are those of the libraries: more =
/// smaller and slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Plain pixels.
    None,
    /// Bitshuffle and LZ4 (HDF5 filter 32008).
    Bslz4 {
        /// Pixels that are transposed and packed together.
        block: BlockSize,
    },
    /// Bitshuffle and Zstd (HDF5 filter 32008).
    Bszstd {
        /// 1 to 22.
        level: u8,
        /// Pixels that are transposed and packed together.
        block: BlockSize,
    },
    /// LZ4 (HDF5 filter 32004).
    Lz4 {
        /// Pixels that are packed together.
        block: BlockSize,
    },
    /// One Zstd frame (HDF5 filter 32015).
    Zstd {
        /// 1 to 22.
        level: u8,
    },
    /// One zlib stream (HDF5 filter 1).
    Gzip {
        /// 1 to 9.
        level: u8,
    },
    /// One SZ3 stream (HDF5 filter 32024), lossy. For whole images only: no run packs it.
    Sz3 {
        /// Largest error of a pixel.
        bound: ErrorBound,
    },
    /// By filters that this program does not have. Only files of others are packed so; plug-ins of HDF5 decode them.
    Other(OtherFilters),
}

/// Bytes of a block, a power of two from 1 KiB to 128 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockSize(u8);

impl BlockSize {
    /// The smallest.
    pub const MIN: Self = Self(10);
    /// What the bitshuffle library takes by itself.
    pub const KIB_8: Self = Self(13);
    /// Where Zstd has its best ratio at full speed.
    pub const KIB_64: Self = Self(16);
    /// The largest: the longest block that Zstd knows.
    pub const MAX: Self = Self(17);

    /// `None` for other numbers of bytes.
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= Self::MIN.bytes() && bytes <= Self::MAX.bytes() {
            Some(Self(bytes.trailing_zeros() as u8))
        } else {
            None
        }
    }

    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        1 << self.0
    }

    /// All of them, the smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (Self::MIN.0..=Self::MAX.0).map(Self)
    }

    /// From "64k", "64KiB" or "65536".
    fn read(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let kib = lower.strip_suffix("kib").or_else(|| lower.strip_suffix('k'));
        let bytes = match kib {
            Some(number) => number.parse::<usize>().ok()?.checked_mul(1024)?,
            None => lower.parse().ok()?,
        };
        Self::new(bytes)
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}k", self.bytes() >> 10)
    }
}

/// Largest error of a pixel that a lossy compression may make, in units of the image: above 0, at most
/// [`ErrorBound::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorBound(u64);

impl ErrorBound {
    /// A larger bound would leave nothing of an image.
    pub const MAX: f64 = 1e6;

    /// `None` for 0, a negative number, infinity, NaN and what is above [`Self::MAX`].
    pub fn new(value: f64) -> Option<Self> {
        (value > 0.0 && value <= Self::MAX).then(|| Self(value.to_bits()))
    }

    /// The number.
    pub const fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// A filter of an HDF5 data set, as the file states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherFilter {
    /// Its number.
    pub id: i32,
    /// Its parameters.
    pub values: Vec<u32>,
}

/// Decodes a chunk that was packed by filters into the pixels of one image: the filters in the order in which they
/// packed, the chunk, the pixels. Errors are in words.
pub type DecodeOther = fn(&[OtherFilter], &[u8], &mut [u8]) -> Result<(), String>;

/// The filters of a data set in the order in which they packed, and who decodes them.
#[derive(Clone, Copy)]
pub struct OtherFilters {
    filters: &'static [OtherFilter],
    decode: DecodeOther,
}

impl OtherFilters {
    /// Filters that are kept as long as the program runs.
    pub const fn new(filters: &'static [OtherFilter], decode: DecodeOther) -> Self {
        Self { filters, decode }
    }

    /// The filters in the order in which they packed.
    pub const fn filters(self) -> &'static [OtherFilter] {
        self.filters
    }

    /// Decodes a chunk into exactly `out`, the pixels of one image.
    ///
    /// # Errors
    /// The chunk is damaged, or its filters cannot be run; in words.
    pub fn decode(self, chunk: &[u8], out: &mut [u8]) -> Result<(), String> {
        (self.decode)(self.filters, chunk, out)
    }
}

impl PartialEq for OtherFilters {
    fn eq(&self, other: &Self) -> bool {
        self.filters == other.filters
    }
}

impl Eq for OtherFilters {}

impl fmt::Debug for OtherFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.filters.fmt(f)
    }
}

/// Why a text does not name a compression, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongCodec {
    /// What is wrong, as part of a sentence.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for WrongCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.fix)
    }
}

impl Compression {
    /// `bslz4` with its usual block.
    pub const BSLZ4: Self = Self::Bslz4 { block: BlockSize::KIB_8 };
    /// `bszstd` with its usual level and block.
    pub const BSZSTD: Self = Self::Bszstd { level: 1, block: BlockSize::KIB_64 };
    /// `lz4` with its usual block.
    pub const LZ4: Self = Self::Lz4 { block: BlockSize::KIB_64 };

    /// All that a run can pack, each with its usual level and block: those without loss.
    pub const ALL: [Self; 6] =
        [Self::BSLZ4, Self::BSZSTD, Self::LZ4, Self::Zstd { level: 1 }, Self::Gzip { level: 1 }, Self::None];

    /// The names of [`Self::ALL`].
    pub const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut n = 0;
        while n < names.len() {
            names[n] = Self::ALL[n].name();
            n += 1;
        }
        names
    };

    /// How the pixels are packed.
    pub const fn packing(self) -> Packing {
        match self {
            Self::None => Packing::None,
            Self::Bslz4 { .. } => Packing::BitshuffleLz4,
            Self::Bszstd { .. } => Packing::BitshuffleZstd,
            Self::Lz4 { .. } => Packing::Lz4,
            Self::Zstd { .. } => Packing::Zstd,
            Self::Gzip { .. } => Packing::Gzip,
            Self::Sz3 { .. } => Packing::Sz3,
            Self::Other(_) => Packing::Other,
        }
    }

    /// How pixels are packed so, with the usual level and block; a bare LZ4 block needs the framing of [`Self::Lz4`].
    /// `None` for SZ3, which needs a bound, and for filters of others.
    pub const fn of(packing: Packing) -> Option<Self> {
        Some(match packing {
            Packing::None => Self::None,
            Packing::BitshuffleLz4 => Self::BSLZ4,
            Packing::BitshuffleZstd => Self::BSZSTD,
            Packing::Lz4 | Packing::Lz4Block => Self::LZ4,
            Packing::Zstd => Self::Zstd { level: 1 },
            Packing::Gzip => Self::Gzip { level: 1 },
            Packing::Sz3 | Packing::Other => return None,
        })
    }

    /// Name as the configuration spells it, without options.
    pub const fn name(self) -> &'static str {
        self.packing().name()
    }

    /// The one of [`Self::ALL`] with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }

    /// From a name with options, such as "bszstd,level=5,block=64k": a codec without loss. `level` is a level that was
    /// given elsewhere.
    ///
    /// # Errors
    /// There is no such codec, or it does not take such an option.
    pub fn parse(text: &str, level: Option<i64>) -> Result<Self, WrongCodec> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut found = Self::from_name(name).ok_or_else(|| WrongCodec {
            what: format!("\"{name}\" is not a compression"),
            fix: format!("choose one of {}", Self::NAMES.join(", ")),
        })?;
        let mut seen: Vec<&str> = Vec::new();
        for option in parts {
            let Some((key, value)) = option.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
                return Err(found.wrong_option(format!("\"{option}\" is not an option: options are KEY=VALUE")));
            };
            if seen.contains(&key) || key == "level" && level.is_some() {
                return Err(WrongCodec { what: format!("{name} has {key} twice"), fix: "give it once".into() });
            }
            seen.push(key);
            found = found.with_option(key, value)?;
        }
        match level {
            Some(level) => found.with_option("level", &level.to_string()),
            None => Ok(found),
        }
    }

    fn with_option(self, key: &str, value: &str) -> Result<Self, WrongCodec> {
        let name = self.name();
        let takes = match key {
            "level" => self.level().is_some(),
            "block" => self.block().is_some(),
            _ => false,
        };
        if !takes {
            let known = matches!(key, "level" | "block");
            let what = if known { format!("{name} has no {key}s") } else { format!("{name} has no option \"{key}\"") };
            return Err(self.wrong_option(what));
        }
        let found = match key {
            "level" => value.parse().ok().and_then(|level| self.with_level(level)),
            _ => BlockSize::read(value).and_then(|block| self.with_block(block)),
        };
        found.ok_or_else(|| self.wrong_option(format!("{name} has no {key} {value}")))
    }

    fn wrong_option(self, what: String) -> WrongCodec {
        let list = self.options_in_words();
        let takes = if list.is_empty() { "no options".into() } else { list.join(" and ") };
        WrongCodec { what, fix: format!("{} takes {takes}", self.name()) }
    }

    /// The options that it takes.
    fn options_in_words(self) -> Vec<String> {
        let level = self.level_max().map(|most| format!("level=1 to {most}"));
        let block = self.block().map(|_| format!("block={} to {}, powers of two", BlockSize::MIN, BlockSize::MAX));
        level.into_iter().chain(block).collect()
    }

    /// Its level if that is not 1, where there is one, and its block if that is not the usual one, as [`Self::parse`]
    /// reads them; for all but SZ3 and filters of others that is all there is to say.
    pub fn text(self) -> String {
        let level = self.level().filter(|level| *level != 1).map_or(String::new(), |level| format!(",level={level}"));
        let block = self.unusual_block().map_or(String::new(), |block| format!(",block={block}"));
        format!("{}{level}{block}", self.name())
    }

    /// Its level in words, and its block if that is not the usual one.
    pub fn words(self) -> String {
        let level = self.level().map_or(String::new(), |level| format!(" level {level}"));
        let block = self.unusual_block().map_or(String::new(), |block| format!(", blocks of {} KiB", block.bytes() >> 10));
        format!("{}{level}{block}", self.name())
    }

    /// The level, where there is one.
    pub const fn level(self) -> Option<u8> {
        match self {
            Self::Bszstd { level, .. } | Self::Zstd { level } | Self::Gzip { level } => Some(level),
            _ => None,
        }
    }

    /// The highest level, where there are levels; the lowest is 1.
    pub const fn level_max(self) -> Option<u8> {
        match self {
            Self::Bszstd { .. } | Self::Zstd { .. } => Some(22),
            Self::Gzip { .. } => Some(9),
            _ => None,
        }
    }

    /// The same at another level; `None` if it has no such level.
    pub fn with_level(self, level: u8) -> Option<Self> {
        if !(1..=self.level_max()?).contains(&level) {
            return None;
        }
        Some(match self {
            Self::Bszstd { block, .. } => Self::Bszstd { level, block },
            Self::Zstd { .. } => Self::Zstd { level },
            _ => Self::Gzip { level },
        })
    }

    /// The block, where the user can choose it.
    pub const fn block(self) -> Option<BlockSize> {
        match self {
            Self::Bslz4 { block } | Self::Bszstd { block, .. } | Self::Lz4 { block } => Some(block),
            _ => None,
        }
    }

    /// The block, if it is another than [`Self::ALL`] has.
    pub fn unusual_block(self) -> Option<BlockSize> {
        self.block().filter(|block| Self::of(self.packing()).and_then(Self::block) != Some(*block))
    }

    /// The same with another block; `None` if it has none.
    pub const fn with_block(self, block: BlockSize) -> Option<Self> {
        match self {
            Self::Bslz4 { .. } => Some(Self::Bslz4 { block }),
            Self::Bszstd { level, .. } => Some(Self::Bszstd { level, block }),
            Self::Lz4 { .. } => Some(Self::Lz4 { block }),
            _ => None,
        }
    }

    /// Bytes of a full block, the unit in which pixels are gathered and, except by `zstd` and `gzip`, compressed
    /// (docs/protocols.md 5.1, 5.2).
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Bslz4 { block } | Self::Bszstd { block, .. } | Self::Lz4 { block } => block.bytes(),
            Self::None | Self::Sz3 { .. } | Self::Other(_) => 8192,
            Self::Zstd { .. } | Self::Gzip { .. } => 65536,
        }
    }

    /// True if a strip is compressed in one piece, not block by block.
    pub const fn is_by_strip(self) -> bool {
        matches!(self, Self::Zstd { .. } | Self::Gzip { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Compression {
        Compression::parse(text, None).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn refused(text: &str, level: Option<i64>) -> String {
        Compression::parse(text, level).expect_err(text).to_string()
    }

    #[test]
    fn compressions_are_packings_with_parameters() {
        assert_eq!(Compression::NAMES, ["bslz4", "bszstd", "lz4", "zstd", "gzip", "none"]);
        for compression in Compression::ALL {
            assert_eq!(Compression::of(compression.packing()), Some(compression));
            assert_eq!(Compression::from_name(compression.packing().name()), Some(compression));
            assert_eq!(read(compression.name()), compression);
            assert_eq!((compression.text().as_str(), compression.unusual_block()), (compression.name(), None));
        }
        let bound = ErrorBound::new(0.5).unwrap();
        assert_eq!(Compression::of(Compression::Sz3 { bound }.packing()), None);
    }

    #[test]
    fn names_with_options_are_read_and_written() {
        let (level, block) = (5, BlockSize::KIB_8);
        assert_eq!(read("bszstd,level=5,block=8k"), Compression::Bszstd { level, block });
        assert_eq!(read(" bszstd , block = 8KiB , level = 5 "), Compression::Bszstd { level, block });
        assert_eq!(read("bslz4,block=8192"), Compression::BSLZ4);
        assert_eq!(read("gzip,level=9"), Compression::Gzip { level: 9 });
        assert_eq!(Compression::parse("zstd", Some(7)), Ok(Compression::Zstd { level: 7 }));
        assert_eq!(Compression::parse("bszstd,block=8k", Some(5)), Ok(Compression::Bszstd { level, block }));
        for text in ["bszstd,level=5,block=8k", "lz4,block=128k", "bslz4,block=1k", "zstd,level=22", "none"] {
            assert_eq!(read(text).text(), text);
        }
        assert_eq!(read("bszstd,block=128k").words(), "bszstd level 1, blocks of 128 KiB");
    }

    #[test]
    fn a_wrong_option_says_what_the_codec_takes() {
        let bszstd = "bszstd takes level=1 to 22 and block=1k to 128k, powers of two";
        assert_eq!(refused("bszstd,speed=5", None), format!("bszstd has no option \"speed\"; {bszstd}"));
        assert_eq!(refused("bszstd,level=23", None), format!("bszstd has no level 23; {bszstd}"));
        assert_eq!(refused("bszstd", Some(-1)), format!("bszstd has no level -1; {bszstd}"));
        assert_eq!(refused("bszstd,fast", None), format!("\"fast\" is not an option: options are KEY=VALUE; {bszstd}"));
        assert_eq!(refused("bslz4,level=1", None), "bslz4 has no levels; bslz4 takes block=1k to 128k, powers of two");
        assert_eq!(refused("none,block=8k", None), "none has no blocks; none takes no options");
        assert_eq!(refused("gzip,level=3", Some(3)), "gzip has level twice; give it once");
        assert_eq!(refused("lz4,block=8k,block=8k", None), "lz4 has block twice; give it once");
        for block in ["0", "12k", "256k", "-8k", "k", "99999999999999999999", "18014398509481984k"] {
            assert!(refused(&format!("lz4,block={block}"), None).starts_with(&format!("lz4 has no block {block};")));
        }
        let list = "choose one of bslz4, bszstd, lz4, zstd, gzip, none";
        assert_eq!(refused("bzip2", None), format!("\"bzip2\" is not a compression; {list}"));
        assert_eq!(refused("", None), format!("\"\" is not a compression; {list}"));
    }
}
