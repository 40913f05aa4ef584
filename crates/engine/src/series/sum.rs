//! Sums of consecutive images of a series. They depend on the order of the images, so they are made on the thread that
//! commits images: workers hand it unpacked pixels, and sinks, consumers and the preview buffer see sums only.

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, CommittedImage, ImageTimes};
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::series::SeriesStart;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{self, Overflow, PackScratch, Reduce, Sum, SumState, missing_le_bytes};
use std::sync::Arc;

/// Images of 8 bits whose sum cannot leave the range of 16 bits.
const NARROW_FRAMES_MAX: u32 = 260;

/// Type of a sum of `frames` images of this type: integers of 8 and 16 bits become the narrowest wider ones that hold
/// every sum; those of 32 and 64 bits and floats stay, because most programs read nothing wider, and what does not fit
/// is *saturated*.
pub fn sum_element(element: Element, frames: u32) -> Element {
    let is_narrow = frames <= NARROW_FRAMES_MAX;
    match element {
        _ if frames <= 1 => element,
        Element::Uint8 if is_narrow => Element::Uint16,
        Element::Int8 if is_narrow => Element::Int16,
        Element::Uint8 | Element::Uint16 => Element::Uint32,
        Element::Int8 | Element::Int16 => Element::Int32,
        other => other,
    }
}

/// Adapts a start, which describes images, to sums of `frames` images.
pub(crate) fn start_of_sums(start: &mut SeriesStart, frames: u32) {
    if frames <= 1 {
        return;
    }
    let (times, facts) = (f64::from(frames), &mut start.facts);
    start.images_planned = start.images_planned.map(|images| images / u64::from(frames));
    start.element = start.element.map(|element| sum_element(element, frames));
    facts.frame_time_s = facts.frame_time_s.map(|seconds| seconds * times);
    facts.count_time_s = facts.count_time_s.map(|seconds| seconds * times);
    facts.saturation_value = facts.saturation_value.map(|value| value.saturating_mul(u64::from(frames)));
    facts.experiment.goniometer = facts.experiment.goniometer.in_steps_of(frames);
}

/// Makes sums of the images of one series after the other.
pub(crate) struct Summer {
    isa: Isa,
    frames: u32,
    missing: MissingPolicy,
    packing: Packing,
    /// The sum that is being made, without its pixels; its number is the right one.
    sum: CommittedImage,
    /// Images in it, and how many of them are in which state.
    added: u32,
    complete: u32,
    lost: u32,
    discarded: u32,
    /// Images without pixels, or with pixels of another form.
    blank: u32,
    /// Kept from sum to sum.
    channels: Vec<ChannelSum>,
    pack: PackScratch,
}

/// One channel: pieces are summed each by itself, so that they stay pieces.
struct ChannelSum {
    name: Arc<str>,
    shape: Shape,
    element: Element,
    piece_bytes: usize,
    pieces: Vec<SumState>,
}

impl ChannelSum {
    fn new(isa: Isa, frames: u32, channel: &Channel) -> Result<Self, String> {
        let array = &channel.array;
        let piece = array.piece_shape().ok_or("the pieces do not make an array")?;
        let out = Some(sum_element(array.element, frames));
        let how = Sum { images: frames, reduce: Reduce::Sum, element: out, overflow: Overflow::Saturated };
        let state = |_: &Bytes| SumState::new(isa, &how, piece, array.element);
        let pieces: Vec<SumState> = array.pieces.iter().map(state).collect::<Result<_, _>>()?;
        let piece_bytes = array.pieces.first().map_or(0, Bytes::len);
        Ok(Self { name: Arc::clone(&channel.name), shape: array.shape, element: array.element, piece_bytes, pieces })
    }

    fn fits(&self, array: &Array) -> bool {
        (self.shape, self.element, self.pieces.len()) == (array.shape, array.element, array.pieces.len())
            && array.packing == Packing::None
            && (self.piece_bytes * self.pieces.len()) as u64 == array.unpacked_bytes()
            && array.pieces.iter().all(|piece| piece.len() == self.piece_bytes)
    }

    fn is_begun(&self) -> bool {
        self.pieces.iter().any(|piece| piece.added() > 0)
    }
}

impl Summer {
    /// `frames` images, at least 2, make one sum, which leaves in `packing`.
    pub fn new(frames: u32, missing: MissingPolicy, packing: Packing) -> Self {
        Self {
            isa: Isa::detect(),
            frames,
            missing,
            packing,
            sum: CommittedImage::lost(0),
            added: 0,
            complete: 0,
            lost: 0,
            discarded: 0,
            blank: 0,
            channels: Vec::new(),
            pack: PackScratch::new(),
        }
    }

    /// Images of a sum.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Images in the sum that is being made, fewer than it takes.
    pub fn added(&self) -> u32 {
        self.added
    }

    /// The next series begins.
    pub fn reset(&mut self) {
        self.begin(0);
        self.channels.clear();
    }

    fn begin(&mut self, number: u64) {
        self.sum = CommittedImage::lost(number);
        (self.added, self.complete, self.lost, self.discarded, self.blank) = (0, 0, 0, 0, 0);
    }

