//! The gather list: for every block of the output image, where its pixels come from.

use super::image::{ImageGeometry, PixelRun, stepped};
use super::opening::DoublePixels;
use crate::tile::TileFormat;
use std::ops::Range;

/// Pixels inside one block that lie at equal distances in one tile and come from the same packets, or a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First pixel inside the block.
    pub block_offset: u32,
    /// Number of pixels.
    pub length: u32,
    /// The tile, or `None` for a gap or masked double pixels.
    pub tile: Option<u16>,
    /// First pixel inside the tile, counted as pixels are sent.
    pub tile_pixel: u32,
    /// Tile pixels from one output pixel to the next: 1, -1, or plus or minus the columns of the tile that are sent
    /// together. 1 where `length` is 1, and in gaps.
    pub step: i32,
    /// First packet of the tile that holds these pixels.
    pub packet_first: u16,
    /// Last packet of the tile that holds these pixels (two packets only for a 12-bit pixel on a packet border).
    pub packet_last: u16,
}

impl Segment {
    /// The tile's pixels, in output order.
    pub fn tile_pixels(&self) -> impl Iterator<Item = usize> + use<> {
        stepped(self.tile_pixel, self.step, self.length)
    }

    /// The pixels inside the block.
    pub fn in_block(&self) -> Range<usize> {
        self.block_offset as usize..(self.block_offset + self.length) as usize
    }
}

/// One output pixel of a block that is a part of a split double pixel. It is in a segment too, which brings the value
/// of the whole pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Pixel inside the block.
    pub block_offset: u32,
    /// Number of the double pixel in the whole detector: pixels of a tile x tile + tile pixel.
    pub group: u32,
    /// Which part this is, row by row as the pixel lies in its tile.
    pub part: u8,
    /// Parts of the double pixel, 2 or 4. They may lie in different blocks.
    pub parts: u8,
}

/// For every block of the output image, the segments that fill it, in order and without holes, and the shares among its
/// pixels.
///
/// Its size is bounded by [`ImageGeometry::gather_bytes_max`]: 24 bytes per segment and 12 per share. An upright tile
/// has one segment per row and block (stacked JUNGFRAU tiles: per packet), or 7 per row when split. A sideways tile has
/// one segment per packet in each output row, which is 4 pixels of a JUNGFRAU (3 MiB per module). Where the chips of a
/// tile take turns on the wire there is one for each turn (EXCALIBUR: 4 pixels, 3 MiB per tile).
#[derive(Clone, Debug)]
pub struct Gather {
    block_pixels: usize,
    image_pixels: usize,
    segments: Vec<Segment>,
    block_start: Vec<u32>,
    /// Sorted by output pixel.
    shares: Vec<Share>,
    /// Like `block_start`; empty without shares.
    share_start: Vec<u32>,
    is_plain: Vec<bool>,
}

impl ImageGeometry {
    /// Compiles the gather list for blocks of `block_pixels` output pixels.
    pub fn gather(&self, block_pixels: usize) -> Gather {
        Gather::new(self, block_pixels)
    }

    /// Most bytes that the gather list takes, see [`Gather`].
    pub fn gather_bytes_max(&self, block_pixels: usize) -> u64 {
        bytes_max(self, block_pixels)
    }
}

impl Gather {
    pub(super) fn new(geometry: &ImageGeometry, block_pixels: usize) -> Self {
        assert!(block_pixels > 0);
        let mut runs = Vec::new();
        for_each_wire_run(geometry, |run| runs.push(run));
        runs.sort_unstable();
        let mut gather = Self {
            block_pixels,
            image_pixels: geometry.pixels(),
            segments: Vec::new(),
            block_start: vec![0],
            shares: Vec::new(),
            share_start: Vec::new(),
            is_plain: Vec::new(),
        };
        let mut next = 0;
        for run in runs {
            gather.push_gap(next, run.output);
            next = run.output + run.length as usize;
            gather.push_run(geometry.format(), run);
        }
        gather.push_gap(next, geometry.pixels());
        gather.block_start.push(gather.segments.len() as u32);
        assert_eq!(gather.block_start.len(), gather.blocks() + 1);
        gather.segments.shrink_to_fit();
        if geometry.double_pixels() == DoublePixels::Split {
            gather.add_shares(geometry);
        }
        let is_plain = |b| gather.shares(b).is_empty() && gather.segments(b).iter().all(|s| s.step == 1);
        gather.is_plain = (0..gather.blocks()).map(is_plain).collect();
        gather
    }

