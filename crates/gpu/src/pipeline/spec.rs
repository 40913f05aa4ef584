//! What a pipeline does, fixed when it is armed.

use crate::device::Number;
use crate::layout::NO_SOURCE;
use crate::program::{BLOCK_BYTES, SLOT_BYTES, STATS_NUMBERS, STATS_PORTION};
use konkordia_core::pixel::PixelType;
use konkordia_memory::ring::RawFrames;
use std::borrow::Cow;
use std::time::Duration;

/// How work gets to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaunchBy {
    /// The host enqueues each step when those before it permit; events order the streams.
    Plain,
    /// Steps of batches that have not come yet are enqueued, and held by flags (stream memory operations). The host
    /// sets one flag for a batch.
    WaitValue,
    /// One graph for each batch; what is done for an image that is kept is the body of a conditional node.
    Graph,
    /// A kernel stays on the device and waits for flags.
    Persistent,
}

impl LaunchBy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::WaitValue, Self::Graph, Self::Persistent];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::WaitValue => "wait-value",
            Self::Graph => "graph",
            Self::Persistent => "persistent",
        }
    }

    /// Sets of buffers on the device. A graph keeps its set from the copy to the return, so three overlap; otherwise
    /// two are enough, because input and output are free at different times.
    pub(crate) fn sets(self) -> usize {
        if self == Self::Graph { 3 } else { 2 }
    }
}

/// What comes back of an image that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Its pixels.
    Pixels,
    /// The chunk of HDF5 filter 32008.
    Chunks,
    /// The pixels above the level as a sparse image, with room for so many.
    Sparse {
        /// Pixels of an image.
        room: u32,
    },
}

/// Which pixels count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Above {
    /// Pixels count above this, of the type of the pixels.
    pub level: Number,
    /// And at most at this.
    pub high: Number,
    /// An image with fewer is rejected.
    pub least: u32,
}

/// A pipeline.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Rows of an image.
    pub rows: u32,
    /// Columns of an image.
    pub columns: u32,
    /// Frames of a batch.
    pub frames: u32,
    /// Pixels that are made: one of [`PixelType::CONVERTED`].
    pub pixel: PixelType,
    /// A word 0x3FFF is saturated.
    pub high_gain: bool,
    /// The veto; without it all images are kept.
    pub above: Option<Above>,
    /// What comes back.
    pub output: Output,
    /// The statistics of strips of so many pixels come back too, of rejected images as well. The last strip may be
    /// shorter.
    pub stats_of: Option<u32>,
    /// How work gets to the device.
    pub launch: LaunchBy,
    /// How long nothing may move while something is to be done.
    pub patience: Duration,
    /// Where the flags begin. They wrap around, so any number will do; it is here for tests.
    pub first: u32,
}

/// How words become pixels.
#[derive(Clone, Debug)]
pub enum Calibration<'a> {
    /// In single precision.
    Float {
        /// Three planes of pedestals, G0 first.
        pedestal: Cow<'a, [f32]>,
        /// Three planes of factors.
        factor: Cow<'a, [f32]>,
    },
    /// In integers, as docs/formats/fixed-point.md has them.
    Fixed {
        /// Pedestals of G0 in 1/256 ADU.
        pedestal_g0: Cow<'a, [u32]>,
        /// Pedestals of G1 in 1/4 ADU.
        pedestal_g1: Cow<'a, [u16]>,
        /// Pedestals of G2 in 1/4 ADU.
        pedestal_g2: Cow<'a, [u16]>,
        /// Three planes of factors; 0 = not usable.
        factor: Cow<'a, [u16]>,
        /// Shift of each stage.
        shift: [u8; 3],
    },
}

impl Calibration<'_> {
    /// True if there are constants of so many pixels.
    fn is_of(&self, pixels: usize) -> bool {
        match self {
            Self::Float { pedestal, factor } => [pedestal.len(), factor.len()] == [3 * pixels; 2],
            Self::Fixed { pedestal_g0, pedestal_g1, pedestal_g2, factor, .. } => {
                [pedestal_g0.len(), pedestal_g1.len(), pedestal_g2.len(), factor.len() / 3] == [pixels; 4]
                    && factor.len() == 3 * pixels
            }
        }
    }
}

/// Constants of a detector, pixel by pixel.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    /// How words become pixels.
    pub calibration: &'a Calibration<'a>,
    /// 1 for pixels that may count.
    pub usable: &'a [u8],
    /// The device takes the words of frames from where they were received, if it can. Otherwise the host brings them.
    pub received: Option<Received<'a>>,
}

/// Where frames were received.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// The memory.
    pub frames: &'a RawFrames,
    /// For each pixel, how many words behind the first one of the frame its word is, or [`NO_SOURCE`].
    pub source: &'a [u32],
}

impl Spec {
    /// Pixels of an image.
    pub fn pixels(&self) -> usize {
        self.rows as usize * self.columns as usize
    }

    /// Bytes of the words of a batch.
    pub fn words_bytes(&self) -> usize {
        self.frames as usize * self.pixels() * 2
    }

    /// Bytes of an image.
    pub fn image_bytes(&self) -> usize {
        self.pixels() * self.pixel.bytes()
    }

    /// Strips of an image whose statistics come back.
    pub(crate) fn strips(&self) -> usize {
        self.stats_of.map_or(0, |pixels| self.pixels().div_ceil(pixels as usize))
    }

