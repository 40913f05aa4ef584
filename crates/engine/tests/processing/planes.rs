//! A consumer of whole images that keeps all planes; shared with other test binaries.

use konkordia_core::array::Element;
use konkordia_engine::output_queue::{ImageSelection, OutputQueues};
use konkordia_engine::plane::PixelPlane;
use konkordia_engine::whole_image::{self, WholeImageConsumer, WholeImageSpec, WholeImages};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One plane as it was lent.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Number of the series, as its start has it.
    pub series: u64,
    pub image: u64,
    /// Rows and columns.
    pub size: (usize, usize),
    pub element: Element,
    pub bytes: Vec<u8>,
}

/// Called with the number of each image, before its plane is kept.
pub type Before = Arc<dyn Fn(u64) + Send + Sync>;

/// Keeps every plane.
#[derive(Clone, Default)]
pub struct Planes {
    pub kept: Arc<Mutex<Vec<Kept>>>,
    pub before: Option<Before>,
}

impl WholeImageConsumer for Planes {
    fn plane(&mut self, plane: &PixelPlane<'_>) {
        if let Some(before) = &self.before {
            before(plane.image.number);
        }
        assert_eq!(plane.channel, 0, "these images have one channel");
        self.kept.lock().unwrap().push(Kept {
            series: plane.start.series,
            image: plane.image.number,
            size: plane.size(),
            element: plane.element,
            bytes: plane.bytes.to_vec(),
        });
    }
}

impl Planes {
    /// Lets them see every `every_images`-th image. They may be late for `queue_images`.
    pub fn spawn(&self, name: &str, queues: &OutputQueues, every_images: u64, queue_images: usize) -> WholeImages {
        let selection = ImageSelection { every_images, interval: Duration::ZERO };
        let spec = WholeImageSpec { name: name.into(), selection, queue_images, plane_bytes_max: 1 << 30 };
        whole_image::spawn(queues, spec, self.clone()).unwrap()
    }

    /// What was kept, when all is there.
    pub fn end(&self, name: &str, queues: &OutputQueues, consumer: &mut WholeImages) -> Vec<Kept> {
        assert!(queues.remove(name), "{name} is still there");
        assert_eq!(consumer.join(), None);
        std::mem::take(&mut *self.kept.lock().unwrap())
    }
}