    fn push_gap(&mut self, mut from: usize, to: usize) {
        while from < to {
            let length = (to - from).min(self.block_pixels - from % self.block_pixels) as u32;
            self.push(
                from,
                Segment { block_offset: 0, length, tile: None, tile_pixel: 0, step: 1, packet_first: 0, packet_last: 0 },
            );
            from += length as usize;
        }
    }

    /// Cuts a run at the borders of blocks and packets.
    fn push_run(&mut self, format: &TileFormat, mut run: PixelRun) {
        while run.length > 0 {
            let (packet_first, packet_last) = format.packets_of_pixel(run.tile_pixel);
            let room = (self.block_pixels - run.output % self.block_pixels) as u32;
            let mut length = 1;
            if packet_first == packet_last {
                length = pixels_in_packet(format, run, packet_first).min(room).min(run.length);
            }
            let step = if length == 1 { 1 } else { run.step };
            self.push(
                run.output,
                Segment {
                    block_offset: 0,
                    length,
                    tile: Some(run.tile),
                    tile_pixel: run.tile_pixel,
                    step,
                    packet_first,
                    packet_last,
                },
            );
            run.output += length as usize;
            run.length -= length;
            run.tile_pixel = run.tile_pixel.wrapping_add_signed(run.step * length as i32);
        }
    }

    fn push(&mut self, output: usize, mut segment: Segment) {
        segment.block_offset = (output % self.block_pixels) as u32;
        if segment.block_offset == 0 && output > 0 {
            self.block_start.push(self.segments.len() as u32);
        } else if let Some(last) = self.segments.last_mut() {
            let next = i64::from(last.tile_pixel) + i64::from(last.length) * i64::from(last.step);
            let follows = next == i64::from(segment.tile_pixel) && last.step == segment.step || segment.tile.is_none();
            let same_packets = (last.packet_first, last.packet_last) == (segment.packet_first, segment.packet_last);
            if last.tile == segment.tile && follows && same_packets {
                last.length += segment.length;
                return;
            }
        }
        self.segments.push(segment);
    }

    fn add_shares(&mut self, geometry: &ImageGeometry) {
        let tile_pixels = geometry.format().pixels();
        let mut found = Vec::new();
        geometry.for_each_double_part(|p| {
            let block_offset = (p.output % self.block_pixels) as u32;
            let group = p.tile as u32 * tile_pixels + p.tile_pixel;
            found.push((p.output, Share { block_offset, group, part: p.part, parts: p.parts }));
        });
        found.sort_unstable_by_key(|(output, _)| *output);
        let before = |block: usize| found.partition_point(|(output, _)| *output < block * self.block_pixels) as u32;
        self.share_start = (0..=self.blocks()).map(before).collect();
        self.shares = found.into_iter().map(|(_, share)| share).collect();
        self.shares.shrink_to_fit();
    }

    /// Number of blocks; only the last may be short.
    pub fn blocks(&self) -> usize {
        self.image_pixels.div_ceil(self.block_pixels)
    }

    /// Pixels of block `block`.
    pub fn block_length(&self, block: usize) -> usize {
        (self.image_pixels - block * self.block_pixels).min(self.block_pixels)
    }

    /// Pixels of the image that these blocks fill.
    pub fn pixels_of(&self, blocks: Range<usize>) -> Range<usize> {
        blocks.start * self.block_pixels..(blocks.end * self.block_pixels).min(self.image_pixels)
    }

    /// Pixels of a full block.
    pub fn block_pixels(&self) -> usize {
        self.block_pixels
    }

    /// Segments that fill block `block`.
    pub fn segments(&self, block: usize) -> &[Segment] {
        &self.segments[self.block_start[block] as usize..self.block_start[block + 1] as usize]
    }

