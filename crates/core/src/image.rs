//! A committed image, in one form for runs and series, and what is known of its packets.
//!
//! All sinks that take an image share the bytes of its pixels ([`bytes::Bytes`]). Only a consumer that may hold one of
//! a run for long gets a copy ([`CommittedImage::detached`]).

use crate::array::Array;
use crate::assembler::PacketBitmap;
use crate::frame_header::FrameHeader;
use crate::ledger::ImageStatus;
use crate::results::ImageResults;
use bytes::Bytes;
use std::sync::Arc;

/// What is known of one tile of a committed image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TileRecord {
    /// What the packets placed say of their frame; all zero if none was.
    pub header: FrameHeader,
    /// Packets that were placed.
    pub bitmap: PacketBitmap,
    /// Number of packets placed.
    pub packets: u16,
    /// When the first of them was taken from its source, ns since the run was armed; 0 if none was, or if the time is
    /// unknown.
    pub received_ns: u64,
}

impl TileRecord {
    /// When the first packet of all these tiles was taken.
    pub fn first_received_ns(tiles: &[Self]) -> Option<u64> {
        tiles.iter().map(|tile| tile.received_ns).filter(|ns| *ns > 0).min()
    }
}

/// What the committer decided about an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHead {
    /// Its state.
    pub status: ImageStatus,
    /// Position in the run of its first frame, from 0. Without a selection of frames this is also the position of the
    /// image.
    pub first_frame: u64,
    /// Frames that were added.
    pub frames: u32,
    /// Frames of which every packet was placed.
    pub frames_complete: u32,
}

impl Default for ImageHead {
    fn default() -> Self {
        Self { status: ImageStatus::Lost, first_frame: 0, frames: 0, frames_complete: 0 }
    }
}

/// One channel of an image (a threshold, a difference), or the only one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name; empty if the protocol has no channels.
    pub name: Arc<str>,
    /// Its pixels.
    pub array: Array,
}

/// Times of an image by the clock of the detector, in ns since the start of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageTimes {
    /// Beginning of the exposure.
    pub start_ns: u64,
    /// Its end.
    pub stop_ns: u64,
    /// Its length.
    pub real_ns: u64,
}

/// An image in its final state, of a run or of a series. Sinks get every position once and in order, lost images
/// included. Its pixels lie in the memory of the message that brought them, or in a buffer of the run that is used
/// again when nobody holds the image or a part of it any more.
#[derive(Clone, Debug)]
pub struct CommittedImage {
    /// Position in the file, from 0.
    pub number: u64,
    /// Number that the sender gave to the image. It is only a label where messages are counted to find the position.
    pub frame: u64,
    /// Its state. A lost one has no channels.
    pub status: ImageStatus,
    /// False if the sender wants the image passed on, but not stored.
    pub store: bool,
    /// The pixels by channel, in the order of the channels of its start, if it has any.
    pub channels: Vec<Channel>,
    /// When it was exposed, if the sender says so.
    pub times: Option<ImageTimes>,
    /// Everything else that the sender says about the image, as the JSON object that came; empty if nothing.
    pub header_json: Bytes,
    /// What its packets said, if the image was assembled from packets here.
    pub packets: Option<Packets>,
    /// What was computed from its pixels.
    pub results: ImageResults,
    /// When its first byte was received, in ns of the clock of the run; 0 = unknown.
    pub received_ns: u64,
    /// When an image of messages was given to a worker, by the same clock; 0 if none had it, and in a run.
    pub assembled_ns: u64,
    /// When the worker was done with it; 0 as above.
    pub converted_ns: u64,
    /// Missing parts of messages: bit n for upstream n. 0 in a complete image. For packets see
    /// [`Packets::missing_tiles`].
    pub missing_parts: u64,
}

