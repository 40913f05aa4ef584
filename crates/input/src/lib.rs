//! Reads frames from files of this program and of others: an index of the frames, and the pixels of one tile of one
//! frame. Live data come through `sources` instead.
//! Read [`Input::open`] first, then [`source::FileSource`].
//!
//! ```no_run
//! use konkordia_input::{Input, Options};
//!
//! let input = Input::open(&["run_d0_f0_0.raw".into()], &Options::default())?;
//! let mut tile = input.open_tile(0);
//! let mut pixels = vec![0; input.info().format.tile_bytes() as usize];
//! for nth in 0..tile.len() {
//!     let frame = tile.read(nth, &mut pixels)?;
//!     println!("frame {}: {} packets", tile.frame_number(nth), frame.bitmap.count());
//! }
//! # Ok::<(), konkordia_core::failure::Failure>(())
//! ```
//!
//! Formats: our own runs of raw words, the slsReceiver's binary files and its HDF5, SwissFEL JUNGFRAU HDF5, records
//! with a header of 112, 48 or 16 bytes, and plain planes of words (docs/convert.md). Opening reads every header once,
//! so that frames can be sorted and missing frames are known before the first pixel is read. Memory: 24 bytes for each
//! tile of each frame; for runs of raw words also the columns of each image.
#![forbid(unsafe_code)]

mod bare;
mod files;
mod found;
pub mod images;
mod index;
mod info;
mod options;
mod own;
mod own_reader;
mod records;
mod sls;
pub mod source;
mod stack;
mod stack_reader;
#[cfg(test)]
mod tests;
mod tile_reader;

pub use files::sha256;
pub use info::{InputInfo, KeptFrame, OwnRun, RunFrames, Times};
pub use options::{Format, Options};
pub use tile_reader::{TileFrame, TileReader};

use files::{identity, wrong};
use found::{Found, Kind};
use index::TileIndex;
use konkordia_core::failure::Failure;
use konkordia_core::ports::Source;
use source::FileSource;
use std::path::PathBuf;

/// Files that were opened and understood.
pub struct Input {
    info: InputInfo,
    tiles: Vec<TileIndex>,
    kind: Kind,
}

impl Input {
    /// Opens files as one acquisition: the master of the slsReceiver, or the data files in any order.
    ///
    /// # Errors
    /// A file cannot be read or understood, files do not belong together, or there is no frame at all.
    pub fn open(paths: &[PathBuf], options: &Options) -> Result<Self, Failure> {
        let first = paths.first().ok_or_else(|| wrong("no input", "no file was given", "name the files to read"))?;
        let found = match options.format {
            Some(Format::SlsRaw) => sls::open(paths, options)?,
            Some(Format::Hdf5) | None if own::is_own(first) => own::open(paths)?,
            Some(Format::Hdf5) => stack::open(paths, options)?,
            Some(format) => bare::open(paths, Some(format), options)?,
            None if sls::is_master(first) || sls::master_beside(first).is_some() => sls::open(paths, options)?,
            None if stack::is_stack(first) => stack::open(paths, options)?,
            None => bare::open(paths, None, options)?,
        };
        found.finish(options)
    }

    /// What was found.
    pub fn info(&self) -> &InputInfo {
        &self.info
    }

    /// Adds a note for the user.
    pub fn add_note(&mut self, note: String) {
        self.info.notes.push(note);
    }

    /// Number of tiles, one per stream.
    pub fn tiles(&self) -> usize {
        self.tiles.len()
    }

    /// The numbers of all frames of which a tile is there, ascending.
    pub fn frame_numbers(&self) -> Vec<u64> {
        index::union(&self.tiles)
    }

    /// The frames of tile `tile`.
    ///
    /// # Panics
    /// If there is no such tile.
    pub fn open_tile(&self, tile: usize) -> Box<dyn TileReader> {
        let index = self.tiles[tile].clone();
        match &self.kind {
            Kind::Records(files) => Box::new(records::Reader::new(files.clone(), index, tile)),
            Kind::Stacks(stacks) => Box::new(stack_reader::Reader::new(stacks.clone(), index, tile)),
            Kind::Own(run) => Box::new(own_reader::Reader::new(run.clone(), index, tile)),
        }
    }

