//! Reads tiles out of stacks of images.
//!
//! The slsReceiver stores 4-bit counts as they arrive, two in a byte, and 12-bit counts as 16-bit words. The latter are
//! packed again, so that packets lie where the detector put them.

use super::files::{cannot_read, wrong};
use super::index::{Place, TileIndex};
use super::records::not_padding;
use super::tile_reader::{TileFrame, TileReader};
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::failure::Failure;
use konkordia_core::plan::Compression;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::TileFormat;
use konkordia_kernels::codec::decode;
use konkordia_sinks::hdf5::compare_checksum;
use konkordia_sinks::hdf5::foreign::{Stack, StoredImage};
use konkordia_wire::sls_file::{MASK_BYTES, mask_bitmap};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// One file: its images and what is known about each.
pub(super) struct Source {
    pub path: PathBuf,
    pub stack: Stack,
    pub headers: Vec<SlsHeader>,
    /// One mask of packets caught for each image, if the file has them.
    pub masks: Option<Vec<u8>>,
    /// CRC-32 of the stored bytes of each image, if the file has them.
    pub checksums: Option<Vec<u64>>,
}

impl Source {
    /// Mask of packets caught of image `n`.
    pub fn mask(&self, n: usize) -> Option<&[u8]> {
        self.masks.as_ref().map(|masks| &masks[n * MASK_BYTES..][..MASK_BYTES])
    }
}

/// The files of an input.
#[derive(Clone)]
pub struct Stacks {
    pub(super) files: Arc<Vec<Source>>,
    pub(super) format: TileFormat,
    /// Row and column of each tile in the images of its files.
    pub(super) tiles: Arc<Vec<(usize, usize)>>,
    pub(super) decoded: Arc<Mutex<Decoded>>,
}

/// The packets of a whole tile that hold rows that were read, numbered from the first of them.
pub(super) fn of_rows_read(caught: &PacketBitmap, format: &TileFormat) -> PacketBitmap {
    caught.renumbered(format.first_packet as u16, format.packets() as u16, 0)
}

/// Bytes of a row of a tile as the slsReceiver stores them in HDF5.
pub(super) fn stored_row_bytes(format: &TileFormat) -> usize {
    let bits = if format.bits == 12 { 16 } else { format.bits };
    (format.columns * bits / 8) as usize
}

/// A cache of the images that were decoded last: several threads ask for the tiles of an image one by one, at about the
/// same time.
#[derive(Default)]
pub(super) struct Decoded {
    /// (file, image, pixels), the newest last.
    images: VecDeque<(u32, u64, Vec<u8>)>,
    stored: Vec<u8>,
}

/// Number of images in the cache.
const DECODED_MAX: usize = 4;

/// Reads one tile of the images.
pub struct Reader {
    stacks: Stacks,
    index: TileIndex,
    tile: usize,
    open: Option<(File, u32)>,
}

impl Reader {
    /// Opens no file yet.
    pub fn new(stacks: Stacks, index: TileIndex, tile: usize) -> Self {
        Self { stacks, index, tile, open: None }
    }

    fn read_pixels(&mut self, place: Place, image: StoredImage, payloads: &mut [IoSliceMut<'_>]) -> Result<(), Failure> {
        let source = &self.stacks.files[place.file as usize];
        if self.open.as_ref().is_none_or(|(_, number)| *number != place.file) {
            self.open = Some((File::open(&source.path).map_err(|e| cannot_read(&source.path, &e))?, place.file));
        }
        let Some((file, _)) = &self.open else { return Ok(()) };
        let (row, column) = self.stacks.tiles[self.tile];
        let (stack, format) = (&source.stack, self.stacks.format.of_tile(self.tile));
        let (width, tile_width) = (stack.columns * stack.pixel_bytes, stored_row_bytes(&format));
        let start = (row + format.first_row(self.tile) as usize) * width + column * stack.pixel_bytes;
        let is_packed_again = format.bits == 12;
        if stack.compression == Compression::None && width == tile_width && !is_packed_again {
            let mut at = image.address + start as u64;
            for payload in payloads {
                file.read_exact_at(payload, at).map_err(|e| cannot_read(&source.path, &e))?;
                at += payload.len() as u64;
            }
            return Ok(());
        }
        let mut decoded = self.stacks.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        let pixels = decoded.image(source, file, place, image)?;
        let mut pour = Pour::new(payloads);
        // Rows of the tile lie one image row apart.
        for row in (0..format.rows as usize).map(|r| &pixels[start + r * width..][..tile_width]) {
            if is_packed_again {
                // 3 bytes for two pixels, low byte first (docs/protocols.md 1.5).
                for pair in row.chunks_exact(4) {
                    pour.put(&[pair[0], pair[1] & 15 | pair[2] << 4, pair[2] >> 4 | pair[3] << 4]);
                }
            } else {
                pour.put(row);
            }
        }
        Ok(())
    }
}

/// Fills packets with bytes, one after the other.
pub(super) struct Pour<'p, 's> {
    payloads: &'p mut [IoSliceMut<'s>],
    packet: usize,
    at: usize,
}

