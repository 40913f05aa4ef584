//! What the emulated device reads of memory that is not its own.

use konkordia_memory::ring::RawFrames;

/// Word `at` of the memory of received frames.
pub fn received_word(frames: &RawFrames, at: usize) -> u16 {
    assert!(at < frames.bytes() / 2, "word {at} of {} bytes", frames.bytes());
    // SAFETY: the word lies inside of the memory, which is aligned to a page, was zeroed when it was made, and lives as
    // long as `frames`. Nobody writes it now: a kernel reads only frames whose beginning was given to the pipeline, and
    // who gives it is the worker of a ring, which does not finish the frame before the pipeline is done or given up.
    // An emulated device that was given up does nothing more (`Emulated::go_on`).
    unsafe { frames.start().cast::<u16>().add(at).read() }
}
