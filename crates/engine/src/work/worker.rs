//! What a worker is, whatever computes: the processor that runs the thread, other threads, or a device.

use super::steps::Step;

/// Makes strips of sealed frames, which it finds at `S` ([`super::place::Place`]).
///
/// What it must provide, and what the conformance tests compare byte by byte (`engine/tests/processing`):
/// - All frames of the run come, in order, each once, in batches. A worker keeps what depends on the order of frames
///   (tracked pedestals, sums) itself, between batches too.
/// - It owns some strips of every image for the whole run. For each frame that packs an image ([`Step::packs`]) it
///   leaves the bytes and the numbers of each of these strips. With the last frame of an image it writes the pedestals
///   of its strips, if the image has a snapshot.
/// - The bytes are those of the scalar kernels, bit by bit: conversion, sums, split pixels, the codec with its level.
/// - Of a tile it reads only packets that are in the bitmap of its record.
/// - When `work` returns, the strips of the batch are done; the slots of the frames are then used again. A device that
///   works on several batches at once needs as many workers, each with strips of its own.
/// - It allocates when it is made. A panic on its own threads is carried on to the thread that called it.
pub(crate) trait Worker<S> {
    /// Does the frames of a batch.
    fn work(&mut self, place: &mut S, steps: &[Step]);
}
