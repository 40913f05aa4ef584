//! Sums of k consecutive images. This is the only transformation with state: it takes images in order, on one thread.

use super::bin;
use super::sample::{Overflow, missing_le_bytes};
use super::totals::{Bin, Reduce, Totals};
use crate::isa::Isa;
use konkordia_core::array::{Element, Shape};

/// How images are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// Images that become one, 1 to [`Sum::IMAGES_MAX`].
    pub images: u32,
    /// Sum or mean.
    pub reduce: Reduce,
    /// Type of the output; `None` = as the input.
    pub element: Option<Element>,
    /// What becomes of totals above its range.
    pub overflow: Overflow,
}

impl Sum {
    /// Few enough that no total of 64 bits overflows.
    pub const IMAGES_MAX: u32 = 1 << 30;
}

/// A sum that is being made.
pub struct SumState {
    isa: Isa,
    how: Bin,
    images: u32,
    element: Element,
    pixels: usize,
    totals: Totals,
    added: u32,
}

impl SumState {
    /// For images of this shape and type. Takes 9 bytes of memory for each pixel, 17 for integers of 64 bits.
    ///
    /// # Errors
    /// Says why such a sum cannot be made, as a text for users.
    pub fn new(isa: Isa, sum: &Sum, shape: Shape, element: Element) -> Result<Self, String> {
        if !(1..=Sum::IMAGES_MAX).contains(&sum.images) {
            return Err(format!("a sum of {} images cannot be made: choose 1 to {}", sum.images, Sum::IMAGES_MAX));
        }
        if element.is_packed() || sum.element.is_some_and(Element::is_packed) {
            return Err("packed pixels cannot be summed: unpack them first".into());
        }
        let pixels = usize::try_from(shape.elements()).ok().filter(|pixels| pixels.checked_mul(Totals::bytes(1)).is_some());
        let pixels = pixels.ok_or_else(|| format!("images of shape {:?} are too large to sum", shape.dimensions()))?;
        let how = Bin { rows: 1, columns: 1, reduce: sum.reduce, element: sum.element, overflow: sum.overflow };
        let mut totals = Totals::default();
        totals.begin(element, pixels);
        Ok(Self { isa, how, images: sum.images, element, pixels, totals, added: 0 })
    }

    /// Type of the sums.
    pub fn element(&self) -> Element {
        self.how.element.unwrap_or(self.element)
    }

    /// Images added since the last sum.
    pub fn added(&self) -> u32 {
        self.added
    }

    /// Adds the next image. True if the sum is then complete, so that [`Self::finish`] is due.
    ///
    /// # Errors
    /// If the image has another length, or the sum is full already. Nothing is added then.
    pub fn add(&mut self, image: &[u8]) -> Result<bool, String> {
        let bytes = self.pixels * self.element.bits() as usize / 8;
        if image.len() != bytes {
            return Err(format!("the image has {} bytes, but the sum takes images of {bytes} bytes", image.len()));
        }
        if self.added == self.images {
            return Err(format!("the sum of {} images is full", self.images));
        }
        bin::add(self.isa, self.element, image, &mut self.totals);
        self.added += 1;
        Ok(self.added == self.images)
    }

    /// Writes the sum of the added images to `out` and begins the next one. If fewer images than planned were added, a
    /// mean is taken over those; if none were added, every pixel is missing.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let element = self.element();
        if self.added == 0 {
            let missing = missing_le_bytes(element);
            out.clear();
            out.extend(missing.iter().copied().cycle().take(self.pixels * missing.len()));
            return;
        }
        out.resize(self.pixels * element.bits() as usize / 8, 0);
        bin::finish(self.isa, self.element, &mut self.totals, 1, self.added, &self.how, out);
        self.totals.begin(self.element, self.pixels);
        self.added = 0;
    }
}