    /// One source for each tile, which begins with the frame of number `first` or the next one that is there.
    pub fn sources(&self, first: u64) -> Vec<Box<dyn Source>> {
        let source = |tile| -> Box<dyn Source> {
            Box::new(FileSource::new(self.open_tile(tile), self.info.format.of_tile(tile)).start_at(first))
        };
        (0..self.tiles()).map(source).collect()
    }
}

/// True if files hold frames of raw words, and not images: runs of this program with dtype = "raw", files of the
/// slsReceiver and of SwissFEL, records, and plain words.
pub fn is_raw(paths: &[PathBuf]) -> bool {
    let Some(path) = paths.first() else { return false };
    if own::is_own(path) {
        return own::has_words(path);
    }
    if stack::is_stack(path) {
        return stack::has_frames(path);
    }
    let alone = || bare::open(paths, None, &Options::default()).is_ok();
    !images::is_cbf(path).unwrap_or(true) && (sls::is_master(path) || sls::master_beside(path).is_some() || alone())
}

impl Found {
    /// Sorts and counts the frames, and checks their numbers.
    fn finish(mut self, options: &Options) -> Result<Input, Failure> {
        for tile in &mut self.tiles {
            tile.settle(&mut self.notes);
        }
        let all = index::union(&self.tiles);
        self.expect_all(&all);
        if let Some((from, to)) = options.frames {
            self.tiles.iter_mut().for_each(|tile| tile.restrict(from, to));
        }
        let numbers = index::union(&self.tiles);
        let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else {
            return Err(self.nothing(&all, options));
        };
        let found = numbers.len() as u64;
        let span = (self.span.0.unwrap_or(all[0]), self.span.1.unwrap_or(all[all.len() - 1]));
        let (from, to) = options.frames.unwrap_or((0, u64::MAX));
        // Includes frames that the run lost before the first and after the last one, as far as they are wanted.
        let (first, last) = (span.0.max(from).min(first), span.1.min(to).max(last));
        self.judge_span(first, last, found)?;
        index::missing_notes(&self.tiles, &numbers, (first, last), &mut self.notes);
        let tile_frames: u64 = self.tiles.iter().map(|t| t.places().len() as u64).sum();
        let info = InputInfo {
            kind: self.words,
            format: self.format,
            modules: self.tiles.len() as u32 / self.interfaces,
            interfaces: self.interfaces,
            placements: self.placements,
            detector: self.detector,
            own: self.own,
            first_frame: first,
            last_frame: last,
            span,
            frames_expected: self.frames_expected,
            frames_found: found,
            raw_bytes: tile_frames * u64::from(self.format.tile_bytes()),
            tile_names: self.tiles.iter().map(|t| t.name.clone()).collect(),
            module_ids: self.module_ids,
            incomplete: self.incomplete,
            notes: self.notes,
            identity: identity(&self.files)?,
            written: self.files.first().and_then(|f| f.metadata().ok()?.modified().ok()).map(konkordia_sinks::clock::of),
            stopped: self.stopped,
            files: self.files,
        };
        Ok(Input { info, tiles: self.tiles, kind: self.kind })
    }

    fn expect_all(&mut self, all: &[u64]) {
        let found = all.len() as u64;
        if let Some(expected) = self.frames_expected.filter(|n| *n > found) {
            self.incomplete = true;
            self.notes.push(format!("the master counts {expected} frames, the files hold {found}"));
        }
    }

    fn nothing(&self, all: &[u64], options: &Options) -> Failure {
        let why = match (all.first().zip(all.last()), options.frames) {
            (Some((first, last)), Some((from, to))) => {
                format!("none of the frames {first} to {last} lies between {from} and {to}")
            }
            _ => format!("{} without a whole frame", self.words),
        };
        let name = self.files.first().map_or(String::new(), |f| format!(": {}", f.display()));
        wrong(format!("there is no frame in the input{name}"), why, "check the files, and --frames if given")
    }

    /// Refuses frame numbers that lie too far apart. Images are stored by frame number, so a damaged number would make
    /// the file enormous.
    fn judge_span(&self, first: u64, last: u64, found: u64) -> Result<(), Failure> {
        const PER_FRAME: u64 = 1000;
        const ALWAYS: u64 = 100_000;
        if last - first < found.saturating_mul(PER_FRAME).max(ALWAYS) {
            return Ok(());
        }
        let why = format!("{found} frames have numbers from {first} to {last}; nearly all images between would be empty");
        Err(wrong("the frame numbers of the input lie too far apart", why, "choose a part with --frames FROM:TO"))
    }
}