    /// Pixels of block `block` that are parts of split double pixels, in order.
    pub fn shares(&self, block: usize) -> &[Share] {
        match self.share_start.get(block..block + 2) {
            Some(range) => &self.shares[range[0] as usize..range[1] as usize],
            None => &[],
        }
    }

    /// True if all segments of block `block` have a step of 1 and none of its pixels is a part of a double pixel.
    pub fn is_plain(&self, block: usize) -> bool {
        self.is_plain[block]
    }

    /// Bytes of the list.
    pub fn bytes(&self) -> u64 {
        let lists = size_of_val(&self.segments[..]) + size_of_val(&self.shares[..]);
        let starts = size_of_val(&self.block_start[..]) + size_of_val(&self.share_start[..]) + self.is_plain.len();
        (lists + starts) as u64
    }
}

/// As [`ImageGeometry::for_each_run`], with tile pixels counted as they are sent. Runs of tiles that are sent in
/// another order than row by row are cut where pixels that are neighbours in the image are none on the wire.
fn for_each_wire_run(geometry: &ImageGeometry, mut visit: impl FnMut(PixelRun)) {
    let format = geometry.format();
    geometry.for_each_run(|run| {
        if !format.is_interleaved() {
            return visit(run);
        }
        let mut part: Option<PixelRun> = None;
        for (at, pixel) in run.tile_pixels().enumerate() {
            let wire = format.wire_pixel(pixel as u32);
            if let Some(part) = part.as_mut() {
                let step = (i64::from(wire) - i64::from(part.tile_pixel)) as i32;
                if part.length == 1 || step == part.step * part.length as i32 {
                    part.step = if part.length == 1 { step } else { part.step };
                    part.length += 1;
                    continue;
                }
                visit(*part);
            }
            part = Some(PixelRun { output: run.output + at, length: 1, tile_pixel: wire, step: 1, ..run });
        }
        part.into_iter().for_each(&mut visit);
    });
}

/// Number of pixels from the first one of `run` on that lie wholly in `packet`, the packet of the first one.
fn pixels_in_packet(format: &TileFormat, run: PixelRun, packet: u16) -> u32 {
    let (bits, leading_bits) = (u64::from(format.bits), u64::from(format.leading_bytes) * 8);
    let bytes = format.bytes_of(packet.into());
    let (packet_first_bit, packet_end_bit) = (u64::from(bytes.start) * 8, u64::from(bytes.end) * 8);
    let first_bit = leading_bits + u64::from(run.tile_pixel) * bits;
    // Packet 0 begins with bytes before the pixels.
    let first_pixel_bit = packet_first_bit.max(leading_bits);
    let room_bits = if run.step > 0 { packet_end_bit - first_bit - bits } else { first_bit - first_pixel_bit };
    (room_bits / (u64::from(run.step.unsigned_abs()) * bits)) as u32 + 1
}

/// The bound of [`Gather::bytes`].
pub(super) fn bytes_max(geometry: &ImageGeometry, block_pixels: usize) -> u64 {
    let format = geometry.format();
    let blocks = geometry.pixels().div_ceil(block_pixels) as u64;
    // At a border between packets there is one cut, or a pixel that lies in both.
    let per_border = if (format.payload_bytes * 8).is_multiple_of(format.bits) { 1 } else { 2 };
    let (mut runs, mut cuts, mut shares) = (0u64, 0u64, 0u64);
    for_each_wire_run(geometry, |run| {
        let last = run.tile_pixel.wrapping_add_signed(run.step * (run.length as i32 - 1));
        let (low, high) = (run.tile_pixel.min(last), run.tile_pixel.max(last));
        runs += 1;
        cuts += u64::from(format.packets_of_pixel(high).1 - format.packets_of_pixel(low).0) * per_border;
    });
    if geometry.double_pixels() == DoublePixels::Split {
        geometry.for_each_double_part(|_| shares += 1);
    }
    // There may be a gap after each run and before the first one, and each block border cuts one run or gap.
    let segments = 2 * runs + 1 + cuts + blocks;
    segments * size_of::<Segment>() as u64 + shares * size_of::<Share>() as u64 + (blocks + 1) * (2 * 4 + 1)
}