    /// Adds the image of the next position. Returns the sum, if that was its last image.
    pub fn add(&mut self, frame: &CommittedImage) -> Option<CommittedImage> {
        self.note(frame);
        self.added += 1;
        match frame.status {
            ImageStatus::Complete => self.complete += 1,
            ImageStatus::Lost => self.lost += 1,
            ImageStatus::Discarded => self.discarded += 1,
            ImageStatus::Partial => {}
        }
        if !frame.status.has_pixels() || !self.is_wanted() || !self.add_pixels(frame) {
            self.blank += 1;
        }
        (self.added == self.frames).then(|| self.finish())
    }

    /// False once it is known that this sum will not be written.
    fn is_wanted(&self) -> bool {
        self.missing == MissingPolicy::Keep || self.complete == self.added
    }

    /// Keeps the header of the first image that came, and the times from the first to the last.
    fn note(&mut self, frame: &CommittedImage) {
        let (is_first, sum) = (self.lost == self.added, &mut self.sum);
        sum.missing_parts |= frame.missing_parts;
        if frame.status == ImageStatus::Lost {
            return;
        }
        if is_first {
            (sum.received_ns, sum.header_json) = (frame.received_ns, frame.header_json.clone());
        }
        sum.received_ns = sum.received_ns.min(frame.received_ns);
        sum.store &= frame.store;
        if let Some(times) = frame.times {
            let before = sum.times.unwrap_or(ImageTimes { real_ns: 0, ..times });
            let real_ns = before.real_ns.saturating_add(times.real_ns);
            sum.times = Some(ImageTimes { start_ns: before.start_ns, stop_ns: times.stop_ns, real_ns });
        }
    }

    /// False if they are not of the form of those before.
    fn add_pixels(&mut self, frame: &CommittedImage) -> bool {
        let is_alike = |channels: &[ChannelSum]| {
            channels.len() == frame.channels.len()
                && channels.iter().zip(&frame.channels).all(|(sum, channel)| sum.fits(&channel.array))
        };
        if !is_alike(&self.channels) {
            if self.channels.iter().any(ChannelSum::is_begun) {
                return false;
            }
            let new = |channel: &Channel| ChannelSum::new(self.isa, self.frames, channel);
            self.channels = frame.channels.iter().map(new).collect::<Result<_, _>>().unwrap_or_default();
            if self.channels.is_empty() || !is_alike(&self.channels) {
                self.channels.clear();
                return false;
            }
        }
        let mut is_added = true;
        for (sum, channel) in self.channels.iter_mut().zip(&frame.channels) {
            for (state, piece) in sum.pieces.iter_mut().zip(&channel.array.pieces) {
                is_added &= state.add(piece).is_ok();
            }
        }
        is_added
    }

    fn finish(&mut self) -> CommittedImage {
        let mut sum = std::mem::replace(&mut self.sum, CommittedImage::lost(0));
        let has_pixels = self.channels.iter().any(ChannelSum::is_begun);
        sum.status = match () {
            () if self.complete == self.frames && self.blank == 0 => ImageStatus::Complete,
            () if self.lost == self.frames => ImageStatus::Lost,
            () if self.discarded > 0 || self.missing != MissingPolicy::Keep => ImageStatus::Discarded,
            () if has_pixels => ImageStatus::Partial,
            () => ImageStatus::Lost,
        };
        if sum.status.has_pixels() {
            sum.channels = self.pixels();
        } else if has_pixels {
            // The pixels added so far are of no use.
            self.channels.clear();
        }
        self.begin(sum.number + 1);
        sum
    }

    /// The sums. If an image has no pixels, every pixel of the sum is missing, or masked where another image is.
    fn pixels(&mut self) -> Vec<Channel> {
        let mut channels = std::mem::take(&mut self.channels);
        let mut sums = Vec::with_capacity(channels.len());
        for channel in &mut channels {
            let element = sum_element(channel.element, self.frames);
            let mut pieces = Vec::with_capacity(channel.pieces.len());
            for state in &mut channel.pieces {
                if self.blank > 0 {
                    let missing = missing_le_bytes(channel.element);
                    let image: Vec<u8> = missing.iter().copied().cycle().take(channel.piece_bytes).collect();
                    // This cannot fail: the image without pixels was not added, so there is room for it.
                    let _ = state.add(&image);
                }
                let mut piece = Vec::new();
                state.finish(&mut piece);
                pieces.push(Bytes::from(piece));
            }
            let array = Array { shape: channel.shape, element, packing: Packing::None, pieces };
            sums.push(Channel { name: Arc::clone(&channel.name), array: self.packed(array) });
        }
        self.channels = channels;
        sums
    }

    /// Packs the array; one that cannot be packed leaves as it is.
    fn packed(&mut self, array: Array) -> Array {
        let pack = |piece: &Bytes| {
            let mut out = Vec::new();
            transform::pack(self.packing, self.isa, array.element, piece, &mut out, &mut self.pack)?;
            Ok(Bytes::from(out))
        };
        if self.packing == Packing::None {
            return array;
        }
        match array.pieces.iter().map(pack).collect::<Result<Vec<_>, String>>() {
            Ok(pieces) => Array { packing: self.packing, pieces, ..array },
            Err(_) => array,
        }
    }
}

#[cfg(test)]
#[path = "sum_tests.rs"]
mod tests;
