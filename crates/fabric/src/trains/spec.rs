//! What a train of one module of a detector may be.

use konkordia_core::tile::XfelDetector;
use konkordia_wire::xfel_train::{TrainShape, packets_of};

/// Most bytes of the section of a train builder that are received or sent.
pub const BUILDER_BYTES_MAX: usize = 8192;

/// The trains of one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainSpec {
    /// Which detector it is.
    pub detector: XfelDetector,
    /// Most images of a train; a train with more is not one of this detector.
    pub images_max: usize,
}

impl TrainSpec {
    /// Bytes of an image.
    pub fn image_bytes(&self) -> usize {
        let (rows, columns) = self.detector.image_size();
        2 * rows as usize * columns as usize
    }

    /// Shape of a train with so many images and bytes of a train builder.
    pub fn shape(&self, images: usize, builder_specific_bytes: usize) -> TrainShape {
        let detector_specific_bytes = self.detector.specific_bytes() as usize;
        TrainShape { images, image_bytes: self.image_bytes(), detector_specific_bytes, builder_specific_bytes }
    }

    /// Bytes of the longest train.
    ///
    /// # Panics
    /// If a train with so many images fits into no memory.
    pub fn bytes_max(&self) -> usize {
        let sections = self.shape(self.images_max, BUILDER_BYTES_MAX).sections();
        sections.expect("a train that fits into memory").end
    }

    /// Packets of the longest train.
    pub fn packets_max(&self) -> usize {
        packets_of(self.bytes_max())
    }

    /// The shape of a train of so many bytes, if there is one without bytes of a train builder.
    pub fn shape_of_bytes(&self, bytes: usize) -> Option<TrainShape> {
        // Lists take at most 16 bytes of an image and their padding, so few counts are possible.
        let most = (bytes / self.image_bytes()).min(self.images_max);
        let shapes = (0..=most).rev().take(2).map(|images| self.shape(images, 0));
        shapes.into_iter().find(|shape| shape.sections().is_some_and(|sections| sections.end == bytes))
    }
}
