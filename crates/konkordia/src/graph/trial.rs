//! Stages to try a graph without a detector: images with a known pattern, a stage that only takes time, and one that takes
//! images and keeps nothing.

use super::image::{HEAD_BYTES, Image};
use super::work::{Order, Report, Reports};
use crossbeam_channel::Receiver;
use konkordia_core::pixel::PixelType;
use konkordia_graph::file::Stage;
use std::time::Duration;

/// Rows and columns, if none are given.
const SHAPE: [usize; 2] = [512, 1024];
/// The number of an image stands in its first pixels, if it has so many.
const NUMBER_BYTES: usize = 8;

/// The images that `pattern` makes: pixels that count up, with the number of the image in the first ones.
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// Of these rows and columns.
    pub fn new(shape: [usize; 2]) -> Self {
        let pixels: Vec<u8> = (0..shape[0] * shape[1]).flat_map(|pixel| (pixel as u16).to_le_bytes()).collect();
        Self(Image { shape, pixel: PixelType::Uint16, pixels: &pixels }.encode())
    }

    /// The image with this number, as it is sent.
    pub fn image(&self, number: u64) -> Vec<u8> {
        let mut bytes = self.0.clone();
        bytes[HEAD_BYTES..].iter_mut().zip(number.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        bytes
    }

    /// True if these bytes are that image.
    pub fn is(&self, number: u64, bytes: &[u8]) -> bool {
        let stamped = (self.0.len() - HEAD_BYTES).min(NUMBER_BYTES) + HEAD_BYTES;
        bytes.len() == self.0.len()
            && bytes[..HEAD_BYTES] == self.0[..HEAD_BYTES]
            && bytes[HEAD_BYTES..stamped] == number.to_le_bytes()[..stamped - HEAD_BYTES]
            && bytes[stamped..] == self.0[stamped..]
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
pub fn wait(work_ms: f64, orders: &Receiver<Order>, reports: &Reports) {
    let work = Duration::from_secs_f64(work_ms / 1e3);
    while let Ok(order @ (Order::Image(..) | Order::Floor(_))) = orders.recv() {
        let Order::Image(id, image) = order else { continue };
        std::thread::sleep(work);
        if !reports.say(Report::Made(id, image.to_vec())) {
            return;
        }
    }
    reports.end(Ok(()));
}

/// Takes images. With `compare`, those that [`pattern`] did not make are refused.
pub fn discard(compare: bool, orders: &Receiver<Order>, reports: &Reports) {
    let mut pattern = None;
    while let Ok(order @ (Order::Image(..) | Order::Floor(_))) = orders.recv() {
        let Order::Image(id, image) = order else { continue };
        let is_right = !compare
            || match Image::decode(&image) {
                Ok(found) => pattern.get_or_insert_with(|| Pattern::new(found.shape)).is(id, &image),
                Err(_) => false,
            };
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
            let image = pattern.image(513);
            assert!(pattern.is(513, &image) && Image::decode(&image).is_ok(), "{shape:?}");
            let sizes = [0, image.len() - 1];
            assert!(sizes.iter().all(|size| !pattern.is(513, &image[..*size])));
            for at in 0..image.len() {
                let mut other = image.clone();
                other[at] ^= 1;
                assert!(!pattern.is(513, &other), "{shape:?}, byte {at}");
            }
        }
        assert!(!Pattern::new([7, 5]).is(514, &Pattern::new([7, 5]).image(513)));
    }
}
