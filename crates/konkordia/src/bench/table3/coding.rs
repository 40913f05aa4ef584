//! The codings of the table, by the code with which `konkordia repack` packs images, and what they lose.

use konkordia_analysis::dispersion::Settings;
use konkordia_core::pixel::{Pixel, PixelType};
use konkordia_core::plan::{Compression, ErrorBound};
use konkordia_kernels::sz3::{self, Encoder};
use konkordia_kernels::{ElementSize, Isa, codec};
use konkordia_repack::spots::{Keeper, SpotCopy};

/// What `repack` packs images with that lose nothing.
const LOSSLESS: Compression = Compression::BSZSTD;
/// Strips in which images are packed.
const STRIP_BYTES: usize = 1 << 20;
/// Poisson errors by which the background of `spots` moves: the default of `repack`.
const BACKGROUND_SIGMA: f64 = 1.0;
/// More spots than this leave an image as it is, as in `repack` without a recipe.
const SPOTS_MAX: usize = 2000;

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Coding {
    /// Without loss.
    Lossless,
    /// `sz3` with this bound, in photons; 0: the same encoder with a step of one count, which loses nothing.
    Sz3(u32),
    /// `spots`, packed with the lossless codec.
    Spots,
}

/// All of them, in the order of the table.
pub const ALL: [Coding; 7] =
    [Coding::Lossless, Coding::Sz3(0), Coding::Sz3(1), Coding::Sz3(2), Coding::Sz3(4), Coding::Sz3(8), Coding::Spots];

impl Coding {
    /// Name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Lossless => format!("{} (lossless)", LOSSLESS.name()),
            Self::Sz3(bound) => format!("sz3, bound {bound}"),
            Self::Spots => format!("spots, {BACKGROUND_SIGMA} sigma"),
        }
    }

    /// The largest error of a pixel that is allowed in any image, if it is one number for all pixels.
    pub fn bound(self) -> Option<u32> {
        match self {
            Self::Lossless => Some(0),
            Self::Sz3(bound) => Some(bound),
            Self::Spots => None,
        }
    }
}

/// An image that went through a coding.
pub struct Coded {
    /// Bytes of the chunk.
    pub bytes: usize,
    /// The decoded image.
    pub pixels: Vec<i16>,
    /// What was lost.
    pub loss: Loss,
}

/// What one image or several lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Pixels with another value than before.
    pub pixels_changed: u64,
    /// Largest difference of a pixel, photons.
    pub error_max: u32,
    /// Sum of all differences, photons.
    pub error_sum: i64,
    /// A pixel moved further than it may, or the image could not be decoded.
    pub is_wrong: bool,
}

impl Loss {
    /// Of several images.
    pub fn add(&mut self, other: &Self) {
        self.pixels_changed += other.pixels_changed;
        self.error_max = self.error_max.max(other.error_max);
        self.error_sum += other.error_sum;
        self.is_wrong |= other.is_wrong;
    }

    fn between(before: &[i16], after: &[i16]) -> Self {
        let mut loss = Self::default();
        for (before, after) in before.iter().zip(after) {
            let error = i32::from(*after) - i32::from(*before);
            loss.pixels_changed += u64::from(error != 0);
            loss.error_max = loss.error_max.max(error.unsigned_abs());
            loss.error_sum += i64::from(error);
        }
        loss
    }
}

/// How spots of square images of counts are kept.
pub fn spot_copy(edge: usize) -> SpotCopy {
    let finder = Settings::default();
    SpotCopy {
        margin_px: finder.reach_px(),
        finder,
        spots_max: SPOTS_MAX,
        background_sigma: BACKGROUND_SIGMA,
        shape: [edge, edge],
        pixel: PixelType::Int16,
        usable: vec![true; edge * edge],
        valid: (f64::from(<i16 as Pixel>::VALID_MIN), f64::from(<i16 as Pixel>::VALID_MAX)),
    }
}

/// The encoders of one thread.
pub struct Coder<'a> {
    edge: usize,
    encoders: Vec<(u32, Encoder)>,
    keeper: Keeper<'a>,
}

