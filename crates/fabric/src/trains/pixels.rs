//! The pixels of a train of one module: which did not arrive, and their order.

use super::channel::ModuleTrain;
use super::order;
use super::spec::TrainSpec;
use konkordia_wire::xfel_train::PAYLOAD_BYTES;

impl ModuleTrain {
    /// Finds the pixels that did not arrive, and brings all pixels into the order of the image if `is_ordered`; once
    /// per train, and not before its shape is known. `scratch` is grown to one image once.
    pub fn finish_pixels(&mut self, spec: &TrainSpec, is_ordered: bool, scratch: &mut Vec<[u8; 2]>) {
        let Some(at) = self.shape.and_then(|shape| shape.sections()) else { return };
        if std::mem::replace(&mut self.is_ordered, true) {
            return;
        }
        self.find_missing(spec, at.images..at.cell_ids);
        if !is_ordered || !order::is_needed(spec.detector) {
            return;
        }
        order::to_image(spec.detector, &mut self.bytes[at.images..at.cell_ids], scratch);
        for (_, marks) in &mut self.missing {
            let wire = std::mem::replace(marks, vec![0; marks.len()]);
            order::lpd_to_image(&wire, marks);
        }
    }

    /// Marks the pixels of packets that did not arrive, in the order of the wire.
    fn find_missing(&mut self, spec: &TrainSpec, pixels: std::ops::Range<usize>) {
        if pixels.is_empty() {
            return;
        }
        let image_bytes = spec.image_bytes();
        for packet in pixels.start / PAYLOAD_BYTES..=(pixels.end - 1) / PAYLOAD_BYTES {
            if self.has_packet(packet) {
                continue;
            }
            // In bytes from the first pixel on. Packets begin at even bytes, so they share no pixel.
            let first = (packet * PAYLOAD_BYTES).max(pixels.start) - pixels.start;
            let end = ((packet + 1) * PAYLOAD_BYTES).min(pixels.end) - pixels.start;
            for image in first / image_bytes..=(end - 1) / image_bytes {
                if self.missing.last().is_none_or(|(last, _)| *last != image) {
                    self.missing.push((image, vec![0; image_bytes / 2]));
                }
                let start = image * image_bytes;
                let (from, to) = (first.max(start) - start, end.min(start + image_bytes) - start);
                if let Some((_, marks)) = self.missing.last_mut() {
                    marks[from / 2..to / 2].fill(1);
                }
            }
        }
    }
}
