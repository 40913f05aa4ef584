//! Images of frames in memory: what a run with this configuration and calibration makes of the words of each frame.

use crate::run::arm;
use konkordia_calibration::guard::{self, Expected};
use konkordia_calibration::{Calibration, Loaded, of_calibration};
use konkordia_config::{Config, plan};
use konkordia_core::assembler::PacketBitmap;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::image::TileRecord;
use konkordia_core::pixel::PixelType;
use konkordia_core::plan::Recipe;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::TileFormat;
use konkordia_engine::run::{FrameConverter, FrameTiles};
use konkordia_kernels::isa::Isa;
use konkordia_sinks::hdf5::FileSpec;

/// Makes images of JUNGFRAU frames.
pub struct FrameImages {
    converter: FrameConverter,
    mask: Vec<u32>,
    expected: Expected,
}

impl FrameImages {
    /// For frames of the detector of `config`; `calibration` is used in place of the one that it names.
    ///
    /// # Errors
    /// The calibration does not fit the detector and its pixels, or an image would depend on other frames.
    pub fn new(config: &Config, calibration: &Calibration) -> Result<Self, Failure> {
        let loaded = Self::loaded(config, calibration)?;
        Self::of_loaded(config, loaded)
    }

    /// As [`Self::new`], and what a file of these images says of them: not where it is and how it is packed.
    ///
    /// # Errors
    /// As of [`Self::new`].
    pub fn with_file(config: &Config, calibration: &Calibration) -> Result<(Self, FileSpec), Failure> {
        let loaded = Self::loaded(config, calibration)?;
        let file = FileSpec { pixel_mask: Vec::new(), ..arm::file_spec(config, &plan::plan(config), &loaded) };
        Ok((Self::of_loaded(config, loaded)?, file))
    }

    /// Constants and mask of a calibration.
    ///
    /// # Errors
    /// It does not fit the detector and its pixels.
    pub(crate) fn loaded(config: &Config, calibration: &Calibration) -> Result<Loaded, Failure> {
        if config.recipe != Recipe::JungfrauPhotons {
            return Err(refuse("only words of a JUNGFRAU become photons".into()));
        }
        of_calibration(config, calibration)
    }

    fn of_loaded(config: &Config, loaded: Loaded) -> Result<Self, Failure> {
        let expected = loaded.expected();
        let converter = FrameConverter::new(plan::plan(config), loaded.constants, Isa::detect()).map_err(refuse)?;
        Ok(Self { converter, mask: loaded.mask, expected })
    }

    /// Type of the pixels.
    pub fn pixel(&self) -> PixelType {
        self.converter.plan().pixel
    }

    /// Rows and columns of an image.
    pub fn shape(&self) -> [usize; 2] {
        let geometry = &self.converter.plan().geometry;
        [geometry.rows() as usize, geometry.columns() as usize]
    }

    /// NXmx mask bits of an image, row by row.
    pub fn mask(&self) -> &[u32] {
        &self.mask
    }

    /// Compares what the files of a frame say of its detector with the calibration: the module ids of its tiles, and
    /// the `daq_info` of its header, which says whether the detector is in high gain.
    ///
    /// # Errors
    /// The calibration is of other modules, or of the other gain.
    pub fn check(&self, module_ids: &[u16], daq_info: u32) -> Result<(), Failure> {
        let other_gain = || guard::other_gain(self.expected.high_gain?, daq_info, "a frame");
        let found = guard::other_module(&self.expected.ids, module_ids).or_else(other_gain);
        found.map_or(Ok(()), |error| Err(Failure { exit: Exit::Configuration, ..Failure::from(error) }))
    }

    /// Words of a frame, modules one below the other.
    pub fn frame_words(&self) -> usize {
        self.tile_words() * self.converter.plan().streams()
    }

    fn format(&self) -> &TileFormat {
        self.converter.plan().geometry.format()
    }

    fn tile_words(&self) -> usize {
        self.format().tile_bytes() as usize / 2
    }

    /// Converts frames, which lie one after the other in `words`, all of storage cell `cell`. A packet whose words are
    /// all 0xFFFF did not come. The image of the first frame has the number `first`.
    ///
    /// # Panics
    /// If these are not whole frames, or `out` has not the bytes of so many images.
    pub fn convert(&self, words: &[u16], cell: u8, first: u64, out: &mut [u8]) {
        let frames = words.chunks_exact(self.frame_words());
        assert!(frames.remainder().is_empty(), "whole frames");
        let frames: Vec<FrameTiles<'_>> = frames.map(|frame| self.tiles(frame, cell)).collect();
        self.converter.convert(&frames, first, out);
    }

    fn tiles<'a>(&self, frame: &'a [u16], cell: u8) -> FrameTiles<'a> {
        let header = SlsHeader { daq_info: u32::from(cell) << 8, ..SlsHeader::default() };
        let tile = |words: &'a [u16]| {
            let bitmap = packets_of(words, self.format().payload_bytes as usize / 2);
            let packets = bitmap.count() as u16;
            let record = TileRecord { header: header.into(), bitmap, packets, received_ns: 0 };
            (packets > 0).then_some((record, bytemuck::cast_slice(words)))
        };
        FrameTiles(frame.chunks_exact(self.tile_words()).map(tile).collect())
    }
}

fn refuse(why: String) -> Failure {
    let fix = "leave out what sums frames or follows pedestals; `konkordia convert` does that with files";
    Failure::new(Exit::Configuration, "single frames cannot be converted like this", why, fix)
}

/// Packets that came: those whose words are not all 0xFFFF, the padding of receivers.
pub fn packets_of(words: &[u16], packet_words: usize) -> PacketBitmap {
    let mut bitmap = PacketBitmap::default();
    for (packet, words) in words.chunks(packet_words).enumerate() {
        if words.iter().any(|word| *word != 0xFFFF) {
            bitmap.set(packet as u16);
        }
    }
    bitmap
}
