//! Stages to try a graph without a detector: images with a known pattern, a stage that only takes time, and one that
//! takes images and keeps nothing.

use super::image::{About, HEAD_BYTES, Image};
use super::work::{Made, Order, Report, Reports, Work};
use crossbeam_channel::Receiver;
use konkordia_core::failure::Failure;
use konkordia_core::pixel::PixelType;
use konkordia_graph::file::Stage;
use std::time::Duration;

/// Rows and columns, if none are given.
const SHAPE: [usize; 2] = [512, 1024];
/// The number of an image stands in its first pixels, if it has so many.
const NUMBER_BYTES: usize = 8;

/// The images that `pattern` makes: pixels that count up, with the number of the image in the first ones.
pub struct Pattern {
    /// An image as it is sent, without its number.
    bytes: Vec<u8>,
}

impl Pattern {
    /// Of these rows and columns.
    pub fn new(shape: [usize; 2]) -> Self {
        let pixels: Vec<u8> = (0..shape[0] * shape[1]).flat_map(|pixel| (pixel as u16).to_le_bytes()).collect();
        let (about, numbers) = (About::default(), Vec::new());
        Self { bytes: Image { shape, pixel: PixelType::Uint16, pixels: &pixels, about, numbers, mask: &[] }.encode() }
    }

    /// The image with this number, as it is sent.
    pub fn image(&self, number: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[HEAD_BYTES..].iter_mut().zip(number.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        bytes
    }

    /// True if these are the pixels of that image.
    pub fn is(&self, number: u64, pixels: &[u8]) -> bool {
        let own = &self.bytes[HEAD_BYTES..];
        let stamped = own.len().min(NUMBER_BYTES);
        pixels.len() == own.len() && pixels[..stamped] == number.to_le_bytes()[..stamped] && pixels[stamped..] == own[stamped..]
    }
}

/// Makes images.
pub fn pattern(stage: &Stage, reports: &Reports) {
    let pattern = Pattern::new(stage.shape.unwrap_or(SHAPE));
    for number in 0..stage.images.unwrap_or(0) {
        if !reports.say(Report::Made(number, pattern.image(number))) {
            return;
        }
    }
    reports.end(Ok(()));
}

/// Takes a time for each image.
pub struct Wait(Duration);

impl Wait {
    /// As the stage says.
    pub fn new(stage: &Stage) -> Self {
        Self(Duration::from_secs_f64(stage.work_ms.unwrap_or(0.0) / 1e3))
    }
}

impl Work for Wait {
    fn image(&mut self, _id: u64, image: &[u8]) -> Result<Made, Failure> {
        std::thread::sleep(self.0);
        Ok(Made::Image(image.to_vec()))
    }
}

/// Takes images. With `compare`, those that [`pattern`] did not make are refused.
pub fn discard(compare: bool, orders: &Receiver<Order>, reports: &Reports) {
    let mut pattern = None;
    while let Ok(order @ (Order::Image(..) | Order::Floor(_))) = orders.recv() {
        let Order::Image(id, image) = order else { continue };
        let is_right = !compare
            || Image::decode(&image).is_ok_and(|found| {
                let own = pattern.get_or_insert_with(|| Pattern::new(found.shape));
                found.pixel == PixelType::Uint16 && own.is(id, found.pixels)
            });
        let report = if is_right { Report::Done(id) } else { Report::Refused(id, "it is not the pattern that was sent".into()) };
        if !reports.say(report) {
            return;
        }
    }
    reports.end(Ok(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_the_pattern_is_known_again() {
        for shape in [[1, 1], [1, 3], [1, 4], [7, 5]] {
            let pattern = Pattern::new(shape);
            let bytes = pattern.image(513);
            let image = Image::decode(&bytes).unwrap();
            assert!(image.shape == shape && pattern.is(513, image.pixels), "{shape:?}");
            let sizes = [0, image.pixels.len() - 1];
            assert!(sizes.iter().all(|size| !pattern.is(513, &image.pixels[..*size])));
            for at in 0..image.pixels.len() {
                let mut other = image.pixels.to_vec();
                other[at] ^= 1;
                assert!(!pattern.is(513, &other), "{shape:?}, byte {at}");
            }
        }
        assert!(!Pattern::new([7, 5]).is(514, &Pattern::new([7, 5]).image(513)[HEAD_BYTES..]));
    }
}
