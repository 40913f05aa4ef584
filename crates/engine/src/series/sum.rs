//! Sums of consecutive images of a series. They depend on the order of the images, so they are made on the thread that
//! commits images: workers hand it unpacked pixels, and sinks, consumers and the preview buffer see sums only.

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::image::{Channel, CommittedImage};
use konkordia_core::plan::Compression;
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

/// Adds the pixels of images, of one series after the other. Which images belong to a sum, and what its state is, say
/// the rules ([`super::rules`]).
pub(crate) struct Summer {
    isa: Isa,
    frames: u32,
    compression: Compression,
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
    /// At most `frames` images, at least 2, make one sum, which leaves with `compression`.
    pub fn new(frames: u32, compression: Compression) -> Self {
        Self { isa: Isa::detect(), frames, compression, channels: Vec::new(), pack: PackScratch::new() }
    }

    /// Images of a sum.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The next series begins.
    pub fn reset(&mut self) {
        self.channels.clear();
    }

    /// Adds the pixels of an image. False if they are not of the form of those before.
    pub fn add(&mut self, frame: &CommittedImage) -> bool {
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

    /// Gives a sum its pixels, if its state has pixels; the next image begins the next sum. `has_blanks`: images
    /// without pixels belong to it.
    pub fn finish(&mut self, sum: &mut CommittedImage, has_blanks: bool) {
        if sum.status.has_pixels() {
            sum.channels = self.pixels(has_blanks);
        } else if self.channels.iter().any(ChannelSum::is_begun) {
            // The pixels added so far are of no use.
            self.channels.clear();
        }
    }

    /// The sums. If an image has no pixels, every pixel of the sum is missing, or masked where another image is.
    fn pixels(&mut self, has_blanks: bool) -> Vec<Channel> {
        let mut channels = std::mem::take(&mut self.channels);
        let mut sums = Vec::with_capacity(channels.len());
        for channel in &mut channels {
            let element = sum_element(channel.element, self.frames);
            let mut pieces = Vec::with_capacity(channel.pieces.len());
            for state in &mut channel.pieces {
                if has_blanks {
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
            transform::compress(self.compression, self.isa, array.element, piece, &mut out, &mut self.pack)?;
            Ok(Bytes::from(out))
        };
        if self.compression == Compression::None {
            return array;
        }
        match array.pieces.iter().map(pack).collect::<Result<Vec<_>, String>>() {
            Ok(pieces) => Array { packing: self.compression.packing(), pieces, ..array },
            Err(_) => array,
        }
    }
}

#[cfg(test)]
#[path = "sum_tests.rs"]
mod tests;
