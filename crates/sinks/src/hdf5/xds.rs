//! What XDS would misread in a file (see `core::xds` for settings), and masks that its plug-ins read.

use konkordia_core::pixel::PixelType;
use konkordia_core::xds::{XdsProblem, of_form, of_run, problem, readable_bits};

use super::series_info::SeriesInfo;
use super::spec::FileSpec;

/// Problems of pixels that came from elsewhere, in which *missing* is the only special value: they must be read as the
/// detector's maker reads them.
fn of_series(pixel: PixelType, is_nowhere_negative: bool, series: &SeriesInfo) -> Option<XdsProblem> {
    let fix = "let the detector send unsigned counts in one piece per image, or convert the images";
    if series.image_shape.len() != 2 || series.pieces != 1 {
        let shape = &series.image_shape;
        let what = format!("neggia reads images of rows and columns in one piece, not {shape:?} in {} pieces", series.pieces);
        return Some(problem("", what, fix));
    }
    let what = match pixel {
        PixelType::Uint8 | PixelType::Uint16 | PixelType::Uint32 => return None,
        // A number below zero is no measurement there, and neggia ignores it.
        PixelType::Int32 if is_nowhere_negative => return None,
        PixelType::Int32 => "in int32 images, neggia ignores pixels with counts below zero, which raises the mean of weak ones",
        PixelType::Int8 | PixelType::Int16 => "in int8 and int16 images, neggia reads counts below zero as large counts",
        PixelType::Int64 | PixelType::Uint64 => "neggia does not read pixels of 64 bits",
        PixelType::Float32 | PixelType::Float64 => "neggia and durin read the bits of floating-point pixels as integers",
    };
    Some(problem("", what, fix))
}

/// What XDS would misread in the files of this specification; empty = nothing.
pub fn xds_problems_of(spec: &FileSpec) -> Vec<XdsProblem> {
    let Some(series) = &spec.series else {
        return of_run(spec.pixel, spec.raw_words, spec.compression, spec.layout);
    };
    let is_nowhere_negative = spec.underload.is_some_and(|underload| underload >= 0.0);
    of_series(spec.pixel, is_nowhere_negative, series).into_iter().chain(of_form(spec.compression, spec.layout)).collect()
}

/// Gives each pixel that is not to be used a bit that both plug-ins read. Its other bits stay.
pub(crate) fn readable_mask(mask: &mut [u32]) {
    mask.iter_mut().for_each(|bits| *bits = readable_bits(*bits));
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::xds::{DEAD, READ_BITS, UNUSABLE_BITS};

    #[test]
    fn of_series_unsigned_planes_are_read_and_cbf_frames() {
        let of = |pixel, shape: &[u64], pieces, underload| {
            let series = SeriesInfo { image_shape: shape.to_vec(), pieces, ..SeriesInfo::default() };
            xds_problems_of(&FileSpec { pixel, underload, series: Some(series), ..FileSpec::default() }).is_empty()
        };
        assert!(of(PixelType::Uint16, &[4, 6], 1, None) && of(PixelType::Int32, &[4, 6], 1, Some(0.0)));
        assert!(!of(PixelType::Int32, &[4, 6], 1, None) && !of(PixelType::Int16, &[4, 6], 1, Some(0.0)));
        assert!(!of(PixelType::Uint16, &[2, 4, 6], 1, None) && !of(PixelType::Uint16, &[4, 6], 2, None));
    }

    #[test]
    fn pixels_that_are_not_to_be_used_have_a_bit_that_is_read() {
        let mut mask: Vec<u32> = (0..32).map(|bit| 1 << bit).chain([0, 1 << 8 | 1, 1 << 8 | 1 << 31]).collect();
        let before = mask.clone();
        readable_mask(&mut mask);
        for (bits, old) in mask.iter().zip(&before) {
            assert_eq!(bits & !DEAD, old & !DEAD, "the other bits stay");
            assert_eq!(bits & READ_BITS != 0, old & UNUSABLE_BITS != 0, "{old:#x}");
        }
        let once = mask.clone();
        readable_mask(&mut mask);
        assert_eq!(mask, once);
    }
}
