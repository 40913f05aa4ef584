//! Recombination: parts of an image that came from several upstreams become one, each at its place.

use crate::unpack::unpack_pieces;
use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::geometry::Placement;
use konkordia_core::image::Channel;
use konkordia_kernels::Isa;
use konkordia_kernels::transform::{UnpackScratch, masked_le_bytes, missing_le_bytes, place};

/// Joins the parts of images. Where no part lies the image is *masked*, where a part is missing *missing*.
pub(crate) struct Joiner {
    isa: Isa,
    placements: Vec<Placement>,
    size: (u32, u32),
    /// Rows and columns of each part, from the last image in which it came.
    sizes: Vec<Option<(u32, u32)>>,
    tile: Vec<u8>,
    unpack: UnpackScratch,
}

/// An image of parts.
pub(crate) struct Joined {
    /// Empty if no part can be read.
    pub channels: Vec<Channel>,
    /// Bit n is set if part n came and cannot be read.
    pub unreadable: u64,
    pub why: Option<String>,
}

/// Rows and columns of a part with two dimensions; further ones in front must be 1.
pub(crate) fn tile_size(shape: &Shape) -> Option<(u32, u32)> {
    let [leading @ .., rows, columns] = shape.dimensions() else { return None };
    let is_flat = leading.iter().all(|n| *n == 1);
    is_flat.then_some((u32::try_from(*rows).ok()?, u32::try_from(*columns).ok()?))
}

/// Does a part of this size lie inside of the image?
pub(crate) fn fits(placement: &Placement, tile: (u32, u32), (rows, columns): (u32, u32)) -> bool {
    let (high, wide) = placement.orientation.turned(tile);
    let inside = |from: u32, length: u32, end: u32| from.checked_add(length).is_some_and(|last| last <= end);
    inside(placement.row, high, rows) && inside(placement.column, wide, columns)
}

impl Joiner {
    pub fn new(isa: Isa, placements: Vec<Placement>, size: (u32, u32)) -> Self {
        let sizes = vec![None; placements.len()];
        Self { isa, placements, size, sizes, tile: Vec::new(), unpack: UnpackScratch::new(isa) }
    }

    /// Joins `parts`, the channels of each; a missing part has none. Parts were checked: same types and numbers of
    /// channels, inside of the image.
    pub fn join(&mut self, parts: &[Vec<Channel>]) -> Joined {
        let mut joined = Joined { channels: Vec::new(), unreadable: 0, why: None };
        let Some(first) = parts.iter().find(|channels| !channels.is_empty()) else { return joined };
        for (size, channels) in self.sizes.iter_mut().zip(parts) {
            *size = channels.first().and_then(|channel| tile_size(&channel.array.shape)).or(*size);
        }
        let shape = Shape::new(&[u64::from(self.size.0), u64::from(self.size.1)]).expect("checked when it was opened");
        let elements: Vec<Element> = first.iter().map(|channel| channel.array.element).collect();
        let mut images: Vec<Vec<u8>> = elements.iter().map(|element| self.background(parts, *element)).collect();
        for (n, channels) in parts.iter().enumerate() {
            for (channel, image) in channels.iter().zip(&mut images) {
                if let Err(why) = self.place(n, &channel.array, image) {
                    joined.unreadable |= 1 << n;
                    joined.why.get_or_insert(why);
                }
            }
            if joined.unreadable & 1 << n != 0 {
                // Of a part with one bad channel nothing is kept.
                for (element, image) in elements.iter().zip(&mut images) {
                    self.fill(n, *element, image);
                }
            }
        }
        let is_any_read = parts.iter().enumerate().any(|(n, channels)| !channels.is_empty() && joined.unreadable & 1 << n == 0);
        if is_any_read {
            let channels = first.iter().zip(images).map(|(channel, image)| Channel {
                name: channel.name.clone(),
                array: Array { shape, element: channel.array.element, packing: Packing::None, pieces: vec![Bytes::from(image)] },
            });
            joined.channels = channels.collect();
        }
        joined
    }

    fn image_bytes(&self, pixel_bytes: usize) -> usize {
        self.size.0 as usize * self.size.1 as usize * pixel_bytes
    }

    /// The image before its parts: gaps masked, missing parts missing. Where parts cover everything nothing has to be
    /// filled in.
    fn background(&self, parts: &[Vec<Channel>], element: Element) -> Vec<u8> {
        let pixel_bytes = element.bits() as usize / 8;
        let bytes = self.image_bytes(pixel_bytes);
        let covered: u64 = self.sizes.iter().flatten().map(|(rows, columns)| u64::from(*rows) * u64::from(*columns)).sum();
        let mut image = vec![0; bytes];
        if covered < u64::from(self.size.0) * u64::from(self.size.1) {
            fill_with(&mut image, &masked_le_bytes(element));
        }
        for n in (0..parts.len()).filter(|n| parts[*n].is_empty()) {
            self.fill(n, element, &mut image);
        }
        image
    }

    /// Fills the place of part `n` with missing pixels; a part that never came is assumed to be as large as the others.
    fn fill(&self, n: usize, element: Element, image: &mut [u8]) {
        let Some(size) = self.sizes[n].or_else(|| self.sizes.iter().flatten().next().copied()) else { return };
        let placement = &self.placements[n];
        if !fits(placement, size, self.size) {
            return;
        }
        let (rows, columns) = placement.orientation.turned(size);
        let (pixel_bytes, missing) = (element.bits() as usize / 8, missing_le_bytes(element));
        let row_bytes = self.size.1 as usize * pixel_bytes;
        for row in image.chunks_exact_mut(row_bytes).skip(placement.row as usize).take(rows as usize) {
            fill_with(&mut row[placement.column as usize * pixel_bytes..][..columns as usize * pixel_bytes], &missing);
        }
    }

    fn place(&mut self, n: usize, array: &Array, image: &mut [u8]) -> Result<(), String> {
        let size = tile_size(&array.shape).filter(|size| fits(&self.placements[n], *size, self.size));
        let (rows, columns) = size.ok_or("it does not fit into the image")?;
        let (pixel_bytes, bytes) = (array.element.bits() as usize / 8, array.unpacked_bytes() as usize);
        let mut tile = std::mem::take(&mut self.tile);
        tile.resize(bytes, 0);
        let done = unpack_pieces(array, &mut tile, &mut self.unpack);
        if done.is_ok() {
            let (placement, tile_size) = (&self.placements[n], (rows as usize, columns as usize));
            let (at, wide) = ((placement.row as usize, placement.column as usize), self.size.1 as usize);
            place::place(self.isa, pixel_bytes, tile_size, &tile, placement.orientation, image, wide, at);
        }
        self.tile = tile;
        done
    }
}

fn fill_with(bytes: &mut [u8], pixel: &[u8]) {
    bytes.chunks_exact_mut(pixel.len().max(1)).for_each(|out| out.copy_from_slice(pixel));
}
