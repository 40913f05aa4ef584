//! The pixels of an image as bytes, in the type in which they are analysed. They are copied only if they are narrower
//! than that, or where the processor cannot take them as they lie.

use crate::Plane;
use crate::analyser::{Analyser, Results};
use konkordia_core::pixel::PixelType;
use konkordia_kernels::Isa;

/// Gives images to an analyser. Its memory, at most one image, is used again for each.
pub struct Pixels {
    isa: Isa,
    signed_16: Vec<i16>,
    unsigned_16: Vec<u16>,
    signed_32: Vec<i32>,
    unsigned_32: Vec<u32>,
    float_32: Vec<f32>,
}

impl Pixels {
    /// With the best instructions that this processor has; without memory so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Analyses an image: its type, its little-endian pixels, the length of a row, and the lowest and highest value
    /// that is a measurement.
    ///
    /// # Errors
    /// Pixels of this type or an image of this size cannot be analysed, in words.
    ///
    /// # Panics
    /// If the bytes are no whole rows, or as [`Analyser::analyse`].
    pub fn analyse(
        &mut self,
        analyser: &mut Analyser,
        (pixel, bytes): (PixelType, &[u8]),
        (columns, (low, high)): (usize, (f64, f64)),
        out: &mut Results,
    ) -> Result<(), String> {
        macro_rules! as_type {
            ($($name:ident: $from:ty => $to:ty, $memory:ident, $in_place:expr;)*) => {
                match pixel {
                    $(PixelType::$name => {
                        let pixels: &[$to] = match $in_place(bytes) {
                            Some(pixels) => pixels,
                            None => {
                                let pixels = &mut self.$memory;
                                pixels.clear();
                                pixels.extend(bytes.as_chunks().0.iter().map(|number| <$to>::from(<$from>::from_le_bytes(*number))));
                                pixels
                            }
                        };
                        let plane = Plane::new(pixels, columns, low as $to, (high as $to).min(<$to>::MAX));
                        analyser.analyse(self.isa, &plane, out)
                    })*
                    other => Err(format!("pixels of type {other} cannot be analysed")),
                }
            };
        }
        as_type!(
            Int8: i8 => i16, signed_16, |_| None;
            Uint8: u8 => u16, unsigned_16, |_| None;
            Int16: i16 => i16, signed_16, in_place;
            Uint16: u16 => u16, unsigned_16, in_place;
            Int32: i32 => i32, signed_32, in_place;
            Uint32: u32 => u32, unsigned_32, in_place;
            Float32: f32 => f32, float_32, in_place;
        )
    }
}

/// Little-endian pixels as they lie; `None` where they must be copied.
fn in_place<P: bytemuck::Pod>(bytes: &[u8]) -> Option<&[P]> {
    bytemuck::try_cast_slice(bytes).ok().filter(|_| cfg!(target_endian = "little"))
}

impl Default for Pixels {
    fn default() -> Self {
        Self {
            isa: Isa::detect(),
            signed_16: Vec::new(),
            unsigned_16: Vec::new(),
            signed_32: Vec::new(),
            unsigned_32: Vec::new(),
            float_32: Vec::new(),
        }
    }
}
