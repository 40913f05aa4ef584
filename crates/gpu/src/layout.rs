//! What kernels take instead of the order in which the processor goes through an image: places of pixels, and lists.

use konkordia_core::geometry::ImageGeometry;

/// Instead of a source: the pixel of the image lies in a gap. `NO_SOURCE` in `gather.cu`.
pub const NO_SOURCE: u32 = u32::MAX;

/// Instead of the first word of a frame: there is no frame. `NO_FRAME` in `gather.cu`.
pub const NO_FRAME: u64 = u64::MAX;

/// Where each pixel of an image comes from, as `gather.cu` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Number of the pixel among those of all tiles, each counted as it is sent; [`NO_SOURCE`] in gaps.
    pub source: Vec<u32>,
    /// Number of its packet among those of all tiles; bit 31 says that a part of it is in the next packet too.
    pub packet: Vec<u32>,
    /// Parts of double pixels.
    pub shares: Shares,
    /// Pixels of all tiles.
    pub tile_pixels: u32,
    /// Packets of all tiles.
    pub packets: u32,
}

/// The pixels of an image that are parts of double pixels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The pixel of the image.
    pub pixel: Vec<u32>,
    /// Number of the double pixel.
    pub group: Vec<u32>,
    /// Which part of how many it is: part + 16 x parts.
    pub part: Vec<u8>,
}

impl Places {
    /// Those of an image.
    ///
    /// # Panics
    /// If the tiles have 2^31 packets or 2^32 - 1 pixels; an image has at most 2^26.
    pub fn new(geometry: &ImageGeometry) -> Self {
        let (format, tiles) = (geometry.format(), geometry.placements().len() as u64);
        let all = |each: u32| u64::from(each) * tiles;
        assert!(all(format.pixels()) < u64::from(NO_SOURCE) && all(format.packets()) < 1 << 31, "numbers of 32 bits");
        let pixels = geometry.pixels();
        let (mut source, mut packet) = (vec![NO_SOURCE; pixels], vec![0; pixels]);
        let mut shares = Shares::default();
        let gather = geometry.gather(4096);
        for block in 0..gather.blocks() {
            let first = block * gather.block_pixels();
            for segment in gather.segments(block) {
                let Some(tile) = segment.tile.map(u32::from) else { continue };
                let spans_two = segment.packet_last != segment.packet_first;
                assert!(segment.packet_last <= segment.packet_first + 1, "a pixel is in two packets at most");
                let of_all = tile * format.packets() + u32::from(segment.packet_first);
                for (at, pixel) in segment.in_block().zip(segment.tile_pixels()) {
                    source[first + at] = tile * format.pixels() + pixel as u32;
                    packet[first + at] = of_all | u32::from(spans_two) << 31;
                }
            }
            for share in gather.shares(block) {
                shares.pixel.push(first as u32 + share.block_offset);
                shares.group.push(share.group);
                shares.part.push(share.part | share.parts << 4);
            }
        }
        Self { source, packet, shares, tile_pixels: all(format.pixels()) as u32, packets: all(format.packets()) as u32 }
    }
}

/// Lists of numbers, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Where each list begins, and where the last one ends.
    pub starts: Vec<u32>,
    /// The numbers of the elements of all lists. Those of a list are in their order.
    pub order: Vec<u32>,
}

impl Lists {
    /// From the number of the list (below `count`) of each element.
    ///
    /// # Panics
    /// If a number is not below `count`, or there are 2^32 elements.
    pub fn new(count: usize, list_of: impl Iterator<Item = usize> + Clone) -> Self {
        let mut starts = vec![0u32; count + 1];
        list_of.clone().for_each(|list| starts[list + 1] += 1);
        for list in 0..count {
            starts[list + 1] += starts[list];
        }
        let mut next = starts.clone();
        let mut order = vec![0; starts[count] as usize];
        for (element, list) in list_of.enumerate() {
            order[next[list] as usize] = u32::try_from(element).expect("elements of 32 bits");
            next[list] += 1;
        }
        Self { starts, order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_the_order_of_their_elements() {
        let lists = Lists::new(4, [2, 0, 2, 3, 0, 2].into_iter());
        assert_eq!((lists.starts, lists.order), (vec![0, 2, 2, 5, 6], vec![1, 4, 0, 2, 5, 3]));
        assert_eq!(Lists::new(2, std::iter::empty()), Lists { starts: vec![0; 3], order: vec![] });
    }
}