/// The packets from which an image was assembled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packets {
    /// Position in the run of its first frame, from 0. Without a selection of frames this is also the position of the
    /// image.
    pub first_frame: u64,
    /// Frames that were added.
    pub frames: u32,
    /// Frames of which every packet was placed.
    pub frames_complete: u32,
    /// One record per tile. Of a sum of frames: the header of the first frame of which a packet came, and the packets
    /// that came in every frame.
    pub tiles: Vec<TileRecord>,
    /// Packets that a tile has when all came.
    pub packets_per_tile: u16,
    /// The tracked pedestals of G0 in ADU after this image, in output order; `None` for most images.
    pub pedestals: Option<Arc<Vec<f32>>>,
    /// Type of the detector, as its packet format numbers them; 0 where it does not.
    pub detector_type: u8,
    /// Version of the header; 0 where the format has none.
    pub header_version: u8,
}

impl Packets {
    /// Header of the first tile that received a packet.
    pub fn header(&self) -> Option<FrameHeader> {
        self.tiles.iter().find(|tile| tile.packets > 0).map(|tile| tile.header)
    }

    /// Tiles of which packets are missing: bit n for stream n, and the last bit also for all streams behind it. 0 in a
    /// complete image. 128 streams are an EIGER of 16 megapixels.
    pub fn missing_tiles(&self) -> u128 {
        let missing = self.tiles.iter().enumerate().filter(|(_, tile)| tile.packets < self.packets_per_tile);
        missing.fold(0, |bits, (stream, _)| bits | 1 << stream.min(127))
    }

    /// Packets that came, of all tiles.
    pub fn caught(&self) -> u32 {
        self.tiles.iter().map(|tile| u32::from(tile.packets)).sum()
    }
}

impl CommittedImage {
    /// A position without image.
    pub fn lost(number: u64) -> Self {
        Self {
            number,
            frame: number,
            status: ImageStatus::Lost,
            store: true,
            channels: Vec::new(),
            times: None,
            header_json: Bytes::new(),
            packets: None,
            results: ImageResults::default(),
            received_ns: 0,
            assembled_ns: 0,
            converted_ns: 0,
            missing_parts: 0,
        }
    }

    /// Packed bytes of all pixels.
    pub fn packed_bytes(&self) -> u64 {
        self.channels.iter().map(|channel| channel.array.packed_bytes()).sum()
    }

    /// Bytes of all pixels, unpacked.
    pub fn unpacked_bytes(&self) -> u64 {
        self.channels.iter().map(|channel| channel.array.unpacked_bytes()).fold(0, u64::saturating_add)
    }

    /// The packed pixels of an image with one channel in one piece, as those of runs are; empty if it has no pixels.
    pub fn chunk(&self) -> &[u8] {
        self.channels.first().and_then(|channel| channel.array.pieces.first()).map_or(&[], |piece| &piece[..])
    }

    /// A copy with pixels in memory of its own, for those who may keep it for long. It has no pedestals, because the
    /// memory of these belongs to the run too, and only files take them.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut copy = self.clone();
        copy.packets.iter_mut().for_each(|packets| packets.pedestals = None);
        for piece in copy.channels.iter_mut().flat_map(|channel| &mut channel.array.pieces) {
            *piece = Bytes::copy_from_slice(piece);
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_that_misses_packets_has_a_bit() {
        let missing_tiles = |missing: &[usize], count: usize| {
            let packets = |stream: usize| if missing.contains(&stream) { 63 } else { 64 };
            let tiles = (0..count).map(|stream| TileRecord { packets: packets(stream), ..TileRecord::default() });
            Packets { tiles: tiles.collect(), packets_per_tile: 64, ..Packets::default() }.missing_tiles()
        };
        // EIGER 9M: 18 modules with 4 ports each.
        assert_eq!(missing_tiles(&[0, 63, 64, 71], 72), 1 | 1 << 63 | 1 << 64 | 1 << 71);
        assert_eq!(missing_tiles(&[], 72), 0);
        assert_eq!(missing_tiles(&[127], 128), 1 << 127);
        assert_eq!(missing_tiles(&[200], 256), 1 << 127);
    }
}
