//! One consumer of images: a thread that takes images from its output queue and gives them to a sink.

use crate::events::EventLog;
use crate::handle::Severity;
use konkordia_core::ports::{SeriesSink, SinkError};
use konkordia_core::series::{SeriesEnd, SeriesImage, SeriesStart};
use konkordia_engine::output_queue::{Item, OutputQueueReader};
use konkordia_engine::series::encode::{self, Outgoing, Parts};
use konkordia_engine::series::guarded;
use konkordia_sinks::zmq::MessageEncoder;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the sink's `tick` is called while nothing arrives.
const TICK: Duration = Duration::from_millis(100);

/// The engine's encoder, in the form that the socket needs.
pub struct Words(Box<dyn encode::Encoder>);

impl Words {
    /// For this protocol.
    pub fn of(protocol: Outgoing) -> Box<Self> {
        Box::new(Self(encode::encoder(protocol)))
    }
}

impl MessageEncoder for Words {
    fn start(&mut self, start: &SeriesStart) -> Result<Vec<Parts>, String> {
        self.0.start(start)
    }

    fn image(&mut self, image: &SeriesImage) -> Result<Vec<Parts>, String> {
        self.0.image(image)
    }

    fn end(&mut self, end: &SeriesEnd) -> Result<Vec<Parts>, String> {
        self.0.end(end)
    }
}

/// What the thread of a consumer reports.
pub trait Reports: Send {
    /// The sink failed. It gets no more of this series, except its end.
    fn failed(&mut self, error: &SinkError, unwritten: u64);
    /// A series has ended; `unwritten` images of it were not taken.
    fn ended(&mut self, end: &Arc<SeriesEnd>, unwritten: u64);
    /// The sink has taken an image with pixels.
    fn taken(&mut self, _image: &SeriesImage) {}
    /// The sink did not take an image with pixels, because it fails or has failed in this series.
    fn passed(&mut self, _image: &SeriesImage) {}
    /// Called after each batch.
    fn looked(&mut self, reader: &OutputQueueReader);
    /// Longest time between two batches while there is no series.
    fn patience(&self) -> Duration {
        TICK
    }
}

/// Reports of the consumer of a stream, as events.
pub struct ConsumerEvents {
    /// Where events are reported.
    pub events: EventLog,
    /// Detector.
    pub detector: String,
    /// Name of the consumer.
    pub name: String,
    /// Number of connected receivers, read after each batch.
    pub peers: Box<dyn Fn() -> u64 + Send>,
    /// Whether a receiver was connected last time.
    pub was_connected: Option<bool>,
    /// Images that came out of the queue and were not sent: the protocol cannot carry them, or an earlier one failed.
    pub unsendable: Arc<AtomicU64>,
}

impl Reports for ConsumerEvents {
    fn failed(&mut self, error: &SinkError, _: u64) {
        let message = format!("consumer '{}': {}", self.name, error.what);
        let data = json!({ "consumer": self.name, "why": error.why, "fix": error.fix });
        self.events.add(Some(&self.detector), "consumer", Severity::Warning, message, data);
    }

    fn ended(&mut self, _: &Arc<SeriesEnd>, unwritten: u64) {
        self.unsendable.fetch_add(unwritten, Ordering::Relaxed);
    }

    fn looked(&mut self, reader: &OutputQueueReader) {
        let is_connected = (self.peers)() > 0;
        reader.set_connected(is_connected);
        if self.was_connected.replace(is_connected) != Some(is_connected) {
            let word = if is_connected { "is connected" } else { "is not connected" };
            let message = format!("consumer '{}' {word}", self.name);
            let data = json!({ "consumer": self.name, "connected": is_connected });
            self.events.add(Some(&self.detector), "consumer", Severity::Info, message, data);
        }
    }
}

/// A sink behind its output queue.
struct Delivery<S, R> {
    sink: S,
    reports: R,
    /// The sink failed in this series and gets no more images of it.
    failed: bool,
    in_series: bool,
    unwritten: u64,
}

impl<S: SeriesSink, R: Reports> Delivery<S, R> {
    fn note(&mut self, result: Result<(), SinkError>) {
        if let Err(error) = result {
            self.failed = true;
            self.reports.failed(&error, self.unwritten);
        }
    }

    fn take(&mut self, item: &Item) {
        match item {
            Item::Start(start) => {
                (self.failed, self.in_series, self.unwritten) = (false, true, 0);
                let result = guarded(|| self.sink.start(start));
                // A sink that did not take the start of a series does not get its end either.
                self.in_series = result.is_ok();
                self.note(result);
            }
            Item::Image(image) => {
                let result = if self.failed { None } else { Some(guarded(|| self.sink.image(image))) };
                if image.status.has_pixels() {
                    if matches!(result, Some(Ok(()))) {
                        self.reports.taken(image);
                    } else {
                        self.unwritten += 1;
                        self.reports.passed(image);
                    }
                }
                self.note(result.unwrap_or(Ok(())));
            }
            Item::End(end) => {
                if std::mem::take(&mut self.in_series) {
                    let result = guarded(|| self.sink.end(end));
                    self.note(result);
                }
                self.reports.ended(end, self.unwritten);
                self.failed = false;
            }
        }
    }
}

