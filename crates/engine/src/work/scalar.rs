//! The reference worker, and the example of a worker that is not on the thread of the ring: it gets a copy of each
//! frame, works in a thread of its own, with scalar kernels, on one whole frame at a time, and gives the strips back.

use super::place::{Place, Tiles};
use super::recipes::Recipes;
use super::steps::Step;
use super::strips;
use super::worker::Worker;
use crate::contain::contain_thread;
use crate::results::numbers_of_strip;
use crossbeam_channel::{Receiver, Sender, bounded};
use konkordia_core::image::TileRecord;
use konkordia_core::selection::FrameUse;
use konkordia_memory::ring;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The side of the ring.
pub(crate) struct ScalarWorker {
    to: Option<Sender<(Step, Box<FrameCopy>)>>,
    from: Receiver<Box<FrameCopy>>,
    thread: Option<JoinHandle<()>>,
    /// Absent only while it is in the other thread.
    copy: Option<Box<FrameCopy>>,
}

/// A sealed frame on its way to the worker, and the strips on their way back.
struct FrameCopy {
    frame: u64,
    /// For each tile, its record if packets of it were placed.
    records: Vec<Option<TileRecord>>,
    /// Raw bytes of each tile, in 64-bit words so that pixels of every size are aligned.
    tiles: Vec<Vec<u64>>,
    tile_bytes: usize,
    has_snapshot: bool,
    strips: Vec<StripCopy>,
}

/// What comes back of a strip.
struct StripCopy {
    strip: usize,
    packed: Vec<u64>,
    /// Its room.
    bytes_max: usize,
    packed_bytes: usize,
    numbers: Vec<u64>,
    pedestals: Vec<f32>,
}

impl ScalarWorker {
    /// Starts the thread. `strips`: those of the worker.
    pub fn new(recipes: &Arc<Recipes>, strips: Vec<usize>) -> Self {
        let copy = Box::new(FrameCopy::new(recipes, &strips));
        let (to, frames) = bounded::<(Step, Box<FrameCopy>)>(1);
        let (done, from) = bounded(1);
        let recipes = Arc::clone(recipes);
        let work = move || {
            // A panic is carried on to the thread that waits for the frame.
            contain_thread();
            let mut worker = strips::worker::<FrameCopy>(&recipes, strips);
            for (step, mut copy) in frames {
                worker.work(&mut copy, &[step]);
                if done.send(copy).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("scalar".into()).spawn(work).expect("the system has a thread for the worker");
        Self { to: Some(to), from, thread: Some(thread), copy: Some(copy) }
    }

    /// Gives a frame to the other thread, and waits until it is done.
    fn ask(&mut self, step: Step) {
        let copy = self.copy.take().zip(self.to.as_ref());
        let is_given = copy.is_some_and(|(copy, to)| to.send((step, copy)).is_ok());
        self.copy = if is_given { self.from.recv().ok() } else { None };
        if self.copy.is_none() {
            // The thread is gone, so it has panicked.
            self.end();
        }
    }

    /// Ends the thread; a panic in it is carried on.
    fn end(&mut self) {
        self.to = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for ScalarWorker {
    fn drop(&mut self) {
        self.end();
    }
}

impl Worker<ring::Worker> for ScalarWorker {
    fn work(&mut self, ring: &mut ring::Worker, steps: &[Step]) {
        for step in steps {
            if let Some(copy) = &mut self.copy {
                copy.fetch(ring, step);
            }
            self.ask(*step);
            if let Some(copy) = &self.copy {
                copy.leave(ring, step);
            }
        }
    }
}

impl FrameCopy {
    fn new(recipes: &Recipes, strips: &[usize]) -> Self {
        let plan = &recipes.plan;
        let words = |bytes: usize| vec![0; bytes.div_ceil(8)];
        let tile_bytes = plan.geometry.format().tile_bytes() as usize;
        let strip = |strip: &usize| {
            let blocks = recipes.blocks_of(*strip);
            let bytes = blocks.map(|block| plan.packed_block_bytes_max(recipes.gather.block_length(block))).sum();
            StripCopy {
                strip: *strip,
                packed: words(bytes),
                bytes_max: bytes,
                packed_bytes: 0,
                numbers: vec![0; numbers_of_strip(plan)],
                pedestals: vec![0.0; recipes.pixels_of(*strip).len()],
            }
        };
        Self {
            frame: 0,
            records: vec![None; plan.streams()],
            tiles: vec![words(tile_bytes); plan.streams()],
            tile_bytes,
            has_snapshot: false,
            strips: strips.iter().map(strip).collect(),
        }
    }

    /// Copies a frame out of the ring.
    fn fetch(&mut self, ring: &mut ring::Worker, step: &Step) {
        self.frame = step.frame.number;
        for (tile, (record, words)) in self.records.iter_mut().zip(&mut self.tiles).enumerate() {
            *record = ring.tile(self.frame, tile).map(|(record, bytes)| {
                bytemuck::cast_slice_mut(words)[..bytes.len()].copy_from_slice(bytes);
                *record
            });
        }
        self.has_snapshot = match step.becomes {
            // All strips of an image have a snapshot, or none.
            FrameUse::Keep { image, last: true, .. } => ring.snapshot(image, self.strips[0].strip).is_some(),
            _ => false,
        };
    }

    /// Leaves what came back in the ring.
    fn leave(&self, ring: &mut ring::Worker, step: &Step) {
        let FrameUse::Keep { image, .. } = step.becomes else { return };
        for StripCopy { strip, packed, packed_bytes, numbers, pedestals, .. } in &self.strips {
            if step.packs {
                ring.pack(image, *strip, |_, out| {
                    out[..*packed_bytes].copy_from_slice(&bytemuck::cast_slice(packed)[..*packed_bytes]);
                    *packed_bytes
                });
                ring.set_numbers(image, *strip, numbers);
            }
            if self.has_snapshot
                && let Some(out) = ring.snapshot(image, *strip)
            {
                out.copy_from_slice(pedestals);
            }
        }
    }

    fn strip_mut(&mut self, strip: usize) -> &mut StripCopy {
        self.strips.iter_mut().find(|own| own.strip == strip).expect("a worker makes strips of its own only")
    }
}

impl Tiles for FrameCopy {
    fn tile(&self, frame: u64, tile: usize) -> Option<(&TileRecord, &[u8])> {
        assert_eq!(frame, self.frame, "a worker looks at the frame that it was given");
        self.records[tile].as_ref().map(|record| (record, &bytemuck::cast_slice(&self.tiles[tile])[..self.tile_bytes]))
    }
}

impl Place for FrameCopy {
    fn pack(&mut self, _: u64, strip: usize, pack: impl FnOnce(&Self, &mut [u8]) -> usize) {
        let own = self.strip_mut(strip);
        let (mut packed, bytes_max) = (std::mem::take(&mut own.packed), own.bytes_max);
        let packed_bytes = pack(self, &mut bytemuck::cast_slice_mut(&mut packed)[..bytes_max]);
        let own = self.strip_mut(strip);
        (own.packed, own.packed_bytes) = (packed, packed_bytes);
    }

    fn set_numbers(&mut self, _: u64, strip: usize, numbers: &[u64]) {
        self.strip_mut(strip).numbers.copy_from_slice(numbers);
    }

    fn snapshot(&mut self, _: u64, strip: usize) -> Option<&mut [f32]> {
        let has_snapshot = self.has_snapshot;
        has_snapshot.then(|| &mut *self.strip_mut(strip).pedestals)
    }
}
