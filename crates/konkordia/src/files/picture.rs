//! The picture of an image that `konkordia inspect` draws.

use konkordia_core::array::Element;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::pixel::PixelType;
use konkordia_picture::image;
use std::path::Path;

/// Longest side of a picture: a detector of 16 megapixels is drawn without scaling.
const SIDE_MAX: u32 = 4096;

/// Draws an image with a logarithmic scale.
pub fn draw(path: &Path, dtype: Option<PixelType>, columns: usize, pixels: &[u8]) -> Result<(), Failure> {
    let cannot =
        |why: &str| Failure::new(Exit::Io, format!("cannot draw {}", path.display()), why, "inspect it without a picture");
    let dtype = dtype.ok_or_else(|| cannot("the type of its pixels is not known"))?;
    let of = image::Pixels { element: Element::from(dtype), columns, bytes: pixels };
    let bytes = image::png(of, SIDE_MAX).map_err(|why| cannot(&why))?;
    std::fs::write(path, bytes).map_err(|error| Failure::io("cannot write the picture", path, &error))
}