impl<'a> Coder<'a> {
    /// For images of the shape of `copy`.
    pub fn new(copy: &'a SpotCopy) -> Self {
        let edge = copy.shape[0];
        let encoder = |bound: u32| {
            // A bound below 1 leaves whole numbers where they are. `repack` refuses it: a lossless codec is smaller.
            let bound = ErrorBound::new(f64::from(bound).max(0.5)).expect("above 0 and far below the highest bound");
            Encoder::new(PixelType::Int16, edge, edge, bound, false)
        };
        let bounds = ALL.iter().filter_map(|coding| if let Coding::Sz3(bound) = coding { Some(*bound) } else { None });
        Self { edge, encoders: bounds.map(|bound| (bound, encoder(bound))).collect(), keeper: Keeper::new(copy, Isa::detect()) }
    }

    /// Packs an image, unpacks it, and compares each pixel with what it was.
    pub fn through(&mut self, coding: Coding, image: &[i16]) -> Coded {
        let bytes: Vec<u8> = image.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
        let (chunk, decoded, is_kept) = match coding {
            Coding::Lossless => {
                let chunk = pack(&bytes);
                let decoded = unpack(&chunk, bytes.len());
                (chunk, decoded, true)
            }
            Coding::Sz3(bound) => {
                let mut chunk = Vec::new();
                let encoder = self.encoders.iter_mut().find(|(of, _)| *of == bound).map(|(_, encoder)| encoder);
                encoder.expect("one for each bound").encode(&bytes, &mut chunk);
                let mut out = vec![0xA5; bytes.len()];
                let decoded = sz3::decompress(&chunk, ElementSize::Two, &mut out).is_ok().then_some(out);
                (chunk, decoded, true)
            }
            Coding::Spots => {
                let chunk = self.coarsened(&bytes);
                let decoded = unpack(&chunk, bytes.len());
                let is_kept = decoded.as_ref().is_some_and(|decoded| self.keeper.is_copy(&bytes, decoded));
                (chunk, decoded, is_kept)
            }
        };
        let pixels: Option<Vec<i16>> =
            decoded.map(|decoded| decoded.as_chunks::<2>().0.iter().map(|pixel| i16::from_le_bytes(*pixel)).collect());
        let is_decoded = pixels.is_some();
        let pixels = pixels.unwrap_or_else(|| vec![0; self.edge * self.edge]);
        let mut loss = Loss::between(image, &pixels);
        loss.is_wrong = !is_decoded || !is_kept || coding.bound().is_some_and(|bound| loss.error_max > bound);
        Coded { bytes: chunk.len(), pixels, loss }
    }

    /// With a coarser background where that makes the image smaller, as `repack` does it.
    fn coarsened(&mut self, image: &[u8]) -> Vec<u8> {
        let lossless = pack(image);
        let Some(coarse) = self.keeper.coarsen(image).0 else { return lossless };
        let chunk = pack(&coarse);
        if chunk.len() < lossless.len() { chunk } else { lossless }
    }
}

fn pack(image: &[u8]) -> Vec<u8> {
    codec::compress(LOSSLESS, Isa::detect(), ElementSize::Two, image, STRIP_BYTES)
}

fn unpack(chunk: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut out = vec![0xA5; bytes];
    codec::decompress(LOSSLESS, Isa::detect(), chunk, ElementSize::Two, &mut out).is_ok().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::table3::crystal::Crystal;

    #[test]
    fn every_coding_keeps_its_bound_and_those_without_loss_every_pixel() {
        let (crystal, copy) = (Crystal::new(1, 256, 5), spot_copy(256));
        let (image, mut coder) = (crystal.image(0), Coder::new(&copy));
        let sizes = ALL.map(|coding| {
            let coded = coder.through(coding, &image);
            assert!(!coded.loss.is_wrong, "{coding:?}: {:?}", coded.loss);
            let is_same = coded.pixels == image;
            assert_eq!(is_same, coding.bound() == Some(0), "{coding:?}: {:?}", coded.loss);
            coded.bytes
        });
        assert!(sizes[1..6].is_sorted_by(|one, next| one > next), "{sizes:?}");
    }

    #[test]
    fn a_loss_is_counted() {
        let loss = Loss::between(&[1, 2, 3, -4], &[1, 4, 2, -4]);
        assert_eq!(loss, Loss { pixels_changed: 2, error_max: 2, error_sum: 1, is_wrong: false });
        let mut sum = loss;
        sum.add(&Loss { pixels_changed: 1, error_max: 1, error_sum: -5, is_wrong: true });
        assert_eq!(sum, Loss { pixels_changed: 3, error_max: 2, error_sum: -4, is_wrong: true });
    }
}
