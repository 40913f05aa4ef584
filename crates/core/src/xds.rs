//! Lists what XDS would misread in files with given settings, through the plug-ins neggia (DECTRIS) and durin (Diamond
//! Light Source). tests/peers asks the plug-ins themselves; decision 0008 says what they do and why.

use crate::output::Layout;
use crate::pixel::PixelType;
use crate::plan::Compression;

/// What XDS would get wrong, and what to set instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsProblem {
    /// Name of the key: `dtype`, `compression` or `layout`; empty if the cause is the images themselves.
    pub key: &'static str,
    /// What happens.
    pub what: String,
    /// What to do.
    pub fix: &'static str,
}

/// The bits of a pixel mask that both plug-ins read: neggia reads bits 0 to 4, durin bits 0 to 7.
pub const READ_BITS: u32 = 0x1F;
/// Bits of NXmx that say that a pixel is not to be used.
pub const UNUSABLE_BITS: u32 = 0xFFFF;
/// "Dead": set for a pixel that is not to be used for a reason that bits 0 to 4 do not express.
pub const DEAD: u32 = 1 << 1;

/// The bits of a pixel as files have them: one that is not to be used has a bit that both plug-ins read. Its other bits
/// stay.
pub const fn readable_bits(bits: u32) -> u32 {
    let is_unread = bits & UNUSABLE_BITS != 0 && bits & READ_BITS == 0;
    if is_unread { bits | DEAD } else { bits }
}

const DTYPE: &str = "set dtype = \"uint32\"";
const COMPRESSION: &str = "set compression = \"bslz4\" (or \"lz4\")";

/// A problem; see [`XdsProblem`] for the three.
pub fn problem(key: &'static str, what: impl Into<String>, fix: &'static str) -> XdsProblem {
    XdsProblem { key, what: what.into(), fix }
}

/// Problems of pixels that this program makes: every special value and every count must be read as what it is.
fn of_pixels(pixel: PixelType, raw_words: bool) -> Option<XdsProblem> {
    let what = match pixel {
        PixelType::Uint32 => return None,
        PixelType::Uint16 if raw_words => "detector words are not counts: they contain gain bits",
        PixelType::Uint16 => {
            "in uint16 images, neggia reads saturated (65532) and invalid (65533) pixels as counts, and durin reads counts of 32768 and more as counts below zero"
        }
        PixelType::Int16 => {
            "in int16 images, neggia reads counts below zero and all special values as counts of 32767 and more, and durin reads saturated pixels as 32767 counts"
        }
        PixelType::Int32 => {
            "in int32 images, neggia ignores pixels with counts below zero, which raises the mean of weak ones, and both plug-ins read saturated pixels as 2147483647 counts"
        }
        PixelType::Float32 | PixelType::Float64 => "neggia and durin read the bits of floating-point pixels as integers",
        _ => "neggia and durin read only unsigned integers of up to 32 bits",
    };
    Some(problem("dtype", what, DTYPE))
}

/// Problems of the compression and of the layout.
pub fn of_form(compression: Compression, layout: Layout) -> impl Iterator<Item = XdsProblem> {
    let codec = match compression {
        Compression::Bslz4 { .. } | Compression::Lz4 { .. } | Compression::None => None,
        other => Some(format!("neggia and durin have no decoder for {}", other.name())),
    };
    let layout = (layout == Layout::Virtual)
        .then(|| problem("layout", "neggia reads no virtual data sets, and there are no links", "set layout = \"both\""));
    codec.map(|what| problem("compression", what, COMPRESSION)).into_iter().chain(layout)
}

/// What XDS would misread in a run with these settings; empty = nothing.
pub fn of_run(pixel: PixelType, raw_words: bool, compression: Compression, layout: Layout) -> Vec<XdsProblem> {
    of_pixels(pixel, raw_words).into_iter().chain(of_form(compression, layout)).collect()
}

/// What XDS would misread in the files of a stream, as far as that does not depend on the pixels to come; empty =
/// nothing.
pub fn of_streams(layout: Layout) -> Vec<XdsProblem> {
    of_form(Compression::BSLZ4, layout).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_runs_only_uint32_plain_or_packed_with_lz4_is_read_right() {
        for pixel in PixelType::ALL {
            let right = pixel == PixelType::Uint32;
            assert_eq!(of_run(pixel, false, Compression::BSLZ4, Layout::Both).is_empty(), right, "{pixel}");
        }
        for compression in [Compression::LZ4, Compression::None] {
            assert!(of_run(PixelType::Uint32, false, compression, Layout::Links).is_empty());
        }
        let all = of_run(PixelType::Uint16, true, Compression::Zstd { level: 1 }, Layout::Virtual);
        assert_eq!(all.iter().map(|problem| problem.key).collect::<Vec<_>>(), ["dtype", "compression", "layout"]);
        assert!(all[1].what.contains("zstd") && all.iter().all(|problem| !problem.fix.is_empty()));
    }
}
