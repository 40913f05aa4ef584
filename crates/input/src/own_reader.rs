//! Reads tiles out of the images of a run of raw words. The words of a tile are taken from the places in the image
//! where the run put them.

use super::files::cannot_read;
use super::index::{Place, TileIndex};
use super::stack_reader::{Decoded, Pour, Source, damaged};
use super::tile_reader::{TileFrame, TileReader};
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::failure::Failure;
use konkordia_core::geometry::{ImageGeometry, PixelRun};
use konkordia_core::setup::Port;
use konkordia_core::sls_header::SlsHeader;
use std::fs::File;
use std::io::IoSliceMut;
use std::sync::{Arc, Mutex, PoisonError};

/// The data files of a run.
#[derive(Clone)]
pub struct RawRun {
    pub(super) parts: Arc<Vec<Part>>,
    pub(super) geometry: Arc<ImageGeometry>,
    /// Where the pixels of each tile lie in the image.
    pub(super) pixel_runs: Arc<Vec<Vec<PixelRun>>>,
    /// Module and position of each tile, from its headers.
    pub(super) ports: Arc<Vec<Port>>,
    pub(super) decoded: Arc<Mutex<Decoded>>,
}

/// One data file.
pub(super) struct Part {
    pub source: Source,
    pub status: Vec<u64>,
    /// As stored: `words` numbers for each tile of each image.
    pub bitmaps: Vec<u64>,
    pub words: usize,
    pub tiles: usize,
    pub first_image: u64,
}

impl Part {
    /// Which packets of a tile were received.
    pub fn bitmap(&self, image: usize, tile: usize) -> PacketBitmap {
        let at = (image * self.tiles + tile) * self.words;
        let mut bitmap = PacketBitmap::default();
        bitmap.0[..self.words].copy_from_slice(&self.bitmaps[at..at + self.words]);
        bitmap
    }
}

/// Reads one tile of the images.
pub struct Reader {
    run: RawRun,
    index: TileIndex,
    tile: usize,
    open: Option<(File, u32)>,
    /// The words of the tile.
    words: Vec<u8>,
}

impl Reader {
    /// Opens no file yet.
    pub fn new(run: RawRun, index: TileIndex, tile: usize) -> Self {
        let words = vec![0xFF; run.geometry.format().tile_bytes() as usize];
        Self { run, index, tile, open: None, words }
    }

    /// Copies the words of an image to their places in the tile. Masked double pixels are not stored and stay
    /// *missing*.
    fn gather(&mut self, place: Place) -> Result<(), Failure> {
        let source = &self.run.parts[place.file as usize].source;
        if self.open.as_ref().is_none_or(|(_, number)| *number != place.file) {
            self.open = Some((File::open(&source.path).map_err(|e| cannot_read(&source.path, &e))?, place.file));
        }
        let Some((file, _)) = &self.open else { return Ok(()) };
        let stored = source.stack.images[place.at as usize].ok_or_else(|| damaged(source, place, "it was never written"))?;
        let mut decoded = self.run.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        let image = decoded.image(source, file, place, stored)?;
        for run in &self.run.pixel_runs[self.tile] {
            let from = &image[2 * run.output..2 * (run.output + run.length as usize)];
            if run.step == 1 {
                self.words[2 * run.tile_pixel as usize..][..from.len()].copy_from_slice(from);
                continue;
            }
            for (word, pixel) in from.chunks_exact(2).zip(run.tile_pixels()) {
                self.words[2 * pixel..2 * pixel + 2].copy_from_slice(word);
            }
        }
        Ok(())
    }
}

impl TileReader for Reader {
    fn places(&self) -> &[Place] {
        self.index.places()
    }

    fn read_into(&mut self, nth: usize, payloads: &mut [IoSliceMut<'_>]) -> Result<TileFrame, Failure> {
        let place = self.index.places()[nth];
        self.gather(place)?;
        Pour::new(payloads).put(&self.words);
        let part = &self.run.parts[place.file as usize];
        let packets = self.run.geometry.format().packets() as u16;
        let bitmap = part.bitmap(place.at as usize, self.tile).renumbered(0, packets, 0);
        let Port { row, column, module_id } = self.run.ports[self.tile];
        let header = SlsHeader { row, column, module_id, ..part.source.headers[place.at as usize] };
        Ok(TileFrame { header, bitmap })
    }
}