    /// Numbers of the statistics of an image.
    pub(crate) fn stats_numbers(&self) -> usize {
        self.strips() * STATS_NUMBERS
    }

    /// LZ4 blocks of an image.
    pub(crate) fn blocks(&self) -> usize {
        let group = 8 * self.pixel.bytes();
        (self.image_bytes() / group * group).div_ceil(BLOCK_BYTES)
    }

    /// Room for a chunk, in whole words of 64 bits: header, blocks at their worst, last pixels.
    pub(crate) fn chunk_bytes_max(&self) -> usize {
        (12 + self.blocks() * (4 + SLOT_BYTES) + 8 * self.pixel.bytes()).next_multiple_of(8)
    }

    /// Room for what comes back of an image.
    pub(crate) fn returned_bytes_max(&self) -> usize {
        let bytes = match self.output {
            Output::Pixels => self.image_bytes(),
            Output::Chunks => self.chunk_bytes_max(),
            Output::Sparse { room } => room as usize * (4 + self.pixel.bytes()),
        };
        bytes.next_multiple_of(8)
    }

    /// Batches that may be on their way.
    pub fn credits(&self) -> usize {
        2 * self.launch.sets()
    }

    /// Memory that is asked for where the host brings the words, and converts them in single precision: of the device,
    /// and pinned memory of the host. A device that takes them itself has 4 bytes more for each pixel, and the host 8
    /// bytes for each frame in their place. Integers have 10 bytes less for each pixel.
    pub fn memory_bytes(&self) -> (usize, usize) {
        let (frames, pixels) = (self.frames as usize, self.pixels());
        let of_output = match self.output {
            Output::Pixels => 0,
            // Slots, sizes and places of blocks, the chunk and its length.
            Output::Chunks => self.blocks() * (SLOT_BYTES + 8) + self.chunk_bytes_max() + 4,
            // Counts and places of rows, columns and values.
            Output::Sparse { room } => (2 * self.rows as usize + 1) * 4 + room as usize * (4 + self.pixel.bytes()),
        };
        // Words, pixels, count, keep, statistics.
        let set = frames * (2 * pixels + self.image_bytes() + 4 + 1 + self.stats_numbers() * 8 + of_output);
        // Six constants and whether a pixel may count; sets.
        let device = pixels * (6 * 4 + 1) + self.launch.sets() * set;
        let slot = self.words_bytes() + self.meta_bytes() + frames * self.returned_bytes_max();
        (device, pixels * 6 * 4 + self.credits() * slot)
    }

    /// Where the numbers begin behind the bytes that say what is kept.
    pub(crate) fn numbers_offset(&self) -> usize {
        (self.frames as usize).next_multiple_of(8)
    }

    /// Numbers of an image: the length of its chunk, or the places of its rows.
    pub(crate) fn numbers(&self) -> usize {
        match self.output {
            Output::Pixels => 0,
            Output::Chunks => 1,
            Output::Sparse { .. } => self.rows as usize + 1,
        }
    }

    /// Where the statistics begin behind the numbers.
    pub(crate) fn stats_offset(&self) -> usize {
        (self.numbers_offset() + self.frames as usize * self.numbers() * 4).next_multiple_of(8)
    }

    pub(crate) fn meta_bytes(&self) -> usize {
        self.stats_offset() + self.frames as usize * self.stats_numbers() * 8
    }

    /// What is wrong with it, in words.
    pub(crate) fn check(&self, tables: &Tables<'_>) -> Result<(), String> {
        let pixels = self.pixels();
        if self.frames == 0 || pixels == 0 {
            return Err("a batch has at least one frame, and an image at least one pixel".into());
        }
        if !PixelType::CONVERTED.contains(&self.pixel) {
            return Err(format!("words are not converted to {}", self.pixel));
        }
        if pixels > 1 << 28 || self.words_bytes() > 1 << 32 {
            return Err("an image has at most 2^28 pixels, and a batch 4 GiB of words".into());
        }
        if !tables.calibration.is_of(pixels) || tables.usable.len() != pixels {
            return Err("constants are three planes of pedestals, three of factors, and a byte for each pixel".into());
        }
        if let Some(Received { frames, source }) = tables.received {
            let is_there = |word: &u32| *word == NO_SOURCE || (*word as usize) < frames.bytes() / 2;
            if source.len() != pixels || !source.iter().all(is_there) {
                return Err("every pixel has a place in the memory of received frames, or none".into());
            }
        }
        let bytes = [self.above.map(|above| above.level), self.above.map(|above| above.high)];
        if bytes.into_iter().flatten().any(|number| number.bytes() != self.pixel.bytes()) {
            return Err("a level has the type of the pixels".into());
        }
        if self.stats_of.is_some_and(|strip| strip == 0 || !strip.is_multiple_of(STATS_PORTION)) {
            return Err(format!("strips with statistics have a multiple of {STATS_PORTION} pixels"));
        }
        match self.output {
            Output::Chunks if pixels < 8 => Err("an image of fewer than 8 pixels has no blocks".into()),
            Output::Sparse { .. } if self.above.is_none() => Err("a sparse image has the pixels above a level".into()),
            Output::Sparse { room: 0 } => Err("a sparse image has room for a pixel".into()),
            _ => Ok(()),
        }
    }
}