/// Starts the thread of a consumer. It ends when its output queue is removed.
///
/// # Errors
/// The machine has no threads left.
pub fn spawn<S, R>(
    name: &str,
    mut reader: OutputQueueReader,
    sink: S,
    reports: R,
    now_ns: impl Fn() -> u64 + Send + 'static,
) -> io::Result<JoinHandle<()>>
where
    S: SeriesSink + 'static,
    R: Reports + 'static,
{
    let mut delivery = Delivery { sink, reports, failed: false, in_series: false, unwritten: 0 };
    let work = move || {
        let mut items = Vec::new();
        loop {
            // Without a series there is nothing to write, so the wait may be long. Removing the queue wakes the thread.
            let patience = if delivery.in_series { TICK } else { delivery.reports.patience() };
            let is_open = reader.take(patience, &mut items);
            items.iter().for_each(|item| delivery.take(item));
            items.clear();
            if !delivery.failed {
                let result = guarded(|| delivery.sink.tick(now_ns()));
                delivery.note(result);
            }
            delivery.reports.looked(&reader);
            if !is_open {
                return;
            }
        }
    };
    std::thread::Builder::new().name(format!("out-{name}")).spawn(work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use konkordia_core::series::{SeriesEnded, SeriesLedger};
    use konkordia_engine::output_queue::{OnFull, OutputQueueSpec, OutputQueues, Service};
    use std::sync::Mutex;

    type Log = Arc<Mutex<Vec<String>>>;

    struct Picky(Log);

    impl SeriesSink for Picky {
        fn start(&mut self, start: &Arc<SeriesStart>) -> Result<(), SinkError> {
            self.0.lock().unwrap().push(format!("start {}", start.series));
            if start.series == 2 { Err(error("no series 2")) } else { Ok(()) }
        }
        fn image(&mut self, image: &Arc<SeriesImage>) -> Result<(), SinkError> {
            self.0.lock().unwrap().push(format!("image {}", image.number));
            if image.number == 1 { Err(error("no image 1")) } else { Ok(()) }
        }
        fn end(&mut self, _: &Arc<SeriesEnd>) -> Result<(), SinkError> {
            self.0.lock().unwrap().push("end".into());
            Ok(())
        }
        fn tick(&mut self, _: u64) -> Result<(), SinkError> {
            Ok(())
        }
    }

    fn error(what: &str) -> SinkError {
        SinkError { what: what.into(), why: String::new(), fix: String::new() }
    }

    struct Notes(Log);

    impl Reports for Notes {
        fn failed(&mut self, error: &SinkError, _: u64) {
            self.0.lock().unwrap().push(format!("failed: {}", error.what));
        }
        fn ended(&mut self, _: &Arc<SeriesEnd>, unwritten: u64) {
            self.0.lock().unwrap().push(format!("ended, {unwritten} unwritten"));
        }
        fn looked(&mut self, _: &OutputQueueReader) {}
    }

    #[test]
    fn a_sink_that_fails_hears_the_end_of_its_series_and_the_next_one_whole() {
        let log: Log = Arc::default();
        let output_queues = OutputQueues::new(None);
        let service = Service::Reliable { on_full: OnFull::Wait };
        let reader = output_queues.add(OutputQueueSpec { name: "a".into(), service, queue_images: 8, queue_bytes: 1 << 20 });
        let thread = spawn("a", reader, Picky(Arc::clone(&log)), Notes(Arc::clone(&log)), || 0).unwrap();
        let end = Arc::new(SeriesEnd { ended: SeriesEnded::Finished, reason: String::new(), ledger: SeriesLedger::default() });
        for series in [1, 2, 3] {
            output_queues.start(&Arc::new(SeriesStart { series, ..SeriesStart::default() }), &|| false);
            for number in [0, if series == 1 { 1 } else { 5 }, 2] {
                let image = SeriesImage { status: konkordia_core::ledger::ImageStatus::Complete, ..SeriesImage::lost(number) };
                output_queues.image(&Arc::new(image), &|| false);
            }
            output_queues.end(&end);
        }
        output_queues.remove("a");
        thread.join().unwrap();
        let expected = [
            "start 1",
            "image 0",
            "image 1",
            "failed: no image 1",
            "end",
            "ended, 2 unwritten",
            "start 2",
            "failed: no series 2",
            "ended, 3 unwritten",
            "start 3",
            "image 0",
            "image 5",
            "image 2",
            "end",
            "ended, 0 unwritten",
        ];
        assert_eq!(*log.lock().unwrap(), expected);
    }
}
