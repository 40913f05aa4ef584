//! Gives the raw frames of a run to writers on other hosts: each frame becomes an image of words, as `dtype = "raw"`
//! writes them, and goes the way of all images to a writer (docs/writer.md).

use bytes::Bytes;
use konkordia_core::array::{Array, Element, Packing, Shape};
use konkordia_core::geometry::{ImageGeometry, PixelRun};
use konkordia_core::image::{Channel, CommittedImage, Packets, TileRecord};
use konkordia_core::ledger::ImageStatus;
use konkordia_core::ports::{FrameSink, SinkError};
use konkordia_core::series::{Ended, RunFileText, SeriesEnd, SeriesLedger, SeriesStart};
use konkordia_engine::output_queue::OutputQueues;
use konkordia_sinks::hdf5::LedgerRecord;
use konkordia_wire::formats::PacketFormat;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const WORD_BYTES: usize = 2;
/// Both bytes of the missing value of words.
const MISSING_BYTE: u8 = 0xFF;

/// What becomes of the frames of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    complete: u64,
    partial: u64,
    lost: u64,
}

/// Hands every frame to the writers that take raw frames, each behind its own queue. The thread of the sink hands over
/// frames, and the program ends the run afterwards, so nothing ever waits for the lock.
#[derive(Clone)]
pub struct RawFar(Arc<Mutex<State>>);

struct State {
    queues: Arc<OutputQueues>,
    start: Arc<SeriesStart>,
    file: Arc<RunFileText>,
    give_up: Arc<AtomicBool>,
    frame: Frame,
    /// The number of the frame that is being put together.
    number: Option<u64>,
    /// Frames before this one were handed over.
    end: u64,
    counts: Counts,
    is_over: bool,
}

impl RawFar {
    /// For frames of this geometry. `file` says what the far file is to say.
    pub fn new(queues: Arc<OutputQueues>, file: Arc<RunFileText>, geometry: &ImageGeometry, give_up: Arc<AtomicBool>) -> Self {
        let start = SeriesStart { series: 1, store: true, run_file: Some(Arc::clone(&file)), ..SeriesStart::default() };
        let (frame, counts) = (Frame::new(geometry), Counts::default());
        let state = State { queues, start: Arc::new(start), file, give_up, frame, number: None, end: 0, counts, is_over: false };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run is over after so many frames. The writers get the ledger of the run, with the frames in place of its
    /// images.
    pub fn finish(&self, record: &LedgerRecord, frames: u64, as_text: impl Fn(&LedgerRecord) -> String) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        state.hand_over();
        if state.end > 0 {
            state.lose_until(frames);
        }
        let _ = state.file.ledger.set(as_text(&state.counts.in_place_of_images(record)));
        // Writers take from the ledger how it ended.
        let end = SeriesEnd { ended: Ended::Finished, reason: String::new(), ledger: SeriesLedger::default() };
        state.queues.end(&Arc::new(end));
    }
}

impl FrameSink for RawFar {
    fn write(&mut self, frame: u64, tile: usize, record: &TileRecord, bytes: &[u8]) -> Result<(), SinkError> {
        let mut state = self.lock();
        if state.is_over {
            return Ok(());
        }
        if state.number != Some(frame) {
            state.hand_over();
            state.number = Some(frame);
        }
        state.frame.put(tile, record, bytes);
        Ok(())
    }
}

impl State {
    /// Hands over the frame that was put together, and those before it that never came.
    fn hand_over(&mut self) {
        let Some(number) = self.number.take() else { return };
        self.lose_until(number);
        let image = self.frame.take(number);
        self.give(image);
    }

    fn lose_until(&mut self, number: u64) {
        while self.end < number {
            let lost = self.frame.lost(self.end);
            self.give(lost);
        }
    }