impl<'p, 's> Pour<'p, 's> {
    pub fn new(payloads: &'p mut [IoSliceMut<'s>]) -> Self {
        Self { payloads, packet: 0, at: 0 }
    }

    /// Appends bytes. Those that fit into no packet are left out.
    pub fn put(&mut self, mut bytes: &[u8]) {
        while let (false, Some(payload)) = (bytes.is_empty(), self.payloads.get_mut(self.packet)) {
            let room = &mut payload[self.at..];
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.at += count;
            if count == room.len() {
                (self.packet, self.at) = (self.packet + 1, 0);
            }
        }
    }
}

impl Decoded {
    /// The pixels of an image, from the cache if they are there.
    pub fn image(&mut self, source: &Source, file: &File, place: Place, stored: StoredImage) -> Result<&[u8], Failure> {
        let there = self.images.iter().position(|(file, at, _)| (*file, *at) == (place.file, place.at));
        let found = match there {
            Some(n) => n,
            None => {
                let mut pixels =
                    if self.images.len() < DECODED_MAX { Vec::new() } else { self.images.pop_front().unwrap_or_default().2 };
                let stack = &source.stack;
                pixels.resize(stack.rows * stack.columns * stack.pixel_bytes, 0);
                self.stored.resize(stored.bytes as usize, 0);
                file.read_exact_at(&mut self.stored, stored.address).map_err(|e| cannot_read(&source.path, &e))?;
                if let Some(checksums) = &source.checksums {
                    compare_checksum(&self.stored, checksums[place.at as usize]).map_err(|e| damaged(source, place, &e))?;
                }
                if stack.compression == Compression::None {
                    let bytes = pixels.len();
                    pixels.copy_from_slice(self.stored.get(..bytes).ok_or_else(|| damaged(source, place, "it is too short"))?);
                } else {
                    decode(stack.compression, &self.stored, stack.pixel_bytes, &mut pixels)
                        .map_err(|e| damaged(source, place, &e))?;
                }
                self.images.push_back((place.file, place.at, pixels));
                self.images.len() - 1
            }
        };
        Ok(&self.images[found].2)
    }
}

pub(super) fn damaged(source: &Source, place: Place, why: &str) -> Failure {
    let what = format!("image {} of {} cannot be decoded", place.at, source.path.display());
    wrong(what, why, "copy the file again; or leave this frame out with --frames FROM:TO")
}

impl TileReader for Reader {
    fn places(&self) -> &[Place] {
        self.index.places()
    }

    fn read_into(&mut self, nth: usize, payloads: &mut [IoSliceMut<'_>]) -> Result<TileFrame, Failure> {
        let place = self.index.places()[nth];
        let files = Arc::clone(&self.stacks.files);
        let source = &files[place.file as usize];
        let image = source.stack.images[place.at as usize].ok_or_else(|| damaged(source, place, "it was never written"))?;
        self.read_pixels(place, image, payloads)?;
        let bitmap: PacketBitmap = match source.mask(place.at as usize) {
            Some(mask) => {
                let format = self.stacks.format.of_tile(self.tile);
                of_rows_read(&mask_bitmap(mask, format.whole().packets()), &format)
            }
            None => not_padding(&self.stacks.format, payloads),
        };
        Ok(TileFrame { header: source.headers[place.at as usize], bitmap })
    }
}
