//! The frames of raw files, one at a time, as arrays of words. Modules of a JUNGFRAU lie one below the other, as in
//! calibrations; the ports of an EIGER lie where the files say, and their counts are unpacked. Where packets are
//! missing, the words are 0xFFFF (0xFFFF_FFFF for 32 bit).

use crate::convert::{facts_of_words, of_words};
use konkordia_config::plan;
use konkordia_core::experiment::Metadata;
use konkordia_core::failure::{Exit, Failure};
use konkordia_core::geometry::ImageGeometry;
use konkordia_core::image::TileRecord;
use konkordia_core::pixel::PixelType;
use konkordia_core::sls_header::SlsHeader;
use konkordia_core::tile::DetectorKind;
use konkordia_engine::run::{FrameConverter, FrameTiles};
use konkordia_input::{Input, InputInfo, Options, TileReader};
use konkordia_kernels::isa::Isa;
use std::path::PathBuf;

/// Raw files that were opened and belong together.
pub struct RawFrames {
    input: Input,
    words: String,
    facts: Metadata,
    /// Numbers of the frames that are there, ascending.
    numbers: Vec<u64>,
    readers: Vec<Box<dyn TileReader>>,
    converter: FrameConverter,
    /// The tiles of a frame, in 64-bit words so that pixels of every size are aligned.
    tiles: Vec<Vec<u64>>,
}

/// What is known of a frame.
#[derive(Clone, Debug, Default)]
pub struct FrameFacts {
    /// The number that the detector gave it.
    pub number: u64,
    /// Packets that a whole frame has.
    pub packets: u32,
    /// Header of the first tile that has one.
    pub header: SlsHeader,
    /// One record per tile.
    pub tiles: Vec<TileRecord>,
}

impl FrameFacts {
    /// Packets that did not come.
    pub fn packets_missing(&self) -> u32 {
        self.packets - self.tiles.iter().map(|tile| u32::from(tile.packets)).sum::<u32>()
    }
}

impl RawFrames {
    /// Opens files of one acquisition.
    ///
    /// # Errors
    /// A file cannot be read or understood, or files do not belong together.
    pub fn open(paths: &[PathBuf], options: &Options) -> Result<Self, Failure> {
        let input = Input::open(paths, options)?;
        let mut config = of_words(input.info())?;
        let (words, facts) = (config.text.clone(), facts_of_words(&config, input.info()));
        if config.geometry.format().kind == DetectorKind::Jungfrau {
            let (format, tiles) = (*config.geometry.format(), input.tiles() as u32);
            config.geometry = ImageGeometry::stacked(format, tiles).map_err(|error| impossible(error.to_string()))?;
        }
        let constants = konkordia_calibration::for_config(&config)?.constants;
        let converter = FrameConverter::new(plan::plan(&config), constants, Isa::detect()).map_err(impossible)?;
        let tile_words = (converter.plan().geometry.format().tile_bytes() as usize).div_ceil(8);
        let tiles = vec![vec![0; tile_words]; input.tiles()];
        let readers = (0..input.tiles()).map(|tile| input.open_tile(tile)).collect();
        Ok(Self { numbers: input.frame_numbers(), input, words, facts, readers, converter, tiles })
    }

    /// What was found in the files.
    pub fn info(&self) -> &InputInfo {
        self.input.info()
    }

    /// What the frames are, for [`crate::convert::of_frames`].
    pub fn words(&self) -> &str {
        &self.words
    }

    /// What the run that wrote the files says of the measurement.
    pub fn facts(&self) -> &Metadata {
        &self.facts
    }

    /// Numbers of the frames that are there, ascending.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        let geometry = &self.converter.plan().geometry;
        [geometry.rows() as usize, geometry.columns() as usize]
    }

    /// Type of a word.
    pub fn pixel(&self) -> PixelType {
        self.converter.plan().pixel
    }

    /// Reads the `nth` frame into `out`, the bytes of an image.
    ///
    /// # Errors
    /// The files cannot be read.
    ///
    /// # Panics
    /// If there are not so many frames, or `out` has another size.
    pub fn read(&mut self, nth: usize, out: &mut [u8]) -> Result<FrameFacts, Failure> {
        let (number, format) = (self.numbers[nth], *self.converter.plan().geometry.format());
        let packets = format.packets() * self.readers.len() as u32;
        let mut facts = FrameFacts { number, packets, ..FrameFacts::default() };
        let tile_bytes = format.tile_bytes() as usize;
        for (reader, words) in self.readers.iter_mut().zip(&mut self.tiles) {
            let Ok(at) = reader.places().binary_search_by_key(&number, |place| place.frame) else {
                facts.tiles.push(TileRecord::default());
                continue;
            };
            let tile = reader.read(at, &mut bytemuck::cast_slice_mut(words)[..tile_bytes])?;
            let header = SlsHeader { frame_number: number, ..tile.header };
            let packets = tile.bitmap.count() as u16;
            facts.tiles.push(TileRecord { header: header.into(), bitmap: tile.bitmap, packets, received_ns: 0 });
        }
        let bytes = self.tiles.iter().map(|words| &bytemuck::cast_slice(words)[..tile_bytes]);
        let came = |(record, bytes): (&TileRecord, _)| (record.packets > 0).then_some((*record, bytes));
        self.converter.convert(&[FrameTiles(facts.tiles.iter().zip(bytes).map(came).collect())], 0, out);
        facts.header = facts.tiles.iter().find(|tile| tile.packets > 0).map(|tile| tile.header.into()).unwrap_or_default();
        Ok(facts)
    }
}

fn impossible(why: String) -> Failure {
    Failure::new(Exit::Configuration, "these frames cannot be shown as arrays", why, "give the files of one detector")
}