    fn give(&mut self, image: CommittedImage) {
        let give_up = || self.give_up.load(Ordering::Acquire);
        if self.end == 0 {
            self.queues.start(&self.start, &give_up);
        }
        self.end = image.number + 1;
        match image.status {
            ImageStatus::Complete => self.counts.complete += 1,
            ImageStatus::Lost => self.counts.lost += 1,
            _ => self.counts.partial += 1,
        }
        self.queues.image(&Arc::new(image), &give_up);
        self.queues.flush();
    }
}

impl Counts {
    /// The ledger of the run for a file of its frames.
    fn in_place_of_images(self, record: &LedgerRecord) -> LedgerRecord {
        let (with_pixels, all) = (self.complete + self.partial, self.complete + self.partial + self.lost);
        let of_run = |name: &str| record.totals.iter().find(|(other, _)| other == name).map_or(0, |(_, n)| *n);
        // Planned frames that never came, for the reason for which images did not.
        let (absent, is_stopped) = (of_run("frames_absent"), of_run("images_not_taken") > 0);
        let mut record = LedgerRecord { images_expected: all, ..record.clone() };
        for (name, n) in &mut record.totals {
            match name.as_str() {
                "images_expected" => *n = all,
                "images_complete" => *n = self.complete,
                "images_partial" => *n = self.partial,
                "images_lost" => *n = self.lost,
                "images_written" => *n = with_pixels,
                "images_not_taken" if is_stopped => *n = absent,
                "images_not_received" if !is_stopped => *n = absent,
                name if name.starts_with("images_") => *n = 0,
                _ => {}
            }
        }
        record
    }
}

/// A frame that is being put together from its tiles.
struct Frame {
    shape: Shape,
    /// Where the pixels of each tile lie in the image.
    runs: Vec<Vec<PixelRun>>,
    payload_bytes: usize,
    /// A frame of which no packet came.
    packets: Packets,
    tile: Vec<u8>,
    image_bytes: usize,
    /// The words so far; empty before the first tile.
    words: Vec<u8>,
    records: Vec<TileRecord>,
}

impl Frame {
    fn new(geometry: &ImageGeometry) -> Self {
        let (format, tiles) = (geometry.format(), geometry.placements().len());
        let mut runs = vec![Vec::new(); tiles];
        geometry.for_each_run(|run| runs[usize::from(run.tile)].push(run));
        let from = PacketFormat::of(format);
        let packets = Packets {
            packets_per_tile: format.packets() as u16,
            detector_type: from.detector_type(format.kind),
            header_version: from.description().version,
            ..Packets::default()
        };
        let size = [u64::from(geometry.rows()), u64::from(geometry.columns())];
        Self {
            shape: Shape::new(&size).expect("a plan has pixels"),
            runs,
            payload_bytes: format.payload_bytes as usize,
            packets,
            tile: Vec::new(),
            image_bytes: geometry.pixels() * WORD_BYTES,
            words: Vec::new(),
            records: vec![TileRecord::default(); tiles],
        }
    }

    /// Puts a tile in its place. Packets that did not come have the missing value.
    fn put(&mut self, tile: usize, record: &TileRecord, bytes: &[u8]) {
        self.records[tile] = *record;
        if self.words.is_empty() {
            self.words = vec![MISSING_BYTE; self.image_bytes];
        }
        self.tile.clear();
        self.tile.extend_from_slice(bytes);
        for (packet, place) in self.tile.chunks_mut(self.payload_bytes).enumerate() {
            if !record.bitmap.has(packet as u16) {
                place.fill(MISSING_BYTE);
            }
        }
        for run in &self.runs[tile] {
            let into = &mut self.words[WORD_BYTES * run.output..][..WORD_BYTES * run.length as usize];
            if run.step == 1 {
                into.copy_from_slice(&self.tile[WORD_BYTES * run.tile_pixel as usize..][..into.len()]);
                continue;
            }
            for (word, pixel) in into.chunks_exact_mut(WORD_BYTES).zip(run.tile_pixels()) {
                word.copy_from_slice(&self.tile[WORD_BYTES * pixel..][..WORD_BYTES]);
            }
        }
    }

