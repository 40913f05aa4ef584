//! The sum that is being made, without its pixels. The rule itself is that of runs too: [`konkordia_core::selection`].

use konkordia_core::image::{CommittedImage, ImageTimes};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::selection::{FrameUse, ImageFrames, Selection, Selector};

/// See the top of this module.
pub(crate) struct Sum {
    policy: MissingPolicy,
    sum_frames: u32,
    selector: Selector,
    frames: ImageFrames,
    image: CommittedImage,
    /// Its last image was added.
    is_full: bool,
}

impl Sum {
    pub fn new(sum_frames: u32, policy: MissingPolicy) -> Self {
        let selector = Selector::new(Selection { sum_frames, ..Selection::default() });
        let (frames, image) = (ImageFrames::default(), CommittedImage::lost(0));
        Self { policy, sum_frames, selector, frames, image, is_full: false }
    }

    /// The next series begins.
    pub fn reset(&mut self) {
        *self = Self::new(self.sum_frames, self.policy);
    }

    /// Images in the sum, fewer than it takes.
    pub fn frames(&self) -> u32 {
        self.selector.open_frames()
    }

    /// Adds the image of the next position. True if its pixels have to be added too.
    pub fn add(&mut self, frame: &CommittedImage) -> bool {
        let FrameUse::Keep { image, first, last } = self.selector.next(None) else { return false };
        if first {
            self.image = CommittedImage::lost(image);
        }
        self.note(frame, first || self.frames.lost == self.frames.frames);
        self.frames.add(first, frame.status);
        self.is_full = last;
        let (has_pixels, is_wanted) = (frame.status.has_pixels(), self.frames.is_wanted(self.policy));
        if has_pixels && !is_wanted {
            self.frames.no_pixels();
        }
        has_pixels && is_wanted
    }

    /// The pixels of the last image could not be added.
    pub fn no_pixels(&mut self) {
        self.frames.no_pixels();
    }

    /// Keeps the header of the first image that came, and the times from the first to the last.
    fn note(&mut self, frame: &CommittedImage, is_first: bool) {
        let sum = &mut self.image;
        sum.missing_parts |= frame.missing_parts;
        if frame.status == ImageStatus::Lost {
            return;
        }
        if is_first {
            (sum.received_ns, sum.header_json) = (frame.received_ns, frame.header_json.clone());
        }
        sum.received_ns = sum.received_ns.min(frame.received_ns);
        sum.assembled_ns = sum.assembled_ns.max(frame.assembled_ns);
        sum.converted_ns = sum.converted_ns.max(frame.converted_ns);
        sum.store &= frame.store;
        if let Some(times) = frame.times {
            let before = sum.times.unwrap_or(ImageTimes { real_ns: 0, ..times });
            let real_ns = before.real_ns.saturating_add(times.real_ns);
            sum.times = Some(ImageTimes { start_ns: before.start_ns, stop_ns: times.stop_ns, real_ns });
        }
    }

    /// The sum, if its last image was added, and whether images without pixels belong to it.
    pub fn take(&mut self) -> Option<(CommittedImage, bool)> {
        if !std::mem::take(&mut self.is_full) {
            return None;
        }
        let mut image = std::mem::replace(&mut self.image, CommittedImage::lost(0));
        image.status = self.frames.status(self.policy);
        Some((image, self.frames.blank > 0))
    }
}
