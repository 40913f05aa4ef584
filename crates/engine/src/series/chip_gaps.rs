//! Inserts the gap between chips for modules whose pixels come without it, so that everything downstream sees the
//! module as it is.

use crate::unpack::unpacked;
use bytes::Bytes;
use konkordia_core::array::{Array, Packing, Shape};
use konkordia_core::ports::Message;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{UnpackScratch, masked_le_bytes};
use konkordia_wire::message::{Event, MessageDecoder, Read};
use konkordia_wire::stream::{Bounds, Refusal};

/// Columns of a chip of EIGER and JUNGFRAU.
const CHIP_COLUMNS: u64 = 256;
const PIXELS: usize = 1;

/// Another decoder, and the gap that its images lack.
pub struct ChipGaps {
    inner: Box<dyn MessageDecoder>,
    gap_px: u64,
    bounds: Bounds,
    scratch: UnpackScratch,
}

impl ChipGaps {
    pub fn new(inner: Box<dyn MessageDecoder>, gap_px: u32, bounds: Bounds) -> Self {
        Self { inner, gap_px: u64::from(gap_px), bounds, scratch: UnpackScratch::new(Isa::detect()) }
    }

    fn widened(&mut self, array: &Array) -> Result<Array, String> {
        let dimensions = array.shape.dimensions();
        let Some((&columns, leading)) = dimensions.split_last() else { return Err("it has no columns".into()) };
        let chips = columns / CHIP_COLUMNS;
        if chips == 0 || columns % CHIP_COLUMNS != 0 || !array.element.bits().is_multiple_of(8) {
            return Err(format!("an image of shape {dimensions:?} is not made of chips of {CHIP_COLUMNS} columns"));
        }
        let pixel = u64::from(array.element.bits() / 8);
        let wide = columns + (chips - 1) * self.gap_px;
        let bytes = (array.shape.elements() / columns).checked_mul(wide).and_then(|pixels| pixels.checked_mul(pixel));
        let bytes = bytes.filter(|bytes| *bytes <= self.bounds.image_bytes_max);
        let shape = Shape::new(&[leading, &[wide]].concat());
        let (Some(bytes), Some(shape)) = (bytes, shape) else {
            return Err("with the gaps between its chips it is too large".into());
        };
        let plain = unpacked(array, &mut self.scratch)?;
        let gap = masked_le_bytes(array.element).repeat(self.gap_px as usize);
        let mut out = Vec::with_capacity(bytes as usize);
        for row in plain.chunks_exact((columns * pixel) as usize) {
            for (n, chip) in row.chunks_exact((CHIP_COLUMNS * pixel) as usize).enumerate() {
                out.extend_from_slice(if n == 0 { &[] } else { &gap });
                out.extend_from_slice(chip);
            }
        }
        Ok(Array { shape, element: array.element, packing: Packing::None, pieces: vec![Bytes::from(out)] })
    }
}

impl MessageDecoder for ChipGaps {
    fn read(&mut self, message: &Message) -> Result<Read, Refusal> {
        let mut read = self.inner.read(message)?;
        if let Event::Part(part) = &mut read.event {
            for channel in &mut part.channels {
                channel.array = self.widened(&channel.array).map_err(|why| Refusal::new(PIXELS, why))?;
            }
        }
        Ok(read)
    }
}
