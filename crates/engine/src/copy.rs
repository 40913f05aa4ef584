//! One thread per sink of raw frames: hands it every tile of every frame in order, beside the workers.

use crate::control::Control;
use konkordia_core::plan::Plan;
use konkordia_core::ports::{FrameSink, SinkError};
use konkordia_memory::ring::FrameReader;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What one sink of raw frames did.
pub(crate) struct Copied {
    pub sink: Box<dyn FrameSink>,
    pub error: Option<SinkError>,
}

/// Hands over frames until the end of the run. After an error frames are still passed, so that the ring moves on.
pub(crate) fn run(control: &Control, plan: &Plan, mut reader: FrameReader, copied: &mut Copied) {
    let Copied { sink, error } = copied;
    while !control.has_failed() && reader.next() < control.end.load(Ordering::Acquire) {
        if !reader.wait(Duration::from_millis(20)) {
            continue;
        }
        for tile in 0..plan.streams() {
            if let (None, Some((record, bytes))) = (&*error, reader.tile(tile)) {
                *error = sink.write(reader.next(), tile, record, bytes).err();
                if error.is_some() {
                    control.stop();
                }
            }
        }
        reader.pass();
    }
}