    /// A frame that never came.
    fn lost(&self, number: u64) -> CommittedImage {
        let tiles = vec![TileRecord::default(); self.runs.len()];
        let packets = Packets { first_frame: number, frames: 1, tiles, ..self.packets.clone() };
        CommittedImage { packets: Some(packets), ..CommittedImage::lost(number) }
    }

    /// The frame, as an image; the next one begins.
    fn take(&mut self, number: u64) -> CommittedImage {
        let tiles = std::mem::replace(&mut self.records, vec![TileRecord::default(); self.runs.len()]);
        let pixels = Bytes::from(std::mem::take(&mut self.words));
        if tiles.iter().all(|tile| tile.packets == 0) {
            return self.lost(number);
        }
        let is_complete = tiles.iter().all(|tile| tile.packets == self.packets.packets_per_tile);
        let packets = Packets {
            first_frame: number,
            frames: 1,
            frames_complete: u64::from(is_complete) as u32,
            tiles,
            ..self.packets.clone()
        };
        let array = Array { shape: self.shape, element: Element::Uint16, packing: Packing::None, pieces: vec![pixels] };
        let status = if is_complete { ImageStatus::Complete } else { ImageStatus::Partial };
        let channels = vec![Channel { name: "".into(), array }];
        CommittedImage { status, channels, packets: Some(packets), ..CommittedImage::lost(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::tile::TileFormat;

    #[test]
    fn frames_keep_their_words_and_their_gaps() {
        let format = TileFormat::jungfrau(2).unwrap();
        let geometry = ImageGeometry::stacked(format, 2).unwrap();
        let mut frame = Frame::new(&geometry);
        let words = |tile: usize| -> Vec<u8> { (0..format.tile_bytes() as usize).map(|n| (n * 7 + tile) as u8).collect() };
        let mut record = TileRecord::default();
        (0..format.packets() as u16).for_each(|packet| assert!(!record.bitmap.has(packet) && record.bitmap.set(packet)));
        record.packets = format.packets() as u16;
        frame.put(0, &record, &words(0));
        frame.put(1, &record, &words(1));
        let image = frame.take(7);
        assert_eq!((image.number, image.status), (7, ImageStatus::Complete));
        assert!(image.channels[0].array.pieces[0][..] == [words(0), words(1)].concat());
        // The next frame has nothing of this one: one tile did not come, and one packet of the other.
        let mut partial = TileRecord::default();
        (1..format.packets() as u16).for_each(|packet| assert!(partial.bitmap.set(packet)));
        partial.packets = format.packets() as u16 - 1;
        frame.put(1, &partial, &words(1));
        let image = frame.take(8);
        let (first, bytes) = (format.payload_bytes as usize, format.tile_bytes() as usize);
        assert_eq!(image.status, ImageStatus::Partial);
        let pixels = &image.channels[0].array.pieces[0];
        assert!(pixels[..bytes + first].iter().all(|byte| *byte == MISSING_BYTE));
        assert!(pixels[bytes + first..] == words(1)[first..]);
        assert_eq!(image.packets.unwrap().tiles[0], TileRecord::default());
        assert_eq!(frame.take(9).status, ImageStatus::Lost);
    }

    #[test]
    fn the_ledger_counts_frames_in_place_of_images() {
        let record = LedgerRecord {
            totals: [
                ("received", 9),
                ("images_expected", 5),
                ("images_complete", 5),
                ("images_vetoed", 2),
                ("images_not_received", 1),
                ("frames_absent", 10),
            ]
            .map(|(name, n)| (name.to_string(), n))
            .into(),
            images_expected: 5,
            ..LedgerRecord::default()
        };
        let of_frames = Counts { complete: 40, partial: 3, lost: 7 }.in_place_of_images(&record);
        assert_eq!(of_frames.images_expected, 50);
        let totals: Vec<u64> = of_frames.totals.iter().map(|(_, n)| *n).collect();
        assert_eq!(totals, [9, 50, 40, 0, 10, 10]);
    }
}
