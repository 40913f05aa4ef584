//! One thread per sink: hands it the committed images in order. The slot of an image is free when every sink has taken
//! it.

use crate::control::Control;
use konkordia_core::ledger::{ImageStatus, MissingPolicy};
use konkordia_core::plan::{Plan, STRIPS_MAX};
use konkordia_core::ports::{CommittedImage, Sink, SinkError, TileRecord};
use konkordia_memory::ring::SinkReader;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What one sink did.
pub(crate) struct Delivery {
    pub sink: Box<dyn Sink>,
    /// Images handed over that hold packets and are not discarded.
    pub written: u64,
    /// Such images that came after the sink had failed.
    pub unwritten: u64,
    pub error: Option<SinkError>,
    /// The latency of images is measured at this sink: the time until it is done with them.
    pub is_timed: bool,
}

/// Delivers images until the end of the run. If the run has failed, delivers only those that are ready. After an error
/// images are still passed, so that the ring moves on, but the sink sees none of them.
pub(crate) fn run(control: &Control, plan: &Plan, mut reader: SinkReader, delivery: &mut Delivery) {
    let nothing = vec![TileRecord::default(); plan.streams()];
    while reader.next() < control.images_end.load(Ordering::Acquire) {
        let has_failed = control.has_failed();
        let is_ready = reader.wait(if has_failed { Duration::ZERO } else { Duration::from_millis(50) });
        if !is_ready && has_failed {
            break;
        }
        if is_ready {
            reader.take(|view| {
                let (image, head) = (view.image, *view.head);
                let (mut strips, mut pedestals): ([&[u8]; STRIPS_MAX], [&[f32]; STRIPS_MAX]) = ([&[]; _], [&[]; _]);
                let count = if head.status.has_pixels() { view.strips() } else { 0 };
                strips[..count].iter_mut().enumerate().for_each(|(n, strip)| *strip = view.strip(n));
                // All strips of an image have a snapshot, or none.
                let snapshots = if view.snapshot(0).is_some() { view.strips() } else { 0 };
                for (n, pedestal) in pedestals[..snapshots].iter_mut().enumerate() {
                    *pedestal = view.snapshot(n).unwrap_or_default();
                }
                let forget = head.status == ImageStatus::Discarded && plan.missing == MissingPolicy::CompleteOnly;
                let tiles = if forget { &nothing } else { view.records };
                let (strips, pedestals) = (&strips[..count], &pedestals[..snapshots]);
                delivery.take(control, &CommittedImage { image, head, tiles, strips, pedestals });
                if let (true, None, Some(received_ns)) =
                    (delivery.is_timed && count > 0, &delivery.error, TileRecord::first_received_ns(view.records))
                {
                    control.written_latency.count(control.now_ns().saturating_sub(received_ns));
                }
            });
        }
        if delivery.error.is_none()
            && let Err(error) = delivery.sink.tick(control.now_ns())
        {
            delivery.fail(control, error);
        }
    }
}

impl Delivery {
    pub(crate) fn new(sink: Box<dyn Sink>, is_timed: bool) -> Self {
        Self { sink, written: 0, unwritten: 0, error: None, is_timed }
    }

    fn take(&mut self, control: &Control, image: &CommittedImage<'_>) {
        let wanted = u64::from(!image.strips.is_empty());
        if self.error.is_some() {
            self.unwritten += wanted;
            return;
        }
        match self.sink.write(image) {
            Ok(()) => self.written += wanted,
            Err(error) => {
                self.unwritten += wanted;
                self.fail(control, error);
            }
        }
    }

    /// The run ends, with everything before intact.
    fn fail(&mut self, control: &Control, error: SinkError) {
        self.error = Some(error);
        control.stop();
    }
}
